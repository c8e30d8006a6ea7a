//! Subscribers that are behind, and are waited for as long as they read.
//!
//! In Redis one thread publishes, and subscribers keep up with it. Several threads can publish faster than the same
//! subscribers read, so that limits would close clients that do nothing but read. So a thread hands out no more while a
//! subscriber of its own has much to read and reads. What is published waits in the inbox, and behind that its
//! publishers.
//!
//! A slow subscriber can't hold up the others without limit. It is waited for as long as reading what it has read would
//! take at [`READ_BYTES_PER_S_MIN`], plus [`GRACE_US`]. One that reads faster is always waited for; one that reads at a
//! tenth of that, for a tenth of the time; one that doesn't read, not at all, and its limit closes it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::EventLoop;
use super::backlog::is_subscriber;
use crate::backlog::Backlog;
use crate::connection::Hold;

/// Bytes that may wait for a subscriber before it is behind, unless its hard limit is near.
const LAG_BYTES_MAX: u64 = 1024 * 1024;
/// The same where many have something that waits: these bytes are shared among them, as long as each has the least.
const LAG_BYTES_TOTAL: u64 = 8 * 1024 * 1024;
const LAG_BYTES_MIN: u64 = 64 * 1024;
/// The part of its hard limit from which on it is behind in any case.
const LAG_PART: u64 = 4;
/// How fast a subscriber has to read, in bytes a second, to be always waited for.
const READ_BYTES_PER_S_MIN: u64 = 2_000_000;
/// How long a subscriber that is behind is waited for though it reads nothing, in microseconds: a busy machine may keep it
/// from reading for so long.
const GRACE_US: u64 = 250_000;
/// How soon the thread looks again while it waits, if no socket has room before.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(5);

/// Those of a thread.
#[derive(Default)]
pub(super) struct Lagging {
    /// By the poller's numbers.
    subscribers: BTreeSet<usize>,
    /// How long the thread has waited for subscribers, all in all, in microseconds.
    waited_us: u64,
    /// Since when it does so now.
    since: Option<Instant>,
}

impl Lagging {
    /// Whether what is published waits for any of them now.
    pub(super) fn is_waited_for(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn remove(&mut self, key: usize) {
        self.subscribers.remove(&key);
    }

    /// Adds one, if it isn't there.
    fn add(&mut self, key: usize, backlog: &mut Backlog) {
        if self.subscribers.insert(key) {
            backlog.waited_for_until_us = self.waited_us + GRACE_US;
        }
    }

    /// Notes that one has read so many bytes: for as much longer it is waited for.
    pub(super) fn note_read(&self, backlog: &mut Backlog, bytes: usize) {
        let earned_us = bytes as u64 * 1_000_000 / READ_BYTES_PER_S_MIN;
        // A wait that was a little longer than what it had earned is made up for.
        let until_us = backlog.waited_for_until_us + earned_us;
        backlog.waited_for_until_us = until_us.min(self.waited_us + GRACE_US);
    }

    /// Counts the time for which the thread has waited.
    fn count_wait(&mut self, now: Instant) {
        if let Some(since) = self.since.replace(now) {
            self.waited_us += now.duration_since(since).as_micros() as u64;
        }
    }
}

/// Bytes that may wait for a subscriber before it is behind, where replies of so many connections wait.
fn lag_bytes(waiting: u64, hard_bytes: u64) -> u64 {
    let share = (LAG_BYTES_TOTAL / waiting.max(1)).clamp(LAG_BYTES_MIN, LAG_BYTES_MAX);
    if hard_bytes > 0 { share.min(hard_bytes / LAG_PART) } else { share }
}

impl EventLoop {
    /// Notes whether a connection whose replies wait is a subscriber that is behind.
    pub(super) fn note_lag(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let hard_bytes = self.output_limit(connection).hard_bytes;
        let bytes_max = lag_bytes(self.waiting.len() as u64, hard_bytes);
        let is_behind =
            is_subscriber(connection) && connection.hold != Hold::Closing && connection.replies.len() > bytes_max;
        match self.connections.get_mut(key).and_then(|connection| connection.backlog.as_mut()) {
            Some(backlog) if is_behind => self.lagging.add(key, backlog),
            _ => self.lagging.remove(key),
        }
    }

    /// Whether the next portion has to wait for subscribers that read.
    pub(super) fn must_wait_for_readers(&mut self) -> bool {
        if self.lagging.subscribers.is_empty() {
            self.lagging.since = None;
            return false;
        }
        self.lagging.count_wait(Instant::now());
        let waited_us = self.lagging.waited_us;
        let until_us = |key: &usize| self.connections.get(*key)?.backlog.as_ref().map(|b| b.waited_for_until_us);
        let waits = self.lagging.subscribers.iter().filter_map(until_us).any(|until_us| until_us > waited_us);
        if !waits {
            self.lagging.since = None;
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether one that has read so many bytes in each of a thousand waits of 10 ms was waited for at the end.
    fn is_waited_for(bytes: usize) -> bool {
        let (mut lagging, mut backlog) = (Lagging::default(), Backlog::default());
        lagging.add(1, &mut backlog);
        (0..1000).all(|_| {
            lagging.waited_us += 10_000;
            lagging.note_read(&mut backlog, bytes);
            backlog.waited_for_until_us > lagging.waited_us
        })
    }

    #[test]
    fn the_more_have_something_that_waits_the_sooner_they_are_behind() {
        assert_eq!((lag_bytes(0, 0), lag_bytes(8, 32 << 20), lag_bytes(16, 32 << 20)), (1 << 20, 1 << 20, 1 << 19));
        assert_eq!((lag_bytes(10_000, 0), lag_bytes(1, 1 << 20)), (64 << 10, 256 << 10));
    }

    #[test]
    fn those_that_read_are_waited_for_and_others_for_a_moment() {
        assert!(is_waited_for(READ_BYTES_PER_S_MIN as usize / 100) && is_waited_for(1 << 30));
        assert!(!is_waited_for(READ_BYTES_PER_S_MIN as usize / 200) && !is_waited_for(0));
    }

    #[test]
    fn one_that_reads_slowly_is_waited_for_as_long_as_it_takes_one_that_does_not() {
        let (mut lagging, mut backlog) = (Lagging::default(), Backlog::default());
        lagging.add(1, &mut backlog);
        // It reads a tenth of what it should, by the clock, whether it is waited for or not.
        let mut waited = 0;
        for _ in 0..100_000 {
            let waits = backlog.waited_for_until_us > lagging.waited_us;
            lagging.waited_us += if waits { 1000 } else { 0 };
            waited += u64::from(waits);
            lagging.note_read(&mut backlog, READ_BYTES_PER_S_MIN as usize / 10_000);
        }
        assert!((9_000..11_500).contains(&waited), "{waited}");
    }
}
