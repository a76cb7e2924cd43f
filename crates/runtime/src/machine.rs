//! The seam between a worker and a platform: memory by number, tasks by chip, events.
//!
//! Everything above speaks to a [`Machine`] and cannot tell processes from a simulation.

pub(crate) mod sim;

use crate::platform::Simulated;
use crate::timeline::{Epoch, Records};
use ringwork_isa::{Device, Rank, Segment, Signal, Task};
use ringwork_native::segment::{Alarm, Attached, Layout};
use ringwork_native::trace::{LastSeen, tsc_clock};
use ringwork_native::{ChipProcesses, Event, InitialSegment, Interrupter, Launch, Members, Waiter};
use ringwork_sim::timeline::Timeline;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A segment to be made, and the chips that map it; in rank order if it is a domain's windows.
#[derive(Clone, Debug)]
pub(crate) struct SegmentPlan {
    pub(crate) layout: Layout,
    /// Such as `window "tp"`.
    pub(crate) what: String,
    pub(crate) members: Members,
}

/// What a platform does for a worker. Chips are named by their position.
pub(crate) trait Machine: Send {
    fn create(&mut self, plan: &SegmentPlan) -> ringwork_native::Result<()>;
    /// Takes a part in a domain that reaches over other workers of this host; false if its chips cannot map memory
    /// of this host.
    fn join(&mut self, _segment: &Arc<Attached>, _plan: &SegmentPlan) -> ringwork_native::Result<bool> {
        Ok(false)
    }
    /// What a domain with these members is told, if one of them has ended.
    fn alarm(&self, _members: &Members) -> Option<Alarm> {
        None
    }
    /// Frees a segment once the tasks submitted before are done with it.
    fn release(&mut self, segment: Segment, chips: &[usize]);
    /// Copies host bytes into a rank's data; false if they do not fit.
    fn write(&self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool;
    /// Copies a rank's data out; false if it is not all there.
    fn read(&self, segment: Segment, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool;
    /// A signal's value now, with everything before the notify that gave it; `None` if there is none.
    fn peek(&self, signal: &Signal) -> Option<i32>;
    /// Sets a signal from outside, after everything written before; false if there is none.
    fn notify(&self, signal: &Signal, value: i32) -> bool;
    /// Says which signals the host waits for. Whether the machine then stands still when one changes: a clock that is
    /// not real goes no further until the host has seen it.
    fn watch(&mut self, _signals: &[Signal]) -> bool {
        false
    }
    /// Whether virtual time passes right now, so that what the host would see depends on when it looks.
    fn moving(&self) -> bool {
        false
    }
    /// Whether the host will notify signals of this domain: a kernel that waits there may be waiting for it.
    fn attend(&mut self, _segment: Segment, _attended: bool) {}
    /// Ends every wait in a domain.
    fn abort(&mut self, segment: Segment, reason: &str);
    /// Back to fresh signals, unless a member has ended. Only while no task uses the domain, and only if all its
    /// members are this worker's.
    fn reset(&mut self, segment: Segment, members: &Members);
    /// Sends a task; false if there is no room for now.
    fn submit(&mut self, chip: usize, id: u64, task: &Task) -> ringwork_native::Result<bool>;
    fn events(&mut self) -> Vec<Event>;
    /// Waits until something happens; false at the deadline or when interrupted.
    fn wait(&mut self, deadline: Option<Instant>) -> bool;
    /// Waits as `wait` does, without the machine; `None` where that cannot be.
    fn waiter(&self) -> Option<Waiter> {
        None
    }
    fn interrupted(&self) -> bool;
    fn interrupter(&self) -> Interrupter;
    /// How a chip ended, if it has.
    fn end(&self, chip: usize) -> Option<String>;
    fn last_seen(&self, chip: usize) -> LastSeen;
    fn pid(&self, chip: usize) -> Option<u32>;
    fn kill(&mut self, chip: usize);
    fn close(&mut self);
    /// Where virtual time is; `None` where time is real.
    fn simulated(&self) -> Option<Simulated> {
        None
    }
    /// What the chips have recorded; `None` where they do not.
    fn records(&self) -> Option<Records> {
        None
    }
    /// What ran where and when, if the machine itself keeps it.
    fn timeline(&self) -> Option<Timeline> {
        None
    }
}

/// Processes on this host.
#[derive(Debug)]
pub(crate) struct NativeMachine {
    processes: ChipProcesses,
    epoch: Option<Epoch>,
    segments: BTreeMap<Segment, Arc<Attached>>,
}

impl NativeMachine {
    /// Makes the segments, stages what should be in them, then starts the chips.
    pub(crate) fn launch(
        plans: &[SegmentPlan],
        stage: impl FnOnce(&BTreeMap<Segment, Arc<Attached>>),
        launch: Launch,
        on_step: &mut dyn FnMut(Device, u32, &str),
    ) -> ringwork_native::Result<NativeMachine> {
        let mut segments = BTreeMap::new();
        let mut initial = Vec::with_capacity(plans.len());
        for SegmentPlan {
            layout,
            what,
            members,
        } in plans
        {
            let segment = Arc::new(Attached::create(what, *layout)?);
            segments.insert(layout.segment, segment.clone());
            initial.push(InitialSegment {
                segment,
                what: what.clone(),
                chips: members.chips.clone(),
            });
        }
        stage(&segments);
        let epoch = launch.record.then(Epoch::now);
        let processes = ChipProcesses::launch(
            Launch {
                segments: initial,
                ..launch
            },
            on_step,
        )?;
        Ok(NativeMachine {
            processes,
            epoch,
            segments,
        })
    }
}

impl Machine for NativeMachine {
    fn create(&mut self, plan: &SegmentPlan) -> ringwork_native::Result<()> {
        let segment = Arc::new(Attached::create(&plan.what, plan.layout)?);
        self.join(&segment, plan).map(drop)
    }

    fn join(&mut self, segment: &Arc<Attached>, plan: &SegmentPlan) -> ringwork_native::Result<bool> {
        self.processes.map(segment, &plan.what, &plan.members)?;
        self.segments.insert(plan.layout.segment, segment.clone());
        Ok(true)
    }

    fn alarm(&self, members: &Members) -> Option<Alarm> {
        self.processes.alarm(members)
    }

    fn release(&mut self, segment: Segment, chips: &[usize]) {
        self.segments.remove(&segment);
        self.processes.unmap(segment, chips);
    }

    fn write(&self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.write(rank, offset, bytes))
    }

    fn read(&self, segment: Segment, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.read(rank, offset, bytes))
    }

