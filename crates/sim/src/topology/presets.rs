//! The machines that ship, each as the YAML it is made from: print one, change it, use it.

/// Every preset: its name, and what it is. `N`, `X`, `Y`, `Z` stand for numbers.
pub const PRESETS: [(&str, &str); 17] = [
    (
        "h100x8",
        "8 H100 behind NVSwitch, as NCCL's ring sees them; memory and vector work take no time",
    ),
    (
        "v100x8",
        "8 V100 in a hybrid cube mesh (DGX-1); vector work takes no time",
    ),
    (
        "tpu-v5e-16x16",
        "256 TPU v5e in a 16x16 torus; vector work takes no time",
    ),
    (
        "ascend-a3-pod",
        "one Ascend A3 pod: 48 x 8 chips of 2 dies; a network alone",
    ),
    (
        "ascend-910b-8",
        "8 Ascend 910B in a full mesh; vector work takes no time",
    ),
    (
        "sip6-torus",
        "kernbench2's tray: 6 SIPs in a torus, 16 cubes each, 8 PEs per cube",
    ),
    ("ring-N", "N chips in a ring"),
    ("line-N", "N chips in a line"),
    ("mesh-XxY", "a grid"),
    ("mesh-XxYxZ", "a grid in three dimensions"),
    ("torus-XxY", "a grid whose rows are rings"),
    ("torus-XxYxZ", "the same in three dimensions"),
    ("full-N", "N chips, each joined to each"),
    ("switch-N", "N chips behind a non-blocking switch"),
    ("fat-tree", "64 chips, 8 under each switch, full bisection"),
    ("fat-tree-XxY", "X chips under each of Y switches, full bisection"),
    (
        "nodes-XxY",
        "X nodes of Y chips: a switch inside, a switch per rail between",
    ),
];

const H100: &str = "\
# Line rate is 450 GB/s; a ring gets 370. 3.4 us per step and 8.4 us per call are NCCL's (Simple protocol).
# The 370 include what the memory costs, which NCCL overlaps: so the memory (3.35 TB/s) is not charged again.
name: h100x8
network: {kind: switch, size: 8, bandwidth: 370 GB/s, latency: 3.4 us, blocking: no}
chip:
  memory: {name: hbm, capacity: 80 GB}
  matrix: 989 Tflop/s
  launch: 8.4 us
";

const V100: &str = "\
# Six links of 25 GB/s per chip; pairs with two lanes between them carry twice that.
name: v100x8
network:
  kind: links
  chips: 8
  bandwidth: 25 GB/s
  latency: 1 us
  links:
    - {from: 0, to: 1}
    - {from: 0, to: 2}
    - {from: 0, to: 3, lanes: 2}
    - {from: 0, to: 4, lanes: 2}
    - {from: 1, to: 2, lanes: 2}
    - {from: 1, to: 3}
    - {from: 1, to: 5, lanes: 2}
    - {from: 2, to: 3, lanes: 2}
    - {from: 2, to: 6}
    - {from: 3, to: 7}
    - {from: 4, to: 5}
    - {from: 4, to: 6}
    - {from: 4, to: 7, lanes: 2}
    - {from: 5, to: 6, lanes: 2}
    - {from: 5, to: 7}
    - {from: 6, to: 7, lanes: 2}
chip:
  memory: {name: hbm, capacity: 32 GB, bandwidth: 900 GB/s, latency: 0}
  matrix: 125 Tflop/s
";

const TPU_V5E: &str = "\
# 400 GB/s per chip over 4 links, both directions together: 50 GB/s per link and direction.
name: tpu-v5e-16x16
network: {kind: torus, dims: [16, 16], bandwidth: 50 GB/s, latency: 1 us}
chip:
  memory: {name: hbm, capacity: 16 GB, bandwidth: 819 GB/s, latency: 0}
  matrix: 197 Tflop/s
";

