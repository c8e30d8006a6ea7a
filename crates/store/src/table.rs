//! A hash table of packed records: the keyspace's shards, and the big forms of hashes, sets and sorted sets.
//!
//! A record is one allocation that holds its own key. The table holds one tagged word per record:
//!
//! ```text
//! bucket (one cache line, 64 bytes)
//! ┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐
//! │ slot 0 │ slot 1 │ slot 2 │ slot 3 │ slot 4 │ slot 5 │ slot 6 │ slot 7 │
//! └────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘
//! slot: │ tag: 16 bits of the hash │ record's address, bits 0..47 │   0 = empty
//! slot 7 of a full bucket: │ 0 │ next bucket's address │ 1 │            bit 0 = chain
//! ```
//!
//! A lookup reads one cache line and nearly always one record. The hash's low bits choose the bucket, so that a cursor
//! that counts in reversed bits survives growth (the algorithm of Redis's SCAN). The tag holds the hash bits of the
//! next doublings, so growth need not read the records to hash their keys (`buckets`).
//!
//! The table grows by a few buckets at a time and shrinks by one (linear hashing, W. Litwin 1980). Let `2^k` be the
//! largest power of two up to the number of buckets `n`. Buckets `0..n - 2^k` have been split by bit `k` of the hash,
//! each into itself and the bucket `2^k` above; the others have not. The load factor is constant, no operation takes
//! longer than some microseconds, and no second array ever exists. The buckets are in segments of a fixed size
//! (`buckets`).
//!
//! This module uses `unsafe` because a slot packs tag and pointer into one word, which halves the memory and keeps a
//! bucket in a cache line. The invariant: **every non-empty slot without the chain bit holds a pointer that came from
//! [`Record::into_raw`] and is owned by the table; a slot with the chain bit is slot 7 of its bucket and owns a
//! `Box<Bucket>`.**

mod buckets;
mod resize;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

#[cfg(test)]
pub(crate) use buckets::bits_used;
use buckets::{BUCKETS_MAX, Buckets, Home};

use crate::byte_order::is_same;
use crate::hash::TableHash;
use crate::prefetch::prefetch;

/// Slots of a bucket: the number of words in a cache line.
const SLOTS: usize = 8;
/// Maximum mean number of records per four buckets; beyond that, buckets are split. Fuller tables take less memory, but
/// have more records in chains. Bytes of slots and chains per record, at the worst size between two powers of two: 13.0
/// at 24, 13.3 at 23, 14.4 at 20. Records in chains: one in nine at 24, one in ten at 23, one in fifteen at 20.
const FILL_OF_FOUR: usize = 23;
/// Minimum mean number of records per four buckets; below that, two buckets are merged.
const SPARSE_OF_FOUR: usize = 12;
/// The first bit of the tag in a slot. Addresses of user space stay below it on every supported machine.
const TAG_SHIFT: u32 = 48;
/// Lookups between two steps of [`Table::prefetch_coming`]: about the number that run while memory answers.
pub const COMING_STEP: usize = 8;
/// Prefetched bytes of a record: all of it, if the key and the value have the usual size.
const RECORD_PREFETCHED_BYTES: usize = 48;
/// The bit that marks slot 7 as the address of another bucket.
const CHAIN: usize = 1;
/// Number of records of a chain that a random pick considers. It is even in chains up to this length.
const SAMPLE_DEPTH: usize = 3 * SLOTS;
/// Prefetch distance of a walk through the table, in buckets. With two, some dozen cache lines are in flight, which is
/// about a core's limit.
const BUCKETS_AHEAD: usize = 2;

/// An owned, thin pointer to one allocation that contains its own key.
///
/// # Safety
/// `into_raw` must return an address that is even and below 2^48, `from_raw` must undo it, and `key` must read the same
/// bytes for as long as the record lives.
pub unsafe trait Record: Sized {
    /// The type of its key's hash.
    type Hash: TableHash;

