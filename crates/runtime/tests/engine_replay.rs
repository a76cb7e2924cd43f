//! Captured graphs: what a replay does to what is outside it, and to its own tasks.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use ringwork_isa::Compare;
use ringwork_runtime::engine::{
    Arena, Binding, Bindings, BufferId, Capture, Config, Engine, Error, Executor, Graph, Kind, Location,
    Outcome, Place, SignalId, Spec, Submit, View,
};
use std::sync::Arc;

const X: BufferId = BufferId::parameter(0);
const Y: BufferId = BufferId::parameter(1);

fn any() -> Spec {
    Spec::new(Place::Any(Kind(0)))
}

fn all() -> View {
    View::range(0..64)
}

fn engine() -> Engine<&'static str> {
    Engine::new(&Config::new().slots(16).arena(1024).executors(Kind(0), 4)).unwrap()
}

fn bind(x: u64, y: u64) -> Bindings {
    Bindings {
        parameters: vec![BufferId::new(x).into(), BufferId::new(y).into()],
        ..Bindings::default()
    }
}

/// One orchestration for both: t = f(x); y = g(t); h touches nothing.
fn orchestrate(to: &mut impl Submit<&'static str>, x: BufferId, y: BufferId) -> Result<(), Error> {
    to.begin_scope()?;
    let t = to.allocate(Arena(0), 64)?.accepted().unwrap();
    to.submit(&any().input(x, all()).output(t, all()), "f")?;
    to.submit(&any().input(t, all()).output_existing(y, all()), "g")?;
    to.submit(&any(), "h")?;
    to.end_scope()
}

fn graph() -> Arc<Graph<&'static str>> {
    let mut capture = Capture::new();
    orchestrate(&mut capture, X, Y).unwrap();
    Arc::new(capture.finish().unwrap())
}

fn run(engine: &mut Engine<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    loop {
        let mut started = Vec::new();
        while let Some(dispatch) = engine.ready() {
            order.push(*engine.payload(dispatch.task).unwrap());
            started.push(dispatch);
        }
        if started.is_empty() {
            return order;
        }
        for dispatch in started {
            engine.complete(dispatch.task, dispatch.executor).unwrap();
        }
    }
}

#[test]
fn one_orchestration_runs_directly_and_replayed_alike() {
    let mut direct = engine();
    orchestrate(&mut direct, BufferId::new(1), BufferId::new(2)).unwrap();
    let mut replayed = engine();
    replayed.replay(&graph(), &bind(1, 2)).unwrap();
    assert_eq!(run(&mut direct), run(&mut replayed));
    assert_eq!(replayed.live(), 0);
    assert_eq!(replayed.arena_use(Arena(0)), Some((0, 1024)));
    assert_eq!(replayed.end_run().unwrap().completed, 3);
}

#[test]
fn a_replay_waits_for_what_it_reads_and_is_waited_for_by_what_reads_it() {
    let mut engine = engine();
    let (a, b, c) = (BufferId::new(1), BufferId::new(2), BufferId::new(3));
    engine.submit(&any().output_existing(a, all()), "before").unwrap();
    engine.replay(&graph(), &bind(1, 2)).unwrap();
    engine
        .submit(&any().input(b, all()).output_existing(c, all()), "after")
        .unwrap();
    engine.replay(&graph(), &bind(3, 4)).unwrap();
    engine
        .submit(&any().output_existing(BufferId::new(5), all()), "elsewhere")
        .unwrap();
    let order = run(&mut engine);
    assert_eq!(
        order,
        ["before", "elsewhere", "f", "h", "g", "after", "f", "h", "g"]
    );
}

#[test]
fn a_task_of_a_replay_finds_its_buffers_through_the_bindings() {
    let mut engine = engine();
    let mut with = bind(7, 8);
    with.parameters[1] = Binding {
        buffer: BufferId::new(7),
        offset: 128,
    };
    engine.replay(&graph(), &with).unwrap();
    let dispatch = engine.ready().unwrap();
    let buffer = BufferId::new(7);
    assert_eq!(
        engine.locate(dispatch.task, X),
        Some(Location::Buffer { buffer, offset: 0 })
    );
    assert_eq!(
        engine.locate(dispatch.task, Y),
        Some(Location::Buffer { buffer, offset: 128 })
    );
    assert_eq!(engine.locate(dispatch.task, BufferId::parameter(2)), None);
    // Overlapping by one byte, and one of the two is written.
    with.parameters[1].offset = 63;
    assert!(matches!(
        engine.replay(&graph(), &with),
        Err(Error::Aliased { .. })
    ));
    with.parameters.pop();
    let refused = engine.replay(&graph(), &with);
    assert_eq!(refused, Err(Error::WrongBindings { got: 1, wanted: 2 }));
}

