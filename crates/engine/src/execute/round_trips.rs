//! The record of a client's round trips after a batch has run.

use advisor::TURNAROUND_NS;
use resp::reply::Output;
use resp::request::Request;

use super::windows::BatchRun;
use crate::advice::watch::ShownTrip;
use crate::clients::progress::Progress;
use crate::clients::session::{ReplyMode, Session};
use crate::worker::Worker;
use crate::worker::tables::Tables;
use statistics::ticks::{Ticks, to_microseconds};

/// Bytes from the start of a reply that the advisor sees.
const REPLY_BYTES_MAX: usize = 512;

/// Converts ticks of the cycle counter to nanoseconds.
fn nanoseconds(ticks: u64) -> u64 {
    (to_microseconds(ticks) * 1000.0) as u64
}

impl Worker {
    /// Counts the executed part of a batch, and shows the batch to the advisor once it is complete.
    #[inline]
    pub(super) fn note_batch(
        &mut self,
        session: &mut Session,
        batch_run: &BatchRun<'_>,
        progress: Progress,
        tables: &Tables,
        out: &Output,
    ) {
        if self.clock.replays {
            return;
        }
        self.note_times(session, batch_run, progress, out);
        let round_trips = &mut session.round_trips;
        round_trips.commands = round_trips.commands.saturating_add(batch_run.commands);
        let goes_on =
            matches!(progress, Progress::Yielded | Progress::Paused | Progress::AwaitsRoom | Progress::AwaitsLog);
        if goes_on || round_trips.commands == 0 {
            if batch_run.at < batch_run.input.bytes.len() {
                // The first part's arrival is the arrival of the whole batch.
                let (_, turn_began) = self.clock.turn_began();
                round_trips.begun.get_or_insert(turn_began);
            }
            return;
        }
        session.client.count_batch(round_trips.commands);
        let stats = self.stats();
        stats.round_trips.add(1);
        stats.lone_commands.add(u64::from(round_trips.commands == 1));
        if self.advice.is_on() && !self.scripts.busy_turn {
            self.show_batch(session, batch_run, progress, tables, out);
        }
        let round_trips = &mut session.round_trips;
        (round_trips.commands, round_trips.begun, round_trips.is_unsent) = (0, None, true);
        (round_trips.depth, round_trips.announced, round_trips.redirected) = (0, 0, 0);
        round_trips.overlaps = batch_run.at < batch_run.input.bytes.len();
    }

    /// Returns the number of requests that run next, `max` at most, and decides if monitors see them.
    #[cold]
    pub(super) fn split_at_monitors(&mut self, session: &mut Session, batch_run: &BatchRun<'_>, max: usize) -> usize {
        self.monitors.follow(&self.engine.monitors);
        let window = self.monitors.window(max);
        if session.round_trips.depth == 0 && self.monitors.wants_batches() {
            let run = session.round_trips.commands.saturating_add(batch_run.commands);
            session.round_trips.depth = run.saturating_add(batch_run.requests_left(self.framing_limits()));
        }
        window
    }

    /// Shows a complete batch to the advisor.
    #[inline(never)]
    fn show_batch(
        &mut self,
        session: &mut Session,
        batch_run: &BatchRun<'_>,
        progress: Progress,
        tables: &Tables,
        out: &Output,
    ) {
        let (turn_us, turn_began) = self.clock.turn_began();
        let round_trips = &session.round_trips;
        let arrived = round_trips.begun.unwrap_or(turn_began);
        let arrived_ns = (turn_us * 1000).saturating_sub(nanoseconds(turn_began.since(arrived)));
        // Most batches of a busy thread are not observed, and need no further work.
        if !self.advice.watches(&mut session.round_trips, &session.client, arrived_ns) {
            return;
        }
        let round_trips = &session.round_trips;
        let gap = round_trips.replied.map(|replied| nanoseconds(arrived.since(replied)));
        let is_too_soon = gap.is_some_and(|gap_ns| gap_ns < TURNAROUND_NS);
        // A subscriber receives messages among its replies.
        let waits = session.reply_mode() == ReplyMode::On && !session.gets_pushes();
        // The first command of a transaction says more about it than MULTI.
        let requests = tables.batch.requests();
        let is_multi =
            |request: &Request| tables.batch.args(request, batch_run.input).get(0).eq_ignore_ascii_case(b"multi");
        let index = usize::from(requests.len() > 1 && requests.first().is_some_and(is_multi));
        let request = requests.get(index);
        let key = tables.planned.get(index).map(|plan| {
            let first = plan.first_key(&tables.keys).unwrap_or(0);
            u8::try_from(first).unwrap_or(0)
        });
        let is_alone = round_trips.commands == 1 && batch_run.commands == 1;
        let reply = (is_alone && progress != Progress::Parked).then(|| {
            let start = out.since(batch_run.start);
            let len = (out.len() - batch_run.written) as u64;
            advisor::Reply { start: start.get(..REPLY_BYTES_MAX).unwrap_or(start), len }
        });
        let shown = ShownTrip {
            command: request.map(|request| tables.batch.args(request, batch_run.input)),
            key,
            commands: round_trips.commands,
            overlaps: round_trips.overlaps || is_too_soon || !waits,
            arrived_ns,
            ran_ns: arrived_ns + nanoseconds(self.ticks.since(batch_run.began)),
            replied_ns: gap.map(|gap_ns| arrived_ns.saturating_sub(gap_ns)),
            reply,
            redirected: round_trips.redirected,
        };
        self.advice.show(&mut session.round_trips, &session.client, &shown);
    }

    /// Notes that some or all replies of a connection were sent. `began` is the start of the send, because the client
    /// may answer before the send returns.
    ///
    /// Returns true if the network's round trip should be measured now ([`RoundTrips::set_network`]).
    ///
    /// [`RoundTrips::set_network`]: crate::clients::round_trips::RoundTrips::set_network
    #[inline]
    pub fn note_sent(&self, session: &mut Session, began: Ticks, are_all: bool) -> bool {
        if self.advice.is_on() {
            session.round_trips.replied = Some(began);
            session.round_trips.is_unsent = !are_all;
            if are_all {
                session.round_trips.answered = session.client.commands();
            }
            session.round_trips.is_measurement_due()
        } else {
            false
        }
    }

    /// Notes that this number of bytes of a connection's replies goes to disk, because the client doesn't read them.
    pub fn note_spilled(&mut self, session: &Session, bytes: u64) {
        let now_ns = self.clock.present_us() * 1000;
        let commands =
            session.client.commands() - session.round_trips.answered + u64::from(session.round_trips.commands);
        self.advice.spilled(&session.round_trips, &session.client, commands, bytes, now_ns);
    }

    /// Ends the advisor's observations of silent connections. Call it several times a second.
    pub fn settle_trips(&mut self) {
        let now_ns = self.clock.present_us() * 1000;
        self.advice.settle(now_ns);
        self.advice.keep_pace(now_ns);
    }

    /// Has the advisor look at the machine's load from time to time, while a client's request is here. `read` reads `/proc/loadavg`.
    #[inline]
    pub fn look_at_load(&mut self, now_ns: u64, read: impl FnOnce() -> Option<String>) {
        self.advice.look_at_load(now_ns, read);
    }

    /// Tells the advisor that a connection is closed.
    pub(super) fn end_trips(&mut self, session: &Session) {
        let now_ns = self.clock.present_us() * 1000;
        self.advice.closed(&session.round_trips, &session.client, now_ns);
    }
}
