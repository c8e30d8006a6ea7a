//! The processor's cycle counter: the cheapest clock, used to time every command.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Duration of the measurement of the counter's frequency. Long enough to hide the cost of reading the other clock.
const CALIBRATION: Duration = Duration::from_millis(5);

/// A reading of the counter. Only differences are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticks(u64);

impl Ticks {
    /// Returns the present reading.
    #[inline]
    #[must_use]
    pub fn now() -> Ticks {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: RDTSC is part of x86-64; an operating system that forbids it to programs is not supported.
        return Ticks(unsafe { std::arch::x86_64::_rdtsc() });
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return Ticks(nanoseconds());
    }

    /// Returns the reading as a number, for comparisons.
    #[inline]
    #[must_use]
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Returns the ticks since an earlier reading; 0 if the counter went backwards (the thread changed its core).
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Ticks) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the reading this many ticks later.
    #[inline]
    #[must_use]
    pub fn after(self, ticks: u64) -> Ticks {
        Ticks(self.0.saturating_add(ticks))
    }
}

/// Returns the nanoseconds since the first call.
#[cfg(any(miri, not(target_arch = "x86_64")))]
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

static PACE: OnceLock<f64> = OnceLock::new();

/// Sets the number of ticks per microsecond for the whole process, instead of measuring it. For benchmarks that count
/// instructions: the measurement and periodic work take a number of instructions that depends on the machine's speed.
/// Without effect after the first measurement.
#[cfg(any(test, feature = "testing"))]
pub fn assume_pace(ticks: f64) {
    let _ = PACE.set(ticks);
}

/// Returns the number of ticks per microsecond. The first call takes 5 ms; the server makes it at its start.
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

/// Converts ticks to microseconds.
#[must_use]
pub fn to_microseconds(ticks: u64) -> f64 {
    ticks as f64 / per_microsecond()
}
