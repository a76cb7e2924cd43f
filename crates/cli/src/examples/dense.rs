//! Layers as the textbook has them: dense, on the host, in f64. What sharded ones are compared with.

/// A matrix, row by row.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<f32>,
}

impl Matrix {
    /// Values that repeat nowhere near and add up to little: in [-0.5, 0.5), another set for every seed.
    pub(super) fn mixed(rows: usize, columns: usize, seed: u32) -> Matrix {
        let value = |at: usize| {
            let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ u64::from(seed).wrapping_mul(0xd1b5_4a32_d192_ed03);
            let bits = mixed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56;
            bits as f32 / 256.0 - 0.5
        };
        Matrix {
            rows,
            columns,
            values: (0..rows * columns).map(value).collect(),
        }
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// Some of its rows.
    pub(super) fn rows(&self, range: std::ops::Range<usize>) -> Vec<f32> {
        self.values[range.start * self.columns..range.end * self.columns].to_vec()
    }

    /// Some of its columns.
    pub(super) fn columns(&self, range: std::ops::Range<usize>) -> Vec<f32> {
        let rows = (0..self.rows).map(|row| &self.row(row)[range.clone()]);
        rows.flatten().copied().collect()
    }
}

/// The product of a row and a matrix.
pub(super) fn apply(row: &[f64], matrix: &Matrix) -> Vec<f64> {
    let mut product = vec![0.0; matrix.columns];
    for (k, x) in row.iter().enumerate() {
        for (sum, weight) in product.iter_mut().zip(matrix.row(k)) {
            *sum += x * f64::from(*weight);
        }
    }
    product
}

pub(super) fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().copied().map(f64::from).collect()
}

/// `x / (1 + e^-x)` of every element.
pub(super) fn silu(row: &mut [f64]) {
    for x in row {
        *x /= 1.0 + (-*x).exp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_product_add_up_to_it() {
        let (x, w) = (Matrix::mixed(3, 8, 1), Matrix::mixed(8, 5, 2));
        let whole = apply(&wide(x.row(2)), &w);
        let part = |range: std::ops::Range<usize>| {
            let w = Matrix {
                rows: range.len(),
                columns: 5,
                values: w.rows(range.clone()),
            };
            apply(&wide(&x.row(2)[range]), &w)
        };
        let (left, right) = (part(0..3), part(3..8));
        for (i, sum) in whole.iter().enumerate() {
            assert!((left[i] + right[i] - sum).abs() < 1e-12);
        }
        assert_eq!(x.columns(2..3), [x.row(0)[2], x.row(1)[2], x.row(2)[2]]);
    }
}
