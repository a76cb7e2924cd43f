//! Views against sets of bytes: overlap is exact, covering is never wrong, rows are what was asked for.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use proptest::prelude::*;
use ringwork_engine::{Error, View};
use std::collections::BTreeSet;

fn bytes(view: &View) -> BTreeSet<u64> {
    view.row_ranges().flatten().collect()
}

fn view() -> impl Strategy<Value = View> {
    prop_oneof![
        (0u64..80, 0u64..30).prop_map(|(start, len)| View::range(start..start + len)),
        (0u64..60, 0u64..7, 0u64..9, 0u64..16)
            .prop_map(
                |(start, rows, row_bytes, pitch)| View::strided(start, rows, row_bytes, pitch).unwrap()
            ),
    ]
}

fn cases(short: u32) -> ProptestConfig {
    let long = ringwork_testkit::long();
    ProptestConfig::with_cases(if long { 100 * short } else { short })
}

proptest! {
    #![proptest_config(cases(8_000))]

    #[test]
    fn views_overlap_exactly_when_a_byte_lies_in_both(a in view(), b in view()) {
        prop_assert_eq!(a.overlaps(&b), !bytes(&a).is_disjoint(&bytes(&b)), "{} and {}", a, b);
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
    }

    #[test]
    fn a_view_covers_only_what_it_holds(a in view(), b in view()) {
        let holds = bytes(&b).is_subset(&bytes(&a));
        prop_assert!(!a.covers(&b) || holds, "{} does not cover {}", a, b);
        prop_assert!(a.covers(&a));
    }

    #[test]
    fn a_view_of_rows_has_the_bytes_of_its_rows(start in 0u64..50, rows in 0u64..6, row_bytes in 0u64..9, pitch in 0u64..14) {
        let view = View::strided(start, rows, row_bytes, pitch).unwrap();
        let wanted: BTreeSet<u64> =
            (0..rows).flat_map(|row| start + row * pitch..start + row * pitch + row_bytes).collect();
        prop_assert_eq!(bytes(&view), wanted);
    }

    #[test]
    fn large_views_of_different_pitch_are_compared_as_small_ones_are(
        a in (0u64..1000, 1u64..300, 1u64..40, 41u64..400),
        b in (0u64..1000, 1u64..300, 1u64..40, 41u64..400),
    ) {
        let make = |(start, rows, row_bytes, pitch)| View::strided(start, rows, row_bytes, pitch).unwrap();
        let (a, b): (View, View) = (make(a), make(b));
        let meets = a.row_ranges().any(|x| b.row_ranges().any(|y| x.start < y.end && y.start < x.end));
        prop_assert_eq!(a.overlaps(&b), meets, "{} and {}", a, b);
    }
}

#[test]
fn column_blocks_of_a_matrix_are_disjoint_and_rows_meet_all_of_them() {
    let columns: Vec<View> = (0..8)
        .map(|c| View::strided(c * 512, 4096, 512, 4096).unwrap())
        .collect();
    for (i, a) in columns.iter().enumerate() {
        for (j, b) in columns.iter().enumerate() {
            assert_eq!(a.overlaps(b), i == j);
        }
        assert!(a.overlaps(&View::range(40_960..45_056)));
    }
}

#[test]
fn a_view_past_the_end_of_the_address_space_is_refused() {
    assert!(matches!(
        View::strided(1, 2, 1, u64::MAX),
        Err(Error::ViewTooLarge { .. })
    ));
    assert!(matches!(
        View::range(1..u64::MAX).shifted(1),
        Err(Error::ViewTooLarge { .. })
    ));
    let top = View::strided(0, 2, 1 << 62, 1 << 63).unwrap();
    assert!(top.overlaps(&View::range(u64::MAX - (1 << 62)..u64::MAX)));
    assert!(!top.overlaps(&View::range(1 << 62..1 << 63)));
}
