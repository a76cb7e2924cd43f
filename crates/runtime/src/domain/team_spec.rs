//! The description of a team in a domain.

use ringwork_collectives::catalogue::Entry;
use ringwork_collectives::domain::{Demand, Places};
use ringwork_isa::Dtype;
use ringwork_layout::{LayoutError, WindowBuilder};

/// The memory that the members of a domain need for their collectives.
#[derive(Clone, Debug)]
pub struct TeamSpec {
    dtype: Dtype,
    elements: usize,
    entry: Option<&'static Entry>,
    grid: Option<Vec<u32>>,
}

/// The most elements of scratch: a longer call goes in several pieces.
const MOST_SCRATCH: usize = 1 << 20;

impl TeamSpec {
    /// For calls of up to this many elements, by every algorithm that shares memory.
    #[must_use]
    pub fn new(dtype: Dtype, elements: usize) -> TeamSpec {
        TeamSpec {
            dtype,
            elements,
            entry: None,
            grid: None,
        }
    }

    /// For one algorithm.
    #[must_use]
    pub fn algorithm(self, entry: &'static Entry) -> TeamSpec {
        TeamSpec {
            entry: Some(entry),
            ..self
        }
    }

    /// The sides of the grid that the members form, innermost first.
    #[must_use]
    pub fn grid(self, sides: Vec<u32>) -> TeamSpec {
        TeamSpec {
            grid: Some(sides),
            ..self
        }
    }

    pub(super) fn declare(&self, ranks: u32, window: &mut WindowBuilder) -> Result<Places, LayoutError> {
        let scratch = self.elements.saturating_mul(2).min(MOST_SCRATCH) as u64;
        let mut demand = Demand::new(ranks, self.dtype, self.elements);
        demand.scratch_bytes = Some(scratch.saturating_mul(self.dtype.bytes() as u64));
        if let Some(grid) = &self.grid {
            demand.grid.clone_from(grid);
        }
        match self.entry {
            Some(entry) => demand.declare(entry, window),
            None => demand.declare_all(window),
        }
    }
}
