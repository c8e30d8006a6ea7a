//! Reading a snapshot: its keys, functions, scripts and pipeline tokens, given to whatever puts them in.

use std::io::Read;
use std::sync::mpsc::sync_channel;

use format::Limits;
use format::rdb::{Checksum, Event};
use replication::id::{HistoryId, HistoryPoint};
use resp::num::parse_i64;
use store::db::{Clock, Db};
use store::entry::Entry;
use store::hash::KeyHash;
use store::keyspace::Key;

use super::key_reader::{KeyGroup, KeyReader, ReadKey};
use super::{HISTORY_FIELD, OFFSET_FIELD, SCRIPT_FIELD, STREAM_DATABASE_FIELD, TOKEN_FIELD};

/// Keys that are put in at once, so that the waits for memory of all of them overlap.
const AT_ONCE: usize = 64;

/// Groups of keys that are read before those ahead of them are put in: enough that neither thread waits where some take longer.
const GROUPS_AHEAD: usize = 16;

/// What a snapshot had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Keys.
    pub keys: u64,
    /// Keys that had expired and were left out.
    pub expired: u64,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// The database that the stream has selected that goes on behind it, if it tells.
    pub stream_database: Option<usize>,
    /// The history that it is of, and its bytes up to there, if it tells.
    history: Option<HistoryId>,
    offset: Option<u64>,
}

impl Loaded {
    /// The point of a history that it is of, if it tells.
    #[must_use]
    pub fn point(&self) -> Option<HistoryPoint> {
        let Loaded { history: Some(id), offset: Some(offset), stream_database: Some(database), .. } = *self else {
            return None;
        };
        Some(HistoryPoint { id, offset, database })
    }
}

/// What becomes of keys that have expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiredKeys {
    /// They are put in: what follows the snapshot tells of their end.
    Kept,
    /// They are left out.
    LeftOut,
    /// They are put in if the snapshot is of a history, which goes on with their end.
    KeptInHistory,
}

/// How a snapshot is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// What becomes of keys that have expired.
    pub expired: ExpiredKeys,
    /// Whether a wrong checksum is an error (`rdbchecksum`).
    pub checks: bool,
    /// Whether a key takes the place of one that is there. Else that is an error.
    pub replaces: bool,
    /// How many bytes it has, if that is known: room is made for as many keys and elements as it may have of those that it claims.
    pub bytes: Option<u64>,
}

/// Puts in what a snapshot has. Errors are texts that say what can't be put in.
pub(crate) trait SnapshotTarget {
    /// Puts keys into a database, which are some of those that it gets.
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String>;

    /// About so many keys follow for this database.
    fn expect(&mut self, database: usize, keys: usize);

    /// Puts in a library of functions, in place of one of its name.
    fn function(&mut self, text: &[u8]) -> Result<(), String>;

    /// Puts in a script that SCRIPT LOAD has loaded.
    fn script(&mut self, text: &[u8]) -> Result<(), String>;

    /// Puts in a pipeline token, from its record.
    fn token(&mut self, record: &[u8]) -> Result<(), String>;
}

/// Keys on their way into a database.
pub(crate) struct Arriving {
    pub database: usize,
    entries: Vec<(KeyHash, Entry)>,
    replaces: bool,
}

impl Arriving {
    /// Puts them in. `db` is the database.
    pub(crate) fn put_into(&mut self, db: &mut Db<'_, '_>) -> Result<(), String> {
        // Another thread may have made them.
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
    arriving: Arriving,
    loaded: Loaded,
}

/// What a snapshot's reading goes by.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'c> {
    /// The forms of collections.
    pub limits: Limits,
    pub clock: &'c Clock,
    /// How many databases there are.
    pub databases: usize,
    pub options: LoadOptions,
}

/// Gives a target what a snapshot has. `progress` is told after each piece how many bytes have been read.
///
/// # Errors
/// What is wrong with the snapshot, and where.
pub(crate) fn read<T: SnapshotTarget>(
    from: impl Read,
    context: ReadContext<'_>,
    progress: impl FnMut(u64),
    target: &mut T,
) -> Result<Loaded, String> {
    let mut reader = KeyReader::new(from, &context, progress);
    Reading::new(&context, target).take_all(|| reader.next_group())
}

/// The same, with a thread of its own that reads and makes values ahead of what is put in: most of the time is waits for memory, and two
/// cores wait at once.
///
/// # Errors
/// As [`read`], or if there can't be another thread.
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
            // The other end has gone where what came before can't be put in.
            while made.send(reader.next_group()).is_ok() && !reader.has_ended() {}
        };
        let thread = std::thread::Builder::new().name("load-reader".into()).spawn_scoped(scope, makes);
        thread.map_err(|error| format!("can't start a thread: {error}"))?;
        let next = || groups.recv().unwrap_or_else(|_| Err("the thread that reads it has ended".into()));
        Reading::new(&context, target).take_all(next)
    })
}

impl<'r, T: SnapshotTarget> Reading<'r, T> {
    fn new(context: &ReadContext<'_>, target: &'r mut T) -> Self {
        let ReadContext { databases, options, .. } = *context;
        let arriving = Arriving { database: 0, entries: Vec::with_capacity(AT_ONCE), replaces: options.replaces };
        Reading { target, databases, options, arriving, loaded: Loaded::default() }
    }

    /// Puts in one group after another.
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

    /// Takes what comes next. At the end, says whether the checksum is right.
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
                OFFSET_FIELD => self.loaded.offset = parse_i64(&text).and_then(|number| u64::try_from(number).ok()),
                _ => {}
            },
            Event::Function(text) => self.target.function(&text)?,
            // Keys come by themselves.
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

    /// The database that a stream has selected. A server that has selected none yet may say so by a number below 0.
    fn stream_database(&self, text: &[u8]) -> Result<Option<usize>, String> {
        let number = parse_i64(text).and_then(|number| u64::try_from(number).ok());
        number.map(|number| self.known_database(number, "is followed by changes of")).transpose()
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
        self.arriving.entries.push((key.hash, key.entry));
        if self.arriving.entries.len() == AT_ONCE { self.target.put_in(&mut self.arriving) } else { Ok(()) }
    }
}
