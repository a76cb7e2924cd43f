//! What fails, what is cancelled with it, what stalls.

use super::*;

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
    assert!(is_free(&mut engine, 1024));
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
    assert_eq!(stall.chains.len(), 1);
    assert_eq!(
        stall.chains[0].to_string(),
        format!("{third} <- {second} <- {first} <- signal 3 >= 7 (not known)")
    );
    engine.cancel_all("gave up".into());
    assert_eq!((engine.live(), engine.end_run().unwrap().cancelled.len()), (0, 3));
}
