//! A batch's way through the worker, a window at a time.
//!
//! Requests are framed, planned and prefetched a window at a time, so that what was prefetched is still in the cache
//! when it is used, then run in order. A window ends early where a command changes how the rest is to be read.

use std::ops::ControlFlow;

use commands::call::KeyRef;
use commands::spec::flag;
use resp::reply::{Mark, Output, Reply};
use resp::request::{Args, Batch, Framer, Input, Limits, Stop};
use store::hash::KeyHash;
use store::long;
use store::sync::Inside;

use super::lookahead::{group_end, keys_of, look_ahead};
use crate::clients::client::Blocked;
use crate::clients::session::{ReplyMode, Session};
use crate::clients::transaction::is_exec;
use crate::command_table::KeysAt;
use crate::machine::ticks::Ticks;
use crate::reasons::TRACKED;
use crate::registry::table;
use crate::services::slow::{self, LargeSizes};
use crate::worker::pace::LANE_BYTES_MAX;
use crate::worker::tables::{KEPT_KEYS_MAX, Planned, Tables};
use crate::worker::turn::Invocation;
use crate::worker::{Pass, Ran, Step, Worker, hash_keys};

/// Commands that are framed and run together, and, as far as they have a key each, prefetched: see `lookahead`.
const WINDOW: usize = 64;
/// Keys of commands from which on it is worth it to keep others out: as much as the locks of so many.
const KEYS_WORTH_IT: usize = 8;
/// Bytes of requests that are run while others are kept out, at most: some hundred members to be added to something,
/// which takes less than a millisecond.
const BRIEF_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(WINDOW <= u64::BITS as usize, "a window's commands have a bit each in `lookahead`");

/// One connection's time on the thread: what it has sent, how far that has run, and when others are to have theirs.
pub(super) struct Stint<'b> {
    pub(super) input: Input<'b>,
    /// Where the first byte is that has not run.
    pub(super) at: usize,
    pub(super) began: Ticks,
    /// Commands that have run.
    pub(super) commands: u32,
    /// Where its replies begin.
    pub(super) start: Mark,
    /// Bytes of replies that there were before, and those that end it.
    pub(super) written: usize,
    pub(super) replies_end: usize,
    /// From how many bytes on requests and replies are logged.
    large: LargeSizes,
    /// Bytes of replies with which it is looked whether a command was large; 0 if each is looked at.
    look_at: usize,
    /// Whether each is counted by its keys.
    counts_keys: bool,
}

impl Stint<'_> {
    #[inline(always)]
    fn is_over(&self, now: Ticks, turn_ticks: u64, out: &Output) -> bool {
        now.since(self.began) > turn_ticks || out.len() > self.replies_end
    }
}

impl Stint<'_> {
    /// See `look_at`, after so many bytes of replies.
    fn end_of_small(&self, len: usize) -> usize {
        let looks_at_each = self.counts_keys || self.large.request != usize::MAX;
        if looks_at_each { 0 } else { len.saturating_add(self.large.reply) }
    }

    /// How many complete requests have not run.
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

/// How a window ended after which the connection goes on.
enum Window {
    /// All of it has run.
    Whole,
    /// What follows the last request that has run is to be framed again.
    Cut,
}

impl Worker {
    pub(super) fn run_with_tables(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Ran) {
        long::received(input.blocks.iter(), || self.run_input(session, input, from, out))
    }

    fn run_input(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Ran) {
        // In the midst of a script, this thread is inside already.
        let mut inside = if self.scripts.busy_turn { None } else { self.pass_or_help() };
        let (at, ran) = self.run_inside(session, input, from, out, &mut inside);
        if let Some(followed) = &mut session.followed {
            let commands = input.bytes.get(from..at).unwrap_or_default();
            let after = (self.engine.journal.position(), session.database);
            followed.note_run(&self.engine.replication, after, commands, session.multi.is_some());
        }
        (at, ran)
    }

