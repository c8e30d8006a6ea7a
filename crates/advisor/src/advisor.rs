//! Takes one trip after the other and adds each trip's waste to the findings.

mod named;
mod pairs;
mod polling;
mod proof;
mod ranges;
mod scripts;
mod streams;
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resp::request::Args;

use crate::batches::{Batches, Part, SmallBatches};
use crate::catalogue::{self, Catalogue, Class, Found, SET_WITH_OPTIONS};
use crate::connection::{Connection, Last, Transaction};
use crate::evidence::{Command, Source};
use crate::findings::{Confidence, Findings, Kind, Sighting};
use crate::hash::{self, mix};
use crate::loops::{Ended, LoopTrip, PERIOD_MAX, Steps};
use crate::pattern::{Words, decoded};
use crate::reads::{Asked, Reads, Repeated};
use crate::recent::{Answer, Evidence, Origin};
use crate::round_trip::Gap;
use crate::shapes::Shapes;
use crate::trip::Trip;
use turns::Turns;

/// The limits and the seed of an advisor.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of memory for shapes and findings. A fixed table of 64 KB and the connections
    /// ([`Connection::MEMORY_BYTES`]) are not included.
    pub memory_bytes: usize,
    /// True if a few keys of each finding are kept as samples.
    pub samples: bool,
    /// A random seed, one for all threads, so that clients can't make hashes collide.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { memory_bytes: 16 << 20, samples: true, seed: 0 }
    }
}

/// A reply of this many bytes counts as a large value.
const LARGE_BYTES: u64 = 64 * 1024;
/// A command that takes this long keeps others waiting, unless its reply is small: then the machine was busy.
const LONG_NS: u64 = 5_000_000;
/// A reply below this size takes no noticeable time by itself.
const SMALL_BYTES: u64 = 4096;
/// A connection that sent no more commands than this was made for them alone.
const FEW_COMMANDS: u64 = 2;
/// Arguments beyond these are part of the hash, but are not compared with replies.
const ARGUMENTS_MAX: usize = 8;
/// Arguments behind the key among which a written document is looked for.
const VALUES_MAX: usize = 3;

/// Most commands of a transaction that increments a number that the client has read.
const OPTIMISTIC_MAX: u32 = 8;

/// Number of trips for which the shape of a pipeline still counts as part of it: longer than a usual pipeline, and short
/// beside a loop that is worth reporting.
const UNWAITED_TRIPS: u32 = 32;
/// Number of trips for which a shape counts as sent without waiting if single commands were: this client writes the
/// commands of a pipeline one by one, and does so again.
const UNWAITED_SINGLY_TRIPS: u32 = 1024;

/// Number of first commands of a connection during which the client's process may load its code.
const START_COMMANDS: u64 = 256;

/// Longest time that a runnable thread waits for a core: another thread's time slice, plus the delay of the kernel.
const HELD_UP_NS_MAX: u64 = 5_000_000;
/// Longest pause after which the reads of a member may continue. A busy machine delays a client by no more.
const SHORT_PAUSE_NS: u64 = 100_000_000;
/// A client that pauses more often than once in this many trips (two rounds of the longest loop) may do so on purpose.
const CALM_TRIPS_MIN: u32 = 2 * PERIOD_MAX as u32;

/// Time after a busy moment during which short gaps prove nothing: the machine may have been busy before and after it.
const BUSY_NS: u64 = 1_000_000_000;

/// Finds wasted trips. Each thread has an advisor of its own; the findings are merged when they are listed.
#[derive(Debug)]
pub struct Advisor {
    config: Config,
    catalogue: Catalogue,
    words: Words,
    shapes: Shapes,
    /// Other threads read the findings; only this advisor adds to them.
    findings: Arc<Mutex<Findings>>,
    /// The repeated reads of the current trip. The memory is reused.
    told: Vec<Repeated>,
    /// The rows of small batches that the current trip ends. The memory is reused.
    told_batches: Vec<SmallBatches>,
    /// Until this time, short gaps prove nothing, because the machine was busy.
    busy_until_ns: u64,
    /// The connections that take turns.
    turns: Turns,
}

/// A command in a batch of its own, reduced to hashes.
struct Seen<'a> {
    found: Found,
    shape: u64,
    frame: u32,
    key: &'a [u8],
    key_hash: u64,
    /// The hash of the arguments behind the key.
    arguments: u64,
    /// The reply that one of the arguments repeats.
    origin: Origin,
    answer: Answer,
    /// The gap before the command if it looked like a round trip, otherwise 0.
    gap_ns: u64,
    /// True if the client paused before the command, or may have.
    is_paced: bool,
    /// True if the client paused before the command, as far as the gap tells.
    is_after_pause: bool,
}

impl Seen<'_> {
    fn has(&self, traits: u8) -> bool {
        self.found.verb.traits & traits != 0
    }
}

impl Advisor {
    /// Returns an advisor that has seen nothing.
    #[must_use]
    pub fn new(config: Config) -> Advisor {
        Advisor::with_findings(config, Arc::new(Mutex::new(Findings::new(0))))
    }

