//! What each call of a communicator does, for elements of one type: checks, fingerprint, algorithm.

use crate::buffer::Held;
use crate::checks::check_op;
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use crate::lending::{between, copy, in_place, with_input, with_output};
use crate::station::Station;
use crate::usable::named;
use ringwork_collectives::all_reduce::{packet, packet_chunk};
use ringwork_collectives::catalogue::{self, Resources};
use ringwork_collectives::window::{self, Spread};
use ringwork_collectives::{Team, packets};
use ringwork_isa::{
    Algorithm, Collective, Dtype, Fingerprint, In, Operation, Out, Rank, ReduceOp, Result as CoreResult,
};
use ringwork_native::NativeCore;

impl Station {
    #[inline(never)]
    pub(crate) fn all_reduce(
        &self,
        data: AnyOutput<'_>,
        op: ReduceOp,
        asked: Option<Algorithm>,
    ) -> Result<()> {
        self.check_home("all_reduce", data.home())?;
        let way = match asked {
            Some(asked) => named(Collective::AllReduce, asked.name())
                .map_err(|problem| Error::arguments("all_reduce_with", problem))?,
            None => self.choose(Collective::AllReduce, data.bytes(), data.in_window()),
        };
        check_op("all_reduce", op, data.dtype(), way)?;
        let call = fingerprint(Collective::AllReduce, data.dtype(), data.len(), way);
        self.call(
            |sequence| call(sequence).reducing(op),
            |core| match data {
                data if way == Algorithm::Packet => in_place(core, data, |data| {
                    self.all_reduce_in_packets(core, data.into(), data.into(), op)
                }),
                AnyOutput::Window(held) if way.needs_window() => {
                    self.all_reduce_in_window(core, held, op, way)
                }
                data => in_place(core, data, |data| {
                    let (x, y) = (data.into(), data.into());
                    self.all_reduce_staged(core, x, y, op, way)
                }),
            },
        )
    }

    /// All-reduce through the scratch. Runs in two phases if the requested algorithm is for data in the window.
    fn all_reduce_staged(
        &self,
        core: &NativeCore,
        x: In,
        y: Out,
        op: ReduceOp,
        way: Algorithm,
    ) -> CoreResult<()> {
        let way = if way.needs_window() {
            Algorithm::TwoPhase
        } else {
            way
        };
        core.run(ringwork_collectives::all_reduce(
            core,
            self.team(x.dtype()),
            x,
            y,
            op,
            way,
        ))
    }

    /// Called directly: the `match` over algorithms costs as much as a 4-byte all-reduce.
    #[inline(always)]
    fn all_reduce_in_packets(&self, core: &NativeCore, x: In, y: Out, op: ReduceOp) -> CoreResult<()> {
        if self.size() > 1 && x.bytes() <= self.room.most_bytes() {
            return core.run(packet_chunk(core, &self.room, x, y, op));
        }
        core.run(packet(core, self.team(x.dtype()), x, y, op))
    }

    /// A separate function, flat like the one for packets: in one function, the two would slow each other down.
    #[inline(never)]
    fn all_reduce_in_window(
        &self,
        core: &NativeCore,
        held: &Held,
        op: ReduceOp,
        way: Algorithm,
    ) -> CoreResult<()> {
        let (meet, data) = (self.place.meet(), held.region());
        core.run(window::all_reduce(core, meet, data, op, self.spread(way)))
    }

    #[inline(never)]
    pub(crate) fn all_reduce_into(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        self.check_home("all_reduce_into", input.home())?;
        self.check_home("all_reduce_into", output.home())?;
        self.check_dtypes("all_reduce_into", input.dtype(), output.dtype())?;
        self.same("all_reduce", "output", output.len(), input.len())?;
        let way = self.choose(Collective::AllReduce, input.bytes(), output.in_window());
        check_op("all_reduce_into", op, input.dtype(), way)?;
        let call = fingerprint(Collective::AllReduce, input.dtype(), input.len(), way);
        let reducing = |sequence| call(sequence).reducing(op);
        match output {
            output if way == Algorithm::Packet => self.staged(reducing, input, output, |core, x, y| {
                self.all_reduce_into_in_packets(core, x, y, op)
            }),
            // Runs in the window, after one copy of the input to the place of the output.
            AnyOutput::Window(held) if way.needs_window() => self.call(reducing, |core| {
                with_input(core, input, |x| core.run(copy(core, held.region(), x)))?;
                self.all_reduce_in_window(core, held, op, way)
            }),
            output => self.staged(reducing, input, output, |core, x, y| {
                self.all_reduce_staged(core, x, y, op, way)
            }),
        }
    }

