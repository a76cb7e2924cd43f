//! Measuring one operation at one size in one mode: every rank runs this.

use super::arguments::{BenchArguments, Mode, Roots};
use super::collective::{self, out_of_place, parts, used_in_place};
use super::stats::{Stats, Whose};
use super::verify::Pattern;
use ringwork::collectives::catalogue::{self, Entry};
use ringwork::communicator::choices;
use ringwork::communicator::{Communicator, HopProbe, Input, Output, Result, Source, Target, WindowBuffer};
use ringwork::isa::{Algorithm, Collective, Counts, Element, ReduceOp};
use ringwork::native::trace::tsc_clock;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What one row measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) collective: Collective,
    pub(crate) op: ReduceOp,
    pub(crate) root: Roots,
    /// How it is done, instead of what the library chooses.
    pub(crate) way: Option<Algorithm>,
    pub(crate) mode: Mode,
    pub(crate) bytes: usize,
}

/// What came out. Times are rank 0's to know; elsewhere there are none.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) stats: Option<Stats>,
    /// Values that are not what they should be, on all ranks; `None` if that was not looked at.
    pub(crate) wrong: Option<i64>,
    /// Nanoseconds from core to core, before and after.
    pub(crate) hops: [Option<Duration>; 2],
    pub(crate) in_window: bool,
}

/// A rank that measures.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) comm: &'a Communicator,
    pub(crate) arguments: &'a BenchArguments,
    probe: HopProbe,
    us_per_tick: f64,
}

/// Up to here calls are many and cheap.
const SMALL_BYTES: usize = 64 << 10;
const MAX_CALLS: usize = 20_000;

impl<'a> Bench<'a> {
    pub(crate) fn new(comm: &'a Communicator, arguments: &'a BenchArguments) -> Result<Bench<'a>> {
        Ok(Bench {
            comm,
            arguments,
            probe: comm.hop_probe()?,
            us_per_tick: if comm.rank() == 0 {
                tsc_clock::ns_per_tick() / 1e3
            } else {
                0.0
            },
        })
    }

    /// Answers a question; `None` if this operation has no such form.
    pub(crate) fn ask<T: Element>(&mut self, question: Question) -> Result<Option<Answer>> {
        let Question {
            collective,
            way,
            mode,
            ..
        } = question;
        let in_place = match mode {
            Mode::Oop => false,
            Mode::Inp => true,
            Mode::Use => used_in_place(collective),
        };
        let exists = if in_place {
            collective::in_place(collective)
        } else {
            out_of_place(collective)
        };
        let in_window = self.arguments.window || mode != Mode::Oop && !self.arguments.own;
        // Without a name the communicator chooses an exact one.
        let meant = |entry: &&Entry| way.map_or(entry.algorithm.is_exact(), |way| way == entry.algorithm);
        let possible = way.is_none_or(|way| in_window || !way.needs_window())
            && catalogue::of(collective)
                .filter(meant)
                .any(|entry| entry.reduces_by(question.op, T::DTYPE).is_ok());
        // What is swapped in one buffer cannot be pulled from where it lies.
        let swapped = in_place && collective == Collective::AllToAll;
        let possible = possible && !(swapped && way.is_some_and(Algorithm::needs_window));
        if !exists || !possible || collective == Collective::Barrier && mode != Mode::Oop {
            return Ok(None);
        }
        if choices(collective).nth(1).is_some() {
            self.comm.set_algorithm(collective, way)?;
        }
        let mut case = Case::<T>::new(self.comm, question, in_place, in_window)?;
        let wrong = match self.arguments.check {
            0 => None,
            _ => Some(self.check(&mut case)?),
        };
        case.clear();
        let calls = self.warm_up(&mut case)?;
        let (stats, hops) = self.time(&mut case, calls)?;
        Ok(Some(Answer {
            stats,
            wrong,
            hops,
            in_window,
        }))
    }

    /// Three calls with known results; how many values are wrong on all ranks together.
    fn check<T: Element>(&self, case: &mut Case<'_, T>) -> Result<i64> {
        let mut wrong = 0;
        for salt in 0..3 {
            case.prepare(salt);
            self.comm.barrier()?;
            case.call(salt)?;
            if self.arguments.spoil && salt == 1 && self.comm.rank() + 1 == self.comm.size() {
                case.spoil();
            }
            wrong += case.count_wrong(salt);
        }
        let mut wrong = [wrong];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum)?;
        Ok(wrong[0])
    }

    /// Calls that do not count; returns how many should.
    fn warm_up<T: Element>(&self, case: &mut Case<'_, T>) -> Result<usize> {
        let small = case.question.bytes <= SMALL_BYTES;
        let warm = self
            .arguments
            .warmup_iters
            .map_or(if small { 50 } else { 3 }, |n| n as usize);
        for i in 0..warm {
            case.call(i)?;
        }
        if let Some(calls) = self.arguments.iters {
            return Ok(calls as usize);
        }
        // By the fastest of a few, since being interrupted must not set the count; but where calls are interrupted
        // all the time, as with more ranks than cores, all of them together must not take forever.
        let (mut fastest, begin, tries) = (Duration::MAX, Instant::now(), if small { 30 } else { 3 });
        for i in 0..tries as usize {
            let start = Instant::now();
            case.call(i)?;
            fastest = fastest.min(start.elapsed());
        }
        let call = fastest.max(begin.elapsed() / tries / 10);
        let fits = self.arguments.target.as_nanos() / call.as_nanos().max(100);
        let least = if case.question.bytes >= 16 << 20 { 7 } else { 15 };
        let mut calls = [usize::try_from(fits).unwrap_or(MAX_CALLS).clamp(least, MAX_CALLS) as i64];
        self.comm.broadcast(&mut calls, 0)?;
        Ok(usize::try_from(calls[0]).unwrap_or(least))
    }

    fn time<T: Element>(
        &mut self,
        case: &mut Case<'_, T>,
        calls: usize,
    ) -> Result<(Option<Stats>, [Option<Duration>; 2])> {
        let (mut entries, mut exits) = (vec![1i64; calls + 1], vec![1i64; calls + 1]);
        let fresh = case.question.mode == Mode::Use;
        let before = self.hop()?;
        exits[0] = tsc_clock::now().cast_signed();
        for i in 1..=calls {
            if fresh {
                case.dirty();
                // Twice: a rank that is done long before the others sleeps in the first meeting, and would come late to the call.
                self.comm.barrier()?;
                self.comm.barrier()?;
                entries[i] = tsc_clock::now().cast_signed();
            }
            case.call(i)?;
            if fresh {
                case.read();
            }
            exits[i] = tsc_clock::now().cast_signed();
        }
        let after = self.hop()?;
        let ranks = self.comm.size() as usize;
        let mut all_entries = vec![0; (calls + 1) * ranks];
        let mut all_exits = all_entries.clone();
        self.comm.all_gather(&entries, &mut all_entries)?;
        self.comm.all_gather(&exits, &mut all_exits)?;
        if self.comm.rank() != 0 {
            return Ok((None, [None; 2]));
        }
        let of = |all: &[i64], i: usize, whose: Whose| {
            whose.of((0..ranks).map(|rank| all[rank * (calls + 1) + i]))
        };
        let whose = Whose::from_flag(self.arguments.average);
        let times = (1..=calls).map(|i| {
            let begin = if fresh {
                of(&all_entries, i, Whose::First)
            } else {
                of(&all_exits, i - 1, whose)
            };
            (of(&all_exits, i, whose) - begin).max(0.0) * self.us_per_tick
        });
        Ok((Stats::of(times.collect()), [before, after]))
    }

    fn hop(&mut self) -> Result<Option<Duration>> {
        self.comm.barrier()?;
        let hop = self.probe.measure();
        self.comm.barrier()?;
        Ok(hop)
    }
}

