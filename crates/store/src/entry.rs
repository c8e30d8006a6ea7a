//! One key of the keyspace with its value: a single allocation for small strings.
//!
//! ```text
//! ┌──────┬───────┬─────────┬────────┬ ─ ─ ─ ─ ─ ┬ ─ ─ ─ ─ ─ ─ ┬──────────┬─────┬ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐
//! │ kind │ flags │ key len │ access │ expiry 8  │ key len 8   │ body     │ key │ value of an embedded  │
//! │ 1    │ 1     │ 2       │ 4      │ if EXPIRY │ if LONG_KEY │ by kind  │     │ string                │
//! └──────┴───────┴─────────┴────────┴ ─ ─ ─ ─ ─ ┴ ─ ─ ─ ─ ─ ─ ┴──────────┴─────┴ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
//! body: EMBEDDED: value len 2     INT: the integer 8     OBJECT: a [`Value`] 10
//! flags: │ - │ - │ snapshot's mark, 3 bits │ RAW │ LONG_KEY │ EXPIRY │
//! ```
//!
//! A key of 14 bytes with a value of 16 takes 40 bytes. This module uses `unsafe` because the parts share an
//! allocation. The invariant: **`kind`, `flags` and the lengths describe the layout of the allocation exactly, so that
//! its size can be recomputed; a body of kind OBJECT is an initialised [`Value`].**

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;

use crate::compact::{Compacted, Mover};
use crate::int::canonical_i64;
use crate::prefetch::{Ahead, prefetch_to_write};
use crate::shared_bytes::Long;
use crate::snapshot::Snapshots;
use crate::table::{Record, Ref, RefMut};
use crate::types::timed_hash::TimedHash;
use crate::value::{Type, Value};

/// Maximum length of a string that is stored beside its key, in bytes. A longer string has its own allocation, so that
/// it can grow in place and be sent by reference.
pub const EMBEDDED_BYTES_MAX: usize = 1024;
/// Maximum length of a string with the encoding "embstr" in OBJECT ENCODING, in bytes: Redis's figure.
const EMBSTR_BYTES_MAX: usize = 44;
/// Alignment of every entry: enough for the integers and pointers inside, and for a table's slots.
const ALIGN: usize = 8;

const EMBEDDED: u8 = 0;
const INT: u8 = 1;
const OBJECT: u8 = 2;

const EXPIRY: u8 = 1;
const LONG_KEY: u8 = 2;
/// The string was changed in place: OBJECT ENCODING reports "raw", as in Redis.
const RAW: u8 = 4;
/// The bits of the mark of the snapshot that has saved the entry: see [`crate::snapshot`].
const MARK: u8 = MARK_MAX << MARK_SHIFT;
const MARK_SHIFT: u32 = 3;
/// The greatest mark.
pub(crate) const MARK_MAX: u8 = 7;

#[repr(C)]
#[derive(Clone, Copy)]
struct EntryHeader {
    kind: u8,
    flags: u8,
    key_len: u16,
    access: u32,
}

const HEADER: usize = size_of::<EntryHeader>();
const WORD: usize = 8;

/// A key with its value and an optional expiry. See the module's documentation.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry owns everything that it points to, and a Value is Send and Sync.
unsafe impl Send for Entry {}
// SAFETY: as above; a shared entry hands out only shared references.
unsafe impl Sync for Entry {}

