//! Reading a snapshot: its keys, functions, scripts and pipeline tokens, given to whatever puts them in.

use std::io::{self, Read};

use format::Limits;
use format::rdb::{Access, Checksum, Event, Reader};
use replication::id::{HistoryId, HistoryPoint};
use resp::num::parse_i64;
use store::db::{Clock, Db};
use store::entry::Entry;
use store::hash::KeyHash;
use store::keyspace::Key;

use super::{HISTORY_FIELD, OFFSET_FIELD, SCRIPT_FIELD, STREAM_DATABASE_FIELD, TOKEN_FIELD};

/// Keys that are put in at once, so that the waits for memory of all of them overlap.
const AT_ONCE: usize = 64;

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
}

/// Puts in what a snapshot has. Errors are texts that say what can't be put in.
pub(crate) trait SnapshotTarget {
    /// Puts keys into a database, which are some of those that it gets.
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String>;

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
    clock: &'r Clock,
    databases: usize,
    options: LoadOptions,
    arriving: Arriving,
    loaded: Loaded,
}

/// Gives a target what a snapshot has, for this many databases. `progress` is told after each piece how many bytes have been read.
///
/// # Errors
/// What is wrong with the snapshot, and where.
pub(crate) fn read<T: SnapshotTarget>(
    from: impl Read,
    (limits, clock, databases): (Limits, &Clock, usize),
    options: LoadOptions,
    progress: impl FnMut(u64),
    target: &mut T,
) -> Result<Loaded, String> {
    let mut reader = Reader::new(CountingReader { from, read: 0, progress }, limits);
    let arriving = Arriving { database: 0, entries: Vec::with_capacity(AT_ONCE), replaces: options.replaces };
    let mut reading = Reading { target, clock, databases, options, arriving, loaded: Loaded::default() };
    loop {
        let event = reader.read_event().map_err(|error| error.to_string())?;
        if let Some(checksum) = reading.take(event)? {
            if checksum == Checksum::Wrong && options.checks {
                return Err("its checksum is wrong: bytes of it have changed since it was written".into());
            }
            return Ok(Loaded { bytes: reader.offset(), ..reading.loaded });
        }
    }
}

impl<T: SnapshotTarget> Reading<'_, T> {
    /// Takes what comes next. At the end, says whether the checksum is right.
    fn take(&mut self, event: Event) -> Result<Option<Checksum>, String> {
        match event {
            Event::Entry { entry, access } => self.arrive(entry, access)?,
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
            Event::Header(_) | Event::Resize { .. } | Event::EmptyKey(_) => {}
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

    fn arrive(&mut self, mut entry: Entry, access: Access) -> Result<(), String> {
        if !self.keeps_expired() && entry.is_expired(self.clock.now_ms) {
            self.loaded.expired += 1;
            return Ok(());
        }
        entry.set_access(access_word(access, self.clock));
        self.loaded.keys += 1;
        self.arriving.entries.push((KeyHash::of(entry.key()), entry));
        if self.arriving.entries.len() == AT_ONCE { self.target.put_in(&mut self.arriving) } else { Ok(()) }
    }
}

/// Tells how many bytes have been read.
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

/// The access word of a key that is used as a snapshot says.
fn access_word(access: Access, clock: &Clock) -> u32 {
    match (access, clock.frequency) {
        (Access::Frequency(count), Some(frequency)) => frequency.word(count),
        (_, Some(frequency)) => frequency.used(0, 0),
        (Access::IdleSeconds(seconds), None) => clock.word_of_idle(seconds),
        (_, None) => clock.uptime_s,
    }
}
