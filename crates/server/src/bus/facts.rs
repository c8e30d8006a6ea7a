//! The state of this server outside of the bus. The machine gets it with each tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::Facts;
use engine::replication::{LinkFigures, LinkState};
use engine::state::Engine;

use crate::heartbeats::Heartbeats;
use crate::time::now_us;

/// Shortest time without a heartbeat of any worker after which the workers count as hanging. Workers give one in each tick.
const STALLED_MIN: Duration = Duration::from_millis(1000);

/// Gathers the facts.
pub struct FactsGatherer {
    engine: &'static Engine,
    heartbeats: Arc<Heartbeats>,
    /// True if the data belong to the shard of the present primary.
    has_own_data: bool,
    /// The last time at which the link to the primary was up.
    up: Option<Instant>,
    /// The number of times that the link had come up at the last look. It tells of a link that was up between two looks only.
    ups: u64,
    /// The version of the replication setting at the last look.
    version: u64,
    /// The number of changes of the role that the machine has decided, and of those that are carried out. While they differ, the link is one to
    /// an earlier primary.
    decided: u64,
    carried_out: Arc<AtomicU64>,
}

impl FactsGatherer {
    /// Creates the state of a server that has just started. `carried_out` counts the changes of the role that are carried out.
    pub fn new(engine: &'static Engine, heartbeats: Arc<Heartbeats>, carried_out: Arc<AtomicU64>) -> FactsGatherer {
        FactsGatherer { engine, heartbeats, has_own_data: false, up: None, ups: 0, version: 0, decided: 0, carried_out }
    }

    /// Notes that the server shall follow a primary. The data stay valid within a shard.
    pub fn note_follows(&mut self, other_data: bool) {
        self.decided += 1;
        if other_data {
            (self.has_own_data, self.up) = (false, None);
        }
    }

    /// Notes that the server shall follow no primary.
    pub fn note_leads(&mut self) {
        self.decided += 1;
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

    /// Gathers the facts. `node_timeout` is the cluster's.
    pub fn gather(&mut self, node_timeout: Duration) -> Facts {
        let replication = &self.engine.replication;
        // The order matters: a link that is looked at later belongs to this primary or to a later one.
        let is_settled = self.carried_out.load(Ordering::Acquire) == self.decided;
        let (primary, version) = replication.primary();
        let follows = primary.is_some();
        let link = replication.link();
        if follows && is_settled && self.look_at_link(&link, version) {
            (self.has_own_data, self.up) = (true, Some(Instant::now()));
        }
        // A snapshot is replacing the data, or its transfer has broken off. A replica without data must not win an election.
        if follows && replication.known_part().is_none() {
            (self.has_own_data, self.up) = (false, None);
        }
        let silence = Duration::from_secs((now_us() / 1_000_000).saturating_sub(link.heard_s));
        let data_age = match self.up {
            Some(_) if link.state == LinkState::Up => Some(silence),
            Some(up) => Some(up.elapsed()),
            None => None,
        };
        let offset = replication.offset();
        Facts {
            // An offset of 0 means that there are no data.
            offset: if follows { if self.has_own_data { offset.max(1) } else { 0 } } else { offset },
            loading: self.engine.is_loading(),
            data_age_ms: data_age.filter(|_| follows).map(|age| age.as_millis() as u64),
            stalled: self.are_stalled(node_timeout),
        }
    }

    /// Returns true if all workers hang.
    pub fn are_stalled(&self, node_timeout: Duration) -> bool {
        let silence_max = (node_timeout / 2).max(STALLED_MIN);
        self.engine.sleeps.load(Ordering::Relaxed) || self.heartbeats.silence() > silence_max
    }
}
