//! Detection of loops. In a loop, trips of one command each repeat the same sequence of one to eight shapes. The length
//! of the sequence is the *period*, and one pass through it is a *round*.
//!
//! For each period, a counter holds the number of consecutive trips that have the shape of the trip one period before.
//! Four trips make a loop of period one, and three rounds one of a longer period. The loop ends with the first trip
//! that doesn't fit, or with a pause.
//!
//! Keys with few different words in one place have several shapes, which follow each other in any order. Such trips make a
//! loop of merged shapes ([`merged`]).

mod merged;

use crate::catalogue::Class;
use crate::evidence::{Source, StepEvidence};

/// The longest period.
pub const PERIOD_MAX: usize = 8;
/// Number of trips remembered: at least three rounds of the longest period.
const REMEMBERED: usize = 32;
const _: () = assert!(REMEMBERED >= 3 * PERIOD_MAX && REMEMBERED.is_power_of_two());
/// Number of rounds that make a loop.
const ROUNDS_MIN: u32 = 3;
/// Fewer compared rounds are no evidence of a search.
const COMPARED_MIN: u32 = 3;
/// Most times that the longest gap of a round's steps is longer than the shortest, if the client waits for each reply.
const EVEN_TIMES_MAX: u64 = 3;
/// Number of trips of one shape that make a loop.
const TRIPS_MIN: u32 = 4;
/// Most commands in one pipeline, and most keys in one command, of the code that the advisor suggests.
pub const CHUNK: u32 = 1000;

/// The part of a trip that matters to a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopTrip {
    /// Command and key pattern.
    pub shape: u64,
    /// Equal for shapes that differ only in words, or in the forms of their holes.
    pub frame: u32,
    /// The key's hash.
    pub key: u64,
    /// The gap before the trip if it looked like a round trip, otherwise 0.
    pub gap_ns: u64,
    /// True if the client paused before the trip.
    pub is_paced: bool,
    /// True if the pause was short, and threads of the machine waited for cores.
    pub may_be_held_up: bool,
    /// True if another connection of the client has sent commands since the last trip.
    pub takes_turns: bool,
    /// The effect of the command.
    pub class: Class,
    /// A hash of the command's name.
    pub name: u16,
    /// The distance in trips to the reply that one of the arguments repeats; 0 if no recent reply matches.
    pub origin: u8,
    /// The reply that the command's new words come from, if the trip continues a loop.
    pub source: Source,
    /// True if the reply is a document of JSON.
    pub is_document: bool,
    /// True if the command reads several keys.
    pub has_keys: bool,
    /// True if the command reads a range between two values.
    pub is_range: bool,
    /// True if its reply is known.
    pub is_known: bool,
    /// True if the reply was empty.
    pub is_empty: bool,
    /// True if the trip is the write of a read-compute-write pair.
    pub is_paired: bool,
}

/// The steps of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The shapes in the order of a round.
    pub shapes: [u64; PERIOD_MAX],
    /// Number of steps.
    pub len: u8,
    /// A bit for each step that used one and the same key in all rounds.
    pub one_key: u8,
    /// A bit for each step that needs a reply to an earlier step.
    pub depends: u8,
}

impl Steps {
    /// Returns a single step.
    pub fn one(shape: u64, one_key: bool) -> Steps {
        let mut steps = Steps { len: 1, one_key: u8::from(one_key), ..Steps::default() };
        steps.shapes[0] = shape;
        steps
    }

    /// Returns two steps on one key.
    pub fn pair(first: u64, second: u64) -> Steps {
        let mut steps = Steps { len: 2, ..Steps::default() };
        (steps.shapes[0], steps.shapes[1]) = (first, second);
        steps
    }

    /// Returns the steps with each shape once. A round repeats a shape if only some of its keys need another step.
    pub fn distinct(&self) -> Steps {
        let mut distinct = Steps::default();
        for (index, (shape, one_key)) in self.iter().enumerate() {
            let len = usize::from(distinct.len);
            if let Some(known) = distinct.shapes.iter().take(len).position(|known| *known == shape) {
                distinct.one_key &= !(1 << known);
                continue;
            }
            distinct.shapes[len] = shape;
            distinct.one_key |= u8::from(one_key) << len;
            distinct.depends |= u8::from(self.depends(index)) << len;
            distinct.len += 1;
        }
        distinct
    }

    /// True if this step needs a reply to an earlier one.
    pub fn depends(&self, index: usize) -> bool {
        self.depends >> index & 1 != 0
    }

    /// Iterates over the steps: the shape, and whether the key was the same in all rounds.
    pub fn iter(&self) -> impl Iterator<Item = (u64, bool)> {
        let one_key = self.one_key;
        let shapes = self.shapes.iter().take(usize::from(self.len));
        shapes.enumerate().map(move |(index, shape)| (*shape, one_key >> index & 1 != 0))
    }
}

