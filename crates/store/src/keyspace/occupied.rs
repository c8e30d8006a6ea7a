//! A bit for each shard of a database that may have keys. A walk through the keyspace skips all other shards. In a cluster a shard is a
//! slot, and most slots belong to other nodes.
//!
//! The first key of a shard sets its bit. The removal of the last key does not clear the bit, because the check would slow down every
//! removal. The next visit that finds the shard empty clears it. Both hold the shard's lock, so the bit of a shard with keys is always set.
//! The bits of a word belong to different locks, so they change by atomic operations.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Keyspace;

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// See the module's documentation.
pub(super) struct Occupied {
    words: Box<[AtomicU64]>,
}

impl Occupied {
    pub fn new(shards: usize) -> Occupied {
        Occupied { words: (0..shards.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn has(&self, shard: usize) -> bool {
        self.words[shard / WORD].load(Ordering::Acquire) & 1 << (shard % WORD) != 0
    }

    /// Sets a shard's bit. Reads it first, because a write would take the cache line from other threads.
    #[inline]
    pub fn mark(&self, shard: usize) {
        if !self.has(shard) {
            self.words[shard / WORD].fetch_or(1 << (shard % WORD), Ordering::Release);
        }
    }

    /// Clears a shard's bit. Returns true if it was set.
    #[inline]
    pub fn clear(&self, shard: usize) -> bool {
        let was_set = self.has(shard);
        if was_set {
            self.words[shard / WORD].fetch_and(!(1 << (shard % WORD)), Ordering::Release);
        }
        was_set
    }

    /// Sets or clears the bits of shards.
    pub fn set(&self, shards: impl Iterator<Item = usize>, is_set: bool) {
        for shard in shards {
            let (word, bit) = (&self.words[shard / WORD], 1 << (shard % WORD));
            match is_set {
                true => word.fetch_or(bit, Ordering::AcqRel),
                false => word.fetch_and(!bit, Ordering::AcqRel),
            };
        }
    }

    /// Exchanges all bits with another database's. No other thread may change either meanwhile.
    pub fn exchange(&self, other: &Occupied) {
        for (ours, theirs) in self.words.iter().zip(&other.words) {
            theirs.store(ours.swap(theirs.load(Ordering::Acquire), Ordering::AcqRel), Ordering::Release);
        }
    }

    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }
}

/// Returns the first set bit at or after `from`. `words` is the number of words.
#[inline]
fn next_bit(words: usize, from: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
    let first = from / WORD;
    if first >= words {
        return None;
    }
    let mut bits = word(first) & u64::MAX << (from % WORD);
    for index in first..words {
        if bits != 0 {
            return Some(index * WORD + bits.trailing_zeros() as usize);
        }
        bits = if index + 1 < words { word(index + 1) } else { 0 };
    }
    None
}

/// Returns the position of the set bit with `nth` set bits before it.
fn nth_bit(words: usize, mut nth: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
    for index in 0..words {
        let mut bits = word(index);
        let count = bits.count_ones() as usize;
        if nth < count {
            (0..nth).for_each(|_| bits &= bits - 1);
            return Some(index * WORD + bits.trailing_zeros() as usize);
        }
        nth -= count;
    }
    None
}

impl Keyspace {
    /// Returns the first shard at or after `from` that may have keys of a database, without staged ones.
    #[inline]
    #[must_use]
    pub fn next_occupied(&self, database: usize, from: usize) -> Option<usize> {
        let occupied = &self.had[self.physical(database)].shards;
        next_bit(occupied.words.len(), from, |index| occupied.word(index) & !self.staged.word(index))
    }

    /// Returns the shards that may have keys of a database, without staged ones, in ascending order. The iterator may have shards that have
    /// become empty, or staged, since it was created.
    #[inline]
    pub(crate) fn occupied_shards(&self, database: usize) -> OccupiedShards<'_> {
        OccupiedShards { had: &self.had[self.physical(database)].shards, staged: &self.staged, next_word: 0, bits: 0 }
    }

    /// Like [`Keyspace::next_occupied`], with staged shards.
    pub(crate) fn next_with_keys(&self, database: usize, from: usize) -> Option<usize> {
        let occupied = &self.had[self.physical(database)].shards;
        next_bit(occupied.words.len(), from, |index| occupied.word(index))
    }

    /// Returns true if a shard may have keys of a database, even if it is staged.
    #[must_use]
    pub fn has_keys_in(&self, database: usize, shard: usize) -> bool {
        self.had[self.physical(database)].shards.has(shard)
    }

    /// Stages shards, or shows them. The keys of a staged shard are incomplete: walks through the keyspace skip them, so that they
    /// appear in no list or count, and neither expire by themselves nor are evicted. Commands that name them find them.
    pub fn stage(&self, shards: impl Iterator<Item = usize>, is_staged: bool) {
        self.staged.set(shards, is_staged);
    }

    /// Returns true if a shard is staged.
    #[inline]
    #[must_use]
    pub fn is_staged(&self, shard: usize) -> bool {
        self.staged.has(shard)
    }

    /// Returns the first shard among `from`, `from + step`, `from + 2 * step` and so on that may have keys of a database.
    #[must_use]
    pub fn next_occupied_by(&self, database: usize, from: usize, step: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let next = self.next_occupied(database, at)?;
            at = from + (next - from).next_multiple_of(step);
            if at == next {
                return Some(next);
            }
        }
    }

