//! Packed records: a set's member, or a hash's field with its value, in one allocation behind a one-word pointer.
//!
//! ```text
//! member:      │ length │ bytes │
//! field:       │ length │ field's bytes │ length │ value's bytes │
//! timed field: │ time │ length │ field's bytes │ length │ value's bytes │     the pointer is behind the time
//!
//! time: six bytes, little endian: milliseconds of Unix time
//! length: │ 0..=253 │    │ 254 │ u16, little endian │    │ 255 │ u64, little endian │
//! ```
//!
//! The allocation is aligned to eight bytes, and its size is rounded up to a multiple of eight: allocators do that
//! anyway, and a value that changes within that size needs no reallocation.
//!
//! This module uses `unsafe` because the lengths are in the allocation and not beside the pointer, which halves a
//! table's memory. The invariant: **the pointer of a record owns an allocation from `allocate` with the layout that
//! follows from the lengths in it, and every byte of its parts is initialised.**

use std::alloc::{self, Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;

use crate::compact::Mover;
use crate::table::{Record, RecordFrom, Ref};

/// Alignment and granularity of the allocations, in bytes. Tables need even addresses.
const ALIGN: usize = 8;
/// Maximum length of a part with a one-byte length.
const ONE_BYTE_MAX: usize = 253;
/// Marks a length in the next two bytes.
const TWO_BYTES: u8 = 254;
/// Marks a length in the next eight bytes.
const EIGHT_BYTES: u8 = 255;

/// Returns the size of a part with this length, including the length itself.
#[inline]
fn part_size(len: usize) -> usize {
    let header = if len <= ONE_BYTE_MAX {
        1
    } else if len <= 0xFFFF {
        3
    } else {
        9
    };
    len + header
}

/// Returns the layout of an allocation for `bytes` bytes of parts.
#[inline]
fn layout(bytes: usize) -> Layout {
    // The parts were slices, and two slices together never exceed the address space, so an error is impossible.
    match Layout::from_size_align(bytes.next_multiple_of(ALIGN), ALIGN) {
        Ok(layout) => layout,
        Err(_) => handle_alloc_error(Layout::new::<u64>()),
    }
}

#[inline]
fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: a part takes at least one byte, so the size is not zero.
    let raw = unsafe { alloc::alloc(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Writes a part with its length, and returns its size.
///
/// # Safety
/// `part_size(bytes.len())` bytes from `at` on are writable.
#[inline]
unsafe fn write_part(at: NonNull<u8>, bytes: &[u8]) -> usize {
    let len = bytes.len();
    let size = part_size(len);
    // SAFETY: the header and the bytes add up to the part's size, and that many bytes are writable at `at`. `bytes`
    // cannot overlap, because the caller, which may write here, has the only reference.
    unsafe {
        match size - len {
            1 => at.write(len as u8),
            3 => {
                at.write(TWO_BYTES);
                at.add(1).cast::<[u8; 2]>().write((len as u16).to_le_bytes());
            }
            _ => {
                at.write(EIGHT_BYTES);
                at.add(1).cast::<[u8; 8]>().write((len as u64).to_le_bytes());
            }
        }
        at.add(size - len).copy_from_nonoverlapping(NonNull::from(bytes).cast(), len);
    }
    size
}

/// Returns the length of the part at `at`.
///
/// # Safety
/// A part is at `at`.
#[inline]
unsafe fn part_len(at: NonNull<u8>) -> usize {
    // SAFETY: a part begins with its length, in one of these forms.
    unsafe {
        match at.read() {
            TWO_BYTES => usize::from(u16::from_le_bytes(at.add(1).cast().read())),
            EIGHT_BYTES => u64::from_le_bytes(at.add(1).cast().read()) as usize,
            len => usize::from(len),
        }
    }
}

/// Returns the bytes of the part at `at`.
///
/// # Safety
/// A part is at `at`, and it is neither changed nor freed during `'a`.
#[inline]
unsafe fn part<'a>(at: NonNull<u8>) -> &'a [u8] {
    // SAFETY: the bytes follow their length; the caller promises the rest.
    unsafe {
        let len = part_len(at);
        slice::from_raw_parts(at.add(part_size(len) - len).as_ptr(), len)
    }
}

/// A member of a set.
pub struct SetMember(NonNull<u8>);

// SAFETY: a member owns its bytes like a box, and shares them for reading only.
unsafe impl Send for SetMember {}
// SAFETY: as above.
unsafe impl Sync for SetMember {}

impl SetMember {
    /// Returns a member with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let raw = allocate(part_size(bytes.len()));
        // SAFETY: the allocation has just been made for this part.
        unsafe { write_part(raw, bytes) };
        SetMember(raw)
    }

    /// Returns its bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the record is one part, which is borrowed as long as the record.
        unsafe { part(self.0) }
    }

    /// Returns the bytes of a member in its table, for as long as the table is borrowed.
    #[inline]
    #[must_use]
    pub fn bytes_in<'a>(member: &Ref<'a, SetMember>) -> &'a [u8] {
        // SAFETY: the table keeps the record unchanged while it is borrowed, which is `'a`.
        unsafe { part(member.0) }
    }

    /// Bytes of the allocation.
    #[inline]
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        layout(part_size(self.bytes().len())).size()
    }
}