    /// The same, inside the gate.
    pub(super) fn run_inside(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
        inside: &mut Pass,
    ) -> (usize, Ran) {
        self.arrived_bytes = input.bytes.len() + input.blocks.memory_bytes();
        // The batch's tables are taken out for the time, so that they can be borrowed beside the rest.
        let mut tables = std::mem::take(&mut self.tables);
        let mut stint = Stint {
            input,
            at: from,
            began: Ticks::now(),
            commands: 0,
            start: out.mark(),
            written: out.len(),
            replies_end: 0,
            // A request is no larger than all that has arrived.
            large: LargeSizes::of(&self.engine.settings).among(self.arrived_bytes),
            look_at: 0,
            counts_keys: self.engine.hot_keys.ratio() != 0,
        };
        stint.look_at = stint.end_of_small(stint.written);
        let ran = if session.applies_stream() && inside.is_none() {
            // A script that takes too long keeps the gate closed.
            Ran::Paused
        } else if self.may_go_on(session) {
            self.run_windows(session, &mut stint, out, &mut tables, inside)
        } else {
            Ran::Closing
        };
        if self.engine.reasons.has(TRACKED) {
            self.end_tracked_batch(session, out);
        }
        self.note_batch(session, &stint, ran, &tables, out);
        // Before the gate is left: a command that runs alone behind it finds all counted.
        self.meter.count();
        if inside.is_some() {
            self.commit_count(session);
        }
        tables.shrink();
        self.shards.clear();
        self.shards.shrink_to(KEPT_KEYS_MAX);
        self.tables = tables;
        (stint.at, ran)
    }

    /// False for a primary's stream that is not followed any more. The thread is inside the gate.
    #[inline]
    fn may_go_on(&self, session: &Session) -> bool {
        session.followed.as_ref().is_none_or(|followed| !followed.is_over(&self.engine.replication))
    }

    fn run_windows(
        &mut self,
        session: &mut Session,
        stint: &mut Stint<'_>,
        out: &mut Output,
        tables: &mut Tables,
        inside: &mut Pass,
    ) -> Ran {
        loop {
            // What comes now may take long: others need not wait for it.
            inside.iter_mut().for_each(Inside::let_in);
            if session.client.summons.any() {
                if session.client.summons.is_killed() {
                    return Ran::Closing;
                }
                session.follow_summons();
            }
            if stint.commands > 0 && stint.at == stint.input.bytes.len() {
                // The tables stay those of the last window: a batch of one command is looked at when it has run.
                return Ran::Idle;
            }
            tables.batch.clear();
            let is_monitored = !self.engine.monitors.is_empty();
            let window = if is_monitored { self.mind_monitors(session, stint, WINDOW) } else { WINDOW };
            let (end, stop) = self.frame_window(session, stint, tables, window);
            if self.must_await_log(&tables.planned) {
                session.framer.forget();
                return Ran::AwaitsLog;
            }
            // Before the prefetch, because what is evicted must not be waited for.
            if inside.is_some() {
                self.mind_memory(tables.planned.len(), inside);
            }
            self.stats().batches.add(u64::from(!tables.planned.is_empty()));
            self.ticks = Ticks::now();
            // After all that may have taken long: the gate, eviction, a request of millions of arguments.
            self.clock.follow(self.ticks);
            self.looked_at = self.ticks;
            let (began, before) = (self.ticks, stint.commands);
            let ran = self.run_window(session, stint, out, tables, inside);
            self.stats().command_ticks.add(self.ticks.since(began));
            if is_monitored {
                self.monitors.passed(stint.commands - before, &mut self.random);
            }
            match ran {
                ControlFlow::Break(ran) => return ran,
                // Where framing stopped no longer holds once the limits have changed.
                ControlFlow::Continue(Window::Cut) => {}
                ControlFlow::Continue(Window::Whole) => {
                    stint.at = end;
                    match stop {
                        Stop::Full => {}
                        Stop::Incomplete => return Ran::Idle,
                        Stop::Error(error) => return self.answer_no_request(session, &error.text(), out),
                    }
                }
            }
            if stint.is_over(Ticks::now(), self.pace.turn_ticks, out) {
                return Ran::Yielded;
            }
        }
    }

