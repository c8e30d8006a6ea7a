//! Lanes of a primary's stream: what a thread applies for the thread that the stream belongs to. See [`crate::replication::rounds`].

use std::sync::Arc;

use commands::call::LazyFree;
use resp::reply::Output;
use resp::request::{Batch, Framer, Input, Limits};
use resp::skim::Skimmer;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::machine::ticks::Ticks;
use crate::replication::Applied;
use crate::replication::rounds::Lane;
use crate::worker::{Pass, Worker};

/// The id of what runs a stream's commands: no client has it.
pub(crate) const NO_CLIENT: u64 = 0;
/// Bytes of memory for replies that are kept.
pub(crate) const KEPT_BYTES: usize = 64 * 1024;
/// Whatever is removed is freed in the background.
const LAZY_FREE: LazyFree = LazyFree { user_del: true, user_flush: true, server_del: true };
/// Bytes of a failed command that are told.
const SHOWN_BYTES: usize = 200;

impl Worker {
    /// Passes the gate as [`Worker::pass`] does, and applies lanes of a round meanwhile for which the gate is closed.
    #[inline]
    pub(super) fn pass_or_help(&mut self) -> Pass {
        let engine = self.engine;
        let (gate, ends) = (engine.keyspace.gate(), engine.busy.ends_waits());
        loop {
            let may_help = || gate.has_guests() && engine.replication.rounds.current().is_some();
            let inside = gate.enter_unless(self.id, || may_help() || ends());
            if inside.is_some() || !may_help() && ends() {
                self.effects.recording = engine.journal.is_read();
                return inside;
            }
            self.apply_lanes();
        }
    }

    /// Applies lanes of the round that is open, if there is one, as a guest of the thread that has opened it. The caller is outside of the
    /// gate.
    pub fn apply_lanes(&mut self) {
        let engine = self.engine;
        engine.replication.rounds.note_look(self.id);
        let mut guest = engine.keyspace.gate().enter_as_guest(self.id);
        // Looked for inside the gate: until this thread has left it, the round is open.
        let (Some(_), Some(round)) = (&guest, engine.replication.rounds.current()) else { return };
        // What the thread's own connections have done is no part of it.
        let (depends, wrote, recording) = (self.depends, self.wrote, self.effects.recording);
        self.effects.recording = engine.journal.is_read();
        self.set_replays(true);
        round.take_lanes(self.id, |lane| self.apply_lane(lane, &mut guest));
        self.set_replays(false);
        (self.depends, self.wrote, self.effects.recording) = (depends, wrote, recording);
    }

    /// Applies a lane.
    pub(crate) fn apply_lane(&mut self, lane: &Lane, inside: &mut Pass) -> Applied {
        let (mut applied, mut out) = (Applied::default(), Output::default());
        let mut session = self.applying.lane_session.take().unwrap_or_else(|| Box::new(self.stream_session()));
        session.select(lane.database);
        self.applying.is_lane = true;
        // Other threads wait for it.
        let lazy_free = std::mem::replace(&mut self.rules.lazy_free, LAZY_FREE);
        while applied.taken < lane.commands.len() {
            let (before, errors) = (applied.taken, self.stats().errors.get());
            (applied.taken, _) = self.run_inside(&mut session, lane.commands[..].into(), before, &mut out, inside);
            let new = self.stats().errors.get() - errors;
            // What is in a lane never waits, nor does it end: what other threads would see of it is a half.
            let is_stuck = applied.taken == before;
            if new > 0 || is_stuck {
                applied.failures += new.max(1);
                let failed = || failed(lane.commands.get(before..)?, &out);
                applied.failure = applied.failure.or_else(failed).or_else(|| Some("a lane has stopped".into()));
            }
            if is_stuck {
                debug_assert!(
                    false,
                    "a lane stops: {:?}",
                    lane.commands.get(before..).unwrap_or_default().escape_ascii()
                );
                break;
            }
            out.clear(KEPT_BYTES);
        }
        self.applying.is_lane = false;
        self.rules.lazy_free = lazy_free;
        self.note_observed();
        self.applying.lane_session = Some(session);
        applied
    }

    /// Not among the clients: no thread reads its connection.
    pub(crate) fn stream_session(&self) -> Session {
        let client = Client::new(NO_CLIENT, self.id, String::new(), String::new(), -1, self.clock.now_ms, 0);
        let mut session = Session::new(Arc::new(client), true);
        session.select(self.engine.replication.stream_database());
        session
    }

    /// Has keys expire by the clock again, or not.
    pub(crate) fn set_replays(&mut self, replays: bool) {
        self.clock.replays = replays;
        self.clock.set(Ticks::now());
    }
}

/// The first of some commands that answered an error, and the error.
pub(crate) fn failed(commands: &[u8], replies: &Output) -> Option<String> {
    let (mut skimmer, mut found) = (Skimmer::new(), None);
    for slice in replies.slices() {
        skimmer
            .feed(slice, |error| {
                found.get_or_insert_with(|| (error.reply, String::from_utf8_lossy(error.text).into_owned()));
            })
            .ok()?;
    }
    let (number, error) = found?;
    let (mut framer, mut batch) = (Framer::default(), Batch::default());
    let input = Input::from(commands);
    framer.frame(input, 0, &Limits::default(), usize::try_from(number).ok()?.saturating_add(1), &mut batch);
    let failed = batch.requests().last()?;
    let words = batch.args(failed, input).from(0).collect::<Vec<_>>().join(&b' ');
    let words = words.get(..words.len().min(SHOWN_BYTES)).unwrap_or_default();
    Some(format!("{error}: {}", words.escape_ascii()))
}
