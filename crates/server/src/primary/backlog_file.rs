//! The file for the part of a stream that slow receivers have not been sent. It has no name, and is freed with its last user.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use replication::backlog::Overflow;

/// The file, without a name.
pub struct BacklogFile(File);

impl BacklogFile {
    /// Creates the file in a directory, for a purpose. One thread serves each purpose.
    ///
    /// # Errors
    /// If the file can't be created.
    pub fn make(directory: &Path, purpose: &str) -> io::Result<Box<dyn Overflow>> {
        let path = directory.join(format!("temp-{purpose}-{}", std::process::id()));
        let file = File::options().create_new(true).read(true).append(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Box::new(BacklogFile(file)))
    }
}

impl Overflow for BacklogFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.0.metadata()?.len();
        let written = self.0.write_all(bytes);
        if written.is_err() {
            // A partial write would be read as the following bytes.
            self.0.set_len(before)?;
        }
        written
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(into, at)
    }
}
