//! Streams in a snapshot.
//!
//! ```text
//! | count of blocks | blocks, each | ID of the first entry, a string of 16 bytes | a listpack, a string |
//! | entries | last ID | first ID | greatest deleted ID | entries added |     each ID: ms, number
//! | count of groups | groups, each:
//!   | name | last ID | entries read | count of pending | pending, each: ID of 16 bytes, ms of delivery i64, deliveries |
//!   | count of consumers | consumers, each: name, ms seen i64, [ms active i64], count of pending, IDs of 16 bytes |
//!
//! type 26, of Redis 8.6, for streams with producers, continues:
//! | seconds that identities are kept | limit per producer | count of producers | producers, each:
//!   | name | count of identities | identities from the oldest on, each: identity, ID: ms, number |
//! | identities added | repeated messages |
//!
//! the listpack of a block:
//! entries | deleted | count of fields | names of fields | 0
//! and for each entry, without the items in brackets if its fields are the block's:
//! flags | ms beyond the first ID | number beyond it | [count of fields] | [name] value ... | count of these items
//! ```
//!
//! Source: the comments in Redis's `t_stream.c`. Deleted entries are left out.

use store::types::packed::{Item, append_item};
use store::types::stream::{Group, Producers, Stream, StreamBlock, StreamEntry, StreamId};

use super::{Target, Writer, length};
use crate::rdb::{AUX_ACTIVE, ENTRY_SAME_FIELDS, ID_BYTES, code};

/// An unknown count: -1.
const UNKNOWN: u64 = u64::MAX;

fn id_bytes(id: StreamId) -> [u8; ID_BYTES] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn id(out: &mut Vec<u8>, id: StreamId) {
    length(out, id.ms);
    length(out, id.seq);
}

/// Writes a time in milliseconds; none is -1.
fn time(out: &mut Vec<u8>, ms: Option<u64>) {
    out.extend_from_slice(&ms.unwrap_or(u64::MAX).to_le_bytes());
}

impl Writer {
    /// The type byte of a stream. Streams with producers need a type of Redis 8.6 and later. Valkey gets the messages without the
    /// producers.
    pub(super) fn stream_code(&self, has_producers: bool) -> u8 {
        match self.options.target {
            Target::Valkey90 => code::STREAM_3,
            _ if has_producers => code::STREAM_4,
            Target::Redis70 => code::STREAM_2,
            Target::Redis72 => code::STREAM_3,
        }
    }

    /// True if a consumer's record contains the time when it was active.
    fn has_active_times(&self, has_producers: bool) -> bool {
        self.stream_code(has_producers) != code::STREAM_2
    }

    pub(super) fn stream(&mut self, out: &mut Vec<u8>, stream: &Stream) {
        length(out, stream.entries.block_count() as u64);
        stream.entries.blocks().for_each(|block| self.stream_block(out, block));
        self.stream_rest(out, stream);
    }

    /// Stores the times when consumers were active, which version 10 can't store with the stream. Must come before the
    /// key.
    pub fn active_times(&mut self, out: &mut Vec<u8>, stream: &Stream) {
        let mut consumers = stream.groups.values().flat_map(Group::consumers).peekable();
        if self.has_active_times(stream.producers.is_some()) || consumers.peek().is_none() {
            return;
        }
        let mut times = Vec::new();
        consumers.for_each(|consumer| time(&mut times, consumer.active_ms));
        self.aux(out, AUX_ACTIVE, &times);
    }

    /// Writes a block of a stream that is written in parts, as returned by [`store::types::stream::Entries::blocks`].
    pub fn stream_block(&mut self, out: &mut Vec<u8>, block: StreamBlock<'_>) {
        self.bytes(out, &id_bytes(block.first));
        self.listpack_of(out, |items| block_items(items, block));
    }

