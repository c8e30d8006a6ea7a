//! Taking over other consumers' pending entries: XCLAIM, XAUTOCLAIM.

use resp::num;
use resp::reply::Reply;
use store::types::stream::{Delivery, Entries, Group, Stream, StreamId};

use super::options::{id, start};
use super::pending::idle_ms;
use super::record::Owner;
use super::{no_group, quoted, write_entry, write_id};
use crate::Call;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};

/// Options of XCLAIM and XAUTOCLAIM.
struct Claim<'c> {
    consumer: &'c [u8],
    /// Minimum time since the last delivery, in milliseconds.
    idle_ms_min: i64,
    /// New delivery time.
    at_ms: u64,
    now_ms: u64,
    /// New number of deliveries; none increments it.
    deliveries: Option<u64>,
    /// Also claims entries that aren't pending for any consumer.
    force: bool,
    /// Doesn't count as a delivery, and the reply has only IDs.
    just_id: bool,
}

/// Parses a number; `error` is the text for an invalid one.
fn number(text: &[u8], error: &'static str) -> Result<i64, Error> {
    num::parse_i64(text).ok_or(Error::fixed(error))
}

impl Claim<'_> {
    /// Assigns an existing entry to the consumer. Returns false if the conditions prevent it.
    fn take(&self, group: &mut Group, id: StreamId) -> bool {
        let deliveries = match group.pending().get(&id) {
            Some(pending) if self.idle_ms_min > 0 && idle_ms(self.now_ms, pending.delivered_ms) < self.idle_ms_min => {
                return false;
            }
            Some(pending) => pending.deliveries,
            // Counts as delivered once.
            None if self.force => 1,
            None => return false,
        };
        let deliveries = self.deliveries.unwrap_or(deliveries.saturating_add(u64::from(!self.just_id)));
        group.deliver(id, self.consumer, Delivery { at_ms: self.at_ms, deliveries });
        if let Some(consumer) = group.consumer_mut(self.consumer) {
            consumer.active_ms = Some(self.now_ms);
        }
        true
    }

    fn write(&self, reply: &mut Reply<'_>, entries: &Entries, id: StreamId) {
        match entries.get(id).filter(|_| !self.just_id) {
            Some(entry) => write_entry(reply, entry),
            None => write_id(reply, id),
        }
    }

    /// Records that the consumer is active, and returns true if it is new.
    fn see(&self, group: &mut Group) -> bool {
        let is_new = group.add_consumer(self.consumer, self.now_ms);
        if let Some(consumer) = group.consumer_mut(self.consumer) {
            consumer.seen_ms = self.now_ms;
        }
        is_new
    }
}

pub(super) fn xclaim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name) = (call.key(1), call.arg(2));
    let exists = call.db.object::<Stream>(key)?.is_some_and(|stream| stream.groups.contains_key(name));
    if !exists {
        return Err(no_group(key.bytes, name, ""));
    }
    let idle_ms_min = number(call.arg(4), "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
    let ids: Vec<StreamId> = call.args.from(5).map_while(|text| id(text).ok()).collect();
    let (claim, last_id) = claim_options(call, 5 + ids.len(), idle_ms_min)?;
    let database = call.db.index();
    let Some(Stream { entries, groups, .. }) = call.db.object_mut::<Stream>(key)? else { return Ok(()) };
    let Some(group) = groups.get_mut(name) else { return Ok(()) };
    let is_raised = last_id > group.last_id;
    group.last_id = group.last_id.max(last_id);
    let is_new = claim.see(group);
    let reply = &mut call.reply;
    let mark = reply.deferred();
    let (mut claimed, mut gone) = (Vec::new(), Vec::new());
    for id in ids {
        if !entries.contains(id) {
            // The entry was deleted, so no consumer will ever read it.
            gone.extend(group.acknowledge(id).then_some(id));
        } else if claim.take(group, id) {
            claim.write(reply, entries, id);
            claimed.push(id);
        }
    }
    reply.fill_array(mark, claimed.len());
    let owner = Owner { database, key: key.bytes, group: name, consumer: claim.consumer };
    owner.record_claims(call.effects, group, is_new, &claimed, &gone);
    if is_raised {
        owner.record_progress(call.effects, group);
    }
    let (claimed, gone) = (claimed.len(), gone.len());
    if is_new {
        call.changed_for(Concerns::Neither, key, Class::Stream, "xgroup-createconsumer");
    }
    // As in Redis, a new last ID counts as a change only if nothing else changed.
    let changes = if claimed + gone == 0 { usize::from(is_raised) } else { claimed + gone };
    call.effects.count(changes as u64);
    Ok(())
}

