//! Holds of the slots that another node takes over: commands that would change their keys wait, and all others go on.

use cluster::SlotSet;
use journal::order::Position;

use super::Engine;
use crate::inbox::Message;

impl Engine {
    /// Holds these slots. Returns the last unit that may have changed one of their keys, except for expiry and eviction. The caller is
    /// outside of the gate.
    #[must_use]
    pub fn hold_slots(&self, slots: &SlotSet) -> Position {
        // Commands that run after the gate was closed have seen the hold.
        let _alone = self.keyspace.gate().close();
        self.migrations.hold_slots(slots);
        self.journal.position()
    }

    /// Ends the hold of these slots, and has the threads continue the commands that waited.
    pub fn let_slots_go(&self, slots: &SlotSet) {
        self.migrations.let_slots_go(slots);
        self.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
    }
}
