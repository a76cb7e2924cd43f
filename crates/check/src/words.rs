//! Puts what was found into words: lines instead of tree nodes, one entry for each pair of lines.

mod help;

use crate::fault::{Fault, Misuse, Race, Side, Stuck};
use crate::run::{Run, signal_of};
use crate::shadow::Access;
use crate::tree::{NodeId, Step, Tree};
use help::help;
use ringwork_isa::stepped::Instruction;
use ringwork_isa::{Compare, Error, Notify, Signal, Site, Span, Waited};
use std::ops::Range;

/// A fault as it is found, before it is put into words.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    Race {
        first: Access,
        second: Access,
        span: Span,
        bytes: Range<u64>,
        /// How much the second knew of the first's rank.
        known: u32,
    },
    Misuse(Misuse, Access, Option<Access>, Option<Signal>),
    Failed {
        rank: u32,
        node: NodeId,
        error: Error,
    },
}

pub(crate) fn side(trees: &[Tree], access: Access) -> Side {
    let tree = &trees[access.rank as usize];
    let (instruction, site) = match tree.step(access.node) {
        Step::Instruction(instruction, at) => (name(instruction), Site::from(*at)),
        Step::Ended(_) => (
            "end",
            Site {
                file: "".into(),
                line: 0,
            },
        ),
    };
    Side {
        rank: access.rank,
        call: tree.call(access.node),
        instruction,
        site,
        writes: access.writes,
        signal: match tree.step(access.node) {
            Step::Instruction(instruction, _) => about_signal(instruction),
            Step::Ended(_) => String::new(),
        },
    }
}

/// The signal of an instruction, and what is done to it or asked of it.
fn about_signal(instruction: &Instruction) -> String {
    let of = |signal: &Signal| format!("signal {} of rank {}", signal.index(), signal.rank());
    match instruction {
        Instruction::Notify { signal, how } => format!("{} {how:?}", of(signal)),
        Instruction::Wait {
            signal,
            compare,
            operand,
        }
        | Instruction::Test {
            signal,
            compare,
            operand,
        } => format!("{} {compare} {operand}", of(signal)),
        other => signal_of(other).map(of).unwrap_or_default(),
    }
}

pub(crate) fn name(instruction: &Instruction) -> &'static str {
    match instruction {
        Instruction::Copy { .. } | Instruction::CopyBlock { .. } => "copy",
        Instruction::CopyAsync { .. } => "copy_async",
        Instruction::Join(_) => "join",
        Instruction::Put { .. } => "send",
        Instruction::Take { .. } => "recv",
        Instruction::Reduce { .. } => "reduce",
        Instruction::Load { .. } | Instruction::LoadBlock { .. } => "load",
        Instruction::Store { .. } | Instruction::StoreBlock { .. } => "store",
        Instruction::Spend(_) => "spend",
        Instruction::PutPacket { .. } => "put_packet",
        Instruction::TakePackets { .. } => "get_packet",
        Instruction::Notify { .. } => "notify",
        Instruction::Wait { .. } => "wait",
        Instruction::Test { .. } => "test",
        Instruction::Peek { .. } => "peek",
        Instruction::OwnValue { .. } => "own_value",
    }
}

