//! Eviction: keeps the memory in use within maxmemory by removing the keys that the policy values least. Commands that
//! need more memory are refused when no key is left to remove.
//!
//! Each thread checks the memory before every window of commands, so a batch can't exceed the limit by far. Eviction
//! samples some random keys and remembers the best candidates of earlier samples. Source of the policies: Redis's page
//! "Key eviction".

use commands::call::KeyRef;
use commands::effects::{Class, Concerns};
use store::db::Db;
use store::db::evict::{EvictionCandidate, Order};
use store::keyspace::{Key, Locked, Shards};

use crate::memory::eviction::{CANDIDATES_MAX, order_of};
use crate::services::slow;
use crate::worker::Worker;
use statistics::ticks::{Ticks, per_microsecond, to_microseconds};

/// The time, in microseconds, that a reading of the memory in use stays valid far from the limit. Adding up the
/// counters of all threads costs as much as a few commands.
const READING_US: f64 = 50.0;
/// The distance from the limit, in bytes, that counts as far: more than the threads can allocate while a reading is
/// valid.
const FAR_BYTES: u64 = 16 << 20;
/// The unit of the time for eviction before each command, in microseconds, and its growth for each step of
/// maxmemory-eviction-tenacity beyond 10: Redis's figures.
const TENACITY_US: f64 = 50.0;
const TENACITY_GROWTH: f64 = 1.15;

/// Returns the ticks that eviction may take before a command.
fn budget_ticks(tenacity: i64) -> u64 {
    let us = match tenacity {
        ..=10 => TENACITY_US * tenacity.max(0) as f64,
        11..100 => TENACITY_US * 10.0 * TENACITY_GROWTH.powi((tenacity - 10) as i32),
        _ => return u64::MAX,
    };
    (us * per_microsecond()) as u64
}

impl Worker {
    /// Evicts keys if too much memory is in use, and notes whether it still is, before `commands` commands. The caller
    /// is inside the gate and holds no shard. `serve` serves the waiters of removed keys.
    #[inline]
    pub(crate) fn keep_to_limit(&mut self, commands: usize, serve: impl FnOnce(&mut Worker)) {
        let max = self.engine.settings.maxmemory.get();
        if max == 0 {
            self.memory.full = false;
        } else {
            self.enforce_limit(max, commands, serve);
        }
    }

    fn enforce_limit(&mut self, max: u64, commands: usize, serve: impl FnOnce(&mut Worker)) {
        let now = Ticks::now();
        if self.memory.left > FAR_BYTES && to_microseconds(now.since(self.memory.read_at)) < READING_US {
            return;
        }
        self.memory.read_at = now;
        let used = self.engine.limited_memory();
        self.memory.left = max.saturating_sub(used);
        self.memory.full = used > max && !self.evict(max, commands, serve);
    }

    /// Removes keys until at most `max` bytes are in use, or the time for `commands` commands is over. Returns false if
    /// no key is left to remove.
    #[cold]
    fn evict(&mut self, max: u64, commands: usize, serve: impl FnOnce(&mut Worker)) -> bool {
        // Keys stay unchanged while commands are held back or data are loaded. Nothing is refused because of that, as
        // in Redis.
        if self.engine.keeps_keys() {
            return true;
        }
        let Some((order, volatile)) = order_of(self.engine.settings.maxmemory_policy.get()) else { return false };
        if (order, volatile) != (self.memory.order, self.memory.volatile) {
            (self.memory.order, self.memory.volatile) = (order, volatile);
            self.memory.candidates.clear();
        }
        let began = Ticks::now();
        let budget = budget_ticks(self.engine.settings.maxmemory_eviction_tenacity.get());
        let budget = budget.saturating_mul(commands as u64);
        let mut found = true;
        while found && self.engine.limited_memory() > max {
            found = self.evict_one();
            if Ticks::now().since(began) > budget {
                break;
            }
        }
        serve(self);
        slow::note_moment(self, "eviction-cycle", Ticks::now().since(began));
        found
    }

