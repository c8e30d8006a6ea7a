//! The disk interface of the append-only file: one directory of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory on a disk. Names contain no folders.
pub trait Disk: Send {
    /// A file open for writing.
    type File: DiskFile;

    /// Creates an empty file, in place of an existing one with this name. A crash may remove it until [`Disk::sync_directory`] has
    /// returned.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for writing. Returns its length, too.
    fn append(&self, name: &str) -> io::Result<(Self::File, u64)>;

    /// Opens a file for reading. Returns its length, too.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Renames a file, and replaces an existing one with the new name. A crash may undo this until [`Disk::sync_directory`] has returned.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file open for writing. Clones are the same open file: one thread can sync it while another writes.
pub trait DiskFile: Clone + Send + 'static {
    /// Writes at position `at`, over existing bytes or at the end. Returns the number of bytes written, possibly fewer than given.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes all bytes written before the call durable. After an error the state of everything written since the last success is unknown.
    /// Only one sync of a file may run at a time: the system reports an error to only one of several.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file to this length.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

/// A directory of the system's file system.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Opens a directory, and creates it if it is missing.
    ///
    /// # Errors
    /// The system's error, if it can't be created.
    pub fn open(path: PathBuf) -> io::Result<Directory> {
        fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Disk for Directory {
    type File = Arc<File>;

    fn create(&self, name: &str) -> io::Result<Arc<File>> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self.0.join(name)).map(Arc::new)
    }

    fn append(&self, name: &str) -> io::Result<(Arc<File>, u64)> {
        let file = OpenOptions::new().write(true).open(self.0.join(name))?;
        let len = file.metadata()?.len();
        Ok((Arc::new(file), len))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let file = File::open(self.0.join(name))?;
        let len = file.metadata()?.len();
        Ok((Box::new(file), len))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

impl DiskFile for Arc<File> {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        FileExt::write_at(&**self, bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}
