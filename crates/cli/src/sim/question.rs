//! What is asked of the simulator: every combination of collective, algorithm and size.

use super::algorithms::Algorithms;
use super::call::{Call, Failure};
use super::ccl::{self, place_ranks};
use super::row::Row;
use super::{Refused, SimArguments};
use crate::machine;
use ringwork::ccl::{Ccl, WorldSize};
use ringwork::collectives::catalogue::{self, Entry, Needs};
use ringwork::collectives::domain::Demand;
use ringwork::isa::{Algorithm, Collective, Dtype};
use ringwork::layout::Bytes;
use ringwork::runtime::Interrupter;
use ringwork::sim::Topology;
use std::time::Instant;

/// One of the calls to make, on its machine.
pub(super) struct Question {
    pub(super) call: Call,
    pub(super) topology: Topology,
    pub(super) varied: Vec<(String, String)>,
}

impl Question {
    pub(super) fn ask(&self, stop: &Interrupter, heard: &dyn Fn(u64, u64)) -> Result<Row, Failure> {
        let start = Instant::now();
        let prediction = self.call.simulate(&self.topology, stop, heard)?;
        Ok(Row {
            topology: self.topology.name.clone(),
            varied: self.varied.clone(),
            call: self.call,
            prediction,
            took: start.elapsed(),
        })
    }
}

/// What a comparison of everything leaves out, and why.
pub(super) struct LeftOut {
    pub(super) collective: Collective,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) why: String,
}

impl LeftOut {
    /// The names of the algorithms.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|one| one.name()).collect()
    }
}

/// Notes that an algorithm is left out, with others that are for the same reason.
fn leave_out(all: &mut Vec<LeftOut>, entry: &Entry, why: String) {
    let (collective, algorithm) = (entry.collective, entry.algorithm);
    let same = |left_out: &&mut LeftOut| left_out.collective == collective && left_out.why == why;
    match all.iter_mut().find(same) {
        Some(left_out) if left_out.algorithms.contains(&algorithm) => {}
        Some(left_out) => left_out.algorithms.push(algorithm),
        None => all.push(LeftOut {
            collective,
            algorithms: vec![algorithm],
            why,
        }),
    }
}

/// What is asked of every machine, whatever the size.
pub(super) struct Asked<'a> {
    pub(super) algorithms: Option<&'a Algorithms>,
    pub(super) ranks: Option<WorldSize>,
    pub(super) dtype: Option<Dtype>,
    pub(super) scratch: Option<u64>,
    pub(super) timing_only: bool,
    pub(super) prove: bool,
    /// What is not said above.
    pub(super) ccl: &'a Ccl,
}

impl Asked<'_> {
    /// Whether a call is one that was asked for, now that its size is known: choices may be by size.
    pub(super) fn wants(&self, call: &Call) -> bool {
        let Call {
            entry, ranks, bytes, ..
        } = call;
        let chosen = self.ccl.algorithm(entry.collective, *ranks, *bytes as u64);
        // What the file says by default may be for other collectives.
        let chosen = chosen.filter(|chosen| catalogue::find(entry.collective, *chosen).is_some());
        self.algorithms.is_some() || chosen.is_none_or(|chosen| chosen == entry.algorithm)
    }

    /// The calls of a collective on a machine, one for each algorithm, each of no size yet and with the machine as its
    /// ranks are placed there. What a comparison of everything cannot compare is left out.
    ///
    /// # Errors
    /// If what was asked for cannot be.
    pub(super) fn calls(
        &self,
        collective: Collective,
        machine: &Topology,
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Vec<(Call, Topology)>, String> {
        let algorithms = Algorithms::choose(self.algorithms, self.ccl, collective);
        let mut calls = Vec::new();
        for entry in algorithms.entries(collective) {
            let of = (collective, entry.algorithm);
            let mut topology = machine.clone();
            let ranks = match &self.ranks {
                None => ccl::world_size(self.ccl, of, &mut topology)?.ranks,
                Some(size) => {
                    place_ranks(size, &mut topology)?;
                    size.ranks
                }
            };
            if let Some(why) = algorithms.check(entry, &topology, ranks)? {
                leave_out(left_out, entry, why);
                continue;
            }
            let call = Call {
                entry,
                ranks,
                bytes: 0,
                dtype: self.dtype.or_else(|| self.ccl.dtype(of)).unwrap_or(Dtype::F32),
                scratch: self.scratch.or_else(|| self.ccl.scratch(of)),
                memory: ccl::memory(self.ccl, of, &topology)?,
                queues: ccl::queues(self.ccl, of, &topology)?,
                timing_only: self.timing_only || self.prove,
                prove: self.prove,
                races: false,
                trace: false,
            };
            check_exact(&call)?;
            check_scratch(&call)?;
            calls.push((call, topology));
        }
        Ok(calls)
    }
}

