//! A hash with expiring fields, each with its own expiry.
//!
//! A `Hash` is converted to one when its first field gets an expiry, so other hashes know nothing of times. Its two
//! forms correspond to those of a `Hash`: a packed block in which a time follows each value (`listpackex`; `small`),
//! and a table of records with optional times (`hashtable`; `big`). It is never converted back, even if no field
//! expires any more, as in Redis.
//!
//! A field is **due** once its expiry has passed: it exists until [`TimedHash::take_due`] removes it, but [`Living`]
//! hides it. The current time is an argument. At the exact millisecond of its expiry a field still lives.
//!
//! This module knows nothing of keys or commands.

mod big;
mod small;
#[cfg(test)]
mod tests;

use super::hash::{Hash, HashLimits, Parts};
use super::packed::{Item, ItemText, Packed};
use super::packed_record::{TIME_MAX, TimedField};
use crate::compact::Mover;
use crate::expiry::Ttl;
use crate::prefetch::Ahead;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::unaligned_box::TightBox;
use big::TimedFields;
use small::PackedTimedFields;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct TimedHash(Form);

#[derive(Clone, Debug)]
enum Form {
    Small(PackedTimedFields),
    Big(TightBox<TimedFields>),
}

/// A change of a field, decided by its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryChange {
    /// None.
    Keep,
    /// The field expires at this time, in milliseconds of Unix time.
    Set(u64),
    /// The field is removed.
    Remove,
}

/// Returns true if a field with this expiry is due.
#[inline]
fn is_due(expiry: Option<u64>, now_ms: u64) -> bool {
    expiry.is_some_and(|at| at < now_ms)
}

/// Maximum expiry of a field, in milliseconds of Unix time: Redis's figure. A later expiry is lowered to it.
pub const EXPIRY_MS_MAX: u64 = (1 << 46) - 1;

const _: () = assert!(EXPIRY_MS_MAX <= TIME_MAX);

/// Returns a time that both forms can store: 0 stands for never in the block.
fn kept(at_ms: u64) -> u64 {
    at_ms.clamp(1, EXPIRY_MS_MAX)
}

fn kept_ttl(ttl: Ttl) -> Ttl {
    if let Ttl::At(at) = ttl { Ttl::At(kept(at)) } else { ttl }
}

/// Returns a field's expiry after a write.
fn after(ttl: Ttl, before: Option<u64>) -> Option<u64> {
    match ttl {
        Ttl::Keep => before,
        Ttl::Clear => None,
        Ttl::At(at) => Some(at),
    }
}

impl Default for TimedHash {
    fn default() -> Self {
        TimedHash::new()
    }
}

impl From<Hash> for TimedHash {
    /// Converts a hash to one with the same fields, without expiries. The records of a table are not touched.
    fn from(hash: Hash) -> TimedHash {
        TimedHash(match hash.into_parts() {
            Parts::Packed(pairs) => Form::Small(PackedTimedFields::of_pairs(&pairs)),
            Parts::Table(table, bytes, walk) => {
                Form::Big(TightBox::new(TimedFields::of_table(table.into_table_of(), bytes, walk)))
            }
        })
    }
}

impl TimedHash {
    /// Returns an empty hash, which allocates nothing.
    #[must_use]
    pub fn new() -> TimedHash {
        TimedHash(Form::Small(PackedTimedFields::default()))
    }

    /// Returns a hash of fields, values and times in sequence, in the small form, regardless of the limits. No field
    /// may occur twice. Returns None if the times are not in order, or are invalid.
    #[must_use]
    pub fn from_packed(items: Packed) -> Option<TimedHash> {
        PackedTimedFields::of_items(items).map(|small| TimedHash(Form::Small(small)))
    }

    /// Like [`Hash::prepare`].
    pub fn prepare(&mut self, expected: usize, longest: usize, limits: &HashLimits) {
        if matches!(self.0, Form::Small(_)) && (expected > limits.listpack_entries || longest > limits.value_max()) {
            self.grow(expected);
        }
    }

