//! Functions, comparisons, constants and columns of tiles: the bits of a scalar reference in f64.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::Machine;
use crate::refused::refused;
use ringwork_isa::activations::{layer_norm, rms_norm};
use ringwork_isa::{Compare, Core, Dtype, Element, Float, Result, Tile, TileOps, bf16, f16, with_dtype};

/// Numbers of both signs with fractions, zeros, the ends of the type, and what is not a number.
fn numbers<T: Float>(rows: usize, columns: usize, seed: usize) -> Tile<T> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-40,
        -1e-7,
        60_000.0,
        -100.0,
    ];
    let rough = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 250.0 - 4.0;
    let value = |i: usize| *special.get((i + seed) % (2 * special.len())).unwrap_or(&rough(i));
    let values = (0..rows * columns).map(|i| T::from_f64(value(i))).collect();
    Tile::new(values).shaped(rows, columns).unwrap()
}

fn tile<T: Element>(rows: usize, columns: usize, values: &[i64]) -> Tile<T> {
    let values = values.iter().map(|value| T::from_i64(*value)).collect();
    Tile::new(values).shaped(rows, columns).unwrap()
}

/// The same bits, except for the payloads of NaNs.
fn same<T: Element>(what: &str, got: &Tile<T>, shape: (usize, usize), wanted: &[T]) {
    assert_eq!((got.rows(), got.columns()), shape, "{what}");
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in got.values().iter().zip(wanted).enumerate() {
        let both_nan = got.to_f64().is_nan() && wanted.to_f64().is_nan();
        // To f64 is exact for floats, and keeps the sign of a zero.
        let equal = got == wanted && got.to_f64().to_bits() == wanted.to_f64().to_bits();
        assert!(
            both_nan || equal,
            "{what} {} at {i}: {got} is not {wanted}",
            T::DTYPE
        );
    }
}

/// The reference of every element, rounded once. Of an f64 the last bits are open where `exact` is not set.
fn check<T: Float>(what: &str, exact: bool, x: &Tile<T>, got: &Tile<T>, function: impl Fn(f64) -> f64) {
    let reference = |x: &T| T::from_f64(function(x.to_f64()));
    let wanted: Vec<T> = x.values().iter().map(reference).collect();
    if exact || T::DTYPE != Dtype::F64 {
        return same(what, got, (x.rows(), x.columns()), &wanted);
    }
    for (got, wanted) in got.values().iter().zip(&wanted) {
        let (got, wanted) = (got.to_f64(), wanted.to_f64());
        let near = (got - wanted).abs() <= 8.0 * f64::EPSILON * wanted.abs();
        assert!(
            near || got == wanted || (got.is_nan() && wanted.is_nan()),
            "{what}: {got} is not {wanted}"
        );
    }
}

async fn for_all_floats<C: Core>(core: &C, test: impl AsyncFloat<C>) -> Result<()> {
    test.run::<f32>(core).await?;
    test.run::<f64>(core).await?;
    test.run::<f16>(core).await?;
    test.run::<bf16>(core).await
}

/// A test that is generic over floats.
trait AsyncFloat<C> {
    async fn run<T: Float>(&self, core: &C) -> Result<()>;
}

pub fn functions_have_the_bits_of_an_f64_that_is_rounded_once<M: Machine>() {
    struct Functions;
    impl<C: Core> AsyncFloat<C> for Functions {
        async fn run<T: Float>(&self, core: &C) -> Result<()> {
            let x = numbers::<T>(5, 37, 1);
            check("sqrt", true, &x, &core.sqrt(&x).await?, f64::sqrt);
            check("abs", true, &x, &core.abs(&x).await?, f64::abs);
            check("neg", true, &x, &core.neg(&x).await?, |x| -x);
            check("reciprocal", true, &x, &core.reciprocal(&x).await?, |x| 1.0 / x);
            check("rsqrt", false, &x, &core.rsqrt(&x).await?, |x| 1.0 / x.sqrt());
            check("exp", false, &x, &core.exp(&x).await?, f64::exp);
            check("log", false, &x, &core.log(&x).await?, f64::ln);
            check("tanh", false, &x, &core.tanh(&x).await?, f64::tanh);
            check("sigmoid", false, &x, &core.sigmoid(&x).await?, |x| {
                1.0 / (1.0 + (-x).exp())
            });
            Ok(())
        }
    }
    M::new(1).run_well(async |core, _| for_all_floats(core, Functions).await);
}

