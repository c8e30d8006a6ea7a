//! The state of a connection: hashes of its last commands and replies, and counters.

use std::sync::Arc;

use crate::batches::Batches;
use crate::client::Client;
use crate::evidence;
use crate::findings::{Confidence, SAMPLE_BYTES_MAX};
use crate::loops::{Loops, PERIOD_MAX, Steps};
use crate::polls::Polls;
use crate::reads::Reads;
use crate::recent::Recent;
use crate::round_trip::{CLIENT_MAX_NS, Gap, RoundTrip};

/// The advisor's state of a connection. It is small until the second batch, and then takes
/// [`Connection::MEMORY_BYTES`].
#[derive(Clone, Debug)]
pub struct Connection {
    /// Identifies the connection; chosen by the caller.
    pub(crate) id: u64,
    pub(crate) client: Arc<Client>,
    pub(crate) client_hash: u64,
    /// Time when the connection was opened, if the advisor saw it.
    pub(crate) opened_ns: Option<u64>,
    /// Time when the last replies were sent.
    pub(crate) replied_ns: Option<u64>,
    pub(crate) round_trip: RoundTrip,
    /// True if the trips come from a log.
    pub(crate) is_of_log: bool,
    /// True if the server has refused CLUSTER: it is no node of a cluster.
    pub(crate) is_outside_cluster: bool,
    pub(crate) counts: ConnectionCounts,
    pub(crate) last: Option<Box<Last>>,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Batches.
    pub batches: u64,
    /// Commands.
    pub commands: u64,
    /// Batches of a login.
    pub setup: u64,
    /// Commands of a login.
    pub(crate) setup_commands: u64,
    /// Redirected commands so far, and number of commands when they were last recorded.
    pub(crate) redirected: u64,
    pub(crate) redirects_recorded: u64,
    /// Shape of the first command after the login.
    pub(crate) first_shape: u64,
    /// The client's time after connecting, and gaps that looked like round trips, until the first command after the login.
    pub(crate) setup_ns: u64,
}

/// The last trips of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Last {
    pub loops: Loops,
    pub reads: Reads,
    pub polls: Polls,
    pub batches: Batches,
    pub recent: Recent,
    /// The words of the last replies, while a loop goes on.
    pub words: evidence::Words,
    pub transaction: Transaction,
    pub pair: Option<Pair>,
    /// True if there was no trip since all runs ended.
    pub is_fresh: bool,
    /// True if there was no trip since the last long pause.
    pub rests: bool,
    /// The number of the trip, from 1.
    pub trip: u32,
    /// The number of the first trip since the last pause; pauses that the client did not choose count as well.
    pub calm_since: u32,
    /// The last weak match of an argument with a reply. A repetition of the same weak match proves nothing.
    pub last_weak: u64,
    /// Hashes of the last scripts' texts, and of the last script's text without its values.
    pub scripts: [u64; 4],
    pub next_script: u8,
    pub script_template: u64,
    /// Keys of the last shapes, for samples.
    pub samples: Samples,
    /// The shape of the first command of the current pipeline; 0 if unknown.
    pub pipeline: u64,
    /// The shapes that were last sent without waiting for a reply.
    pub unwaited: Unwaited,
    /// Time from the last request to its reply, if both were seen.
    pub served_ns: u64,
    /// Number of commands in the last batch; 0 before the first one.
    pub depth: u32,
    /// True if the client has sent a command by itself without waiting for a reply.
    pub writes_singly: bool,
    /// True if a finding of the connection takes gaps for waits.
    pub took_gaps_for_waits: bool,
    /// True if the client has sent commands of a transaction at once.
    pub pipelines_transactions: bool,
}

/// A transaction that is sent command by command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transaction {
    /// Trips since MULTI, including MULTI; 0 outside a transaction.
    pub trips: u32,
    /// The gaps before these trips, except for the one before MULTI.
    pub gaps_ns: u64,
    /// The shape of the transaction's first command.
    pub shape: u64,
    /// True if a command was sent before the reply to the previous one.
    pub is_pipelined: bool,
}

/// Number of shapes that are remembered as sent without waiting.
const UNWAITED_SHAPES: usize = 8;