    /// Gives up ownership of the allocation.
    fn into_raw(self) -> NonNull<u8>;
    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`Record::into_raw`] and is used once.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;
    /// Returns the key inside the allocation.
    ///
    /// # Safety
    /// `raw` came from [`Record::into_raw`] and is alive for `'a`.
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8];
}

/// A record type that can take over records of type `R`.
///
/// # Safety
/// `from_raw` must accept every pointer from `R::into_raw`, and both types must read the same key.
pub unsafe trait RecordFrom<R: Record>: Record<Hash = R::Hash> {}

/// A shared reference to a record in its table.
pub struct Ref<'a, R: Record> {
    record: ManuallyDrop<R>,
    table: PhantomData<&'a R>,
}

impl<R: Record> Deref for Ref<'_, R> {
    type Target = R;
    #[inline]
    fn deref(&self) -> &R {
        &self.record
    }
}

/// A mutable reference to a record in its table. The record may change and even move to another allocation, but its key
/// must stay the same.
pub struct RefMut<'a, R: Record> {
    record: ManuallyDrop<R>,
    slot: &'a mut Slot,
}

impl<R: Record> Deref for RefMut<'_, R> {
    type Target = R;
    #[inline]
    fn deref(&self) -> &R {
        &self.record
    }
}

impl<R: Record> DerefMut for RefMut<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut R {
        &mut self.record
    }
}

impl<'a, R: Record> RefMut<'a, R> {
    /// Turns this reference into a shared one.
    #[inline]
    #[must_use]
    pub fn into_ref(self) -> Ref<'a, R> {
        let raw = ManuallyDrop::new(self).put_back();
        // SAFETY: the record is back in its slot, which stays borrowed for 'a, and ManuallyDrop does not drop it.
        Ref { record: ManuallyDrop::new(unsafe { R::from_raw(raw) }), table: PhantomData }
    }

    /// Puts the record back into its slot. Called exactly once, as the last access to it.
    #[inline]
    fn put_back(&mut self) -> NonNull<u8> {
        // SAFETY: the record is taken once, because no access follows this one.
        let raw = unsafe { ManuallyDrop::take(&mut self.record) }.into_raw();
        // Most changes do not move the record. Skipping the write keeps the bucket's cache line clean.
        if raw != self.slot.raw() {
            *self.slot = Slot::record(raw, self.slot.tag());
        }
        raw
    }
}

impl<R: Record> Drop for RefMut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        self.put_back();
    }
}

/// One tagged word of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Slot(*mut u8);

impl Slot {
    const EMPTY: Slot = Slot(ptr::null_mut());

    #[inline]
    fn record(raw: NonNull<u8>, tag: usize) -> Slot {
        debug_assert!(raw.addr().get() & CHAIN == 0 && raw.addr().get() >> TAG_SHIFT == 0);
        Slot(raw.as_ptr().map_addr(|a| a | tag << TAG_SHIFT))
    }

    #[inline]
    fn chain(bucket: Box<Bucket>) -> Slot {
        Slot(Box::into_raw(bucket).cast::<u8>().map_addr(|a| a | CHAIN))
    }

    #[inline]
    fn is_empty(self) -> bool {
        self.0.is_null()
    }

    #[inline]
    fn is_chain(self) -> bool {
        self.0.addr() & CHAIN != 0
    }

    #[inline]
    fn is_record(self) -> bool {
        !self.is_empty() && !self.is_chain()
    }

    #[inline]
    fn tag(self) -> usize {
        self.0.addr() >> TAG_SHIFT
    }

    /// Returns the record's address. The slot must hold a record.
    #[inline]
    fn raw(self) -> NonNull<u8> {
        debug_assert!(self.is_record());
        let raw = self.0.map_addr(|a| a & ((1 << TAG_SHIFT) - 1));
        // SAFETY: a slot that holds a record has a non-zero address below the tag.
        unsafe { NonNull::new_unchecked(raw) }
    }

    /// Returns a slot of the same record with another tag.
    #[inline]
    fn tagged(self, tag: usize) -> Slot {
        Slot::record(self.raw(), tag)
    }

