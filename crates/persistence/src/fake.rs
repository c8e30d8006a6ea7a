//! A disk in memory with the worst permitted behaviour: it loses unsynced data, in parts and out of order, and fails at any call.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};

/// Sector sizes of several disks, in bytes. A crash leaves each sector old, new, or in a state between two writes.
const SECTORS: [usize; 3] = [64, 512, 4096];

/// Greatest number of versions of a file since its last sync. A crash may leave each sector in any of them.
const VERSIONS_MAX: usize = 8;

/// A change of a file that has not been synced.
#[derive(Clone)]
enum Change {
    Written(usize, Vec<u8>),
    Cut(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Cut(len) => content.truncate(*len),
            Change::Written(at, bytes) => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Clone, Default)]
struct Content {
    /// The contents for readers.
    now: Vec<u8>,
    /// The contents certainly on the medium.
    durable: Vec<u8>,
    /// The position from which a failed sync has lost pages: like on Linux, another sync succeeds without them.
    lost_from: Option<usize>,
    /// The durable bytes after the success of the running sync, if one runs, and the number of changes that it covers.
    syncing: Option<(Vec<u8>, usize)>,
    /// The changes since then.
    changes: Vec<Change>,
}

impl Content {
    /// Contents that are entirely on the medium.
    fn of(durable: Vec<u8>) -> Content {
        Content { now: durable.clone(), durable, ..Content::default() }
    }
}

#[derive(Default)]
struct FakeState {
    /// Contents by number, since a name may be reused for others.
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Number of calls so far that could fail.
    calls: u64,
    /// The range of calls that fail.
    fails_from: u64,
    fails_until: u64,
    /// Free bytes.
    room: Option<usize>,
    random: u64,
}

impl FakeState {
    /// Counts a call. Returns an error if it must fail.
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if (self.fails_from..self.fails_until).contains(&self.calls) {
            return Err(io::Error::other("the disk has failed"));
        }
        Ok(())
    }

    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound.max(1)
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct FakeDisk(Arc<Mutex<FakeState>>);

/// A file of a [`FakeDisk`].
#[derive(Clone)]
pub struct FakeFile {
    disk: FakeDisk,
    content: usize,
}

impl FakeDisk {
    /// Returns an empty disk. `seed` determines its random behaviour.
    #[must_use]
    pub fn new(seed: u64) -> FakeDisk {
        FakeDisk(Arc::new(Mutex::new(FakeState { random: seed | 1, ..FakeState::default() })))
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Makes `count` calls fail, after `after` calls that succeed.
    pub fn fail(&self, after: u64, count: u64) {
        let mut state = self.state();
        state.fails_from = state.calls + 1 + after;
        state.fails_until = state.fails_from.saturating_add(count);
    }

    /// Sets the number of free bytes, or no limit.
    pub fn leave_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    /// Returns the disk after a loss of power. Names are as of the last sync of the directory, or newer. A file has its synced contents and
    /// some of the unsynced sectors. Its length may be shorter, and its last write torn.
    #[must_use]
    pub fn crash(&self, seed: u64) -> FakeDisk {
        self.crash_with(seed, SECTORS[(seed % SECTORS.len() as u64) as usize])
    }

    /// Like [`FakeDisk::crash`], with sectors of the given size in bytes.
    #[must_use]
    pub fn crash_with(&self, seed: u64, sector: usize) -> FakeDisk {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.random, seed | 1);
        let mut after = FakeState { random: seed.rotate_left(17) | 1, ..FakeState::default() };
        let names = if state.below(2) == 0 { state.names.clone() } else { state.durable_names.clone() };
        for (name, content) in names {
            let content = state.contents[content].clone();
            let kept = survivor(&mut state, &content, sector);
            after.names.insert(name, after.contents.len());
            after.contents.push(Content::of(kept));
        }
        after.durable_names = after.names.clone();
        state.random = before;
        FakeDisk(Arc::new(Mutex::new(after)))
    }

    /// Changes a byte of a file, like a bit error of the medium.
    pub fn rot(&self, name: &str, at: usize) {
        let mut state = self.state();
        if let Some(&content) = state.names.get(name)
            && let Some(byte) = state.contents[content].now.get_mut(at)
        {
            *byte ^= 0x40;
        }
    }

    /// The contents of a file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|&content| state.contents[content].now.clone())
    }

    /// The names of all files.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