/// The shapes that a client recently sent without waiting for a reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unwaited {
    /// The shapes; 0 for a free entry.
    shapes: [u64; UNWAITED_SHAPES],
    /// The number of the last trip for which each shape is remembered.
    until: [u32; UNWAITED_SHAPES],
    /// Index of the next entry to replace, in rotation.
    next: u8,
}

impl Unwaited {
    /// Remembers a shape until this trip.
    pub fn remember(&mut self, shape: u64, until: u32) {
        let known = self.shapes.iter().position(|known| *known == shape);
        let place = known.unwrap_or_else(|| {
            self.next = self.next.wrapping_add(1);
            usize::from(self.next) % UNWAITED_SHAPES
        });
        self.until[place] = if known.is_some() { self.until[place].max(until) } else { until };
        self.shapes[place] = shape;
    }

    /// True if the client has sent this shape without waiting, some time ago.
    pub fn knows(&self, shape: u64) -> bool {
        self.shapes.contains(&shape)
    }

    /// True if a shape is remembered at this trip.
    #[inline]
    pub fn has(&self, shape: u64, trip: u32) -> bool {
        self.shapes.iter().zip(&self.until).any(|(known, until)| *known == shape && trip <= *until)
    }
}

/// A read, and a write of the value that it returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub steps: Steps,
    /// The gap before the write.
    pub gap_ns: u64,
    /// The confidence.
    pub confidence: Confidence,
}

/// The beginning of a key.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bytes: [u8; SAMPLE_BYTES_MAX],
    len: u8,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { bytes: [0; SAMPLE_BYTES_MAX], len: 0 }
    }
}

impl Sample {
    fn set(&mut self, key: &[u8]) {
        let len = key.len().min(SAMPLE_BYTES_MAX);
        self.bytes[..len].copy_from_slice(&key[..len]);
        self.len = len as u8;
    }

    fn key(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Shapes with a sample: as many as the longest loop has steps.
const SAMPLES: usize = PERIOD_MAX;
/// Takes a new sample after this many trips of a loop.
const SAMPLED_EVERY: u32 = 16;

/// A key of each of the last [`SAMPLES`] shapes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Samples {
    /// The shapes; 0 for a free entry.
    shapes: [u64; SAMPLES],
    /// Their keys, at the same index.
    keys: [Sample; SAMPLES],
    /// Index of the next entry to replace, in rotation.
    next: u8,
}

impl Samples {
    /// Takes the key as the sample of its shape, if the shape has none or an old one.
    #[inline]
    pub fn take(&mut self, shape: u64, key: &[u8], trip: u32) {
        match self.shapes.iter().position(|known| *known == shape) {
            Some(place) if trip.is_multiple_of(SAMPLED_EVERY) => self.keys[place].set(key),
            Some(_) => {}
            None => self.add(shape, key),
        }
    }

    fn add(&mut self, shape: u64, key: &[u8]) {
        let place = usize::from(self.next) % SAMPLES;
        self.next = self.next.wrapping_add(1);
        self.shapes[place] = shape;
        self.keys[place].set(key);
    }

    /// Returns the key of one of these shapes; empty if there is none.
    pub fn of(&self, steps: &Steps) -> &[u8] {
        let place = |shape| self.shapes.iter().position(|known| *known == shape);
        let keys = steps.iter().filter_map(|(shape, _)| place(shape)).map(|place| self.keys[place].key());
        keys.into_iter().find(|key| !key.is_empty()).unwrap_or_default()
    }
}

impl Connection {
    /// Most bytes that a connection takes, excluding its client's texts.
    pub const MEMORY_BYTES: usize = size_of::<Connection>() + size_of::<Last>();

    /// Returns a connection that was open before the advisor began to look.
    #[must_use]
    pub fn new(id: u64, client: Client) -> Connection {
        let client = Arc::new(client.cut());
        Connection {
            id,
            client_hash: client.hash(),
            client,
            opened_ns: None,
            replied_ns: None,
            round_trip: RoundTrip::default(),
            is_of_log: false,
            is_outside_cluster: false,
            counts: ConnectionCounts::default(),
            last: None,
        }
    }