    /// Returns the next bucket of the chain, if this slot holds one.
    #[inline]
    fn next(self) -> Option<NonNull<Bucket>> {
        if self.is_chain() { NonNull::new(self.0.map_addr(|a| a & !CHAIN).cast()) } else { None }
    }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    slots: [Slot; SLOTS],
}

impl Bucket {
    const EMPTY: Bucket = Bucket { slots: [Slot::EMPTY; SLOTS] };

    /// Returns the address of the first record with this tag.
    #[inline(always)]
    fn candidate(&self, tag: usize) -> Option<NonNull<u8>> {
        self.tagged(tag).map(|i| self.slots[i]).find(|slot| slot.is_record()).map(Slot::raw)
    }

    /// Returns the first free slot. Inspects all slots, for the reason given at [`Self::tagged`].
    #[inline]
    fn first_free(&mut self) -> Option<&mut Slot> {
        let free = (0..SLOTS).fold(0u32, |bits, i| bits | u32::from(self.slots[i].is_empty()) << i);
        self.slots.get_mut(free.trailing_zeros() as usize)
    }

    /// Distributes the records of the bucket's own slots, without its chain, over two buckets by a bit of their tags.
    /// Also returns the number in each. Avoids branches, because the bits are unpredictable.
    fn parted(&self, bit: u32) -> ([Bucket; 2], [usize; 2]) {
        let (mut halves, mut used) = ([Bucket::EMPTY; 2], [0; 2]);
        for slot in self.slots {
            let half = slot.tag() >> bit & 1;
            halves[half].slots[used[half]] = if slot.is_record() { slot } else { Slot::EMPTY };
            used[half] += usize::from(slot.is_record());
        }
        (halves, used)
    }

    /// Returns the slots with this tag. Compares all of them: a loop that ends at the right slot has a random length,
    /// which the processor mispredicts nearly every time. For tag 0 the result includes empty slots and a chain slot.
    #[inline(always)]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn tagged(&self, tag: usize) -> Tagged {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
        /// The mask of the 16-bit lanes that hold tags: the last lane of each slot.
        const TAGS: i32 = 0x8888;
        // SAFETY: SSE2 is part of x86-64. A bucket consists of four 16-byte vectors and has a stricter alignment than
        // they need.
        let (first, second) = unsafe {
            let pairs = ptr::from_ref(self).cast::<std::arch::x86_64::__m128i>();
            let wanted = _mm_set1_epi16(tag as i16);
            let equal = |pair| _mm_cmpeq_epi16(_mm_load_si128(pairs.add(pair)), wanted);
            let half = |pair| _mm_movemask_epi8(_mm_packs_epi16(equal(pair), equal(pair + 1)));
            (half(0) & TAGS, half(2) & TAGS)
        };
        Tagged((first | second << 16) as u32)
    }

    /// Portable version of the same function.
    #[inline]
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn tagged(&self, tag: usize) -> Tagged {
        Tagged((0..SLOTS).fold(0, |bits, i| bits | u32::from(self.slots[i].tag() == tag) << (4 * i)))
    }
}

/// A set of slots of a bucket. Each slot has one bit out of four.
struct Tagged(u32);

impl Iterator for Tagged {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros() as usize / 4;
        self.0 &= self.0.wrapping_sub(1);
        (first < SLOTS).then_some(first)
    }
}

/// See the module's documentation.
#[repr(C)]
pub struct Table<R: Record> {
    buckets: Buckets,
    len: usize,
    records: PhantomData<R>,
}

// SAFETY: the table owns its records like a Vec.
unsafe impl<R: Record + Send> Send for Table<R> {}
// SAFETY: a shared table hands out only shared references to records.
unsafe impl<R: Record + Sync> Sync for Table<R> {}

impl<R: Record> Default for Table<R> {
    fn default() -> Self {
        Table::new()
    }
}

