//! What tiles compute, and which of them are refused.

use super::*;
use crate::{Compare, ReduceOp, product};

#[test]
fn origins_are_kept_by_what_moves_and_combines_and_lost_by_other_arithmetic() {
    let input = |member| Tile::<f32>::traced(4, Contributions::input(member, 0, 16));
    let sum = Tile::fold(&[&input(0), &input(1)], ReduceOp::Sum).unwrap();
    let mut both = Tile::<f32>::zeros(1, 8);
    both.replace(4, &sum).unwrap();
    let wanted = Contributions::of(Counted::once(0..2), 0, 16);
    assert_eq!(both.slice(4..8).unwrap().origin(), Some(&wanted));
    let nobody = Contributions::of(Counted::NOTHING, 0, 16);
    assert_eq!(both.slice(0..4).unwrap().origin(), Some(&nobody));
    let constant = sum.combine(&Tile::new(vec![1.0; 4]), ReduceOp::Sum).unwrap();
    assert_eq!(constant.origin(), Some(&wanted), "a constant is nobody's input");
    assert_eq!(sum.scale(0.5, 0.0).origin(), None);
    let lost = sum.combine(&Tile::hollow(4), ReduceOp::Sum).unwrap();
    assert_eq!(lost.origin(), Some(&Contributions::of(Counted::UNKNOWN, 0, 16)));
}

fn tile(rows: usize, columns: usize, values: &[f32]) -> Tile<f32> {
    Tile::new(values.to_vec()).shaped(rows, columns).unwrap()
}

#[test]
fn one_row_meets_every_row_and_one_column_every_column() {
    let a = tile(2, 3, &[1., 2., 3., 4., 5., 6.]);
    let sum = |b: &Tile<f32>| a.combine(b, ReduceOp::Sum).map(|t| t.values().to_vec());
    assert_eq!(
        sum(&tile(1, 3, &[10., 20., 30.])).unwrap(),
        [11., 22., 33., 14., 25., 36.]
    );
    assert_eq!(
        sum(&tile(2, 1, &[10., 20.])).unwrap(),
        [11., 12., 13., 24., 25., 26.]
    );
    let error = sum(&tile(3, 2, &[0.; 6])).unwrap_err().to_string();
    assert!(
        error.ends_with("the second tile is 3x2 where 2x3 is needed"),
        "{error}"
    );
    assert!(sum(&tile(1, 2, &[0.; 2])).is_err());
}

#[test]
fn rows_are_reduced_wide_and_rounded_once() {
    use crate::f16;
    let row = [2048., 1., 1., 1.].map(f16::from_f32);
    let t = Tile::new([row, row].concat()).shaped(2, 4).unwrap();
    assert_eq!(t.reduce_rows(ReduceOp::Sum).values(), [f16::from_f32(2052.); 2]);
    assert_eq!(t.reduce_rows(ReduceOp::Max).values(), [f16::from_f32(2048.); 2]);
    let empty = Tile::<f32>::zeros(2, 0).reduce_rows(ReduceOp::Sum);
    assert_eq!(
        (empty.rows(), empty.columns(), empty.values()),
        (2, 1, &[0.; 2][..])
    );
}

#[test]
fn casts_round_truncate_saturate_and_wrap() {
    let t = Tile::new(vec![2.5f64, -1.9, 1e9, f64::NAN]);
    assert_eq!(t.cast::<i8>().values(), [2, -1, 127, 0]);
    assert_eq!(Tile::new(vec![300i32, -1]).cast::<u8>().values(), [44, 255]);
    let nearest = Tile::new(vec![1.0f64 + 2f64.powi(-9), 1.0 + 3.0 * 2f64.powi(-9)]).cast::<crate::bf16>();
    assert_eq!(nearest.cast::<f32>().values(), [1.0, 1.0078125]);
    assert_eq!(Tile::<f32>::hollow(5).cast::<i8>(), Tile::hollow(5));
}

#[test]
fn a_hollow_tile_stays_hollow_and_keeps_its_shape() {
    let a = Tile::<f32>::hollow(6).shaped(2, 3).unwrap();
    let b = tile(3, 1, &[1., 2., 3.]);
    let c = Tile::add_product(Tile::zeros(2, 1), &a, &b, product).unwrap();
    assert!(c.is_hollow() && (c.rows(), c.columns()) == (2, 1));
    assert!(a.exp().is_hollow() && a.reduce_rows(ReduceOp::Sum).is_hollow());
    let line = a.reduce_columns(ReduceOp::Sum);
    assert!(line.is_hollow() && (line.rows(), line.columns()) == (1, 3));
    let turned = a.transpose();
    assert!(turned.is_hollow() && (turned.rows(), turned.columns()) == (3, 2));
    let one = Tile::full(1, 1, 0.0);
    let mask = a.compare(&one, Compare::Gt).unwrap();
    assert!(mask.is_hollow() && (mask.rows(), mask.columns()) == (2, 3));
    let whole = tile(2, 3, &[0.; 6]);
    for (mask, a, b) in [
        (&mask, &whole, &one),
        (&Tile::full(1, 1, 1), &a, &whole),
        (&Tile::full(1, 1, 1), &whole, &a),
    ] {
        let chosen = Tile::select(mask, a, b).unwrap();
        assert!(chosen.is_hollow() && (chosen.rows(), chosen.columns()) == (2, 3));
    }
    assert!(a.shaped(4, 2).is_err());
}

#[test]
fn a_line_that_is_transposed_keeps_its_origin() {
    let origin = Contributions::input(3, 0, 16);
    let line = Tile::<f32>::traced(4, origin.clone());
    let column = line.transpose();
    assert_eq!(
        (column.rows(), column.columns(), column.origin()),
        (4, 1, Some(&origin))
    );
    assert_eq!(line.shaped(2, 2).unwrap().transpose().origin(), None);
}

#[test]
fn empty_tiles_are_transposed_and_reduced() {
    let empty = Tile::<f32>::zeros(0, 3);
    assert_eq!(empty.reduce_columns(ReduceOp::Max), Tile::zeros(1, 3));
    assert_eq!(empty.transpose(), Tile::zeros(3, 0));
    assert_eq!(
        Tile::<f32>::zeros(3, 0).reduce_columns(ReduceOp::Sum),
        Tile::zeros(1, 0)
    );
}
