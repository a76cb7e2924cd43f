//! Reading faults: links that failed or are not as the others.

use super::error::Impossible;
use super::units;
use crate::net::{Fabric, LinkClass};
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
                // Protocols keep their efficiency.
                let (old, new) = (class.bandwidth, bandwidth.unit(units::bandwidth)?);
                class = if class.protocols().next().is_none() {
                    LinkClass::new(new, class.latency_ps)
                } else {
                    class.map_bandwidth(|rate| new.scaled(rate.get() as f64 / old.get() as f64))
                };
            }
            if let Some(factor) = fault.get("factor") {
                let factor = factor.factor(1e6)?;
                class = class.map_bandwidth(|rate| rate.scaled(factor));
            }
            if let Some(latency) = fault.get("latency") {
                let latency_ps = latency.unit(units::duration)?;
                class = class.map_latency(|_| latency_ps);
            }
            fabric.reclass(link, class);
        }
    }
    Ok(())
}
