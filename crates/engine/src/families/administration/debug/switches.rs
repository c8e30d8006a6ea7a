//! DEBUG subcommands that tune Redis's internal structures, and ways to end the server at once.
//!
//! Test suites use the former to reach rare paths in Redis. Penstock has other structures, so the arguments are only
//! checked, with Redis's replies.

use std::sync::atomic::Ordering;

use commands::error::{Error, Outcome};
use resp::num::parse_i64;

use crate::worker::turn::Turn;
use config::LogLevel;

/// Maximum size of a packed list element in Redis, in bytes.
const PACKED_MAX: u64 = 4 << 30;

/// `QUICKLIST-PACKED-THRESHOLD size`: size from which a list element is stored alone.
pub(super) fn packed_threshold(turn: &mut Turn<'_, '_>) -> Outcome {
    let wrong = Error::fixed("ERR argument must be a memory value bigger than 1 and smaller than 4gb");
    memory(turn.arg(2)).filter(|&bytes| bytes < PACKED_MAX).ok_or(wrong)?;
    turn.reply.ok();
    Ok(())
}

/// A number of bytes with a unit: `100b`, `2gb`.
fn memory(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// `REPLYBUFFER RESIZING on` and `REPLYBUFFER PEAK-RESET-TIME time`: ignored, because connections have no reply buffer
/// that a clock resizes.
pub(super) fn reply_buffer(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.is(2, "RESIZING") && !turn.is(2, "PEAK-RESET-TIME") {
        return Err(Error::SYNTAX);
    }
    turn.reply.ok();
    Ok(())
}

/// An option without a meaning in Penstock.
pub(super) fn nothing(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.ok();
    Ok(())
}

/// `SLOTMIGRATION PREVENT-PAUSE on`: moves of slots away from this node hold no writes, and so they do not end.
/// `SLOTMIGRATION PREVENT-FAILOVER on`: this node does not claim slots that it was granted.
pub(super) fn slot_migration(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = parse_i64(turn.arg(3)).unwrap_or(0) != 0;
    let jobs = &turn.engine().slots.jobs;
    let switch = if turn.is(2, "PREVENT-PAUSE") { &jobs.prevents_pause } else { &jobs.prevents_failover };
    switch.store(on, Ordering::Relaxed);
    turn.reply.ok();
    Ok(())
}

/// `LEAK string`: leaks this many bytes of memory.
pub(super) fn leak(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.arg(2).to_vec().leak();
    turn.reply.ok();
    Ok(())
}

/// `PANIC`, `ASSERT`, `SEGFAULT`: end the process at once, as in a crash. Nothing is saved.
pub(super) fn crash(turn: &mut Turn<'_, '_>) -> Outcome {
    let how = String::from_utf8_lossy(turn.arg(1)).to_ascii_uppercase();
    turn.engine().host.log(LogLevel::Warning, &format!("DEBUG {how}: the server ends at once."));
    std::process::abort()
}
