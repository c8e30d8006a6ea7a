//! The disk as the append-only file needs it: one directory of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory on a disk. Names have no folders in them.
pub trait Disk: Send {
    /// A file that is written.
    type File: DiskFile;

    /// Creates a file, empty even if there was one of this name. It may be gone after a crash until
    /// [`Disk::sync_directory`] has returned.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file to write on, and tells how long it is.
    fn append(&self, name: &str) -> io::Result<(Self::File, u64)>;

    /// Opens a file to be read, and tells how long it is.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Gives a file a name, also one that another file has, which is gone then. It may be undone by a crash until
    /// [`Disk::sync_directory`] has returned.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file that is written. Clones are the same open file, so that one thread can sync it while another one writes.
pub trait DiskFile: Clone + Send + 'static {
    /// Writes as much as it can from byte `at` on, over what is there or at the end, and tells how much that was.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes durable what was written before the call. After an error nothing is known of what was written since the last
    /// success. Only one sync of a file may run at a time: the system reports an error to one of several.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file.
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
