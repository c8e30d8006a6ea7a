//! The set: integers, a packed block or a table, in the same form as in Redis 7.2.
//!
//! A set begins as sorted integers. The first member that is not an integer converts it to a packed block (`listpack`)
//! if it is still small, otherwise to a table (`hashtable`); too many members convert it to a table. It is never
//! converted back, except by [`Set::compact_ints`] for the results of intersections.
//!
//! This module knows nothing of keys, commands or several sets at once.

mod lookup;

use std::fmt;
use std::iter::FusedIterator;

use super::intset::{self, IntSet};
use super::packed::{self, ITEM_BYTES_MAX, Item, ItemText, Packed};
use super::packed_record::SetMember;
use crate::compact::Mover;
use crate::hash::ItemHash;
use crate::prefetch::Ahead;
use crate::snapshot::pieces::{Element, OnTable, TableWalk, step_on_table};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::table::{self, Table};
use crate::unaligned_box::TightBox;

pub use lookup::Lookup;

/// Limits of a set's small forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// `set-max-intset-entries`: maximum number of members in a set of integers.
    pub intset_entries: usize,
    /// `set-max-listpack-entries`: maximum number of members in a packed block.
    pub listpack_entries: usize,
    /// `set-max-listpack-value`: maximum length of a member in a packed block, in bytes.
    pub listpack_value: usize,
}

impl Default for SetLimits {
    /// Returns Redis's defaults.
    fn default() -> Self {
        SetLimits { intset_entries: 512, listpack_entries: 128, listpack_value: 64 }
    }
}

/// Maximum number of members in a set of integers with any configuration, as in Redis.
const INTSET_ENTRIES_MAX: usize = 1 << 30;