pub fn sums_and_quotients_have_the_bits_of_an_f64_that_is_rounded_once<M: Machine>() {
    struct Pairs;
    impl<C: Core> AsyncFloat<C> for Pairs {
        async fn run<T: Float>(&self, core: &C) -> Result<()> {
            let (a, b) = (numbers::<T>(4, 33, 2), numbers::<T>(4, 33, 5));
            let wanted = |f: fn(f64, f64) -> f64| -> Vec<T> {
                let pairs = a.values().iter().zip(b.values());
                pairs
                    .map(|(a, b)| T::from_f64(f(a.to_f64(), b.to_f64())))
                    .collect()
            };
            same("add", &core.add(&a, &b).await?, (4, 33), &wanted(|a, b| a + b));
            same("sub", &core.sub(&a, &b).await?, (4, 33), &wanted(|a, b| a - b));
            same("mul", &core.mul(&a, &b).await?, (4, 33), &wanted(|a, b| a * b));
            same("div", &core.div(&a, &b).await?, (4, 33), &wanted(|a, b| a / b));
            Ok(())
        }
    }
    M::new(1).run_well(async |core, _| for_all_floats(core, Pairs).await);
}

pub fn comparisons_make_masks_that_select<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(1).run_well(async |core, _| {
            let (a, b) = (tile::<T>(2, 3, &[1, 2, 3, 4, 5, 6]), tile::<T>(2, 3, &[1, 9, 2, 4, 4, 7]));
            for (how, wanted) in [
                (Compare::Eq, [1, 0, 0, 1, 0, 0]),
                (Compare::Ne, [0, 1, 1, 0, 1, 1]),
                (Compare::Lt, [0, 1, 0, 0, 0, 1]),
                (Compare::Le, [1, 1, 0, 1, 0, 1]),
                (Compare::Gt, [0, 0, 1, 0, 1, 0]),
                (Compare::Ge, [1, 0, 1, 1, 1, 0]),
            ] {
                let mask = core.compare(&a, &b, how).await?;
                same("a mask", &mask, (2, 3), &wanted);
                let chosen = core.select(&mask, &a, &b).await?;
                let pairs = a.values().iter().zip(b.values()).zip(wanted);
                let wanted: Vec<T> = pairs.map(|((a, b), mask)| if mask == 1 { *a } else { *b }).collect();
                same("a choice", &chosen, (2, 3), &wanted);
            }
            // One row, one column and one element meet all.
            let (row, column, one) = (tile::<T>(1, 3, &[4, 2, 3]), tile::<T>(2, 1, &[2, 5]), Tile::full(1, 1, T::from_i64(0)));
            same("a row", &core.compare(&a, &row, Compare::Ge).await?, (2, 3), &[0, 1, 1, 1, 1, 1]);
            let above = core.compare(&a, &column, Compare::Gt).await?;
            same("a column", &above, (2, 3), &[0, 0, 1, 0, 0, 1]);
            same("an element", &core.compare(&a, &one, Compare::Ne).await?, (2, 3), &[1; 6]);
            let kept = core.select(&above, &a, &one).await?;
            same("the rest", &kept, (2, 3), tile(1, 6, &[0, 0, 3, 0, 0, 6]).values());
            let rows = core.select(&Tile::new(vec![7, 0]).shaped(2, 1)?, &a, &row).await?;
            same("rows", &rows, (2, 3), tile(1, 6, &[1, 2, 3, 4, 2, 3]).values());
            Ok(())
        }));
    }
}

pub fn not_a_number_compares_as_unequal_and_integers_do_not_wrap<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let (nan, one) = (Tile::new(vec![f32::NAN, 1.0]), Tile::full(1, 1, f32::NAN));
        for how in [Compare::Eq, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge] {
            assert_eq!(core.compare(&nan, &one, how).await?.values(), [0, 0], "{how}");
        }
        assert_eq!(core.compare(&nan, &one, Compare::Ne).await?.values(), [1, 1]);
        let ends = (Tile::new(vec![i32::MIN]), Tile::new(vec![i32::MAX]));
        assert_eq!(core.compare(&ends.0, &ends.1, Compare::Ge).await?.values(), [0]);
        Ok(())
    });
}

