//! One trip after the other: what each adds to the findings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resp::request::Args;

use crate::catalogue::{self, Catalogue, Class, Found, SET_WITH_OPTIONS};
use crate::connection::{Connection, Last, Pair, Transaction};
use crate::findings::{Confidence, Findings, Kind, Sighting};
use crate::hash::{self, mix};
use crate::loops::{Ended, LoopTrip, PERIOD_MAX, Steps};
use crate::pattern::Words;
use crate::polls::Answered;
use crate::reads::{Asked, Reads, Repeated, Repetition};
use crate::recent::{Answer, Evidence, Origin};
use crate::round_trip::Gap;
use crate::shapes::Shapes;
use crate::trip::Trip;

/// What the advisor may use and keep.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of memory for shapes and findings; a fixed table of words of 64 KB is beside them, and the connections
    /// ([`Connection::MEMORY_BYTES`]).
    pub memory_bytes: usize,
    /// True if a few keys of each finding are kept as samples.
    pub samples: bool,
    /// Chosen at random once for all threads, so that clients can't make hashes collide.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { memory_bytes: 16 << 20, samples: true, seed: 0 }
    }
}

/// A value of this size is large, in bytes of its reply.
const LARGE_BYTES: u64 = 64 * 1024;
/// A command that takes so long keeps others waiting, if its reply isn't small: otherwise the machine was busy.
const LONG_NS: u64 = 5_000_000;
/// A smaller reply takes no time by itself.
const SMALL_BYTES: u64 = 4096;
/// A connection with no more commands was made for them.
const FEW_COMMANDS: u64 = 2;
/// Arguments beyond these are hashed together with them, but not looked for in replies.
const ARGUMENTS_MAX: usize = 8;
/// A read and the write that repeats it are a pair if there are no more trips between.
const PAIR_DISTANCE_MAX: u32 = 4;

/// Trips for which a shape that was sent without waiting counts as part of a pipeline: some pipelines' lengths, and few beside a loop that is
/// worth telling.
const UNWAITED_TRIPS: u32 = 32;

/// A thread that waits for a core has it after so long: the slice that the kernel gives another one, and its delay.
const HELD_UP_NS_MAX: u64 = 5_000_000;
/// A client that pauses more often than once in so many trips may do so by itself: two rounds of the longest loop.
const CALM_TRIPS_MIN: u32 = 2 * PERIOD_MAX as u32;

/// Finds wasted trips. It is one thread's: each has its own, and the findings are merged when they are listed.
#[derive(Debug)]
pub struct Advisor {
    config: Config,
    catalogue: Catalogue,
    words: Words,
    shapes: Shapes,
    /// Other threads look at them; this one alone adds to them.
    findings: Arc<Mutex<Findings>>,
    /// Reads that the current trip told of, in memory that is used again.
    told: Vec<Repeated>,
}

/// A command in a batch of its own, reduced to hashes.
struct Seen<'a> {
    found: Found,
    shape: u64,
    key: &'a [u8],
    key_hash: u64,
    /// The hash of the arguments behind the key.
    arguments: u64,
    /// Where one of them came from.
    origin: Origin,
    answer: Answer,
    /// The gap before it, if that looked like a round trip; otherwise 0.
    gap_ns: u64,
    /// True if the client waited before it, or may have.
    is_paced: bool,
}

impl Seen<'_> {
    fn has(&self, traits: u8) -> bool {
        self.found.verb.traits & traits != 0
    }
}

impl Advisor {
    /// An advisor that has seen nothing.
    #[must_use]
    pub fn new(config: Config) -> Advisor {
        Advisor::with_findings(config, Arc::new(Mutex::new(Findings::new(0))))
    }

