//! Directories for servers whose data outlive them.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// A directory of its own, removed in the end.
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one. No other test has one of this name.
    pub fn new(name: &str) -> Directory {
        let path = env::temp_dir().join(format!("penstock-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// The path of a file in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