impl SetLimits {
    /// Effective maximum number of members in the form for integers.
    #[must_use]
    pub fn ints_max(&self) -> usize {
        self.intset_entries.min(INTSET_ENTRIES_MAX)
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Set(Form);

#[derive(Clone, Debug)]
enum Form {
    Ints(IntSet),
    Packed(Packed),
    Table(TightBox<Members>),
}

impl Default for Set {
    fn default() -> Self {
        Set::new()
    }
}

impl Set {
    /// Returns an empty set, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Set(Form::Ints(IntSet::new()))
    }

    /// Returns a set with one member, in the form that suits this member and about `expected` members in total.
    #[must_use]
    pub fn with_first(first: &[u8], expected: usize, limits: &SetLimits) -> Self {
        let mut set = Set::new();
        set.prepare(first, expected, limits);
        set.insert(first, limits);
        set
    }

    /// Chooses the form for about `expected` insertions that begin with `first`, and reserves memory for them if it is
    /// a table. Call it before a command's insertions, with a number that is backed by its arguments.
    pub fn prepare(&mut self, first: &[u8], expected: usize, limits: &SetLimits) {
        let (ints_fit, packed_fits) = (expected <= limits.ints_max(), expected <= limits.listpack_entries);
        let suits = match &self.0 {
            Form::Ints(ints) => ints_fit && (!ints.is_empty() || int(first).is_some()),
            Form::Packed(_) => packed_fits,
            Form::Table(_) => true,
        };
        if !suits {
            let pack = self.is_empty() && packed_fits;
            self.0 = if pack { Form::Packed(Packed::new()) } else { self.as_table(expected) };
        }
    }

    /// Returns a set of these members in a packed block, regardless of the limits. No member may occur twice.
    #[must_use]
    pub fn from_packed(members: Packed) -> Self {
        Set(Form::Packed(members))
    }

    /// Returns a set of these integers in the form for integers, regardless of the limits.
    #[must_use]
    pub fn from_ints(ints: IntSet) -> Self {
        Set(Form::Ints(ints))
    }

    /// Returns the members, if they are in a packed block.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        if let Form::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// Number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Ints(ints) => ints.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(members) => members.table.len(),
        }
    }

    /// Returns true if there are no members.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the set contains this member.
    #[inline]
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Form::Ints(ints) => int(member).is_some_and(|value| ints.contains(value)),
            Form::Packed(packed) => packed.find(member, 1).is_some(),
            Form::Table(members) => members.table.find(ItemHash::of(member), member).is_some(),
        }
    }

    /// Prefetches the memory that an operation will read. Returns true if the set has a table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match (&self.0, ahead) {
            (Form::Ints(ints), Ahead::Value) => ints.prefetch(),
            (Form::Packed(packed), Ahead::Value) => packed.prefetch(),
            (Form::Ints(_) | Form::Packed(_), _) => {}
            (Form::Table(members), Ahead::Value) => members.prefetch(),
            (Form::Table(members), Ahead::Bucket(member)) => members.table.prefetch_bucket(ItemHash::of(member)),
            (Form::Table(members), Ahead::Record(member)) => _ = members.table.prefetch_record(ItemHash::of(member)),
        }
        matches!(self.0, Form::Table(_))
    }

    /// Adds a member; returns false if it was present.
    #[inline]
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits) -> bool {
        match &mut self.0 {
            Form::Table(members) => members.insert(member),
            Form::Packed(_) => self.insert_packed(member, limits),
            Form::Ints(_) => match int(member) {
                Some(value) => self.insert_int(value, limits),
                None => {
                    self.leave_ints(member, limits);
                    self.insert(member, limits)
                }
            },
        }
    }

    fn insert_int(&mut self, value: i64, limits: &SetLimits) -> bool {
        let Form::Ints(ints) = &mut self.0 else { return false };
        let added = ints.insert(value);
        if added && ints.len() > limits.ints_max() {
            self.0 = self.as_table(0);
        }
        added
    }

    fn insert_packed(&mut self, member: &[u8], limits: &SetLimits) -> bool {
        let Form::Packed(packed) = &mut self.0 else { return false };
        let item = Item::from(member);
        if packed.find(item, 1).is_some() {
            return false;
        }
        if packed_takes(packed.len(), packed.bytes(), member.len(), limits) {
            packed.push_back(item);
        } else {
            self.0 = self.as_table(1);
            return self.insert(member, limits);
        }
        true
    }

    /// Converts a set of integers because of a member that is not one: to a packed block if it has space for all
    /// members.
    fn leave_ints(&mut self, member: &[u8], limits: &SetLimits) {
        let Form::Ints(ints) = &self.0 else { return };
        let outermost = [ints.get(0), ints.iter().next_back()].into_iter().flatten();
        let longest = outermost.map(|value| Item::Int(value).text_len()).max().unwrap_or(0);
        // An encoded integer takes at most ten bytes of a block.
        let bytes = ints.len().saturating_mul(10);
        if longest <= limits.listpack_value && packed_takes(ints.len(), bytes, member.len(), limits) {
            let mut packed = Packed::new();
            packed.extend(ints.iter());
            self.0 = Form::Packed(packed);
        } else {
            self.0 = self.as_table(1);
        }
    }

    /// Returns the members as a table, with space for `more`.
    fn as_table(&self, more: usize) -> Form {
        let mut members = TightBox::new(Members::with_capacity(self.len().saturating_add(more)));
        self.for_each(|member| {
            members.insert(member);
        });
        Form::Table(members)
    }

    /// Converts to a set of integers again, if all members are integers and their number is within the limit.
    /// SINTERSTORE stores its result in this form.
    pub fn compact_ints(&mut self, limits: &SetLimits) {
        if self.ints().is_some() || self.len() > limits.ints_max() {
            return;
        }
        let mut ints = IntSet::new();
        let mut all = true;
        self.for_each(|member| match int(member) {
            Some(value) if all => {
                ints.insert(value);
            }
            _ => all = false,
        });
        if all {
            self.0 = Form::Ints(ints);
        }
    }

    /// Removes a member; returns false if it was absent.
    #[inline]
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Ints(ints) => int(member).is_some_and(|value| ints.remove(value)),
            Form::Packed(packed) => {
                let found = packed.find(member, 1);
                found.inspect(|&pos| packed.remove_at(pos, 1)).is_some()
            }
            Form::Table(members) => members.remove(member),
        }
    }

    /// Iterates over the members: in Redis's order for the small forms (ascending integers; a packed block's insertion
    /// order), in no particular order for a table.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            left: self.len(),
            form: match &self.0 {
                Form::Ints(ints) => FormIter::Ints(ints.iter()),
                Form::Packed(packed) => FormIter::Packed(packed.iter()),
                Form::Table(members) => FormIter::Table(members.table.iter()),
            },
        }
    }

    /// Passes each member to `visit`, in the order of [`Set::iter`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8])) {
        match &self.0 {
            Form::Ints(ints) => ints.iter().for_each(|value| Item::Int(value).with_bytes(&mut visit)),
            Form::Packed(packed) => packed.iter().for_each(|item| item.with_bytes(&mut visit)),
            Form::Table(members) => members.table.iter().for_each(|member| visit(member.bytes())),
        }
    }

    /// Passes members to `visit`, in the order of [`Set::iter`], until it returns false. Returns true if it never did.
    pub fn visit_while(&self, mut visit: impl FnMut(&[u8]) -> bool) -> bool {
        match &self.0 {
            Form::Ints(ints) => ints.iter().all(|value| Item::Int(value).with_bytes(&mut visit)),
            Form::Packed(packed) => packed.iter().all(|item| item.with_bytes(&mut visit)),
            Form::Table(members) => members.table.iter().all(|member| visit(member.bytes())),
        }
    }

    /// Returns the integers, if the set is in that form: for operations on several sets, which then need not format
    /// them.
    #[must_use]
    pub fn ints(&self) -> Option<&IntSet> {
        match &self.0 {
            Form::Ints(ints) => Some(ints),
            _ => None,
        }
    }

    /// Returns an evenly picked member, with randomness from `random`; None if the set is empty.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<ItemText<'_>> {
        match &self.0 {
            Form::Ints(ints) => Some(Item::Int(ints.get(below(ints.len(), random))?).text()),
            Form::Packed(packed) => Some(packed.get(below(packed.len(), random))?.text()),
            Form::Table(members) => Some(Item::Str(SetMember::bytes_in(&members.table.pick(random)?)).text()),
        }
    }

    /// Removes an evenly picked member and returns it; None if the set is empty.
    pub fn pop(&mut self, random: &mut dyn FnMut() -> u64) -> Option<Vec<u8>> {
        match &mut self.0 {
            Form::Ints(ints) => Some(Item::Int(ints.remove_at(below(ints.len(), random))?).to_vec()),
            Form::Packed(packed) => {
                let pos = packed.pos_of(below(packed.len(), random))?;
                let member = packed.item_at(pos).to_vec();
                packed.remove_at(pos, 1);
                Some(member)
            }
            Form::Table(members) => {
                let member = members.table.pick(random)?.bytes().to_vec();
                members.remove(&member);
                Some(member)
            }
        }
    }

    /// Runs one step of an iteration that tolerates changes between its steps, like [`Table::scan`]: passes members to
    /// `visit` and returns the next cursor. The small forms take a single step.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8])) -> u64 {
        match &self.0 {
            Form::Table(members) => members.table.scan(cursor, |member| visit(member.bytes())),
            _ => {
                self.for_each(visit);
                0
            }
        }
    }

    /// Runs one step of a defragmentation from a cursor on: moves the blocks that `mover` selects, and returns the next
    /// cursor. It begins and ends with 0. The small forms take a single step.
    pub fn compact(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        match &mut self.0 {
            Form::Packed(packed) => packed.compact(mover),
            Form::Ints(ints) => ints.compact(mover),
            Form::Table(members) => {
                if cursor == 0 {
                    members.compact_box(mover);
                }
                return members.table.scan_mut(cursor, |member| member.compact(mover));
            }
        }
        0
    }

    /// Returns true if a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Table(_))
    }

    /// Returns true while a snapshot saves it in pieces. Meanwhile it must not be replaced by another set as a whole.
    #[must_use]
    pub fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Table(members) if members.walk.is_some())
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Table(members) = &mut self.0 {
            members.walk = elements.map(TableWalk::begin);
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        let Form::Table(members) = &mut self.0 else { return None };
        let Members { table, walk, .. } = &mut **members;
        step_on_table(walk, table, budget, |member| Element::Member(member.bytes()))
    }

    /// The form's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Ints(_) => "intset",
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of all allocations, without the allocator's overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Ints(ints) => ints.memory_bytes(),
            Form::Packed(packed) => packed.allocated_bytes(),
            Form::Table(members) => members.memory_bytes(),
        }
    }
}