/// Data of one rank.
#[derive(Debug)]
enum Data<T> {
    Own(Vec<T>),
    Window(WindowBuffer<T>),
}

/// Elements that are written or read at a time: a page or two, which stays in the nearest cache. Made once for all calls: to
/// make one takes as long as the least of them.
const BLOCK: usize = 1024;

impl<T: Element> Data<T> {
    /// A collective call if it is in the window.
    fn new(comm: &Communicator, len: usize, in_window: bool) -> Result<Data<T>> {
        Ok(if in_window && len > 0 {
            Data::Window(comm.alloc(len)?)
        } else {
            Data::Own(vec![T::zeroed(); len])
        })
    }

    fn len(&self) -> usize {
        match self {
            Data::Own(data) => data.len(),
            Data::Window(data) => data.len(),
        }
    }

    /// Writes a part of it, block by block; elements are counted from its beginning.
    fn write(&mut self, part: &Range<usize>, block: &mut [T; BLOCK], value: impl Fn(usize) -> T) {
        for start in part.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(part.end - start)];
            for (slot, i) in block.iter_mut().zip(start - part.start..) {
                *slot = value(i);
            }
            match self {
                Data::Own(data) => data[start..start + block.len()].copy_from_slice(black_box(block)),
                Data::Window(data) => assert!(data.write(start, block).is_ok(), "inside"),
            }
        }
    }

    /// Reads a part of it, block by block, and shows each to `look`; elements are counted from its beginning.
    fn read(&self, part: &Range<usize>, block: &mut [T; BLOCK], mut look: impl FnMut(usize, &[T])) {
        for start in part.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(part.end - start)];
            match self {
                Data::Own(data) => block.copy_from_slice(&data[start..start + block.len()]),
                Data::Window(data) => assert!(data.read(start, block).is_ok(), "inside"),
            }
            look(start - part.start, block);
        }
    }
}

impl<T: Element> Source<T> for Data<T> {
    fn input(&self) -> Input<'_, T> {
        match self {
            Data::Own(data) => Input::Own(data),
            Data::Window(data) => Input::Window(data),
        }
    }
}

impl<T: Element> Target<T> for Data<T> {
    fn output(&mut self) -> Output<'_, T> {
        match self {
            Data::Own(data) => Output::Own(data),
            Data::Window(data) => Output::Window(data),
        }
    }
}

