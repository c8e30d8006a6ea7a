//! A block of a stream: consecutive entries in one allocation, which are found by walking from either end.
//!
//! # Format
//!
//! ```text
//! +---------------+---------------------+---------+---------+-----+
//! | count of      | names of fields, as | entry 0 | entry 1 | ... |
//! | fields        | texts               |         |         |     |
//! +---------------+---------------------+---------+---------+-----+
//!
//! an entry:
//! +-------+---------------+------------+--------------+-----------------------------+----------------+
//! | flags | bytes up to   | ms beyond  | number, see  | values, as texts; or the    | bytes before   |
//! | 1     | "bytes before"| the        | below        | count of pairs, and fields  | this, read     |
//! |       |               | block's    |              | and values in turn          | from the right |
//! +-------+---------------+------------+--------------+-----------------------------+----------------+
//! ```
//!
//! Numbers have 7 bits per byte, the lowest first, with the top bit set if more follow. An entry's last number is
//! reversed, so that it can be read from the end. A text is its length and its bytes. The block begins with the field
//! names of its first entry; an entry with the same names in the same order stores only its values. The ID's number is
//! relative to the block's first ID if the time is equal, otherwise absolute.
//!
//! A deleted entry is marked, and is freed with its whole block.

use super::id::StreamId;
use super::listpack::ListpackBytes;

/// The entry is deleted.
const DELETED: u8 = 1;
/// Its fields are the same as those of the block's first entry.
const SAME_FIELDS: u8 = 2;

/// Bits of a number in a byte.
const NUMBER_BITS: u32 = 7;

#[inline]
fn number_bytes(number: u64) -> usize {
    // Walks wait for the size of each entry, and a predicted branch is no delay.
    if number < 0x80 {
        return 1;
    }
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(NUMBER_BITS) as usize
}

#[inline]
fn put_number(out: &mut Vec<u8>, number: u64) {
    if number < 0x80 { out.push(number as u8) } else { put_large_number(out, number) }
}

#[inline(never)]
fn put_large_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= NUMBER_BITS;
    }
    out.push(number as u8);
}

/// Writes a number to be read from the end.
#[inline]
fn put_number_reversed(out: &mut Vec<u8>, number: u64) {
    let start = out.len();
    put_number(out, number);
    if out.len() > start + 1 {
        out[start..].reverse();
    }
}

/// Returns the number that ends at the end of `bytes`, and its size in bytes.
#[inline]
fn number_before(bytes: &[u8]) -> (usize, usize) {
    let (mut number, mut taken) = (0, 0);
    for &byte in bytes.iter().rev() {
        number |= usize::from(byte & 0x7f) << (NUMBER_BITS * taken);
        taken += 1;
        if byte < 0x80 {
            break;
        }
    }
    (number, taken as usize)
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Replaces the byte at this offset by a length of more than one byte.
#[cold]
fn put_long_length(out: &mut Vec<u8>, at: usize, len: usize) {
    let mut number = Vec::new();
    put_number(&mut number, len as u64);
    out.splice(at..=at, number);
}

/// Appends the values of an entry to its block.
#[derive(Debug)]
pub struct Values<'b>(&'b mut Vec<u8>);

impl Values<'_> {
    /// Appends the next value.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        put_text(self.0, value);
    }
}

fn text_bytes(text: &[u8]) -> usize {
    number_bytes(text.len() as u64) + text.len()
}

/// Reads the output of the functions above. Beyond the end it returns zeros and empty texts.
#[derive(Clone, Copy, Debug)]
struct BlockReader<'b>(&'b [u8]);

impl<'b> BlockReader<'b> {
    #[inline]
    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some((&byte, rest)) = self.0.split_first() {
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += NUMBER_BITS;
        }
        number
    }

    #[inline]
    fn text(&mut self) -> &'b [u8] {
        let len = self.number() as usize;
        let (text, rest) = self.0.split_at_checked(len).unwrap_or_default();
        self.0 = rest;
        text
    }
}

/// An entry, as stored in its block.
#[derive(Clone, Copy, Debug)]
pub struct StreamEntry<'b> {
    /// Its ID.
    pub id: StreamId,
    /// Number of fields.
    pub len: usize,
    /// The names, if they are the block's.
    fields: Option<BlockReader<'b>>,
    /// Values, or alternating fields and values.
    rest: BlockReader<'b>,
}

