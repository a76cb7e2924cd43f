//! Collective calls as values: placed in a world, run on every rank, compared with the reference.

use super::reference::{expected, messy, tame};
use super::schedule::Schedule;
use super::world::World;
use ringwork_collectives::window::{self, Spread};
use ringwork_collectives::{
    Algorithm, all_gather, all_reduce, all_to_all, barrier, broadcast, exclusive_scan, gather, packets,
    reduce, reduce_scatter, scan, scatter,
};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{
    Dtype, Element, In, MAX_RANKS, Out, Rank, ReduceOp, Region, Result, Shared, Span, part_range, with_dtype,
};
use ringwork_testkit::Rng;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    AllReduce(Algorithm),
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    Scan,
    ExclusiveScan,
    Barrier,
    WindowAllReduce(Spread),
    WindowAllGather,
    WindowReduceScatter,
    WindowBroadcast,
    PulledAllGather,
    PulledAllToAll,
    PacketAllGather,
    PacketReduceScatter,
    PacketBroadcast,
    PacketAllToAll,
}

impl Op {
    pub const ALL: [Op; 26] = [
        Op::AllReduce(Algorithm::Packet),
        Op::AllReduce(Algorithm::OnePhase),
        Op::AllReduce(Algorithm::TwoPhase),
        Op::AllReduce(Algorithm::StagedRing),
        Op::AllGather,
        Op::ReduceScatter,
        Op::Broadcast,
        Op::Reduce,
        Op::Gather,
        Op::Scatter,
        Op::AllToAll,
        Op::Scan,
        Op::ExclusiveScan,
        Op::Barrier,
        Op::WindowAllReduce(Spread::Pull),
        Op::WindowAllReduce(Spread::Push(MAX_RANKS)),
        Op::WindowAllReduce(Spread::Push(2)),
        Op::WindowAllGather,
        Op::WindowReduceScatter,
        Op::WindowBroadcast,
        Op::PulledAllGather,
        Op::PulledAllToAll,
        Op::PacketAllGather,
        Op::PacketReduceScatter,
        Op::PacketBroadcast,
        Op::PacketAllToAll,
    ];

    pub fn reduces(self) -> bool {
        matches!(
            self,
            Op::AllReduce(_)
                | Op::ReduceScatter
                | Op::Reduce
                | Op::WindowAllReduce(_)
                | Op::WindowReduceScatter
                | Op::PacketReduceScatter
                | Op::Scan
                | Op::ExclusiveScan
        )
    }

    /// Whether there is such a call: rings and scans do not average.
    pub fn can(self, reduce: ReduceOp) -> bool {
        reduce != ReduceOp::Avg || (self.is_exact() && !matches!(self, Op::Scan | Op::ExclusiveScan))
    }

    fn is_exact(self) -> bool {
        !matches!(self, Op::AllReduce(algorithm) if !algorithm.is_exact())
    }
}

#[derive(Clone, Debug)]
pub struct Call {
    pub op: Op,
    pub dtype: Dtype,
    pub reduce: ReduceOp,
    pub count: usize,
    pub root: usize,
    pub in_place: bool,
}

/// A call with its memory: every rank's handles, and what must be in them in the end.
#[derive(Debug)]
pub struct Placed {
    pub call: Call,
    pub x: Vec<Span>,
    pub y: Vec<Span>,
    x_after: Vec<Option<Vec<u8>>>,
    y_after: Vec<Vec<u8>>,
}

fn piece(span: Span, range: std::ops::Range<usize>) -> Span {
    assert!(range.end as u64 <= span.len);
    Span {
        start: span.start + range.start as u64,
        len: range.len() as u64,
        ..span
    }
}

impl Call {
    /// Elements of `x` and `y` on a rank.
    fn lengths(&self, ranks: usize, rank: usize) -> (usize, usize) {
        let n = self.count;
        let part = part_range(n, ranks, rank).len();
        let on_root = |len| if rank == self.root { len } else { 0 };
        match self.op {
            Op::AllReduce(_)
            | Op::Broadcast
            | Op::PacketBroadcast
            | Op::Reduce
            | Op::Scan
            | Op::ExclusiveScan => (n, n),
            Op::WindowAllReduce(_) | Op::WindowBroadcast => (n, n),
            Op::AllGather | Op::WindowAllGather | Op::PacketAllGather => (part, n),
            Op::ReduceScatter | Op::WindowReduceScatter | Op::PacketReduceScatter => (n, part),
            Op::PulledAllGather => (n, n * ranks),
            Op::Gather => (n, on_root(n * ranks)),
            Op::Scatter => (on_root(n * ranks), n),
            Op::AllToAll | Op::PacketAllToAll | Op::PulledAllToAll => (n, part * ranks),
            Op::Barrier => (0, 0),
        }
    }