    /// Whether one of these commands may write and the log has no room for it, or is late. Looked at before any of them holds a shard. What
    /// is refused needs no room.
    #[inline]
    fn must_await_log(&self, planned: &[Planned]) -> bool {
        let writes = |plan: &Planned| plan.command.is_some_and(|c| c.info.has(flag::WRITE | flag::MAY_REPLICATE));
        let is_late = || self.lane.waiting_bytes() > LANE_BYTES_MAX || self.engine.durability.is_behind();
        // A round of a primary's stream is looked at as a whole, before it begins.
        let is_full = self.effects.recording && !self.applying.is_lane && is_late();
        (is_full || !self.applying.is_lane && self.engine.snapshots.is_overfull())
            && !self.engine.refuses_writes()
            && planned.iter().any(writes)
    }

    /// Frames and plans the requests that are run next. Says where the last of them ends, and why there are no more.
    #[inline(always)]
    fn frame_window(
        &self,
        session: &mut Session,
        stint: &mut Stint<'_>,
        tables: &mut Tables,
        window: usize,
    ) -> (usize, Stop) {
        if session.is_guarded() {
            return self.frame_guarded(session, stint, tables, window);
        }
        stint.replies_end = stint.written + self.reply_bytes_max();
        let framed = session.framer.frame(stint.input, stint.at, &self.limits, window, &mut tables.batch);
        plan(&tables.batch, stint.input, &mut tables.planned, &mut tables.keys);
        framed
    }

    /// Runs a window's requests, in groups whose memory is asked for together. Breaks off with what became of the
    /// connection, if it doesn't go on with the next request.
    #[inline(always)]
    fn run_window(
        &mut self,
        session: &mut Session,
        stint: &mut Stint<'_>,
        out: &mut Output,
        tables: &Tables,
        inside: &mut Pass,
    ) -> ControlFlow<Ran, Window> {
        let Tables { batch, planned, keys } = tables;
        let in_script = self.scripts.busy_turn;
        let last_end = batch.requests().last().map(|r| r.end as usize);
        let mut ahead = 0;
        let mut is_plain = self.may_be_quick(session);
        let mut len = out.len();
        let turn_end = stint.began.after(self.pace.turn_ticks);
        for (index, (request, plan)) in batch.requests().iter().zip(planned.iter()).enumerate() {
            if index == ahead
                && let Some(inside) = inside
            {
                ahead = self.prepare_group(session, stint, tables, ahead, inside);
            }
            let args = &batch.args(request, stint.input);
            let keys = &keys[plan.keys_start as usize..plan.keys_end as usize];
            if inside.is_none() && !in_script {
                *inside = self.pass();
                self.clock.follow(Ticks::now());
                if session.applies_stream() && inside.is_none() {
                    stint.commands += index as u32;
                    session.framer.forget();
                    return ControlFlow::Break(Ran::Paused);
                }
                session.follow_summons();
                if session.has_changed() {
                    stint.commands += index as u32;
                    return end_early(session, Step::Reframe);
                }
            }
            let may_be_quick = is_plain && inside.is_some();
            let step = if may_be_quick && plan.quick.is_some() {
                self.step_quickly(session, plan, args, keys, out, inside)
            } else {
                let step = if may_be_quick && plan.is_keyless {
                    self.step_keyless(session, plan, args, out, inside)
                } else {
                    self.step(session, plan, args, keys, out, inside)
                };
                is_plain = self.may_be_quick(session);
                step
            };
            let step = if self.effects.took_much { self.mind_memory_next(step) } else { step };
            let before = std::mem::replace(&mut len, out.len());
            if len >= stint.look_at {
                self.look_at_last(session, plan, (args, keys), len.saturating_sub(before), stint);
                stint.look_at = stint.end_of_small(len);
            }
            if step != Step::Next {
                let has_run = !matches!(step, Step::Pause | Step::AwaitRoom);
                if has_run {
                    stint.at = request.end as usize;
                }
                stint.commands += index as u32 + u32::from(has_run);
                return end_early(session, step);
            }
            stint.at = request.end as usize;
            // A window of slow commands may take much longer than a turn, and its replies much memory.
            if (self.ticks > turn_end || len > stint.replies_end) && Some(stint.at) != last_end {
                stint.commands += index as u32 + 1;
                session.framer.forget();
                return ControlFlow::Break(Ran::Yielded);
            }
        }
        stint.commands += planned.len() as u32;
        ControlFlow::Continue(Window::Whole)
    }

