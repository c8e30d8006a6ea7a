//! The hash: fields with values, in a packed block or a table, in the same form as in Redis 7.2.
//!
//! A hash begins as one packed block (`listpack`) in which each field is followed by its value. It becomes a table
//! (`hashtable`) for good when it has too many fields, or when a field or value is too long.
//!
//! This module knows nothing of keys or commands.

use std::fmt;
use std::iter::FusedIterator;

use super::packed::{self, ITEM_BYTES_MAX, Item, ItemText, Packed};
use super::packed_record::Field;
use super::set::below;
use crate::compact::Mover;
use crate::hash::ItemHash;
use crate::prefetch::Ahead;
use crate::snapshot::pieces::{Element, OnTable, TableWalk, step_on_table};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::table::{self, Table};
use crate::unaligned_box::TightBox;

/// Limits of a hash's small form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashLimits {
    /// `hash-max-listpack-entries`: maximum number of fields in a packed block.
    pub listpack_entries: usize,
    /// `hash-max-listpack-value`: maximum length of a field or value in a packed block, in bytes.
    pub listpack_value: usize,
}

impl Default for HashLimits {
    /// Returns Redis's defaults.
    fn default() -> Self {
        HashLimits { listpack_entries: 128, listpack_value: 64 }
    }
}

impl HashLimits {
    pub(super) fn value_max(&self) -> usize {
        self.listpack_value.min(ITEM_BYTES_MAX)
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Hash(Form);

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Table(TightBox<Fields>),
}

/// The content of a hash, for conversion.
pub(super) enum Parts {
    /// Fields and values alternate.
    Packed(Packed),
    /// The fields, the bytes of their allocations, and the walk of a snapshot that is saving them.
    Table(Table<Field>, usize, OnTable),
}

/// Items of a packed block per field.
const STRIDE: usize = 2;

impl Default for Hash {
    fn default() -> Self {
        Hash::new()
    }
}

impl Hash {
    /// Returns an empty hash, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Hash(Form::Packed(Packed::new()))
    }

    /// Chooses the form for about `expected` insertions of fields and values of up to `longest` bytes, and reserves
    /// memory for them if it is a table. Call it before a command's insertions, with numbers that are backed by its
    /// arguments. As in Redis, values count even if they are not stored in the end.
    pub fn prepare(&mut self, expected: usize, longest: usize, limits: &HashLimits) {
        if matches!(self.0, Form::Packed(_)) && (expected > limits.listpack_entries || longest > limits.value_max()) {
            self.0 = self.as_table(expected);
        }
    }

    /// Returns a hash of alternating fields and values in the small form, regardless of the limits. No field may occur
    /// twice.
    #[must_use]
    pub fn from_packed(pairs: Packed) -> Self {
        debug_assert!(pairs.len().is_multiple_of(STRIDE));
        Hash(Form::Packed(pairs))
    }

    /// Returns the alternating fields and values, if the hash is in its small form.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        if let Form::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// Returns its content, for a hash with expiring fields.
    pub(super) fn into_parts(self) -> Parts {
        match self.0 {
            Form::Packed(packed) => Parts::Packed(packed),
            Form::Table(fields) => {
                let Fields { table, bytes, walk } = fields.into_inner();
                Parts::Table(table, bytes, walk)
            }
        }
    }

