//! What must hold of routes and flows.

use super::*;
use crate::{EventQueue, Ps, Rate};
use proptest::prelude::*;
use std::sync::Arc;

fn level(shape: Shape, gigabytes: u64, latency_ns: u64) -> Level {
    Level {
        name: "x".into(),
        shape,
        link: LinkClass::new(
            Rate::per_second(gigabytes * 1_000_000_000).unwrap(),
            latency_ns * 1000,
        ),
        one_way: false,
        attach: Attach::Each,
    }
}

fn fabric(levels: &[Level]) -> Arc<Fabric> {
    let places = levels.iter().map(|l| l.shape.size()).product::<u64>();
    Arc::new(Fabric::of_levels(levels, u32::try_from(places).unwrap()))
}

/// Checks that a route is a chain of links from one end to the other, and returns its length.
fn hops(fabric: &Arc<Fabric>, src: u32, dst: u32) -> usize {
    let mut network = Network::new(Arc::clone(fabric), Vec::new(), Switching::CutThrough(0));
    let mut path = Vec::new();
    assert!(network.route(src, dst, &mut path));
    let mut at = src;
    for link in &path {
        let (from, to) = fabric.ends(*link).unwrap();
        assert_eq!(
            from,
            at,
            "route {src} to {dst} is broken at {}",
            fabric.link_name(*link)
        );
        at = to;
    }
    assert_eq!(at, dst);
    path.len()
}

fn any_level() -> impl Strategy<Value = Level> {
    let shape = prop_oneof![
        (1u32..7).prop_map(Shape::Ring),
        (1u32..7).prop_map(Shape::Line),
        prop::collection::vec(1u32..5, 1..4).prop_map(Shape::Mesh),
        prop::collection::vec(1u32..5, 1..4).prop_map(Shape::Torus),
        (1u32..7).prop_map(Shape::Full),
        (1u32..7, any::<bool>()).prop_map(|(size, blocking)| Shape::Switch {
            size,
            core: if blocking {
                Rate::per_second(1 << 30).unwrap()
            } else {
                Rate::UNLIMITED
            },
        }),
        (1u32..4, 1u32..4, 1u32..4, 1u32..4, 1u32..3).prop_map(|(a, b, c, u, v)| Shape::FatTree {
            down: vec![a, b, c],
            up: vec![u, v]
        }),
    ];
    (shape, any::<bool>()).prop_map(|(shape, one_way)| Level {
        one_way,
        ..level(shape, 10, 100)
    })
}

/// Sends messages (departure, source, destination, bytes) and returns when each arrives.
fn arrivals(fabric: &Arc<Fabric>, messages: &[(Ps, u32, u32, u64)], hop_by_hop: bool) -> (Vec<Ps>, u64, u64) {
    arrivals_of(fabric, messages, &vec![0; messages.len()], hop_by_hop)
}

/// The same, of messages that are sent so much before they depart.
fn arrivals_of(
    fabric: &Arc<Fabric>,
    messages: &[(Ps, u32, u32, u64)],
    early: &[Ps],
    hop_by_hop: bool,
) -> (Vec<Ps>, u64, u64) {
    enum Event {
        Send(usize),
        Wake(Flow),
    }
    let mut network = Network::new(Arc::clone(fabric), Vec::new(), Switching::CutThrough(0));
    network.hop_by_hop = hop_by_hop;
    let mut queue = EventQueue::new();
    let mut arrived = vec![0; messages.len()];
    let mut who = vec![0; messages.len()];
    for (i, message) in messages.iter().enumerate() {
        queue.push(message.0 - early[i], Event::Send(i));
    }
    while let Some((now, event)) = queue.pop() {
        match event {
            Event::Send(i) => {
                let (depart, src, dst, bytes) = messages[i];
                let mut path = Vec::new();
                network.route(src, dst, &mut path);
                match network.send(now, depart, &path, bytes) {
                    Sent::Final { arrival_ps, .. } => arrived[i] = arrival_ps,
                    Sent::Booked { flow, .. } => who[flow as usize] = i,
                }
            }
            Event::Wake(flow) => {
                if network.wake(now, flow) == Step::Arrived {
                    arrived[who[flow.index as usize]] = now;
                }
            }
        }
        for (at, flow) in network.wakes() {
            queue.push(at, Event::Wake(flow));
        }
    }
    let carried = (0..network.link_count()).map(|link| network.load(link).0).sum();
    (arrived, carried, queue.popped())
}

