//! The table of findings, in bounded memory. Each thread has a table of its own; the tables are merged when they are
//! listed.

use std::sync::Arc;

use crate::client::Client;
use crate::hash::{self, HashedMap};
use crate::loops::Steps;
use crate::shapes::Shapes;
use crate::waits::Waits;

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// One shape again and again, a command per trip.
    Loop,
    /// Several shapes that alternate.
    InterleavedLoop,
    /// A write of a value that the client has just read.
    ReadComputeWrite,
    /// The client reads a value that it already has and that has not changed since.
    RepeatedRead,
    /// A question at a steady pace that mostly finds nothing.
    Polling,
    /// The client waits for each reply between MULTI and EXEC before it sends the next command.
    TransactionInSlices,
    /// Small pipelines or transactions in a row, with a wait for each.
    SmallPipelines,
    /// A script sent as text again and again.
    ScriptInFull,
    /// Scripts that differ only in the values in their texts.
    ChangingScript,
    /// A connection that is made for a command or two.
    ConnectionPerCommand,
    /// The server spilled the replies of a pipeline to disk, because the client sent too much before it read them.
    TooLongPipeline,
    /// A command that goes through all keys, or replies with a large value.
    HeavyCommand,
    /// Commands that go to a node of a cluster that does not have their slot.
    RedirectedCommands,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 13] = [
        Kind::Loop,
        Kind::InterleavedLoop,
        Kind::ReadComputeWrite,
        Kind::RepeatedRead,
        Kind::Polling,
        Kind::TransactionInSlices,
        Kind::SmallPipelines,
        Kind::ScriptInFull,
        Kind::ChangingScript,
        Kind::ConnectionPerCommand,
        Kind::TooLongPipeline,
        Kind::HeavyCommand,
        Kind::RedirectedCommands,
    ];

    /// The name of the kind, in reports and in replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Loop => "loop",
            Kind::InterleavedLoop => "interleaved-loop",
            Kind::ReadComputeWrite => "read-compute-write",
            Kind::RepeatedRead => "repeated-read",
            Kind::Polling => "polling",
            Kind::TransactionInSlices => "transaction-in-slices",
            Kind::SmallPipelines => "small-pipelines",
            Kind::ScriptInFull => "script-in-full",
            Kind::ChangingScript => "changing-script",
            Kind::ConnectionPerCommand => "connection-per-command",
            Kind::TooLongPipeline => "too-long-pipeline",
            Kind::HeavyCommand => "heavy-command",
            Kind::RedirectedCommands => "redirected-commands",
        }
    }

    /// The smallest count worth reporting: wasted trips, or occurrences if the kind isn't about trips.
    fn threshold(self) -> u64 {
        match self {
            Kind::TooLongPipeline => 1,
            Kind::HeavyCommand => 4,
            _ => 16,
        }
    }

    /// True if the kind takes gaps between replies and requests for waits of the client.
    #[must_use]
    pub fn is_about_waits(self) -> bool {
        matches!(self, Kind::Loop | Kind::InterleavedLoop | Kind::TransactionInSlices | Kind::SmallPipelines)
    }

    /// True if the kind counts trips that can be saved.
    #[must_use]
    pub fn is_about_trips(self) -> bool {
        !matches!(self, Kind::ScriptInFull | Kind::ChangingScript | Kind::TooLongPipeline | Kind::HeavyCommand)
    }
}

/// The confidence in a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// May have another cause: see docs/advisor.md.
    Low,
    /// True unless replies differ or a step depends on a reply, which the advisor could not see.
    Medium,
    /// The advisor saw all the evidence.
    High,
}

impl Confidence {
    /// The name of the confidence, in reports and in replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// A command and the keys it works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FindingStep {
    /// The command, in capitals.
    pub command: Box<str>,
    /// The pattern of its key; empty if it has none.
    pub pattern: Box<str>,
    /// True if every round of the loop used one and the same key.
    pub one_key: bool,
    /// True if the command needs the reply to an earlier step.
    pub depends: bool,
}

