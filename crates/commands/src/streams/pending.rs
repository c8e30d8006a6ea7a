//! Delivered entries without acknowledgement: XACK, XPENDING.

use std::ops::Bound;

use store::types::stream::{Group, Stream, StreamId};

use super::options::{check_ids, end, id, start};
use super::{no_group, write_id};
use crate::Call;
use crate::error::{Error, Outcome};

pub(super) fn xack(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name) = (call.key(1), call.arg(2));
    let is_group = |stream: &Stream| stream.groups.contains_key(name);
    if !call.db.object::<Stream>(key)?.is_some_and(is_group) {
        call.reply.int(0);
        return Ok(());
    }
    check_ids(call, 3)?;
    let ids = call.args.from(3);
    let mut count = 0;
    if let Some(group) = call.db.object_mut::<Stream>(key)?.and_then(|stream| stream.groups.get_mut(name)) {
        count = ids.filter(|text| id(text).is_ok_and(|id| group.acknowledge(id))).count();
    }
    // As in Redis, it publishes no event and doesn't notify watchers.
    call.effects.count(count as u64);
    call.reply.count(count);
    Ok(())
}

/// Filter for the deliveries that XPENDING shows.
struct Shown<'c> {
    from: StreamId,
    to: StreamId,
    count: usize,
    idle_ms_min: i64,
    consumer: Option<&'c [u8]>,
}

pub(super) fn xpending(call: &mut Call<'_, '_, '_>) -> Outcome {
    let shown = match call.len() {
        3 => None,
        6..=9 => Some(shown(call)?),
        _ => return Err(Error::SYNTAX),
    };
    let (key, name, now_ms) = (call.key(1), call.arg(2), call.db.now_ms());
    let group = call.db.object::<Stream>(key)?.and_then(|stream| stream.groups.get(name));
    let group = group.ok_or_else(|| no_group(key.bytes, name, ""))?;
    match shown {
        None => summary(&mut call.reply, group),
        Some(shown) => list(&mut call.reply, group, &shown, now_ms),
    }
    Ok(())
}

fn shown<'c>(call: &Call<'c, '_, '_>) -> Result<Shown<'c>, Error> {
    let (mut first, mut idle_ms_min) = (3, 0);
    if call.is(3, "idle") {
        idle_ms_min = call.int(4)?;
        if call.len() < 8 {
            return Err(Error::SYNTAX);
        }
        first = 5;
    }
    let count = call.int(first + 2)?.max(0) as usize;
    let (from, to) = (start(call.arg(first))?, end(call.arg(first + 1))?);
    let consumer = (first + 3 < call.len()).then(|| call.arg(first + 3));
    Ok(Shown { from, to, count, idle_ms_min, consumer })
}

/// Writes the number of pending entries, the first and the last one, and the number per consumer.
fn summary(reply: &mut resp::reply::Reply<'_>, group: &Group) {
    let pending = group.pending();
    reply.array(4);
    reply.count(pending.len());
    let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    write_id(reply, *first);
    write_id(reply, *last);
    let busy = || group.consumers().filter(|consumer| !consumer.pending().is_empty());
    reply.array(busy().count());
    for consumer in busy() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_int(consumer.pending().len() as i64);
    }
}

fn list(reply: &mut resp::reply::Reply<'_>, group: &Group, shown: &Shown<'_>, now_ms: u64) {
    if shown.from > shown.to {
        return reply.array(0);
    }
    let range = (Bound::Included(shown.from), Bound::Included(shown.to));
    let mark = reply.deferred();
    let mut written = 0;
    // Returns true when the reply is complete; the search stops, since there may be many pending entries.
    let mut write = |id: StreamId| {
        if written == shown.count {
            return true;
        }
        let Some(pending) = group.pending().get(&id) else { return false };
        let idle_ms = idle_ms(now_ms, pending.delivered_ms);
        if shown.idle_ms_min != 0 && idle_ms < shown.idle_ms_min {
            return false;
        }
        written += 1;
        reply.array(4);
        write_id(reply, id);
        reply.bulk(&pending.consumer);
        reply.int(idle_ms.max(0));
        reply.int(pending.deliveries as i64);
        false
    };
    match shown.consumer {
        None => {
            group.pending().range(range).any(|(id, _)| write(*id));
        }
        Some(name) => {
            let pending = group.consumer(name).map(|consumer| consumer.pending().range(range));
            pending.into_iter().flatten().any(|id| write(*id));
        }
    }
    reply.fill_array(mark, written);
}

/// Time since a delivery in milliseconds; negative if the clock was set back.
pub(super) fn idle_ms(now_ms: u64, delivered_ms: u64) -> i64 {
    (now_ms as i64).wrapping_sub(delivered_ms as i64)
}