    /// Number of fields.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len() / STRIDE,
            Form::Table(fields) => fields.table.len(),
        }
    }

    /// Returns true if there are no fields.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the hash contains this field.
    #[inline]
    #[must_use]
    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.0 {
            Form::Packed(packed) => packed.find(field, STRIDE).is_some(),
            Form::Table(fields) => fields.table.find(ItemHash::of(field), field).is_some(),
        }
    }

    /// Prefetches the memory that an operation will read. Returns true if the hash has a table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match (&self.0, ahead) {
            (Form::Packed(packed), Ahead::Value) => packed.prefetch(),
            (Form::Packed(_), _) => {}
            (Form::Table(fields), Ahead::Value) => fields.prefetch(),
            (Form::Table(fields), Ahead::Bucket(field)) => fields.table.prefetch_bucket(ItemHash::of(field)),
            (Form::Table(fields), Ahead::Record(field)) => _ = fields.table.prefetch_record(ItemHash::of(field)),
        }
        matches!(self.0, Form::Table(_))
    }

    /// Returns a field's value.
    #[inline]
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<ItemText<'_>> {
        self.value(field).map(Item::text)
    }

    /// Returns the length of a field's value, in bytes.
    #[must_use]
    pub fn value_len(&self, field: &[u8]) -> Option<usize> {
        self.value(field).map(Item::text_len)
    }

    #[inline]
    fn value(&self, field: &[u8]) -> Option<Item<'_>> {
        match &self.0 {
            Form::Packed(packed) => {
                let (_, value) = packed.read(packed.find(field, STRIDE)?)?;
                packed.read(value).map(|(item, _)| item)
            }
            Form::Table(fields) => Some(Item::Str(Field::pair_in(&fields.table.find(ItemHash::of(field), field)?).1)),
        }
    }

    /// Sets a field to a value; returns false if the field existed and its value was replaced.
    #[inline]
    pub fn insert(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) -> bool {
        match &mut self.0 {
            Form::Table(fields) => fields.insert(field, value),
            Form::Packed(packed) => {
                let longest = field.len().max(value.len());
                if longest <= limits.value_max() && packed.has_room_for(field.len() + value.len()) {
                    return self.insert_packed(field, value, limits);
                }
                self.0 = self.as_table(1);
                self.insert(field, value, limits)
            }
        }
    }

    fn insert_packed(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) -> bool {
        let Form::Packed(packed) = &mut self.0 else { return false };
        let field = Item::from(field);
        if let Some((_, pos)) = packed.find(field, STRIDE).and_then(|pos| packed.read(pos)) {
            packed.replace_at(pos, value);
            return false;
        }
        packed.insert_pair_at(packed.end_pos(), field, value);
        if self.len() > limits.listpack_entries {
            self.0 = self.as_table(0);
        }
        true
    }

    /// Returns the fields as a table, with space for `more`.
    fn as_table(&self, more: usize) -> Form {
        let mut fields = TightBox::new(Fields::with_capacity(self.len().saturating_add(more)));
        self.for_each(|field, value| fields.add(ItemHash::of(field), Field::new(field, value)));
        Form::Table(fields)
    }

    /// Removes a field; returns false if it was absent.
    #[inline]
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let found = packed.find(field, STRIDE);
                found.inspect(|&pos| packed.remove_at(pos, STRIDE)).is_some()
            }
            Form::Table(fields) => fields.remove(field),
        }
    }

    /// Iterates over fields and values: in insertion order for a packed block, in no particular order for a table.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            left: self.len(),
            form: match &self.0 {
                Form::Packed(packed) => FormIter::Packed(packed.iter()),
                Form::Table(fields) => FormIter::Table(fields.table.iter()),
            },
        }
    }

    /// Passes each field and its value to `visit`, in the order of [`Hash::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        match &self.0 {
            Form::Packed(packed) => {
                let mut items = packed.iter();
                while let (Some(field), Some(value)) = (items.next(), items.next()) {
                    field.with_bytes(|field| value.with_bytes(|value| visit(field, value)));
                }
            }
            Form::Table(fields) => fields.table.iter().for_each(|field| visit(field.name(), field.value())),
        }
    }

    /// Returns an evenly picked field and its value, with randomness from `random`; None if the hash is empty.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<(ItemText<'_>, ItemText<'_>)> {
        let (field, value) = match &self.0 {
            Form::Packed(packed) => {
                let (field, value) = packed.read(packed.pos_of(below(self.len(), random) * STRIDE)?)?;
                (field, packed.read(value)?.0)
            }
            Form::Table(fields) => {
                let (field, value) = Field::pair_in(&fields.table.pick(random)?);
                (Item::Str(field), Item::Str(value))
            }
        };
        Some((field.text(), value.text()))
    }

    /// Runs one step of an iteration that tolerates changes between its steps, like [`Table::scan`]: passes fields and
    /// values to `visit` and returns the next cursor. A packed block takes a single step.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.0 {
            Form::Table(fields) => fields.table.scan(cursor, |field| visit(field.name(), field.value())),
            Form::Packed(_) => {
                self.for_each(visit);
                0
            }
        }
    }

    /// Runs one step of a defragmentation from a cursor on: moves the blocks that `mover` selects, and returns the next
    /// cursor. It begins and ends with 0. The small form takes a single step.
    pub fn compact(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        match &mut self.0 {
            Form::Packed(packed) => packed.compact(mover),
            Form::Table(fields) => {
                if cursor == 0 {
                    fields.compact_box(mover);
                }
                return fields.table.scan_mut(cursor, |field| field.compact(mover));
            }
        }
        0
    }

    /// Returns true if a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Table(_))
    }

    /// Returns true while a snapshot saves it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Table(fields) if fields.walk.is_some())
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Table(fields) = &mut self.0 {
            fields.walk = elements.map(TableWalk::begin);
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        let Form::Table(fields) = &mut self.0 else { return None };
        let Fields { table, walk, .. } = &mut **fields;
        step_on_table(walk, table, budget, element)
    }

    /// The form's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of all allocations, without the allocator's overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.allocated_bytes(),
            Form::Table(fields) => fields.memory_bytes(),
        }
    }
}

