//! Reading and blocking for entries: XREAD, XREADGROUP.

use resp::reply::Reply;
use resp::request::OwnedArgs;
use store::keyspace::Key;
use store::types::stream::{Delivery, Entries, Group, Stream, StreamEntry, StreamId};

use super::claim::{Overdue, claim_overdue, overdue_at_ms};
use super::options::id;
use super::record::Owner;
use super::{IdText, begin_stream, no_group, write_entries, write_entry, write_entry_with_delivery, write_id};
use crate::Call;
use crate::call::TimeoutReply;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};

const MEANINGLESS_LAST: Error = Error::fixed(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
     specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);
const MEANINGLESS_LAST_ENTRY: Error = Error::fixed(
    "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
     specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
);
const NEW_WITHOUT_GROUP: Error = Error::fixed(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

/// The group and consumer that read.
#[derive(Clone, Copy)]
struct GroupReader<'c> {
    group: &'c [u8],
    consumer: &'c [u8],
}

/// Parsed arguments of XREAD or XREADGROUP.
struct Read<'c> {
    reader: Option<GroupReader<'c>>,
    /// Largest number of entries per stream; 0 means no limit.
    count: usize,
    /// Timeout in milliseconds; 0 means forever, none means that it doesn't block.
    block_ms: Option<u64>,
    /// True if deliveries need no acknowledgement.
    no_ack: bool,
    /// Minimum idle time in milliseconds of pending entries that are claimed before new entries are read.
    claim_ms: Option<i64>,
    /// Index of the first key.
    keys_at: usize,
    /// Number of keys; the same number of IDs follows.
    keys: usize,
}

pub(super) fn xread(call: &mut Call<'_, '_, '_>) -> Outcome {
    let read = read_options(call, false)?;
    let mut ids = Vec::with_capacity(read.keys);
    for at in read.keys_at..read.keys_at + read.keys {
        let stream = call.db.object::<Stream>(call.key(at))?;
        let wanted = call.args.get(at + read.keys);
        ids.push(match wanted {
            b"$" => stream.map_or(StreamId::MIN, |stream| stream.entries.last_id),
            b"+" => stream.map_or(StreamId::MIN, |stream| before_last(&stream.entries)),
            b">" => return Err(NEW_WITHOUT_GROUP),
            _ => id(wanted)?,
        });
    }
    let has_news = |call: &Call<'_, '_, '_>, at: usize, after: StreamId| {
        let stream = call.db.peek_object::<Stream>(call.key(at)).ok().flatten();
        stream.is_some_and(|stream| has_after(&stream.entries, after))
    };
    let keys = read.keys_at..read.keys_at + read.keys;
    let served = keys.clone().zip(&ids).filter(|&(at, after)| has_news(call, at, *after)).count();
    if served == 0 {
        return wait(call, &read, Some(&ids));
    }
    match call.reply.is_resp3() {
        true => call.reply.map(served),
        false => call.reply.array(served),
    }
    for (at, &after) in keys.zip(&ids) {
        if !has_news(call, at, after) {
            continue;
        }
        let (key, from) = (call.key(at), after.next().unwrap_or(StreamId::MAX));
        begin_stream(&mut call.reply, key.bytes);
        if let Some(stream) = call.db.peek_object::<Stream>(key)? {
            write_entries(&mut call.reply, stream.entries.range(from, StreamId::MAX), read.count, |_| ());
        }
    }
    Ok(())
}

/// The ID after which only the last entry comes; for an empty stream, its last ID.
fn before_last(entries: &Entries) -> StreamId {
    entries.last().map_or(entries.last_id, |last| last.id.previous().unwrap_or(StreamId::MIN))
}

/// True if there is an entry after this ID.
fn has_after(entries: &Entries, id: StreamId) -> bool {
    entries.last_id > id && entries.last().is_some_and(|last| last.id > id)
}

