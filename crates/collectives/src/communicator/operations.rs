//! What each call of a communicator does, for elements of one type: checks, fingerprint, algorithm.

use super::buffer::Held;
use super::checks::check_average;
use super::erased::{AnyInput, AnyOutput};
use super::error::Result;
use super::lending::{between, copy, in_place, with_input, with_output};
use super::station::Station;
use super::table::algorithm;
use crate::all_reduce::{packet, packet_chunk};
use crate::window::{self, Spread};
use crate::{Algorithm, Team, packets};
use ringwork_isa::{Element, Fingerprint, In, Operation, Out, Rank, ReduceOp, Result as CoreResult, Way};
use ringwork_native::NativeCore;

impl Station {
    #[inline(never)]
    pub(super) fn all_reduce_of<T: Element>(
        &self,
        data: AnyOutput<'_>,
        op: ReduceOp,
        asked: Option<Algorithm>,
    ) -> Result<()> {
        let way = match asked {
            Some(algorithm) => algorithm.way(),
            None => self.choose::<T>(Operation::AllReduce, data.len(), data.in_window()),
        };
        check_average(op, way)?;
        let call = fingerprint::<T>(Operation::AllReduce, data.len(), way);
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match (data, algorithm(way)) {
                (data, Some(Algorithm::Packet)) => in_place::<T>(core, data, |data| {
                    self.all_reduce_in_packets(core, data.into(), data.into(), op)
                }),
                (AnyOutput::Window(held), None) => self.all_reduce_in_window::<T>(core, held, op, way),
                (data, algorithm) => in_place::<T>(core, data, |data| {
                    let algorithm = algorithm.unwrap_or(Algorithm::TwoPhase);
                    let (x, y) = (data.into(), data.into());
                    core.run(crate::all_reduce(core, self.team(), x, y, op, algorithm))
                }),
            },
        )
    }

    /// By its own name: at this size the choice among all would cost as much as the work.
    #[inline(always)]
    fn all_reduce_in_packets<T: Element>(
        &self,
        core: &NativeCore,
        x: In<T>,
        y: Out<T>,
        op: ReduceOp,
    ) -> CoreResult<()> {
        if self.size() > 1 && x.len() * T::DTYPE.bytes() <= self.room.most_bytes() {
            return core.run(packet_chunk(core, &self.room, x, y, op));
        }
        core.run(packet(core, self.team(), x, y, op))
    }

    /// In a function of its own, as flat as that in packets: together each would be slower for the other.
    #[inline(never)]
    fn all_reduce_in_window<T: Element>(
        &self,
        core: &NativeCore,
        held: &Held,
        op: ReduceOp,
        way: Way,
    ) -> CoreResult<()> {
        let (meet, data) = (self.place.meet(), held.region::<T>());
        core.run(window::all_reduce(core, meet, data, op, self.spread(way)))
    }

    #[inline(never)]
    pub(super) fn all_reduce_into_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        self.same("all_reduce", "output", output.len(), input.len())?;
        let way = self.choose::<T>(Operation::AllReduce, input.len(), output.in_window());
        check_average(op, way)?;
        let call = fingerprint::<T>(Operation::AllReduce, input.len(), way);
        let reducing = |sequence| call(sequence).reducing(op);
        match (output, algorithm(way)) {
            // In the window, after one copy to where it shall be.
            (AnyOutput::Window(held), None) => self.call(reducing, |core| {
                with_input::<T>(core, input, |x| core.run(copy(core, held.region::<T>(), x)))?;
                self.all_reduce_in_window::<T>(core, held, op, way)
            }),
            (output, Some(Algorithm::Packet)) => self.staged::<T>(reducing, input, output, |core, x, y| {
                self.all_reduce_into_in_packets(core, x, y, op)
            }),
            (output, algorithm) => {
                let algorithm = algorithm.unwrap_or(Algorithm::TwoPhase);
                self.staged::<T>(reducing, input, output, |core, x, y| {
                    core.run(crate::all_reduce(core, self.team(), x, y, op, algorithm))
                })
            }
        }
    }

    /// Once, and not for each of the places that input and output may be in.
    #[inline(never)]
    fn all_reduce_into_in_packets<T: Element>(
        &self,
        core: &NativeCore,
        x: In<T>,
        y: Out<T>,
        op: ReduceOp,
    ) -> CoreResult<()> {
        self.all_reduce_in_packets(core, x, y, op)
    }

    #[inline(never)]
    pub(super) fn all_gather_of<T: Element>(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        let wanted = self.times("all_gather", input.len())?;
        self.same("all_gather", "output", output.len(), wanted)?;
        let way = self.choose_input::<T>(Operation::AllGather, output.len(), &input);
        let call = fingerprint::<T>(Operation::AllGather, output.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Way::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region::<T>());
                self.call(call, |core| {
                    with_output::<T>(core, output, |y| {
                        core.run(window::all_gather_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged::<T>(call, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::all_gather(core, &self.room, x, y))
                } else {
                    core.run(crate::all_gather(core, self.team(), x, y))
                }
            }),
        }
    }

    #[inline(never)]
    pub(super) fn all_gather_in_place_of<T: Element>(&self, data: AnyOutput<'_>) -> Result<()> {
        let way = self.choose::<T>(Operation::AllGather, data.len(), data.in_window());
        let call = fingerprint::<T>(Operation::AllGather, data.len(), way);
        self.call(call, |core| match data {
            AnyOutput::Window(held) if way.needs_window() => {
                core.run(window::all_gather(core, self.place.meet(), held.region::<T>()))
            }
            data => in_place::<T>(core, data, |data| {
                let mine = data.part(self.size() as usize, self.place.me.0 as usize)?.into();
                if way == Way::Packet {
                    core.run(packets::all_gather(core, &self.room, mine, data.into()))
                } else {
                    core.run(crate::all_gather(core, self.team(), mine, data.into()))
                }
            }),
        })
    }

    #[inline(never)]
    pub(super) fn reduce_scatter_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        let wanted = self.times("reduce_scatter", output.len())?;
        self.same("reduce_scatter", "input", input.len(), wanted)?;
        let in_window = input.in_window();
        let way = self.choose::<T>(Operation::ReduceScatter, input.len(), in_window);
        let call = fingerprint::<T>(Operation::ReduceScatter, input.len(), way);
        let reducing = |sequence| call(sequence).reducing(op);
        match input {
            AnyInput::Window(held) if way.needs_window() => {
                let (meet, data) = (self.place.meet(), held.region::<T>());
                self.call(reducing, |core| {
                    with_output::<T>(core, output, |y| {
                        core.run(window::reduce_scatter(core, meet, data, y, op))
                    })
                })
            }
            input => self.staged::<T>(reducing, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::reduce_scatter(core, &self.room, x, y, op))
                } else {
                    core.run(crate::reduce_scatter(core, self.team(), x, y, op))
                }
            }),
        }
    }

    #[inline(never)]
    pub(super) fn reduce_scatter_in_place_of<T: Element>(
        &self,
        data: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        let way = self.choose::<T>(Operation::ReduceScatter, data.len(), data.in_window());
        let call = fingerprint::<T>(Operation::ReduceScatter, data.len(), way);
        let (ranks, me) = (self.size() as usize, self.place.me.0 as usize);
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match data {
                AnyOutput::Window(held) if way.needs_window() => {
                    let data = held.region::<T>();
                    let mine = data.part(ranks, me)?.into();
                    core.run(window::reduce_scatter(core, self.place.meet(), data, mine, op))
                }
                data => in_place::<T>(core, data, |data| {
                    let mine = data.part(ranks, me)?.into();
                    if way == Way::Packet {
                        core.run(packets::reduce_scatter(core, &self.room, data.into(), mine, op))
                    } else {
                        core.run(crate::reduce_scatter(core, self.team(), data.into(), mine, op))
                    }
                }),
            },
        )
    }

    #[inline(never)]
    pub(super) fn broadcast_of<T: Element>(&self, data: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_rank("broadcast", root)?;
        let way = self.choose::<T>(Operation::Broadcast, data.len(), data.in_window());
        let call = fingerprint::<T>(Operation::Broadcast, data.len(), way);
        self.call(
            |sequence| call(sequence).rooted(root),
            |core| match data {
                AnyOutput::Window(held) if way.needs_window() => {
                    let data = held.region::<T>();
                    core.run(window::broadcast(core, self.place.meet(), data, Rank(root)))
                }
                data => in_place::<T>(core, data, |data| {
                    let (x, y, root) = (data.into(), data.into(), Rank(root));
                    if way != Way::Packet {
                        core.run(crate::broadcast(core, self.team(), x, y, root))
                    } else if self.size() == 1 || data.len() * T::DTYPE.bytes() > self.ring.most_bytes() {
                        core.run(packets::broadcast(core, &self.ring, x, y, root))
                    } else if self.place.me == root {
                        core.run(packets::give(core, &self.ring, x))
                    } else {
                        core.run(packets::take(core, &self.ring, y, root))
                    }
                }),
            },
        )
    }

    #[inline(never)]
    pub(super) fn reduce_of<T: Element>(&self, data: AnyOutput<'_>, op: ReduceOp, root: u32) -> Result<()> {
        self.check_rank("reduce", root)?;
        let call = fingerprint::<T>(Operation::Reduce, data.len(), None);
        self.call(
            |sequence| call(sequence).reducing(op).rooted(root),
            |core| {
                in_place::<T>(core, data, |data| {
                    let (x, y) = (data.into(), data.into());
                    core.run(crate::reduce(core, self.team(), x, y, op, Rank(root)))
                })
            },
        )
    }

    #[inline(never)]
    pub(super) fn gather_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        root: u32,
    ) -> Result<()> {
        self.check_rank("gather", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("gather", input.len())?;
            self.same("gather", "output", output.len(), wanted)?;
        }
        let call = fingerprint::<T>(Operation::Gather, input.len(), None);
        self.staged::<T>(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| core.run(crate::gather(core, self.team(), x, y, Rank(root))),
        )
    }

    #[inline(never)]
    pub(super) fn scatter_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        root: u32,
    ) -> Result<()> {
        self.check_rank("scatter", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("scatter", output.len())?;
            self.same("scatter", "input", input.len(), wanted)?;
        }
        let call = fingerprint::<T>(Operation::Scatter, output.len(), None);
        self.staged::<T>(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| core.run(crate::scatter(core, self.team(), x, y, Rank(root))),
        )
    }

    #[inline(never)]
    pub(super) fn all_to_all_in_place_of<T: Element>(&self, data: AnyOutput<'_>) -> Result<()> {
        self.check_dealing(data.len())?;
        let way = self.choose::<T>(Operation::AllToAll, data.len(), false);
        let call = fingerprint::<T>(Operation::AllToAll, data.len(), way);
        self.call(call, |core| {
            in_place::<T>(core, data, |data| {
                let (x, y) = (data.into(), data.into());
                if way == Way::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(crate::all_to_all(core, self.team(), x, y))
                }
            })
        })
    }

    #[inline(never)]
    pub(super) fn all_to_all_of<T: Element>(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.same("all_to_all", "output", output.len(), input.len())?;
        self.check_dealing(input.len())?;
        let way = self.choose_input::<T>(Operation::AllToAll, input.len(), &input);
        let call = fingerprint::<T>(Operation::AllToAll, input.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Way::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region::<T>());
                self.call(call, |core| {
                    with_output::<T>(core, output, |y| {
                        core.run(window::all_to_all_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged::<T>(call, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(crate::all_to_all(core, self.team(), x, y))
                }
            }),
        }
    }

    /// `counts` as in [`all_to_all_v`](crate::all_to_all_v()), agreed upon by all ranks.
    #[inline(never)]
    pub(super) fn all_to_all_v_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        counts: &[usize],
    ) -> Result<()> {
        let total = counts
            .iter()
            .fold(0usize, |sum, count| sum.saturating_add(*count));
        let call = fingerprint::<T>(Operation::AllToAllV, total, None);
        self.staged::<T>(call, input, output, |core, x, y| {
            core.run(crate::all_to_all_v(core, self.team(), x, y, counts))
        })
    }

    #[inline(never)]
    pub(super) fn send_of<T: Element>(&self, data: AnyInput<'_>, to: u32) -> Result<()> {
        self.check_peer("send", to)?;
        let post = self.place.post::<T>()?;
        self.transfer::<T>(Operation::Send, data.len(), Rank(to), |core| {
            with_input::<T>(core, data, |x| core.run(crate::send(core, post, x, Rank(to))))
        })
    }

    #[inline(never)]
    pub(super) fn recv_of<T: Element>(&self, data: AnyOutput<'_>, from: u32) -> Result<()> {
        self.check_peer("recv", from)?;
        let post = self.place.post::<T>()?;
        self.transfer::<T>(Operation::Recv, data.len(), Rank(from), |core| {
            with_output::<T>(core, data, |y| core.run(crate::recv(core, post, y, Rank(from))))
        })
    }

    #[inline(never)]
    pub(super) fn exchange_of<T: Element>(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        to: u32,
        from: u32,
    ) -> Result<()> {
        self.check_peer("exchange", to)?;
        self.check_peer("exchange", from)?;
        let post = self.place.post::<T>()?;
        self.transfer::<T>(Operation::Recv, output.len(), Rank(from), |core| {
            between::<T>(core, input, output, |x, y| {
                core.run(crate::exchange(core, post, (x, Rank(to)), (y, Rank(from))))
            })
        })
    }

    fn staged<T: Element>(
        &self,
        call: impl FnOnce(u32) -> Fingerprint,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        work: impl FnOnce(&NativeCore, In<T>, Out<T>) -> CoreResult<()>,
    ) -> Result<()> {
        self.call(call, |core| {
            between::<T>(core, input, output, |x, y| work(core, x, y))
        })
    }

    fn team<T: Element>(&self) -> Team<T> {
        self.place.team()
    }

    fn choose<T: Element>(&self, operation: Operation, count: usize, in_window: bool) -> Way {
        let bytes = (count as u64).saturating_mul(T::DTYPE.bytes() as u64);
        self.chooser.choose(operation, bytes, in_window)
    }

    fn spread(&self, way: Way) -> Spread {
        if way == Way::WindowPush {
            Spread::Push(self.chooser.cores())
        } else {
            Spread::Pull
        }
    }

    /// As [`choose`](Self::choose), for what can be pulled from an input in the window.
    fn choose_input<T: Element>(&self, operation: Operation, count: usize, input: &AnyInput<'_>) -> Way {
        match self.choose::<T>(operation, count, input.in_window()) {
            Way::WindowPull => Way::WindowInput,
            way => way,
        }
    }
}

/// What all ranks must agree on; `way` if there is a choice.
fn fingerprint<T: Element>(
    operation: Operation,
    count: usize,
    way: impl Into<Option<Way>>,
) -> impl Fn(u32) -> Fingerprint {
    let way = way.into();
    move |sequence| {
        let call = Fingerprint::new(sequence, operation, T::DTYPE, count as u64);
        way.map_or(call, |way| call.by(way))
    }
}
