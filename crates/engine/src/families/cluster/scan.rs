//! CLUSTERSCAN: SCAN of a whole cluster. The cursor contains a hash tag of the next slot, so that a client sends each call to
//! the node of that slot.
//!
//! A cursor is `<fingerprint>-{<tag>}-<position in the slot>`. A position is only valid on the server that returned it.
//! After a failover the fingerprint differs, and the scan of the slot starts again. Source of the semantics: Valkey 9.1's
//! command page, and the replies of a running server.

use std::sync::OnceLock;

use commands::error::{Error, Outcome};
use resp::num;
use resp::reply::{Output, Reply};
use store::entry::Entry;
use store::glob;
use store::hash::{SLOTS, hash, pattern_slot, slot_of, tag_of};
use store::value::Type;

use super::only_in_cluster;
use super::slots::slot;
use crate::slots::{Slot, SlotView};
use crate::worker::turn::Turn;

/// Default of COUNT, the number of keys that a call visits.
const COUNT_DEFAULT: usize = 10;
/// The characters of tags and fingerprints.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Length of a fingerprint.
const FINGERPRINT: usize = 6;
/// The types of values that TYPE names.
const TYPES: [Type; 7] = [Type::String, Type::List, Type::Set, Type::ZSet, Type::Hash, Type::Stream, Type::Suggestions];
const INVALID_CURSOR: Error = Error::fixed("ERR Invalid cursor");

/// Returns a hash tag for each slot: the shortest text of letters and digits, and the first one of that length.
fn tags() -> &'static [Box<[u8]>] {
    static TAGS: OnceLock<Vec<Box<[u8]>>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let (mut tags, mut left) = (vec![None::<Box<[u8]>>; SLOTS], SLOTS);
        for number in 0_usize.. {
            let tag = text_of(number);
            let found = &mut tags[usize::from(slot_of(&tag))];
            if found.is_none() {
                *found = Some(tag.into());
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags.into_iter().flatten().collect()
    })
}

/// Returns text number `number` in the enumeration of all texts of letters and digits, shortest first.
fn text_of(number: usize) -> Vec<u8> {
    let (mut left, mut text) = (number, Vec::new());
    loop {
        text.push(LETTERS[left % LETTERS.len()]);
        left /= LETTERS.len();
        if left == 0 {
            break;
        }
        left -= 1;
    }
    text
}

/// Returns a text that tells this server's cursors from another's. It depends on the seed of the hash function, which
/// decides the order of keys in a slot.
fn fingerprint() -> Vec<u8> {
    let mut left = hash(b"fingerprint") as usize;
    let mut next = || {
        let letter = LETTERS[left % LETTERS.len()];
        left /= LETTERS.len();
        letter
    };
    (0..FINGERPRINT).map(|_| next()).collect()
}

/// The options of a call.
struct ClusterScan<'t> {
    count: usize,
    pattern: Option<&'t [u8]>,
    kind: Option<Type>,
    /// The only slot to scan.
    only: Option<Slot>,
    /// The only slot with keys that match the pattern, if its hash tag determines one.
    matching: Option<Slot>,
}

fn options<'t>(turn: &Turn<'t, '_>) -> Result<ClusterScan<'t>, Error> {
    let mut scan = ClusterScan { count: COUNT_DEFAULT, pattern: None, kind: None, only: None, matching: None };
    for at in (2..turn.len()).step_by(2) {
        if at + 1 == turn.len() {
            return Err(Error::SYNTAX);
        }
        if turn.is(at, "count") {
            scan.count = usize::try_from(turn.int(at + 1)?).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
        } else if turn.is(at, "match") {
            scan.pattern = Some(turn.arg(at + 1));
        } else if turn.is(at, "type") {
            scan.kind = Some(kind(turn.arg(at + 1))?);
        } else if turn.is(at, "slot") {
            if scan.only.replace(slot(turn, at + 1)?).is_some() {
                return Err(Error::fixed("ERR SLOT option can only be specified once"));
            }
        } else {
            return Err(Error::SYNTAX);
        }
    }
    scan.matching = scan.pattern.and_then(pattern_slot).map(Slot::of_hash);
    Ok(scan)
}

fn kind(name: &[u8]) -> Result<Type, Error> {
    let found = TYPES.into_iter().find(|kind| kind.name().as_bytes().eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::new(format!("ERR unknown type name '{}'", String::from_utf8_lossy(name))))
}

/// A position in the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    slot: Slot,
    /// The position in the slot, as a cursor of SCAN.
    at: u64,
}

/// Parses a cursor.
fn parse(cursor: &[u8]) -> Option<Place> {
    let (head, at) = cursor.split_at(cursor.iter().rposition(|byte| *byte == b'-')?);
    let at = num::parse_u64_lenient(at.get(1..).filter(|at| !at.is_empty())?)?;
    let (fingerprint_given, tag) = head.split_at(head.iter().position(|byte| *byte == b'-')?);
    let slot = Slot::of_hash(slot_of(tag_of(&tag[1..]).map_or(cursor, |tag| tag)));
    let is_own = fingerprint_given == fingerprint();
    Some(Place { slot, at: if is_own { at } else { 0 } })
}

