//! The collective calls of a communicator.

use super::Communicator;
use super::buffer::{Input, Output, Source, Target};
use super::choose::{self, Situation, Way};
use super::error::{Error, Result};
use crate::{Algorithm, Team, window};
use ringwork_isa::{Element, Error as CoreError, Fingerprint, In, InOut, Operation, Out, Rank, ReduceOp};
use ringwork_native::NativeCore;

type Done = std::result::Result<(), CoreError>;

impl Communicator {
    /// `data[i]` becomes its reduction over all ranks, on every rank; in place.
    ///
    /// # Errors
    /// COMM-2, and if the ranks disagree about the call.
    pub fn all_reduce<T: Element>(&self, data: &mut (impl Target<T> + ?Sized), op: ReduceOp) -> Result<()> {
        let data = data.output();
        let (bytes, ranks) = (data.len() * T::DTYPE.bytes(), self.size());
        let way = choose::all_reduce(Situation {
            bytes,
            ranks,
            in_window: matches!(data, Output::Window(_)),
        });
        self.all_reduce_by(data, op, way)
    }

    /// [`all_reduce`](Communicator::all_reduce) by the algorithm asked for, through the scratch.
    ///
    /// # Errors
    /// As [`all_reduce`](Communicator::all_reduce).
    pub fn all_reduce_with<T: Element>(
        &self,
        data: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
        algorithm: Algorithm,
    ) -> Result<()> {
        self.all_reduce_by(data.output(), op, Way::Staged(algorithm))
    }