impl SetMember {
    /// Moves it to another allocation, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.0.as_ptr()) {
            *self = self.clone();
        }
    }
}

impl Drop for SetMember {
    fn drop(&mut self) {
        let layout = layout(part_size(self.bytes().len()));
        // SAFETY: the record owns the allocation, and its length determines the layout.
        unsafe { alloc::dealloc(self.0.as_ptr(), layout) };
    }
}

impl Clone for SetMember {
    fn clone(&self) -> Self {
        SetMember::new(self.bytes())
    }
}

// SAFETY: allocations are aligned to eight bytes, and addresses of user space are below 2^48; a member never changes.
unsafe impl Record for SetMember {
    type Hash = crate::hash::ItemHash;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        SetMember(raw)
    }

    #[inline]
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the record is one part; the caller promises that it lives.
        unsafe { part(raw) }
    }
}

/// A field of a hash with its value.
pub struct Field(NonNull<u8>);

// SAFETY: a field owns its bytes like a box, and changes them through a mutable reference only.
unsafe impl Send for Field {}
// SAFETY: as above.
unsafe impl Sync for Field {}

impl Field {
    /// Returns a field with this name and value.
    #[must_use]
    pub fn new(name: &[u8], value: &[u8]) -> Self {
        let raw = allocate(part_size(name.len()) + part_size(value.len()));
        // SAFETY: the allocation has just been made for these two parts.
        unsafe {
            let size = write_part(raw, name);
            write_part(raw.add(size), value);
        }
        Field(raw)
    }

    /// Returns the field's name.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &[u8] {
        // SAFETY: the name is the first part, borrowed as long as the record.
        unsafe { part(self.0) }
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        // SAFETY: the value is the second part, borrowed as long as the record.
        unsafe { part(self.value_at()) }
    }

    /// Returns the name and value of a field in its table, for as long as the table is borrowed.
    #[inline]
    #[must_use]
    pub fn pair_in<'a>(field: &Ref<'a, Field>) -> (&'a [u8], &'a [u8]) {
        // SAFETY: the table keeps the record unchanged while it is borrowed, which is `'a`.
        unsafe { (part(field.0), part(field.value_at())) }
    }

    /// Address of the value's part.
    #[inline]
    fn value_at(&self) -> NonNull<u8> {
        // SAFETY: the value's part follows the name's.
        unsafe { self.0.add(part_size(part_len(self.0))) }
    }

    /// Replaces the value, in place if the allocator can.
    pub fn set_value(&mut self, value: &[u8]) {
        let name_size = part_size(self.name().len());
        let (old, new) = (self.layout(), layout(name_size + part_size(value.len())));
        if old.size() != new.size() {
            // SAFETY: the record owns the allocation, which has the layout `old`; the new size is not zero.
            let raw = unsafe { alloc::realloc(self.0.as_ptr(), old, new.size()) };
            self.0 = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(new));
        }
        // SAFETY: the allocation now has room for the name, which has moved with it, and for this part.
        unsafe { write_part(self.0.add(name_size), value) };
    }

    #[inline]
    fn layout(&self) -> Layout {
        layout(part_size(self.name().len()) + part_size(self.value().len()))
    }

    /// Bytes of the allocation.
    #[inline]
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.layout().size()
    }
}