    /// An advisor that adds to these findings, which get the limit of the configuration.
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
        }
    }

    /// What was found. What a connection is in the midst of is told at the latest after a thousand trips.
    pub fn findings(&self) -> MutexGuard<'_, Findings> {
        lock(&self.findings)
    }

    /// Shapes that are known now, and those that had to make room.
    #[must_use]
    pub fn shapes(&self) -> (usize, u64) {
        (self.shapes.len(), self.shapes.dropped())
    }

    /// Looks at a trip.
    #[inline]
    pub fn trip(&mut self, connection: &mut Connection, trip: &Trip<'_>) {
        let gap = if trip.overlaps { Gap::Overlap } else { connection.gap(trip.arrived_ns) };
        connection.replied_ns = Some(trip.replied_ns);
        connection.counts.batches += 1;
        connection.counts.commands += u64::from(trip.depth);
        let found = self.catalogue.find(trip.command.get(0));
        if found.verb.class == Class::Setup && connection.counts.batches == connection.counts.setup + 1 {
            return setup(connection, gap, trip.depth);
        }
        let mut last = connection.last.take().unwrap_or_default();
        let mut watch = Watch { advisor: self, connection, last: &mut last, trip };
        if trip.depth == 1 {
            watch.single(found, gap)
        } else {
            watch.several(found)
        }
        last.served_ns = trip.replied_ns.saturating_sub(trip.arrived_ns);
        connection.last = Some(last);
    }

    /// The replies to a batch went to disk, as the client didn't read them: so many bytes of so many commands.
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

    /// The connection is closed, or nothing more is known of it.
    pub fn closed(&mut self, connection: &mut Connection, now_ns: u64) {
        self.end_unit(connection, now_ns);
        self.short_life(connection, now_ns);
    }

    /// Tells what the connection is in the midst of, if it has been silent for longer than a round trip takes: what it sends next
    /// begins something new.
    pub fn settle(&mut self, connection: &mut Connection, now_ns: u64) {
        if connection.is_silent(now_ns) {
            self.end_unit(connection, now_ns);
        }
    }

    /// Tells what the connection is in the midst of; what it sends next begins something new.
    pub fn end_unit(&mut self, connection: &mut Connection, now_ns: u64) {
        let Some(mut last) = connection.last.take() else { return };
        let command = resp::request::ArgsBuffer::default();
        let trip = Trip {
            command: command.args(),
            key: None,
            depth: 0,
            overlaps: false,
            arrived_ns: now_ns,
            replied_ns: now_ns,
            reply: None,
        };
        Watch { advisor: self, connection, last: &mut last, trip: &trip }.end();
        connection.last = Some(last);
    }

    fn record(&mut self, connection: &Connection, sighting: &Sighting<'_>) {
        lock(&self.findings).record(&self.shapes, &connection.client, connection.client_hash, sighting);
    }

    /// Counts a connection that was made for a command or two.
    fn short_life(&mut self, connection: &mut Connection, now_ns: u64) {
        let counts = connection.counts;
        let commands = counts.commands - counts.setup_commands;
        if connection.opened_ns.take().is_none() || commands == 0 || commands > FEW_COMMANDS {
            return;
        }
        // To connect is a trip, too.
        let needed = counts.batches - counts.setup;
        let sighting = Sighting {
            made: counts.batches + 1,
            needed,
            lost_ns: counts.setup_ns,
            ..sighting(Kind::ConnectionPerCommand, Steps::one(counts.first_shape, false), connection.id, now_ns)
        };
        self.record(connection, &sighting);
    }

    /// The hash of a command's shape. A shape that is new is learned.
    #[inline]
    fn shape(&mut self, command: &Args<'_>, found: &Found, key: &[u8]) -> u64 {
        let seed = self.config.seed;
        let has_options = has_options(command, found);
        let shape = mix(self.words.pattern(seed, key), found.hash ^ u64::from(has_options));
        if self.shapes.touch(shape) { shape } else { self.learn(command, found, key) }
    }

    #[cold]
    fn learn(&mut self, command: &Args<'_>, found: &Found, key: &[u8]) -> u64 {
        let seed = self.config.seed;
        self.words.learn_key(seed, key);
        let has_options = has_options(command, found);
        let shape = mix(self.words.pattern(seed, key), found.hash ^ u64::from(has_options));
        if !self.shapes.touch(shape) {
            let name = if has_options { SET_WITH_OPTIONS.as_bytes() } else { command.get(0) };
            self.shapes.insert(shape, name, self.words.text(seed, key));
        }
        shape
    }
}

