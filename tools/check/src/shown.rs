//! Formats numbers, times and bytes for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of bytes shown of a name.
const SHOWN_BYTES: usize = 100;

/// Formats a key or another name from a file. Characters that a terminal can't show are escaped, and long names are
/// cut.
pub fn name(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let text = match std::str::from_utf8(start) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => start.escape_ascii().to_string(),
    };
    if bytes.len() > start.len() { text + "…" } else { text }
}

/// Formats a number with its noun: `1 key`, `2,000 keys`.
pub fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats 12345 as 12,345.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Formats seconds of Unix time as a date, or as the number itself if there is no such date.
pub fn date(seconds: u64) -> String {
    let timestamp = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    timestamp.map_or_else(|| seconds.to_string(), |timestamp| timestamp.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// Returns the current Unix time in milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_reach_the_terminal_as_they_are() {
        assert_eq!(name("Amélie".as_bytes()), "Amélie");
        assert_eq!(name(b"a\x1b[2J\xff"), "a\\x1b[2J\\xff");
        assert_eq!(name(&[b'x'; 101]), "x".repeat(100) + "…");
    }

    #[test]
    fn numbers_and_dates() {
        assert_eq!((count(1, "key"), count(12_345, "key")), ("1 key".into(), "12,345 keys".into()));
        assert_eq!(date(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(date(u64::MAX), u64::MAX.to_string());
    }
}
