//! A communicator over several hosts: shared memory inside each, messages of MPI between them.
//!
//! Every call is made of the calls of one host and of messages. Small data crosses by one leader for each host; of large
//! data, every rank of a host sends and receives its share. Partial results are added here, in the order of the hosts.
//!
//! # Invariants
//! - **HOSTS-1 (the same bits).** Every rank gets the same bits: a partial result of a host is made once, and partial results
//!   are combined in the order of the hosts by each rank that combines them.
//! - **HOSTS-2 (by layout).** The result of a reduction depends on the values and on which ranks share a host, and on nothing
//!   else. Sums of 16-bit and 8-bit floats cross as f32 and are rounded once.
//! - **HOSTS-3 (exact on request).** If the program or its environment asks for an exact algorithm, reductions are made in
//!   rank order, as on one host.

mod control;
mod messages;
mod moves;
mod owned;
mod reduce;
mod spread;
mod streams;
mod transfer;

pub(crate) use control::{register, start, unmarked};
pub(crate) use spread::{Spread, free_tag, take_tag};

use crate::environment::Starter;
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use crate::station::Station;
use messages::Messages;
use ringwork_isa::{Collective, Dtype, Fingerprint, Operation};
use ringwork_mpi::World;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Data of at most so many bytes crosses by the leader of each host.
const SMALL_BYTES: usize = 64 << 10;

/// A rank of a communicator over several hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Makes the calls of this host's ranks.
    pub(crate) here: Station,
    pub(crate) spread: Arc<Spread>,
    /// The number of the next collective call of all ranks.
    sequence: Cell<u32>,
}

impl Hosts {
    pub(crate) fn new(here: Station, spread: Arc<Spread>) -> Hosts {
        control::enter();
        Hosts {
            here,
            spread,
            sequence: Cell::new(0),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.spread.size()
    }

    fn timeout(&self) -> Duration {
        self.here.timeout()
    }

    /// Makes a collective call of all ranks.
    fn call(
        &self,
        describe: impl FnOnce(u32) -> Fingerprint,
        work: impl FnOnce(&mut Messages<'_>) -> Result<()>,
    ) -> Result<()> {
        let sequence = self.sequence.get();
        let call = describe(sequence);
        if call.moves_nothing() {
            return Ok(());
        }
        self.sequence.set(sequence.wrapping_add(1));
        self.with_messages(call, self.spread.tag, work)
    }

    /// Makes a call whose messages have this tag. If it fails, so do all later calls of this host's ranks.
    fn with_messages(
        &self,
        call: Fingerprint,
        tag: u32,
        work: impl FnOnce(&mut Messages<'_>) -> Result<()>,
    ) -> Result<()> {
        self.here.check_alarm(&call)?;
        let made = Messages::new(self, call, tag).and_then(|mut messages| {
            work(&mut messages)?;
            messages.finish()
        });
        made.map_err(|error| {
            // If MPI is not used any more, the alarm says why.
            let alarm = self.here.check_alarm(&call).err();
            let error = alarm.filter(|_| matches!(error, Error::Mpi(_))).unwrap_or(error);
            self.here.raise(error.to_string());
            control::tell();
            error
        })
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        let call = |sequence| Fingerprint::new(sequence, Collective::Barrier, Dtype::U8, 0);
        self.call(call, |messages| {
            self.here.barrier()?;
            self.meet(messages)?;
            self.here.barrier()
        })
    }

    /// The leaders of all hosts wait for each other.
    fn meet(&self, messages: &mut Messages<'_>) -> Result<()> {
        if !self.spread.leads() {
            return Ok(());
        }
        let mut coming = Vec::new();
        for (_, host) in self.spread.others() {
            coming.push(messages.expect(host.ranks[0], 0)?);
            messages.send(host.ranks[0], &[])?;
        }
        coming
            .into_iter()
            .try_for_each(|incoming| messages.take(incoming).map(drop))
    }

    /// Both must be of one type, and of this communicator if they are in a window.
    fn check_buffers(&self, call: &'static str, input: &AnyInput<'_>, output: &AnyOutput<'_>) -> Result<()> {
        self.here.check_home(call, input.home())?;
        self.here.check_home(call, output.home())?;
        self.here.check_dtypes(call, input.dtype(), output.dtype())
    }

    fn check_rank(&self, call: &'static str, rank: u32) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let problem = format!("there is no rank {rank} among {}", self.size());
        Err(Error::arguments(call, problem))
    }

    /// `got` elements of the buffer that is called so, where `wanted` are needed.
    fn same(&self, call: &'static str, buffer: &str, got: usize, wanted: Option<usize>) -> Result<()> {
        if wanted == Some(got) {
            return Ok(());
        }
        let ranks = self.size();
        let problem = match wanted {
            Some(wanted) => {
                format!("the {buffer} has {got} elements where {wanted} are needed, with {ranks} ranks")
            }
            None => "more elements than can be counted".into(),
        };
        Err(Error::arguments(call, problem))
    }

    /// So many elements for each rank.
    fn times(&self, len: usize) -> Option<usize> {
        len.checked_mul(self.size() as usize)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        control::leave();
    }
}

/// Joins the other hosts of the job: where its `size` ranks are, and a number that no other job has.
///
/// # Errors
/// If MPI cannot join them, or was not started by the launcher.
pub(crate) fn meet(starter: &'static Starter, size: u32) -> Result<(Spread, u64)> {
    let refused = |problem: String| Error::OverHosts {
        launcher: starter.name,
        problem,
    };
    if !starter.has_mpi {
        let problem = "its ranks can meet on one host only; start them with mpirun, mpiexec or srun";
        return Err(refused(problem.into()));
    }
    let world = World::join().map_err(|error| refused(error.to_string()))?;
    if world.size() != size {
        let (variable, library, processes) = (starter.size, world.library(), world.size());
        return Err(refused(format!(
            "{variable} says {size} ranks, but {library} knows of {processes}: it does not belong to this launcher; set {} to \
             the library that does (srun: add --mpi=pmix)",
            ringwork_mpi::LIBRARY_VARIABLE
        )));
    }
    Spread::of(world)
}

/// A call of `count` elements.
fn described(operation: impl Into<Operation>, dtype: Dtype, count: usize) -> impl Fn(u32) -> Fingerprint {
    let operation = operation.into();
    move |sequence| Fingerprint::new(sequence, operation, dtype, count as u64)
}
