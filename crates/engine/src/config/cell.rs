//! The places where settings live: cells that any thread reads without a lock and CONFIG SET replaces.
//!
//! Every cell stands alone: a reader sees the old or the new value of one setting, never half of it, and no order
//! between two settings is promised. That is why relaxed atomics suffice. Strings are the exception to "no lock":
//! they're behind a short read lock, as they are not read once per command.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// A setting's value without its type: what is parsed, compared, restored and formatted.
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
    /// The number, or 0 for a value of another sort; the table's self test rules the latter out.
    pub(super) fn number(&self) -> i128 {
        match self {
            Value::Number(number) => *number,
            _ => 0,
        }
    }

    /// The text, or an empty one for a value of another sort.
    pub(super) fn text(&self) -> Arc<str> {
        match self {
            Value::Text(text) => text.clone(),
            _ => Arc::from(""),
        }
    }
}

/// What the table needs of a cell: its value out and in, whatever its type.
pub(super) trait Cell: Sync {
    /// The value now.
    fn load(&self) -> Value;
    /// Replaces the value. A value of another sort or range than the cell's is never passed: its kind has checked it.
    fn store(&self, value: &Value);
}

/// A yes/no setting.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// Whether it is set to yes.
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

/// A whole number; its unit is in the setting's name, its range in the table.
#[derive(Debug, Default)]
pub struct Int(AtomicI64);

impl Int {
    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// The number as a size; a negative one is 0.
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
    /// The number of bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The number of bytes, at most what this machine can address.
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
    /// The limit in bytes while `maxmemory` is `maxmemory` bytes; 0 is no limit, and so is a percentage of no limit.
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
    /// The variants with their spelling.
    const ALL: &'static [(&'static str, Self)];
}

impl<E: Choices> Choice<E> {
    /// The variant chosen.
    pub fn get(&self) -> E {
        let index = usize::from(self.index.load(Relaxed));
        // The index is in range, as only the kind's parser makes one; the first is there since an enum has a variant.
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
    /// The string; empty when the setting isn't set.
    pub fn get(&self) -> Arc<str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the string is empty.
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

/// How many bytes of replies may wait for a client of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes at which the connection is closed at once; 0 for no limit.
    pub hard_bytes: u64,
    /// Bytes at which the connection is closed once they've lasted `soft_seconds`; 0 for no limit.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_seconds: u64,
}

/// The classes of clients that output buffer limits tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that send commands and read replies.
    Normal = 0,
    /// Replicas, and clients that watch with MONITOR.
    Replica = 1,
    /// Clients with at least one subscription.
    PubSub = 2,
}

/// `client-output-buffer-limit`: an [`OutputLimit`] for each [`ClientClass`].
#[derive(Debug, Default)]
pub struct OutputLimits([[AtomicU64; 3]; 3]);

impl OutputLimits {
    /// The limit of one class. The three numbers are read one by one: a CONFIG SET in between can mix old and new.
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

/// A setting that nothing reads but CONFIG GET and CONFIG REWRITE: any sort of value.
#[derive(Debug)]
pub(super) struct Shelf(RwLock<Value>);

impl Default for Shelf {
    fn default() -> Self {
        Shelf(RwLock::new(Value::Number(0)))
    }
}

impl Cell for Shelf {
    fn load(&self) -> Value {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, value: &Value) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.clone();
    }
}
