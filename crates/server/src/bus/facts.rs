//! The state of this server outside of the bus. The machine gets it with each tick.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Facts;
use engine::replication::LinkState;
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
}

impl FactsGatherer {
    /// Creates the state of a server that has just started.
    pub fn new(engine: &'static Engine, heartbeats: Arc<Heartbeats>) -> FactsGatherer {
        FactsGatherer { engine, heartbeats, has_own_data: false, up: None, ups: 0 }
    }

    /// Notes that the server begins to follow a primary. The data stay valid within a shard.
    pub fn note_follows(&mut self, other_data: bool) {
        if other_data {
            (self.has_own_data, self.up, self.ups) = (false, None, self.engine.replication.link().ups);
        }
    }

    /// Gathers the facts. `node_timeout` is the cluster's.
    pub fn gather(&mut self, node_timeout: Duration) -> Facts {
        let replication = &self.engine.replication;
        let follows = replication.primary().0.is_some();
        let link = replication.link();
        let was_up = link.state == LinkState::Up || link.ups != self.ups;
        if follows && was_up {
            (self.has_own_data, self.up) = (true, Some(Instant::now()));
        }
        self.ups = link.ups;
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
            stalled: self.heartbeats.silence() > (node_timeout / 2).max(STALLED_MIN),
        }
    }
}
