//! From times to rows of the communicator's table.

use ringwork::collectives::table::Row;
use ringwork::isa::{Algorithm, Collective};

/// How the ranks sat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seats {
    pub(super) ranks: u32,
    pub(super) per_core: u32,
}

/// The times of each exact algorithm at one size: for own memory (where possible) and for data in the window.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) own: Vec<(Algorithm, f64)>,
    pub(super) window: Vec<(Algorithm, f64)>,
}

/// The choice at one size. One algorithm for both kinds of memory, if the one for the window needs no window: a table
/// cannot tell the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    own: Algorithm,
    window: Algorithm,
}

/// A change of algorithm must save at least this much: less is noise, and one more row.
const WORTH: f64 = 0.9;

impl Measured {
    /// The best choice; that of the size below, if it is nearly as good.
    fn choice(&self, below: Option<Choice>) -> Option<Choice> {
        let own = fastest(&self.own, below.map(|below| below.own))?;
        let window = fastest(&self.window, below.map(|below| below.window))?;
        if window.needs_window() {
            return Some(Choice { own, window });
        }
        let both: Vec<(Algorithm, f64)> = self
            .own
            .iter()
            .map(|(way, cost)| (*way, cost + cost_of(&self.window, *way)))
            .collect();
        let way = fastest(&both, below.map(|below| below.own))?;
        Some(Choice {
            own: way,
            window: way,
        })
    }
}

fn cost_of(costs: &[(Algorithm, f64)], way: Algorithm) -> f64 {
    let found = costs.iter().find(|(known, _)| *known == way);
    found.map_or(f64::INFINITY, |(_, cost)| *cost)
}

fn fastest(costs: &[(Algorithm, f64)], before: Option<Algorithm>) -> Option<Algorithm> {
    let (best, cost) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let stays = before.filter(|before| *cost > cost_of(costs, *before) * WORTH);
    Some(stays.unwrap_or(*best))
}

/// The rows for one operation: for each run of sizes with the same choice one, or two if data in the window is done
/// otherwise than own memory. The last fits any size.
pub(super) fn rows(operation: Collective, seats: Seats, measured: &[Measured]) -> Vec<Row> {
    let mut runs: Vec<(u64, Choice)> = Vec::new();
    for one in measured {
        let Some(choice) = one.choice(runs.last().map(|run| run.1)) else {
            continue;
        };
        match runs.last_mut() {
            Some((bytes, last)) if *last == choice => *bytes = one.bytes,
            _ => runs.push((one.bytes, choice)),
        }
    }
    let mut rows = Vec::new();
    for (i, (bytes, choice)) in runs.iter().enumerate() {
        let mut row = |way| {
            rows.push(Row {
                collective: operation,
                ranks: Some(seats.ranks.into()),
                ranks_per_core: Some(seats.per_core.into()),
                bytes: (i + 1 < runs.len()).then_some(*bytes),
                algorithm: way,
            });
        };
        row(choice.window);
        if choice.own != choice.window {
            row(choice.own);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork::collectives::table::Table;

    const SEATS: Seats = Seats {
        ranks: 2,
        per_core: 1,
    };

    fn one(bytes: u64, staged: [f64; 3], pull: f64, push: f64) -> Measured {
        let own: Vec<(Algorithm, f64)> = [Algorithm::Packet, Algorithm::OnePhase, Algorithm::TwoPhase]
            .into_iter()
            .zip(staged)
            .collect();
        let window = [(Algorithm::WindowPull, pull), (Algorithm::WindowPush, push)];
        Measured {
            bytes,
            window: own.iter().copied().chain(window).collect(),
            own,
        }
    }

    fn text(measured: &[Measured]) -> Vec<String> {
        let rows = rows(Collective::AllReduce, SEATS, measured);
        let words = |row: &Row| {
            let bytes = row.bytes.map_or("any".into(), |bytes| bytes.to_string());
            format!("{bytes} {}", row.algorithm)
        };
        let text = rows.iter().map(words).collect();
        Table::new(rows).unwrap();
        text
    }

    #[test]
    fn small_data_is_staged_and_large_data_stays_in_its_window() {
        let measured = [
            one(64, [1.0, 2.0, 3.0], 9.0, 9.0),
            one(256, [2.0, 3.0, 4.0], 9.0, 9.0),
            one(4096, [5.0, 4.0, 6.0], 5.0, 7.0),
            one(65536, [50.0, 30.0, 20.0], 10.0, 14.0),
            one(1 << 20, [500.0, 300.0, 200.0], 100.0, 60.0),
        ];
        assert_eq!(
            text(&measured),
            [
                "256 packet",
                "4096 onephase",
                "65536 window-pull",
                "65536 twophase",
                "any window-push",
                "any twophase",
            ]
        );
    }

    #[test]
    fn what_is_not_worth_a_change_changes_nothing() {
        let measured = [
            one(64, [10.0, 20.0, 30.0], 90.0, 90.0),
            one(256, [10.0, 9.5, 30.0], 90.0, 90.0),
            one(4096, [10.0, 8.5, 30.0], 90.0, 90.0),
        ];
        assert_eq!(text(&measured), ["256 packet", "any onephase"]);
    }

    #[test]
    fn without_measurements_there_are_no_rows() {
        assert!(rows(Collective::Broadcast, SEATS, &[]).is_empty());
    }
}
