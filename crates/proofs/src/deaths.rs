//! The death of a rank: whatever instruction it dies before, no survivor blocks, and errors name the right rank.

use crate::{Size, Workload};
use ringwork_check::{Detector, Machine, Seat, Who};
use ringwork_isa::{ErrorKind, Rank, Result};
use ringwork_layout::LayoutError;
use std::cell::RefCell;
use std::rc::Rc;

/// A run does at most so many instructions.
const MOST_INSTRUCTIONS: u64 = 1_000_000;

/// When the others learn of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// At once.
    AtOnce,
    /// When they can do nothing else.
    WhenStuck,
}

/// How a run ended in which one rank died.
#[derive(Clone, Debug)]
pub struct Death {
    /// Whether the rank died: not if it had done all its instructions before.
    pub has_died: bool,
    /// What each survivor's kernel returned; none for one that never ended.
    pub survivors: Vec<(Rank, Option<Result<()>>)>,
    /// Races and misused signals that were found, in words.
    pub faults: Vec<String>,
}

impl Death {
    /// What is wrong: a survivor that blocks, or that blames another rank than `victim`.
    #[must_use]
    pub fn wrong(&self, victim: Rank) -> Option<String> {
        for (rank, end) in &self.survivors {
            match end {
                None => return Some(format!("rank {rank} blocks")),
                Some(Ok(())) => {}
                Some(Err(error)) => match error.kind() {
                    ErrorKind::PeerDied { rank: named, .. } if *named == victim => {}
                    _ => return Some(format!("rank {rank} says: {error}")),
                },
            }
        }
        self.faults.first().cloned()
    }
}

impl Workload {
    /// Runs it once, with `victim` dying before its instruction of this number, from 0.
    ///
    /// # Errors
    /// If a window cannot be that large.
    pub fn with_death(
        &self,
        (ranks, calls, size): (u32, u32, Size),
        victim: Rank,
        instruction: u64,
        told: Told,
    ) -> std::result::Result<Death, LayoutError> {
        let (layout, private_bytes) = self.memory(ranks, calls, size)?;
        let detector = Rc::new(RefCell::new(Detector::with_memory()));
        detector
            .borrow_mut()
            .define(layout.segment, "window", None, layout.bytes());
        let machine = Machine::new(detector.clone(), MOST_INSTRUCTIONS);
        machine.let_die(victim.0, instruction);
        let mut tasks = Vec::new();
        for rank in (0..ranks).map(Rank) {
            let seat = Seat {
                me: rank,
                call: 0,
                layout,
            };
            let own = seat.private::<i64>(0, 0).segment;
            detector
                .borrow_mut()
                .define(own, "private memory", Some(rank.0), private_bytes);
            let who = Who {
                chip: Some(rank.0),
                name: "kernel".into(),
                task: 1,
            };
            let start = detector.borrow_mut().now(Detector::HOST);
            let agent = detector.borrow_mut().begin(who, &start);
            let kernel = self.kernel((ranks, calls, size), layout, rank)?;
            tasks.push((rank, machine.spawn(rank.0, agent, None, kernel)));
        }
        let mut has_died = false;
        let mut untold = false;
        loop {
            let went_on = machine.turn();
            untold |= !machine.take_dead().is_empty();
            has_died |= untold;
            if untold && (told == Told::AtOnce || !went_on) {
                machine.died(layout.segment, victim, "it was killed");
                untold = false;
            } else if !went_on {
                break;
            }
        }
        let survivors = tasks.into_iter().filter(|(rank, _)| *rank != victim);
        let survivors = survivors
            .map(|(rank, task)| (rank, machine.outcome(task)))
            .collect();
        let faults = detector.borrow().checked().faults;
        Ok(Death {
            has_died,
            survivors,
            faults: faults.iter().map(ToString::to_string).collect(),
        })
    }
}
