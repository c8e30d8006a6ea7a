//! The effects of a command that writes: the changes for watchers, waiters and notifications, and the commands that
//! reproduce the changes for the journal.
//!
//! A command is recorded as the client sent it, unless its handler records another one ([`Effects::record_as`]). A
//! handler must do so if the command depends on time, chance or anything outside the keyspace. A command that changed
//! nothing is not recorded.

use journal::record::{Kind, Readers, Record};
use resp::request::{Args, OwnedArgs};

/// Memory growth, beyond the size of its arguments, after which a command makes the engine check `maxmemory` before the
/// next command. A window has 64 commands, so used memory exceeds the limit by at most 4 MB.
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
    /// No class of Redis, and never published: all keys of the database are gone. The event has no key.
    Emptied,
    /// No class of Redis, and never published: a change without an event in Redis. The event's name is empty.
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

/// Listeners that a change of a key concerns, beside keyspace notifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concerns {
    /// Watchers of the key (WATCH) and waiters for it (blocked commands).
    All,
    /// Watchers only: the key has nothing new for blocked commands. Redis doesn't retry them here, and a retry could
    /// change their reply or have side effects.
    Watchers,
    /// Waiters only: the key is gone, but its value counts as unchanged.
    Waiters,
    /// Neither: a stream's groups don't count as part of its value.
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
    /// The event's name in keyspace notifications.
    pub event: &'static str,
    /// Listeners to notify, beside keyspace notifications.
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

/// The effects of a command. Counts every change, lists changes that have listeners, and records the commands that
/// reproduce the changes if the journal has a reader.
#[derive(Default)]
pub struct Effects {
    /// Changes as Redis counts them (`rdb_changes_since_last_save`): a command that adds or removes several elements
    /// counts each of them; an event that leaves the value unchanged counts none. Reset when the counters are updated.
    pub dirty: u64,
    /// See [`Effects::revision`].
    revision: u64,
    /// Classes of changes to list, by [`Class::bit`]: all classes if a key of the command may be watched or waited for,
    /// else only the classes that notifications publish.
    pub listening: u32,
    /// True if the journal has a reader, so that commands are recorded.
    pub recording: bool,
    /// The readers that the running command is recorded for: all, unless a script has chosen some.
    pub readers: Readers,
    /// Value of `dirty` when the command began; set while recording.
    dirty_before: u64,
    /// Commands that the handler recorded in place of the running command, and a flag that it has done so.
    instead: Record,
    is_instead: bool,
    /// Arguments for retries of the blocked command, if they differ from its own.
    pub again: Option<OwnedArgs>,
    /// True if a command quickly allocated [`MUCH_BYTES`] more than the size of its arguments, as SETRANGE can. A slow
    /// command ends its window anyway.
    pub took_much: bool,
    listed: Vec<Listed>,
    keys: Vec<u8>,
}

impl Effects {
    /// Creates a journal that lists all changes.
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

    /// True if the finished command must be recorded.
    #[inline]
    #[must_use]
    pub fn must_record(&self) -> bool {
        self.recording && (self.dirty != self.dirty_before || !self.instead.is_empty())
    }

    /// Makes the journal reproduce the running command by this one. Several calls record several commands. `args`
    /// begins with the name.
    #[cold]
    pub fn record_as<'a>(&mut self, database: usize, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(database, Kind::Command, args);
        }
    }

    /// Like [`Effects::record_as`], for a command that only Penstock understands.
    #[cold]
    pub fn record_own<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(0, Kind::Own, args);
        }
    }

    /// Like [`Effects::record_as`], for a command that only the append-only file gets.
    #[cold]
    pub fn record_for_file<'a>(&mut self, database: usize, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(database, Kind::FileCommand, args);
        }
    }

    /// Like [`Effects::record_as`], for a message that only replicas receive.
    #[cold]
    pub fn record_message<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.recording {
            self.is_instead = true;
            self.instead.push(0, Kind::Message, args);
        }
    }

    /// Makes the journal omit the running command, because its inner commands are recorded already.
    #[inline]
    pub fn record_nothing(&mut self) {
        self.is_instead = true;
    }

    /// The finished command as its client wrote it, if it is recorded in that form.
    #[inline]
    #[must_use]
    pub fn as_it_came<'a>(&self, args: &Args<'a>) -> Option<&'a [u8]> {
        if self.is_instead { None } else { args.canonical() }
    }

    /// Appends the commands that reproduce the finished command to its unit's record.
    #[inline]
    pub fn record(&mut self, database: usize, args: Option<&Args<'_>>, unit: &mut Record) {
        if self.readers != Readers::ALL {
            return self.record_for_some(database, args, unit);
        }
        match args {
            Some(args) if !self.is_instead => match args.canonical() {
                Some(written) => unit.push_written(database, Kind::Command, written),
                None => unit.push(database, Kind::Command, args.from(0)),
            },
            _ => unit.append(&mut self.instead),
        }
    }

    /// Like [`Effects::record`], for a command that a script has recorded for some readers only.
    #[cold]
    fn record_for_some(&mut self, database: usize, args: Option<&Args<'_>>, unit: &mut Record) {
        match args {
            Some(args) if !self.is_instead => {
                if let Some(kind) = Kind::Command.only_for(self.readers) {
                    unit.push(database, kind, args.from(0));
                }
            }
            _ => unit.append_for(&mut self.instead, self.readers),
        }
    }

    /// A counter that grows with every change and event. A command that doesn't advance it has changed nothing.
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

    /// Records that a command changed a key, with the change's event. Counts as one change.
    #[inline]
    pub fn changed(&mut self, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.count(1);
        self.event_for(Concerns::All, database, key, class, event);
    }

    /// Records an event for these listeners, without counting a change.
    #[inline]
    pub fn event_for(&mut self, concerns: Concerns, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.revision += 1;
        if self.listening & class.bit() != 0 {
            self.list(database, key, class, event, concerns);
        }
    }

    /// Records the event of a key that has moved away, without counting a change. The command has stored the value at
    /// its new key already and records that event next.
    #[inline]
    pub fn moved_from(&mut self, database: usize, key: &[u8], class: Class, event: &'static str) {
        self.event_for(Concerns::All, database, key, class, event);
        // The event was listed just now, if at all.
        if self.listening & class.bit() != 0
            && let Some(last) = self.listed.last_mut()
        {
            last.is_moved = true;
        }
    }

    /// Records that a database was emptied. The command counts the changes itself.
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

    /// True if no changes are listed.
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

    /// Clears the list of changes.
    pub fn clear(&mut self) {
        self.listed.clear();
        self.keys.clear();
    }
}
