//! An output file. It is opened before the measurements, and written after them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;

/// An output file. If nothing is written, an old file stays unchanged, and a new empty file is removed, because an
/// incomplete file would look like a report.
pub struct OutputFile<'a> {
    path: &'a Path,
    file: File,
    /// True if the file is new and still empty.
    is_left_over: bool,
}

impl<'a> OutputFile<'a> {
    /// Opens the file for writing without changing it.
    pub fn open(path: &'a Path) -> Result<OutputFile<'a>, Failure> {
        let is_left_over = path.symlink_metadata().is_err();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(OutputFile { path, file, is_left_over })
    }

    /// Replaces the contents of the file.
    pub fn write(mut self, text: &str) -> Result<(), Failure> {
        self.replace(text).map_err(|error| unwritable(self.path, &error))?;
        self.is_left_over = false;
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // Pipes and terminals can't be truncated.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        if self.is_left_over {
            // An empty file that remains does no harm.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Local(format!("can't write {}: {error}", path.display()))
}
