//! A program to be checked: ranks, memory, a kernel, and what its results must be.

use crate::explore::{Bounds, Found, explore, search};
use crate::fault::Fault;
use crate::interleave::{Interleavings, interleave};
use crate::memory::{Contents, Memory};
use crate::mutate::Mutant;
use crate::replay::{Replay, replay, sides};
use crate::reuse::{Private, reuse};
use crate::run::Run;
use crate::schedule::{Schedule, ScheduleError};
use crate::tree::{Applied, Change, Kernel, Start, Tree};
use crate::verdict::{Proof, Verdict};
use ringwork_isa::stepped::{Payload, SteppedCore};
use ringwork_isa::{
    Barrier, Contributions, Element, In, Out, Rank, Region, Result, Segment, Shared, Signal, Signals, Span,
};
use ringwork_layout::{BufferPlace, CellRow, Layout};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Instant;

const WINDOWS: Segment = Segment(1);
const PRIVATE: u32 = 100;

/// A rank's place in the domain of a checked program: what its handles are made from.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The rank.
    pub me: Rank,
    /// The number of the call, from 0.
    pub call: u32,
    /// Where the windows are.
    pub layout: Layout,
}

impl Seat {
    /// `len` elements of my window, from a byte offset on. Whether they are inside is checked at every instruction.
    #[must_use]
    pub fn buffer<T: Element>(&self, offset: u64, len: usize) -> Shared<T> {
        let (dtype, count) = (T::DTYPE, len);
        self.layout.region(self.me, BufferPlace { offset, dtype, count })
    }

    /// `len` elements of my private memory, from a byte offset on: nobody else can touch them.
    #[must_use]
    pub fn private<T: Element>(&self, offset: u64, len: usize) -> Span {
        let (dtype, count) = (T::DTYPE, len);
        private(self.me).private_span(BufferPlace { offset, dtype, count })
    }

    /// `len` elements of my private memory to read from, from a byte offset on.
    #[must_use]
    pub fn input<T: Element>(&self, offset: u64, len: usize) -> In<T> {
        self.private_region(offset, len)
    }

    /// `len` elements of my private memory to write to, from a byte offset on.
    #[must_use]
    pub fn output<T: Element>(&self, offset: u64, len: usize) -> Out<T> {
        self.private_region(offset, len)
    }

    fn private_region<T: Element, A: ringwork_isa::Access>(&self, offset: u64, len: usize) -> Region<T, A> {
        Region::from_span(self.private::<T>(offset, len)).expect("the span was made of this type")
    }

    /// My signals from number `first` on.
    #[must_use]
    pub fn signals(&self, first: u32) -> Signals {
        let count = self.layout.cells.saturating_sub(first);
        self.layout.signals(self.me, CellRow { first, count })
    }

    /// My signal number `index`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](ringwork_isa::ErrorKind::OutOfBounds) if there is none.
    #[track_caller]
    pub fn signal(&self, index: u32) -> Result<Signal> {
        self.signals(0).at(index)
    }

    /// A barrier over signal 0.
    #[must_use]
    pub fn barrier(&self) -> Barrier {
        Barrier::new(self.signals(0))
    }
}

/// What a check says of a [`Mutant`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// It has this fault.
    Fault(Box<Fault>),
    /// It was not decided within the bounds.
    Bound,
    /// It is proved: it survives.
    Nothing,
}

fn private(rank: Rank) -> Layout {
    Layout::packed(Segment(PRIVATE + rank.0), 1, 0, 0)
}

/// A kernel and what it runs on. See the [crate] for an example.
pub struct Program {
    ranks: u32,
    calls: u32,
    cells: u32,
    window_bytes: u64,
    private_bytes: u64,
    private_bytes_per_call: u64,
    first_value: i32,
    contents: Contents,
    bounds: Bounds,
    inputs: Vec<(Span, Payload)>,
    results: Vec<(u32, Span, Payload)>,
    start: Box<dyn Fn(Layout) -> Start>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({} ranks, {} calls)", self.ranks, self.calls)
    }
}

