//! What can go wrong in a chore.

use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation of this tool.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a measurement cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or a directory cannot be used.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// A program cannot be started at all.
    #[error("cannot start `{program}`: {source}")]
    Start { program: String, source: io::Error },
    /// A program ended badly.
    #[error("`{program}` {how}{}", hint(.said))]
    Failed {
        program: String,
        how: String,
        said: String,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A line of a CSV does not say what it should.
    #[error("line {line}: {why}")]
    BadLine { line: usize, why: String },
    /// A file has no section for us to write, or half of one.
    #[error("{path}: {why}; put the lines `{begin}` and `{end}` where the tables should go")]
    NoSection {
        path: PathBuf,
        why: &'static str,
        begin: &'static str,
        end: &'static str,
    },
    /// Two measurements at once would measure each other.
    #[error("another measurement runs ({path} is locked); two at once would measure each other")]
    Busy { path: PathBuf },
    /// There is nothing to compare.
    #[error("no peer can be run: {why}")]
    NoPeers { why: String },
    /// A library returned wrong numbers, and it is ours.
    #[error("ringwork returned a wrong result in {samples} samples; their lines in {path} say BAD")]
    WrongResult { samples: usize, path: PathBuf },
    /// A build takes too long, or makes too much.
    #[error("over the limit: {what}")]
    OverLimit { what: String },
    /// This system does not say what a process has used.
    #[error("the CPU time of child processes is not in /proc/self/stat; builds are measured on Linux only")]
    NoCpuTime,
}

impl Error {
    /// `path` cannot be used, because of `source`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        |source| Error::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// The end of what a program said, on lines of its own.
fn hint(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..]
        .iter()
        .map(|line| format!("\n    {}", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_end_of_what_the_program_said() {
        let said = "1\n2\n\n3\n4\n5\n".to_owned();
        let error = Error::Failed {
            program: "pip".into(),
            how: "exited with 1".into(),
            said,
        };
        assert_eq!(
            error.to_string(),
            "`pip` exited with 1\n    2\n    3\n    4\n    5"
        );
    }
}
