//! Arithmetic on tiles: the right numbers, the right rounding, refusals that say why.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::Machine;
use crate::refused::refused;
use ringwork_isa::activations::{gelu, layer_norm, log_softmax, rms_norm, silu, softmax};
use ringwork_isa::{Core, Dtype, Element, Float, ReduceOp, Tile, TileOps, Work, bf16, f16, with_dtype};

fn tile<T: Element>(values: impl IntoIterator<Item = i64>) -> Tile<T> {
    Tile::new(values.into_iter().map(T::from_i64).collect())
}

/// Numbers with fractions that differ from each other.
fn rough<T: Float>(rows: usize, columns: usize, seed: usize) -> Tile<T> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 500.0 - 2.0;
    let values = (0..rows * columns).map(|i| T::from_f64(value(i))).collect();
    Tile::new(values).shaped(rows, columns).unwrap()
}

fn f64s<T: Element>(tile: &Tile<T>) -> Vec<f64> {
    tile.values().iter().map(|v| v.to_f64()).collect()
}

/// As near as the type's rounding lets it be, `steps` times over.
fn near<T: Float>(got: &Tile<T>, wanted: &[f64], steps: f64) {
    let unit = 1.0 / T::DTYPE.exact_integers() as f64;
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in f64s(got).into_iter().zip(wanted) {
        let allowed = steps * unit * wanted.abs().max(1.0);
        assert!(
            (got - wanted).abs() <= allowed,
            "{} {got} is not {wanted}",
            T::DTYPE
        );
    }
}

pub fn tiles_add_and_multiply_element_by_element<M: Machine>() {
    for dtype in Dtype::ALL {
        with_dtype!(dtype, T => M::new(1).run_well(async |core, _| {
            // Each has a value of its own in the shortest type, and so have the sums.
            let (a, b) = (tile::<T>([1, 8, 3]), tile::<T>([5, 6, 7]));
            assert_eq!(core.add(&a, &b).await?, tile([6, 14, 10]));
            assert_eq!(core.mul(&a, &b).await?, tile([5, 48, 21]));
            assert_eq!(core.max(&a, &b).await?, tile([5, 8, 7]));
            assert_eq!(core.min(&a, &b).await?, tile([1, 6, 3]));
            Ok(())
        }));
    }
}

pub fn tiles_of_unequal_shape_are_refused<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let (a, b) = (tile::<f32>([1, 2, 3]), tile::<f32>([5, 6]));
        let message = "{site}: the second tile is 1x2 where 1x3 is needed";
        refused!(core.add(&a, &b), message);
        refused!(core.mul(&a, &b), message);
        refused!(core.max(&a, &b), message);
        refused!(core.sub(&a, &b), message);
        refused!(core.div(&a, &b), message);
        refused!(
            core.matmul(&a, &b),
            "{site}: the right factor is 1x2 where 3x2 is needed"
        );
        let column = tile::<f32>([4, 5, 6]).shaped(3, 1)?;
        refused!(
            core.matmul_add(Tile::zeros(2, 2), &a, &column),
            "{site}: the accumulator is 2x2 where 1x1 is needed"
        );
        refused!(
            async { a.clone().shaped(2, 2) },
            "{site}: the tile has 3 elements where 4 are needed"
        );
        Ok(())
    });
}

pub fn one_row_meets_every_row_and_one_column_every_column<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let a = tile::<f32>(1..7).shaped(2, 3)?;
        let (row, column) = (tile([10, 20, 30]), tile([10, 20]).shaped(2, 1)?);
        assert_eq!(core.add(&a, &row).await?.values(), [11., 22., 33., 14., 25., 36.]);
        assert_eq!(
            core.sub(&a, &column).await?.values(),
            [-9., -8., -7., -16., -15., -14.]
        );
        assert_eq!(core.row_sum(&a).await?, tile([6, 15]).shaped(2, 1)?);
        assert_eq!(core.row_max(&a).await?, tile([3, 6]).shaped(2, 1)?);
        Ok(())
    });
}