#[test]
fn replays_press_back_when_slots_or_memory_are_full_and_change_nothing() {
    let mut engine = engine();
    let graph = graph();
    for round in 0..4 {
        engine
            .replay(&graph, &bind(2 * round, 2 * round + 1))
            .unwrap()
            .accepted()
            .unwrap();
    }
    assert_eq!(engine.live(), 16);
    assert!(matches!(
        engine.replay(&graph, &bind(20, 21)),
        Ok(Outcome::Full { .. })
    ));
    assert_eq!(run(&mut engine).len(), 12);
    let mut large = Capture::<&'static str>::new();
    large.allocate(Arena(0), 600).unwrap();
    large.submit(&any(), "large").unwrap();
    let large = Arc::new(large.finish().unwrap());
    engine
        .replay(&large, &Bindings::default())
        .unwrap()
        .accepted()
        .unwrap();
    assert!(matches!(
        engine.replay(&large, &Bindings::default()),
        Ok(Outcome::Full { .. })
    ));
    assert_eq!(
        (engine.live(), engine.arena_use(Arena(0))),
        (2, Some((640, 1024)))
    );
    let mut long = Capture::new();
    for _ in 0..16 {
        long.submit(&any(), "one").unwrap();
    }
    let error = engine
        .replay(&Arc::new(long.finish().unwrap()), &Bindings::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "task slots: 17 needed, 2 of 16 used; nothing in flight can release enough: raise Config::slots"
    );
}

#[test]
fn a_failure_inside_a_replay_spreads_inside_and_out_and_the_rest_finishes() {
    let mut engine = engine();
    let replay = engine.replay(&graph(), &bind(1, 2)).unwrap().accepted().unwrap();
    let after = any().input(BufferId::new(2), all());
    let after = engine.submit(&after, "after").unwrap().accepted().unwrap();
    let f = engine.ready().unwrap();
    engine.fail(f.task, f.executor, "f broke".into()).unwrap();
    assert_eq!(engine.path(after), [f.task, replay, after]);
    assert_eq!(run(&mut engine), ["h"]);
    assert_eq!(engine.live(), 0);
    let report = engine.end_run().unwrap();
    assert_eq!(
        (report.completed, report.failed, report.cancelled.len()),
        (1, 1, 2)
    );
    assert_eq!(engine.arena_use(Arena(0)), Some((0, 1024)));
}

#[test]
fn a_replay_that_is_downstream_of_a_failure_is_cancelled_whole() {
    let mut engine = engine();
    engine
        .submit(&any().output_existing(BufferId::new(1), all()), "before")
        .unwrap();
    engine.replay(&graph(), &bind(1, 2)).unwrap();
    engine.replay(&graph(), &bind(2, 3)).unwrap();
    let dispatch = engine.ready().unwrap();
    engine
        .fail(dispatch.task, dispatch.executor, "no input".into())
        .unwrap();
    assert_eq!((engine.live(), engine.end_run().unwrap().cancelled.len()), (0, 6));
}

#[test]
fn conditions_of_a_graph_are_shifted_by_the_epoch_of_the_replay() {
    let mut capture = Capture::new();
    let signal = SignalId(1);
    capture
        .submit(&any().when(signal, Compare::Ge, 1), "waits")
        .unwrap();
    let graph = Arc::new(capture.finish().unwrap());
    let mut engine = engine();
    for epoch in 0..3 {
        let with = Bindings {
            operand_shift: epoch,
            ..Bindings::default()
        };
        engine.replay(&graph, &with).unwrap();
        engine.signal_changed(signal, epoch);
        assert!(run(&mut engine).is_empty());
        assert!(
            engine
                .stall()
                .unwrap()
                .to_string()
                .contains(&format!("signal 1 >= {}", epoch + 1))
        );
        engine.signal_changed(signal, epoch + 1);
        assert_eq!(run(&mut engine), ["waits"]);
    }
}

#[test]
fn tiles_of_a_parameter_are_joined_seen_from_outside() {
    let mut capture = Capture::new();
    for tile in 0..100u64 {
        let (row, column) = (tile / 10, tile % 10);
        let view = View::strided(row * 16 * 1000 + column * 100, 16, 100, 1000).unwrap();
        capture.submit(&any().in_out(X, view), "tile").unwrap();
    }
    let graph = capture.finish().unwrap();
    assert_eq!(graph.edges(), 0);
    assert_eq!(graph.outside().len(), 2, "{:?}", graph.outside());
    assert_eq!(graph.parameter_bytes(), [160_000]);
}

#[test]
fn explicit_edges_in_a_circle_are_refused() {
    let mut capture = Capture::new();
    let a = capture.submit(&any(), "a").unwrap().accepted().unwrap();
    let b = capture.submit(&any().after(a), "b").unwrap().accepted().unwrap();
    capture.add_edge(b, a).unwrap();
    assert_eq!(capture.finish().unwrap_err(), Error::Circle { node: 0 });
}

#[test]
fn a_graph_for_an_executor_that_is_not_there_is_refused_and_nothing_is_kept() {
    let mut capture = Capture::new();
    capture.allocate(Arena(0), 64).unwrap();
    capture.submit(&any(), "fine").unwrap();
    capture
        .submit(&Spec::new(Place::On(Executor(9))), "not fine")
        .unwrap();
    let graph = Arc::new(capture.finish().unwrap());
    let mut engine = engine();
    assert!(matches!(
        engine.replay(&graph, &Bindings::default()),
        Err(Error::NoSuchExecutor { .. })
    ));
    assert_eq!((engine.live(), engine.arena_use(Arena(0))), (0, Some((0, 1024))));
}

#[test]
fn an_empty_graph_is_done_at_once() {
    let graph = Arc::new(Capture::<&'static str>::new().finish().unwrap());
    let mut engine = engine();
    engine.replay(&graph, &Bindings::default()).unwrap();
    assert_eq!(engine.live(), 0);
}
