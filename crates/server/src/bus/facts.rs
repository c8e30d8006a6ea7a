//! The state of this server outside of the bus. The machine gets it with each tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::{Facts, Machine};
use engine::replication::facts::{FactsGatherer, FactsMoment};
use engine::state::Engine;

use crate::heartbeats::Heartbeats;
use crate::time::now_us;

/// Shortest time without a heartbeat of any worker after which the workers count as hanging. Workers give one in each tick.
const STALLED_MIN: Duration = Duration::from_millis(1000);

/// Gathers the facts of a server.
pub struct ServerFacts {
    engine: &'static Engine,
    heartbeats: Arc<Heartbeats>,
    gatherer: FactsGatherer,
    /// The number of changes of the role that are carried out.
    carried_out: Arc<AtomicU64>,
    began: Instant,
}

impl ServerFacts {
    /// Creates the state of a server that has just started. `carried_out` counts the changes of the role that are carried out.
    pub fn new(engine: &'static Engine, heartbeats: Arc<Heartbeats>, carried_out: Arc<AtomicU64>) -> ServerFacts {
        ServerFacts { engine, heartbeats, gatherer: FactsGatherer::default(), carried_out, began: Instant::now() }
    }

    /// Notes that the server shall follow a primary. The data stay valid within a shard.
    pub fn note_follows(&mut self, other_data: bool) {
        self.gatherer.note_follows(other_data);
    }

    /// Notes that the server shall follow no primary.
    pub fn note_leads(&mut self) {
        self.gatherer.note_leads();
    }

    /// Keeps the data while the machine may win an election, or is a primary. Returns true if the machine needs new facts at once.
    #[must_use]
    pub fn keep_data(&mut self, machine: &Machine) -> bool {
        self.gatherer.keep_data(&self.engine.replication, machine.keeps_data())
    }

    /// Gathers the facts. `node_timeout` is the cluster's.
    pub fn gather(&mut self, node_timeout: Duration) -> Facts {
        let moment = FactsMoment {
            carried_out: self.carried_out.load(Ordering::Acquire),
            now: self.began.elapsed(),
            unix_s: now_us() / 1_000_000,
            loading: self.engine.is_loading(),
            stalled: self.are_stalled(node_timeout),
        };
        self.gatherer.gather(&self.engine.replication, &moment)
    }

    /// Returns true if all workers hang.
    pub fn are_stalled(&self, node_timeout: Duration) -> bool {
        let silence_max = (node_timeout / 2).max(STALLED_MIN);
        self.engine.sleeps.load(Ordering::Relaxed) || self.heartbeats.silence() > silence_max
    }
}
