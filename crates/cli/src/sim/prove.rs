//! What a proof has to show: of every byte of every result, whose inputs it is made of, and which byte of them.

use super::call::Call;
use ringwork::isa::{Collective, Contributions, Counted, Difference, Piece, Wrong};

/// Wrong places that are listed one by one.
const MAX_REPORTED: usize = 8;

/// What is shown when a proof succeeds.
pub(crate) fn in_words(collective: Collective) -> &'static str {
    let everybody = |me| {
        let pieces = collective.golden(me, 2, 0, 2);
        pieces.iter().all(|piece| piece.ranks == (0..2))
    };
    if collective.reduces() && !(everybody(0) && everybody(1)) {
        "on every rank, the inputs of the ranks before it, each exactly once"
    } else if collective.reduces() {
        "every input counted exactly once on every rank"
    } else {
        "every element comes exactly once, from its place at its rank"
    }
}

/// Where the bytes of `me`'s result should come from; `None` if nothing is promised there.
pub(super) fn expected(call: &Call, me: u32) -> Option<Contributions> {
    const ROOT: u32 = 0;
    let size = call.dtype.bytes();
    let mut pieces = Contributions::default();
    for piece in call.collective().golden(me, call.ranks, ROOT, call.bytes / size) {
        let (from, bytes) = ((piece.start * size) as u64, (piece.output.len() * size) as u64);
        pieces.push(Piece::new(Counted::once(piece.ranks), from, bytes));
    }
    (pieces != Contributions::default()).then_some(pieces)
}

/// Everything that is wrong, as it is told.
#[derive(Debug, Default)]
pub(super) struct Faults {
    told: Vec<String>,
    count: usize,
    untracked: bool,
}

impl Faults {
    /// Notes what is wrong on a rank.
    pub(super) fn add(&mut self, rank: u32, wrong: &[Wrong], element_bytes: u64) {
        self.count += wrong.len();
        for Wrong { bytes, how } in wrong.iter().take(MAX_REPORTED.saturating_sub(self.told.len())) {
            self.untracked |= *how == Difference::Untracked;
            let elements = bytes.start / element_bytes..bytes.end.div_ceil(element_bytes);
            let how = match *how {
                Difference::Misplaced { got, wanted } => Difference::Misplaced {
                    got: got.map(|got| got / element_bytes),
                    wanted: wanted / element_bytes,
                },
                other => other,
            };
            self.told.push(format!(
                "rank {rank}, elements {}..{}: {how}",
                elements.start, elements.end
            ));
        }
    }

    /// Why the proof failed; `None` if it did not.
    pub(super) fn why(&self, call: &Call) -> Option<String> {
        let more = self.count.saturating_sub(self.told.len());
        let rest = match more {
            _ if self.told.is_empty() => return None,
            0 => String::new(),
            more => format!("\n  and {more} more"),
        };
        let verdict = if self.untracked { "NOT PROVED" } else { "WRONG" };
        Some(format!(
            "{verdict}: {} {}, {} B over {} ranks:\n  {}{rest}",
            call.collective(),
            call.algorithm_name(),
            call.bytes,
            call.ranks,
            self.told.join("\n  ")
        ))
    }
}
