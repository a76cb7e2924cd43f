//! The signal cell: publication (CELL-1), no lost wake-up (CELL-2), exits noticed (CELL-3), notes whole (CELL-4).

use super::{PATIENCE, explore};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::thread;
use ringwork_native::cell::{Cell, Ended};
use std::sync::Arc;

/// A cell, and data that its changes publish: one word for each writer.
#[derive(Default)]
struct Published {
    cell: Cell,
    data: [UnsafeCell<i32>; 2],
    raised: AtomicBool,
}

impl Published {
    fn write(&self, word: usize, value: i32) {
        // SAFETY: loom checks that no other thread is at it.
        self.data[word].with_mut(|at| unsafe { *at = value });
    }

    fn read(&self, word: usize) -> i32 {
        // SAFETY: loom checks that no other thread writes it.
        self.data[word].with(|at| unsafe { *at })
    }

    fn wait_for(&self, needed: i32) {
        let waited = self
            .cell
            .wait(PATIENCE, None, |value| value >= needed, |_| None::<()>);
        assert!(waited.unwrap() >= needed);
    }

    fn wait_or_exit(&self) -> Result<i32, Ended<()>> {
        let exit = |_| self.raised.load(SeqCst).then_some(());
        self.cell.wait(PATIENCE, None, |value| value > 0, exit)
    }
}

fn spawn(shared: &Arc<Published>, body: impl FnOnce(&Published) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

#[test]
fn a_note_that_is_being_written_is_no_new_first_word_with_an_old_second() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let writer = spawn(&shared, |shared| {
            shared.cell.note(0, [15, 150]);
            shared.cell.note(2, [17, 170]);
        });
        let [first, second] = shared.cell.noted(0);
        assert!(second >= 10 * first, "call {first} with the count {second}");
        writer.join().unwrap();
    });
}

#[test]
fn an_add_wakes_its_waiter_and_publishes() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            shared.wait_for(1);
            assert_eq!(shared.read(0), 7);
        });
        shared.write(0, 7);
        shared.cell.add(1);
        waiter.join().unwrap();
    });
}

#[test]
fn every_set_wakes_its_waiter_and_publishes() {
    explore(4, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            shared.wait_for(1);
            assert_eq!(shared.read(0), 7);
            shared.wait_for(2);
            assert_eq!(shared.read(1), 8);
        });
        shared.write(0, 7);
        shared.cell.set(1);
        shared.write(1, 8);
        shared.cell.set(2);
        waiter.join().unwrap();
    });
}

#[test]
fn one_change_wakes_all_waiters() {
    explore(4, || {
        let shared = Arc::<Published>::default();
        let waiters = [(); 2].map(|()| {
            spawn(&shared, |shared| {
                shared.wait_for(1);
                assert_eq!(shared.read(0), 7);
            })
        });
        shared.write(0, 7);
        shared.cell.set(1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn adds_of_several_writers_are_never_lost_and_all_publish() {
    explore(4, || {
        let shared = Arc::<Published>::default();
        let other = spawn(&shared, |shared| {
            shared.write(0, 7);
            shared.cell.add(1);
        });
        let waiter = spawn(&shared, |shared| {
            shared.wait_for(2);
            assert_eq!([shared.read(0), shared.read(1)], [7, 8]);
        });
        shared.write(1, 8);
        shared.cell.add(1);
        other.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_raised_exit_wakes_its_waiter_and_publishes_the_reason() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            assert_eq!(shared.wait_or_exit(), Err(Ended::Exit(())));
            assert_eq!(shared.read(0), 9);
        });
        shared.write(0, 9);
        shared.raised.store(true, SeqCst);
        shared.cell.rouse();
        waiter.join().unwrap();
    });
}

#[test]
fn a_change_and_an_exit_at_once_end_every_wait() {
    explore(4, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            let _ = shared.wait_or_exit();
        });
        let writer = spawn(&shared, |shared| shared.cell.add(1));
        shared.raised.store(true, SeqCst);
        shared.cell.rouse();
        waiter.join().unwrap();
        writer.join().unwrap();
    });
}

// Broken on purpose.

#[test]
#[should_panic(expected = "deadlock")]
fn broken_a_waiter_that_does_not_look_again_after_announcing_itself_sleeps_forever() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            // The second look is the one between announcing and sleeping.
            let looks = std::cell::Cell::new(0);
            let blind = |value| {
                looks.set(looks.get() + 1);
                value >= 1 && looks.get() != 2
            };
            let _ = shared.cell.wait(PATIENCE, None, blind, |_| None::<()>);
        });
        shared.cell.add(1);
        waiter.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_an_exit_that_rouses_before_it_is_raised_is_missed() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            let _ = shared.wait_or_exit();
        });
        shared.cell.rouse();
        shared.raised.store(true, SeqCst);
        waiter.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_data_written_after_the_change_is_a_race() {
    explore(5, || {
        let shared = Arc::<Published>::default();
        let waiter = spawn(&shared, |shared| {
            shared.wait_for(1);
            shared.read(0);
        });
        shared.cell.add(1);
        shared.write(0, 7);
        waiter.join().unwrap();
    });
}
