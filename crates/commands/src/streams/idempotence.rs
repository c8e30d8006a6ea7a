//! Idempotent messages of producers, as in Redis 8.6: XADD's IDMP and IDMPAUTO, XCFGSET, XIDMPRECORD.
//!
//! The journal records a message with its identity and its entry's ID. A repeated message records nothing. Redis's
//! journals contain a repeated message as the client sent it; replaying it only counts a duplicate, whatever the clock
//! says.

use store::keyspace::Key;
use store::types::stream::{IdentityLimits, Producers, Stream, StreamId};
use twox_hash::XxHash3_128;

use super::options::{NewId, id};
use crate::Call;
use crate::error::{Error, Outcome};

const MANY: Error = Error::fixed("ERR syntax error, IDMP/IDMPAUTO specified multiple times");
const NO_PRODUCER: Error = Error::fixed("ERR syntax error, IDMP requires a non-empty producer ID");
const NO_PRODUCER_AUTO: Error = Error::fixed("ERR syntax error, IDMPAUTO requires a non-empty producer ID");
const NO_IDENTITY: Error = Error::fixed("ERR syntax error, IDMP requires a non-empty idempotent ID");
const NOT_AUTO: Error = Error::fixed("ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs");

/// Positions of a message's identification in XADD's arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageAt {
    producer: usize,
    /// Its identity; with IDMPAUTO, the identity is computed from the fields and values.
    identity: Option<usize>,
}

impl MessageAt {
    /// Parses IDMP or IDMPAUTO at `at`, and returns the positions with the index of the option's last argument.
    pub fn read(
        call: &Call<'_, '_, '_>,
        at: usize,
        before: Option<MessageAt>,
    ) -> Result<Option<(MessageAt, usize)>, Error> {
        let more = call.len() - at - 1;
        let (is_given, is_auto) = (more >= 2 && call.is(at, "idmp"), more >= 1 && call.is(at, "idmpauto"));
        if !is_given && !is_auto {
            return Ok(None);
        }
        if before.is_some() {
            return Err(MANY);
        }
        if call.arg(at + 1).is_empty() {
            return Err(if is_auto { NO_PRODUCER_AUTO } else { NO_PRODUCER });
        }
        if is_given && call.arg(at + 2).is_empty() {
            return Err(NO_IDENTITY);
        }
        let place = MessageAt { producer: at + 1, identity: is_given.then_some(at + 2) };
        Ok(Some((place, if is_given { at + 2 } else { at + 1 })))
    }

    /// Rejects an ID from the client. Only the journal may give one.
    pub fn check(call: &Call<'_, '_, '_>, id: NewId) -> Outcome {
        if id == NewId::Auto || call.db.is_replay() { Ok(()) } else { Err(NOT_AUTO) }
    }

    /// Returns the message with these fields and values.
    pub fn message<'a>(self, call: &Call<'a, '_, '_>, pairs: impl Iterator<Item = &'a [u8]>) -> Message<'a> {
        let identity = match self.identity {
            Some(at) => Identity::Given(call.arg(at)),
            None => Identity::Auto(identity_of(pairs)),
        };
        Message { producer: call.arg(self.producer), identity }
    }
}

/// A producer's message.
pub(super) struct Message<'a> {
    producer: &'a [u8],
    identity: Identity<'a>,
}

enum Identity<'a> {
    Given(&'a [u8]),
    Auto([u8; 16]),
}

/// Computes the identity of a message from its fields and values, independent of their order. Redis's function differs,
/// so neither server recognizes the identities that the other computed for IDMPAUTO.
fn identity_of<'a>(pairs: impl Iterator<Item = &'a [u8]>) -> [u8; 16] {
    let (mut all, mut words) = (0u128, pairs);
    while let (Some(field), Some(value)) = (words.next(), words.next()) {
        let mut hasher = XxHash3_128::new();
        hasher.write(&(field.len() as u64).to_le_bytes());
        hasher.write(field);
        hasher.write(value);
        // Addition instead of exclusive or, which would cancel repeated pairs.
        all = all.wrapping_add(hasher.finish_128());
    }
    all.to_le_bytes()
}