    /// Finds memory for `x` and `y`: the same where the call is in place.
    fn memory(&self, world: &World) -> (Vec<Span>, Vec<Span>, bool) {
        let ranks = world.ranks as usize;
        let lengths: Vec<_> = (0..ranks).map(|rank| self.lengths(ranks, rank)).collect();
        let longest = |of: fn(&(usize, usize)) -> usize| lengths.iter().map(of).max().unwrap_or(0);
        let (x_max, y_max) = (longest(|l| l.0), longest(|l| l.1));
        let allocate = |len, in_window: bool| {
            if in_window {
                world.window_buffer(self.dtype, len)
            } else {
                world.private_buffer(self.dtype, len)
            }
        };
        let windowed = matches!(
            self.op,
            Op::WindowAllReduce(_)
                | Op::WindowAllGather
                | Op::WindowReduceScatter
                | Op::WindowBroadcast
                | Op::PulledAllGather
                | Op::PulledAllToAll
        );
        let pulled = matches!(self.op, Op::PulledAllGather | Op::PulledAllToAll);
        let must = windowed && self.op != Op::WindowReduceScatter && !pulled;
        let swaps = matches!(self.op, Op::AllToAll | Op::PacketAllToAll);
        let can = !pulled && (!swaps || self.count.is_multiple_of(ranks));
        if must || (self.in_place && can) {
            let both = allocate(x_max.max(y_max), windowed);
            // The smaller is the rank's own part of the larger, or all of it.
            let within = |rank: usize, len: usize, other: usize| {
                let start = match len < other {
                    true if matches!(self.op, Op::Gather | Op::Scatter) => rank * len,
                    true => part_range(other, ranks, rank).start,
                    false => 0,
                };
                piece(both[rank], start..start + len)
            };
            let x = (0..ranks)
                .map(|r| within(r, lengths[r].0, lengths[r].1))
                .collect();
            let y = (0..ranks)
                .map(|r| within(r, lengths[r].1, lengths[r].0))
                .collect();
            return (x, y, true);
        }
        let (x, y) = (allocate(x_max, windowed), allocate(y_max, false));
        let x = (0..ranks).map(|r| piece(x[r], 0..lengths[r].0)).collect();
        let y = (0..ranks).map(|r| piece(y[r], 0..lengths[r].1)).collect();
        (x, y, false)
    }

    /// Puts the call into a world, with inputs made from `seed` that suit it.
    pub fn place(&self, world: &World, seed: u64) -> Placed {
        self.place_inputs(world, seed, self.op.is_exact())
    }

    /// The same, with inputs for which rounding and order show, or with such for which they do not.
    pub fn place_inputs(&self, world: &World, seed: u64, is_messy: bool) -> Placed {
        with_dtype!(self.dtype, T => self.place_typed::<T>(world, seed, is_messy))
    }

    fn place_typed<T: Element>(&self, world: &World, seed: u64, is_messy: bool) -> Placed {
        let (x, y, same) = self.memory(world);
        let mut rng = Rng(seed);
        let inputs: Vec<Vec<T>> = (0..x.len())
            .map(|rank| {
                let element = |_| match is_messy {
                    true => messy(&mut rng, self.reduce),
                    false => tame(&mut rng, self.reduce, rank),
                };
                (0..x[rank].len).map(element).collect()
            })
            .collect();
        for (span, input) in x.iter().zip(&inputs) {
            world.machine.fill(*span, bytemuck::cast_slice(input));
        }
        let y_after = expected(self, &inputs)
            .into_iter()
            .zip(&y)
            .map(|(values, span)| match values {
                Some(values) => bytemuck::cast_slice(&values).to_vec(),
                None => world.machine.bytes(*span),
            })
            .collect();
        let x_after = x
            .iter()
            .map(|span| (!same).then(|| world.machine.bytes(*span)))
            .collect();
        Placed {
            call: self.clone(),
            x,
            y,
            x_after,
            y_after,
        }
    }
}