impl<R: Record> Table<R> {
    /// Returns an empty table, which allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        Table { buckets: Buckets::default(), len: 0, records: PhantomData }
    }

    /// Returns a table that takes `count` records without growing.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        let mut table = Table::new();
        table.buckets.grow_to((count * 4).div_ceil(FILL_OF_FOUR));
        table
    }

    /// Reserves space for about `count` records, if the table is empty.
    pub fn expect(&mut self, count: usize) {
        if self.buckets.is_empty() && count > 0 {
            *self = Table::with_capacity(count);
        }
    }

    /// Converts the table to one of another record type. No record is read or moved.
    #[must_use]
    pub(crate) fn into_table_of<S: RecordFrom<R>>(mut self) -> Table<S> {
        let (buckets, len) = (std::mem::take(&mut self.buckets), self.len);
        // The rest of the old table owns nothing.
        self.len = 0;
        Table { buckets, len, records: PhantomData }
    }

    /// Number of records.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no record.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the buckets and chains, without the records' own allocations.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.buckets.chained as usize * size_of::<Bucket>()
    }

    /// Returns the head of the only chain that can hold a key with this hash, and the key's tag there.
    #[inline(always)]
    fn home(&self, hash: R::Hash) -> Option<(NonNull<Bucket>, usize)> {
        if self.buckets.is_empty() {
            return None;
        }
        let Home { index, tag } = self.buckets.home_of(hash.bits());
        Some((self.buckets.at(index), tag))
    }

    /// Searches the chain at the home of the key's hash for the key's record, and returns its slot.
    #[inline(always)]
    fn search(home: Option<(NonNull<Bucket>, usize)>, key: &[u8]) -> Option<NonNull<Slot>> {
        // SAFETY: `search_where` passes only records of the table.
        Self::search_where(home, |raw| is_same(unsafe { R::key(raw) }, key))
    }

    /// Returns the slot of the first record with this tag for which `matches` returns true.
    #[inline(always)]
    fn search_where(
        home: Option<(NonNull<Bucket>, usize)>,
        matches: impl Fn(NonNull<u8>) -> bool,
    ) -> Option<NonNull<Slot>> {
        let (mut bucket, tag) = home?;
        loop {
            // SAFETY: `bucket` is alive while the table is borrowed, and is not written to meanwhile.
            for i in unsafe { bucket.as_ref() }.tagged(tag) {
                // SAFETY: as above, and `i` is within the bucket.
                let slot = unsafe { NonNull::new_unchecked(&raw mut (*bucket.as_ptr()).slots[i]) };
                // SAFETY: as above.
                let word = unsafe { slot.read() };
                if word.is_record() && matches(word.raw()) {
                    return Some(slot);
                }
            }
            // SAFETY: as above.
            bucket = unsafe { (*bucket.as_ptr()).slots[SLOTS - 1] }.next()?;
        }
    }

    /// Returns the record with this key. `hash` must be the key's hash.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: R::Hash, key: &[u8]) -> Option<Ref<'_, R>> {
        let slot = Self::search(self.home(hash), key)?;
        // SAFETY: the slot holds a record, which lives while `self` is borrowed; ManuallyDrop leaves it to the table.
        Some(unsafe { Self::borrow(slot.read()) })
    }

    /// Returns a record with this hash for which `matches` returns true, for callers that know a key's hash but not the
    /// key.
    #[must_use]
    pub fn find_where(&self, hash: R::Hash, matches: impl Fn(&R) -> bool) -> Option<Ref<'_, R>> {
        let found = |raw| {
            // SAFETY: the record is alive in its slot; ManuallyDrop leaves it there.
            let record = ManuallyDrop::new(unsafe { R::from_raw(raw) });
            // SAFETY: as above.
            R::Hash::of(unsafe { R::key(raw) }) == hash && matches(&record)
        };
        let slot = Self::search_where(self.home(hash), found)?;
        // SAFETY: the slot holds a record of this table.
        Some(unsafe { Self::borrow(slot.read()) })
    }

    /// Returns the record with this key for changes.
    #[inline]
    pub fn find_mut(&mut self, hash: R::Hash, key: &[u8]) -> Option<RefMut<'_, R>> {
        let mut slot = Self::search(self.home(hash), key)?;
        // SAFETY: the slot holds a record, and `self` stays mutably borrowed while the result lives.
        let slot = unsafe { slot.as_mut() };
        // SAFETY: the record is returned to its slot when the RefMut is dropped.
        Some(RefMut { record: ManuallyDrop::new(unsafe { R::from_raw(slot.raw()) }), slot })
    }

    /// # Safety
    /// `slot` holds a record that stays in the table for `'a`.
    #[inline]
    unsafe fn borrow<'a>(slot: Slot) -> Ref<'a, R> {
        // SAFETY: the caller's promise; ManuallyDrop leaves ownership with the table.
        Ref { record: ManuallyDrop::new(unsafe { R::from_raw(slot.raw()) }), table: PhantomData }
    }

    /// Returns the record with this key for changes, and first inserts the result of `create` if there is none. Also
    /// returns true if it was inserted. `hash` must be the key's hash.
    #[inline]
    pub fn find_or_insert(&mut self, hash: R::Hash, key: &[u8], create: impl FnOnce() -> R) -> (RefMut<'_, R>, bool) {
        let found = Self::search(self.home(hash), key);
        let is_new = found.is_none();
        let mut slot = found.unwrap_or_else(|| self.insert_into_slot(hash, create()));
        // SAFETY: the slot holds a record, and `self` stays mutably borrowed while the result lives.
        let slot = unsafe { slot.as_mut() };
        // SAFETY: the record is returned to its slot when the RefMut is dropped.
        (RefMut { record: ManuallyDrop::new(unsafe { R::from_raw(slot.raw()) }), slot }, is_new)
    }

    /// Adds a record. Its key must not be in the table, and `hash` must be the key's hash.
    pub fn insert(&mut self, hash: R::Hash, record: R) {
        self.insert_into_slot(hash, record);
    }

    fn insert_into_slot(&mut self, hash: R::Hash, record: R) -> NonNull<Slot> {
        if self.len * 4 >= self.buckets.len() * FILL_OF_FOUR && self.buckets.len() < BUCKETS_MAX {
            self.grow();
        }
        self.len += 1;
        let Home { index, tag } = self.buckets.home_of(hash.bits());
        self.put(index, Slot::record(record.into_raw(), tag))
    }

    /// Takes the record with this key out of the table.
    pub fn remove(&mut self, hash: R::Hash, key: &[u8]) -> Option<R> {
        let home = self.home(hash)?;
        let slot = Self::search(Some(home), key)?;
        // SAFETY: the slot holds a record that the table owns; the slot is refilled or emptied below.
        let record = unsafe { R::from_raw(slot.read().raw()) };
        self.buckets.chained -= u32::from(Self::close_gap(home.0, slot));
        self.len -= 1;
        if self.len == 0 {
            self.buckets = Buckets::default();
        } else if self.buckets.len() > 1 && self.len * 4 < self.buckets.len() * SPARSE_OF_FOUR {
            self.merge();
        }
        Some(record)
    }

    /// Puts a record into the first free slot of a bucket's chain and returns the slot. Adds a bucket to a full chain.
    fn put(&mut self, index: usize, slot: Slot) -> NonNull<Slot> {
        let mut bucket = self.buckets.at(index);
        loop {
            // SAFETY: the table owns the bucket, directly or through a chain slot, and `self` is borrowed mutably.
            let bucket_of = unsafe { bucket.as_mut() };
            if let Some(free) = bucket_of.first_free() {
                *free = slot;
                return NonNull::from(free);
            }
            let slots = &mut bucket_of.slots;
            if let Some(next) = slots[SLOTS - 1].next() {
                bucket = next;
                continue;
            }
            let mut next = Box::new(Bucket::EMPTY);
            next.slots[0] = slots[SLOTS - 1];
            next.slots[1] = slot;
            let put = NonNull::from(&mut next.slots[1]);
            slots[SLOTS - 1] = Slot::chain(next);
            self.buckets.chained += 1;
            return put;
        }
    }

    /// Empties a slot and moves the chain's last record into it. Frees a chained bucket that becomes empty, and returns
    /// true in that case.
    fn close_gap(head: NonNull<Bucket>, gap: NonNull<Slot>) -> bool {
        let mut owner: Option<NonNull<Slot>> = None;
        let mut tail = head;
        // SAFETY: all pointers point into the chain of `head`, which the caller has borrowed mutably.
        unsafe {
            while let Some(next) = (*tail.as_ptr()).slots[SLOTS - 1].next() {
                owner = Some(NonNull::from(&mut (*tail.as_ptr()).slots[SLOTS - 1]));
                tail = next;
            }
            let Some(owner) = owner else {
                gap.write(Slot::EMPTY);
                return false;
            };
            let slots = &raw mut (*tail.as_ptr()).slots;
            let last = (0..SLOTS).rev().find(|&i| (*slots)[i].is_record()).unwrap_or(0);
            let word = (*slots)[last];
            (*slots)[last] = Slot::EMPTY;
            if NonNull::from(&mut (*slots)[last]) != gap {
                gap.write(word);
            }
            if last > 0 {
                return false;
            }
            owner.write(Slot::EMPTY);
            drop(Box::from_raw(tail.as_ptr()));
            true
        }
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub fn prefetch_bucket(&self, hash: R::Hash) {
        if let Some((bucket, _)) = self.home(hash) {
            prefetch(bucket.as_ptr().cast());
        }
    }

    /// Prefetches the record that may have this hash from its bucket; useful once the bucket has arrived. If only a
    /// chained bucket can hold the record, prefetches that bucket and returns true; call [`Self::prefetch_chained`]
    /// once it has arrived.
    #[inline]
    pub fn prefetch_record(&self, hash: R::Hash) -> bool {
        let Some((bucket, tag)) = self.home(hash) else { return false };
        // SAFETY: the bucket is alive while the table is borrowed.
        let bucket = unsafe { bucket.as_ref() };
        if let Some(raw) = bucket.candidate(tag) {
            prefetch_record_at(raw);
            return false;
        }
        let chained = bucket.slots[SLOTS - 1].next();
        chained.inspect(|next| prefetch(next.as_ptr().cast())).is_some()
    }

    /// Prefetches for a loop that looks these hashes up one after the other: first each bucket, then, [`COMING_STEP`]
    /// lookups ahead, the record. Call it before each lookup with the remaining hashes.
    pub fn prefetch_coming(&self, hashes: &[R::Hash]) {
        if let Some(&hash) = hashes.get(2 * COMING_STEP) {
            self.prefetch_bucket(hash);
        }
        if let Some(&hash) = hashes.get(COMING_STEP) {
            self.prefetch_record(hash);
        }
    }

    /// Prefetches the record that may have this hash, anywhere in the chain.
    #[inline]
    pub fn prefetch_chained(&self, hash: R::Hash) {
        if let Some(raw) = self.candidate(hash) {
            prefetch_record_at(raw);
        }
    }

    /// Returns the first record of the chain with this hash's tag, for prefetches. It is nearly always the right one.
    #[inline]
    fn candidate(&self, hash: R::Hash) -> Option<NonNull<u8>> {
        let (mut bucket, tag) = self.home(hash)?;
        loop {
            // SAFETY: the chain is alive while the table is borrowed.
            let here = unsafe { bucket.as_ref() };
            if let Some(raw) = here.candidate(tag) {
                return Some(raw);
            }
            bucket = here.slots[SLOTS - 1].next()?;
        }
    }

    /// Returns the record with this hash, or another one with the same tag, for prefetches; useful once the record has
    /// arrived.
    #[inline]
    pub fn peek_candidate(&self, hash: R::Hash) -> Option<Ref<'_, R>> {
        let raw = self.candidate(hash)?;
        // SAFETY: the record is alive in its slot while the table is borrowed; ManuallyDrop leaves it there.
        Some(Ref { record: ManuallyDrop::new(unsafe { R::from_raw(raw) }), table: PhantomData })
    }

    fn visit_chain(bucket: &Bucket, visit: &mut impl FnMut(Slot)) {
        let mut bucket = bucket;
        loop {
            bucket.slots.iter().filter(|s| s.is_record()).for_each(|s| visit(*s));
            let Some(next) = bucket.slots[SLOTS - 1].next() else { return };
            // SAFETY: the chain lives as long as its first bucket is borrowed.
            bucket = unsafe { next.as_ref() };
        }
    }

    /// Visits the records of one step of an iteration, and returns the cursor of the next step. The iteration begins
    /// and ends with 0. Insertions, removals and growth between the steps are allowed: a record that is present from
    /// the first step to the last is visited at least once. (The cursor counts in reversed bits: see Redis's
    /// documentation of SCAN.)
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&R)) -> u64 {
        // SAFETY: the slots belong to this table, which is borrowed.
        let mut visit = |slot: Slot| visit(&*unsafe { Self::borrow(slot) });
        let Some(mask) = self.buckets.unsplit_mask() else { return 0 };
        let cursor = cursor as usize;
        let index = cursor & mask;
        let next = next_cursor(cursor, mask);
        // Most scans continue, so the next steps are worth prefetching.
        self.prefetch_steps(next, mask);
        Self::visit_chain(self.bucket(index), &mut visit);
        // A bucket and the bucket split from it form one step: between two powers of two, cursors count in the smaller
        // one.
        if index + mask + 1 < self.buckets.len() {
            Self::visit_chain(self.bucket(index + mask + 1), &mut visit);
        }
        next as u64
    }

    /// Like [`Table::scan`], but each record may be changed or moved to another allocation.
    pub fn scan_mut(&mut self, cursor: u64, mut visit: impl FnMut(&mut R)) -> u64 {
        let Some(mask) = self.buckets.unsplit_mask() else { return 0 };
        let cursor = cursor as usize;
        let index = cursor & mask;
        let next = next_cursor(cursor, mask);
        self.prefetch_steps(next, mask);
        self.visit_chain_mut(index, &mut visit);
        if index + mask + 1 < self.buckets.len() {
            self.visit_chain_mut(index + mask + 1, &mut visit);
        }
        next as u64
    }

    fn visit_chain_mut(&mut self, index: usize, visit: &mut impl FnMut(&mut R)) {
        let mut next = Some(self.buckets.at(index));
        while let Some(mut bucket) = next {
            // SAFETY: the chain lives as long as the table, which is borrowed mutably, so no other reference to a
            // bucket exists.
            let bucket = unsafe { bucket.as_mut() };
            for slot in bucket.slots.iter_mut().filter(|slot| slot.is_record()) {
                // SAFETY: the slot's record is taken once, and put back when the reference is dropped.
                let record = ManuallyDrop::new(unsafe { R::from_raw(slot.raw()) });
                visit(&mut RefMut { record, slot });
            }
            next = bucket.slots[SLOTS - 1].next();
        }
    }

    /// Prefetches for a scan: the records of the step after this cursor's step, because their buckets were prefetched
    /// one step ago, and the buckets of the step after that.
    #[inline]
    fn prefetch_steps(&self, cursor: usize, mask: usize) {
        // There is no step after the last one.
        if cursor == 0 {
            return;
        }
        let second = next_cursor(cursor, mask);
        let third = next_cursor(second, mask) & mask;
        for half in [0, mask + 1] {
            self.prefetch_records((second & mask) + half);
            if third + half < self.buckets.len() {
                prefetch(self.buckets.at(third + half).as_ptr().cast());
            }
        }
    }

    /// Prefetches the records in a bucket's own slots, if the bucket exists.
    #[inline]
    fn prefetch_records(&self, index: usize) {
        if index < self.buckets.len() {
            let records = self.bucket(index).slots.iter().filter(|slot| slot.is_record());
            records.for_each(|slot| prefetch_record_at(slot.raw()));
        }
    }

    /// Returns an existing bucket.
    fn bucket(&self, index: usize) -> &Bucket {
        // SAFETY: the bucket is alive, and is not written to while the table is borrowed.
        unsafe { self.buckets.at(index).as_ref() }
    }

    /// Returns an evenly picked record, with randomness from `random`; None if the table is empty.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Ref<'_, R>> {
        if self.len == 0 {
            return None;
        }
        loop {
            let r = random();
            let index = ((u128::from(r as u32) * self.buckets.len() as u128) >> 32) as usize;
            let depth = (r >> 32) as usize % SAMPLE_DEPTH;
            if let Some(slot) = Self::nth_in_chain(self.bucket(index), depth) {
                // SAFETY: the slot belongs to this table, which is borrowed.
                return Some(unsafe { Self::borrow(slot) });
            }
        }
    }

    /// Returns the `depth`-th record of a chain. In a chain longer than [`SAMPLE_DEPTH`] the depth wraps around, so
    /// that every record can be picked.
    fn nth_in_chain(bucket: &Bucket, depth: usize) -> Option<Slot> {
        let mut at = 0;
        let mut found = None;
        Self::visit_chain(bucket, &mut |slot| {
            if at % SAMPLE_DEPTH == depth {
                found = Some(slot);
            }
            at += 1;
        });
        found
    }

    /// Iterates over all records in no particular order.
    pub fn iter(&self) -> Iter<'_, R> {
        Iter { table: self, index: 0, bucket: None, slot: SLOTS }
    }

    /// Removes and drops all records.
    pub fn clear(&mut self) {
        for index in 0..self.buckets.len() {
            self.prefetch_records(index + BUCKETS_AHEAD);
            // SAFETY: the table owned the record, and has given up the slot.
            self.drain(index, |_, slot| drop(unsafe { R::from_raw(slot.raw()) }));
        }
        self.buckets = Buckets::default();
        self.len = 0;
    }
}

