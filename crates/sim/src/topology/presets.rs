//! The machines that ship, each as the YAML it is made from: print one, change it, use it. Where each number of a real
//! machine comes from is said in its YAML, in `machines/`.

/// Every preset: its name, and what it is. `N`, `X`, `Y`, `Z` stand for numbers.
pub const PRESETS: [(&str, &str); 28] = [
    ("a100x8", "8 A100 behind NVSwitch"),
    ("a100-nodes-N", "N nodes of 8 A100, a 200 Gbit/s card per chip"),
    ("h100x8", "8 H100 behind NVSwitch, as NCCL's ring sees them"),
    ("h100-nodes-N", "N nodes of 8 H100, a 400 Gbit/s card per chip"),
    (
        "gb200-nvl72",
        "72 Blackwell chips behind the NVLink switches of one rack",
    ),
    ("gb200-racks-N", "N such racks, a 400 Gbit/s card per chip"),
    ("v100x8", "8 V100 in a hybrid cube mesh (DGX-1)"),
    ("mi300x-8", "8 MI300X in a full mesh"),
    (
        "mi300x-nodes-N",
        "N nodes of 8 MI300X, a 400 Gbit/s card per chip",
    ),
    ("tpu-v4-XxYxZ", "TPU v4 in a torus"),
    ("tpu-v5p-XxYxZ", "TPU v5p in a torus"),
    ("tpu-v5e-16x16", "256 TPU v5e in a 16x16 torus"),
    ("ascend-910b-8", "8 Ascend 910B in a full mesh"),
    (
        "ascend-910b-nodes-N",
        "N nodes of 8 Ascend 910B, a 200 Gbit/s port per chip",
    ),
    ("ascend-a3-pod", "one Ascend A3 pod: 48 x 8 chips of 2 dies"),
    ("ascend-a3-nodes-N", "N nodes of such a pod"),
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

/// The YAML of one machine.
macro_rules! machine {
    ($name:literal) => {
        include_str!(concat!("machines/", $name, ".yaml"))
    };
}

/// The YAML of a preset whose name has no numbers.
fn fixed(name: &str) -> Option<&'static str> {
    Some(match name {
        "a100x8" => machine!("a100x8"),
        "h100x8" => machine!("h100x8"),
        "gb200-nvl72" => machine!("gb200-nvl72"),
        "v100x8" => machine!("v100x8"),
        "mi300x-8" => machine!("mi300x-8"),
        "tpu-v5e-16x16" => machine!("tpu-v5e-16x16"),
        "ascend-910b-8" => machine!("ascend-910b-8"),
        "sip6-torus" => machine!("sip6-torus"),
        _ => return None,
    })
}

/// The YAML a preset is made from; `None` if there is no such preset.
#[must_use]
pub fn preset_yaml(name: &str) -> Option<String> {
    match name {
        "fat-tree" => return preset_yaml("fat-tree-8x8"),
        "ascend-a3-pod" => return Some(ascend_a3(name, "48")),
        _ => {}
    }
    if let Some(text) = fixed(name) {
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
        ("a100-nodes", [n]) => return Some(nodes(machine!("a100-nodes"), n)),
        ("h100-nodes", [n]) => return Some(nodes(machine!("h100-nodes"), n)),
        ("gb200-racks", [n]) => return Some(nodes(machine!("gb200-racks"), n)),
        ("mi300x-nodes", [n]) => return Some(nodes(machine!("mi300x-nodes"), n)),
        ("ascend-910b-nodes", [n]) => return Some(nodes(machine!("ascend-910b-nodes"), n)),
        ("ascend-a3-nodes", [n]) => return Some(ascend_a3(name, n)),
        ("tpu-v4", dims) if dims.len() <= 3 => return Some(slice(machine!("tpu-v4"), dims)),
        ("tpu-v5p", dims) if dims.len() <= 3 => return Some(slice(machine!("tpu-v5p"), dims)),
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

/// So many nodes.
fn nodes(text: &str, count: &str) -> String {
    text.replace("-N\n", &format!("-{count}\n"))
        .replace("size: N", &format!("size: {count}"))
}

/// A torus of these sides.
fn slice(text: &str, sides: &[&str]) -> String {
    text.replace("-DIMS", &format!("-{}", sides.join("x")))
        .replace("SIDES", &sides.join(", "))
}

fn ascend_a3(name: &str, nodes: &str) -> String {
    machine!("ascend-a3")
        .replace("NAME", name)
        .replace("NODES nodes", &format!("{nodes} nodes"))
        .replace("NODES", nodes)
}
