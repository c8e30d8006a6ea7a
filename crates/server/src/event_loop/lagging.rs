//! Throttling for subscribers that are behind but reading.
//!
//! In Redis one thread publishes, and subscribers keep up with it. Several threads can publish faster than the same subscribers read, and
//! output limits would close clients that do nothing but read. A thread therefore delivers no more pushes while a subscriber of its own is
//! far behind and reading. Published messages stay in the inbox, and their publishers are held behind them.
//!
//! A slow subscriber can't delay the others without limit. The thread waits for it as long as its reading would take at
//! [`READ_BYTES_PER_S_MIN`], plus [`GRACE_US`]. A subscriber that reads faster always gets the wait. One that reads at a tenth of that rate
//! gets it for a tenth of the time. One that doesn't read gets none, and its output limit closes it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::EventLoop;
use super::backlog::is_subscriber;
use crate::backlog::Backlog;
use engine::clients::progress::Progress;

/// Unsent bytes from which a subscriber is behind, unless its hard limit is near.
const LAG_BYTES_MAX: u64 = 1024 * 1024;
/// Unsent bytes that all connections with a backlog share. A subscriber is behind when it exceeds its equal part, which is at least the
/// minimum below.
const LAG_BYTES_TOTAL: u64 = 8 * 1024 * 1024;
const LAG_BYTES_MIN: u64 = 64 * 1024;
/// The fraction of its hard limit, as a divisor, from which a subscriber is behind in any case.
const LAG_PART: u64 = 4;
/// Read rate from which a subscriber always gets the wait, in bytes a second.
const READ_BYTES_PER_S_MIN: u64 = 2_000_000;
/// Wait for a subscriber that is behind and reads nothing, in microseconds: a busy machine may keep it from reading for that long.
const GRACE_US: u64 = 250_000;
/// Time between two checks during a wait, if no socket has room before.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(5);

/// The subscribers of a thread that are behind.
#[derive(Default)]
pub(super) struct Lagging {
    /// By the poller's tokens.
    subscribers: BTreeSet<usize>,
    /// Total time that the thread has waited for subscribers, in microseconds.
    waited_us: u64,
    /// Start of the present wait.
    since: Option<Instant>,
}

impl Lagging {
    /// Returns true if the thread waits for any of them now.
    pub(super) fn is_waited_for(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn remove(&mut self, key: usize) {
        self.subscribers.remove(&key);
    }

    /// Adds a subscriber unless present.
    fn add(&mut self, key: usize, backlog: &mut Backlog) {
        if self.subscribers.insert(key) {
            backlog.waited_for_until_us = self.waited_us + GRACE_US;
        }
    }

    /// Notes that a subscriber has read `bytes`, which extends the wait for it.
    pub(super) fn note_read(&self, backlog: &mut Backlog, bytes: usize) {
        let earned_us = bytes as u64 * 1_000_000 / READ_BYTES_PER_S_MIN;
        // The thread checks at intervals, so a wait can exceed the earned time a little. The excess is subtracted from the next wait.
        let until_us = backlog.waited_for_until_us + earned_us;
        backlog.waited_for_until_us = until_us.min(self.waited_us + GRACE_US);
    }

    /// Counts the time of the present wait.
    fn count_wait(&mut self, now: Instant) {
        if let Some(since) = self.since.replace(now) {
            self.waited_us += now.duration_since(since).as_micros() as u64;
        }
    }
}

/// Returns the unsent bytes from which a subscriber is behind. `waiting` is the number of connections with a backlog.
fn lag_bytes(waiting: u64, hard_bytes: u64) -> u64 {
    let share = (LAG_BYTES_TOTAL / waiting.max(1)).clamp(LAG_BYTES_MIN, LAG_BYTES_MAX);
    if hard_bytes > 0 { share.min(hard_bytes / LAG_PART) } else { share }
}

impl EventLoop {
    /// Notes if a connection with unsent replies is a subscriber that is behind.
    pub(super) fn note_lag(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let hard_bytes = self.output_limit(connection).hard_bytes;
        let bytes_max = lag_bytes(self.waiting.len() as u64, hard_bytes);
        let is_behind = is_subscriber(connection)
            && connection.progress != Progress::Closing
            && connection.replies.len() > bytes_max;
        match self.connections.get_mut(key).and_then(|connection| connection.backlog.as_mut()) {
            Some(backlog) if is_behind => self.lagging.add(key, backlog),
            _ => self.lagging.remove(key),
        }
    }

    /// Returns true if the next portion must wait for subscribers that read.
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

    /// Returns true if the thread still waits for a subscriber that has read that many bytes in each of a thousand waits of 10 ms.
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
    fn more_backlogs_make_subscribers_count_as_behind_sooner() {
        assert_eq!((lag_bytes(0, 0), lag_bytes(8, 32 << 20), lag_bytes(16, 32 << 20)), (1 << 20, 1 << 20, 1 << 19));
        assert_eq!((lag_bytes(10_000, 0), lag_bytes(1, 1 << 20)), (64 << 10, 256 << 10));
    }

    #[test]
    fn readers_get_the_wait_and_others_only_the_grace_period() {
        assert!(is_waited_for(READ_BYTES_PER_S_MIN as usize / 100) && is_waited_for(1 << 30));
        assert!(!is_waited_for(READ_BYTES_PER_S_MIN as usize / 200) && !is_waited_for(0));
    }

    #[test]
    fn a_slow_reader_gets_a_wait_in_proportion_to_its_rate() {
        let (mut lagging, mut backlog) = (Lagging::default(), Backlog::default());
        lagging.add(1, &mut backlog);
        // The subscriber reads a tenth of the required rate, during waits and between them.
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
