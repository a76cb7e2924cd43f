//! Hundreds of live tasks in one buffer: the index finds exactly what comparing every pair finds.
#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use proptest::prelude::*;
use ringwork_engine::{Access, AccessKind, BufferId, Config, Dispatch, Engine, Kind, Place, Spec, View};
use ringwork_testkit::Rng;

const TASKS: usize = 300;

/// Aligned tiles, shifted ones, ranges of all sizes, in a matrix of 64 rows of 256 bytes.
fn view() -> impl Strategy<Value = View> {
    let strided = |(start, rows, row_bytes, pitch)| View::strided(start, rows, row_bytes, pitch).unwrap();
    prop_oneof![
        8 => (0u64..8, 0u64..16).prop_map(move |(r, c)| strided((r * 8 * 256 + c * 16, 8, 16, 256))),
        8 => (0u64..1024).prop_map(|tile| View::range(tile * 16..tile * 16 + 16)),
        3 => (0u64..60, 0u64..256, 1u64..5, 1u64..40).prop_map(move |(r, c, n, w)| strided((r * 256 + c, n, w, 256))),
        3 => (0u64..16_000, 0u32..9).prop_map(|(start, log2)| View::range(start..start + (1 << log2))),
        1 => (0u64..1000, 1u64..20, 1u64..30, 20u64..300).prop_map(strided),
    ]
}

fn task() -> impl Strategy<Value = Vec<Access>> {
    let kind = prop_oneof![
        Just(AccessKind::Input),
        Just(AccessKind::OutputExisting),
        Just(AccessKind::InOut)
    ];
    let access = (view(), kind).prop_map(|(view, kind)| Access {
        buffer: BufferId::new(1),
        view,
        kind,
    });
    prop::collection::vec(access, 1..3)
}

fn cases() -> ProptestConfig {
    let long = ringwork_testkit::long();
    let config = ProptestConfig::with_cases(if long { 5_000 } else { 32 });
    ProptestConfig {
        max_shrink_iters: 50,
        ..config
    }
}

fn conflict(a: &[Access], b: &[Access]) -> bool {
    a.iter().any(|x| {
        let pairs = |y: &&Access| x.kind.writes() || y.kind.writes();
        b.iter().filter(pairs).any(|y| x.view.overlaps(&y.view))
    })
}

type Set = [u64; TASKS.div_ceil(64)];

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn among_hundreds_a_task_is_ready_exactly_when_all_before_it_are_done(
        tasks in prop::collection::vec(task(), TASKS), seed: u64,
    ) {
        let count = tasks.len();
        let config = Config::new().slots(count as u32).executors(Kind(0), count as u32);
        let mut engine = Engine::<usize>::new(&config).unwrap();
        let mut before: Vec<Set> = vec![Set::default(); count];
        let mut spec = Spec::new(Place::Any(Kind(0)));
        for (index, task) in tasks.iter().enumerate() {
            spec.clear();
            spec.accesses.extend_from_slice(task);
            engine.submit(&spec, index).unwrap();
            for earlier in 0..index {
                if conflict(&tasks[earlier], task) {
                    let theirs = before[earlier];
                    before[index].iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine |= theirs);
                    before[index][earlier / 64] |= 1 << (earlier % 64);
                }
            }
        }
        let (mut started, mut done, mut running) = (Set::default(), Set::default(), Vec::<Dispatch>::new());
        let mut rng = Rng(seed);
        while engine.live() > 0 {
            while let Some(dispatch) = engine.ready() {
                let index = *engine.payload(dispatch.task).unwrap();
                started[index / 64] |= 1 << (index % 64);
                running.push(dispatch);
            }
            for (index, before) in before.iter().enumerate() {
                let may = before.iter().zip(done).all(|(before, done)| before & !done == 0);
                prop_assert_eq!(started[index / 64] >> (index % 64) & 1 == 1, may, "task {}", index);
            }
            let dispatch = running.swap_remove(rng.below(running.len()));
            let index = *engine.payload(dispatch.task).unwrap();
            done[index / 64] |= 1 << (index % 64);
            engine.complete(dispatch.task, dispatch.executor).unwrap();
        }
        engine.end_run().unwrap();
    }
}
