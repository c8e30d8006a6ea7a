//! Adding and removing entries: XADD, XTRIM, XDEL, XSETID.

use store::keyspace::Key;
use store::types::stream::{Entries, Stream, StreamId, StreamLimits, Trim};

use super::delete::{self, References, Trimmed};
use super::idempotence::{self, Message};
use super::options::{NewId, check_ids, id, options};
use super::{IdText, write_id};
use crate::Call;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};

const ZERO_ID: Error = Error::fixed("ERR The ID specified in XADD must be greater than 0-0");
const ID_TOO_SMALL: Error =
    Error::fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const EXHAUSTED: Error = Error::fixed("ERR The stream has exhausted the last possible ID, unable to add more items");
const TOO_LARGE: Error = Error::fixed("ERR Elements are too large to be stored");

pub(super) fn xadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, true)?;
    let pairs = call.args.from((options.id_at + 1).min(call.len()));
    if pairs.len() < 2 || !pairs.len().is_multiple_of(2) {
        return Err(Error::arity("xadd"));
    }
    // A refused entry must not leave an empty stream behind.
    if options.id == NewId::Given(StreamId::MIN) {
        return Err(ZERO_ID);
    }
    if pairs.clone().map(<[u8]>::len).sum::<usize>() > StreamLimits::BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let (key, limits, now_ms) = (call.key(1), call.rules.stream, call.db.now_ms());
    if options.no_create && call.db.object_mut::<Stream>(key)?.is_none() {
        call.reply.null();
        return Ok(());
    }
    let message = options.message.map(|message| message.message(call, pairs.clone()));
    if let Some(message) = &message
        && let Some(id) = message.sent_before(call, key, options.id)?
    {
        write_id(&mut call.reply, id);
        return Ok(());
    }
    let stream = call.db.object_or_new::<Stream>(key)?;
    let is_new = stream.is_new();
    let id = next_id(&stream.entries, options.id, now_ms)?;
    stream.entries.push(id, pairs.clone(), limits);
    if let Some(message) = &message {
        // During replay, the time comes from the entry's ID, since the clock has advanced.
        message.note(stream.producers_mut(), id, now_ms.min(id.ms));
    }
    let trimmed = options.trim.map(|trim| delete::trim(stream, trim, options.references));
    let trimmed = trimmed.filter(|trimmed| trimmed.count > 0);
    let len = stream.entries.len();
    write_id(&mut call.reply, id);
    if call.is_recorded() {
        // Record the ID, which depends on the clock, and the resulting length, because trimming of whole blocks depends
        // on how they were filled.
        let (len, id) = (len.to_string(), IdText::new(id));
        let mut words = vec![&b"XADD"[..], key.bytes];
        if trimmed.as_ref().is_some_and(Trimmed::is_from_front) {
            words.extend([&b"MAXLEN"[..], b"=", len.as_bytes()]);
        }
        words.extend(message.iter().flat_map(Message::words));
        words.push(id.as_bytes());
        pairs.for_each(|word| words.push(word));
        call.effects.record_as(call.db.index(), words.into_iter());
    }
    if is_new && idempotence::must_configure(call) {
        idempotence::configure_new(call, key)?;
    }
    call.changed(key, Class::Stream, "xadd");
    if let Some(trimmed) = trimmed {
        trimmed.record(call, key);
        call.db.free_later(trimmed.blocks);
        call.event_for(Concerns::Watchers, key, Class::Stream, "xtrim");
    }
    Ok(())
}

/// Computes the ID of the next entry. A new stream accepts any ID except 0-0.
fn next_id(entries: &Entries, wanted: NewId, now_ms: u64) -> Result<StreamId, Error> {
    let last = entries.last_id;
    if last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    let id = match wanted {
        NewId::Auto => last.after(now_ms).ok_or(EXHAUSTED)?,
        NewId::Time(ms) if ms == last.ms => StreamId::new(ms, last.seq.checked_add(1).ok_or(ID_TOO_SMALL)?),
        NewId::Time(ms) => StreamId::new(ms, 0),
        NewId::Given(id) => id,
    };
    if id > last { Ok(id) } else { Err(ID_TOO_SMALL) }
}

/// Trims an existing stream and returns the number of removed entries.
fn trim(call: &mut Call<'_, '_, '_>, key: Key<'_>, trim: Trim, references: References) -> Result<u64, Error> {
    let Some(stream) = call.db.object_mut::<Stream>(key)? else { return Ok(0) };
    let trimmed = delete::trim(stream, trim, references);
    let len = stream.entries.len();
    if trimmed.count > 0 {
        if trimmed.is_from_front() {
            call.record_as(&[b"XTRIM", key.bytes, b"MAXLEN", b"=", len.to_string().as_bytes()]);
        }
        trimmed.record(call, key);
    }
    call.db.free_later(trimmed.blocks);
    Ok(trimmed.count)
}

pub(super) fn xtrim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, false)?;
    let wanted = options.trim.ok_or(Error::fixed("ERR syntax error, XTRIM must be called with a trimming strategy"))?;
    let key = call.key(1);
    let count = trim(call, key, wanted, options.references)?;
    if count > 0 {
        call.effects.count(count);
        call.event_for(Concerns::Watchers, key, Class::Stream, "xtrim");
    }
    call.reply.int(count as i64);
    Ok(())
}

pub(super) fn xdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    if call.db.object_mut::<Stream>(key)?.is_none() {
        call.reply.int(0);
        return Ok(());
    }
    check_ids(call, 2)?;
    let ids = call.args.from(2);
    let mut count = 0;
    if let Some(stream) = call.db.object_mut::<Stream>(key)? {
        count = ids.filter(|text| id(text).is_ok_and(|id| stream.entries.remove(id))).count();
    }
    if count > 0 {
        call.effects.count(count as u64);
        call.event_for(Concerns::Watchers, key, Class::Stream, "xdel");
    }
    call.reply.count(count);
    Ok(())
}

pub(super) fn xsetid(call: &mut Call<'_, '_, '_>) -> Outcome {
    let last_id = id(call.arg(2))?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    let mut at = 3;
    while at < call.len() {
        let has_more = at + 1 < call.len();
        if has_more && call.is(at, "entriesadded") {
            let added = call.int(at + 1)?;
            entries_added = Some(u64::try_from(added).map_err(|_| Error::fixed("ERR entries_added must be positive"))?);
        } else if has_more && call.is(at, "maxdeletedid") {
            max_deleted_id = id(call.arg(at + 1))?;
            if last_id < max_deleted_id {
                return Err(Error::fixed(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    let key = call.key(1);
    let entries = &mut call.db.object_mut::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?.entries;
    check_last_id(entries, last_id, entries_added)?;
    entries.last_id = last_id;
    entries.entries_added = entries_added.unwrap_or(entries.entries_added);
    if !max_deleted_id.is_zero() {
        entries.max_deleted_id = max_deleted_id;
    }
    call.changed_for(Concerns::Neither, key, Class::Stream, "xsetid");
    call.reply.ok();
    Ok(())
}

/// Rejects a last ID or counter that would contradict existing entries.
fn check_last_id(entries: &Entries, last_id: StreamId, entries_added: Option<u64>) -> Outcome {
    if last_id < entries.max_deleted_id {
        return Err(Error::fixed("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if entries.last().is_some_and(|last| last_id < last.id) {
        return Err(Error::fixed("ERR The ID specified in XSETID is smaller than the target stream top item"));
    }
    if entries_added.is_some_and(|added| added < entries.len()) {
        return Err(Error::fixed("ERR The entries_added specified in XSETID is smaller than the target stream length"));
    }
    Ok(())
}
