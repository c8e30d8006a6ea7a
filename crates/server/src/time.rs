//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the microseconds of Unix time.
#[must_use]
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
