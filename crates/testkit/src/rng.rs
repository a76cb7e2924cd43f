//! Random numbers that can be repeated: one seed per test, printed when it fails.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014): the same
/// numbers on every machine. The field is the seed.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// From the variable `RINGWORK_SEED`, or else from the clock.
    #[must_use]
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
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() % end as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        let mut rng = Rng(1_234_567);
        let first = [rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
