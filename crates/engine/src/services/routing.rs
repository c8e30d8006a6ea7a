//! Routes a session's commands in a cluster. `slots::check` decides; this module gives it the properties of the session
//! and of the command.

use std::cell::Cell;

use commands::call::KeyRef;
use commands::error::Error;
use commands::spec::{Channels, fact, flag, key_flag};
use resp::num;
use resp::request::Args;
use store::db::Db;
use store::keyspace::{Key, Locked};

use crate::clients::session::Session;
use crate::scripts::rights::may_write;
use crate::slots::SlotView;
use crate::slots::check::{KeySlots, OpenSlot, Presence, Redirect, Route, RouteQuery, route, route_across, slot_of};
use crate::worker::Worker;
use commands::table::Command;

/// Returns true if a command's keys are shard channels, which belong to a slot.
pub(crate) fn is_sharded(command: &Command) -> bool {
    command.info.publishes == Some(Channels::Sharded) || command.info.is(fact::SUBSCRIBES) && names_no_keys(command)
}

/// Returns true if the names in the key positions of a command's entry are not keys.
fn names_no_keys(command: &Command) -> bool {
    command.info.keys.iter().any(|keys| keys.flags & key_flag::NOT_KEY != 0)
}

/// A command of a transaction, or a single one.
pub(crate) struct Routed<'a> {
    /// Its entry in the table.
    pub command: &'a Command,
    /// Its arguments.
    pub args: Args<'a>,
    /// Its keys.
    pub keys: &'a [KeyRef],
}

impl<'a> Routed<'a> {
    /// Returns the keys that decide the route. Shard channels and the cursor of CLUSTERSCAN count as keys. The end of a
    /// subscription is possible everywhere. A command with a wrong number of keys is refused here.
    fn routing_keys(&self) -> &'a [KeyRef] {
        let info = &self.command.info;
        let ends_subscriptions =
            names_no_keys(self.command) && info.is(fact::FOR_SUBSCRIBERS) && !info.is(fact::SUBSCRIBES);
        if ends_subscriptions || info.lacks_keys(self.args) { &[] } else { self.keys }
    }

    /// Returns the selected database behind this command, if `database` of that many is selected before it. A SELECT that will fail
    /// selects nothing.
    fn database_behind(&self, database: usize, databases: usize) -> usize {
        let selects = self.command.info.is(fact::SELECTS) && self.args.len() > 1;
        let index = selects.then(|| num::parse_i64(self.args.get(1))).flatten();
        index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < databases).unwrap_or(database)
    }

    /// Returns true if it names another database than the selected one.
    fn reaches_elsewhere(&self, database: usize) -> bool {
        let (Some(databases), args) = (self.command.info.databases, self.args) else { return false };
        let selected = database.to_string();
        let mut is_other = false;
        databases(args, &mut |at| is_other |= args.get(at) != selected.as_bytes());
        is_other && !self.keys.is_empty()
    }
}

impl Worker {
    /// Returns the view that routes a session's commands. None if all of them run here: outside of a cluster, and for the
    /// stream of a primary and the append-only file.
    pub(crate) fn view_for(&self, session: &Session) -> Option<&SlotView> {
        let minds = session.is_clustered() && !self.clock.replays && !session.applies_stream();
        self.slots.view().filter(|_| minds).map(|view| &**view)
    }