    /// Returns a connection that opens now.
    #[must_use]
    pub fn opened(id: u64, client: Client, now_ns: u64) -> Connection {
        Connection { opened_ns: Some(now_ns), ..Connection::new(id, client) }
    }

    /// Changes the client's attributes. Earlier findings keep the old ones.
    pub fn set_client(&mut self, mut client: Client) {
        client.in_cluster &= !self.is_outside_cluster;
        self.client = Arc::new(client.cut());
        self.client_hash = self.client.hash();
    }

    /// Notes that the server has refused CLUSTER. Some libraries ask every server for the map of the slots.
    #[cold]
    pub(crate) fn leave_cluster(&mut self) {
        self.is_outside_cluster = true;
        self.set_client(Client::clone(&self.client));
    }

    /// Sets a round trip that was measured by other means, for example by TCP_INFO. It excludes the client's own work.
    pub fn set_round_trip(&mut self, measured_ns: u64) {
        self.round_trip.set(measured_ns);
    }

    /// Sets the time when the last replies were sent, if the caller knows it better than the last trip.
    #[inline]
    pub fn set_replied(&mut self, replied_ns: u64) {
        self.replied_ns = Some(replied_ns);
    }

    /// Returns for how long the connection has been silent, if this is longer than a round trip may take.
    #[must_use]
    pub(crate) fn silent_ns(&self, now_ns: u64) -> Option<u64> {
        let silent_ns = now_ns.saturating_sub(self.replied_ns?);
        (silent_ns > self.round_trip.longest_ns()).then_some(silent_ns)
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> ConnectionCounts {
        self.counts
    }

    /// Marks a connection of a log. A log shows neither the network nor the client's writes, so its findings are never
    /// certain.
    #[must_use]
    pub fn of_log(self) -> Connection {
        Connection { is_of_log: true, ..self }
    }

    /// Returns the client's own time between connecting and its first batch. Returns `None` for later batches.
    #[inline]
    pub(crate) fn after_connecting_ns(&self, arrived_ns: u64) -> Option<u64> {
        if self.replied_ns.is_some() {
            return None;
        }
        let opened_ns = self.opened_ns?;
        Some(arrived_ns.saturating_sub(opened_ns).min(CLIENT_MAX_NS))
    }

    /// Learns from a batch of the login. Returns the gap before it, or 0 if there is none.
    pub(crate) fn login_gap_ns(&mut self, arrived_ns: u64) -> u64 {
        let since = self.replied_ns.and_then(|replied_ns| arrived_ns.checked_sub(replied_ns));
        if let Some(gap_ns) = since {
            self.round_trip.learn_from_login(gap_ns);
        }
        since.unwrap_or(0)
    }

    /// Classifies the time since the last reply.
    #[inline]
    pub(crate) fn gap(&mut self, arrived_ns: u64) -> Gap {
        match self.replied_ns {
            None => Gap::First,
            Some(replied_ns) if arrived_ns < replied_ns => Gap::Overlap,
            Some(replied_ns) if self.round_trip.is_too_soon(arrived_ns - replied_ns) => Gap::Overlap,
            Some(replied_ns) => self.round_trip.classify(arrived_ns - replied_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_the_longest_loop_has_a_sample() {
        let mut samples = Samples::default();
        // The shapes differ only in their high bits: the entries must not depend on the low ones.
        let shapes = (1..=SAMPLES as u64).map(|number| number << 32);
        for round in 0..3 {
            for shape in shapes.clone() {
                samples.take(shape, shape.to_string().as_bytes(), round);
            }
        }
        for shape in shapes {
            assert_eq!(samples.of(&Steps::one(shape, false)), shape.to_string().as_bytes());
        }
        samples.take(5, b"five", 1);
        assert_eq!(samples.of(&Steps::one(5, false)), b"five");
        assert_eq!(samples.of(&Steps::one(1 << 32, false)), b"", "the oldest has made room");
        samples.take(5, b"six", 1);
        assert_eq!(samples.of(&Steps::one(5, false)), b"five");
        samples.take(5, b"seven", SAMPLED_EVERY);
        assert_eq!(samples.of(&Steps::one(5, false)), b"seven");
    }
}