    /// Returns an advisor that adds to `findings` and limits their memory as configured.
    #[must_use]
    pub fn with_findings(config: Config, findings: Arc<Mutex<Findings>>) -> Advisor {
        lock(&findings).limit(config.memory_bytes - config.memory_bytes / 4);
        Advisor {
            config,
            catalogue: Catalogue::new(),
            words: Words::default(),
            shapes: Shapes::new(config.memory_bytes / 4),
            findings,
            told: Vec::new(),
            told_batches: Vec::new(),
            busy_until_ns: 0,
            turns: Turns::default(),
        }
    }

    /// Notes that more threads of the machine are runnable than it has cores. Short gaps then prove nothing for a second.
    pub fn note_busy(&mut self, now_ns: u64) {
        self.busy_until_ns = now_ns + BUSY_NS;
    }

    /// The findings so far. An unfinished loop is included after a thousand trips at the latest.
    pub fn findings(&self) -> MutexGuard<'_, Findings> {
        lock(&self.findings)
    }

    /// Forgets the words that vary within keys.
    pub fn forget_keys(&mut self) {
        self.words = Words::default();
    }

    /// Number of known shapes, and number of shapes that were evicted.
    #[must_use]
    pub fn shapes(&self) -> (usize, u64) {
        (self.shapes.len(), self.shapes.dropped())
    }

    /// Looks at one trip.
    #[inline]
    pub fn trip(&mut self, connection: &mut Connection, trip: &Trip<'_>) {
        let found = ranges::find(&self.catalogue, &trip.command);
        if found.verb.class == Class::Setup {
            if found.verb.name == "CLUSTER" && trip.reply.is_some_and(|reply| reply.start.starts_with(b"-")) {
                connection.leave_cluster();
            }
            if connection.counts.batches == connection.counts.setup {
                return setup(connection, trip);
            }
        }
        connection.counts.setup_ns += connection.after_connecting_ns(trip.arrived_ns).unwrap_or(0);
        let gap = if trip.overlaps { Gap::Overlap } else { connection.gap(trip.arrived_ns) };
        let (takes_turns, gap) = self.turns.take(connection, trip, gap);
        connection.replied_ns = Some(trip.replied_ns);
        connection.counts.batches += 1;
        connection.counts.commands += u64::from(trip.depth);
        let mut last = connection.last.take().unwrap_or_default();
        let mut watch = Watch { advisor: self, connection, last: &mut last, trip, takes_turns };
        watch.note_unwaited(gap);
        watch.last.polls.go_on(found.hash, matches!(gap, Gap::Pause(_)));
        if trip.depth == 1 {
            watch.single(found, gap)
        } else {
            watch.several(found, gap)
        }
        last.served_ns = trip.replied_ns.saturating_sub(trip.arrived_ns);
        connection.last = Some(last);
        if trip.redirected > 0 {
            self.redirected(connection, trip.redirected, trip.arrived_ns);
        }
    }

    /// Records the commands since the last record, with the redirected ones among them. Each redirected batch costs another
    /// round trip.
    #[cold]
    fn redirected(&mut self, connection: &mut Connection, redirected: u32, now_ns: u64) {
        let commands = connection.counts.commands - connection.counts.setup_commands;
        let made = commands.saturating_sub(connection.counts.redirects_recorded);
        connection.counts.redirected += u64::from(redirected);
        connection.counts.redirects_recorded = commands;
        let lost_ns = if redirected > 0 { connection.round_trip.usual_ns() } else { 0 };
        let needed = made.saturating_sub(redirected.into());
        let steps = Steps::default();
        let sighting =
            Sighting { made, needed, lost_ns, ..sighting(Kind::RedirectedCommands, steps, connection.id, now_ns) };
        self.record(connection, &sighting);
    }

    /// Records the commands behind the last redirected one of a connection.
    fn end_redirects(&mut self, connection: &mut Connection, now_ns: u64) {
        let counts = connection.counts;
        if counts.redirected > 0 && counts.commands - counts.setup_commands > counts.redirects_recorded {
            self.redirected(connection, 0, now_ns);
        }
    }

    /// Records that the replies to `commands` commands, `bytes` in all, were spilled to disk because the client did not
    /// read them.
    pub fn spilled(&mut self, connection: &mut Connection, commands: u64, bytes: u64, now_ns: u64) {
        let shape = connection.last.as_ref().map_or(0, |last| last.pipeline);
        let sighting = Sighting {
            made: commands,
            needed: commands,
            bytes,
            ..sighting(Kind::TooLongPipeline, Steps::one(shape, false), connection.id, now_ns)
        };
        self.record(connection, &sighting);
    }

    /// Ends the connection's unit of work, because the connection is closed or no longer watched.
    pub fn closed(&mut self, connection: &mut Connection, now_ns: u64) {
        self.end_unit(connection, now_ns);
        self.short_life(connection, now_ns);
    }

    /// Records the unfinished work of a connection that has been silent for longer than a round trip takes. A silence
    /// that is longer than a short pause also ends the unit of work.
    pub fn settle(&mut self, connection: &mut Connection, now_ns: u64) {
        match connection.silent_ns(now_ns) {
            None => {}
            Some(silent_ns) if silent_ns > SHORT_PAUSE_NS => self.look_back(connection, now_ns, |watch| watch.rest()),
            Some(_) => self.look_back(connection, now_ns, |watch| watch.report()),
        }
    }

    /// Ends the unit of work: records the unfinished loop, and the next command begins a new unit.
    pub fn end_unit(&mut self, connection: &mut Connection, now_ns: u64) {
        self.end_redirects(connection, now_ns);
        self.look_back(connection, now_ns, |watch| watch.end());
    }

    /// Looks at a connection's work so far, without a new trip.
    fn look_back(&mut self, connection: &mut Connection, now_ns: u64, look: impl FnOnce(&mut Watch<'_, '_>)) {
        let Some(mut last) = connection.last.take() else { return };
        let command = resp::request::ArgsBuffer::default();
        let trip = Trip {
            command: command.args(),
            key: None,
            depth: 0,
            overlaps: false,
            // The work so far has ended with the last reply.
            arrived_ns: connection.replied_ns.map_or(now_ns, |replied_ns| replied_ns.min(now_ns)),
            replied_ns: now_ns,
            reply: None,
            redirected: 0,
        };
        look(&mut Watch { advisor: self, connection, last: &mut last, trip: &trip, takes_turns: false });
        connection.last = Some(last);
    }

    fn record(&mut self, connection: &Connection, sighting: &Sighting<'_>) {
        lock(&self.findings).record(&self.shapes, &connection.client, connection.client_hash, sighting);
    }

    /// Records a connection that was made for a command or two.
    fn short_life(&mut self, connection: &mut Connection, now_ns: u64) {
        let counts = connection.counts;
        let commands = counts.commands - counts.setup_commands;
        if connection.opened_ns.take().is_none() || commands == 0 || commands > FEW_COMMANDS {
            return;
        }
        // Connecting takes a round trip, too.
        let needed = counts.batches - counts.setup;
        let ended_ns = connection.replied_ns.unwrap_or(now_ns);
        // A pool keeps connections that it rarely needs.
        let is_kept = now_ns.saturating_sub(ended_ns) > SHORT_PAUSE_NS;
        let sighting = Sighting {
            made: counts.batches + 1,
            needed,
            confidence: if is_kept || connection.is_of_log { Confidence::Medium } else { Confidence::High },
            lost_ns: counts.setup_ns + connection.round_trip.network_ns(),
            ..sighting(Kind::ConnectionPerCommand, Steps::one(counts.first_shape, false), connection.id, ended_ns)
        };
        self.record(connection, &sighting);
    }

    /// Returns the hash of a command's shape, and its frame. Learns the shape if it is new.
    #[inline]
    fn shape(&mut self, command: &Args<'_>, found: &Found, key: &[u8]) -> (u64, u32) {
        let seed = self.config.seed;
        let has_options = has_options(command, found);
        let shape = mix(self.words.pattern(seed, key), found.hash ^ u64::from(has_options));
        match self.shapes.touch(shape) {
            Some(frame) => (shape, frame),
            None => self.learn(command, found, key),
        }
    }

    #[cold]
    fn learn(&mut self, command: &Args<'_>, found: &Found, key: &[u8]) -> (u64, u32) {
        let seed = self.config.seed;
        self.words.learn_key(seed, key);
        let has_options = has_options(command, found);
        let shape = mix(self.words.pattern(seed, key), found.hash ^ u64::from(has_options));
        if let Some(frame) = self.shapes.touch(shape) {
            return (shape, frame);
        }
        let frame = mix(self.words.structure(seed, key), found.hash ^ u64::from(has_options)) as u32;
        let name = match found.verb.name {
            _ if has_options => SET_WITH_OPTIONS.as_bytes(),
            "" => command.get(0),
            name => name.as_bytes(),
        };
        self.shapes.insert(shape, frame, name, self.words.text(seed, key));
        (shape, frame)
    }
}

