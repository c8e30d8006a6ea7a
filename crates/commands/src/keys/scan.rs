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
    let filter = Filter { pattern: Some(pattern), kind: None, due_ms: call.db.due_ms() };
    let slot = slot_of(call, Some(pattern));
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
fn slot_of(call: &Call<'_, '_, '_>, pattern: Option<&[u8]>) -> Option<u16> {
    pattern.filter(|_| call.db.is_by_slot()).and_then(pattern_slot)
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

/// Conditions for listed keys.
struct Filter<'c> {
    /// Pattern for names; none lists all.
    pattern: Option<&'c [u8]>,
    /// Name of a type; none lists all.
    kind: Option<&'c [u8]>,
    due_ms: u64,
}

impl Filter<'_> {
    fn is_named(&self, entry: &Entry) -> bool {
        self.pattern.is_none_or(|pattern| pattern == b"*" || glob::matches(pattern, entry.key(), false))
    }

    fn passes(&self, entry: &Entry) -> bool {
        !entry.is_expired(self.due_ms)
            && self.is_named(entry)
            && self.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.kind().name().as_bytes()))
    }
}

struct KeyScan<'c> {
    count: usize,
    filter: Filter<'c>,
}

fn options<'c>(call: &Call<'c, '_, '_>) -> Result<KeyScan<'c>, Error> {
    let filter = Filter { pattern: None, kind: None, due_ms: call.db.due_ms() };
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
            options.filter.pattern = Some(value);
        } else if call.is(index, "type") {
            options.filter.kind = Some(value);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(options)
}

pub(super) fn scan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let cursor = num::parse_cursor(call.arg(1)).ok_or(Error::INVALID_CURSOR)?;
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
    let next = match slot_of(call, filter.pattern) {
        Some(slot) => call.db.scan_slot_living(slot, cursor, count, meets, visit),
        None => call.db.scan_living(cursor, count, meets, visit),
    };
    call.reply.array(2);
    call.reply.bulk(num::IntText::new().u64(next));
    call.reply.array(found_count);
    call.reply.output().append(&mut found);
    Ok(())
}