pub fn functions_of_tiles_are_as_near_as_their_type_allows<M: Machine>() {
    async fn all<C: Core, T: Float>(core: &C) -> ringwork_isa::Result<()> {
        let (x, y) = (rough::<T>(3, 40, 1), rough::<T>(3, 40, 2));
        let (xs, ys) = (f64s(&x), f64s(&y));
        let each = |f: &dyn Fn(f64) -> f64| -> Vec<f64> { xs.iter().map(|x| f(*x)).collect() };
        near(&core.exp(&x).await?, &each(&f64::exp), 4.0);
        near(&core.scale(&x, 3.0, -0.5).await?, &each(&|x| 3.0 * x - 0.5), 3.0);
        let difference: Vec<f64> = xs.iter().zip(&ys).map(|(x, y)| x - y).collect();
        near(&core.sub(&x, &y).await?, &difference, 1.0);
        let away = core.scale(&y, 0.125, 2.0).await?;
        let ratio: Vec<f64> = xs.iter().zip(f64s(&away)).map(|(x, y)| x / y).collect();
        near(&core.div(&x, &away).await?, &ratio, 1.0);
        near(&silu(core, &x).await?, &each(&|x| x / (1.0 + (-x).exp())), 8.0);
        let tanh = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
        near(&gelu(core, &x).await?, &each(&tanh), 24.0);
        let parts: Vec<f64> = xs
            .chunks(40)
            .flat_map(|row| {
                let sum: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(move |x| x.exp() / sum)
            })
            .collect();
        near(&softmax(core, &x).await?, &parts, 8.0);
        let logs: Vec<f64> = parts.iter().map(|part| part.ln()).collect();
        near(&log_softmax(core, &x).await?, &logs, 8.0);
        let (weight, bias) = (rough::<T>(1, 40, 5), rough::<T>(1, 40, 6));
        let (weights, biases) = (f64s(&weight), f64s(&bias));
        let normal = |row: &[f64], mean: f64| -> Vec<f64> {
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 40.0;
            let scaled = row.iter().map(|x| (x - mean) / (variance + 1e-3).sqrt());
            scaled.zip(&weights).map(|(x, weight)| x * weight).collect()
        };
        let rms: Vec<f64> = xs.chunks(40).flat_map(|row| normal(row, 0.0)).collect();
        near(&rms_norm(core, &x, &weight, 1e-3).await?, &rms, 8.0);
        let layer = xs
            .chunks(40)
            .flat_map(|row| normal(row, row.iter().sum::<f64>() / 40.0));
        let layer: Vec<f64> = layer
            .zip(biases.iter().cycle())
            .map(|(x, bias)| x + bias)
            .collect();
        near(&layer_norm(core, &x, &weight, &bias, 1e-3).await?, &layer, 12.0);
        Ok(())
    }
    M::new(1).run_well(async |core, _| {
        all::<_, f32>(core).await?;
        all::<_, f64>(core).await?;
        all::<_, f16>(core).await?;
        all::<_, bf16>(core).await
    });
}

pub fn folding_tiles_is_wide_in_order_and_rounded_once<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let tiles = [2048.0, 1.0, 1.0].map(|v| Tile::new(vec![f16::from_f32(v)]));
        let [a, b, c] = &tiles;
        let sum = core.fold(&[a, b, c], ReduceOp::Sum).await?;
        assert_eq!(
            sum.values(),
            [f16::from_f32(2050.0)],
            "two at a time would stay at 2048"
        );
        assert_eq!(core.fold(&[b, c], ReduceOp::Avg).await?.values(), [f16::ONE]);
        let longer = Tile::new(vec![f16::ONE; 2]);
        refused!(
            core.fold(&[a, &longer], ReduceOp::Sum),
            "{site}: a tile is 1x2 where 1x1 is needed"
        );
        let none: [&Tile<f32>; 0] = [];
        refused!(
            core.fold(&none, ReduceOp::Sum),
            "{site}: a reduction needs at least one source"
        );
        let mut whole = tile::<i32>(0..6);
        whole.replace(2, &tile([9, 9]))?;
        assert_eq!(whole.slice(1..5)?.values(), [1, 9, 9, 4]);
        assert!(whole.slice(5..7).is_err() && whole.replace(5, &tile([1, 2])).is_err());
        Ok(())
    });
}