impl<'b> StreamEntry<'b> {
    /// Returns true if another entry has equal names of fields in the same order.
    #[must_use]
    pub fn has_fields_of(self, other: Self) -> bool {
        let shared = self.fields.zip(other.fields).is_some_and(|(own, others)| std::ptr::eq(own.0, others.0));
        shared || self.len == other.len && self.map(|(name, _)| name).eq(other.map(|(name, _)| name))
    }

    /// Its fields and values in turn.
    fn texts(self) -> Vec<&'b [u8]> {
        self.flat_map(|(field, value)| [field, value]).collect()
    }

    /// Iterates over the values.
    pub fn values(self) -> impl ExactSizeIterator<Item = &'b [u8]> {
        let (has_own_names, mut rest) = (self.fields.is_none(), self.rest);
        (0..self.len).map(move |_| {
            if has_own_names {
                rest.text();
            }
            rest.text()
        })
    }
}

impl<'b> Iterator for StreamEntry<'b> {
    type Item = (&'b [u8], &'b [u8]);

    /// Returns the next field with its value.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.len = self.len.checked_sub(1)?;
        let field = match &mut self.fields {
            Some(fields) => fields.text(),
            None => self.rest.text(),
        };
        Some((field, self.rest.text()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for StreamEntry<'_> {}

/// The location of an entry.
struct EntrySpan {
    flags: u8,
    id: StreamId,
    /// Range of the bytes behind the ID.
    rest: (usize, usize),
    /// Offset of the next entry.
    next: usize,
}

/// See the module's documentation. An empty one allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryBlock {
    /// The ID of the first entry that was added, even if it is deleted.
    pub(super) first: StreamId,
    /// The ID of the last entry that was added.
    pub(super) last: StreamId,
    /// Number of entries that are not deleted.
    pub(super) live: u32,
    /// Number of deleted entries.
    pub(super) dead: u32,
    /// Offset of the first entry.
    start: u32,
    /// Offset of the first entry that is not deleted.
    head: u32,
    bytes: Vec<u8>,
}

impl EntryBlock {
    /// Returns an empty block with this capacity.
    pub(super) fn with_capacity(bytes: usize) -> EntryBlock {
        EntryBlock { bytes: Vec::with_capacity(bytes), ..EntryBlock::default() }
    }

    /// Returns true if no entry was ever added.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of entries that were added.
    pub(super) fn entries(&self) -> usize {
        self.live as usize + self.dead as usize
    }

    /// Used bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Allocated bytes.
    pub(super) fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    fn fields(&self) -> BlockReader<'_> {
        BlockReader(&self.bytes)
    }

    /// Appends an entry. `pairs` are alternating fields and values. Returns true if the fields are the block's.
    pub(super) fn push<'a>(&mut self, id: StreamId, pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> bool {
        if self.is_empty() {
            self.begin(id, pairs.clone());
        }
        let has_same_fields = self.has_fields(pairs.clone());
        if has_same_fields {
            self.push_texts(id, None, pairs.skip(1).step_by(2));
        } else {
            self.push_texts(id, Some(pairs.len() as u64 / 2), pairs);
        }
        has_same_fields
    }

