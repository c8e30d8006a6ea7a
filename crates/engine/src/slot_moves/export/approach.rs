//! The approach to the hold of writes: the hold begins once the target applies the remaining changes within milliseconds.
//!
//! A target of Penstock reports the bytes that it has applied. With another target, the bytes in the target's receive buffer are
//! unknown: they count as applied. If writers are faster than the target, they are held for moments (brakes) until the target has caught
//! up. A brake that finds few changes left becomes the hold of the handover.
//!
//! The code has no clock and no socket: the caller passes times and counts.

use std::time::Duration;

/// A hold begins if the target is expected to apply the remaining changes within this time.
const NEAR: Duration = Duration::from_millis(10);
/// A hold goes on to the handover if the target is expected to apply the remaining changes within this time.
const READY: Duration = Duration::from_millis(5);
/// Remaining bytes that are few at any speed of the target.
const FEW_BYTES: u64 = 32 << 10;
/// Remaining bytes that are many at any speed of the target.
const MANY_BYTES: u64 = 4 << 20;
/// The longest brake.
const BRAKE_MAX: Duration = Duration::from_millis(20);
/// The time between two brakes: the first, and the shortest.
const REST: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(2)];
/// Brakes begin if the remaining bytes have not become a quarter fewer within this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part of the remaining bytes that a brake and the time until the next one must gain.
const GAIN: u64 = 64;
/// The shortest interval for which the speed of the target is measured.
const MEASURED: Duration = Duration::from_millis(20);

/// The progress of the target, and the brakes.
pub struct Approach {
    reports: bool,
    /// Bytes of the stream that the target has applied.
    applied: u64,
    /// Bytes that the target applies in a second. Zero before a measurement.
    rate: f64,
    /// The beginning of the present measurement, and the bytes applied until then.
    measured: (Duration, u64),
    /// The fewest remaining bytes, and the time of their measurement.
    fewest: Option<(Duration, u64)>,
    is_braking: bool,
    /// The end of the last brake, and the remaining bytes then.
    released: Option<(Duration, u64)>,
    rest: Duration,
}

impl Approach {
    pub fn new(now: Duration) -> Approach {
        Approach {
            reports: false,
            applied: 0,
            rate: 0.0,
            measured: (now, 0),
            fewest: None,
            is_braking: false,
            released: None,
            rest: REST[0],
        }
    }

    /// Notes that the target reports its progress.
    pub fn expect_reports(&mut self) {
        self.reports = true;
    }

    /// Notes a report: the target has applied so many of the `written` bytes of the stream.
    ///
    /// # Errors
    /// The number can't be right.
    pub fn note_applied(&mut self, applied: u64, written: u64, now: Duration) -> Result<(), String> {
        if !self.reports || applied < self.applied || applied > written {
            return Err("The target has reported an impossible progress".into());
        }
        self.applied = applied;
        let (began, before) = self.measured;
        let took = now.saturating_sub(began);
        if applied == written {
            // The target has waited for bytes.
            self.measured = (now, applied);
        } else if took >= MEASURED {
            self.rate = (applied - before) as f64 / took.as_secs_f64();
            self.measured = (now, applied);
        }
        Ok(())
    }

    /// Returns the bytes that the target has not applied, of `written` bytes of the stream of which the kernel has `in_kernel` on
    /// their way, and of `unsent` further ones.
    pub fn remaining(&self, written: u64, in_kernel: u64, unsent: u64) -> u64 {
        let on_way = if self.reports { written.saturating_sub(self.applied) } else { in_kernel };
        on_way.saturating_add(unsent)
    }

    /// Returns the number of bytes that the target applies in this time.
    fn bytes_in(&self, time: Duration) -> u64 {
        ((self.rate * time.as_secs_f64()) as u64).clamp(FEW_BYTES, MANY_BYTES)
    }

    /// Returns true if writes are to be held now. `remaining`: the bytes that the target has not applied.
    pub fn may_begin(&mut self, remaining: u64, now: Duration) -> bool {
        let shrinks = self.fewest.is_none_or(|(_, fewest)| remaining < fewest - fewest / 4);
        if shrinks {
            self.fewest = Some((now, remaining));
        }
        let is_late = self.fewest.is_some_and(|(at, _)| now.saturating_sub(at) >= PATIENCE);
        self.is_braking |= is_late;
        let has_rested = self.released.is_none_or(|(at, _)| now.saturating_sub(at) >= self.rest);
        has_rested && (self.is_braking || remaining <= self.bytes_in(NEAR))
    }

