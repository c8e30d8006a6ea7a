//! Reading of streams; see the layout in [`super::super::write`].

use std::io::Read;

use store::types::packed::ItemText;
use store::types::stream::{
    Delivery, Entries, Group, IdentityLimits, Producers, Stream, StreamId, StreamLimits, Values,
};
use store::unaligned_box::TightBox;
use store::value::Value;

use super::error::{Error, Flaw};
use super::source::Source;
use crate::listpack::Unread;
use crate::rdb::{ENTRY_DELETED, ENTRY_SAME_FIELDS, ID_BYTES, code};

const BAD_BLOCK: Flaw = Flaw::Damaged("a block of a stream");
const BAD_STREAM: Flaw = Flaw::Damaged("a stream");
const BAD_GROUP: Flaw = Flaw::Damaged("a stream's group");

fn id_of(bytes: [u8; ID_BYTES]) -> StreamId {
    let both = u128::from_be_bytes(bytes);
    StreamId::new((both >> 64) as u64, both as u64)
}

fn read_id<R: Read>(source: &mut Source<R>) -> Result<StreamId, Error> {
    Ok(StreamId::new(source.length()?, source.length()?))
}

/// Converts a time in milliseconds; -1 means none.
fn time(bytes: [u8; 8]) -> Option<u64> {
    u64::try_from(i64::from_le_bytes(bytes)).ok()
}

/// Reads a stream. `active_times` are the consumers' times, if the file stores them separately.
pub(super) fn read<R: Read>(source: &mut Source<R>, code: u8, active_times: &[u8]) -> Result<Value, Error> {
    let mut stream = Stream::default();
    for _ in 0..source.length()? {
        let first = source.string()?.with_bytes(|bytes| bytes.try_into().ok().map(id_of));
        let Some(first) = first else { return Err(source.flaw(BAD_BLOCK)) };
        let added = source.string()?.with_bytes(|block| add_block(&mut stream.entries, first, block));
        added.ok_or_else(|| source.flaw(BAD_BLOCK))?;
    }
    read_state(source, code, &mut stream.entries)?;
    let mut active_times = active_times.as_chunks().0.iter();
    for _ in 0..source.length()? {
        let name = source.string_owned()?;
        let group = read_group(source, code, &stream.entries, &mut active_times)?;
        if stream.groups.insert(name.into_boxed_slice(), group).is_some() {
            return Err(source.flaw(BAD_GROUP));
        }
    }
    stream.producers = read_producers(source, code)?;
    Ok(Value::Stream(TightBox::new(stream)))
}

/// Appends the entries of a block as a separate block. Returns none if the block is damaged; the entries are incomplete then.
fn add_block(entries: &mut Entries, first: StreamId, block: &[u8]) -> Option<()> {
    let mut items = Unread::open(block)?;
    let mut counts = [0; 3];
    for count in &mut counts {
        *count = items.int()?;
    }
    let [live, deleted, fields] = counts;
    let mut names = Vec::new();
    take(&mut items, fields, &mut names)?;
    if items.int()? != 0 || live < 0 || deleted < 0 {
        return None;
    }
    entries.end_block();
    let mut block = BlockEntries { first, names, texts: Vec::new(), begins_with_names: false };
    let mut found = [0, 0];
    while !items.is_empty() {
        let was_deleted = block.add_entry(entries, &mut items)?;
        found[usize::from(was_deleted)] += 1;
    }
    (found == [live, deleted] && items.checked_count().is_some()).then_some(())
}

/// Reads `count` items into `texts`; none if one of them is damaged.
fn take<'b>(items: &mut Unread<'b>, count: i64, texts: &mut Vec<ItemText<'b>>) -> Option<()> {
    for _ in 0..usize::try_from(count).ok()? {
        texts.push(items.text()?);
    }
    Some(())
}

