//! What orders tasks and what does not; reports that make no sense.

use super::*;

#[test]
fn no_dependency_orders_nothing_but_keeps_the_memory() {
    let mut engine = engine(Config::new().arena(256).executors(CORE, 2));
    engine.begin_scope().unwrap();
    let t = engine.allocate(Arena(0), 8).unwrap().accepted().unwrap();
    add(&mut engine, &any().output(t, all(8)), "writes");
    let mut peeks = any();
    peeks.touch(t, all(8), AccessKind::NoDependency);
    add(&mut engine, &peeks, "peeks");
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