/// Blocks, if the client asked for it, or replies with null. A retry uses the resolved `ids` instead of `$` or `+`,
/// which would then have another meaning.
fn wait(call: &mut Call<'_, '_, '_>, read: &Read<'_>, ids: Option<&[StreamId]>) -> Outcome {
    let Some(block_ms) = read.block_ms else {
        call.reply.null_array();
        return Ok(());
    };
    let timeout_ms = (block_ms > 0).then_some(block_ms);
    let ids_at = read.keys_at + read.keys;
    let wants_last = call.args.from(ids_at).any(|id| matches!(id, b"$" | b"+"));
    match ids.filter(|_| wants_last) {
        None => call.wait(timeout_ms, TimeoutReply::NullArray),
        Some(ids) => {
            let texts: Vec<IdText> = ids.iter().map(|id| IdText::new(*id)).collect();
            let before = call.args.from(0).take(ids_at);
            let args = OwnedArgs::new(before.chain(texts.iter().map(IdText::as_bytes)));
            call.wait_as(timeout_ms, TimeoutReply::NullArray, args);
        }
    }
    Ok(())
}

fn read_options<'c>(call: &Call<'c, '_, '_>, in_group: bool) -> Result<Read<'c>, Error> {
    let mut read = Read { reader: None, count: 0, block_ms: None, no_ack: false, claim_ms: None, keys_at: 0, keys: 0 };
    let only_in_group = |option: &str| {
        let text = "option is only supported by XREADGROUP. You called XREAD instead.";
        if in_group { Ok(()) } else { Err(Error::new(format!("ERR The {option} {text}"))) }
    };
    let mut at = 1;
    while at < call.len() {
        let more = call.len() - at - 1;
        if more >= 1 && call.is(at, "block") {
            at += 1;
            read.block_ms = Some(timeout_ms(call, at)?);
        } else if more >= 1 && call.is(at, "count") {
            at += 1;
            read.count = call.int(at)?.max(0) as usize;
        } else if more >= 1 && call.is(at, "streams") {
            if !more.is_multiple_of(2) {
                return Err(unbalanced(in_group));
            }
            (read.keys_at, read.keys) = (at + 1, more / 2);
            break;
        } else if more >= 2 && call.is(at, "group") {
            only_in_group("GROUP")?;
            read.reader = Some(GroupReader { group: call.arg(at + 1), consumer: call.arg(at + 2) });
            at += 2;
        } else if call.is(at, "noack") {
            only_in_group("NOACK")?;
            read.no_ack = true;
        } else if more >= 1 && call.is(at, "claim") {
            only_in_group("CLAIM")?;
            at += 1;
            read.claim_ms = Some(claim_ms(call, at)?);
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    if read.keys == 0 {
        return Err(Error::SYNTAX);
    }
    if in_group && read.reader.is_none() {
        return Err(Error::fixed("ERR Missing GROUP option for XREADGROUP"));
    }
    Ok(read)
}

fn unbalanced(in_group: bool) -> Error {
    let (name, sign) = if in_group { ("xreadgroup", '>') } else { ("xread", '$') };
    Error::new(format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{sign}' must be specified."
    ))
}

/// Parses the milliseconds of CLAIM.
fn claim_ms(call: &Call<'_, '_, '_>, at: usize) -> Result<i64, Error> {
    let ms = call.int(at).map_err(|_| Error::fixed("ERR min-idle-time is not an integer or out of range"))?;
    if ms >= 0 { Ok(ms) } else { Err(Error::fixed("ERR min-idle-time must be a positive integer")) }
}