/// Returns the integer that a set of integers stores for this member.
#[inline]
fn int(member: &[u8]) -> Option<i64> {
    match Item::from(member) {
        Item::Int(value) => Some(value),
        Item::Str(_) => None,
    }
}

/// Returns true if a block of `len` items in `bytes` bytes can take another member of `member_len` bytes.
fn packed_takes(len: usize, bytes: usize, member_len: usize, limits: &SetLimits) -> bool {
    len < limits.listpack_entries
        && member_len <= limits.listpack_value.min(ITEM_BYTES_MAX)
        && bytes.saturating_add(member_len) <= Packed::BYTES_MAX
}

/// Returns an evenly distributed index below `len`; 0 if `len` is 0.
pub(super) fn below(len: usize, random: &mut dyn FnMut() -> u64) -> usize {
    ((u128::from(random()) * len as u128) >> 64) as usize
}

/// The big form: the members, and the size of their allocations.
#[derive(Default)]
struct Members {
    table: Table<SetMember>,
    /// Bytes of the members' allocations.
    bytes: usize,
    /// The walk of a snapshot that is saving the members.
    walk: OnTable,
}

impl Members {
    fn with_capacity(count: usize) -> Self {
        Members { table: Table::with_capacity(count), bytes: 0, walk: None }
    }