    fn peek(&self, signal: &Signal) -> Option<i32> {
        let segment = self.segments.get(&signal.segment())?;
        segment.signal(signal).map(ringwork_native::cell::Cell::load)
    }

    fn notify(&self, signal: &Signal, value: i32) -> bool {
        let segment = self.segments.get(&signal.segment());
        let cell = segment.and_then(|segment| segment.signal(signal));
        cell.map(|cell| cell.set(value)).is_some()
    }

    fn abort(&mut self, segment: Segment, reason: &str) {
        if let Some(segment) = self.segments.get(&segment) {
            segment.raise(&Alarm {
                dead: None,
                reason: reason.into(),
            });
        }
    }

    fn reset(&mut self, segment: Segment, members: &Members) {
        if let Some(segment) = self.segments.get(&segment) {
            self.processes.reset(segment, members);
        }
    }

    fn submit(&mut self, chip: usize, id: u64, task: &Task) -> ringwork_native::Result<bool> {
        self.processes.submit(chip, id, task)
    }

    fn events(&mut self) -> Vec<Event> {
        self.processes.events()
    }

    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        self.processes.wait(deadline)
    }

    fn waiter(&self) -> Option<Waiter> {
        Some(self.processes.waiter())
    }

    fn interrupted(&self) -> bool {
        self.processes.interrupted()
    }

    fn interrupter(&self) -> Interrupter {
        self.processes.interrupter()
    }

    fn end(&self, chip: usize) -> Option<String> {
        self.processes.end(chip).map(|end| end.to_string())
    }

    fn last_seen(&self, chip: usize) -> LastSeen {
        self.processes.last_seen(chip)
    }

    fn pid(&self, chip: usize) -> Option<u32> {
        self.processes.pid(chip)
    }

    fn records(&self) -> Option<Records> {
        let chips = 0..self.processes.devices().len();
        let read = |chip| (self.processes.record(chip), self.processes.last_seen(chip));
        Some(Records {
            epoch: self.epoch?,
            chips: chips.map(read).collect(),
            now: tsc_clock::now(),
        })
    }

    fn kill(&mut self, chip: usize) {
        self.processes.kill(chip);
    }

    fn close(&mut self) {
        self.processes.close();
        self.segments.clear();
    }
}