impl Placed {
    /// Issues the call on one rank.
    pub async fn call(&self, core: &SteppedCore, world: &World, rank: Rank) -> Result<()> {
        let (team, op) = (world.team::<u8>(rank).of(self.call.dtype), self.call.reduce);
        let root = Rank(u32::try_from(self.call.root).unwrap());
        let (x_span, y_span) = (self.x[rank.0 as usize], self.y[rank.0 as usize]);
        let (x, y) = (In::of_span(x_span), Out::of_span(y_span));
        let window = Shared::of_span;
        let meet = team.meet();
        match self.call.op {
            Op::AllReduce(algorithm) => all_reduce(core, team, x, y, op, algorithm).await,
            Op::AllGather => all_gather(core, team, x, y).await,
            Op::ReduceScatter => reduce_scatter(core, team, x, y, op).await,
            Op::Broadcast => broadcast(core, team, x, y, root).await,
            Op::Reduce => reduce(core, team, x, y, op, root).await,
            Op::Gather => gather(core, team, x, y, root).await,
            Op::Scatter => scatter(core, team, x, y, root).await,
            Op::AllToAll => all_to_all(core, team, x, y).await,
            Op::Scan => scan(core, team, x, y, op).await,
            Op::ExclusiveScan => exclusive_scan(core, team, x, y, op).await,
            Op::Barrier => barrier(core, team).await,
            Op::WindowAllReduce(spread) => window::all_reduce(core, meet, window(y_span), op, spread).await,
            Op::WindowAllGather => window::all_gather(core, meet, window(y_span)).await,
            Op::WindowReduceScatter => window::reduce_scatter(core, meet, window(x_span), y, op).await,
            Op::WindowBroadcast => window::broadcast(core, meet, window(y_span), root).await,
            Op::PulledAllGather => window::all_gather_into(core, meet, window(x_span), y).await,
            Op::PulledAllToAll => window::all_to_all_into(core, meet, window(x_span), y).await,
            Op::PacketAllGather => packets::all_gather(core, &team.room()?, x, y).await,
            Op::PacketReduceScatter => packets::reduce_scatter(core, &team.room()?, x, y, op).await,
            Op::PacketBroadcast => packets::broadcast(core, &team.ring()?, x, y, root).await,
            Op::PacketAllToAll => packets::all_to_all(core, &team.room()?, x, y).await,
        }
    }

    /// Compares memory with what the reference says.
    pub fn verify(&self, world: &World) -> std::result::Result<(), String> {
        for (rank, (span, wanted)) in self.y.iter().zip(&self.y_after).enumerate() {
            let got = world.machine.bytes(*span);
            if got != *wanted {
                let values = |bytes: &[u8]| with_dtype!(self.call.dtype, T => show::<T>(bytes));
                return Err(format!(
                    "rank {rank} got {}, wanted {}",
                    values(&got),
                    values(wanted)
                ));
            }
        }
        for (rank, (span, wanted)) in self.x.iter().zip(&self.x_after).enumerate() {
            if wanted
                .as_ref()
                .is_some_and(|wanted| *wanted != world.machine.bytes(*span))
            {
                return Err(format!("the input of rank {rank} was changed"));
            }
        }
        Ok(())
    }
}

pub fn typed<T: Element, A: ringwork_isa::Access>(span: Span) -> Region<T, A> {
    Region::from_span(span).unwrap()
}

fn show<T: Element>(bytes: &[u8]) -> String {
    format!("{:?}", bytemuck::pod_collect_to_vec::<u8, T>(bytes))
}

/// Runs calls one after the other on one team, and verifies each.
pub fn run_calls(
    world: World,
    calls: &[Call],
    schedule: Schedule,
    seed: u64,
) -> std::result::Result<(), String> {
    let placed: Vec<Placed> = calls
        .iter()
        .zip(seed..)
        .map(|(call, seed)| call.place(&world, seed))
        .collect();
    let (world, placed) = (Rc::new(world), Rc::new(placed));
    run_placed(&world, &placed, schedule)
        .map_err(|error| format!("{calls:?} under {schedule:?}: {error}"))?;
    for call in placed.iter() {
        call.verify(&world)
            .map_err(|error| format!("{:?} under {schedule:?}: {error}", call.call))?;
    }
    Ok(())
}

/// Runs calls one after the other on one team.
pub fn run_placed(
    world: &Rc<World>,
    placed: &Rc<Vec<Placed>>,
    schedule: Schedule,
) -> std::result::Result<(), String> {
    world.run_well(schedule, |core, rank| {
        let (world, placed) = (world.clone(), placed.clone());
        Box::pin(async move {
            for call in placed.iter() {
                call.call(&core, &world, rank).await?;
            }
            Ok(())
        })
    })
}

/// Every rank's output of one call on messy inputs.
pub fn outputs(
    world: World,
    call: &Call,
    schedule: Schedule,
    seed: u64,
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let placed = Rc::new(vec![call.place_inputs(&world, seed, true)]);
    let world = Rc::new(world);
    run_placed(&world, &placed, schedule)?;
    Ok(placed[0]
        .y
        .iter()
        .map(|span| world.machine.bytes(*span))
        .collect())
}
