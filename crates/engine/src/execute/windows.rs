//! The run of a batch, one window at a time.
//!
//! Requests are framed, planned and prefetched one window at a time, then run in order. The prefetched memory is thus
//! still in the cache when it is used. A window ends early after a command that changes how later requests are read.

use std::ops::ControlFlow;

use commands::call::KeyRef;
use commands::spec::flag;
use resp::reply::{Mark, Output, Reply};
use resp::request::{Args, Batch, Framer, Input, Limits, Stop};
use store::keyspace::Key;
use store::shared_bytes;
use store::sync::Inside;

use super::lookahead::{group_end, keys_of, look_ahead};
use crate::clients::client::Blocked;
use crate::clients::progress::Progress;
use crate::clients::session::{ReplyMode, Session};
use crate::clients::transaction::is_exec;
use crate::registry::table;
use crate::services::slow::{self, LargeSizes};
use crate::slow_path::TRACKED;
use crate::worker::pace::LANE_BYTES_MAX;
use crate::worker::tables::{KEPT_KEYS_MAX, Planned, Tables};
use crate::worker::turn::Invocation;
use crate::worker::{GateGuard, Worker, hash_keys};
use commands::table::KeysAt;
use statistics::ticks::Ticks;

/// The greatest number of commands that are framed and run together. Commands with one key each are prefetched
/// together: see `lookahead`.
const WINDOW: usize = 64;
/// The least number of keys for which excluding other threads pays: it costs as much as this number of locks.
const KEYS_WORTH_IT: usize = 8;
/// The greatest size of requests that run while other threads are excluded. It is the size of some hundred new members,
/// which take less than a millisecond.
const BRIEF_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(WINDOW <= u64::BITS as usize, "a window's commands have a bit each in `lookahead`");

/// One connection's time on the thread: its input, its progress, and the limits of its turn.
pub(super) struct BatchRun<'b> {
    pub(super) input: Input<'b>,
    /// The index of the first byte that has not run.
    pub(super) at: usize,
    /// The index of its first byte.
    pub(super) from: usize,
    pub(super) began: Ticks,
    /// The number of commands that have run.
    pub(super) commands: u32,
    /// The start of its replies.
    pub(super) start: Mark,
    /// The length of the output at the start of this run, and the length at which the turn ends.
    pub(super) written: usize,
    pub(super) replies_end: usize,
    /// The sizes from which requests and replies are logged.
    large: LargeSizes,
    /// The output length from which the last command may have been large, so that its request and reply are measured. 0
    /// measures each command.
    look_at: usize,
    /// True if each command is counted by its keys.
    counts_keys: bool,
}

impl BatchRun<'_> {
    /// Returns true if the replies are as large as those of a turn may be. `len` is the length of the output.
    #[inline(always)]
    fn is_full(&self, worker: &Worker, out: &Output, len: usize) -> bool {
        len > self.replies_end && !worker.has_room_for_shared(self, out)
    }
}

impl BatchRun<'_> {
    /// Returns the value of `look_at` at this length of the output.
    fn end_of_small(&self, len: usize) -> usize {
        let looks_at_each = self.counts_keys || self.large.request != usize::MAX;
        if looks_at_each { 0 } else { len.saturating_add(self.large.reply) }
    }

    /// Returns the number of complete requests that have not run.
    pub(super) fn requests_left(&self, limits: &Limits) -> u32 {
        let (mut framer, mut batch, mut at, mut count) = (Framer::default(), Batch::default(), self.at, 0_u32);
        loop {
            batch.clear();
            let (end, stop) = framer.frame(self.input, at, limits, WINDOW, &mut batch);
            count = count.saturating_add(batch.requests().len() as u32);
            if stop != Stop::Full || end <= at {
                return count;
            }
            at = end;
        }
    }
}

/// The end of a window, if the connection goes on with the next requests.
enum Window {
    /// All of it has run.
    Whole,
    /// The requests after the last executed one must be framed again.
    Cut,
}

