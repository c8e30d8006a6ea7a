//! Removing the first or last members: ZPOPMIN, ZPOPMAX, ZMPOP and their blocking variants.

use std::ops::Range;

use store::keyspace::Key;
use store::types::zset::ZSet;

use super::{PairForm, removed};
use crate::Call;
use crate::call::TimeoutReply;
use crate::error::{Error, Outcome};
use crate::timeout::timeout_ms;

/// End to remove members from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Min,
    Max,
}

impl From {
    fn event(self) -> &'static str {
        if self == From::Min { "zpopmin" } else { "zpopmax" }
    }
}

/// Removes up to `count` members and writes them after their array's header.
fn take(call: &mut Call<'_, '_, '_>, key: Key<'_>, from: From, count: usize, form: PairForm) -> Outcome {
    let Some(zset) = call.db.object_mut::<ZSet>(key)? else { return Ok(()) };
    let count = count.min(zset.len());
    let reply = &mut call.reply;
    form.header(reply, count);
    let write = |member: &[u8], score: f64| form.write(reply, member, score);
    match from {
        From::Min => zset.pop_min(count, write),
        From::Max => zset.pop_max(count, write),
    };
    let is_empty = zset.is_empty();
    if count > 0 {
        removed(call, key, from.event(), count, is_empty);
    }
    Ok(())
}

fn pop(call: &mut Call<'_, '_, '_>, from: From) -> Outcome {
    if call.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let counted = call.len() == 3;
    let given = || resp::num::parse_i64(call.arg(2)).and_then(|count| usize::try_from(count).ok());
    let count = if counted { given().ok_or(Error::NOT_POSITIVE)? } else { 1 };
    let key = call.key(1);
    let len = call.db.object_mut::<ZSet>(key)?.map_or(0, |zset| zset.len());
    if len == 0 || count == 0 {
        call.reply.array(0);
        return Ok(());
    }
    if counted {
        return take(call, key, from, count, PairForm::Scores);
    }
    // Without a count, the reply is one flat pair, even in RESP3. The pair's header is the only array header.
    take_one(call, key, from)
}

/// Removes one member and writes it as a pair.
fn take_one(call: &mut Call<'_, '_, '_>, key: Key<'_>, from: From) -> Outcome {
    let Some(zset) = call.db.object_mut::<ZSet>(key)? else { return Ok(()) };
    let reply = &mut call.reply;
    let write = |member: &[u8], score: f64| PairForm::Pairs.write(reply, member, score);
    match from {
        From::Min => zset.pop_min(1, write),
        From::Max => zset.pop_max(1, write),
    };
    let is_empty = zset.is_empty();
    removed(call, key, from.event(), 1, is_empty);
    Ok(())
}

pub(super) fn zpopmin(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, From::Min)
}

pub(super) fn zpopmax(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, From::Max)
}

/// Returns the first key that holds a non-empty sorted set. `keys` are indexes of arguments.
fn first_filled<'c>(call: &mut Call<'c, '_, '_>, keys: Range<usize>) -> Result<Option<Key<'c>>, Error> {
    for index in keys {
        let key = call.key(index);
        if call.db.object_mut::<ZSet>(key)?.is_some_and(|zset| !zset.is_empty()) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Pops from the first key that has members, or blocks until one has.
fn pop_or_wait(call: &mut Call<'_, '_, '_>, from: From) -> Outcome {
    let timeout = call.len() - 1;
    let timeout_ms = timeout_ms(call.arg(timeout), call.db.now_ms())?;
    let Some(key) = first_filled(call, 1..timeout)? else {
        call.wait(timeout_ms, TimeoutReply::NullArray);
        return Ok(());
    };
    let Some(zset) = call.db.object_mut::<ZSet>(key)? else { return Ok(()) };
    let reply = &mut call.reply;
    reply.array(3);
    reply.bulk(key.bytes);
    let write = |member: &[u8], score: f64| {
        reply.bulk(member);
        reply.double(score);
    };
    match from {
        From::Min => zset.pop_min(1, write),
        From::Max => zset.pop_max(1, write),
    };
    let is_empty = zset.is_empty();
    removed(call, key, from.event(), 1, is_empty);
    call.record_as(&[from.event().to_ascii_uppercase().as_bytes(), key.bytes]);
    Ok(())
}

pub(super) fn bzpopmin(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_wait(call, From::Min)
}

pub(super) fn bzpopmax(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_wait(call, From::Max)
}

/// Arguments of ZMPOP and BZMPOP.
struct Multi {
    keys: Range<usize>,
    from: From,
    count: usize,
}

/// Parses the arguments from the number of keys on, which is at `index`.
fn multi(call: &Call<'_, '_, '_>, index: usize) -> Result<Multi, Error> {
    let positive = |index: usize, text: &'static str| {
        let number = resp::num::parse_i64(call.arg(index)).filter(|&n| n > 0);
        number.and_then(|n| usize::try_from(n).ok()).ok_or(Error::new(text))
    };
    let numkeys = positive(index, "ERR numkeys should be greater than 0")?;
    let end = (index + 1).checked_add(numkeys).filter(|&end| end < call.len()).ok_or(Error::SYNTAX)?;
    let from = match () {
        () if call.is(end, "min") => From::Min,
        () if call.is(end, "max") => From::Max,
        () => return Err(Error::SYNTAX),
    };
    let mut count = None;
    let mut at = end + 1;
    while at < call.len() {
        if count.is_some() || !call.is(at, "count") || at + 1 >= call.len() {
            return Err(Error::SYNTAX);
        }
        count = Some(positive(at + 1, "ERR count should be greater than 0")?);
        at += 2;
    }
    Ok(Multi { keys: index + 1..end, from, count: count.unwrap_or(1) })
}

/// Pops from the first key that has members; returns false if all are empty.
fn pop_from(call: &mut Call<'_, '_, '_>, multi: &Multi) -> Result<bool, Error> {
    let Some(key) = first_filled(call, multi.keys.clone())? else { return Ok(false) };
    call.reply.array(2);
    call.reply.bulk(key.bytes);
    take(call, key, multi.from, multi.count, PairForm::Pairs)?;
    if call.is_recorded() {
        let (name, mut count) = (multi.from.event().to_ascii_uppercase(), resp::num::IntText::new());
        call.record_as(&[name.as_bytes(), key.bytes, count.u64(multi.count as u64)]);
    }
    Ok(true)
}

pub(super) fn zmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let multi = multi(call, 1)?;
    if !pop_from(call, &multi)? {
        call.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    // The timeout is parsed last, as in Redis.
    let multi = multi(call, 2)?;
    let timeout_ms = timeout_ms(call.arg(1), call.db.now_ms())?;
    if !pop_from(call, &multi)? {
        call.wait(timeout_ms, TimeoutReply::NullArray);
    }
    Ok(())
}
