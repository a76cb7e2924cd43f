//! Amounts of memory as a person reads them.

use std::fmt;

/// A number of bytes, displayed in the largest unit of which it has at least one: `512 B`, `1.0 KiB`, `59.6 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bytes(count) = *self;
        let Some(above) = (count.checked_ilog2().unwrap_or(0) / 10).checked_sub(1) else {
            return write!(f, "{count} B");
        };
        let whole = 1u64 << (10 * (above + 1));
        write!(f, "{:.1} {}", count as f64 / whole as f64, UNITS[above as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_that_fits() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (64_000_000_000, "59.6 GiB"),
            (35_734_127_902_720, "32.5 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(count).to_string(), text);
        }
    }
}
