//! The periodic search for expired keys.
//!
//! Every key with an expiry is indexed by its time, so a search finds expired keys only. Searches follow each other
//! until no expired key is left; `active-expire-effort` bounds their share of a thread's time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use store::db::Db;
use store::keyspace::{Key, Shards};

use crate::replication::own_keys::OwnKey;
use crate::services::slow;
use crate::slow_path::{KEEPS_KEYS, REPLICA};
use crate::worker::{GateGuard, Worker};
use statistics::ticks::{Ticks, per_microsecond};

/// The share of a thread's time that searches may take at the least effort, in percent, and its growth for each step of
/// effort: Redis's figures.
const SHARE_PERCENT: f64 = 25.0;
const SHARE_STEP_PERCENT: f64 = 2.0;

/// Returns the longest time of a search, in microseconds, if there is one in each `tick`. Clients wait for that time.
/// It is 43 percent of a tick at the greatest effort, 10, so clients always have the greater part of the thread's time.
pub(crate) fn look_us(tick: Duration, effort: i64) -> f64 {
    let percent = SHARE_PERCENT + SHARE_STEP_PERCENT * (effort.clamp(1, 10) - 1) as f64;
    tick.as_micros() as f64 * percent / 100.0
}

impl Worker {
    /// Removes expired keys for up to `budget_us` microseconds. Call it many times a second. Returns whether there are
    /// more. `serve` serves the waiters of removed keys.
    pub(crate) fn reclaim_expired(&mut self, budget_us: f64, serve: impl FnOnce(&mut Worker, &mut GateGuard)) -> bool {
        /// The number of keys of a shard that are removed before the clock is read and others may lock the shard.
        const AT_ONCE: usize = 16;
        // Keys stay unchanged, as far as clients can tell, while commands are held back.
        let keeps_all = self.engine.slow_path.has(KEEPS_KEYS & !REPLICA);
        if !self.engine.active_expire.load(Ordering::Relaxed) || keeps_all {
            return false;
        }
        // Expiries are published, and this thread can't make clients wait for room in the full inboxes.
        if self.full_inboxes.any() && self.engine.notify_classes.load(Ordering::Relaxed) != 0 {
            return true;
        }
        // Expiries are recorded, and the log has no room.
        if !self.log_has_room() {
            return true;
        }
        let began = Ticks::now();
        let mut inside = self.enter_gate();
        if inside.is_none() {
            return false;
        }
        self.note_observed();
        let more = match self.engine.is_replica() {
            true => self.reclaim_own_keys(),
            false => self.reclaim_shards(began, (budget_us * per_microsecond()) as u64, AT_ONCE),
        };
        let (keys, fields) = (self.observed.expired, self.observed.expired_fields);
        self.stats().expired_by_search.add(keys);
        self.stats().expired_fields_by_search.add(fields);
        serve(self, &mut inside);
        self.note_observed();
        let ticks = Ticks::now().since(began);
        self.stats().reclaim_ticks.add(ticks);
        slow::note_moment(self, "expire-cycle", ticks);
        more
    }

    /// Removes expired keys that clients have written on this replica. Returns whether there are more.
    fn reclaim_own_keys(&mut self) -> bool {
        /// The number of keys that are checked in one turn: some hundred microseconds.
        const OWN_AT_ONCE: usize = 256;
        let engine = self.engine;
        let (own_keys, now_ms) = (&engine.replication.own_keys, self.clock.now_ms);
        let keys = own_keys.take(now_ms, OWN_AT_ONCE);
        let more = keys.len() == OWN_AT_ONCE;
        for own in keys {
            if let Some(at_ms) = self.expire_own_key(&own) {
                own_keys.note_expiry(own, at_ms);
            }
        }
        more
    }

    /// Removes a key if it has expired. Returns the time of the next check, if there is one.
    fn expire_own_key(&mut self, (database, key): &OwnKey) -> Option<u64> {
        let (engine, key) = (self.engine, Key::new(key));
        let shard = engine.keyspace.shard_of(key.hash);
        let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else {
            return Some(self.clock.now_ms);
        };
        self.begin_effects(&[], None, engine.slow_path.get());
        let mut db = Db::new(&mut locked, *database, &self.clock, &mut self.observed);
        db.expire(key);
        let expiry = db.peek(key).and_then(|entry| entry.expiry());
        self.commit_upkeep(shard);
        expiry
    }

