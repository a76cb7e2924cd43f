//! Cutting ranges: the chunks that fit the scratch, and the intersection of a part with a chunk.

use std::ops::Range;

/// The ranges that cover `0..total`, in order, each `each` long except perhaps the last.
///
/// A step of 0 is taken as 1.
#[inline(always)]
pub(crate) fn chunks(total: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let (each, mut start) = (each.max(1), 0usize);
    // Not `step_by`, whose division takes as long as moving a few elements.
    std::iter::from_fn(move || {
        let chunk = start..total.min(start.saturating_add(each));
        start = chunk.end;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// The elements of `part` whose distance from its beginning lies in `chunk`; empty if it is shorter.
#[inline(always)]
pub(crate) fn clip(part: Range<usize>, chunk: &Range<usize>) -> Range<usize> {
    let len = part.len();
    part.start + chunk.start.min(len)..part.start + chunk.end.min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cover_everything_once_in_order(total in 0usize..2000, each in 1usize..300) {
            let mut next = 0;
            for chunk in chunks(total, each) {
                prop_assert_eq!(chunk.start, next);
                prop_assert!(!chunk.is_empty() && chunk.len() <= each);
                next = chunk.end;
            }
            prop_assert_eq!(next, total);
        }

        #[test]
        fn the_clips_of_all_chunks_make_up_the_part(start in 0usize..100, len in 0usize..300, longer in 0usize..2, each in 1usize..50) {
            let part = start..start + len;
            let mut next = start;
            for chunk in chunks(len + longer, each) {
                let clipped = clip(part.clone(), &chunk);
                prop_assert_eq!(clipped.start, next);
                prop_assert!(clipped.len() <= chunk.len());
                next = clipped.end;
            }
            prop_assert_eq!(next, part.end);
        }
    }

    #[test]
    fn a_step_of_nothing_still_ends() {
        assert_eq!(chunks(3, 0).count(), 3);
        assert_eq!(chunks(3, usize::MAX).count(), 1);
    }
}
