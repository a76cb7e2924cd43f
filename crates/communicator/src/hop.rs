//! Measures one hop: the time that a cache line takes from core to core, which every small collective pays.
//!
//! On a virtual machine it changes within seconds by a factor of four, as the host moves the cores: without it, other
//! measurements cannot be compared.

use crate::Communicator;
use crate::error::Result;
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
    /// The number of measurements so far.
    measured: u32,
}

const BATCHES: u32 = 20;
const EXCHANGES: u32 = 20;
/// Polls before the core is yielded: the other rank may share it.
const LOOKS: u32 = 3000;
/// The numbers that one measurement may use: one for each exchange, and one that says that the rank has left.
const NUMBERS: u32 = 1 << 12;
const LEFT: u32 = NUMBERS - 1;
/// No batch begins after this time. Ranks that share a core would need much longer, because they switch at every
/// exchange.
const LIMIT: Duration = Duration::from_millis(20);

impl Communicator {
    /// Creates a probe of hops between ranks 0 and 1. A collective call.
    ///
    /// # Errors
    /// COMM-2; or if there is no memory.
    pub fn hop_probe(&self) -> Result<HopProbe> {
        let number = Segment(self.fresh_segment());
        let plan =
            || Ok(Layout::windows(number, self.ranks_here(), 1, 0).map_err(ringwork_native::Error::from)?);
        let cells = self.share("a probe", plan)?;
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
            measured: 0,
        })
    }
}

impl HopProbe {
    /// The time of one hop: the best of 20 batches of 20 exchanges, each rank writing its own cell and waiting for
    /// the other's. Ranks 0 and 1 must call it together, right after a barrier. `None` on other ranks, and if the
    /// peer is dead.
    pub fn measure(&mut self) -> Option<Duration> {
        let me = self.signals.me;
        if me.0 > 1 || self.signals.ranks < 2 {
            return None;
        }
        let mine = self.signals.at(0).ok()?;
        let theirs = mine.on(Rank(1 - me.0)).ok()?;
        let (mine, theirs) = (self.cells.signal(&mine)?, self.cells.signal(&theirs)?);
        // Larger than every number of the earlier measurement, including its last one.
        let base = self.measured.wrapping_mul(NUMBERS);
        self.measured = self.measured.wrapping_add(1);
        let (begin, mut best, mut number) = (Instant::now(), None, base);
        for _ in 0..BATCHES {
            let start = Instant::now();
            for exchange in 1..=EXCHANGES {
                number = number.wrapping_add(1);
                mine.mark(number);
                let mut looks = 0;
                loop {
                    let seen = theirs.load().cast_unsigned();
                    // A rank leaves at the end of a batch, whose last number it has then reached.
                    if seen == base.wrapping_add(LEFT) && exchange < EXCHANGES {
                        return best;
                    }
                    if seen.wrapping_sub(number).cast_signed() >= 0 {
                        break;
                    }
                    looks += 1;
                    if looks > LOOKS {
                        if self.home.alarmed() {
                            return None;
                        }
                        std::thread::yield_now();
                    }
                }
            }
            let hop = start.elapsed() / EXCHANGES;
            best = Some(best.map_or(hop, |best: Duration| best.min(hop)));
            if begin.elapsed() > LIMIT {
                mine.mark(base.wrapping_add(LEFT));
                break;
            }
        }
        best
    }
}