proptest! {
    #[test]
    fn every_route_is_a_chain_of_links(levels in prop::collection::vec(any_level(), 1..4), gate in any::<bool>(), seed: u32) {
        let mut levels = levels;
        let inner: u64 = levels[1..].iter().map(|l| l.shape.size()).product();
        if gate && inner > 1 {
            levels[0].attach = Attach::Gateway(seed % u32::try_from(inner).unwrap());
        }
        let fabric = fabric(&levels);
        let n = fabric.places();
        prop_assert_eq!(fabric.cut_off(), None);
        for i in 0..24u32 {
            let (src, dst) = (seed.wrapping_mul(i * 2 + 1) % n, seed.wrapping_add(i * 7919) % n);
            hops(&fabric, src, dst);
        }
    }

    #[test]
    fn booking_ahead_gives_the_times_of_moving_one_link_at_a_time(
        raw in prop::collection::vec((0u64..4_000_000, 0u32..64, 0u32..64, 1u64..9000), 1..60),
        shape in 0usize..4,
    ) {
        let shape = [Shape::Ring(16), Shape::Torus(vec![4, 4]), Shape::Mesh(vec![2, 3, 4]), Shape::FatTree { down: vec![4, 4], up: vec![2] }][shape].clone();
        // Odd latencies and rates: no two arrivals coincide, so that FIFO has only one meaning.
        let mut level = level(shape, 1, 0);
        level.link = LinkClass::new(Rate::per_second(7_919_000_003).unwrap(), 104_729);
        let fabric = fabric(&[level]);
        let n = fabric.places();
        let messages: Vec<_> = raw.iter().enumerate().map(|(i, (at, src, dst, bytes))| (at * 61 + i as u64, src % n, dst % n, *bytes)).filter(|m| m.1 != m.2).collect();
        let (ahead, carried, _) = arrivals(&fabric, &messages, false);
        let (slowly, carried_slowly, _) = arrivals(&fabric, &messages, true);
        prop_assert_eq!(ahead, slowly);
        prop_assert_eq!(carried, carried_slowly);
    }

    #[test]
    fn messages_that_are_sent_before_they_depart_arrive_when_they_would_if_sent_then(
        raw in prop::collection::vec((0u64..1_000_000, 0u32..64, 0u32..64, 1u64..40_000, 0u64..8_000_000), 1..300),
        shape in 0usize..3,
    ) {
        let shape = [Shape::Ring(6), Shape::Torus(vec![3, 3]), Shape::Mesh(vec![2, 2, 2])][shape].clone();
        let mut level = level(shape, 1, 0);
        level.link = LinkClass::new(Rate::per_second(7_919_000_003).unwrap(), 104_729);
        let fabric = fabric(&[level]);
        let n = fabric.places();
        let (mut messages, mut early) = (Vec::new(), Vec::new());
        for (i, (at, src, dst, bytes, before)) in (0u64..).zip(&raw) {
            if src % n != dst % n {
                messages.push((8_000_000 + at * 331 + i, src % n, dst % n, *bytes));
                early.push(*before);
            }
        }
        let (ahead, carried, _) = arrivals_of(&fabric, &messages, &early, false);
        let (slowly, carried_slowly, _) = arrivals(&fabric, &messages, true);
        prop_assert_eq!(ahead, slowly);
        prop_assert_eq!(carried, carried_slowly);
    }
}