/// Parses the milliseconds of BLOCK.
fn timeout_ms(call: &Call<'_, '_, '_>, at: usize) -> Result<u64, Error> {
    let ms = call.int(at).map_err(|_| Error::fixed("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    // Redis keeps times in signed integers.
    let fits = ms.checked_add(call.db.now_ms()).is_some_and(|end| i64::try_from(end).is_ok());
    if fits { Ok(ms) } else { Err(Error::TIMEOUT_OUT_OF_RANGE) }
}

/// Entries of a stream that XREADGROUP reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupEntries {
    /// `>`: entries that were never delivered in the group.
    New,
    /// Entries that are pending for the consumer, after this ID.
    History(StreamId),
}

pub(super) fn xreadgroup(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut read = read_options(call, true)?;
    let Some(reader) = read.reader else { return Err(Error::SYNTAX) };
    let keys = read.keys_at..read.keys_at + read.keys;
    let mut wanted = Vec::with_capacity(read.keys);
    for at in keys.clone() {
        let stream = call.db.object::<Stream>(call.key(at))?;
        if stream.is_none_or(|stream| !stream.groups.contains_key(reader.group)) {
            return Err(no_group(call.arg(at), reader.group, " in XREADGROUP with GROUP option"));
        }
        wanted.push(wanted_of(call.args.get(at + read.keys))?);
    }
    let mark = call.reply.deferred();
    let (mut served, mut again_ms) = (0, None::<u64>);
    for (at, wanted) in keys.zip(wanted) {
        if wanted != GroupEntries::New {
            // Such an ID disables CLAIM for this stream and for the streams after it, as in Redis.
            read.claim_ms = None;
        }
        let key = call.key(at);
        see(call, key, reader)?;
        match serve(call, key, &read, reader, wanted)? {
            Served::Written => served += 1,
            Served::Nothing => {}
            Served::NothingUntil(at_ms) => again_ms = Some(again_ms.map_or(at_ms, |before| before.min(at_ms))),
        }
    }
    if served == 0 {
        wait(call, &read, None)?;
        if let Some(wait) = &mut call.wait {
            wait.again_ms = again_ms;
        }
        return Ok(());
    }
    call.effects.count(served as u64);
    // The deliveries are recorded already. Replicas of older versions don't know CLAIM.
    call.effects.record_nothing();
    match call.reply.is_resp3() {
        true => call.reply.fill_map(mark, served),
        false => call.reply.fill_array(mark, served),
    }
    Ok(())
}

fn wanted_of(text: &[u8]) -> Result<GroupEntries, Error> {
    match text {
        b"$" => Err(MEANINGLESS_LAST),
        b"+" => Err(MEANINGLESS_LAST_ENTRY),
        b">" => Ok(GroupEntries::New),
        // Redis represents `>` as the largest possible ID.
        _ => id(text).map(|id| if id == StreamId::MAX { GroupEntries::New } else { GroupEntries::History(id) }),
    }
}

/// Records that a consumer is active, creating it if it is new.
fn see(call: &mut Call<'_, '_, '_>, key: Key<'_>, reader: GroupReader<'_>) -> Outcome {
    let now_ms = call.db.now_ms();
    let Some(stream) = call.db.object_mut::<Stream>(key)? else { return Ok(()) };
    let Some(group) = stream.groups.get_mut(reader.group) else { return Ok(()) };
    let is_new = group.add_consumer(reader.consumer, now_ms);
    if let Some(consumer) = group.consumer_mut(reader.consumer) {
        consumer.seen_ms = now_ms;
    }
    if is_new {
        call.changed_for(Concerns::Neither, key, Class::Stream, "xgroup-createconsumer");
        call.record_as(&[b"XGROUP", b"CREATECONSUMER", key.bytes, reader.group, reader.consumer]);
    }
    Ok(())
}

/// Result of reading one stream for a consumer.
enum Served {
    /// Entries were written.
    Written,
    Nothing,
    /// Nothing can be claimed before this time, in milliseconds of Unix time. Then pending entries can, unless they
    /// have been acknowledged.
    NothingUntil(u64),
}

/// Writes the entries of a stream for a consumer, with the key.
fn serve(
    call: &mut Call<'_, '_, '_>,
    key: Key<'_>,
    read: &Read<'_>,
    reader: GroupReader<'_>,
    wanted: GroupEntries,
) -> Result<Served, Error> {
    let (now_ms, database) = (call.db.now_ms(), call.db.index());
    let Some(Stream { entries, groups, .. }) = call.db.object_mut::<Stream>(key)? else { return Ok(Served::Nothing) };
    let Some(group) = groups.get_mut(reader.group) else { return Ok(Served::Nothing) };
    let reply = &mut call.reply;
    let owner = Owner { database, key: key.bytes, group: reader.group, consumer: reader.consumer };
    match wanted {
        GroupEntries::New => {
            let count = if read.count == 0 { usize::MAX } else { read.count };
            let claim = |ms| claim_overdue(entries, group, reader.consumer, ms, now_ms, count);
            let overdue = read.claim_ms.map(claim).unwrap_or_default();
            if overdue.is_empty() && !has_after(entries, group.last_id) {
                let at_ms = read.claim_ms.map(|ms| overdue_at_ms(entries, group, ms, now_ms));
                return Ok(at_ms.map_or(Served::Nothing, Served::NothingUntil));
            }
            begin_stream(reply, key.bytes);
            let mark = reply.deferred();
            let claimed = write_overdue(reply, entries, &overdue);
            // The IDs are only needed for the journal.
            let is_recorded = call.effects.recording;
            let mut delivered: Vec<_> = overdue.iter().filter(|_| is_recorded).map(|overdue| overdue.id).collect();
            let from = group.last_id.next().unwrap_or(StreamId::MAX);
            let unread = entries.range(from, StreamId::MAX).take(count - overdue.len());
            let new = write_new(reply, unread, read.claim_ms.is_some(), |id| {
                advance(entries, group, id);
                if !read.no_ack {
                    group.deliver(id, reader.consumer, Delivery { at_ms: now_ms, deliveries: 1 });
                    if is_recorded {
                        delivered.push(id);
                    }
                }
            });
            reply.fill_array(mark, claimed + new);
            owner.record_deliveries(call.effects, group, &delivered);
            if new > 0 {
                owner.record_progress(call.effects, group);
            }
            // As in Redis, NOACK deliveries don't make the consumer active, but claims do.
            if let Some(consumer) = group.consumer_mut(reader.consumer).filter(|_| !read.no_ack) {
                consumer.active_ms = Some(now_ms);
            }
        }
        GroupEntries::History(after) => {
            begin_stream(reply, key.bytes);
            let delivered = write_history(reply, entries, group, reader.consumer, after, read.count, now_ms);
            owner.record_deliveries(call.effects, group, &delivered);
        }
    }
    Ok(Served::Written)
}

/// Writes the claimed entries and returns their number.
fn write_overdue(reply: &mut Reply<'_>, entries: &Entries, overdue: &[Overdue]) -> usize {
    let mut written = 0;
    for Overdue { id, idle_ms, deliveries } in overdue {
        if let Some(entry) = entries.get(*id) {
            write_entry_with_delivery(reply, entry, *idle_ms, *deliveries);
            written += 1;
        }
    }
    written
}

/// Writes entries that were never delivered, and returns their number. `each` gets the ID of each entry.
fn write_new<'s>(
    reply: &mut Reply<'_>,
    entries: impl Iterator<Item = StreamEntry<'s>>,
    with_delivery: bool,
    mut each: impl FnMut(StreamId),
) -> usize {
    let mut written = 0;
    for entry in entries {
        each(entry.id);
        match with_delivery {
            true => write_entry_with_delivery(reply, entry, 0, 0),
            false => write_entry(reply, entry),
        }
        written += 1;
    }
    written
}

