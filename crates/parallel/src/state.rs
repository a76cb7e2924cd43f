//! The groups of a rank in a world where every rank runs the same program.

use crate::error::Result;
use crate::grid::{Axis, Grid};
use ringwork_communicator::Communicator;

/// A communicator for each group that this rank is in: Megatron's parallel state.
///
/// It takes the world's communicator, so a world cannot be divided twice:
///
/// ```compile_fail,E0382
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ringwork_communicator::Communicator;
/// use ringwork_parallel::ParallelState;
///
/// let world = Communicator::from_env()?;
/// let state = ParallelState::initialize(world, 2, 1)?;
/// let again = ParallelState::initialize(world, 4, 1)?; // use of moved value: `world`
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ParallelState {
    world: Communicator,
    grid: Grid,
    /// Of tensor, data and pipeline.
    groups: [Communicator; 3],
}

impl ParallelState {
    /// Divides the world into tensor groups of `tensor` ranks and pipelines of `pipeline` stages; see [`Grid`]. A collective call
    /// of all ranks, with the same numbers.
    ///
    /// # Errors
    /// [`Error::Grid`](crate::Error::Grid) if the world cannot be divided so; or if a call of the communicator fails.
    pub fn initialize(world: Communicator, tensor: u32, pipeline: u32) -> Result<ParallelState> {
        let grid = Grid::new(world.size(), tensor, pipeline)?;
        let group = |axis| {
            let first = grid
                .group(axis, world.rank())
                .first()
                .copied()
                .unwrap_or_default();
            world.split(first, world.rank())
        };
        let groups = [group(Axis::Tensor)?, group(Axis::Data)?, group(Axis::Pipeline)?];
        Ok(ParallelState { world, grid, groups })
    }

    /// Which ranks belong together.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// All ranks.
    #[must_use]
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// This rank's group in a direction; `rank()` and `size()` of it are this rank's place.
    #[must_use]
    pub fn group(&self, axis: Axis) -> &Communicator {
        let [tensor, data, pipeline] = &self.groups;
        match axis {
            Axis::Tensor => tensor,
            Axis::Data => data,
            Axis::Pipeline => pipeline,
        }
    }

    /// The ranks that share the layers with this one.
    #[must_use]
    pub fn tensor(&self) -> &Communicator {
        self.group(Axis::Tensor)
    }

    /// The ranks that have the same weights.
    #[must_use]
    pub fn data(&self) -> &Communicator {
        self.group(Axis::Data)
    }

    /// The stages of this rank's pipeline.
    #[must_use]
    pub fn pipeline(&self) -> &Communicator {
        self.group(Axis::Pipeline)
    }

    /// Whether this rank has the first layers.
    #[must_use]
    pub fn is_first_stage(&self) -> bool {
        self.pipeline().rank() == 0
    }

    /// Whether this rank has the last layers.
    #[must_use]
    pub fn is_last_stage(&self) -> bool {
        self.pipeline().rank() + 1 == self.pipeline().size()
    }

    /// The rank of the world that has the next stage; after the last stage comes the first.
    #[must_use]
    pub fn next_stage(&self) -> u32 {
        self.grid.neighbour(Axis::Pipeline, self.world.rank(), 1)
    }

    /// The rank of the world that has the stage before; before the first stage comes the last.
    #[must_use]
    pub fn previous_stage(&self) -> u32 {
        self.grid.neighbour(Axis::Pipeline, self.world.rank(), -1)
    }
}
