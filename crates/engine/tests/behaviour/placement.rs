//! Where and when tasks start: groups, kinds, turns, priorities.

use super::*;

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
