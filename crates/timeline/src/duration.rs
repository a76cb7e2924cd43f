//! Durations and numbers for people.

use std::fmt;

/// A duration in picoseconds, printed for people: `1.25 us`.
#[derive(Clone, Copy, Debug)]
pub struct ShowPs(pub u64);

impl fmt::Display for ShowPs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.0 as f64;
        let (divisor, unit) = match self.0 {
            0..1_000 => (1.0, "ps"),
            1_000..1_000_000 => (1e3, "ns"),
            1_000_000..1_000_000_000 => (1e6, "us"),
            1_000_000_000..1_000_000_000_000 => (1e9, "ms"),
            _ => (1e12, "s"),
        };
        write!(f, "{} {unit}", trimmed(ps / divisor))
    }
}

/// At most three decimals, none that are zero.
#[must_use]
pub fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_short_durations() {
        assert_eq!(ShowPs(1_250_000).to_string(), "1.25 us");
        assert_eq!(ShowPs(0).to_string(), "0 ps");
    }
}