/// Reads the entries of a block.
struct BlockEntries<'b> {
    /// The ID to which the entries' IDs are relative.
    first: StreamId,
    /// Names of the block's fields.
    names: Vec<ItemText<'b>>,
    /// The present entry's values, or its fields and values in turn.
    texts: Vec<ItemText<'b>>,
    /// True if the fields of the last block that was made have these names.
    begins_with_names: bool,
}

impl<'b> BlockEntries<'b> {
    /// Adds an entry unless it is deleted; returns true if it is deleted, and none if it is damaged.
    fn add_entry(&mut self, entries: &mut Entries, items: &mut Unread<'b>) -> Option<bool> {
        let before = items.read();
        let flags = items.int()?;
        // Differences are signed and wrap around.
        let (ms, seq) = (items.int()? as u64, items.int()? as u64);
        let id = StreamId::new(self.first.ms.wrapping_add(ms), self.first.seq.wrapping_add(seq));
        let (is_deleted, has_names) = (flags & ENTRY_DELETED != 0, flags & ENTRY_SAME_FIELDS != 0);
        let ascends = id >= self.first && (is_deleted || id > entries.last_id);
        if flags & !(ENTRY_DELETED | ENTRY_SAME_FIELDS) != 0 || !ascends {
            return None;
        }
        if !is_deleted && has_names && self.begins_with_names {
            let mark = items.mark();
            if entries.push_values(id, |values| self.copy_values(items, before, values)) {
                return Some(false);
            }
            items.return_to(mark);
        }
        let count = if has_names { self.names.len() as i64 } else { items.int()?.checked_mul(2)? };
        self.texts.clear();
        take(items, count, &mut self.texts)?;
        end_entry(items, before)?;
        if self.text_bytes(has_names) > StreamLimits::BYTES_MAX {
            return None;
        }
        if !is_deleted {
            self.push(entries, id, has_names);
        }
        Some(is_deleted)
    }

    /// Copies the values of an entry with the block's fields, and checks its end; none if an item is damaged. `before` is the number of
    /// items that were read before the entry.
    #[inline]
    fn copy_values(&self, items: &mut Unread<'b>, before: usize, values: &mut Values<'_>) -> Option<()> {
        for _ in 0..self.names.len() {
            items.with_text(|text| values.push(text))?;
        }
        end_entry(items, before)
    }

    /// Bytes of the present entry's fields and values.
    fn text_bytes(&self, has_names: bool) -> usize {
        let names = if has_names { self.names.as_slice() } else { &[] };
        names.iter().chain(&self.texts).map(|text| text.len()).sum()
    }

    fn push(&mut self, entries: &mut Entries, id: StreamId, has_names: bool) {
        let (limits, blocks) = (StreamLimits::new(0, 0), entries.block_count());
        let texts = self.texts.iter().map(|text| &**text);
        if has_names {
            let pairs: Vec<&[u8]> = self.names.iter().zip(texts).flat_map(|(name, value)| [&**name, value]).collect();
            entries.push(id, pairs.iter().copied(), limits);
        } else {
            entries.push(id, texts, limits);
        }
        if entries.block_count() > blocks {
            self.begins_with_names = has_names;
        }
    }
}

/// Reads the item behind an entry: the number of its items, of which the first one comes after `before` others. None for another number.
#[inline]
fn end_entry(items: &mut Unread<'_>, before: usize) -> Option<()> {
    let count = items.read() - before;
    (items.int()? == count as i64).then_some(())
}

/// Reads the stream's state beside its entries.
fn read_state<R: Read>(source: &mut Source<R>, code: u8, entries: &mut Entries) -> Result<(), Error> {
    let (len, last_id) = (source.length()?, read_id(source)?);
    if len != entries.len() || last_id < entries.last_id {
        return Err(source.flaw(BAD_STREAM));
    }
    entries.last_id = last_id;
    entries.entries_added = len;
    if code != code::STREAM {
        // The first entry's ID follows from the entries.
        read_id(source)?;
        entries.max_deleted_id = read_id(source)?;
        entries.entries_added = source.length()?;
    }
    Ok(())
}