/// Parses XCLAIM's options from `at` on, and returns them with LASTID's ID.
fn claim_options<'c>(call: &Call<'c, '_, '_>, mut at: usize, idle_ms_min: i64) -> Result<(Claim<'c>, StreamId), Error> {
    let now_ms = call.db.now_ms();
    let consumer = call.arg(3);
    let mut claim =
        Claim { consumer, idle_ms_min, at_ms: now_ms, now_ms, deliveries: None, force: false, just_id: false };
    let mut last_id = StreamId::MIN;
    // An invalid time is replaced by the current time, since clients use their own clocks.
    let is_replay = call.db.is_replay();
    let sane = |ms: i64| u64::try_from(ms).ok().filter(|&ms| ms <= now_ms || is_replay).unwrap_or(now_ms);
    while at < call.len() {
        let has_more = at + 1 < call.len();
        if call.is(at, "force") {
            claim.force = true;
        } else if call.is(at, "justid") {
            claim.just_id = true;
        } else if has_more && call.is(at, "idle") {
            at += 1;
            let idle_ms = number(call.arg(at), "ERR Invalid IDLE option argument for XCLAIM")?;
            claim.at_ms = sane((now_ms as i64).wrapping_sub(idle_ms));
        } else if has_more && call.is(at, "time") {
            at += 1;
            claim.at_ms = sane(number(call.arg(at), "ERR Invalid TIME option argument for XCLAIM")?);
        } else if has_more && call.is(at, "retrycount") {
            at += 1;
            let count = number(call.arg(at), "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
            claim.deliveries = u64::try_from(count).ok();
        } else if has_more && call.is(at, "lastid") {
            at += 1;
            last_id = id(call.arg(at))?;
        } else {
            return Err(Error::quoting([b"ERR Unrecognized XCLAIM option '", quoted(call.arg(at)), b"'"].concat()));
        }
        at += 1;
    }
    Ok((claim, last_id))
}

/// Number of entries that XAUTOCLAIM examines for each one that it may return.
const ATTEMPTS_FACTOR: usize = 10;
/// Default number of entries that XAUTOCLAIM returns.
const COUNT_DEFAULT: i64 = 100;
/// Largest count; beyond it, Redis's arithmetic would overflow.
const COUNT_MAX: i64 = i64::MAX / 16;

pub(super) fn xautoclaim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name, now_ms) = (call.key(1), call.arg(2), call.db.now_ms());
    let idle_ms_min = number(call.arg(4), "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0);
    let from = start(call.arg(5))?;
    let (mut count, mut just_id) = (COUNT_DEFAULT, false);
    let mut at = 6;
    while at < call.len() {
        if call.is(at, "count") && at + 1 < call.len() {
            at += 1;
            count = call.int(at).ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or(COUNT_NOT_POSITIVE)?;
        } else if call.is(at, "justid") {
            just_id = true;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    let (consumer, database) = (call.arg(3), call.db.index());
    let claim = Claim { consumer, idle_ms_min, at_ms: now_ms, now_ms, deliveries: None, force: false, just_id };
    // As in Redis, the lookup for reading counts as a hit or a miss.
    call.db.object::<Stream>(key)?;
    let Some(Stream { entries, groups, .. }) = call.db.object_mut::<Stream>(key)? else {
        return Err(no_group(key.bytes, name, ""));
    };
    let group = groups.get_mut(name).ok_or_else(|| no_group(key.bytes, name, ""))?;
    let is_new = claim.see(group);
    let swept = sweep(&claim, entries, group, from, count as usize);
    swept.write(&claim, entries, &mut call.reply);
    let owner = Owner { database, key: key.bytes, group: name, consumer };
    owner.record_claims(call.effects, group, is_new, &swept.claimed, &swept.gone);
    if is_new {
        call.changed_for(Concerns::Neither, key, Class::Stream, "xgroup-createconsumer");
    }
    call.effects.count((swept.claimed.len() + swept.gone.len()) as u64);
    Ok(())
}

/// State of an entry before XREADGROUP's CLAIM took it over.
pub(super) struct Overdue {
    pub id: StreamId,
    /// Time since its last delivery.
    pub idle_ms: i64,
    /// Number of earlier deliveries.
    pub deliveries: u64,
}

/// Assigns pending entries of at least this idle time to a consumer, the longest idle first, at most `count`. As in
/// Redis, deleted entries stay pending for their consumers.
pub(super) fn claim_overdue(
    entries: &Entries,
    group: &mut Group,
    consumer: &[u8],
    idle_ms_min: i64,
    now_ms: u64,
    count: usize,
) -> Vec<Overdue> {
    let overdue: Vec<Overdue> = group
        .by_delivery()
        .map(|(id, p)| Overdue { id, idle_ms: idle_ms(now_ms, p.delivered_ms).max(0), deliveries: p.deliveries })
        .take_while(|overdue| overdue.idle_ms >= idle_ms_min)
        .filter(|overdue| entries.contains(overdue.id))
        .take(count)
        .collect();
    let claim = Claim { consumer, idle_ms_min, at_ms: now_ms, now_ms, deliveries: None, force: false, just_id: false };
    for Overdue { id, .. } in &overdue {
        claim.take(group, *id);
    }
    overdue
}

/// Returns the time at which the first pending entry reaches this idle time, in milliseconds of Unix time. If no entry
/// is pending, an entry that is delivered now would be the first.
pub(super) fn overdue_at_ms(entries: &Entries, group: &mut Group, idle_ms_min: i64, now_ms: u64) -> u64 {
    let first = group.by_delivery().find(|(id, _)| entries.contains(*id)).map(|(_, pending)| pending.delivered_ms);
    first.unwrap_or(now_ms).saturating_add(idle_ms_min.unsigned_abs())
}

const COUNT_NOT_POSITIVE: Error = Error::fixed("ERR COUNT must be > 0");

/// Result of XAUTOCLAIM's search.
struct Swept {
    claimed: Vec<StreamId>,
    /// Pending entries that were deleted from the stream.
    gone: Vec<StreamId>,
    /// Position for the next call; 0-0 at the end.
    next: StreamId,
}

/// Claims pending entries from an ID on, and drops those that don't exist any more.
fn sweep(claim: &Claim<'_>, entries: &Entries, group: &mut Group, from: StreamId, count: usize) -> Swept {
    let mut swept = Swept { claimed: Vec::new(), gone: Vec::new(), next: StreamId::MIN };
    let mut next = group.pending().range(from..).next().map(|(id, _)| *id);
    for _ in 0..count.saturating_mul(ATTEMPTS_FACTOR) {
        let Some(id) = next.filter(|_| swept.claimed.len() + swept.gone.len() < count) else { break };
        if !entries.contains(id) {
            group.acknowledge(id);
            swept.gone.push(id);
        } else if claim.take(group, id) {
            swept.claimed.push(id);
        }
        next = id.next().and_then(|after| group.pending().range(after..).next()).map(|(id, _)| *id);
    }
    swept.next = next.unwrap_or_default();
    swept
}

impl Swept {
    fn write(&self, claim: &Claim<'_>, entries: &Entries, reply: &mut Reply<'_>) {
        reply.array(3);
        write_id(reply, self.next);
        reply.array(self.claimed.len());
        self.claimed.iter().for_each(|id| claim.write(reply, entries, *id));
        reply.array(self.gone.len());
        self.gone.iter().for_each(|id| write_id(reply, *id));
    }
}
