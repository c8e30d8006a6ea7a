//! Lanes of a primary's stream: parts that helper threads apply for the thread that owns the stream. See
//! [`crate::replication::rounds`].

use std::sync::Arc;

use commands::call::LazyFree;
use resp::reply::Output;
use resp::request::{Batch, Framer, Input, Limits};
use resp::skim::Skimmer;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::replication::Applied;
use crate::replication::rounds::Lane;
use crate::worker::{GateGuard, Worker};

/// The client id of sessions that run a stream's commands. No client has it.
pub(crate) const NO_CLIENT: u64 = 0;
/// The bytes of reply memory that are kept for reuse.
pub(crate) const KEPT_BYTES: usize = 64 * 1024;
/// All removed values are freed in the background.
const LAZY_FREE: LazyFree = LazyFree { user_del: true, user_flush: true, server_del: true };
/// The greatest number of bytes of a failed command that a message shows.
const SHOWN_BYTES: usize = 200;

impl Worker {
    /// Applies lanes of the open round, if there is one, as a helper of the thread that opened it. The caller is outside
    /// of the gate.
    pub fn apply_lanes(&mut self) {
        let engine = self.engine;
        engine.replication.rounds.note_look(self.id);
        let mut helper = engine.keyspace.gate().enter_as_helper(self.id);
        // Read inside the gate: the round stays open until this thread leaves the gate.
        let (Some(_), Some(round)) = (&helper, engine.replication.rounds.current()) else { return };
        // The state of the thread's own connections is restored afterwards.
        let (durable_after, wrote, recording) = (self.durable_after, self.wrote, self.effects.recording);
        self.effects.recording = engine.journal.is_read();
        self.set_replays(true);
        round.take_lanes(self.id, |lane| self.apply_lane(lane, &mut helper));
        self.set_replays(false);
        (self.durable_after, self.wrote, self.effects.recording) = (durable_after, wrote, recording);
    }

    /// Applies a lane.
    pub(crate) fn apply_lane(&mut self, lane: &Lane, inside: &mut GateGuard) -> Applied {
        let (mut applied, mut out) = (Applied::default(), Output::default());
        let mut session = self.applying.lane_session.take().unwrap_or_else(|| Box::new(self.stream_session()));
        session.select(lane.database);
        self.applying.is_lane = true;
        // Other threads wait for the lane, so it frees values in the background.
        let lazy_free = std::mem::replace(&mut self.rules.lazy_free, LAZY_FREE);
        while applied.taken < lane.commands.len() {
            let (before, errors) = (applied.taken, self.stats().errors.get());
            (applied.taken, _) = self.run_inside(&mut session, lane.commands[..].into(), before, &mut out, inside);
            let new = self.stats().errors.get() - errors;
            // Commands of a lane never wait or end the connection, because other threads would see half of a unit.
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

    /// Returns a session outside of the list of clients: no thread reads its connection.
    pub(crate) fn stream_session(&self) -> Session {
        let client = Client::new(NO_CLIENT, self.id, String::new(), String::new(), -1, self.clock.now_ms, 0);
        let mut session = Session::new(Arc::new(client), true);
        session.select(self.engine.replication.stream_database());
        session
    }
}

/// Returns the first command that answered an error, with the error.
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
    framer.frame(input, 0, &Limits::UNLIMITED, usize::try_from(number).ok()?.saturating_add(1), &mut batch);
    let failed = batch.requests().last()?;
    let words = batch.args(failed, input).from(0).collect::<Vec<_>>().join(&b' ');
    let words = words.get(..words.len().min(SHOWN_BYTES)).unwrap_or_default();
    Some(format!("{error}: {}", words.escape_ascii()))
}
