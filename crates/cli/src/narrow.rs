//! Tables on narrow terminals: columns that matter less are left out, and a line that is still too long is cut.
//!
//! Only on a terminal: what goes to a file or a pipe has every column.

use std::io::IsTerminal;
use std::ops::Range;

/// Which parts of a table's lines fit.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    /// Characters left out, in order.
    cut: Vec<Range<usize>>,
    /// Characters there are room for.
    width: usize,
}

impl Narrow {
    /// For the output: of a table that wants `wanted` characters, the columns at these places may go, the first first.
    pub(crate) fn for_output(wanted: usize, may_go: &[Range<usize>]) -> Narrow {
        let terminal = std::io::stdout().is_terminal();
        let size = terminal.then(terminal_size::terminal_size).flatten();
        let width = size.map_or(usize::MAX, |(width, _)| width.0.into());
        Narrow::to(width, wanted, may_go)
    }

    fn to(width: usize, wanted: usize, may_go: &[Range<usize>]) -> Narrow {
        let (mut cut, mut left) = (Vec::new(), wanted);
        for column in may_go {
            if left > width {
                left -= column.len();
                cut.push(column.clone());
            }
        }
        cut.sort_by_key(|column| column.start);
        Narrow { cut, width }
    }

    /// Lines as they fit.
    pub(crate) fn lines(&self, lines: &str) -> String {
        lines
            .split('\n')
            .map(|line| self.line(line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn line(&self, line: &str) -> String {
        let is_cut = |at: usize| self.cut.iter().any(|column| column.contains(&at));
        let kept = (0..).zip(line.chars()).filter(|(at, _)| !is_cut(*at));
        let mut kept: Vec<char> = kept.map(|(_, c)| c).collect();
        if kept.len() > self.width {
            kept.truncate(self.width.saturating_sub(1));
            kept.push('…');
        }
        kept.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "# size  count  time  cores\n    4K   1024  10.5  near";

    #[test]
    fn a_wide_output_has_all_and_a_narrow_one_what_matters_most() {
        let to = |width| Narrow::to(width, 26, &[6..13, 19..26]).lines(LINES);
        assert_eq!(to(usize::MAX), LINES);
        assert_eq!(to(26), LINES);
        assert_eq!(to(20), "# size  time  cores\n    4K  10.5  near");
        assert_eq!(to(14), "# size  time\n    4K  10.5");
        assert_eq!(to(8), "# size …\n    4K …");
    }
}
