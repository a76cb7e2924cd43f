//! What is checked: every algorithm of the catalogue, as a program whose results are known by origin.

use ringwork_check::{Bounds, Contents, Interleavings, Program, Proof, Seat, TaskKernel, Verdict};
use ringwork_collectives::catalogue::{self, CATALOGUE, Entry, Needs};
use ringwork_collectives::domain::{Demand, Places, packet_bytes};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{
    Collective, Contributions, Core, Counted, Dtype, In, Out, Piece, Rank, ReduceOp, Region, Result, Shared,
    Span,
};
use ringwork_layout::{BufferPlace, Layout, LayoutError, WindowBuilder};
use std::rc::Rc;

/// How long the data of a call is, and in how many pieces it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One element, or one for each rank if there are parts: most ranks have nothing to reduce.
    Small,
    /// Several elements for each rank, in one piece.
    Whole,
    /// Scratch and slots of two elements: several chunks or messages.
    Pieces,
}

impl Size {
    /// All of them.
    pub const ALL: [Size; 3] = [Size::Small, Size::Whole, Size::Pieces];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Whole => "whole",
            Size::Pieces => "pieces",
        }
    }

    /// Elements of the input and of the result. Without parts, not a multiple of the ranks.
    fn lengths(self, entry: &Entry, ranks: u32) -> (usize, usize) {
        let (n, collective) = (ranks as usize, entry.collective);
        // A packet and a half for each rank, where packets are not to be whole.
        let each = match (self, entry.needs) {
            (Size::Pieces, Needs::Packets) => packet_bytes(ranks) * 3 / 2 / Dtype::I64.bytes(),
            _ => 5,
        };
        let elements = match (self, collective.has_parts()) {
            _ if collective == Collective::Barrier => return (1, 1),
            (Size::Small, false) => 1,
            (Size::Small, true) => n,
            (_, false) => each * n + 1,
            (_, true) => each * n,
        };
        let counts = collective.counts(elements, n);
        (counts.send, counts.recv)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let named = Size::ALL.into_iter().find(|size| size.name() == text);
        named.ok_or_else(|| {
            format!(
                "`{}` is not a size; use small, whole or pieces",
                text.escape_debug()
            )
        })
    }
}

/// A program to check: call `c` is entry `c % entries.len()` of the catalogue.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Collective and algorithm, such as `all_reduce/ring`, and what is special.
    pub name: String,
    /// At least one.
    entries: Vec<&'static Entry>,
    /// The root of call `c` is `c % ranks`, not 0.
    root_moves: bool,
}

/// Every entry alone, those with a root also with one that moves, and mixtures that share one team.
#[must_use]
pub fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for entry in CATALOGUE {
        let name = format!("{}/{}", entry.collective, entry.algorithm);
        if entry.collective.has_root() {
            all.push(Workload::new(format!("{name}/moving-root"), vec![entry], true));
        }
        all.push(Workload::new(name, vec![entry], false));
    }
    let of_team = |keep: &dyn Fn(&Entry) -> bool| {
        let all = CATALOGUE.iter();
        all.filter(|entry| entry.needs != Needs::Queues && keep(entry))
            .collect()
    };
    let all_reduces = of_team(&|entry| entry.collective == Collective::AllReduce);
    all.push(Workload::new("mixed/all_reduce".into(), all_reduces, false));
    all.push(Workload::new("mixed/all".into(), of_team(&|_| true), true));
    all
}

/// A program that does not repeat itself within so many calls is not proved for any number of them.
pub const MOST_CALLS: u32 = 1024;

/// Elements are `i64`.
const WORD: u64 = 8;

/// Where everything lies in a window, and how long the inputs and results are.
#[derive(Clone, Copy, Debug)]
struct Plan {
    size: Size,
    places: Places,
    /// Data of the algorithms that work in the window; used again by every call.
    window: BufferPlace,
    /// Bytes of the longest input or result.
    longest_bytes: u64,
    cells: u32,
    window_bytes: u64,
}

/// One rank's part of one call.
struct Part {
    entry: &'static Entry,
    root: Rank,
    /// Input and result, in private memory.
    x: Span,
    y: Span,
}

