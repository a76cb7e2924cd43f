//! Numbers with units: `64 MiB`. GB is 10^9 bytes, GiB is 2^30.

use crate::error::Problem;

/// Units of bytes, and how many each is.
pub const BYTES: [(&str, f64); 9] = [
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

/// A number and its unit, as so many of what `scale` counts in: above 0 if `positive`, and below 10^18.
///
/// # Errors
/// If it is none, with what it could look like.
pub fn quantity(
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
        // A number that could be with a unit, or the example.
        let with_unit = format!("{} {suffix}", text.trim());
        let example = if number > 0.0 && number < 1e18 {
            with_unit
        } else {
            example.into()
        };
        return Err(Problem::NoUnit {
            got: shorten(text),
            example,
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
#[must_use]
pub fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// How much a unit is.
#[must_use]
pub fn lookup(table: &[(&str, f64)], unit: &str) -> Option<f64> {
    table
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| *scale)
}

/// A quantity, rounded.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in 0..10^18"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// A number of bytes: `64 MiB`.
///
/// # Errors
/// If it is none.
pub fn bytes(text: &str) -> Result<u64, Problem> {
    quantity(
        text,
        "a number of bytes",
        "64 MiB",
        |unit| lookup(&BYTES, unit),
        false,
    )
    .map(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_and_are_not_too_many() {
        assert_eq!(bytes("64 MiB").unwrap(), 64 << 20);
        assert!(matches!(bytes("64"), Err(Problem::NoUnit { .. })));
        let said = bytes("-1").unwrap_err().to_string();
        assert!(said.ends_with("write for example `64 MiB`"), "{said}");
        assert!(matches!(bytes("1e300 GB"), Err(Problem::OutOfRange { .. })));
    }
}
