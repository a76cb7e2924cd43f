//! Whatever a window holds: nothing overlaps, everything is aligned and inside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use ringwork_isa::{Dtype, MAX_RANKS, Rank, SIGNAL_STRIDE_BYTES, Segment};
use ringwork_layout::*;
use std::ops::Range;

/// What a window is made of: rows of so many signals, buffers of a type and a length.
#[derive(Clone, Debug)]
enum Part {
    Row(u32),
    Buffer(Dtype, usize),
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let buffer = (0..Dtype::ALL.len(), 0usize..3000);
    let part = prop_oneof![
        (0u32..40).prop_map(Part::Row),
        buffer.prop_map(|(dtype, count)| Part::Buffer(Dtype::ALL[dtype], count)),
    ];
    prop::collection::vec(part, 0..12)
}

/// The bytes of every part on every rank, as the handles say.
fn ranges(
    parts: &[Part],
    ranks: u32,
    layout: impl Fn(&WindowBuilder) -> Layout,
) -> (Layout, Vec<Range<u64>>) {
    let mut window = WindowBuilder::default();
    let (mut rows, mut buffers) = (Vec::new(), Vec::new());
    for part in parts {
        match *part {
            Part::Row(count) => rows.push(window.row(count).unwrap()),
            Part::Buffer(dtype, count) => buffers.push(window.buffer(dtype, count).unwrap()),
        }
    }
    let (layout, mut ranges) = (layout(&window), Vec::new());
    for me in (0..ranks).map(Rank) {
        for row in &rows {
            let signals = layout.signals(me, *row);
            for cell in (0..row.count).map(|index| signals.at(index).unwrap()) {
                let start = cell.offset().unwrap();
                assert!(start.is_multiple_of(SIGNAL_STRIDE_BYTES));
                ranges.push(start..start + SIGNAL_STRIDE_BYTES);
            }
        }
        for buffer in &buffers {
            let bytes = layout.span(me, *buffer).byte_range().unwrap();
            assert!(bytes.start.is_multiple_of(BUFFER_ALIGN_BYTES));
            assert_eq!(
                layout.data_at(me, buffer.offset, buffer.bytes() as u64),
                Some(bytes.start)
            );
            ranges.push(bytes);
        }
    }
    (layout, ranges)
}

fn check(layout: &Layout, mut ranges: Vec<Range<u64>>) {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    for two in ranges.windows(2) {
        assert!(two[0].end <= two[1].start, "{two:?} overlap");
    }
    for range in ranges {
        assert!(range.start >= layout.header_bytes && range.end <= layout.bytes());
    }
}

proptest! {
    #[test]
    fn places_are_apart_aligned_and_inside(parts in parts(), ranks in 1u32..6) {
        let (mapped, found) = ranges(&parts, ranks, |window| window.layout(Segment(1), ranks).unwrap());
        check(&mapped, found);
        prop_assert_eq!(mapped.checked(), Ok(mapped));
        prop_assert!(mapped.bytes().is_multiple_of(PAGE_BYTES));
        let (packed, found) = ranges(&parts, ranks, |window| window.packed(Segment(1), ranks));
        check(&packed, found);
        prop_assert_eq!(packed.bytes(), packed.stride * u64::from(ranks));
    }

    #[test]
    fn any_numbers_make_a_layout_or_an_error(ranks: u32, cells: u32, bytes: u64, stride: u64, header_bytes: u64) {
        if let Ok(layout) = Layout::windows(Segment(1), ranks, cells, bytes) {
            prop_assert!(layout.data_bytes() >= bytes && layout.bytes() <= MAX_BYTES + 2 * PAGE_BYTES);
        }
        let _ = Layout::described(Segment(1), ranks, cells, bytes);
        let _ = Layout::packed(Segment(1), ranks, cells, bytes).bytes();
        let given = Layout { segment: Segment(1), ranks, cells, header_bytes, stride, nonce: 0 };
        if let Ok(layout) = given.checked() {
            prop_assert!(layout.data_offset() <= layout.bytes() && layout.data_bytes() < MAX_BYTES);
        }
    }
}

#[test]
fn a_buffer_is_seen_as_another_type_with_the_elements_that_fit() {
    let mut window = WindowBuilder::default();
    window.buffer(Dtype::U8, 3).unwrap();
    let bytes = window.buffer(Dtype::U8, 15).unwrap();
    let layout = window.packed(Segment(1), 2);
    let words = layout.region::<i32>(Rank(1), bytes);
    assert_eq!(
        (words.len(), words.span().byte_range()),
        (3, Some(layout.stride + 128..layout.stride + 140))
    );
}

#[test]
fn private_memory_has_no_ranks() {
    let layout = Layout::private(Segment(5), 100).unwrap();
    let place = BufferPlace {
        offset: 0,
        dtype: Dtype::F32,
        count: 25,
    };
    let span = layout.private_span(place);
    assert_eq!(
        (span.stride, span.ranks, span.rank, span.byte_range()),
        (0, 1, Rank(0), Some(4096..4196))
    );
}

#[test]
fn the_same_place_of_many_windows_is_in_different_sets_of_a_cache() {
    let layout = Layout::windows(Segment(3), 16, 2, 1 << 20).unwrap();
    let mut sets: Vec<u64> = (0..16)
        .map(|rank| layout.window_offset(Rank(rank)) % PAGE_BYTES)
        .collect();
    sets.sort_unstable();
    sets.dedup();
    assert_eq!(sets.len(), 16);
    assert!(layout.bytes() >= PAGE_BYTES + 16 * layout.stride);
}

#[test]
fn what_cannot_be_is_refused_with_its_field() {
    let mut window = WindowBuilder::default();
    assert_eq!(window.row(MAX_SIGNALS + 1), Err(LayoutError::TooManySignals));
    assert!(matches!(
        window.buffer(Dtype::F64, usize::MAX),
        Err(LayoutError::TooLong { .. })
    ));
    for too_large in [
        Layout::private(Segment(1), MAX_BYTES + 1),
        Layout::private(Segment(1), u64::MAX),
        Layout::windows(Segment(1), 64, 1, MAX_BYTES / 64),
    ] {
        assert!(
            matches!(too_large, Err(LayoutError::TooLarge { .. })),
            "{too_large:?}"
        );
    }
    assert!(Layout::private(Segment(1), MAX_BYTES).is_ok());
    let layout = Layout::windows(Segment(1), 2, 0, 0).unwrap();
    assert!(layout.data_bytes() > 0);
    for (wrong, field) in [
        (Layout { stride: 0, ..layout }, "`stride`"),
        (
            Layout {
                cells: MAX_SIGNALS + 1,
                ..layout
            },
            "`signals`",
        ),
        (
            Layout {
                ranks: MAX_RANKS + 1,
                ..layout
            },
            "`ranks`",
        ),
        (
            Layout {
                header_bytes: 0,
                ..layout
            },
            "`header`",
        ),
    ] {
        assert!(
            wrong.checked().unwrap_err().to_string().contains(field),
            "{wrong:?}"
        );
    }
}
