//! Streams: entries in the order of their ascending IDs, and groups of consumers that share them.
//!
//! Entries are in packed blocks of bounded size ([`StreamLimits`]). New entries go into the last block, which is stored
//! separately, so that no search is needed; the full blocks are in a map by their first ID. A block is freed with its
//! last entry, so every block in the map has entries.

mod block;
mod group;
mod id;
mod listpack;
mod producers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::ops::Bound;

use block::{BlockRange, EntryBlock};
use listpack::ListpackBytes;

pub use block::{StreamEntry, Values};
pub use group::{Consumer, Delivery, Group, Pending};
pub use id::StreamId;
pub use producers::{Identities, IdentityLimits, Producers};

use crate::unaligned_box::TightBox;
use crate::value::{Object, Value};

/// Limits of a block: `stream-node-max-bytes`, measured by the block's size in Redis, and `stream-node-max-entries`.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    bytes_max: usize,
    entries_max: usize,
}

impl StreamLimits {
    /// Maximum size of an entry's fields and values, and of a block in any configuration, in bytes.
    pub const BYTES_MAX: usize = 1 << 30;

    /// Returns the limits for these values of the configuration; 0 means no limit.
    #[must_use]
    pub fn new(node_max_bytes: usize, node_max_entries: usize) -> StreamLimits {
        let or = |value: usize, none: usize| if value == 0 { none } else { value };
        StreamLimits {
            bytes_max: or(node_max_bytes, Self::BYTES_MAX).min(Self::BYTES_MAX),
            entries_max: or(node_max_entries, usize::MAX),
        }
    }
}

impl Default for StreamLimits {
    fn default() -> Self {
        StreamLimits::new(4096, 100)
    }
}

/// The part of a stream that remains after a trim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The last entries, up to this number.
    Last(u64),
    /// The entries from this ID on.
    From(StreamId),
}

/// Parameters of a trim.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// The part that remains.
    pub keep: Keep,
    /// Removes only whole blocks, so that more may remain.
    pub whole_blocks: bool,
    /// Maximum number of entries to remove in whole blocks; 0 means no limit.
    pub limit: u64,
}

/// Removed blocks. A caller that gets many should drop them in a thread that delays no other.
#[derive(Debug, Default)]
pub struct Blocks(BTreeMap<StreamId, EntryBlock>);

impl Blocks {
    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The entries.
    pub entries: Entries,
    /// The consumer groups, by name.
    pub groups: BTreeMap<Box<[u8]>, Group>,
    /// Identities of sent messages. None if no producer names its messages and the limits are
    /// [`IdentityLimits::default`].
    pub producers: Option<Box<Producers>>,
}

/// A block of a stream.
#[derive(Clone, Debug)]
pub struct StreamBlock<'e> {
    /// The ID of the first entry that it has had, even if that is deleted.
    pub first: StreamId,
    /// Number of its entries.
    pub len: usize,
    /// Its entries.
    pub entries: Range<'e>,
}

/// The entries of a stream, and the necessary facts about removed ones.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    blocks: BTreeMap<StreamId, EntryBlock>,
    tail: EntryBlock,
    /// Size of the last block in Redis; arbitrary while the block is empty. None if it was loaded, until an entry is added with a
    /// limit for it.
    tail_listpack: Option<ListpackBytes>,
    len: u64,
    /// The highest ID that any entry has had. XSETID can change it.
    pub last_id: StreamId,
    /// The highest ID among entries that were deleted one by one.
    pub max_deleted_id: StreamId,
    /// Number of entries that were ever added.
    pub entries_added: u64,
    /// Bytes allocated by the blocks of the map.
    sealed_bytes: usize,
}

/// Bytes of the map per block: the ID and the block, in nodes that are half full because they are filled from the
/// right.
const BLOCK_OVERHEAD_BYTES: usize = 2 * (size_of::<StreamId>() + size_of::<EntryBlock>());
/// Minimum number of removed blocks for which the map is split instead of popping blocks one by one.
const CUT_BLOCKS_MIN: usize = 64;

