//! What a batch tells of its client's round trips, once it has run.

use advisor::TURNAROUND_NS;
use resp::reply::Output;

use super::windows::Stint;
use crate::advice::watch::ShownTrip;
use crate::clients::session::{ReplyMode, Session};
use crate::machine::ticks::{Ticks, to_microseconds};
use crate::worker::tables::Tables;
use crate::worker::{Ran, Worker};

/// Bytes of a reply's beginning that the advisor is shown.
const REPLY_BYTES_MAX: usize = 512;

/// A time by the counter, in nanoseconds.
fn nanoseconds(ticks: u64) -> u64 {
    (to_microseconds(ticks) * 1000.0) as u64
}

impl Worker {
    /// Counts what has run of a batch, and shows the batch to the advisor once it is complete.
    #[inline]
    pub(super) fn note_batch(
        &mut self,
        session: &mut Session,
        stint: &Stint<'_>,
        ran: Ran,
        tables: &Tables,
        out: &Output,
    ) {
        if self.clock.replays {
            return;
        }
        let trips = &mut session.trips;
        trips.commands = trips.commands.saturating_add(stint.commands);
        let goes_on = matches!(ran, Ran::Yielded | Ran::Paused | Ran::Overfilled | Ran::AwaitsLog);
        if goes_on || trips.commands == 0 {
            if stint.at < stint.input.bytes.len() {
                // What arrives in parts arrives with the first of them.
                let (_, turn_began) = self.clock.turn_began();
                trips.begun.get_or_insert(turn_began);
            }
            return;
        }
        session.client.count_batch(trips.commands);
        let stats = self.stats();
        stats.trips.add(1);
        stats.lone_commands.add(u64::from(trips.commands == 1));
        if self.advice.is_on() && !self.scripts.busy_turn {
            self.show_batch(session, stint, ran, tables, out);
        }
        let trips = &mut session.trips;
        (trips.commands, trips.begun, trips.is_unsent) = (0, None, true);
        (trips.depth, trips.announced) = (0, 0);
        trips.overlaps = stint.at < stint.input.bytes.len();
    }

    /// Decides how many requests run next, `max` at most, and whether monitors are shown them.
    #[cold]
    pub(super) fn mind_monitors(&mut self, session: &mut Session, stint: &Stint<'_>, max: usize) -> usize {
        self.monitors.follow(&self.engine.monitors);
        let window = self.monitors.window(max);
        if session.trips.depth == 0 && self.monitors.wants_batches() {
            let run = session.trips.commands.saturating_add(stint.commands);
            session.trips.depth = run.saturating_add(stint.requests_left(&self.limits));
        }
        window
    }

    /// Shows a complete batch to the advisor.
    #[inline(never)]
    fn show_batch(&mut self, session: &mut Session, stint: &Stint<'_>, ran: Ran, tables: &Tables, out: &Output) {
        let (turn_us, turn_began) = self.clock.turn_began();
        let trips = &session.trips;
        let arrived = trips.begun.unwrap_or(turn_began);
        let arrived_ns = (turn_us * 1000).saturating_sub(nanoseconds(turn_began.since(arrived)));
        let gap = trips.replied.map(|replied| nanoseconds(arrived.since(replied)));
        let is_too_soon = gap.is_some_and(|gap_ns| gap_ns < TURNAROUND_NS);
        // A subscriber is sent messages among its replies.
        let waits = session.reply_mode() == ReplyMode::On && !session.gets_pushes();
        let request = tables.batch.requests().first();
        let key = tables.planned.first().map(|plan| {
            match tables.keys.get(plan.keys_start as usize..plan.keys_end as usize) {
                Some([first, ..]) => u8::try_from(first.arg).unwrap_or(0),
                _ => 0,
            }
        });
        let is_alone = trips.commands == 1 && stint.commands == 1;
        let reply = (is_alone && ran != Ran::Parked).then(|| {
            let start = out.since(stint.start);
            let len = (out.len() - stint.written) as u64;
            advisor::Reply { start: start.get(..REPLY_BYTES_MAX).unwrap_or(start), len }
        });
        let shown = ShownTrip {
            command: request.map(|request| tables.batch.args(request, stint.input)),
            key,
            commands: trips.commands,
            overlaps: trips.overlaps || is_too_soon || !waits,
            arrived_ns,
            ran_ns: arrived_ns + nanoseconds(self.ticks.since(stint.began)),
            replied_ns: gap.map(|gap_ns| arrived_ns.saturating_sub(gap_ns)),
            reply,
        };
        self.advice.show(&mut session.trips, &session.client, &shown);
    }

    /// Notes that replies of a connection were sent, all of them or only some, which was begun at this time: until the sending is over, the
    /// client may have answered.
    #[inline]
    pub fn note_sent(&self, session: &mut Session, began: Ticks, are_all: bool) {
        if self.advice.is_on() {
            session.trips.replied = Some(began);
            session.trips.is_unsent = !are_all;
            if are_all {
                session.trips.answered = session.client.commands();
            }
        }
    }

    /// Notes that replies of a connection, so many bytes, go to disk, because it doesn't read them.
    pub fn note_spilled(&mut self, session: &Session, bytes: u64) {
        let now_ns = self.clock.present_us() * 1000;
        let commands = session.client.commands() - session.trips.answered + u64::from(session.trips.commands);
        self.advice.spilled(&session.trips, &session.client, commands, bytes, now_ns);
    }

    /// Has the advisor tell what silent connections were in the midst of. Call it several times a second.
    pub fn settle_trips(&mut self) {
        let now_ns = self.clock.present_us() * 1000;
        self.advice.settle(now_ns);
        self.advice.keep_pace(now_ns);
    }

    /// Tells the advisor that a connection is closed.
    pub(super) fn end_trips(&mut self, session: &Session) {
        let now_ns = self.clock.present_us() * 1000;
        self.advice.closed(&session.trips, &session.client, now_ns);
    }
}