impl Workload {
    /// Whether it is a mixture of several algorithms.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.entries.len() > 1
    }

    /// Collective and algorithm of its first call.
    #[must_use]
    pub fn algorithm(&self) -> String {
        let entry = self.entries[0];
        format!("{}/{}", entry.collective, entry.algorithm)
    }

    fn new(name: String, entries: Vec<&'static Entry>, root_moves: bool) -> Workload {
        Workload {
            name,
            entries,
            root_moves,
        }
    }

    /// Whether every entry can be done by so many ranks.
    #[must_use]
    pub fn fits(&self, ranks: u32) -> bool {
        let grid = grid(ranks);
        self.entries
            .iter()
            .all(|entry| entry.fits(ranks, Some(&grid)).is_ok())
    }

    /// The program for so many ranks. Each entry is called at least once more than the others need to meet it again.
    ///
    /// # Errors
    /// If a window cannot be that large.
    pub fn program(&self, ranks: u32, calls: u32, size: Size) -> std::result::Result<Program, LayoutError> {
        let plan = self.plan(ranks, size)?;
        let entries = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let calls = if entries > 1 {
            calls.max(entries + 1)
        } else {
            calls
        };
        let (this, grid): (_, Rc<[u32]>) = (self.clone(), grid(ranks).into());
        let kernel = async move |core: &_, seat| this.call(core, seat, plan, &grid).await;
        let mut program = Program::new(ranks, calls, kernel)
            .windows(plan.cells, plan.window_bytes)
            .private_bytes(2 * u64::from(calls) * plan.longest_bytes)
            .private_bytes_per_call(2 * plan.longest_bytes)
            .contents(Contents::Origins);
        for call in 0..calls {
            for rank in 0..ranks {
                let seat = Seat {
                    call,
                    ..program.seat(rank)
                };
                let part = self.part(&seat, plan);
                program = program.input_of(part.x, call * ranks + rank);
                if let Some(origin) = expected(&part, &seat) {
                    program = program.result_of(rank, part.y, origin);
                }
            }
        }
        Ok(program)
    }

    /// Proves it for any number of calls, if it repeats itself within [`MOST_CALLS`]; if not, for as many as were tried.
    ///
    /// # Errors
    /// If a window cannot be that large.
    pub fn prove_any_calls(&self, ranks: u32, size: Size) -> std::result::Result<Verdict, LayoutError> {
        // Two periods of what is used in turn, after a few calls in which memory is new.
        let mut calls = 2 * self.turn(ranks) + 4;
        loop {
            let verdict = self.program(ranks, calls, size)?.prove_reuse();
            calls *= 2;
            if verdict.reuse.is_some() || verdict.proof != Some(Proof::OneExecution) || calls > MOST_CALLS {
                return Ok(verdict);
            }
        }
    }

    /// Explores every interleaving of it, for any number of calls, without the detector. `most_states` bounds the search.
    ///
    /// # Errors
    /// If a window cannot be that large.
    pub fn interleave(
        &self,
        ranks: u32,
        size: Size,
        most_states: usize,
    ) -> std::result::Result<Interleavings, LayoutError> {
        let period = self
            .prove_any_calls(ranks, size)?
            .reuse
            .map_or(1, |reuse| reuse.period);
        let period = lcm(period, self.turn(ranks));
        let bounds = Bounds {
            states: most_states,
            ..Bounds::default()
        };
        // No rank is more than a period ahead of another.
        let program = self.program(ranks, 4 * period + 4, size)?.bounds(bounds);
        Ok(program.interleave(period))
    }

    /// Where its windows are, and how much private memory a rank needs.
    pub(crate) fn memory(
        &self,
        ranks: u32,
        calls: u32,
        size: Size,
    ) -> std::result::Result<(Layout, u64), LayoutError> {
        let plan = self.plan(ranks, size)?;
        let program = Program::new(ranks, 1, async |_, _| Ok(())).windows(plan.cells, plan.window_bytes);
        Ok((program.layout(), 2 * u64::from(calls) * plan.longest_bytes))
    }

    /// What a rank does, for a machine.
    pub(crate) fn kernel(
        &self,
        (ranks, calls, size): (u32, u32, Size),
        layout: Layout,
        me: Rank,
    ) -> std::result::Result<impl FnOnce(SteppedCore) -> TaskKernel + use<>, LayoutError> {
        let plan = self.plan(ranks, size)?;
        let (this, grid) = (self.clone(), grid(ranks));
        Ok(move |core: SteppedCore| -> TaskKernel {
            Box::pin(async move {
                for call in 0..calls {
                    this.call(&core, Seat { me, call, layout }, plan, &grid).await?;
                }
                Ok(())
            })
        })
    }

    /// After so many calls the same is asked of every rank again, with data in the same half of what has two.
    fn turn(&self, ranks: u32) -> u32 {
        let entries = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let roots = if self.root_moves { ranks } else { 1 };
        [entries, roots].into_iter().fold(2, lcm)
    }

    fn plan(&self, ranks: u32, size: Size) -> std::result::Result<Plan, LayoutError> {
        let n = u64::from(ranks);
        let longest = self.entries.iter().map(|entry| {
            let (x, y) = size.lengths(entry, ranks);
            x.max(y)
        });
        let longest = longest.max().unwrap_or(0);
        let is_cut = size == Size::Pieces;
        // Two halves of two elements for every rank; slots of two, or of an element for each rank of the larger half, which a message
        // may be for.
        let demand = Demand {
            grid: grid(ranks),
            scratch_bytes: is_cut.then_some(2 * 2 * n * WORD),
            slots: is_cut.then_some(2),
            slot_bytes: is_cut.then_some((n / 2).max(2) * WORD),
            ..Demand::new(ranks, Dtype::I64, longest)
        };
        let mut window = WindowBuilder::default();
        // A team with packets has a scratch too, so that it serves a mixture.
        let by_need = |needs| self.entries.iter().find(|entry| entry.needs == needs);
        let packets = by_need(Needs::Packets).or_else(|| by_need(Needs::Scratch));
        let entry = packets.unwrap_or(&self.entries[0]);
        let places = demand.declare(entry, &mut window)?;
        // A barrier alone needs two elements, one for every other call.
        let data = window.buffer(Dtype::I64, longest.max(2))?;
        Ok(Plan {
            size,
            places,
            window: data,
            longest_bytes: longest as u64 * WORD,
            cells: window.cells(),
            window_bytes: window.data_bytes(),
        })
    }

    fn part(&self, seat: &Seat, plan: Plan) -> Part {
        let (call, ranks) = (seat.call, seat.layout.ranks);
        let entry = self.entries[call as usize % self.entries.len()];
        let root = Rank(if self.root_moves { call % ranks } else { 0 });
        let (x, y) = plan.size.lengths(entry, ranks);
        let at = 2 * u64::from(call) * plan.longest_bytes;
        Part {
            entry,
            root,
            x: seat.private::<i64>(at, x),
            y: seat.private::<i64>(at + plan.longest_bytes, y),
        }
    }

    async fn call<C: Core>(&self, core: &C, seat: Seat, plan: Plan, grid: &[u32]) -> Result<()> {
        let Part { entry, root, x, y } = self.part(&seat, plan);
        let resources = plan.places.bind(&seat.layout, seat.me)?;
        let (x, y): (In, Out) = (Region::of_span(x), Region::of_span(y));
        let call = |x, y| catalogue::Call {
            x,
            y,
            op: ReduceOp::Sum,
            root,
            workers: seat.layout.ranks,
            grid,
            by_side: &[],
        };
        let shared: Shared = Region::of_span(seat.layout.span(seat.me, plan.window));
        if entry.collective == Collective::Barrier {
            // What was written before the barrier is read after it. Two places in turn, as every barrier needs.
            let place = shared.slice((seat.call % 2) as usize..(seat.call % 2) as usize + 1)?;
            core.copy(place, x).await?;
            catalogue::run(core, entry, resources, call(x, y)).await?;
            return core.copy(y, place.on(next(&seat))?).await;
        }
        if entry.needs != Needs::Window {
            return catalogue::run(core, entry, resources, call(x, y)).await;
        }
        let staged = shared.slice(0..x.len())?;
        core.copy(staged, x).await?;
        let staged_in = Region::of_span(staged.span());
        if !entry.is_in_place() {
            return catalogue::run(core, entry, resources, call(staged_in, y)).await;
        }
        catalogue::run(
            core,
            entry,
            resources,
            call(staged_in, Region::of_span(staged.span())),
        )
        .await?;
        core.copy(y, staged).await
    }
}