    /// Logs the command that has run if its request or its reply is large, and counts it by its keys if that is asked for.
    #[cold]
    fn look_at_last(
        &mut self,
        session: &Session,
        plan: &Planned,
        (args, keys): (&Args<'_>, &[KeyRef]),
        reply: usize,
        stint: &Stint<'_>,
    ) {
        let ticks = self.ticks.since(self.looked_at);
        self.looked_at = self.ticks;
        let Some(command) = plan.command else { return };
        // What has been queued only is looked at when it runs.
        if session.multi.is_some() {
            return;
        }
        stint.large.note(self, session, command, *args, reply);
        // A transaction's commands are counted each for itself.
        if stint.counts_keys && !is_exec(command) {
            slow::note_hot_keys(self, Invocation { command, args, keys }, ticks, reply);
        }
    }

    /// Asks for the memory that the window's next commands will read, from the one at `from` on, and says which is the
    /// first beyond them.
    #[inline(always)]
    fn prepare_group(
        &mut self,
        session: &Session,
        stint: &Stint<'_>,
        tables: &Tables,
        from: usize,
        inside: &mut Inside<'static>,
    ) -> usize {
        let Tables { batch, planned, keys } = tables;
        let group = from..group_end(planned, keys, from);
        let bytes = batch.requests()[group.clone()].last().map_or(0, |last| last.end as usize - stint.at);
        self.choose_company(inside, &planned[group.clone()], keys, bytes);
        if self.engine.reasons.has(TRACKED) {
            keys_of(&planned[group.clone()], keys).iter().for_each(|key| self.engine.tracking.keys.ask_for(key.hash));
        }
        let hints = self.engine.keyspace.hints(session.database, inside);
        let end = group.end;
        look_ahead(&hints, batch, stint.input, planned, keys, group);
        end
    }

    /// Answers bytes that are no request, after which the connection can't be understood.
    #[cold]
    fn answer_no_request(&self, session: &mut Session, text: &[u8], out: &mut Output) -> Ran {
        if session.reply_mode() == ReplyMode::On {
            Reply::new(out, session.proto).error(text);
        }
        self.stats().count_error(b"ERR");
        session.closing = true;
        Ran::Closing
    }

    /// Has the limit of the memory looked at before the next command, not after the window.
    #[cold]
    fn mind_memory_next(&mut self, step: Step) -> Step {
        self.effects.took_much = false;
        self.memory.look_again();
        if step == Step::Next { Step::Reframe } else { step }
    }

    /// Keeps other threads out while some of a window's commands run, if there are enough of them to be worth it, all
    /// are brief, and no other thread seems to have anything to do: then no lock is taken. `bytes`: of the requests.
    #[inline]
    fn choose_company(&mut self, inside: &mut Inside<'_>, group: &[Planned], keys: &[KeyRef], bytes: usize) {
        inside.let_in();
        if self.applying.is_lane
            || keys_of(group, keys).len() < KEYS_WORTH_IT
            || bytes > BRIEF_BYTES_MAX
            || self.company.has_just_met(self.ticks)
            || !group.iter().all(|plan| plan.is_brief)
        {
            return;
        }
        let waits = self.engine.keyspace.gate().waits();
        // The one that waited may have been this thread: another one keeps others out as well.
        if self.company.has_made_wait(waits) || !inside.keep_out() {
            self.company.meet(waits, self.ticks);
        }
    }
}

/// Ends a window behind a command that the next doesn't simply follow.
#[cold]
fn end_early(session: &mut Session, step: Step) -> ControlFlow<Ran, Window> {
    // What is known of an incomplete request begins after the window's last, not here.
    session.framer.forget();
    ControlFlow::Break(match step {
        Step::Next | Step::Reframe => return ControlFlow::Continue(Window::Cut),
        Step::Park => Ran::Parked,
        Step::Pause => {
            // Redis counts those that CLIENT PAUSE holds back among the blocked.
            if !session.applies_stream() {
                session.client.block(Blocked::Paused);
            }
            Ran::Paused
        }
        Step::AwaitRoom => Ran::Overfilled,
        Step::Close | Step::Gone => Ran::Closing,
    })
}

/// What a request's name and its number of arguments tell.
struct Found {
    keys: KeysAt,
    /// But for the keys.
    plan: Planned,
    /// Whether that is all, so that it holds for others with the same name and as many arguments.
    is_all: bool,
}

impl Found {
    const NOTHING: Found = Found {
        keys: KeysAt::None,
        plan: Planned {
            command: None,
            quick: None,
            keys_start: 0,
            keys_end: 0,
            reads_collection: false,
            fits: false,
            is_brief: false,
            is_keyless: false,
        },
        is_all: false,
    };

