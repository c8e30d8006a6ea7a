//! The big form of a sorted set: a hash table of its members, and a tree that orders them.
//!
//! The handles are safe by this invariant: **the tree holds exactly one handle of every record in the table, with that
//! record's score, and no others.** Records leave the tree before they leave the table.

use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::Range;
use std::ptr;

use super::member::{Handle, ScoredMember};
use crate::byte_order::number_word;
use crate::hash::ItemHash;
use crate::prefetch::{Ahead, prefetch};
use crate::snapshot::pieces::{Element, OnTable, TableWalk, step_on_table};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::table::Table;
use crate::types::bptree::{self, Boundary, MemberHandle, Tree};

/// See the module's documentation.
pub struct IndexedZSet {
    members: Table<ScoredMember>,
    order: Tree<Handle>,
    /// Bytes of all records' allocations.
    members_bytes: usize,
    /// The walk of a snapshot that is saving the members.
    walk: OnTable,
}

impl IndexedZSet {
    /// Returns a set of these members, which are unique and in ascending order.
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
            // SAFETY: the record goes into the table, and this handle leaves the tree before the record leaves the
            // table.
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
            // SAFETY: a copy of the handle that is already in the tree.
            self.order.rescore(old, unsafe { found.handle() }, score);
            found.set_score(score);
        }
        Some(old)
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let hash = ItemHash::of(member);
        let Some(found) = self.members.find(hash, member) else { return false };
        // SAFETY: a copy of the handle that is already in the tree.
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
        // SAFETY: a copy of the handle that is already in the tree.
        let rank = self.order.rank(found.score(), unsafe { found.handle() })?;
        Some((rank, found.score()))
    }

    pub fn entries_before(&self, boundary: Boundary<'_>) -> usize {
        self.order.entries_before(boundary)
    }

    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_> {
        Iter(self.order.iter(ranks, reverse))
    }

    /// See [`ZSet::visit_wanted`](super::ZSet::visit_wanted). Prefetches the records of a leaf's wanted entries before
    /// it passes on the first.
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
            // SAFETY: the set is borrowed for `'a`, so its records stay.
            chosen[..count].iter().all(|&at| visit(unsafe { handles[at as usize].bytes_for() }, scores[at as usize]))
        })
    }

    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        let Self { members, order, members_bytes, walk } = self;
        // The tree never uses a handle again after it passes it on: a removal by rank reads no bytes of removed
        // entries.
        order.remove_ranks(ranks, |score, handle| {
            let hash = ItemHash::of(handle.bytes());
            if let Some(walk) = walk {
                walk.settle(hash, handle.bytes(), Some(Element::Scored(handle.bytes(), score)));
            }
            let record = members.remove(hash, handle.bytes());
            *members_bytes -= record.map_or(0, |record| record.allocated_bytes());
        });
    }

    /// Returns true while a snapshot saves it in pieces.
    pub fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save it in pieces, or stops that.
    pub fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(TableWalk::begin);
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
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

/// The copy does not belong to the snapshot that is saving the original.
impl Clone for IndexedZSet {
    fn clone(&self) -> Self {
        Self::from_sorted(self.len(), self.iter(0..self.len(), false))
    }
}

/// Iterates over members and scores by rank.
pub struct Iter<'a>(bptree::Iter<'a, Handle>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        let (score, handle) = self.0.next()?;
        // SAFETY: the set is borrowed for `'a`, so its records stay.
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

/// Compares in the order of a sorted set. The members' bytes are scattered in memory, and are read only if scores are
/// equal.
fn by_score_and_bytes(a: &(f64, Handle), b: &(f64, Handle)) -> Ordering {
    let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| a.1.bytes().cmp(b.1.bytes()))
}

/// Sorts entries into the order of a sorted set: first by score, which reads no other memory, then runs of equal scores
/// by their members' bytes, which are prefetched.
fn sort(entries: &mut [(f64, Handle)]) {
    /// Prefetch distance in entries: some hundred nanoseconds.
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

/// Collected members and scores, to be sorted once at the end.
pub struct Unordered {
    members: Table<ScoredMember>,
    members_bytes: usize,
    /// All members in order of arrival.
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

    /// Adds a member that is absent.
    fn add(&mut self, hash: ItemHash, bytes: &[u8], score: f64) -> Handle {
        let record = ScoredMember::new(bytes, score);
        self.members_bytes += record.allocated_bytes();
        // SAFETY: the record stays in the table, because nothing here removes records. `finish` upholds the rest of the
        // invariant.
        let handle = unsafe { record.handle() };
        self.members.insert(hash, record);
        handle
    }

    /// Prefetches the bucket in which [`Unordered::insert_new`] looks for a member.
    #[inline]
    pub fn prefetch(&self, hash: ItemHash) {
        self.members.prefetch_bucket(hash);
    }

    /// Adds a member. Returns false if it exists.
    pub fn insert_new(&mut self, hash: ItemHash, bytes: &[u8], score: f64) -> bool {
        if self.members.find(hash, bytes).is_some() {
            return false;
        }
        let handle = self.add(hash, bytes, score);
        self.arrived.push((score, handle));
        true
    }

    /// Returns all members and scores, sorted.
    pub fn sorted(&mut self) -> impl Iterator<Item = (&[u8], f64)> {
        self.sort();
        // SAFETY: the members stay while `self` is borrowed.
        self.arrived.iter().map(|(score, handle)| (unsafe { handle.bytes_for() }, *score))
    }

    fn sort(&mut self) {
        if self.arrived.is_sorted_by(|a, b| by_score_and_bytes(b, a) == Ordering::Less) {
            // Redis writes them in descending order.
            self.arrived.reverse();
        } else {
            sort(&mut self.arrived);
        }
    }

    /// Returns the set of these members.
    pub fn into_big(mut self) -> IndexedZSet {
        self.sort();
        let entries = std::mem::take(&mut self.arrived);
        self.finish(&entries)
    }

    /// Returns the set in the order of `entries`, which are exactly the handles of all records.
    fn finish(self, entries: &[(f64, Handle)]) -> IndexedZSet {
        debug_assert_eq!(entries.len(), self.members.len());
        let order = Tree::from_sorted(entries);
        IndexedZSet { members: self.members, order, members_bytes: self.members_bytes, walk: None }
    }
}
