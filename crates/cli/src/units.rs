//! Sizes and times as a user types them.

use std::time::Duration;

/// `8`, `4K`, `64M`, `1G`, `16KiB`: powers of 1024, as benchmarks of collectives have it.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(format!("`{unit}` is no unit; use for example 8, 4K, 64M or 1G")),
    };
    let count: usize = number
        .parse()
        .map_err(|_| format!("`{number}` is no whole number; use for example 8, 4K, 64M or 1G"))?;
    count
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| format!("{text} is more than 64G"))
}

const MAX_BYTES: usize = 64 << 30;

/// `30`, `2.5s`, `500ms`, `2m`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time; use ms, s, m or h")),
    };
    let seconds: f64 = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    Duration::try_from_secs_f64(seconds * scale)
        .ok()
        .filter(|time| !time.is_zero() && *time < Duration::from_secs(1 << 32))
        .ok_or_else(|| "it must be more than nothing, and less than a century".into())
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// A size in the fewest characters that say it exactly: `8`, `4K`, `64M`.
pub(crate) fn short_bytes(bytes: usize) -> String {
    match bytes {
        0 => "0".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_bytes("8"), Ok(8));
        assert_eq!(parse_bytes("4K"), Ok(4096));
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        for wrong in ["", "K", "-1", "8X", "1.5K", "99999999999G", "65G"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(short_bytes(64 << 20), "64M");
        assert_eq!(short_bytes(1025), "1025");
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse_time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "0", "-1", "5 parsecs", "."] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_and_a_time_or_an_error(text in ".{0,30}") {
            if let Ok(bytes) = parse_bytes(&text) {
                prop_assert_eq!(parse_bytes(&short_bytes(bytes)), Ok(bytes));
            }
            let _ = parse_time(&text);
        }
    }
}