/// The borrowed value of an entry.
pub enum View<'a> {
    /// A string stored beside its key.
    Bytes(&'a [u8]),
    /// A string that is a canonical decimal integer.
    Int(i64),
    /// A value with its own allocation.
    Object(&'a Value),
}

/// A string that is about to be stored, in one of its three forms.
enum Text<'a> {
    Int(i64),
    Embedded(&'a [u8]),
    Object(Value),
}

impl<'a> Text<'a> {
    fn of(bytes: &'a [u8]) -> Text<'a> {
        match canonical_i64(bytes) {
            Some(int) => Text::Int(int),
            None => Text::raw(bytes),
        }
    }

    fn raw(bytes: &'a [u8]) -> Text<'a> {
        if bytes.len() <= EMBEDDED_BYTES_MAX {
            Text::Embedded(bytes)
        } else {
            Text::Object(Value::long(Long::new(bytes)))
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Text::Int(_) => INT,
            Text::Embedded(_) => EMBEDDED,
            Text::Object(_) => OBJECT,
        }
    }

    fn embedded_len(&self) -> usize {
        if let Text::Embedded(bytes) = self { bytes.len() } else { 0 }
    }
}

/// Bytes of the body of this kind.
#[inline]
const fn body_len(kind: u8) -> usize {
    match kind {
        EMBEDDED => 2,
        INT => WORD,
        _ => size_of::<Value>(),
    }
}

/// Bytes before the body.
#[inline]
const fn head_len(flags: u8) -> usize {
    HEADER + if flags & EXPIRY != 0 { WORD } else { 0 } + if flags & LONG_KEY != 0 { WORD } else { 0 }
}

#[inline]
fn layout(size: usize) -> Layout {
    // SAFETY: ALIGN is a power of two, and a key and a small value are far below isize::MAX.
    unsafe { Layout::from_size_align_unchecked(size, ALIGN) }
}

impl Entry {
    /// Returns an entry with a string in its smallest form. `expiry` is in milliseconds of Unix time.
    #[must_use]
    pub fn string(key: &[u8], value: &[u8], expiry: Option<u64>) -> Entry {
        Entry::build(key, Text::of(value), expiry)
    }

    /// Returns an entry with a string that OBJECT ENCODING reports as "raw", never with an integer.
    #[must_use]
    pub fn raw(key: &[u8], value: &[u8], expiry: Option<u64>) -> Entry {
        let mut entry = Entry::build(key, Text::raw(value), expiry);
        entry.mark_raw();
        entry
    }

    /// Returns an entry with an integer string.
    #[must_use]
    pub fn int(key: &[u8], value: i64, expiry: Option<u64>) -> Entry {
        Entry::build(key, Text::Int(value), expiry)
    }

    /// Returns an entry with a value that has its own allocation.
    #[must_use]
    pub fn object(key: &[u8], value: Value, expiry: Option<u64>) -> Entry {
        Entry::build(key, Text::Object(value), expiry)
    }

    fn build(key: &[u8], text: Text<'_>, expiry: Option<u64>) -> Entry {
        let mut flags = if expiry.is_some() { EXPIRY } else { 0 };
        let key_len = u16::try_from(key.len()).unwrap_or_else(|_| {
            flags |= LONG_KEY;
            0
        });
        let kind = text.kind();
        let size = head_len(flags) + body_len(kind) + key.len() + text.embedded_len();
        let layout = layout(size);
        // SAFETY: the layout is not empty; every write below is within `size`, in the order of the module's diagram.
        unsafe {
            let Some(base) = NonNull::new(alloc::alloc(layout)) else { alloc::handle_alloc_error(layout) };
            base.cast::<EntryHeader>().write(EntryHeader { kind, flags, key_len, access: 0 });
            let mut at = base.add(HEADER);
            if let Some(expiry) = expiry {
                at.cast::<u64>().write(expiry);
                at = at.add(WORD);
            }
            if flags & LONG_KEY != 0 {
                at.cast::<u64>().write(key.len() as u64);
                at = at.add(WORD);
            }
            let key_at = at.add(body_len(kind));
            key_at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            match text {
                Text::Int(int) => at.cast::<i64>().write(int),
                Text::Object(value) => at.cast::<Value>().write(value),
                Text::Embedded(bytes) => {
                    at.cast::<u16>().write(bytes.len() as u16);
                    key_at.add(key.len()).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
                }
            }
            Entry(base)
        }
    }

    #[inline]
    fn header(&self) -> EntryHeader {
        // SAFETY: every entry begins with its header.
        unsafe { self.0.cast::<EntryHeader>().read() }
    }

    #[inline]
    fn set_header(&mut self, header: EntryHeader) {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { self.0.cast::<EntryHeader>().write(header) }
    }

    #[inline]
    fn body(&self) -> NonNull<u8> {
        // SAFETY: the body follows the head.
        unsafe { self.0.add(head_len(self.header().flags)) }
    }

    #[inline]
    fn embedded_len(&self) -> usize {
        // SAFETY: only called for kind EMBEDDED, which has this length as its body.
        usize::from(unsafe { self.body().cast::<u16>().read() })
    }

    /// Returns the address of an embedded string's value.
    #[inline]
    fn embedded_at(&self) -> NonNull<u8> {
        let header = self.header();
        // Derived from the entry's own pointer: one derived from the key would be valid for the key only. SAFETY: head,
        // body and key are within the allocation.
        unsafe { self.0.add(head_len(header.flags) + body_len(header.kind) + self.key().len()) }
    }

    fn size(&self) -> usize {
        let header = self.header();
        let embedded = if header.kind == EMBEDDED { self.embedded_len() } else { 0 };
        head_len(header.flags) + body_len(header.kind) + self.key().len() + embedded
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        // SAFETY: the entry lives as long as the borrow.
        unsafe { Self::key_at(self.0) }
    }

    #[inline]
    unsafe fn key_at<'a>(base: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller's entry is alive; the layout is the module's.
        unsafe {
            let header = base.cast::<EntryHeader>().read();
            let head = head_len(header.flags);
            let len = if header.flags & LONG_KEY != 0 {
                base.add(head - WORD).cast::<u64>().read() as usize
            } else {
                usize::from(header.key_len)
            };
            std::slice::from_raw_parts(base.add(head + body_len(header.kind)).as_ptr(), len)
        }
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_> {
        // SAFETY: the kind determines the body.
        unsafe {
            match self.header().kind {
                EMBEDDED => View::Bytes(std::slice::from_raw_parts(self.embedded_at().as_ptr(), self.embedded_len())),
                INT => View::Int(self.body().cast::<i64>().read()),
                _ => View::Object(self.body().cast::<Value>().as_ref()),
            }
        }
    }

    /// Prefetches the entry's first cache line for a write, because another core may own it.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_to_write(self.0.as_ptr());
    }

    /// Prefetches the memory that an operation on the value reads, unless it is in the entry itself. Returns true if
    /// the value is a collection in its big form, which has more to prefetch.
    #[inline]
    pub fn prefetch_value(&self, ahead: Ahead<'_>) -> bool {
        if let View::Object(value) = self.view() { value.prefetch(ahead) } else { false }
    }

    /// Returns the value, if it has its own allocation.
    #[inline]
    pub fn object_mut(&mut self) -> Option<&mut Value> {
        if self.header().kind != OBJECT {
            return None;
        }
        // SAFETY: the body is an initialised Value, and `self` is borrowed mutably.
        Some(unsafe { self.body().cast::<Value>().as_mut() })
    }

    /// Returns the value, if it is a hash with expiring fields.
    #[must_use]
    pub fn timed_hash(&self) -> Option<&TimedHash> {
        if let View::Object(Value::TimedHash(hash)) = self.view() { Some(hash) } else { None }
    }

    /// Returns true if the value is a string, in any form.
    #[inline]
    #[must_use]
    pub fn is_string(&self) -> bool {
        match self.view() {
            View::Object(value) => matches!(value, Value::Str(_)),
            _ => true,
        }
    }

    /// Replaces the value by a string, and keeps key, expiry and access word. Works in place if the allocation allows.
    pub fn set_string(&mut self, value: &[u8]) {
        match Text::of(value) {
            Text::Int(int) => self.set_int(int),
            text => self.set_text(text),
        }
    }

    /// Replaces the value by a string that is never stored as an integer: OBJECT ENCODING tells the two apart.
    pub fn set_plain(&mut self, value: &[u8]) {
        self.set_text(Text::raw(value));
    }

    /// Like [`Entry::set_plain`], but OBJECT ENCODING reports "raw".
    pub fn set_raw(&mut self, value: &[u8]) {
        if self.header().kind == EMBEDDED && value.len() <= EMBEDDED_BYTES_MAX {
            self.embedded_mut(value.len()).copy_from_slice(value);
        } else {
            self.rebuild(Text::raw(value));
            self.mark_raw();
        }
    }

    /// Cuts the string to `len` bytes or fills it up with zeros, and returns its bytes for changes in place; None if
    /// the value is not a string. A long string grows in amortised constant time. The string is no longer an integer,
    /// and OBJECT ENCODING reports "raw".
    pub fn string_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        self.string_part_mut(len, 0..len)
    }

    /// Like [`Entry::string_mut`], but returns only a part of the bytes (APPEND, SETRANGE, SETBIT). Cached facts about
    /// the other bytes stay valid.
    pub fn string_part_mut(&mut self, len: usize, part: Range<usize>) -> Option<&mut [u8]> {
        if !self.is_string() {
            return None;
        }
        if self.header().kind == OBJECT {
            return self.object_mut().and_then(|value| value.string_part_mut(len, part));
        }
        if len > EMBEDDED_BYTES_MAX {
            let mut bytes = vec![0; len];
            self.text_with(|text| bytes[..text.len()].copy_from_slice(text));
            self.rebuild(Text::Object(Value::long(Long::from(bytes))));
            return self.object_mut().and_then(|value| value.string_part_mut(len, part));
        }
        self.embedded_mut(len).get_mut(part)
    }

    /// Passes the text of an integer or of an embedded string to `read`.
    fn text_with<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match self.view() {
            View::Bytes(bytes) => read(bytes),
            View::Int(int) => read(int.to_string().as_bytes()),
            View::Object(_) => read(b""),
        }
    }

    /// Cuts an integer or an embedded string to `len` bytes, or fills it up, and returns the bytes. `len` is within the
    /// limit of embedded strings.
    fn embedded_mut(&mut self, len: usize) -> &mut [u8] {
        if let View::Int(int) = self.view() {
            self.rebuild(Text::Embedded(int.to_string().as_bytes()));
        }
        let before = self.embedded_len();
        if before != len {
            self.resize_embedded(len);
        }
        self.mark_raw();
        // SAFETY: the value now has this length, and its new bytes are initialised before the slice is made.
        unsafe {
            let at = self.embedded_at();
            if len > before {
                at.add(before).write_bytes(0, len - before);
            }
            std::slice::from_raw_parts_mut(at.as_ptr(), len)
        }
    }

    /// Makes OBJECT ENCODING report "raw".
    fn mark_raw(&mut self) {
        let mut header = self.header();
        header.flags |= RAW;
        self.set_header(header);
    }

    /// Replaces the value by an integer string.
    #[inline]
    pub fn set_int(&mut self, value: i64) {
        if self.header().kind == INT {
            // SAFETY: the body is an integer.
            unsafe { self.body().cast::<i64>().write(value) };
        } else {
            self.rebuild(Text::Int(value));
        }
    }

    fn set_text(&mut self, text: Text<'_>) {
        let Text::Embedded(bytes) = text else { return self.rebuild(text) };
        if self.header().kind != EMBEDDED || self.header().flags & RAW != 0 {
            return self.rebuild(Text::Embedded(bytes));
        }
        if self.embedded_len() != bytes.len() {
            self.resize_embedded(bytes.len());
        }
        // SAFETY: the value now has this length. `bytes` is not part of the entry, which is borrowed mutably.
        unsafe { self.embedded_at().copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    fn resize_embedded(&mut self, len: usize) {
        let (old, new) = (self.size(), self.size() - self.embedded_len() + len);
        // SAFETY: the old layout is the entry's; the new size is not zero; the head and the key are kept.
        unsafe {
            let Some(base) = NonNull::new(alloc::realloc(self.0.as_ptr(), layout(old), new)) else {
                alloc::handle_alloc_error(layout(new))
            };
            self.0 = base;
            self.body().cast::<u16>().write(len as u16);
        }
    }

    /// Replaces the allocation by one for another form of value.
    fn rebuild(&mut self, text: Text<'_>) {
        let mut new = Entry::build(self.key(), text, self.expiry());
        new.inherit(self.header(), MARK);
        *self = new;
    }

    /// Replaces the value by one that has its own allocation.
    pub fn set_object(&mut self, value: Value) {
        match self.object_mut() {
            Some(old) => *old = value,
            None => self.rebuild(Text::Object(value)),
        }
    }

    /// Returns the key's expiry, in milliseconds of Unix time.
    #[inline]
    #[must_use]
    pub fn expiry(&self) -> Option<u64> {
        if self.header().flags & EXPIRY == 0 {
            return None;
        }
        // SAFETY: the flag says that the word after the header is the expiry.
        Some(unsafe { self.0.add(HEADER).cast::<u64>().read() })
    }

    /// Sets or removes the expiry.
    pub fn set_expiry(&mut self, expiry: Option<u64>) {
        match (self.expiry().is_some(), expiry) {
            (false, None) => {}
            // SAFETY: the word after the header is the expiry.
            (true, Some(at)) => unsafe { self.0.add(HEADER).cast::<u64>().write(at) },
            _ => self.relocate(expiry),
        }
    }

    /// Copies the access word and the given flags from the header of the entry that this one replaces.
    fn inherit(&mut self, from: EntryHeader, flags: u8) {
        let mut header = self.header();
        header.access = from.access;
        header.flags |= from.flags & flags;
        self.set_header(header);
    }

    /// Returns the mark of the last snapshot that has saved the entry, or 0.
    #[inline]
    pub(crate) fn mark(&self) -> u8 {
        (self.header().flags & MARK) >> MARK_SHIFT
    }

    /// Sets the mark, at most [`MARK_MAX`].
    #[inline]
    pub(crate) fn set_mark(&mut self, mark: u8) {
        debug_assert!(mark <= MARK_MAX);
        let mut header = self.header();
        header.flags = header.flags & !MARK | mark << MARK_SHIFT;
        self.set_header(header);
    }

    /// Marks a new entry as saved, so that a running snapshot does not save it.
    #[inline]
    pub(crate) fn born(mut self, snapshots: &Snapshots) -> Entry {
        if snapshots.runs() {
            self.set_mark(snapshots.mark());
        }
        self
    }

    /// Returns true if snapshots save its value in pieces.
    pub(crate) fn is_piecewise(&self) -> bool {
        matches!(self.view(), View::Object(value) if value.is_piecewise())
    }

    /// Returns true while a snapshot saves its value in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(self.view(), View::Object(value) if value.has_walk())
    }

    /// Moves a value that has its own allocation to a new entry with the same key, and returns that entry. An empty
    /// string stays behind.
    pub(crate) fn take_value(&mut self) -> Entry {
        let mut taken = Entry::build(self.key(), Text::Object(Value::long(Long::default())), self.expiry());
        taken.inherit(self.header(), MARK);
        if let (Some(own), Some(other)) = (self.object_mut(), taken.object_mut()) {
            std::mem::swap(own, other);
        }
        taken
    }

    /// Rebuilds the entry with or without the word for an expiry.
    fn relocate(&mut self, expiry: Option<u64>) {
        let header = self.header();
        let key = self.key();
        let mut new = match self.view() {
            View::Int(int) => Entry::build(key, Text::Int(int), expiry),
            View::Bytes(bytes) => Entry::build(key, Text::Embedded(bytes), expiry),
            // SAFETY: the value is moved out, and the old allocation is freed below without dropping the value.
            View::Object(_) => Entry::build(key, Text::Object(unsafe { self.body().cast::<Value>().read() }), expiry),
        };
        if self.header().kind == OBJECT {
            self.free();
        } else {
            // SAFETY: nothing in the old entry needs dropping. It is not used again, because `self` is overwritten
            // below.
            unsafe { alloc::dealloc(self.0.as_ptr(), layout(self.size())) };
        }
        new.inherit(header, RAW | MARK);
        // The old allocation is gone, so the write must not drop it. SAFETY: `self` is a valid place.
        unsafe { std::ptr::from_mut(self).write(new) };
    }

    /// Moves the allocations that `mover` selects, of the entry and of its value.
    pub fn compact(&mut self, mover: &mut Mover<'_>) -> Compacted {
        if mover.wants(self.0.as_ptr()) {
            let layout = layout(self.size());
            // SAFETY: an entry is never empty. Both allocations have its size, and the old one is not used again;
            // everything that the body owns has moved with it.
            unsafe {
                let Some(new) = NonNull::new(alloc::alloc(layout)) else { alloc::handle_alloc_error(layout) };
                new.copy_from_nonoverlapping(self.0, layout.size());
                alloc::dealloc(self.0.as_ptr(), layout);
                self.0 = new;
            }
        }
        self.object_mut().map_or(Compacted::Wholly, |value| value.compact(mover))
    }

    /// Frees the allocation without dropping the body's value.
    fn free(&mut self) {
        // SAFETY: the layout is the entry's.
        unsafe { alloc::dealloc(self.0.as_ptr(), layout(self.size())) };
    }

    /// Returns the access word. The eviction policy defines its meaning.
    #[inline]
    #[must_use]
    pub fn access(&self) -> u32 {
        self.header().access
    }

    /// Sets the access word. Writes only if it changes, so that repeated reads of a key do not dirty its cache line.
    #[inline]
    pub fn set_access(&mut self, access: u32) {
        let mut header = self.header();
        if header.access != access {
            header.access = access;
            self.set_header(header);
        }
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> Type {
        if let View::Object(value) = self.view() { value.kind() } else { Type::String }
    }

    /// The encoding's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            View::Int(_) => "int",
            View::Bytes(bytes) if bytes.len() <= EMBSTR_BYTES_MAX && self.header().flags & RAW == 0 => "embstr",
            View::Bytes(_) => "raw",
            View::Object(value) => value.encoding(),
        }
    }

    /// Estimates the bytes of the entry with its value.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.size() + if let View::Object(value) = self.view() { value.memory_bytes() } else { 0 }
    }

    /// Returns true if the key has expired at `now_ms`. In the exact millisecond of its expiry it has not, as in Redis.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expiry().is_some_and(|at| now_ms > at)
    }

    /// Moves the value and expiry to another key.
    #[must_use]
    pub fn with_key(self, key: &[u8]) -> Entry {
        let (header, expiry) = (self.header(), self.expiry());
        let mut this = std::mem::ManuallyDrop::new(self);
        let mut new = match this.view() {
            View::Int(int) => Entry::build(key, Text::Int(int), expiry),
            View::Bytes(bytes) => Entry::build(key, Text::Embedded(bytes), expiry),
            // SAFETY: the value is moved out, and the old entry is freed without dropping it.
            View::Object(_) => Entry::build(key, Text::Object(unsafe { this.body().cast::<Value>().read() }), expiry),
        };
        this.free();
        new.inherit(header, RAW | MARK);
        new
    }

    /// Returns a copy under another key.
    #[must_use]
    pub fn copy_as(&self, key: &[u8]) -> Entry {
        let mut new = match self.view() {
            View::Int(int) => Entry::build(key, Text::Int(int), self.expiry()),
            View::Bytes(bytes) => Entry::build(key, Text::Embedded(bytes), self.expiry()),
            View::Object(value) => Entry::build(key, Text::Object(value.duplicate()), self.expiry()),
        };
        let mut header = new.header();
        header.flags |= self.header().flags & RAW;
        new.set_header(header);
        new
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(value) = self.object_mut() {
            // SAFETY: the body is an initialised Value that is not used again.
            unsafe { std::ptr::drop_in_place(value) };
        }
        self.free();
    }
}

