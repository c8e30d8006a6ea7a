//! The facts about a node's data that elections in a cluster depend on: its offset, and the age of its data.
//!
//! The bus decides on a role, and another thread carries the decision out. Until then, the link to the primary is one to an earlier
//! primary, and proves nothing about the data.

use std::time::Duration;

use cluster::Facts;

use super::{LinkFigures, LinkState, Replication};

/// The moment of a look, and the state of the node outside of its replication.
#[derive(Clone, Copy, Debug)]
pub struct FactsMoment {
    /// The time on a steady clock.
    pub now: Duration,
    /// The Unix time in seconds.
    pub unix_s: u64,
    /// The number of changes of the role that have been carried out. The caller reads it before it calls
    /// [`FactsGatherer::gather`], so that a link that is looked at later belongs to this primary or to a later one.
    pub carried_out: u64,
    /// True while the data are being loaded.
    pub loading: bool,
    /// True if all workers hang.
    pub stalled: bool,
}

/// Gathers the facts.
#[derive(Clone, Debug, Default)]
pub struct FactsGatherer {
    /// True if the data belong to the shard of the present primary.
    has_own_data: bool,
    /// The last time at which the link to the primary was up.
    up: Option<Duration>,
    /// The number of times that the link had come up at the last look. It tells of a link that was up between two looks only.
    ups: u64,
    /// The version of the replication setting at the last look.
    version: u64,
    /// The number of changes of the role that the bus has decided.
    decided: u64,
    /// True while the node may win an election, or is a primary.
    keeps: bool,
}

impl FactsGatherer {
    /// Notes that the node shall follow a primary. The data stay valid within a shard.
    pub fn note_follows(&mut self, other_data: bool) {
        self.decided += 1;
        if other_data {
            (self.has_own_data, self.up) = (false, None);
        }
    }

    /// Notes that the node shall follow no primary.
    pub fn note_leads(&mut self) {
        self.decided += 1;
    }

    /// Keeps the data while the node may win an election, or is a primary (`keeps`). Call it after each input of the bus. Returns true if the
    /// node has asked for votes although a snapshot replaces its data: the bus needs new facts at once then.
    #[must_use]
    pub fn keep_data(&mut self, replication: &Replication, keeps: bool) -> bool {
        if std::mem::replace(&mut self.keeps, keeps) == keeps {
            return false;
        }
        !replication.keep_data(keeps) && keeps && replication.primary().0.is_some()
    }

    /// Returns true if the link to the primary is up, or was up since the last look.
    fn look_at_link(&mut self, link: &LinkFigures, version: u64) -> bool {
        if version != self.version {
            (self.version, self.ups) = (version, 0);
        }
        let was_up = link.state == LinkState::Up || link.ups != self.ups;
        self.ups = link.ups;
        was_up
    }

    /// Gathers the facts.
    pub fn gather(&mut self, replication: &Replication, moment: &FactsMoment) -> Facts {
        let (primary, version) = replication.primary();
        let follows = primary.is_some();
        let link = replication.link();
        if follows && moment.carried_out == self.decided && self.look_at_link(&link, version) {
            (self.has_own_data, self.up) = (true, Some(moment.now));
        }
        // A snapshot is replacing the data, or its transfer has broken off. A replica without data must not win an election.
        if follows && replication.known_part().is_none() {
            (self.has_own_data, self.up) = (false, None);
        }
        let silence = Duration::from_secs(moment.unix_s.saturating_sub(link.heard_s));
        let data_age = match self.up {
            Some(_) if link.state == LinkState::Up => Some(silence),
            Some(up) => Some(moment.now.saturating_sub(up)),
            None => None,
        };
        let offset = replication.offset();
        Facts {
            // An offset of 0 means that there are no data.
            offset: if follows { if self.has_own_data { offset.max(1) } else { 0 } } else { offset },
            loading: moment.loading,
            data_age_ms: data_age.filter(|_| follows).map(|age| age.as_millis() as u64),
            incomplete: replication.lacks_data(),
            stalled: moment.stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use replication::id::{HistoryId, HistoryPoint};

    use super::super::Primary;
    use super::*;
    use crate::journal::Journal;

    fn moment(now_s: u64, carried_out: u64) -> FactsMoment {
        let now = Duration::from_secs(now_s);
        FactsMoment { now, unix_s: 1000 + now_s, carried_out, loading: false, stalled: false }
    }

    /// A link that is up belongs to the earlier primary until the decision is carried out. A snapshot that has begun to replace the data
    /// leaves none.
    #[test]
    fn data_count_while_the_link_proves_them() {
        let id = HistoryId::new([1; 20]);
        let replication = Replication::new(id, 1, std::sync::Arc::default());
        let journal = Journal::new(1, std::sync::Arc::default());
        let mut gatherer = FactsGatherer::default();
        let look = |gatherer: &mut FactsGatherer, now_s, carried_out| {
            let facts = gatherer.gather(&replication, &moment(now_s, carried_out));
            (facts.offset, facts.data_age_ms)
        };
        gatherer.note_follows(true);
        assert_eq!(look(&mut gatherer, 1, 0), (0, None));
        replication.follow(&journal, Some(Primary { host: "10.0.0.1".into(), port: 1 }), true);
        let version = replication.primary().1;
        replication.begin_history(version, HistoryPoint { id, offset: 50, database: 0 });
        replication.note_link(version, true, |link| {
            (link.state, link.ups, link.heard_s) = (LinkState::Up, 1, 1002);
        });
        assert_eq!(look(&mut gatherer, 2, 0), (0, None), "the decision is not carried out");
        assert_eq!(look(&mut gatherer, 3, 1), (50, Some(1000)));
        replication.note_link(version, true, |link| link.state = LinkState::Down);
        assert_eq!(look(&mut gatherer, 7, 1), (50, Some(4000)));
        // A node that has asked for votes keeps its data until its election is over.
        assert!(!gatherer.keep_data(&replication, true));
        assert!(!replication.lose_history());
        assert_eq!(look(&mut gatherer, 8, 1), (50, Some(5000)));
        assert!(!gatherer.keep_data(&replication, false));
        assert!(replication.lose_history());
        assert_eq!(look(&mut gatherer, 9, 1), (0, None));
        // A node that asks for votes when it is too late learns it at once.
        assert!(gatherer.keep_data(&replication, true));
        assert!(!gatherer.keep_data(&replication, true));
    }
}