    /// Returns the shards that may have keys of any database, each once, without staged ones. The number `random` chooses the first one evenly.
    pub fn occupied_from(&self, random: u64) -> impl Iterator<Item = usize> + use<'_> {
        let with_keys: Vec<_> = (0..self.databases()).filter(|database| self.had_keys(*database)).collect();
        let with_keys = with_keys.into_iter().map(|database| &self.had[self.physical(database)].shards);
        let words = self.shard_count().div_ceil(WORD);
        let mut union = vec![0; words];
        for occupied in with_keys {
            let shown = |index| occupied.word(index) & !self.staged.word(index);
            union.iter_mut().enumerate().for_each(|(index, bits)| *bits |= shown(index));
        }
        let count: usize = union.iter().map(|bits| bits.count_ones() as usize).sum();
        let first =
            nth_bit(words, ((u128::from(random) * count as u128) >> 64) as usize, |index| union[index]).unwrap_or(0);
        let mut at = first;
        (0..count).map_while(move |_| {
            let next =
                next_bit(words, at, |index| union[index]).or_else(|| next_bit(words, 0, |index| union[index]))?;
            at = next + 1;
            Some(next)
        })
    }

    /// Returns true if a shard may have keys of any database.
    pub(crate) fn is_occupied(&self, shard: usize) -> bool {
        self.had.iter().any(|had| had.shards.has(shard))
    }
}

/// See [`Keyspace::occupied_shards`].
pub(crate) struct OccupiedShards<'k> {
    had: &'k Occupied,
    staged: &'k Occupied,
    next_word: usize,
    /// The shards of the word before `next_word` that are still to come.
    bits: u64,
}

impl Iterator for OccupiedShards<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            let had = self.had.words.get(self.next_word)?.load(Ordering::Acquire);
            self.bits = had & !self.staged.word(self.next_word);
            self.next_word += 1;
        }
        let bit = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some((self.next_word - 1) * WORD + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: usize = 192;

    fn with(shards: &[usize]) -> Keyspace {
        let keyspace = Keyspace::new(3, 1);
        shards.iter().for_each(|&shard| keyspace.mark_keys(1, shard));
        keyspace
    }

    #[test]
    fn bits_are_found_in_any_word() {
        let set = [0, 1, 63, 64, 127, 130, 191];
        let words =
            |index: usize| set.iter().filter(|bit| **bit / WORD == index).fold(0, |word, bit| word | 1 << (bit % WORD));
        for from in 0..=SHARDS + 1 {
            let expected = set.iter().copied().find(|bit| *bit >= from);
            assert_eq!(next_bit(SHARDS / WORD, from, words), expected, "{from}");
        }
        for nth in 0..=set.len() {
            assert_eq!(nth_bit(SHARDS / WORD, nth, words), set.get(nth).copied());
        }
    }

    #[test]
    fn each_thread_finds_its_own_share() {
        let set = [0, 2, 3, 5, 6, 7];
        let keyspace = with(&set);
        for threads in 1..=4 {
            for thread in 0..threads {
                let share = || set.iter().copied().filter(|shard| shard % threads == thread);
                for from in (thread..8).step_by(threads) {
                    let expected = share().find(|shard| *shard >= from);
                    assert_eq!(keyspace.next_occupied_by(1, from, threads), expected, "{threads} {from}");
                }
            }
        }
        assert_eq!(keyspace.next_occupied(0, 0), None);
    }

    #[test]
    fn the_iterator_finds_the_shards_that_single_steps_find() {
        let keyspace = Keyspace::new(3, 4);
        assert!(keyspace.shard_count() > 2 * WORD);
        let set = [0, 1, 5, WORD - 1, 2 * WORD, keyspace.shard_count() - 1];
        set.iter().for_each(|&shard| keyspace.mark_keys(1, shard));
        keyspace.stage([5].into_iter(), true);
        let steps = std::iter::successors(keyspace.next_occupied(1, 0), |last| keyspace.next_occupied(1, last + 1));
        let found: Vec<_> = keyspace.occupied_shards(1).collect();
        assert_eq!(found, steps.collect::<Vec<_>>());
        assert_eq!(found, set.into_iter().filter(|shard| *shard != 5).collect::<Vec<_>>());
        assert_eq!(keyspace.occupied_shards(0).next(), None);
    }

    #[test]
    fn walks_skip_staged_shards_until_they_are_shown() {
        let keyspace = with(&[1, 5, 6]);
        keyspace.stage([5].into_iter(), true);
        assert!(keyspace.is_staged(5) && !keyspace.is_staged(6));
        assert_eq!((keyspace.next_occupied(1, 2), keyspace.next_with_keys(1, 2)), (Some(6), Some(5)));
        assert_eq!(keyspace.occupied_from(0).collect::<Vec<_>>(), [1, 6]);
        keyspace.stage([5].into_iter(), false);
        assert_eq!(keyspace.next_occupied(1, 2), Some(5));
    }

    #[test]
    fn a_walk_begins_evenly_at_any_shard_with_keys() {
        let set = [1, 5, 6];
        let keyspace = with(&set);
        keyspace.mark_keys(2, 5);
        for (random, expected) in [(0, [1, 5, 6]), (u64::MAX / 2, [5, 6, 1]), (u64::MAX, [6, 1, 5])] {
            assert_eq!(keyspace.occupied_from(random).collect::<Vec<_>>(), expected);
        }
        assert_eq!(with(&[]).occupied_from(7).count(), 0);
    }
}
