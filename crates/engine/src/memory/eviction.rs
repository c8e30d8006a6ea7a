//! The order of eviction (maxmemory-policy), and a thread's state for it. `upkeep::eviction` does the eviction.

use store::db::evict::{EvictionCandidate, Order};
use store::frequency::Frequency;

use config::{MaxmemoryPolicy, Settings};
use statistics::ticks::Ticks;

/// Number of candidates that a thread keeps: Redis's figure.
pub(crate) const CANDIDATES_MAX: usize = 16;
/// A thread's view of the memory in use.
pub(crate) struct MemoryWatch {
    /// True if more memory is in use than allowed, and eviction can't help.
    pub full: bool,
    /// Time of the last reading of the memory in use.
    pub read_at: Ticks,
    /// Bytes below the limit at that time.
    pub left: u64,
    /// Candidates for eviction; the last one is the best.
    pub candidates: Vec<EvictionCandidate>,
    /// The order behind the candidates.
    pub order: Order,
    /// True if only keys with an expiry are candidates.
    pub volatile: bool,
}

impl MemoryWatch {
    /// Forces a reading of the memory in use before the next commands.
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

/// Returns a policy's order of eviction, and true if it applies only to keys with an expiry; `None` if the policy
/// evicts nothing.
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

/// Returns the parameters for counting the use of keys under a policy, without the time and the randomness of each
/// call; `None` if only the last use matters.
pub(crate) fn frequency(settings: &Settings) -> Option<Frequency> {
    let (order, _) = order_of(settings.maxmemory_policy.get())?;
    (order == Order::LeastFrequent).then(|| Frequency {
        minutes: 0,
        log_factor: u32::try_from(settings.lfu_log_factor.get()).unwrap_or(0),
        decay_minutes: u32::try_from(settings.lfu_decay_time_min.get()).unwrap_or(0),
        seed: 0,
    })
}

/// Returns true if eviction depends on how recently or how often keys were used.
pub(crate) fn goes_by_use(settings: &Settings) -> bool {
    let order = order_of(settings.maxmemory_policy.get()).map(|(order, _)| order);
    settings.maxmemory.get() > 0 && matches!(order, Some(Order::LeastRecent | Order::LeastFrequent))
}
