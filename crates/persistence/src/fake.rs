//! A disk in memory that behaves as badly as a disk may: it loses what was not synced, in parts and out of order, and fails
//! at any call.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};

/// Bytes that a disk writes at once: a crash leaves each as it was or as it is to be.
const SECTOR: usize = 64;

#[derive(Clone, Default)]
struct Content {
    /// What a reader sees.
    now: Vec<u8>,
    /// What is on the medium for sure.
    durable: Vec<u8>,
    /// From where on the pages are lost that a sync has failed for: another sync succeeds without them, as on Linux.
    lost_from: Option<usize>,
    /// What is durable once the sync succeeds that runs, if one does.
    syncing: Option<Vec<u8>>,
}

impl Content {
    /// What is on the medium for sure and nothing else.
    fn of(durable: Vec<u8>) -> Content {
        Content { now: durable.clone(), durable, ..Content::default() }
    }
}

#[derive(Default)]
struct FakeState {
    /// Contents by number, since a name may come to mean another.
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Calls so far that may fail.
    calls: u64,
    /// The calls that fail.
    fails_from: u64,
    fails_until: u64,
    /// Bytes that there is room for.
    room: Option<usize>,
    random: u64,
}

impl FakeState {
    /// Counts a call, which may be one that fails.
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

/// See the module's documentation. Clones are the same disk.
#[derive(Clone)]
pub struct FakeDisk(Arc<Mutex<FakeState>>);

/// A file of a [`FakeDisk`].
#[derive(Clone)]
pub struct FakeFile {
    disk: FakeDisk,
    content: usize,
}

impl FakeDisk {
    /// An empty disk; what it does at random follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> FakeDisk {
        FakeDisk(Arc::new(Mutex::new(FakeState { random: seed | 1, ..FakeState::default() })))
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Has so many calls fail, after so many more that succeed.
    pub fn fail(&self, after: u64, count: u64) {
        let mut state = self.state();
        state.fails_from = state.calls + 1 + after;
        state.fails_until = state.fails_from.saturating_add(count);
    }

    /// Leaves room for so many bytes more; none is no limit.
    pub fn leave_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    /// The disk after a loss of power: names as of the last sync of the directory, or as they were to be; of each file what
    /// was synced, and of the rest some sectors, a length that may be less, and a last write that may be torn.
    #[must_use]
    pub fn crash(&self, seed: u64) -> FakeDisk {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.random, seed | 1);
        let mut after = FakeState { random: seed.rotate_left(17) | 1, ..FakeState::default() };
        let names = if state.below(2) == 0 { state.names.clone() } else { state.durable_names.clone() };
        for (name, content) in names {
            let Content { now, durable, .. } = state.contents[content].clone();
            let kept = survivor(&mut state, &now, &durable);
            after.names.insert(name, after.contents.len());
            after.contents.push(Content::of(kept));
        }
        after.durable_names = after.names.clone();
        state.random = before;
        FakeDisk(Arc::new(Mutex::new(after)))
    }

    /// Changes a byte of a file, as rot does.
    pub fn rot(&self, name: &str, at: usize) {
        let mut state = self.state();
        if let Some(&content) = state.names.get(name)
            && let Some(byte) = state.contents[content].now.get_mut(at)
        {
            *byte ^= 0x40;
        }
    }

    /// What a file has.
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

/// What a crash leaves of a file.
fn survivor(state: &mut FakeState, now: &[u8], durable: &[u8]) -> Vec<u8> {
    if now == durable {
        return durable.to_vec();
    }
    // Cut or grown: the length is one that it had between.
    let (short, long) = (now.len().min(durable.len()), now.len().max(durable.len()));
    let len = short + state.below((long - short) as u64 + 1) as usize;
    let mut kept = vec![0; len];
    for start in (0..len).step_by(SECTOR) {
        let end = (start + SECTOR).min(len);
        let source = if state.below(4) == 0 { durable } else { now };
        for at in start..end {
            // A sector that was never written reads as zeros.
            let byte = match source.get(at) {
                Some(byte) => *byte,
                None => durable.get(at).copied().unwrap_or(0),
            };
            kept[at] = if at < durable.len() && durable.get(at) == now.get(at) { durable[at] } else { byte };
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
        // A write that fails may have written some of it.
        let failed = state.call().err();
        let (mut count, len) = (bytes.len(), state.contents[self.content].now.len());
        assert!(at as usize <= len, "a gap would be zeros");
        // What is overwritten has its room already.
        let there = len - at as usize;
        if let Some(room) = state.room {
            count = count.min(there.saturating_add(room));
        }
        if (failed.is_some() || state.below(4) == 0) && count > 1 {
            count = 1 + state.below(count as u64) as usize;
        }
        state.room = state.room.map(|room| room - count.saturating_sub(there));
        let now = &mut state.contents[self.content].now;
        let over = count.min(there);
        now[at as usize..at as usize + over].copy_from_slice(&bytes[..over]);
        now.extend_from_slice(&bytes[over..count]);
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
        // What is written there next may miss the sync that runs.
        content.syncing.iter_mut().for_each(|syncing| syncing.truncate(len as usize));
        content.lost_from = content.lost_from.filter(|&from| from < len as usize);
        Ok(())
    }
}

/// A sync that runs.
#[must_use]
pub struct FakeSync(FakeFile);

impl FakeFile {
    /// Begins a sync, as another thread does.
    ///
    /// # Panics
    /// If one runs: of several, the system tells only one of an error.
    pub fn begin_sync(&self) -> FakeSync {
        let mut state = self.disk.state();
        let content = &mut state.contents[self.content];
        assert!(content.syncing.is_none(), "two syncs at once");
        content.syncing = Some(content.now.clone());
        FakeSync(self.clone())
    }
}

impl FakeSync {
    /// Ends it. What was written before it began is durable then, unless it fails.
    ///
    /// # Errors
    /// The disk's, if it is one of the calls that fail.
    pub fn end(self) -> io::Result<()> {
        let mut state = self.0.disk.state();
        let called = state.call();
        let content = &mut state.contents[self.0.content];
        let syncing = content.syncing.take().unwrap_or_default();
        if called.is_err() {
            let same = content.durable.iter().zip(&content.now).take_while(|(durable, now)| durable == now).count();
            content.lost_from = Some(content.lost_from.map_or(same, |before| before.min(same)));
            return called;
        }
        content.durable = syncing;
        if let Some(lost_from) = content.lost_from {
            content.durable.iter_mut().skip(lost_from).for_each(|byte| *byte = 0);
        }
        Ok(())
    }
}