impl std::fmt::Display for FindingStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pattern.is_empty() {
            f.write_str(&self.command)
        } else {
            write!(f, "{} {}", self.command, self.pattern)
        }
    }
}

/// The numbers of a finding. They can be added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Occurrences: loops, pairs, scripts, connections.
    pub count: u64,
    /// Trips that were made.
    pub made: u64,
    /// Trips that would have been enough.
    pub needed: u64,
    /// Time that the wasted trips took. Time in which several connections of a client waited counts once.
    pub lost_ns: u64,
    /// Bytes sent: of scripts, or of large replies.
    pub bytes: u64,
    /// Time that the server was busy with the command, for kinds where this matters.
    pub busy_ns: u64,
    /// Beginning of the first occurrence.
    pub since_ns: u64,
    /// End of the last occurrence.
    pub last_ns: u64,
    /// Occurrences by confidence: low, medium, high.
    pub by_confidence: [u64; 3],
    /// Occurrences without visible replies.
    pub without_replies: u64,
    /// Occurrences that were followed by the command in [`Finding::after`].
    pub followed: u64,
    /// Sum of the gaps before those commands.
    pub followed_ns: u64,
    /// True if the finding was seen on several connections.
    pub several_connections: bool,
    /// The last connection on which the finding was seen.
    pub connection: u64,
}

impl Sums {
    /// Adds the sums of the same finding from another place.
    pub fn add(&mut self, other: &Sums) {
        let is_first = self.count == 0;
        self.since_ns = if is_first { other.since_ns } else { self.since_ns.min(other.since_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.several_connections |= other.several_connections || (!is_first && self.connection != other.connection);
        self.connection = other.connection;
        self.count += other.count;
        self.made += other.made;
        self.needed += other.needed;
        self.lost_ns = self.lost_ns.saturating_add(other.lost_ns);
        self.bytes += other.bytes;
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.without_replies += other.without_replies;
        self.followed += other.followed;
        self.followed_ns = self.followed_ns.saturating_add(other.followed_ns);
        for (sum, more) in self.by_confidence.iter_mut().zip(other.by_confidence) {
            *sum += more;
        }
    }

    /// Adds the sums of the same client's finding from another thread of the server. The client did not lose more time
    /// than has passed.
    fn add_at_same_time(&mut self, other: &Sums) {
        let least_ns = self.lost_ns.max(other.lost_ns);
        self.add(other);
        let passed_ns = self.last_ns.saturating_sub(self.since_ns);
        self.lost_ns = self.lost_ns.min(passed_ns).max(least_ns);
    }

    /// Number of wasted trips.
    #[must_use]
    pub fn wasted(&self) -> u64 {
        self.made.saturating_sub(self.needed)
    }

    /// The confidence that most occurrences reach.
    #[must_use]
    pub fn confidence(&self) -> Confidence {
        let [low, medium, high] = self.by_confidence;
        if high * 2 > low + medium + high {
            Confidence::High
        } else if (medium + high) * 2 > low + medium + high {
            Confidence::Medium
        } else {
            Confidence::Low
        }
    }
}

/// A finding of one client.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Hash of the kind and the steps, equal for all clients.
    pub id: u64,
    /// The kind.
    pub kind: Kind,
    /// The commands of one round.
    pub steps: Box<[FindingStep]>,
    /// The command that follows, if one was seen.
    pub after: Option<FindingStep>,
    /// The client that made the trips.
    pub client: Arc<Client>,
    /// The numbers.
    pub sums: Sums,
    /// A few sample keys.
    pub samples: Vec<Box<[u8]>>,
    /// The time of the client's connections that is counted.
    pub waits: Waits,
}

/// Redirected commands are reported if they are at least one of so many commands.
const REDIRECTED_SHARE: u64 = 20;
/// Number of keys kept as samples.
const SAMPLES_MAX: usize = 3;
/// Bytes kept of a sample.
pub const SAMPLE_BYTES_MAX: usize = 64;

impl Finding {
    /// Bytes of memory, including the entry in the index.
    fn memory_bytes(&self) -> usize {
        let text = |step: &FindingStep| size_of::<FindingStep>() + step.command.len() + step.pattern.len();
        let texts: usize = self.steps.iter().chain(&self.after).map(text).sum();
        size_of::<Finding>() + 48 + texts + SAMPLES_MAX * (SAMPLE_BYTES_MAX + 32) + self.client.memory_bytes()
    }

