//! The processor's cycle counter: the cheapest clock there is, to time every command.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is watched to learn its pace. Long enough that reading the other clock does not matter.
const CALIBRATION: Duration = Duration::from_millis(5);

/// A reading of the counter. Only differences mean anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticks(u64);

impl Ticks {
    /// The present reading.
    #[inline]
    #[must_use]
    pub fn now() -> Ticks {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: RDTSC is part of x86-64; an operating system that forbids it to programs is not supported.
        return Ticks(unsafe { std::arch::x86_64::_rdtsc() });
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return Ticks(nanoseconds());
    }

    /// The reading as a number, to be compared with others.
    #[inline]
    #[must_use]
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Ticks since an earlier reading; 0 if the counter went backwards (a thread that changed its core).
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Ticks) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The reading so many ticks later.
    #[inline]
    #[must_use]
    pub fn after(self, ticks: u64) -> Ticks {
        Ticks(self.0.saturating_add(ticks))
    }
}

/// Nanoseconds since the first call.
#[cfg(any(miri, not(target_arch = "x86_64")))]
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

static PACE: OnceLock<f64> = OnceLock::new();

/// Has a microsecond have so many ticks instead of as many as the counter shows, for all of the process. For benchmarks that
/// count instructions: learning the pace takes as many as the machine is fast, and what is done once in a while, too. Without
/// effect once the pace is known.
#[cfg(any(test, feature = "testing"))]
pub fn assume_pace(ticks: f64) {
    let _ = PACE.set(ticks);
}

/// How many ticks a microsecond has. The first call takes 5 ms; the server makes it at its start.
#[must_use]
pub fn per_microsecond() -> f64 {
    *PACE.get_or_init(|| {
        let (start, ticks) = (Instant::now(), Ticks::now());
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        (Ticks::now().since(ticks) as f64 / (start.elapsed().as_nanos() as f64 / 1000.0)).max(f64::MIN_POSITIVE)
    })
}

/// Ticks as microseconds.
#[must_use]
pub fn to_microseconds(ticks: u64) -> f64 {
    ticks as f64 / per_microsecond()
}
