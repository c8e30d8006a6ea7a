//! A queue of keys by expiry time, so that the search for expired keys does not look at living ones. The same queue
//! serves the fields of a hash, and the keys of a table that hold hashes with expiring fields.
//!
//! Every key with an expiry has at least one note with a time no later than its expiry. Notes stay when a key is
//! removed or gets a later expiry; a stale note is dropped when its time comes. When there are many more notes than
//! keys, the owner rebuilds the queue, so its size stays within a constant factor of the number of keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::hash::KeyHash;

/// Notes that a queue may hold beyond twice the number of its keys before it is rebuilt.
const SLACK: usize = 64;

/// The effect of a write on the expiry of a key or of a hash's field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// Leaves it.
    Keep,
    /// Removes it.
    Clear,
    /// Sets it, in milliseconds of Unix time.
    At(u64),
}

/// The hash of a key or of a field, with the time to look at it, in milliseconds of Unix time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Note<H = KeyHash> {
    /// The time to look.
    pub at_ms: u64,
    /// The key's hash.
    pub hash: H,
}

/// See the module's documentation.
pub struct ExpiryQueue<H = KeyHash> {
    notes: BinaryHeap<Reverse<Note<H>>>,
}

impl<H: Ord> Default for ExpiryQueue<H> {
    fn default() -> Self {
        ExpiryQueue { notes: BinaryHeap::new() }
    }
}

impl<H: Copy + Ord> ExpiryQueue<H> {
    /// Notes that the key with this hash expires at this time.
    pub fn note(&mut self, at_ms: u64, hash: H) {
        self.notes.push(Reverse(Note { at_ms, hash }));
    }

    /// The time of the earliest note.
    #[inline]
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.notes.peek().map(|Reverse(note)| note.at_ms)
    }

    /// Number of notes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Returns true if there are no notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Rebuilds the queue with one note for each hash that has a note and still has an expiry according to `expiry_of`.
    /// This avoids a walk through a table with few expiring keys. Before each hash, `ahead` gets the remaining hashes,
    /// so that it can prefetch memory.
    pub fn renew(&mut self, expiry_of: impl Fn(H) -> Option<u64>, ahead: impl Fn(&[H])) {
        let mut hashes: Vec<H> = std::mem::take(&mut self.notes).into_iter().map(|Reverse(note)| note.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let notes = hashes.iter().enumerate().filter_map(|(at, &hash)| {
            ahead(&hashes[at..]);
            expiry_of(hash).map(|at_ms| Note { at_ms, hash })
        });
        self.rebuild(notes);
    }

    /// Takes the earliest note if its time is before `now_ms`.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<Note<H>> {
        if self.notes.peek()?.0.at_ms >= now_ms {
            return None;
        }
        self.notes.pop().map(|Reverse(note)| note)
    }

    /// Returns true if the queue should be rebuilt, given the number of keys with an expiry.
    #[must_use]
    pub fn is_stale(&self, volatile: usize) -> bool {
        self.notes.len() > 2 * volatile + SLACK
    }

    /// Replaces all notes; one per key is enough.
    pub fn rebuild(&mut self, notes: impl Iterator<Item = Note<H>>) {
        self.notes = notes.map(Reverse).collect();
    }

    /// Returns a note chosen by a random number; None if there are no notes.
    #[must_use]
    pub fn note_at(&self, random: u64) -> Option<Note<H>> {
        self.notes.as_slice().get(self.index_of(random)).map(|Reverse(note)| *note)
    }

    /// Returns all notes, beginning at one chosen by a random number: in storage order, the first note has the earliest
    /// time.
    pub fn notes_from(&self, random: u64) -> impl Iterator<Item = Note<H>> {
        let (before, from) = self.notes.as_slice().split_at(self.index_of(random));
        from.iter().chain(before).map(|Reverse(note)| *note)
    }

    /// Returns the index chosen by a random number, less than the number of notes if there are any.
    fn index_of(&self, random: u64) -> usize {
        ((u128::from(random) * self.notes.len() as u128) >> 64) as usize
    }

    /// Returns the mean time left from `now_ms` on, in milliseconds, of up to `samples` evenly chosen notes; 0 if there
    /// are none. It is an estimate, because some notes are stale.
    #[must_use]
    pub fn mean_left_ms(&self, now_ms: u64, samples: usize) -> u64 {
        let notes = self.notes.as_slice();
        let stride = notes.len().div_ceil(samples.max(1)).max(1);
        let left = notes.iter().step_by(stride).map(|Reverse(n)| u128::from(n.at_ms.saturating_sub(now_ms)));
        let (count, sum) = left.fold((0, 0), |(count, sum), left| (count + 1, sum + left));
        u128::checked_div(sum, count).unwrap_or(0) as u64
    }

    /// Removes all notes.
    pub fn clear(&mut self) {
        self.notes = BinaryHeap::new();
    }

    /// Bytes of the queue.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.notes.capacity() * size_of::<Note<H>>()
    }
}
