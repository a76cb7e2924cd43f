//! Over the chips of a node.

use crate::model::{Named, Spread, check, compute};
use ringwork_parallel::ChipGroup;
use ringwork_runtime::{Node, Platform, Simulation};
use ringwork_sim::Topology;

/// Everything on a node of so many chips: the results of each rank.
fn on(node: &Node, elements: usize) -> Vec<Vec<Named<Vec<f32>>>> {
    let chips = node.devices();
    let group = ChipGroup::open(node, "tp", chips.clone(), elements).unwrap();
    let results = node.run(|orch| Ok(compute(&group.on(orch))?)).unwrap();
    let of_rank = |rank: usize| {
        let read = |result: &Named<ringwork_parallel::Matrix<ringwork_runtime::Tensor<f32>>>| Named {
            name: result.name,
            spread: result.spread,
            value: result.value.parts()[rank].read().unwrap(),
        };
        results.iter().map(read).collect()
    };
    (0..chips.len()).map(of_rank).collect()
}

/// A machine whose links, memory and engines all take time.
pub fn machine(ranks: u32) -> Node {
    let yaml = format!(
        "network: {{kind: ring, size: {ranks}, bandwidth: 50 GB/s, latency: 500 ns}}\n\
         chip: {{memory: {{name: hbm, capacity: 1 GB, bandwidth: 1 TB/s, latency: 0}}, vector: 1 TB/s, matrix: 10 Tflop/s}}"
    );
    let topology = Topology::from_yaml("test", &yaml).unwrap();
    let builder = Node::builder()
        .devices(0..ranks)
        .platform(Platform::Sim(Simulation::new(topology)));
    builder.launch().unwrap()
}

/// The results of each rank on a simulated node of so many chips.
pub fn simulated(ranks: u32) -> Vec<Vec<Named<Vec<f32>>>> {
    on(&machine(ranks), 512)
}

fn bits(results: &[Named<Vec<f32>>]) -> Vec<(&'static str, Vec<u32>)> {
    let bits = |result: &Named<Vec<f32>>| {
        (
            result.name,
            result.value.iter().map(|value| value.to_bits()).collect(),
        )
    };
    results.iter().map(bits).collect()
}

pub fn assert_same_bits(one: &[Named<Vec<f32>>], other: &[Named<Vec<f32>>]) {
    assert_eq!(bits(one), bits(other));
}

fn assert_equal_everywhere(ranks: &[Vec<Named<Vec<f32>>>]) {
    for rank in &ranks[1..] {
        for (first, other) in ranks[0]
            .iter()
            .zip(rank)
            .filter(|(first, _)| first.spread == Spread::Everywhere)
        {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&first.value), bits(&other.value), "{}", first.name);
        }
    }
}

#[test]
fn layers_on_a_simulated_node_are_those_of_the_dense_reference() {
    for ranks in [1, 2, 3, 6] {
        let results = simulated(ranks);
        for (rank, results) in results.iter().enumerate() {
            check(results, rank, ranks as usize);
        }
        assert_equal_everywhere(&results);
    }
}

#[test]
fn layers_on_a_native_node_have_the_bits_of_the_simulated_one() {
    let node = Node::builder().devices(0..3).launch().unwrap();
    // With a team for short sums, so that they go in pieces.
    let native = on(&node, 16);
    for (rank, (native, simulated)) in native.iter().zip(&simulated(3)).enumerate() {
        check(native, rank, 3);
        assert_same_bits(native, simulated);
    }
}

#[test]
fn a_simulated_step_takes_time_and_always_the_same() {
    let time = || {
        let node = machine(2);
        on(&node, 512);
        node.clock().simulated().unwrap().now_ps
    };
    let first = time();
    assert!(first > 0);
    assert_eq!(time(), first);
}
