//! HOTKEYS: finds the keys with the most processor time and traffic.
//!
//! Source of the semantics: Redis 8.6's pages of HOTKEYS, and the replies of a running server. A command's time and
//! bytes are divided equally among its keys. The number of counted keys is bounded: beyond the bound the lesser half is
//! dropped, so that a key with a large share stays and a rare one may be counted anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of counted keys; far above the number that can be requested.
const KEYS_MAX: usize = 8192;

/// The options of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotKeysPlan {
    /// Counts the time of commands.
    pub cpu: bool,
    /// Counts the bytes of requests and replies.
    pub net: bool,
    /// Number of keys to report.
    pub shown: usize,
    /// Duration in milliseconds; 0 means until it is stopped.
    pub duration_ms: u64,
    /// One command in `ratio` is counted, chosen at random.
    pub ratio: u64,
}

/// The server's figures at some time.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServerFigures {
    /// The time, in milliseconds of Unix time.
    pub at_ms: u64,
    /// Processor time of the process, in microseconds.
    pub user_us: u64,
    /// Processor time of the kernel for the process, in microseconds.
    pub system_us: u64,
    /// Bytes received and sent.
    pub net_bytes: u64,
}

/// One counted command.
pub struct CountedCommand<'k> {
    /// Its keys.
    pub keys: &'k mut dyn ExactSizeIterator<Item = &'k [u8]>,
    /// Duration in microseconds.
    pub us: f64,
    /// Bytes of its request and its reply.
    pub bytes: usize,
}

/// Counts by key.
#[derive(Default, Debug)]
struct Counts(HashMap<Box<[u8]>, f64>);

impl Counts {
    fn add(&mut self, key: &[u8], amount: f64) {
        if let Some(count) = self.0.get_mut(key) {
            *count += amount;
            return;
        }
        if self.0.len() >= KEYS_MAX {
            let mut all: Vec<f64> = self.0.values().copied().collect();
            let (_, median, _) = all.select_nth_unstable_by(KEYS_MAX / 2, f64::total_cmp);
            let median = *median;
            self.0.retain(|_, count| *count > median);
        }
        self.0.insert(key.into(), amount);
    }

    /// Returns the keys with the greatest counts, the greatest first.
    fn top(&self, shown: usize) -> Vec<(Box<[u8]>, u64)> {
        let mut all: Vec<(&Box<[u8]>, f64)> = self.0.iter().map(|(key, count)| (key, *count)).collect();
        all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let shown = all.into_iter().take(shown).filter(|(_, count)| *count >= 1.0);
        shown.map(|(key, count)| (key.clone(), count as u64)).collect()
    }
}

/// One measurement.
#[derive(Debug)]
struct Count {
    plan: HotKeysPlan,
    began: ServerFigures,
    /// The figures at its end, once it has ended.
    ended: Option<ServerFigures>,
    us: f64,
    bytes: u64,
    by_time: Counts,
    by_bytes: Counts,
}

/// The result of a measurement.
#[derive(Debug)]
pub struct HotKeysReport {
    /// The options.
    pub plan: HotKeysPlan,
    /// True while the measurement runs.
    pub is_active: bool,
    /// Start, in milliseconds of Unix time.
    pub began_ms: u64,
    /// Growth of the server's figures since the start, including the time.
    pub grown: ServerFigures,
    /// Total time of the counted commands, in microseconds.
    pub us: u64,
    /// Total bytes of the counted commands.
    pub bytes: u64,
    /// Keys by microseconds.
    pub by_time: Vec<(Box<[u8]>, u64)>,
    /// Keys by bytes.
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct HotKeys {
    /// One command in `ratio` is counted; 0 if no measurement runs.
    ratio: AtomicU64,
    count: Mutex<Option<Count>>,
}

impl HotKeys {
    fn lock(&self) -> MutexGuard<'_, Option<Count>> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One command in `ratio` is counted; 0 if no measurement runs.
    #[inline]
    #[must_use]
    pub fn ratio(&self) -> u64 {
        self.ratio.load(Ordering::Relaxed)
    }

