//! What is wrong with a description of a machine, and where.

use std::fmt;

/// A description that cannot be used: the file, the line, the key, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}", place = Place(self))]
pub struct TopologyError {
    /// The file, or the preset's name.
    pub file: String,
    /// The line, from 1; 0 if the whole file is meant.
    pub line: u64,
    /// The key: `network.bandwidth`.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

/// Where an error is, as people read it.
struct Place<'a>(&'a TopologyError);

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
    #[error("there is no key `{got}` here; {}", nearest(.got, .valid))]
    UnknownKey {
        /// What was written.
        got: String,
        /// What may be written.
        valid: Vec<&'static str>,
    },
    /// A word that means nothing here.
    #[error("`{got}` is not known here; {}", nearest(.got, .valid))]
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
    /// More than we simulate.
    #[error("{got} {what} are more than the {limit} this simulator takes; describe a smaller machine")]
    TooMany {
        /// How many.
        got: u64,
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Some chips cannot reach others.
    #[error(
        "chip {0} cannot be reached from everywhere; add links to it, or take away the fault that cuts it off"
    )]
    Disconnected(u32),
    /// A link that the machine does not have.
    #[error("there is no link from {0} to {1}")]
    NoSuchLink(u32, u32),
    /// A preset that does not exist.
    #[error("there is no preset or file `{got}`; {}", nearest(.got, .valid))]
    NoSuchPreset {
        /// What was asked for.
        got: String,
        /// What there is.
        valid: Vec<&'static str>,
    },
}

/// "did you mean" for a misspelt word, and all that may be written.
fn nearest(got: &str, valid: &[&'static str]) -> String {
    let close = valid.iter().map(|word| (distance(got, word), *word)).min();
    let all = valid.join(", ");
    match close {
        Some((steps, word)) if steps <= 1 + word.len() / 3 => {
            format!("did you mean `{word}`? (valid: {all})")
        }
        _ => format!("valid are {all}"),
    }
}

/// Edits from one word to the other; long words are cut, so that a hostile one costs nothing.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().take(40).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != y))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}
