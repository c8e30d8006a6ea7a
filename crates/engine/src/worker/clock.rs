//! The time that commands see.
//!
//! A turn reads the system's clock once, which does for all that it runs while it is short. But a script, a command on
//! a large collection or another thread may keep it for long, and what runs behind that must not have a time from
//! before: a lock that is taken for 300 ms has to last that long from when its owner gets to know of it. So the clock
//! is set again where a window's commands begin, which run for half a millisecond before they yield, and after waits.
//! For a transaction or a script time stands still, as in Redis; but where a script waits for another thread.

use store::keyspace::{Keyspace, Locked};

use super::Worker;
use crate::session::Session;
use crate::ticks::{Ticks, to_microseconds};

/// How old the clock may become before a connection's commands begin to run, in microseconds. Together with the time
/// that these may take until they yield, a command sees one that is a millisecond old at most; and a turn of the usual
/// length doesn't set it twice.
pub(super) const STALE_US: f64 = 500.0;

impl Worker {
    /// Sets the clock again if it has become old; `now` is the present reading.
    #[inline]
    pub(crate) fn follow_clock(&mut self, now: Ticks) {
        if now.since(self.clock_set) > self.stale_ticks {
            self.set_clock(now);
        }
    }

    /// Sets the clock again after something that was begun at `before`, if that has had to wait.
    pub(crate) fn follow_clock_after(&mut self, before: Ticks) {
        let now = Ticks::now();
        if now.since(before) > self.stale_ticks {
            self.set_clock(now);
        }
    }

    /// Has `lock` take shards, which is to give up when it is told so, because of a script that takes too long; none
    /// then. Whoever had them may have had them for long.
    #[inline]
    pub(crate) fn lock<'k>(
        &mut self,
        lock: impl FnOnce(&'static Keyspace, &dyn Fn() -> bool) -> Option<Locked<'k>>,
    ) -> Option<Locked<'k>> {
        let engine = self.engine;
        let locked = lock(&engine.keyspace, &engine.busy.ends_waits());
        self.follow_clock(Ticks::now());
        locked
    }

    #[inline(never)]
    pub(super) fn set_clock(&mut self, now: Ticks) {
        self.clock_set = now;
        self.clock.now_ms = self.unix_us(now) / 1000;
        self.clock.due_ms = if self.replays { 0 } else { self.clock.now_ms };
        self.clock.uptime_s = (self.clock.now_ms.saturating_sub(self.engine.started_ms) / 1000) as u32;
        if let Some(frequency) = &mut self.clock.frequency {
            frequency.minutes = self.clock.uptime_s / 60;
        }
    }

    /// The time now, as [`Worker::present_us`]. Who has seen it sees no command of this thread of an earlier time
    /// afterwards, but within a transaction or script.
    pub(crate) fn look_at_clock(&mut self, session: &Session) -> u64 {
        let now = Ticks::now();
        if !session.in_exec {
            self.set_clock(now);
        }
        self.unix_us(now)
    }

    /// A reading of this turn as microseconds of Unix time.
    fn unix_us(&self, ticks: Ticks) -> u64 {
        self.now_us + to_microseconds(ticks.since(self.turn_began)) as u64
    }

    /// The time now, in microseconds of Unix time: the turn's, and what has passed of the turn.
    #[must_use]
    pub fn present_us(&self) -> u64 {
        self.unix_us(Ticks::now())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Loader, Settings};
    use crate::testing::{Bench, request};

    #[test]
    fn what_follows_a_slow_command_has_the_time_of_then() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        bench.let_time_pass();
        let mut session = bench.open();
        let lines = ["set old v px 5", "debug sleep 0.03", "get old", "set new v px 20"];
        let input = lines.map(|line| request(&line.split(' ').collect::<Vec<_>>())).concat();
        assert_eq!(bench.run(&mut session, &input).0, b"+OK\r\n+OK\r\n$-1\r\n+OK\r\n");
        // It was set after 30 milliseconds at least.
        bench.now_us += 45_000;
        assert_eq!(bench.line(&mut session, "get new"), "$1|v");
    }
}