/// True for SET with options. MSET takes no options, so such a SET counts as a different command.
#[inline]
fn has_options(command: &Args<'_>, found: &Found) -> bool {
    command.len() > 3 && found.verb.name == "SET"
}

/// True for SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE.
fn is_subscription(name: &[u8]) -> bool {
    [b"SUBSCRIBE".as_slice(), b"PSUBSCRIBE", b"SSUBSCRIBE"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    // A panic under this lock leaves the data consistent.
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a batch of a login.
fn setup(connection: &mut Connection, trip: &Trip<'_>) {
    let gap_ns = match connection.after_connecting_ns(trip.arrived_ns) {
        Some(gap_ns) => gap_ns,
        None if trip.overlaps => 0,
        None => connection.login_gap_ns(trip.arrived_ns),
    };
    connection.replied_ns = Some(trip.replied_ns);
    let counts = &mut connection.counts;
    counts.batches += 1;
    counts.commands += u64::from(trip.depth);
    counts.setup += 1;
    counts.setup_commands += u64::from(trip.depth);
    counts.setup_ns += gap_ns.min(connection.round_trip.longest_ns());
}

/// Returns a sighting without numbers.
fn sighting(kind: Kind, steps: Steps, connection: u64, now_ns: u64) -> Sighting<'static> {
    Sighting {
        kind,
        steps,
        after: None,
        made: 0,
        needed: 0,
        lost_ns: 0,
        bytes: 0,
        busy_ns: 0,
        after_ns: 0,
        confidence: Confidence::High,
        is_known: true,
        connection,
        now_ns,
        sample: b"",
    }
}

/// The view of one trip with its connection.
struct Watch<'w, 't> {
    advisor: &'w mut Advisor,
    connection: &'w mut Connection,
    last: &'w mut Last,
    trip: &'w Trip<'t>,
    /// True if another connection of the client has sent commands since the last trip.
    takes_turns: bool,
}

impl<'t> Watch<'_, 't> {
    /// Handles a batch of several commands, which ends the runs of single commands.
    fn several(&mut self, found: Found, gap: Gap) {
        if self.begins_pipeline() || self.connection.counts.first_shape == 0 {
            let (_, key) = key(self.trip, &found);
            (self.last.pipeline, _) = self.advisor.shape(&self.trip.command, &found, key);
        }
        let shape = self.last.pipeline;
        // A batch that follows single commands of the same shape at once is the rest of a pipeline that came in parts.
        let frame = self.advisor.shapes.touch(shape).unwrap_or_default();
        let is_rest = !matches!(gap, Gap::Pause(_)) && self.last.loops.ago(1).is_some_and(|trip| trip.shape == shape);
        let writes_singly = is_rest || self.is_slow_start(gap, shape);
        if writes_singly {
            self.last.loops.abandon(shape);
        }
        let trips_since_multi = std::mem::take(&mut self.last.transaction).trips;
        if trips_since_multi > 0 || found.verb.class == Class::Multi {
            self.note_pipelined_transaction();
        }
        // Behind MULTI alone, or with the next commands, the rest of a transaction follows.
        let is_behind_multi = trips_since_multi == 1;
        let is_part = trips_since_multi > 0 || self.part_of_batch(frame, gap) == Some(Part::Rest);
        let continues = matches!(gap, Gap::Overlap) || is_rest || is_part;
        if !continues && found.verb.class == Class::Write && self.trip.depth <= OPTIMISTIC_MAX {
            self.count_in_transaction(&found, gap, shape);
        }
        self.end_loops(Reads::end);
        if is_behind_multi {
            self.last.batches.rename((shape, frame));
        }
        self.batch(gap, (shape, frame), self.trip.depth, continues);
        let trips = if writes_singly { UNWAITED_SINGLY_TRIPS } else { UNWAITED_TRIPS };
        self.last.unwaited.remember(shape, self.last.trip.saturating_add(trips));
        if self.connection.counts.first_shape == 0 {
            self.connection.counts.first_shape = self.last.pipeline;
        }
    }

    /// True if a process that has just started sends a pipeline in parts: it loads its code meanwhile, so that pauses come between the parts,
    /// and a part of one command looks like a trip.
    fn is_slow_start(&self, gap: Gap, shape: u64) -> bool {
        let is_short = matches!(gap, Gap::Pause(pause_ns) if pause_ns <= SHORT_PAUSE_NS);
        let is_next = |trip: &LoopTrip| trip.shape == shape;
        is_short
            && self.connection.counts.commands <= START_COMMANDS
            && self.last.loops.ago_over_pauses(1).is_some_and(is_next)
    }

    /// True if the client had all replies before it sent this batch. An overlapping batch continues the previous
    /// pipeline.
    fn begins_pipeline(&self) -> bool {
        !self.trip.overlaps || self.last.pipeline == 0
    }

    /// Handles a batch of one command.
    #[inline]
    fn single(&mut self, found: Found, gap: Gap) {
        self.last.trip = self.last.trip.wrapping_add(1);
        let mut seen = self.reduce(found, gap);
        // EXEC alone waits for the other commands of its transaction.
        let may_be_part = self.last.transaction.trips == 0 && found.verb.class != Class::Exec;
        let part = self.part_of_batch(seen.frame, gap).filter(|_| may_be_part);
        let is_of_transaction = self.last.transaction.trips > 0 && self.last.pipelines_transactions;
        let is_pipelined = self.is_pipelined(&seen, gap) || part.is_some() || is_of_transaction;
        if is_pipelined || matches!(found.verb.class, Class::Multi) {
            let begins = part == Some(Part::First);
            self.batch(gap, (seen.shape, seen.frame), 1, is_pipelined && !begins);
            self.last.batches.note_part(begins);
        } else if let (Class::Exec, 0, Gap::RoundTrip(gap_ns)) = (found.verb.class, self.last.transaction.trips, gap) {
            self.last.batches.execute(gap_ns);
        } else if !self.last.batches.is_empty() && self.last.transaction.trips == 0 {
            self.tell_batches(Batches::end);
        }
        if is_pipelined {
            if self.last.transaction.trips == 1 {
                self.last.batches.rename((seen.shape, seen.frame));
            }
            self.last.transaction.is_pipelined = true;
            if self.last.transaction.trips > 0 {
                self.note_pipelined_transaction();
            }
            self.last.loops.abandon(seen.shape);
            self.end_loops(Reads::end);
        } else if self.is_held_up(&seen, gap) {
            // The loop continues in spite of the pause; the usual round trip is counted in its place.
            (seen.gap_ns, seen.is_paced, seen.is_after_pause) = (self.connection.round_trip.usual_ns(), false, false);
        } else if matches!(gap, Gap::Pause(pause_ns) if pause_ns <= SHORT_PAUSE_NS) {
            self.pause(&seen);
        } else if matches!(gap, Gap::Pause(_)) {
            self.rest();
        } else if !matches!(gap, Gap::RoundTrip(_)) {
            self.end();
        }
        if let Gap::Pause(_) = gap {
            self.last.calm_since = self.last.trip;
        }
        (self.last.is_fresh, self.last.rests) = (false, false);
        if self.advisor.config.samples {
            self.last.samples.take(seen.shape, seen.key, self.last.trip);
        }
        if self.connection.counts.first_shape == 0 {
            self.connection.counts.first_shape = seen.shape;
            self.connection.counts.setup_ns += seen.gap_ns;
        }
        match found.verb.class {
            Class::Read | Class::Write | Class::Pop | Class::Other if self.last.transaction.trips == 0 => {
                self.usual(&seen)
            }
            Class::ScriptText => {
                self.script(&seen);
                self.usual(&seen);
            }
            Class::Multi => self.begin_transaction(is_pipelined),
            Class::Exec => self.end_transaction(&seen),
            Class::Wait if self.takes_one() => {
                let asks = self.asks_for_new();
                seen.found.verb = if asks { &catalogue::ASKS_FOR_NEW } else { &catalogue::TAKES_ONE };
                self.usual(&seen);
            }
            Class::Wait if self.asks_for_new() => {
                seen.found.verb = &catalogue::ASKS_FOR_NEW;
                self.end();
                self.poll(&seen);
            }
            Class::Setup | Class::Wait => {
                if is_subscription(self.trip.command.get(0)) {
                    // Messages come on a connection of their own, for any number of commands.
                    self.connection.opened_ns = None;
                }
                self.end();
            }
            Class::Read | Class::Write | Class::Pop | Class::Other => self.continue_transaction(&seen),
        }
        if self.begins_pipeline() {
            self.last.pipeline = seen.shape;
        }
    }

    /// True if the client sent this command without waiting, or recently sent the same shape without waiting. Some
    /// clients write the commands of a pipeline one by one, and a fast server answers each before the next one arrives.
    #[inline]
    fn is_pipelined(&mut self, seen: &Seen<'_>, gap: Gap) -> bool {
        if matches!(gap, Gap::Overlap) {
            self.last.unwaited.remember(seen.shape, self.last.trip.saturating_add(UNWAITED_SINGLY_TRIPS));
        }
        self.last.unwaited.has(seen.shape, self.last.trip)
    }

    /// Returns the role of the trip's commands in a batch that comes in parts.
    fn part_of_batch(&self, frame: u32, gap: Gap) -> Option<Part> {
        let waits = matches!(gap, Gap::RoundTrip(_)) && !self.last.batches.is_empty();
        waits.then(|| self.last.batches.part(frame, self.trip.depth)).flatten()
    }

    /// Adds a batch to the row of small batches, or the rest of a batch.
    fn batch(&mut self, gap: Gap, shape: (u64, u32), depth: u32, continues: bool) {
        let gap_ns = match gap {
            Gap::Pause(pause_ns) if !(self.is_busy() && pause_ns <= HELD_UP_NS_MAX) => {
                self.tell_batches(Batches::end);
                0
            }
            _ if continues => return self.last.batches.extend(depth),
            Gap::RoundTrip(gap_ns) => gap_ns + self.last.served_ns.min(gap_ns),
            Gap::First | Gap::Overlap | Gap::Pause(_) => {
                self.tell_batches(Batches::end);
                0
            }
        };
        self.tell_batches(|batches, tell| batches.begin(shape, depth, gap_ns, tell));
    }

    /// Runs `look` on the small batches and records the rows that it reports.
    fn tell_batches(&mut self, look: impl FnOnce(&mut Batches, &mut dyn FnMut(SmallBatches))) {
        // A log shows no network, so requests of web clients look like a loop.
        let confidence = if self.connection.is_of_log { Confidence::Low } else { Confidence::Medium };
        let told = &mut self.advisor.told_batches;
        look(&mut self.last.batches, &mut |batches| told.push(batches));
        while let Some(batches) = self.advisor.told_batches.pop() {
            let shape = self.batches_shape(&batches);
            self.record(Sighting {
                made: batches.made,
                needed: batches.needed,
                lost_ns: batches.lost_ns,
                confidence,
                ..self.sighting(Kind::SmallPipelines, Steps::one(shape, false))
            });
        }
    }

    /// Handles a short pause. A loop that continues after it does not end, but gets a new part. On a busy machine the pauses of a whole loop
    /// tell later if the client chose them. Reads, and the pairs of a
    /// read and a write, go on: they are a matter of order.
    fn pause(&mut self, seen: &Seen<'_>) {
        self.last.reads.pause();
        if !self.is_busy()
            && !self.last.loops.goes_on_with(seen.shape, seen.frame)
            && let Some(ended) = self.last.loops.pause()
        {
            self.loop_ended(&ended);
        }
    }

    /// True if threads of the machine waited for cores in the last second.
    fn is_busy(&self) -> bool {
        self.trip.arrived_ns < self.advisor.busy_until_ns
    }

    /// True if the client did not choose this pause: the pause is short, the connection has rarely paused before, and
    /// the loop continues after it. On a busy machine the client's thread sometimes waits for a core.
    #[inline]
    fn is_held_up(&self, seen: &Seen<'_>, gap: Gap) -> bool {
        matches!(gap, Gap::Pause(pause_ns) if pause_ns <= HELD_UP_NS_MAX)
            && self.last.trip.wrapping_sub(self.last.calm_since) >= CALM_TRIPS_MIN
            && self.last.loops.goes_on_with(seen.shape, seen.frame)
    }

    /// Handles a command outside transactions and logins.
    #[inline]
    fn usual(&mut self, seen: &Seen<'_>) {
        let class = seen.found.verb.class;
        if seen.has(catalogue::HEAVY | catalogue::ALL_KEYS) {
            self.heavy(seen);
        }
        let is_lock = self.is_lock(seen);
        if is_lock {
            self.tell(Reads::locks);
        }
        if seen.has(catalogue::POLLED) || is_lock {
            self.poll(seen);
        } else if class == Class::Write {
            self.last.polls.written(seen.key_hash);
        }
        match class {
            Class::Read => self.read(seen),
            Class::Write | Class::Pop => self.tell(|reads, tell| reads.written(seen.key_hash, tell)),
            _ => self.tell(|reads, tell| reads.written_all(tell)),
        }
        if self.last.loops.breaks(seen.shape, seen.frame) {
            self.tell(|reads, tell| reads.settle(tell));
        }
        let is_paired = class == Class::Write && self.is_paired(seen);
        let source = if self.last.loops.is_running() { self.weigh(seen) } else { Source::default() };
        let trip = LoopTrip {
            shape: seen.shape,
            frame: seen.frame,
            key: seen.key_hash,
            gap_ns: seen.gap_ns,
            is_paced: seen.is_after_pause,
            may_be_held_up: seen.is_after_pause && self.is_busy(),
            takes_turns: self.takes_turns,
            // A script may read and write anything, so its effect is unknown.
            class: if class == Class::ScriptText { Class::Other } else { class },
            name: seen.found.hash as u16,
            origin: self.distance(&seen.origin),
            source,
            is_document: seen.answer.is_document,
            is_range: seen.has(catalogue::RANGE),
            has_keys: seen.has(catalogue::KEYS) && self.trip.command.len() > 2,
            is_known: self.trip.reply.is_some(),
            is_empty: seen.answer.is_empty,
            is_paired,
        };
        let goes_on = self.last.loops.goes_on_with(seen.shape, seen.frame);
        if let Some(ended) = self.last.loops.push(trip) {
            self.loop_ended(&ended);
        }
        if !goes_on && self.last.loops.is_running() {
            let (frames, trips) = self.last.loops.identity();
            self.last.words.begin(frames, self.last.trip.wrapping_sub(trips));
        }
        if self.last.loops.is_merged() {
            self.merged(seen);
        }
    }

    /// Weighs the evidence of a trip that continues a loop. Returns the reply that its new words come from.
    fn weigh(&mut self, seen: &Seen<'_>) -> Source {
        let trip = self.last.trip;
        let Last { loops, words, .. } = &mut *self.last;
        let period = loops.period();
        let Some(evidence) = loops.evidence(seen.shape, seen.frame) else { return Source::default() };
        let command = Command::of(self.trip.command.from(1).take(ARGUMENTS_MAX));
        let read = (seen.found.verb.class == Class::Read).then_some(seen.key);
        let source = evidence.compare(&command, read, words, (trip, period));
        if let Some(reply) = &self.trip.reply {
            // The count that a write returns tells nothing, unless its words stand in a later command.
            let is_count = seen.found.verb.class == Class::Write && reply.start.first() == Some(&b':');
            let is_silent = is_count || seen.answer.is_empty || seen.answer.is_status;
            let may_choose = read.is_some() && !evidence.is_predictable();
            let binary = may_choose.then(|| evidence.may_be_binary());
            let is_whole = words.learn(reply.start, reply.len, trip, &command, binary);
            if reply.start.len() as u64 == reply.len
                && let Some(like) = words.digest_of(seen.key, evidence.compared)
            {
                words.learn_digests(reply.start, like, trip);
            }
            let is_array = reply.start.first() == Some(&b'*');
            evidence.measured(reply.text_len(), reply.number());
            evidence.answered(seen.answer.hash, is_silent, is_whole, is_array);
        }
        source
    }

    /// Returns how many trips ago the server sent the reply that an argument repeats. Returns 0 if no reply matches, or
    /// if the only match is weak (a short reply that may be equal by chance) and equals the last weak match.
    #[inline]
    fn distance(&mut self, origin: &Origin) -> u8 {
        match origin.evidence {
            Evidence::None => return 0,
            Evidence::Weak if std::mem::replace(&mut self.last.last_weak, origin.payload) == origin.payload => {
                return 0;
            }
            Evidence::Weak | Evidence::Strong => {}
        }
        u8::try_from(origin.distance).unwrap_or(0)
    }

    /// Handles a read: checks whether it repeats an earlier one.
    #[inline]
    fn read(&mut self, seen: &Seen<'_>) {
        // If pauses can't be told from a slow network, the client may wait for a change.
        let may_wait = seen.is_paced && !seen.is_after_pause;
        if seen.key.is_empty() || seen.has(catalogue::POLLED) && may_wait {
            return;
        }
        let asked = Asked {
            command: seen.found.hash,
            shape: seen.shape,
            key: seen.key_hash,
            arguments: seen.arguments,
            reply: seen.answer.hash,
            is_empty: seen.answer.is_empty,
            is_trivial: seen.answer.is_trivial,
            gap_ns: self.lost_ns(seen),
            is_paced: seen.is_paced,
        };
        let is_of_member = seen.has(catalogue::MEMBER);
        self.tell(|reads, tell| {
            if !reads.single(&asked, tell) && is_of_member {
                reads.member(&asked, tell);
            }
        });
        if is_of_member {
            self.settle_pair();
        }
    }

    /// The time that the client loses with this trip. Without the trip, a pause before it would be shorter by the network's
    /// part only.
    #[inline]
    fn lost_ns(&self, seen: &Seen<'_>) -> u64 {
        if seen.is_after_pause { self.connection.round_trip.network_ns() } else { seen.gap_ns }
    }

    /// Runs `look` on the recent reads and records the repetitions that it reports.
    #[inline]
    fn tell(&mut self, look: impl FnOnce(&mut Reads, &mut dyn FnMut(Repeated))) {
        let told = &mut self.advisor.told;
        look(&mut self.last.reads, &mut |repeated| told.push(repeated));
        while let Some(repeated) = self.advisor.told.pop() {
            self.repeated(&repeated);
        }
    }

    fn repeated(&mut self, repeated: &Repeated) {
        if self.is_framework(repeated) {
            return;
        }
        self.last.loops.spare(repeated.made - repeated.needed, repeated.gaps_ns);
        let confidence = match (repeated.is_known, repeated.is_certain) {
            (false, _) => Confidence::Low,
            (true, false) => Confidence::Medium,
            (true, true) => Confidence::High,
        };
        self.record(Sighting {
            made: repeated.made,
            needed: repeated.needed,
            lost_ns: repeated.gaps_ns,
            confidence,
            is_known: repeated.is_known,
            ..self.sighting(Kind::RepeatedRead, Steps::one(repeated.shape, repeated.one_key))
        });
    }

    /// Handles a command that may have a large reply, or that goes through all keys.
    fn heavy(&mut self, seen: &Seen<'_>) {
        let bytes = self.trip.reply.map_or(0, |reply| reply.len);
        let busy_ns = self.trip.replied_ns.saturating_sub(self.trip.arrived_ns);
        let is_long = busy_ns >= LONG_NS && bytes >= SMALL_BYTES;
        if seen.has(catalogue::ALL_KEYS) || bytes >= LARGE_BYTES || is_long {
            self.record(Sighting {
                made: 1,
                needed: 1,
                bytes,
                busy_ns,
                ..self.sighting(Kind::HeavyCommand, Steps::one(seen.shape, false))
            });
        }
    }

    fn begin_transaction(&mut self, is_pipelined: bool) {
        self.end_loops(Reads::end);
        self.last.transaction = Transaction { trips: 1, is_pipelined, ..Transaction::default() };
    }

    fn continue_transaction(&mut self, seen: &Seen<'_>) {
        let transaction = &mut self.last.transaction;
        if transaction.trips == 1 {
            transaction.shape = seen.shape;
        }
        transaction.trips += 1;
        transaction.gaps_ns += seen.gap_ns;
    }

    fn end_transaction(&mut self, seen: &Seen<'_>) {
        let transaction = std::mem::take(&mut self.last.transaction);
        if transaction.trips < 2 || transaction.is_pipelined || self.last.pipelines_transactions {
            return;
        }
        self.tell_batches(Batches::end);
        self.record(Sighting {
            made: u64::from(transaction.trips) + 1,
            needed: 1,
            lost_ns: transaction.gaps_ns + seen.gap_ns,
            ..self.sighting(Kind::TransactionInSlices, Steps::one(transaction.shape, false))
        });
    }

    fn loop_ended(&mut self, ended: &Ended) {
        let kind = if ended.steps.len == 1 { Kind::Loop } else { Kind::InterleavedLoop };
        // On a fast network, replies can be on their way before the next command of a pipeline comes.
        let pipelines = ended.steps.iter().any(|(shape, _)| self.last.unwaited.knows(shape));
        let confidence = match ended.is_proven && !ended.may_depend {
            _ if pipelines || ended.may_be_derived => Confidence::Low,
            true => Confidence::High,
            false => Confidence::Medium,
        };
        self.record(Sighting {
            after: ended.after.map(|(shape, _)| shape),
            after_ns: ended.after.map_or(0, |(_, gap_ns)| gap_ns),
            made: ended.made,
            needed: ended.needed,
            lost_ns: ended.lost_ns,
            confidence,
            is_known: ended.is_known,
            ..self.sighting(kind, ended.steps.distinct())
        });
    }

    /// Records the work so far, which continues.
    fn report(&mut self) {
        self.tell(|reads, tell| reads.settle(tell));
        self.tell_batches(Batches::end);
        if let Some(ended) = self.last.loops.cut() {
            self.loop_ended(&ended);
        }
    }

    /// Ends all runs because of a long pause. The reads of members, and the pairs of a read and a write, go on: they are a
    /// matter of order.
    fn rest(&mut self) {
        if std::mem::replace(&mut self.last.rests, true) {
            return;
        }
        self.tell_batches(Batches::end);
        self.settle_pair();
        self.tell(Reads::rest);
        if let Some(ended) = self.last.loops.rest() {
            self.loop_ended(&ended);
        }
    }

    /// Ends all runs, because of a command of another kind.
    fn end(&mut self) {
        self.tell_batches(Batches::end);
        self.end_loops(Reads::end);
    }

    /// Ends all runs, and the reads by `end_reads`.
    fn end_loops(&mut self, end_reads: fn(&mut Reads, &mut dyn FnMut(Repeated))) {
        if std::mem::replace(&mut self.last.is_fresh, true) {
            return;
        }
        self.settle_pair();
        self.tell(end_reads);
        if let Some(ended) = self.last.loops.end() {
            self.loop_ended(&ended);
        }
    }

    fn sighting(&self, kind: Kind, steps: Steps) -> Sighting<'static> {
        let is_known = self.trip.reply.is_some();
        Sighting { is_known, ..sighting(kind, steps, self.connection.id, self.trip.arrived_ns) }
    }

    /// Adds a sighting to the findings. Its confidence is low if it counts gaps and the round trip is unknown.
    fn record(&mut self, mut sighting: Sighting<'_>) {
        if self.connection.round_trip.is_unsure() && sighting.kind.is_about_trips() {
            sighting.confidence = Confidence::Low;
        }
        sighting.confidence = self.confidence(&sighting);
        if self.connection.is_of_log {
            sighting.confidence = sighting.confidence.min(Confidence::Medium);
        }
        let sighting = Sighting { sample: self.last.samples.of(&sighting.steps), ..sighting };
        self.advisor.record(self.connection, &sighting);
    }

    /// Reduces a command and its reply to hashes.
    #[inline]
    fn reduce(&mut self, found: Found, gap: Gap) -> Seen<'t> {
        let command = self.trip.command;
        let seed = self.advisor.config.seed;
        let (key_index, key) = key(self.trip, &found);
        let (shape, frame) = self.advisor.shape(&command, &found, key);
        let (arguments, origin) = self.arguments(&command, key_index, seed);
        let answer = match &self.trip.reply {
            Some(reply) => self.last.recent.learn(reply.start, reply.len, self.last.trip, seed),
            None => Answer::default(),
        };
        // The service time of the previous trip is saved as well when the trip is saved.
        let whole_ns = |gap_ns: u64| gap_ns + self.last.served_ns.min(gap_ns);
        let gap_ns = if let Gap::RoundTrip(gap_ns) = gap { whole_ns(gap_ns) } else { 0 };
        let is_after_pause = matches!(gap, Gap::Pause(_));
        let is_paced = is_after_pause || self.connection.round_trip.is_unsure();
        let key_hash = hash::argument(seed, key);
        Seen { found, shape, frame, key, key_hash, arguments, origin, answer, gap_ns, is_paced, is_after_pause }
    }

    /// Returns the hash of all arguments but the key, and the reply that one of them repeats.
    #[inline]
    fn arguments(&self, command: &Args<'_>, key: usize, seed: u64) -> (u64, Origin) {
        let (mut all, mut origin) = (0, Origin::default());
        for (index, argument) in command.from(1).enumerate().take(ARGUMENTS_MAX) {
            let mut hash = hash::argument(seed, argument);
            if index + 1 != key {
                all = mix(all, hash);
            } else if let Some(end) = argument.iter().rposition(|&byte| byte == b':') {
                // The last part of a key may repeat a reply, too.
                hash = hash::argument(seed, argument.get(end + 1..).unwrap_or_default());
            }
            let found = self.last.recent.origin(hash, self.last.trip);
            if found.evidence > origin.evidence {
                origin = found;
            }
        }
        for argument in command.from(1 + ARGUMENTS_MAX).take(ARGUMENTS_MAX) {
            all = mix(all, hash::argument(seed, argument));
        }
        (mix(all, command.len() as u64), origin)
    }
}

/// Returns a command's first key and its index; an empty key and 0 if it has none. The channel of PUBLISH counts as a key here, but not
/// for the server.
#[inline]
fn key<'a>(trip: &Trip<'a>, found: &Found) -> (usize, &'a [u8]) {
    let index = match (trip.key.filter(|index| *index > 0), found.verb.key) {
        (Some(index), _) => index,
        // Argument 2 of a script command is the number of keys.
        (None, 3) if trip.command.get(2) == b"0" => 0,
        (None, 0) if found.verb.traits & catalogue::STREAMS != 0 => streams::first_key(trip),
        (None, index) => index,
    };
    (index.into(), if index == 0 { b"" } else { decoded(trip.command.get(index.into())) })
}
