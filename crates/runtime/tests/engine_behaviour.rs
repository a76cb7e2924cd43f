//! The engine, one promise at a time: rings, scopes, groups, signals, failures, stalls.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use ringwork_isa::Compare;
use ringwork_runtime::engine::{
    Arena, BufferId, Completion, Config, Dispatch, Engine, Error, Executor, Kind, Link, MAX_SCOPES, Outcome,
    Place, Ring, SignalId, Spec, Status, TaskId, View,
};

const CORE: Kind = Kind(0);
const HOST: Kind = Kind(9);

fn engine(config: Config) -> Engine<&'static str> {
    Engine::new(&config).unwrap()
}

fn on(executor: u32) -> Spec {
    Spec::new(Place::On(Executor(executor)))
}

fn any() -> Spec {
    Spec::new(Place::Any(CORE))
}

fn group(members: &[u32]) -> Spec {
    Spec::new(Place::Group(members.iter().map(|&m| Executor(m)).collect()))
}

fn all(bytes: u64) -> View {
    View::range(0..bytes)
}

fn add(engine: &mut Engine<&'static str>, spec: &Spec, name: &'static str) -> TaskId {
    engine.submit(spec, name).unwrap().accepted().expect("not full")
}

/// Starts everything that can start; returns the names with the dispatches.
fn start(engine: &mut Engine<&'static str>) -> Vec<(&'static str, Dispatch)> {
    let mut started = Vec::new();
    while let Some(dispatch) = engine.ready() {
        started.push((*engine.payload(dispatch.task).unwrap(), dispatch));
    }
    started
}

