//! What the shorter examples have in common: a team of all chips, an input and an output on each.

use crate::job::{Check, Job};
use ringwork::collectives::Team;
use ringwork::prelude::*;
use ringwork::runtime::SignalRow;

/// A collective as an example: sizes, input, golden value and the kernel.
pub(super) struct Collective<T> {
    /// Elements of every rank's input.
    pub(super) input: usize,
    /// Elements of a rank's output.
    pub(super) output: Box<dyn Fn(usize) -> usize>,
    /// Input of a rank at an index.
    pub(super) fill: Box<dyn Fn(usize, usize) -> T>,
    /// Output of a rank at an index; `None` if the rank gets none.
    pub(super) golden: Box<dyn Fn(usize, usize) -> Option<T>>,
}

/// The arguments that every collective kernel takes.
pub(super) struct Arguments<'a, T> {
    pub(super) x: &'a Tensor<T>,
    pub(super) y: &'a Tensor<T>,
    pub(super) scratch: &'a Buffer<T>,
    pub(super) meet: &'a SignalRow,
    pub(super) steps: &'a SignalRow,
}

impl<T: Element> Collective<T> {
    /// Runs it as the job says, and checks every rank.
    pub(super) fn run(
        self,
        job: &Job,
        task: impl Fn(&Arguments<'_, T>) -> Task,
    ) -> ringwork::Result<Vec<Check>> {
        let node = job.launch(Node::builder())?;
        let chips = node.devices();
        // Half of it holds one element of every block at least; more moves more at a time.
        let room = (2 * self.input.max((self.output)(0))).clamp(2 * chips.len(), 1 << 20);
        let spec = DomainSpec::new("all", chips.clone())
            .buffer::<T>("scratch", room)
            .barrier("meet")
            .signals("steps", Team::STEP_CELLS);
        let all = node.open_domain(&spec)?;
        let (scratch, meet, steps) = (
            all.buffer::<T>("scratch")?,
            all.barrier("meet")?,
            all.signals("steps")?,
        );

        let (mut x, mut y) = (Vec::new(), Vec::new());
        for (rank, chip) in chips.iter().enumerate() {
            let values: Vec<T> = (0..self.input).map(|i| (self.fill)(rank, i)).collect();
            x.push(node.tensor(*chip, &values)?);
            y.push(node.zeros::<T>(*chip, (self.output)(rank))?);
        }
        let rank_of = |chip: Device| all.rank_of(chip).map_or(0, |rank| rank.0 as usize);
        job.rounds(
            || {
                node.run(|orch| {
                    orch.group(chips.iter().copied(), |chip| {
                        let (x, y) = (&x[rank_of(chip)], &y[rank_of(chip)]);
                        Ok(task(&Arguments {
                            x,
                            y,
                            scratch: &scratch,
                            meet: &meet,
                            steps: &steps,
                        }))
                    })
                })
            },
            || {
                let zero = T::from_i64(0);
                let check = |(rank, chip): (usize, &Device)| {
                    let golden = |i| (self.golden)(rank, i).unwrap_or(zero);
                    Ok(Check::compare(
                        *chip,
                        format!("rank {rank}"),
                        &y[rank].read()?,
                        golden,
                    ))
                };
                chips.iter().enumerate().map(check).collect()
            },
        )
    }
}
