//! The check of a window's commands during planning: one bit for each slot.

use cluster::{SLOTS, SlotView};
use store::hash::KeyHash;

/// One bit for each slot.
type Bits = [u64; SLOTS / 64];

/// The slots whose commands need no further check.
pub(crate) struct SlotGuard<'v> {
    /// Slots for commands that only read.
    of_reads: &'v Bits,
    /// Slots for all other commands.
    of_others: &'v Bits,
    /// Slots for the next commands.
    of_these: &'v Bits,
    /// Keys may be in several slots.
    crosses: bool,
}

impl<'v> SlotGuard<'v> {
    /// Creates the guard for a view. `reads_replica`: the connection is in READONLY mode. `crosses`: the keys of a command may
    /// be in several slots.
    pub fn new(view: &'v SlotView, reads_replica: bool, crosses: bool) -> SlotGuard<'v> {
        let of_others = view.served().words();
        let of_reads = if reads_replica && view.is_up() && !view.is_primary() {
            view.served_as_replica.words()
        } else {
            of_others
        };
        SlotGuard { of_reads, of_others, of_these: of_others, crosses }
    }

    /// Prepares for commands that only read, or for others.
    #[inline(always)]
    pub fn turn_to(&mut self, only_read: bool) {
        self.of_these = if only_read { self.of_reads } else { self.of_others };
    }

    /// Returns true if a command with these keys runs here: all keys have one slot, which is this node's and not open.
    #[inline(always)]
    pub fn passes(&self, mut hashes: impl Iterator<Item = KeyHash>) -> bool {
        let Some(first) = hashes.next() else { return true };
        self.serves(first) && hashes.all(|hash| hash.slot() == first.slot())
    }

    /// Returns true if a command with these keys may use several slots, and all of them are this node's and not open.
    pub fn passes_across(&self, mut hashes: impl Iterator<Item = KeyHash>) -> bool {
        self.crosses && hashes.all(|hash| self.serves(hash))
    }

    /// Returns true if commands with this key alone run here.
    #[inline(always)]
    pub fn serves(&self, hash: KeyHash) -> bool {
        let slot = usize::from(hash.slot());
        self.of_these[slot / 64] >> (slot % 64) & 1 != 0
    }
}
