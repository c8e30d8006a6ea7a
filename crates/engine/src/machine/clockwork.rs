//! The time that commands see.
//!
//! A turn reads the system's clock once, which suffices while the turn is short. But a script, a command on a large
//! collection or another thread may hold the thread up, and later commands must not see the old time: a lock for 300 ms
//! must last that long from the moment its owner gets the reply. The clock is therefore set again before a window's
//! commands, which run for half a millisecond before they yield, and after waits. During a transaction or a script,
//! time stands still, as in Redis, except if a script waits for another thread.

use std::ops::{Deref, DerefMut};

use store::db::{Access, Clock};

use statistics::ticks::{Ticks, per_microsecond, to_microseconds};

/// Maximum age of the clock before a connection's commands begin to run, in microseconds. Including the time until they
/// yield, commands see a time that is at most a millisecond old, and a turn of ordinary length sets the clock only
/// once.
const STALE_US: f64 = 500.0;

/// A turn shorter than this part of [`STALE_US`] delays no input that matters.
const BRIEF_TURN: u64 = 5;
/// The thread has not waited for input if the time between two turns is at most this part of [`STALE_US`].
const BRIEF_WAIT: u64 = 25;

/// A thread's clock: the time that commands see, and its upkeep. Dereferences to the [`Clock`] that commands see.
#[derive(Clone, Copy)]
pub struct Clockwork {
    seen: Clock,
    /// The clock for a session with CLIENT NO-TOUCH, made when it runs a command.
    untouching: Clock,
    /// True while the thread replays the journal.
    pub(crate) replays: bool,
    /// True while a command of a connection that imports data runs: no key expires for it.
    sees_due: bool,
    /// Start of the server, in milliseconds of Unix time.
    started_ms: u64,
    /// Start of the turn, in microseconds of Unix time.
    turn_us: u64,
    turn_began: Ticks,
    /// End of the turn before.
    turn_ended: Ticks,
    /// Estimate of the time at which the input that this turn reads has arrived.
    arrival: Ticks,
    /// Time at which `seen` was set.
    set_at: Ticks,
    /// Maximum age of the clock before a connection's commands begin to run.
    pub(crate) stale_ticks: u64,
}

impl Clockwork {
    /// Creates the clock of a thread before its first turn, in a server that started at this time.
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
            turn_ended: now,
            arrival: now,
            set_at: now,
            stale_ticks: (STALE_US * per_microsecond()) as u64,
        }
    }

    /// Sets the clock to the start of a turn, in microseconds of Unix time.
    pub(crate) fn begin_turn(&mut self, now_us: u64) {
        let now = Ticks::now();
        self.turn_us = now_us;
        self.arrival = self.arrival_before(now);
        self.turn_began = now;
        self.set(now);
    }

    /// Ends the turn, and returns its ticks.
    pub(crate) fn end_turn(&mut self) -> u64 {
        self.turn_ended = Ticks::now();
        self.turn_ended.since(self.turn_began)
    }

    /// Estimates the arrival of the input that a turn finds at its start. The start is exact if the thread has waited
    /// for the input. Otherwise it has arrived at any time of the turn before: the estimate is the middle.
    fn arrival_before(&self, now: Ticks) -> Ticks {
        let (turn, waited) = (self.turn_ended.since(self.turn_began), now.since(self.turn_ended));
        if turn < self.stale_ticks / BRIEF_TURN || waited > self.stale_ticks / BRIEF_WAIT {
            return now;
        }
        self.turn_began.after(turn / 2)
    }

    /// Returns the estimated time at which the input that this turn reads has arrived.
    #[inline]
    #[must_use]
    pub fn arrival(&self) -> Ticks {
        self.arrival
    }

    /// Returns the start of the turn, in microseconds of Unix time and in ticks.
    #[inline]
    pub(crate) fn turn_began(&self) -> (u64, Ticks) {
        (self.turn_us, self.turn_began)
    }

    /// Sets the clock again if it is too old; `now` is the present reading.
    #[inline]
    pub(crate) fn follow(&mut self, now: Ticks) {
        if now.since(self.set_at) > self.stale_ticks {
            self.set(now);
        }
    }

    /// Sets the clock again after an operation that began at `before`, if that took long.
    pub(crate) fn follow_after(&mut self, before: Ticks) {
        let now = Ticks::now();
        if now.since(before) > self.stale_ticks {
            self.set(now);
        }
    }

    /// Sets the visibility of expired keys, which a client that imports data sees.
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

    /// Returns the clock for a session with CLIENT NO-TOUCH.
    pub(crate) fn untouching(&mut self) -> &Clock {
        self.untouching = Clock { access: Access::None, ..self.seen };
        &self.untouching
    }

    /// Returns the present time in microseconds of Unix time: the turn's start and the ticks since then. Sets the clock
    /// to it unless time `stands_still`, so that later commands of this thread see no earlier time.
    pub(crate) fn look(&mut self, stands_still: bool) -> u64 {
        let now = Ticks::now();
        if !stands_still {
            self.set(now);
        }
        self.unix_us(now)
    }

    /// Converts a reading within this turn to microseconds of Unix time.
    fn unix_us(&self, ticks: Ticks) -> u64 {
        self.turn_us + to_microseconds(ticks.since(self.turn_began)) as u64
    }

    /// Returns the present time in microseconds of Unix time.
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
    use crate::testing::{Bench, request};
    use config::{Loader, Settings};

    #[test]
    fn commands_after_a_slow_one_see_the_present_time() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        bench.let_time_pass();
        let mut session = bench.open();
        let lines = ["set old v px 5", "debug sleep 0.03", "get old", "set new v px 20"];
        let input = lines.map(|line| request(&line.split(' ').collect::<Vec<_>>())).concat();
        assert_eq!(bench.run(&mut session, &input).0, b"+OK\r\n+OK\r\n$-1\r\n+OK\r\n");
        // The lock was set after at least 30 milliseconds.
        bench.now_us += 45_000;
        assert_eq!(bench.line(&mut session, "get new"), "$1|v");
    }
}
