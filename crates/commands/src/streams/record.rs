//! Records of deliveries. XREADGROUP, XCLAIM and XAUTOCLAIM depend on the clock and on new entries, so the journal
//! records their results.

use store::types::stream::{Group, StreamId};

use super::IdText;

use crate::effects::Effects;

/// The consumer that entries are delivered to.
#[derive(Clone, Copy)]
pub(super) struct Owner<'o> {
    pub database: usize,
    pub key: &'o [u8],
    pub group: &'o [u8],
    pub consumer: &'o [u8],
}

impl Owner<'_> {
    /// Records entries that became pending for the consumer. Those with equal times and numbers of deliveries share a
    /// command.
    pub fn record_deliveries(&self, effects: &mut Effects, group: &Group, ids: &[StreamId]) {
        if !effects.recording {
            return;
        }
        let pending = |id: &StreamId| group.pending().get(id).map(|p| (p.delivered_ms, p.deliveries));
        for run in ids.chunk_by(|a, b| pending(a) == pending(b)) {
            let Some((at_ms, deliveries)) = run.first().and_then(pending) else { continue };
            let (at_ms, deliveries) = (at_ms.to_string(), deliveries.to_string());
            let texts: Vec<IdText> = run.iter().map(|id| IdText::new(*id)).collect();
            let mut words = vec![&b"XCLAIM"[..], self.key, self.group, self.consumer, b"0"];
            words.extend(texts.iter().map(IdText::as_bytes));
            words.extend([&b"TIME"[..], at_ms.as_bytes(), b"RETRYCOUNT", deliveries.as_bytes(), b"FORCE", b"JUSTID"]);
            effects.record_as(self.database, words.into_iter());
        }
    }

    /// Records the group's last read entry.
    pub fn record_progress(&self, effects: &mut Effects, group: &Group) {
        if !effects.recording {
            return;
        }
        let last = IdText::new(group.last_id);
        let read = group.entries_read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
        let words = [&b"XGROUP"[..], b"SETID", self.key, self.group, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
        effects.record_as(self.database, words.into_iter());
    }

    /// Records claimed entries, a consumer that may be new, and entries that are no longer pending because they were
    /// deleted.
    pub fn record_claims(
        &self,
        effects: &mut Effects,
        group: &Group,
        is_new: bool,
        claimed: &[StreamId],
        gone: &[StreamId],
    ) {
        if !effects.recording {
            return;
        }
        if is_new {
            let words = [&b"XGROUP"[..], b"CREATECONSUMER", self.key, self.group, self.consumer];
            effects.record_as(self.database, words.into_iter());
        }
        self.record_deliveries(effects, group, claimed);
        if !gone.is_empty() {
            let texts: Vec<IdText> = gone.iter().map(|id| IdText::new(*id)).collect();
            let words = [&b"XACK"[..], self.key, self.group].into_iter().chain(texts.iter().map(IdText::as_bytes));
            effects.record_as(self.database, words.collect::<Vec<_>>().into_iter());
        }
    }
}