    /// Returns true if so few bytes are left that the handover may go on.
    pub fn is_ready(&self, remaining: u64) -> bool {
        remaining <= self.bytes_in(READY)
    }

    /// Returns true if a brake that began at `began` must end.
    pub fn must_release(&self, began: Duration, now: Duration) -> bool {
        now.saturating_sub(began) >= BRAKE_MAX
    }

    /// Notes the end of a brake. Brakes follow each other faster until the remaining bytes halve within some seconds.
    pub fn note_release(&mut self, remaining: u64, now: Duration) {
        if self.released.is_some_and(|(_, before)| remaining > before - before / GAIN) {
            self.rest = (self.rest / 2).max(REST[1]);
        }
        self.released = Some((now, remaining));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn reporting(now: Duration) -> Approach {
        let mut approach = Approach::new(now);
        approach.expect_reports();
        approach
    }

    #[test]
    fn the_hold_begins_once_the_target_has_nearly_caught_up() {
        let now = Duration::from_secs(100);
        let mut approach = reporting(now);
        // 10 MB a second.
        approach.note_applied(1_000_000, 9_000_000, now + 100 * MS).unwrap();
        assert_eq!(approach.remaining(9_000_000, 5, 7), 8_000_007);
        assert!(!approach.may_begin(8_000_000, now + 100 * MS));
        assert!(!approach.may_begin(100_001, now + 101 * MS));
        assert!(approach.may_begin(100_000, now + 102 * MS));
        assert!(!approach.is_ready(50_001) && approach.is_ready(50_000));
    }

    #[test]
    fn an_idle_target_s_speed_is_not_measured() {
        let now = Duration::from_secs(100);
        let mut approach = reporting(now);
        approach.note_applied(1_000_000, 2_000_000, now + 100 * MS).unwrap();
        approach.note_applied(2_000_000, 2_000_000, now + 5000 * MS).unwrap();
        approach.note_applied(2_000_001, 2_000_002, now + 5001 * MS).unwrap();
        assert!(approach.may_begin(100_000, now + 5002 * MS));
    }

    #[test]
    fn writers_that_are_too_fast_are_braked_ever_more_often() {
        let now = Duration::from_secs(100);
        let mut approach = reporting(now);
        assert!(!approach.may_begin(9_000_000, now) && !approach.may_begin(8_000_000, now + 999 * MS));
        assert!(approach.may_begin(8_000_000, now + 1000 * MS));
        assert!(!approach.must_release(now, now + 19 * MS) && approach.must_release(now, now + 20 * MS));
        approach.note_release(7_000_000, now);
        assert!(!approach.may_begin(7_000_000, now + 19 * MS) && approach.may_begin(7_000_000, now + 20 * MS));
        approach.note_release(6_000_000, now);
        assert!(!approach.may_begin(6_000_000, now + 19 * MS));
        for _ in 0..9 {
            approach.note_release(5_999_000, now);
        }
        assert!(!approach.may_begin(7_000_000, now + MS) && approach.may_begin(7_000_000, now + 2 * MS));
    }

    #[test]
    fn progress_keeps_brakes_away() {
        let now = Duration::from_secs(100);
        let mut approach = reporting(now);
        let mut remaining = 900_000_000;
        for second in 0..10 {
            assert!(!approach.may_begin(remaining, now + 900 * MS * second));
            remaining = remaining * 2 / 3;
        }
    }

    #[test]
    fn impossible_reports_are_refused() {
        let now = Duration::from_secs(100);
        assert!(Approach::new(now).note_applied(0, 5, now).is_err());
        let mut approach = reporting(now);
        approach.note_applied(4, 5, now).unwrap();
        assert!(approach.note_applied(3, 5, now).is_err() && approach.note_applied(6, 5, now).is_err());
        assert_eq!(Approach::new(now).remaining(100, 5, 7), 12);
    }
}
