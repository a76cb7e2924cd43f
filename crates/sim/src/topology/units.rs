//! Numbers with units: `50 GB/s`, `500 ns`, `64 MiB`. GB is 10^9 bytes, GiB is 2^30.

use super::error::Problem;
use crate::time::{Ps, Rate};

const BYTES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
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

/// Splits `1.5 GB/s` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_');
    let mut end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    // An exponent belongs to the number: 1e9.
    let rest = &text[end..];
    if let Some(power) = rest.strip_prefix(['e', 'E'])
        && power.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
    {
        end += 1 + power.find(|c| !is_number(c)).unwrap_or(power.len());
    }
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

fn quantity(
    text: &str,
    what: &'static str,
    example: &str,
    scale: impl Fn(&str) -> Option<f64>,
    positive: bool,
) -> Result<f64, Problem> {
    let malformed = || Problem::Malformed {
        got: shorten(text),
        what,
        example: example.into(),
    };
    let (number, unit) = split(text).ok_or_else(malformed)?;
    if unit.is_empty() && (positive || number != 0.0) {
        let suffix = example.split_once(' ').map_or("", |(_, unit)| unit);
        return Err(Problem::NoUnit {
            got: shorten(text),
            example: format!("{} {suffix}", text.trim()),
        });
    }
    let scale = if unit.is_empty() {
        1.0
    } else {
        scale(unit).ok_or_else(malformed)?
    };
    let value = number * scale;
    if !value.is_finite() || value < 0.0 || (positive && value < 1.0) || value > 1e18 {
        let wanted = if positive {
            "greater than 0 and below 10^18"
        } else {
            "at least 0 and below 10^18"
        };
        return Err(Problem::OutOfRange {
            got: shorten(text),
            wanted: wanted.into(),
        });
    }
    Ok(value)
}

/// The start of a text that may be anything.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

fn lookup(table: &[(&str, f64)], unit: &str) -> Option<f64> {
    table
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| *scale)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in 0..10^18"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

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

/// A number of bytes: `64 MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, Problem> {
    quantity(
        text,
        "a number of bytes",
        "64 MiB",
        |unit| lookup(&BYTES, unit),
        false,
    )
    .map(whole)
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
        assert_eq!(bytes("64 MiB").unwrap(), 64 << 20);
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
        assert!(matches!(bytes("1e300 GB"), Err(Problem::OutOfRange { .. })));
    }
}