/// The root of call `i`.
fn root_of(roots: Roots, i: usize, ranks: u32) -> u32 {
    match roots {
        Roots::One(root) => root,
        Roots::All | Roots::Rotate => u32::try_from(i % ranks as usize).unwrap_or(0),
    }
}

/// A question with its data.
#[derive(Debug)]
struct Case<'a, T> {
    comm: &'a Communicator,
    question: Question,
    in_place: bool,
    /// Empty in place.
    send: Data<T>,
    recv: Data<T>,
    /// Where the input is: in `send`, or in place in `recv`.
    input: Range<usize>,
    /// Where the result is in `recv`.
    result: Range<usize>,
    block: Box<[T; BLOCK]>,
}

impl<'a, T: Element> Case<'a, T> {
    /// A collective call if the data is in the window.
    fn new(
        comm: &'a Communicator,
        question: Question,
        in_place: bool,
        in_window: bool,
    ) -> Result<Case<'a, T>> {
        let elements = question.bytes / T::DTYPE.bytes();
        let (ranks, me) = (comm.size() as usize, comm.rank() as usize);
        let Counts { send, recv } = question.collective.counts(elements, ranks);
        let (lens, (input, result)) = if in_place {
            ((0, elements), parts(question.collective, elements, ranks, me))
        } else {
            ((send, recv), (0..send, 0..recv))
        };
        Ok(Case {
            comm,
            question,
            in_place,
            send: Data::new(comm, lens.0, in_window)?,
            recv: Data::new(comm, lens.1, in_window)?,
            input,
            result,
            block: Box::new([T::zeroed(); BLOCK]),
        })
    }

    /// The root of call `i`.
    fn root(&self, i: usize) -> u32 {
        root_of(self.question.root, i, self.comm.size())
    }

    #[inline]
    fn call(&mut self, i: usize) -> Result<()> {
        let Question { collective, op, .. } = self.question;
        let (comm, send, recv) = (self.comm, &self.send, &mut self.recv);
        // Only where there is one: the division is felt beside the least of calls.
        let root = || root_of(self.question.root, i, comm.size());
        match collective {
            Collective::AllReduce if self.in_place => comm.all_reduce(recv, op),
            Collective::AllReduce => comm.all_reduce_into(send, recv, op),
            Collective::AllGather if self.in_place => comm.all_gather_in_place(recv),
            Collective::AllGather => comm.all_gather(send, recv),
            Collective::ReduceScatter if self.in_place => comm.reduce_scatter_in_place(recv, op),
            Collective::ReduceScatter => comm.reduce_scatter(send, recv, op),
            Collective::Broadcast => comm.broadcast(recv, root()),
            Collective::AllToAll if self.in_place => comm.all_to_all_in_place(recv),
            Collective::AllToAll => comm.all_to_all(send, recv),
            Collective::Gather => comm.gather(send, recv, root()),
            Collective::Scatter => comm.scatter(send, recv, root()),
            Collective::Barrier => comm.barrier(),
            other if self.in_place => comm.collective_in_place(other, recv, (op, root())),
            other => comm.collective(other, send, recv, (op, root())),
        }
    }

    fn pattern(&self, salt: usize) -> Pattern {
        Pattern {
            collective: self.question.collective,
            op: self.question.op,
            ranks: self.comm.size() as usize,
            root: self.root(salt) as usize,
            salt,
        }
    }

    /// The input, and what is around it.
    fn prepare(&mut self, salt: usize) {
        let (pattern, me) = (self.pattern(salt), self.comm.rank() as usize);
        let all = 0..self.recv.len();
        if all != self.input || !self.in_place {
            self.recv.write(&all, &mut self.block, |_| T::from_i64(77));
        }
        self.write_input(|i| pattern.input(me, i));
    }

    fn write_input(&mut self, value: impl Fn(usize) -> T) {
        let data = if self.in_place {
            &mut self.recv
        } else {
            &mut self.send
        };
        data.write(&self.input, &mut self.block, value);
    }

    fn count_wrong(&mut self, salt: usize) -> i64 {
        let (pattern, me, len) = (self.pattern(salt), self.comm.rank() as usize, self.result.len());
        let expected = pattern.results::<T>(me, len);
        let mut wrong = 0;
        self.recv.read(&self.result, &mut self.block, |start, block| {
            let bad = |(wanted, got): &(&Option<T>, &T)| wanted.is_some_and(|wanted| wanted != **got);
            wrong += expected[start..].iter().zip(block).filter(bad).count() as i64;
        });
        wrong
    }

    /// Changes the last value of the result.
    fn spoil(&mut self) {
        let last = self.result.end.saturating_sub(1)..self.result.end;
        self.recv.write(&last, &mut self.block, |_| T::from_i64(99));
    }

    fn clear(&mut self) {
        for data in [&mut self.send, &mut self.recv] {
            data.write(&(0..data.len()), &mut self.block, |_| T::zeroed());
        }
    }

    /// Rewrites the input.
    fn dirty(&mut self) {
        self.write_input(|_| T::zeroed());
    }

    /// Reads the whole result.
    fn read(&mut self) {
        self.recv.read(&self.result, &mut self.block, |_, block| {
            black_box(block);
        });
    }
}
