//! What is asked of the simulator: every combination of collective, algorithm and size.

use super::call::{Call, Failure};
use super::ccl::{Ccl, WorldSize, place_ranks};
use super::row::Row;
use super::way::{Way, Ways};
use super::{Refused, SimArguments};
use crate::bench::Collective;
use crate::machine;
use ringwork::isa::Dtype;
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
    pub(super) ways: Vec<Way>,
    pub(super) why: String,
}

impl LeftOut {
    /// The names of the ways.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.ways.iter().map(|way| way.name()).collect()
    }
}

/// Notes that a way is left out, with others that are for the same reason.
pub(super) fn leave_out(all: &mut Vec<LeftOut>, collective: Collective, why: String, way: Way) {
    let same = |left_out: &&mut LeftOut| left_out.collective == collective && left_out.why == why;
    match all.iter_mut().find(same) {
        Some(left_out) if left_out.ways.contains(&way) => {}
        Some(left_out) => left_out.ways.push(way),
        None => all.push(LeftOut {
            collective,
            ways: vec![way],
            why,
        }),
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
        Some(path) => {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
            Ccl::parse(&file, &text)?
        }
    };
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for collective in op.0.iter().copied().filter(|one| *one != Collective::Barrier) {
        let asked = Ways::choose(arguments.algo.as_ref(), &ccl, collective);
        let mut ways = Vec::new();
        for algorithm in algorithms(&asked, collective) {
            let of = (collective, algorithm);
            let mut topology = machine.clone();
            let size = match arguments.ranks {
                None => ccl.world_size(of, &mut topology)?,
                Some(ranks) => {
                    let size = WorldSize {
                        ranks,
                        from: "--ranks".into(),
                    };
                    place_ranks(&size, &mut topology)?;
                    size
                }
            };
            if let Some(way) = algorithm
                && let Some(why) = asked.check(way, &topology, size.ranks)?
            {
                leave_out(&mut left_out, collective, why, way);
                continue;
            }
            let dtype = arguments.dtype.or_else(|| ccl.dtype(of)).unwrap_or(Dtype::F32);
            let call = Call {
                collective,
                algorithm,
                ranks: size.ranks,
                bytes: 0,
                dtype,
                scratch: arguments
                    .scratch
                    .map(|bytes| bytes as u64)
                    .or_else(|| ccl.scratch(of)),
                memory: ccl.memory(of, &topology)?,
                queues: ccl.queues(of, &topology)?,
                timing_only: arguments.timing_only || arguments.prove,
                prove: arguments.prove,
            };
            check_exact(&call)?;
            ways.push((call, topology, sizes(arguments, &ccl, &call)?));
        }
        // Size by size, so that algorithms can be compared while the rest is still being computed.
        let most = ways.iter().map(|(.., sizes)| sizes.len()).max().unwrap_or(0);
        for index in 0..most {
            for (call, topology, sizes) in &ways {
                if let Some(bytes) = sizes.get(index) {
                    all.push(Question {
                        call: Call {
                            bytes: *bytes,
                            ..*call
                        },
                        topology: topology.clone(),
                        varied: Vec::new(),
                    });
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
    Ok((all, left_out))
}

/// The algorithms of a collective; all but one have a single way.
pub(super) fn algorithms(asked: &Ways, collective: Collective) -> Vec<Option<Way>> {
    if collective == Collective::AllReduce {
        asked.each().map(Some).collect()
    } else {
        vec![None]
    }
}

/// Refuses to verify where sums of so many ranks cannot be exact.
pub(super) fn check_exact(call: &Call) -> Result<(), String> {
    let narrow = matches!(call.dtype, Dtype::BF16 | Dtype::F16 | Dtype::I8 | Dtype::U8);
    if call.ranks > 64 && narrow && !call.timing_only {
        return Err(format!(
            "{} cannot hold exact sums of {} ranks to verify; use --dtype f32 or --timing-only",
            call.dtype, call.ranks
        ));
    }
    Ok(())
}

fn sizes(arguments: &SimArguments, ccl: &Ccl, call: &Call) -> Result<Vec<usize>, String> {
    let configured = ccl
        .n_elem((call.collective, call.algorithm))
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
        call.collective
            .whole(bytes, call.dtype.bytes(), call.ranks as usize)
    };
    let mut sizes: Vec<usize> = all.take_while(|bytes| *bytes <= last).filter_map(whole).collect();
    sizes.dedup();
    Ok(sizes)
}