impl Field {
    /// Moves it to another allocation, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.0.as_ptr()) {
            *self = self.clone();
        }
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: the record owns the allocation, and its lengths determine the layout.
        unsafe { alloc::dealloc(self.0.as_ptr(), self.layout()) };
    }
}

impl Clone for Field {
    fn clone(&self) -> Self {
        Field::new(self.name(), self.value())
    }
}

// SAFETY: allocations are aligned to eight bytes, and addresses of user space are below 2^48; a name never changes.
unsafe impl Record for Field {
    type Hash = crate::hash::ItemHash;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Field(raw)
    }

    #[inline]
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the name is the first part; the caller promises that the record lives.
        unsafe { part(raw) }
    }
}

/// Size of a time in bytes.
const TIME_BYTES: usize = 6;
/// Maximum expiry of a field, in milliseconds of Unix time: some 8900 years from now.
pub const TIME_MAX: u64 = (1 << (8 * TIME_BYTES)) - 1;
/// The bit of a timed field's address that marks a time before it. Allocations are aligned to eight bytes, so the
/// addresses of other fields have this bit clear.
const TIMED: usize = 2;
const _: () = assert!((TIME_BYTES % ALIGN) & TIMED != 0 && TIME_BYTES.is_multiple_of(2) && TIMED < ALIGN);

/// A field with its value, in a hash with expiring fields. A field without an expiry has the layout of a [`Field`].
pub struct TimedField(NonNull<u8>);

// SAFETY: a field owns its bytes like a box, and changes them through a mutable reference only.
unsafe impl Send for TimedField {}
// SAFETY: as above.
unsafe impl Sync for TimedField {}

impl From<Field> for TimedField {
    fn from(field: Field) -> Self {
        TimedField(field.into_raw())
    }
}

impl TimedField {
    /// Returns a field with this name and value, and its expiry, at most [`TIME_MAX`].
    #[must_use]
    pub fn new(name: &[u8], value: &[u8], expiry: Option<u64>) -> Self {
        let Some(at) = expiry else { return Field::new(name, value).into() };
        let raw = allocate(TIME_BYTES + part_size(name.len()) + part_size(value.len()));
        // SAFETY: the allocation has just been made for the time and these two parts.
        let mut field = unsafe {
            let field = TimedField(raw.add(TIME_BYTES));
            let size = write_part(field.0, name);
            write_part(field.0.add(size), value);
            field
        };
        field.write_time(at);
        field
    }

    /// Number of bytes before the name.
    #[inline]
    fn head_len(&self) -> usize {
        if self.0.addr().get() & TIMED == 0 { 0 } else { TIME_BYTES }
    }

    /// Address of the allocation.
    #[inline]
    fn base(&self) -> NonNull<u8> {
        // SAFETY: this many bytes of the allocation are before the name.
        unsafe { self.0.sub(self.head_len()) }
    }

    /// Writes the time of a field that has one.
    #[inline]
    fn write_time(&mut self, at: u64) {
        debug_assert!(self.head_len() == TIME_BYTES && at <= TIME_MAX);
        let mut time = [0; TIME_BYTES];
        time.copy_from_slice(&at.to_le_bytes()[..TIME_BYTES]);
        // SAFETY: the allocation begins with the time, and `self` is borrowed mutably.
        unsafe { self.base().cast::<[u8; TIME_BYTES]>().write(time) };
    }

