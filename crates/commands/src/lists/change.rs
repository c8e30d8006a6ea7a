//! Adding, replacing and removing elements: LPUSH and the other push commands, LINSERT, LSET, LREM, LTRIM.

use store::keyspace::Key;
use store::types::list::{End, List};

use super::{from_head, span};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

/// The event for adding elements at an end.
pub(super) fn push_event(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

/// Records that `count` elements were removed from the list, and deletes the key if the list is empty.
pub(super) fn taken(call: &mut Call<'_, '_, '_>, key: Key<'_>, event: &'static str, count: usize, is_empty: bool) {
    call.changed_by(count, key, Class::List, event);
    if is_empty {
        call.db.remove(key);
        call.event(key, Class::Generic, "del");
    }
}

pub(super) fn lpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Left)
}

pub(super) fn rpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Right)
}

pub(super) fn lpushx(call: &mut Call<'_, '_, '_>) -> Outcome {
    push_if_exists(call, End::Left)
}

pub(super) fn rpushx(call: &mut Call<'_, '_, '_>) -> Outcome {
    push_if_exists(call, End::Right)
}

fn push(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let key = call.key(1);
    let list = call.db.object_or_new::<List>(key)?;
    list.push_all(end, call.args.from(2), call.rules.list);
    let len = list.len();
    pushed(call, key, end, len)
}

fn push_if_exists(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let key = call.key(1);
    let Some(list) = call.db.object_mut::<List>(key)? else {
        call.reply.int(0);
        return Ok(());
    };
    list.push_all(end, call.args.from(2), call.rules.list);
    let len = list.len();
    pushed(call, key, end, len)
}

fn pushed(call: &mut Call<'_, '_, '_>, key: Key<'_>, end: End, len: usize) -> Outcome {
    call.changed_by(call.len() - 2, key, Class::List, push_event(end));
    call.reply.count(len);
    Ok(())
}

pub(super) fn linsert(call: &mut Call<'_, '_, '_>) -> Outcome {
    let side = if call.is(2, "before") {
        End::Left
    } else if call.is(2, "after") {
        End::Right
    } else {
        return Err(Error::SYNTAX);
    };
    let (key, pivot, element) = (call.key(1), call.arg(3), call.arg(4));
    let Some(list) = call.db.object_mut::<List>(key)? else {
        call.reply.int(0);
        return Ok(());
    };
    if list.insert(side, pivot, element, call.rules.list).is_none() {
        call.reply.int(-1);
        return Ok(());
    }
    let len = list.len();
    call.changed(key, Class::List, "linsert");
    call.reply.count(len);
    Ok(())
}

pub(super) fn lset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, index, element) = (call.key(1), call.int(2), call.arg(3));
    let list = call.db.object_mut::<List>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    // Redis doesn't check the index of a missing list.
    if !list.set(from_head(index?, list.len()), element, call.rules.list) {
        return Err(Error::INDEX_OUT_OF_RANGE);
    }
    call.changed(key, Class::List, "lset");
    call.reply.ok();
    Ok(())
}

pub(super) fn lrem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, count, element) = (call.key(1), call.int(2)?, call.arg(3));
    if count == i64::MIN {
        return Err(Error::NOT_NEGATABLE);
    }
    let (removed, is_empty) = match call.db.object_mut::<List>(key)? {
        None => (0, false),
        Some(list) => (list.remove(count, element, call.rules.list), list.is_empty()),
    };
    if removed > 0 {
        taken(call, key, "lrem", removed, is_empty);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn ltrim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, start, stop) = (call.key(1), call.int(2)?, call.int(3)?);
    if let Some(list) = call.db.object_mut::<List>(key)? {
        let before = list.len();
        list.trim(span(start, stop, before), call.rules.list);
        let (removed, is_empty) = (before - list.len(), list.is_empty());
        // As in Redis, the event is published even if no element was removed.
        taken(call, key, "ltrim", removed, is_empty);
    }
    call.reply.ok();
    Ok(())
}