/// Puts the findings of an execution into words, one for each pair of lines.
pub(crate) fn in_words(run: &Run, trees: &[Tree]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for finding in &run.findings {
        match finding {
            Finding::Race {
                first,
                second,
                span,
                bytes,
                known,
            } => {
                let sides = (side(trees, *first), side(trees, *second));
                let same_lines = faults.iter_mut().find_map(|fault| match fault {
                    Fault::Race(race)
                        if is_same(&race.first, &sides.0) && is_same(&race.second, &sides.1) =>
                    {
                        Some(race)
                    }
                    _ => None,
                });
                if let Some(race) = same_lines {
                    race.count += 1;
                    continue;
                }
                let size = span.dtype.bytes() as u64;
                let base = span.base + span.stride * u64::from(span.rank.0);
                let known = last_known(trees, *first, *known);
                let help = help(
                    run,
                    trees,
                    (*first, &sides.0),
                    (*second, &sides.1),
                    known.as_ref(),
                );
                faults.push(Fault::Race(Box::new(Race {
                    memory_of: if span.ranks == 1 { second.rank } else { span.rank.0 },
                    is_private: span.ranks == 1 && span.stride == 0,
                    elements: (bytes.start - base) / size..(bytes.end - base).div_ceil(size),
                    first: sides.0,
                    second: sides.1,
                    known,
                    help,
                    count: 1,
                })));
            }
            Finding::Misuse(what, first, second, signal) => {
                let all = [Some(*first), *second];
                let sides: Vec<Side> = all.into_iter().flatten().map(|one| side(trees, one)).collect();
                let is_known = faults.iter().any(|fault| match fault {
                    Fault::Misuse {
                        what: known,
                        sides: others,
                        ..
                    } => known == what && others.iter().zip(&sides).all(|(a, b)| is_same(a, b)),
                    _ => false,
                });
                if !is_known {
                    let signal = signal.map(|signal| (signal.index(), signal.rank().0));
                    faults.push(Fault::Misuse {
                        what: *what,
                        sides,
                        signal,
                    });
                }
            }
            Finding::Failed { rank, node, error } => {
                let last = Access {
                    agent: *rank,
                    rank: *rank,
                    time: 0,
                    node: *node,
                    writes: false,
                };
                faults.push(Fault::Failed {
                    last: side(trees, last),
                    error: error.clone(),
                });
            }
        }
    }
    faults
}

fn is_same(a: &Side, b: &Side) -> bool {
    a.site == b.site && a.instruction == b.instruction
}

/// The instruction that is number `time` of the rank of `access`.
fn last_known(trees: &[Tree], access: Access, time: u32) -> Option<Side> {
    let tree = &trees[access.rank as usize];
    let depth = time.checked_sub(1)?;
    let node = tree.ancestor(access.node, depth);
    Some(side(
        trees,
        Access {
            node,
            writes: false,
            ..access
        },
    ))
}

/// The ranks that have not ended, if none of them can go on.
pub(crate) fn deadlock(run: &Run, trees: &[Tree]) -> Fault {
    let mut all = Vec::new();
    for (tree, &at) in trees.iter().zip(&run.at) {
        let Step::Instruction(instruction, line) = tree.step(at) else {
            continue;
        };
        let (signal, wanted, why) = match &**instruction {
            Instruction::TakePackets { sources, epoch, .. } => {
                let epoch = (*epoch).into();
                let missing = sources
                    .iter()
                    .filter_map(|source| source.arrives)
                    .find(|(flag, _)| !run.has_come(flag, epoch));
                let Some((flag, raised)) = missing else { continue };
                let why = match run.was_put(&flag, epoch) {
                    true => "its packet was put and overwritten before it was taken".to_owned(),
                    false => "its packet was never put".to_owned(),
                };
                (raised, (Compare::Ge, epoch), why)
            }
            Instruction::Wait {
                signal,
                compare,
                operand,
            }
            | Instruction::Test {
                signal,
                compare,
                operand,
            } => (*signal, (*compare, *operand), why_not(run, trees, signal)),
            Instruction::Peek { signal } => (
                *signal,
                (Compare::Ne, run.value(signal)),
                why_not(run, trees, signal),
            ),
            _ => continue,
        };
        let waited = Waited::new(&signal, run.value(&signal), wanted, *line);
        all.push(Stuck {
            call: tree.call(at),
            waited,
            why,
        });
    }
    Fault::Deadlock(all)
}

fn why_not(run: &Run, trees: &[Tree], signal: &Signal) -> String {
    let writers = run.writers(signal);
    let Some(last) = writers.last() else {
        return "no rank has notified it".into();
    };
    let last_side = side(trees, *last);
    let back = match trees[last.rank as usize].step(last.node) {
        Step::Instruction(instruction, _) => match &**instruction {
            Instruction::Notify {
                how: Notify::Set(0), ..
            } => "; a reset loses what came before it: let the signal only grow, and wait for the next value",
            _ => "",
        },
        Step::Ended(_) => "",
    };
    format!(
        "it was notified {} times, last by rank {} in call {} ({}){back}",
        writers.len(),
        last_side.rank,
        last_side.call,
        last_side.site
    )
}