impl Message<'_> {
    fn identity(&self) -> &[u8] {
        match &self.identity {
            Identity::Given(identity) => identity,
            Identity::Auto(identity) => identity,
        }
    }

    /// Returns the ID of the entry that was added for the message before, if any. `wanted` is XADD's ID.
    pub fn sent_before(
        &self,
        call: &mut Call<'_, '_, '_>,
        key: Key<'_>,
        wanted: NewId,
    ) -> Result<Option<StreamId>, Error> {
        if call.db.is_replay() {
            // A recorded message with an ID is new; without one, it was a duplicate, even if this server has forgotten
            // the message.
            let is_again = wanted == NewId::Auto;
            return if is_again { self.count_again(call, key).map(Some) } else { Ok(None) };
        }
        let now_ms = call.db.now_ms();
        let stream = call.db.object_mut::<Stream>(key)?;
        let Some(producers) = stream.and_then(|stream| stream.producers.as_mut()) else { return Ok(None) };
        let found = producers.find(self.producer, self.identity(), now_ms);
        producers.duplicates += u64::from(found.is_some());
        Ok(found)
    }

    /// Counts a duplicate from a journal.
    fn count_again(&self, call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Result<StreamId, Error> {
        let Some(stream) = call.db.object_mut::<Stream>(key)? else { return Ok(StreamId::MIN) };
        let producers = stream.producers_mut();
        producers.duplicates += 1;
        Ok(producers.known(self.producer, self.identity()).unwrap_or_default())
    }

    /// Stores the message's entry.
    pub fn note(&self, producers: &mut Producers, id: StreamId, now_ms: u64) {
        producers.insert(self.producer, self.identity(), id, now_ms);
    }

    /// Returns the record's words before the ID.
    pub fn words(&self) -> Vec<&[u8]> {
        match &self.identity {
            Identity::Given(identity) => vec![b"IDMP", self.producer, identity],
            Identity::Auto(_) => vec![b"IDMPAUTO", self.producer],
        }
    }
}

/// True if new streams have other limits than the defaults that readers of the journal assume.
pub(super) fn must_configure(call: &Call<'_, '_, '_>) -> bool {
    call.rules.identities != IdentityLimits::default() && !call.db.is_replay()
}

/// Applies the configured limits to a new stream, and records them.
pub(super) fn configure_new(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    let limits = call.rules.identities;
    if let Some(stream) = call.db.object_mut::<Stream>(key)? {
        stream.producers_mut().set_limits(limits);
    }
    if call.is_recorded() {
        let [seconds, count] = [limits.seconds, limits.count].map(|limit| limit.to_string());
        let words = [b"XCFGSET", key.bytes, b"IDMP-DURATION", seconds.as_bytes(), b"IDMP-MAXSIZE", count.as_bytes()];
        call.record_as(&words);
    }
    Ok(())
}

/// Parses one of XCFGSET's numbers, in the argument after `at`.
fn limit(call: &Call<'_, '_, '_>, at: usize, name: &str, unit: &str, max: u32) -> Result<u32, Error> {
    let limit = u32::try_from(call.int(at + 1)?).ok().filter(|limit| (1..=max).contains(limit));
    limit.ok_or_else(|| Error::new(format!("ERR {name} must be between 1 and {max} {unit}")))
}

pub(super) fn xcfgset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    if call.db.object_mut::<Stream>(key)?.is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    let (mut seconds, mut count) = (None, None);
    let max = IdentityLimits::MAX;
    for at in (2..call.len()).step_by(2) {
        let has_more = at + 1 < call.len();
        let (found, name) = if has_more && call.is(at, "idmp-duration") {
            (seconds.replace(limit(call, at, "IDMP-DURATION", "seconds", max.seconds)?), "IDMP-DURATION")
        } else if has_more && call.is(at, "idmp-maxsize") {
            (count.replace(limit(call, at, "IDMP-MAXSIZE", "entries", max.count)?), "IDMP-MAXSIZE")
        } else {
            return Err(Error::SYNTAX);
        };
        if found.is_some() {
            return Err(Error::new(format!("ERR {name} specified multiple times")));
        }
    }
    if seconds.or(count).is_none() {
        return Err(Error::fixed("ERR At least one parameter must be specified"));
    }
    if let Some(stream) = call.db.object_mut::<Stream>(key)? {
        let before = stream.producers.as_ref().map(|producers| producers.limits()).unwrap_or_default();
        let limits =
            IdentityLimits { seconds: seconds.unwrap_or(before.seconds), count: count.unwrap_or(before.count) };
        if limits != before {
            stream.producers_mut().set_limits(limits);
        }
    }
    call.effects.count(1);
    call.reply.ok();
    Ok(())
}

