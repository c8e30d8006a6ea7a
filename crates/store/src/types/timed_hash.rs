//! The hash whose fields may expire, each at a time of its own.
//!
//! A `Hash` becomes one when the first of its fields is to expire, so that others know nothing of times. Its two forms are the
//! other's: a packed block in which a time follows each value (`listpackex`; `small`), and a table whose records may have times
//! (`hashtable`; `big`). It stays one though no field expires any more, as in Redis.
//!
//! A field whose time has come is **due**: it is there until it is removed by [`TimedHash::take_due`], but [`Living`] doesn't show it. The
//! time by which fields are due is an argument, and due is what is before it: at its very millisecond a field still lives.
//!
//! Knows nothing of keys or commands.

mod big;
mod small;
#[cfg(test)]
mod tests;

use super::hash::{Hash, HashLimits, Parts};
use super::packed::{Item, ItemText, Packed};
use super::thin::{TIME_MAX, TimedField};
use crate::compact::Mover;
use crate::expiry::Ttl;
use crate::prefetch::Ahead;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::tight::TightBox;
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

/// True if a field with this time is due.
#[inline]
fn is_due(expiry: Option<u64>, now_ms: u64) -> bool {
    expiry.is_some_and(|at| at < now_ms)
}

/// The greatest time at which a field may expire, in milliseconds of Unix time: Redis's. What is to expire later expires then.
pub const EXPIRY_MS_MAX: u64 = (1 << 46) - 1;

const _: () = assert!(EXPIRY_MS_MAX <= TIME_MAX);

/// A time that both forms can keep: the block's 0 stands for never.
fn kept(at_ms: u64) -> u64 {
    at_ms.clamp(1, EXPIRY_MS_MAX)
}

fn kept_ttl(ttl: Ttl) -> Ttl {
    if let Ttl::At(at) = ttl { Ttl::At(kept(at)) } else { ttl }
}

/// The expiry that a field has after a write.
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
    /// The same fields, none of which expires. A table's are not touched.
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
    /// An empty hash, which allocates nothing.
    #[must_use]
    pub fn new() -> TimedHash {
        TimedHash(Form::Small(PackedTimedFields::default()))
    }

    /// A hash of fields, values and times in turn: the small form, whatever the limits say. No field may occur twice. None if the times
    /// aren't in order, or are no times.
    #[must_use]
    pub fn from_packed(items: Packed) -> Option<TimedHash> {
        PackedTimedFields::of_items(items).map(|small| TimedHash(Form::Small(small)))
    }

    /// As [`Hash::prepare`].
    pub fn prepare(&mut self, expected: usize, longest: usize, limits: &HashLimits) {
        if matches!(self.0, Form::Small(_)) && (expected > limits.listpack_entries || longest > limits.value_max()) {
            self.grow(expected);
        }
    }

    /// Fields, values and times in turn, in the order of times, if the hash is in its small form; a time of 0 stands for never.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        if let Form::Small(small) = &self.0 { Some(small.items()) } else { None }
    }

    /// How many fields there are, those that are due among them.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.len(),
            Form::Big(fields) => fields.len(),
        }
    }

    /// Whether there is none, not even one that is due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many fields expire, those that are due among them.
    #[must_use]
    pub fn timed_count(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.timed_count(),
            Form::Big(fields) => fields.timed_count(),
        }
    }

    /// When to look for due fields next, in milliseconds of Unix time: not later than the earliest time of a field, but perhaps
    /// earlier, in the big form. None if no field expires.
    #[inline]
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        match &self.0 {
            Form::Small(small) => small.next_expiry(),
            Form::Big(fields) => fields.next_expiry(),
        }
    }

    /// What there is at this time.
    #[inline]
    #[must_use]
    pub fn living(&self, now_ms: u64) -> Living<'_> {
        Living { hash: self, now_ms }
    }

    /// As [`Hash::prefetch`].
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

    /// A field's value and when it expires, due or not.
    #[inline]
    fn find(&self, field: &[u8]) -> Option<(Item<'_>, Option<u64>)> {
        match &self.0 {
            Form::Small(small) => small.find(field),
            Form::Big(fields) => fields.find(field).map(|(value, expiry)| (Item::Str(value), expiry)),
        }
    }

    /// True if there is such a field, and its time has come.
    #[must_use]
    pub fn has_due(&self, field: &[u8], now_ms: u64) -> bool {
        self.find(field).is_some_and(|(_, expiry)| is_due(expiry, now_ms))
    }

    /// Sets a field to a value; false if the field was there, due or not, and has another value now.
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

    /// Sets when a field expires, if it is there.
    pub fn set_expiry(&mut self, field: &[u8], expiry: Option<u64>) {
        let expiry = expiry.map(kept);
        match &mut self.0 {
            Form::Small(small) => small.set_expiry(field, expiry),
            Form::Big(fields) => fields.set_expiry(field, expiry),
        }
    }

    /// Has it in the big form, with room for so many more.
    fn grow(&mut self, more: usize) {
        let mut fields = TimedFields::with_capacity(self.len().saturating_add(more));
        self.for_each(|field, value, expiry| fields.add(TimedField::new(field, value, expiry)));
        self.0 = Form::Big(TightBox::new(fields));
    }

    /// Removes a field, due or not; false if it wasn't there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Small(small) => small.remove(field),
            Form::Big(fields) => fields.remove(field),
        }
    }

    /// Removes up to `limit` fields that are due, and hands their names to `visit`. Says how much of the limit has been used: some
    /// of it may be for fields that turned out not to be due.
    pub fn take_due(&mut self, now_ms: u64, limit: usize, visit: impl FnMut(&[u8])) -> usize {
        match &mut self.0 {
            Form::Small(small) => small.take_due(now_ms, limit, visit),
            Form::Big(fields) => fields.take_due(now_ms, limit, visit),
        }
    }

    /// Hands each field, its value and its time to `visit`, those that are due among them, in the order of [`Living::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8], Option<u64>)) {
        match &self.0 {
            Form::Small(small) => small.iter().for_each(|(field, value, expiry)| {
                field.with_bytes(|field| value.with_bytes(|value| visit(field, value, expiry)));
            }),
            Form::Big(fields) => fields.iter().for_each(|field| visit(field.name(), field.value(), field.expiry())),
        }
    }

    /// As [`Hash::compact`].
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

    /// Whether a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Big(_))
    }

    /// Whether a snapshot is saving it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Big(fields) if fields.has_walk())
    }

    /// Begins to save it in pieces, or gives that up.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Big(fields) = &mut self.0 {
            fields.set_walk(elements);
        }
    }

    /// Saves a piece. Says why that has stopped before the end.
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

    /// Bytes of all allocations, without what the allocator adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.items().allocated_bytes(),
            Form::Big(fields) => fields.memory_bytes(),
        }
    }
}

