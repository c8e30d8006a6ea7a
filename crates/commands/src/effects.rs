//! The effects of a command that writes: the changes that watchers, waiters and notifications are told of, and the
//! commands that reproduce them for the journal.
//!
//! A command is recorded as it came, unless its handler records another one ([`Effects::record_as`]). A handler must do
//! so if the command depends on time, chance or anything outside the keyspace. A command that changed nothing leaves
//! nothing.

use journal::record::{Kind, Record};
use resp::request::{Args, OwnedArgs};

/// If a command takes so many bytes more than its arguments have, `maxmemory` is checked again before the next one. A
/// window has 64 commands, so the limit is exceeded by 4 MB at most.
pub const MUCH_BYTES: usize = 64 * 1024;

/// The class of a keyspace event, a character of notify-keyspace-events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `g`: DEL, EXPIRE, RENAME and other commands on keys of any type.
    Generic,
    /// `$`
    String,
    /// `l`
    List,
    /// `s`
    Set,
    /// `h`
    Hash,
    /// `z`
    ZSet,
    /// `t`
    Stream,
    /// `x`: a key expired.
    Expired,
    /// `e`: a key was evicted.
    Evicted,
    /// `n`: a key was created.
    New,
    /// No class, and never published: all keys of the database are gone. It comes without a key.
    Emptied,
    /// No class, and never published: a change that has no event in Redis. Its event's name is empty.
    Unpublished,
}

impl Class {
    /// The class's bit in [`Effects::listening`].
    #[inline]
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Changes of every class, for [`Effects::listening`].
pub const ALL_CLASSES: u32 = u32::MAX;

/// Which listeners a change of a key concerns, beside keyspace notifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concerns {
    /// Watchers of the key (WATCH) and waiters for it (blocked commands).
    All,
    /// Watchers only: the key has nothing new to serve. Where Redis doesn't retry blocked commands, they must not be
    /// retried here: a retry might find something else, or leave something behind.
    Watchers,
    /// Waiters only: what they wait for is gone, though the key's value counts as unchanged.
    Waiters,
    /// Neither: a stream's groups don't count as its value.
    Neither,
}

impl Concerns {
    /// True if transactions that watch the key must fail.
    #[must_use]
    pub fn watchers(self) -> bool {
        matches!(self, Concerns::All | Concerns::Watchers)
    }

    /// True if commands that are blocked on the key must be retried.
    #[must_use]
    pub fn waiters(self) -> bool {
        matches!(self, Concerns::All | Concerns::Waiters)
    }
}

/// One change of one key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'e> {
    /// The database.
    pub database: usize,
    /// The key.
    pub key: &'e [u8],
    /// The event's class.
    pub class: Class,
    /// The event's name, as keyspace notifications publish it.
    pub event: &'static str,
    /// The listeners that are told, beside notifications.
    pub concerns: Concerns,
    /// See [`Effects::moved_from`].
    pub is_moved: bool,
}

struct Listed {
    database: usize,
    key_start: usize,
    class: Class,
    event: &'static str,
    concerns: Concerns,
    is_moved: bool,
}

/// The effects of a command: counts every change, lists changes that have listeners, and records what reproduces them
/// if the journal has a reader.
#[derive(Default)]
pub struct Effects {
    /// Changes as Redis counts them (`rdb_changes_since_last_save`): elements where a command adds or removes several,
    /// none where a command has an event and leaves the value as it was. Taken when the counters get it.
    pub dirty: u64,
    /// See [`Effects::revision`].
    revision: u64,
    /// Classes of changes to list, by [`Class::bit`]: all of them where a key of the command may be watched or waited
    /// for, else those that notifications publish.
    pub listening: u32,
    /// True if the journal has a reader, so that what reproduces a change is recorded.
    pub recording: bool,
    /// `dirty` when the command began, while recording.
    dirty_before: u64,
    /// What the handler has said reproduces the command, and whether it has said anything.
    instead: Record,
    is_instead: bool,
    /// The arguments with which the command that waits is to be run again, if not with its own.
    pub again: Option<OwnedArgs>,
    /// Whether a command has taken [`MUCH_BYTES`] more than its arguments have in no time, as SETRANGE can; what
    /// takes its time ends a window anyway.
    pub took_much: bool,
    listed: Vec<Listed>,
    keys: Vec<u8>,
}

