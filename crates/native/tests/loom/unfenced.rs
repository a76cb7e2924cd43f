//! The shipped cell over primitives without fences: it must fail, or the fences would be for nothing.

#[path = "../../src/sync/primitive.rs"]
#[allow(dead_code, reason = "only the fences are replaced")]
mod real;

mod primitive {
    pub(super) use super::real::{AtomicI32, AtomicU32, AtomicU64, Futex, Ordering};

    pub(super) fn light_barrier() {}
    pub(super) fn heavy_barrier() -> bool {
        true
    }
}

#[path = "../../src/sync/backoff.rs"]
#[allow(dead_code, unreachable_pub, reason = "used in part")]
mod backoff;

#[path = "../../src/sync/cell.rs"]
#[allow(dead_code, unreachable_pub, reason = "used in part")]
mod shipped;

use super::explore;
use shipped::{Cell, Patience};
use std::sync::Arc;
use std::time::Duration;

#[test]
#[should_panic(expected = "deadlock")]
fn broken_without_fences_a_wake_up_is_lost() {
    explore(5, || {
        let cell = Arc::<Cell>::default();
        let patience = Patience {
            spin: Duration::ZERO,
            yields: 0,
        };
        let other = cell.clone();
        let waiter = loom::thread::spawn(move || {
            let _ = other.wait(patience, None, |value| value >= 1, |_| None::<()>);
        });
        cell.set(1);
        waiter.join().unwrap();
    });
}