/// What of a hash is there at a time: the fields that aren't due.
#[derive(Clone, Copy)]
pub struct Living<'a> {
    hash: &'a TimedHash,
    now_ms: u64,
}

impl<'a> Living<'a> {
    /// Whether some fields may be due.
    #[inline]
    fn hides_some(&self) -> bool {
        is_due(self.hash.next_expiry(), self.now_ms)
    }

    /// How many fields there are. That takes a walk through all of them while some are due.
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

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn find(&self, field: &[u8]) -> Option<(Item<'a>, Option<u64>)> {
        self.hash.find(field).filter(|&(_, expiry)| !is_due(expiry, self.now_ms))
    }

    /// Whether there is a field of this name.
    #[must_use]
    pub fn contains(&self, field: &[u8]) -> bool {
        self.find(field).is_some()
    }

    /// A field's value.
    #[inline]
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<ItemText<'a>> {
        self.find(field).map(|(value, _)| value.text())
    }

    /// The length of a field's value, in bytes.
    #[must_use]
    pub fn value_len(&self, field: &[u8]) -> Option<usize> {
        self.find(field).map(|(value, _)| value.text_len())
    }

    /// When a field expires, in milliseconds of Unix time, or that it doesn't; none if there is no such field.
    #[must_use]
    pub fn expiry(&self, field: &[u8]) -> Option<Option<u64>> {
        self.find(field).map(|(_, expiry)| expiry)
    }

    /// Fields and values: by the times at which they expire, those that don't at the end, as long as the hash is a packed block; in
    /// no order from then on.
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

    /// Hands each field and its value to `visit`, in the order of [`Living::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.hash.for_each(|field, value, expiry| {
            if !is_due(expiry, self.now_ms) {
                visit(field, value);
            }
        });
    }

    /// A field and its value, picked evenly with randomness from `random`; none if there is none.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<(ItemText<'a>, ItemText<'a>)> {
        /// Due fields that a pick may meet before it walks through all.
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

    /// As [`Hash::scan`].
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
