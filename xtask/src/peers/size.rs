//! Sizes as people write them: `4`, `64K`, `16M`, `1 MiB`.

/// Reads a size in bytes; `K`, `M` and `G` are powers of 1024, with or without `iB` or `B`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; use for example 4, 64K or 16M");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let shift = match text[digits..]
        .trim()
        .trim_end_matches(['b', 'B'])
        .trim_end_matches('i')
    {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// The size in the largest unit that divides it.
pub(crate) fn show(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("4", 4),
            ("64K", 65536),
            ("16M", 16 << 20),
            ("2G", 2 << 30),
            ("1 KiB", 1024),
            ("8B", 8),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "4X", "-4", "4KK", "99999999999G"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes in 1u64..1 << 40) {
            prop_assert_eq!(parse(&show(bytes)), Ok(bytes));
        }
    }
}
