//! The values that have their own allocation.

use std::ops::Range;

use crate::compact::{Compacted, Mover};
use crate::prefetch::Ahead;
use crate::shared_bytes::Long;
use crate::snapshot::pieces::WHOLE_ELEMENTS_MAX;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::types::hash::Hash;
use crate::types::list::List;
use crate::types::set::Set;
use crate::types::stream::Stream;
use crate::types::suggestions::Suggestions;
use crate::types::timed_hash::TimedHash;
use crate::types::zset::ZSet;
use crate::unaligned_box::TightBox;

/// A value of any type, except for strings that an entry holds itself: a tag, and a pointer without alignment.
pub enum Value {
    /// A long string.
    Str(TightBox<Long>),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A hash.
    Hash(Hash),
    /// A sorted set.
    ZSet(ZSet),
    /// A stream.
    Stream(TightBox<Stream>),
    /// A hash with expiring fields.
    TimedHash(TimedHash),
    /// Texts with scores, for autocompletion.
    Suggestions(TightBox<Suggestions>),
}

/// The type of a key, as TYPE and SCAN's TYPE option name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A string of any form.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    ZSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
    /// Texts with scores, for autocompletion.
    Suggestions,
}

impl Type {
    /// The name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
            Type::ZSet => "zset",
            Type::Hash => "hash",
            Type::Stream => "stream",
            // RediSearch's module type.
            Type::Suggestions => "trietype0",
        }
    }
}

/// A type of value that handlers request from a key.
pub trait Object: Sized {
    /// Returns the value as this type, if it is one.
    fn of(value: &Value) -> Option<&Self>;
    /// Returns the value as this type for changes, if it is one.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// Returns an empty value of this type.
    fn empty() -> Value;
}