fn names(started: &[(&'static str, Dispatch)]) -> Vec<&'static str> {
    started.iter().map(|(name, _)| *name).collect()
}

fn finish(engine: &mut Engine<&'static str>, dispatch: Dispatch) {
    for member in engine.members(dispatch.task).to_vec() {
        engine.complete(dispatch.task, member).unwrap();
    }
}

fn run_all(engine: &mut Engine<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    while engine.live() > 0 {
        let started = start(engine);
        assert!(!started.is_empty(), "{:?}", engine.stall());
        order.extend(names(&started));
        for (_, dispatch) in started {
            finish(engine, dispatch);
        }
    }
    order
}

#[test]
fn a_full_ring_of_slots_takes_more_once_something_completes() {
    let mut engine = engine(Config::new().slots(2).executors(CORE, 1));
    add(&mut engine, &on(0), "a");
    add(&mut engine, &on(0), "b");
    let Outcome::Full { fill, payload } = engine.submit(&on(0), "c").unwrap() else {
        panic!("there is no third slot");
    };
    assert_eq!(
        (fill.ring, fill.used, fill.capacity, payload),
        (Ring::Slots, 2, 2, "c")
    );
    let dispatch = engine.ready().unwrap();
    finish(&mut engine, dispatch);
    add(&mut engine, &on(0), payload);
    assert_eq!(run_all(&mut engine), ["b", "c"]);
}

#[test]
fn an_intermediate_lives_until_its_scope_has_ended_and_its_users_are_done() {
    let mut engine = engine(Config::new().arena(1024).executors(CORE, 2));
    engine.begin_scope().unwrap();
    let t = engine.allocate(Arena(0), 1000).unwrap().accepted().unwrap();
    add(&mut engine, &any().output(t, all(1000)), "make");
    add(&mut engine, &any().input(t, all(1000)), "use");
    engine.end_scope().unwrap();
    assert!(engine.placement(t).is_some(), "its users are not done");
    // No room now, but there will be.
    assert!(matches!(engine.allocate(Arena(0), 64), Ok(Outcome::Full { .. })));
    assert_eq!(run_all(&mut engine), ["make", "use"]);
    assert_eq!(engine.placement(t), None);
    assert!(matches!(
        engine.submit(&any().input(t, all(8)), "late"),
        Err(Error::NoSuchBuffer { .. })
    ));
    let again = engine.allocate(Arena(0), 1000).unwrap().accepted().unwrap();
    assert_ne!(again, t, "a handle is not reused");
    // Not used by anybody, and its scope (the run's own) is open.
    assert_eq!(engine.arena_use(Arena(0)), Some((1024, 1024)));
    engine.end_run().unwrap();
    assert_eq!(engine.arena_use(Arena(0)), Some((0, 1024)));
}

#[test]
fn a_memory_ring_that_can_never_have_room_says_which_and_what_to_raise() {
    let mut engine = engine(Config::new().arena(256).arena(1024).executors(CORE, 1));
    let error = engine.allocate(Arena(1), 2000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "intermediate memory of arena 1: 2048 needed, 0 of 1024 used; nothing in flight can release enough: raise Config::arena_bytes[1]"
    );
    engine.allocate(Arena(1), 600).unwrap();
    // A task is in flight, but the bytes are held by the open scope: waiting would never help.
    add(&mut engine, &on(0), "unrelated");
    let error = engine.allocate(Arena(1), 600).unwrap_err();
    assert!(
        error.to_string().contains("640 of them by open scopes"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("raise Config::arena_bytes[1], or end scopes sooner"),
        "{error}"
    );
    assert!(matches!(
        engine.allocate(Arena(2), 1),
        Err(Error::NoSuchArena { .. })
    ));
}

#[test]
fn scopes_nest_to_64_and_end_only_if_begun() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    assert_eq!(engine.end_scope(), Err(Error::NoScope));
    for _ in 0..MAX_SCOPES {
        engine.begin_scope().unwrap();
    }
    assert_eq!(engine.begin_scope(), Err(Error::TooDeep { max: 64 }));
    for _ in 0..MAX_SCOPES {
        engine.end_scope().unwrap();
    }
    assert_eq!(engine.scope_depth(), 0);
}

#[test]
fn an_output_must_be_allocated_and_a_view_must_fit() {
    let mut engine = engine(Config::new().arena(1024).executors(CORE, 1));
    let plain = BufferId::new(3);
    assert_eq!(
        engine.submit(&on(0).output(plain, all(8)), "x"),
        Err(Error::NotAllocated { buffer: plain })
    );
    let t = engine.allocate(Arena(0), 100).unwrap().accepted().unwrap();
    assert!(matches!(
        engine.submit(&on(0).output(t, all(101)), "x"),
        Err(Error::OutOfBounds { bytes: 100, .. })
    ));
    assert!(matches!(
        engine.submit(&on(0).input(BufferId::parameter(0), all(1)), "x"),
        Err(Error::WrongSort { .. })
    ));
    assert_eq!(engine.live(), 0, "what was refused has changed nothing");
}

#[test]
fn a_group_starts_on_all_members_or_not_at_all() {
    let mut engine = engine(Config::new().executors(CORE, 3));
    add(&mut engine, &on(1), "single");
    let pair = add(&mut engine, &group(&[0, 1]), "pair");
    let started = start(&mut engine);
    assert_eq!(names(&started), ["single"]);
    // Executor 0 is reserved: a later task does not get it, but gets the others.
    add(&mut engine, &on(0), "later");
    add(&mut engine, &any(), "free");
    let more = start(&mut engine);
    assert_eq!((names(&more), more[0].1.executor), (vec!["free"], Executor(2)));
    finish(&mut engine, started[0].1);
    let pairs = start(&mut engine);
    assert_eq!(names(&pairs), ["pair"]);
    assert_eq!(engine.members(pair), [Executor(0), Executor(1)]);
    assert_eq!(
        engine.complete(pair, Executor(1)),
        Ok(Completion::Partial { left: 1 })
    );
    assert_eq!(
        engine.complete(pair, Executor(1)),
        Err(Error::NotRunning {
            task: pair,
            executor: Executor(1)
        })
    );
    assert_eq!(engine.complete(pair, Executor(0)), Ok(Completion::Finished));
    assert_eq!(names(&start(&mut engine)), ["later"]);
}

#[test]
fn two_groups_that_share_executors_cannot_deadlock() {
    let mut engine = engine(Config::new().executors(CORE, 2));
    // Each executor is busy with something else first, and they fall idle one after the other.
    add(&mut engine, &on(0), "x");
    add(&mut engine, &on(1), "y");
    let busy = start(&mut engine);
    add(&mut engine, &group(&[0, 1]), "first");
    add(&mut engine, &group(&[1, 0]), "second");
    finish(&mut engine, busy[1].1);
    assert!(start(&mut engine).is_empty());
    finish(&mut engine, busy[0].1);
    assert_eq!(run_all(&mut engine), ["first", "second"]);
}

#[test]
fn neither_groups_nor_single_tasks_are_starved_by_a_stream_of_the_other() {
    let mut engine = engine(Config::new().executors(CORE, 2));
    // A group among singles that never leave both executors idle at once by themselves.
    add(&mut engine, &on(0), "s");
    add(&mut engine, &on(1), "s");
    let mut running = start(&mut engine);
    add(&mut engine, &group(&[0, 1]), "group");
    let mut rounds = 0;
    while !running.iter().any(|(name, _)| *name == "group") {
        rounds += 1;
        assert!(rounds < 4, "the group is starved");
        let (_, dispatch) = running.remove(0);
        finish(&mut engine, dispatch);
        add(&mut engine, &on(dispatch.executor.0), "s");
        running.extend(start(&mut engine));
    }
    // A single task among groups.
    add(&mut engine, &on(0), "patient");
    for _ in 0..3 {
        add(&mut engine, &group(&[0, 1]), "group");
    }
    let order = {
        for (_, dispatch) in running {
            finish(&mut engine, dispatch);
        }
        run_all(&mut engine)
    };
    let at = order.iter().position(|name| *name == "patient").unwrap();
    assert!(order[..at].iter().all(|name| *name != "group"), "{order:?}");
}

#[test]
fn executors_take_turns_and_kinds_are_kept_apart() {
    let mut engine = engine(Config::new().executors(CORE, 3).executors(HOST, 1));
    for _ in 0..3 {
        add(&mut engine, &any(), "core");
    }
    add(&mut engine, &Spec::new(Place::Any(HOST)), "host");
    add(&mut engine, &Spec::new(Place::Any(HOST)), "host");
    let started = start(&mut engine);
    let where_: Vec<_> = started.iter().map(|(_, d)| d.executor.0).collect();
    assert_eq!(where_, [0, 1, 2, 3]);
    assert_eq!(names(&started), ["core", "core", "core", "host"]);
    // The next free task goes on round the circle, not to the first again.
    finish(&mut engine, started[0].1);
    finish(&mut engine, started[1].1);
    add(&mut engine, &any(), "core");
    assert_eq!(engine.ready().unwrap().executor, Executor(0));
    add(&mut engine, &any(), "core");
    assert_eq!(engine.ready().unwrap().executor, Executor(1));
}

#[test]
fn what_any_may_run_waits_for_one_that_is_idle_and_is_not_overtaken() {
    let mut engine = engine(Config::new().executors_of_depth(CORE, 2, 2));
    for name in ["a", "b", "c"] {
        add(&mut engine, &any(), name);
    }
    add(&mut engine, &on(0), "behind c");
    let started = start(&mut engine);
    assert_eq!(names(&started), ["a", "b"]);
    finish(&mut engine, started[1].1);
    assert_eq!(names(&start(&mut engine)), ["c", "behind c"]);
}

#[test]
fn an_executor_of_depth_two_is_given_two_and_a_group_has_it_alone() {
    let mut engine = engine(Config::new().executors_of_depth(CORE, 2, 2));
    for (at, name) in [(0, "a"), (1, "b"), (0, "c"), (1, "d"), (0, "e")] {
        add(&mut engine, &on(at), name);
    }
    add(&mut engine, &group(&[0, 1]), "group");
    let started = start(&mut engine);
    assert_eq!(names(&started), ["a", "b", "c", "d"]);
    for (_, dispatch) in started {
        finish(&mut engine, dispatch);
    }
    assert_eq!(names(&start(&mut engine)), ["e"]);
}

#[test]
fn priority_goes_first_then_age() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    add(&mut engine, &any(), "old");
    add(&mut engine, &on(0), "second");
    add(&mut engine, &any().priority(-5), "background");
    add(&mut engine, &on(0).priority(5), "urgent");
    assert_eq!(run_all(&mut engine), ["urgent", "old", "second", "background"]);
}

#[test]
fn a_task_waits_for_its_signals_without_an_executor() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    let (s, t) = (SignalId(4), SignalId(8));
    let task = add(
        &mut engine,
        &on(0).when(s, Compare::Ge, 2).when(t, Compare::Ne, 0),
        "gated",
    );
    add(&mut engine, &on(0), "other");
    assert_eq!(engine.watched().map(|w| w.signal).collect::<Vec<_>>(), [s, t]);
    assert_eq!(run_names(&mut engine), ["other"]);
    assert!(engine.is_stalled());
    engine.signal_changed(s, 1);
    engine.signal_changed(t, 3);
    let waits = engine.what_waits();
    assert_eq!(waits.len(), 1);
    assert_eq!(
        waits[0].to_string(),
        format!("{task} waits to start for signal 4 >= 2, it is 1")
    );
    let version = engine.watch_version();
    engine.signal_changed(s, 2);
    assert_ne!(engine.watch_version(), version);
    assert_eq!(engine.watched().count(), 0);
    assert_eq!(run_all(&mut engine), ["gated"]);
}

/// Runs what can run now, and its consequences, until nothing is ready.
fn run_names(engine: &mut Engine<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    loop {
        let started = start(engine);
        if started.is_empty() {
            return order;
        }
        order.extend(names(&started));
        for (_, dispatch) in started {
            finish(engine, dispatch);
        }
    }
}

#[test]
fn a_deferred_task_frees_its_executor_and_is_done_when_the_signal_says_so() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    let (b, s) = (BufferId::new(1), SignalId(1));
    let send = add(
        &mut engine,
        &on(0).output_existing(b, all(8)).until(s, Compare::Ge, 1),
        "send",
    );
    add(&mut engine, &on(0).input(b, all(8)), "after");
    add(&mut engine, &on(0), "other");
    let dispatch = engine.ready().unwrap();
    assert_eq!(engine.watched().count(), 0, "not before it has run");
    assert_eq!(
        engine.complete(dispatch.task, Executor(0)),
        Ok(Completion::Deferred)
    );
    assert_eq!(engine.status(send), Ok(Status::Deferred));
    assert_eq!(run_names(&mut engine), ["other"]);
    assert_eq!(
        engine.what_waits()[0].to_string(),
        format!("{send} waits to be done for signal 1 >= 1, its value is not known")
    );
    engine.signal_changed(s, 1);
    assert_eq!(run_all(&mut engine), ["after"]);
    assert_eq!(engine.end_run().unwrap().completed, 3);
}