    #[inline]
    fn insert(&mut self, member: &[u8]) -> bool {
        let hash = ItemHash::of(member);
        if self.table.find(hash, member).is_some() {
            return false;
        }
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, member, None);
        }
        self.add(hash, SetMember::new(member));
        true
    }

    /// Adds a member that is absent.
    #[inline]
    fn add(&mut self, hash: ItemHash, member: SetMember) {
        self.bytes += member.allocated_bytes();
        self.table.insert(hash, member);
    }

    #[inline]
    fn remove(&mut self, member: &[u8]) -> bool {
        let hash = ItemHash::of(member);
        let Some(removed) = self.table.remove(hash, member) else { return false };
        if let Some(walk) = &mut self.walk {
            walk.settle(hash, member, Some(Element::Member(member)));
        }
        self.bytes -= removed.allocated_bytes();
        true
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.table.memory_bytes() + self.bytes
    }
}

/// The copy does not belong to the snapshot that is saving the original.
impl Clone for Members {
    fn clone(&self) -> Self {
        let mut copy = Members::with_capacity(self.table.len());
        self.table.iter().for_each(|member| copy.add(ItemHash::of(member.bytes()), member.clone()));
        copy
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table.iter().map(|member| member.bytes().escape_ascii().to_string())).finish()
    }
}

/// Iterates over the members of a set; see [`Set::iter`].
pub struct Iter<'a> {
    left: usize,
    form: FormIter<'a>,
}

/// The iterator of each form.
enum FormIter<'a> {
    Ints(intset::Iter<'a>),
    Packed(packed::Iter<'a>),
    Table(table::Iter<'a, SetMember>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = ItemText<'a>;

    #[inline]
    fn next(&mut self) -> Option<ItemText<'a>> {
        let item = match &mut self.form {
            FormIter::Ints(ints) => Item::Int(ints.next()?),
            FormIter::Packed(items) => items.next()?,
            FormIter::Table(members) => Item::Str(SetMember::bytes_in(&members.next()?)),
        };
        self.left -= 1;
        Some(item.text())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
