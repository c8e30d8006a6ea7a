//! Which keys are evicted first (maxmemory-policy), and what a thread remembers for it. The eviction itself is
//! `upkeep::eviction`.

use store::db::evict::{EvictionCandidate, Order};
use store::frequency::Frequency;

use crate::config::{MaxmemoryPolicy, Settings};
use crate::machine::ticks::Ticks;

/// Candidates that a thread remembers: Redis's figure.
pub(crate) const CANDIDATES_MAX: usize = 16;
/// What a thread remembers of the memory in use.
pub(crate) struct MemoryWatch {
    /// Whether more is in use than allowed, and nothing can be done about it.
    pub full: bool,
    /// When the memory in use was last looked at.
    pub read_at: Ticks,
    /// Bytes that were left then.
    pub left: u64,
    /// The best candidate is the last.
    pub candidates: Vec<EvictionCandidate>,
    /// Which keys the candidates were chosen by.
    pub order: Order,
    /// True if only keys that expire are candidates.
    pub volatile: bool,
}

impl MemoryWatch {
    /// Has the memory in use looked at before the next commands, however much was left.
    pub(crate) fn look_again(&mut self) {
        self.left = 0;
    }
}

impl Default for MemoryWatch {
    fn default() -> Self {
        MemoryWatch {
            full: false,
            read_at: Ticks::now(),
            left: 0,
            candidates: Vec::new(),
            order: Order::Random,
            volatile: false,
        }
    }
}

/// Which keys a policy evicts first, and whether only those that expire; none if it evicts nothing.
pub(crate) fn order_of(policy: MaxmemoryPolicy) -> Option<(Order, bool)> {
    Some(match policy {
        MaxmemoryPolicy::Noeviction => return None,
        MaxmemoryPolicy::AllkeysLru => (Order::LeastRecent, false),
        MaxmemoryPolicy::AllkeysLfu => (Order::LeastFrequent, false),
        MaxmemoryPolicy::AllkeysRandom => (Order::Random, false),
        MaxmemoryPolicy::VolatileLru => (Order::LeastRecent, true),
        MaxmemoryPolicy::VolatileLfu => (Order::LeastFrequent, true),
        MaxmemoryPolicy::VolatileRandom => (Order::Random, true),
        MaxmemoryPolicy::VolatileTtl => (Order::SoonestExpiry, true),
    })
}

/// How the use of keys is counted under a policy, apart from the time and the randomness of each call; none where only
/// the time of the last use matters.
pub(crate) fn frequency(settings: &Settings) -> Option<Frequency> {
    let (order, _) = order_of(settings.maxmemory_policy.get())?;
    (order == Order::LeastFrequent).then(|| Frequency {
        minutes: 0,
        log_factor: u32::try_from(settings.lfu_log_factor.get()).unwrap_or(0),
        decay_minutes: u32::try_from(settings.lfu_decay_time_min.get()).unwrap_or(0),
        seed: 0,
    })
}

/// Whether keys are evicted by how recently or how often each has been used.
pub(crate) fn goes_by_use(settings: &Settings) -> bool {
    let order = order_of(settings.maxmemory_policy.get()).map(|(order, _)| order);
    settings.maxmemory.get() > 0 && matches!(order, Some(Order::LeastRecent | Order::LeastFrequent))
}
