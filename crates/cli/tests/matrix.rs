//! Every example, on every number of devices that makes sense, round after round.
//!
//! As it stands 100 rounds on up to 4 devices and 10 on 8 and 16; with `RINGWORK_LONG=1` 100 on all.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use ringwork::collectives::catalogue::CATALOGUE;
use ringwork::isa::Collective;
use support::{json, long, verified};

fn on_all_device_counts(name: &str, least: u32) {
    for devices in [1, 2, 3, 4, 8, 16] {
        if devices < least {
            continue;
        }
        let rounds = if long() || devices <= 4 { 100 } else { 10 };
        let json = verified(&format!("{name} -d 0-{} --rounds {rounds}", devices - 1));
        assert_eq!(json["rounds"], rounds);
        assert_eq!(json["devices"].as_array().unwrap().len(), devices as usize);
        assert!(json["checks"].as_array().unwrap().len() >= devices as usize);
    }
}

macro_rules! examples {
    ($($name:ident from $least:literal;)*) => {$(
        #[test]
        fn $name() {
            on_all_device_counts(stringify!($name), $least);
        }
    )*};
}

examples! {
    multi_chip_dispatch from 1;
    allreduce from 1;
    allgather from 1;
    reduce_scatter from 1;
    broadcast from 1;
    reduce from 1;
    all_to_all from 1;
    resident_weight from 1;
    overlapping_domains from 2;
    two_groups from 2;
    vector_graph from 1;
    pod from 2;
    tp_ffn from 1;
    moe_dispatch from 1;
    serving from 1;
}

#[test]
fn vector_add() {
    let json = verified("vector_add -d 7 --rounds 100");
    assert_eq!(json["devices"], serde_json::json!([7]));
    assert_eq!(json["checks"].as_array().unwrap().len(), 1);
}

#[test]
fn every_algorithm() {
    for algo in [
        "onephase",
        "twophase",
        "staged-ring",
        "ring",
        "bidirectional-ring",
    ] {
        for devices in ["0", "0-1", "0-2", "0-3", "0-7"] {
            let json = verified(&format!(
                "allreduce --algo {algo} -d {devices} --count 1001 --rounds 10"
            ));
            assert_eq!(json["algo"], algo);
        }
        verified(&format!("overlapping_domains --algo {algo} -d 0-4 --rounds 10"));
        verified(&format!("two_groups --algo {algo} -d 0-4 --rounds 10"));
    }
}

/// What a communicator chooses is always one of these, which a test of the communicator shows.
#[test]
fn every_algorithm_of_the_catalogue_can_be_named_in_run_and_in_sim() {
    let listed = json("examples --json");
    for entry in CATALOGUE
        .iter()
        .filter(|entry| entry.collective != Collective::Barrier)
    {
        let does =
            |example: &&serde_json::Value| example["name"].as_str().unwrap().parse() == Ok(entry.collective);
        let example = listed["examples"].as_array().unwrap().iter().find(does).unwrap();
        let (name, algo) = (example["name"].as_str().unwrap(), entry.algorithm.name());
        let ran = verified(&format!("{name} --algo {algo} -d 0-3 --count 33"));
        assert_eq!(ran["algo"], algo);
        let collective = entry.collective;
        let said = json(&format!(
            "sim {collective} --algo {algo} -t mesh-2x2 -b 1K -e 1K --json"
        ));
        assert_eq!(said["rows"][0]["verified"], true, "{said}");
    }
}

#[test]
fn every_dtype() {
    for dtype in [
        "f32", "f16", "bf16", "f64", "i8", "u8", "i32", "i64", "f8e4m3", "f8e5m2",
    ] {
        let json = verified(&format!("allreduce --dtype {dtype} --rounds 3"));
        assert_eq!(json["dtype"], dtype);
        for example in [
            "vector_add",
            "multi_chip_dispatch",
            "reduce_scatter",
            "all_to_all",
            "resident_weight",
            "two_groups",
            "vector_graph",
            "pod",
        ] {
            verified(&format!("{example} --dtype {dtype}"));
        }
    }
}

#[test]
fn every_example_with_no_element_one_and_an_odd_number() {
    for example in [
        "vector_add",
        "multi_chip_dispatch",
        "allreduce",
        "allgather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "all_to_all",
        "resident_weight",
        "overlapping_domains",
        "two_groups",
        "vector_graph",
        "pod",
        "tp_ffn",
        "moe_dispatch",
        "serving",
        "gather",
        "scatter",
        "scan",
        "exclusive_scan",
    ] {
        for count in [0, 1, 7] {
            assert_eq!(
                verified(&format!("{example} -d 0-2 --count {count} --rounds 3"))["count"],
                count
            );
        }
    }
}

/// More than fits the scratch, and divisible by nothing: every collective moves it in chunks.
#[test]
fn a_large_prime_number_of_elements() {
    let examples: &[&str] = if long() {
        &[
            "allreduce",
            "allgather",
            "reduce_scatter",
            "broadcast",
            "reduce",
            "all_to_all",
            "vector_add",
        ]
    } else {
        &["allreduce", "broadcast", "vector_add"]
    };
    for example in examples {
        verified(&format!("{example} -d 0-2 --count 1000003"));
    }
    for algo in ["onephase", "ring", "bidirectional-ring"] {
        verified(&format!("allreduce --algo {algo} -d 0-2 --count 1000003"));
    }
}

#[test]
fn devices_in_any_order_and_with_gaps_get_dense_ranks() {
    let json = verified("reduce -d 9,2,40");
    let ranks: Vec<_> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["device"].clone(), check["who"].clone()))
        .collect();
    assert_eq!(
        ranks,
        [(9, "rank 0"), (2, "rank 1"), (40, "rank 2")].map(|(device, who)| (device.into(), who.into()))
    );
}