impl<'a> Ref<'a, Entry> {
    /// Returns the value for as long as the table is borrowed.
    #[inline]
    #[must_use]
    pub fn into_view(self) -> View<'a> {
        // SAFETY: the entry stays where it is while its table is borrowed for 'a.
        unsafe { std::mem::transmute::<View<'_>, View<'a>>(self.view()) }
    }
}

impl<'a> RefMut<'a, Entry> {
    /// Returns the value that has its own allocation, for as long as the table is borrowed.
    #[inline]
    #[must_use]
    pub fn into_object(mut self) -> Option<&'a mut Value> {
        // SAFETY: the entry stays where it is while its slot is borrowed mutably for 'a, which is the only borrow.
        self.object_mut().map(|value| unsafe { &mut *std::ptr::from_mut(value) })
    }
}

// SAFETY: an entry is aligned to 8, its address comes from the allocator, and its key never changes while it lives.
unsafe impl Record for Entry {
    type Hash = crate::hash::KeyHash;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }
    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Entry(raw)
    }
    #[inline]
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { Entry::key_at(raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(entry: &Entry) -> Vec<u8> {
        match entry.view() {
            View::Int(int) => int.to_string().into(),
            View::Bytes(bytes) => bytes.to_vec(),
            View::Object(Value::Str(bytes)) => bytes.to_vec(),
            View::Object(_) => b"?".to_vec(),
        }
    }

    fn check(entry: &Entry, key: &[u8], value: &str, expiry: Option<u64>, encoding: &str) {
        assert_eq!(entry.key(), key);
        assert_eq!(text(entry), value.as_bytes());
        assert_eq!(entry.expiry(), expiry);
        assert_eq!(entry.encoding(), encoding);
    }

    #[test]
    fn every_form_keeps_key_value_and_expiry() {
        let long_value = "v".repeat(3000);
        let long_key = vec![b'k'; 70_000];
        for key in [&b""[..], b"k", &long_key] {
            for (value, encoding) in [("", "embstr"), ("12", "int"), ("012", "embstr"), (&*long_value, "raw")] {
                for expiry in [None, Some(5)] {
                    let mut entry = Entry::string(key, value.as_bytes(), expiry);
                    check(&entry, key, value, expiry, encoding);
                    for next in [Some(9), None, Some(7)] {
                        entry.set_expiry(next);
                        check(&entry, key, value, next, encoding);
                    }
                    let copy = entry.copy_as(b"copy");
                    check(&copy, b"copy", value, Some(7), encoding);
                    check(&entry.with_key(b"moved"), b"moved", value, Some(7), encoding);
                }
            }
        }
    }

    #[test]
    fn a_string_changes_form_as_it_is_set() {
        let mut entry = Entry::string(b"key", b"x", Some(1));
        entry.set_access(77);
        let long = "y".repeat(2000);
        for (value, encoding) in [
            ("abc", "embstr"),
            ("abcdef", "embstr"),
            ("-7", "int"),
            ("8", "int"),
            (&*long, "raw"),
            ("a", "embstr"),
            ("", "embstr"),
        ] {
            entry.set_string(value.as_bytes());
            check(&entry, b"key", value, Some(1), encoding);
            assert_eq!(entry.access(), 77);
        }
        entry.set_plain(b"12");
        check(&entry, b"key", "12", Some(1), "embstr");
        assert!(entry.string_mut(2).is_some());
        check(&entry, b"key", "12", Some(1), "raw");
        entry.set_string(b"zz");
        check(&entry, b"key", "zz", Some(1), "embstr");
    }

    #[test]
    fn a_string_changes_in_place_across_its_forms() {
        for start in ["12", "ab", &*"z".repeat(1500)] {
            let mut entry = Entry::string(b"key", start.as_bytes(), Some(1));
            let mut model = start.as_bytes().to_vec();
            // The longest takes Miri a minute.
            let longest = if cfg!(miri) { 1500 } else { 100_000 };
            for len in [model.len(), model.len() + 1, 700, 1024, 1025, 1026, 5000.min(longest), longest, 10] {
                model.resize(len, 0);
                *model.last_mut().unwrap() = b'!';
                *entry.string_mut(len).unwrap().last_mut().unwrap() = b'!';
                check(&entry, b"key", std::str::from_utf8(&model).unwrap(), Some(1), "raw");
            }
        }
    }

    #[test]
    fn a_string_that_is_being_sent_is_copied_before_it_changes() {
        let mut entry = Entry::string(b"key", &[b'x'; 2000], None);
        let View::Object(Value::Str(sent)) = entry.view() else { unreachable!() };
        let sent = sent.clone();
        entry.string_mut(2001).unwrap()[0] = b'y';
        assert_eq!(sent[..], [b'x'; 2000]);
        assert!(text(&entry).starts_with(b"yx"));
    }

    #[test]
    fn a_small_string_takes_forty_bytes() {
        assert_eq!(Entry::string(&[b'k'; 14], &[b'v'; 16], None).size(), 40);
    }
}