/// A finished loop, or a thousand trips of an unfinished one.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The steps of a round.
    pub steps: Steps,
    /// Trips made.
    pub made: u64,
    /// Trips that would have been enough.
    pub needed: u64,
    /// Time that the wasted trips took.
    pub lost_ns: u64,
    /// True if all replies were known.
    pub is_known: bool,
    /// True if a step may depend on a reply in a way that can't be seen: a write follows a read.
    pub may_depend: bool,
    /// True if no command depends on a reply of an earlier round.
    pub is_proven: bool,
    /// True if keys may be digests of replies.
    pub may_be_derived: bool,
    /// The shape of the trip that followed at once, and the gap before it.
    pub after: Option<(u64, u64)>,
}

/// The current run of rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// Number of steps in a round; 0 means no run.
    period: u8,
    /// Index of the next step.
    position: u8,
    /// Trips so far.
    made: u32,
    /// Trips after a pause. Each begins a new part: the commands of different parts do not fit into one pipeline.
    pauses: u32,
    /// Pauses for which the scheduler may be the reason, and pauses directly after another one.
    held_up: u32,
    paused_twice: u32,
    /// Pauses in which another connection of the client sent commands.
    pauses_in_turn: u32,
    is_last_paced: bool,
    /// Number of gaps within the run, except for pauses, and their sum.
    gaps: u32,
    gaps_ns: u64,
    /// Trips that another finding already counts, and their gaps.
    spared: u32,
    spared_ns: u64,
    /// Trips with an unknown reply, and trips with an empty reply.
    unknown: u32,
    empty: u32,
    is_last_empty: bool,
    /// True if trips of one frame belong to one step, and true if such steps have shapes of their own.
    is_merged: bool,
    is_named: bool,
    /// Trips that are the write of a read-compute-write pair.
    paired: u32,
    /// Trips of the first step with the key of the last step's previous trip.
    wrapped: u32,
    steps: [RoundStep; PERIOD_MAX],
}

/// One step of a round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundStep {
    shape: u64,
    frame: u32,
    key: u64,
    class: Class,
    has_keys: bool,
    is_range: bool,
    name: u16,
    /// Number of runs of the step, and of runs with the key of the previous round.
    made: u32,
    same_key: u32,
    /// The sum of the gaps before the step, except for pauses.
    gaps_ns: u64,
    /// Pauses before the step.
    pauses: u32,
    /// How often an argument came from the reply to the step `source`, and from any reply. Other steps may have been the
    /// source at times: `sourced` counts the majority.
    source: u8,
    sourced: u32,
    depended: u32,
    /// Number of commands with a new word that does not stand in replies by chance.
    named: u32,
    /// Number of commands whose new word came from a reply of an earlier round.
    traced: u32,
    /// How often a new word came from a reply of the last round, and does not do so by chance.
    followed: u32,
    /// How often a new word may be the digest of a reply.
    derived: u32,
    /// How often a small number of the step came from its own previous reply. A count grows with each command, for example.
    counted: u32,
    evidence: StepEvidence,
}

impl RoundStep {
    /// True if an argument came from one and the same step's reply in more than half of the rounds.
    fn depends(&self) -> bool {
        self.sourced * 2 > self.made
    }

    /// True if each command takes a small number from its own previous reply. Numbers that grow evenly do so by chance. So do numbers behind
    /// pushes to one list: its length is the number of the push.
    fn counts_on(&self) -> bool {
        let is_length = self.class == Class::Write && self.has_one_key() && self.evidence.counts_up();
        self.counted * 2 > self.made && !self.evidence.is_predictable() && !is_length
    }

    /// True if the replies mostly tell something new.
    fn tells(&self) -> bool {
        self.evidence.telling * 2 > self.evidence.compared
    }

    /// True if the next command can't be known before the reply: it walks through the replies, or searches by halves. Replies that are
    /// always the same contain small numbers, but no walk needs them.
    fn walks(&self, tells: bool) -> bool {
        let compared = self.evidence.compared;
        let is_predictable = self.evidence.is_predictable();
        // A new word that does not stand in replies by chance is evidence even in a short run.
        let is_traced = compared > 0 && (self.traced * 10 >= compared * 7 || self.goes_to_named());
        let is_guided = self.evidence.follows_small_numbers() || self.evidence.descends() || self.evidence.is_led_on();
        let is_search = tells && is_guided || self.evidence.halved * 2 > compared;
        !is_predictable && (is_traced || compared >= COMPARED_MIN && (is_search || self.may_search(tells)))
    }

    /// True if the client goes on to keys that replies name, and also reads several parts of some keys. A search in a skip list, for example,
    /// follows the links of a node on several levels.
    fn goes_to_named(&self) -> bool {
        self.named >= COMPARED_MIN
            && self.named * 10 >= self.evidence.compared * 3
            && self.traced * 10 >= self.named * 8
    }

