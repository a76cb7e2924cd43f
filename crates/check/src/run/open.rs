//! An execution whose agents come and go: the tasks of a graph, the cores of a chip, a host.
//!
//! It has no trees: who asks for an instruction gets its answer, and its place is a number that the asker gave it.

use super::{Doing, Run, place};
use crate::clock::Clock;
use crate::memory::Memory;
use crate::shadow::Access;
use crate::tree::NodeId;
use ringwork_isa::stepped::{Answer, Instruction, PacketSource};
use ringwork_isa::{Compare, Result, Segment, Signal};
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::Location;

/// What an instruction waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// The cell that must change.
    pub(crate) cell: Signal,
    /// The signal of which a report speaks.
    pub(crate) signal: Signal,
    pub(crate) compare: Compare,
    pub(crate) operand: i32,
}

impl Run {
    /// An execution without agents.
    pub(crate) fn open() -> Run {
        Run::new(0, 0, Memory::default())
    }

    /// One more agent.
    pub(crate) fn add_agent(&mut self) -> u32 {
        let agent = u32::try_from(self.clocks.len()).unwrap_or(u32::MAX);
        self.at.push(crate::tree::ROOT);
        self.clocks.push(Clock::default());
        self.under_way.push(Vec::new());
        self.lanes.push(Vec::new());
        self.polls.push(Vec::new());
        agent
    }

    pub(crate) fn knows(&mut self, agent: u32) -> &mut Clock {
        &mut self.clocks[agent as usize]
    }

    /// What an instruction has to wait for now, if it has to.
    pub(crate) fn awaited(&self, instruction: &Instruction) -> Option<Awaited> {
        match instruction {
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => {
                let awaited = Awaited {
                    cell: *signal,
                    signal: *signal,
                    compare: *compare,
                    operand: *operand,
                };
                (!compare.holds(self.value(signal), *operand)).then_some(awaited)
            }
            Instruction::TakePackets { sources, epoch, .. } => {
                let operand = (*epoch).into();
                let missing =
                    |source: &PacketSource| source.arrives.filter(|(flag, _)| !self.has_come(flag, operand));
                let (cell, signal) = sources.iter().find_map(missing)?;
                Some(Awaited {
                    cell,
                    signal,
                    compare: Compare::Ge,
                    operand,
                })
            }
            _ => None,
        }
    }

    /// Does an instruction that has to wait for nothing. `chip` is whose private memory it may touch; if there is none, it was
    /// checked elsewhere.
    pub(crate) fn perform(
        &mut self,
        agent: u32,
        chip: Option<u32>,
        node: NodeId,
        instruction: &Instruction,
        at: &'static Location<'static>,
    ) -> Result<Answer> {
        if let Some(chip) = chip {
            self.check(chip, instruction, at)?;
        }
        if matches!(
            instruction,
            Instruction::CopyAsync { .. } | Instruction::Take { .. }
        ) {
            self.provide_lane(agent);
        }
        let clock = &mut self.clocks[agent as usize];
        let time = clock.get(agent) + 1;
        clock.set(agent, time);
        let by = Access {
            agent,
            rank: agent,
            time,
            node,
            writes: false,
        };
        let none = BTreeSet::new();
        let doing = Doing {
            by,
            at,
            call: 0,
            read: None,
            bad: &none,
        };
        self.execute(&doing, instruction)
    }

    /// Makes sure that the next transfer of an agent has an agent of its own.
    fn provide_lane(&mut self, agent: u32) {
        let lane = self.under_way[agent as usize].len();
        for lane in 0..=lane {
            if !self.open_lanes.contains_key(&(agent, lane)) {
                let own = self.add_agent();
                self.open_lanes.insert((agent, lane), own);
            }
        }
    }

    /// Ends an agent's transfers; returns the place of one that was never joined.
    pub(crate) fn end_transfers(&mut self, agent: u32) -> Option<NodeId> {
        let left = std::mem::take(&mut self.under_way[agent as usize]);
        left.first().map(|one| one.node)
    }

    /// What the write released that first satisfied a comparison.
    pub(crate) fn released_by(&self, signal: &Signal, compare: Compare, operand: i32) -> Option<&Clock> {
        let cell = self.cells.get(&place(signal))?;
        let index = match compare {
            Compare::Ge | Compare::Gt => cell.first_holding(compare, operand)?,
            _ => cell.latest()?,
        };
        cell.history.get(index).map(|entry| &*entry.released)
    }

    /// Takes a segment's signals away, or makes them zero.
    pub(crate) fn forget_signals(&mut self, segment: Segment) {
        self.cells.retain(|(of, _), _| *of != segment);
    }

    /// Bytes that are handed out anew.
    pub(crate) fn forget_bytes(&mut self, segment: Segment, bytes: &Range<u64>) {
        self.shadow.forget(segment, bytes);
    }

    /// Everybody who comes knows all that was done.
    pub(crate) fn settle(&mut self) {
        self.shadow.clear();
        for cell in self.cells.values_mut() {
            std::rc::Rc::make_mut(cell).settle();
        }
    }

    /// The bytes of a signal's cell.
    pub(crate) fn is_there(&self, chip: u32, signal: &Signal) -> bool {
        let offset = signal.offset().unwrap_or(u64::MAX - 4);
        self.memory
            .is_mapped(chip, signal.segment(), &(offset..offset + 4))
    }
}
