//! The known shapes: command and key pattern as text, by their hash. Their number is bounded: a shape that was not used
//! for long is evicted (clock algorithm).

use crate::hash::{self, HashedMap};

/// Upper bound for the bytes of a shape, including its texts and its index entry.
pub const SHAPE_BYTES_MAX: usize = 328;
/// Longest name of a command in reports, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// A command and a key pattern.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The hash by which trips are compared. It depends on the words that this thread has learned.
    pub hash: u64,
    /// The hash of the texts, equal in all threads.
    pub identity: u64,
    /// The command's name, in capitals.
    pub command: Box<str>,
    /// The key's pattern; empty for a command without a key.
    pub pattern: Box<str>,
    /// The hash of the command and of the key's structure, without most words.
    frame: u32,
    /// True if the shape was used since the clock hand passed.
    is_used: bool,
}

/// Shapes by their hash, in bounded memory.
#[derive(Clone, Debug)]
pub struct Shapes {
    index: HashedMap<u32>,
    slots: Vec<Shape>,
    slots_max: usize,
    /// The slot to evict next, unless its shape was used since the last pass.
    hand: usize,
    /// Number of evicted shapes.
    dropped: u64,
}

impl Shapes {
    /// Returns an empty table that takes at most `memory_bytes` bytes.
    pub fn new(memory_bytes: usize) -> Shapes {
        let slots_max = (memory_bytes / SHAPE_BYTES_MAX).max(16);
        Shapes { index: HashedMap::default(), slots: Vec::new(), slots_max, hand: 0, dropped: 0 }
    }

    /// Returns the shape with this hash.
    pub fn get(&self, hash: u64) -> Option<&Shape> {
        self.slots.get(*self.index.get(&hash)? as usize)
    }

    /// Marks a shape as used. Returns its frame, or None if the shape isn't known.
    #[inline]
    pub fn touch(&mut self, hash: u64) -> Option<u32> {
        let slot = *self.index.get(&hash)?;
        let shape = self.slots.get_mut(slot as usize)?;
        shape.is_used = true;
        Some(shape.frame)
    }

    /// Adds a shape. Shapes with one frame differ only in words, or in the forms of their holes.
    pub fn insert(&mut self, hash: u64, frame: u32, command: &[u8], pattern: String) {
        let command = name(command);
        let identity = hash::mix(hash::bytes(0, command.as_bytes()), hash::bytes(1, pattern.as_bytes()));
        let shape = Shape { hash, identity, command: command.into(), pattern: pattern.into(), frame, is_used: true };
        let slot = self.free_slot();
        match self.slots.get_mut(slot) {
            Some(place) => *place = shape,
            None => self.slots.push(shape),
        }
        self.index.insert(hash, slot as u32);
    }

    /// Returns a slot for one more shape: a new one, or the slot of a shape that wasn't used since the hand last
    /// passed.
    fn free_slot(&mut self) -> usize {
        if self.slots.len() < self.slots_max {
            return self.slots.len();
        }
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            let shape = &mut self.slots[self.hand];
            if !std::mem::take(&mut shape.is_used) {
                self.index.remove(&shape.hash);
                self.dropped += 1;
                return self.hand;
            }
        }
    }

    /// Number of shapes.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of shapes evicted since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A command's name as reports show it.
fn name(command: &[u8]) -> String {
    let shown = command.get(..NAME_BYTES_MAX).unwrap_or(command);
    shown.escape_ascii().to_string().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_unused_for_long_are_evicted() {
        let mut shapes = Shapes::new(0);
        for hash in 0..16 {
            shapes.insert(hash, hash as u32, b"get", format!("a:{hash}"));
        }
        // The first round of the hand clears all marks.
        shapes.insert(16, 16, b"get", String::new());
        assert_eq!(shapes.touch(5), Some(5));
        for hash in 17..30 {
            shapes.insert(hash, hash as u32, b"get", String::new());
        }
        assert_eq!((shapes.len(), shapes.dropped()), (16, 14));
        assert!(shapes.touch(5).is_some() && shapes.touch(6).is_none());
        assert_eq!(shapes.get(5).map(|shape| &*shape.pattern), Some("a:5"));
        assert!(shapes.index.len() <= 16);
    }

    #[test]
    fn names_are_shown_in_capitals() {
        assert_eq!(name(b"zScore"), "ZSCORE");
        assert_eq!(name(b"\x00"), "\\X00");
        assert_eq!(name(&[b'x'; 1000]).len(), NAME_BYTES_MAX);
    }
}
