//! Checking a refusal: the right words, and the line of the instruction that was refused.

use ringwork_isa::{Error, ErrorKind, Result, Site};
use std::fmt::Debug;

/// Asserts that an instruction is refused with exactly this message, in which `{site}` stands for the
/// instruction's own line.
macro_rules! refused {
    ($instruction:expr, $message:expr) => {
        $crate::check($instruction.await, file!(), line!(), $message)
    };
}
pub(crate) use refused;

/// How many lines an instruction may be spread over by the formatter.
const SPREAD: u32 = 8;

/// What `refused!` does. `line` is where the macro begins.
pub fn check<T: Debug>(end: Result<T>, file: &str, line: u32, message: &str) {
    let error = end.unwrap_err();
    let site = site(&error);
    assert_eq!(site.file, file, "{error}");
    assert!(
        (line..line + SPREAD).contains(&site.line),
        "{error}: not issued near line {line}"
    );
    assert_eq!(error.to_string(), message.replace("{site}", &site.to_string()));
}

fn site(error: &Error) -> &Site {
    match error.kind() {
        ErrorKind::OutOfBounds { site, .. }
        | ErrorKind::LengthMismatch { site, .. }
        | ErrorKind::ShapeMismatch { site, .. }
        | ErrorKind::NoSuchRank { site, .. }
        | ErrorKind::NotMapped { site, .. }
        | ErrorKind::Overlap { site, .. }
        | ErrorKind::Failed { site, .. } => site,
        ErrorKind::PeerDied { waited, .. }
        | ErrorKind::Aborted { waited, .. }
        | ErrorKind::Deadline { waited, .. } => &waited.site,
        other => panic!("an error without a line: {other}"),
    }
}