    /// Appends an entry with the block's fields. `write` appends its values. Returns none, and adds nothing, if `write` does, or if the block
    /// would exceed `bytes_max`.
    #[inline]
    pub(super) fn push_values(
        &mut self,
        id: StreamId,
        bytes_max: usize,
        write: impl FnOnce(&mut Values<'_>) -> Option<()>,
    ) -> Option<()> {
        let at = self.bytes.len();
        let (ms, seq) = self.relative(id);
        let out = &mut self.bytes;
        // The second byte is the place of the length.
        if ms | seq < 0x80 {
            out.extend_from_slice(&[SAME_FIELDS, 0, ms as u8, seq as u8]);
        } else {
            out.extend_from_slice(&[SAME_FIELDS, 0]);
            put_number(out, ms);
            put_number(out, seq);
        }
        let written = write(&mut Values(out)).filter(|()| out.len() <= bytes_max);
        if written.is_none() {
            out.truncate(at);
            return None;
        }
        match out.len() - at - 2 {
            len @ 0..0x80 => out[at + 1] = len as u8,
            len => put_long_length(out, at + 1, len),
        }
        put_number_reversed(out, (out.len() - at) as u64);
        self.last = id;
        self.live += 1;
        Some(())
    }

    /// Returns the two numbers of an entry's ID, as they are stored.
    #[inline]
    fn relative(&self, id: StreamId) -> (u64, u64) {
        let ms = id.ms - self.first.ms;
        (ms, if ms == 0 { id.seq - self.first.seq } else { id.seq })
    }

    /// Appends an entry. `texts` are values, or after a count of fields those fields and values in turn.
    fn push_texts<'a>(&mut self, id: StreamId, count: Option<u64>, texts: impl Iterator<Item = &'a [u8]> + Clone) {
        let (ms, seq) = self.relative(id);
        let len = number_bytes(ms)
            + number_bytes(seq)
            + count.map_or(0, number_bytes)
            + texts.clone().map(text_bytes).sum::<usize>();
        let whole = 1 + number_bytes(len as u64) + len;
        self.bytes.reserve(whole + number_bytes(whole as u64));
        let out = &mut self.bytes;
        out.push(if count.is_none() { SAME_FIELDS } else { 0 });
        put_number(out, len as u64);
        put_number(out, ms);
        put_number(out, seq);
        count.into_iter().for_each(|count| put_number(out, count));
        texts.for_each(|text| put_text(out, text));
        put_number_reversed(out, whole as u64);
        self.last = id;
        self.live += 1;
    }