    /// Collects the properties of a session's commands that run together.
    fn query_of<'a>(&self, session: &Session, commands: impl Iterator<Item = Routed<'a>>) -> RouteQuery {
        let mut query =
            RouteQuery { reads_replica: session.reads_replica(), asking: session.is_asking(), ..RouteQuery::default() };
        let engine = self.engine;
        let mut database = session.database_ahead();
        for routed in commands {
            database = routed.database_behind(database, engine.keyspace.databases());
            let Routed { command, args, .. } = &routed;
            query.writes |= command.info.has(flag::WRITE)
                || may_write(&engine.scripts, &engine.libraries, command, args) == Some(true);
            query.sharded |= is_sharded(command);
            query.migrates |= command.info.is(fact::MIGRATES);
            query.other_database |= routed.reaches_elsewhere(database);
            query.asking |= command.info.has(flag::ASKING);
        }
        query
    }

    /// Decides where a session's commands run that run together.
    ///
    /// # Errors
    /// The reason that they do not run here.
    pub(crate) fn route_all<'a>(
        &self,
        session: &Session,
        commands: impl Iterator<Item = Routed<'a>> + Clone,
    ) -> Result<Route, Redirect> {
        let Some(view) = self.view_for(session) else { return Ok(Route::Here) };
        let hashes = commands.clone().flat_map(|routed| routed.routing_keys()).map(|key| key.hash);
        match KeySlots::of(hashes.clone()) {
            KeySlots::None => Ok(Route::Here),
            KeySlots::Several if self.engine.crosses_slots() => {
                route_across(view, hashes.map(slot_of), self.query_of(session, commands)).map(|()| Route::Here)
            }
            slots => route(view, slots, self.query_of(session, commands)),
        }
    }

    /// Like [`Worker::route_all`], for a single command.
    pub(crate) fn route_one(&self, session: &Session, routed: &Routed<'_>) -> Result<Route, Redirect> {
        let Routed { command, args, keys } = *routed;
        self.route_all(session, std::iter::once(()).map(|()| Routed { command, args, keys }))
    }

    /// Checks that this node serves the watched keys of a transaction, if these and its other keys are in several slots. A
    /// watched key of another node may have changed there.
    ///
    /// # Errors
    /// The reason that the transaction does not run here.
    pub(crate) fn route_watched<'a>(
        &self,
        session: &Session,
        commands: impl Iterator<Item = Routed<'a>> + Clone,
    ) -> Result<(), Redirect> {
        let view = self.view_for(session).filter(|_| !session.watched.is_empty() && self.engine.crosses_slots());
        let Some(view) = view else { return Ok(()) };
        let keys = commands.clone().flat_map(|routed| routed.routing_keys()).map(|key| key.hash);
        let hashes = session.watched.values().map(|watched| watched.hash).chain(keys);
        if KeySlots::of(hashes.clone()) != KeySlots::Several {
            return Ok(());
        }
        // Watched keys are no channels, so that they may be in other slots.
        let query = RouteQuery { sharded: false, ..self.query_of(session, commands) };
        route_across(view, hashes.map(slot_of), query)
    }

    /// Decides about commands on an open slot by the keys that exist. The shards of the keys are locked.
    // Lookups don't expire keys or update their access times.
    pub(crate) fn settle_open<'a>(
        &mut self,
        session: &Session,
        open: OpenSlot,
        commands: impl Iterator<Item = Routed<'a>>,
        locked: &mut Locked<'_>,
    ) -> Result<(), Redirect> {
        // The selected database at the key that is looked up: the iterator is lazy.
        let (selected, databases) = (Cell::new(session.database), self.engine.keyspace.databases());
        // A cursor of CLUSTERSCAN is not a key, and counts as missing.
        let is_there = |(is_key, bytes)| {
            let db = Db::new(locked, selected.get(), &self.clock, &mut self.observed);
            is_key && db.peek(Key::new(bytes)).is_some()
        };
        let keys = commands.flat_map(|routed| {
            selected.set(routed.database_behind(selected.get(), databases));
            let (args, are_keys) = (routed.args, !names_no_keys(routed.command));
            routed.routing_keys().iter().map(move |key| (are_keys, args.get(key.arg as usize)))
        });
        open.settle(Presence::of(keys, is_there))
    }

    /// Returns the error for a session's redirected command.
    pub(crate) fn redirect_error(&self, session: &Session, redirect: Redirect) -> Error {
        let path = self.engine.client_path(&session.client);
        match self.slots.view() {
            Some(view) => redirect.error(view, path),
            None => Error::SYNTAX,
        }
    }
}
