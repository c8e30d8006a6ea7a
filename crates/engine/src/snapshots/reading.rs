//! Reading a snapshot: its keys, functions, scripts and pipeline tokens go to a target.

use std::io::Read;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use config::{Int, Settings};
use format::Limits;
use format::rdb::{Checksum, Event};
use replication::id::{HistoryId, HistoryPoint};
use resp::num::parse_i64;
use store::db::{Clock, Db};
use store::entry::Entry;
use store::hash::KeyHash;
use store::keyspace::Key;

use super::key_reader::{KeyGroup, KeyReader, ReadKey};
use super::{HISTORY_FIELD, OFFSET_FIELD, SCRIPT_FIELD, SLOT_STATES_FIELD, STREAM_DATABASE_FIELD, TOKEN_FIELD};

/// The number of keys that are inserted together, so that their memory accesses overlap.
const AT_ONCE: usize = 64;

/// The greatest number of groups that are read ahead of their insertion, so that neither thread waits for short delays
/// of the other.
const GROUPS_AHEAD: usize = 16;

/// The longest time between two looks at `key-load-delay` while it is waited for.
const DELAY_STEP: Duration = Duration::from_millis(10);

/// The contents of a snapshot in figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// The number of keys.
    pub keys: u64,
    /// The number of expired keys that were left out.
    pub expired: u64,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// The database that the stream after it has selected, if the snapshot has this fact.
    pub stream_database: Option<usize>,
    /// The history that it belongs to, and its offset there, if the snapshot has these facts.
    history: Option<HistoryId>,
    offset: Option<u64>,
    /// The states of the open slots of a cluster's primary.
    pub slot_states: Option<Vec<u8>>,
}

impl Loaded {
    /// Returns its point in a history, if the snapshot has one.
    #[must_use]
    pub fn point(&self) -> Option<HistoryPoint> {
        let Loaded { history: Some(id), offset: Some(offset), stream_database: Some(database), .. } = *self else {
            return None;
        };
        Some(HistoryPoint { id, offset, database })
    }
}

/// The treatment of expired keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiredKeys {
    /// They are inserted: the data after the snapshot contain their removal.
    Kept,
    /// They are left out.
    LeftOut,
    /// They are inserted if the snapshot belongs to a history, which contains their removal.
    KeptInHistory,
}

/// The options of loading a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// The treatment of expired keys.
    pub expired: ExpiredKeys,
    /// True if a wrong checksum is an error (`rdbchecksum`).
    pub checks: bool,
    /// True if a key replaces an existing one; otherwise that is an error.
    pub replaces: bool,
    /// Its size in bytes, if known. The size bounds the claimed numbers of keys and elements that memory is reserved
    /// for.
    pub bytes: Option<u64>,
}

/// A destination of a snapshot's contents. Errors are texts about the item that can't be inserted.
pub(crate) trait SnapshotTarget {
    /// Inserts some keys into a database.
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String>;

    /// Announces the approximate number of keys for this database.
    fn expect(&mut self, database: usize, keys: usize);

    /// Inserts a library of functions, and replaces one of its name.
    fn function(&mut self, text: &[u8]) -> Result<(), String>;

    /// Inserts a script from SCRIPT LOAD.
    fn script(&mut self, text: &[u8]) -> Result<(), String>;

    /// Inserts a pipeline token, from its record.
    fn token(&mut self, record: &[u8]) -> Result<(), String>;
}

/// Keys on their way into a database.
pub(crate) struct Arriving {
    pub database: usize,
    entries: Vec<(KeyHash, Entry)>,
    replaces: bool,
}

impl Arriving {
    /// Inserts them into `db`.
    pub(crate) fn put_into(&mut self, db: &mut Db<'_, '_>) -> Result<(), String> {
        // Another thread may have made the entries, so they are not in this core's cache.
        self.entries.iter().for_each(|(_, entry)| entry.prefetch());
        db.prefetch(self.entries.iter().map(|(hash, _)| *hash));
        for (hash, entry) in self.entries.drain(..) {
            let Err(entry) = db.restore(hash, entry) else { continue };
            let key = String::from_utf8_lossy(entry.key()).into_owned();
            if self.replaces {
                db.remove(Key::new(entry.key()));
            }
            if db.restore(hash, entry).is_err() {
                return Err(format!("it has the key '{key}' twice in database {}", self.database));
            }
        }
        Ok(())
    }
}

/// A snapshot that is being read.
struct Reading<'r, T> {
    target: &'r mut T,
    databases: usize,
    options: LoadOptions,
    /// `key-load-delay`.
    key_delay_us: &'r Int,
    arriving: Arriving,
    loaded: Loaded,
}

/// The context of reading a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'c> {
    /// The size limits of collections' forms.
    pub limits: Limits,
    pub clock: &'c Clock,
    /// The number of databases.
    pub databases: usize,
    pub options: LoadOptions,
    pub settings: &'c Settings,
}

/// Passes a snapshot's contents to a target. `progress` receives the number of bytes read after each piece.
///
/// # Errors
/// The fault of the snapshot, and its place.
pub(crate) fn read<T: SnapshotTarget>(
    from: impl Read,
    context: ReadContext<'_>,
    progress: impl FnMut(u64),
    target: &mut T,
) -> Result<Loaded, String> {
    let mut reader = KeyReader::new(from, &context, progress);
    Reading::new(&context, target).take_all(|| reader.next_group())
}