pub fn columns_are_reduced_wide_in_the_order_of_the_rows<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(1).run_well(async |core, _| {
            let x = tile::<T>(3, 2, &[5, 1, 2, 8, 4, 3]);
            same("col_sum", &core.col_sum(&x).await?, (1, 2), tile(1, 2, &[11, 12]).values());
            same("col_max", &core.col_max(&x).await?, (1, 2), tile(1, 2, &[5, 8]).values());
            same("col_min", &core.col_min(&x).await?, (1, 2), tile(1, 2, &[2, 1]).values());
            same("row_sum", &core.row_sum(&x).await?, (3, 1), tile(1, 3, &[6, 10, 7]).values());
            same("row_max", &core.row_max(&x).await?, (3, 1), tile(1, 3, &[5, 8, 4]).values());
            same("row_min", &core.row_min(&x).await?, (3, 1), tile(1, 3, &[1, 2, 3]).values());
            same("transpose", &core.transpose(&x).await?, (2, 3), tile(1, 6, &[5, 2, 4, 1, 8, 3]).values());
            Ok(())
        }));
    }
    M::new(1).run_well(async |core, _| {
        let column = Tile::new([2048.0, 1.0, 1.0, 1.0].map(f16::from_f32).to_vec()).shaped(4, 1)?;
        assert_eq!(core.col_sum(&column).await?.values(), [f16::from_f32(2052.0)]);
        // Another order of the rows would keep the ones.
        let column = Tile::new(vec![1.0, 1e30, -1e30, 1.0f32]).shaped(4, 1)?;
        assert_eq!(core.col_sum(&column).await?.values(), [1.0]);
        let nan = Tile::new(vec![1.0, f32::NAN, 3.0]).shaped(3, 1)?;
        assert!(
            core.col_max(&nan).await?.values()[0].is_nan() && core.col_min(&nan).await?.values()[0].is_nan()
        );
        Ok(())
    });
}

pub fn constants_and_counts_have_every_type<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(1).run_well(async |core, _| {
            same("full", &core.full(2, 3, T::from_i64(7)).await?, (2, 3), &[T::from_i64(7); 6]);
            same("iota", &core.iota::<T>(2, 3).await?, (2, 3), tile(1, 6, &[0, 1, 2, 3, 4, 5]).values());
            Ok(())
        }));
    }
}

pub fn every_operation_keeps_the_shape_of_a_hollow_tile<M: Machine>() {
    fn hollow<T: Element>(got: &Tile<T>, rows: usize, columns: usize) {
        assert!(got.is_hollow());
        assert_eq!((got.rows(), got.columns()), (rows, columns));
    }
    M::new(1).run_well(async |core, _| {
        let x = Tile::<f32>::hollow(6).shaped(2, 3)?;
        let (one, row) = (Tile::full(1, 1, 1.0), Tile::full(1, 3, 1.0));
        for got in [
            core.exp(&x).await?,
            core.log(&x).await?,
            core.sqrt(&x).await?,
            core.rsqrt(&x).await?,
            core.tanh(&x).await?,
            core.sigmoid(&x).await?,
            core.abs(&x).await?,
            core.neg(&x).await?,
            core.reciprocal(&x).await?,
            core.add(&x, &one).await?,
            core.scale(&x, 2.0, 1.0).await?,
            core.select(&Tile::full(1, 1, 1), &x, &one).await?,
            rms_norm(core, &x, &row, 1e-6).await?,
            layer_norm(core, &x, &row, &row, 1e-6).await?,
        ] {
            hollow(&got, 2, 3);
        }
        hollow(&core.compare(&x, &one, Compare::Lt).await?, 2, 3);
        hollow(&core.transpose(&x).await?, 3, 2);
        hollow(&core.col_sum(&x).await?, 1, 3);
        hollow(&core.row_min(&x).await?, 2, 1);
        Ok(())
    });
}

pub fn operands_that_do_not_fit_are_refused_with_both_shapes<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let (a, b) = (Tile::full(2, 3, 1.0f32), Tile::full(3, 2, 1.0f32));
        let (mask, line) = (Tile::full(1, 2, 1), Tile::full(1, 3, 1.0f32));
        let message = "{site}: the second tile is 3x2 where 2x3 is needed";
        refused!(core.min(&a, &b), message);
        refused!(core.compare(&a, &b, Compare::Lt), message);
        refused!(core.select(&Tile::full(1, 1, 1), &a, &b), message);
        let message = "{site}: the mask is 1x2 where 2x3 is needed";
        refused!(core.select(&mask, &a, &a), message);
        let message = "{site}: the weight is 3x2 where 1x3 is needed";
        refused!(rms_norm(core, &a, &b, 0.0), message);
        refused!(layer_norm(core, &a, &b, &line, 0.0), message);
        refused!(
            layer_norm(core, &a, &line, &b, 0.0),
            "{site}: the bias is 3x2 where 1x3 is needed"
        );
        Ok(())
    });
}
