//! The slots that a script may use on a node of a cluster, unless it has the flag `allow-cross-slot-keys`.

use commands::call::KeyRef;

use crate::slots::Slot;
use crate::slots::check::{KeySlots, slot_of};

/// The slots that a script may use: the slots of its declared keys, or of the first keys that it uses if it declares none.
pub(super) enum ScriptSlots {
    /// No key is declared, and none has been used.
    Unknown,
    /// One slot.
    One(Slot),
    /// Several slots in ascending order: `cluster-cross-slot local` has admitted the declared keys.
    Several(Vec<Slot>),
}

impl ScriptSlots {
    /// Returns the slots of these keys.
    pub fn of(keys: &[KeyRef]) -> ScriptSlots {
        match KeySlots::of(keys.iter().map(|key| key.hash)) {
            KeySlots::None => ScriptSlots::Unknown,
            KeySlots::One(slot) => ScriptSlots::One(slot),
            KeySlots::Several => {
                let mut slots: Vec<Slot> = keys.iter().map(|key| slot_of(key.hash)).collect();
                slots.sort_unstable();
                slots.dedup();
                ScriptSlots::Several(slots)
            }
        }
    }

    /// Returns true if a command of the script may have these keys.
    pub fn admit(&mut self, keys: &[KeyRef]) -> bool {
        let mut used = keys.iter().map(|key| slot_of(key.hash));
        match self {
            ScriptSlots::Unknown => {
                *self = ScriptSlots::of(keys);
                true
            }
            ScriptSlots::One(slot) => used.all(|used| used == *slot),
            ScriptSlots::Several(slots) => used.all(|used| slots.binary_search(&used).is_ok()),
        }
    }
}