#[test]
fn an_uncontended_message_is_one_event_and_takes_one_latency_per_hop_and_its_bytes_once() {
    let fabric = fabric(&[level(Shape::Line(9), 50, 500)]);
    let (arrived, carried, events) = arrivals(&fabric, &[(0, 0, 8, 1_000_000)], false);
    assert_eq!(arrived, [8 * 500_000 + 20_000_000]);
    assert_eq!(carried, 8_000_000);
    assert_eq!(events, 2, "departure and arrival");
}

#[test]
fn flows_that_share_a_link_take_their_turns() {
    let fabric = fabric(&[level(
        Shape::Switch {
            size: 5,
            core: Rate::UNLIMITED,
        },
        10,
        100,
    )]);
    let messages: Vec<_> = (1..5).map(|src| (0, src, 0, 1_000_000)).collect();
    let (mut arrived, ..) = arrivals(&fabric, &messages, false);
    arrived.sort_unstable();
    assert_eq!(
        arrived,
        (1..=4).map(|i| i * 100_000_000 + 100_000).collect::<Vec<Ps>>()
    );
}

#[test]
fn a_blocking_switch_shares_what_it_passes_and_a_full_mesh_shares_nothing() {
    let blocking = fabric(&[level(
        Shape::Switch {
            size: 4,
            core: Rate::per_second(10_000_000_000).unwrap(),
        },
        10,
        100,
    )]);
    let full = fabric(&[level(Shape::Full(4), 10, 100)]);
    let pairs = [(0, 0, 1, 1_000_000), (0, 2, 3, 1_000_000)];
    assert_eq!(arrivals(&blocking, &pairs, false).0, [100_100_000, 200_100_000]);
    assert_eq!(arrivals(&full, &pairs, false).0, [100_100_000, 100_100_000]);
}

#[test]
fn store_and_forward_and_flits_cost_what_the_formulas_say() {
    let fabric = fabric(&[level(Shape::Line(5), 10, 100)]);
    let time = |switching| {
        let mut network = Network::new(Arc::clone(&fabric), Vec::new(), switching);
        let mut path = Vec::new();
        network.route(0, 4, &mut path);
        network.send(0, 0, &path, 10_000);
        let at = network.wakes().map(|(at, _)| at).max();
        at.unwrap()
    };
    let (hop, bytes) = (100_000, 1_000_000);
    assert_eq!(time(Switching::CutThrough(0)), 4 * hop + bytes);
    assert_eq!(time(Switching::StoreAndForward), 4 * (hop + bytes));
    assert_eq!(time(Switching::CutThrough(256)), 4 * hop + bytes + 3 * 25_600);
}

#[test]
fn a_gateway_is_walked_to_and_from() {
    let mut outer = level(Shape::Ring(6), 10, 100);
    outer.attach = Attach::Gateway(5);
    let fabric = fabric(&[outer, level(Shape::Mesh(vec![4, 4]), 10, 100)]);
    // From a corner two hops to (1,1), one across, and two hops back.
    assert_eq!(hops(&fabric, 0, 16), 2 + 1 + 2);
}

#[test]
fn a_failed_link_is_gone_round() {
    let mut fabric = (*fabric(&[level(Shape::Ring(8), 10, 100)])).clone();
    let broken = fabric.between(0, 1).next().unwrap();
    fabric.fail(broken);
    let fabric = Arc::new(fabric);
    assert_eq!(fabric.cut_off(), None);
    assert_eq!(hops(&fabric, 0, 1), 7);
    assert_eq!(hops(&fabric, 1, 0), 1);
}

#[test]
fn a_machine_of_65536_chips_is_made_of_little_memory_and_routed_at_once() {
    let fabric = fabric(&[level(Shape::Torus(vec![64, 32, 32]), 50, 500)]);
    assert_eq!(fabric.places(), 65_536);
    assert_eq!(hops(&fabric, 0, 65_535), 3);
    assert_eq!(hops(&fabric, 0, 32 * 32 * 32 + 16 * 32 + 16), 32 + 16 + 16);
}