impl Stream {
    /// The encoding's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        "stream"
    }

    /// Estimates the bytes of the memory behind the stream. Visits the groups, but neither entries nor pending
    /// deliveries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|(name, group)| name.len() + group.memory_bytes()).sum();
        let producers = self.producers.as_ref().map_or(0, |producers| producers.memory_bytes());
        size_of::<Stream>() + self.entries.memory_bytes() + groups + producers
    }

    /// Returns true if nothing has happened to it yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.entries.entries_added == 0 && self.entries.last_id.is_zero() && self.groups.is_empty()
    }

    /// Returns the producers; creates them if necessary.
    pub fn producers_mut(&mut self) -> &mut Producers {
        self.producers.get_or_insert_default()
    }
}

impl Entries {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len() + usize::from(!self.tail.is_empty())
    }

    /// Bytes of the blocks.
    fn memory_bytes(&self) -> usize {
        self.tail.allocated() + self.sealed_bytes + self.blocks.len() * BLOCK_OVERHEAD_BYTES
    }

    /// Appends an entry: its ID must be greater than `last_id`. `pairs` are alternating fields and values, an even
    /// number of them, with at most [`StreamLimits::BYTES_MAX`] in total.
    pub fn push<'a>(
        &mut self,
        id: StreamId,
        pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        limits: StreamLimits,
    ) {
        debug_assert!(id > self.last_id);
        let bytes: usize = pairs.clone().map(<[u8]>::len).sum();
        let mut listpack = self.tail_listpack;
        if limits.bytes_max < StreamLimits::BYTES_MAX {
            listpack.get_or_insert_with(|| self.tail.listpack_bytes());
        }
        if self.is_tail_full(listpack, id, bytes, limits) && !self.tail.is_empty() {
            self.seal();
        }
        if self.tail.is_empty() {
            listpack = Some(ListpackBytes::of_empty(pairs.clone()));
        }
        let has_same_fields = self.tail.push(id, pairs.clone());
        match &mut listpack {
            Some(listpack) if has_same_fields => {
                listpack.add_values(self.tail.first, id, pairs.skip(1).step_by(2));
            }
            Some(listpack) => listpack.add_pairs(self.tail.first, id, pairs),
            None => {}
        }
        self.tail_listpack = listpack;
        self.note_added(id);
    }

    /// Appends an entry of a stored block, with the same fields as the first entry of the last block. `write` appends its values. Returns false,
    /// and adds nothing, if `write` returns none, or if the last block is empty or full. The ID must be greater than `last_id`.
    #[inline]
    pub fn push_values(&mut self, id: StreamId, write: impl FnOnce(&mut Values<'_>) -> Option<()>) -> bool {
        debug_assert!(id > self.last_id);
        if self.tail.is_empty() || self.tail.push_values(id, StreamLimits::BYTES_MAX, write).is_none() {
            return false;
        }
        self.tail_listpack = None;
        self.note_added(id);
        true
    }

    /// Returns true if the last block has no room for an entry with this ID and fields and values of this size.
    fn is_tail_full(&self, listpack: Option<ListpackBytes>, id: StreamId, bytes: usize, limits: StreamLimits) -> bool {
        let in_redis = listpack.map_or(0, |listpack| listpack.with_counts(self.tail.live, self.tail.dead));
        in_redis + bytes >= limits.bytes_max
            || self.tail.len() + bytes >= StreamLimits::BYTES_MAX
            || self.tail.entries() >= limits.entries_max
            // XSETID may have reset the ID to before a deleted entry that is still in its block.
            || self.tail.last >= id
    }

    fn note_added(&mut self, id: StreamId) {
        self.last_id = id;
        self.len += 1;
        self.entries_added += 1;
    }

    /// Ends the last block, so that the next entry begins another one: a loaded stream keeps its saved blocks.
    pub fn end_block(&mut self) {
        if !self.tail.is_empty() {
            self.seal();
        }
    }

    /// Iterates over the blocks, first to last.
    pub fn blocks(&self) -> impl Iterator<Item = StreamBlock<'_>> {
        let tail = (!self.tail.is_empty()).then_some(&self.tail);
        self.blocks.values().chain(tail).map(|block| StreamBlock {
            first: block.first,
            len: block.live as usize,
            entries: Range { front: Some(block.range(StreamId::MIN, StreamId::MAX)), ..Range::default() },
        })
    }

    /// Moves the last block into the map, and begins a new one with the same capacity.
    fn seal(&mut self) {
        let next = EntryBlock::with_capacity(self.tail.len());
        let mut full = mem::replace(&mut self.tail, next);
        full.shrink();
        self.sealed_bytes += full.allocated();
        self.blocks.insert(full.first, full);
    }

    /// Returns the ID of the first entry; 0-0 if there are no entries.
    #[must_use]
    pub fn first_id(&self) -> StreamId {
        match self.blocks.first_key_value() {
            Some((_, block)) => block.first_live(),
            None if self.tail.live > 0 => self.tail.first_live(),
            None => StreamId::MIN,
        }
    }

    /// Returns the first entry.
    #[must_use]
    pub fn first(&self) -> Option<StreamEntry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    /// Returns the last entry.
    #[must_use]
    pub fn last(&self) -> Option<StreamEntry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next_back()
    }

    /// Returns true if there is an entry with this ID.
    #[must_use]
    pub fn contains(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    /// Returns the entry with this ID.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        self.range(id, id).next()
    }

    /// Iterates over the entries from one ID to another, both included, from either end.
    #[must_use]
    pub fn range(&self, from: StreamId, to: StreamId) -> Range<'_> {
        if from > to || self.len == 0 || from > self.last_id {
            return Range::default();
        }
        let reaches_tail = !self.tail.is_empty() && to >= self.tail.first;
        let tail = reaches_tail.then(|| self.tail.range(from, to));
        if reaches_tail && from >= self.tail.first {
            return Range { tail, ..Range::default() };
        }
        // The block before the first one that begins at `from` or later may contain matching entries, too.
        let begin = self.blocks.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let blocks = self.blocks.range((Bound::Included(begin), Bound::Included(to.max(begin))));
        Range { from, to, blocks, tail, ..Range::default() }
    }

    /// Deletes an entry. Returns true if it existed.
    pub fn remove(&mut self, id: StreamId) -> bool {
        if !self.tail.is_empty() && id >= self.tail.first {
            return self.remove_from_tail(id);
        }
        let Some((first, block)) = self.blocks.range_mut(..=id).next_back() else { return false };
        let first = *first;
        if !block.remove(id) {
            return false;
        }
        if block.live == 0 {
            self.drop_block(first);
        }
        self.note_removed(id);
        true
    }

    fn remove_from_tail(&mut self, id: StreamId) -> bool {
        let removed = self.tail.remove(id);
        if removed {
            if self.tail.live == 0 {
                self.tail = EntryBlock::default();
            }
            self.note_removed(id);
        }
        removed
    }

    fn note_removed(&mut self, id: StreamId) {
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
    }

    fn drop_block(&mut self, first: StreamId) {
        if let Some(block) = self.blocks.remove(&first) {
            self.sealed_bytes -= block.allocated();
        }
    }

    /// Removes entries from the front. Returns their number, and the blocks that contained them.
    pub fn trim(&mut self, trim: Trim) -> (u64, Blocks) {
        let before = self.len;
        let (blocks, is_done) = self.trim_blocks(trim);
        if !is_done && !trim.whole_blocks {
            self.trim_first_block(trim.keep);
        }
        (before - self.len, blocks)
    }

    /// Removes whole blocks from the front. Also returns true if nothing else must be removed.
    fn trim_blocks(&mut self, trim: Trim) -> (Blocks, bool) {
        let (mut entries, mut bytes, mut count) = (0, 0, 0);
        let (mut cut, mut is_done) = (None, false);
        for block in self.blocks.values().chain((!self.tail.is_empty()).then_some(&self.tail)) {
            let live = u64::from(block.live);
            is_done = matches!(trim.keep, Keep::Last(keep) if self.len - entries <= keep)
                || trim.limit > 0 && entries + live > trim.limit;
            let goes = match trim.keep {
                Keep::Last(keep) => self.len - entries - live >= keep,
                Keep::From(id) => block.last < id,
            };
            if is_done || !goes {
                cut = Some(block.first);
                break;
            }
            (entries, bytes, count) = (entries + live, bytes + block.allocated(), count + 1);
        }
        self.len -= entries;
        // The last block is not in the map.
        if cut.is_none() && !self.tail.is_empty() {
            bytes -= self.tail.allocated();
            count -= 1;
            self.tail = EntryBlock::default();
        }
        self.sealed_bytes -= bytes;
        (self.take_blocks(count, cut), is_done)
    }

    /// Takes out the first `count` blocks; `end` is the first ID of the next block.
    fn take_blocks(&mut self, count: usize, end: Option<StreamId>) -> Blocks {
        if count < CUT_BLOCKS_MIN {
            (0..count).for_each(|_| drop(self.blocks.pop_first()));
            return Blocks::default();
        }
        let rest = end.map(|end| self.blocks.split_off(&end)).unwrap_or_default();
        Blocks(mem::replace(&mut self.blocks, rest))
    }

    /// Deletes entries of the first block, one by one.
    fn trim_first_block(&mut self, keep: Keep) {
        let mut len = self.len;
        let goes = |id: StreamId| {
            let goes = match keep {
                Keep::Last(keep) => len > keep,
                Keep::From(from) => id < from,
            };
            len -= u64::from(goes);
            goes
        };
        // The remaining entries of a block may all be deleted already.
        if let Some(mut first) = self.blocks.first_entry() {
            self.len -= first.get_mut().remove_front(goes) as u64;
            if first.get().live == 0 {
                self.sealed_bytes -= first.remove().allocated();
            }
        } else {
            self.len -= self.tail.remove_front(goes) as u64;
            if self.tail.live == 0 {
                self.tail = EntryBlock::default();
            }
        }
    }

    /// Returns true if entries may be missing from this ID on, because some were deleted one by one.
    #[must_use]
    pub fn has_gaps_from(&self, id: StreamId) -> bool {
        self.len > 0 && !self.max_deleted_id.is_zero() && id <= self.max_deleted_id
    }

    /// Returns the number of entries that were added up to this ID, if it is known.
    #[must_use]
    pub fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.len == 0 && id < self.last_id) {
            return Some(self.entries_added);
        }
        let first = self.first_id();
        if id > self.last_id || (!self.max_deleted_id.is_zero() && self.max_deleted_id >= first) {
            return None;
        }
        // Nothing is missing between the first entry and the last.
        let before_first = self.entries_added.saturating_sub(self.len);
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Returns the number of entries that a group has not read yet, if it is known.
    #[must_use]
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let first = self.first_id();
        let read = match group.entries_read {
            _ if self.len == 0 => return Some(0),
            // The group can no longer read entries that were trimmed from the front.
            _ if group.last_id < first && self.max_deleted_id < first => return Some(self.len as i64),
            Some(read) if !self.has_gaps_from(group.last_id) => read,
            _ => self.entries_up_to(group.last_id)?,
        };
        Some((self.entries_added as i64).wrapping_sub(read as i64))
    }
}