    /// Removes keys of this thread's shards, `at_once` from each, until the time is over. Returns whether there are
    /// more.
    fn reclaim_shards(&mut self, began: Ticks, budget_ticks: u64, at_once: usize) -> bool {
        let keyspace = &self.engine.keyspace;
        // Threads share the work: each searches its own part of the shards.
        let threads = self.engine.inboxes.len();
        let shards = keyspace.shard_count().saturating_sub(self.id).div_ceil(threads);
        let total = shards * keyspace.databases();
        let mut looked_at = 0;
        let mut in_time = true;
        while in_time && looked_at < total {
            let (database, nth) = (self.upkeep.expiry.at() / shards, self.upkeep.expiry.at() % shards);
            let shard = self.id + nth * threads;
            let next = match keyspace.had_expiries(database) {
                true => keyspace.next_occupied_by(database, shard, threads),
                false => None,
            };
            let done = match next {
                Some(next) if next == shard => usize::from(!self.reclaim_shard(database, shard, at_once)),
                Some(next) => (next - shard) / threads,
                None => shards - nth,
            };
            self.upkeep.expiry.go_on(done, total);
            looked_at += done;
            in_time = Ticks::now().since(began) <= budget_ticks;
        }
        // A round over many shards may take longer than the budget. One round without any expired key is enough.
        looked_at < total && !self.upkeep.expiry.is_quiet(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn the_least_effort_takes_a_quarter_of_a_tick_and_the_greatest_less_than_half() {
        let tick = Duration::from_millis(1);
        assert_eq!(
            [0, 1, 2, 9, 10, 11].map(|effort| look_us(tick, effort)),
            [250.0, 250.0, 270.0, 410.0, 430.0, 430.0]
        );
    }

    #[test]
    fn large_values_that_expire_are_freed_in_the_background_or_at_once() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let reaper = bench.worker.engine.keyspace.reaper();
        let large = "x".repeat(100_000);
        let mut freed = 0;
        for (lazily, handed_over) in [("yes", 2), ("no", 0), ("yes", 2)] {
            bench.line(&mut session, &format!("CONFIG SET lazyfree-lazy-expire {lazily}"));
            for key in ["found", "asked"] {
                bench.line(&mut session, &format!("RPUSH {key} {large}"));
                bench.line(&mut session, &format!("PEXPIRE {key} 1"));
            }
            bench.now_us += 2000;
            // A command that accesses an expired key removes it; the search finds the other one.
            bench.check(&mut session, &[("EXISTS asked", ":0")]);
            assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
            bench.check(&mut session, &[("DBSIZE", ":0")]);
            while reaper.pending() > 0 {
                std::thread::yield_now();
            }
            freed += handed_over;
            // The counter of freed values lags behind the one of pending values.
            let began = std::time::Instant::now();
            while reaper.freed() < freed && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            assert_eq!(reaper.freed(), freed, "{lazily}");
        }
    }

    #[test]
    fn a_long_search_is_an_event_of_the_latency_monitor() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for name in ["latency-monitor-threshold 1", "lazyfree-lazy-expire no"] {
            assert_eq!(bench.line(&mut session, &format!("CONFIG SET {name}")), "+OK");
        }
        let fill = "for i = 1, 200000 do redis.call('SADD', KEYS[1], 'member ' .. i) end";
        let fill = crate::testing::request(&["EVAL", fill, "1", "large"]);
        assert_eq!(bench.run(&mut session, &fill).0, b"$-1\r\n");
        bench.line(&mut session, "LATENCY RESET");
        bench.check(&mut session, &[("PEXPIRE large 1", ":1")]);
        bench.now_us += 2000;
        bench.worker.begin_turn(bench.now_us);
        // A search on a busy machine may end before it reaches the key.
        while bench.worker.look_for_expired(Duration::from_millis(1)) {}
        let latest = bench.line(&mut session, "LATENCY LATEST");
        assert!(latest.starts_with("*1|*4|$12|expire-cycle|:1700000000|:"), "{latest}");
        assert!(bench.line(&mut session, "LATENCY HISTORY expire-cycle").starts_with("*1|*2|:1700000000|:"));
    }

