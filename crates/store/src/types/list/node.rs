//! A node of a list: a sequence of items in a buffer with slack at both ends, so that pushes and pops at either end
//! move no items.
//!
//! ```text
//! 0            start                                end          buffer.len()
//! +--------------+-----------------------------------+--------------+
//! | front slack  | items, as in a packed block       | back slack   |
//! +--------------+-----------------------------------+--------------+
//! ```
//!
//! This module knows only a node's items, not the limits or the length of the list.

use crate::types::packed::{self, Item, Packed};

use super::End;

/// Minimum size of a buffer, in bytes: below it, growing costs more than it saves.
const BUFFER_BYTES_MIN: usize = 64;
/// Up to this size in bytes buffers grow to the allocator's next size class, a seventh to a quarter larger. It is the maximum that
/// `list-max-listpack-size` allows for a node; only large elements and large batches exceed it. Beyond it buffers grow by an eighth.
const CLASSES_BYTES_MAX: usize = 64 * 1024;

/// A sequence of items with slack at both ends.
#[derive(Clone, Debug, Default)]
pub struct ListNode {
    buffer: Box<[u8]>,
    start: u32,
    end: u32,
    count: u32,
    /// Its number in the walk of a snapshot: see `walk`. It stays after the walk has ended.
    number: u32,
}

// A long list is a ring of nodes, so the node's size is an overhead per 8 KB of elements.
const _: () = assert!(size_of::<ListNode>() == 32);

