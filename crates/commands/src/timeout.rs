//! Parsing of timeouts of blocking commands.
//!
//! Source: the command pages of BLPOP and similar commands, and the replies of a Redis server.

use resp::longdouble::F80;
use resp::num;

use crate::error::Error;

/// Limit for whole seconds that become milliseconds without overflow, even after adding the current time: a million
/// years.
const PLAIN_SECONDS_LIMIT: i64 = 1_000_000 * 366 * 24 * 60 * 60;

/// Parses a timeout in seconds and returns it in milliseconds; none for 0, which means no timeout.
///
/// Seconds may have a fraction; milliseconds are rounded up. As in Redis 7.2, the value is a C `long double`, so a
/// timeout above -1 ms counts as 0. Errors, with Redis's texts: not a number, negative, too far in the future.
pub fn timeout_ms(text: &[u8], now_ms: u64) -> Result<Option<u64>, Error> {
    let timeout_ms = match num::parse_i64(text) {
        Some(seconds @ 0..PLAIN_SECONDS_LIMIT) => seconds * 1000,
        _ => F80::parse(text).ok_or(Error::TIMEOUT_NOT_FLOAT)?.times(1000).ceil(),
    };
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    if timeout_ms == 0 {
        return Ok(None);
    }
    // Redis keeps times in signed integers.
    let end_ms = timeout_ms.saturating_add(now_ms);
    if end_ms > i64::MAX as u64 { Err(Error::TIMEOUT_OUT_OF_RANGE) } else { Ok(Some(timeout_ms)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        const NOW_MS: u64 = 1_700_000_000_000;
        let after = |ms: u64| Ok(Some(ms));
        let rows = [
            ("0", Ok(None)),
            ("0.0", Ok(None)),
            ("-0.0005", Ok(None)),
            ("1", after(1000)),
            ("+1", after(1000)),
            ("01", after(1000)),
            ("1e3", after(1_000_000)),
            ("0x10", after(16_000)),
            ("0.0001", after(1)),
            ("0.1", after(100)),
            ("31622399999999", after(31_622_399_999_999_000)),
            ("31622400000000", after(31_622_400_000_000_000)),
            ("9223370336854775", after(9_223_370_336_854_775_000)),
            ("9223370336854775.9", Err(Error::TIMEOUT_OUT_OF_RANGE)),
            ("9223372036854775807", Err(Error::TIMEOUT_OUT_OF_RANGE)),
            ("inf", Err(Error::TIMEOUT_OUT_OF_RANGE)),
            ("-1", Err(Error::TIMEOUT_NEGATIVE)),
            ("-inf", Err(Error::TIMEOUT_NEGATIVE)),
            ("-9223372036854775808", Err(Error::TIMEOUT_NEGATIVE)),
            ("", Err(Error::TIMEOUT_NOT_FLOAT)),
            (" 1", Err(Error::TIMEOUT_NOT_FLOAT)),
            ("nan", Err(Error::TIMEOUT_NOT_FLOAT)),
            ("abc", Err(Error::TIMEOUT_NOT_FLOAT)),
            ("1e5000", Err(Error::TIMEOUT_NOT_FLOAT)),
        ];
        for (text, expected) in rows {
            assert_eq!(timeout_ms(text.as_bytes(), NOW_MS), expected, "{text}");
        }
        assert_eq!(timeout_ms(b"1", u64::MAX), Err(Error::TIMEOUT_OUT_OF_RANGE));
    }
}
