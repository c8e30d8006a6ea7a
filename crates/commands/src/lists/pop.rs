//! Removing elements from the ends of lists: LPOP, RPOP, LMPOP, LMOVE, RPOPLPUSH.

use std::ops::Range;

use resp::num;
use resp::reply::Reply;
use store::types::list::{End, List, ListLimits};

use super::change::{push_event, taken};
use super::{end_at, reply_item};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

/// The event for removing elements from an end, which is also the name of the plain command.
pub(super) fn pop_event(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}

pub(super) fn lpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, End::Left)
}

pub(super) fn rpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, End::Right)
}

fn pop(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let key = call.key(1);
    let count = match call.len() {
        2 => None,
        3 => Some(count(call)?),
        _ => return Err(Error::arity(pop_event(end))),
    };
    match call.db.object_mut::<List>(key)? {
        None if count.is_none() => call.reply.null(),
        None => call.reply.null_array(),
        Some(_) if count == Some(0) => call.reply.array(0),
        Some(list) => {
            let (taken_count, is_empty) = pop_to_reply(list, end, count, call.rules.list, &mut call.reply);
            taken(call, key, pop_event(end), taken_count, is_empty);
        }
    }
    Ok(())
}

/// Parses the count of LPOP and RPOP.
fn count(call: &Call<'_, '_, '_>) -> Result<usize, Error> {
    num::parse_i64(call.arg(2)).and_then(|count| usize::try_from(count).ok()).ok_or(Error::NOT_POSITIVE)
}

/// Moves elements from an end of a list to the reply: a single bulk string, or an array of up to `count`. Returns their
/// number, and true if the list is now empty.
fn pop_to_reply(
    list: &mut List,
    end: End,
    count: Option<usize>,
    limits: ListLimits,
    reply: &mut Reply<'_>,
) -> (usize, bool) {
    let taken = count.unwrap_or(1).min(list.len());
    if count.is_some() {
        reply.array(taken);
    }
    for _ in 0..taken {
        list.pop_with(end, limits, |item| reply_item(reply, item));
    }
    (taken, list.is_empty())
}

/// Arguments of LMPOP.
pub(super) struct MultiPop {
    /// Indexes of the keys.
    pub keys: Range<usize>,
    /// The end to remove from.
    pub end: End,
    /// Largest number of elements to remove.
    pub count: usize,
}

/// Parses the arguments of LMPOP from the number of keys on, which is at `index`.
pub(super) fn multi_pop(call: &Call<'_, '_, '_>, index: usize) -> Result<MultiPop, Error> {
    let keys = positive(call, index).ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    let keys = index + 1..(index + 1).saturating_add(keys);
    if keys.end >= call.len() {
        return Err(Error::SYNTAX);
    }
    let end = end_at(call, keys.end)?;
    let options = keys.end + 1;
    let count = match call.len() - options {
        0 => 1,
        // A repeated COUNT is a syntax error, but a bad value of the first one is reported before it.
        2.. if call.is(options, "count") => {
            positive(call, options + 1).ok_or(Error::new("ERR count should be greater than 0"))?
        }
        _ => return Err(Error::SYNTAX),
    };
    if call.len() > options + 2 { Err(Error::SYNTAX) } else { Ok(MultiPop { keys, end, count }) }
}

/// Parses the argument at `index` as a number above 0.
pub(super) fn positive(call: &Call<'_, '_, '_>, index: usize) -> Option<usize> {
    num::parse_i64(call.arg(index)).filter(|&number| number > 0).and_then(|number| usize::try_from(number).ok())
}

pub(super) fn lmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let MultiPop { keys, end, count } = multi_pop(call, 1)?;
    if !pop_from_first(call, keys, end, Some(count))? {
        call.reply.null_array();
    }
    Ok(())
}

/// Removes elements from the first list among the keys, and replies with its key and the elements: one bulk string, or
/// an array of up to `count`. Returns false, without a reply, if there was no list.
pub(super) fn pop_from_first(
    call: &mut Call<'_, '_, '_>,
    keys: Range<usize>,
    end: End,
    count: Option<usize>,
) -> Result<bool, Error> {
    for index in keys {
        let key = call.key(index);
        if let Some(list) = call.db.object_mut::<List>(key)? {
            call.reply.array(2);
            call.reply.bulk(key.bytes);
            let (taken_count, is_empty) = pop_to_reply(list, end, count, call.rules.list, &mut call.reply);
            taken(call, key, pop_event(end), taken_count, is_empty);
            if call.is_recorded() {
                let (mut text, name) = (num::IntText::new(), pop_event(end).to_ascii_uppercase());
                match count {
                    None => call.record_as(&[name.as_bytes(), key.bytes]),
                    Some(_) => call.record_as(&[name.as_bytes(), key.bytes, text.u64(taken_count as u64)]),
                }
            }
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn lmove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (from, to) = (end_at(call, 3)?, end_at(call, 4)?);
    move_or_null(call, from, to)
}

pub(super) fn rpoplpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    move_or_null(call, End::Right, End::Left)
}

fn move_or_null(call: &mut Call<'_, '_, '_>, from: End, to: End) -> Outcome {
    if !move_element(call, from, to)? {
        call.reply.null();
    }
    Ok(())
}

/// Moves an element from an end of the list at the first key to an end of the list at the second, and replies with it.
/// Returns false, without a reply, if there was no element.
pub(super) fn move_element(call: &mut Call<'_, '_, '_>, from: End, to: End) -> Result<bool, Error> {
    let (source, destination, limits) = (call.key(1), call.key(2), call.rules.list);
    let destination_type = call.db.peek_object::<List>(destination).map(|_| ());
    let Some(list) = call.db.object_mut::<List>(source)? else { return Ok(false) };
    destination_type?;
    if source.bytes == destination.bytes {
        list.rotate_with(from, to, limits, |element| call.reply.bulk(element));
        call.changed(destination, Class::List, push_event(to));
        call.event(source, Class::List, pop_event(from));
        return Ok(true);
    }
    // The element is copied, since changing the other list may invalidate a reference to it.
    let Some(element) = list.pop(from, limits) else { return Ok(false) };
    let is_empty = list.is_empty();
    call.db.object_or_new::<List>(destination)?.push(to, &element, limits);
    call.event(destination, Class::List, push_event(to));
    taken(call, source, pop_event(from), 1, is_empty);
    call.reply.bulk(&element);
    Ok(true)
}