/// Like [`read`], with a thread that reads and makes values ahead of their insertion. Most of the time is spent in
/// waits for memory, and two cores can wait at once.
///
/// # Errors
/// The errors of [`read`], and the failure to start a thread.
pub(crate) fn read_with_thread<T: SnapshotTarget>(
    from: impl Read + Send,
    context: ReadContext<'_>,
    progress: impl FnMut(u64) + Send,
    target: &mut T,
) -> Result<Loaded, String> {
    std::thread::scope(|scope| {
        let (made, groups) = sync_channel(GROUPS_AHEAD);
        let makes = move || {
            let mut reader = KeyReader::new(from, &context, progress);
            // The receiver is gone if an earlier group could not be inserted.
            while made.send(reader.next_group()).is_ok() && !reader.has_ended() {}
        };
        let thread = std::thread::Builder::new().name("load-reader".into()).spawn_scoped(scope, makes);
        thread.map_err(|error| format!("can't start a thread: {error}"))?;
        let next = || groups.recv().unwrap_or_else(|_| Err("the thread that reads it has ended".into()));
        Reading::new(&context, target).take_all(next)
    })
}

impl<'r, T: SnapshotTarget> Reading<'r, T> {
    fn new(context: &ReadContext<'r>, target: &'r mut T) -> Self {
        let ReadContext { databases, options, settings, .. } = *context;
        let arriving = Arriving { database: 0, entries: Vec::with_capacity(AT_ONCE), replaces: options.replaces };
        let key_delay_us = &settings.key_load_delay_us;
        Reading { target, databases, options, key_delay_us, arriving, loaded: Loaded::default() }
    }

    /// Inserts one group after another.
    fn take_all(mut self, mut next: impl FnMut() -> Result<KeyGroup, String>) -> Result<Loaded, String> {
        loop {
            let KeyGroup { keys, then, bytes } = next()?;
            keys.into_iter().try_for_each(|key| self.arrive(key))?;
            let Some(event) = then else { continue };
            if let Some(checksum) = self.take(event)? {
                if checksum == Checksum::Wrong && self.options.checks {
                    return Err("its checksum is wrong: bytes of it have changed since it was written".into());
                }
                return Ok(Loaded { bytes, ..self.loaded });
            }
        }
    }

    /// Takes an event. At the end, returns whether the checksum is right.
    fn take(&mut self, event: Event) -> Result<Option<Checksum>, String> {
        match event {
            Event::Select(database) => {
                self.target.put_in(&mut self.arriving)?;
                self.arriving.database = self.known_database(database, "has keys in")?;
            }
            Event::Aux { name, text } => match &*name {
                SCRIPT_FIELD => self.target.script(&text)?,
                TOKEN_FIELD => self.target.token(&text)?,
                STREAM_DATABASE_FIELD => self.loaded.stream_database = self.stream_database(&text)?,
                HISTORY_FIELD => self.loaded.history = HistoryId::parse(&text),
                SLOT_STATES_FIELD => self.loaded.slot_states = Some(text),
                OFFSET_FIELD => self.loaded.offset = parse_i64(&text).and_then(|number| u64::try_from(number).ok()),
                _ => {}
            },
            Event::Function(text) => self.target.function(&text)?,
            // Keys arrive in groups.
            Event::Entry { .. } | Event::Header(_) | Event::EmptyKey(_) => {}
            Event::Resize { credible, .. } => self.target.expect(self.arriving.database, credible),
            Event::End(checksum) => {
                self.target.put_in(&mut self.arriving)?;
                return Ok(Some(checksum));
            }
        }
        Ok(None)
    }

    fn known_database(&self, database: u64, does: &str) -> Result<usize, String> {
        let databases = self.databases;
        usize::try_from(database).ok().filter(|index| *index < databases).ok_or_else(|| {
            format!("it {does} database {database}, and there are {databases}: raise the setting databases")
        })
    }

    /// Returns the database that a stream has selected. A negative number stands for no selection yet.
    fn stream_database(&self, text: &[u8]) -> Result<Option<usize>, String> {
        let number = parse_i64(text).and_then(|number| u64::try_from(number).ok());
        number.map(|number| self.known_database(number, "is followed by changes of")).transpose()
    }

    /// Waits for the time of a key by `key-load-delay`, with which tests get slow loads. The directive may change meanwhile.
    fn wait(&self) {
        let delay_us = self.key_delay_us.get();
        if delay_us == 0 {
            return;
        }
        if delay_us < 0 {
            if self.loaded.keys.is_multiple_of(delay_us.unsigned_abs()) {
                std::thread::sleep(Duration::from_micros(1));
            }
            return;
        }
        let began = Instant::now();
        let left = || {
            let delay = Duration::from_micros(self.key_delay_us.get().max(0).unsigned_abs());
            delay.saturating_sub(began.elapsed())
        };
        loop {
            let left = left();
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(DELAY_STEP));
        }
    }

    fn keeps_expired(&self) -> bool {
        match self.options.expired {
            ExpiredKeys::Kept => true,
            ExpiredKeys::LeftOut => false,
            ExpiredKeys::KeptInHistory => self.loaded.point().is_some(),
        }
    }

    fn arrive(&mut self, key: ReadKey) -> Result<(), String> {
        if key.is_expired && !self.keeps_expired() {
            self.loaded.expired += 1;
            return Ok(());
        }
        self.loaded.keys += 1;
        self.wait();
        self.arriving.entries.push((key.hash, key.entry));
        if self.arriving.entries.len() == AT_ONCE { self.target.put_in(&mut self.arriving) } else { Ok(()) }
    }
}
