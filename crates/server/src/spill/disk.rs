//! The disk interface of spill files, and the real disk. A test's disk may be full, slow or broken.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use engine::state::Engine;
use rustix::fs::{Mode, OFlags, fstatvfs, openat};

use super::chunks::{Part, SharedFile};

/// A place for queues of bytes. Each queue appears as a file of its own, but is a part of a shared file.
pub(super) trait Disk {
    /// A file.
    type File;

    /// Creates an empty file.
    fn create(&mut self) -> io::Result<Self::File>;
    /// Writes at a position up to the end, possibly only a part.
    fn write(&mut self, file: &mut Self::File, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize>;
    /// Reads at a position, possibly less than there is room for.
    fn read(&mut self, file: &Self::File, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Returns the space between two positions, both multiples of a block, to the disk.
    fn give_back(&mut self, file: &mut Self::File, from: u64, until: u64) -> io::Result<()>;
    /// Returns all space to the disk.
    fn empty(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Returns all space to the disk, and closes the file.
    fn remove(&mut self, file: Self::File);
    /// Free bytes on the disk of a file.
    fn free_bytes(&mut self, file: &Self::File) -> io::Result<u64>;
}

/// The file in `reply-spill-dir`, which all queues share, and files in directories that the directive named before.
///
/// One file, because few descriptors are left besides the clients', and all clients may be slow readers.
pub(super) struct Spools {
    engine: &'static Engine,
    shared: HashMap<u64, SharedFile>,
    /// Files created so far.
    created: u64,
}

/// A part of one of the files.
pub(super) struct Spool {
    file: u64,
    part: Part,
}

impl Spools {
    pub(super) fn new(engine: &'static Engine) -> Spools {
        Spools { engine, shared: HashMap::new(), created: 0 }
    }

    /// Returns the file in a directory, and opens it if needed.
    fn in_directory(&mut self, directory: PathBuf) -> io::Result<u64> {
        if let Some((&id, _)) = self.shared.iter().find(|(_, shared)| shared.directory == directory) {
            return Ok(id);
        }
        self.created += 1;
        let file = open(&directory, self.created)?;
        self.shared.insert(self.created, SharedFile::new(file, directory));
        Ok(self.created)
    }

    fn create_in(&mut self, directory: PathBuf) -> io::Result<Spool> {
        let file = self.in_directory(directory)?;
        if let Some(shared) = self.shared.get_mut(&file) {
            shared.users += 1;
        }
        Ok(Spool { file, part: Part::default() })
    }

    fn shared(&mut self, spool: &Spool) -> io::Result<&mut SharedFile> {
        // The file exists as long as a queue uses it.
        Ok(self.shared.get_mut(&spool.file).ok_or(io::ErrorKind::NotFound)?)
    }
}

/// The directory of new files.
pub(super) fn directory(engine: &Engine) -> String {
    let settings = &engine.settings;
    let directory = if settings.reply_spill_dir.is_empty() { &settings.dir } else { &settings.reply_spill_dir };
    directory.get().to_string()
}

/// Opens a new file without a name.
fn open(directory: &Path, number: u64) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(rustix::fs::CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Some file systems don't support files that never had a name.
        Err(_) => open_named(directory, number),
    }
}

/// Opens a file with a name, and removes the name at once.
fn open_named(directory: &Path, number: u64) -> io::Result<File> {
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    let path = directory.join(format!(".replies-{}-{thread}-{number}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

impl Disk for Spools {
    type File = Spool;

    fn create(&mut self) -> io::Result<Spool> {
        // Absolute, because a change of `dir` would change the meaning of a relative path.
        self.create_in(std::path::absolute(directory(self.engine))?)
    }

    fn write(&mut self, spool: &mut Spool, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.shared(spool)?.write(&mut spool.part, slices, at)
    }

    fn read(&mut self, spool: &Spool, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.shared(spool)?.read(&spool.part, into, at)
    }

    fn give_back(&mut self, spool: &mut Spool, from: u64, until: u64) -> io::Result<()> {
        self.shared(spool)?.give_back(&mut spool.part, from, until)
    }

    fn empty(&mut self, spool: &mut Spool) -> io::Result<()> {
        self.shared(spool)?.empty(&mut spool.part);
        Ok(())
    }

    fn remove(&mut self, mut spool: Spool) {
        let Some(shared) = self.shared.get_mut(&spool.file) else { return };
        shared.users -= 1;
        if shared.users == 0 {
            // The space is free when the file is closed.
            self.shared.remove(&spool.file);
        } else {
            shared.empty(&mut spool.part);
        }
    }

    fn free_bytes(&mut self, spool: &Spool) -> io::Result<u64> {
        let disk = fstatvfs(self.shared(spool)?.file())?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::chunks::CHUNK_BYTES;
    use super::*;
    use crate::testing::engine;

    /// Bytes of all files on disk.
    fn on_disk(spools: &Spools) -> u64 {
        spools.shared.values().map(|shared| shared.file().metadata().unwrap().blocks() * 512).sum()
    }

    /// The contents of a queue, different for each.
    fn pattern(spool: usize, at: u64) -> Vec<u8> {
        (0..300_007).map(|i| ((at + i) * 31 + spool as u64) as u8).collect()
    }

    #[test]
    fn many_queues_are_in_one_file_and_each_is_its_own() {
        let mut spools = Spools::new(engine(&[]));
        let mut all: Vec<Spool> = (0..5).map(|_| spools.create_in(std::env::temp_dir()).unwrap()).collect();
        let (mut end, mut given_back) = (0, 0);
        while end < 2 * CHUNK_BYTES + 1000 {
            let mut most = 0;
            for (number, spool) in all.iter_mut().enumerate() {
                let bytes = pattern(number, end);
                let mut written = 0;
                while written < bytes.len() {
                    let (first, second) = bytes[written..].split_at((bytes.len() - written) / 2);
                    let slices = [IoSlice::new(first), IoSlice::new(second)];
                    written += spools.write(spool, &slices, end + written as u64).unwrap();
                }
                most = bytes.len();
            }
            end += most as u64;
        }
        assert_eq!(spools.shared.len(), 1);
        let all_of_it = on_disk(&spools);
        assert!(all_of_it >= 5 * end);
        for at in (0..end).step_by(300_007) {
            for (number, spool) in all.iter_mut().enumerate() {
                let mut read = vec![0; 300_007];
                let mut filled = 0;
                while filled < read.len() {
                    filled += spools.read(spool, &mut read[filled..], at + filled as u64).unwrap();
                }
                assert!(read == pattern(number, at), "queue {number} at {at}");
                spools.give_back(spool, given_back, at / 4096 * 4096).unwrap();
            }
            given_back = at / 4096 * 4096;
        }
        assert!(on_disk(&spools) < all_of_it / 4, "{} of {all_of_it}", on_disk(&spools));
        let last = all.pop().unwrap();
        all.into_iter().for_each(|spool| spools.remove(spool));
        assert!(on_disk(&spools) <= all_of_it / 5 && spools.shared.len() == 1);
        spools.remove(last);
        assert!(spools.shared.is_empty());
    }

    #[test]
    fn a_queue_stays_in_the_directory_in_which_it_began() {
        let mut spools = Spools::new(engine(&[]));
        let mut first = spools.create_in(std::env::temp_dir()).unwrap();
        let second = spools.create_in(std::env::current_dir().unwrap()).unwrap();
        assert_eq!(spools.shared.len(), 2);
        assert_eq!(spools.write(&mut first, &[IoSlice::new(b"abc")], 0).unwrap(), 3);
        spools.remove(second);
        let mut read = [0; 3];
        assert_eq!((spools.read(&first, &mut read, 0).unwrap(), &read), (3, b"abc"));
        spools.empty(&mut first).unwrap();
        assert_eq!(spools.write(&mut first, &[IoSlice::new(b"de")], 0).unwrap(), 2);
        assert_eq!(spools.read(&first, &mut read, 0).unwrap(), 2);
        spools.remove(first);
        assert!(spools.shared.is_empty());
    }
}
