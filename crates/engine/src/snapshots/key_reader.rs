//! The keys of a snapshot, read in groups.

use std::io::{self, Read};

use format::rdb::{Access, Event, Reader};
use store::db::Clock;
use store::entry::Entry;
use store::hash::KeyHash;

use super::reading::ReadContext;

/// The greatest number of keys in a group, large enough that handing it to another thread is cheap.
const KEYS: usize = 256;

/// A key that has been read.
pub(super) struct ReadKey {
    pub hash: KeyHash,
    pub entry: Entry,
    /// True if the key has expired.
    pub is_expired: bool,
}

/// Keys, and the event after them.
pub(super) struct KeyGroup {
    pub keys: Vec<ReadKey>,
    /// The event after the keys; `None` if more keys may follow.
    pub then: Option<Event>,
    /// The number of snapshot bytes up to here.
    pub bytes: u64,
}

/// See the module's documentation.
pub(super) struct KeyReader<'c, R, P> {
    reader: Reader<CountingReader<R, P>>,
    clock: &'c Clock,
    has_ended: bool,
}

impl<'c, R: Read, P: FnMut(u64)> KeyReader<'c, R, P> {
    /// A reader of the snapshot that begins here. `progress` receives the number of bytes read.
    pub fn new(from: R, context: &ReadContext<'c>, progress: P) -> Self {
        let reader = Reader::new(CountingReader { from, read: 0, progress }, context.limits);
        let reader = reader.with_len(context.options.bytes.unwrap_or(0));
        KeyReader { reader, clock: context.clock, has_ended: false }
    }

    /// Returns whether the snapshot has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next group. An error ends the snapshot.
    pub fn next_group(&mut self) -> Result<KeyGroup, String> {
        let group = self.read();
        self.has_ended = !matches!(&group, Ok(group) if !matches!(group.then, Some(Event::End(_))));
        group
    }

    fn read(&mut self) -> Result<KeyGroup, String> {
        let mut keys = Vec::with_capacity(KEYS);
        while keys.len() < KEYS {
            match self.reader.read_event().map_err(|error| error.to_string())? {
                Event::Entry { mut entry, access } => {
                    let is_expired = entry.is_expired(self.clock.now_ms);
                    entry.set_access(access_word(access, self.clock));
                    keys.push(ReadKey { hash: KeyHash::of(entry.key()), entry, is_expired });
                }
                then => return Ok(KeyGroup { keys, then: Some(then), bytes: self.reader.offset() }),
            }
        }
        Ok(KeyGroup { keys, then: None, bytes: self.reader.offset() })
    }
}

/// Counts the bytes that are read.
struct CountingReader<R, P> {
    from: R,
    read: u64,
    progress: P,
}

impl<R: Read, P: FnMut(u64)> Read for CountingReader<R, P> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.read += count as u64;
        (self.progress)(self.read);
        Ok(count)
    }
}

/// Returns the access word of a key from a snapshot's fact about its use.
fn access_word(access: Access, clock: &Clock) -> u32 {
    match (access, clock.frequency) {
        (Access::Frequency(count), Some(frequency)) => frequency.word(count),
        (_, Some(frequency)) => frequency.used(0, 0),
        (Access::IdleSeconds(seconds), None) => clock.word_of_idle(seconds),
        (_, None) => clock.uptime_s,
    }
}
