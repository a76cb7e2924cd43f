//! A resolved machine as text: what a person wants to check before believing a prediction.

use crate::ShowPs;
use crate::net::{Attach, Switching};
use crate::time::Scaled;
use crate::topology::{Topology, Unit};
use std::collections::BTreeMap;
use std::fmt::Write;

impl Topology {
    /// What of its chips has no rate, so that a prediction counts it as taking no time; such as `memory, vector engine`.
    #[must_use]
    pub fn free_inside_chips(&self) -> Option<String> {
        let chip = &self.chip;
        let memory = chip.memories.iter().all(|memory| memory.bandwidth.is_unlimited());
        let matrix = chip.matrix.is_unlimited() && chip.array.is_none();
        let parts = [
            (memory, "memory"),
            (chip.vector.is_unlimited(), "vector engine"),
            (matrix, "matrix engine"),
        ];
        let free: Vec<_> = parts
            .iter()
            .filter(|(free, _)| *free)
            .map(|(_, name)| *name)
            .collect();
        (!free.is_empty()).then(|| free.join(", "))
    }

    /// The machine in words and numbers, a dozen lines.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_description(&mut out);
        out
    }

    fn write_description(&self, out: &mut String) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Chip => "chips",
            Unit::Core => "cores inside chips",
            Unit::Member(_) => "the first cores of groups inside chips",
        };
        writeln!(out, "{}: {} ranks ({unit})", self.name, self.ranks())?;
        if self.cores_per_chip > 1 {
            writeln!(out, "  {} chips of {} cores", self.chips(), self.cores_per_chip)?;
        }
        for level in &self.levels {
            let ports = match level.attach {
                Attach::Each => String::new(),
                Attach::Gateway(gateway) => format!(", reached through member {gateway}"),
            };
            let one_way = if level.one_way { ", one way" } else { "" };
            let (name, shape, link) = (&level.name, level.shape.describe(), level.link);
            writeln!(
                out,
                "  {name}: {shape}; {} and {} per link{one_way}{ports}",
                link.bandwidth,
                ShowPs(link.latency_ps)
            )?;
        }
        self.write_links(out)?;
        match self.switching {
            Switching::CutThrough(0) => writeln!(out, "  switching: cut-through"),
            Switching::CutThrough(flit) => writeln!(out, "  switching: cut-through, flits of {flit} B"),
            Switching::StoreAndForward => writeln!(out, "  switching: store and forward"),
        }?;
        self.write_chip(out)
    }

    fn write_links(&self, out: &mut String) -> std::fmt::Result {
        let mut classes: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        let (mut present, mut failed) = (0u32, 0u32);
        for link in self
            .fabric
            .links()
            .filter(|link| self.fabric.ends(*link).is_some())
        {
            present += 1;
            match self.fabric.class(link) {
                Some(class) => {
                    *classes
                        .entry((class.bandwidth.get(), class.latency_ps))
                        .or_default() += 1
                }
                None => failed += 1,
            }
        }
        let switches = self.fabric.vertices() - self.fabric.places();
        write!(out, "  links: {present} one-way")?;
        if switches > 0 {
            let s = if switches == 1 { "" } else { "es" };
            write!(out, ", {switches} switch{s}")?;
        }
        if failed > 0 {
            write!(out, ", {failed} failed")?;
        }
        writeln!(out)?;
        for ((bandwidth, latency), count) in classes.iter().rev().take(8) {
            let rate = crate::Rate::per_second(*bandwidth).unwrap_or(crate::Rate::UNLIMITED);
            writeln!(out, "    {count:>7} x {rate}, {}", ShowPs(*latency))?;
        }
        Ok(())
    }

    fn write_chip(&self, out: &mut String) -> std::fmt::Result {
        let chip = &self.chip;
        for memory in &chip.memories {
            let capacity = match memory.capacity {
                u64::MAX => "unlimited".to_owned(),
                bytes => whole_binary(bytes).unwrap_or_else(|| Scaled(bytes as f64, "B").to_string()),
            };
            let latency = match memory.latency_ps {
                0 => "no latency".to_owned(),
                latency_ps => ShowPs(latency_ps).to_string(),
            };
            let (name, bandwidth) = (&memory.name, memory.bandwidth);
            let of = if bandwidth.is_unlimited() {
                " bandwidth"
            } else {
                ""
            };
            writeln!(out, "  memory {name}: {capacity}, {bandwidth}{of}, {latency}")?;
        }
        if chip.dma.engines != u32::MAX {
            let queue = if chip.dma.queue == u32::MAX {
                "any number".into()
            } else {
                chip.dma.queue.to_string()
            };
            writeln!(out, "  DMA: {} engines, {queue} may wait", chip.dma.engines)?;
        }
        if !chip.vector.is_unlimited() {
            writeln!(out, "  vector engine: {}", chip.vector)?;
        }
        if !chip.matrix.is_unlimited() {
            writeln!(
                out,
                "  matrix engine: {}",
                Scaled(chip.matrix.get() as f64, "flop/s")
            )?;
        }
        if let Some(free) = self.free_inside_chips() {
            writeln!(out, "  without a rate: {free}; what they do takes no time")?;
        }
        if let Some((array, clock)) = chip.array {
            writeln!(
                out,
                "  matrix array: {} x {} cells at {}",
                array.rows,
                array.columns,
                Scaled(clock.get() as f64, "Hz")
            )?;
        }
        if chip.launch_ps > 0 {
            writeln!(out, "  launch: {} per task", ShowPs(chip.launch_ps))?;
        }
        if let Some(queues) = &chip.queues {
            let memory = chip
                .memories
                .get(queues.memory)
                .map_or("memory", |memory| memory.name.as_str());
            let (slots, slot, credit) = (queues.slots, queues.slot_bytes, queues.credit_bytes);
            writeln!(
                out,
                "  neighbour queues: {slots} slots of {slot} B in {memory}, credits of {credit} B"
            )?;
        }
        for (rank, speed) in self.speed.iter().take(8) {
            writeln!(out, "  rank {rank} computes at {speed} of the others' speed")?;
        }
        Ok(())
    }
}

/// Bytes that are whole GiB, MiB or KiB, if a person would say it so: not 78125000 KiB for 80 GB.
fn whole_binary(bytes: u64) -> Option<String> {
    const MOST: u64 = 1 << 14;
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) = units
        .into_iter()
        .find(|(shift, _)| bytes.is_multiple_of(1 << shift))?;
    (bytes >> shift < MOST).then(|| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_what_the_machine_is() {
        let text = Topology::preset("sip6-torus").unwrap().describe();
        for part in [
            "768 ranks (cores inside chips)",
            "6 chips of 128 cores",
            "sip: torus 2x3; 128 GB/s and 16 ns per link",
            "memory tcm: 1 MiB, 512 GB/s",
            "4 slots of 4096 B in tcm",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let text = Topology::preset("h100x8").unwrap().describe();
        assert!(text.contains("memory hbm: 80 GB, unlimited bandwidth"), "{text}");
        assert!(
            text.contains("without a rate: memory, vector engine; what they do takes no time"),
            "{text}"
        );
        assert!(
            text.contains("non-blocking switch of 8; 370 GB/s and 3.4 us per link"),
            "{text}"
        );
    }
}