    /// Returns its expiry, in milliseconds of Unix time.
    #[inline]
    #[must_use]
    pub fn expiry(&self) -> Option<u64> {
        if self.head_len() == 0 {
            return None;
        }
        let mut wide = [0; 8];
        // SAFETY: the allocation begins with the time, which is borrowed as long as the record.
        wide[..TIME_BYTES].copy_from_slice(unsafe { self.base().cast::<[u8; TIME_BYTES]>().as_ref() });
        Some(u64::from_le_bytes(wide))
    }

    /// Sets its expiry, in milliseconds of Unix time, at most [`TIME_MAX`].
    pub fn set_expiry(&mut self, expiry: Option<u64>) {
        match expiry {
            Some(at) if self.head_len() > 0 => self.write_time(at),
            None if self.head_len() == 0 => {}
            _ => *self = TimedField::new(self.name(), self.value(), expiry),
        }
    }

    /// Returns the field's name.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &[u8] {
        // SAFETY: the name is the first part, borrowed as long as the record.
        unsafe { part(self.0) }
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        // SAFETY: the value is the second part, borrowed as long as the record.
        unsafe { part(self.value_at()) }
    }

    /// Returns the name and value of a field in its table, for as long as the table is borrowed.
    #[inline]
    #[must_use]
    pub fn pair_in<'a>(field: &Ref<'a, TimedField>) -> (&'a [u8], &'a [u8]) {
        // SAFETY: the table keeps the record unchanged while it is borrowed, which is `'a`.
        unsafe { (part(field.0), part(field.value_at())) }
    }

    /// Address of the value's part.
    #[inline]
    fn value_at(&self) -> NonNull<u8> {
        // SAFETY: the value's part follows the name's.
        unsafe { self.0.add(part_size(part_len(self.0))) }
    }

    /// Replaces the value, in place if the allocator can.
    pub fn set_value(&mut self, value: &[u8]) {
        let (head, name_size) = (self.head_len(), part_size(self.name().len()));
        let (old, new) = (self.layout(), layout(head + name_size + part_size(value.len())));
        if old.size() != new.size() {
            // SAFETY: the record owns the allocation, which has the layout `old`; the new size is not zero.
            let raw = unsafe { alloc::realloc(self.base().as_ptr(), old, new.size()) };
            let raw = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(new));
            // SAFETY: the time, if there is one, has moved with the allocation.
            self.0 = unsafe { raw.add(head) };
        }
        // SAFETY: the allocation now has room for the name, which has moved with it, and for this part.
        unsafe { write_part(self.0.add(name_size), value) };
    }

    #[inline]
    fn layout(&self) -> Layout {
        layout(self.head_len() + part_size(self.name().len()) + part_size(self.value().len()))
    }

    /// Bytes of the allocation.
    #[inline]
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.layout().size()
    }

    /// Moves it to another allocation, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.base().as_ptr()) {
            *self = self.clone();
        }
    }
}

impl Drop for TimedField {
    fn drop(&mut self) {
        // SAFETY: the record owns the allocation, and its address and lengths determine the layout.
        unsafe { alloc::dealloc(self.base().as_ptr(), self.layout()) };
    }
}

impl Clone for TimedField {
    fn clone(&self) -> Self {
        TimedField::new(self.name(), self.value(), self.expiry())
    }
}

// SAFETY: allocations are aligned to eight bytes, and an even number of bytes precedes the address, which is below
// 2^48; a name never changes.
unsafe impl Record for TimedField {
    type Hash = crate::hash::ItemHash;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        TimedField(raw)
    }

    #[inline]
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the name is the first part; the caller promises that the record lives.
        unsafe { part(raw) }
    }
}

// SAFETY: a field without a time has the layout of a [`Field`], and the same name.
unsafe impl RecordFrom<Field> for TimedField {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::ItemHash;
    use crate::table::Table;

    /// Lengths on both sides of each change in the form of a length, and in the size of the allocation.
    const LENGTHS: [usize; 12] = [0, 1, 6, 7, 8, 15, 252, 253, 254, 65_535, 65_536, 70_000];

    fn text(len: usize) -> Vec<u8> {
        let pattern: Vec<u8> = (0..251).collect();
        let mut text = pattern.repeat(len / pattern.len() + 2);
        // Texts of different lengths have different beginnings.
        text.drain(..len % 97);
        text.truncate(len);
        text
    }