    /// Starts a new measurement. Returns false if one is running.
    pub fn start(&self, plan: HotKeysPlan, now: ServerFigures) -> bool {
        let mut count = self.lock();
        if count.as_ref().is_some_and(|count| count.ended.is_none()) {
            return false;
        }
        let (us, bytes) = (0.0, 0);
        *count = Some(Count {
            plan,
            began: now,
            ended: None,
            us,
            bytes,
            by_time: Counts::default(),
            by_bytes: Counts::default(),
        });
        self.ratio.store(plan.ratio.max(1), Ordering::Relaxed);
        true
    }

    /// Ends the measurement if its time is up.
    pub fn look(&self, now_ms: u64, now: impl FnOnce() -> ServerFigures) {
        let is_over = |count: &Count| {
            let plan = count.plan;
            count.ended.is_none()
                && plan.duration_ms > 0
                && now_ms.saturating_sub(count.began.at_ms) >= plan.duration_ms
        };
        if self.lock().as_ref().is_some_and(is_over) {
            self.stop(now());
        }
    }

    /// Ends the measurement. Returns false if there is none.
    pub fn stop(&self, now: ServerFigures) -> bool {
        let mut count = self.lock();
        let Some(count) = count.as_mut().filter(|count| count.ended.is_none()) else { return false };
        count.ended = Some(now);
        self.ratio.store(0, Ordering::Relaxed);
        true
    }

    /// Drops the results. Returns false if a measurement is running.
    pub fn reset(&self) -> bool {
        let mut count = self.lock();
        if count.as_ref().is_some_and(|count| count.ended.is_none()) {
            return false;
        }
        *count = None;
        true
    }

    /// Counts a command.
    pub fn note(&self, counted: CountedCommand<'_>) {
        let mut count = self.lock();
        let Some(count) = count.as_mut().filter(|count| count.ended.is_none()) else { return };
        count.us += counted.us;
        count.bytes += counted.bytes as u64;
        let keys = counted.keys.len() as f64;
        for key in counted.keys {
            if count.plan.cpu {
                count.by_time.add(key, counted.us / keys);
            }
            if count.plan.net {
                count.by_bytes.add(key, counted.bytes as f64 / keys);
            }
        }
    }

    /// Returns the result, if there is one.
    #[must_use]
    pub fn report(&self, now: ServerFigures) -> Option<HotKeysReport> {
        let count = self.lock();
        let count = count.as_ref()?;
        let (until, began) = (count.ended.unwrap_or(now), count.began);
        Some(HotKeysReport {
            plan: count.plan,
            is_active: count.ended.is_none(),
            began_ms: began.at_ms,
            grown: ServerFigures {
                at_ms: until.at_ms.saturating_sub(began.at_ms),
                user_us: until.user_us.saturating_sub(began.user_us),
                system_us: until.system_us.saturating_sub(began.system_us),
                net_bytes: until.net_bytes.saturating_sub(began.net_bytes),
            },
            us: count.us as u64,
            bytes: count.bytes,
            by_time: count.by_time.top(count.plan.shown),
            by_bytes: count.by_bytes.top(count.plan.shown),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_is_found_among_a_million_others() {
        let mut counts = Counts::default();
        for n in 0..1_000_000_u32 {
            counts.add(&n.to_le_bytes(), 1.0);
            if n % 100 == 0 {
                counts.add(b"hot", 1.0);
            }
            if n % 200 == 0 {
                counts.add(b"warm", 1.0);
            }
        }
        assert!(counts.0.len() <= KEYS_MAX);
        let top = counts.top(2);
        assert_eq!((&*top[0].0, &*top[1].0), (&b"hot"[..], &b"warm"[..]));
        assert!((9_000..=10_000).contains(&top[0].1), "{top:?}");
    }
}