    /// Writes the part of a stream after its blocks.
    pub fn stream_rest(&mut self, out: &mut Vec<u8>, stream: &Stream) {
        let entries = &stream.entries;
        length(out, entries.len());
        id(out, entries.last_id);
        id(out, entries.first_id());
        id(out, entries.max_deleted_id);
        length(out, entries.entries_added);
        length(out, stream.groups.len() as u64);
        for (name, group) in &stream.groups {
            self.string(out, name);
            self.group(out, group, self.has_active_times(stream.producers.is_some()));
        }
        if let Some(producers) = &stream.producers
            && self.stream_code(true) == code::STREAM_4
        {
            self.producers(out, producers);
        }
    }

    fn producers(&mut self, out: &mut Vec<u8>, producers: &Producers) {
        let limits = producers.limits();
        length(out, u64::from(limits.seconds));
        length(out, u64::from(limits.count));
        length(out, producers.iter().len() as u64);
        for (name, identities) in producers.iter() {
            self.string(out, name);
            length(out, identities.len() as u64);
            for (identity, entry) in identities {
                self.string(out, identity);
                id(out, entry);
            }
        }
        length(out, producers.added);
        length(out, producers.duplicates);
    }

    fn group(&mut self, out: &mut Vec<u8>, group: &Group, has_active_times: bool) {
        id(out, group.last_id);
        length(out, group.entries_read.unwrap_or(UNKNOWN));
        length(out, group.pending().len() as u64);
        for (&pending, delivery) in group.pending() {
            out.extend_from_slice(&id_bytes(pending));
            out.extend_from_slice(&delivery.delivered_ms.to_le_bytes());
            length(out, delivery.deliveries);
        }
        length(out, group.consumers().len() as u64);
        for consumer in group.consumers() {
            self.string(out, consumer.name());
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            if has_active_times {
                time(out, consumer.active_ms);
            }
            length(out, consumer.pending().len() as u64);
            consumer.pending().iter().for_each(|&pending| out.extend_from_slice(&id_bytes(pending)));
        }
    }
}

/// Appends the items of a block's listpack, and returns their number.
fn block_items(out: &mut Vec<u8>, StreamBlock { first, len, entries }: StreamBlock<'_>) -> usize {
    let Some(head) = entries.clone().next() else { return 0 };
    let names = head.map(|(name, _)| name);
    let counts = [len as i64, 0, names.len() as i64].map(Item::Int);
    counts.into_iter().for_each(|count| append_item(out, count));
    names.for_each(|name| append_item(out, Item::from(name)));
    append_item(out, Item::Int(0));
    entries.fold(counts.len() + head.len + 1, |count, entry| count + entry_items(out, first, head, entry))
}

/// Appends the items of an entry, and returns their number. `head` is the entry with the block's fields.
fn entry_items(out: &mut Vec<u8>, first: StreamId, head: StreamEntry<'_>, entry: StreamEntry<'_>) -> usize {
    let same = entry.has_fields_of(head);
    let beyond = [entry.id.ms.wrapping_sub(first.ms), entry.id.seq.wrapping_sub(first.seq)];
    let flags = if same { ENTRY_SAME_FIELDS } else { 0 };
    if let [ms @ 0..0x80, seq @ 0..0x80] = beyond {
        // Numbers of one byte each, and their lengths.
        out.extend_from_slice(&[flags as u8, 1, ms as u8, 1, seq as u8, 1]);
    } else {
        append_item(out, Item::Int(flags));
        beyond.into_iter().for_each(|beyond| append_item(out, Item::Int(beyond as i64)));
    }
    let count = if same {
        entry.values().for_each(|value| append_item(out, Item::from(value)));
        3 + entry.len
    } else {
        append_item(out, Item::Int(entry.len as i64));
        entry.flat_map(|(name, value)| [name, value]).for_each(|text| append_item(out, Item::from(text)));
        4 + 2 * entry.len
    };
    append_item(out, Item::Int(count as i64));
    count + 1
}