    /// Compiled once, and not for each combination of places of input and output.
    #[inline(never)]
    fn all_reduce_into_in_packets(&self, core: &NativeCore, x: In, y: Out, op: ReduceOp) -> CoreResult<()> {
        self.all_reduce_in_packets(core, x, y, op)
    }

    #[inline(never)]
    pub(crate) fn all_gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_gather", input.home())?;
        self.check_home("all_gather", output.home())?;
        self.check_dtypes("all_gather", input.dtype(), output.dtype())?;
        let wanted = self.times("all_gather", input.len())?;
        self.same("all_gather", "output", output.len(), wanted)?;
        let way = self.choose_input(Collective::AllGather, output.bytes(), &input);
        let call = fingerprint(Collective::AllGather, output.dtype(), output.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Algorithm::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region());
                self.call(call, |core| {
                    with_output(core, output, |y| {
                        core.run(window::all_gather_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged(call, input, output, |core, x, y| {
                if way == Algorithm::Packet {
                    core.run(packets::all_gather(core, &self.room, x, y))
                } else {
                    core.run(ringwork_collectives::all_gather(core, self.team(x.dtype()), x, y))
                }
            }),
        }
    }

    #[inline(never)]
    pub(crate) fn all_gather_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_gather_in_place", data.home())?;
        let way = self.choose(Collective::AllGather, data.bytes(), data.in_window());
        let call = fingerprint(Collective::AllGather, data.dtype(), data.len(), way);
        self.call(call, |core| match data {
            AnyOutput::Window(held) if way.needs_window() => {
                core.run(window::all_gather(core, self.place.meet(), held.region()))
            }
            data => in_place(core, data, |data| {
                let mine = data.part(self.size() as usize, self.place.me.0 as usize)?.into();
                if way == Algorithm::Packet {
                    core.run(packets::all_gather(core, &self.room, mine, data.into()))
                } else {
                    core.run(ringwork_collectives::all_gather(
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
    pub(crate) fn reduce_scatter(
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
        let way = self.choose(Collective::ReduceScatter, input.bytes(), in_window);
        check_op("reduce_scatter", op, input.dtype(), way)?;
        let call = fingerprint(Collective::ReduceScatter, input.dtype(), input.len(), way);
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
                if way == Algorithm::Packet {
                    core.run(packets::reduce_scatter(core, &self.room, x, y, op))
                } else {
                    core.run(ringwork_collectives::reduce_scatter(
                        core,
                        self.team(x.dtype()),
                        x,
                        y,
                        op,
                    ))
                }
            }),
        }
    }

    #[inline(never)]
    pub(crate) fn reduce_scatter_in_place(&self, data: AnyOutput<'_>, op: ReduceOp) -> Result<()> {
        self.check_home("reduce_scatter_in_place", data.home())?;
        let way = self.choose(Collective::ReduceScatter, data.bytes(), data.in_window());
        check_op("reduce_scatter_in_place", op, data.dtype(), way)?;
        let call = fingerprint(Collective::ReduceScatter, data.dtype(), data.len(), way);
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
                    if way == Algorithm::Packet {
                        core.run(packets::reduce_scatter(core, &self.room, data.into(), mine, op))
                    } else {
                        core.run(ringwork_collectives::reduce_scatter(
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
    pub(crate) fn broadcast(&self, data: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("broadcast", data.home())?;
        self.check_rank("broadcast", root)?;
        let way = self.choose(Collective::Broadcast, data.bytes(), data.in_window());
        let call = fingerprint(Collective::Broadcast, data.dtype(), data.len(), way);
        self.call(
            |sequence| call(sequence).rooted(root),
            |core| match data {
                AnyOutput::Window(held) if way.needs_window() => {
                    let data = held.region();
                    core.run(window::broadcast(core, self.place.meet(), data, Rank(root)))
                }
                data => in_place(core, data, |data| {
                    let (x, y, root) = (data.into(), data.into(), Rank(root));
                    if way != Algorithm::Packet {
                        core.run(ringwork_collectives::broadcast(
                            core,
                            self.team(data.dtype()),
                            x,
                            y,
                            root,
                        ))
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
    pub(crate) fn gather(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("gather", input.home())?;
        self.check_home("gather", output.home())?;
        self.check_dtypes("gather", input.dtype(), output.dtype())?;
        self.check_rank("gather", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("gather", input.len())?;
            self.same("gather", "output", output.len(), wanted)?;
        }
        let call = fingerprint(Collective::Gather, input.dtype(), input.len(), None);
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| {
                core.run(ringwork_collectives::gather(
                    core,
                    self.team(x.dtype()),
                    x,
                    y,
                    Rank(root),
                ))
            },
        )
    }

    #[inline(never)]
    pub(crate) fn scatter(&self, input: AnyInput<'_>, output: AnyOutput<'_>, root: u32) -> Result<()> {
        self.check_home("scatter", input.home())?;
        self.check_home("scatter", output.home())?;
        self.check_dtypes("scatter", input.dtype(), output.dtype())?;
        self.check_rank("scatter", root)?;
        if self.place.me.0 == root {
            let wanted = self.times("scatter", output.len())?;
            self.same("scatter", "input", input.len(), wanted)?;
        }
        let call = fingerprint(Collective::Scatter, output.dtype(), output.len(), None);
        self.staged(
            |sequence| call(sequence).rooted(root),
            input,
            output,
            |core, x, y| {
                core.run(ringwork_collectives::scatter(
                    core,
                    self.team(x.dtype()),
                    x,
                    y,
                    Rank(root),
                ))
            },
        )
    }

    #[inline(never)]
    pub(crate) fn all_to_all_in_place(&self, data: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_to_all_in_place", data.home())?;
        self.check_dealing(data.len())?;
        let way = self.choose(Collective::AllToAll, data.bytes(), false);
        let call = fingerprint(Collective::AllToAll, data.dtype(), data.len(), way);
        self.call(call, |core| {
            in_place(core, data, |data| {
                let (x, y) = (data.into(), data.into());
                if way == Algorithm::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(ringwork_collectives::all_to_all(core, self.team(x.dtype()), x, y))
                }
            })
        })
    }

    #[inline(never)]
    pub(crate) fn all_to_all(&self, input: AnyInput<'_>, output: AnyOutput<'_>) -> Result<()> {
        self.check_home("all_to_all", input.home())?;
        self.check_home("all_to_all", output.home())?;
        self.check_dtypes("all_to_all", input.dtype(), output.dtype())?;
        self.same("all_to_all", "output", output.len(), input.len())?;
        self.check_dealing(input.len())?;
        let way = self.choose_input(Collective::AllToAll, input.bytes(), &input);
        let call = fingerprint(Collective::AllToAll, input.dtype(), input.len(), way);
        match (input, way) {
            (AnyInput::Window(held), Algorithm::WindowInput) => {
                let (meet, x) = (self.place.meet(), held.region());
                self.call(call, |core| {
                    with_output(core, output, |y| {
                        core.run(window::all_to_all_into(core, meet, x, y))
                    })
                })
            }
            (input, way) => self.staged(call, input, output, |core, x, y| {
                if way == Algorithm::Packet {
                    core.run(packets::all_to_all(core, &self.room, x, y))
                } else {
                    core.run(ringwork_collectives::all_to_all(core, self.team(x.dtype()), x, y))
                }
            }),
        }
    }

    /// A collective without a method of its own: runs its entry of the catalogue, from `input` or in place.
    #[inline(never)]
    pub(crate) fn collective(
        &self,
        collective: Collective,
        input: Option<AnyInput<'_>>,
        output: AnyOutput<'_>,
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        let name = collective.name();
        self.check_home(name, output.home())?;
        let len = output.len();
        if let Some(input) = &input {
            self.check_home(name, input.home())?;
            self.check_dtypes(name, input.dtype(), output.dtype())?;
            self.same(name, "output", len, input.len())?;
        }
        if collective.has_root() {
            self.check_rank(name, root)?;
        }
        let way = self.choose(collective, output.bytes(), false);
        let entry = catalogue::find(collective, way).filter(|_| !collective.has_parts());
        let entry =
            entry.ok_or_else(|| Error::arguments(name, "this collective has a call of its own; use that"))?;
        entry
            .reduces_by(op, output.dtype())
            .map_err(|problem| Error::arguments(name, problem))?;
        let call = fingerprint(collective, output.dtype(), len, None);
        let described = |sequence| {
            let call = if collective.reduces() {
                call(sequence).reducing(op)
            } else {
                call(sequence)
            };
            if collective.has_root() {
                call.rooted(root)
            } else {
                call
            }
        };
        let work = |core: &NativeCore, x: In, y: Out| {
            let team = Resources::Team(self.team(x.dtype()));
            let (root, workers, grid) = (Rank(root), self.chooser.cores(), &[][..]);
            let call = catalogue::Call {
                x,
                y,
                op,
                root,
                workers,
                grid,
                by_side: &[],
            };
            core.run(catalogue::run(core, entry, team, call))
        };
        match input {
            Some(input) => self.staged(described, input, output, work),
            None => self.call(described, |core| {
                in_place(core, output, |data| work(core, data.into(), data.into()))
            }),
        }
    }

    /// `counts` as in [`all_to_all_v`](ringwork_collectives::all_to_all_v()), agreed upon by all ranks.
    #[inline(never)]
    pub(crate) fn all_to_all_v(
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
            core.run(ringwork_collectives::all_to_all_v(
                core,
                self.team(x.dtype()),
                x,
                y,
                counts,
            ))
        })
    }

    #[inline(never)]
    pub(crate) fn send(&self, data: AnyInput<'_>, to: u32) -> Result<()> {
        self.check_home("send", data.home())?;
        self.check_peer("send", to)?;
        let post = self.place.post(data.dtype())?;
        self.transfer(Operation::Send, (data.dtype(), data.len()), Rank(to), |core| {
            with_input(core, data, |x| {
                core.run(ringwork_collectives::send(core, post, x, Rank(to)))
            })
        })
    }

    #[inline(never)]
    pub(crate) fn recv(&self, data: AnyOutput<'_>, from: u32) -> Result<()> {
        self.check_home("recv", data.home())?;
        self.check_peer("recv", from)?;
        let post = self.place.post(data.dtype())?;
        self.transfer(Operation::Recv, (data.dtype(), data.len()), Rank(from), |core| {
            with_output(core, data, |y| {
                core.run(ringwork_collectives::recv(core, post, y, Rank(from)))
            })
        })
    }

    #[inline(never)]
    pub(crate) fn exchange(
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
                    core.run(ringwork_collectives::exchange(
                        core,
                        post,
                        (x, Rank(to)),
                        (y, Rank(from)),
                    ))
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

    fn choose(&self, operation: Collective, bytes: usize, in_window: bool) -> Algorithm {
        self.chooser.choose(operation, bytes as u64, in_window)
    }

    fn spread(&self, way: Algorithm) -> Spread {
        if way == Algorithm::WindowPush {
            Spread::Push(self.chooser.cores())
        } else {
            Spread::Pull
        }
    }

    /// As [`choose`](Self::choose), for collectives that can pull from an input in the window.
    fn choose_input(&self, operation: Collective, bytes: usize, input: &AnyInput<'_>) -> Algorithm {
        match self.choose(operation, bytes, input.in_window()) {
            Algorithm::WindowPull => Algorithm::WindowInput,
            way => way,
        }
    }
}

/// The fingerprint, which all ranks must agree on; with the algorithm if there was a choice.
fn fingerprint(
    operation: impl Into<Operation>,
    dtype: Dtype,
    count: usize,
    way: impl Into<Option<Algorithm>>,
) -> impl Fn(u32) -> Fingerprint {
    let (operation, way) = (operation.into(), way.into());
    move |sequence| {
        let call = Fingerprint::new(sequence, operation, dtype, count as u64);
        way.map_or(call, |way| call.by(way))
    }
}