#[test]
fn a_deadline_on_a_signal_fails_the_task_that_waited_and_cancels_what_needs_it() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    let (b, s) = (BufferId::new(1), SignalId(1));
    let send = add(
        &mut engine,
        &on(0).output_existing(b, all(8)).until(s, Compare::Ge, 1),
        "send",
    );
    let never = add(&mut engine, &on(0).when(SignalId(2), Compare::Ge, 1), "never");
    add(&mut engine, &on(0).input(b, all(8)), "after");
    run_names(&mut engine);
    engine.cancel(send, "signal 1 never came".into()).unwrap();
    engine.cancel(never, "nor did signal 2".into()).unwrap();
    assert_eq!((engine.live(), engine.watched().count()), (0, 0));
    let report = engine.end_run().unwrap();
    assert_eq!(
        report.failure.unwrap().to_string(),
        format!("{send}: signal 1 never came")
    );
    assert_eq!(report.failed, 1);
    let lost: Vec<_> = report.cancelled.iter().map(|c| c.payload.unwrap()).collect();
    assert_eq!(lost, ["after", "never"]);
}

#[test]
fn who_only_waited_for_the_memory_of_a_failed_task_still_runs() {
    let mut engine = engine(Config::new().executors(CORE, 4));
    let (a, b) = (BufferId::new(1), BufferId::new(2));
    let broken = add(
        &mut engine,
        &any().input(a, all(8)).output_existing(b, all(8)),
        "broken",
    );
    add(
        &mut engine,
        &any().output_existing(a, all(8)),
        "overwrites its input",
    );
    add(&mut engine, &any().input(b, all(4)), "needs its output");
    add(
        &mut engine,
        &any().output_existing(b, all(8)),
        "overwrites its output",
    );
    let last = add(&mut engine, &any().input(b, all(8)), "needs the new output");
    let chained = add(&mut engine, &any().after(broken), "explicitly after");
    let dispatch = engine.ready().unwrap();
    engine
        .fail(dispatch.task, dispatch.executor, "oops".into())
        .unwrap();
    assert_eq!(
        engine.submit(&any(), "too late"),
        Err(Error::RunFailed { task: Some(broken) })
    );
    assert_eq!(engine.path(chained), [broken, chained]);
    assert!(engine.path(last).is_empty());
    assert_eq!(
        run_all(&mut engine),
        [
            "overwrites its input",
            "overwrites its output",
            "needs the new output"
        ]
    );
    let report = engine.end_run().unwrap();
    assert_eq!(
        (report.completed, report.failed, report.cancelled.len()),
        (3, 1, 2)
    );
}

