//! Device lists as a user types them: `0-3`, `0,2,5`, `0-3,8`.

use std::collections::BTreeSet;
use std::str::FromStr;

/// Devices in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceList(pub(crate) Vec<u32>);

/// More than any node has; keeps `0-4000000000` from being expanded.
const MAX_DEVICES: usize = 1 << 16;

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceList, String> {
        let number = |part: &str| {
            part.trim()
                .parse::<u32>()
                .map_err(|_| format!("`{part}` is not a device number; use for example 0-3 or 0,2,5"))
        };
        let mut devices = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => devices.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if last < first {
                        return Err(format!("`{part}` runs backwards; write {last}-{first}"));
                    }
                    devices.extend((first..=last).take(MAX_DEVICES + 1));
                }
            }
            if devices.len() > MAX_DEVICES {
                return Err(format!("more than {MAX_DEVICES} devices"));
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = devices.iter().find(|device| !seen.insert(**device)) {
            return Err(format!("device {twice} is there twice"));
        }
        Ok(DeviceList(devices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_lists_are_understood_in_order() {
        let parse = |text: &str| text.parse::<DeviceList>().map(|list| list.0);
        assert_eq!(parse("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(parse("5,2,0"), Ok(vec![5, 2, 0]));
        assert_eq!(parse("0-1,8"), Ok(vec![0, 1, 8]));
        assert!(parse("3-0").unwrap_err().contains("backwards"));
        assert!(parse("0-4000000000").unwrap_err().contains("more than 65536"));
        assert!(parse("a").unwrap_err().contains("`a`"));
        assert!(parse("").is_err());
        assert_eq!(parse("0-2,1").unwrap_err(), "device 1 is there twice");
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in ".{0,40}") {
            if let Ok(list) = text.parse::<DeviceList>() {
                prop_assert!(list.0.len() <= MAX_DEVICES);
            }
        }
    }
}
