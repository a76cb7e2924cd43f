//! kernbench2's description of a machine: systems of SIPs of cubes of PEs, read into levels.
//!
//! ```yaml
//! system: {sips: {count: 6, topology: torus, w: 3, h: 2, bandwidth: 128 GB/s, latency: 16 ns}}
//! sip: {cube_mesh: {w: 4, h: 4}}
//! cube:
//!   pe_layout: {pe_per_corner: 2, corners: [nw, ne, sw, se]}
//!   noc: {bandwidth: 512 GB/s, latency: 2 ns}
//!   ucie: {bandwidth: 128 GB/s, latency: 8 ns}
//!   memories: {hbm: {capacity: 16 GiB, bandwidth: 256 GB/s, latency: 6 ns}}
//! ipcq: {slot_memory: hbm, slots: 4, slot: 4096 B, credit: 16 B}
//! ```
//!
//! `ucie.latency` is that of one port; a crossing has two.

use super::chip::{self, Chip};
use super::network::{self, Wired};
use super::units;
use crate::net::{Attach, Level, LinkClass, Shape};
use ringwork_yaml::{ConfigError, Problem, Table};

pub(crate) const KEYS: [&str; 4] = ["system", "sip", "cube", "ipcq"];

#[derive(Clone, Copy)]
enum Between {
    Ring,
    Torus,
    Mesh,
}

/// Reads the four tables of such a description from the top of a file.
pub(crate) fn read(top: &Table<'_>, chip: &mut Chip) -> Result<Wired, ConfigError> {
    let system = top.need("system", "{sips: {count: 6}}")?;
    let sips = system.table(&["sips"])?.need("sips", "{count: 6}")?;
    let sips = sips.table(&["count", "topology", "w", "h", "bandwidth", "latency"])?;
    let sip = top
        .need("sip", "{cube_mesh: {w: 4, h: 4}}")?
        .table(&["cube_mesh"])?;
    let mesh = sip.need("cube_mesh", "{w: 4, h: 4}")?.table(&["w", "h"])?;
    let (w, h) = (
        mesh.need("w", "4")?.count(1, 1024)?,
        mesh.need("h", "4")?.count(1, 1024)?,
    );
    let cube_reader = top.need(
        "cube",
        "{pe_layout: {pe_per_corner: 2, corners: [nw, ne, sw, se]}}",
    )?;
    let cube = cube_reader.table(&["pe_layout", "memories", "ucie", "noc"])?;
    let pes = pes(&cube)?;
    read_chip(top, &cube, chip)?;
    let port = link(&cube, "ucie", "128 GB/s", "8 ns")?;
    let crossing = port.map_latency(|latency_ps| latency_ps.saturating_mul(2));
    // The way out of a SIP is through its centre cube, where its reduction ends.
    let centre = (h / 2)
        .saturating_mul(w)
        .saturating_add(w / 2)
        .saturating_mul(pes);
    let outer = Level {
        name: "sip".into(),
        shape: between_shape(&sips)?,
        link: LinkClass::new(
            sips.get("bandwidth")
                .map_or(Ok(port.bandwidth), |r| r.unit(units::bandwidth))?,
            sips.get("latency")
                .map_or(Ok(crossing.latency_ps), |r| r.unit(units::duration))?,
        ),
        one_way: false,
        attach: Attach::Gateway(centre),
    };
    let cubes = Level {
        name: "cube".into(),
        shape: Shape::Mesh(vec![h, w]),
        link: crossing,
        one_way: false,
        attach: Attach::Each,
    };
    let mut levels = vec![outer, cubes];
    if pes > 1 {
        levels.push(Level {
            name: "pe".into(),
            shape: Shape::Switch {
                size: pes,
                core: crate::Rate::UNLIMITED,
            },
            link: link(&cube, "noc", "512 GB/s", "2 ns")?,
            one_way: false,
            attach: Attach::Each,
        });
    }
    let cores = u64::from(w) * u64::from(h) * u64::from(pes);
    network::wire(levels, &[], &system, cores)
}

fn between_shape(sips: &Table<'_>) -> Result<Shape, ConfigError> {
    let count = sips.need("count", "6")?.count(1, 65_536)?;
    let words = [
        ("ring", Between::Ring),
        ("torus", Between::Torus),
        ("mesh", Between::Mesh),
    ];
    let kind = sips
        .get("topology")
        .map_or(Ok(Between::Ring), |r| r.word(&words))?;
    let side = |key: &'static str| sips.need(key, "3")?.count(1, 65_536);
    if let Between::Ring = kind {
        return Ok(Shape::Ring(count));
    }
    let dims = vec![side("h")?, side("w")?];
    if u64::from(dims[0]) * u64::from(dims[1]) != u64::from(count) {
        let got = format!("{} x {}", dims[1], dims[0]);
        let wanted = format!("{count} SIPs in all, as `count` says");
        return Err(sips.reader.error(Problem::OutOfRange { got, wanted }));
    }
    Ok(if let Between::Torus = kind {
        Shape::Torus(dims)
    } else {
        Shape::Mesh(dims)
    })
}

fn pes(cube: &Table<'_>) -> Result<u32, ConfigError> {
    let layout = cube.need("pe_layout", "{pe_per_corner: 2, corners: [nw, ne, sw, se]}")?;
    let layout = layout.table(&["pe_per_corner", "corners"])?;
    let per_corner = layout.need("pe_per_corner", "2")?.count(1, 1024)?;
    let corners = layout.need("corners", "[nw, ne, sw, se]")?;
    let corners = if corners.is_list() {
        u32::try_from(corners.list()?.len()).unwrap_or(u32::MAX)
    } else {
        corners.count(1, 4)?
    };
    Ok(per_corner.saturating_mul(corners).max(1))
}

fn link(
    cube: &Table<'_>,
    key: &'static str,
    bandwidth: &str,
    latency: &str,
) -> Result<LinkClass, ConfigError> {
    let table = cube
        .get(key)
        .map(|r| r.table(&["bandwidth", "latency"]))
        .transpose()?;
    let value = |name: &str| table.as_ref().and_then(|t| t.get(name));
    let default = |problem| cube.reader.error(problem);
    let bandwidth = match value("bandwidth") {
        Some(reader) => reader.unit(units::bandwidth)?,
        None => units::bandwidth(bandwidth).map_err(default)?,
    };
    let latency_ps = match value("latency") {
        Some(reader) => reader.unit(units::duration)?,
        None => units::duration(latency).map_err(default)?,
    };
    Ok(LinkClass::new(bandwidth, latency_ps))
}

fn read_chip(top: &Table<'_>, cube: &Table<'_>, chip: &mut Chip) -> Result<(), ConfigError> {
    if let Some(memories) = cube.get("memories") {
        let table = memories.table(&["hbm", "sram", "tcm"])?;
        for name in ["hbm", "sram", "tcm"] {
            if let Some(reader) = table.get(name) {
                let memory = reader.table(&["capacity", "bandwidth", "latency"])?;
                chip.memories.push(chip::read_memory(&memory, name)?);
            }
        }
    }
    if let Some(ipcq) = top.get("ipcq") {
        let table = ipcq.table(&["slot_memory", "working", "slots", "slot", "credit", "start"])?;
        chip.queues = Some(chip::read_queues(&table, "slot_memory", &chip.memories)?);
    }
    Ok(())
}