#[test]
fn the_first_error_wins_and_the_next_run_starts_clean() {
    let mut engine = engine(Config::new().arena(1024).executors(CORE, 2));
    let t = engine.allocate(Arena(0), 64).unwrap().accepted().unwrap();
    add(&mut engine, &on(0), "a");
    add(&mut engine, &on(1).output(t, all(64)), "b");
    let started = start(&mut engine);
    engine
        .fail(started[1].1.task, Executor(1), "first".into())
        .unwrap();
    assert!(matches!(
        engine.end_run(),
        Err(Error::NotDone { live: 1, running: 1 })
    ));
    engine
        .fail(started[0].1.task, Executor(0), "second".into())
        .unwrap();
    let report = engine.end_run().unwrap();
    assert_eq!(
        (report.failed, report.failure.unwrap().error.as_str()),
        (2, "first")
    );
    assert_eq!(engine.arena_use(Arena(0)), Some((0, 1024)));
    add(&mut engine, &on(0), "c");
    assert_eq!(run_all(&mut engine), ["c"]);
    assert_eq!(engine.end_run().unwrap().failure, None);
}

#[test]
fn a_group_that_fails_in_one_member_is_over_when_all_have_reported() {
    let mut engine = engine(Config::new().executors(CORE, 2));
    let b = BufferId::new(1);
    let pair = add(&mut engine, &group(&[0, 1]).output_existing(b, all(8)), "pair");
    let after = add(&mut engine, &on(0).input(b, all(8)), "after");
    engine.ready().unwrap();
    let partial = engine.fail(pair, Executor(1), "half".into());
    assert_eq!(partial, Ok(Completion::Partial { left: 1 }));
    assert_eq!(engine.status(after), Ok(Status::Cancelled));
    assert_eq!(engine.complete(pair, Executor(0)), Ok(Completion::Finished));
    let report = engine.end_run().unwrap();
    assert_eq!(
        (report.completed, report.failed, report.cancelled.len()),
        (0, 1, 1)
    );
}

