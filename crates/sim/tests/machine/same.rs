//! The same input gives the same events and the same trace, to the byte, in every build.

use crate::common::*;
use ringwork_sim::{Options, Topology};

#[test]
fn timing_only_takes_the_same_time_and_events() {
    let topology = Topology::preset("torus-4x4").unwrap();
    let run = |timing_only: bool, trace: bool| {
        let options = Options {
            timing_only,
            trace,
            ..Options::default()
        };
        let machine = run_on::<f32, _, _>(&topology, options, 4096, 4096, true, |core, d| async move {
            ring_all_reduce(&core, d, RING).await
        });
        (machine.now_ps(), machine.events(), machine.fingerprint())
    };
    assert_eq!(run(false, false), run(true, false));
    assert_eq!(run(false, false), run(false, true));
}

#[test]
fn the_same_run_has_the_same_timeline_and_the_critical_path_spans_it() {
    let topology = Topology::preset("mesh-3x3").unwrap();
    let run = || {
        let options = Options {
            trace: true,
            ..Options::default()
        };
        run_on::<f32, _, _>(&topology, options, 900, 900 * 9, true, |core, d| async move {
            all_to_all(&core, d).await
        })
    };
    let (a, b) = (run(), run());
    assert_eq!(a.timeline(), b.timeline());
    assert_eq!(a.timeline().hash(), b.timeline().hash());
    let timeline = a.timeline();
    let path = timeline.critical_path();
    assert_eq!(path.first().map(|stretch| stretch.1), Some(0));
    assert_eq!(path.last().map(|stretch| stretch.2), Some(timeline.end_ps()));
    assert!(path.windows(2).all(|pair| pair[0].2 == pair[1].1), "{path:?}");
}

#[test]
fn the_trace_is_the_same_in_every_build() {
    // Made once; debug and release must both give it.
    let topology = Topology::preset("fat-tree-4x4").unwrap();
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let machine = run_on::<f32, _, _>(&topology, options, 1600, 1600 * 16, true, |core, d| async move {
        direct_all_reduce(&core, d).await
    });
    let page = machine.timeline().chrome_json();
    assert_eq!(
        (machine.now_ps(), machine.timeline().hash(), page.len()),
        (2_240_000, 4_802_424_402_815_785_787, 91_020)
    );
}

/// Same input, same trace, to the byte: in every build, on every machine. A change of these numbers is a change
/// of what the simulator predicts.
#[test]
fn traces_are_the_same_bytes_in_every_build() {
    let traced = Options {
        trace: true,
        ..Options::default()
    };
    let of = |preset: &str| {
        let topology = Topology::preset(preset).unwrap();
        run_on::<f32, _, _>(&topology, traced, 768, 768, true, |core, d| async move {
            ring_all_reduce(&core, d, RING).await?;
            all_to_all(
                &core,
                Domain {
                    signals: shifted(d),
                    ..d
                },
            )
            .await
        })
    };
    let hashes: Vec<_> = ["ring-8", "torus-4x2", "h100x8", "v100x8", "nodes-2x4"]
        .iter()
        .map(|preset| {
            let (machine, again) = (of(preset), of(preset));
            let timeline = machine.timeline();
            assert_eq!(timeline.chrome_json(), again.timeline().chrome_json(), "{preset}");
            assert_eq!(timeline.html(), again.timeline().html(), "{preset}");
            format!("{preset} {:016x} {:016x}", timeline.hash(), machine.fingerprint())
        })
        .collect();
    assert_eq!(
        hashes,
        [
            "ring-8 400a3e270a0517cb 901112b3d208a5a5",
            "torus-4x2 4772986acddc0f91 add73a8095cae2bd",
            "h100x8 edffb9fad9217fb5 031491332344d3d1",
            "v100x8 4c30a1b02e13b1a5 6d7c2d528613535e",
            "nodes-2x4 f17214a13e151f71 17feb970b135be25",
        ]
    );
}

/// Signals that the first collective has not used.
fn shifted(d: Domain<f32>) -> ringwork_isa::Signals {
    ringwork_isa::Signals {
        base: d.signals.base + 16 * 128,
        count: d.signals.count - 16,
        ..d.signals
    }
}