    /// True if the client may search through a graph: each command reads several keys that have nothing in common with the one before, and
    /// comes back to earlier ones. The client may have chosen them by the replies.
    fn may_search(&self, tells: bool) -> bool {
        let asks = self.has_keys && self.evidence.asks_about_several() && self.evidence.comes_back();
        tells && asks && !self.depends()
    }

    /// True if the step surely takes a word from a reply of the last round. In a short run, few of its trips were compared.
    fn follows(&self) -> bool {
        let compared = self.evidence.compared;
        compared > 0 && self.followed * 10 >= compared * 7
    }

    /// True if the client reads one collection in parts, whose ends can't be seen: each part may begin where the previous one ends.
    fn reads_pages(&self) -> bool {
        let compared = self.evidence.compared;
        let pages = compared > 2 && self.evidence.pages * 10 >= compared * 9;
        // Values may be evenly spaced, but only a window of them has two new ends.
        let begins_behind_the_last = self.is_range && !self.evidence.asks_about_several();
        let may_follow = begins_behind_the_last || !self.evidence.is_predictable();
        self.class == Class::Read && self.has_one_key() && pages && may_follow
    }

    /// True if the step reads keys that may be digests of earlier replies.
    fn may_be_derived(&self) -> bool {
        self.class == Class::Read && self.derived * 2 > self.evidence.compared
    }

    /// True if the commands were known before the replies, as far as their own words tell.
    fn is_known_before(&self) -> bool {
        let depends = self.depends() && self.sourced * 10 >= self.evidence.compared * 9;
        depends || self.evidence.is_predictable() && self.depended * 4 < self.made
    }

    /// True if the replies told the client nothing that a later command could depend on.
    fn is_silent(&self) -> bool {
        self.evidence.compared > 1 && self.evidence.telling == 0
    }

    /// Counts the step that an argument's reply belongs to.
    fn add_source(&mut self, source: u8) {
        self.depended += 1;
        if self.sourced == 0 {
            self.source = source;
        }
        if self.source == source {
            self.sourced += 1;
        } else {
            self.sourced -= 1;
        }
    }

    /// True if the following steps may need the reply.
    fn asks(&self) -> bool {
        matches!(self.class, Class::Read | Class::Pop | Class::Other)
    }

    fn has_one_key(&self) -> bool {
        self.made > 1 && self.same_key * 10 >= (self.made - 1) * 9
    }
}

impl Rounds {
    fn add(&mut self, trip: &LoopTrip, is_first: bool) {
        let position = self.position;
        let last = self.steps[usize::from(self.period).saturating_sub(1) % PERIOD_MAX];
        self.wrapped += u32::from(position == 0 && last.made > 0 && last.key == trip.key);
        let step = &mut self.steps[usize::from(position) % PERIOD_MAX];
        step.same_key += u32::from(step.made > 0 && step.key == trip.key);
        step.shape = if self.is_named { step.shape } else { trip.shape };
        (step.frame, step.key, step.class, step.name) = (trip.frame, trip.key, trip.class, trip.name);
        (step.has_keys, step.is_range) = (trip.has_keys, trip.is_range);
        step.made += 1;
        let period = u16::from(self.period);
        step.named += u32::from(trip.source.names);
        step.traced += u32::from(trip.source.distance >= period && trip.source.is_telling);
        let is_of_last_round = (1..=period).contains(&trip.source.distance);
        step.derived += u32::from(trip.source.is_derived);
        step.followed += u32::from(is_of_last_round && trip.source.is_telling);
        let is_seen = trip.origin > 0;
        let distance = if is_seen { trip.origin.into() } else { trip.source.distance };
        let changes_other_key = trip.class == Class::Write && step.made > 1 && !step.has_one_key();
        if step.evidence.is_repeated() {
            // Arguments that never change are equal to a reply by chance.
        } else if changes_other_key && self.period == 1 && !trip.source.is_telling {
            // The small count that a write of another key replies is equal to an amount by chance.
        } else if distance == period && !is_seen && !trip.source.is_telling {
            step.depended += 1;
            step.counted += 1;
        } else if (1..=period).contains(&distance) {
            // A reply from more than a round ago is no reason to wait.
            step.add_source(((period + u16::from(position) - distance) % period) as u8);
        }
        self.position = if position + 1 == self.period { 0 } else { position + 1 };
        self.made += 1;
        if trip.is_paced && !is_first {
            self.pauses += 1;
            self.held_up += u32::from(trip.may_be_held_up);
            self.pauses_in_turn += u32::from(trip.takes_turns);
            self.paused_twice += u32::from(self.is_last_paced);
            self.steps[usize::from(position) % PERIOD_MAX].pauses += 1;
        } else if !is_first {
            self.gaps += 1;
            self.gaps_ns += trip.gap_ns;
            self.steps[usize::from(position) % PERIOD_MAX].gaps_ns += trip.gap_ns;
        }
        self.is_last_paced = trip.is_paced && !is_first;
        self.unknown += u32::from(!trip.is_known);
        self.empty += u32::from(trip.is_empty);
        self.is_last_empty = trip.is_empty;
        self.paired += u32::from(trip.is_paired);
    }