    fn of(args: Args<'_>) -> Found {
        let table = table();
        let named = table.find(args.get(0));
        let command = named.and_then(|command| table.resolve(command, args));
        // A command with the wrong number of arguments has no keys: it will not run.
        let fitting = command.filter(|command| command.accepts(args.len()));
        let keys = fitting.map_or(KeysAt::None, |command| command.keys);
        let plan = Planned {
            command,
            quick: fitting.filter(|_| matches!(keys, KeysAt::Only(_))).and_then(|command| command.quick),
            reads_collection: command.is_some_and(|c| c.reads_collection),
            fits: fitting.is_some(),
            is_brief: fitting.is_some_and(|c| c.is_brief),
            is_keyless: fitting.is_some_and(|c| c.is_keyless),
            ..Found::NOTHING.plan
        };
        Found { keys, plan, is_all: named.is_some_and(|command| command.subcommands.is_empty()) }
    }
}

/// Looks every request's command up, and hashes its keys.
// On its own for the registers' sake, as framing is.
#[inline(never)]
pub(crate) fn plan(batch: &Batch, input: Input<'_>, planned: &mut Vec<Planned>, keys: &mut Vec<KeyRef>) {
    plan_each(batch, input, planned, keys, &mut Unguarded);
}

/// Looks at a window's commands as they are planned: in the same loop, because the command and its key are at hand there.
pub(super) trait Guard {
    /// Called before a command that may be another than the one before it.
    fn turn_to(&mut self, plan: &Planned);

    /// True if the command needs no longer look. `key`: its only key; empty if it has none or may have several.
    fn passes(&self, key: &[u8]) -> bool;

    /// Looks at a command that doesn't pass.
    fn look_again(&mut self, plan: &mut Planned, args: Args<'_>, key: &[u8]);
}

/// For a user that may do everything.
struct Unguarded;

impl Guard for Unguarded {
    #[inline(always)]
    fn turn_to(&mut self, _: &Planned) {}

    #[inline(always)]
    fn passes(&self, _: &[u8]) -> bool {
        true
    }

