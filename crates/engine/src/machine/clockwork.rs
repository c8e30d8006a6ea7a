//! The time that commands see.
//!
//! A turn reads the system's clock once, which does for all that it runs while it is short. But a script, a command on
//! a large collection or another thread may keep the thread for long, and what runs behind that must not have a time
//! from before: a lock that is taken for 300 ms has to last that long from when its owner learns of it. So the clock
//! is set again where a window's commands begin, which run for half a millisecond before they yield, and after waits.
//! For a transaction or a script time stands still, as in Redis; except where a script waits for another thread.

use std::ops::{Deref, DerefMut};

use store::db::{Access, Clock};

use super::ticks::{Ticks, per_microsecond, to_microseconds};

/// How old the clock may become before a connection's commands begin to run, in microseconds. Together with the time
/// that these may take until they yield, a command sees one that is a millisecond old at most; and a turn of the usual
/// length doesn't set it twice.
const STALE_US: f64 = 500.0;

/// A thread's clock: what commands see, and how it is kept. It stands for what commands see, wherever a [`Clock`] is
/// wanted.
#[derive(Clone, Copy)]
pub struct Clockwork {
    seen: Clock,
    /// The same for a session that leaves no trace of its accesses; made when one runs a command.
    untouching: Clock,
    /// True while the thread replays the journal.
    pub(crate) replays: bool,
    /// True while a command of a connection runs that imports another server's data: nothing is due for it.
    sees_due: bool,
    /// When the server started, in milliseconds of Unix time.
    started_ms: u64,
    /// When the turn began, in microseconds of Unix time.
    turn_us: u64,
    turn_began: Ticks,
    /// When `seen` was set.
    set_at: Ticks,
    /// How old it may become before a connection's commands begin to run.
    pub(crate) stale_ticks: u64,
}

impl Clockwork {
    /// The clock of a thread that has had no turn yet, in a server that started at this time.
    pub(crate) fn new(started_ms: u64) -> Clockwork {
        let seen =
            Clock { now_ms: 0, due_ms: 0, uptime_s: 0, access: Access::Noted, frequency: None, keeps_due: false };
        let now = Ticks::now();
        Clockwork {
            seen,
            untouching: seen,
            replays: false,
            sees_due: false,
            started_ms,
            turn_us: 0,
            turn_began: now,
            set_at: now,
            stale_ticks: (STALE_US * per_microsecond()) as u64,
        }
    }

    /// Sets the clock to the time at which a turn begins, in microseconds of Unix time.
    pub(crate) fn begin_turn(&mut self, now_us: u64) {
        self.turn_us = now_us;
        self.turn_began = Ticks::now();
        self.set(self.turn_began);
    }

    /// When the turn began, in microseconds of Unix time, and by the counter.
    #[inline]
    pub(crate) fn turn_began(&self) -> (u64, Ticks) {
        (self.turn_us, self.turn_began)
    }

    /// Ticks since the turn began.
    pub(crate) fn turn_ticks(&self) -> u64 {
        Ticks::now().since(self.turn_began)
    }

    /// Sets the clock again if it has become old; `now` is the present reading.
    #[inline]
    pub(crate) fn follow(&mut self, now: Ticks) {
        if now.since(self.set_at) > self.stale_ticks {
            self.set(now);
        }
    }

    /// Sets the clock again after something that was begun at `before`, if that has had to wait.
    pub(crate) fn follow_after(&mut self, before: Ticks) {
        let now = Ticks::now();
        if now.since(before) > self.stale_ticks {
            self.set(now);
        }
    }

    /// Sets whether expired keys are still visible, as they are to a client that imports data.
    #[inline]
    pub(crate) fn see_due(&mut self, sees_due: bool) {
        if self.sees_due != sees_due {
            self.sees_due = sees_due;
            self.seen.due_ms = if self.replays || sees_due { 0 } else { self.seen.now_ms };
        }
    }

    /// Sets the clock.
    #[inline(never)]
    pub(crate) fn set(&mut self, now: Ticks) {
        self.set_at = now;
        self.seen.now_ms = self.unix_us(now) / 1000;
        self.seen.due_ms = if self.replays || self.sees_due { 0 } else { self.seen.now_ms };
        self.seen.uptime_s = (self.seen.now_ms.saturating_sub(self.started_ms) / 1000) as u32;
        if let Some(frequency) = &mut self.seen.frequency {
            frequency.minutes = self.seen.uptime_s / 60;
        }
    }

    /// The clock for a session that leaves no trace of its accesses.
    pub(crate) fn untouching(&mut self) -> &Clock {
        self.untouching = Clock { access: Access::None, ..self.seen };
        &self.untouching
    }

    /// The time now, in microseconds of Unix time: the turn's, and what has passed of the turn. The clock is set to it,
    /// unless time `stands_still`, so that no command of this thread sees an earlier time afterwards.
    pub(crate) fn look(&mut self, stands_still: bool) -> u64 {
        let now = Ticks::now();
        if !stands_still {
            self.set(now);
        }
        self.unix_us(now)
    }

    /// A reading of this turn as microseconds of Unix time.
    fn unix_us(&self, ticks: Ticks) -> u64 {
        self.turn_us + to_microseconds(ticks.since(self.turn_began)) as u64
    }

    /// The time now, in microseconds of Unix time.
    #[must_use]
    pub fn present_us(&self) -> u64 {
        self.unix_us(Ticks::now())
    }
}

impl Deref for Clockwork {
    type Target = Clock;

    #[inline]
    fn deref(&self) -> &Clock {
        &self.seen
    }
}

impl DerefMut for Clockwork {
    #[inline]
    fn deref_mut(&mut self) -> &mut Clock {
        &mut self.seen
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
