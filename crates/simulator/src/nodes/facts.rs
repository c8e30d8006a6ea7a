//! The state of a process outside of its bus. The machine gets it with each tick, as the server's bus gathers it.

use cluster::Facts;
use engine::replication::LinkState;
use engine::state::Engine;

/// Shortest time without a turn of any worker after which the workers count as hanging, in microseconds.
const STALLED_MIN_US: u64 = 1_000_000;

/// See the module's documentation.
#[derive(Default)]
pub struct SimFacts {
    /// True if the data belong to the shard of the present primary.
    has_own_data: bool,
    /// The last time at which the link to the primary was up.
    up_us: Option<u64>,
    /// The number of times that the link had come up at the last look.
    ups: u64,
}

/// The moment of a look.
pub struct FactsMoment {
    /// The simulated time, in microseconds.
    pub now_us: u64,
    /// The process's clock, in microseconds of Unix time.
    pub unix_us: u64,
    /// The time since the last turn of a worker, in microseconds.
    pub silence_us: u64,
    /// `cluster-node-timeout`, in microseconds.
    pub timeout_us: u64,
}

impl SimFacts {
    /// Notes that the process begins to follow a primary. The data stay valid within a shard.
    pub fn note_follows(&mut self, engine: &Engine, other_data: bool) {
        if other_data {
            (self.has_own_data, self.up_us, self.ups) = (false, None, engine.replication.link().ups);
        }
    }

    /// Gathers the facts.
    pub fn gather(&mut self, engine: &Engine, moment: &FactsMoment) -> Facts {
        let replication = &engine.replication;
        let (follows, link) = (replication.primary().0.is_some(), replication.link());
        if follows && (link.state == LinkState::Up || link.ups != self.ups) {
            (self.has_own_data, self.up_us) = (true, Some(moment.now_us));
        }
        self.ups = link.ups;
        let silence_ms = (moment.unix_us / 1_000_000).saturating_sub(link.heard_s) * 1000;
        let age_ms = self.up_us.map(|up_us| match link.state {
            LinkState::Up => silence_ms,
            _ => (moment.now_us - up_us) / 1000,
        });
        let offset = replication.offset();
        Facts {
            offset: if follows { if self.has_own_data { offset.max(1) } else { 0 } } else { offset },
            loading: engine.is_loading(),
            data_age_ms: age_ms.filter(|_| follows),
            stalled: moment.silence_us > (moment.timeout_us / 2).max(STALLED_MIN_US),
        }
    }
}