fn read_group<R: Read>(
    source: &mut Source<R>,
    code: u8,
    entries: &Entries,
    active_times: &mut std::slice::Iter<'_, [u8; 8]>,
) -> Result<Group, Error> {
    let last_id = read_id(source)?;
    let entries_read = if code == code::STREAM {
        entries.entries_up_to(last_id)
    } else {
        // Stored as a signed number; -1 means unknown.
        Some(source.length()?).filter(|&read| read != u64::MAX)
    };
    let mut group = Group::new(last_id, entries_read);
    let mut pending = Vec::new();
    for _ in 0..source.length()? {
        let id = id_of(source.array()?);
        let at_ms = time(source.array()?).unwrap_or(0);
        let deliveries = source.length()?;
        if pending.last().is_some_and(|&(before, _)| before >= id) {
            return Err(source.flaw(BAD_GROUP));
        }
        pending.push((id, Delivery { at_ms, deliveries }));
    }
    for _ in 0..source.length()? {
        read_consumer(source, code, &mut group, &pending, active_times)?;
    }
    let given_back = if code == code::STREAM_5 { source.length()? } else { 0 };
    if given_back > 0 {
        return Err(source.flaw(Flaw::Unsupported("a delivery that its consumer returned".into())));
    }
    // Every delivery has a consumer.
    if group.pending().len() == pending.len() { Ok(group) } else { Err(source.flaw(BAD_GROUP)) }
}

fn read_consumer<R: Read>(
    source: &mut Source<R>,
    code: u8,
    group: &mut Group,
    pending: &[(StreamId, Delivery)],
    active_times: &mut std::slice::Iter<'_, [u8; 8]>,
) -> Result<(), Error> {
    let name = source.string_owned()?;
    let seen_ms = time(source.array()?).unwrap_or(0);
    let active_ms = match code {
        code::STREAM | code::STREAM_2 => active_times.next().map_or(Some(seen_ms), |&apart| time(apart)),
        _ => time(source.array()?),
    };
    if !group.add_consumer(&name, seen_ms) {
        return Err(source.flaw(BAD_GROUP));
    }
    if let Some(consumer) = group.consumer_mut(&name) {
        consumer.active_ms = active_ms;
    }
    for _ in 0..source.length()? {
        let id = id_of(source.array()?);
        let known = pending.binary_search_by_key(&id, |&(id, _)| id).ok().and_then(|at| pending.get(at));
        match known {
            Some(&(_, delivery)) if !group.pending().contains_key(&id) => group.deliver(id, &name, delivery),
            _ => return Err(source.flaw(BAD_GROUP)),
        }
    }
    Ok(())
}

/// Reads the part that Redis has appended since 8.6: identities of producers' messages, for detecting duplicates. A
/// stream without identities and with Redis's default limits is a plain one.
fn read_producers<R: Read>(source: &mut Source<R>, code: u8) -> Result<Option<Box<Producers>>, Error> {
    if code != code::STREAM_4 && code != code::STREAM_5 {
        return Ok(None);
    }
    let max = IdentityLimits::MAX;
    let seconds = read_limit(source, max.seconds)?;
    let limits = IdentityLimits { seconds, count: read_limit(source, max.count)? };
    let mut producers = Producers::new(limits);
    for _ in 0..source.length()? {
        let name = source.string_owned()?;
        for _ in 0..source.length()? {
            let identity = source.string_owned()?;
            producers.push(&name, &identity, read_id(source)?);
        }
    }
    (producers.added, producers.duplicates) = (source.length()?, source.length()?);
    let is_plain = limits == IdentityLimits::default() && producers.iter().len() == 0;
    let is_new = (producers.added, producers.duplicates) == (0, 0);
    Ok((!is_plain || !is_new).then(|| Box::new(producers)))
}

fn read_limit<R: Read>(source: &mut Source<R>, max: u32) -> Result<u32, Error> {
    let limit = u32::try_from(source.length()?).ok().filter(|limit| (1..=max).contains(limit));
    limit.ok_or_else(|| source.flaw(BAD_STREAM))
}
