//! Good descriptions resolve; bad ones are refused at once, with their line.

use super::*;
use std::time::{Duration, Instant};

fn refused(text: &str) -> String {
    let start = Instant::now();
    let error = Topology::from_yaml("t.yaml", text).unwrap_err().to_string();
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "took {:?}: {error}",
        start.elapsed()
    );
    assert!(error.starts_with("t.yaml:"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn every_preset_resolves() {
    for (name, _) in PRESETS {
        let name = name
            .replace('N', "12")
            .replace('X', "2")
            .replace('Y', "3")
            .replace('Z', "4");
        let topology = Topology::preset(&name).unwrap();
        assert!(topology.ranks() > 1, "{name}");
        assert_eq!(topology.fabric.cut_off(), None);
    }
    assert_eq!(Topology::preset("torus-16x16x16").unwrap().ranks(), 4096);
    assert_eq!(Topology::preset("sip6-torus").unwrap().ranks(), 768);
    assert_eq!(Topology::preset("ascend-a3-pod").unwrap().ranks(), 768);
    let error = Topology::preset("h100x9").unwrap_err().to_string();
    assert!(error.contains("did you mean `h100x8`?"), "{error}");
    let error = Topology::preset("mesh-XxY").unwrap_err().to_string();
    assert!(error.contains("write for example `mesh-4x4`"), "{error}");
    assert!(Topology::preset("ring-").is_err());
    assert!(Topology::preset("ring-0").is_err());
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_valid_one() {
    let error = refused("name: x\nnetwork:\n  kind: ring\n  size: 4\n  bandwith: 5 GB/s\n");
    assert!(
        error.starts_with("t.yaml:5: network: there is no key `bandwith` here; did you mean `bandwidth`?"),
        "{error}"
    );
    let error = refused("network: {kind: rnig, size: 4}\n");
    assert!(error.contains("did you mean `ring`?"), "{error}");
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    let ring = |size: &str, bandwidth: &str, latency: &str| {
        format!("network:\n  kind: ring\n  size: {size}\n  bandwidth: {bandwidth}\n  latency: {latency}\n")
    };
    let error = refused(&ring("4", "50 GB/s", "500"));
    assert_eq!(
        error,
        "t.yaml:5: network.latency: `500` has no unit; write for example `500 ns`"
    );
    assert!(
        refused(&ring("4", "-50 GB/s", "500 ns"))
            .starts_with("t.yaml:4: network.bandwidth: -50 GB/s is out of range")
    );
    assert!(
        refused(&ring("1000000000", "5 GB/s", "5 ns"))
            .starts_with("t.yaml:3: network.size: 1000000000 chips are more than")
    );
    assert!(refused(&ring("0", "5 GB/s", "5 ns")).starts_with("t.yaml:3:"));
    assert!(refused(&ring("many", "5 GB/s", "5 ns")).starts_with("t.yaml:3:"));
    assert!(refused(&ring("2.5", "5 GB/s", "5 ns")).starts_with("t.yaml:3:"));
    let error = refused("network: {kind: torus, dims: [1000, 1000, 1000], bandwidth: 5 GB/s, latency: 5 ns}");
    assert!(error.contains("1000000000 chips"), "{error}");
    let error = refused("network: {kind: full, size: 100000, bandwidth: 5 GB/s, latency: 5 ns}");
    assert!(error.contains("links are more than"), "{error}");
    let error = refused("network: {kind: switch, size: 8, bandwidth: 5 GB/s, latency: 5 ns}");
    assert!(error.contains("`blocking` is missing"), "{error}");
}

#[test]
fn a_network_in_pieces_is_refused() {
    let error = refused(
        "network:\n  kind: links\n  chips: 3\n  links:\n    - {from: 0, to: 1, bandwidth: 5 GB/s, latency: 5 ns}\n",
    );
    assert!(error.contains("chip 2 cannot be reached"), "{error}");
    let error = refused(
        "network: {kind: line, size: 4, bandwidth: 5 GB/s, latency: 5 ns}\nfaults:\n  - {from: 1, to: 2, failed: true}\n",
    );
    assert!(error.starts_with("t.yaml:3: faults"), "{error}");
}

#[test]
fn bombs_and_mountains_are_refused_in_milliseconds() {
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (name, before) in [
        ("b", "a"),
        ("c", "b"),
        ("d", "c"),
        ("e", "d"),
        ("f", "e"),
        ("g", "f"),
        ("h", "g"),
        ("i", "h"),
    ] {
        let items = vec![format!("*{before}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{items}]\n"));
    }
    assert!(refused(&bomb).contains("anchors and aliases stand for more"));
    for (mountain, line) in [("[", 1), ("{a: ", 1), ("- ", 1)] {
        let error = refused(&mountain.repeat((2 << 20) / mountain.len()));
        let said = format!("t.yaml:{line}: it is nested more than 32 deep");
        assert!(error.starts_with(&said), "{mountain}: {error}");
    }
    let twice = "name: x\nnetwork: {}\nname: y\n";
    assert_eq!(refused(twice), "t.yaml:3: the key `name` is here twice; keep one");
    let bent = refused("network:\n  kind: ring\n   size: 8\n");
    assert!(
        bent.starts_with("t.yaml:3: ") && bent.ends_with("(column 8)"),
        "{bent}"
    );
    assert!(refused("# nothing\n").contains("there is nothing in it"));
    refused("a: b: c");
    refused("");
    refused("just words");
    refused("network: 7");
    refused("network: [1, 2]");
    refused("\u{0}\u{1}");
}

#[test]
fn hierarchies_groups_links_faults_and_stragglers_resolve() {
    let levels = "
levels:
  - {name: pod, kind: ring, size: 3, bandwidth: 25 GB/s, latency: 5 us, attach: 0}
  - {name: node, kind: full, size: 4, bandwidth: 100 GB/s, latency: 1 us}
";
    assert_eq!(Topology::from_yaml("t", levels).unwrap().ranks(), 12);
    let groups = "
network:
  kind: groups
  groups:
    - {kind: ring, size: 5, bandwidth: 100 GB/s, latency: 1 us}
    - {kind: switch, size: 3, bandwidth: 100 GB/s, latency: 1 us, blocking: no}
    - {kind: mesh, dims: [2, 2], bandwidth: 100 GB/s, latency: 1 us}
  between: {kind: line, bandwidth: 10 GB/s, latency: 5 us}
stragglers: [{rank: 7, speed: 0.5}]
faults: [{from: 0, to: 1, factor: 0.5}]
";
    let topology = Topology::from_yaml("t", groups).unwrap();
    assert_eq!(topology.ranks(), 12);
    assert_eq!(topology.speed[&7], 0.5);
    let slow = topology.fabric.between(0, 1).next().unwrap();
    assert_eq!(
        topology.fabric.class(slow).unwrap().bandwidth.get(),
        50_000_000_000
    );
    let routed = "
network:
  kind: links
  chips: 3
  bandwidth: 5 GB/s
  latency: 5 ns
  links: [{from: 0, to: 1}, {from: 1, to: 2}, {from: 0, to: 2, direction: one-way}]
  routes: [{from: 0, to: 2, via: [1]}]
";
    let topology = Topology::from_yaml("t", routed).unwrap();
    let mut network = crate::Network::new(topology.fabric, Vec::new(), topology.switching);
    let mut path = Vec::new();
    assert!(network.route(0, 2, &mut path));
    assert_eq!(path.len(), 2);
}

#[test]
fn ranks_are_chips_or_the_cores_inside_them() {
    let text = |ranks: &str| preset_yaml("sip6-torus").unwrap().replace("ranks: cores", ranks);
    let chips = Topology::from_yaml("t", &text("ranks: chips")).unwrap();
    assert_eq!((chips.ranks(), chips.chips(), chips.cores_per_chip), (6, 6, 128));
    let cores = Topology::from_yaml("t", &text("ranks: cores")).unwrap();
    assert_eq!(cores.ranks(), 768);
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let ring = "network: {kind: ring, size: 4, bandwidth: 50 GB/s, latency: 1 us}\n";
    let both = refused(&format!("{ring}levels: [{{name: a, kind: ring, size: 4}}]\n"));
    assert!(both.contains("`network` and `levels` both describe"), "{both}");
    let twice = refused(&format!(
        "{ring}stragglers: [{{rank: 1, speed: 0.5}}, {{rank: 1, speed: 0.7}}]\n"
    ));
    assert!(twice.contains("rank 1 is listed twice"), "{twice}");
    for fault in [
        "stragglers: [{rank: 1, speed: 1e-300}]",
        "faults: [{from: 0, to: 1, factor: 1e-300}]",
    ] {
        let tiny = refused(&format!("{ring}{fault}\n"));
        assert!(tiny.contains("at least 0.000001"), "{tiny}");
    }
    let slots = refused(&format!("{ring}chip: {{queues: {{slots: 3}}}}\n"));
    assert!(slots.contains("a power of two"), "{slots}");
    let tree =
        refused("network: {kind: fat-tree, down: [4], up: [1, 2, 3], bandwidth: 1 GB/s, latency: 1 us}\n");
    assert!(tree.contains("up"), "{tree}");
    let routes = |list: &str| {
        let ring = "network: {kind: ring, size: 4, bandwidth: 50 GB/s, latency: 1 us, routes: ";
        refused(&format!("{ring}{list}}}\n"))
    };
    let back_and_forth = routes("[{from: 1, to: 2, via: [0, 1, 0, 1]}]");
    assert!(back_and_forth.contains("passes 1 twice"), "{back_and_forth}");
    let twice = routes("[{from: 0, to: 2, via: [1]}, {from: 0, to: 2, via: [3]}]");
    assert!(twice.contains("two routes from 0 to 2"), "{twice}");
}

#[test]
fn a_key_of_another_kind_of_network_is_refused() {
    let links = "bandwidth: 50 GB/s, latency: 1 us";
    for (rest, key) in [
        ("kind: ring, size: 4, up: [3]", "up"),
        ("kind: ring, size: 4, blocking: 5 GB/s", "blocking"),
        ("kind: torus, dims: [2, 2], size: 4", "size"),
        (
            "kind: links, chips: 2, links: [{from: 0, to: 1}], size: 2",
            "size",
        ),
        ("kind: switch, size: 4, blocking: no, chips: 4", "chips"),
    ] {
        let error = refused(&format!("network: {{{rest}, {links}}}\n"));
        assert!(
            error.contains(&format!("`{key}` has no effect on a network of kind")),
            "{error}"
        );
    }
    let level = format!("levels: [{{kind: ring, size: 4, dims: [4], {links}}}]\n");
    assert!(refused(&level).contains("`dims` has no effect"));
}

#[test]
fn protocols_that_make_no_sense_are_refused_with_their_line() {
    let with = |protocols: &str| {
        refused(&format!(
            "network:\n  kind: ring\n  size: 4\n  bandwidth: 50 GB/s\n  protocols: {protocols}\n"
        ))
    };
    for (protocols, expected) in [
        ("[]", "t.yaml:5: network.protocols: 0 protocols is out of range"),
        ("[{name: LL, efficiency: 0.5}]", "the key `latency` is missing"),
        ("[{name: LL, latency: 1 us}]", "the key `efficiency` is missing"),
        (
            "[{name: LL, latency: 1 us, efficency: 0.5}]",
            "did you mean `efficiency`?",
        ),
        ("[{name: LL, latency: 1 us, efficiency: 1.5}]", "out of range"),
        (
            "[{name: LL, latency: 1 us, efficiency: 1}, {name: LL, latency: 2 us, efficiency: 1}]",
            "there are two protocols `LL`; remove or rename one of them",
        ),
    ] {
        let error = with(protocols);
        assert!(error.contains(expected), "{protocols}: {error}");
    }
    let both = refused(
        "network:\n  kind: ring\n  size: 4\n  bandwidth: 50 GB/s\n  latency: 1 us\n  protocols: [{name: LL, latency: 1 us, efficiency: 1}]\n",
    );
    assert!(both.starts_with("t.yaml:5: "), "{both}");
    assert!(
        both.contains("`latency` has no effect on a link with `protocols`"),
        "{both}"
    );
}

#[test]
fn every_number_of_a_real_machine_has_its_source_in_the_yaml() {
    let real = PRESETS.iter().map(|preset| preset.0).filter(|name| {
        let described = [
            "ring", "line", "mesh", "torus", "full", "switch", "fat-tree", "nodes", "sip6",
        ];
        !described.iter().any(|kind| name.starts_with(kind))
    });
    let sources = [
        "data sheet",
        "Data sheet",
        "assumed",
        "tuning.cc",
        "Google Cloud",
        "paper",
        "CloudMatrix384",
        "user guide",
        "preset",
        "published",
        "specifications",
        "reference architecture",
    ];
    for name in real {
        let numbered = name.replace('N', "2").replace(['X', 'Y', 'Z'], "4");
        let text = preset_yaml(&numbered).unwrap();
        for (at, line) in text.lines().enumerate() {
            let numbers = ["bandwidth:", "latency:", "vector:", "matrix:", "launch:"];
            if line.trim_start().starts_with('#') || !numbers.iter().any(|key| line.contains(key)) {
                continue;
            }
            // On the line itself, or in the comment above the group of lines that it is in.
            let before = text.lines().take(at + 1).collect::<Vec<_>>();
            let told = before
                .iter()
                .rev()
                .take(8)
                .any(|line| line.contains('#') && sources.iter().any(|source| line.contains(source)));
            assert!(told, "{name}: no source for `{line}`");
        }
        let topology = Topology::preset(&numbered).unwrap();
        if name != "h100x8" {
            assert_eq!(topology.free_inside_chips(), None, "{name}");
        }
    }
}