    #[test]
    fn new_expired_keys_do_not_starve_other_databases() {
        let mut bench = Bench::default();
        let (mut busy, mut quiet) = (bench.open(), bench.open());
        bench.check(&mut quiet, &[("select 1", "+OK"), ("set once v px 1", "+OK"), ("dbsize", ":1")]);
        for i in 0..10_000 {
            if bench.line(&mut quiet, "dbsize") == ":0" {
                return;
            }
            bench.line(&mut busy, &format!("set {i} v px 1"));
            bench.now_us += 2000;
            bench.worker.begin_turn(bench.now_us);
            bench.worker.reclaim_expired(0.0, Worker::serve_ready);
        }
        unreachable!("the second database was never looked at");
    }

    #[test]
    fn a_search_ends_after_one_round_without_a_find() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for database in 0..3 {
            bench.line(&mut session, &format!("select {database}"));
            bench.line(&mut session, "set later v px 50");
        }
        // The budget suffices for one shard only.
        let looks =
            |bench: &mut Bench| (0..).take_while(|_| bench.worker.reclaim_expired(0.0, Worker::serve_ready)).count();
        assert!(looks(&mut bench) > 1);
        assert_eq!(looks(&mut bench), 0);
        bench.now_us += 100_000;
        bench.worker.begin_turn(bench.now_us);
        // Due keys are still found.
        for _ in 0..10_000 {
            if bench.line(&mut session, "dbsize") == ":0" {
                return;
            }
            bench.worker.reclaim_expired(0.0, Worker::serve_ready);
        }
        unreachable!("the third database was never looked at");
    }

    #[test]
    fn keys_are_removed_however_they_came_to_expire() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let lines = [
            "select 1\nset a v px 5",
            "select 2\nset a v\npexpire a 5",
            "select 1\ncopy a a db 3",
            "select 4\nset a v px 5\nswapdb 4 5",
            "select 6\nset a v px 5\nmove a 7",
            "select 8\nset a v px 5\nflushdb\nhset a f v\npexpire a 5",
            "select 9\nset a v px 5\nflushall\nselect 1\nset a v px 5",
        ];
        for (count, databases) in [(6, [1, 2, 3, 5, 7, 8]), (7, [1, 1, 1, 1, 1, 1])] {
            lines[..count].join("\n").lines().for_each(|line| drop(bench.line(&mut session, line)));
            let select = |database| format!("select {database}");
            for database in databases {
                bench.check(&mut session, &[(&select(database), "+OK"), ("dbsize", ":1")]);
            }
            bench.now_us += 10_000;
            bench.worker.begin_turn(bench.now_us);
            assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
            for database in databases {
                bench.check(&mut session, &[(&select(database), "+OK"), ("dbsize", ":0")]);
            }
        }
    }

    #[test]
    fn fields_are_removed_however_their_hash_was_made() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let lines = [
            "select 1\nhset a f v g w\nhpexpire a 5 fields 1 f",
            "hsetex b px 5 fields 1 f v\nhset b g w",
            "copy a c db 3",
            "select 4\nhset a f v g w\nhpexpire a 5 fields 1 f\nswapdb 4 5",
            "select 6\nhset a f v g w\nhpexpire a 5 fields 1 f\nmove a 7\nselect 7\nrename a b",
            "select 8\nhset a f v g w\nhpexpire a 5 fields 1 f\nflushdb\nhset a f v g w\nhpexpire a 5 fields 1 f",
        ];
        lines.join("\n").lines().for_each(|line| drop(bench.line(&mut session, line)));
        let keys = [(1, "a"), (1, "b"), (3, "c"), (5, "a"), (7, "b"), (8, "a")];
        bench.now_us += 10_000;
        bench.worker.begin_turn(bench.now_us);
        assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
        assert!(bench.line(&mut session, "info stats").contains("expired_subkeys:6|"));
        for (database, key) in keys {
            bench.check(
                &mut session,
                &[(&format!("select {database}"), "+OK"), ("dbsize", if database == 1 { ":2" } else { ":1" })],
            );
            // No field is left that is merely hidden.
            bench.now_us -= 10_000;
            bench.check(&mut session, &[(&format!("hgetall {key}"), "*2|$1|g|$1|w")]);
            bench.now_us += 10_000;
        }
    }

    #[test]
    fn expired_fields_are_notified_and_recorded() {
        let mut bench = Bench::default();
        let (mut session, mut other) = (bench.open(), bench.open());
        let engine = bench.worker.engine;
        let mut journal = engine.journal.read(&engine.keyspace, journal::lane::Audience::File).unwrap();
        bench.line(&mut session, "config set notify-keyspace-events KEA");
        let mut subscriber = bench.open_with(resp::reply::Proto::Resp3);
        bench.line(&mut subscriber, "psubscribe __keyevent*");
        bench.check(&mut session, &[("hset h a 1 b 2 c 3", ":3"), ("hpexpire h 5 fields 2 a b", "*2|:1|:1")]);
        bench.check(&mut session, &[("hset gone a 1", ":1"), ("hpexpire gone 5 fields 1 a", "*1|:1")]);
        bench.check(&mut other, &[("watch h", "+OK"), ("multi", "+OK"), ("ping", "+QUEUED")]);
        bench.now_us += 10_000;
        // Expiries that a writing command meets are recorded before the command.
        bench.check(&mut session, &[("hsetnx h a 9", ":1")]);
        bench.worker.begin_turn(bench.now_us);
        assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
        bench.check(&mut session, &[("exists gone", ":0"), ("hgetall h", "*4|$1|c|$1|3|$1|a|$1|9")]);
        bench.check(&mut other, &[("exec", "*-1")]);
        let mut recorded = Vec::new();
        while let Some(unit) = journal.next_unit() {
            recorded.extend(unit.entries().map(|e| String::from_utf8_lossy(e.command).replace("\r\n", " ")));
        }
        let at = 1_700_000_000_005u64;
        let of = |line: &str| {
            let words: Vec<_> = line.split(' ').map(|word| format!("${} {word} ", word.len())).collect();
            format!("*{} {}", words.len(), words.concat())
        };
        let (first, second) =
            (of(&format!("HPEXPIREAT h {at} FIELDS 2 a b")), of(&format!("HPEXPIREAT gone {at} FIELDS 1 a")));
        assert!(recorded[1].starts_with("*7 $10 HPEXPIREAT") && recorded[1].len() == first.len(), "{recorded:?}");
        assert!(recorded[3].starts_with("*6 $10 HPEXPIREAT") && recorded[3].len() == second.len(), "{recorded:?}");
        let mut last = recorded[6..].to_vec();
        last.sort();
        assert_eq!(recorded[4..6], [of("HDEL h a"), of("hsetnx h a 9")]);
        assert_eq!(last, [of("HDEL h b"), of("HDEL gone a")]);
    }

    /// The primary doesn't know the keys that clients write on its replica.
    #[test]
    fn a_writable_replica_removes_its_own_expired_keys() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("SET primary v PX 10", "+OK"), ("CONFIG SET replica-read-only no", "+OK")]);
        let engine = bench.worker.engine;
        let alone = engine.keyspace.gate().close();
        let primary = crate::replication::Primary { host: "primary".into(), port: 1 };
        assert!(engine.replication.follow(&engine.journal, Some(primary), true));
        drop(alone);
        bench.check(
            &mut session,
            &[
                ("SET own v PX 10", "+OK"),
                ("SET lasting v", "+OK"),
                ("SET later v PX 10", "+OK"),
                ("PEXPIRE later 100", ":1"),
                ("EVAL \"return redis.call('SET',KEYS[1],'v','PX',10)\" 1 scripted", "+OK"),
                ("MULTI", "+OK"),
                ("RPUSH queued v", "+QUEUED"),
                ("PEXPIRE queued 10", "+QUEUED"),
                ("EXEC", "*2|:1|:1"),
                ("DBSIZE", ":6"),
            ],
        );
        let look = |bench: &mut Bench| {
            bench.worker.begin_turn(bench.now_us);
            assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
        };
        look(&mut bench);
        bench.check(&mut session, &[("DBSIZE", ":6")]);
        bench.now_us += 11_000;
        look(&mut bench);
        // The primary's key stays until the primary removes it.
        bench.check(&mut session, &[("DBSIZE", ":3"), ("EXISTS primary own lasting later", ":2")]);
        bench.now_us += 100_000;
        look(&mut bench);
        bench.check(&mut session, &[("DBSIZE", ":2")]);
    }
}
