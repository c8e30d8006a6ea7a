//! The part of a failover before writes wait: clients that hear of maintenance move to the replica that is to take over.

use resp::num::parse_i64;

use super::failover::{Failover, FailoverStage};
use super::peer::SentSnapshot;
use super::serving::Serving;
use super::{Primary, Replication};

/// Longest wait until the replica has read the request to hold commands.
const ASK_MS: u64 = 500;
/// Time for which clients move while this server goes on to serve. Commands at the replica wait for this time and for
/// the promotion.
const MOVE_MS: u64 = 400;
/// Longest additional time while clients still send commands here.
const MOVE_MORE_MS: u64 = 1600;
/// Longest time for which the replica holds commands. The promotion ends the hold.
const HOLD_MS: u64 = 5000;

/// The beginning of the record that asks a replica to hold commands. The number of milliseconds follows.
const HOLD_RECORD: &[u8] = b"MAINTENANCE HOLD ";

/// The next step of a move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveStep {
    /// No step: there is no move, or it waits.
    Waits,
    /// Asks the replica to hold the commands of clients that hear of maintenance.
    AsksReplica(Primary),
    /// Tells clients the replica's address.
    TellsClients(Primary),
    /// Makes writes wait. The failover goes on as one without a move.
    PausesWrites,
}

impl<S: SentSnapshot, L> Serving<S, L> {
    /// Returns the next step of a failover that clients are told of. `listeners` is the number of connections that hear
    /// of maintenance, `is_used` tells if one of them has sent a command just now, and `now_ms` is Unix time.
    #[must_use]
    pub fn judge_move(
        &self,
        replication: &Replication,
        listeners: usize,
        is_used: impl Fn() -> bool,
        now_ms: u64,
    ) -> MoveStep {
        let Some(failover) = replication.failover() else { return MoveStep::Waits };
        let target = self.replica_that_holds(&failover);
        match (failover.stage, target) {
            (FailoverStage::AwaitsReplica | FailoverStage::Follows { .. }, _) => MoveStep::Waits,
            _ if listeners == 0 || failover.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) => {
                MoveStep::PausesWrites
            }
            // Another server would answer errors to the clients.
            (FailoverStage::TellsClients | FailoverStage::AsksReplica { .. }, None) => MoveStep::PausesWrites,
            (FailoverStage::TellsClients, Some((target, _))) => MoveStep::AsksReplica(target),
            (FailoverStage::AsksReplica { offset, .. }, Some((target, acknowledged))) if acknowledged >= offset => {
                MoveStep::TellsClients(target)
            }
            (FailoverStage::AsksReplica { until_ms, .. }, _) if now_ms < until_ms => MoveStep::Waits,
            (FailoverStage::ClientsMove { until_ms }, _)
                if now_ms < until_ms || now_ms < until_ms + MOVE_MORE_MS && is_used() =>
            {
                MoveStep::Waits
            }
            (FailoverStage::AsksReplica { .. } | FailoverStage::ClientsMove { .. }, _) => MoveStep::PausesWrites,
        }
    }

    /// Returns the replica that is to take over and can hold commands, and its acknowledged offset. Without a named
    /// target, it is the replica with most data.
    fn replica_that_holds(&self, failover: &Failover) -> Option<(Primary, u64)> {
        let is_meant = |target: &Primary| failover.target.as_ref().is_none_or(|meant| meant == target);
        let online =
            self.all.iter().map(|served| &served.peer).filter(|peer| peer.is_online() && peer.holds_commands());
        let places = online.map(|peer| {
            let (host, port) = peer.place();
            (Primary { host, port }, peer.acknowledged())
        });
        places.filter(|(target, _)| is_meant(target)).max_by_key(|(_, acknowledged)| *acknowledged)
    }
}

impl Replication {
    /// Asks all replicas to hold the commands of clients that hear of maintenance, because `target` is to take over.
    pub fn ask_for_hold(&self, target: Primary, now_ms: u64) {
        let offset = self.stream.add_request(&hold_command(HOLD_MS));
        self.change_failover(|failover| {
            failover.target = Some(target);
            failover.has_asked_for_hold = true;
            failover.stage = FailoverStage::AsksReplica { offset, until_ms: now_ms + ASK_MS };
        });
    }

    /// Notes that clients have been told of the move.
    pub fn note_clients_move(&self, now_ms: u64) {
        let stage = FailoverStage::ClientsMove { until_ms: now_ms + MOVE_MS };
        self.change_failover(|failover| failover.stage = stage);
    }

    /// Notes that writes wait until a replica has everything.
    pub fn note_writes_wait(&self) {
        self.change_failover(|failover| failover.stage = FailoverStage::AwaitsReplica);
    }
}

/// Returns the command for the stream that asks a replica to hold the commands of clients that listen, for this time;
/// 0 ends the hold. Other servers ignore the argument of a PING.
#[must_use]
pub fn hold_command(for_ms: u64) -> Vec<u8> {
    let record = [HOLD_RECORD, for_ms.to_string().as_bytes()].concat();
    let mut command = format!("*2\r\n$4\r\nPING\r\n${}\r\n", record.len()).into_bytes();
    command.extend_from_slice(&record);
    command.extend_from_slice(b"\r\n");
    command
}

/// Returns the time in milliseconds, if this is a record of [`hold_command`].
pub(crate) fn hold_time(record: &[u8]) -> Option<u64> {
    record.strip_prefix(HOLD_RECORD).and_then(parse_i64).and_then(|for_ms| u64::try_from(for_ms).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_hold_is_read_back() {
        let command = hold_command(300);
        assert_eq!(command, b"*2\r\n$4\r\nPING\r\n$20\r\nMAINTENANCE HOLD 300\r\n");
        assert_eq!(hold_time(b"MAINTENANCE HOLD 300"), Some(300));
        assert_eq!([&b"MAINTENANCE HOLD "[..], b"MAINTENANCE HOLD -1", b"PIPELINE"].map(hold_time), [None; 3]);
    }
}
