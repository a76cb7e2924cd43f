//! A group of chips of a node, native or simulated: the work of all ranks is submitted as tasks.

use crate::error::{Error, Result};
use crate::group::Group;
use ringwork_isa::{Algorithm, Device, ReduceOp, Task};
use ringwork_kernels as collectives;
use ringwork_runtime::{Domain, DomainSpec, Node, Orchestrator, TeamHandle, Tensor};
use std::ops::Range;

/// Chips that share layers, with the memory that they communicate through.
#[derive(Debug)]
pub struct ChipGroup<'n> {
    node: &'n Node,
    domain: Domain,
    team: TeamHandle,
    algorithm: Algorithm,
}

impl<'n> ChipGroup<'n> {
    /// These chips of a node, in the order of their ranks. `elements` is the size of the largest matrix that is reduced or
    /// gathered; larger ones go in pieces.
    ///
    /// # Errors
    /// If there is no such chip, or no memory.
    pub fn open(
        node: &'n Node,
        name: &str,
        chips: impl IntoIterator<Item = Device>,
        elements: usize,
    ) -> Result<ChipGroup<'n>> {
        let domain = node.open_domain(&DomainSpec::new(name, chips).team::<f32>("team", elements))?;
        let team = domain.team("team")?;
        // All that share memory give the same bits; this one moves the fewest bytes.
        Ok(ChipGroup {
            node,
            domain,
            team,
            algorithm: Algorithm::TwoPhase,
        })
    }

    /// Sums by another algorithm of those that share memory.
    #[must_use]
    pub fn with_algorithm(self, algorithm: Algorithm) -> ChipGroup<'n> {
        ChipGroup { algorithm, ..self }
    }

    /// The group inside an orchestration: what is done with it is submitted there.
    #[must_use]
    pub fn on<'g>(&'g self, orchestrator: &'g Orchestrator<'g>) -> ChipTasks<'g> {
        ChipTasks {
            group: self,
            orchestrator,
        }
    }

    fn chip(&self, rank: usize) -> Result<Device> {
        self.domain
            .members()
            .get(rank)
            .copied()
            .ok_or_else(|| Error::Argument {
                what: "a rank",
                problem: format!("{rank} of {}", self.domain.ranks()),
            })
    }
}

/// A [`ChipGroup`] inside an orchestration.
#[derive(Debug)]
pub struct ChipTasks<'g> {
    group: &'g ChipGroup<'g>,
    orchestrator: &'g Orchestrator<'g>,
}

impl ChipTasks<'_> {
    /// Submits a task for every rank, which start together.
    fn together(&self, task: impl Fn(usize) -> Option<Task>) -> Result<()> {
        let domain = &self.group.domain;
        self.orchestrator
            .group(domain.members().iter().copied(), |chip| {
                let rank = domain.rank_of(chip).map_or(usize::MAX, |rank| rank.0 as usize);
                task(rank).ok_or_else(|| foreign().into())
            })?;
        Ok(())
    }
}

fn foreign() -> Error {
    Error::Argument {
        what: "a matrix",
        problem: "it belongs to another group".into(),
    }
}

impl Group for ChipTasks<'_> {
    type Memory = Tensor<f32>;
    type Ids = Tensor<i32>;

    fn size(&self) -> usize {
        self.group.domain.ranks() as usize
    }

    fn local_ranks(&self) -> Range<usize> {
        0..self.size()
    }

    fn zeros(&self, rank: usize, elements: usize) -> Result<Tensor<f32>> {
        Ok(self.group.node.zeros(self.group.chip(rank)?, elements)?)
    }

    fn values(&self, rank: usize, values: &[f32]) -> Result<Tensor<f32>> {
        Ok(self.group.node.tensor(self.group.chip(rank)?, values)?)
    }

    fn ids(&self, rank: usize, ids: &[i32]) -> Result<Tensor<i32>> {
        Ok(self.group.node.tensor(self.group.chip(rank)?, ids)?)
    }

    fn run(&self, rank: usize, task: Task) -> Result<()> {
        self.orchestrator.submit(self.group.chip(rank)?, task)?;
        Ok(())
    }

    fn all_reduce(&self, x: &[Tensor<f32>], y: &[Tensor<f32>]) -> Result<()> {
        let ChipGroup { team, algorithm, .. } = self.group;
        self.together(|rank| {
            Some(collectives::all_reduce::task(
                x.get(rank)?,
                y.get(rank)?,
                team,
                ReduceOp::Sum,
                *algorithm,
            ))
        })
    }

    fn all_gather(&self, x: &[Tensor<f32>], y: &[Tensor<f32>]) -> Result<()> {
        let team = &self.group.team;
        self.together(|rank| {
            Some(collectives::all_gather::task(
                x.get(rank)?,
                y.get(rank)?,
                team,
                Algorithm::Staged,
            ))
        })
    }
}
