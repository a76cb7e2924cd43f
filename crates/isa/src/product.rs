//! The matrix product: one loop for all platforms.
//!
//! Every element of the result is `((c + a0 b0) + a1 b1) + ...` in the order of `k`, each product and each sum
//! rounded to [`Element::Wide`], never fused. That is a rule about bits: it does not
//! depend on blocks, vectors or the processor. (Of several NaNs, whose payload survives is left open.)
//!
//! Blocks are for speed only. `b` is widened once into panels of `LANES` columns; `ROWS` x `LANES` results are
//! then kept in registers over a whole panel, and lanes of one row are what vectors are made of.

use crate::{Element, Float, ReduceOp};

/// Rows of a panel: small enough that one of 32 lanes of f32 stays in a first-level cache.
const PANEL_ROWS: usize = 256;

/// Adds the product of `a`, m x k, and `b`, k x n, to `c`, m x n: `[m, k, n]`, all row by row.
///
/// Does nothing if a slice is shorter than its shape says.
pub fn product<T: Float>(c: &mut [T::Wide], a: &[T], b: &[T], shape: [usize; 3]) {
    product_in_blocks::<T, 1, 32>(c, a, b, shape);
}

/// [`product()`] in blocks of `ROWS` x `LANES`, to be inlined where the processor's instructions are enabled.
#[inline(always)]
pub fn product_in_blocks<T: Float, const ROWS: usize, const LANES: usize>(
    c: &mut [T::Wide],
    a: &[T],
    b: &[T],
    [m, k, n]: [usize; 3],
) {
    let fits =
        |len: usize, rows: usize, columns: usize| rows.checked_mul(columns).is_some_and(|all| all <= len);
    if !(fits(c.len(), m, n) && fits(a.len(), m, k) && fits(b.len(), k, n)) {
        return;
    }
    let a: Vec<T::Wide> = a[..m * k].iter().map(|value| value.widen()).collect();
    let mut panel = vec![[T::wide(0.0); LANES]; k.min(PANEL_ROWS)];
    for column in (0..n).step_by(LANES) {
        let lanes = LANES.min(n - column);
        for first in (0..k).step_by(PANEL_ROWS) {
            let depth = PANEL_ROWS.min(k - first);
            for (step, line) in panel[..depth].iter_mut().enumerate() {
                let from = (first + step) * n + column;
                for (to, value) in line.iter_mut().zip(&b[from..from + lanes]) {
                    *to = value.widen();
                }
            }
            let mut row = 0;
            while m - row >= ROWS {
                let rows: [&[T::Wide]; ROWS] = std::array::from_fn(|r| &a[(row + r) * k + first..][..depth]);
                block::<T, ROWS, LANES>(&mut c[row * n + column..], n, lanes, rows, &panel[..depth]);
                row += ROWS;
            }
            while row < m {
                let rows = [&a[row * k + first..][..depth]];
                block::<T, 1, LANES>(&mut c[row * n + column..], n, lanes, rows, &panel[..depth]);
                row += 1;
            }
        }
    }
}

/// Adds to `ROWS` rows of `c`, `n` apart, `lanes` columns of each.
#[inline(always)]
fn block<T: Float, const ROWS: usize, const LANES: usize>(
    c: &mut [T::Wide],
    n: usize,
    lanes: usize,
    a: [&[T::Wide]; ROWS],
    panel: &[[T::Wide; LANES]],
) {
    if lanes == LANES {
        return full_block::<T, ROWS, LANES>(c, n, a, panel);
    }
    // A ragged edge, in a block of its own.
    let mut whole = vec![T::wide(0.0); ROWS * LANES];
    for r in 0..ROWS {
        whole[r * LANES..r * LANES + lanes].copy_from_slice(&c[r * n..r * n + lanes]);
    }
    full_block::<T, ROWS, LANES>(&mut whole, LANES, a, panel);
    for r in 0..ROWS {
        c[r * n..r * n + lanes].copy_from_slice(&whole[r * LANES..r * LANES + lanes]);
    }
}

/// [`block`] of all lanes. Every length here is a constant, which is what lets sums stay in registers.
#[inline(always)]
fn full_block<T: Float, const ROWS: usize, const LANES: usize>(
    c: &mut [T::Wide],
    n: usize,
    a: [&[T::Wide]; ROWS],
    panel: &[[T::Wide; LANES]],
) {
    let mut sums = [[T::wide(0.0); LANES]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        sums.copy_from_slice(&c[r * n..r * n + LANES]);
    }
    for (step, line) in panel.iter().enumerate() {
        for (sums, a) in sums.iter_mut().zip(&a) {
            let a = a[step];
            for (sum, b) in sums.iter_mut().zip(line) {
                let product = <T as Element>::combine(ReduceOp::Prod, a, *b);
                *sum = <T as Element>::combine(ReduceOp::Sum, *sum, product);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        c[r * n..r * n + LANES].copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use proptest::prelude::*;

    /// The rule, word by word.
    fn by_the_rule<T: Float>(c: &mut [T::Wide], a: &[T], b: &[T], [m, k, n]: [usize; 3]) {
        for i in 0..m {
            for j in 0..n {
                for l in 0..k {
                    let product = T::combine(ReduceOp::Prod, a[i * k + l].widen(), b[l * n + j].widen());
                    c[i * n + j] = T::combine(ReduceOp::Sum, c[i * n + j], product);
                }
            }
        }
    }

    /// Numbers whose sums are rounded at every step.
    fn rough<T: Float>(len: usize, seed: usize) -> Vec<T> {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 97.0 - 10.0;
        (0..len).map(|i| T::from_f64(value(i))).collect()
    }

    fn agrees<T: Float>(shape: [usize; 3]) {
        let [m, k, n] = shape;
        let (a, b) = (rough::<T>(m * k, 1), rough::<T>(k * n, 2));
        let start: Vec<T::Wide> = rough::<T>(m * n, 3).into_iter().map(T::widen).collect();
        let mut wanted = start.clone();
        by_the_rule(&mut wanted, &a, &b, shape);
        for blocks in 0..3 {
            let mut got = start.clone();
            match blocks {
                0 => product(&mut got, &a, &b, shape),
                1 => product_in_blocks::<T, 6, 16>(&mut got, &a, &b, shape),
                _ => product_in_blocks::<T, 1, 1>(&mut got, &a, &b, shape),
            }
            assert_eq!(got, wanted, "{shape:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn blocks_do_not_change_a_bit(m in 0usize..14, k in 0usize..40, n in 0usize..40) {
            agrees::<f32>([m, k, n]);
            agrees::<bf16>([m, k, n]);
            agrees::<f64>([m, k, n]);
        }
    }

    #[test]
    fn sums_go_on_from_one_panel_to_the_next() {
        agrees::<f32>([5, 2 * PANEL_ROWS + 3, 17]);
    }

    #[test]
    fn a_short_slice_changes_nothing() {
        let mut c = [1f32; 4];
        product(&mut c, &[1.0f32; 3], &[1.0; 4], [2, 2, 2]);
        product(&mut c, &[1.0f32; 4], &[1.0; 4], [2, usize::MAX, 2]);
        assert_eq!(c, [1.0; 4]);
    }
}
