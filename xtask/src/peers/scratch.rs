//! A directory for the files of one run, in memory where there is a file system in memory.

use super::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes names unique inside this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed with its content when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch> {
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let name = format!(
            "ringwork-peers.{}.{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = parent.join(name);
        fs::create_dir(&path).map_err(Error::file(&path))?;
        Ok(Scratch { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "content").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