pub(super) fn xidmprecord(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (producer, identity, entry) = (call.arg(2), call.arg(3), id(call.arg(4))?);
    if producer.is_empty() {
        return Err(Error::fixed("ERR producer ID must be non-empty"));
    }
    if identity.is_empty() {
        return Err(Error::fixed("ERR idempotent ID must be non-empty"));
    }
    let key = call.key(1);
    let (is_replay, now_ms) = (call.db.is_replay(), call.db.now_ms());
    let stream = call.db.object_mut::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    if !stream.entries.contains(entry) {
        return Err(Error::fixed("ERR No such message in stream"));
    }
    // A replayed record always applies: the server that wrote it may have forgotten more by then.
    match stream.producers_mut().known(producer, identity).filter(|_| !is_replay) {
        Some(known) if known == entry => {}
        Some(_) => return Err(Error::fixed("ERR IID already exists for this producer with a different stream ID")),
        None => {
            stream.producers_mut().insert(producer, identity, entry, now_ms.min(entry.ms));
            call.effects.count(1);
        }
    }
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn identities_ignore_the_order_of_fields() {
        let of = |words: &[&str]| identity_of(words.iter().map(|word| word.as_bytes()));
        assert_eq!(of(&["a", "b", "c", "d"]), of(&["c", "d", "a", "b"]));
        let others: [&[&str]; 8] = [
            &["a", "b"],
            &["ab", ""],
            &["", "ab"],
            &["a", "b", "a", "b"],
            &["a", "b", "c", "d"],
            &["a", "d", "c", "b"],
            &["", ""],
            &["", "", "", ""],
        ];
        let mut identities = others.map(of).to_vec();
        identities.sort();
        identities.dedup();
        assert_eq!(identities.len(), others.len());
    }

    /// Expected replies come from Redis 8.6.
    #[test]
    fn a_repeated_message_is_not_added() {
        let mut bench = Bench::default();
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        bench.check(&[
            ("XADD s NOMKSTREAM IDMP p i * f v", "$-1"),
            ("EXISTS s", ":0"),
            ("XADD s IDMP p i * f v", "$15|1700000000000-0"),
            ("XADD s idmp p i * g w", "$15|1700000000000-0"),
            ("XADD s MAXLEN 0 IDMP p i * f v", "$15|1700000000000-0"),
            ("XLEN s", ":1"),
            ("XADD s IDMP q i * f v", "$15|1700000000000-1"),
            ("XADD s IDMPAUTO p * a 1 b 2", "$15|1700000000000-2"),
            ("XADD s IDMPAUTO p NOMKSTREAM * b 2 a 1", "$15|1700000000000-2"),
            ("XADD s IDMPAUTO q * b 2 a 1", "$15|1700000000000-3"),
            ("SET str x", "+OK"),
            ("XADD str IDMP p i * f v", wrong_type),
        ]);
        bench.now_ms += 99_999;
        bench.check(&[("XADD s IDMP p i * f v", "$15|1700000000000-0")]);
        bench.now_ms += 1;
        bench.check(&[("XADD s IDMP p i * f v", "$15|1700000100000-0"), ("XLEN s", ":5")]);
    }

    /// Expected replies come from Redis 8.6.
    #[test]
    fn invalid_identifications_are_refused() {
        let arity = "-ERR wrong number of arguments for 'xadd' command";
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        let not_auto = "-ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs";
        let many = "-ERR syntax error, IDMP/IDMPAUTO specified multiple times";
        crate::testing::check(&[
            ("XADD s IDMP p1 * f v", invalid),
            ("XADD s IDMP p1 i 1-1 f v", not_auto),
            ("XADD s IDMP p1 i 1-1 f", not_auto),
            ("XADD s IDMP p1 i 1-* f v", not_auto),
            ("XADD s IDMP p1 i IDMPAUTO p * f v", many),
            ("XADD s IDMPAUTO p IDMPAUTO p * f v", many),
            ("XADD s NOMKSTREAM IDMP p q *", arity),
            ("XADD s IDMPAUTO p * f", arity),
            ("XADD s f v IDMP", invalid),
            ("XADD s MAXLEN 1 IDMP p", invalid),
            ("XADD s NOMKSTREAM KEEPREF IDMPAUTO", invalid),
            ("XADD s IDMP \"\" i * f v", "-ERR syntax error, IDMP requires a non-empty producer ID"),
            ("XADD s IDMP p \"\" * f v", "-ERR syntax error, IDMP requires a non-empty idempotent ID"),
            ("XADD s IDMPAUTO \"\" * f v", "-ERR syntax error, IDMPAUTO requires a non-empty producer ID"),
            ("XTRIM s MAXLEN 4 IDMP a b", "-ERR syntax error"),
            ("EXISTS s", ":0"),
        ]);
    }

    /// Expected replies come from Redis 8.6.
    #[test]
    fn xcfgset_sets_limits_and_forgets_earlier_messages() {
        let duration = "-ERR IDMP-DURATION must be between 1 and 86400 seconds";
        let size = "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
        let number = "-ERR value is not an integer or out of range";
        let mut bench = Bench::default();
        bench.check(&[
            ("XCFGSET s IDMP-DURATION 0", "-ERR no such key"),
            ("XADD s 1-1 f v", "$3|1-1"),
            ("XCFGSET s", "-ERR At least one parameter must be specified"),
            ("XCFGSET s IDMP-DURATION", "-ERR syntax error"),
            ("XCFGSET s IDMP-DURATION 0 FOO", duration),
            ("XCFGSET s IDMP-DURATION 86401", duration),
            ("XCFGSET s IDMP-DURATION x", number),
            ("XCFGSET s IDMP-MAXSIZE 0", size),
            ("XCFGSET s IDMP-MAXSIZE 10001", size),
            ("XCFGSET s IDMP-MAXSIZE 5 IDMP-MAXSIZE 6", "-ERR IDMP-MAXSIZE specified multiple times"),
            ("XCFGSET s FOO 5", "-ERR syntax error"),
            ("XCFGSET s IDMP-MAXSIZE 2", "+OK"),
            ("XADD s IDMP p a * f v", "$15|1700000000000-0"),
            ("XCFGSET s IDMP-MAXSIZE 2 IDMP-DURATION 100", "+OK"),
            ("XADD s IDMP p a * f v", "$15|1700000000000-0"),
            ("XADD s IDMP p b * f v", "$15|1700000000000-1"),
            ("XADD s IDMP p c * f v", "$15|1700000000000-2"),
            ("XADD s IDMP p a * f v", "$15|1700000000000-3"),
            ("XCFGSET s IDMP-DURATION 99", "+OK"),
            ("XADD s IDMP p a * f v", "$15|1700000000000-4"),
        ]);
        assert_eq!(figures(&mut bench), [99, 2, 1, 1, 5, 1]);
    }

    /// Returns duration, maximum size, producers, identities, added messages and duplicates.
    fn figures(bench: &mut Bench) -> Vec<i64> {
        let info = bench.run("XINFO STREAM s");
        let names = ["idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added", "iids-duplicates"];
        let figure = |name: &str| {
            let (_, rest) = info.split_once(&format!("|{name}|:"))?;
            rest.split('|').next()?.parse().ok()
        };
        names.iter().filter_map(|name| figure(name)).collect()
    }

    /// Expected replies come from Redis 8.6.
    #[test]
    fn xidmprecord_adds_an_identity_to_an_entry() {
        let mut bench = Bench::default();
        bench.check(&[
            ("XADD s 5-5 f v", "$3|5-5"),
            ("XADD s 6-5 f v", "$3|6-5"),
            ("XIDMPRECORD s p i 5-5", "+OK"),
            ("XIDMPRECORD s p i 5-5", "+OK"),
            ("XIDMPRECORD s p i 6-5", "-ERR IID already exists for this producer with a different stream ID"),
            ("XIDMPRECORD s p j 5-5", "+OK"),
            ("XIDMPRECORD s p k 7-5", "-ERR No such message in stream"),
            ("XIDMPRECORD nokey p k 7-5", "-ERR no such key"),
            ("XIDMPRECORD nokey p k x", "-ERR Invalid stream ID specified as stream command argument"),
            ("XIDMPRECORD nokey \"\" k x", "-ERR Invalid stream ID specified as stream command argument"),
            ("XIDMPRECORD nokey \"\" \"\" 5-5", "-ERR producer ID must be non-empty"),
            ("XIDMPRECORD nokey p \"\" 5-5", "-ERR idempotent ID must be non-empty"),
        ]);
        assert_eq!(figures(&mut bench), [100, 100, 0, 0, 2, 0]);
    }

    #[test]
    fn a_new_stream_has_the_limits_of_the_configuration() {
        let mut bench = Bench::default();
        bench.rules.identities = IdentityLimits { seconds: 7, count: 8 };
        bench.run("XADD s * f v");
        assert_eq!(figures(&mut bench), [7, 8, 0, 0, 0, 0]);
        bench.run("DEL s");
        bench.run("XGROUP CREATE s g 0 MKSTREAM");
        bench.rules.identities = IdentityLimits::default();
        bench.run("XADD s IDMP p i * f v");
        assert_eq!(figures(&mut bench), [7, 8, 1, 1, 1, 0]);
    }

    #[test]
    fn a_repeated_message_notifies_no_listener() {
        let mut bench = Bench::default();
        bench.run("XADD s IDMP p i * f v");
        bench.events();
        let before = bench.effects.dirty;
        bench.run("XADD s IDMP p i * f v");
        assert_eq!(bench.events(), [""; 0]);
        assert_eq!(bench.effects.dirty, before);
    }
}
