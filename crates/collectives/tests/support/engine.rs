//! The engine: memory, signals, and one step at a time.

use super::race::{Access, Clock, Race, Shadow};
use super::schedule::Schedule;
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, PacketSource, Payload, SteppedCore};
use ringwork_isa::{
    BlockSpan, Compare, Device, Element, Epoch, Error, ErrorKind, Notify, Rank, ReduceOp, Result,
    SIGNAL_STRIDE_BYTES, Segment, Signal, Span, Ticket, Waited, with_dtype,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What ends a run before every kernel has returned.
#[derive(Debug)]
pub enum Failure {
    Race(Race),
    /// Nobody can move: what each rank that is left waits for.
    Deadlock(Vec<Waited>),
    /// More steps than any correct kernel here takes.
    TooLong,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Race(race) => write!(f, "race: {race}"),
            Failure::Deadlock(waiting) => {
                write!(f, "deadlock:")?;
                waiting.iter().try_for_each(|waited| write!(f, "\n  {waited}"))
            }
            Failure::TooLong => write!(f, "no end in sight"),
        }
    }
}

pub type Kernel = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Steps after which a run is given up.
const MAX_STEPS: usize = 2_000_000;

#[derive(Debug)]
pub struct Machine(RefCell<State>);

#[derive(Debug)]
struct State {
    memory: BTreeMap<Segment, Memory>,
    cells: Vec<Cell>,
    /// Flags of packets by where they lie: the epoch, and what a reader of the packet then knows.
    flags: BTreeMap<(Segment, u64), (Epoch, Clock)>,
    clocks: Vec<Clock>,
    shadow: Shadow,
    pending: Vec<Option<(Instruction, &'static Location<'static>)>>,
    /// Whether the pending instruction can happen now.
    can_move: Vec<bool>,
    /// The cell that the pending instruction waits for.
    waits_on: Vec<Option<usize>>,
    answers: Vec<Option<Result<Answer>>>,
}

#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    /// The only rank that may touch it; `None` for windows.
    owner: Option<usize>,
}

#[derive(Clone, Debug)]
struct Cell {
    value: i32,
    /// What whoever reads the value then knows.
    released: Clock,
    last: Option<Access>,
}

impl Machine {
    /// `ranks` cores, and `cells` signals that start at `first`.
    pub fn new(ranks: usize, cells: usize, first: i32) -> Machine {
        let cell = Cell {
            value: first,
            released: Clock::new(ranks),
            last: None,
        };
        let mut clocks = vec![Clock::new(ranks); ranks];
        clocks
            .iter_mut()
            .enumerate()
            .for_each(|(rank, clock)| clock.tick(rank));
        Machine(RefCell::new(State {
            memory: BTreeMap::new(),
            cells: vec![cell; cells],
            flags: BTreeMap::new(),
            clocks,
            shadow: Shadow::default(),
            pending: vec![None; ranks],
            can_move: vec![false; ranks],
            waits_on: vec![None; ranks],
            answers: vec![None; ranks],
        }))
    }

    /// Makes a segment, or lengthens it, and fills what is new.
    pub fn grow(&self, segment: Segment, owner: Option<usize>, len: usize, fill: u8) {
        let state = &mut *self.0.borrow_mut();
        let memory = state.memory.entry(segment).or_insert(Memory {
            bytes: Vec::new(),
            owner,
        });
        memory.bytes.resize(memory.bytes.len().max(len), fill);
    }

    /// The bytes of a span, read from outside.
    pub fn bytes(&self, span: Span) -> Vec<u8> {
        let range = range(&span);
        self.0.borrow().memory[&span.segment].bytes[range].to_vec()
    }

    /// Writes the bytes of a span from outside.
    pub fn fill(&self, span: Span, bytes: &[u8]) {
        let range = range(&span);
        self.0.borrow_mut().memory.get_mut(&span.segment).unwrap().bytes[range].copy_from_slice(bytes);
    }

    /// Runs one kernel per rank until all have returned.
    pub fn run(
        self: &Rc<Self>,
        schedule: Schedule,
        kernel: impl Fn(SteppedCore, Rank) -> Kernel,
    ) -> std::result::Result<Vec<Result<()>>, Failure> {
        let ranks = self.0.borrow().pending.len();
        let mut chooser = schedule.start(ranks);
        let mut kernels: Vec<Kernel> = (0..ranks as u32)
            .map(|rank| {
                let core = SteppedCore::new(self.clone(), CoreId(rank), Device(rank));
                kernel(core, Rank(rank))
            })
            .collect();
        let mut results = vec![None; ranks];
        let mut poll = |rank: usize, results: &mut Vec<Option<Result<()>>>| {
            if let Poll::Ready(result) = kernels[rank]
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                results[rank] = Some(result);
            }
        };
        for rank in 0..ranks {
            poll(rank, &mut results);
        }
        for _ in 0..MAX_STEPS {
            if results.iter().all(Option::is_some) {
                return Ok(results.into_iter().flatten().collect());
            }
            let ready = self.0.borrow().ready();
            if ready.is_empty() {
                return Err(Failure::Deadlock(self.0.borrow().waiting()));
            }
            let rank = chooser.choose(&ready);
            self.0.borrow_mut().step(rank).map_err(Failure::Race)?;
            poll(rank, &mut results);
        }
        Err(Failure::TooLong)
    }
}

