//! Reading faults: links that failed or are not as the others.

use super::error::Impossible;
use super::units;
use crate::net::Fabric;
use ringwork_yaml::{ConfigError, Reader};

/// Reads the list `faults`: links that failed or are slower than the others.
pub(crate) fn read(reader: &Reader<'_>, fabric: &mut Fabric) -> Result<(), ConfigError> {
    let most = u64::from(fabric.vertices()) - 1;
    for item in reader.list()? {
        let fault = item.table(&[
            "from",
            "to",
            "failed",
            "factor",
            "bandwidth",
            "latency",
            "direction",
        ])?;
        let (from, to) = (
            fault.need("from", "0")?.count(0, most)?,
            fault.need("to", "1")?.count(0, most)?,
        );
        let both = fault
            .get("direction")
            .map_or(Ok(true), |r| r.word(&[("both", true), ("one-way", false)]))?;
        let mut links: Vec<u32> = fabric.between(from, to).collect();
        if both {
            links.extend(fabric.between(to, from));
        }
        if links.is_empty() {
            return Err(item.error(Impossible::NoSuchLink(from, to)));
        }
        let yes_no = [("true", true), ("yes", true), ("false", false), ("no", false)];
        if fault.get("failed").map_or(Ok(false), |r| r.word(&yes_no))? {
            links.iter().for_each(|link| fabric.fail(*link));
            continue;
        }
        for link in links {
            let Some(mut class) = fabric.class(link) else {
                continue;
            };
            if let Some(bandwidth) = fault.get("bandwidth") {
                class.bandwidth = bandwidth.unit(units::bandwidth)?;
            }
            if let Some(factor) = fault.get("factor") {
                class.bandwidth = class.bandwidth.scaled(factor.factor(1e6)?);
            }
            if let Some(latency) = fault.get("latency") {
                class.latency_ps = latency.unit(units::duration)?;
            }
            fabric.reclass(link, class);
        }
    }
    Ok(())
}