#[test]
fn a_lost_executor_fails_what_it_ran_and_what_could_only_run_there() {
    let mut engine = engine(Config::new().executors(CORE, 2).executors(HOST, 1));
    let running = add(&mut engine, &on(1), "running");
    add(&mut engine, &any(), "free");
    add(&mut engine, &on(1), "directed");
    add(&mut engine, &group(&[0, 1]), "group");
    let started = start(&mut engine);
    assert_eq!(names(&started), ["free", "running"], "executor 0 is asked first");
    add(&mut engine, &any(), "free too");
    assert_eq!(engine.lose(Executor(1), "chip 1 died".into()), Ok(3));
    finish(&mut engine, started[0].1);
    assert_eq!(run_all(&mut engine), ["free too"]);
    let report = engine.end_run().unwrap();
    let failure = report.failure.unwrap();
    assert_eq!(
        failure.to_string(),
        format!("{running} on executor 1: chip 1 died")
    );
    assert_eq!(
        (report.completed, report.failed, report.cancelled.len()),
        (2, 1, 2)
    );
    assert!(matches!(
        engine.submit(&on(1), "x"),
        Err(Error::NoSuchExecutor { lost: true, .. })
    ));
    // Losing one that nobody needs does not fail the run.
    assert_eq!(engine.lose(Executor(2), "gone".into()), Ok(0));
    assert!(engine.failure().is_none());
    assert_eq!(
        engine.submit(&Spec::new(Place::Any(HOST)), "x"),
        Err(Error::NoSuchKind { kind: HOST })
    );
    engine.restore(Executor(1)).unwrap();
    add(&mut engine, &on(1), "back");
    assert_eq!(run_all(&mut engine), ["back"]);
}

