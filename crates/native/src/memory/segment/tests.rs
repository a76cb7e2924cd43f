//! Segments refuse bad handles and bad headers, and alarms reach sleepers.

use super::alarm::{CLAIMED, RAISED};
use super::*;
use crate::error::Error;
use proptest::prelude::*;
use ringwork_isa::{Dtype, Segment, Signals};
use ringwork_layout::{BufferPlace, CellRow, MAX_BYTES};
use std::time::Duration;

fn heap() -> Attached {
    Attached::on_heap(Layout::windows(Segment(3), 2, 2, 64).unwrap()).unwrap()
}

fn span(base: u64, rank: u32, len: u64) -> Span {
    let (offset, count) = (0, usize::try_from(len).unwrap());
    let dtype = Dtype::F32;
    Span {
        base,
        rank: Rank(rank),
        ..heap()
            .layout()
            .span(Rank(0), BufferPlace { offset, dtype, count })
    }
}

#[test]
fn regions_reach_data_and_nothing_else() {
    let segment = heap();
    let data = segment.layout().data_offset();
    assert!(segment.resolve(&span(data, 0, 16)).is_some());
    assert!(segment.resolve(&span(data, 1, 16)).is_some());
    assert!(segment.resolve(&span(data, 2, 16)).is_none(), "no such rank");
    assert!(
        segment.resolve(&span(data - 128, 0, 1)).is_none(),
        "a signal cell"
    );
    assert!(segment.resolve(&span(0, 0, 1)).is_none(), "the header");
    assert!(
        segment.resolve(&span(data, 0, 4096)).is_none(),
        "the next rank's window"
    );
    assert!(segment.resolve(&span(data + 1, 0, 1)).is_none(), "misaligned");
}

#[test]
fn a_hint_is_where_the_region_is_and_any_handle_has_one() {
    let segment = heap();
    let data = segment.layout().data_offset();
    for rank in [0, 1] {
        let mut region = span(data, rank, 8);
        region.start = 4;
        assert_eq!(Some(segment.hint(&region)), segment.resolve(&region));
    }
    let mut garbled = span(u64::MAX, u32::MAX, 1);
    garbled.start = u64::MAX;
    assert!(segment.resolve(&garbled).is_none());
    let _ = segment.hint(&garbled);
}

#[test]
fn signals_reach_cells_and_nothing_else() {
    let segment = heap();
    let row = |base| Signals {
        base,
        ..segment.layout().signals(Rank(0), CellRow { first: 0, count: 8 })
    };
    assert!(segment.signal(&row(PAGE_BYTES).at(1).unwrap()).is_some());
    assert!(
        segment
            .signal(&row(PAGE_BYTES).at(1).unwrap().on(Rank(1)).unwrap())
            .is_some()
    );
    assert!(
        segment.signal(&row(PAGE_BYTES).at(2).unwrap()).is_none(),
        "a buffer"
    );
    assert!(segment.signal(&row(0).at(0).unwrap()).is_none(), "the header");
    assert!(
        segment.signal(&row(PAGE_BYTES + 64).at(0).unwrap()).is_none(),
        "misaligned"
    );
    let far = Signals {
        stride: segment.layout().stride + 128,
        ..row(PAGE_BYTES)
    };
    assert!(segment.signal(&far.at(0).unwrap()).is_some());
    assert!(
        segment.signal(&far.at(0).unwrap().on(Rank(1)).unwrap()).is_none(),
        "windows that are elsewhere"
    );
    assert!(segment.signal(&row(u64::MAX - 64).at(1).unwrap()).is_none());
}

#[test]
fn asking_for_too_much_is_a_shortage_and_not_a_corruption() {
    for refused in [
        Layout::private(Segment(1), MAX_BYTES + 1),
        Layout::private(Segment(1), u64::MAX),
        Layout::windows(Segment(1), 64, 1, MAX_BYTES / 64),
    ] {
        let refused = Error::from(refused.unwrap_err());
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused:?}");
    }
}

