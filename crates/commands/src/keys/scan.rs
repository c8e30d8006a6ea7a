//! Listing keys: KEYS, SCAN, RANDOMKEY.

use resp::num;
use resp::reply::{Output, Reply};
use store::entry::Entry;
use store::glob;
use store::hash::pattern_slot;
use store::keyspace::Key;

use crate::Call;
use crate::error::{Error, Outcome};

/// Default number of keys that a call of SCAN visits.
const COUNT_DEFAULT: usize = 10;

pub(super) fn randomkey(call: &mut Call<'_, '_, '_>) -> Outcome {
    let random = &mut *call.random;
    let key = call.db.pick(&mut || random.next());
    call.reply.bulk_or_null(key);
    Ok(())
}

pub(super) fn keys(call: &mut Call<'_, '_, '_>) -> Outcome {
    let pattern = call.arg(1);
    if !pattern.is_empty() && glob::is_literal(pattern) {
        return reply_if_exists(call, pattern);
    }
    let (mark, mut count) = (call.reply.deferred(), 0);
    let filter = Filter { names: Names::of(pattern), kind: None, due_ms: call.db.due_ms() };
    let slot = slot_of(call, pattern);
    let Call { db, reply, .. } = call;
    let visit = |entry: &Entry| {
        if filter.passes(entry) {
            reply.bulk(entry.key());
            count += 1;
        }
    };
    let end = match slot {
        Some(slot) => db.scan_slot(slot, 0, usize::MAX, visit),
        None => db.scan(0, usize::MAX, visit),
    };
    debug_assert_eq!(end, 0, "an unlimited scan must reach its end");
    call.reply.fill_array(mark, count);
    Ok(())
}

/// Returns the only slot that can contain matching keys, if the pattern has a hash tag and the server is a cluster's node.
fn slot_of(call: &Call<'_, '_, '_>, pattern: &[u8]) -> Option<u16> {
    if call.db.is_by_slot() { pattern_slot(pattern) } else { None }
}

/// Replies to KEYS for a pattern that can match only one key.
fn reply_if_exists(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Outcome {
    let exists = call.db.peek(Key::new(name)).is_some();
    call.reply.array(usize::from(exists));
    if exists {
        call.reply.bulk(name);
    }
    Ok(())
}

/// The names that a pattern matches.
#[derive(Clone, Copy)]
struct Names<'c> {
    /// The pattern; `*` matches all names, even an empty one.
    pattern: &'c [u8],
    /// The beginning of all matching names. Its comparison rejects most other names sooner than the pattern.
    prefix: &'c [u8],
    are_all: bool,
}

impl<'c> Names<'c> {
    const ALL: Names<'static> = Names { pattern: b"*", prefix: b"", are_all: true };

    fn of(pattern: &'c [u8]) -> Self {
        Names { pattern, prefix: glob::literal_prefix(pattern), are_all: pattern == b"*" }
    }

    fn have(&self, name: &[u8]) -> bool {
        self.are_all || name.starts_with(self.prefix) && glob::matches(self.pattern, name, false)
    }
}

/// Conditions for listed keys.
struct Filter<'c> {
    names: Names<'c>,
    /// Name of a type; none lists all.
    kind: Option<&'c [u8]>,
    due_ms: u64,
}

impl Filter<'_> {
    fn is_named(&self, entry: &Entry) -> bool {
        self.names.have(entry.key())
    }

    fn passes(&self, entry: &Entry) -> bool {
        // Names are compared first, because an expired key is seldom.
        self.is_named(entry)
            && !entry.is_expired(self.due_ms)
            && self.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.kind().name().as_bytes()))
    }
}

struct KeyScan<'c> {
    count: usize,
    filter: Filter<'c>,
}

fn options<'c>(call: &Call<'c, '_, '_>) -> Result<KeyScan<'c>, Error> {
    let filter = Filter { names: Names::ALL, kind: None, due_ms: call.db.due_ms() };
    let mut options = KeyScan { count: COUNT_DEFAULT, filter };
    for index in (2..call.len()).step_by(2) {
        if index + 1 == call.len() {
            return Err(Error::SYNTAX);
        }
        let value = call.arg(index + 1);
        if call.is(index, "count") {
            options.count = usize::try_from(call.int(index + 1)?).unwrap_or(0);
            if options.count == 0 {
                return Err(Error::SYNTAX);
            }
        } else if call.is(index, "match") {
            options.filter.names = Names::of(value);
        } else if call.is(index, "type") {
            options.filter.kind = Some(value);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(options)
}

pub(super) fn scan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let cursor = num::parse_u64_lenient(call.arg(1)).ok_or(Error::INVALID_CURSOR)?;
    let KeyScan { count, filter } = options(call)?;
    // The cursor comes first in the reply but is known last.
    let mut found = Output::default();
    let mut found_count = 0;
    let mut names = Reply::new(&mut found, call.reply.proto());
    // As in Redis, keys with matching names are accessed before the other conditions are checked.
    let meets = |entry: &Entry| filter.is_named(entry);
    let visit = |entry: &Entry| {
        if filter.passes(entry) {
            names.bulk(entry.key());
            found_count += 1;
        }
    };
    let next = match slot_of(call, filter.names.pattern) {
        Some(slot) => call.db.scan_slot_living(slot, cursor, count, meets, visit),
        None => call.db.scan_living(cursor, count, meets, visit),
    };
    call.reply.array(2);
    call.reply.bulk(num::IntText::new().u64(next));
    call.reply.array(found_count);
    call.reply.output().append(&mut found);
    Ok(())
}
