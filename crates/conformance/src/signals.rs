//! Signal instructions, seen from one rank.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::refused::refused;
use crate::{Machine, SIGNALS};
use ringwork_isa::{Compare, Core, Notify, Rank, SIGNAL_STRIDE_BYTES, Segment, Signals};

pub fn set_stores_and_add_adds_wrapping<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let signal = seat.signal(1);
        assert_eq!(core.peek(signal).await?, 0);
        core.notify(signal, Notify::Set(i32::MAX)).await?;
        core.notify(signal, Notify::Add(2)).await?;
        assert_eq!(core.peek(signal).await?, i32::MIN + 1);
        core.notify(signal, Notify::Set(i32::MIN + 5)).await?;
        assert_eq!(core.peek(signal).await?, i32::MIN + 5);
        for other in [0, 2, 3] {
            assert_eq!(core.peek(seat.signal(other)).await?, 0, "a neighbour changed");
        }
        Ok(())
    });
}

/// Whatever the notification itself still has to follow: program order is what the kernel that wrote it sees.
pub fn a_rank_sees_its_own_notifications_at_once<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (mine, data) = (seat.signal(4), seat.buffer::<u8>(0, 2048));
        let other = Rank(1 - seat.me.0);
        let theirs = seat.signal(5).on(other)?;
        for round in 1..=8 {
            // Under way, perhaps, and both signals are behind it.
            core.copy(seat.buffer::<u8>(2048, 2048).on(other)?, data).await?;
            core.notify(mine, Notify::Set(10 * round)).await?;
            assert_eq!(core.peek(mine).await?, 10 * round);
            assert_eq!(core.own_value(seat.signals().own(4)?).await?, 10 * round);
            core.notify(mine, Notify::Add(1)).await?;
            core.notify(mine, Notify::Add(1)).await?;
            assert!(core.test(mine, Compare::Eq, 10 * round + 2).await?);
            core.notify(theirs, Notify::Add(1)).await?;
            assert_eq!(core.peek(theirs).await?, round);
        }
        core.wait(mine, Compare::Eq, 82).await?;
        core.wait(seat.signal(5), Compare::Eq, 8).await
    });
}

const COMPARISONS: [Compare; 6] = [
    Compare::Eq,
    Compare::Ne,
    Compare::Gt,
    Compare::Ge,
    Compare::Lt,
    Compare::Le,
];

pub fn every_comparison_tests_what_it_says<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let signal = seat.signal(0);
        core.notify(signal, Notify::Set(5)).await?;
        for (operand, wanted) in [
            (4, [false, true, true, true, false, false]),
            (5, [true, false, false, true, false, true]),
            (6, [false, true, false, false, true, true]),
        ] {
            for (compare, wanted) in COMPARISONS.into_iter().zip(wanted) {
                let got = core.test(signal, compare, operand).await?;
                assert_eq!(got, wanted, "5 {compare} {operand}");
            }
        }
        Ok(())
    });
}

pub fn a_satisfied_wait_goes_on<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let signal = seat.signal(3);
        core.notify(signal, Notify::Set(i32::MAX)).await?;
        core.notify(signal, Notify::Add(1)).await?;
        for (compare, operand) in [
            (Compare::Eq, i32::MIN),
            (Compare::Ne, 0),
            // One step after the wrap is greater.
            (Compare::Gt, i32::MAX),
            (Compare::Ge, i32::MAX),
            (Compare::Lt, i32::MIN + 1),
            (Compare::Le, i32::MIN),
        ] {
            core.wait(signal, compare, operand).await?;
        }
        Ok(())
    });
}

pub fn signals_outside_the_row_or_the_window_are_refused<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        if seat.me.0 == 1 {
            return Ok(());
        }
        let row = seat.signals();
        refused!(
            async { core.peek(row.at(SIGNALS)?).await },
            "{site}: elements 20..21 are outside a region of 20; make the buffer larger or split the transfer"
        );
        let strays = [
            Signals { segment: Segment(99), ..row },
            // The first bytes of the data.
            Signals { base: row.base + u64::from(SIGNALS) * SIGNAL_STRIDE_BYTES, ..row },
            Signals { base: row.base + 64, ..row },
            Signals { base: row.base + 2 * row.stride, ..row },
            Signals { base: u64::MAX - 127, ..row },
        ];
        for stray in strays {
            let signal = stray.at(0)?;
            let at = signal.offset().unwrap_or(0);
            let message = format!(
                "{{site}}: segment {} is not mapped here at bytes {at}..{at}; the handle is stale or belongs to another chip",
                signal.segment()
            );
            refused!(core.peek(signal), &message);
            refused!(core.test(signal, Compare::Ge, 0), &message);
            refused!(core.notify(signal, Notify::Set(1)), &message);
            refused!(core.notify(signal, Notify::Add(1)), &message);
            refused!(core.wait(signal, Compare::Ge, 0), &message);
        }
        assert_eq!(core.load(seat.buffer::<i32>(0, 64)).await?.values(), [0; 64]);
        Ok(())
    });
}