/// Returns the bytes of a file that survive a crash.
fn survivor(state: &mut FakeState, content: &Content, sector: usize) -> Vec<u8> {
    let Content { now, durable, changes, .. } = content;
    if changes.is_empty() {
        return durable.clone();
    }
    // Only the last versions are kept.
    let first = changes.len().saturating_sub(VERSIONS_MAX);
    let (mut version, mut versions) = (durable.clone(), vec![durable.clone()]);
    for (index, change) in changes.iter().enumerate() {
        change.apply(&mut version);
        if index >= first {
            versions.push(version.clone());
        }
    }
    versions.push(now.clone());
    // The crash leaves a length between those of the shortest and the longest version.
    let lens = versions.iter().map(Vec::len);
    let (short, long) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
    let len = short + state.below((long - short) as u64 + 1) as usize;
    let mut kept = vec![0; len];
    for start in (0..len).step_by(sector) {
        let version = match state.below(4) {
            0 => 0,
            1 => state.below(versions.len() as u64) as usize,
            _ => versions.len() - 1,
        };
        for (at, byte) in kept.iter_mut().enumerate().take(start + sector).skip(start) {
            // A sector that was never written reads as zeros.
            *byte = versions[version].get(at).or(durable.get(at)).copied().unwrap_or(0);
        }
    }
    kept
}

impl Disk for FakeDisk {
    type File = FakeFile;

    fn create(&self, name: &str) -> io::Result<FakeFile> {
        let mut state = self.state();
        state.call()?;
        let content = state.contents.len();
        state.contents.push(Content::default());
        state.names.insert(name.to_string(), content);
        Ok(FakeFile { disk: self.clone(), content })
    }

    fn append(&self, name: &str) -> io::Result<(FakeFile, u64)> {
        let mut state = self.state();
        state.call()?;
        let content = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let len = state.contents[content].now.len() as u64;
        Ok((FakeFile { disk: self.clone(), content }, len))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let bytes = self.bytes(name).ok_or(io::ErrorKind::NotFound)?;
        let len = bytes.len() as u64;
        Ok((Box::new(Cursor::new(bytes)), len))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let content = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_string(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.names.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

impl DiskFile for FakeFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        // A failed write may have written some bytes.
        let failed = state.call().err();
        let (mut count, len) = (bytes.len(), state.contents[self.content].now.len());
        assert!(at as usize <= len, "a gap would be zeros");
        // Overwritten bytes need no free space.
        let there = len - at as usize;
        if let Some(room) = state.room {
            count = count.min(there.saturating_add(room));
        }
        if (failed.is_some() || state.below(4) == 0) && count > 1 {
            count = 1 + state.below(count as u64) as usize;
        }
        state.room = state.room.map(|room| room - count.saturating_sub(there));
        let content = &mut state.contents[self.content];
        let change = Change::Written(at as usize, bytes[..count].to_vec());
        change.apply(&mut content.now);
        content.changes.push(change);
        match failed {
            Some(error) => Err(error),
            None if count == 0 => Err(io::ErrorKind::StorageFull.into()),
            None => Ok(count),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.begin_sync().end()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.call()?;
        let content = &mut state.contents[self.content];
        content.now.truncate(len as usize);
        content.changes.push(Change::Cut(len as usize));
        // The next write there may miss the running sync.
        content.syncing.iter_mut().for_each(|(syncing, _)| syncing.truncate(len as usize));
        content.lost_from = content.lost_from.filter(|&from| from < len as usize);
        Ok(())
    }
}

/// A running sync.
#[must_use]
pub struct FakeSync(FakeFile);

impl FakeFile {
    /// Begins a sync, like another thread.
    ///
    /// # Panics
    /// If a sync runs already: of several, the system reports an error to only one.
    pub fn begin_sync(&self) -> FakeSync {
        let mut state = self.disk.state();
        let content = &mut state.contents[self.content];
        assert!(content.syncing.is_none(), "two syncs at once");
        content.syncing = Some((content.now.clone(), content.changes.len()));
        FakeSync(self.clone())
    }
}

impl FakeSync {
    /// Ends the sync. Bytes written before its beginning are durable then, unless it fails.
    ///
    /// # Errors
    /// The disk's error, if this call must fail.
    pub fn end(self) -> io::Result<()> {
        let mut state = self.0.disk.state();
        let called = state.call();
        let content = &mut state.contents[self.0.content];
        let (syncing, changes) = content.syncing.take().unwrap_or_default();
        if called.is_err() {
            let same = content.durable.iter().zip(&content.now).take_while(|(durable, now)| durable == now).count();
            content.lost_from = Some(content.lost_from.map_or(same, |before| before.min(same)));
            return called;
        }
        content.durable = syncing;
        content.changes.drain(..changes);
        if let Some(lost_from) = content.lost_from {
            content.durable.iter_mut().skip(lost_from).for_each(|byte| *byte = 0);
        }
        Ok(())
    }
}