    /// True if the finding is frequent enough to be reported.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        // Slots that move cost each client a few redirects.
        if self.kind == Kind::RedirectedCommands && self.sums.wasted() * REDIRECTED_SHARE < self.sums.made {
            return false;
        }
        let found = if self.kind.is_about_trips() { self.sums.wasted() } else { self.sums.count };
        found >= self.kind.threshold()
    }

    /// True if the command in `after` nearly always follows.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.after.is_some() && self.sums.followed * 10 >= self.sums.count * 9 && self.sums.count > 1
    }

    /// Trips made, including those of the command that nearly always follows.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.sums.made + if self.is_followed() { self.sums.followed } else { 0 }
    }

    /// Number of wasted trips.
    #[must_use]
    pub fn wasted(&self) -> u64 {
        self.made().saturating_sub(self.sums.needed)
    }

    /// Time lost. The command that nearly always follows fits into the same pipeline, so the gap before it counts, too.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.sums.lost_ns + if self.is_followed() { self.sums.followed_ns } else { 0 }
    }

    /// Time lost, weighted by the confidence: a sure loss of 0.3 s comes before an unsure one of 1 s.
    fn weighted_ns(&self) -> u64 {
        let weight = match self.sums.confidence() {
            Confidence::Low => 1,
            Confidence::Medium => 2,
            Confidence::High => 4,
        };
        self.lost_ns().saturating_mul(weight)
    }

    fn add_sample(&mut self, sample: &[u8]) {
        let sample = sample.get(..SAMPLE_BYTES_MAX).unwrap_or(sample);
        let is_known = self.samples.iter().any(|known| **known == *sample);
        if !sample.is_empty() && self.samples.len() < SAMPLES_MAX && !is_known {
            self.samples.push(sample.into());
        }
    }
}

/// One occurrence of a finding.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// The kind.
    pub kind: Kind,
    /// The shapes of one round.
    pub steps: Steps,
    /// The shape of the command that followed.
    pub after: Option<u64>,
    /// Trips made.
    pub made: u64,
    /// Trips that would have been enough.
    pub needed: u64,
    /// Time lost.
    pub lost_ns: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Time that the server was busy.
    pub busy_ns: u64,
    /// The gap before the command that followed.
    pub after_ns: u64,
    /// The confidence.
    pub confidence: Confidence,
    /// True if the replies were seen.
    pub is_known: bool,
    /// The connection.
    pub connection: u64,
    /// End of the occurrence.
    pub now_ns: u64,
    /// A key of the last step; empty if no sample is wanted.
    pub sample: &'a [u8],
}

impl Sighting<'_> {
    fn sums(&self) -> Sums {
        let mut sums = Sums {
            count: 1,
            made: self.made,
            needed: self.needed,
            lost_ns: self.lost_ns,
            bytes: self.bytes,
            busy_ns: self.busy_ns,
            since_ns: self.now_ns.saturating_sub(self.lost_ns),
            last_ns: self.now_ns,
            without_replies: u64::from(!self.is_known),
            connection: self.connection,
            ..Sums::default()
        };
        sums.by_confidence[self.confidence as usize] = 1;
        sums
    }
}