impl Program {
    /// A kernel that every one of `ranks` calls `calls` times, one call after the other.
    ///
    /// Each window has 64 signals and 64 KiB of data, unless it is [said](Program::windows) otherwise; all are zero.
    pub fn new<K>(ranks: u32, calls: u32, kernel: K) -> Program
    where
        K: AsyncFn(&SteppedCore, Seat) -> Result<()> + 'static,
    {
        let kernel = Rc::new(kernel);
        let start = move |layout: Layout| -> Start {
            let kernel = kernel.clone();
            Rc::new(move |core: SteppedCore, me: Rank, at: Rc<Cell<u32>>| -> Kernel {
                let kernel = kernel.clone();
                Box::pin(async move {
                    for call in 0..calls {
                        at.set(call);
                        kernel(&core, Seat { me, call, layout }).await?;
                    }
                    Ok(())
                })
            })
        };
        Program {
            ranks,
            calls,
            cells: 64,
            window_bytes: 64 << 10,
            private_bytes: 64 << 10,
            private_bytes_per_call: 0,
            first_value: 0,
            contents: Contents::default(),
            bounds: Bounds::default(),
            inputs: Vec::new(),
            results: Vec::new(),
            start: Box::new(start),
        }
    }

    /// Windows of so many signals and bytes of data.
    #[must_use]
    pub fn windows(self, cells: u32, window_bytes: u64) -> Program {
        Program {
            cells,
            window_bytes,
            ..self
        }
    }

    /// Private memory of so many bytes on every rank.
    #[must_use]
    pub fn private_bytes(self, private_bytes: u64) -> Program {
        Program {
            private_bytes,
            ..self
        }
    }

    /// Says that the calls use different private memory: each its own so many bytes, one after the other.
    #[must_use]
    pub fn private_bytes_per_call(self, private_bytes_per_call: u64) -> Program {
        Program {
            private_bytes_per_call,
            ..self
        }
    }

    /// The value that every signal begins with: such as one shortly before counters wrap.
    #[must_use]
    pub fn first_value(self, first_value: i32) -> Program {
        Program { first_value, ..self }
    }

    /// What memory keeps.
    #[must_use]
    pub fn contents(self, contents: Contents) -> Program {
        Program { contents, ..self }
    }

