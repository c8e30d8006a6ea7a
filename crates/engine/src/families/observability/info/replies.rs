//! The section about unread replies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Gathered, InfoText};
use crate::clients::client::Client;
use crate::replies::NoRoom;

pub(super) fn replies(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let (figures, settings) = (&engine.replies, &engine.settings);
    text.field("reply_waiting_clients", figures.waiting.get());
    text.bytes("reply_memory", figures.memory.get());
    text.bytes("reply_memory_share", figures.share(settings).memory);
    text.field("reply_spilling_clients", figures.spilling.get());
    text.bytes("reply_spill", figures.spill_bytes.get());
    // CLIENT LIST can't show it per connection, because some client libraries refuse unknown fields.
    if let Some((bytes, client)) = largest_spill(gathered.clients()) {
        text.field("reply_spill_largest", format!("id={},addr={},bytes={bytes}", client.id, client.addr));
    }
    text.field("reply_held_clients", figures.held.get());
    text.field("reply_holds", figures.holds.get());
    text.field("reply_spilled_bytes", figures.spilled.get());
    text.field("reply_read_back_bytes", figures.read_back.get());
    text.field("reply_spill_failures", figures.spill_failures.get());
    for cause in NoRoom::ALL {
        text.parts(&["reply_stall_closes_", cause.name(), ":"]);
        text.last(figures.stall_closes[cause as usize].get());
    }
    text.field("reply_unauthenticated_closes", figures.unauthenticated_closes.get());
    text.field("monitor_lines_dropped", figures.monitor_drops.get());
}

/// Returns the connection with the most spilled replies, if there is one, and their size.
fn largest_spill(clients: &[Arc<Client>]) -> Option<(u64, &Arc<Client>)> {
    let spills = clients.iter().map(|client| (client.spill_bytes.load(Ordering::Relaxed), client));
    spills.filter(|(bytes, _)| *bytes > 0).max_by_key(|(bytes, _)| *bytes)
}