    #[test]
    fn members_hold_their_bytes() {
        for len in LENGTHS {
            let member = SetMember::new(&text(len));
            assert_eq!(member.clone().bytes(), text(len));
            let header = if len < 254 { 1 } else { [3, 9][usize::from(len > 65_535)] };
            assert_eq!(member.allocated_bytes(), (len + header).div_ceil(8) * 8);
            let raw = member.into_raw();
            assert!(raw.addr().get().is_multiple_of(ALIGN));
            // SAFETY: `raw` came from `into_raw`.
            unsafe {
                assert_eq!(SetMember::key(raw), text(len));
                drop(SetMember::from_raw(raw));
            }
        }
    }

    #[test]
    fn values_change_and_names_stay() {
        // Miri is slow, so it tests the long ones only with members.
        let len_max = if cfg!(miri) { 300 } else { usize::MAX };
        let lengths = || LENGTHS.into_iter().filter(|&len| len <= len_max);
        for name in lengths().step_by(if cfg!(miri) { 3 } else { 1 }) {
            let mut field = Field::new(&text(name), b"");
            for len in lengths().chain(lengths().rev()) {
                field.set_value(&text(len));
                assert_eq!((field.name(), field.value()), (&*text(name), &*text(len)));
                let fresh = field.clone();
                assert_eq!((fresh.name(), fresh.value()), (&*text(name), &*text(len)));
                assert_eq!(fresh.allocated_bytes(), field.allocated_bytes());
            }
        }
    }

    #[test]
    fn a_field_that_moves_is_still_found() {
        let mut table = Table::new();
        let names: Vec<_> = (0..20u32).map(|i| i.to_string().into_bytes()).collect();
        for name in &names {
            table.insert(ItemHash::of(name), Field::new(name, b"small"));
        }
        for name in &names {
            table.find_mut(ItemHash::of(name), name).unwrap().set_value(&text(300));
        }
        for name in &names {
            let found = table.find(ItemHash::of(name), name).unwrap();
            assert_eq!(Field::pair_in(&found), (&**name, &*text(300)));
        }
    }

    #[test]
    fn fields_keep_or_lose_their_expiry() {
        let len_max = if cfg!(miri) { 300 } else { usize::MAX };
        for len in LENGTHS.into_iter().filter(|&len| len <= len_max) {
            let mut field = TimedField::new(&text(len), b"v", None);
            for (expiry, value) in
                [(None, 0), (Some(7), 3), (Some(TIME_MAX), 300), (None, 300), (Some(0), 1), (None, 9)]
            {
                field.set_expiry(expiry);
                field.set_value(&text(value));
                let copy = field.clone();
                for field in [&field, &copy] {
                    assert_eq!((field.name(), field.value(), field.expiry()), (&*text(len), &*text(value), expiry));
                    let head = if expiry.is_some() { TIME_BYTES } else { 0 };
                    assert_eq!(field.allocated_bytes(), layout(head + part_size(len) + part_size(value)).size());
                }
            }
        }
    }

    #[test]
    fn a_table_of_fields_becomes_one_of_timed_fields() {
        let mut table = Table::new();
        let names: Vec<_> = (0..40u32).map(|i| i.to_string().into_bytes()).collect();
        names.iter().for_each(|name| table.insert(ItemHash::of(name), Field::new(name, b"v")));
        let mut table: Table<TimedField> = table.into_table_of();
        for (name, at) in names.iter().zip(0..) {
            table.find_mut(ItemHash::of(name), name).unwrap().set_expiry((at % 3 > 0).then_some(at));
        }
        for (name, at) in names.iter().zip(0..) {
            let found = table.find(ItemHash::of(name), name).unwrap();
            assert_eq!((found.name(), found.expiry()), (&**name, (at % 3 > 0).then_some(at)));
            if at % 2 == 0 {
                assert!(table.remove(ItemHash::of(name), name).is_some());
            }
        }
        assert_eq!(table.len(), 20);
    }
}
