//! Where results go, the output or a file that grows line by line, and what went wrong.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Prints a line. Whoever reads may have seen enough (`| head`): then there is nothing left to do.
macro_rules! say {
    ($($text:tt)*) => {
        crate::output::print_line(&format!($($text)*))
    };
}
pub(crate) use say;

/// As if SIGPIPE had ended this process.
const EXIT_BROKEN_PIPE: i32 = 141;

/// What [`say!`] does.
pub(crate) fn print_line(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(EXIT_BROKEN_PIPE);
    }
}

/// Says what went wrong.
pub(crate) fn complain(problem: impl std::fmt::Display) {
    announce("error", problem);
}

/// Writes one line to standard error with a single `write`: ranks that fail at once share the terminal, and would write into
/// each other's lines.
pub(crate) fn announce(prefix: &str, what: impl std::fmt::Display) {
    let line = format!("{prefix}: {what}\n");
    // If standard error is closed there is nobody left to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Begins a file of lines with its header, unless it has some already; `-` is the output.
pub(crate) fn begin_lines(path: &Path, header: &str) -> Result<(), String> {
    let empty = path.as_os_str() == "-" || std::fs::metadata(path).map_or(true, |file| file.len() == 0);
    if empty {
        append(path, header)?;
    }
    Ok(())
}

/// Adds a line to a file, or prints it.
pub(crate) fn append(path: &Path, line: &str) -> Result<(), String> {
    if path.as_os_str() == "-" {
        say!("{line}");
        return Ok(());
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(|error| format!("writing {}: {error}", path.display()))
}

/// Writes a file anew, or prints it.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), String> {
    if path.as_os_str() == "-" {
        say!("{}", text.trim_end());
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| format!("writing {}: {error}", path.display()))
}