fn next(seat: &Seat) -> Rank {
    Rank((seat.me.0 + 1) % seat.layout.ranks)
}

/// Where the result of a call must come from; `None` if nothing is promised. Inputs are numbered by call and rank.
fn expected(part: &Part, seat: &Seat) -> Option<Contributions> {
    let (ranks, collective) = (seat.layout.ranks, part.entry.collective);
    let first = seat.call * ranks;
    if collective == Collective::Barrier {
        return Some(Contributions::input(first + next(seat).0, 0, WORD));
    }
    let mut all = Contributions::default();
    let elements = usize::try_from(part.x.len.max(part.y.len)).unwrap_or(usize::MAX);
    for piece in collective.golden(seat.me.0, ranks, part.root.0, elements) {
        let members = Counted::once(first + piece.ranks.start..first + piece.ranks.end);
        all.push(Piece::new(
            members,
            piece.start as u64 * WORD,
            piece.output.len() as u64 * WORD,
        ));
    }
    (all != Contributions::default()).then_some(all)
}

/// The sides of a grid of so many ranks, as square as it can be.
fn grid(ranks: u32) -> Vec<u32> {
    let side = (2..=ranks.isqrt()).rev().find(|side| ranks.is_multiple_of(*side));
    side.map_or(vec![ranks], |side| vec![side, ranks / side])
}

fn lcm(a: u32, b: u32) -> u32 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}
