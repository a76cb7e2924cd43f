//! CPU time of child processes.

use crate::error::{Error, Result};
use std::fs;

/// Ticks per second in `/proc`: `USER_HZ`, which is 100 on every platform that Rust's Linux targets run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Cpu {
    /// Of all children that have ended, and of theirs.
    ///
    /// # Errors
    /// There is no `/proc` as Linux has it.
    pub(crate) fn of_children() -> Result<Cpu> {
        let stat = fs::read_to_string("/proc/self/stat").map_err(|_| Error::NoCpuTime)?;
        Cpu::parse(&stat).ok_or(Error::NoCpuTime)
    }

    /// What was used after `before`.
    pub(crate) fn since(self, before: Cpu) -> Cpu {
        Cpu {
            user: self.user - before.user,
            system: self.system - before.system,
        }
    }

    /// From a line of `proc_pid_stat(5)`: fields 16 and 17, `cutime` and `cstime`.
    fn parse(stat: &str) -> Option<Cpu> {
        // Field 2 is the program's name in parentheses, which may contain spaces and parentheses.
        let (_, from_third) = stat.rsplit_once(')')?;
        let mut fields = from_third.split_ascii_whitespace().skip(16 - 3);
        let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        Some(Cpu {
            user: seconds()?,
            system: seconds()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_children_are_found_behind_any_name() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 1234 250 20 0 1 0";
        let cpu = Cpu::parse(line);
        assert_eq!(
            cpu,
            Some(Cpu {
                user: 12.34,
                system: 2.5
            })
        );
        assert_eq!(Cpu::parse("7 (a) S 1"), None);
    }
}