pub fn casts_round_to_nearest_truncate_and_wrap<M: Machine>() {
    M::new(1).run_well(async |core, _| {
        let halves = Tile::new(vec![2.5f32, -1.75, 3e9, 65_519.0]);
        assert_eq!(
            core.cast::<_, i32>(&halves).await?.values(),
            [2, -1, i32::MAX, 65_519]
        );
        let short = core.cast::<_, f16>(&halves).await?;
        assert_eq!(
            short.values(),
            [2.5, -1.75, f32::INFINITY, 65_504.0].map(f16::from_f32)
        );
        assert_eq!(core.cast::<_, f32>(&short).await?.values()[..2], [2.5, -1.75]);
        assert_eq!(core.cast::<i32, u8>(&tile([300, -1])).await?.values(), [44, 255]);
        Ok(())
    });
}

pub fn a_product_is_summed_wide_in_the_order_of_k<M: Machine>() {
    async fn one<C: Core, T: Float>(core: &C, [m, k, n]: [usize; 3]) -> ringwork_isa::Result<()> {
        let (a, b) = (rough::<T>(m, k, 3), rough::<T>(k, n, 4));
        let got = core.matmul(&a, &b).await?;
        assert_eq!((got.rows(), got.columns()), (m, n));
        // The rule, to the bit; and not far from the truth.
        for i in 0..m {
            for j in 0..n {
                let (mut sum, mut truth) = (T::wide(0.0), 0.0);
                for l in 0..k {
                    let (x, y) = (a.values()[i * k + l], b.values()[l * n + j]);
                    let product = T::combine(ReduceOp::Prod, x.widen(), y.widen());
                    sum = T::combine(ReduceOp::Sum, sum, product);
                    truth += x.to_f64() * y.to_f64();
                }
                let element = got.values()[i * n + j];
                assert_eq!(element, sum, "{} {m}x{k}x{n} at {i}, {j}", T::DTYPE);
                assert!(
                    (element.to_f64() - truth).abs() <= 1e-4 * (k as f64),
                    "{element} {truth}"
                );
            }
        }
        // Cut along k, it has the same bits.
        if k >= 2 {
            let rows = |t: &Tile<T>, range: std::ops::Range<usize>| {
                let values = t.values()[range.start * n..range.end * n].to_vec();
                Tile::new(values).shaped(range.len(), n)
            };
            let columns = |range: std::ops::Range<usize>| {
                let values = a.values().chunks(k).flat_map(|row| row[range.clone()].to_vec());
                Tile::new(values.collect()).shaped(m, range.len())
            };
            let first = core.matmul(&columns(0..k / 2)?, &rows(&b, 0..k / 2)?).await?;
            let both = core
                .matmul_add(first, &columns(k / 2..k)?, &rows(&b, k / 2..k)?)
                .await?;
            assert_eq!(both, got);
        }
        Ok(())
    }
    M::new(1).run_well(async |core, _| {
        for shape in [[1, 1, 1], [3, 5, 7], [9, 20, 33], [2, 0, 3], [0, 4, 2]] {
            one::<_, f32>(core, shape).await?;
            one::<_, bf16>(core, shape).await?;
            one::<_, f16>(core, shape).await?;
            one::<_, f64>(core, shape).await?;
        }
        Ok(())
    });
}

pub fn spending_changes_nothing<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let dtype = Dtype::BF16;
        core.spend(Work::Matrix {
            m: 1 << 20,
            k: 1 << 20,
            n: 1 << 20,
            dtype,
        })
        .await?;
        core.spend(Work::Vector {
            elements: 1 << 40,
            dtype,
        })
        .await?;
        assert_eq!(core.load(seat.buffer::<u8>(0, 8)).await?.values(), [0; 8]);
        Ok(())
    });
}
