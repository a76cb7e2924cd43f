//! Grids: how the accesses of a buffer are sorted so that few must be looked at.
//!
//! A grid cuts a buffer into cells at least as large as the views it sorts: `2^column_class` bytes of a row
//! by `2^row_class` rows, for rows `pitch` apart. A view is kept at the cell it begins in; whatever overlaps
//! it then begins in the same cell or the one before, in each direction, and in the same cell if all views
//! so far ended in the cell they began in, as aligned tiles do. A range is a view of one row of a matrix
//! without end.
//!
//! # Invariants
//! - **GRID-1 (near).** If views `a` and `b` overlap, the home of `a` in its grid is among the grid's cells
//!   for `b`.

use crate::view::View;
use std::ops::RangeInclusive;

/// The pitch of a matrix without end.
const ENDLESS: u64 = u64::MAX;

/// A way of cutting a buffer into cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pitch: u64,
    row_class: u8,
    column_class: u8,
    /// 1 if a view was kept here that ends in a later row of cells than it begins in.
    row_over: u8,
    /// The same for columns.
    column_over: u8,
}

/// A place in a grid: row and column of the cell.
pub(crate) type Cell = (u64, u64);

/// The cells in which something that overlaps a view can begin.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) rows: RangeInclusive<u64>,
    pub(crate) columns: RangeInclusive<u64>,
}

impl Cells {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        let long = |range: &RangeInclusive<u64>| (range.end() - range.start()).saturating_add(1);
        long(&self.rows).saturating_mul(long(&self.columns))
    }
}

/// Log2 of a power of four that is at least `size`, as far as there is one.
fn class(size: u64) -> u8 {
    let log2 = 64 - size.saturating_sub(1).leading_zeros();
    #[allow(clippy::cast_possible_truncation, reason = "at most 63")]
    {
        log2.next_multiple_of(2).min(63) as u8
    }
}

/// Cells of class `class` from the one of `first`, or `over` before it, to the one of `last`.
fn blocks(first: u64, last: u64, class: u8, over: u8) -> RangeInclusive<u64> {
    (first >> class).saturating_sub(over.into())..=last >> class
}

impl Grid {
    /// The grid for a view, by its rows.
    pub(crate) fn of(view: &View) -> Grid {
        if view.rows() <= 1 {
            return Grid::of_bounds(view);
        }
        let pitch = view.pitch();
        let column = view.start() % pitch;
        let (rows, columns) = if column + view.row_bytes() > pitch {
            // Its rows run over the end of the matrix's: they lie in one row more, in any column.
            (view.rows() + 1, u64::MAX)
        } else {
            (view.rows(), view.row_bytes())
        };
        Grid {
            pitch,
            row_class: class(rows),
            column_class: class(columns),
            row_over: 0,
            column_over: 0,
        }
    }

    /// The grid for a view by its first and last byte only.
    pub(crate) fn of_bounds(view: &View) -> Grid {
        Grid {
            pitch: ENDLESS,
            row_class: 0,
            column_class: class(view.end() - view.start()),
            row_over: 0,
            column_over: 0,
        }
    }

    /// Whether both cut alike.
    pub(crate) fn same(&self, other: &Grid) -> bool {
        self.pitch == other.pitch
            && self.row_class == other.row_class
            && self.column_class == other.column_class
    }

    /// Keeps a view of this grid: returns where.
    pub(crate) fn keep(&mut self, view: &View) -> Cell {
        let (row, column) = self.home(view);
        if self.pitch == ENDLESS {
            self.column_over |= u8::from((view.end() - 1) >> self.column_class != column);
            return (row, column);
        }
        let last_row = (view.end() - 1) / self.pitch;
        let last_column = view.start() % self.pitch + view.row_bytes() - 1;
        self.row_over |= u8::from(last_row >> self.row_class != row);
        self.column_over |= u8::from(last_column >> self.column_class != column);
        (row, column)
    }

    /// Where a view of this grid is kept.
    pub(crate) fn home(&self, view: &View) -> Cell {
        if self.pitch == ENDLESS {
            return (0, view.start() >> self.column_class);
        }
        let (row, column) = (view.start() / self.pitch, view.start() % self.pitch);
        (row >> self.row_class, column >> self.column_class)
    }

    /// Where those that overlap a view are kept (GRID-1).
    pub(crate) fn cells(&self, view: &View) -> Cells {
        let last = view.end() - 1;
        if self.pitch == ENDLESS {
            return Cells {
                rows: 0..=0,
                columns: blocks(view.start(), last, self.column_class, self.column_over),
            };
        }
        let (first_row, column) = (view.start() / self.pitch, view.start() % self.pitch);
        let last_row = last / self.pitch;
        // All in one row; or in the same columns of many, unless they run over the end.
        let last_column = match (last / self.pitch == first_row, view.pitch() == self.pitch) {
            (true, _) => last % self.pitch,
            (false, true) if view.rows() > 1 => column + view.row_bytes() - 1,
            _ => self.pitch,
        };
        let columns = if last_column < self.pitch {
            blocks(column, last_column, self.column_class, self.column_over)
        } else {
            0..=(self.pitch - 1) >> self.column_class
        };
        Cells {
            rows: blocks(first_row, last_row, self.row_class, self.row_over),
            columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view() -> impl Strategy<Value = View> {
        let strided = |(start, rows, row_bytes, pitch)| View::strided(start, rows, row_bytes, pitch).unwrap();
        prop_oneof![
            (0u64..400, 1u64..5, 1u64..20, Just(32u64)).prop_map(strided),
            (0u64..400, 1u64..9, 1u64..20, 1u64..70).prop_map(strided),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn whatever_overlaps_a_view_is_kept_in_a_cell_that_is_looked_at(kept in view(), other in view(), asked in view()) {
            for grid in [Grid::of(&kept), Grid::of_bounds(&kept)] {
                let mut grid = grid;
                let home = grid.keep(&kept);
                prop_assert_eq!(home, grid.home(&kept));
                if Grid::of(&other).same(&grid) {
                    grid.keep(&other);
                }
                let cells = grid.cells(&asked);
                if kept.overlaps(&asked) {
                    prop_assert!(cells.rows.contains(&home.0) && cells.columns.contains(&home.1), "{} in {:?}: {:?} for {}", kept, grid, cells, asked);
                }
            }
        }
    }
}