    fn steps(&self) -> &[RoundStep] {
        self.steps.get(..usize::from(self.period)).unwrap_or_default()
    }

    /// Returns the steps in their logical order. The run may have begun in the middle of a round. The round is rotated so
    /// that steps follow the replies that they need, and otherwise if the last step reads the key that the first step
    /// writes, so that the write follows its read.
    fn round(&self) -> Round {
        let mut round = Round { steps: self.steps, period: usize::from(self.period) };
        let mut begins = 0..round.period;
        if let Some(begin) = begins.find(|begin| self.follows_sources(*begin)).filter(|_| self.has_sources()) {
            round.rotate(begin);
        } else if let [first, .., last] = self.steps()
            && last.asks()
            && matches!(first.class, Class::Write)
            && self.is_cut(first, last)
        {
            round.rotate(round.period - 1);
        }
        round
    }

    /// True if the run began in the middle of a round: its first step writes the key that its last step reads.
    fn is_cut(&self, first: &RoundStep, last: &RoundStep) -> bool {
        let is_one_key = first.has_one_key() && last.has_one_key() && first.key == last.key;
        is_one_key || first.made > 1 && self.wrapped * 10 >= (first.made - 1) * 9
    }

    fn has_sources(&self) -> bool {
        self.steps().iter().any(RoundStep::depends)
    }

    /// The place of a step in a round that begins with the step `begin`.
    fn place(&self, step: usize, begin: usize) -> usize {
        let period = usize::from(self.period).max(1);
        (step + period - begin) % period
    }

    /// True if each dependent step follows its source in a round that begins with the step `begin`.
    fn follows_sources(&self, begin: usize) -> bool {
        let mut dependent = self.steps().iter().enumerate().filter(|(_, step)| step.depends());
        dependent.all(|(index, step)| self.place(usize::from(step.source), begin) < self.place(index, begin))
    }

    /// Returns the number of dependent stages of a round, and whether this number is a guess. A step that repeats a
    /// reply of its round must wait for that reply. A write behind a read may have to wait, too, and so may any step
    /// behind a read if replies aren't known.
    fn stages(&self) -> (u32, bool) {
        let (mut stages, mut is_guess) = (1, false);
        let round = self.round();
        for pair in round.steps().windows(2) {
            let (before, step) = (&pair[0], &pair[1]);
            let asks = before.asks();
            let acts = matches!(step.class, Class::Write | Class::Other) || self.unknown > 0;
            if step.depends() {
                stages += 1;
            } else if asks && acts {
                stages += 1;
                is_guess = true;
            }
        }
        (stages, is_guess)
    }

    /// True if pipelining can't help, because each round waits for the previous one, or if another finding already
    /// counts the trips.
    fn is_no_loop(&self) -> bool {
        let rounds = self.made / u32::from(self.period.max(1));
        // No order of the steps has all sources before their dependents: the dependence goes around.
        let is_chain = !(0..usize::from(self.period)).any(|begin| self.follows_sources(begin))
            || self.steps().iter().all(RoundStep::follows);
        let tells = self.steps().iter().any(RoundStep::tells);
        let is_walk = self.steps().iter().any(|step| step.walks(tells) || step.counts_on() || step.reads_pages());
        let is_pairs = self.paired * 2 >= rounds;
        let polls = self.period == 1 && self.polls(&self.steps[0]);
        is_chain
            || self.may_walk_in_frames()
            || is_walk
            || is_pairs
            || polls
            || self.ends_when_found()
            || self.repeats_by_chance()
            || self.is_paced()
    }

    /// True if the steps are one command with keys of several patterns, and the run was too short for a look at their replies. The patterns of
    /// a chain of keys repeat by chance.
    fn repeats_by_chance(&self) -> bool {
        let [first, rest @ ..] = self.steps() else { return false };
        let is_short = self.steps().iter().all(|step| step.evidence.compared == 0);
        is_short && !rest.is_empty() && rest.iter().all(|step| step.name == first.name)
    }

    /// True if the run ended with its only reply that was not empty. The client looked for a key that exists, or for a name that is free
    /// (SET with NX), and each reply decided whether it went on.
    fn ends_when_found(&self) -> bool {
        self.period == 1 && self.empty + 1 == self.made && !self.is_last_empty
    }

