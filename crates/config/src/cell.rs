//! Cells that hold the settings: any thread reads them without a lock, and CONFIG SET replaces their values.
//!
//! Cells are independent: a reader sees the old or the new value of one setting, never a mixture, and there is no order
//! between two settings. Relaxed atomics therefore suffice. Strings are behind a short read lock, because they aren't
//! read once per command.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// A setting's value without its type, for parsing, comparing, restoring and formatting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Booleans (0, 1), integers, byte counts, choices (their index), negated percentages.
    Number(i128),
    /// Strings, and lists of words joined by one blank.
    Text(Arc<str>),
    /// The output buffer limits of the three classes.
    Limits([OutputLimit; 3]),
}

impl Value {
    /// Returns the number, or 0 for another sort of value; the table's self test excludes that case.
    pub(super) fn number(&self) -> i128 {
        match self {
            Value::Number(number) => *number,
            _ => 0,
        }
    }

    /// Returns the text, or an empty one for another sort of value.
    pub(super) fn text(&self) -> Arc<str> {
        match self {
            Value::Text(text) => text.clone(),
            _ => Arc::from(""),
        }
    }
}

/// Untyped access to a cell, for the table.
pub(super) trait Cell: Sync {
    /// Returns the present value.
    fn load(&self) -> Value;
    /// Replaces the value. The cell's kind has checked its sort and range.
    fn store(&self, value: &Value);
}

/// A yes/no setting.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// Returns true for yes.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Cell for Flag {
    fn load(&self) -> Value {
        Value::Number(i128::from(self.get()))
    }

    fn store(&self, value: &Value) {
        self.0.store(value.number() != 0, Relaxed);
    }
}

/// An integer. The setting's name states the unit, the table states the range.
#[derive(Debug, Default)]
pub struct Int(AtomicI64);

impl Int {
    /// Returns the number.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Returns the number as a size; a negative one is 0.
    #[inline]
    pub fn get_usize(&self) -> usize {
        usize::try_from(self.get().max(0)).unwrap_or(usize::MAX)
    }
}

impl Cell for Int {
    fn load(&self) -> Value {
        Value::Number(i128::from(self.get()))
    }

    fn store(&self, value: &Value) {
        self.0.store(i64::try_from(value.number()).unwrap_or_default(), Relaxed);
    }
}

/// A number of bytes.
#[derive(Debug, Default)]
pub struct Bytes(AtomicU64);

impl Bytes {
    /// Returns the number of bytes.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Returns the number of bytes, limited to the address space.
    #[inline]
    pub fn get_usize(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }
}

impl Cell for Bytes {
    fn load(&self) -> Value {
        Value::Number(i128::from(self.get()))
    }

    fn store(&self, value: &Value) {
        self.0.store(u64::try_from(value.number()).unwrap_or_default(), Relaxed);
    }
}

/// A number of bytes, or a percentage of `maxmemory`.
#[derive(Debug, Default)]
pub struct BytesOrPercent(AtomicI64);

impl BytesOrPercent {
    /// Returns the limit in bytes for this value of `maxmemory`. 0 means no limit, and so does a percentage of no
    /// limit.
    pub fn bytes(&self, maxmemory: u64) -> u64 {
        match self.0.load(Relaxed) {
            percent @ ..0 => {
                u64::try_from(u128::from(maxmemory) * u128::from(percent.unsigned_abs()) / 100).unwrap_or(u64::MAX)
            }
            bytes => bytes.unsigned_abs(),
        }
    }
}

impl Cell for BytesOrPercent {
    fn load(&self) -> Value {
        Value::Number(i128::from(self.0.load(Relaxed)))
    }

    fn store(&self, value: &Value) {
        self.0.store(i64::try_from(value.number()).unwrap_or_default(), Relaxed);
    }
}

/// A setting that is one of a few words, as an enum.
#[derive(Debug)]
pub struct Choice<E> {
    index: AtomicU8,
    choices: PhantomData<E>,
}

