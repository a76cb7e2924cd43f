//! Reading configuration files: regular files of at most 1 MiB.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest configuration file that is read.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Reads a configuration file. Symbolic links are followed.
///
/// # Errors
/// If the file cannot be opened or is not UTF-8, or if it is larger than [`MAX_CONFIG_BYTES`] or not a regular file
/// (a pipe or a device may have no end, or may block for ever).
pub fn read_config_file(path: &Path) -> Result<String> {
    // Opening a FIFO blocks until somebody writes to it, unless the flag is given. It has no effect on regular files.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    read_regular(&file)
}

fn read_regular(file: &File) -> Result<String> {
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !about.is_file() {
        return Err(Error::other(
            "it is not a regular file; copy its contents into one",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(Error::other(
            "it is larger than 1 MiB, the limit for configuration files; split it",
        ));
    }
    let not_text = "it is not UTF-8 text; save it as UTF-8";
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, not_text))
}