    /// True if the client waits for another one: it asks an empty queue or tries to take a lock, or it repeats one read. The reads and
    /// the polls of the connection count such trips.
    fn polls(&self, step: &RoundStep) -> bool {
        let is_empty = self.empty * 10 >= self.made * 7;
        match step.class {
            Class::Pop => is_empty,
            Class::Write => is_empty && step.evidence.asks_again(),
            Class::Read => step.evidence.asks_again(),
            _ => false,
        }
    }

    /// True if the client pauses so often that the parts between its pauses are no loops.
    fn is_paced(&self) -> bool {
        self.pauses > 0 && self.made < (self.pauses + 1) * trips_min(self.period.into()) && !self.is_held_up()
    }

    /// True if the scheduler is the reason of the pauses: the machine was busy, and the pauses come at random. A client that thinks pauses
    /// before one of the steps, or after an even number of trips, but hardly twice in a row. If other connections of the client go on in the
    /// pauses, its threads take connections from a pool, and the requests of each connection come at random.
    fn is_held_up(&self) -> bool {
        let (made, pauses) = (u64::from(self.made), u64::from(self.pauses));
        let is_busy = self.held_up == self.pauses && pauses > 0 && pauses * 2 < made;
        let most = self.steps().iter().map(|step| u64::from(step.pauses)).max().unwrap_or_default();
        // Chance alone: at most half above the average, and twice in a row half as often as on average.
        let is_even = most * u64::from(self.period) * 2 <= pauses * 3;
        let has_pool = self.pauses_in_turn * 4 > self.pauses;
        is_busy && is_even && !has_pool && u64::from(self.paused_twice) * made * 2 >= pauses * pauses
    }

    /// True if the client waits equally long before each step. A client that writes the commands of a pipeline one by one has short gaps
    /// within the pipeline, and the server may have answered before the next command comes.
    fn waits_evenly(&self) -> bool {
        let gaps = || self.steps().iter().map(|step| step.gaps_ns / u64::from(step.made.max(1)));
        gaps().max() <= gaps().min().map(|shortest| shortest * EVEN_TIMES_MAX)
    }

    /// True if each command was known before the loop began, or no reply told anything, or each dependence is seen.
    fn is_proven(&self) -> bool {
        let all = |is: fn(&RoundStep) -> bool| self.steps().iter().all(is);
        let is_whole = all(|step| step.evidence.hidden == 0);
        self.unknown == 0
            && self.waits_evenly()
            && (all(RoundStep::is_silent) || is_whole && all(RoundStep::is_known_before))
    }

    fn ended(&self, after: Option<(u64, u64)>) -> Option<Ended> {
        if self.is_no_loop() {
            return None;
        }
        let (stages, may_depend) = self.stages();
        let made = self.made.saturating_sub(self.spared);
        // Without the other commands there are no pauses between them.
        let parts = if self.is_held_up() { 0 } else { self.pauses };
        let needed = stages * (parts + made.div_ceil(CHUNK));
        let wasted = made.checked_sub(needed).filter(|wasted| *wasted > 0)?;
        let gaps = u64::from(self.gaps.saturating_sub(self.spared).max(1));
        let gaps_ns = self.gaps_ns.saturating_sub(self.spared_ns);
        let mut steps = Steps { len: self.period, ..Steps::default() };
        for (index, step) in self.round().steps().iter().enumerate() {
            steps.shapes[index] = step.shape;
            steps.one_key |= u8::from(step.has_one_key()) << index;
            steps.depends |= u8::from(step.depends()) << index;
        }
        Some(Ended {
            steps,
            made: made.into(),
            needed: needed.into(),
            lost_ns: (u128::from(gaps_ns) * u128::from(u64::from(wasted).min(gaps)) / u128::from(gaps)) as u64,
            is_known: self.unknown == 0,
            may_depend,
            is_proven: self.is_proven(),
            may_be_derived: self.steps().iter().any(RoundStep::may_be_derived),
            after,
        })
    }
}

/// Number of trips that make a loop of this period.
fn trips_min(period: u32) -> u32 {
    (period * ROUNDS_MIN).max(TRIPS_MIN)
}

/// The steps of a round, from its first one.
struct Round {
    steps: [RoundStep; PERIOD_MAX],
    period: usize,
}

impl Round {
    fn steps(&self) -> &[RoundStep] {
        self.steps.get(..self.period).unwrap_or_default()
    }

    fn rotate(&mut self, begin: usize) {
        if let Some(steps) = self.steps.get_mut(..self.period) {
            steps.rotate_left(begin);
        }
    }
}

/// The last trips of a connection, and its current loop.
#[derive(Clone, Debug)]
pub struct Loops {
    trips: [LoopTrip; REMEMBERED],
    /// Number of trips so far. It wraps around.
    next: u32,
    /// Trips since the last pause.
    len: u32,
    /// Trips since the last batch of several commands, over all pauses.
    known: u32,
    /// Trips since the last long pause or batch of several commands, over short pauses.
    near: u32,
    /// Number of trips, as in `next`, when a loop was last reported.
    told: u32,
    /// For each period, the number of consecutive trips that have the shape of the trip one period before.
    matches: [u32; PERIOD_MAX],
    run: Rounds,
}