/// Everything that the command line asks for, checked before anything is simulated.
pub(super) fn questions(arguments: &SimArguments) -> Result<(Vec<Question>, Vec<LeftOut>), Refused> {
    let Some(op) = &arguments.op else {
        return Err("which collective? `ringwork sim all_reduce --topology h100x8`"
            .to_owned()
            .into());
    };
    let Some(name) = &arguments.topology else {
        return Err(
            "on which machine? add --topology FILE|PRESET; `ringwork topo list` lists presets"
                .to_owned()
                .into(),
        );
    };
    arguments.output.check()?;
    let machine = machine::load(name)?;
    let ccl = match &arguments.ccl {
        None => Ccl::default(),
        Some(path) => ccl::load(path)?,
    };
    let asked = Asked {
        algorithms: arguments.algo.as_ref(),
        ranks: arguments.ranks.map(|ranks| WorldSize {
            ranks,
            from: "--ranks".into(),
        }),
        dtype: arguments.dtype,
        scratch: arguments.scratch.map(|bytes| bytes as u64),
        timing_only: arguments.timing_only,
        prove: arguments.prove,
        ccl: &ccl,
    };
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    // Of one operation there must be what is asked for; of all, those that have it.
    if let (Some(asked), [only]) = (&arguments.algo, &op.0[..]) {
        asked.check_any(*only)?;
    }
    for collective in op.0.iter().copied() {
        let calls = asked.calls(collective, &machine, &mut left_out)?;
        let sizes: Vec<_> = calls
            .iter()
            .map(|(call, _)| sizes(arguments, &ccl, call))
            .collect::<Result<_, String>>()?;
        // Size by size, so that algorithms can be compared while the rest is still being computed.
        let most = sizes.iter().map(Vec::len).max().unwrap_or(0);
        for index in 0..most {
            for ((call, topology), sizes) in calls.iter().zip(&sizes) {
                if let Some(bytes) = sizes.get(index) {
                    let call = Call {
                        bytes: *bytes,
                        races: arguments.races,
                        trace: arguments.trace.is_some(),
                        ..*call
                    };
                    if asked.wants(&call) {
                        all.push(Question {
                            call,
                            topology: topology.clone(),
                            varied: Vec::new(),
                        });
                    }
                }
            }
        }
    }
    if all.is_empty() {
        return Err(
            "no size that was asked for can be dealt out to that many ranks; use larger ones"
                .to_owned()
                .into(),
        );
    }
    if arguments.trace.is_some() && all.len() > 1 {
        return Err(format!(
            "--trace shows one prediction, and these are {}; add --algo NAME and one size, such as -b 1M -e 1M",
            all.len()
        )
        .into());
    }
    Ok((all, left_out))
}

/// Refuses to verify where sums of so many ranks cannot be exact.
fn check_exact(call: &Call) -> Result<(), String> {
    let narrow = call.dtype.exact_integers() < 1 << 24;
    if call.ranks > 64 && narrow && !call.timing_only {
        return Err(format!(
            "{} cannot hold exact sums of {} ranks to verify; use --dtype f32 or --timing-only",
            call.dtype, call.ranks
        ));
    }
    Ok(())
}

/// Refuses a scratch that would be rounded up without a word.
fn check_scratch(call: &Call) -> Result<(), String> {
    let least = Demand::new(call.ranks, call.dtype, 0).least_scratch_bytes();
    match call.scratch {
        Some(bytes) if bytes < least && call.entry.needs == Needs::Scratch => Err(format!(
            "a scratch of {} is too small: its halves must hold an element for each of {} ranks; give it at least {}",
            Bytes(bytes),
            call.ranks,
            Bytes(least)
        )),
        _ => Ok(()),
    }
}

fn sizes(arguments: &SimArguments, ccl: &Ccl, call: &Call) -> Result<Vec<usize>, String> {
    let configured = ccl
        .n_elem((call.collective(), call.entry.algorithm))
        .map(|elements| elements * call.dtype.bytes());
    let (first, last) = match (arguments.min_bytes, arguments.max_bytes, configured) {
        (None, None, Some(bytes)) => (bytes, bytes),
        (None, Some(last), _) => (last.min(1 << 10), last),
        (first, last, _) => {
            let first = first.unwrap_or(1 << 10);
            (first, last.unwrap_or(first.max(1 << 20)))
        }
    };
    if last < first || first == 0 {
        return Err("sizes go from -b to -e; -b must be at least 1 and at most -e".into());
    }
    let factor = arguments.step_factor as usize;
    let all = std::iter::successors(Some(first), |bytes| bytes.checked_mul(factor));
    let whole = |bytes| {
        call.collective()
            .whole(bytes, call.dtype.bytes(), call.ranks as usize)
    };
    let mut sizes: Vec<usize> = all.take_while(|bytes| *bytes <= last).filter_map(whole).collect();
    sizes.dedup();
    Ok(sizes)
}