impl Engine for Machine {
    fn issue(
        &self,
        core: CoreId,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> Poll<Result<Answer>> {
        let state = &mut *self.0.borrow_mut();
        let before = state.pending[core.0 as usize].replace((instruction, at));
        assert!(before.is_none(), "a core issues one instruction at a time");
        state.consider(core.0 as usize);
        Poll::Pending
    }

    fn answer(&self, core: CoreId) -> Poll<Result<Answer>> {
        match self.0.borrow_mut().answers[core.0 as usize].take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

/// This machine always has bytes.
fn bytes(data: Payload) -> Vec<u8> {
    match data {
        Payload::Bytes(bytes) => bytes,
        other => panic!("{other:?} where bytes were expected"),
    }
}

fn range(span: &Span) -> Range<usize> {
    let bytes = span.byte_range().unwrap();
    usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()
}

impl State {
    fn cell(&self, signal: &Signal) -> usize {
        usize::try_from(signal.offset().unwrap() / SIGNAL_STRIDE_BYTES).unwrap()
    }

    /// Ranks whose next instruction can happen now.
    fn ready(&self) -> Vec<usize> {
        (0..self.can_move.len())
            .filter(|&rank| self.can_move[rank])
            .collect()
    }

    /// Finds out whether `rank` can move: when it issued an instruction, or the signal it waits for changed.
    fn consider(&mut self, rank: usize) {
        let (cell, can_move) = match &self.pending[rank] {
            Some((
                Instruction::Wait {
                    signal,
                    compare,
                    operand,
                },
                _,
            )) => {
                let cell = self.cell(signal);
                (Some(cell), compare.holds(self.cells[cell].value, *operand))
            }
            Some((Instruction::TakePackets { sources, epoch, .. }, _)) => {
                let came = |source: &PacketSource| {
                    source
                        .arrives
                        .is_none_or(|(flag, _)| self.has_come(&flag, *epoch))
                };
                (None, sources.iter().all(came))
            }
            other => (None, other.is_some()),
        };
        self.waits_on[rank] = cell;
        self.can_move[rank] = can_move;
    }

    fn has_come(&self, flag: &Signal, epoch: Epoch) -> bool {
        let found = self.flags.get(&place(flag));
        found.is_some_and(|(seen, _)| *seen == epoch)
    }

    /// What every waiting rank waits for.
    fn waiting(&self) -> Vec<Waited> {
        let pending = self.pending.iter().flatten();
        pending
            .filter_map(|(instruction, at)| match instruction {
                Instruction::Wait {
                    signal,
                    compare,
                    operand,
                } => Some(Waited::new(
                    signal,
                    self.cells[self.cell(signal)].value,
                    (*compare, *operand),
                    *at,
                )),
                Instruction::TakePackets { sources, epoch, .. } => {
                    let (_, raised) = sources
                        .iter()
                        .filter_map(|source| source.arrives)
                        .find(|(flag, _)| !self.has_come(flag, *epoch))?;
                    let value = self.cells[self.cell(&raised)].value;
                    Some(Waited::new(&raised, value, (Compare::Ge, (*epoch).into()), *at))
                }
                _ => None,
            })
            .collect()
    }

    /// Executes the instruction that `rank` has issued.
    fn step(&mut self, rank: usize) -> std::result::Result<(), Race> {
        let (instruction, at) = self.pending[rank].take().unwrap();
        (self.can_move[rank], self.waits_on[rank]) = (false, None);
        let checked = self.check(rank, &instruction, at);
        let answer = match checked {
            Ok(()) => Ok(self.execute(rank, instruction, at)?),
            Err(error) => Err(error),
        };
        self.answers[rank] = Some(answer);
        Ok(())
    }

    fn check(&self, rank: usize, instruction: &Instruction, at: &'static Location<'static>) -> Result<()> {
        let packets: Vec<Span>;
        let (dst, sources): (Option<&Span>, &[Span]) = match instruction {
            Instruction::Copy { dst, src } | Instruction::CopyAsync { dst, src } => {
                (Some(dst), std::slice::from_ref(src))
            }
            Instruction::Reduce { dst, sources, .. } => (Some(dst), sources),
            Instruction::Load { src } | Instruction::Take { slot: src } => (None, std::slice::from_ref(src)),
            Instruction::CopyBlock { dst, src } => (Some(&dst.extent), std::slice::from_ref(&src.extent)),
            Instruction::LoadBlock { src } => (None, std::slice::from_ref(&src.extent)),
            Instruction::StoreBlock { dst, .. } => (Some(&dst.extent), &[]),
            Instruction::Store { dst, .. } | Instruction::Put { slot: dst, .. } => (Some(dst), &[]),
            Instruction::PutPacket { payload, src, .. } => (Some(payload), std::slice::from_ref(src)),
            Instruction::TakePackets { dst, sources, .. } => {
                packets = sources.iter().map(|source| source.payload).collect();
                (Some(dst), &packets)
            }
            _ => (None, &[]),
        };
        for span in dst.into_iter().chain(sources) {
            let bytes = span.byte_range().unwrap_or(u64::MAX..u64::MAX);
            let there = self.memory.get(&span.segment).is_some_and(|memory| {
                bytes.end <= memory.bytes.len() as u64 && memory.owner.is_none_or(|owner| owner == rank)
            });
            if !there {
                return Err(ErrorKind::NotMapped {
                    segment: span.segment,
                    start: bytes.start,
                    end: bytes.end,
                    site: at.into(),
                }
                .into());
            }
        }
        for (index, source) in sources.iter().enumerate() {
            if let Some(dst) = dst
                && dst.segment == source.segment
                && let (to, from) = (range(dst), range(source))
                && to != from
                && to.start < from.end
                && from.start < to.end
            {
                return Err(ErrorKind::Overlap {
                    source_index: u32::try_from(index).unwrap(),
                    site: at.into(),
                }
                .into());
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        rank: usize,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> std::result::Result<Answer, Race> {
        match instruction {
            Instruction::Copy { dst, src } if dst == src => {}
            Instruction::Copy { dst, src } => {
                let bytes = self.read(rank, &src, at)?;
                self.write(rank, &dst, &bytes, at)?;
            }
            Instruction::Reduce { dst, sources, op } => {
                let mut operands = Vec::new();
                for source in &sources {
                    operands.push(self.read(rank, source, at)?);
                }
                let bytes = with_dtype!(dst.dtype, T => reduce::<T>(&operands, op));
                self.write(rank, &dst, &bytes, at)?;
            }
            Instruction::CopyAsync { dst, src } => {
                if dst != src {
                    let bytes = self.read(rank, &src, at)?;
                    self.write(rank, &dst, &bytes, at)?;
                }
                return Ok(Answer::Ticket(Ticket(0)));
            }
            Instruction::Load { src } => {
                return Ok(Answer::Loaded(Box::new(Payload::Bytes(
                    self.read(rank, &src, at)?,
                ))));
            }
            Instruction::Take { slot } => {
                return Ok(Answer::Taken(
                    Ticket(0),
                    Box::new(Payload::Bytes(self.read(rank, &slot, at)?)),
                ));
            }
            Instruction::CopyBlock { dst, src } => {
                let all = self.read_block(rank, &src, at)?;
                self.write_block(rank, &dst, &all, at)?;
            }
            Instruction::LoadBlock { src } => {
                let all = self.read_block(rank, &src, at)?;
                return Ok(Answer::Loaded(Box::new(Payload::Bytes(all))));
            }
            Instruction::StoreBlock { dst, data } => self.write_block(rank, &dst, &bytes(data), at)?,
            Instruction::Store { dst, data } => self.write(rank, &dst, &bytes(data), at)?,
            Instruction::Put {
                slot,
                data,
                full,
                value,
            } => {
                self.write(rank, &slot, &bytes(data), at)?;
                self.notify(rank, &full, Notify::Set(value), at)?;
            }
            Instruction::Spend(_) | Instruction::Join(_) => {}
            Instruction::Notify { signal, how } => self.notify(rank, &signal, how, at)?,
            Instruction::PutPacket {
                payload,
                src,
                flag,
                epoch,
            } => {
                let bytes = self.read(rank, &src, at)?;
                self.write(rank, &payload, &bytes, at)?;
                self.flags
                    .insert(place(&flag), (epoch, self.clocks[rank].clone()));
                self.clocks[rank].tick(rank);
                for waiter in 0..self.pending.len() {
                    if matches!(self.pending[waiter], Some((Instruction::TakePackets { .. }, _))) {
                        self.consider(waiter);
                    }
                }
            }
            Instruction::TakePackets { dst, sources, op, .. } => {
                let mut operands = Vec::new();
                for source in &sources {
                    if let Some((flag, _)) = source.arrives {
                        self.clocks[rank].join(&self.flags[&place(&flag)].1);
                    }
                    operands.push(Payload::Bytes(self.read(rank, &source.payload, at)?));
                }
                let all: Vec<&Payload> = operands.iter().collect();
                let result = Payload::combine(dst.dtype, op, &all);
                self.write(rank, &dst, &bytes(result), at)?;
            }
            Instruction::Wait { signal, .. } => {
                self.acquire(rank, &signal);
            }
            Instruction::Test {
                signal,
                compare,
                operand,
            } => {
                return Ok(Answer::Tested(
                    compare.holds(self.acquire(rank, &signal), operand),
                ));
            }
            Instruction::Peek { signal } | Instruction::OwnValue { signal } => {
                return Ok(Answer::Value(self.acquire(rank, &signal)));
            }
        }
        Ok(Answer::Done)
    }

    fn read_block(
        &mut self,
        rank: usize,
        block: &BlockSpan,
        at: &'static Location<'static>,
    ) -> std::result::Result<Vec<u8>, Race> {
        let mut all = Vec::new();
        for row in block.row_spans() {
            all.extend(self.read(rank, &row, at)?);
        }
        Ok(all)
    }

    fn write_block(
        &mut self,
        rank: usize,
        block: &BlockSpan,
        bytes: &[u8],
        at: &'static Location<'static>,
    ) -> std::result::Result<(), Race> {
        let mut rest = bytes;
        for row in block.row_spans() {
            let (first, more) = rest.split_at(row.byte_len());
            self.write(rank, &row, first, at)?;
            rest = more;
        }
        Ok(())
    }

    /// The value of a signal, and with it what its writers did before.
    fn acquire(&mut self, rank: usize, signal: &Signal) -> i32 {
        let cell = &self.cells[self.cell(signal)];
        self.clocks[rank].join(&cell.released);
        cell.value
    }

    fn read(
        &mut self,
        rank: usize,
        span: &Span,
        at: &'static Location<'static>,
    ) -> std::result::Result<Vec<u8>, Race> {
        let clock = &self.clocks[rank];
        let access = Access::new(rank, false, at, clock);
        self.shadow
            .touch(span.segment, span.byte_range().unwrap(), access, clock)?;
        Ok(self.memory[&span.segment].bytes[range(span)].to_vec())
    }

    fn write(
        &mut self,
        rank: usize,
        span: &Span,
        bytes: &[u8],
        at: &'static Location<'static>,
    ) -> std::result::Result<(), Race> {
        let clock = &self.clocks[rank];
        let access = Access::new(rank, true, at, clock);
        self.shadow
            .touch(span.segment, span.byte_range().unwrap(), access, clock)?;
        self.memory.get_mut(&span.segment).unwrap().bytes[range(span)].copy_from_slice(bytes);
        Ok(())
    }

    /// `Set` begins a new release, and only one writer may use it; `Add` joins what others released.
    fn notify(
        &mut self,
        rank: usize,
        signal: &Signal,
        how: Notify,
        at: &'static Location<'static>,
    ) -> std::result::Result<(), Race> {
        let index = self.cell(signal);
        let (cell, clock) = (&mut self.cells[index], &mut self.clocks[rank]);
        let access = Access::new(rank, true, at, clock);
        match how {
            Notify::Set(value) => {
                if let Some(first) = cell.last.filter(|last| !last.is_before(clock)) {
                    return Err(Race {
                        what: format!("signal {} of rank {} set by two", signal.index(), signal.rank()),
                        first,
                        second: access,
                    });
                }
                cell.value = value;
                cell.released = clock.clone();
            }
            Notify::Add(value) => {
                cell.value = cell.value.wrapping_add(value);
                cell.released.join(clock);
            }
        }
        cell.last = Some(access);
        clock.tick(rank);
        for waiter in 0..self.pending.len() {
            if self.waits_on[waiter] == Some(index) {
                self.consider(waiter);
            }
        }
        Ok(())
    }
}

/// Where a flag lies.
fn place(flag: &Signal) -> (Segment, u64) {
    (flag.segment(), flag.offset().unwrap())
}

fn reduce<T: Element>(operands: &[Vec<u8>], op: ReduceOp) -> Vec<u8> {
    let operands: Vec<Vec<T>> = operands
        .iter()
        .map(|bytes| bytemuck::pod_collect_to_vec(bytes))
        .collect();
    let fold = |i: usize| {
        let first = operands[0][i].widen();
        let wide = operands[1..]
            .iter()
            .fold(first, |acc, next| T::combine(op, acc, next[i].widen()));
        T::narrow(T::finish(op, wide, operands.len()))
    };
    let result: Vec<T> = (0..operands[0].len()).map(fold).collect();
    bytemuck::cast_slice(&result).to_vec()
}
