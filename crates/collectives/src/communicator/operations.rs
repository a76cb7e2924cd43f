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
use ringwork_isa::{Dtype, Fingerprint, In, Operation, Out, Rank, ReduceOp, Result as CoreResult, Way};
use ringwork_native::NativeCore;

impl Station {
    #[inline(never)]
    pub(super) fn all_reduce(
        &self,
        data: AnyOutput<'_>,
        op: ReduceOp,
        asked: Option<Algorithm>,
    ) -> Result<()> {
        self.check_home("all_reduce", data.home())?;
        let way = match asked {
            Some(algorithm) => algorithm.way(),
            None => self.choose(Operation::AllReduce, data.bytes(), data.in_window()),
        };
        check_average(op, way)?;
        let call = fingerprint(Operation::AllReduce, data.dtype(), data.len(), way);
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match (data, algorithm(way)) {
                (data, Some(Algorithm::Packet)) => in_place(core, data, |data| {
                    self.all_reduce_in_packets(core, data.into(), data.into(), op)
                }),
                (AnyOutput::Window(held), None) => self.all_reduce_in_window(core, held, op, way),
                (data, algorithm) => in_place(core, data, |data| {
                    let algorithm = algorithm.unwrap_or(Algorithm::TwoPhase);
                    let (x, y) = (data.into(), data.into());
                    core.run(crate::all_reduce(
                        core,
                        self.team(data.dtype()),
                        x,
                        y,
                        op,
                        algorithm,
                    ))
                }),
            },
        )
    }

    /// By its own name: at this size the choice among all would cost as much as the work.
    #[inline(always)]
    fn all_reduce_in_packets(&self, core: &NativeCore, x: In, y: Out, op: ReduceOp) -> CoreResult<()> {
        if self.size() > 1 && x.bytes() <= self.room.most_bytes() {
            return core.run(packet_chunk(core, &self.room, x, y, op));
        }
        core.run(packet(core, self.team(x.dtype()), x, y, op))
    }

    /// In a function of its own, as flat as that in packets: together each would be slower for the other.
    #[inline(never)]
    fn all_reduce_in_window(&self, core: &NativeCore, held: &Held, op: ReduceOp, way: Way) -> CoreResult<()> {
        let (meet, data) = (self.place.meet(), held.region());
        core.run(window::all_reduce(core, meet, data, op, self.spread(way)))
    }

    #[inline(never)]
    pub(super) fn all_reduce_into(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        self.check_home("all_reduce_into", input.home())?;
        self.check_home("all_reduce_into", output.home())?;
        self.check_dtypes("all_reduce_into", input.dtype(), output.dtype())?;
        self.same("all_reduce", "output", output.len(), input.len())?;
        let way = self.choose(Operation::AllReduce, input.bytes(), output.in_window());
        check_average(op, way)?;
        let call = fingerprint(Operation::AllReduce, input.dtype(), input.len(), way);
        let reducing = |sequence| call(sequence).reducing(op);
        match (output, algorithm(way)) {
            // In the window, after one copy to where it shall be.
            (AnyOutput::Window(held), None) => self.call(reducing, |core| {
                with_input(core, input, |x| core.run(copy(core, held.region(), x)))?;
                self.all_reduce_in_window(core, held, op, way)
            }),
            (output, Some(Algorithm::Packet)) => self.staged(reducing, input, output, |core, x, y| {
                self.all_reduce_into_in_packets(core, x, y, op)
            }),
            (output, algorithm) => {
                let algorithm = algorithm.unwrap_or(Algorithm::TwoPhase);
                self.staged(reducing, input, output, |core, x, y| {
                    core.run(crate::all_reduce(core, self.team(x.dtype()), x, y, op, algorithm))
                })
            }
        }
    }

    /// Once, and not for each of the places that input and output may be in.
    #[inline(never)]
    fn all_reduce_into_in_packets(&self, core: &NativeCore, x: In, y: Out, op: ReduceOp) -> CoreResult<()> {
        self.all_reduce_in_packets(core, x, y, op)
    }

    #[inline(never)]
    pub(super) fn all_gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_gather", input.home())?;
        self.check_home("all_gather", output.home())?;
        self.check_dtypes("all_gather", input.dtype(), output.dtype())?;
        let wanted = self.times("all_gather", input.len())?;
        self.same("all_gather", "output", output.len(), wanted)?;
        let way = self.choose_input(Operation::AllGather, output.bytes(), &input);
        let call = fingerprint(Operation::AllGather, output.dtype(), output.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Way::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region());
                self.call(call, |core| {
                    with_output(core, output, |y| {
                        core.run(window::all_gather_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged(call, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::all_gather(core, &self.room, x, y))
                } else {
                    core.run(crate::all_gather(core, self.team(x.dtype()), x, y))
                }
            }),
        }
    }

    #[inline(never)]
    pub(super) fn all_gather_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_gather_in_place", data.home())?;
        let way = self.choose(Operation::AllGather, data.bytes(), data.in_window());
        let call = fingerprint(Operation::AllGather, data.dtype(), data.len(), way);
        self.call(call, |core| match data {
            AnyOutput::Window(held) if way.needs_window() => {
                core.run(window::all_gather(core, self.place.meet(), held.region()))
            }
            data => in_place(core, data, |data| {
                let mine = data.part(self.size() as usize, self.place.me.0 as usize)?.into();
                if way == Way::Packet {
                    core.run(packets::all_gather(core, &self.room, mine, data.into()))
                } else {
                    core.run(crate::all_gather(
                        core,
                        self.team(data.dtype()),
                        mine,
                        data.into(),
                    ))
                }
            }),
        })
    }

    #[inline(never)]
    pub(super) fn reduce_scatter(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        self.check_home("reduce_scatter", input.home())?;
        self.check_home("reduce_scatter", output.home())?;
        self.check_dtypes("reduce_scatter", input.dtype(), output.dtype())?;
        let wanted = self.times("reduce_scatter", output.len())?;
        self.same("reduce_scatter", "input", input.len(), wanted)?;
        let in_window = input.in_window();
        let way = self.choose(Operation::ReduceScatter, input.bytes(), in_window);
        let call = fingerprint(Operation::ReduceScatter, input.dtype(), input.len(), way);
        let reducing = |sequence| call(sequence).reducing(op);
        match input {
            AnyInput::Window(held) if way.needs_window() => {
                let (meet, data) = (self.place.meet(), held.region());
                self.call(reducing, |core| {
                    with_output(core, output, |y| {
                        core.run(window::reduce_scatter(core, meet, data, y, op))
                    })
                })
            }
            input => self.staged(reducing, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::reduce_scatter(core, &self.room, x, y, op))
                } else {
                    core.run(crate::reduce_scatter(core, self.team(x.dtype()), x, y, op))
                }
            }),
        }
    }

    #[inline(never)]
    pub(super) fn reduce_scatter_in_place(&self, data: AnyOutput<'_>, op: ReduceOp) -> Result<()> {
        self.check_home("reduce_scatter_in_place", data.home())?;
        let way = self.choose(Operation::ReduceScatter, data.bytes(), data.in_window());
        let call = fingerprint(Operation::ReduceScatter, data.dtype(), data.len(), way);
        let (ranks, me) = (self.size() as usize, self.place.me.0 as usize);
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match data {
                AnyOutput::Window(held) if way.needs_window() => {
                    let data = held.region();
                    let mine = data.part(ranks, me)?.into();
                    core.run(window::reduce_scatter(core, self.place.meet(), data, mine, op))
                }
                data => in_place(core, data, |data| {
                    let mine = data.part(ranks, me)?.into();
                    if way == Way::Packet {
                        core.run(packets::reduce_scatter(core, &self.room, data.into(), mine, op))
                    } else {
                        core.run(crate::reduce_scatter(
                            core,
                            self.team(data.dtype()),
                            data.into(),
                            mine,
                            op,
                        ))
                    }
                }),
            },
        )
    }

    #[inline(never)]
    pub(super) fn broadcast(&self, data: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("broadcast", data.home())?;
        self.check_rank("broadcast", root)?;
        let way = self.choose(Operation::Broadcast, data.bytes(), data.in_window());
        let call = fingerprint(Operation::Broadcast, data.dtype(), data.len(), way);
        self.call(
            |sequence| call(sequence).rooted(root),
            |core| match data {
                AnyOutput::Window(held) if way.needs_window() => {
                    let data = held.region();
                    core.run(window::broadcast(core, self.place.meet(), data, Rank(root)))
                }
                data => in_place(core, data, |data| {
                    let (x, y, root) = (data.into(), data.into(), Rank(root));
                    if way != Way::Packet {
                        core.run(crate::broadcast(core, self.team(data.dtype()), x, y, root))
                    } else if self.size() == 1 || data.bytes() > self.ring.most_bytes() {
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
    pub(super) fn reduce(&self, data: AnyOutput<'_>, op: ReduceOp, root: u32) -> Result<()> {
        self.check_home("reduce", data.home())?;
        self.check_rank("reduce", root)?;
        let call = fingerprint(Operation::Reduce, data.dtype(), data.len(), None);
        self.call(
            |sequence| call(sequence).reducing(op).rooted(root),
            |core| {
                in_place(core, data, |data| {
                    let (x, y) = (data.into(), data.into());
                    core.run(crate::reduce(core, self.team(data.dtype()), x, y, op, Rank(root)))
                })
            },
        )
    }

    #[inline(never)]
    pub(super) fn gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("gather", input.home())?;
        self.check_home("gather", output.home())?;
        self.check_dtypes("gather", input.dtype(), output.dtype())?;
        self.check_rank("gather", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("gather", input.len())?;
            self.same("gather", "output", output.len(), wanted)?;
        }
        let call = fingerprint(Operation::Gather, input.dtype(), input.len(), None);
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| core.run(crate::gather(core, self.team(x.dtype()), x, y, Rank(root))),
        )
    }

    #[inline(never)]
    pub(super) fn scatter(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("scatter", input.home())?;
        self.check_home("scatter", output.home())?;
        self.check_dtypes("scatter", input.dtype(), output.dtype())?;
        self.check_rank("scatter", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("scatter", output.len())?;
            self.same("scatter", "input", input.len(), wanted)?;
        }
        let call = fingerprint(Operation::Scatter, output.dtype(), output.len(), None);
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| core.run(crate::scatter(core, self.team(x.dtype()), x, y, Rank(root))),
        )
    }

    #[inline(never)]
    pub(super) fn all_to_all_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_to_all_in_place", data.home())?;
        self.check_dealing(data.len())?;
        let way = self.choose(Operation::AllToAll, data.bytes(), false);
        let call = fingerprint(Operation::AllToAll, data.dtype(), data.len(), way);
        self.call(call, |core| {
            in_place(core, data, |data| {
                let (x, y) = (data.into(), data.into());
                if way == Way::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(crate::all_to_all(core, self.team(x.dtype()), x, y))
                }
            })
        })
    }

    #[inline(never)]
    pub(super) fn all_to_all(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_to_all", input.home())?;
        self.check_home("all_to_all", output.home())?;
        self.check_dtypes("all_to_all", input.dtype(), output.dtype())?;
        self.same("all_to_all", "output", output.len(), input.len())?;
        self.check_dealing(input.len())?;
        let way = self.choose_input(Operation::AllToAll, input.bytes(), &input);
        let call = fingerprint(Operation::AllToAll, input.dtype(), input.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Way::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region());
                self.call(call, |core| {
                    with_output(core, output, |y| {
                        core.run(window::all_to_all_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged(call, input, output, |core, x, y| {
                if way == Way::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(crate::all_to_all(core, self.team(x.dtype()), x, y))
                }
            }),
        }
    }

    /// `counts` as in [`all_to_all_v`](crate::all_to_all_v()), agreed upon by all ranks.
    #[inline(never)]
    pub(super) fn all_to_all_v(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        counts: &[usize],
    ) -> Result<()> {
        self.check_home("all_to_all_v", input.home())?;
        self.check_home("all_to_all_v", output.home())?;
        self.check_dtypes("all_to_all_v", input.dtype(), output.dtype())?;
        let total = counts
            .iter()
            .fold(0usize, |sum, count| sum.saturating_add(*count));
        let call = fingerprint(Operation::AllToAllV, input.dtype(), total, None);
        self.staged(call, input, output, |core, x, y| {
            core.run(crate::all_to_all_v(core, self.team(x.dtype()), x, y, counts))
        })
    }

    #[inline(never)]
    pub(super) fn send(&self, data: AnyInput<'_>, to: u32) -> Result<()> {
        self.check_home("send", data.home())?;
        self.check_peer("send", to)?;
        let post = self.place.post(data.dtype())?;
        self.transfer(Operation::Send, (data.dtype(), data.len()), Rank(to), |core| {
            with_input(core, data, |x| core.run(crate::send(core, post, x, Rank(to))))
        })
    }

    #[inline(never)]
    pub(super) fn recv(&self, data: AnyOutput<'_>, from: u32) -> Result<()> {
        self.check_home("recv", data.home())?;
        self.check_peer("recv", from)?;
        let post = self.place.post(data.dtype())?;
        self.transfer(Operation::Recv, (data.dtype(), data.len()), Rank(from), |core| {
            with_output(core, data, |y| core.run(crate::recv(core, post, y, Rank(from))))
        })
    }

    #[inline(never)]
    pub(super) fn exchange(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        to: u32,
        from: u32,
    ) -> Result<()> {
        self.check_home("exchange", input.home())?;
        self.check_home("exchange", output.home())?;
        self.check_dtypes("exchange", input.dtype(), output.dtype())?;
        self.check_peer("exchange", to)?;
        self.check_peer("exchange", from)?;
        let post = self.place.post(output.dtype())?;
        self.transfer(
            Operation::Recv,
            (output.dtype(), output.len()),
            Rank(from),
            |core| {
                between(core, input, output, |x, y| {
                    core.run(crate::exchange(core, post, (x, Rank(to)), (y, Rank(from))))
                })
            },
        )
    }

    fn staged(
        &self,
        call: impl FnOnce(u32) -> Fingerprint,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        work: impl FnOnce(&NativeCore, In, Out) -> CoreResult<()>,
    ) -> Result<()> {
        self.call(call, |core| between(core, input, output, |x, y| work(core, x, y)))
    }

    fn team(&self, dtype: Dtype) -> Team {
        self.place.team(dtype)
    }

    fn choose(&self, operation: Operation, bytes: usize, in_window: bool) -> Way {
        self.chooser.choose(operation, bytes as u64, in_window)
    }

    fn spread(&self, way: Way) -> Spread {
        if way == Way::WindowPush {
            Spread::Push(self.chooser.cores())
        } else {
            Spread::Pull
        }
    }

    /// As [`choose`](Self::choose), for what can be pulled from an input in the window.
    fn choose_input(&self, operation: Operation, bytes: usize, input: &AnyInput<'_>) -> Way {
        match self.choose(operation, bytes, input.in_window()) {
            Way::WindowPull => Way::WindowInput,
            way => way,
        }
    }
}

/// What all ranks must agree on; `way` if there is a choice.
fn fingerprint(
    operation: Operation,
    dtype: Dtype,
    count: usize,
    way: impl Into<Option<Way>>,
) -> impl Fn(u32) -> Fingerprint {
    let way = way.into();
    move |sequence| {
        let call = Fingerprint::new(sequence, operation, dtype, count as u64);
        way.map_or(call, |way| call.by(way))
    }
}
