//! A requested failover (FAILOVER): writes wait until a replica has everything, and the replica takes this server's
//! place.

use super::{Primary, Replication};

/// The stage of a failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverStage {
    /// Clients that hear of maintenance are told before writes wait.
    TellsClients,
    /// A replica has been asked to hold the commands of these clients.
    AsksReplica {
        /// The offset of the stream behind the request.
        offset: u64,
        /// The time in milliseconds of Unix time after which the failover goes on without a move.
        until_ms: u64,
    },
    /// The clients have been told and move to the replica.
    ClientsMove {
        /// The end of the move in milliseconds of Unix time.
        until_ms: u64,
    },
    /// No replica has everything yet.
    AwaitsReplica,
    /// This server follows the replica and asks it to become the primary. The replica had acknowledged at least this
    /// offset, so its history contains it.
    Follows {
        /// The offset.
        acknowledged: u64,
    },
}

/// A failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failover {
    /// The replica that takes this server's place; `None` stands for any replica.
    pub target: Option<Primary>,
    /// The deadline in milliseconds of Unix time. The failover is aborted then, or forced.
    pub deadline_ms: Option<u64>,
    /// True if the failover is completed at the deadline although the replica lacks units.
    pub is_forced: bool,
    /// True if replicas have been asked to hold the commands of clients that move.
    pub has_asked_for_hold: bool,
    /// Its stage.
    pub stage: FailoverStage,
}

impl Failover {
    /// Returns the state's name in INFO.
    #[must_use]
    pub fn state_name(failover: Option<&Failover>) -> &'static str {
        match failover.map(|failover| failover.stage) {
            None => "no-failover",
            Some(
                FailoverStage::TellsClients
                | FailoverStage::AsksReplica { .. }
                | FailoverStage::ClientsMove { .. }
                | FailoverStage::AwaitsReplica,
            ) => "waiting-for-sync",
            Some(FailoverStage::Follows { .. }) => "failover-in-progress",
        }
    }
}

/// The next step of a failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FailoverVerdict {
    /// No step: there is no failover, or it waits for a replica.
    Waits,
    /// This server follows the replica, and asks it to take its place.
    HandsOver {
        /// The replica.
        to: Primary,
        /// The offset that it has acknowledged.
        acknowledged: u64,
    },
    /// The failover is aborted: no replica had everything in time.
    IsGivenUp,
}

/// The request that a link makes to a primary beside its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HandOver {
    /// No request.
    #[default]
    None,
    /// The request to take this server's place.
    Asks,
    /// No request, because the server said that it follows no primary. An earlier answer may be lost. The server has
    /// taken this server's place if it continues at this server's offset. Otherwise it may have restarted, and its data
    /// must not replace this server's.
    Verifies,
}

/// The successive links to the replica that is to take this server's place.
#[derive(Debug, Default)]
pub struct HandOvers {
    follows_none: bool,
}

impl HandOvers {
    /// Returns the request of the next link.
    pub fn next(&mut self, replication: &Replication) -> HandOver {
        let follows_none = std::mem::take(&mut self.follows_none);
        let is_handing_over =
            replication.failover().is_some_and(|failover| matches!(failover.stage, FailoverStage::Follows { .. }));
        match (is_handing_over, follows_none) {
            (false, _) => HandOver::None,
            (true, false) => HandOver::Asks,
            (true, true) => HandOver::Verifies,
        }
    }

    /// Notes that the replica says that it follows no primary.
    pub fn note_follows_none(&mut self) {
        self.follows_none = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use replication::id::HistoryId;

    use super::*;

    /// The answer is trusted for one link; the next link asks again.
    #[test]
    fn a_replica_without_primary_is_verified_before_it_is_asked_again() {
        let replication = Replication::new(HistoryId::new([1; 20]), 1, Arc::default());
        let mut links = HandOvers::default();
        assert_eq!(links.next(&replication), HandOver::None);
        let stage = FailoverStage::AwaitsReplica;
        replication.begin_failover(Failover {
            target: None,
            deadline_ms: None,
            is_forced: false,
            has_asked_for_hold: false,
            stage,
        });
        assert_eq!(links.next(&replication), HandOver::None);
        replication.note_failover_follows(0);
        assert_eq!(links.next(&replication), HandOver::Asks);
        links.note_follows_none();
        let asked: Vec<HandOver> = (0..2).map(|_| links.next(&replication)).collect();
        assert_eq!(asked, [HandOver::Verifies, HandOver::Asks]);
    }
}
