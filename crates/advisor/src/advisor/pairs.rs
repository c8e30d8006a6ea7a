//! Reads whose reply the same client writes back, changed or not: one command or script could do both.

use super::{ARGUMENTS_MAX, Seen, VALUES_MAX, Watch, key};
use crate::catalogue::{Class, Found};
use crate::connection::Pair;
use crate::findings::{Confidence, Kind, Sighting};
use crate::hash;
use crate::loops::{LoopTrip, Steps};
use crate::reads::Repetition;
use crate::recent::{self, Evidence};
use crate::round_trip::Gap;
use resp::request::Args;

/// Longest distance, in trips, between a read and the write that repeats its reply.
const PAIR_DISTANCE_MAX: u32 = 4;

/// True for a command that removes members by their names. Of several clients that read the same member, its reply tells who has removed
/// it: no write is lost.
fn removes_member(command: &str) -> bool {
    matches!(command, "ZREM" | "SREM" | "LREM" | "HDEL" | "XDEL" | "XACK")
}

/// True for a command that changes a number in the server: its arguments are the change, not the value.
fn counts(command: &str) -> bool {
    command.starts_with("INCR")
        || command.starts_with("DECR")
        || matches!(command, "HINCRBY" | "HINCRBYFLOAT" | "ZINCRBY")
}

/// True for a command whose arguments behind the key are fields and values in turn. Each value follows its field.
fn has_fields(command: &str) -> bool {
    matches!(command, "HSET" | "HMSET" | "HSETNX")
}

/// True for a command that writes a value with an expiry.
fn writes_for_a_time(command: &Args<'_>) -> bool {
    let is = |argument: &[u8], names: &[&str]| names.iter().any(|name| argument.eq_ignore_ascii_case(name.as_bytes()));
    let options = || command.from(3).take(VALUES_MAX);
    is(command.get(0), &["SETEX", "PSETEX"])
        || is(command.get(0), &["SET"]) && options().any(|option| is(option, &["EX", "PX", "EXAT", "PXAT"]))
}

impl Watch<'_, '_> {
    /// True if this command is the second of a pair: it writes a value that the client has just read from the same key,
    /// or deletes the key. Records the pair. If the read may turn out to be a repeated one, the pair waits until the
    /// next read decides.
    #[inline]
    pub(super) fn is_paired(&mut self, seen: &Seen<'_>) -> bool {
        if counts(seen.found.verb.name) {
            return false;
        }
        let Some(read) = self.read_before(seen) else { return false };
        // Without the read value, the client may write for another reason. During a pause it may work with the value.
        let is_certain = seen.origin.evidence == Evidence::Strong && !seen.is_after_pause;
        let confidence = if is_certain { Confidence::High } else { Confidence::Medium };
        let pair = Pair { steps: Steps::pair(read, seen.shape), gap_ns: self.lost_ns(seen), confidence };
        match self.last.reads.repetition(read) {
            Repetition::Repeats => return false,
            Repetition::First => {
                self.settle_pair();
                self.last.pair = Some(pair);
                return false;
            }
            Repetition::None | Repetition::Differs => {}
        }
        if !removes_member(seen.found.verb.name) {
            self.pair(&pair);
        }
        true
    }

    /// Returns the shape of an earlier read of the command's key if an argument repeats that read's reply, if both are
    /// documents of JSON, or if the command deletes the key directly after the read.
    #[inline]
    fn read_before(&self, seen: &Seen<'_>) -> Option<u64> {
        let loops = &self.last.loops;
        let is_read_here = |trip: &&LoopTrip| trip.class == Class::Read && trip.key == seen.key_hash;
        let origin = &seen.origin;
        let repeats = origin.evidence != Evidence::None
            && origin.distance <= PAIR_DISTANCE_MAX
            && (!has_fields(seen.found.verb.name) || self.repeats_value());
        let repeated = repeats.then(|| self.source_of(seen)).flatten().filter(is_read_here);
        let deletes = matches!(seen.found.verb.name, "DEL" | "UNLINK") && self.trip.command.len() == 2;
        let deleted = || deletes.then(|| loops.ago(1)).flatten().filter(is_read_here);
        // A web framework reads the session of a request, and writes it anew at its end.
        let is_session = |trip: &&LoopTrip| trip.is_paced && writes_for_a_time(&self.trip.command);
        let written = repeated.or_else(|| self.document_before(seen)).filter(|trip| !is_session(trip));
        written.or_else(deleted).map(|trip| trip.shape)
    }

    /// True if a value of a command with fields repeats a reply. The names of fields stand in the replies to HGETALL.
    fn repeats_value(&self) -> bool {
        let command = &self.trip.command;
        let mut values = (3..command.len()).step_by(2).take(ARGUMENTS_MAX / 2).map(|index| command.get(index));
        values.any(|value| {
            let value = hash::argument(self.advisor.config.seed, value);
            self.last.recent.origin(value, self.last.trip).evidence != Evidence::None
        })
    }

    /// Returns the trip with the reply that an argument repeats. Over pauses of any length, only the next number counts: the
    /// client counts on. Other values may be written again after some work, for example to lengthen their life.
    #[inline]
    fn source_of(&self, seen: &Seen<'_>) -> Option<&LoopTrip> {
        let (loops, origin) = (&self.last.loops, &seen.origin);
        loops.ago(origin.distance).or_else(|| origin.is_next.then(|| loops.ago_over_pauses(origin.distance)).flatten())
    }

    /// Returns the read of a document of JSON that this command writes anew.
    fn document_before(&self, seen: &Seen<'_>) -> Option<&LoopTrip> {
        let loops = &self.last.loops;
        let before = (1..=PAIR_DISTANCE_MAX).filter_map(|ago| loops.ago(ago));
        let read = before.into_iter().find(|trip| trip.is_document && trip.key == seen.key_hash)?;
        let mut values = self.trip.command.from(2).take(VALUES_MAX);
        (read.class == Class::Read && values.any(recent::is_document)).then_some(read)
    }

    /// Records a number that the client reads, and increments by a transaction or another small batch, often after WATCH of its key.
    #[cold]
    pub(super) fn count_in_transaction(&mut self, found: &Found, gap: Gap, write: u64) {
        let seed = self.advisor.config.seed;
        let (key_index, key) = key(self.trip, found);
        let (_, origin) = self.arguments(&self.trip.command, key_index, seed);
        let key = hash::argument(seed, key);
        let earlier = |trips: u32| self.last.loops.ago_over_pauses(trips).filter(|trip| trip.key == key);
        let Some(read) = earlier(1).filter(|trip| trip.class == Class::Read) else { return };
        // The last reply was to the last command by itself.
        if !origin.is_next || origin.distance > 0 {
            return;
        }
        let steps = Steps::pair(read.shape, write);
        let made = 2 + u64::from(earlier(2).is_some_and(|trip| trip.shape != write && trip.class == Class::Read));
        let gap_ns = if let Gap::RoundTrip(gap_ns) = gap { gap_ns } else { self.connection.round_trip.network_ns() };
        let lost_ns = gap_ns * (made - 1);
        let sighting = self.sighting(Kind::ReadComputeWrite, steps);
        self.record(Sighting { made, needed: 1, lost_ns, confidence: Confidence::Medium, is_known: true, ..sighting });
    }

    /// Records the waiting pair, unless its read turned out to be a repeated one.
    pub(super) fn settle_pair(&mut self) {
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
            confidence: pair.confidence,
            ..self.sighting(Kind::ReadComputeWrite, pair.steps)
        });
    }
}
