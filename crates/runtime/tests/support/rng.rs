//! Randomness that can be repeated: one seed per program, printed when something fails.

/// SplitMix64.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    /// From the variable `RINGWORK_SEED`, or else from the clock.
    pub fn from_environment() -> Rng {
        let given = std::env::var("RINGWORK_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        Rng(given.unwrap_or_else(|| {
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            u64::from(since.subsec_nanos()) ^ u64::from(std::process::id()) << 32
        }))
    }

    /// What to set `RINGWORK_SEED` to, to see the same again.
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }
}
