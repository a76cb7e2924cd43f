//! What can be wrong with a machine that is described well.

use ringwork_yaml::{Problem, instead};

/// Why there can be no such machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Impossible {
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
    /// Two keys that describe the same thing.
    #[error("`{0}` and `{1}` both describe the network; remove one of them")]
    Conflict(&'static str, &'static str),
    /// A rank that is listed twice.
    #[error("rank {0} is listed twice; remove one of the two")]
    Twice(u32),
    /// A route that comes back to where it has been.
    #[error("the route passes {0} twice; list every stop once")]
    RouteLoop(u32),
    /// Two protocols of one name.
    #[error("there are two protocols `{0}`; remove or rename one of them")]
    ProtocolTwice(String),
    /// A key that another kind of network has.
    #[error("`{0}` has no effect on {1}; remove it")]
    NoEffect(&'static str, String),
    /// Two routes between the same chips.
    #[error("there are two routes from {0} to {1}; remove one of them")]
    RouteTwice(u32, u32),
    /// A link that the machine does not have.
    #[error("there is no link from {0} to {1}")]
    NoSuchLink(u32, u32),
    /// A preset that does not exist.
    #[error("there is no preset or file `{got}`; {}", which_preset(.got, .valid))]
    NoSuchPreset {
        /// What was asked for.
        got: String,
        /// What there is.
        valid: Vec<&'static str>,
    },
}

fn which_preset(got: &str, valid: &[&str]) -> String {
    if valid.contains(&got) {
        return format!(
            "N, X, Y and Z stand for numbers: write for example `{}`",
            numbered(got)
        );
    }
    instead(got, valid)
}

/// A preset's name with numbers where its letters are.
fn numbered(name: &str) -> String {
    name.replace(['N', 'X', 'Y', 'Z'], "4")
}

impl From<Impossible> for Problem {
    fn from(why: Impossible) -> Problem {
        Problem::Rule(why.to_string())
    }
}