impl Worker {
    /// Returns true if a turn may go on although its replies exceed their limit, because most of them are values by reference. Replies of
    /// a connection that doesn't read are limited in any case.
    #[cold]
    #[inline(never)]
    fn has_room_for_shared(&self, batch_run: &BatchRun<'_>, out: &Output) -> bool {
        let own = out.len().saturating_sub(out.shared_memory());
        let is_read = self.pace.turn_bytes_max == usize::MAX;
        let room = || self.engine.replies.share(&self.engine.settings).shared_turn();
        is_read && own <= batch_run.replies_end && out.len() <= batch_run.written + room()
    }

    pub(super) fn run_with_tables(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Progress) {
        shared_bytes::received(input.blocks.iter(), || self.run_input(session, input, from, out))
    }

    fn run_input(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Progress) {
        // While a busy script calls this, the thread is inside already.
        let mut inside = if self.scripts.busy_turn { None } else { self.enter_gate_for_batch() };
        if session.is_clustered() {
            // The process may have been stopped since the turn began.
            self.clock.follow(Ticks::now());
            self.slots.follow(&self.engine.slots, self.clock.now_ms);
        }
        let (at, progress) = self.run_inside(session, input, from, out, &mut inside);
        if let Some(followed) = &mut session.followed {
            let commands = input.bytes.get(from..at).unwrap_or_default();
            let after = (self.engine.journal.position(), session.database);
            followed.note_run(&self.engine.replication, after, commands, session.multi.is_some());
        }
        (at, progress)
    }