    /// Removes the best candidate that still exists. Returns false if there is no key that may go.
    fn evict_one(&mut self) -> bool {
        loop {
            if !self.find_candidates() {
                return false;
            }
            while let Some(candidate) = self.memory.candidates.pop() {
                if self.evict_key(&candidate) {
                    return true;
                }
            }
        }
    }

    /// Samples shards until enough keys are found, and keeps the best candidates. Returns false if no shard has a key
    /// that may go.
    fn find_candidates(&mut self) -> bool {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let mut wanted = match self.memory.order {
            Order::Random => 1,
            _ => engine.settings.maxmemory_samples.get_usize().min(CANDIDATES_MAX * 4),
        };
        for shard in keyspace.occupied_from(self.random.next()) {
            // A shard that a busy script holds is skipped.
            let Some(mut locked) = keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else { continue };
            let found = self.sample(&mut locked, shard, wanted);
            wanted = wanted.saturating_sub(found);
            if wanted == 0 {
                break;
            }
        }
        self.keep_best();
        !self.memory.candidates.is_empty()
    }

    /// Adds up to `wanted` keys of a shard, from each database, to the candidates. Returns the greatest number found in
    /// one database.
    fn sample(&mut self, locked: &mut Locked<'_>, shard: usize, wanted: usize) -> usize {
        let keyspace = &self.engine.keyspace;
        let (order, volatile) = (self.memory.order, self.memory.volatile);
        let had = |database: &usize| match volatile {
            true => keyspace.had_expiries(*database),
            false => keyspace.had_keys(*database),
        };
        let mut most = 0;
        for database in (0..keyspace.databases()).filter(had) {
            let mut db = Db::new(locked, database, &self.clock, &mut self.observed);
            let found = db.sample(shard, wanted, volatile, order, &mut self.random);
            most = most.max(found.len());
            self.memory.candidates.extend(found);
        }
        most
    }

    /// Sorts the candidates, and keeps only the best.
    fn keep_best(&mut self) {
        let all = &mut self.memory.candidates;
        all.sort_by(|a, b| (a.score, a.tie, a.database, &a.key).cmp(&(b.score, b.tie, b.database, &b.key)));
        all.dedup_by(|a, b| a.database == b.database && a.key == b.key);
        all.drain(..all.len().saturating_sub(CANDIDATES_MAX));
    }

