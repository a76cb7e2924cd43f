//! Time in whole picoseconds, and rates that turn bytes into it.

use ringwork_timeline::trimmed;
use std::fmt;

/// Picoseconds since the machine was started. 2^64 of them are 213 days.
pub type Ps = u64;

/// Picoseconds in one second.
pub const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// How fast bytes (or operations) pass: so many per second, or without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// No limit: everything takes no time.
    pub const UNLIMITED: Rate = Rate(u64::MAX);

    /// `per_second` bytes a second; `None` if that is zero, for then nothing would ever arrive.
    #[must_use]
    pub const fn per_second(per_second: u64) -> Option<Rate> {
        if per_second == 0 {
            None
        } else {
            Some(Rate(per_second))
        }
    }

    /// How many a second; `u64::MAX` if there is no limit.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether there is no limit.
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// The time `count` bytes take, rounded to the nearest picosecond.
    #[must_use]
    #[inline]
    pub fn time_ps(self, count: u64) -> Ps {
        if self.is_unlimited() || count == 0 {
            return 0;
        }
        if let Some(scaled) = count.checked_mul(PS_PER_SECOND)
            && let Some(rounded) = scaled.checked_add(self.0 / 2)
        {
            return rounded / self.0;
        }
        let scaled = u128::from(count) * u128::from(PS_PER_SECOND) + u128::from(self.0 / 2);
        u64::try_from(scaled / u128::from(self.0)).unwrap_or(u64::MAX)
    }

    /// This rate times `factor`; unlimited stays so, and it never falls to zero.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    pub fn scaled(self, factor: f64) -> Rate {
        if self.is_unlimited() {
            return self;
        }
        Rate(((self.0 as f64 * factor).round() as u64).clamp(1, u64::MAX - 1))
    }

    /// The sum of two rates.
    #[must_use]
    pub fn plus(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("unlimited");
        }
        write!(f, "{}/s", Scaled(self.0 as f64, "B"))
    }
}

/// A number with a decimal prefix: `1.5 GB`.
pub(crate) struct Scaled<'a>(pub(crate) f64, pub(crate) &'a str);

impl fmt::Display for Scaled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
        let (divisor, prefix) = steps
            .into_iter()
            .find(|(from, _)| self.0 >= *from)
            .unwrap_or((1.0, ""));
        write!(f, "{} {prefix}{}", trimmed(self.0 / divisor), self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_nearest_picosecond_however_many_they_are() {
        let rate = Rate::per_second(50_000_000_000).unwrap();
        assert_eq!(rate.time_ps(1), 20);
        assert_eq!(rate.time_ps(1 << 40), 20 << 40);
        assert_eq!(Rate::per_second(3_000_000_000_000).unwrap().time_ps(2), 1);
        assert_eq!(Rate::UNLIMITED.time_ps(u64::MAX), 0);
        assert_eq!(Rate::per_second(0), None);
    }

    #[test]
    fn people_read_short_rates() {
        assert_eq!(Rate::per_second(450_000_000_000).unwrap().to_string(), "450 GB/s");
    }
}