/// The big form: the fields, and the size of their allocations.
struct Fields {
    table: Table<Field>,
    /// Bytes of the fields' allocations.
    bytes: usize,
    /// The walk of a snapshot that is saving the fields.
    walk: OnTable,
}

impl Fields {
    fn with_capacity(count: usize) -> Self {
        Fields { table: Table::with_capacity(count), bytes: 0, walk: None }
    }

    #[inline]
    fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let hash = ItemHash::of(name);
        if let Some(mut field) = self.table.find_mut(hash, name) {
            if let Some(walk) = &mut self.walk {
                walk.settle(hash, name, Some(element(&field)));
            }
            self.bytes -= field.allocated_bytes();
            field.set_value(value);
            self.bytes += field.allocated_bytes();
            return false;
        }
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, name, None);
        }
        self.add(hash, Field::new(name, value));
        true
    }

    /// Adds a field that does not exist.
    #[inline]
    fn add(&mut self, hash: ItemHash, field: Field) {
        self.bytes += field.allocated_bytes();
        self.table.insert(hash, field);
    }

    #[inline]
    fn remove(&mut self, name: &[u8]) -> bool {
        let hash = ItemHash::of(name);
        let Some(field) = self.table.remove(hash, name) else { return false };
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, name, Some(element(&field)));
        }
        self.bytes -= field.allocated_bytes();
        true
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.table.memory_bytes() + self.bytes
    }
}

fn element(field: &Field) -> Element<'_> {
    Element::Field(field.name(), field.value(), None)
}

/// The copy does not belong to the snapshot that is saving the original.
impl Clone for Fields {
    fn clone(&self) -> Self {
        let mut copy = Fields::with_capacity(self.table.len());
        self.table.iter().for_each(|field| copy.add(ItemHash::of(field.name()), field.clone()));
        copy
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        f.debug_map().entries(self.table.iter().map(|field| (text(field.name()), text(field.value())))).finish()
    }
}

/// Iterates over the fields and values of a hash; see [`Hash::iter`].
pub struct Iter<'a> {
    left: usize,
    form: FormIter<'a>,
}

/// The iterator of each form.
enum FormIter<'a> {
    Packed(packed::Iter<'a>),
    Table(table::Iter<'a, Field>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (ItemText<'a>, ItemText<'a>);

    #[inline]
    fn next(&mut self) -> Option<(ItemText<'a>, ItemText<'a>)> {
        let (field, value) = match &mut self.form {
            FormIter::Packed(items) => (items.next()?, items.next()?),
            FormIter::Table(fields) => {
                let (field, value) = Field::pair_in(&fields.next()?);
                (Item::Str(field), Item::Str(value))
            }
        };
        self.left -= 1;
        Some((field.text(), value.text()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
