//! DEBUG's switches of how Redis keeps what it keeps, and its ways to end the server at once.
//!
//! Test suites turn the former so that Redis takes a rare way through its own structures. Penstock has other structures, so that
//! there is nothing to turn: what is given is checked, and answered as by Redis.

use commands::error::{Error, Outcome};

use crate::config::LogLevel;
use crate::worker::turn::Turn;

/// The greatest element of a list that Redis may be told to pack with others, in bytes.
const PACKED_MAX: u64 = 4 << 30;

/// `QUICKLIST-PACKED-THRESHOLD size`: from which size on an element of a list stands alone.
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

/// `REPLYBUFFER RESIZING on` and `REPLYBUFFER PEAK-RESET-TIME time`: a connection has no buffer that is resized by a clock.
pub(super) fn reply_buffer(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.is(2, "RESIZING") && !turn.is(2, "PEAK-RESET-TIME") {
        return Err(Error::SYNTAX);
    }
    turn.reply.ok();
    Ok(())
}

/// A switch of which Penstock has nothing.
pub(super) fn nothing(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.ok();
    Ok(())
}

/// `LEAK string`: loses memory of as many bytes.
pub(super) fn leak(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.arg(2).to_vec().leak();
    turn.reply.ok();
    Ok(())
}

/// `PANIC`, `ASSERT`, `SEGFAULT`: the process ends at once, as in a crash. Nothing is saved.
pub(super) fn crash(turn: &mut Turn<'_, '_>) -> Outcome {
    let how = String::from_utf8_lossy(turn.arg(1)).to_ascii_uppercase();
    turn.engine().host.log(LogLevel::Warning, &format!("DEBUG {how}: the server ends at once."));
    std::process::abort()
}