impl Value {
    /// Returns a long string.
    #[must_use]
    pub fn long(long: Long) -> Value {
        Value::Str(TightBox::new(long))
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> Type {
        match self {
            Value::Str(_) => Type::String,
            Value::List(_) => Type::List,
            Value::Set(_) => Type::Set,
            Value::Hash(_) | Value::TimedHash(_) => Type::Hash,
            Value::ZSet(_) => Type::ZSet,
            Value::Stream(_) => Type::Stream,
            Value::Suggestions(_) => Type::Suggestions,
        }
    }

    /// The encoding's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::Str(_) => "raw",
            Value::List(list) => list.encoding(),
            Value::Set(set) => set.encoding(),
            Value::Hash(hash) => hash.encoding(),
            Value::ZSet(zset) => zset.encoding(),
            Value::Stream(stream) => stream.encoding(),
            Value::TimedHash(hash) => hash.encoding(),
            Value::Suggestions(suggestions) => suggestions.encoding(),
        }
    }

    /// Estimates the number of allocations that the value would have in Redis, where lazy freeing depends on it.
    #[must_use]
    pub fn parts(&self) -> usize {
        let if_large = |encoding: &str, len: usize| if matches!(encoding, "hashtable" | "skiplist") { len } else { 1 };
        match self {
            Value::Str(_) => 1,
            Value::List(list) => list.node_count(),
            Value::Set(set) => if_large(set.encoding(), set.len()),
            Value::Hash(hash) => if_large(hash.encoding(), hash.len()),
            Value::ZSet(zset) => if_large(zset.encoding(), zset.len()),
            Value::Stream(stream) => stream.entries.block_count(),
            Value::TimedHash(hash) => if_large(hash.encoding(), hash.len()),
            Value::Suggestions(suggestions) => suggestions.len(),
        }
    }

    /// Estimates the bytes of the memory behind the value.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Value::Str(bytes) => bytes.memory_bytes(),
            Value::List(list) => list.memory_bytes(),
            Value::Set(set) => set.memory_bytes(),
            Value::Hash(hash) => hash.memory_bytes(),
            Value::ZSet(zset) => zset.memory_bytes(),
            Value::Stream(stream) => stream.memory_bytes(),
            Value::TimedHash(hash) => hash.memory_bytes(),
            Value::Suggestions(suggestions) => suggestions.memory_bytes(),
        }
    }

    /// Moves the blocks that `mover` selects, unless the value is too large for one step.
    pub fn compact(&mut self, mover: &mut Mover<'_>) -> Compacted {
        let elements = match self {
            Value::Set(set) => set.len(),
            Value::Hash(hash) => hash.len(),
            Value::TimedHash(hash) => hash.len(),
            Value::Suggestions(suggestions) => suggestions.len(),
            _ => 0,
        };
        if elements > mover.at_once_max {
            return Compacted::InSteps;
        }
        let mut cursor = self.compact_step(0, mover);
        while cursor != 0 {
            cursor = self.compact_step(cursor, mover);
        }
        Compacted::Wholly
    }

    /// Runs one step of the move from a cursor on. Returns the next cursor; 0 is the beginning and the end.
    pub fn compact_step(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        match self {
            Value::Set(set) => return set.compact(cursor, mover),
            Value::Hash(hash) => return hash.compact(cursor, mover),
            Value::TimedHash(hash) => return hash.compact(cursor, mover),
            Value::Suggestions(suggestions) => {
                if cursor == 0 {
                    suggestions.compact_box(mover);
                }
                return suggestions.compact(cursor, mover);
            }
            Value::Str(long) => {
                long.compact_box(mover);
                long.compact(mover);
            }
            Value::ZSet(zset) => zset.compact(mover),
            Value::List(list) => list.compact(mover),
            Value::Stream(_) => {}
        }
        0
    }

    /// Returns true if snapshots save it in pieces, because it is large or already partly saved.
    pub(crate) fn is_piecewise(&self) -> bool {
        let is_large = match self {
            Value::Set(set) => set.has_pieces() && set.len() > WHOLE_ELEMENTS_MAX,
            Value::Hash(hash) => hash.has_pieces() && hash.len() > WHOLE_ELEMENTS_MAX,
            Value::TimedHash(hash) => hash.has_pieces() && hash.len() > WHOLE_ELEMENTS_MAX,
            Value::ZSet(zset) => zset.has_pieces() && zset.len() > WHOLE_ELEMENTS_MAX,
            Value::List(list) => list.has_pieces() && list.len() > WHOLE_ELEMENTS_MAX,
            Value::Suggestions(suggestions) => suggestions.len() > WHOLE_ELEMENTS_MAX,
            Value::Str(_) | Value::Stream(_) => false,
        };
        is_large || self.has_walk()
    }

    /// Returns true while a snapshot saves it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        match self {
            Value::Set(set) => set.has_walk(),
            Value::Hash(hash) => hash.has_walk(),
            Value::TimedHash(hash) => hash.has_walk(),
            Value::ZSet(zset) => zset.has_walk(),
            Value::List(list) => list.has_walk(),
            Value::Suggestions(suggestions) => suggestions.has_walk(),
            Value::Str(_) | Value::Stream(_) => false,
        }
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        match self {
            Value::Set(set) => set.set_walk(elements),
            Value::Hash(hash) => hash.set_walk(elements),
            Value::TimedHash(hash) => hash.set_walk(elements),
            Value::ZSet(zset) => zset.set_walk(elements),
            Value::List(list) => list.set_walk(elements),
            Value::Suggestions(suggestions) => suggestions.set_walk(elements),
            Value::Str(_) | Value::Stream(_) => {}
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        match self {
            Value::Set(set) => set.save_piece(budget),
            Value::Hash(hash) => hash.save_piece(budget),
            Value::TimedHash(hash) => hash.save_piece(budget),
            Value::ZSet(zset) => zset.save_piece(budget),
            Value::List(list) => list.save_piece(budget),
            Value::Suggestions(suggestions) => suggestions.save_piece(budget),
            Value::Str(_) | Value::Stream(_) => None,
        }
    }

    /// Prefetches the memory that an operation will read. Returns true if there is more to prefetch, because the value
    /// is in a big form with its own table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match self {
            Value::Str(_) => false,
            Value::List(list) => list.prefetch(ahead),
            Value::Set(set) => set.prefetch(ahead),
            Value::Hash(hash) => hash.prefetch(ahead),
            Value::TimedHash(hash) => hash.prefetch(ahead),
            Value::ZSet(zset) => zset.prefetch(ahead),
            Value::Stream(stream) => {
                stream.prefetch();
                false
            }
            Value::Suggestions(suggestions) => {
                suggestions.prefetch();
                false
            }
        }
    }

    /// Returns the hash with expiring fields. Converts a plain hash to one; returns None for other types.
    pub(crate) fn timed_hash_mut(&mut self) -> Option<&mut TimedHash> {
        if let Value::Hash(hash) = self {
            *self = Value::TimedHash(std::mem::take(hash).into());
        }
        TimedHash::of_mut(self)
    }

    /// Cuts a string to `len` bytes or fills it up with zeros, and returns a part of it for changes; None if the value
    /// is not a string.
    pub(crate) fn string_part_mut(&mut self, len: usize, part: Range<usize>) -> Option<&mut [u8]> {
        let Value::Str(long) = self else { return None };
        Some(long.part_mut(len, part))
    }

    /// Returns a copy that shares no mutable data.
    #[must_use]
    pub fn duplicate(&self) -> Value {
        match self {
            Value::Str(bytes) => Value::Str(bytes.clone()),
            Value::List(list) => Value::List(list.clone()),
            Value::Set(set) => Value::Set(set.clone()),
            Value::Hash(hash) => Value::Hash(hash.clone()),
            Value::ZSet(zset) => Value::ZSet(zset.clone()),
            Value::Stream(stream) => Value::Stream(stream.clone()),
            Value::TimedHash(hash) => Value::TimedHash(hash.clone()),
            Value::Suggestions(suggestions) => Value::Suggestions(suggestions.clone()),
        }
    }
}

/// Implements [`Object`] for Rust types of values.
macro_rules! objects {
    ($($variant:ident),*) => {$(
        impl Object for $variant {
            #[inline]
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$variant(object) = value { Some(object) } else { None }
            }
            #[inline]
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(object) = value { Some(object) } else { None }
            }
            fn empty() -> Value {
                Value::$variant($variant::new())
            }
        }
    )*};
}

objects!(List, Set, Hash, ZSet, TimedHash);

// The entry holds the value between its header and its key: see `tight`.
const _: () = assert!(size_of::<Value>() == 10 && align_of::<Value>() == 1);