    /// Writes the names of the fields, before the first entry.
    fn begin<'a>(&mut self, id: StreamId, pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        let fields = pairs.clone().step_by(2);
        // The names and the first entry get exactly one allocation, because most streams with a single entry stay so.
        let texts: usize = pairs.clone().map(text_bytes).sum();
        self.bytes.reserve_exact(texts + FIRST_ENTRY_BYTES);
        put_number(&mut self.bytes, pairs.len() as u64 / 2);
        fields.for_each(|field| put_text(&mut self.bytes, field));
        self.first = id;
        self.start = self.bytes.len() as u32;
        self.head = self.start;
    }

    fn has_fields<'a>(&self, pairs: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
        let mut fields = self.fields();
        let count = pairs.len() as u64 / 2;
        count == fields.number() && pairs.step_by(2).all(|field| field == fields.text())
    }

    /// Returns the location of the entry at this offset.
    #[inline]
    fn span(&self, at: usize) -> EntrySpan {
        let mut reader = BlockReader(&self.bytes[at + 1..]);
        let len = reader.number() as usize;
        let end = self.bytes.len() - reader.0.len() + len;
        let (ms, number) = (reader.number(), reader.number());
        let seq = if ms == 0 { self.first.seq.wrapping_add(number) } else { number };
        EntrySpan {
            flags: self.bytes[at],
            id: StreamId { ms: self.first.ms.wrapping_add(ms), seq },
            rest: (self.bytes.len() - reader.0.len(), end),
            next: end + number_bytes((end - at) as u64),
        }
    }

    #[inline]
    fn entry(&self, span: &EntrySpan) -> StreamEntry<'_> {
        let mut rest = BlockReader(&self.bytes[span.rest.0..span.rest.1]);
        if span.flags & SAME_FIELDS == 0 {
            return StreamEntry { id: span.id, len: rest.number() as usize, fields: None, rest };
        }
        let mut fields = self.fields();
        StreamEntry { id: span.id, len: fields.number() as usize, fields: Some(fields), rest }
    }

    /// Returns the offset of the entry before this one.
    #[inline]
    fn before(&self, at: usize) -> usize {
        let (whole, taken) = number_before(&self.bytes[..at]);
        at - taken - whole
    }

    /// Returns the offset of the first entry with this ID or a higher one; the end, if there is none. Walks from the
    /// nearer end.
    fn seek(&self, id: StreamId) -> usize {
        let end = self.bytes.len();
        if id <= self.first {
            return self.start as usize;
        }
        if id > self.last {
            return end;
        }
        let is_late = if self.first.ms == self.last.ms {
            id.seq - self.first.seq > self.last.seq - id.seq
        } else {
            id.ms - self.first.ms > self.last.ms - id.ms
        };
        let mut at = if is_late { end } else { self.start as usize };
        if is_late {
            while at > self.start as usize {
                let before = self.before(at);
                if self.span(before).id < id {
                    break;
                }
                at = before;
            }
        } else {
            while at < end {
                let span = self.span(at);
                if span.id >= id {
                    break;
                }
                at = span.next;
            }
        }
        at
    }

    /// Returns the bytes that the block would have in Redis, with its deleted entries.
    pub(super) fn listpack_bytes(&self) -> ListpackBytes {
        let (mut bytes, mut at) = (ListpackBytes::default(), self.start as usize);
        while at < self.bytes.len() {
            let span = self.span(at);
            let entry = self.entry(&span);
            if at == self.start as usize {
                bytes = ListpackBytes::of_empty(entry.texts().into_iter());
            }
            if entry.fields.is_some() {
                bytes.add_values(self.first, entry.id, entry.values());
            } else {
                bytes.add_pairs(self.first, entry.id, entry.texts().into_iter());
            }
            at = span.next;
        }
        bytes
    }

    /// Returns the ID of the first entry that is not deleted. There must be one.
    pub(super) fn first_live(&self) -> StreamId {
        self.span(self.head as usize).id
    }

    /// Deletes an entry. Returns true if it existed.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let at = self.seek(id);
        if at >= self.bytes.len() {
            return false;
        }
        let span = self.span(at);
        if span.id != id || span.flags & DELETED != 0 {
            return false;
        }
        self.mark(at);
        true
    }

    fn mark(&mut self, at: usize) {
        self.bytes[at] |= DELETED;
        self.live -= 1;
        self.dead += 1;
        while (self.head as usize) < self.bytes.len() && self.bytes[self.head as usize] & DELETED != 0 {
            self.head = self.span(self.head as usize).next as u32;
        }
    }

    /// Deletes entries from the front while `goes` returns true for their IDs, and returns their number.
    pub(super) fn remove_front(&mut self, mut goes: impl FnMut(StreamId) -> bool) -> usize {
        let before = self.live;
        while self.live > 0 && goes(self.first_live()) {
            self.mark(self.head as usize);
        }
        (before - self.live) as usize
    }

    /// Iterates over the entries from one ID to another, both included.
    pub(super) fn range(&self, from: StreamId, to: StreamId) -> BlockRange<'_> {
        let start = if from <= self.first { self.head as usize } else { self.seek(from) };
        // Forward iteration notices the end by itself; only backward iteration must seek it.
        BlockRange { block: self, start, end: None, to }
    }
}

/// Bytes of an entry in addition to its texts: the number of fields, flags, the length, an ID near the block's, and the
/// back length.
const FIRST_ENTRY_BYTES: usize = 8;

/// Iterates over the entries of a block.
#[derive(Clone, Debug)]
pub(super) struct BlockRange<'b> {
    block: &'b EntryBlock,
    start: usize,
    end: Option<usize>,
    to: StreamId,
}

impl<'b> BlockRange<'b> {
    /// Returns the end of the range, located at the first call.
    fn find_end(&mut self) -> usize {
        let (block, to) = (self.block, self.to);
        *self.end.get_or_insert_with(|| to.next().map_or(block.bytes.len(), |after| block.seek(after)))
    }
}

impl<'b> Iterator for BlockRange<'b> {
    type Item = StreamEntry<'b>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'b>> {
        while self.start < self.end.unwrap_or(self.block.bytes.len()) {
            let span = self.block.span(self.start);
            if span.id > self.to {
                self.start = self.block.bytes.len();
                break;
            }
            self.start = span.next;
            if span.flags & DELETED == 0 {
                return Some(self.block.entry(&span));
            }
        }
        None
    }
}

impl DoubleEndedIterator for BlockRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let mut end = self.find_end();
        while end > self.start {
            end = self.block.before(end);
            self.end = Some(end);
            let span = self.block.span(end);
            if span.flags & DELETED == 0 {
                return Some(self.block.entry(&span));
            }
        }
        None
    }
}
