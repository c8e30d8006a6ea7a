//! The big form of a sorted set: a hash table of its members, and a tree of their order.
//!
//! The handles are safe by this invariant: **the tree holds one handle of every record in the table, with that record's
//! score, and no other.** Records leave the tree before they leave the table.

use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::Range;
use std::ptr;

use super::member::{Handle, ScoredMember};
use crate::hash::ItemHash;
use crate::prefetch::{Ahead, prefetch};
use crate::snapshot::pieces::{Element, OnTable, TableWalk, step_on_table};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::table::Table;
use crate::types::bptree::{self, Boundary, Tie, Tree};
use crate::words::number_word;

/// See the module's description.
pub struct IndexedZSet {
    members: Table<ScoredMember>,
    order: Tree<Handle>,
    /// Bytes of all records' allocations.
    members_bytes: usize,
    /// The walk of a snapshot that is saving them.
    walk: OnTable,
}

impl IndexedZSet {
    /// A set of these members, unique and in ascending order.
    pub fn from_sorted<B: AsRef<[u8]>>(len: usize, sorted: impl IntoIterator<Item = (B, f64)>) -> Self {
        let mut unordered = Unordered::with_capacity(len);
        let add = |(bytes, score): (B, f64)| {
            let bytes = bytes.as_ref();
            (score, unordered.add(ItemHash::of(bytes), bytes, score))
        };
        let entries: Vec<_> = sorted.into_iter().map(add).collect();
        unordered.finish(&entries)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.members.find(ItemHash::of(member), member).map(|found| found.score())
    }

    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) {
        match ahead {
            Ahead::Value => prefetch(ptr::from_ref(self).cast()),
            Ahead::Bucket(member) => self.members.prefetch_bucket(ItemHash::of(member)),
            Ahead::Record(member) => _ = self.members.prefetch_record(ItemHash::of(member)),
        }
    }

    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let hash = ItemHash::of(member);
        let Some(mut found) = self.members.find_mut(hash, member) else {
            if let Some(walk) = &mut self.walk {
                walk.settle(hash, member, None);
            }
            let record = ScoredMember::new(member, score);
            self.members_bytes += record.allocated_bytes();
            // SAFETY: the record goes into the table, and this handle leaves the tree before it leaves that.
            let handle = unsafe { record.handle() };
            self.members.insert(hash, record);
            self.order.insert(score, handle);
            return None;
        };
        let old = found.score();
        if old != score {
            if let Some(walk) = &mut self.walk {
                walk.settle(hash, member, Some(Element::Scored(member, old)));
            }
            // SAFETY: a copy of the handle that is in the tree already.
            self.order.rescore(old, unsafe { found.handle() }, score);
            found.set_score(score);
        }
        Some(old)
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let hash = ItemHash::of(member);
        let Some(found) = self.members.find(hash, member) else { return false };
        // SAFETY: a copy of the handle that is in the tree already.
        self.order.remove(found.score(), unsafe { found.handle() });
        if let Some(record) = self.members.remove(hash, member) {
            if let Some(walk) = &mut self.walk {
                walk.settle(hash, member, Some(Element::Scored(member, record.score())));
            }
            self.members_bytes -= record.allocated_bytes();
        }
        true
    }

    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let found = self.members.find(ItemHash::of(member), member)?;
        // SAFETY: a copy of the handle that is in the tree already.
        let rank = self.order.rank(found.score(), unsafe { found.handle() })?;
        Some((rank, found.score()))
    }

    pub fn entries_before(&self, boundary: Boundary<'_>) -> usize {
        self.order.entries_before(boundary)
    }

    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_> {
        Iter(self.order.iter(ranks, reverse))
    }

    /// See [`ZSet::visit_wanted`](super::ZSet::visit_wanted). Asks for the records of a leaf's wanted entries before it
    /// shows the first of them.
    pub fn visit_wanted<'a>(
        &'a self,
        min: f64,
        max: f64,
        mut wanted: impl FnMut(f64) -> bool,
        mut visit: impl FnMut(&'a [u8], f64) -> bool,
    ) -> bool {
        self.order.visit_scores(min, max, &mut |scores, handles| {
            let mut chosen = [0u8; u8::MAX as usize];
            let mut count = 0;
            for (at, &score) in scores.iter().enumerate() {
                if wanted(score) {
                    handles[at].prefetch();
                    chosen[count] = at as u8;
                    count += 1;
                }
            }
            // SAFETY: the set is borrowed for `'a`, and so its records stay.
            chosen[..count].iter().all(|&at| visit(unsafe { handles[at as usize].bytes_for() }, scores[at as usize]))
        })
    }

    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        let Self { members, order, members_bytes, walk } = self;
        // The tree is done with a handle when it gives it away: removing by rank looks at no bytes of what it removes.
        order.remove_ranks(ranks, |score, handle| {
            let hash = ItemHash::of(handle.bytes());
            if let Some(walk) = walk {
                walk.settle(hash, handle.bytes(), Some(Element::Scored(handle.bytes(), score)));
            }
            let record = members.remove(hash, handle.bytes());
            *members_bytes -= record.map_or(0, |record| record.allocated_bytes());
        });
    }

    /// Whether a snapshot is saving it in pieces.
    pub fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save it in pieces, or gives that up.
    pub fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(TableWalk::begin);
    }

    /// Saves a piece. Says why that has stopped before the end.
    pub fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        step_on_table(&mut self.walk, &self.members, budget, |member| Element::Scored(member.bytes(), member.score()))
    }

    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        self.members.scan(cursor, |member| visit(member.bytes(), member.score()))
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.members.memory_bytes() + self.order.memory_bytes() + self.members_bytes
    }
}

