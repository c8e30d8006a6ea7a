//! Numbers as text, parsed and printed exactly as in Redis 7.2: integers, doubles, cursors and score bounds.
//!
//! This module knows no command and no reply format. Long doubles are in [`crate::longdouble`].

mod binary;
mod fixed;
mod seventeen;
mod shortest;

pub(crate) use binary::{HexText, parse_exponent, round_to_precision};
pub use fixed::FixedText;
pub use seventeen::SeventeenDigits;
pub use shortest::{FloatText, write_f64};

/// Number of digits of `i64::MAX` and of `i64::MIN`; a longer text can't be a 64-bit signed integer.
const I64_DIGITS_MAX: usize = 19;

/// Parses a 64-bit signed integer in its canonical spelling; none for any other text.
///
/// A canonical spelling is the one that printing the result produces: no plus sign, no space, no leading zero, no `-0`.
/// Redis depends on this to store such values as integers.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= I64_DIGITS_MAX => {}
        _ => return None,
    }
    // Nineteen digits always fit in 64 unsigned bits, so nothing can overflow before the range check below.
    let magnitude = parse_digits(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Parses a size in the syntax of redis.conf, `100`, `5k` (5000), `64mb` (64 times 1024 squared), and returns bytes;
/// `None` for anything else, including sizes beyond 64 bits (which wrap in Redis). A missing number is zero, as in
/// Redis.
#[must_use]
pub fn parse_bytes(arg: &str) -> Option<u64> {
    let digits = arg.len() - arg.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = arg.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let number = if number.is_empty() { 0 } else { number.parse::<u64>().ok()? };
    number.checked_mul(unit)
}

/// Returns the value of at most 19 decimal digits; `None` if a byte isn't a digit.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    let (head, tail) = match digits.split_first_chunk::<8>() {
        Some((chunk, rest)) => (parse_eight_digits(u64::from_le_bytes(*chunk))?, rest),
        None => (0, digits),
    };
    tail.iter().try_fold(head, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| value * 10 + u64::from(digit))
    })
}

/// Converts eight ASCII digits, the first in the lowest byte, to their value, with three multiplications instead of
/// eight.
///
/// Neighbouring digits are joined into pairs, pairs into fours, fours into the whole; see Daniel Lemire, "Quickly
/// parsing eight digits" (2018).
#[inline]
fn parse_eight_digits(chunk: u64) -> Option<u64> {
    const HIGH_NIBBLES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    // A byte is a digit if its high nibble is 3 both before and after adding 6.
    let after_six = chunk.wrapping_add(0x0606_0606_0606_0606);
    if chunk & HIGH_NIBBLES != ZEROS || after_six & HIGH_NIBBLES != ZEROS {
        return None;
    }
    let digits = chunk - ZEROS;
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

/// Parses an unsigned number as leniently as Redis parses cursors of the SCAN commands and the numbers of stream IDs;
/// `None` corresponds to its "invalid cursor".
///
/// Canonical numbers must not be negative. Other texts are read by C's `strtoull`: blanks and a sign may precede the
/// digits (a negative number wraps around), and the text ends at its first zero byte.
pub fn parse_u64_lenient(text: &[u8]) -> Option<u64> {
    let text = until_nul(text);
    if let Some(number) = parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let start = text.iter().position(|byte| !is_c_space(*byte))?;
    let (negative, digits) = split_sign(&text[start..]);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })?;
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// The text up to its first zero byte, as C functions see it.
fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Splits off a leading `+` or `-`; true means `-`.
pub(crate) fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Parses a double as Redis parses scores and increments; `None` corresponds to Redis's "value is not a valid float".
///
/// The syntax is that of C's `strtod`: decimal with or without an exponent, hexadecimal (`0x1.8p3`), `inf` and
/// `infinity` in any case. NaN, leading space, trailing bytes, and values too large for a double or so small that they
/// round to zero are refused.
#[inline]
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    // An integer of up to fifteen digits is exact as a double, and most scores are such integers.
    if text.len() <= 15
        && let Some(integer) = parse_i64(text)
    {
        return Some(integer as f64);
    }
    let value = strtod_whole(text)?;
    let lost_range = (value.is_infinite() && !names_infinity(text)) || (value == 0.0 && has_nonzero_digit(text));
    (!lost_range).then_some(value)
}

/// Parses one end of a score range (ZRANGEBYSCORE, ZCOUNT...): the value, and true if `(` excludes it.
///
/// `None` corresponds to Redis's "min or max is not a float". Compared with [`parse_f64`], an empty number is 0, an
/// out-of-range value becomes infinite or zero, and the text ends at its first zero byte. Hexadecimal numbers are
/// refused, as by Redis since version 8.
pub fn parse_score_bound(text: &[u8]) -> Option<(f64, bool)> {
    let (exclusive, number) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let number = until_nul(number);
    if number.is_empty() {
        return Some((0.0, exclusive));
    }
    let value = std::str::from_utf8(number).ok()?.parse::<f64>().ok()?;
    (!value.is_nan()).then_some((value, exclusive))
}

/// True if C's `isspace` accepts the byte in the C locale.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the value of the whole text as computed by `strtod`; out-of-range values become infinite or zero. `None` for
/// NaN and for invalid numbers.
fn strtod_whole(text: &[u8]) -> Option<f64> {
    let decimal = std::str::from_utf8(text).ok()?;
    // Rust's parser accepts the syntax of `strtod`, except hexadecimal, and rounds in the same way.
    match decimal.parse::<f64>() {
        Ok(value) => (!value.is_nan()).then_some(value),
        Err(_) => {
            let (negative, unsigned) = split_sign(text);
            let magnitude = HexText::scan(unsigned)?.to_f64();
            Some(if negative { -magnitude } else { magnitude })
        }
    }
}

/// True if a valid number spells infinity: no other number contains an `n`.
fn names_infinity(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'n'))
}

/// True if a valid number has a non-zero digit before its exponent.
fn has_nonzero_digit(text: &[u8]) -> bool {
    let (_, unsigned) = split_sign(text);
    let (digits, exponent_mark) = match unsigned {
        [b'0', b'x' | b'X', rest @ ..] => (rest, b'p'),
        _ => (unsigned, b'e'),
    };
    digits.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&exponent_mark)).any(|byte| !matches!(byte, b'0' | b'.'))
}

/// A buffer on the stack for the text of one integer.
#[derive(Clone)]
pub struct IntText(itoa::Buffer);

impl IntText {
    /// Creates an empty buffer at no cost, since nothing is cleared.
    #[inline]
    pub fn new() -> Self {
        Self(itoa::Buffer::new())
    }

    /// Formats a signed integer; the text is valid until the buffer is used again.
    #[inline]
    pub fn i64(&mut self, value: i64) -> &[u8] {
        self.0.format(value).as_bytes()
    }

    /// Formats an unsigned integer; the text is valid until the buffer is used again.
    #[inline]
    pub fn u64(&mut self, value: u64) -> &[u8] {
        self.0.format(value).as_bytes()
    }
}

impl Default for IntText {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends the decimal text of a signed integer.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(IntText::new().i64(value));
}

/// Appends the decimal text of an unsigned integer.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(IntText::new().u64(value));
}

#[cfg(test)]
mod tests;
