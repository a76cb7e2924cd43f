//! Where results go, the output or a file that grows line by line, and what went wrong.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a line. If the reader has closed the pipe (`| head`), there is nothing left to do.
macro_rules! say {
    ($($text:tt)*) => {
        crate::output::print_line(&format!($($text)*))
    };
}
pub(crate) use say;

/// As if SIGPIPE had ended this process.
pub(crate) const EXIT_BROKEN_PIPE: u8 = 141;

/// Output could not be written: EX_IOERR of `sysexits.h`.
pub(crate) const EXIT_OUTPUT: u8 = 74;

/// Whether this process is writing to its output, which may block: a full pipe whose reader has stopped.
static PRINTING: AtomicBool = AtomicBool::new(false);

/// Whether a write to the output is under way. Ctrl-C then ends the program at once: the write would not end.
pub(crate) fn is_printing() -> bool {
    PRINTING.load(Ordering::SeqCst)
}

/// What [`say!`] does.
pub(crate) fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Prints text that has its line ends. If it cannot be written, the program ends: quietly if the reader has closed the
/// pipe, else with one line that says why.
pub(crate) fn print_text(text: &str) {
    PRINTING.store(true, Ordering::SeqCst);
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    PRINTING.store(false, Ordering::SeqCst);
    let Err(error) = written else { return };
    let code = if error.kind() == ErrorKind::BrokenPipe {
        EXIT_BROKEN_PIPE
    } else {
        complain(format_args!("output cannot be written: {error}"));
        EXIT_OUTPUT
    };
    drop(output);
    std::process::exit(code.into());
}

/// Whether the reader of this program's output has closed the pipe (`| head`).
pub(crate) fn reader_is_gone() -> bool {
    let output = std::io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// Writes text to standard error with a single `write`.
pub(crate) fn print_error_text(text: &str) {
    // If standard error is closed or full there is nobody left to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Says what went wrong.
pub(crate) fn complain(problem: impl std::fmt::Display) {
    announce("error", problem);
}

/// Writes one line to standard error with a single `write`: ranks that fail at once share the terminal, and would write into
/// each other's lines.
pub(crate) fn announce(prefix: &str, what: impl std::fmt::Display) {
    let line = format!("{prefix}: {what}\n");
    print_error_text(&line);
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
