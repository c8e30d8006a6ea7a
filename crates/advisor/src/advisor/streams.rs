//! XREAD and XREADGROUP, which wait for new entries only with BLOCK.

use resp::request::Args;

use super::Watch;
use crate::trip::Trip;

/// A blocking command that took longer has waited.
const WAITED_NS_MIN: u64 = 2_000_000;

/// True for XREAD and XREADGROUP.
fn reads_stream(command: &Args<'_>) -> bool {
    command.get(0).eq_ignore_ascii_case(b"XREADGROUP") || command.get(0).eq_ignore_ascii_case(b"XREAD")
}

/// Returns the index of the first key behind the word STREAMS; 0 without one.
pub(super) fn first_key(trip: &Trip<'_>) -> u8 {
    let command = &trip.command;
    let word = (1..command.len()).find(|index| command.get(*index).eq_ignore_ascii_case(b"STREAMS"));
    let key = word.map(|word| word + 1).filter(|key| *key < command.len());
    key.and_then(|key| u8::try_from(key).ok()).unwrap_or(0)
}

impl Watch<'_, '_> {
    /// True if the command takes one entry of a stream, and did not wait for it.
    pub(super) fn takes_one(&self) -> bool {
        let command = &self.trip.command;
        let count = (1..command.len()).find(|index| command.get(*index).eq_ignore_ascii_case(b"COUNT"));
        let waited = self.trip.replied_ns.saturating_sub(self.trip.arrived_ns) > WAITED_NS_MIN;
        reads_stream(command) && !waited && count.is_some_and(|index| command.get(index + 1) == b"1")
    }

    /// True if the command asks a stream for new entries and does not wait for them. An entry that the group has delivered before, and is not
    /// acknowledged, needs no wait.
    pub(super) fn asks_for_new(&self) -> bool {
        let command = &self.trip.command;
        let waits = (1..command.len()).any(|index| command.get(index).eq_ignore_ascii_case(b"BLOCK"));
        let is_group = command.get(0).eq_ignore_ascii_case(b"XREADGROUP");
        reads_stream(command) && !waits && (!is_group || command.get(command.len() - 1) == b">")
    }
}
