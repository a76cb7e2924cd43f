//! Schedules: which rank is next, as a line of text that replays an execution.

use crate::cells::Position;
use crate::run::Done;
use std::fmt;
use std::str::FromStr;

/// The order in which the ranks of one execution do their instructions.
///
/// As text, it is turns with dots between: `0x3.1.0@2` is three instructions of rank 0, one of rank 1, and one of rank 0 that
/// reads the second value of its signal (`@0` is the one that it had at the beginning).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<Turn>);

/// Some instructions of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) rank: u32,
    pub(crate) times: u32,
    pub(crate) read: Option<Position>,
}

/// Text that is not a schedule, or a schedule of another program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A part that cannot be read.
    #[error("`{part}` is not a turn of a schedule; use what a report printed, such as 0x3.1.0@2")]
    Malformed {
        /// The part.
        part: String,
    },
    /// A rank that cannot go on where the schedule says that it does.
    #[error("rank {rank} cannot do its instruction number {number} here: the schedule is of another program")]
    DoesNotFit {
        /// The rank.
        rank: u32,
        /// Which of its instructions, from 1.
        number: usize,
    },
}

/// The most instructions of one turn that are read from text.
const MOST_TIMES: u32 = 1 << 24;

impl Schedule {
    pub(crate) fn of(done: impl IntoIterator<Item = Done>) -> Schedule {
        let mut turns: Vec<Turn> = Vec::new();
        for Done { rank, read, .. } in done {
            match turns.last_mut() {
                Some(last) if (last.rank, last.read, read) == (rank, None, None) => last.times += 1,
                _ => turns.push(Turn { rank, times: 1, read }),
            }
        }
        Schedule(turns)
    }

    pub(crate) fn turns(&self) -> &[Turn] {
        &self.0
    }

    /// Instructions in it.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.0.iter().map(|turn| u64::from(turn.times)).sum()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Turn { rank, times, read }) in self.0.iter().enumerate() {
            let dot = if index > 0 { "." } else { "" };
            write!(f, "{dot}{rank}")?;
            if *times > 1 {
                write!(f, "x{times}")?;
            }
            if let Some(position) = read {
                write!(f, "@{}", position.map_or(0, |index| index + 1))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Schedule, ScheduleError> {
        let turn = |part: &str| {
            let (head, read) = match part.split_once('@') {
                Some((head, read)) => (head, Some(read.parse::<usize>().ok()?.checked_sub(1))),
                None => (part, None),
            };
            let (rank, times) = head.split_once('x').unwrap_or((head, "1"));
            let times = times
                .parse()
                .ok()
                .filter(|times| (1..=MOST_TIMES).contains(times))?;
            let rank = rank.parse().ok()?;
            Some(Turn { rank, times, read })
        };
        let parts = text.split('.').filter(|_| !text.is_empty());
        let turns =
            parts.map(|part| turn(part).ok_or_else(|| ScheduleError::Malformed { part: part.into() }));
        turns.collect::<Result<_, _>>().map(Schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        for text in ["", "0", "0x3.1.0@2", "12x400.3@0.3@7"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        for wrong in [".", "x", "0x0", "0@", "-1", "0x99999999999"] {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