    /// Removes a key. Returns false if the key is gone, may not go any more, or is held by a busy script.
    fn evict_key(&mut self, candidate: &EvictionCandidate) -> bool {
        let key = Key::new(&candidate.key);
        let engine = self.engine;
        let shard = engine.keyspace.shard_of(key.hash);
        let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else { return false };
        self.begin_effects(&[KeyRef { arg: 0, hash: key.hash }], None, self.engine.slow_path.get());
        let mut db = Db::new(&mut locked, candidate.database, &self.clock, &mut self.observed);
        let evicted = db.evict(key, self.memory.volatile).is_some();
        if evicted {
            self.stats().evicted.add(1);
            // Evictions don't count towards save points, as in Redis.
            self.effects.event_for(Concerns::All, candidate.database, key.bytes, Class::Evicted, "evicted");
            self.effects.record_as(candidate.database, [&b"DEL"[..], key.bytes].into_iter());
            self.commit_upkeep(shard);
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::testing::Bench;

    #[test]
    fn small_integers_are_shared_unless_the_policy_tracks_use() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("set k 7", "+OK")]);
        for (maxmemory, policy, count) in [
            ("0", "allkeys-lru", ":2147483647"),
            ("1gb", "allkeys-lru", ":1"),
            ("1gb", "volatile-lru", ":1"),
            ("1gb", "allkeys-lfu", ":1"),
            ("1gb", "allkeys-random", ":2147483647"),
            ("1gb", "volatile-ttl", ":2147483647"),
            ("1gb", "noeviction", ":2147483647"),
        ] {
            let set = format!("config set maxmemory {maxmemory} maxmemory-policy {policy}");
            bench.check(&mut session, &[(&set, "+OK"), ("object refcount k", count)]);
        }
    }

    const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

    /// Returns a bench with more memory in use than the limit, and with this policy.
    fn full(policy: &str) -> (Bench, crate::clients::session::Session) {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for i in 0..20 {
            bench.line(&mut session, &format!("SET k{i} v"));
            bench.line(&mut session, &format!("SET e{i} v PX {}", 1000 + i));
        }
        bench.used_memory.store(2000, Ordering::Relaxed);
        bench.line(&mut session, &format!("CONFIG SET maxmemory 1000 maxmemory-policy {policy}"));
        (bench, session)
    }

    #[test]
    fn commands_that_need_memory_are_refused_when_memory_is_full() {
        let (mut bench, mut session) = full("noeviction");
        bench.check(
            &mut session,
            &[
                ("SET a b", OOM),
                ("GET k0", "$1|v"),
                ("DEL k0", ":1"),
                ("MULTI", "+OK"),
                ("GET k0", OOM),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                ("CONFIG SET maxmemory 3000", "+OK"),
                ("MULTI", "+OK"),
                ("SET a b", "+QUEUED"),
            ],
        );
        bench.used_memory.store(3001, Ordering::Relaxed);
        bench.check(&mut session, &[("EXEC", &format!("-EXECABORT Transaction discarded because of: {}", &OOM[1..]))]);
        bench.check(&mut session, &[("CONFIG SET maxmemory 0", "+OK"), ("SET a b", "+OK")]);
    }

    #[test]
    fn keys_are_evicted_as_the_policy_says_before_anything_is_refused() {
        for (policy, left) in [
            ("allkeys-lru", 0),
            ("allkeys-lfu", 0),
            ("allkeys-random", 0),
            ("volatile-lru", 20),
            ("volatile-lfu", 20),
            ("volatile-random", 20),
            ("volatile-ttl", 20),
        ] {
            let (mut bench, mut session) = full(policy);
            bench.line(&mut session, "CONFIG SET maxmemory-eviction-tenacity 100");
            bench.check(&mut session, &[("SET a b", OOM), ("DBSIZE", &format!(":{left}"))]);
            let info = bench.line(&mut session, "INFO stats");
            assert!(info.contains(&format!("|evicted_keys:{}|", 40 - left)), "{policy}: {info}");
        }
    }

    #[test]
    fn evicted_large_values_are_freed_as_configured() {
        let (mut bench, mut session) = full("allkeys-lru");
        bench.line(&mut session, "CONFIG SET maxmemory 0 maxmemory-eviction-tenacity 100");
        bench.line(&mut session, &format!("RPUSH large {}", "x".repeat(100_000)));
        bench.line(&mut session, "CONFIG SET maxmemory 1000");
        bench.check(&mut session, &[("SET a b", OOM), ("DBSIZE", ":0")]);
        let reaper = bench.worker.engine.keyspace.reaper();
        assert_eq!((reaper.pending(), reaper.freed()), (0, 0));
        bench.check(&mut session, &[("CONFIG GET lazyfree-lazy-eviction", "*2|$22|lazyfree-lazy-eviction|$2|no")]);
    }

    #[test]
    fn the_longest_unused_key_is_evicted_first_in_small_shards() {
        const KEYS: u64 = 40;
        let mut bench = Bench::default();
        let mut session = bench.open();
        for i in 0..KEYS {
            bench.now_us += 10_000_000;
            bench.line(&mut session, &format!("SET k{i} v"));
        }
        bench.used_memory.store(2000, Ordering::Relaxed);
        // One key is evicted for each command.
        bench.line(
            &mut session,
            "CONFIG SET maxmemory-policy allkeys-lru maxmemory-samples 64 maxmemory-eviction-tenacity 0",
        );
        bench.line(&mut session, "CONFIG SET maxmemory 1000");
        for _ in 0..KEYS / 4 {
            bench.line(&mut session, "GET nothing");
        }
        bench.check(&mut session, &[("CONFIG SET maxmemory 0", "+OK")]);
        let left: Vec<u64> = (0..KEYS).filter(|i| bench.line(&mut session, &format!("EXISTS k{i}")) == ":1").collect();
        assert!((left.len() as u64) < KEYS && left.ends_with(&(KEYS / 2..KEYS).collect::<Vec<_>>()), "{left:?}");
    }

    #[test]
    fn an_eviction_is_a_change_and_an_event() {
        let (mut bench, mut session) = full("noeviction");
        let mut watcher = bench.open();
        bench.check(&mut watcher, &[("WATCH k1", "+OK"), ("MULTI", "+OK")]);
        bench.line(&mut session, "CONFIG SET maxmemory-policy allkeys-random maxmemory-eviction-tenacity 100");
        bench.worker.relieve_memory();
        bench.used_memory.store(0, Ordering::Relaxed);
        bench.check(&mut watcher, &[("EXEC", "*-1")]);
    }

    #[test]
    fn two_applications_lose_unused_keys_in_equal_numbers() {
        const KEYS: u32 = 1000;
        let mut bench = Bench::default();
        let mut session = bench.open();
        for i in 0..KEYS {
            bench.line(&mut session, &format!("MSET cache:{i} v user:{i} v"));
        }
        bench.used_memory.store(2000, Ordering::Relaxed);
        bench.line(&mut session, "CONFIG SET maxmemory-policy allkeys-lru maxmemory-eviction-tenacity 0");
        bench.line(&mut session, "CONFIG SET maxmemory 1000");
        // One key is evicted for each command.
        for _ in 0..KEYS {
            bench.line(&mut session, "GET nothing");
        }
        bench.line(&mut session, "CONFIG SET maxmemory 0");
        let mut left = |name: &str| {
            let is_left = |i: &u32| bench.line(&mut session, &format!("EXISTS {name}:{i}")) == ":1";
            (0..KEYS).filter(is_left).count() as u32
        };
        let (cache, user) = (left("cache"), left("user"));
        assert!(cache + user < KEYS + 10, "{cache} {user}");
        assert!(cache.abs_diff(user) < KEYS / 5, "{cache} {user}");
    }

    #[test]
    fn keys_stay_while_commands_are_held_back() {
        let (mut bench, mut session) = full("noeviction");
        bench.check(&mut session, &[("CLIENT PAUSE 1000 WRITE", "+OK")]);
        bench.line(&mut session, "CONFIG SET maxmemory-policy allkeys-random maxmemory-eviction-tenacity 100");
        assert!(!bench.worker.relieve_memory(), "nothing to be done now");
        bench.check(&mut session, &[("GET k0", "$1|v"), ("DBSIZE", ":40"), ("CLIENT UNPAUSE", "+OK")]);
        bench.worker.relieve_memory();
        bench.check(&mut session, &[("DBSIZE", ":0")]);
    }

    #[test]
    fn frequencies_are_shown_where_they_are_counted() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(
            &mut session,
            &[
                ("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0 lfu-decay-time 1", "+OK"),
                ("SET k v", "+OK"),
                ("OBJECT FREQ k", ":5"),
                ("GET k", "$1|v"),
                ("GET k", "$1|v"),
                ("OBJECT FREQ k", ":7"),
            ],
        );
        let untracked = bench.line(&mut session, "OBJECT IDLETIME k");
        assert!(untracked.starts_with("-ERR An LFU maxmemory policy is selected, idle time"), "{untracked}");
        bench.now_us += 3 * 60_000_000;
        bench.check(&mut session, &[("OBJECT FREQ k", ":4")]);
    }

    #[test]
    fn more_tenacity_gives_more_time() {
        let ticks: Vec<u64> = [0, 1, 10, 11, 99, 100].into_iter().map(budget_ticks).collect();
        assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
        assert_eq!((ticks[0], ticks[5]), (0, u64::MAX));
    }
}
