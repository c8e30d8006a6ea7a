//! How long a sync waits for company.
//!
//! With `appendfsync always`, clients that wait for each reply come in groups: a sync ends, its clients are answered, and send their next
//! commands a moment later. Meanwhile the next sync would have begun with the few that had come before, and from then on two groups
//! take turns, each waiting for the other's sync. So a sync waits for those that the last one has released, at most half as long
//! as that one took: with a disk that takes longer than clients need, nearly all of them share each sync.

use std::time::{Duration, Instant};

use journal::order::Position;

/// The part of the last sync's time that the next one may wait.
const WAIT_PART: u32 = 2;
/// The longest wait, however slow the disk is: clients that take longer than that have something else to do.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// After waits that were of little use, so many syncs at most go without one.
const SKIPS_MAX: u32 = 64;

/// What is waited for before the next sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Until there is this unit.
    pub wanted: Position,
    /// But no longer than this.
    pub deadline: Instant,
    /// The latest unit when the wait began.
    began_with: Position,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Gathering {
    next: Option<Wait>,
    /// The last unit that is durable.
    synced: Position,
    /// Waits in a row that were of little use, and syncs that have yet to go without one.
    failures: u32,
    skips: u32,
}

impl Gathering {
    /// Notes that a sync has ended `now` that took so long and made all units up to `synced` durable. `last` is the latest unit.
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

    /// Notes that units up to `synced` are durable, whose clients did not wait for that.
    pub fn follow(&mut self, synced: Position) {
        (self.synced, self.next) = (synced, None);
    }

    /// What is waited for before the next sync, if anything.
    pub fn take(&mut self) -> Option<Wait> {
        self.next.take()
    }

    /// Notes how a wait ended, with `last` as the latest unit.
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
        let mut gathering = Gathering::default();
        let now = Instant::now();
        assert_eq!(gathering.take(), None);
        gathering.note_sync(SYNC, now, 25, 40);
        let wait = gathering.take().unwrap();
        assert_eq!((wait.wanted, wait.deadline), (65, now + SYNC / 2));
        gathering.note_end(wait, 65);
        assert_eq!(gathering.take(), None);
        gathering.note_sync(Duration::from_secs(1), now, 65, 65);
        assert_eq!(gathering.take().map(|wait| (wait.wanted, wait.deadline)), Some((105, now + WAIT_MAX)));
    }

    #[test]
    fn what_nothing_waited_for_is_not_waited_for_again() {
        let mut gathering = Gathering::default();
        gathering.follow(1000);
        gathering.note_sync(SYNC, Instant::now(), 1002, 1003);
        assert_eq!(gathering.take().unwrap().wanted, 1005);
    }

    #[test]
    fn waits_that_are_of_no_use_become_rare() {
        let mut gathering = Gathering::default();
        let (mut position, mut waits) = (0, 0);
        for _ in 0..1000 {
            position += 10;
            gathering.note_sync(SYNC, Instant::now(), position, position);
            if let Some(wait) = gathering.take() {
                waits += 1;
                gathering.note_end(wait, position + 1);
            }
        }
        assert!((15..30).contains(&waits), "{waits}");
        // And they come back with the clients.
        for _ in 0..=SKIPS_MAX + 1 {
            position += 10;
            gathering.note_sync(SYNC, Instant::now(), position, position);
            if let Some(wait) = gathering.take() {
                gathering.note_end(wait, wait.wanted);
            }
        }
        gathering.note_sync(SYNC, Instant::now(), position + 10, position + 10);
        assert!(gathering.take().is_some());
    }
}
