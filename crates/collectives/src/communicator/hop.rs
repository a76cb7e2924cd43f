//! The way of one cache line from core to core, measured: what every small collective pays.
//!
//! On a virtual machine it changes within seconds by a factor of four, as the host moves the cores about: a
//! measurement that does not say what it was is noise.

use super::Communicator;
use super::error::Result;
use ringwork_isa::{Rank, SIGNAL_STRIDE_BYTES, Segment, Signals};
use ringwork_native::memory::PAGE_BYTES;
use ringwork_native::segment::{Attached, Layout};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two cells that ranks 0 and 1 exchange; see [`Communicator::hop_probe`].
#[derive(Debug)]
pub struct HopProbe {
    cells: Attached,
    signals: Signals,
    home: Arc<Attached>,
    round: u32,
}

const BATCHES: u32 = 20;
const EXCHANGES: u32 = 20;
/// Looks before the core is given away: the other may share it.
const LOOKS: u32 = 3000;

impl Communicator {
    /// What measures hops between ranks 0 and 1. A collective call.
    ///
    /// # Errors
    /// COMM-2; or if there is no memory.
    pub fn hop_probe(&self) -> Result<HopProbe> {
        let number = Segment(self.fresh_segment());
        let cells = self.share("a probe", || Ok(Layout::windows(number, self.size(), 1, 0)?))?;
        let layout = cells.layout();
        let signals = Signals {
            segment: layout.segment,
            base: PAGE_BYTES,
            stride: layout.stride,
            count: 1,
            me: self.place.me,
            ranks: layout.ranks,
        };
        debug_assert_eq!(layout.data_offset(), PAGE_BYTES + SIGNAL_STRIDE_BYTES);
        Ok(HopProbe {
            cells,
            signals,
            home: self.home.clone(),
            round: 0,
        })
    }
}

impl HopProbe {
    /// The time of one hop: the best of 20 batches of 20 exchanges, each rank writing its own cell and waiting for
    /// the other's. Ranks 0 and 1 must call it together, right after a barrier; for others, and if the peer is
    /// dead, there is nothing to measure.
    pub fn measure(&mut self) -> Option<Duration> {
        let me = self.signals.me;
        if me.0 > 1 || self.signals.ranks < 2 {
            return None;
        }
        let mine = self.signals.at(0).ok()?;
        let theirs = mine.on(Rank(1 - me.0)).ok()?;
        let (mine, theirs) = (self.cells.signal(&mine)?, self.cells.signal(&theirs)?);
        let mut best = Duration::MAX;
        for _ in 0..BATCHES {
            let start = Instant::now();
            for _ in 0..EXCHANGES {
                self.round = self.round.wrapping_add(1);
                mine.mark(self.round);
                let mut looks = 0;
                while theirs.load().wrapping_sub(self.round.cast_signed()) < 0 {
                    looks += 1;
                    if looks > LOOKS {
                        if self.home.alarmed() {
                            return None;
                        }
                        std::thread::yield_now();
                    }
                }
            }
            best = best.min(start.elapsed() / EXCHANGES);
        }
        Some(best)
    }
}
