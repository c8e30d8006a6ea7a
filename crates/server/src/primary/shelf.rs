//! The file for what replicas that are far behind have yet to be sent: it has no name, and goes with the last of them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use replication::backlog::Shelf;

/// See the module's documentation.
pub struct FileShelf(File);

impl FileShelf {
    /// Makes one in a directory.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn make(directory: &Path) -> io::Result<Box<dyn Shelf>> {
        let path = directory.join(format!("temp-backlog-{}", std::process::id()));
        let file = File::options().create_new(true).read(true).append(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Box::new(FileShelf(file)))
    }
}

impl Shelf for FileShelf {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.0.metadata()?.len();
        let written = self.0.write_all(bytes);
        if written.is_err() {
            // What was written of it would be read as what comes next.
            self.0.set_len(before)?;
        }
        written
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(into, at)
    }
}