    /// How far a search goes.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Program {
        Program { bounds, ..self }
    }

    /// Where the windows are.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::packed(WINDOWS, self.ranks, self.cells, self.window_bytes)
    }

    /// The place of a rank, for its first call.
    #[must_use]
    pub fn seat(&self, rank: u32) -> Seat {
        Seat {
            me: Rank(rank),
            call: 0,
            layout: self.layout(),
        }
    }

    /// Puts bytes into memory before the kernels start.
    #[must_use]
    pub fn input(mut self, span: Span, bytes: Vec<u8>) -> Program {
        self.inputs.push((span, Payload::Bytes(bytes)));
        self
    }

    /// Says whose input lies somewhere before the kernels start: that of `member`, from its first byte on. With
    /// [`Contents::Origins`], and members numbered `call * ranks + rank`, stale inputs are named.
    #[must_use]
    pub fn input_of(mut self, span: Span, member: u32) -> Program {
        let origin = Contributions::input(member, 0, span.byte_len() as u64);
        self.inputs.push((span, Payload::Origin(origin)));
        self
    }

    /// The bytes that must be in memory when all kernels have ended.
    #[must_use]
    pub fn result(mut self, rank: u32, span: Span, bytes: Vec<u8>) -> Program {
        self.results.push((rank, span, Payload::Bytes(bytes)));
        self
    }

    /// Where the bytes must come from that are in memory when all kernels have ended.
    #[must_use]
    pub fn result_of(mut self, rank: u32, span: Span, origin: Contributions) -> Program {
        self.results.push((rank, span, Payload::Origin(origin)));
        self
    }

    /// Checks it.
    pub fn prove(&self) -> Verdict {
        let begin = Instant::now();
        let found = self.explore();
        let proof = match () {
            () if !found.faults.is_empty() || found.bound.is_some() => None,
            () if found.ordered.is_empty() => Some(Proof::OneExecution),
            () => Some(Proof::AllExecutions),
        };
        Verdict {
            ranks: self.ranks,
            calls: self.calls,
            proof,
            reuse: None,
            faults: found.faults,
            bound: found.bound,
            trace: found.trace,
            executions: found.executions,
            states: found.states,
            instructions: found.instructions,
            has_loops: found.has_loops,
            ordered: found
                .ordered
                .iter()
                .map(|(signal, broken)| (signal.index(), signal.rank().0, *broken))
                .collect(),
            elapsed: begin.elapsed(),
        }
    }

    /// Checks it, and whether what was checked goes on for any number of calls: the program must come to a state in which
    /// it was before, twice. So ask for more than twice as many calls as its period has.
    ///
    /// [`Verdict::reuse`] says so. If that is none, only these calls are proved. What is assumed: a kernel does the same in
    /// every epoch. It may use memory in turn, and depend on the number of the call in turn.
    pub fn prove_reuse(&self) -> Verdict {
        let mut verdict = self.prove();
        if verdict.proof == Some(Proof::OneExecution) && !verdict.has_loops {
            let begin = Instant::now();
            let (start, mut trees) = self.begin(None);
            let private = Private {
                first: Segment(PRIVATE),
                each_call_bytes: self.private_bytes_per_call,
            };
            verdict.reuse = reuse(&start, &mut trees, self.calls, private);
            verdict.elapsed += begin.elapsed();
        }
        verdict
    }

    /// Explores every interleaving of it, for any number of calls, by another method that shares nothing with
    /// [`prove`](Program::prove); what is asked of the ranks repeats after `period` calls. For 2 or 3 ranks.
    ///
    /// The program must have a few periods of calls: as many as one rank can be ahead of another, and two more.
    #[must_use]
    pub fn interleave(&self, period: u32) -> Interleavings {
        let (_, mut trees) = self.begin(None);
        interleave(
            &mut trees,
            (self.calls, period),
            self.first_value,
            self.bounds.states,
        )
    }

    /// Runs it, and says what each kernel returned; errors of kernels are not faults here.
    ///
    /// # Errors
    /// Every race, deadlock and misuse that was found.
    pub fn run(&self) -> std::result::Result<Vec<Result<()>>, Vec<Fault>> {
        let mut found = self.explore();
        found
            .faults
            .retain(|fault| !matches!(fault, Fault::Failed { .. }));
        if found.faults.is_empty() {
            Ok(found.ends)
        } else {
            Err(found.faults)
        }
    }

    fn explore(&self) -> Found {
        let (run, mut trees) = self.begin(None);
        explore(&run, &mut trees, self.bounds, &|run| self.wrong(run))
    }

    /// Every mutant of every instruction that it does.
    #[must_use]
    pub fn mutants(&self) -> BTreeSet<Mutant> {
        let (run, mut trees) = self.begin(None);
        explore(&run, &mut trees, self.bounds, &|_| Vec::new());
        let all = trees.iter().flat_map(Tree::instructions);
        all.flat_map(|(instruction, at)| Mutant::of(instruction, at))
            .collect()
    }

    /// Checks it with one instruction wrong; says what is noticed, if anything. `None` if no instruction was changed, or
    /// only two exchanged whose order makes no difference, or of which one is only published later.
    #[must_use]
    pub fn fault_of(&self, mutant: &Mutant) -> Option<Noticed> {
        let applied = Rc::new(Applied::new(mutant.clone()));
        let (run, mut trees) = self.begin(Some(&applied));
        let found = search(&run, &mut trees, self.bounds, &|run| self.wrong(run)).found;
        let noticed = match found.faults.into_iter().next() {
            Some(fault) => Noticed::Fault(Box::new(fault)),
            None if found.bound.is_some() => Noticed::Bound,
            None => Noticed::Nothing,
        };
        match applied.change() {
            Change::Nothing => None,
            Change::Delay if noticed == Noticed::Nothing => None,
            Change::Delay | Change::Program => Some(noticed),
        }
    }

    /// Runs one execution, along a schedule that a report printed.
    ///
    /// # Errors
    /// If it is the schedule of another program.
    pub fn replay(&self, schedule: &Schedule) -> std::result::Result<Replay, ScheduleError> {
        let (start, mut trees) = self.begin(None);
        let (run, mut faults) = replay(&start, &mut trees, schedule)?;
        let steps = sides(&run, &trees);
        if faults.is_empty() {
            faults = self.wrong(&run);
        }
        Ok(Replay { steps, faults })
    }

    /// Memory and kernels before the first instruction.
    fn begin(&self, mutant: Option<&Rc<Applied>>) -> (Run, Vec<Tree>) {
        let layout = self.layout();
        let mut memory = Memory::default();
        memory.define(layout.segment, None, layout.bytes(), self.contents);
        for rank in 0..self.ranks {
            memory.define(
                Segment(PRIVATE + rank),
                Some(rank),
                self.private_bytes,
                self.contents,
            );
        }
        for (span, data) in &self.inputs {
            if let Some(bytes) = span.byte_range() {
                memory.write(span.segment, &bytes, data);
            }
        }
        let start = (self.start)(layout);
        let trees = (0..self.ranks).map(|rank| Tree::new(Rank(rank), start.clone(), mutant.cloned()));
        (Run::new(self.ranks, self.first_value, memory), trees.collect())
    }

    fn wrong(&self, run: &Run) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (rank, span, wanted) in &self.results {
            let got = span
                .byte_range()
                .map(|bytes| run.memory.read(span.segment, &bytes))
                .unwrap_or_default();
            if let Some(message) = self.difference(&got, wanted, span) {
                faults.push(Fault::Wrong { rank: *rank, message });
            }
        }
        faults
    }

    fn difference(&self, got: &Payload, wanted: &Payload, span: &Span) -> Option<String> {
        let size = span.dtype.bytes() as u64;
        match (got, wanted) {
            (Payload::Origin(got), Payload::Origin(wanted)) => {
                let wrong = got.differences(wanted);
                let first = wrong.first()?;
                let elements = first.bytes.start / size..first.bytes.end.div_ceil(size);
                Some(format!(
                    "elements {}..{}: {}",
                    elements.start,
                    elements.end,
                    self.named(first.how)
                ))
            }
            (Payload::Bytes(got), Payload::Bytes(wanted)) if got != wanted => {
                let at = got.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0) as u64;
                Some(format!("element {} is not what it should be", at / size))
            }
            (Payload::Bytes(_), Payload::Bytes(_)) => None,
            _ => Some("the result was not kept as it is asked for; use the same `Contents` for both".into()),
        }
    }

    /// Members are numbered by call and rank.
    fn named(&self, how: ringwork_isa::Difference) -> String {
        use ringwork_isa::Difference;
        let of = |member: u32| format!("rank {} of call {}", member % self.ranks, member / self.ranks);
        match how {
            Difference::Lacks { member } => format!("lacks the input of {}", of(member)),
            Difference::Repeats { member, times } => {
                format!("counts the input of {} {times} times", of(member))
            }
            Difference::Foreign { member } => {
                format!(
                    "contains the input of {}, which does not belong there",
                    of(member)
                )
            }
            other => other.to_string(),
        }
    }
}

/// The typed handle of a span.
///
/// # Errors
/// If the span has another type.
pub fn typed<T: Element, A: ringwork_isa::Access>(span: Span) -> Result<Region<T, A>> {
    Region::from_span(span)
        .map_err(|dtype| ringwork_isa::Error::failed(format!("a span of {dtype}, not of {}", T::DTYPE)))
}
