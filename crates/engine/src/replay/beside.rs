//! Data that are read from a snapshot beside the present data (`repl-diskless-load swapdb`). Clients are served from
//! the present data until the snapshot is complete and replaces them.

use std::cell::RefCell;
use std::io::Read;

use store::db::{Clock, Db, SideEffects};
use store::keyspace::{Key, Keyspace};

use super::Replay;
use crate::services::saving;
use crate::snapshots::reading::{self, Arriving, LoadOptions, Loaded, ReadContext, SnapshotTarget};

/// Commands that empty the keyspace and free its data in the background, because clients wait.
const EMPTY_SOON: &[u8] = b"*2\r\n$8\r\nFLUSHALL\r\n$5\r\nASYNC\r\n*2\r\n$8\r\nFUNCTION\r\n$5\r\nFLUSH\r\n";

/// The contents of a snapshot, in a keyspace of their own.
pub struct DataBeside {
    keyspace: Keyspace,
    clock: Clock,
    observed: SideEffects,
    functions: Vec<Vec<u8>>,
    scripts: Vec<Vec<u8>>,
    tokens: Vec<Vec<u8>>,
}

impl Replay<'_> {
    /// Reads a snapshot without changing anything. `progress` receives the number of bytes read after each piece.
    ///
    /// # Errors
    /// The fault of the snapshot, and its place.
    pub fn read_beside(
        &self,
        from: impl Read,
        options: LoadOptions,
        progress: impl FnMut(u64),
    ) -> Result<(DataBeside, Loaded), String> {
        let engine = self.worker.engine;
        let databases = engine.keyspace.databases();
        let mut data = DataBeside {
            keyspace: Keyspace::with_layout(databases, engine.inboxes.len(), engine.keyspace.layout()),
            clock: *self.worker.clock,
            observed: SideEffects::default(),
            functions: Vec::new(),
            scripts: Vec::new(),
            tokens: Vec::new(),
        };
        let (limits, clock) = (self.worker.rules.limits(), data.clock);
        let context = ReadContext { limits, clock: &clock, databases, options, settings: &engine.settings };
        let loaded = reading::read(from, context, progress, &mut data)?;
        Ok((data, loaded))
    }

    /// Replaces the present data by these, and cancels a snapshot in progress. Clients' commands wait meanwhile, by
    /// [`crate::state::Engine::begin_reloading`].
    ///
    /// # Errors
    /// The item that can't be inserted. The keyspace has a part of the data then.
    pub fn exchange(&mut self, mut data: DataBeside) -> Result<(), String> {
        // This command also notifies the listeners of keys.
        self.commands(EMPTY_SOON).map_err(|(_, why)| why)?;
        self.exchange_keys(&mut data)?;
        data.functions.iter().try_for_each(|text| self.function(text))?;
        data.scripts.iter().try_for_each(|text| self.script(text))?;
        data.tokens.iter().try_for_each(|record| self.token(record))?;
        self.serve_all_waiters();
        Ok(())
    }

    /// Serves waiters for keys that may have come with the data.
    fn serve_all_waiters(&mut self) {
        let engine = self.worker.engine;
        let awaited = (0..engine.keyspace.databases()).flat_map(|database| engine.waiters.keys(database));
        self.worker.ready.extend(awaited);
        self.worker.serve_late();
    }

    fn exchange_keys(&mut self, data: &mut DataBeside) -> Result<(), String> {
        let engine = self.worker.engine;
        let alone = engine.keyspace.gate().close();
        let mut locked = engine.keyspace.all(&alone);
        saving::cancel(engine, &mut locked);
        if !locked.exchange(&mut data.keyspace) {
            return Err("the keyspaces differ".into());
        }
        let (clock, mut observed) = (*self.worker.clock, SideEffects::default());
        let db = RefCell::new(Db::new(&mut locked, 0, &clock, &mut observed));
        // A key that was missing at WATCH may exist now.
        engine.watchers.touch_where(|database, key| db.borrow_mut().other(database).peek(Key::new(key)).is_some());
        Ok(())
    }
}

impl SnapshotTarget for DataBeside {
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String> {
        let alone = self.keyspace.gate().close();
        let mut locked = self.keyspace.all(&alone);
        arriving.put_into(&mut Db::new(&mut locked, arriving.database, &self.clock, &mut self.observed))
    }

    fn expect(&mut self, database: usize, keys: usize) {
        let alone = self.keyspace.gate().close();
        let mut locked = self.keyspace.all(&alone);
        Db::new(&mut locked, database, &self.clock, &mut self.observed).expect(keys);
    }

    fn function(&mut self, text: &[u8]) -> Result<(), String> {
        self.functions.push(text.to_vec());
        Ok(())
    }

    fn script(&mut self, text: &[u8]) -> Result<(), String> {
        self.scripts.push(text.to_vec());
        Ok(())
    }

    fn token(&mut self, record: &[u8]) -> Result<(), String> {
        self.tokens.push(record.to_vec());
        Ok(())
    }
}