#[test]
fn an_alarm_whose_raiser_died_before_it_roused_anybody_is_passed_on_by_the_next() {
    let segment = heap();
    let signal = segment.layout().signals(Rank(0), CellRow { first: 0, count: 2 });
    let cell = segment.signal(&signal.at(0).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let patience = crate::cell::Patience::for_sharing(2, 1);
        let exit = |_| segment.alarmed().then_some(());
        let waiter = scope.spawn(move || cell.wait(patience, None, |value| value > 0, exit));
        std::thread::sleep(Duration::from_millis(20));
        segment.header_word(at::ALARM).store(RAISED, Ordering::SeqCst);
        segment.raise(&Alarm {
            dead: None,
            reason: "later".into(),
        });
        assert!(waiter.join().unwrap().is_err());
    });
}

#[test]
fn the_first_alarm_stays_until_reset() {
    let segment = heap();
    assert_eq!(segment.alarm(), None);
    let first = Alarm {
        dead: Some(Rank(1)),
        reason: "killed by SIGKILL".into(),
    };
    segment.raise(&first);
    segment.raise(&Alarm {
        dead: None,
        reason: "later".into(),
    });
    assert_eq!(segment.alarm(), Some(first));
    segment.reset();
    assert_eq!(segment.alarm(), None);
}

#[test]
fn an_unknown_alarm_word_ends_waits_and_names_the_field() {
    let segment = heap();
    segment.header_word(at::ALARM).store(7, Ordering::SeqCst);
    assert!(segment.alarmed());
    let Alarm { dead, reason } = segment.alarm().unwrap();
    assert_eq!(dead, None);
    assert!(
        reason.starts_with("the header of segment 3: field `alarm` is 7"),
        "{reason}"
    );
}

#[test]
fn an_alarm_whose_raiser_died_half_way_is_raised_by_the_next() {
    let segment = heap();
    segment.header_word(at::ALARM).store(CLAIMED, Ordering::SeqCst);
    assert_eq!(segment.alarm(), None);
    let alarm = Alarm {
        dead: Some(Rank(0)),
        reason: "killed by SIGKILL".into(),
    };
    segment.raise(&alarm);
    assert_eq!(segment.alarm(), Some(alarm));
}

#[test]
#[cfg_attr(miri, ignore = "memfd does not exist under Miri")]
fn attaching_to_another_segment_than_announced_names_the_field() {
    let layout = Layout::windows(Segment(1), 2, 1, 100).unwrap();
    let made = Attached::create("a test", layout).unwrap();
    let layout = made.layout();
    let fd = || made.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(Attached::open(fd(), layout).is_ok());
    let other = Layout { nonce: 1, ..layout };
    assert!(
        Attached::open(fd(), other)
            .unwrap_err()
            .to_string()
            .contains("`nonce`")
    );
    let huge = Layout {
        stride: u64::MAX - 4095,
        ..layout
    };
    assert!(
        Attached::open(fd(), huge)
            .unwrap_err()
            .to_string()
            .contains("`stride`")
    );
}

proptest! {
    #[test]
    fn no_handle_however_garbled_reaches_outside(base: u64, stride: u64, rank: u32, ranks: u32, start: u64, len: u64) {
        let segment = heap();
        let garbled = Span { base, stride, rank: Rank(rank), ranks, start, len, ..span(0, 0, 0) };
        if let Some(pointer) = segment.resolve(&garbled) {
            let origin = segment.memory.pointer(0, 0, 1).unwrap() as usize;
            let at = pointer as usize - origin;
            prop_assert!(at as u64 + len * 4 <= segment.memory.len());
        }
        let row = Signals { segment: Segment(3), base, stride, count: u32::MAX, me: Rank(0), ranks };
        if let Ok(signal) = row.at(rank) {
            let _ = segment.signal(&signal);
        }
    }
}