/// Returns the text of a cursor.
fn shown(place: Option<Place>) -> Vec<u8> {
    let Some(Place { slot, at }) = place else { return b"0".to_vec() };
    let tag = &tags()[slot.index()];
    // The beginning of a slot is valid on every server.
    let whose = if at == 0 { b"0".to_vec() } else { fingerprint() };
    [&whose[..], b"-{", tag, b"}-", at.to_string().as_bytes()].concat()
}

// The cursor is routed like a key, so this node serves its slot.
pub(super) fn clusterscan(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let scan = options(turn)?;
    let wanted = scan.only.or(scan.matching);
    let begins = turn.arg(1) == b"0";
    let place = match begins {
        true => Place { slot: wanted.unwrap_or(Slot::of_hash(0)), at: 0 },
        false => parse(turn.arg(1)).ok_or(INVALID_CURSOR)?,
    };
    if scan.only.is_some_and(|only| only != place.slot) {
        return Err(Error::fixed("ERR Cursor slot mismatch with SLOT argument"));
    }
    let (mut found, mut count) = (Output::default(), 0);
    let next = match scan.matching {
        // The scan goes on at the slot of the pattern, but never back.
        Some(slot) if slot != place.slot => (scan.only.is_none() && slot > place.slot).then_some(Place { slot, at: 0 }),
        _ if begins => Some(place),
        _ => collect(turn, &scan, place, &mut found, &mut count),
    };
    reply(turn, next, count, &mut found)
}

/// Writes the names of keys from a position on, until there are enough or the next slot belongs to another node. Returns the
/// next position.
fn collect(
    turn: &mut Turn<'_, '_>,
    scan: &ClusterScan<'_>,
    from: Place,
    found: &mut Output,
    count: &mut usize,
) -> Option<Place> {
    let view = turn.engine().slots.view()?;
    let mut names = Reply::new(found, turn.reply.proto());
    let due_ms = turn.db().due_ms();
    let is_named = |entry: &Entry| scan.pattern.is_none_or(|pattern| glob::matches(pattern, entry.key(), false));
    let is_kind = |entry: &Entry| scan.kind.is_none_or(|kind| kind == entry.kind());
    let end = end_of_range(&view, from.slot);
    let (mut place, mut seen) = (from, 0);
    loop {
        let left = scan.count.saturating_sub(seen).max(1);
        let at = turn.db().scan_slot_living(place.slot.number(), place.at, left, is_named, |entry| {
            seen += 1;
            if !entry.is_expired(due_ms) && is_named(entry) && is_kind(entry) {
                names.bulk(entry.key());
                *count += 1;
            }
        });
        if at != 0 {
            return Some(Place { at, ..place });
        }
        if scan.only.or(scan.matching).is_some() {
            return None;
        }
        let occupied = turn.engine().keyspace.next_occupied(turn.session.database, place.slot.index() + 1);
        let next = occupied.filter(|slot| *slot < end).unwrap_or(end);
        place = Place { slot: Slot::new(next as u64)?, at: 0 };
        if seen >= scan.count || next == end {
            return Some(place);
        }
    }
}

/// Returns the first slot behind `from` that has another owner, or is open: the call ends there.
fn end_of_range(view: &SlotView, from: Slot) -> usize {
    let is_same = |slot: &Slot| view.owner(*slot) == view.owner(from) && view.open(*slot).is_none();
    Slot::all().skip(from.index() + 1).find(|slot| !is_same(slot)).map_or(SLOTS, Slot::index)
}

fn reply(turn: &mut Turn<'_, '_>, next: Option<Place>, count: usize, found: &mut Output) -> Outcome {
    turn.reply.array(2);
    turn.reply.bulk(shown(next));
    turn.reply.array(count);
    turn.reply.output().append(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_short_tag() {
        let tags = tags();
        assert_eq!(tags.len(), SLOTS);
        for (slot, tag) in tags.iter().enumerate() {
            assert!(tag.len() <= 4 && usize::from(slot_of(tag)) == slot, "{slot}");
        }
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let place = |slot, at| Place { slot: Slot::new(slot).unwrap(), at };
        for place in [place(0, 0), place(16383, 7), place(15495, u64::MAX)] {
            assert_eq!(parse(&shown(Some(place))), Some(place));
        }
        assert_eq!(parse(b"other-{a}-77"), Some(place(15495, 0)));
        for nonsense in [&b""[..], b"1", b"0-{a}", b"0-{a}-", b"0-{a}-x", b"0-{a}-99999999999999999999"] {
            assert_eq!(parse(nonsense), None, "{}", String::from_utf8_lossy(nonsense));
        }
    }
}