impl Effects {
    /// A journal that lists changes.
    #[must_use]
    pub fn listening() -> Effects {
        Effects { listening: ALL_CLASSES, ..Effects::default() }
    }

    /// Begins a command.
    #[inline]
    pub fn begin(&mut self) {
        if self.recording {
            self.dirty_before = self.dirty;
            self.is_instead = false;
            self.instead.clear();
        }
    }

    /// True if the command that has run must be recorded.
    #[inline]
    #[must_use]
    pub fn must_record(&self) -> bool {
        self.recording && (self.dirty != self.dirty_before || !self.instead.is_empty())
    }

    /// Has the journal reproduce the running command by this one, or by several where it is called again. `args` begins
    /// with the name.
    #[cold]
    pub fn record_as<'a>(&mut self, database: usize, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(database, Kind::Command, args);
        }
    }

    /// The same for a command that only Penstock understands.
    #[cold]
    pub fn record_own<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(0, Kind::Own, args);
        }
    }

    /// The same for a message, which only replicas are told.
    #[cold]
    pub fn record_message<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(0, Kind::Message, args);
        }
    }

    /// Has the journal leave the running command out: what it has run itself is recorded already.
    #[inline]
    pub fn record_nothing(&mut self) {
        self.is_instead = true;
    }

    /// The command that has run as its client wrote it, if that reproduces it.
    #[inline]
    #[must_use]
    pub fn as_it_came<'a>(&self, args: &Args<'a>) -> Option<&'a [u8]> {
        if self.is_instead { None } else { args.canonical() }
    }

    /// Adds what reproduces the command that has run to its unit's record.
    #[inline]
    pub fn record(&mut self, database: usize, args: Option<&Args<'_>>, unit: &mut Record) {
        match args {
            Some(args) if !self.is_instead => match args.canonical() {
                Some(written) => unit.push_written(database, Kind::Command, written),
                None => unit.push(database, Kind::Command, args.from(0)),
            },
            _ => unit.append(&mut self.instead),
        }
    }

    /// Grows with every change and event, and never shrinks: a command that leaves it alone has changed nothing.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts changes without an event.
    #[inline]
    pub fn count(&mut self, changes: u64) {
        self.dirty += changes;
        self.revision += changes;
    }

    /// Notes that a command changed a key, and the event that it is. It counts as one change.
    #[inline]
    pub fn changed(&mut self, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.count(1);
        self.event_for(Concerns::All, database, key, class, event);
    }

    /// Notes an event without counting a change, and the listeners that it concerns.
    #[inline]
    pub fn event_for(&mut self, concerns: Concerns, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.revision += 1;
        if self.listening & class.bit() != 0 {
            self.list(database, key, class, event, concerns);
        }
    }

    /// Notes the event of a key that has left its place, and counts as no change of its own: the command has put the
    /// value in its new place before, and tells of that next.
    #[inline]
    pub fn moved_from(&mut self, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.event_for(Concerns::All, database, key, class, event);
        // Listed just now, or not at all.
        if self.listening & class.bit() != 0
            && let Some(last) = self.listed.last_mut()
        {
            last.is_moved = true;
        }
    }

    /// Notes that a database has been emptied. What that counts for is the command's business.
    pub fn emptied(&mut self, database: usize) {
        self.revision += 1;
        if self.listening & Class::Emptied.bit() != 0 {
            self.list(database, b"", Class::Emptied, "", Concerns::All);
        }
    }

    #[cold]
    fn list(&mut self, database: usize, key: &[u8], class: Class, event: &'static str, concerns: Concerns) {
        self.listed.push(Listed { database, key_start: self.keys.len(), class, event, concerns, is_moved: false });
        self.keys.extend_from_slice(key);
    }

    /// Whether anything is listed.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The listed changes, in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.listed.iter().enumerate().map(|(i, l)| {
            let end = self.listed.get(i + 1).map_or(self.keys.len(), |next| next.key_start);
            let &Listed { database, key_start, class, event, concerns, is_moved } = l;
            Change { database, key: &self.keys[key_start..end], class, event, concerns, is_moved }
        })
    }

    /// Forgets the listed changes.
    pub fn clear(&mut self) {
        self.listed.clear();
        self.keys.clear();
    }
}
