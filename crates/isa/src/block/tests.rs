use super::*;
use crate::{Arg, Argument, Dtype, In, Parameter, Rank, Segment};
use proptest::prelude::*;

fn matrix(rows: usize, columns: usize) -> Block<In<i32>> {
    let span = Span {
        segment: Segment(1),
        base: 64,
        stride: 0,
        me: Rank(0),
        rank: Rank(0),
        ranks: 1,
        dtype: Dtype::I32,
        start: 0,
        len: (rows * columns) as u64,
    };
    In::from_span(span).unwrap().shaped(rows, columns).unwrap()
}

/// Every byte.
fn bytes(block: &Block<In<i32>>) -> Vec<u64> {
    let all = block.span().byte_rows().unwrap();
    let row = |row: u64| all.start + row * all.pitch..all.start + row * all.pitch + all.row_bytes;
    (0..all.rows).flat_map(row).collect()
}

#[test]
fn rows_and_columns_are_the_same_in_either_order() {
    let x = matrix(5, 7);
    let block = x.rows(1..4).unwrap().columns(2..6).unwrap();
    let other = x.columns(2..6).unwrap().rows(1..4).unwrap();
    assert_eq!(block.span(), other.span());
    assert_eq!((block.shape(), block.len()), ((3, 4), 12));
    let first = block.rows(1..2).unwrap().columns(0..1).unwrap();
    assert_eq!(
        bytes(&first),
        (64 + 4 * 16..64 + 4 * 17).collect::<Vec<u64>>(),
        "row 2, column 2"
    );
    assert_eq!(block.row(2).unwrap().span().start, 3 * 7 + 2);
}

#[test]
fn rows_and_columns_outside_are_refused() {
    let x = matrix(3, 4);
    let text = |end: Result<Block<In<i32>>>| end.unwrap_err().to_string();
    assert!(text(x.rows(2..5)).contains(": rows 2..5 are outside a region of 3;"));
    assert!(text(x.columns(5..6)).contains(": columns 5..6 are outside a region of 4;"));
    assert!(
        text(x.extent().shaped(5, 2))
            .ends_with("block/tests.rs:50: the region has 12 elements where 10 are needed")
    );
    assert!(x.row(3).is_err());
}

#[test]
fn a_clipped_block_keeps_the_shape_that_was_asked_for() {
    let x = matrix(5, 7);
    let corner = x.clipped(3..9, 6..8).unwrap();
    assert_eq!((corner.shape(), corner.inside().shape()), ((6, 2), (2, 1)));
    let nothing = x.clipped(5..9, 7..8).unwrap();
    assert_eq!((nothing.shape(), nothing.inside().len()), ((4, 1), 0));
}

#[test]
fn a_block_is_an_argument_and_its_numbers_are_checked() {
    let block = matrix(4, 4).columns(1..3).unwrap();
    let arg = Argument::<Block<In<i32>>>::to_arg(&block);
    assert_eq!(
        Block::<In<i32>>::from_arg(&arg).map(|same| same.span()),
        Ok(block.span())
    );
    assert!(Block::<In<f32>>::from_arg(&arg).is_err());
    for wrong in [
        BlockSpan {
            rows: 5,
            ..block.span()
        },
        BlockSpan {
            pitch: u64::MAX,
            ..block.span()
        },
        BlockSpan {
            columns: 0,
            ..block.span()
        },
        BlockSpan {
            rows: 13,
            pitch: 1,
            columns: 2,
            extent: block.span().extent,
        },
    ] {
        let end = Block::<In<i32>>::from_arg(&Arg::Block(wrong));
        assert_eq!(end.map(|_| ()), Err("Block<In<i32>>".to_owned()), "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn blocks_overlap_if_they_share_a_byte(a in [0usize..6, 0..6, 0..7, 0..7], b in [0usize..6, 0..6, 0..7, 0..7], other in 1usize..4) {
        let cut = |x: Block<In<i32>>, [a, b, c, d]: [usize; 4]| {
            let (rows, columns) = x.shape();
            let range = |a: usize, b: usize, len: usize| a.min(b).min(len)..a.max(b).min(len);
            x.rows(range(a, b, rows)).unwrap().columns(range(c, d, columns)).unwrap()
        };
        // The same 36 elements, as matrices of different pitch.
        let one = cut(matrix(6, 6), a);
        let two = cut(matrix(36 / (other * 3), other * 3), b);
        let shared = bytes(&one).iter().any(|byte| bytes(&two).contains(byte));
        let rows = [one, two].map(|block| block.span().byte_rows().unwrap());
        prop_assert_eq!(rows[0].overlaps(&rows[1]), shared);
        prop_assert_eq!(rows[1].overlaps(&rows[0]), shared);
    }
}