/// Records that a group has read up to this ID.
fn advance(entries: &Entries, group: &mut Group, id: StreamId) {
    if id <= group.last_id {
        return;
    }
    // The ID is the next entry only if no entry after the last read one was trimmed or deleted.
    let is_next = group.last_id >= entries.first_id() && !entries.has_gaps_from(group.last_id);
    group.entries_read = match group.entries_read {
        Some(read) if is_next => Some(read + 1),
        _ if entries.entries_added > 0 => entries.entries_up_to(id),
        read => read,
    };
    group.last_id = id;
}

/// Writes the entries that are pending for a consumer after an ID; this counts as another delivery. Returns the IDs of
/// the delivered entries.
fn write_history(
    reply: &mut Reply<'_>,
    entries: &Entries,
    group: &mut Group,
    consumer: &[u8],
    after: StreamId,
    count: usize,
    now_ms: u64,
) -> Vec<StreamId> {
    let from = after.next().unwrap_or(StreamId::MAX);
    let count = if count == 0 { usize::MAX } else { count };
    let pending = group.consumer(consumer).map(|consumer| consumer.pending().range(from..).take(count));
    let ids: Vec<StreamId> = pending.into_iter().flatten().copied().collect();
    reply.array(ids.len());
    let mut delivered = Vec::new();
    for id in ids {
        match entries.get(id) {
            Some(entry) => {
                write_entry(reply, entry);
                delivered.extend(group.deliver_again(id, now_ms).then_some(id));
            }
            // The entry was deleted.
            None => {
                reply.array(2);
                write_id(reply, id);
                reply.null_array();
            }
        }
    }
    delivered
}
