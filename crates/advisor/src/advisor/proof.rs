//! Proof that a client waits for each reply before its next command, and doubts about it.
//!
//! A client may write the commands of a pipeline one by one. If its thread or the server's waits for a core in between, the server answers
//! each command before the next one arrives, and the gaps look like waits. Two facts show such a client: a single command arrived before the
//! client had the reply to the previous one, or threads of the machine wait for a core. Short gaps are then no proof.

use super::Watch;
use crate::findings::{Confidence, Kind, Sighting};
use crate::round_trip::Gap;

impl Watch<'_, '_> {
    /// Notes if the client writes commands one by one without waiting: it sent a command by itself, and did not wait for its reply, or
    /// for the reply before. Earlier findings of this connection, which took its gaps for waits, then lose their proof.
    #[inline]
    pub(super) fn note_unwaited(&mut self, gap: Gap) {
        let before = std::mem::replace(&mut self.last.depth, self.trip.depth);
        let is_single = before.min(self.trip.depth) == 1;
        if matches!(gap, Gap::Overlap) && is_single && !self.last.writes_singly {
            self.last.writes_singly = true;
            self.doubt();
        }
    }

    /// Notes that the client sent commands of a transaction at once. A client sends all its transactions in one way.
    /// Where the commands came one by one, the client wrote them without waiting, and the server answered before the next one came.
    #[inline]
    pub(super) fn note_pipelined_transaction(&mut self) {
        if !self.last.pipelines_transactions {
            self.last.pipelines_transactions = true;
            self.doubt_transactions();
        }
    }

    #[cold]
    fn doubt(&mut self) {
        if std::mem::take(&mut self.last.took_gaps_for_waits) {
            self.advisor.findings().doubt(&self.connection.client, Kind::is_about_waits);
        }
    }

    #[cold]
    fn doubt_transactions(&mut self) {
        if self.last.took_gaps_for_waits {
            self.advisor.findings().doubt(&self.connection.client, |kind| matches!(kind, Kind::TransactionInSlices));
        }
    }

    /// Returns the confidence in a finding, as far as it takes gaps for waits.
    pub(super) fn confidence(&mut self, sighting: &Sighting<'_>) -> Confidence {
        if !sighting.kind.is_about_waits() {
            return sighting.confidence;
        }
        self.last.took_gaps_for_waits = true;
        let is_busy = sighting.now_ns < self.advisor.busy_until_ns;
        match (self.last.writes_singly, sighting.kind) {
            (is_single, Kind::TransactionInSlices) if is_single || is_busy => Confidence::Low,
            (is_single, _) if is_single || is_busy => sighting.confidence.min(Confidence::Medium),
            _ => sighting.confidence,
        }
    }
}
