//! Loading a snapshot: its keys, functions, scripts and pipeline tokens.

use std::io::{self, Read};

use format::rdb::{Access, Checksum, Event, Reader};
use store::db::{Clock, Db};
use store::entry::Entry;
use store::hash::KeyHash;

use super::Replay;
use crate::snapshots::{SCRIPT_FIELD, TOKEN_FIELD};

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
}

/// How a snapshot is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Whether keys are put in that have expired: commands that follow the snapshot may tell of their end.
    pub keeps_expired: bool,
    /// Whether a wrong checksum is an error (`rdbchecksum`).
    pub checks: bool,
}

/// Keys on their way into a database.
struct Arriving {
    database: usize,
    entries: Vec<(KeyHash, Entry)>,
}

impl Replay<'_> {
    /// Puts in what a snapshot has. `progress` is told after each piece how many bytes have been read.
    ///
    /// # Errors
    /// What is wrong with the snapshot, and where.
    pub fn snapshot<R: Read>(
        &mut self,
        from: R,
        options: LoadOptions,
        progress: impl FnMut(u64),
    ) -> Result<Loaded, String> {
        let mut reader = Reader::new(Counted { from, read: 0, progress }, self.worker.rules.limits());
        let mut loaded = Loaded::default();
        let mut arriving = Arriving { database: 0, entries: Vec::with_capacity(AT_ONCE) };
        loop {
            let event = reader.read_event().map_err(|error| error.to_string())?;
            match event {
                Event::Entry { entry, access } => {
                    self.arrive(entry, access, options, &mut arriving, &mut loaded)?;
                }
                Event::Select(database) => {
                    self.put_in(&mut arriving)?;
                    let databases = self.worker.engine.keyspace.databases();
                    arriving.database = usize::try_from(database).ok().filter(|index| *index < databases).ok_or_else(|| {
                        format!("it has keys in database {database}, and there are {databases}: raise the setting databases")
                    })?;
                }
                Event::Aux { name, text } => self.auxiliary(&name, &text)?,
                Event::Function(text) => self.run(&[b"FUNCTION", b"LOAD", b"REPLACE", &text])?,
                Event::Header(_) | Event::Resize { .. } | Event::EmptyKey(_) => {}
                Event::End(checksum) => {
                    self.put_in(&mut arriving)?;
                    if checksum == Checksum::Wrong && options.checks {
                        return Err("its checksum is wrong: bytes of it have changed since it was written".into());
                    }
                    loaded.bytes = reader.offset();
                    return Ok(loaded);
                }
            }
        }
    }

    fn auxiliary(&mut self, name: &[u8], text: &[u8]) -> Result<(), String> {
        match name {
            SCRIPT_FIELD => self.run(&[b"SCRIPT", b"LOAD", text]),
            TOKEN_FIELD => self.own(text),
            _ => Ok(()),
        }
    }

    /// Runs a command.
    fn run(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let mut record = journal::record::Record::default();
        record.push(0, journal::record::Kind::Command, words.iter().copied());
        let command: Vec<u8> =
            journal::record::entries(record.bytes()).flat_map(|entry| entry.command).copied().collect();
        self.commands(&command).map_err(|(_, why)| why)
    }

    fn arrive(
        &mut self,
        mut entry: Entry,
        access: Access,
        options: LoadOptions,
        arriving: &mut Arriving,
        loaded: &mut Loaded,
    ) -> Result<(), String> {
        let clock: &Clock = &self.worker.clock;
        if !options.keeps_expired && entry.is_expired(clock.now_ms) {
            loaded.expired += 1;
            return Ok(());
        }
        entry.set_access(access_word(access, clock));
        loaded.keys += 1;
        arriving.entries.push((KeyHash::of(entry.key()), entry));
        if arriving.entries.len() == AT_ONCE { self.put_in(arriving) } else { Ok(()) }
    }

    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String> {
        let keyspace = &self.worker.engine.keyspace;
        let alone = keyspace.gate().close();
        let mut locked = keyspace.all(&alone);
        let mut db = Db::new(&mut locked, arriving.database, &self.worker.clock, &mut self.worker.observed);
        db.prefetch(arriving.entries.iter().map(|(hash, _)| *hash));
        for (hash, entry) in arriving.entries.drain(..) {
            if let Err(entry) = db.restore(hash, entry) {
                let key = String::from_utf8_lossy(entry.key()).into_owned();
                return Err(format!("it has the key '{key}' twice in database {}", arriving.database));
            }
        }
        Ok(())
    }
}

/// Tells how many bytes have been read.
struct Counted<R, P> {
    from: R,
    read: u64,
    progress: P,
}

impl<R: Read, P: FnMut(u64)> Read for Counted<R, P> {
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
