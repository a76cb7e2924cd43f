//! What the rings and scopes promise.

use super::*;

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
    assert!(!is_free(&mut engine, 1));
    engine.end_run().unwrap();
    assert!(is_free(&mut engine, 1024));
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
    assert_eq!(engine.end_scope(), Err(Error::NoScope));
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
