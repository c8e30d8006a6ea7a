//! Group commit: how long a sync is delayed for more units.
//!
//! With `appendfsync always`, clients that await each reply come in groups. A sync ends, its clients get their replies, and they send their
//! next commands a moment later. Without a delay the next sync would begin at once, with the few commands that arrived during the last one.
//! Two groups would then take turns, each waiting for the other's sync. The next sync is therefore delayed until the clients of the last
//! one have sent again, at most half as long as the last sync took. If the disk is slower than the clients, nearly all of them share each
//! sync.

use std::time::{Duration, Instant};

use journal::order::Position;

/// The next sync's longest delay is the duration of the last sync divided by this.
const WAIT_PART: u32 = 2;
/// The longest delay on any disk. Clients that take longer are busy with other work.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// The most syncs in a row without a delay, after delays that gained little.
const SKIPS_MAX: u32 = 64;

/// A delay before the next sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The delay ends once this unit has been committed,
    pub wanted: Position,
    /// or at this time.
    pub deadline: Instant,
    /// The latest unit when the wait began.
    began_with: Position,
}

/// The decisions of the group commit.
#[derive(Debug, Default)]
pub struct GroupCommit {
    next: Option<Wait>,
    /// The last durable unit.
    synced: Position,
    /// Delays in a row that gained little, and the number of next syncs without a delay.
    failures: u32,
    skips: u32,
}

impl GroupCommit {
    /// Notes a sync that ended at `now`, took `took` and made all units up to `synced` durable. `last` is the latest unit.
    pub fn note_sync(&mut self, took: Duration, now: Instant, synced: Position, last: Position) {
        let released = synced.saturating_sub(self.synced);
        self.synced = synced;
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        let deadline = now + (took / WAIT_PART).min(WAIT_MAX);
        self.next = Some(Wait { wanted: last + released, deadline, began_with: last });
    }

    /// Notes that units up to `synced` became durable without a sync that clients waited for. No delay follows.
    pub fn follow(&mut self, synced: Position) {
        (self.synced, self.next) = (synced, None);
    }

    /// Takes the delay before the next sync, if there is one.
    pub fn take(&mut self) -> Option<Wait> {
        self.next.take()
    }

    /// Notes the end of a delay, with `last` as the latest unit.
    pub fn note_end(&mut self, wait: Wait, last: Position) {
        let (came, hoped) = (last.saturating_sub(wait.began_with), wait.wanted - wait.began_with);
        if came * 2 >= hoped {
            self.failures = 0;
        } else {
            self.failures += 1;
            self.skips = 1u32.checked_shl(self.failures).unwrap_or(SKIPS_MAX).min(SKIPS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(2);

    #[test]
    fn a_sync_waits_for_those_that_the_last_one_has_released() {
        let mut group_commit = GroupCommit::default();
        let now = Instant::now();
        assert_eq!(group_commit.take(), None);
        group_commit.note_sync(SYNC, now, 25, 40);
        let wait = group_commit.take().unwrap();
        assert_eq!((wait.wanted, wait.deadline), (65, now + SYNC / 2));
        group_commit.note_end(wait, 65);
        assert_eq!(group_commit.take(), None);
        group_commit.note_sync(Duration::from_secs(1), now, 65, 65);
        assert_eq!(group_commit.take().map(|wait| (wait.wanted, wait.deadline)), Some((105, now + WAIT_MAX)));
    }

    #[test]
    fn what_nothing_waited_for_is_not_waited_for_again() {
        let mut group_commit = GroupCommit::default();
        group_commit.follow(1000);
        group_commit.note_sync(SYNC, Instant::now(), 1002, 1003);
        assert_eq!(group_commit.take().unwrap().wanted, 1005);
    }

    #[test]
    fn waits_that_are_of_no_use_become_rare() {
        let mut group_commit = GroupCommit::default();
        let (mut position, mut waits) = (0, 0);
        for _ in 0..1000 {
            position += 10;
            group_commit.note_sync(SYNC, Instant::now(), position, position);
            if let Some(wait) = group_commit.take() {
                waits += 1;
                group_commit.note_end(wait, position + 1);
            }
        }
        assert!((15..30).contains(&waits), "{waits}");
        // Delays resume when the clients return.
        for _ in 0..=SKIPS_MAX + 1 {
            position += 10;
            group_commit.note_sync(SYNC, Instant::now(), position, position);
            if let Some(wait) = group_commit.take() {
                group_commit.note_end(wait, wait.wanted);
            }
        }
        group_commit.note_sync(SYNC, Instant::now(), position + 10, position + 10);
        assert!(group_commit.take().is_some());
    }
}
