//! A failover that was asked for (FAILOVER): writes wait, a replica gets all that there is, and takes this server's place.

use super::{Primary, Replication};

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverStage {
    /// A replica has yet to have everything.
    AwaitsReplica,
    /// This server follows the replica, which is asked to take its place.
    Follows,
}

/// A failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failover {
    /// The replica that is to take this server's place; any, if none is named.
    pub target: Option<Primary>,
    /// When it is given up, in milliseconds of Unix time, or done although the replica lacks something.
    pub deadline_ms: Option<u64>,
    /// Whether it is done then.
    pub is_forced: bool,
    /// How far it is.
    pub stage: FailoverStage,
}

impl Failover {
    /// As INFO says it.
    #[must_use]
    pub fn state_name(failover: Option<&Failover>) -> &'static str {
        match failover.map(|failover| failover.stage) {
            None => "no-failover",
            Some(FailoverStage::AwaitsReplica) => "waiting-for-sync",
            Some(FailoverStage::Follows) => "failover-in-progress",
        }
    }
}

/// What is to be done about a failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FailoverVerdict {
    /// Nothing: there is none, or it waits for a replica.
    Waits,
    /// This server is to follow the replica, and to ask it to take its place.
    HandsOver(Primary),
    /// It is given up: no replica has had everything in time.
    IsGivenUp,
}

/// What a link to a primary asks of it beside its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HandOver {
    /// Nothing.
    #[default]
    None,
    /// To take this server's place.
    Asks,
    /// Nothing, for it says that it follows none: an earlier answer may be lost. It has taken this server's place if it goes on where this
    /// server is. Else it may have been started anew, and its data are not to replace this server's.
    Verifies,
}

/// The links to the replica that is to take this server's place, one after the other.
#[derive(Debug, Default)]
pub struct HandOvers {
    follows_none: bool,
}

impl HandOvers {
    /// What the next link asks.
    pub fn next(&mut self, replication: &Replication) -> HandOver {
        let follows_none = std::mem::take(&mut self.follows_none);
        let is_handing_over = replication.failover().is_some_and(|failover| failover.stage == FailoverStage::Follows);
        match (is_handing_over, follows_none) {
            (false, _) => HandOver::None,
            (true, false) => HandOver::Asks,
            (true, true) => HandOver::Verifies,
        }
    }

    /// The replica that was asked says that it follows none.
    pub fn note_follows_none(&mut self) {
        self.follows_none = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use replication::id::HistoryId;

    use super::*;

    /// An answer that follows none is trusted for one link: the next one asks again.
    #[test]
    fn a_replica_that_follows_none_is_looked_at_before_it_is_asked_again() {
        let replication = Replication::new(HistoryId::new([1; 20]), 1, Arc::default());
        let mut links = HandOvers::default();
        assert_eq!(links.next(&replication), HandOver::None);
        let stage = FailoverStage::AwaitsReplica;
        replication.begin_failover(Failover { target: None, deadline_ms: None, is_forced: false, stage });
        assert_eq!(links.next(&replication), HandOver::None);
        replication.note_failover_follows();
        assert_eq!(links.next(&replication), HandOver::Asks);
        links.note_follows_none();
        let asked: Vec<HandOver> = (0..2).map(|_| links.next(&replication)).collect();
        assert_eq!(asked, [HandOver::Verifies, HandOver::Asks]);
    }
}
