//! Suggestions for races whose pattern is known.

use crate::fault::Side;
use crate::run::{Run, signal_of};
use crate::shadow::Access;
use crate::tree::{Step, Tree};
use ringwork_isa::stepped::Instruction;
use ringwork_isa::{Compare, Site};

/// What to do about a race, where its pattern is known.
pub(super) fn help(
    run: &Run,
    trees: &[Tree],
    first: (Access, &Side),
    second: (Access, &Side),
    known: Option<&Side>,
) -> Option<String> {
    let is_under_way = |access: Access| access.agent != access.rank;
    if is_under_way(first.0) || is_under_way(second.0) {
        return Some("a copy is under way until its `join`: join it before its memory is touched and before the notify that publishes it".into());
    }
    let (a, b) = (first.1, second.1);
    if let Some(old) = [second.0, first.0]
        .into_iter()
        .find_map(|one| old_signal(run, trees, one))
    {
        return Some(old);
    }
    if !a.writes {
        return Some(match a.call == b.call {
            true => format!(
                "let rank {} notify after its {}, and rank {} wait for that before its {}",
                a.rank, a.instruction, b.rank, b.instruction
            ),
            false => format!(
                "rank {} overwrites in call {} what rank {} may still read from call {}: use two halves in turn (`half(epoch)`), or meet once more after the {}",
                b.rank, b.call, a.rank, a.call, a.instruction
            ),
        });
    }
    let notified_early = known.filter(|known| known.instruction == "notify" && known.call == a.call);
    if let Some(early) = notified_early {
        return Some(format!(
            "rank {} notifies at {} before it writes at {}: notify after the {}",
            a.rank, early.site, a.site, a.instruction
        ));
    }
    let waits = waited_for(trees, second.0, a.rank);
    Some(match waits {
        Some(line) => format!(
            "the wait of rank {} at {line} is satisfied before this {}: wait for a value that rank {} sets after it",
            b.rank, a.instruction, a.rank
        ),
        None => format!(
            "let rank {} notify after its {}, and rank {} wait for that before its {}",
            a.rank, a.instruction, b.rank, b.instruction
        ),
    })
}

/// Whether an access relies on a wait of its call that a notify of an earlier call satisfied already.
fn old_signal(run: &Run, trees: &[Tree], access: Access) -> Option<String> {
    let tree = &trees[access.rank as usize];
    let call = tree.call(access.node);
    let mut at = tree.parent(access.node);
    while let Some(node) = at.filter(|node| tree.call(*node) == call) {
        if let Step::Instruction(instruction, line) = tree.step(node)
            && let Instruction::Wait {
                signal,
                compare: compare @ (Compare::Ge | Compare::Gt),
                operand,
            } = &**instruction
            && let Some(notify) = run.first_holding(signal, *compare, *operand)
            && let Some(old) = Some(trees[notify.rank as usize].call(notify.node)).filter(|old| *old < call)
        {
            return Some(format!(
                "the wait of rank {} at {} in call {call} is satisfied by a notify of call {old} already: let the signal grow with every call, and wait for the value of this one",
                access.rank,
                Site::from(*line)
            ));
        }
        at = tree.parent(node);
    }
    None
}

/// The last wait of a rank, in the same call, for a signal that belongs to or is waited for from `peer`.
fn waited_for(trees: &[Tree], access: Access, peer: u32) -> Option<Site> {
    let tree = &trees[access.rank as usize];
    let call = tree.call(access.node);
    let mut at = tree.parent(access.node);
    while let Some(node) = at.filter(|node| tree.call(*node) == call) {
        if let Step::Instruction(instruction, line) = tree.step(node)
            && matches!(**instruction, Instruction::Wait { .. })
            && signal_of(instruction).is_some_and(|signal| signal.rank().0 == peer)
        {
            return Some((*line).into());
        }
        at = tree.parent(node);
    }
    None
}
