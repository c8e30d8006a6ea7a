//! The file nodes.conf of a node, on a disk that loses unsynced data. The steps of a save are the server's.

use std::collections::VecDeque;
use std::io;

use cluster::Generation;
use cluster::testing::OnDisk;
use persistence::disk::{Disk, DiskFile};
use persistence::fake::FakeDisk;

const NAME: &str = "nodes.conf";
const NEW: &str = "nodes.conf.new";
/// Number of calls of the disk in a save, about: a crash may stop it at each.
const CALLS: u64 = 6;

/// A save under way.
struct Save {
    generation: Generation,
    text: String,
    due_us: u64,
}

/// See the module's documentation.
pub struct SimStateFile {
    disk: FakeDisk,
    saves: VecDeque<Save>,
    /// True if the node goes on after a failed save.
    goes_on: bool,
    /// The content that is certainly on the disk, or that a node may show without it.
    on_disk: OnDisk,
}

impl SimStateFile {
    /// Opens the file of a disk. `goes_on`: the node goes on after a failed save.
    #[must_use]
    pub fn open(disk: FakeDisk, goes_on: bool) -> SimStateFile {
        let on_disk = read(&disk).and_then(|text| OnDisk::of(&text)).unwrap_or_default();
        SimStateFile { disk, saves: VecDeque::new(), goes_on, on_disk }
    }

    /// The content that is certainly on the disk, or that the node may show without it.
    #[must_use]
    pub fn on_disk(&self) -> &OnDisk {
        &self.on_disk
    }

    /// Begins a save that ends at this time, or later.
    pub fn begin(&mut self, generation: Generation, text: String, due_us: u64) {
        self.saves.push_back(Save { generation, text, due_us });
    }

    /// Ends the first save if it is due. Returns its outcome.
    pub fn step(&mut self, now_us: u64) -> Option<(Generation, io::Result<()>)> {
        let save = self.saves.pop_front_if(|save| save.due_us <= now_us)?;
        let saved = write(&self.disk, save.text.as_bytes());
        match &saved {
            Ok(()) => self.on_disk = OnDisk::of(&save.text).unwrap_or_default(),
            Err(_) if self.goes_on => self.on_disk.go_on_with(&save.text),
            Err(_) => {}
        }
        Some((save.generation, saved))
    }

    /// The time at which the first save ends, if one runs.
    #[must_use]
    pub fn due_us(&self) -> Option<u64> {
        self.saves.front().map(|save| save.due_us)
    }

    /// Stops in the middle of a save, as a crash does.
    pub fn be_killed(&self, seed: u64) {
        if let Some(save) = self.saves.front().filter(|_| seed.is_multiple_of(2)) {
            self.disk.fail(seed / 2 % CALLS, u64::MAX / 2);
            // The process does not learn the result.
            let _ = write(&self.disk, save.text.as_bytes());
            self.disk.fail(0, 0);
        }
    }
}

/// The text of a disk's file, if there is one.
#[must_use]
pub fn read(disk: &FakeDisk) -> Option<String> {
    disk.bytes(NAME).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Replaces the file, as the server's thread does.
///
/// # Errors
/// The disk's error. The content is the old one or the new one then.
pub fn write(disk: &FakeDisk, text: &[u8]) -> io::Result<()> {
    let mut file = disk.create(NEW)?;
    let mut at = 0;
    while at < text.len() {
        match file.write_at(at as u64, &text[at..])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            bytes => at += bytes,
        }
    }
    file.sync()?;
    disk.rename(NEW, NAME)?;
    disk.sync_directory()
}