/// True for SET with more than key and value: MSET knows no options, so it is another command here.
#[inline]
fn has_options(command: &Args<'_>, found: &Found) -> bool {
    command.len() > 3 && found.verb.name == "SET"
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    // What is behind this lock is always whole.
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command of a login.
fn setup(connection: &mut Connection, gap: Gap, depth: u32) {
    connection.counts.setup += 1;
    connection.counts.setup_commands += u64::from(depth);
    connection.round_trip.learn_from_login(gap);
    if let Gap::RoundTrip(gap_ns) = gap {
        connection.counts.setup_ns += gap_ns;
    }
}

/// A sighting of nothing yet.
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

/// A look at one trip.
struct Watch<'w, 't> {
    advisor: &'w mut Advisor,
    connection: &'w mut Connection,
    last: &'w mut Last,
    trip: &'w Trip<'t>,
}

impl<'t> Watch<'_, 't> {
    /// A batch of several commands: what was found of the trips before ends here.
    fn several(&mut self, found: Found) {
        self.end();
        self.last.transaction = Transaction::default();
        if self.begins_pipeline() || self.connection.counts.first_shape == 0 {
            let (_, key) = key(self.trip, &found);
            self.last.pipeline = self.advisor.shape(&self.trip.command, &found, key);
        }
        (self.last.unwaited, self.last.unwaited_trip) = (self.last.pipeline, self.last.trip);
        if self.connection.counts.first_shape == 0 {
            self.connection.counts.first_shape = self.last.pipeline;
        }
    }

    /// True if the client had all replies before it sent this batch. A batch that overlaps the one before goes on with its pipeline.
    fn begins_pipeline(&self) -> bool {
        !self.trip.overlaps || self.last.pipeline == 0
    }

    /// A batch of one.
    #[inline]
    fn single(&mut self, found: Found, gap: Gap) {
        self.last.trip = self.last.trip.wrapping_add(1);
        let mut seen = self.reduce(found, gap);
        if self.is_pipelined(&seen, gap) {
            self.end();
        } else if self.is_held_up(&seen, gap) {
            // The loop goes on. What the trip takes otherwise is known.
            (seen.gap_ns, seen.is_paced) = (self.connection.round_trip.low_ns(), false);
        } else if !matches!(gap, Gap::RoundTrip(_)) {
            self.end();
        }
        if let Gap::Pause(_) = gap {
            self.last.calm_since = self.last.trip;
        }
        self.last.is_fresh = false;
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
            Class::Multi => self.begin_transaction(),
            Class::Exec => self.end_transaction(&seen),
            Class::Setup | Class::Wait => self.end(),
            Class::Read | Class::Write | Class::Pop | Class::Other => self.continue_transaction(&seen),
        }
        if self.begins_pipeline() {
            self.last.pipeline = seen.shape;
        }
    }

    /// True if the client sent this without waiting, or sent the same shape so a moment ago: some clients write a pipeline's commands one by
    /// one, and a server that is quicker than they are has answered each before the next one comes.
    #[inline]
    fn is_pipelined(&mut self, seen: &Seen<'_>, gap: Gap) -> bool {
        if matches!(gap, Gap::Overlap) {
            (self.last.unwaited, self.last.unwaited_trip) = (seen.shape, self.last.trip);
        }
        self.last.unwaited == seen.shape && self.last.trip.wrapping_sub(self.last.unwaited_trip) <= UNWAITED_TRIPS
    }

    /// True if a pause is one that the client didn't choose: it is short, long none was before, and the loop goes on as if there had been
    /// none. On a busy machine the client's thread has to wait for a core now and then.
    #[inline]
    fn is_held_up(&self, seen: &Seen<'_>, gap: Gap) -> bool {
        matches!(gap, Gap::Pause(pause_ns) if pause_ns <= HELD_UP_NS_MAX)
            && self.last.trip.wrapping_sub(self.last.calm_since) >= CALM_TRIPS_MIN
            && self.last.loops.goes_on_with(seen.shape)
    }

    /// A command that is none of a transaction or a login.
    #[inline]
    fn usual(&mut self, seen: &Seen<'_>) {
        let class = seen.found.verb.class;
        if seen.has(catalogue::HEAVY | catalogue::ALL_KEYS) {
            self.heavy(seen);
        }
        if seen.has(catalogue::POLLED) {
            self.poll(seen);
        }
        match class {
            Class::Read => self.read(seen),
            Class::Write | Class::Pop => self.tell(|reads, tell| reads.written(seen.key_hash, tell)),
            _ => self.tell(|reads, tell| reads.written_all(tell)),
        }
        if self.last.loops.breaks(seen.shape) {
            self.tell(|reads, tell| reads.settle(tell));
        }
        let is_paired = class == Class::Write && self.is_paired(seen);
        let trip = LoopTrip {
            shape: seen.shape,
            key: seen.key_hash,
            gap_ns: seen.gap_ns,
            // A script may do anything, and so may its reply.
            class: if class == Class::ScriptText { Class::Other } else { class },
            origin: self.distance(&seen.origin),
            is_known: self.trip.reply.is_some(),
            is_empty: seen.answer.is_empty,
            is_paired,
        };
        if let Some(ended) = self.last.loops.push(trip) {
            self.loop_ended(&ended);
        }
    }

    /// How many trips ago the reply was that an argument repeats; 0 if none does, or only one that may be equal by chance: a short one,
    /// and the same as the last time.
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

    /// A read: was it made before?
    #[inline]
    fn read(&mut self, seen: &Seen<'_>) {
        if seen.key.is_empty() || seen.has(catalogue::POLLED) && seen.is_paced {
            return;
        }
        let asked = Asked {
            command: seen.found.hash,
            shape: seen.shape,
            key: seen.key_hash,
            arguments: seen.arguments,
            reply: seen.answer.hash,
            is_trivial: seen.answer.is_trivial,
            gap_ns: seen.gap_ns,
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

    /// Lets the reads tell of repetitions, and records those.
    #[inline]
    fn tell(&mut self, look: impl FnOnce(&mut Reads, &mut dyn FnMut(Repeated))) {
        let told = &mut self.advisor.told;
        look(&mut self.last.reads, &mut |repeated| told.push(repeated));
        while let Some(repeated) = self.advisor.told.pop() {
            self.repeated(&repeated);
        }
    }

    fn repeated(&mut self, repeated: &Repeated) {
        self.last.loops.spare(repeated.made - repeated.needed, repeated.gaps_ns);
        let confidence = match (repeated.is_known, repeated.is_trivial && !repeated.one_key) {
            (false, _) => Confidence::Low,
            (true, true) => Confidence::Medium,
            (true, false) => Confidence::High,
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

    /// True if this is the second of a pair: it writes what the client has just read of the same key, or deletes that. Records the
    /// pair, or waits with that until the next read tells that the answer was known before.
    #[inline]
    fn is_paired(&mut self, seen: &Seen<'_>) -> bool {
        let Some(read) = self.read_before(seen) else { return false };
        let pair = Pair { steps: Steps::pair(read, seen.shape), gap_ns: seen.gap_ns };
        match self.last.reads.repetition(read) {
            Repetition::Repeats => return false,
            Repetition::First => {
                self.settle_pair();
                self.last.pair = Some(pair);
                return false;
            }
            Repetition::None | Repetition::Differs => {}
        }
        self.pair(&pair);
        true
    }

    /// The shape of an earlier read of the command's key, if an argument of the command repeats that read's reply, or the command
    /// deletes the key directly after the read.
    #[inline]
    fn read_before(&self, seen: &Seen<'_>) -> Option<u64> {
        let loops = &self.last.loops;
        let is_read_here = |trip: &&LoopTrip| trip.class == Class::Read && trip.key == seen.key_hash;
        let origin = &seen.origin;
        let repeats = origin.evidence != Evidence::None && origin.distance <= PAIR_DISTANCE_MAX;
        let repeated = repeats.then(|| loops.ago(origin.distance)).flatten().filter(is_read_here);
        let deletes = matches!(seen.found.verb.name, "DEL" | "UNLINK") && self.trip.command.len() == 2;
        let deleted = || deletes.then(|| loops.ago(1)).flatten().filter(is_read_here);
        repeated.or_else(deleted).map(|trip| trip.shape)
    }

    /// A pair that waits is one, unless its read turned out to be the first of several with the same answer.
    fn settle_pair(&mut self) {
        if let Some(pair) = self.last.pair.take()
            && self.last.reads.repetition(pair.steps.shapes[0]) != Repetition::Repeats
        {
            self.pair(&pair);
        }
    }

    fn pair(&mut self, pair: &Pair) {
        self.record(Sighting {
            made: 2,
            needed: 1,
            lost_ns: pair.gap_ns,
            ..self.sighting(Kind::ReadComputeWrite, pair.steps)
        });
    }

    /// A question that may be asked at a steady pace.
    fn poll(&mut self, seen: &Seen<'_>) {
        let is_pop = seen.found.verb.class == Class::Pop;
        let question = mix(seen.found.hash, seen.key_hash) | 1;
        if !(seen.is_paced || is_pop && seen.answer.is_empty) {
            return self.last.polls.ask_at_once(question);
        }
        let answered = Answered {
            question,
            asked_ns: self.trip.arrived_ns,
            reply: seen.answer.hash,
            is_empty: seen.answer.is_empty,
        };
        let Some(polled) = self.last.polls.ask(&answered) else { return };
        let confidence = match (self.trip.reply.is_some(), is_pop) {
            (true, true) => Confidence::High,
            (true, false) => Confidence::Medium,
            (false, _) => Confidence::Low,
        };
        self.record(Sighting {
            made: polled.made,
            needed: polled.found,
            lost_ns: (polled.made - polled.found) * self.connection.round_trip.low_ns(),
            confidence,
            ..self.sighting(Kind::Polling, Steps::one(seen.shape, true))
        });
    }

    /// A command that may reply with a lot, or that goes through all keys.
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

    /// A script that is sent as text: was it sent before?
    fn script(&mut self, seen: &Seen<'_>) {
        let text = self.trip.command.get(1);
        let hash = hash::argument(self.advisor.config.seed, text) | 1;
        if !self.last.scripts.contains(&hash) {
            let place = usize::from(self.last.next_script) % self.last.scripts.len();
            self.last.scripts[place] = hash;
            self.last.next_script = self.last.next_script.wrapping_add(1);
            return;
        }
        self.record(Sighting {
            made: 1,
            needed: 1,
            bytes: text.len() as u64,
            ..self.sighting(Kind::ScriptInFull, Steps::one(seen.shape, false))
        });
    }

    fn begin_transaction(&mut self) {
        self.end();
        self.last.transaction = Transaction { trips: 1, ..Transaction::default() };
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
        if transaction.trips < 2 {
            return;
        }
        self.record(Sighting {
            made: u64::from(transaction.trips) + 1,
            needed: 1,
            lost_ns: transaction.gaps_ns + seen.gap_ns,
            ..self.sighting(Kind::TransactionInSlices, Steps::one(transaction.shape, false))
        });
    }

    fn loop_ended(&mut self, ended: &Ended) {
        let kind = if ended.steps.len == 1 { Kind::Loop } else { Kind::InterleavedLoop };
        let confidence = if ended.is_known && !ended.may_depend { Confidence::High } else { Confidence::Medium };
        self.record(Sighting {
            after: ended.after.map(|(shape, _)| shape),
            after_ns: ended.after.map_or(0, |(_, gap_ns)| gap_ns),
            made: ended.made,
            needed: ended.needed,
            lost_ns: ended.lost_ns,
            confidence,
            is_known: ended.is_known,
            ..self.sighting(kind, ended.steps)
        });
    }

    /// A pause, or a batch of several: nothing that follows belongs to what was before.
    fn end(&mut self) {
        if std::mem::replace(&mut self.last.is_fresh, true) {
            return;
        }
        self.settle_pair();
        self.tell(|reads, tell| reads.end(tell));
        if let Some(ended) = self.last.loops.end() {
            self.loop_ended(&ended);
        }
    }

    fn sighting(&self, kind: Kind, steps: Steps) -> Sighting<'static> {
        let is_known = self.trip.reply.is_some();
        Sighting { is_known, ..sighting(kind, steps, self.connection.id, self.trip.arrived_ns) }
    }

    /// Adds to the findings. What is counted by gaps is unsure where it can't be told what a round trip takes.
    fn record(&mut self, mut sighting: Sighting<'_>) {
        if self.connection.round_trip.is_unsure() && sighting.kind.is_about_trips() {
            sighting.confidence = Confidence::Low;
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
        let shape = self.advisor.shape(&command, &found, key);
        let (arguments, origin) = self.arguments(&command, key_index, seed);
        let answer = match &self.trip.reply {
            Some(reply) => self.last.recent.learn(reply.start, reply.len, self.last.trip, seed),
            None => Answer::default(),
        };
        // The trip before took the server some time, too, which is not spent where no trip is made.
        let whole_ns = |gap_ns: u64| gap_ns + self.last.served_ns.min(gap_ns);
        let gap_ns = if let Gap::RoundTrip(gap_ns) = gap { whole_ns(gap_ns) } else { 0 };
        let is_paced = matches!(gap, Gap::Pause(_)) || self.connection.round_trip.is_unsure();
        let key_hash = hash::argument(seed, key);
        Seen { found, shape, key, key_hash, arguments, origin, answer, gap_ns, is_paced }
    }

    /// The hash of all arguments but the key, and where one came from.
    #[inline]
    fn arguments(&self, command: &Args<'_>, key: usize, seed: u64) -> (u64, Origin) {
        let (mut all, mut origin) = (0, Origin::default());
        for (index, argument) in command.from(1).enumerate().take(ARGUMENTS_MAX) {
            let mut hash = hash::argument(seed, argument);
            if index + 1 != key {
                all = mix(all, hash);
            } else if let Some(end) = argument.iter().rposition(|&byte| byte == b':') {
                // Of a key, its last part may repeat a reply.
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

/// A command's first key and its index; empty and 0 if it has none.
#[inline]
fn key<'a>(trip: &Trip<'a>, found: &Found) -> (usize, &'a [u8]) {
    let index = match (trip.key, found.verb.key) {
        (Some(index), _) => index,
        // Behind a script stands how many keys there are.
        (None, 3) if trip.command.get(2) == b"0" => 0,
        (None, index) => index,
    };
    (index.into(), if index == 0 { b"" } else { trip.command.get(index.into()) })
}
