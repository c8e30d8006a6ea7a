//! The disk as the append-only file needs it: one directory of files that are written at their ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// A directory on a disk. Names have no folders in them.
pub trait Disk: Send {
    /// A file that is written.
    type File: DiskFile;

    /// Creates a file, empty even if there was one of this name. It may be gone after a crash until
    /// [`Disk::sync_directory`] has returned.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file to write at its end, and tells how long it is.
    fn append(&self, name: &str) -> io::Result<(Self::File, u64)>;

    /// Opens a file to be read, and tells how long it is.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read>, u64)>;

    /// Gives a file a name, also one that another file has, which is gone then. It may be undone by a crash until
    /// [`Disk::sync_directory`] has returned.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file that is written at its end. Clones are the same open file, so that one thread can sync it while another one writes.
pub trait DiskFile: Clone + Send + 'static {
    /// Writes as much as it can, and tells how much that was.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes durable what was written before the call. After an error nothing is known of what was written since the last
    /// success. Only one sync of a file may run at a time: the system reports an error to one of several.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file; the next byte is written there.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

/// A directory of the system's file system.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A directory, which is created if it is missing.
    ///
    /// # Errors
    /// The system's, if it can't be created.
    pub fn open(path: PathBuf) -> io::Result<Directory> {
        fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Disk for Directory {
    type File = Arc<File>;

    fn create(&self, name: &str) -> io::Result<Arc<File>> {
        OpenOptions::new().append(true).create(true).open(self.0.join(name)).and_then(|file| {
            file.set_len(0)?;
            Ok(Arc::new(file))
        })
    }

    fn append(&self, name: &str) -> io::Result<(Arc<File>, u64)> {
        let file = OpenOptions::new().append(true).open(self.0.join(name))?;
        let len = file.metadata()?.len();
        Ok((Arc::new(file), len))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read>, u64)> {
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
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut &**self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        // Opened to append: the next write is at the end, wherever that is.
        self.set_len(len)
    }
}
