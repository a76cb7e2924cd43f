//! The native backend: every chip is a process of this host, and memory is shared with it.

use super::{Backend, Event, Failure, Interrupter, LastSeen, Layout, Members, SegmentPlan, Waiter};
use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::{Error, Result};
use crate::timeline::{Epoch, Records};
use ringwork_isa::{Rank, Segment, Signal, Task};
use ringwork_native::cell::Cell;
use ringwork_native::segment::{Alarm, Attached};
use ringwork_native::{ChipProcesses, InitialSegment, Launch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Memory of this host that chips of one or several workers map.
#[derive(Clone, Debug)]
pub(crate) struct HostSegment(Arc<Attached>);

impl HostSegment {
    pub(crate) fn create(what: &str, layout: Layout) -> Result<HostSegment> {
        Ok(HostSegment(Arc::new(Attached::create(what, layout)?)))
    }

    pub(crate) fn number(&self) -> Segment {
        self.0.layout().segment
    }

    /// Copies host bytes into a rank's data; false if they do not fit.
    pub(crate) fn write(&self, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        self.0.write(rank, offset, bytes)
    }

    /// Copies a rank's data out; false if it is not all there.
    fn read(&self, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool {
        self.0.read(rank, offset, bytes)
    }

    /// Ends every wait in it, because this member died or for another reason.
    pub(crate) fn abort(&self, dead: Option<Rank>, reason: &str) {
        let reason = reason.into();
        self.0.raise(&Alarm { dead, reason });
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.0.alarm().is_some()
    }

    /// Signals at zero, and not aborted.
    pub(crate) fn reset(&self) {
        self.0.reset();
    }
}

/// Processes on this host.
#[derive(Debug)]
pub(crate) struct NativeBackend {
    chips: ChipProcesses,
    epoch: Option<Epoch>,
    segments: BTreeMap<Segment, HostSegment>,
}

impl NativeBackend {
    /// Creates the domains, stages the data in them, then starts a process per chip: no chip sees an unfinished
    /// domain.
    pub(super) fn launch(builder: &mut NodeBuilder, plans: &[DomainPlan]) -> Result<NativeBackend> {
        let mut segments = BTreeMap::new();
        let mut initial = Vec::with_capacity(plans.len());
        for (spec, plan) in builder.domains.iter().zip(plans) {
            let SegmentPlan {
                layout,
                what,
                members,
                ..
            } = &plan.segment;
            let segment = HostSegment::create(what, *layout)?;
            // The plan was checked against the data, so it fits.
            spec.for_each_staged(plan, |rank, offset, bytes| {
                let _ = segment.write(rank, offset, bytes);
            });
            segments.insert(layout.segment, segment.clone());
            initial.push(InitialSegment {
                segment: segment.0,
                what: what.clone(),
                chips: members.chips.clone(),
            });
        }
        let epoch = builder.record.then(Epoch::now);
        let launch = Launch {
            devices: builder.devices.clone(),
            program: builder.program.clone(),
            segments: initial,
            deadline: builder.bring_up,
            record: builder.record,
            waiting: builder.waiting(),
        };
        let chips = ChipProcesses::launch(launch, &mut builder.on_step)?;
        Ok(NativeBackend {
            chips,
            epoch,
            segments,
        })
    }
}

impl Backend for NativeBackend {
    fn create(&mut self, plan: &SegmentPlan) -> Result<()> {
        let segment = HostSegment::create(&plan.what, plan.layout)?;
        self.join(&segment, plan).map(drop)
    }

    fn join(&mut self, segment: &HostSegment, plan: &SegmentPlan) -> Result<bool> {
        let members = (&plan.members).into();
        self.chips.map(&segment.0, &plan.what, &members)?;
        self.segments.insert(plan.layout.segment, segment.clone());
        Ok(true)
    }

    fn dead_member(&self, members: &Members) -> Option<(Rank, String)> {
        let Alarm { dead, reason } = self.chips.alarm(&members.into())?;
        Some((dead?, reason))
    }

    fn release(&mut self, segment: Segment, chips: &[usize]) {
        self.segments.remove(&segment);
        self.chips.unmap(segment, chips);
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
        segment.0.signal(signal).map(Cell::load)
    }

    fn notify(&self, signal: &Signal, value: i32) -> bool {
        let segment = self.segments.get(&signal.segment());
        let cell = segment.and_then(|segment| segment.0.signal(signal));
        cell.map(|cell| cell.set(value)).is_some()
    }

    fn abort(&mut self, segment: Segment, reason: &str) {
        if let Some(segment) = self.segments.get(&segment) {
            segment.abort(None, reason);
        }
    }

    fn reset(&mut self, segment: Segment, members: &Members) {
        if let Some(segment) = self.segments.get(&segment) {
            self.chips.reset(&segment.0, &members.into());
        }
    }

    fn submit(&mut self, chip: usize, id: u64, task: &Task) -> Result<bool> {
        Ok(self.chips.submit(chip, id, task)?)
    }

    fn events(&mut self) -> Vec<Event> {
        self.chips.events().into_iter().map(Event::from).collect()
    }

    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        self.chips.wait(deadline)
    }

    fn waiter(&self) -> Option<Arc<dyn Waiter>> {
        Some(Arc::new(self.chips.waiter()))
    }

    fn interrupted(&self) -> bool {
        self.chips.interrupted()
    }

    fn interrupter(&self) -> Interrupter {
        self.chips.interrupter()
    }

    fn end(&self, chip: usize) -> Option<String> {
        self.chips.cause(chip)
    }

    fn last_seen(&self, chip: usize) -> LastSeen {
        let ringwork_native::trace::LastSeen { count, what } = self.chips.last_seen(chip);
        LastSeen { count, what }
    }

    fn pid(&self, chip: usize) -> Option<u32> {
        self.chips.pid(chip)
    }

    fn stopped(&self, chip: usize) -> Option<u32> {
        let alive = self.chips.end(chip).is_none();
        let pid = self.chips.pid(chip).filter(|_| alive);
        pid.filter(|pid| ringwork_native::is_stopped(*pid))
    }

    fn records(&self) -> Option<Records> {
        let chips = 0..self.chips.devices().len();
        let read = |chip| (self.chips.record(chip), self.chips.last_seen(chip));
        Some(Records {
            epoch: self.epoch?,
            chips: chips.map(read).collect(),
            now: ringwork_native::trace::tsc_clock::now(),
        })
    }

    fn kill(&mut self, chip: usize) {
        self.chips.kill(chip);
    }

    fn close(&mut self) {
        self.chips.close();
        self.segments.clear();
    }
}

impl Waiter for ringwork_native::Waiter {
    fn wait(&self, deadline: Option<Instant>) -> bool {
        ringwork_native::Waiter::wait(self, deadline)
    }

    fn wake(&self) {
        ringwork_native::Waiter::wake(self);
    }
}

impl From<&Members> for ringwork_native::Members {
    fn from(Members { first, chips }: &Members) -> ringwork_native::Members {
        let (first, chips) = (*first, chips.clone());
        ringwork_native::Members { first, chips }
    }
}

impl From<ringwork_native::Event> for Event {
    fn from(event: ringwork_native::Event) -> Event {
        use ringwork_native::Event as Native;
        match event {
            Native::Ran { chip, task, outcome } => Event::Ran {
                chip,
                task,
                outcome: outcome.map_err(Failure::from),
            },
            Native::NotMapped { chip, message, .. } => Event::NotMapped { chip, message },
            Native::Ended { chip, cause } => Event::Ended { chip, cause },
        }
    }
}

impl From<ringwork_native::Failure> for Failure {
    fn from(failure: ringwork_native::Failure) -> Failure {
        use ringwork_native::Failure as Native;
        match failure {
            Native::Returned(error) => Failure::Returned(error),
            Native::Panicked { message, site } => Failure::Panicked { message, site },
            Native::NotBegun { dead, why } => Failure::NotBegun { dead, why },
            Native::Unknown(unknown) => Failure::Unknown(unknown),
        }
    }
}

impl From<ringwork_native::Error> for Error {
    fn from(error: ringwork_native::Error) -> Error {
        match error {
            ringwork_native::Error::ChipGone { device, cause } => Error::Gone { device, cause },
            ringwork_native::Error::Interrupted => Error::Interrupted,
            other => Error::Platform(Box::new(other)),
        }
    }
}
