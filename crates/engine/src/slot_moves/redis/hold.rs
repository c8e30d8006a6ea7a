//! The time for which a Redis source still holds writes.
//!
//! The source begins to hold writes when an acknowledgment comes whose offset is close to the end of its changes, and ends the hold after a
//! fixed time. It does not say which acknowledgment that was, and it does not end the connection with the hold. A late claim would lose
//! writes, so this node counts the time from the earliest acknowledgment that can have begun the hold.

use std::collections::VecDeque;
use std::time::Duration;

/// Part of the hold that must be left when the claim begins. A claim takes at most 1.5 s, and the rest is for the disk and the network.
const CLAIM_TIME: Duration = Duration::from_secs(2);

/// The directives of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directives {
    /// `cluster-slot-migration-write-pause-timeout`: the time of the hold.
    pub(super) hold: Duration,
    /// `cluster-slot-migration-handoff-max-lag-bytes`: the bytes that an offset may be behind when the hold begins.
    pub(super) lag_bytes: u64,
}

impl Default for Directives {
    fn default() -> Directives {
        Directives { hold: Duration::from_secs(10), lag_bytes: 1 << 20 }
    }
}

/// The acknowledgments that may have begun the hold.
#[derive(Default)]
pub(super) struct Acks {
    /// Times and offsets, from the oldest to the newest.
    sent: VecDeque<(Duration, u64)>,
    /// The time of the first acknowledgment of all.
    first: Option<Duration>,
}

impl Acks {
    /// Notes an acknowledgment. `known` is the number of bytes of changes that have come.
    pub(super) fn note(&mut self, offset: u64, known: u64, directives: &Directives, now: Duration) {
        self.first.get_or_insert(now);
        // The end of the changes is at least as far as those that have come.
        while self.sent.front().is_some_and(|(_, offset)| offset.saturating_add(directives.lag_bytes) < known) {
            self.sent.pop_front();
        }
        // A repeated offset can't have begun the hold earlier than its first acknowledgment.
        if self.sent.back().is_none_or(|(_, last)| *last != offset) {
            self.sent.push_back((now, offset));
        }
    }

    /// Returns true if the source certainly holds writes until a claim is over. `end` is the number of bytes of all changes.
    pub(super) fn have_time_left(&self, end: u64, directives: &Directives, now: Duration) -> bool {
        let may_begin = |(_, offset): &&(Duration, u64)| offset.saturating_add(directives.lag_bytes) >= end;
        let began = self.sent.iter().find(may_begin).map(|(time, _)| *time).or(self.first);
        began.is_some_and(|began| now.saturating_sub(began) + CLAIM_TIME <= directives.hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_counts_from_the_first_acknowledgment_that_can_have_begun_it() {
        let (directives, at) = (Directives::default(), Duration::from_secs);
        let mut acks = Acks::default();
        assert!(!acks.have_time_left(0, &directives, at(1)), "nothing can have begun it");
        acks.note(0, 0, &directives, at(100));
        acks.note(0, 0, &directives, at(105));
        assert!(acks.have_time_left(0, &directives, at(108)) && !acks.have_time_left(0, &directives, at(109)));
        // The source was ahead by more than a megabyte when the first came, or the hold began later.
        assert!(!acks.have_time_left(1 << 20, &directives, at(109)));
        acks.note(5, 9, &directives, at(108));
        assert!(acks.have_time_left((1 << 20) + 5, &directives, at(116)));
        assert!(!acks.have_time_left((1 << 20) + 5, &directives, at(117)));
        // No acknowledgment explains the end: other directives hold at the source.
        assert!(!acks.have_time_left(9 << 20, &directives, at(109)));
    }

    #[test]
    fn acknowledgments_that_were_too_early_are_forgotten() {
        let (directives, at) = (Directives::default(), Duration::from_secs);
        let mut acks = Acks::default();
        for second in 0..1000 {
            acks.note(second << 20, (second + 2) << 20, &directives, at(second));
        }
        assert!(acks.sent.len() <= 3, "{}", acks.sent.len());
        acks.note(1000 << 20, 1001 << 20, &directives, at(1000));
        assert!(
            acks.have_time_left(1001 << 20, &directives, at(1008))
                && !acks.have_time_left(1001 << 20, &directives, at(1009))
        );
    }

    #[test]
    fn a_short_hold_leaves_no_time() {
        let directives = Directives { hold: Duration::from_secs(1), ..Directives::default() };
        let mut acks = Acks::default();
        acks.note(0, 0, &directives, Duration::from_secs(5));
        assert!(!acks.have_time_left(0, &directives, Duration::from_secs(5)));
    }
}