impl ListNode {
    /// Returns its number in the walk of a snapshot.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sets its number in the walk of a snapshot; 0 means none.
    #[inline]
    pub fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns the items' bytes.
    pub fn items(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.end as usize]
    }

    /// Size of the items in bytes, without slack.
    pub fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Size of the buffer in bytes, including slack.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Adds an item at an end.
    #[inline]
    pub fn push(&mut self, end: End, item: Item<'_>) {
        let size = packed::encoded_len(item);
        let at = self.open(end, size);
        packed::encode(item, &mut self.buffer[at..at + size]);
        self.count += 1;
    }

    /// Takes `size` bytes of slack at an end and returns their offset.
    #[inline]
    fn open(&mut self, end: End, size: usize) -> usize {
        match end {
            End::Left => {
                if (self.start as usize) < size {
                    self.make_room(end, size);
                }
                self.start -= size as u32;
                self.start as usize
            }
            End::Right => {
                if self.buffer.len() - (self.end as usize) < size {
                    self.make_room(end, size);
                }
                let at = self.end as usize;
                self.end += size as u32;
                at
            }
        }
    }

    /// Ensures `size` bytes of slack at an end.
    ///
    /// If the other end has enough slack, the items slide and both ends get equal slack, because the list is a queue or
    /// grows at both ends. Enough means an eighth of the items' size, so that each pushed byte moves at most 16.
    /// Otherwise a larger buffer gets all its slack at this end, because most lists grow at one end.
    #[cold]
    fn make_room(&mut self, end: End, size: usize) {
        let used = self.bytes();
        let slack = self.buffer.len() - used;
        let start = if slack >= size && slack >= used / 8 {
            let (to_end, other) = (size.max(slack / 2), slack - size.max(slack / 2));
            self.slide(if end == End::Left { to_end } else { other })
        } else {
            let capacity = grown(used, (used + size).max(self.buffer.len() + 1));
            match end {
                End::Left => self.move_to(capacity, capacity - used),
                End::Right => self.extend_to(capacity),
            }
        };
        self.start = start as u32;
        self.end = (start + used) as u32;
    }

    /// Moves the items within the buffer to `start`, and returns it.
    fn slide(&mut self, start: usize) -> usize {
        self.buffer.copy_within(self.start as usize..self.end as usize, start);
        start
    }

    /// Moves the items into a new buffer at `start`, and returns it.
    fn move_to(&mut self, capacity: usize, start: usize) -> usize {
        let mut buffer = vec![0; capacity];
        buffer[start..start + self.bytes()].copy_from_slice(self.items());
        self.buffer = buffer.into_boxed_slice();
        start
    }

    /// Resizes the buffer at its back, in place if the allocator can. The items begin at 0 afterwards, which it
    /// returns.
    fn extend_to(&mut self, capacity: usize) -> usize {
        self.slide(0);
        let mut buffer = std::mem::take(&mut self.buffer).into_vec();
        buffer.reserve_exact(capacity.saturating_sub(buffer.len()));
        buffer.resize(capacity, 0);
        self.buffer = buffer.into_boxed_slice();
        0
    }

    /// Frees slack, if it is large enough, when no more pushes are expected.
    pub fn seal(&mut self) {
        if self.capacity() - self.bytes() > self.bytes() / 16 {
            let used = self.bytes();
            self.extend_to(used);
            (self.start, self.end) = (0, used as u32);
        }
    }

    /// Removes the item at an end after passing it to `visit`; returns None if the node is empty.
    #[inline]
    pub fn pop_with<R>(&mut self, end: End, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let items = self.items();
        if items.is_empty() {
            return None;
        }
        let result = match end {
            End::Left => {
                let (item, size) = packed::decode(items);
                let result = visit(item);
                self.start += size as u32;
                result
            }
            End::Right => {
                let size = packed::size_before(items);
                let result = visit(packed::decode(&items[items.len() - size..]).0);
                self.end -= size as u32;
                result
            }
        };
        self.count -= 1;
        Some(result)
    }

    /// Inserts an item before the one with this index, or at the end.
    pub fn insert(&mut self, index: usize, item: Item<'_>) {
        let at = self.offset_of(index);
        packed::encode(item, self.splice(at, 0, packed::encoded_len(item)));
        self.count += 1;
    }

    /// Replaces the item with this index, which must exist.
    pub fn set(&mut self, index: usize, item: Item<'_>) {
        let at = self.offset_of(index);
        let old = packed::size(&self.items()[at..]);
        packed::encode(item, self.splice(at, old, packed::encoded_len(item)));
    }

    /// Removes the first `count` items, or all.
    pub fn drop_front(&mut self, count: usize) {
        let count = count.min(self.len());
        self.start += self.offset_of(count) as u32;
        self.count -= count as u32;
    }

    /// Keeps the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        let len = len.min(self.len());
        self.end = self.start + self.offset_of(len) as u32;
        self.count = len as u32;
    }

    /// Keeps the items before `index` and returns the others.
    pub fn split_off(&mut self, index: usize) -> Self {
        let at = self.offset_of(index);
        let tail: Box<[u8]> = Box::from(&self.items()[at..]);
        let count = self.len() - index;
        self.truncate(index);
        Self { start: 0, end: tail.len() as u32, buffer: tail, count: count as u32, number: 0 }
    }

    /// Appends the items of another node.
    pub fn append(&mut self, other: &Self) {
        let at = self.open(End::Right, other.bytes());
        self.buffer[at..at + other.bytes()].copy_from_slice(other.items());
        self.count += other.count;
    }

    /// Removes up to `max` items equal to `needle`, beginning at an end, and returns their number. The remaining items
    /// move once, towards that end.
    pub fn remove_equal(&mut self, end: End, needle: Item<'_>, max: usize) -> usize {
        match end {
            End::Left => self.remove_equal_from_left(needle, max),
            End::Right => self.remove_equal_from_right(needle, max),
        }
    }

    fn remove_equal_from_left(&mut self, needle: Item<'_>, max: usize) -> usize {
        let end = self.end as usize;
        let (mut read, mut write) = (self.start as usize, self.start as usize);
        let mut removed = 0;
        while read < end && removed < max {
            let (item, size) = packed::decode(&self.buffer[read..end]);
            if item == needle {
                removed += 1;
            } else {
                self.buffer.copy_within(read..read + size, write);
                write += size;
            }
            read += size;
        }
        self.buffer.copy_within(read..end, write);
        self.end = (write + (end - read)) as u32;
        self.count -= removed as u32;
        removed
    }

    fn remove_equal_from_right(&mut self, needle: Item<'_>, max: usize) -> usize {
        let start = self.start as usize;
        let (mut read, mut write) = (self.end as usize, self.end as usize);
        let mut removed = 0;
        while read > start && removed < max {
            let size = packed::size_before(&self.buffer[start..read]);
            read -= size;
            if packed::decode(&self.buffer[read..]).0 == needle {
                removed += 1;
            } else {
                write -= size;
                self.buffer.copy_within(read..read + size, write);
            }
        }
        write -= read - start;
        self.buffer.copy_within(start..read, write);
        self.start = write as u32;
        self.count -= removed as u32;
        removed
    }

    /// Converts the node's items to a packed block.
    pub fn into_packed(self) -> Packed {
        Packed::of_items(self.items(), self.len())
    }

    /// Returns the offset of the item with this index among the items, or of their end.
    fn offset_of(&self, index: usize) -> usize {
        packed::offset_of(self.items(), self.len(), index)
    }

    /// Replaces `removed` bytes at an offset among the items by `added` bytes, and returns these for the caller to
    /// fill.
    fn splice(&mut self, offset: usize, removed: usize, added: usize) -> &mut [u8] {
        let tail = self.bytes() - offset - removed;
        if added > removed {
            self.open(End::Right, added - removed);
        } else {
            self.end -= (removed - added) as u32;
        }
        let at = self.start as usize + offset;
        self.buffer.copy_within(at + removed..at + removed + tail, at + added);
        &mut self.buffer[at..at + added]
    }
}

impl ListNode {
    /// Returns a node of `count` items that are encoded in these bytes.
    pub fn of_items(items: &[u8], count: usize) -> Self {
        Self { start: 0, end: items.len() as u32, buffer: Box::from(items), count: count as u32, number: 0 }
    }
}

impl From<Packed> for ListNode {
    fn from(block: Packed) -> Self {
        Self::of_items(block.items(), block.len())
    }
}

/// Returns the size of a buffer that holds `used` bytes and needs `needed`: one of the allocator's size classes, of which there are four per
/// doubling. A larger buffer would hold more slack, and a smaller one would take as much memory. The limits of nodes are powers of two, so a
/// full node has hardly any slack.
fn grown(used: usize, needed: usize) -> usize {
    // A large first element most likely stays alone in its node.
    if used == 0 && needed > BUFFER_BYTES_MIN * 16 {
        needed
    } else if needed <= CLASSES_BYTES_MAX {
        let needed = needed.max(BUFFER_BYTES_MIN);
        needed.next_multiple_of(1 << ((needed - 1).ilog2() - 2))
    } else {
        needed + needed / 8
    }
}