#[test]
fn a_stall_shows_the_chain_back_to_its_cause() {
    let mut engine = engine(Config::new().executors(CORE, 1));
    let (a, b) = (BufferId::new(1), BufferId::new(2));
    assert_eq!(engine.stall(), None);
    let first = add(
        &mut engine,
        &on(0).when(SignalId(3), Compare::Ge, 7).output_existing(a, all(8)),
        "first",
    );
    let second = add(
        &mut engine,
        &on(0).input(a, all(8)).output_existing(b, all(8)),
        "second",
    );
    let third = add(&mut engine, &on(0).input(b, all(8)), "third");
    let stall = engine.stall().unwrap();
    assert!(stall.on_signals);
    assert_eq!(stall.chains.len(), 1);
    assert_eq!(
        stall.chains[0].to_string(),
        format!("{third} <- {second} <- {first} <- signal 3 >= 7 (not known)")
    );
    engine.cancel_all("gave up".into());
    assert_eq!((engine.live(), engine.end_run().unwrap().cancelled.len()), (0, 3));
}

#[test]
fn edges_in_a_circle_are_a_stall_that_says_so_and_the_slots_are_stuck() {
    let mut engine = engine(Config::new().slots(2).executors(CORE, 1));
    let a = add(&mut engine, &on(0).held(), "a");
    let b = add(&mut engine, &on(0).after(a), "b");
    engine.add_edge(b, a).unwrap();
    assert_eq!(
        engine.stall().unwrap().chains[0].links.last(),
        Some(&Link::Release)
    );
    assert!(
        matches!(engine.submit(&on(0), "c"), Ok(Outcome::Full { .. })),
        "a release may come"
    );
    engine.release(a).unwrap();
    assert!(engine.release(a).is_err());
    let stall = engine.stall().unwrap();
    assert!(!stall.on_signals);
    assert_eq!(stall.chains[0].links, [Link::Task(b), Link::Circle(a)]);
    assert_eq!(
        engine.submit(&on(0), "c").unwrap_err().to_string(),
        "task slots: 1 needed, 2 of 2 used; nothing in flight can release enough: raise Config::slots"
    );
    engine.cancel_all("a circle".into());
    assert_eq!((engine.live(), engine.end_run().unwrap().cancelled.len()), (0, 2));
}

#[test]
fn no_dependency_orders_nothing_but_keeps_the_memory() {
    let mut engine = engine(Config::new().arena(256).executors(CORE, 2));
    engine.begin_scope().unwrap();
    let t = engine.allocate(Arena(0), 8).unwrap().accepted().unwrap();
    add(&mut engine, &any().output(t, all(8)), "writes");
    add(&mut engine, &any().no_dependency(t, all(8)), "peeks");
    engine.end_scope().unwrap();
    let started = start(&mut engine);
    assert_eq!(names(&started), ["writes", "peeks"]);
    finish(&mut engine, started[0].1);
    assert!(engine.placement(t).is_some());
    finish(&mut engine, started[1].1);
    assert_eq!(engine.placement(t), None);
}

#[test]
fn column_blocks_of_a_matrix_run_at_once() {
    let mut engine = engine(Config::new().executors(CORE, 9));
    let matrix = BufferId::new(0);
    for column in 0..8 {
        let block = View::strided(column * 64, 1000, 64, 512).unwrap();
        add(&mut engine, &any().in_out(matrix, block), "column");
    }
    add(&mut engine, &any().input(matrix, View::range(512..1024)), "row");
    assert_eq!(names(&start(&mut engine)), ["column"; 8]);
    assert_eq!(engine.edges_made(), 8);
}

#[test]
fn reports_about_tasks_that_are_not_running_are_refused() {
    let mut engine = engine(Config::new().executors(CORE, 2));
    let task = add(&mut engine, &on(0), "a");
    assert!(matches!(
        engine.complete(task, Executor(0)),
        Err(Error::WrongState { .. })
    ));
    engine.ready().unwrap();
    assert!(matches!(
        engine.complete(task, Executor(1)),
        Err(Error::NotRunning { .. })
    ));
    assert!(matches!(
        engine.cancel(task, "no".into()),
        Err(Error::WrongState { .. })
    ));
    engine.complete(task, Executor(0)).unwrap();
    assert_eq!(engine.status(task), Ok(Status::Finished));
    assert!(matches!(
        engine.complete(task, Executor(0)),
        Err(Error::WrongState { .. })
    ));
    let bad = engine.submit(&group(&[0, 0]), "twice").unwrap_err();
    assert!(bad.to_string().ends_with("executor 0 is in it twice"));
    assert!(engine.submit(&group(&[]), "none").is_err());
    assert!(matches!(
        engine.submit(&on(7), "x"),
        Err(Error::NoSuchExecutor { lost: false, .. })
    ));
}
