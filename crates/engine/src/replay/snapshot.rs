//! The loading of a snapshot by a worker that serves no clients meanwhile.

use std::io::Read;

use store::db::{Clock, Db};

use super::Replay;
use crate::snapshots::reading::{self, Arriving, LoadOptions, Loaded, ReadContext, SnapshotTarget};

impl Replay<'_> {
    /// Inserts the contents of a snapshot. `progress` receives the number of bytes read after each piece.
    ///
    /// # Errors
    /// The fault of the snapshot, and its place.
    pub fn snapshot(
        &mut self,
        from: impl Read,
        options: LoadOptions,
        progress: impl FnMut(u64),
    ) -> Result<Loaded, String> {
        let clock = *self.worker.clock;
        let context = self.context(options, &clock);
        reading::read(from, context, progress, self)
    }

    /// Like [`Replay::snapshot`], with a thread that reads ahead if the server has several threads.
    ///
    /// # Errors
    /// The errors of [`Replay::snapshot`], and the failure to start a thread.
    pub fn snapshot_by_threads(
        &mut self,
        from: impl Read + Send,
        options: LoadOptions,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Loaded, String> {
        if self.worker.engine.inboxes.len() < 2 {
            return self.snapshot(from, options, progress);
        }
        let clock = *self.worker.clock;
        let context = self.context(options, &clock);
        reading::read_with_thread(from, context, progress, self)
    }

    fn context<'c>(&self, options: LoadOptions, clock: &'c Clock) -> ReadContext<'c> {
        let databases = self.worker.engine.keyspace.databases();
        let settings = &self.worker.engine.settings;
        ReadContext { limits: self.worker.rules.limits(), clock, databases, options, settings }
    }

    /// Runs a command.
    fn run(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let mut record = journal::record::Record::default();
        record.push(0, journal::record::Kind::Command, words.iter().copied());
        let command: Vec<u8> =
            journal::record::entries(record.bytes()).flat_map(|entry| entry.command).copied().collect();
        self.commands(&command).map_err(|(_, why)| why)
    }
}

impl SnapshotTarget for Replay<'_> {
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String> {
        let keyspace = &self.worker.engine.keyspace;
        let alone = keyspace.gate().close();
        let mut locked = keyspace.all(&alone);
        let mut db = Db::new(&mut locked, arriving.database, &self.worker.clock, &mut self.worker.observed);
        arriving.put_into(&mut db)
    }

    fn expect(&mut self, database: usize, keys: usize) {
        let keyspace = &self.worker.engine.keyspace;
        let alone = keyspace.gate().close();
        let mut locked = keyspace.all(&alone);
        Db::new(&mut locked, database, &self.worker.clock, &mut self.worker.observed).expect(keys);
    }

    fn function(&mut self, text: &[u8]) -> Result<(), String> {
        self.run(&[b"FUNCTION", b"LOAD", b"REPLACE", text])
    }

    fn script(&mut self, text: &[u8]) -> Result<(), String> {
        self.run(&[b"SCRIPT", b"LOAD", text])
    }

    fn token(&mut self, record: &[u8]) -> Result<(), String> {
        self.own(record)
    }
}