    /// Like [`Worker::run_with_tables`], inside the gate.
    pub(super) fn run_inside(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> (usize, Progress) {
        self.arrived_bytes = input.bytes.len() + input.blocks.memory_bytes();
        // The tables are taken out of the worker, so that both can be borrowed.
        let mut tables = std::mem::take(&mut self.tables);
        let mut batch_run = BatchRun {
            input,
            at: from,
            from,
            began: Ticks::now(),
            commands: 0,
            start: out.mark(),
            written: out.len(),
            replies_end: 0,
            // A request is no larger than the bytes that have arrived.
            large: LargeSizes::of(&self.engine.settings).among(self.arrived_bytes),
            look_at: 0,
            counts_keys: self.engine.counts_by_key(),
        };
        batch_run.look_at = batch_run.end_of_small(batch_run.written);
        let progress = if session.applies_stream() && inside.is_none() {
            // A busy script keeps the gate closed.
            Progress::Paused
        } else if self.may_go_on(session) {
            self.run_windows(session, &mut batch_run, out, &mut tables, inside)
        } else {
            Progress::Closing
        };
        if self.engine.slow_path.has(TRACKED) {
            self.end_tracked_batch(session, out);
        }
        self.note_batch(session, &batch_run, progress, &tables, out);
        // This precedes the exit from the gate: a command that runs alone afterwards finds all counts complete.
        self.meter.count();
        if inside.is_some() {
            self.commit_count(session);
        }
        tables.shrink();
        self.shards.clear();
        self.shards.shrink_to(KEPT_KEYS_MAX);
        self.tables = tables;
        (batch_run.at, progress)
    }

    /// Returns false for the stream of a former primary. The thread is inside the gate.
    #[inline]
    pub(crate) fn may_go_on(&self, session: &Session) -> bool {
        session.followed.as_ref().is_none_or(|followed| !followed.is_over(&self.engine.replication))
    }

    fn run_windows(
        &mut self,
        session: &mut Session,
        batch_run: &mut BatchRun<'_>,
        out: &mut Output,
        tables: &mut Tables,
        inside: &mut GateGuard,
    ) -> Progress {
        let mut window_max = WINDOW;
        loop {
            // The next steps may take long, so other threads may enter.
            inside.iter_mut().for_each(Inside::let_in);
            if session.client.pending_signals.any() {
                if session.client.pending_signals.is_killed() {
                    return Progress::Closing;
                }
                session.handle_signals();
            }
            if batch_run.commands > 0 && batch_run.at == batch_run.input.bytes.len() {
                // The tables keep the last window, because the advisor reads a batch of one command after its run.
                return Progress::Ready;
            }
            if self.must_await_nodes(session) {
                return Progress::AwaitsNodes;
            }
            tables.batch.clear();
            let is_monitored = !self.engine.monitors.is_empty();
            let window = if is_monitored { self.split_at_monitors(session, batch_run, window_max) } else { window_max };
            let (end, stop) = self.frame_window(session, batch_run, tables, window);
            if self.must_await_log(&tables.planned) {
                session.framer.forget();
                return Progress::AwaitsLog;
            }
            // Eviction precedes the prefetch; otherwise evicted keys would be prefetched for nothing.
            if inside.is_some() {
                self.check_memory(tables.planned.len(), inside);
            }
            self.stats().batches.add(u64::from(!tables.planned.is_empty()));
            self.ticks = Ticks::now();
            // The clock is read after all slow steps: the gate, eviction, a request with millions of arguments.
            self.clock.follow(self.ticks);
            self.looked_at = self.ticks;
            let (began, before) = (self.ticks, batch_run.commands);
            let progress = self.run_window(session, batch_run, out, tables, inside);
            self.stats().command_ticks.add(self.ticks.since(began));
            if is_monitored {
                self.monitors.passed(batch_run.commands - before, &mut self.random);
            }
            match progress {
                ControlFlow::Break(progress) => return progress,
                // A cut window changed the limits, so the end that framing found is invalid. The requests behind it are framed again, and
                // the next one may cut its window as well.
                ControlFlow::Continue(Window::Cut) => {
                    let run = (batch_run.commands - before) as usize;
                    window_max = if run == 0 { window_max } else { run.min(WINDOW) };
                }
                ControlFlow::Continue(Window::Whole) => {
                    window_max = WINDOW.min(2 * window_max);
                    batch_run.at = end;
                    match stop {
                        Stop::Full => {}
                        Stop::Incomplete => return Progress::Ready,
                        Stop::Error(error) => return self.answer_no_request(session, &error.text(), out),
                    }
                }
            }
            let is_late = Ticks::now().since(batch_run.began) > self.pace.turn_ticks;
            if is_late || batch_run.is_full(self, out, out.len()) || self.forwarded.is_full() {
                return Progress::Yielded;
            }
        }
    }

    /// Returns true if one of these commands could write, and the log has no room or is late. The check precedes all
    /// locks, because a unit that holds shards must not wait. Commands that will be refused need no room.
    #[inline]
    fn must_await_log(&self, planned: &[Planned]) -> bool {
        let writes = |plan: &Planned| plan.command.is_some_and(|c| c.info.has(flag::WRITE | flag::MAY_REPLICATE));
        let is_late = || self.lane.waiting_bytes() > LANE_BYTES_MAX || self.engine.durability.is_behind();
        // A round of a primary's stream is checked as a whole, before it begins.
        let is_full = self.effects.recording && !self.applying.is_lane && is_late();
        (is_full || !self.applying.is_lane && self.engine.snapshots.is_overfull())
            && !self.engine.refuses_writes()
            && planned.iter().any(writes)
    }

    /// Frames and plans the next requests. Returns the end of the last one, and the reason that framing stopped.
    #[inline(always)]
    fn frame_window(
        &self,
        session: &mut Session,
        batch_run: &mut BatchRun<'_>,
        tables: &mut Tables,
        window: usize,
    ) -> (usize, Stop) {
        if session.is_guarded() {
            return self.frame_guarded(session, batch_run, tables, window);
        }
        batch_run.replies_end = batch_run.written + self.reply_bytes_max();
        let framed =
            session.framer.frame(batch_run.input, batch_run.at, self.framing_limits(), window, &mut tables.batch);
        plan(&tables.batch, batch_run.input, &mut tables.planned, &mut tables.keys);
        framed
    }

    /// Runs a window's requests, in groups that are prefetched together. Breaks with the state of the connection if it
    /// has to wait, yield or close.
    #[inline(always)]
    fn run_window(
        &mut self,
        session: &mut Session,
        batch_run: &mut BatchRun<'_>,
        out: &mut Output,
        tables: &Tables,
        inside: &mut GateGuard,
    ) -> ControlFlow<Progress, Window> {
        let Tables { batch, planned, keys } = tables;
        let in_script = self.scripts.busy_turn;
        let last_end = batch.requests().last().map(|r| r.end as usize);
        let mut ahead = 0;
        let mut is_plain = self.may_take_fast_path(session);
        let mut len = out.len();
        let turn_end = batch_run.began.after(self.pace.turn_ticks);
        for (index, (request, plan)) in batch.requests().iter().zip(planned.iter()).enumerate() {
            if index == ahead
                && let Some(inside) = inside
            {
                ahead = self.prepare_group(session, batch_run, tables, ahead, inside);
            }
            let args = &batch.args(request, batch_run.input);
            if inside.is_none() && !in_script {
                *inside = self.enter_gate();
                self.clock.follow(Ticks::now());
                if session.applies_stream() && inside.is_none() {
                    batch_run.commands += index as u32;
                    session.framer.forget();
                    return ControlFlow::Break(Progress::Paused);
                }
                self.follow_changes(session);
                if session.has_changed() {
                    batch_run.commands += index as u32;
                    return end_early(session, Progress::Reframe);
                }
            }
            let is_fast = is_plain && inside.is_some();
            let progress = if is_fast
                && plan.one_key.is_some()
                && let Some(key) = keys.get(plan.keys_start as usize)
            {
                self.dispatch_one_key(session, plan, args, key, out, inside)
            } else if let Some(node) = plan.forwards_to {
                self.dispatch_foreign(session, plan, args, (node, is_fast), out, inside)
            } else {
                let keys = plan.keys_of(keys);
                let progress = if is_fast && plan.is_keyless {
                    self.dispatch_keyless(session, plan, args, out, inside)
                } else {
                    self.dispatch(session, plan, args, keys, out, inside)
                };
                is_plain = self.may_take_fast_path(session);
                progress
            };
            let progress = if self.effects.took_much { self.check_memory_next(progress) } else { progress };
            let before = std::mem::replace(&mut len, out.len());
            if len >= batch_run.look_at {
                self.look_at_last(session, plan, (args, plan.keys_of(keys)), len.saturating_sub(before), batch_run);
                batch_run.look_at = batch_run.end_of_small(len);
            }
            if progress != Progress::Ready {
                let has_run = !matches!(progress, Progress::Paused | Progress::AwaitsRoom | Progress::AwaitsNodes);
                if has_run {
                    batch_run.at = request.end as usize;
                }
                batch_run.commands += index as u32 + u32::from(has_run);
                return end_early(session, progress);
            }
            batch_run.at = request.end as usize;
            // A window of slow commands may take much longer than a turn, and its replies may take much memory.
            if (self.ticks > turn_end || batch_run.is_full(self, out, len)) && Some(batch_run.at) != last_end {
                batch_run.commands += index as u32 + 1;
                session.framer.forget();
                return ControlFlow::Break(Progress::Yielded);
            }
        }
        batch_run.commands += planned.len() as u32;
        ControlFlow::Continue(Window::Whole)
    }

    /// Logs the executed command if its request or its reply is large, and counts it by its keys if HOTKEYS is on.
    #[cold]
    fn look_at_last(
        &mut self,
        session: &Session,
        plan: &Planned,
        (args, keys): (&Args<'_>, &[KeyRef]),
        reply: usize,
        batch_run: &BatchRun<'_>,
    ) {
        let ticks = self.ticks.since(self.looked_at);
        self.looked_at = self.ticks;
        let Some(command) = plan.command else { return };
        // A queued command is checked when it runs.
        if session.multi.is_some() {
            return;
        }
        batch_run.large.note(self, session, command, *args, reply);
        // A transaction's commands are counted one by one.
        if batch_run.counts_keys && !is_exec(command) {
            let invoked = Invocation { command, args, keys };
            slow::note_hot_keys(self, invoked, ticks, reply);
            slow::note_slot(self, invoked, ticks, reply);
        }
    }

    /// Prefetches the memory of the window's next group of commands, starting at `from`. Returns the index of the first
    /// command after the group.
    #[inline(always)]
    fn prepare_group(
        &mut self,
        session: &Session,
        batch_run: &BatchRun<'_>,
        tables: &Tables,
        from: usize,
        inside: &mut Inside<'static>,
    ) -> usize {
        let Tables { batch, planned, keys } = tables;
        let group = from..group_end(planned, keys, from);
        let bytes = batch.requests()[group.clone()].last().map_or(0, |last| last.end as usize - batch_run.at);
        self.try_exclusive(inside, &planned[group.clone()], keys, bytes);
        if self.engine.slow_path.has(TRACKED) {
            keys_of(&planned[group.clone()], keys).iter().for_each(|key| self.engine.tracking.keys.ask_for(key.hash));
        }
        let hints = self.engine.keyspace.hints(session.database, inside);
        let end = group.end;
        look_ahead(&hints, batch, batch_run.input, planned, keys, group);
        end
    }

    /// Answers bytes that are no request. The connection is closed because its further input has no known boundaries.
    #[cold]
    fn answer_no_request(&self, session: &mut Session, text: &[u8], out: &mut Output) -> Progress {
        if session.reply_mode() == ReplyMode::On {
            Reply::new(out, session.proto).error(text);
        }
        self.stats().count_error(b"ERR");
        session.closing = true;
        Progress::Closing
    }

    /// Makes the worker check the memory limit before the next command instead of after the window.
    #[cold]
    fn check_memory_next(&mut self, progress: Progress) -> Progress {
        self.effects.took_much = false;
        self.memory.look_again();
        if progress == Progress::Ready { Progress::Reframe } else { progress }
    }

    /// Excludes other threads while a group of commands runs, so that it takes no locks. The group must have enough
    /// keys to be worth it, all its commands must be brief, and no other thread may seem busy. `bytes` is the size of
    /// the requests.
    #[inline]
    fn try_exclusive(&mut self, inside: &mut Inside<'_>, group: &[Planned], keys: &[KeyRef], bytes: usize) {
        inside.let_in();
        if self.applying.is_lane
            || keys_of(group, keys).len() < KEYS_WORTH_IT
            || bytes > BRIEF_BYTES_MAX
            || self.exclusive_backoff.has_just_met(self.ticks)
            || !group.iter().all(|plan| plan.is_brief)
        {
            return;
        }
        let waits = self.engine.keyspace.gate().waits();
        // The thread that waited may have been this one, because another thread can exclude it in the same way.
        if self.exclusive_backoff.has_made_wait(waits) || !inside.keep_out() {
            self.exclusive_backoff.meet(waits, self.ticks);
        }
    }
}

/// Ends a window early after a command that changes the connection's course.
#[cold]
fn end_early(session: &mut Session, progress: Progress) -> ControlFlow<Progress, Window> {
    // The framer's state belongs to an incomplete request behind the whole window. The next framing starts behind the
    // last executed request instead.
    session.framer.forget();
    match progress {
        Progress::Ready | Progress::Reframe => return ControlFlow::Continue(Window::Cut),
        // Redis counts connections that CLIENT PAUSE holds back among the blocked ones.
        Progress::Paused if !session.applies_stream() => _ = session.client.block(Blocked::Paused),
        _ => {}
    }
    ControlFlow::Break(if progress == Progress::Gone { Progress::Closing } else { progress })
}

/// The facts that follow from a request's name and its number of arguments.
struct Found {
    keys: KeysAt,
    /// All fields except those of the keys.
    plan: Planned,
    /// True if the facts hold for every request with this name and number of arguments.
    is_all: bool,
}

impl Found {
    const NOTHING: Found = Found {
        keys: KeysAt::None,
        plan: Planned {
            command: None,
            keys_start: 0,
            keys_end: 0,
            reads_collection: false,
            one_key: None,
            fits: false,
            is_keyless: false,
            is_brief: false,
            forwards_to: None,
        },
        is_all: false,
    };

    fn of(args: Args<'_>) -> Found {
        let table = table();
        let named = table.find(args.get(0));
        let command = named.and_then(|command| table.resolve(command, args));
        // A command with the wrong number of arguments will not run, so it has no keys.
        let fitting = command.filter(|command| command.accepts(args.len()));
        let keys = fitting.map_or(KeysAt::None, |command| command.keys);
        let plan = Planned {
            command,
            reads_collection: command.is_some_and(|c| c.reads_collection),
            fits: fitting.is_some(),
            is_keyless: fitting.is_some_and(|command| command.is_keyless),
            one_key: fitting.filter(|_| matches!(keys, KeysAt::Only(_))).and_then(|command| command.keys_handler),
            is_brief: fitting.is_some_and(|c| c.is_brief),
            ..Found::NOTHING.plan
        };
        Found { keys, plan, is_all: named.is_some_and(|command| command.subcommands.is_empty()) }
    }
}

/// Looks up every request's command, and hashes its keys.
// Not inlined, to save registers, like framing.
#[inline(never)]
pub(crate) fn plan(batch: &Batch, input: Input<'_>, planned: &mut Vec<Planned>, keys: &mut Vec<KeyRef>) {
    plan_each(batch, input, planned, keys, &mut Unguarded);
}

/// A check of a window's commands during planning. It runs in the same loop because the command and its key are at hand
/// there.
pub(super) trait Guard {
    /// Called before a command that may differ from the previous one.
    fn turn_to(&mut self, plan: &Planned);

    /// Returns true if the command needs no closer check. `only` is its only key, or None if it has none or may have
    /// several. `keys` are the keys of all commands planned so far; those from index `from` on are its own.
    // A slice of its own keys would cost a bounds check for each command, also without a guard.
    fn passes(&self, only: Option<Key<'_>>, keys: &[KeyRef], from: usize) -> bool;

    /// Checks a command that doesn't pass. May remove the command's keys, which begin at index `from`.
    fn look_again(
        &mut self,
        plan: &mut Planned,
        args: Args<'_>,
        only: Option<Key<'_>>,
        keys: &mut Vec<KeyRef>,
        from: usize,
    );
}

/// The guard for a user without restrictions.
struct Unguarded;

impl Guard for Unguarded {
    #[inline(always)]
    fn turn_to(&mut self, _: &Planned) {}

    #[inline(always)]
    fn passes(&self, _: Option<Key<'_>>, _: &[KeyRef], _: usize) -> bool {
        true
    }

    fn look_again(&mut self, _: &mut Planned, _: Args<'_>, _: Option<Key<'_>>, _: &mut Vec<KeyRef>, _: usize) {}
}

/// See [`plan`].
#[inline(always)]
pub(super) fn plan_each(
    batch: &Batch,
    input: Input<'_>,
    planned: &mut Vec<Planned>,
    keys: &mut Vec<KeyRef>,
    guard: &mut impl Guard,
) {
    planned.clear();
    keys.clear();
    // Pipelines consist of runs of one command.
    let mut found = Found::NOTHING;
    for request in batch.requests() {
        let args = batch.args(request, input);
        if !(request.repeats && found.is_all) {
            found = Found::of(args);
            guard.turn_to(&found.plan);
        }
        let keys_start = keys.len() as u32;
        let mut only = None;
        match (found.keys, found.plan.command) {
            (KeysAt::Only(at), _) => {
                let key = Key::new(args.get(at));
                keys.push(KeyRef { arg: at as u32, hash: key.hash });
                only = Some(key);
            }
            (KeysAt::Declared, Some(command)) => hash_keys(command, args, keys),
            _ => {}
        }
        planned.push(Planned { keys_start, keys_end: keys.len() as u32, ..found.plan });
        // Passed in place. A copy on the stack would be written in parts and read as a whole, which defeats store
        // forwarding.
        let from = keys_start as usize;
        if !guard.passes(only, keys, from)
            && let Some(plan) = planned.last_mut()
        {
            guard.look_again(plan, args, only, keys, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, request};
    use config::{Loader, Settings};
    use resp::request::Framer;

    #[test]
    fn a_slow_command_within_a_window_ends_the_turn() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        let mut session = bench.open();
        let slow = request(&["debug", "sleep", "0.005"]);
        let input = [&*slow, &slow, b"PING\r\nPI"].concat();
        let mut out = Output::default();
        let (at, progress) = bench.worker.run(&mut session, input[..].into(), 0, &mut out);
        assert_eq!((at, progress), (slow.len(), Progress::Yielded));
        let (at, progress) = bench.worker.run(&mut session, input[..].into(), at, &mut out);
        assert_eq!((at, progress), (2 * slow.len(), Progress::Yielded));
        let (at, progress) = bench.worker.run(&mut session, input[..].into(), at, &mut out);
        assert_eq!((at, progress), (input.len() - 2, Progress::Ready));
        assert_eq!(out.slices().collect::<Vec<_>>().concat(), b"+OK\r\n+OK\r\n+PONG\r\n");
    }

    #[test]
    fn values_by_reference_fill_a_turn_later_than_copied_ones() {
        let mut bench = Bench::default();
        bench.never_yield();
        let mut session = bench.open();
        let gets = |key: &str| request(&["GET", key]).repeat(200);
        let mut ran = |bench: &mut Bench, key: &str, value_bytes: usize| {
            bench.run(&mut session, &request(&["SET", key, &"v".repeat(value_bytes)]));
            let (input, mut out) = (gets(key), Output::default());
            let (at, progress) = bench.worker.run(&mut session, input[..].into(), 0, &mut out);
            assert_eq!(progress, Progress::Yielded);
            at / request(&["GET", key]).len()
        };
        let (copied, shared) = (10_000, 20_000);
        assert_eq!([ran(&mut bench, "c", copied), ran(&mut bench, "s", shared)], [7, 53]);
        // The client doesn't read.
        bench.worker.end_turns_after(16 << 10);
        assert_eq!([ran(&mut bench, "c", copied), ran(&mut bench, "s", shared)], [2, 1]);
        bench.worker.end_turns_after(usize::MAX);
        // Many other clients don't read.
        bench.worker.engine.replies.waiting.add(1024);
        assert_eq!([ran(&mut bench, "c", copied), ran(&mut bench, "s", shared)], [7, 14]);
    }

    #[test]
    fn commands_with_many_keys_find_them_all() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for counts in [&[1_usize, 2, 16, 17, 3][..], &[63, 64, 65], &[300, 1, 1, 70], &[10; 100]] {
            let (mut input, mut expected) = (Vec::new(), Vec::new());
            for (round, &count) in counts.iter().enumerate() {
                let pairs = (0..count).flat_map(|i| [format!("key:{round}:{i}"), format!("{i}")]);
                let mset: Vec<_> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
                let keys = (0..count).map(|i| format!("key:{round}:{i}")).chain(["none".to_owned()]);
                let mget: Vec<_> = std::iter::once("MGET".to_owned()).chain(keys).collect();
                for words in [mset, mget] {
                    input.extend(request(&words.iter().map(String::as_str).collect::<Vec<_>>()));
                }
                expected.extend(format!("+OK\r\n*{}\r\n", count + 1).into_bytes());
                (0..count).for_each(|i| expected.extend(format!("${}\r\n{i}\r\n", i.to_string().len()).into_bytes()));
                expected.extend(b"$-1\r\n");
            }
            let (mut out, mut at) = (Output::default(), 0);
            while at < input.len() {
                at = bench.worker.run(&mut session, input[..].into(), at, &mut out).0;
            }
            assert_eq!(out.slices().collect::<Vec<_>>().concat(), expected, "{counts:?}");
        }
    }

    #[test]
    fn similar_requests_in_a_window_run_like_single_ones() {
        let lines = [
            "set a 1",
            "set b 2",
            "object encoding a",
            "object refcount a",
            "object encoding none",
            "object nonsense a",
            "client getname",
            "client no-evict",
            "client id x",
            "get a b",
            "get c d",
            "get a",
            "get b",
            "nonsense a",
            "nonsense b",
            "zadd z 1 a 2 b",
            "zadd y 1 a 2 b",
            "zunionstore u 2 z y weights 1 2",
            "zunionstore v 1 z weights 3 aggregate sum",
            "zinter 2 z y weights 1 2",
            "zinter 1 z weights 3 withscores",
            "eval return{KEYS[1],ARGV[1]} 1 a b",
            "eval return{KEYS[1],ARGV[1]} 0 a b",
            "eval return{KEYS[1],ARGV[1]} 2 a b",
            "mset a 1 b 2",
            "mset a 3 b 4",
            "mget a b",
            "mget b a",
            "set a b xx nx",
            "set a b get xx",
            "hset h a 1",
            "hset h b 2",
            "hset a b 2",
            "config get maxmemory",
            "config get hz",
        ];
        let requests = lines.map(|line| request(&line.split(' ').collect::<Vec<_>>()));
        let mut alone = Bench::default();
        let mut session = alone.open();
        let expected = requests.iter().flat_map(|bytes| alone.run(&mut session, bytes).0).collect::<Vec<_>>();
        let mut together = Bench::default();
        together.never_yield();
        let mut session = together.open();
        let (replies, _) = together.run(&mut session, &requests.concat());
        assert_eq!(String::from_utf8_lossy(&replies), String::from_utf8_lossy(&expected));
    }

    /// Returns whether a thread that runs these commands excludes others.
    fn keeps_out(bench: &mut Bench, lines: &str) -> bool {
        let (mut batch, mut planned, mut keys) = (Batch::default(), Vec::new(), Vec::new());
        let input = format!("{}\r\n", lines.lines().collect::<Vec<_>>().join("\r\n")).into_bytes();
        let (end, _) = Framer::default().frame(input[..].into(), 0, &bench.worker.limits, WINDOW, &mut batch);
        assert_eq!(end, input.len());
        plan(&batch, input[..].into(), &mut planned, &mut keys);
        let mut inside = bench.worker.enter_gate();
        let inside = inside.as_mut().unwrap();
        bench.worker.ticks = Ticks::now();
        bench.worker.try_exclusive(inside, &planned, &keys, input.len());
        inside.keeps_out()
    }

    #[test]
    fn many_brief_commands_exclude_other_threads() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        bench.worker.exclusive_backoff.pause_ticks = 0;
        let mset = format!("mset{}", " k v".repeat(8));
        for brief in [&*"get k\n".repeat(8), &"set k v\nincr n\nzadd z 1 a\nhset h f v\n".repeat(2), &mset] {
            assert!(keeps_out(&mut bench, brief), "{brief}");
        }
        // Too few keys, too many bytes, or one slow command among them.
        let long = format!("{}set k {}", "get k\n".repeat(8), "v".repeat(BRIEF_BYTES_MAX));
        assert!(!keeps_out(&mut bench, &"get k\n".repeat(7)) && !keeps_out(&mut bench, &long));
        for slow in [
            "lpop l 5",
            "spop s 5",
            "setrange s 500000000 x",
            "bzpopmin z 0",
            "smembers s",
            "keys *",
            "flushall",
            "eval return 0",
            "get",
            "multi",
            "exec",
            "nonsense",
            "sort l",
            "lcs a b",
        ] {
            assert!(!keeps_out(&mut bench, &format!("{}{slow}", "get k\n".repeat(8))), "{slow}");
        }
        // With one thread, there is no other thread to exclude.
        assert!(!keeps_out(&mut Bench::default(), &"get k\n".repeat(8)));
    }

    #[test]
    fn other_threads_that_arrive_are_let_in_for_a_while() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        let brief = "get k\n".repeat(8);
        let gate = bench.worker.engine.keyspace.gate();
        // A thread that has just begun gives other threads time to appear.
        bench.worker.exclusive_backoff.pause_ticks = u64::MAX;
        assert!(!keeps_out(&mut bench, &brief));
        bench.worker.exclusive_backoff.pause_ticks = 0;
        assert!(keeps_out(&mut bench, &brief));
        let inside = gate.enter(1);
        assert!(!keeps_out(&mut bench, &brief));
        drop(inside);
        assert!(keeps_out(&mut bench, &brief));
        // A thread that came, waited and left is noticed once.
        let mut first = gate.enter(0);
        assert!(first.keep_out() && gate.enter_unless(1, || true).is_none());
        drop(first);
        let before = bench.worker.exclusive_backoff.met_at();
        assert!(!keeps_out(&mut bench, &brief));
        assert!(bench.worker.exclusive_backoff.met_at() > before && keeps_out(&mut bench, &brief));
    }

    #[test]
    fn client_reply_off_silences_protocol_errors() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        assert_eq!(bench.run(&mut session, b"CLIENT REPLY OFF\r\n*x\r\n"), (Vec::new(), Progress::Closing));
    }
}
