//! What the examples of one collective have in common: a team of all chips, an input and an output on each.

use crate::job::{Check, Job};
use ringwork::collectives::catalogue::{Entry, Needs};
use ringwork::isa::{Algorithm, Arg, Argument};
use ringwork::prelude::*;
use ringwork::runtime::{Part, TeamHandle};

/// A collective as an example: sizes, input and golden value.
pub(super) struct Collective<T> {
    /// Elements of every rank's input.
    pub(super) input: usize,
    /// Elements of every rank's output.
    pub(super) output: usize,
    /// Input of a rank at an index.
    pub(super) fill: Box<dyn Fn(usize, usize) -> T>,
    /// Output of a rank at an index; `None` if the rank gets none.
    pub(super) golden: Box<dyn Fn(usize, usize) -> Option<T>>,
}

/// The arguments that every collective kernel takes.
pub(super) struct Arguments<'a, T> {
    pub(super) x: &'a Memory<T>,
    pub(super) y: &'a Memory<T>,
    pub(super) team: &'a TeamHandle,
    pub(super) algorithm: Algorithm,
}

/// A rank's input or output: in its chip's own memory or, for algorithms that work on windows, in its window.
pub(super) enum Memory<T> {
    Own(Tensor<T>),
    Window(Part<T>),
}

impl<T: Element> Memory<T> {
    fn write(&self, values: &[T]) -> ringwork::Result<()> {
        match self {
            Memory::Own(tensor) => tensor.write(values),
            Memory::Window(part) => part.write(values),
        }
    }

    fn read(&self) -> ringwork::Result<Vec<T>> {
        match self {
            Memory::Own(tensor) => tensor.read(),
            Memory::Window(part) => part.read(),
        }
    }
}

impl<T: Element> Argument<In<T>> for Memory<T> {
    fn to_arg(&self) -> Arg {
        match self {
            Memory::Own(tensor) => Argument::<In<T>>::to_arg(tensor),
            Memory::Window(part) => Argument::<In<T>>::to_arg(part),
        }
    }
}

impl<T: Element> Argument<Out<T>> for Memory<T> {
    fn to_arg(&self) -> Arg {
        match self {
            Memory::Own(tensor) => Argument::<Out<T>>::to_arg(tensor),
            Memory::Window(part) => Argument::<Out<T>>::to_arg(part),
        }
    }
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
        let entry = job.entry;
        let spec =
            DomainSpec::new("all", chips.clone()).team_by("team", job.team(self.input.max(self.output)));
        let all = node.open_domain(&self.with_buffers(spec, entry))?;
        let team = all.team("team")?;

        let (mut x, mut y) = (Vec::new(), Vec::new());
        for (rank, chip) in (0..).map(Rank).zip(&chips) {
            if entry.needs != Needs::Window {
                x.push(Memory::Own(node.zeros(*chip, self.input)?));
                y.push(Memory::Own(node.zeros(*chip, self.output)?));
                continue;
            }
            let output = if entry.is_in_place() { "x" } else { "y" };
            x.push(Memory::Window(all.buffer("x")?.on(rank)?));
            y.push(Memory::Window(all.buffer(output)?.on(rank)?));
        }
        let fill = || {
            x.iter().enumerate().try_for_each(|(rank, x)| {
                let values: Vec<T> = (0..self.input).map(|i| (self.fill)(rank, i)).collect();
                x.write(&values)
            })
        };
        fill()?;
        let rank_of = |chip: Device| all.rank_of(chip).map_or(0, |rank| rank.0 as usize);
        let mut round = 0..job.rounds;
        job.rounds(
            || {
                // Where the output lies in place of the input, that is gone after the first round.
                if round.next() != Some(0) && entry.is_in_place() {
                    fill()?;
                }
                node.run(|orch| {
                    orch.group(chips.iter().copied(), |chip| {
                        Ok(task(&Arguments {
                            x: &x[rank_of(chip)],
                            y: &y[rank_of(chip)],
                            team: &team,
                            algorithm: entry.algorithm,
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

    /// The buffers that an algorithm on windows works on.
    fn with_buffers(&self, spec: DomainSpec, entry: &Entry) -> DomainSpec {
        if entry.needs != Needs::Window {
            return spec;
        }
        let spec = spec.buffer::<T>("x", self.input);
        match entry.is_in_place() {
            true => spec,
            false => spec.buffer::<T>("y", self.output),
        }
    }
}