    /// Returns the fields, values and times in sequence, in order of times, if the hash is in its small form; a time of
    /// 0 stands for never.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        if let Form::Small(small) = &self.0 { Some(small.items()) } else { None }
    }

    /// Number of fields, including due ones.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.len(),
            Form::Big(fields) => fields.len(),
        }
    }

    /// Returns true if there are no fields, not even due ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of fields with an expiry, including due ones.
    #[must_use]
    pub fn timed_count(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.timed_count(),
            Form::Big(fields) => fields.timed_count(),
        }
    }

    /// Returns the time at which to look for due fields next, in milliseconds of Unix time: at most the earliest expiry
    /// of a field, but possibly earlier in the big form. None if no field expires.
    #[inline]
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        match &self.0 {
            Form::Small(small) => small.next_expiry(),
            Form::Big(fields) => fields.next_expiry(),
        }
    }

    /// Returns the view of the fields that live at this time.
    #[inline]
    #[must_use]
    pub fn living(&self, now_ms: u64) -> Living<'_> {
        Living { hash: self, now_ms }
    }

    /// Like [`Hash::prefetch`].
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match &self.0 {
            Form::Small(small) => {
                if let Ahead::Value = ahead {
                    small.items().prefetch();
                }
                false
            }
            Form::Big(fields) => {
                if let Ahead::Value = ahead {
                    fields.prefetch()
                } else {
                    fields.prefetch_field(ahead)
                }
                true
            }
        }
    }

    /// Returns a field's value and expiry, even if it is due.
    #[inline]
    fn find(&self, field: &[u8]) -> Option<(Item<'_>, Option<u64>)> {
        match &self.0 {
            Form::Small(small) => small.find(field),
            Form::Big(fields) => fields.find(field).map(|(value, expiry)| (Item::Str(value), expiry)),
        }
    }

    /// Returns true if the field exists and is due.
    #[must_use]
    pub fn has_due(&self, field: &[u8], now_ms: u64) -> bool {
        self.find(field).is_some_and(|(_, expiry)| is_due(expiry, now_ms))
    }

    /// Sets a field to a value; returns false if the field existed, even if it was due, and its value was replaced.
    pub fn set(&mut self, field: &[u8], value: &[u8], ttl: Ttl, limits: &HashLimits) -> bool {
        let ttl = kept_ttl(ttl);
        let longest = field.len().max(value.len());
        if let Form::Small(small) = &mut self.0
            && (longest > limits.value_max() || !small.has_room_for(field.len() + value.len()))
        {
            self.grow(1);
        }
        match &mut self.0 {
            Form::Big(fields) => fields.set(field, value, ttl),
            Form::Small(small) => {
                let is_new = small.set(field, value, ttl);
                if small.len() > limits.listpack_entries {
                    self.grow(0);
                }
                is_new
            }
        }
    }

    /// Sets a field's expiry, if the field exists.
    pub fn set_expiry(&mut self, field: &[u8], expiry: Option<u64>) {
        let expiry = expiry.map(kept);
        match &mut self.0 {
            Form::Small(small) => small.set_expiry(field, expiry),
            Form::Big(fields) => fields.set_expiry(field, expiry),
        }
    }

    /// Changes the expiry of a field that is not due: `decide` gets the value and the present expiry. Returns false if
    /// there is no such field. The small form is searched once.
    pub fn change_expiry(
        &mut self,
        field: &[u8],
        now_ms: u64,
        decide: impl FnOnce(Item<'_>, Option<u64>) -> ExpiryChange,
    ) -> bool {
        if let Form::Small(small) = &mut self.0 {
            return small.change_expiry(field, now_ms, decide);
        }
        let Some((value, before)) = self.living(now_ms).find(field) else { return false };
        match decide(value, before) {
            ExpiryChange::Keep => {}
            ExpiryChange::Set(at_ms) => self.set_expiry(field, Some(at_ms)),
            ExpiryChange::Remove => drop(self.remove(field)),
        }
        true
    }

    /// Converts the hash to the big form, with space for `more` fields.
    fn grow(&mut self, more: usize) {
        let mut fields = TimedFields::with_capacity(self.len().saturating_add(more));
        self.for_each(|field, value, expiry| fields.add(TimedField::new(field, value, expiry)));
        self.0 = Form::Big(TightBox::new(fields));
    }

    /// Removes a field, even if it is due; returns false if it was absent.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Small(small) => small.remove(field),
            Form::Big(fields) => fields.remove(field),
        }
    }

    /// Removes up to `limit` due fields, and passes their names to `visit`. Returns how much of the limit has been
    /// used, part of it perhaps for fields that were not due after all.
    pub fn take_due(&mut self, now_ms: u64, limit: usize, visit: impl FnMut(&[u8])) -> usize {
        match &mut self.0 {
            Form::Small(small) => small.take_due(now_ms, limit, visit),
            Form::Big(fields) => fields.take_due(now_ms, limit, visit),
        }
    }

    /// Passes each field, its value and its expiry to `visit`, including due fields, in the order of [`Living::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8], Option<u64>)) {
        match &self.0 {
            Form::Small(small) => small.iter().for_each(|(field, value, expiry)| {
                field.with_bytes(|field| value.with_bytes(|value| visit(field, value, expiry)));
            }),
            Form::Big(fields) => fields.iter().for_each(|field| visit(field.name(), field.value(), field.expiry())),
        }
    }

    /// Like [`Hash::compact`].
    pub fn compact(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        match &mut self.0 {
            Form::Small(small) => small.compact(mover),
            Form::Big(fields) => {
                if cursor == 0 {
                    fields.compact_box(mover);
                }
                return fields.compact(cursor, mover);
            }
        }
        0
    }

    /// Returns true if a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Big(_))
    }

    /// Returns true while a snapshot saves it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Big(fields) if fields.has_walk())
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Big(fields) = &mut self.0 {
            fields.set_walk(elements);
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        if let Form::Big(fields) = &mut self.0 { fields.save_piece(budget) } else { None }
    }

    /// The form's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Small(_) => "listpackex",
            Form::Big(_) => "hashtable",
        }
    }

    /// Bytes of all allocations, without the allocator's overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.items().allocated_bytes(),
            Form::Big(fields) => fields.memory_bytes(),
        }
    }
}

