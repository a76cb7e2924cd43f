//! Which ranks of a world belong together.

use crate::error::{Error, Result};

/// A direction in a [`Grid`]: the ranks that differ only in it form a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Ranks that share the layers: each has a part of every weight. They are neighbours in the world.
    Tensor,
    /// Ranks that have the same weights and different data: their gradients are averaged.
    Data,
    /// Ranks that have different layers: the stages of a pipeline.
    Pipeline,
}

/// A world divided into tensor, data and pipeline groups, in Megatron's order: the tensor rank changes fastest, then the data
/// rank, then the stage of the pipeline.
///
/// ```
/// use ringwork_parallel::{Axis, Grid};
///
/// let grid = Grid::new(8, 2, 2)?; // 8 ranks: tensor groups of 2, 2 stages, and so 2 replicas
/// assert_eq!(grid.size(Axis::Data), 2);
/// assert_eq!(grid.group(Axis::Tensor, 5), [4, 5]);
/// assert_eq!(grid.group(Axis::Data, 5), [5, 7]);
/// assert_eq!(grid.group(Axis::Pipeline, 5), [1, 5]);
/// # Ok::<(), ringwork_parallel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    tensor: u32,
    data: u32,
    pipeline: u32,
}

impl Grid {
    /// A world of so many ranks in tensor groups of `tensor` and pipelines of `pipeline` stages. The rest is data parallelism.
    ///
    /// # Errors
    /// [`Error::Grid`] if the world is not a multiple of both together.
    pub fn new(world: u32, tensor: u32, pipeline: u32) -> Result<Grid> {
        match tensor.checked_mul(pipeline) {
            Some(each) if each > 0 && world > 0 && world.is_multiple_of(each) => Ok(Grid {
                tensor,
                data: world / each,
                pipeline,
            }),
            _ => Err(Error::Grid {
                world,
                tensor,
                pipeline,
            }),
        }
    }

    /// Ranks of the world.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.tensor * self.data * self.pipeline
    }

    /// Ranks of each group in this direction.
    #[must_use]
    pub fn size(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Tensor => self.tensor,
            Axis::Data => self.data,
            Axis::Pipeline => self.pipeline,
        }
    }

    /// The rank that `world_rank` has in its group in this direction. Ranks beyond the world are counted on.
    #[must_use]
    pub fn rank(&self, axis: Axis, world_rank: u32) -> u32 {
        world_rank / self.stride(axis) % self.size(axis)
    }

    /// The group of `world_rank` in this direction, in the order of its ranks.
    #[must_use]
    pub fn group(&self, axis: Axis, world_rank: u32) -> Vec<u32> {
        let first = world_rank - self.rank(axis, world_rank) * self.stride(axis);
        (0..self.size(axis))
            .map(|rank| first + rank * self.stride(axis))
            .collect()
    }

    /// All groups in this direction. Every rank of the world is in one of them.
    #[must_use]
    pub fn groups(&self, axis: Axis) -> Vec<Vec<u32>> {
        let firsts = (0..self.world()).filter(|rank| self.rank(axis, *rank) == 0);
        firsts.map(|first| self.group(axis, first)).collect()
    }

    /// The rank of the world that is `steps` after `world_rank` in its group; behind the last comes the first.
    #[must_use]
    pub fn neighbour(&self, axis: Axis, world_rank: u32, steps: i32) -> u32 {
        let (rank, size) = (self.rank(axis, world_rank), self.size(axis));
        let moved = (i64::from(rank) + i64::from(steps)).rem_euclid(i64::from(size));
        let moved = u32::try_from(moved).unwrap_or(rank);
        world_rank - rank * self.stride(axis) + moved * self.stride(axis)
    }

    /// Ranks of the world from one rank of a group to the next.
    fn stride(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Tensor => 1,
            Axis::Data => self.tensor,
            Axis::Pipeline => self.tensor * self.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [Axis; 3] = [Axis::Tensor, Axis::Data, Axis::Pipeline];

    #[test]
    fn every_rank_is_in_one_group_of_each_direction() {
        for (world, tensor, pipeline) in [(1, 1, 1), (8, 2, 2), (24, 4, 3), (6, 1, 6), (6, 6, 1), (12, 2, 1)]
        {
            let grid = Grid::new(world, tensor, pipeline).unwrap();
            assert_eq!(grid.world(), world);
            for axis in AXES {
                let mut all = grid.groups(axis).concat();
                all.sort_unstable();
                assert_eq!(all, (0..world).collect::<Vec<_>>());
                for rank in 0..world {
                    let group = grid.group(axis, rank);
                    assert_eq!(group[grid.rank(axis, rank) as usize], rank);
                }
            }
        }
    }

    #[test]
    fn groups_of_two_directions_meet_in_one_rank() {
        let grid = Grid::new(24, 4, 3).unwrap();
        for rank in 0..24 {
            for (one, other) in [(AXES[0], AXES[1]), (AXES[1], AXES[2]), (AXES[0], AXES[2])] {
                let others = grid.group(other, rank);
                let common = grid
                    .group(one, rank)
                    .into_iter()
                    .filter(|rank| others.contains(rank));
                assert_eq!(common.collect::<Vec<_>>(), [rank]);
            }
        }
    }

    #[test]
    fn neighbours_go_around() {
        let grid = Grid::new(8, 2, 4).unwrap();
        assert_eq!(grid.neighbour(Axis::Pipeline, 7, 1), 1);
        assert_eq!(grid.neighbour(Axis::Pipeline, 1, -1), 7);
        assert_eq!(grid.neighbour(Axis::Tensor, 4, 1), 5);
        assert_eq!(grid.neighbour(Axis::Tensor, 5, 1), 4);
        assert_eq!(grid.neighbour(Axis::Data, 3, 1), 3);
    }

    #[test]
    fn a_world_that_cannot_be_divided_is_refused_with_its_numbers() {
        for (world, tensor, pipeline) in [(8, 3, 1), (8, 0, 1), (0, 1, 1), (8, 4, 4), (8, u32::MAX, 2)] {
            let refused = Grid::new(world, tensor, pipeline);
            assert!(matches!(refused, Err(Error::Grid { .. })), "{refused:?}");
        }
        let message = Grid::new(8, 3, 1).unwrap_err().to_string();
        assert!(
            message.contains("8 ranks") && message.contains("groups of 3"),
            "{message}"
        );
    }
}
