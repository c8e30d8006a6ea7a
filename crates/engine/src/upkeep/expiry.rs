//! Looks for expired keys, by the clock.
//!
//! Every key that expires is noted by its time, so that a look finds nothing but expired keys. Looks follow
//! each other until there are none left; how much of a thread's time they take meanwhile is a matter of
//! `active-expire-effort`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::machine::ticks::{Ticks, per_microsecond};
use crate::services::slow;
use crate::worker::{Pass, Worker};

/// The share of a thread's time that looks may take at the least effort, in percent, and what each step of effort adds
/// to it: Redis's figures.
const SHARE_PERCENT: f64 = 25.0;
const SHARE_STEP_PERCENT: f64 = 2.0;

/// How long a look may take where they come once a `tick`. Others wait for as long: with the greatest effort, 10, for
/// 43 percent of a tick, and they have the greater part of the thread's time in any case.
pub(crate) fn look_us(tick: Duration, effort: i64) -> f64 {
    let percent = SHARE_PERCENT + SHARE_STEP_PERCENT * (effort.clamp(1, 10) - 1) as f64;
    tick.as_micros() as f64 * percent / 100.0
}

impl Worker {
    /// Removes expired keys, for up to `budget_us` microseconds. Call it many times a second; says whether
    /// there are more. `serve` serves the waiters of keys that are gone.
    pub(crate) fn reclaim_expired(&mut self, budget_us: f64, serve: impl FnOnce(&mut Worker, &mut Pass)) -> bool {
        /// Keys of a shard that are removed before the time is looked at and others may have the shard.
        const AT_ONCE: usize = 16;
        // While commands are held back, keys stay as they are, as far as clients can tell.
        if !self.engine.active_expire.load(Ordering::Relaxed) || self.engine.keeps_keys() {
            return false;
        }
        // What expires is published, and no client can be made to wait for that.
        if self.overfilled.any() && self.engine.notify_classes.load(Ordering::Relaxed) != 0 {
            return true;
        }
        // What expires is recorded, and the log has no room.
        if !self.log_has_room() {
            return true;
        }
        let began = Ticks::now();
        let mut inside = self.pass();
        if inside.is_none() {
            return false;
        }
        self.note_observed();
        let more = self.reclaim_shards(began, (budget_us * per_microsecond()) as u64, AT_ONCE);
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

    /// Removes keys of this thread's shards, so many at once, until the time is up. Says whether there are more.
    fn reclaim_shards(&mut self, began: Ticks, budget_ticks: u64, at_once: usize) -> bool {
        let keyspace = &self.engine.keyspace;
        // Threads share the work: each looks at its own part of the shards.
        let threads = self.engine.inboxes.len();
        let shards = keyspace.shard_count().saturating_sub(self.id).div_ceil(threads);
        let total = shards * keyspace.databases();
        let mut looked_at = 0;
        let mut in_time = true;
        while in_time && looked_at < total {
            let (database, nth) = (self.upkeep.expiry.at() / shards, self.upkeep.expiry.at() % shards);
            let done = if !keyspace.had_expiries(database) {
                shards - nth
            } else {
                usize::from(!self.reclaim_shard(database, self.id + nth * threads, at_once))
            };
            self.upkeep.expiry.go_on(done, total);
            looked_at += done;
            in_time = Ticks::now().since(began) <= budget_ticks;
        }
        // With many shards, to look at all of them can take longer than there is time: once round is enough, if all is
        // quiet.
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
            // A command that asks for one removes it; the other one is found.
            bench.check(&mut session, &[("EXISTS asked", ":0")]);
            assert!(!bench.worker.reclaim_expired(1e6, Worker::serve_ready));
            bench.check(&mut session, &[("DBSIZE", ":0")]);
            while reaper.pending() > 0 {
                std::thread::yield_now();
            }
            freed += handed_over;
            // What is pending no more is counted a moment later.
            let began = std::time::Instant::now();
            while reaper.freed() < freed && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            assert_eq!(reaper.freed(), freed, "{lazily}");
        }
    }

    #[test]
    fn a_look_that_takes_long_is_an_event_of_the_latency_monitor() {
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
        // On a busy machine, a look may end before it has come to the key.
        while bench.worker.look_for_expired(Duration::from_millis(1)) {}
        let latest = bench.line(&mut session, "LATENCY LATEST");
        assert!(latest.starts_with("*1|*4|$12|expire-cycle|:1700000000|:"), "{latest}");
        assert!(bench.line(&mut session, "LATENCY HISTORY expire-cycle").starts_with("*1|*2|:1700000000|:"));
    }

    #[test]
    fn expired_keys_are_removed_everywhere_though_there_are_always_new_ones_somewhere() {
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
    fn a_thread_that_finds_nothing_in_one_round_has_looked_enough() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for database in 0..3 {
            bench.line(&mut session, &format!("select {database}"));
            bench.line(&mut session, "set later v px 50");
        }
        // No time for more than one shard.
        let looks =
            |bench: &mut Bench| (0..).take_while(|_| bench.worker.reclaim_expired(0.0, Worker::serve_ready)).count();
        assert!(looks(&mut bench) > 1);
        assert_eq!(looks(&mut bench), 0);
        bench.now_us += 100_000;
        bench.worker.begin_turn(bench.now_us);
        // What is due is found all the same.
        for _ in 0..10_000 {
            if bench.line(&mut session, "dbsize") == ":0" {
                return;
            }
            bench.worker.reclaim_expired(0.0, Worker::serve_ready);
        }
        unreachable!("the third database was never looked at");
    }

    #[test]
    fn expired_keys_are_removed_in_whatever_way_they_came_to_expire() {
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
    fn fields_that_expire_are_removed_in_whatever_way_their_hash_came_to_be() {
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
            // Nothing is left to be hidden.
            bench.now_us -= 10_000;
            bench.check(&mut session, &[(&format!("hgetall {key}"), "*2|$1|g|$1|w")]);
            bench.now_us += 10_000;
        }
    }

    #[test]
    fn fields_that_expire_are_told_and_recorded() {
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
        // What a command that writes meets goes before it.
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
}