/// The copy is no part of the snapshot that is saving the original.
impl Clone for IndexedZSet {
    fn clone(&self) -> Self {
        Self::from_sorted(self.len(), self.iter(0..self.len(), false))
    }
}

/// Members and scores by rank.
pub struct Iter<'a>(bptree::Iter<'a, Handle>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        let (score, handle) = self.0.next()?;
        // SAFETY: the set is borrowed for `'a`, and so its records stay.
        Some((unsafe { handle.bytes_for() }, score))
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut visit: F) -> B {
        // SAFETY: as above.
        self.0.fold(init, |result, (score, handle)| visit(result, (unsafe { handle.bytes_for() }, score)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// The order of a sorted set. The members' bytes are somewhere in memory, and only looked at where scores are equal.
fn by_score_and_bytes(a: &(f64, Handle), b: &(f64, Handle)) -> Ordering {
    let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| a.1.bytes().cmp(b.1.bytes()))
}

/// Puts entries into the order of a sorted set: by their scores first, which takes no memory but theirs, then those of the same score
/// by their members' bytes, which are asked for ahead.
fn sort(entries: &mut [(f64, Handle)]) {
    /// Entries between what is asked for and what is sorted: some hundred nanoseconds.
    const AHEAD: usize = 32;
    entries.sort_unstable_by_key(|(score, _)| number_word(*score));
    let mut start = 0;
    for end in 1..=entries.len() {
        if let Some([(before, _), (score, handle), (next, _)]) = entries.get(end + AHEAD - 1..end + AHEAD + 2)
            && (score == before || score == next)
        {
            handle.prefetch();
        }
        if entries.get(end).is_none_or(|(score, _)| *score != entries[start].0) {
            if end - start > 1 {
                entries[start..end].sort_unstable_by(by_score_and_bytes);
            }
            start = end;
        }
    }
}

/// Members and scores whose order is found at the end, once.
pub struct Unordered {
    members: Table<ScoredMember>,
    members_bytes: usize,
    /// All members in the order in which they came.
    arrived: Vec<(f64, Handle)>,
}

impl Unordered {
    pub fn with_capacity(len: usize) -> Self {
        Self { members: Table::with_capacity(len), members_bytes: 0, arrived: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Bytes of all records' allocations.
    pub fn members_bytes(&self) -> usize {
        self.members_bytes
    }

    /// Adds a member that isn't there yet.
    fn add(&mut self, hash: ItemHash, bytes: &[u8], score: f64) -> Handle {
        let record = ScoredMember::new(bytes, score);
        self.members_bytes += record.allocated_bytes();
        // SAFETY: the record stays in the table, which nothing here removes from; `finish` sees to the rest.
        let handle = unsafe { record.handle() };
        self.members.insert(hash, record);
        handle
    }

    /// Asks the processor for where [`Unordered::insert_new`] will look for a member.
    #[inline]
    pub fn prefetch(&self, hash: ItemHash) {
        self.members.prefetch_bucket(hash);
    }

    /// Adds a member. False if it is there.
    pub fn insert_new(&mut self, hash: ItemHash, bytes: &[u8], score: f64) -> bool {
        if self.members.find(hash, bytes).is_some() {
            return false;
        }
        let handle = self.add(hash, bytes, score);
        self.arrived.push((score, handle));
        true
    }

    /// All members and scores, sorted.
    pub fn sorted(&mut self) -> impl Iterator<Item = (&[u8], f64)> {
        self.sort();
        // SAFETY: the members stay while `self` is borrowed.
        self.arrived.iter().map(|(score, handle)| (unsafe { handle.bytes_for() }, *score))
    }

    fn sort(&mut self) {
        if self.arrived.is_sorted_by(|a, b| by_score_and_bytes(b, a) == Ordering::Less) {
            // As Redis writes them.
            self.arrived.reverse();
        } else {
            sort(&mut self.arrived);
        }
    }

    /// The set of these members.
    pub fn into_big(mut self) -> IndexedZSet {
        self.sort();
        let entries = std::mem::take(&mut self.arrived);
        self.finish(&entries)
    }

    /// The set whose order is that of `entries`: all records, and no other.
    fn finish(self, entries: &[(f64, Handle)]) -> IndexedZSet {
        debug_assert_eq!(entries.len(), self.members.len());
        let order = Tree::from_sorted(entries);
        IndexedZSet { members: self.members, order, members_bytes: self.members_bytes, walk: None }
    }
}