const ASCEND_A3: &str = "\
# 48 nodes of 8 chips of 2 dies; another pod is 5.5 us away and not part of this.
name: ascend-a3-pod
levels:
  - {name: pod, kind: switch, size: 48, bandwidth: 196 GB/s, latency: 0.5 us, blocking: no}
  - {name: node, kind: switch, size: 8, bandwidth: 196 GB/s, latency: 0.5 us, blocking: no}
  - {name: die, kind: line, size: 2, bandwidth: 224 GB/s, latency: 0.2 us}
";

const ASCEND_910B: &str = "\
# Sources say 28 to 56 GB/s per link; this is the cautious one.
name: ascend-910b-8
network: {kind: full, size: 8, bandwidth: 28 GB/s, latency: 1 us}
chip:
  memory: {name: hbm, capacity: 64 GB, bandwidth: 1.6 TB/s, latency: 0}
  matrix: 376 Tflop/s
";

const SIP6: &str = "\
# kernbench2's tray. Each memory is one PE's share.
name: sip6-torus
system: {sips: {count: 6, topology: torus, w: 3, h: 2, bandwidth: 128 GB/s, latency: 16 ns}}
sip: {cube_mesh: {w: 4, h: 4}}
cube:
  pe_layout: {pe_per_corner: 2, corners: [nw, ne, sw, se]}
  noc: {bandwidth: 512 GB/s, latency: 2 ns}
  ucie: {bandwidth: 128 GB/s, latency: 8 ns}
  memories:
    hbm: {capacity: 4 GiB, bandwidth: 256 GB/s, latency: 6 ns}
    sram: {capacity: 8 MiB, bandwidth: 128 GB/s, latency: 2 ns}
    tcm: {capacity: 1 MiB, bandwidth: 512 GB/s, latency: 0}
# What a send and a receive cost to start is not published: it is fitted, see docs/fidelity.md.
ipcq: {slot_memory: tcm, working: tcm, slots: 4, slot: 4096 B, credit: 16 B, start: 60.043 ns}
chip: {vector: 512 GB/s}
ranks: cores
";

/// The YAML a preset is made from; `None` if there is no such preset.
#[must_use]
pub fn preset_yaml(name: &str) -> Option<String> {
    let fixed = match name {
        "h100x8" => Some(H100),
        "v100x8" => Some(V100),
        "tpu-v5e-16x16" => Some(TPU_V5E),
        "ascend-a3-pod" => Some(ASCEND_A3),
        "ascend-910b-8" => Some(ASCEND_910B),
        "sip6-torus" => Some(SIP6),
        "fat-tree" => return preset_yaml("fat-tree-8x8"),
        _ => None,
    };
    if let Some(text) = fixed {
        return Some(text.to_owned());
    }
    let (kind, numbers) = name.rsplit_once('-')?;
    let numbers: Vec<&str> = numbers.split('x').collect();
    let is_number =
        |text: &&str| !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit());
    if !numbers.iter().all(is_number) {
        return None;
    }
    let wire = "bandwidth: 50 GB/s, latency: 500 ns";
    let network = match (kind, numbers.as_slice()) {
        ("ring" | "line" | "full", [n]) => format!("{{kind: {kind}, size: {n}, {wire}}}"),
        ("switch", [n]) => format!("{{kind: switch, size: {n}, {wire}, blocking: no}}"),
        ("mesh" | "torus", dims) if dims.len() <= 6 => {
            format!("{{kind: {kind}, dims: [{}], {wire}}}", dims.join(", "))
        }
        ("fat-tree", [x, y]) => format!("{{kind: fat-tree, down: [{x}, {y}], up: [{x}], {wire}}}"),
        ("nodes", [x, y]) => {
            return Some(format!(
                "name: {name}\nlevels:\n  - {{name: rail, kind: switch, size: {x}, bandwidth: 50 GB/s, latency: 5 us, blocking: no}}\n  \
                 - {{name: node, kind: switch, size: {y}, bandwidth: 400 GB/s, latency: 1 us, blocking: no}}\n"
            ));
        }
        _ => return None,
    };
    Some(format!("name: {name}\nnetwork: {network}\n"))
}