impl Default for Loops {
    fn default() -> Loops {
        Loops {
            trips: [LoopTrip::default(); REMEMBERED],
            next: 0,
            len: 0,
            known: 0,
            near: 0,
            told: 0,
            matches: [0; PERIOD_MAX],
            run: Rounds::default(),
        }
    }
}

impl Loops {
    /// Returns the trip this many trips ago; 1 is the last one. Trips before a pause are forgotten.
    #[inline]
    pub fn ago(&self, trips: u32) -> Option<&LoopTrip> {
        self.among(self.len, trips)
    }

    /// Returns the trip this many trips ago, even if pauses came between.
    #[inline]
    pub fn ago_over_pauses(&self, trips: u32) -> Option<&LoopTrip> {
        self.among(self.known, trips)
    }

    /// Returns the trip this many trips ago if it is one of the last `len` ones.
    #[inline]
    fn among(&self, len: u32, trips: u32) -> Option<&LoopTrip> {
        let is_remembered = trips <= len && trips as usize <= REMEMBERED;
        is_remembered.then(|| &self.trips[self.next.wrapping_sub(trips) as usize % REMEMBERED])
    }

    /// True if a trip of this shape and frame ends the loop.
    #[inline]
    pub fn breaks(&self, shape: u64, frame: u32) -> bool {
        let step = &self.run.steps[usize::from(self.run.position) % PERIOD_MAX];
        self.run.period != 0 && step.shape != shape && !(self.run.is_merged && step.frame == frame)
    }

    /// True if a trip of this shape and frame continues the current loop.
    #[inline]
    pub fn goes_on_with(&self, shape: u64, frame: u32) -> bool {
        self.run.period != 0 && !self.breaks(shape, frame)
    }

    /// Identifies the steps of the current loop in any order, and returns the number of its trips.
    pub fn identity(&self) -> (u32, u32) {
        (self.run.steps().iter().fold(0, |frames, step| frames ^ step.frame), self.run.made)
    }

