//! The big form: a table of fields, and a queue of expiry times.
//!
//! The queue works like a shard's ([`crate::expiry`]): every field with an expiry has at least one note with a time no
//! later than its expiry.

use std::fmt;

use super::super::packed_record::TimedField;
use super::{after, is_due};
use crate::compact::Mover;
use crate::expiry::{ExpiryQueue, Ttl};
use crate::hash::ItemHash;
use crate::prefetch::Ahead;
use crate::snapshot::pieces::{Element, OnTable, TableWalk, step_on_table};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::table::{self, Ref, Table};

/// See the module's documentation.
pub(super) struct TimedFields {
    table: Table<TimedField>,
    /// Bytes of the fields' allocations.
    bytes: usize,
    /// Number of fields with an expiry.
    timed: usize,
    queue: ExpiryQueue<ItemHash>,
    /// The walk of a snapshot that is saving the fields.
    walk: OnTable,
}

fn element(field: &TimedField) -> Element<'_> {
    Element::Field(field.name(), field.value(), field.expiry())
}

impl TimedFields {
    pub fn with_capacity(count: usize) -> TimedFields {
        TimedFields::of_table(Table::with_capacity(count), 0, None)
    }

    /// Returns a hash of these fields, which have no expiry. `bytes` is the size of their allocations.
    pub fn of_table(table: Table<TimedField>, bytes: usize, walk: OnTable) -> TimedFields {
        TimedFields { table, bytes, timed: 0, queue: ExpiryQueue::default(), walk }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn timed_count(&self) -> usize {
        self.timed
    }

    #[inline]
    pub fn next_expiry(&self) -> Option<u64> {
        self.queue.next_ms().filter(|_| self.timed > 0)
    }

    #[inline]
    pub fn prefetch_field(&self, ahead: Ahead<'_>) {
        match ahead {
            Ahead::Value => {}
            Ahead::Bucket(field) => self.table.prefetch_bucket(ItemHash::of(field)),
            Ahead::Record(field) => _ = self.table.prefetch_record(ItemHash::of(field)),
        }
    }

    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], Option<u64>)> {
        let field = self.table.find(ItemHash::of(name), name)?;
        Some((TimedField::pair_in(&field).1, field.expiry()))
    }

    pub fn iter(&self) -> table::Iter<'_, TimedField> {
        self.table.iter()
    }

    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Ref<'_, TimedField>> {
        self.table.pick(random)
    }

    pub fn scan(&self, cursor: u64, visit: impl FnMut(&TimedField)) -> u64 {
        self.table.scan(cursor, visit)
    }

    /// Sets a field to a value; returns false if the field existed.
    pub fn set(&mut self, name: &[u8], value: &[u8], ttl: Ttl) -> bool {
        let changes = |before| (Some(value), after(ttl, before));
        if self.change(name, changes) {
            return false;
        }
        if let Some(walk) = &mut self.walk {
            walk.settle(ItemHash::of(name), name, None);
        }
        self.add(TimedField::new(name, value, after(ttl, None)));
        true
    }

    /// Sets a field's expiry.
    pub fn set_expiry(&mut self, name: &[u8], expiry: Option<u64>) {
        self.change(name, |_| (None, expiry));
    }

    /// Changes a field: `change` gets its expiry, and returns an optional new value and the new expiry. Returns false
    /// if the field does not exist.
    #[inline]
    fn change<'v>(&mut self, name: &[u8], change: impl FnOnce(Option<u64>) -> (Option<&'v [u8]>, Option<u64>)) -> bool {
        let hash = ItemHash::of(name);
        let Some(mut field) = self.table.find_mut(hash, name) else { return false };
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, name, Some(element(&field)));
        }
        self.bytes -= field.allocated_bytes();
        let before = field.expiry();
        let (value, expiry) = change(before);
        if let Some(value) = value {
            field.set_value(value);
        }
        field.set_expiry(expiry);
        self.bytes += field.allocated_bytes();
        drop(field);
        self.note(hash, before, expiry);
        true
    }

    /// Notes that a field's expiry has changed.
    fn note(&mut self, hash: ItemHash, before: Option<u64>, expiry: Option<u64>) {
        self.timed = self.timed + usize::from(expiry.is_some()) - usize::from(before.is_some());
        if let Some(at) = expiry
            && before.is_none_or(|before| before > at)
        {
            // A note at an earlier time is enough: once due, it is replaced by one for the new time.
            self.queue.note(at, hash);
        }
        if self.queue.is_stale(self.timed) {
            let table = &self.table;
            self.queue.renew(|hash| expiry_in(table, hash), |coming| table.prefetch_coming(coming));
        }
    }

    /// Adds a field that does not exist.
    pub fn add(&mut self, field: TimedField) {
        let (hash, expiry) = (ItemHash::of(field.name()), field.expiry());
        self.bytes += field.allocated_bytes();
        self.table.insert(hash, field);
        self.note(hash, None, expiry);
    }

    pub fn remove(&mut self, name: &[u8]) -> bool {
        let hash = ItemHash::of(name);
        let Some(field) = self.table.remove(hash, name) else { return false };
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, name, Some(element(&field)));
        }
        self.bytes -= field.allocated_bytes();
        self.note(hash, field.expiry(), None);
        true
    }

    /// See [`super::TimedHash::take_due`].
    pub fn take_due(&mut self, now_ms: u64, limit: usize, mut visit: impl FnMut(&[u8])) -> usize {
        for used in 0..limit {
            let Some(note) = self.queue.pop_due(now_ms) else { return used };
            let due = self.table.find_where(note.hash, |field| is_due(field.expiry(), now_ms));
            if let Some(name) = due.map(|field| Box::<[u8]>::from(field.name())) {
                visit(&name);
                self.remove(&name);
            } else if let Some(later) = expiry_in(&self.table, note.hash) {
                self.queue.note(later, note.hash);
            }
        }
        limit
    }

    /// Runs one step of a defragmentation.
    pub fn compact(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        self.table.scan_mut(cursor, |field| field.compact(mover))
    }

    pub fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    pub fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(TableWalk::begin);
    }

    pub fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        step_on_table(&mut self.walk, &self.table, budget, element)
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.table.memory_bytes() + self.bytes + self.queue.memory_bytes()
    }
}

/// Returns the expiry of a field with this hash, if it has one.
fn expiry_in(table: &Table<TimedField>, hash: ItemHash) -> Option<u64> {
    table.find_where(hash, |field| field.expiry().is_some()).and_then(|field| field.expiry())
}

/// The copy does not belong to the snapshot that is saving the original.
impl Clone for TimedFields {
    fn clone(&self) -> Self {
        let mut copy = TimedFields::with_capacity(self.table.len());
        self.table.iter().for_each(|field| copy.add(field.clone()));
        copy
    }
}

impl fmt::Debug for TimedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let shown = |field: Ref<'_, TimedField>| (text(field.name()), (text(field.value()), field.expiry()));
        f.debug_map().entries(self.table.iter().map(shown)).finish()
    }
}