    fn all_reduce_by<T: Element>(&self, data: Output<'_, T>, op: ReduceOp, way: Way) -> Result<()> {
        let call = self.fingerprint::<T>(Operation::AllReduce, data.len());
        let team = self.place.team::<T>()?;
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match (way, data) {
                (Way::InWindow(spread), Output::Window(buffer)) => {
                    core.run(window::all_reduce(core, team.meet(), buffer.region(), op, spread))
                }
                (Way::Staged(algorithm), data) => in_place(core, data, |data| {
                    core.run(crate::all_reduce(
                        core,
                        team,
                        data.into(),
                        data.into(),
                        op,
                        algorithm,
                    ))
                }),
                (Way::InWindow(_), data) => in_place(core, data, |data| {
                    core.run(crate::all_reduce::two_phase(
                        core,
                        team,
                        data.into(),
                        data.into(),
                        op,
                    ))
                }),
            },
        )
    }

    /// `output[i]` becomes the reduction of everybody's `input[i]`, on every rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Communicator::all_reduce).
    pub fn all_reduce_into<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let (input, output) = (input.input(), output.output());
        self.same("all_reduce", output.len(), input.len())?;
        let situation = Situation {
            bytes: input.len() * T::DTYPE.bytes(),
            ranks: self.size(),
            in_window: false,
        };
        let Way::Staged(algorithm) = choose::all_reduce(situation) else {
            return Err(Error::arguments("all_reduce", "no algorithm for two places"));
        };
        let call = self.fingerprint::<T>(Operation::AllReduce, input.len());
        self.staged(
            |sequence| call(sequence).reducing(op),
            input,
            output,
            |core, team, x, y| core.run(crate::all_reduce(core, team, x, y, op, algorithm)),
        )
    }

    /// `output` becomes everybody's `input`, one after the other in rank order.
    ///
    /// # Errors
    /// If `output` is not as long as everybody's `input` together; COMM-2.
    pub fn all_gather<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
    ) -> Result<()> {
        let (input, output) = (input.input(), output.output());
        self.same("all_gather", output.len(), self.times(input.len())?)?;
        let call = self.fingerprint::<T>(Operation::AllGather, output.len());
        self.staged(call, input, output, |core, team, x, y| {
            core.run(crate::all_gather(core, team, x, y))
        })
    }

    /// `output` becomes this rank's part of the reduction of everybody's `input`.
    ///
    /// # Errors
    /// If `input` is not as long as everybody's `output` together; COMM-2.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let (input, output) = (input.input(), output.output());
        self.same("reduce_scatter", input.len(), self.times(output.len())?)?;
        let call = self.fingerprint::<T>(Operation::ReduceScatter, input.len());
        self.staged(
            |sequence| call(sequence).reducing(op),
            input,
            output,
            |core, team, x, y| core.run(crate::reduce_scatter(core, team, x, y, op)),
        )
    }

    /// `data` becomes what it is on `root`, on every rank.
    ///
    /// # Errors
    /// If there is no such root; COMM-2.
    pub fn broadcast<T: Element>(&self, data: &mut (impl Target<T> + ?Sized), root: u32) -> Result<()> {
        self.check_root("broadcast", root)?;
        let data = data.output();
        let call = self.fingerprint::<T>(Operation::Broadcast, data.len());
        let team = self.place.team::<T>()?;
        self.call(
            |sequence| call(sequence).rooted(root),
            |core| {
                in_place(core, data, |data| {
                    core.run(crate::broadcast(core, team, data.into(), data.into(), Rank(root)))
                })
            },
        )
    }

    /// `root`'s `data[i]` becomes its reduction over all ranks; the others' stays.
    ///
    /// # Errors
    /// If there is no such root; COMM-2.
    pub fn reduce<T: Element>(
        &self,
        data: &mut (impl Target<T> + ?Sized),
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        self.check_root("reduce", root)?;
        let data = data.output();
        let call = self.fingerprint::<T>(Operation::Reduce, data.len());
        let team = self.place.team::<T>()?;
        self.call(
            |sequence| call(sequence).reducing(op).rooted(root),
            |core| {
                in_place(core, data, |data| {
                    core.run(crate::reduce(
                        core,
                        team,
                        data.into(),
                        data.into(),
                        op,
                        Rank(root),
                    ))
                })
            },
        )
    }

    /// `root`'s `output` becomes everybody's `input`, one after the other; the others' stays.
    ///
    /// # Errors
    /// If there is no such root, or its `output` is not as long as all; COMM-2.
    pub fn gather<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        root: u32,
    ) -> Result<()> {
        self.check_root("gather", root)?;
        let (input, output) = (input.input(), output.output());
        if self.rank() == root {
            self.same("gather", output.len(), self.times(input.len())?)?;
        }
        let call = self.fingerprint::<T>(Operation::Gather, input.len());
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, team, x, y| core.run(crate::gather(core, team, x, y, Rank(root))),
        )
    }

    /// `output` becomes this rank's part of `root`'s `input`.
    ///
    /// # Errors
    /// If there is no such root, or its `input` is not as long as all; COMM-2.
    pub fn scatter<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
        root: u32,
    ) -> Result<()> {
        self.check_root("scatter", root)?;
        let (input, output) = (input.input(), output.output());
        if self.rank() == root {
            self.same("scatter", input.len(), self.times(output.len())?)?;
        }
        let call = self.fingerprint::<T>(Operation::Scatter, output.len());
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, team, x, y| core.run(crate::scatter(core, team, x, y, Rank(root))),
        )
    }

    /// `output` becomes this rank's part of everybody's `input`, one after the other.
    ///
    /// # Errors
    /// If the two are not equally long, a multiple of the ranks; COMM-2.
    pub fn all_to_all<T: Element>(
        &self,
        input: &(impl Source<T> + ?Sized),
        output: &mut (impl Target<T> + ?Sized),
    ) -> Result<()> {
        let (input, output) = (input.input(), output.output());
        self.same("all_to_all", output.len(), input.len())?;
        if !input.len().is_multiple_of(self.size() as usize) {
            let problem = format!(
                "{} elements cannot be dealt to {} ranks equally",
                input.len(),
                self.size()
            );
            return Err(Error::arguments("all_to_all", problem));
        }
        let call = self.fingerprint::<T>(Operation::AllToAll, input.len());
        self.staged(call, input, output, |core, team, x, y| {
            core.run(crate::all_to_all(core, team, x, y))
        })
    }

    fn fingerprint<T: Element>(
        &self,
        operation: Operation,
        count: usize,
    ) -> impl Fn(u32) -> Fingerprint + use<T> {
        move |sequence| Fingerprint::new(sequence, operation, T::DTYPE, count as u64)
    }

    fn staged<T: Element>(
        &self,
        call: impl FnOnce(u32) -> Fingerprint,
        input: Input<'_, T>,
        output: Output<'_, T>,
        work: impl FnOnce(&NativeCore, Team<T>, In<T>, Out<T>) -> Done,
    ) -> Result<()> {
        let team = self.place.team::<T>()?;
        self.call(call, |core| match (input, output) {
            (Input::Own(x), Output::Own(y)) => core.lend(x, y, |x, y| work(core, team, x, y)),
            (Input::Own(x), Output::Window(y)) => {
                core.lend(x, &mut [], |x, _| work(core, team, x, y.region().into()))
            }
            (Input::Window(x), Output::Own(y)) => {
                core.lend(&[], y, |_, y| work(core, team, x.region().into(), y))
            }
            (Input::Window(x), Output::Window(y)) => work(core, team, x.region().into(), y.region().into()),
        })
    }

    fn check_root(&self, call: &'static str, root: u32) -> Result<()> {
        if root < self.size() {
            return Ok(());
        }
        Err(Error::arguments(
            call,
            format!("there is no rank {root} among {}", self.size()),
        ))
    }

    fn times(&self, len: usize) -> Result<usize> {
        len.checked_mul(self.size() as usize)
            .ok_or_else(|| Error::arguments("a collective", "more elements than can be counted"))
    }

    fn same(&self, call: &'static str, got: usize, wanted: usize) -> Result<()> {
        if got == wanted {
            return Ok(());
        }
        let problem = format!(
            "{got} elements where {wanted} are needed, with {} ranks",
            self.size()
        );
        Err(Error::arguments(call, problem))
    }
}

fn in_place<T: Element>(core: &NativeCore, data: Output<'_, T>, work: impl FnOnce(InOut<T>) -> Done) -> Done {
    match data {
        Output::Own(slice) => core.lend_mut(slice, work),
        Output::Window(buffer) => work(buffer.region().into()),
    }
}