    fn look_again(&mut self, _: &mut Planned, _: Args<'_>, _: &[u8]) {}
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
    // Pipelines are made of runs of one command.
    let mut found = Found::NOTHING;
    for request in batch.requests() {
        let args = batch.args(request, input);
        if !(request.repeats && found.is_all) {
            found = Found::of(args);
            guard.turn_to(&found.plan);
        }
        let keys_start = keys.len() as u32;
        let mut only: &[u8] = b"";
        match (found.keys, found.plan.command) {
            (KeysAt::Only(at), _) => {
                only = args.get(at);
                keys.push(KeyRef { arg: at as u32, hash: KeyHash::of(only) });
            }
            (KeysAt::Declared, Some(command)) => hash_keys(command, args, keys),
            _ => {}
        }
        planned.push(Planned { keys_start, keys_end: keys.len() as u32, ..found.plan });
        // Where the plan is already: on the stack, it would be written in parts and read as a whole.
        if !guard.passes(only)
            && let Some(plan) = planned.last_mut()
        {
            guard.look_again(plan, args, only);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loader, Settings};
    use crate::testing::{Bench, request};
    use resp::request::Framer;

    #[test]
    fn a_slow_command_in_the_midst_of_a_window_ends_the_turn() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        let mut session = bench.open();
        let slow = request(&["debug", "sleep", "0.005"]);
        let input = [&*slow, &slow, b"PING\r\nPI"].concat();
        let mut out = Output::default();
        let (at, ran) = bench.worker.run(&mut session, input[..].into(), 0, &mut out);
        assert_eq!((at, ran), (slow.len(), Ran::Yielded));
        let (at, ran) = bench.worker.run(&mut session, input[..].into(), at, &mut out);
        assert_eq!((at, ran), (2 * slow.len(), Ran::Yielded));
        let (at, ran) = bench.worker.run(&mut session, input[..].into(), at, &mut out);
        assert_eq!((at, ran), (input.len() - 2, Ran::Idle));
        assert_eq!(out.slices().collect::<Vec<_>>().concat(), b"+OK\r\n+OK\r\n+PONG\r\n");
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
    fn requests_that_begin_alike_run_as_if_each_were_alone() {
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

    /// Whether a thread keeps others out that runs these commands.
    fn keeps_out(bench: &mut Bench, lines: &str) -> bool {
        let (mut batch, mut planned, mut keys) = (Batch::default(), Vec::new(), Vec::new());
        let input = format!("{}\r\n", lines.lines().collect::<Vec<_>>().join("\r\n")).into_bytes();
        let (end, _) = Framer::default().frame(input[..].into(), 0, &bench.worker.limits, WINDOW, &mut batch);
        assert_eq!(end, input.len());
        plan(&batch, input[..].into(), &mut planned, &mut keys);
        let mut inside = bench.worker.pass();
        let inside = inside.as_mut().unwrap();
        bench.worker.ticks = Ticks::now();
        bench.worker.choose_company(inside, &planned, &keys, input.len());
        inside.keeps_out()
    }

    #[test]
    fn others_are_kept_out_for_what_is_brief_and_many() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        bench.worker.company.pause_ticks = 0;
        let mset = format!("mset{}", " k v".repeat(8));
        for brief in [&*"get k\n".repeat(8), &"set k v\nincr n\nzadd z 1 a\nhset h f v\n".repeat(2), &mset] {
            assert!(keeps_out(&mut bench, brief), "{brief}");
        }
        // Too few, too much, and one in the midst that may take its time.
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
        // With one thread, there is no other to be kept out.
        assert!(!keeps_out(&mut Bench::default(), &"get k\n".repeat(8)));
    }

    #[test]
    fn others_are_let_in_for_a_while_when_they_come() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        let brief = "get k\n".repeat(8);
        let gate = bench.worker.engine.keyspace.gate();
        // One that has just begun gives the others time to show.
        bench.worker.company.pause_ticks = u64::MAX;
        assert!(!keeps_out(&mut bench, &brief));
        bench.worker.company.pause_ticks = 0;
        assert!(keeps_out(&mut bench, &brief));
        let inside = gate.enter(1);
        assert!(!keeps_out(&mut bench, &brief));
        drop(inside);
        assert!(keeps_out(&mut bench, &brief));
        // One that came and waited, and went, is noticed once.
        let mut first = gate.enter(0);
        assert!(first.keep_out() && gate.enter_unless(1, || true).is_none());
        drop(first);
        let before = bench.worker.company.met_at();
        assert!(!keeps_out(&mut bench, &brief));
        assert!(bench.worker.company.met_at() > before && keeps_out(&mut bench, &brief));
    }

    #[test]
    fn one_who_wants_no_replies_gets_none_to_what_is_no_request() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        assert_eq!(bench.run(&mut session, b"CLIENT REPLY OFF\r\n*x\r\n"), (Vec::new(), Ran::Closing));
    }
}
