//! What spill files need of a disk, and the real one. A test's disk may be full, slow or broken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use engine::engine::Engine;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat};

/// A place for files without names.
pub(super) trait Disk {
    /// An open file. Dropping it gives its space back.
    type File;

    /// Creates an empty file.
    fn create(&mut self) -> io::Result<Self::File>;
    /// Writes at a position, perhaps not all of it.
    fn write(&mut self, file: &Self::File, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize>;
    /// Reads at a position, perhaps less than there is room for.
    fn read(&mut self, file: &Self::File, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Gives the space between two positions back, which are multiples of a block.
    fn give_back(&mut self, file: &Self::File, from: u64, until: u64) -> io::Result<()>;
    /// Gives all space back.
    fn empty(&mut self, file: &Self::File) -> io::Result<()>;
    /// Bytes that are free on the disk of a file.
    fn free_bytes(&mut self, file: &Self::File) -> io::Result<u64>;
}

/// Files in `reply-spill-dir`.
pub(super) struct Spools {
    engine: &'static Engine,
    /// Files created so far, on a disk where they have to have a name for a moment.
    named: u64,
}

impl Spools {
    pub(super) fn new(engine: &'static Engine) -> Spools {
        Spools { engine, named: 0 }
    }

    /// A file with a name, which is taken away at once.
    fn create_named(&mut self, directory: &str) -> io::Result<File> {
        self.named += 1;
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let path = Path::new(directory).join(format!(".replies-{}-{thread}-{}", std::process::id(), self.named));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }
}

/// Where new files are put.
pub(super) fn directory(engine: &Engine) -> String {
    let settings = &engine.settings;
    let directory = if settings.reply_spill_dir.is_empty() { &settings.dir } else { &settings.reply_spill_dir };
    directory.get().to_string()
}

impl Disk for Spools {
    type File = File;

    fn create(&mut self) -> io::Result<File> {
        let directory = directory(self.engine);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(rustix::fs::CWD, &*directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file.into()),
            // Not every file system knows files that never had a name.
            Err(_) => self.create_named(&directory),
        }
    }

    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(file, slices, at)?)
    }

    fn read(&mut self, file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
        file.read_at(into, at)
    }

    fn give_back(&mut self, file: &File, from: u64, until: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, until - from)?)
    }

    fn empty(&mut self, file: &File) -> io::Result<()> {
        file.set_len(0)
    }

    fn free_bytes(&mut self, file: &File) -> io::Result<u64> {
        let disk = fstatvfs(file)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
