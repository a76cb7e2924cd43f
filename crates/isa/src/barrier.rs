//! The epoch barrier: all members meet, any number of times, with counters that only grow.

use crate::{Compare, Core, Epoch, Notify, Rank, Result, Signals};
use serde::{Deserialize, Serialize};

/// A meeting point of all members of a domain.
///
/// Every member has one counter, which only it writes: how often it has arrived. To meet for the `e`th
/// time is to arrive, then wait until every counter is at least `e`. Nothing is ever reset, so the
/// barrier can be used again at once, and a kernel learns the current epoch from its own counter: it
/// survives from one task to the next without the host keeping count.
///
/// # Invariants
/// - **BAR-1 (one writer).** Counter `r` is written by rank `r` only.
/// - **BAR-2 (monotone).** Counters only grow (by serial-number order).
/// - **BAR-3 (one behind).** While any member is in epoch `e`, every counter is `e - 1`, `e` or `e + 1`.
///   Hence memory used by epoch parity ([`Region::half`](crate::Region::half)) is never overwritten
///   while someone may still read it: to write the half of epoch `e + 2` a member must have passed the
///   barrier of `e + 1`, where everybody arrived after finishing `e`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    arrivals: Signals,
}

impl Barrier {
    /// A barrier over the first cell of `arrivals`, which nothing else may touch.
    #[must_use]
    pub fn new(arrivals: Signals) -> Barrier {
        Barrier { arrivals }
    }

    /// The counters it is made of.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.arrivals
    }

    /// The rank that holds this handle.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.arrivals.me
    }

    /// Members of the domain.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.arrivals.ranks
    }

    /// The epoch that my next arrival will begin.
    ///
    /// # Errors
    /// Only if the handle is stale.
    #[track_caller]
    #[inline(always)]
    pub fn epoch<C: Core>(&self, core: &C) -> impl Future<Output = Result<Epoch>> {
        let mine = self.arrivals.own(0).map(|mine| core.own_value(mine));
        #[inline(always)]
        async move {
            Ok(Epoch::of(mine?.await?).next())
        }
    }

    /// Says that I am here, for `epoch`. Releases everything before it.
    ///
    /// # Errors
    /// Only if the handle is stale.
    #[track_caller]
    #[inline(always)]
    pub fn arrive<C: Core>(&self, core: &C, epoch: Epoch) -> impl Future<Output = Result<()>> {
        let mine = self.arrivals.at(0);
        let arrive = mine.map(|mine| core.notify(mine, Notify::Set(epoch.into())));
        #[inline(always)]
        async move {
            arrive?.await
        }
    }

    /// Waits until everybody has arrived for `epoch`; sees everything they did before.
    ///
    /// # Errors
    /// As [`Core::wait`].
    #[track_caller]
    #[inline(always)]
    pub fn wait<C: Core>(&self, core: &C, epoch: Epoch) -> impl Future<Output = Result<()>> {
        let (barrier, at) = (*self, core.attribution().site());
        #[inline(always)]
        async move {
            let _caller = core.attribution().to(at);
            barrier.wait_for_all(core, epoch).await
        }
    }

    #[inline(always)]
    fn wait_for_all<C: Core>(&self, core: &C, epoch: Epoch) -> impl Future<Output = Result<()>> {
        let (mine, ranks) = (self.arrivals.at(0), self.ranks());
        #[inline(always)]
        async move {
            core.wait_on(mine?, 0..ranks, Compare::Ge, epoch).await
        }
    }

    /// Meets everybody once.
    ///
    /// # Errors
    /// As [`Core::wait`].
    #[track_caller]
    #[inline(always)]
    pub fn arrive_and_wait<C: Core>(&self, core: &C) -> impl Future<Output = Result<()>> {
        let (barrier, at) = (*self, core.attribution().site());
        #[inline(always)]
        async move {
            let _caller = core.attribution().to(at);
            let epoch = barrier.epoch(core).await?;
            barrier.arrive(core, epoch).await?;
            barrier.wait_for_all(core, epoch).await
        }
    }
}