#[inline(always)]
fn prefetch_record_at(raw: NonNull<u8>) {
    prefetch(raw.as_ptr());
    // Records are not aligned to cache lines: half of those with the usual size end in the next line.
    prefetch(raw.as_ptr().wrapping_add(RECORD_PREFETCHED_BYTES - 1));
}

/// Returns the next cursor of a scan: the bits under the mask, reversed, plus one. The carry goes down from the highest bit to the first one
/// that is not set. Reversing the bits would take several times as long, because x86 has no instruction for it.
#[inline]
fn next_cursor(cursor: usize, mask: usize) -> usize {
    let Some(unset) = (!cursor & mask).checked_ilog2() else { return 0 };
    let bit = 1 << unset;
    cursor & (bit - 1) | bit
}

impl<R: Record> Drop for Table<R> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// An iterator over a table's records.
pub struct Iter<'a, R: Record> {
    table: &'a Table<R>,
    index: usize,
    bucket: Option<&'a Bucket>,
    slot: usize,
}

impl<'a, R: Record> Iterator for Iter<'a, R> {
    type Item = Ref<'a, R>;

    fn next(&mut self) -> Option<Ref<'a, R>> {
        loop {
            if let Some(bucket) = self.bucket {
                while self.slot < SLOTS {
                    let slot = bucket.slots[self.slot];
                    self.slot += 1;
                    if slot.is_record() {
                        // SAFETY: the record stays in the table while it is borrowed.
                        return Some(unsafe { Table::borrow(slot) });
                    }
                }
                // SAFETY: a chain lives as long as the table is borrowed.
                self.bucket = bucket.slots[SLOTS - 1].next().map(|b| unsafe { &*b.as_ptr() });
            } else {
                if self.index == self.table.buckets.len() {
                    return None;
                }
                self.bucket = Some(self.table.bucket(self.index));
                self.table.prefetch_records(self.index + BUCKETS_AHEAD);
                self.index += 1;
            }
            self.slot = 0;
        }
    }
}

#[cfg(test)]
mod tests;