/// The view of a hash at some time: the fields that are not due.
#[derive(Clone, Copy)]
pub struct Living<'a> {
    hash: &'a TimedHash,
    now_ms: u64,
}

impl<'a> Living<'a> {
    /// Returns true if some fields may be due.
    #[inline]
    fn hides_some(&self) -> bool {
        is_due(self.hash.next_expiry(), self.now_ms)
    }

    /// Number of fields. Visits all of them while some are due.
    #[must_use]
    pub fn len(&self) -> usize {
        if !self.hides_some() {
            return self.hash.len();
        }
        match &self.hash.0 {
            Form::Small(small) => small.len() - small.due_count(self.now_ms),
            Form::Big(fields) => fields.iter().filter(|field| !is_due(field.expiry(), self.now_ms)).count(),
        }
    }

    /// Returns true if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn find(&self, field: &[u8]) -> Option<(Item<'a>, Option<u64>)> {
        self.hash.find(field).filter(|&(_, expiry)| !is_due(expiry, self.now_ms))
    }

    /// Returns true if there is a field of this name.
    #[must_use]
    pub fn contains(&self, field: &[u8]) -> bool {
        self.find(field).is_some()
    }

    /// Returns a field's value.
    #[inline]
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<ItemText<'a>> {
        self.find(field).map(|(value, _)| value.text())
    }

    /// Returns the length of a field's value, in bytes.
    #[must_use]
    pub fn value_len(&self, field: &[u8]) -> Option<usize> {
        self.find(field).map(|(value, _)| value.text_len())
    }

    /// Returns a field's optional expiry, in milliseconds of Unix time; the outer Option is None if the field does not
    /// exist.
    #[must_use]
    pub fn expiry(&self, field: &[u8]) -> Option<Option<u64>> {
        self.find(field).map(|(_, expiry)| expiry)
    }

    /// Iterates over fields and values. A packed block is in order of expiry, with fields without an expiry at the end;
    /// a table is in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ItemText<'a>, ItemText<'a>)> + use<'a> {
        let now_ms = self.now_ms;
        let (small, big) = match &self.hash.0 {
            Form::Small(small) => (Some(small.iter()), None),
            Form::Big(fields) => (None, Some(fields.iter())),
        };
        let small = small.into_iter().flatten().filter(move |(_, _, expiry)| !is_due(*expiry, now_ms));
        let big = big.into_iter().flatten().filter(move |field| !is_due(field.expiry(), now_ms));
        let pair = |(field, value): (&'a [u8], &'a [u8])| (Item::Str(field).text(), Item::Str(value).text());
        let small = small.map(|(field, value, _)| (field.text(), value.text()));
        small.chain(big.map(move |field| pair(TimedField::pair_in(&field))))
    }

    /// Passes each field and its value to `visit`, in the order of [`Living::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.hash.for_each(|field, value, expiry| {
            if !is_due(expiry, self.now_ms) {
                visit(field, value);
            }
        });
    }

    /// Returns an evenly picked field and its value, with randomness from `random`; None if there are no fields.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<(ItemText<'a>, ItemText<'a>)> {
        /// Number of due fields that a pick may meet before it visits all fields.
        const TRIES: usize = 20;
        match &self.hash.0 {
            Form::Small(small) => small.pick(small.due_count(self.now_ms), random),
            Form::Big(fields) => {
                let mut tries = (0..TRIES).map_while(|_| fields.pick(random));
                let found = tries.find(|field| !is_due(field.expiry(), self.now_ms));
                if let Some((field, value)) = found.as_ref().map(TimedField::pair_in) {
                    return Some((Item::Str(field).text(), Item::Str(value).text()));
                }
                let len = self.len();
                if len == 0 { None } else { self.iter().nth(super::set::below(len, random)) }
            }
        }
    }

    /// Like [`Hash::scan`].
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.hash.0 {
            Form::Big(fields) => fields.scan(cursor, |field| {
                if !is_due(field.expiry(), self.now_ms) {
                    visit(field.name(), field.value());
                }
            }),
            Form::Small(_) => {
                self.for_each(visit);
                0
            }
        }
    }
}
