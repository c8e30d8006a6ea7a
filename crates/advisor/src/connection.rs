//! What the advisor keeps of a connection: hashes of its last commands and replies, and counters.

use std::sync::Arc;

use crate::client::Client;
use crate::findings::SAMPLE_BYTES_MAX;
use crate::loops::{Loops, PERIOD_MAX, Steps};
use crate::polls::Polls;
use crate::reads::Reads;
use crate::recent::Recent;
use crate::round_trip::{Gap, RoundTrip};

/// A connection as the advisor sees it. It takes little until its second batch, and then [`Connection::MEMORY_BYTES`].
#[derive(Clone, Debug)]
pub struct Connection {
    /// Tells connections apart; chosen by the caller.
    pub(crate) id: u64,
    pub(crate) client: Arc<Client>,
    pub(crate) client_hash: u64,
    /// When it was opened, if that was seen.
    pub(crate) opened_ns: Option<u64>,
    /// When its last replies were sent.
    pub(crate) replied_ns: Option<u64>,
    pub(crate) round_trip: RoundTrip,
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
    /// Shape of the first command that is none of a login.
    pub(crate) first_shape: u64,
    /// Gaps that looked like round trips, until the first command that is none of a login.
    pub(crate) setup_ns: u64,
}

/// The last trips of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Last {
    pub loops: Loops,
    pub reads: Reads,
    pub polls: Polls,
    pub recent: Recent,
    pub transaction: Transaction,
    pub pair: Option<Pair>,
    /// True if there was no trip since the last pause.
    pub is_fresh: bool,
    /// The number of the trip, from 1.
    pub trip: u32,
    /// The number of the first trip since the last pause, short ones included.
    pub calm_since: u32,
    /// The last short reply that an argument repeated: again and again the same one proves nothing.
    pub last_weak: u64,
    /// Hashes of the last scripts' texts.
    pub scripts: [u64; 4],
    pub next_script: u8,
    /// Keys of the last shapes, for samples.
    pub samples: Samples,
    /// The shape of the first command of what was sent before a reply was waited for; 0: not known.
    pub pipeline: u64,
    /// The shape of what was last sent without waiting for a reply, and the number of the trip.
    pub unwaited: u64,
    pub unwaited_trip: u32,
    /// From the last trip's request to its reply, where those are seen.
    pub served_ns: u64,
}

/// A transaction that is sent command by command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transaction {
    /// Trips since MULTI, itself included; 0: there is none.
    pub trips: u32,
    /// The gaps before them, MULTI's excepted.
    pub gaps_ns: u64,
    /// The shape of its first command.
    pub shape: u64,
}

/// A read and the write of what it said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub steps: Steps,
    /// The gap before the write.
    pub gap_ns: u64,
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
/// Of a loop over keys, one of so many is taken for a sample.
const SAMPLED_EVERY: u32 = 16;

/// A key of each of the last [`SAMPLES`] shapes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Samples {
    /// The shapes; 0: none.
    shapes: [u64; SAMPLES],
    /// Their keys, at the same index.
    keys: [Sample; SAMPLES],
    /// Where the next new shape goes: the places are taken in turn.
    next: u8,
}

impl Samples {
    /// Takes a key for a sample of its shape, if it has none or an old one.
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

    /// A key of one of these shapes; empty if there is none.
    pub fn of(&self, steps: &Steps) -> &[u8] {
        let place = |shape| self.shapes.iter().position(|known| *known == shape);
        let keys = steps.iter().filter_map(|(shape, _)| place(shape)).map(|place| self.keys[place].key());
        keys.into_iter().find(|key| !key.is_empty()).unwrap_or_default()
    }
}

impl Connection {
    /// Bytes that a connection takes at most, its client's texts excepted.
    pub const MEMORY_BYTES: usize = size_of::<Connection>() + size_of::<Last>();

    /// A connection that was open already when the advisor began to look.
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
            counts: ConnectionCounts::default(),
            last: None,
        }
    }

    /// A connection that is opened now.
    #[must_use]
    pub fn opened(id: u64, client: Client, now_ns: u64) -> Connection {
        Connection { opened_ns: Some(now_ns), ..Connection::new(id, client) }
    }

    /// Its client has another name, library or user now. What was found before stays with the client as it was.
    pub fn set_client(&mut self, client: Client) {
        self.client = Arc::new(client.cut());
        self.client_hash = self.client.hash();
    }

    /// The round trip as it was measured by other means, by the kernel's TCP_INFO, say; the client's own work excluded.
    pub fn set_round_trip(&mut self, measured_ns: u64) {
        self.round_trip.set(measured_ns);
    }

    /// When its last replies were sent, if that is known better than the last trip told.
    #[inline]
    pub fn set_replied(&mut self, replied_ns: u64) {
        self.replied_ns = Some(replied_ns);
    }

    /// True if it has been silent for longer than a round trip may take.
    #[must_use]
    pub fn is_silent(&self, now_ns: u64) -> bool {
        self.replied_ns.is_some_and(|replied_ns| now_ns.saturating_sub(replied_ns) > self.round_trip.longest_ns())
    }

    /// Its counters.
    #[must_use]
    pub fn counts(&self) -> ConnectionCounts {
        self.counts
    }

    /// What the time since the last reply looks like.
    #[inline]
    pub(crate) fn gap(&mut self, arrived_ns: u64) -> Gap {
        match self.replied_ns {
            None => Gap::First,
            Some(replied_ns) if arrived_ns < replied_ns => Gap::Overlap,
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
        // Their lowest bits are equal: places must not depend on them.
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