    /// True while a loop goes on.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.run.period != 0
    }

    /// The number of steps of the current loop; 0 without one.
    pub fn period(&self) -> u16 {
        self.run.period.into()
    }

    /// The evidence about the step that a trip of this shape and frame continues.
    #[inline]
    pub fn evidence(&mut self, shape: u64, frame: u32) -> Option<&mut StepEvidence> {
        let is_next = self.goes_on_with(shape, frame);
        is_next.then(|| &mut self.run.steps[usize::from(self.run.position) % PERIOD_MAX].evidence)
    }

    /// Subtracts trips that another finding already counts.
    pub fn spare(&mut self, trips: u64, gaps_ns: u64) {
        if self.run.period != 0 {
            self.run.spared = self.run.spared.saturating_add(trips as u32);
            self.run.spared_ns += gaps_ns;
        }
    }

    /// Adds a trip. Returns the loop that this trip ends, or the last thousand trips of a loop that continues.
    #[inline]
    pub fn push(&mut self, trip: LoopTrip) -> Option<Ended> {
        if self.run.period == 0 {
            self.count_matches(&trip);
            self.remember(&trip);
            self.begin();
            if self.run.period == 0 && self.next.is_multiple_of(merged::LOOKED_EVERY) {
                self.begin_merged();
            }
            return None;
        }
        let is_merged = self.run.is_merged;
        let fits = |before: &LoopTrip| before.shape == trip.shape || is_merged && before.frame == trip.frame;
        let fits = self.ago(self.run.period.into()).is_some_and(fits);
        self.remember(&trip);
        if !fits {
            return self.broken(&trip);
        }
        self.run.add(&trip, false);
        let is_full = self.run.made + u32::from(self.run.period) > CHUNK && self.run.position == 0;
        if is_full { self.cut() } else { None }
    }

    /// Forgets the current loop if a trip of this shape belongs to it: the client does not wait for its replies.
    pub fn abandon(&mut self, shape: u64) {
        let is_of_run = |step: &RoundStep| step.shape == shape;
        let is_merged_with = |ago| self.ago(ago).is_some_and(|trip| trip.shape == shape);
        let is_recent = self.run.is_merged && (1..=REMEMBERED as u32).any(is_merged_with);
        if self.run.period != 0 && (is_recent || self.run.steps().iter().any(is_of_run)) {
            self.run = Rounds::default();
        }
    }

    #[inline]
    fn remember(&mut self, trip: &LoopTrip) {
        self.trips[self.next as usize % REMEMBERED] = *trip;
        self.next = self.next.wrapping_add(1);
        self.len = self.len.saturating_add(1);
        self.known = self.known.saturating_add(1);
        self.near = self.near.saturating_add(1);
    }

    /// Updates the counters of matches of all periods.
    #[inline]
    fn count_matches(&mut self, trip: &LoopTrip) {
        for period in 1..=PERIOD_MAX as u32 {
            let fits = self.ago(period).is_some_and(|before| before.shape == trip.shape);
            let matches = &mut self.matches[period as usize - 1];
            *matches = if fits { *matches + 1 } else { 0 };
        }
    }

    /// Ends the loop, because the last trip doesn't fit it. Within a loop the counters of matches stand still, so they
    /// are recomputed here.
    fn broken(&mut self, trip: &LoopTrip) -> Option<Ended> {
        let before = std::mem::take(&mut self.run);
        for period in 1..=PERIOD_MAX as u32 {
            let fits = |ago: &u32| match (self.ago(*ago), self.ago(ago + period)) {
                (Some(after), Some(before)) => after.shape == before.shape,
                _ => false,
            };
            self.matches[period as usize - 1] = (1..=REMEMBERED as u32).take_while(fits).count() as u32;
        }
        if self.continues_merged(&before) {
            return None;
        }
        self.begin();
        let ended = before.ended(Some((trip.shape, trip.gap_ns)));
        if ended.is_some() {
            self.told = self.next.wrapping_sub(1);
        }
        ended
    }

    /// Begins a run if the last trips make one.
    #[inline]
    fn begin(&mut self) {
        if self.matches == [0; PERIOD_MAX] {
            return;
        }
        for period in 1..=PERIOD_MAX as u32 {
            let trips = self.matches[period as usize - 1] + period;
            if trips >= trips_min(period) {
                let trips = trips.min(REMEMBERED as u32);
                return self.begin_run(period as u8, trips);
            }
        }
    }

    fn begin_run(&mut self, period: u8, trips: u32) {
        self.run = Rounds { period, ..Rounds::default() };
        self.add_last(trips);
    }

    /// Adds the last trips to a run that begins.
    fn add_last(&mut self, trips: u32) {
        for ago in (1..=trips).rev() {
            let Some(trip) = self.among(trips, ago).copied() else { continue };
            self.run.add(&trip, ago == trips);
        }
    }

    /// Returns the loop's counts so far and resets them; the loop continues. Too few rounds are no evidence: they count with the next
    /// ones.
    pub fn cut(&mut self) -> Option<Ended> {
        let has_evidence = self.run.steps().iter().all(|step| step.evidence.compared >= COMPARED_MIN);
        if self.run.period == 0 || self.run.made < REMEMBERED as u32 && !has_evidence {
            return None;
        }
        let ended = self.run.ended(None);
        let Rounds { period, position, is_merged, is_named, .. } = self.run;
        let mut next = Rounds { period, position, is_merged, is_named, ..Rounds::default() };
        for (step, old) in next.steps.iter_mut().zip(&self.run.steps) {
            (step.shape, step.key, step.class, step.evidence) = (old.shape, old.key, old.class, old.evidence);
            (step.frame, step.has_keys, step.is_range) = (old.frame, old.has_keys, old.is_range);
            step.evidence.begin_part();
        }
        self.run = next;
        ended
    }

    /// Ends the loop and forgets the last trips, because of a batch of several commands.
    pub fn end(&mut self) -> Option<Ended> {
        self.known = 0;
        self.rest()
    }

    /// Ends the loop because of a long pause.
    pub fn rest(&mut self) -> Option<Ended> {
        self.near = 0;
        self.pause()
    }

    /// Ends the loop because of a pause. Only loops of frames and [`Loops::ago_over_pauses`] know the trips before it.
    pub fn pause(&mut self) -> Option<Ended> {
        let ended = if self.run.period == 0 { None } else { self.run.ended(None) };
        self.run = Rounds::default();
        self.len = 0;
        self.matches = [0; PERIOD_MAX];
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(shape: u8) -> LoopTrip {
        let (shape, name, frame) = (shape.into(), shape.into(), shape.into());
        LoopTrip { shape, name, frame, gap_ns: 10, class: Class::Write, is_known: true, ..LoopTrip::default() }
    }

    /// The loops in a text in which each letter is a trip's shape and a blank is a pause: steps, trips made, trips
    /// needed.
    fn loops(text: &str) -> Vec<(String, u64, u64)> {
        let mut loops = Loops::default();
        let mut found = Vec::new();
        for byte in text.bytes() {
            found.extend(if byte == b' ' { loops.end() } else { loops.push(trip(byte)) });
        }
        found.extend(loops.end());
        let shown = |ended: &Ended| {
            let steps = ended.steps.iter().map(|(shape, _)| shape as u8 as char).collect();
            (steps, ended.made, ended.needed)
        };
        found.iter().map(shown).collect()
    }

    fn check(text: &str, expected: &[(&str, u64, u64)]) {
        let expected: Vec<_> =
            expected.iter().map(|(steps, made, needed)| (steps.to_string(), *made, *needed)).collect();
        assert_eq!(loops(text), expected, "{text}");
    }

    #[test]
    fn the_shortest_period_is_found() {
        check("aaaaaaaa", &[("a", 8, 1)]);
        check("abababab", &[("ab", 8, 1)]);
        check("abcabcabcabc", &[("abc", 12, 1)]);
        check("abcdefghabcdefghabcdefgh", &[("abcdefgh", 24, 1)]);
        check("abcdefghiabcdefghiabcdefghi", &[]);
        check("aaabaaabaaab", &[("aaab", 12, 1)]);
    }

    #[test]
    fn too_few_rounds_are_no_loop() {
        check("aaa", &[]);
        check("abab", &[]);
        check("aaa aaa aaa", &[]);
        check("abcabcab", &[]);
    }

    #[test]
    fn consecutive_loops_are_separate() {
        check("xaaaaabbbbbbcdcdcd", &[("a", 5, 1), ("b", 6, 1), ("cd", 6, 1)]);
        check("aaaa aaaa", &[("a", 4, 1), ("a", 4, 1)]);
        check("abababhabababh", &[("ab", 6, 1), ("ab", 6, 1)]);
    }

    #[test]
    fn a_long_loop_is_reported_in_parts() {
        let found = loops(&"ab".repeat(2600));
        assert_eq!(found.iter().map(|(_, made, _)| made).sum::<u64>(), 5200);
        assert_eq!(found.len(), 6, "{found:?}");
    }

    #[test]
    fn only_gaps_before_wasted_trips_count_as_lost() {
        let mut loops = Loops::default();
        for _ in 0..5 {
            assert!(loops.push(trip(b'a')).is_none());
        }
        let after = LoopTrip { gap_ns: 7, ..trip(b'b') };
        let ended = loops.push(after).unwrap();
        assert_eq!((ended.lost_ns, ended.after), (40, Some((u64::from(b'b'), 7))));
    }

    #[test]
    fn trips_of_another_finding_are_not_counted_twice() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(trip(b'a'));
        }
        loops.spare(4, 40);
        let ended = loops.end().unwrap();
        assert_eq!((ended.made, ended.needed, ended.lost_ns), (6, 1, 50));
    }

    #[test]
    fn a_chain_is_no_loop() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(LoopTrip { origin: 1, class: Class::Read, ..trip(b'a') });
        }
        assert!(loops.end().is_none());
    }

    #[test]
    fn a_step_that_needs_its_round_is_a_stage_of_its_own() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(LoopTrip { class: Class::Read, ..trip(b'a') });
            loops.push(LoopTrip { origin: 1, class: Class::Read, ..trip(b'b') });
        }
        let ended = loops.end().unwrap();
        assert_eq!((ended.made, ended.needed, ended.may_depend), (20, 2, false));
    }

    /// Each round has a key of its own, and the run begins with the write of a round.
    #[test]
    fn a_write_follows_the_read_of_its_changing_key() {
        let mut loops = Loops::default();
        for key in 0..10 {
            loops.push(LoopTrip { key, ..trip(b'w') });
            loops.push(LoopTrip { key: key + 1, class: Class::Read, ..trip(b'r') });
        }
        let ended = loops.end().unwrap();
        assert_eq!((ended.steps.shapes[0], ended.needed, ended.may_depend), (u64::from(b'r'), 2, true));
    }

    /// A loop has the same steps if the run begins in the middle of a round.
    #[test]
    fn a_write_follows_the_read_of_its_key() {
        for one_key in [true, false] {
            let mut loops = Loops::default();
            for key in 0..10 {
                let key = if one_key { 5 } else { key };
                loops.push(LoopTrip { key, ..trip(b'w') });
                loops.push(LoopTrip { key, class: Class::Read, ..trip(b'r') });
            }
            let ended = loops.end().unwrap();
            let shapes = (ended.steps.shapes[0] as u8, ended.steps.shapes[1] as u8);
            let expected = if one_key { ((b'r', b'w'), 2, true) } else { ((b'w', b'r'), 1, false) };
            assert_eq!((shapes, ended.needed, ended.may_depend), expected);
        }
    }

    #[test]
    fn a_step_with_one_key_differs_from_one_with_many() {
        let mut loops = Loops::default();
        for key in 0..10 {
            loops.push(LoopTrip { key: 5, ..trip(b'a') });
            loops.push(LoopTrip { key, ..trip(b'b') });
        }
        let one_key: Vec<bool> = loops.end().unwrap().steps.iter().map(|(_, one_key)| one_key).collect();
        assert_eq!(one_key, [true, false]);
    }
}
