//! The file of the page: writable before anything is measured, and untouched until everything is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;

/// A file that a page is to be written to. Where that doesn't come about, what stood there stays, and a file that was
/// made for it goes: half a page, or none, would look like a report.
pub struct Page<'a> {
    path: &'a Path,
    file: File,
    /// Nothing was there before, and nothing is written yet.
    is_left_over: bool,
}

impl<'a> Page<'a> {
    /// Finds out that the file can be written.
    pub fn open(path: &'a Path) -> Result<Page<'a>, Failure> {
        let is_left_over = path.symlink_metadata().is_err();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Page { path, file, is_left_over })
    }

    /// Writes the page in the place of what was there.
    pub fn write(mut self, text: &str) -> Result<(), Failure> {
        self.replace(text).map_err(|error| unwritable(self.path, &error))?;
        self.is_left_over = false;
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // A pipe or a terminal has nothing to be replaced.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if self.is_left_over {
            // An empty file more is no reason to fail.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Local(format!("can't write {}: {error}", path.display()))
}