/// The words of a [`Choice`], in the order in which Redis's error message lists them.
pub trait Choices: Copy + Sync + 'static {
    /// The variants with their words.
    const ALL: &'static [(&'static str, Self)];
}

impl<E: Choices> Choice<E> {
    /// Returns the chosen variant.
    #[inline]
    pub fn get(&self) -> E {
        let index = usize::from(self.index.load(Relaxed));
        // Only the kind's parser makes indexes, so this one is in range; the first variant always exists.
        E::ALL.get(index).unwrap_or(&E::ALL[0]).1
    }
}

impl<E> Default for Choice<E> {
    fn default() -> Self {
        Choice { index: AtomicU8::new(0), choices: PhantomData }
    }
}

impl<E: Choices> Cell for Choice<E> {
    fn load(&self) -> Value {
        Value::Number(i128::from(self.index.load(Relaxed)))
    }

    fn store(&self, value: &Value) {
        self.index.store(u8::try_from(value.number()).unwrap_or_default(), Relaxed);
    }
}

/// A string.
#[derive(Debug)]
pub struct Text(RwLock<Arc<str>>);

impl Text {
    /// Returns the string; empty if the setting isn't set.
    #[inline]
    pub fn get(&self) -> Arc<str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the string is empty.
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Default for Text {
    fn default() -> Self {
        Text(RwLock::new(Arc::from("")))
    }
}

impl Cell for Text {
    fn load(&self) -> Value {
        Value::Text(self.get())
    }

    fn store(&self, value: &Value) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.text();
    }
}

/// The limits on unsent replies for one class of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes at which the connection is closed at once; 0 for no limit.
    pub hard_bytes: u64,
    /// Bytes at which the connection is closed after `soft_seconds`; 0 for no limit.
    pub soft_bytes: u64,
    /// Seconds that `soft_bytes` may be exceeded.
    pub soft_seconds: u64,
}

/// The client classes of output buffer limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that send commands and read replies.
    Normal = 0,
    /// Replicas, and clients with MONITOR.
    Replica = 1,
    /// Clients with at least one subscription.
    PubSub = 2,
}

/// `client-output-buffer-limit`: an [`OutputLimit`] for each [`ClientClass`].
#[derive(Debug, Default)]
pub struct OutputLimits([[AtomicU64; 3]; 3]);

impl OutputLimits {
    /// Returns the limit of one class. The three numbers are read one by one, so a simultaneous CONFIG SET can mix old
    /// and new ones.
    pub fn get(&self, class: ClientClass) -> OutputLimit {
        let [hard, soft, seconds] = &self.0[class as usize];
        OutputLimit {
            hard_bytes: hard.load(Relaxed),
            soft_bytes: soft.load(Relaxed),
            soft_seconds: seconds.load(Relaxed),
        }
    }
}

impl Cell for OutputLimits {
    fn load(&self) -> Value {
        Value::Limits([ClientClass::Normal, ClientClass::Replica, ClientClass::PubSub].map(|class| self.get(class)))
    }

    fn store(&self, value: &Value) {
        let Value::Limits(limits) = value else { return };
        for ([hard, soft, seconds], limit) in self.0.iter().zip(limits) {
            hard.store(limit.hard_bytes, Relaxed);
            soft.store(limit.soft_bytes, Relaxed);
            seconds.store(limit.soft_seconds, Relaxed);
        }
    }
}

/// A setting that only CONFIG GET and CONFIG REWRITE read, with any sort of value.
#[derive(Debug)]
pub(super) struct StoredValue(RwLock<Value>);

impl Default for StoredValue {
    fn default() -> Self {
        StoredValue(RwLock::new(Value::Number(0)))
    }
}

impl Cell for StoredValue {
    fn load(&self) -> Value {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, value: &Value) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.clone();
    }
}
