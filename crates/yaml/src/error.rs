//! What is wrong with a file, and where.

use ringwork_isa::nearest;
use std::fmt;

/// A file that cannot be used: its name, the line, the key, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}", place = Place(self))]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 if the whole file is meant.
    pub line: u64,
    /// The key: `network.bandwidth`.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

/// Where an error is, as people read it.
struct Place<'a>(&'a ConfigError);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.0.file)?;
        if self.0.line > 0 {
            write!(f, "{}:", self.0.line)?;
        }
        if !self.0.key.is_empty() {
            write!(f, " {}:", self.0.key)?;
        }
        f.write_str(" ")
    }
}

/// What can be wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is not YAML, or too deep, too long or too often repeated.
    #[error("{0}")]
    Syntax(String),
    /// A key that means nothing here.
    #[error("there is no key `{got}` here; {}", instead(.got, .valid))]
    UnknownKey {
        /// What was written.
        got: String,
        /// What may be written.
        valid: Vec<&'static str>,
    },
    /// A word that means nothing here.
    #[error("`{got}` is not known here; {}", instead(.got, .valid))]
    UnknownWord {
        /// What was written.
        got: String,
        /// What may be written.
        valid: Vec<&'static str>,
    },
    /// A key that must be there.
    #[error("the key `{0}` is missing; add `{1}`")]
    Missing(&'static str, String),
    /// A number without its unit.
    #[error("`{got}` has no unit; write for example `{example}`")]
    NoUnit {
        /// What was written.
        got: String,
        /// What it could look like.
        example: String,
    },
    /// A unit that does not fit.
    #[error("`{got}` is not {what}; write for example `{example}`")]
    Malformed {
        /// What was written.
        got: String,
        /// What is wanted: `a bandwidth`.
        what: &'static str,
        /// What it could look like.
        example: String,
    },
    /// A number that nothing can have.
    #[error("{got} is out of range; it must be {wanted}")]
    OutOfRange {
        /// What was written.
        got: String,
        /// What it may be.
        wanted: String,
    },
    /// Something that is read well but cannot be, in words.
    #[error("{0}")]
    Rule(String),
}

/// "did you mean" for a misspelt word, and all that may be written.
#[must_use]
pub fn instead(got: &str, valid: &[&str]) -> String {
    let all = valid.join(", ");
    match nearest(got, valid.iter().copied()) {
        Some(word) => format!("did you mean `{word}`? (valid: {all})"),
        None => format!("valid are {all}"),
    }
}
