//! The length that the last block would have in Redis. Redis keeps each block of a stream as a listpack, and its length
//! decides when the block is full. Blocks here are packed differently and are shorter, but must end where Redis's do:
//! commands that trim by whole blocks (`MAXLEN ~`) show it, and clients count on it.
//!
//! # Format
//!
//! A listpack is a header of 6 bytes, items, and a byte that ends it (antirez/listpack, `listpack.md`); an item is what
//! [`encoded_len`] has the length of. In a stream (Redis's `t_stream.c`, the drawings in its comments), the items are
//!
//! ```text
//! entries | deleted | count of fields | names of fields | 0
//! ```
//!
//! and for each entry, where what is in brackets is missing if the fields are those of the first:
//!
//! ```text
//! flags | ms beyond the first ID | number beyond it | [count of fields] | [name] value ... | count of these items
//! ```

use crate::types::packed::{Item, encoded_len};

use super::id::StreamId;

/// The header, and the byte at the end.
const FRAME_BYTES: usize = 6 + 1;
/// Flags, or a zero.
const SMALL_INT_BYTES: usize = 2;

fn int_bytes(value: u64) -> usize {
    // Differences of IDs are signed there, and wrap.
    encoded_len(Item::Int(value as i64))
}

fn texts_bytes<'a>(texts: impl Iterator<Item = &'a [u8]>) -> usize {
    texts.map(|text| encoded_len(Item::from(text))).sum()
}

/// Bytes of the listpack but for the two items that count entries: those can grow with every entry that comes or goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListpackBytes(u32);

impl ListpackBytes {
    /// The bytes of an empty block before its first entry is added: `pairs` are that entry's fields and values in turn.
    pub(super) fn of_empty<'a>(pairs: impl ExactSizeIterator<Item = &'a [u8]>) -> ListpackBytes {
        let count = int_bytes(pairs.len() as u64 / 2);
        let mut bytes = ListpackBytes::default();
        bytes.grow(FRAME_BYTES + count + texts_bytes(pairs.step_by(2)) + SMALL_INT_BYTES);
        bytes
    }

    /// Counts an entry of a block that begins with the ID `first`.
    pub(super) fn add<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        pairs: impl ExactSizeIterator<Item = &'a [u8]>,
        has_same_fields: bool,
    ) {
        let fields = pairs.len() as u64 / 2;
        let head =
            SMALL_INT_BYTES + int_bytes(id.ms.wrapping_sub(first.ms)) + int_bytes(id.seq.wrapping_sub(first.seq));
        self.grow(if has_same_fields {
            head + texts_bytes(pairs.skip(1).step_by(2)) + int_bytes(3 + fields)
        } else {
            head + int_bytes(fields) + texts_bytes(pairs) + int_bytes(4 + 2 * fields)
        });
    }

    /// All of the listpack's, with so many entries, and so many that are deleted.
    pub(super) fn with_counts(self, live: u32, dead: u32) -> usize {
        self.0 as usize + int_bytes(live.into()) + int_bytes(dead.into())
    }

    /// A block that is too long for the count is more than full.
    fn grow(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}
