//! Busy polling for clients that await every reply.
//!
//! Such a client sends its next request some microseconds after the reply, and most of its round trip goes into waking the sleeping thread.
//! A thread therefore polls for a while before it sleeps if that is worthwhile: the last waits were short, few connections are active (with
//! many, one wake-up serves several), and there is a core to spare. A wrong guess costs one poll. Several in a row end the polling until
//! short waits are seen again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::process;

/// Short waits in a row before a thread polls.
const SHORT_WAITS_MIN: u32 = 16;
/// Upper limit of a short wait of a sleeping thread, including the turn before it. The wake-up alone takes tens of microseconds.
const SLEPT_SHORTLY: Duration = Duration::from_micros(300);
/// Failed polls in a row that end the polling.
const FAILURES_MAX: u32 = 3;
/// Average number of connections per turn above which a thread never polls.
const ACTIVE_MAX: f64 = 3.0;
/// Weight of the last turn in the average of active connections.
const ACTIVE_WEIGHT: f64 = 1.0 / 16.0;
/// Time between checks of the machine's load while a thread polls.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause of polling after the machine was found busy.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Threads that poll at this moment. One core always remains for their clients.
static POLLING: AtomicUsize = AtomicUsize::new(0);

/// Decides if a thread polls before it sleeps.
#[derive(Debug)]
pub struct Polling {
    cores: usize,
    short_waits: u32,
    failures: u32,
    active: f64,
    next_look: Instant,
    paused_until: Instant,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The thread had work anyway.
    NotAtAll,
    /// An event arrived while the thread polled.
    Polled,
    /// It polled without an event, and slept.
    PolledInVain,
    /// It slept at once.
    Slept,
}

impl Polling {
    /// The state of a thread that has not waited yet.
    pub fn new(now: Instant) -> Polling {
        Polling { cores: cores(), short_waits: 0, failures: 0, active: 0.0, next_look: now, paused_until: now }
    }

    /// Returns the permit to poll and the present time, if polling is worthwhile.
    #[inline]
    pub fn permit(&mut self) -> Option<(Permit, Instant)> {
        if self.is_wanted() { self.permit_at(Instant::now()) } else { None }
    }

    /// The checks that need no clock.
    fn is_wanted(&self) -> bool {
        self.short_waits >= SHORT_WAITS_MIN && self.active <= ACTIVE_MAX
    }

    fn permit_at(&mut self, now: Instant) -> Option<(Permit, Instant)> {
        if self.is_worthwhile(now) { Permit::take(self.cores).map(|permit| (permit, now)) } else { None }
    }

    fn is_worthwhile(&mut self, now: Instant) -> bool {
        if !self.is_wanted() || now < self.paused_until {
            return false;
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            if runnable().is_none_or(|runnable| runnable > self.cores) {
                self.paused_until = now + BUSY_PAUSE;
                return false;
            }
        }
        true
    }

    /// Notes the end of a wait, the time of the turn and the wait together, and the number of ready connections.
    pub fn note(&mut self, waited: Waited, passed: Duration, ready: usize) {
        self.active += (ready as f64 - self.active) * ACTIVE_WEIGHT;
        match waited {
            // An immediate event was not awaited, and tells nothing about waits.
            Waited::NotAtAll => {}
            Waited::Polled => self.failures = 0,
            Waited::Slept if passed <= SLEPT_SHORTLY && ready > 0 => {
                self.short_waits = (self.short_waits + 1).min(SHORT_WAITS_MIN);
            }
            Waited::Slept => self.short_waits = 0,
            Waited::PolledInVain => {
                self.failures += 1;
                if self.failures >= FAILURES_MAX {
                    (self.short_waits, self.failures) = (0, 0);
                }
            }
        }
    }
}

/// The right to poll, returned on drop.
pub struct Permit(());

impl Permit {
    /// Takes a permit if a core is left besides the polling threads.
    fn take(cores: usize) -> Option<Permit> {
        let polls = |polling: usize| (polling + 1 < cores).then_some(polling + 1);
        POLLING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, polls).ok().map(|_| Permit(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        POLLING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    sched_getaffinity(None).map_or(1, |set: CpuSet| set.count() as usize)
}

/// Returns the runnable threads of the whole machine, including this one, if the system tells.
fn runnable() -> Option<usize> {
    process::load_average()?.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    fn polling() -> (Polling, Instant) {
        let now = Instant::now();
        let mut polling = Polling::new(now);
        // Makes the test independent of the machine and its load.
        polling.cores = usize::MAX;
        (polling, now)
    }

    fn short_waits(polling: &mut Polling, count: u32, ready: usize) {
        (0..count).for_each(|_| polling.note(Waited::Slept, 40 * MICROSECOND, ready));
    }

    #[test]
    fn an_idle_thread_never_polls_and_one_with_short_waits_does() {
        let (mut polling, now) = polling();
        assert!(!polling.is_worthwhile(now));
        (0..100).for_each(|_| polling.note(Waited::Slept, 100_000 * MICROSECOND, 0));
        assert!(!polling.is_worthwhile(now));
        short_waits(&mut polling, SHORT_WAITS_MIN - 1, 1);
        assert!(!polling.is_worthwhile(now));
        short_waits(&mut polling, 1, 1);
        assert!(polling.is_worthwhile(now));
        polling.note(Waited::Slept, 1000 * MICROSECOND, 1);
        assert!(!polling.is_worthwhile(now));
    }

    #[test]
    fn failed_polls_in_a_row_end_polling() {
        let (mut polling, now) = polling();
        short_waits(&mut polling, SHORT_WAITS_MIN, 1);
        for _ in 1..FAILURES_MAX {
            polling.note(Waited::PolledInVain, 100 * MICROSECOND, 1);
        }
        polling.note(Waited::Polled, 40 * MICROSECOND, 1);
        for _ in 1..FAILURES_MAX {
            polling.note(Waited::PolledInVain, 100 * MICROSECOND, 1);
        }
        assert!(polling.is_worthwhile(now));
        polling.note(Waited::PolledInVain, 100 * MICROSECOND, 1);
        assert!(!polling.is_worthwhile(now));
    }

    #[test]
    fn many_active_connections_and_busy_cores_end_polling() {
        let (mut polling, now) = polling();
        short_waits(&mut polling, 100, 50);
        assert!(!polling.is_worthwhile(now));
        short_waits(&mut polling, 100, 1);
        assert!(polling.is_worthwhile(now));
        polling.cores = 0;
        assert!(!polling.is_worthwhile(now + LOOK_EVERY));
        polling.cores = usize::MAX;
        assert!(!polling.is_worthwhile(now + LOOK_EVERY + BUSY_PAUSE / 2));
        assert!(polling.is_worthwhile(now + LOOK_EVERY + BUSY_PAUSE));
    }

    #[test]
    fn one_core_is_left_for_the_clients() {
        assert!(Permit::take(2).is_some_and(|_one| Permit::take(2).is_none()));
        assert!(Permit::take(2).is_some());
        assert!(Permit::take(1).is_none());
    }
}
