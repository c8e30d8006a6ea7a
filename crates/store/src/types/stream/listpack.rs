//! The length that the last block would have in Redis. Redis stores each block of a stream as a listpack, and its
//! length decides when the block is full. Blocks here use another packing and are shorter, but must end at the same
//! entries: commands that trim by whole blocks (`MAXLEN ~`) make this visible, and clients rely on it.
//!
//! # Format
//!
//! A listpack is a header of 6 bytes, items, and an end byte (antirez/listpack, `listpack.md`); [`encoded_len`] returns
//! an item's length. In a stream (Redis's `t_stream.c`, the diagrams in its comments), the items are
//!
//! ```text
//! entries | deleted | count of fields | names of fields | 0
//! ```
//!
//! and for each entry, without the bracketed items if the fields are those of the first entry:
//!
//! ```text
//! flags | ms beyond the first ID | number beyond it | [count of fields] | [name] value ... | count of these items
//! ```

use crate::types::packed::{Item, encoded_len};

use super::id::StreamId;

/// The header and the end byte.
const FRAME_BYTES: usize = 6 + 1;
/// Flags, or a zero.
const SMALL_INT_BYTES: usize = 2;

fn int_bytes(value: u64) -> usize {
    // In Redis, differences of IDs are signed and wrap.
    encoded_len(Item::Int(value as i64))
}

fn texts_bytes<'a>(texts: impl Iterator<Item = &'a [u8]>) -> usize {
    texts.map(|text| encoded_len(Item::from(text))).sum()
}

/// Bytes of an entry's flags and ID.
fn head_bytes(first: StreamId, id: StreamId) -> usize {
    SMALL_INT_BYTES + int_bytes(id.ms.wrapping_sub(first.ms)) + int_bytes(id.seq.wrapping_sub(first.seq))
}

/// Bytes of the listpack without the two items that count entries, because their size can change with every addition or
/// deletion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListpackBytes(u32);

impl ListpackBytes {
    /// Returns the bytes of an empty block before its first entry is added: `pairs` are that entry's alternating fields
    /// and values.
    pub(super) fn of_empty<'a>(pairs: impl ExactSizeIterator<Item = &'a [u8]>) -> ListpackBytes {
        let count = int_bytes(pairs.len() as u64 / 2);
        let mut bytes = ListpackBytes::default();
        bytes.grow(FRAME_BYTES + count + texts_bytes(pairs.step_by(2)) + SMALL_INT_BYTES);
        bytes
    }

    /// Counts an entry with the fields of its block's first one. `first` is the ID with which the block begins.
    pub(super) fn add_values<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let fields = values.len() as u64;
        self.grow(head_bytes(first, id) + texts_bytes(values) + int_bytes(3 + fields));
    }

    /// Counts an entry with fields of its own: `pairs` are alternating fields and values.
    pub(super) fn add_pairs<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        pairs: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let fields = pairs.len() as u64 / 2;
        self.grow(head_bytes(first, id) + int_bytes(fields) + texts_bytes(pairs) + int_bytes(4 + 2 * fields));
    }

    /// Returns the bytes of the whole listpack with these numbers of entries and of deleted entries.
    pub(super) fn with_counts(self, live: u32, dead: u32) -> usize {
        self.0 as usize + int_bytes(live.into()) + int_bytes(dead.into())
    }

    /// Saturates: a block that exceeds the count's range is more than full.
    fn grow(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}
