//! What computing takes: systolic arrays and rooflines.

use crate::time::{Ps, Rate};

/// A systolic array of `rows` x `columns` cells, output stationary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Systolic {
    /// Rows of cells.
    pub rows: u64,
    /// Columns of cells.
    pub columns: u64,
}

impl Systolic {
    /// Cycles for an `m` x `k` by `k` x `n` product: `2R + C + K - 2` per fold, `ceil(M/R) ceil(N/C)` folds.
    #[must_use]
    pub fn cycles(&self, m: u64, n: u64, k: u64) -> u64 {
        if m == 0 || n == 0 || k == 0 || self.rows == 0 || self.columns == 0 {
            return 0;
        }
        let fold = 2 * self.rows + self.columns + k - 2;
        m.div_ceil(self.rows)
            .saturating_mul(n.div_ceil(self.columns))
            .saturating_mul(fold)
    }
}

/// The roofline: operations or bytes, whichever takes longer.
#[must_use]
pub fn roofline_ps(operations: u64, peak: Rate, bytes: u64, bandwidth: Rate) -> Ps {
    peak.time_ps(operations).max(bandwidth.time_ps(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_that_fits_takes_one_fold_and_a_larger_one_more() {
        let array = Systolic { rows: 16, columns: 8 };
        assert_eq!(array.cycles(16, 8, 100), 32 + 8 + 100 - 2);
        assert_eq!(array.cycles(17, 16, 100), 2 * 2 * (32 + 8 + 100 - 2));
        assert_eq!(array.cycles(0, 8, 1), 0);
    }

    #[test]
    fn the_roofline_has_two_sides() {
        let (peak, bandwidth) = (
            Rate::per_second(1_000_000_000_000).unwrap(),
            Rate::per_second(1_000_000_000).unwrap(),
        );
        assert_eq!(roofline_ps(1_000_000, peak, 10, bandwidth), 1_000_000);
        assert_eq!(roofline_ps(10, peak, 1_000_000, bandwidth), 1_000_000_000);
    }
}