/// All findings, by kind, steps and client, in bounded memory.
#[derive(Clone, Debug)]
pub struct Findings {
    index: HashedMap<u32>,
    all: Vec<Finding>,
    keys: Vec<u64>,
    bytes: usize,
    bytes_max: usize,
    /// Findings that were evicted.
    dropped: u64,
    /// Sightings without a finding: their command and key pattern had been evicted from the table of shapes.
    unnamed: u64,
    random: u64,
}

/// Number of random candidates for an eviction.
const TRIED: usize = 8;

impl Findings {
    /// Returns an empty table that takes at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Findings {
        Findings {
            index: HashedMap::default(),
            all: Vec::new(),
            keys: Vec::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
            unnamed: 0,
            random: 1,
        }
    }

    /// Changes the limit, and evicts findings until the table fits.
    pub fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.make_room();
    }

    /// Iterates over all findings, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter()
    }

    /// Bytes of memory that the findings take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Number of findings that were lost: evicted, or never entered because their shapes were unknown.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped + self.unnamed
    }

    /// Removes all findings.
    pub fn clear(&mut self) {
        *self = Findings::new(self.bytes_max);
    }

    /// Lowers the confidence in the client's findings of these kinds so far. They take gaps for waits, and the client has sent commands
    /// without waiting.
    pub(crate) fn doubt(&mut self, client: &Client, kinds: impl Fn(Kind) -> bool) {
        let of_client = self.all.iter_mut().filter(|finding| *finding.client == *client);
        for finding in of_client.filter(|finding| kinds(finding.kind)) {
            let [low, medium, high] = finding.sums.by_confidence;
            finding.sums.by_confidence = match finding.kind {
                Kind::TransactionInSlices => [low + medium + high, 0, 0],
                _ => [low, medium + high, 0],
            };
        }
    }

    /// Adds one occurrence.
    pub(crate) fn record(&mut self, shapes: &Shapes, client: &Arc<Client>, client_hash: u64, sighting: &Sighting<'_>) {
        let mut steps_hash = 0_u64;
        for (shape, one_key) in sighting.steps.iter() {
            let Some(shape) = shapes.get(shape) else {
                self.unnamed += 1;
                return;
            };
            // A sum does not depend on the order, so a round has one hash, whichever of its steps comes first.
            steps_hash = steps_hash.wrapping_add(hash::mix(shape.identity, u64::from(one_key)));
        }
        let id = hash::mix(steps_hash, sighting.kind as u64);
        let key = hash::mix(id, client_hash);
        let mut sums = sighting.sums();
        if let Some(finding) = self.get_mut(key) {
            sums.lost_ns = finding.waits.add(sighting.connection, sums.lost_ns, sighting.now_ns);
            let follows = |after: &FindingStep| {
                let shape = sighting.after.and_then(|shape| shapes.get(shape));
                shape.is_some_and(|shape| shape.command == after.command && shape.pattern == after.pattern)
            };
            if finding.after.as_ref().is_some_and(follows) {
                (sums.followed, sums.followed_ns) = (1, sighting.after_ns);
            }
            finding.sums.add(&sums);
            finding.add_sample(sighting.sample);
            return;
        }
        let step = |shape: u64, one_key, depends| {
            shapes.get(shape).map(|shape| FindingStep {
                command: shape.command.clone(),
                pattern: shape.pattern.clone(),
                one_key,
                depends,
            })
        };
        let after = sighting.after.and_then(|shape| step(shape, false, false));
        if after.is_some() {
            (sums.followed, sums.followed_ns) = (1, sighting.after_ns);
        }
        let places = sighting.steps.iter().enumerate();
        let steps =
            places.filter_map(|(at, (shape, one_key))| step(shape, one_key, sighting.steps.depends(at))).collect();
        let client = Arc::clone(client);
        let mut waits = Waits::default();
        waits.add(sighting.connection, sums.lost_ns, sighting.now_ns);
        let mut finding = Finding { id, kind: sighting.kind, steps, after, client, sums, samples: Vec::new(), waits };
        finding.add_sample(sighting.sample);
        self.insert(key, finding);
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut Finding> {
        self.all.get_mut(*self.index.get(&key)? as usize)
    }

    fn insert(&mut self, key: u64, finding: Finding) {
        self.bytes += finding.memory_bytes();
        self.index.insert(key, self.all.len() as u32);
        self.all.push(finding);
        self.keys.push(key);
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max && self.all.len() > 1 {
            self.drop_one();
        }
    }

    /// Evicts the finding with the smallest loss of time among a few random candidates. The last finding has just been
    /// inserted, and stays.
    fn drop_one(&mut self) {
        let candidates = self.all.len() - 1;
        let mut least = 0;
        for tried in 0..TRIED {
            self.random = hash::mix(self.random, tried as u64 + 1);
            let index = (self.random % candidates as u64) as usize;
            let weight = |index: usize| (self.all[index].sums.lost_ns, self.all[index].sums.count);
            if tried == 0 || weight(index) < weight(least) {
                least = index;
            }
        }
        let dropped = self.all.swap_remove(least);
        self.index.remove(&self.keys.swap_remove(least));
        self.bytes -= dropped.memory_bytes();
        self.dropped += 1;
        if let Some(moved) = self.keys.get(least) {
            self.index.insert(*moved, least as u32);
        }
    }

    /// Adds the findings of another thread.
    pub fn merge(&mut self, other: &Findings) {
        self.dropped += other.dropped;
        self.unnamed += other.unnamed;
        for (key, finding) in other.keys.iter().zip(&other.all) {
            match self.get_mut(*key) {
                Some(known) => {
                    let mut sums = finding.sums.clone();
                    if finding.after != known.after {
                        (sums.followed, sums.followed_ns) = (0, 0);
                    }
                    known.sums.add_at_same_time(&sums);
                    finding.samples.iter().for_each(|sample| known.add_sample(sample));
                }
                None => self.insert(*key, finding.clone()),
            }
        }
    }

    /// The significant findings, added up over all clients, the largest loss of time first. A loss counts less if the
    /// confidence is lower.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.groups_of(|_| true)
    }

    /// Like [`Findings::groups`], for the clients that `is_asked_for` selects.
    #[must_use]
    pub fn groups_of(&self, is_asked_for: impl Fn(&Client) -> bool) -> Vec<Group> {
        let mut groups: HashedMap<Group> = HashedMap::default();
        for finding in self.all.iter().filter(|finding| is_asked_for(&finding.client)) {
            groups.entry(finding.id).or_insert_with(|| Group::of(finding)).add(finding);
        }
        let mut groups: Vec<Group> = groups.into_values().filter(|group| group.total.is_significant()).collect();
        groups.sort_by_key(|group| {
            let sums = &group.total.sums;
            std::cmp::Reverse((group.total.weighted_ns(), sums.busy_ns, sums.wasted(), sums.count, group.total.id))
        });
        groups
    }
}

/// One finding, added up over all clients.
#[derive(Clone, Debug)]
pub struct Group {
    /// The sums over all clients. Its client is the one that lost the most time.
    pub total: Finding,
    /// Number of clients.
    pub clients: u64,
    /// Time that the worst client lost.
    pub worst_ns: u64,
}

impl Group {
    /// An empty group for findings like this.
    fn of(finding: &Finding) -> Group {
        let total = Finding { sums: Sums::default(), samples: Vec::new(), ..finding.clone() };
        Group { total, clients: 0, worst_ns: 0 }
    }

    fn add(&mut self, finding: &Finding) {
        let mut sums = finding.sums.clone();
        if finding.after != self.total.after {
            (sums.followed, sums.followed_ns) = (0, 0);
        }
        self.total.sums.add(&sums);
        finding.samples.iter().for_each(|sample| self.total.add_sample(sample));
        self.clients += 1;
        if finding.sums.lost_ns >= self.worst_ns {
            self.worst_ns = finding.sums.lost_ns;
            self.total.client = Arc::clone(&finding.client);
        }
    }
}
