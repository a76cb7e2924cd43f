//! Tasks that wait for signals, before they start and before they are done.

use super::*;

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
    engine.signal_changed(s, 2);
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
