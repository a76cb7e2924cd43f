//! Numbers with units: `50 GB/s`, `500 ns`, `64 MiB`. GB is 10^9 bytes, GiB is 2^30.

use crate::time::{Ps, Rate};
use ringwork_yaml::Problem;
use ringwork_yaml::units::{BYTES, lookup, quantity, whole};
pub(crate) use ringwork_yaml::units::{bytes, shorten};

const BITS: [(&str, f64); 4] = [("kbit", 125.0), ("Mbit", 125e3), ("Gbit", 125e6), ("Tbit", 125e9)];
const TIMES: [(&str, f64); 6] = [
    ("ps", 1.0),
    ("ns", 1e3),
    ("us", 1e6),
    ("µs", 1e6),
    ("ms", 1e9),
    ("s", 1e12),
];
const FLOPS: [(&str, f64); 4] = [
    ("Gflop/s", 1e9),
    ("Tflop/s", 1e12),
    ("Pflop/s", 1e15),
    ("flop/s", 1.0),
];

const HERTZ: [(&str, f64); 4] = [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];

/// A bandwidth: `50 GB/s`, `400 Gbit/s`.
pub(crate) fn bandwidth(text: &str) -> Result<Rate, Problem> {
    if text.trim() == "unlimited" {
        return Ok(Rate::UNLIMITED);
    }
    let scale = |unit: &str| {
        let unit = unit.strip_suffix("/s")?;
        lookup(&BYTES, unit).or_else(|| lookup(&BITS, unit))
    };
    let value = quantity(text, "a bandwidth", "50 GB/s", scale, true)?;
    Ok(Rate::per_second(whole(value)).unwrap_or(Rate::UNLIMITED))
}

/// A frequency: `1.5 GHz`.
pub(crate) fn frequency(text: &str) -> Result<Rate, Problem> {
    let value = quantity(text, "a frequency", "1 GHz", |unit| lookup(&HERTZ, unit), true)?;
    Ok(Rate::per_second(whole(value)).unwrap_or(Rate::UNLIMITED))
}

/// A duration: `500 ns`; a bare 0 needs no unit.
pub(crate) fn duration(text: &str) -> Result<Ps, Problem> {
    quantity(text, "a duration", "500 ns", |unit| lookup(&TIMES, unit), false).map(whole)
}

/// Operations a second: `989 Tflop/s`.
pub(crate) fn flops(text: &str) -> Result<Rate, Problem> {
    if text.trim() == "unlimited" {
        return Ok(Rate::UNLIMITED);
    }
    let value = quantity(
        text,
        "a rate of operations",
        "989 Tflop/s",
        |unit| lookup(&FLOPS, unit),
        true,
    )?;
    Ok(Rate::per_second(whole(value)).unwrap_or(Rate::UNLIMITED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_mean_what_they_say() {
        assert_eq!(bandwidth("50 GB/s").unwrap().get(), 50_000_000_000);
        assert_eq!(bandwidth("400Gbit/s").unwrap().get(), 50_000_000_000);
        assert_eq!(bandwidth("1 GiB/s").unwrap().get(), 1 << 30);
        assert_eq!(duration("0.5 us").unwrap(), 500_000);
        assert_eq!(duration("0").unwrap(), 0);
        assert_eq!(flops("1.5 Tflop/s").unwrap().get(), 1_500_000_000_000);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_cure() {
        assert_eq!(
            duration("500").unwrap_err().to_string(),
            "`500` has no unit; write for example `500 ns`"
        );
        assert!(matches!(bandwidth("-5 GB/s"), Err(Problem::OutOfRange { .. })));
        assert!(matches!(bandwidth("0 GB/s"), Err(Problem::OutOfRange { .. })));
        assert!(matches!(bandwidth("5 ns"), Err(Problem::Malformed { .. })));
        assert!(matches!(duration("fast"), Err(Problem::Malformed { .. })));
    }
}