/// Iterates over a range of entries.
#[derive(Clone, Debug, Default)]
pub struct Range<'s> {
    from: StreamId,
    to: StreamId,
    front: Option<BlockRange<'s>>,
    blocks: btree_map::Range<'s, StreamId, EntryBlock>,
    back: Option<BlockRange<'s>>,
    tail: Option<BlockRange<'s>>,
}

impl<'s> Iterator for Range<'s> {
    type Item = StreamEntry<'s>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'s>> {
        loop {
            if let Some(front) = &mut self.front {
                if let Some(entry) = front.next() {
                    return Some(entry);
                }
                self.front = None;
            }
            match self.blocks.next() {
                Some((_, block)) => self.front = Some(block.range(self.from, self.to)),
                None => break,
            }
        }
        self.back.as_mut().and_then(Iterator::next).or_else(|| self.tail.as_mut()?.next())
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.tail.as_mut().and_then(DoubleEndedIterator::next_back) {
            return Some(entry);
        }
        self.tail = None;
        loop {
            if let Some(back) = &mut self.back {
                if let Some(entry) = back.next_back() {
                    return Some(entry);
                }
                self.back = None;
            }
            match self.blocks.next_back() {
                Some((_, block)) => self.back = Some(block.range(self.from, self.to)),
                None => break,
            }
        }
        self.front.as_mut()?.next_back()
    }
}

impl Object for Stream {
    #[inline]
    fn of(value: &Value) -> Option<&Self> {
        if let Value::Stream(stream) = value { Some(stream) } else { None }
    }

    #[inline]
    fn of_mut(value: &mut Value) -> Option<&mut Self> {
        if let Value::Stream(stream) = value { Some(stream) } else { None }
    }

    fn empty() -> Value {
        Value::Stream(TightBox::new(Stream::default()))
    }
}
