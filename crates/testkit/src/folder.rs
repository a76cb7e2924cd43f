//! A directory for the files of one test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of this test's own, removed with its content when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new directory, with `name` in its name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringwork-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("making a directory for a test");
        Folder(path)
    }

    /// The path of a file in it.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }

    /// Writes a file in it, and returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, file: &str, text: &str) -> String {
        let path = self.path(file);
        std::fs::write(&path, text).expect("writing a file of a test");
        path
    }

    /// The content of a file in it.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).expect("reading a file of a test")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
