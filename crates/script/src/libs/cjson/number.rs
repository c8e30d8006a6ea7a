//! Conversion of numbers to and from JSON text, like C's `%.14g` and `strtod`.

use std::io::Write;

/// Appends a number with at most `precision` significant digits, like C's `%.*g`.
pub fn write(out: &mut Vec<u8>, number: f64, precision: usize) {
    if !number.is_finite() {
        out.extend_from_slice(match number {
            _ if number.is_nan() && number.is_sign_negative() => b"-nan",
            _ if number.is_nan() => b"nan",
            f64::INFINITY => b"inf",
            _ => b"-inf",
        });
    } else if number.trunc() == number && number.abs() < integer_limit(precision) && !is_negative_zero(number) {
        let mut text = itoa::Buffer::new();
        out.extend_from_slice(text.format(number as i64).as_bytes());
    } else {
        write_general(out, number, precision);
    }
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Returns the smallest integer with more digits than `precision`, which is at most 14.
fn integer_limit(precision: usize) -> f64 {
    const POWERS: [f64; 15] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];
    POWERS[precision.min(POWERS.len() - 1)]
}

/// `%g`: chooses between plain and exponential notation by the exponent; removes trailing zeros.
fn write_general(out: &mut Vec<u8>, number: f64, precision: usize) {
    let mut text = [0; 40];
    let mut cursor = &mut text[..];
    // 14 digits and an exponent always fit into the buffer, so the write can't fail.
    let _ = write!(cursor, "{:.*e}", precision - 1, number.abs());
    let unused = cursor.len();
    let text = &text[..text.len() - unused];
    let (mantissa, exponent) = text.split_at(text.iter().position(|&byte| byte == b'e').unwrap_or(text.len()));
    let exponent = exponent.get(1..).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i32>().ok()).unwrap_or(0);
    let mut digits = [b'0'; 20];
    let mut count = 0;
    for &digit in mantissa.iter().filter(|byte| byte.is_ascii_digit()) {
        digits[count] = digit;
        count += 1;
    }
    while count > 1 && digits[count - 1] == b'0' {
        count -= 1;
    }
    if number.is_sign_negative() {
        out.push(b'-');
    }
    if (-4..precision as i32).contains(&exponent) {
        write_plain(out, &digits, count, exponent);
    } else {
        write_parts(out, &digits[..1], &digits[1..count]);
        let _ = write!(out, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
}

/// Writes plain notation. Digits beyond `count` are zeros.
fn write_plain(out: &mut Vec<u8>, digits: &[u8; 20], count: usize, exponent: i32) {
    match usize::try_from(exponent) {
        Ok(exponent) => write_parts(out, &digits[..=exponent], digits.get(exponent + 1..count).unwrap_or_default()),
        Err(_) => {
            out.extend_from_slice(&b"0.000"[..1 + exponent.unsigned_abs() as usize]);
            out.extend_from_slice(&digits[..count]);
        }
    }
}

fn write_parts(out: &mut Vec<u8>, whole: &[u8], fraction: &[u8]) {
    out.extend_from_slice(whole);
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

/// Parses the number at the start of a text like C's `strtod` in the C locale. Returns the number and its length.
pub fn read(text: &[u8]) -> Option<(f64, usize)> {
    if let Some(short) = read_short_integer(text) {
        return Some(short);
    }
    let signed = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let rest = &text[signed..];
    let (magnitude, len) = read_special(rest).or_else(|| read_hexadecimal(rest)).or_else(|| read_decimal(rest))?;
    Some((if text[0] == b'-' { -magnitude } else { magnitude }, signed + len))
}

/// The common case: few digits, followed by nothing that could belong to the number.
fn read_short_integer(text: &[u8]) -> Option<(f64, usize)> {
    /// An integer of this many digits is exact.
    const DIGITS_MAX: usize = 15;
    let mut value = 0u64;
    for (at, &byte) in text.iter().enumerate().take(DIGITS_MAX + 1) {
        match byte {
            b'0'..=b'9' if at < DIGITS_MAX => value = value * 10 + u64::from(byte - b'0'),
            b'0'..=b'9' | b'.' | b'e' | b'E' | b'x' | b'X' => return None,
            _ if at == 0 => return None,
            _ => return Some((value as f64, at)),
        }
    }
    (!text.is_empty() && text.len() <= DIGITS_MAX).then_some((value as f64, text.len()))
}

fn starts_with_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn read_special(text: &[u8]) -> Option<(f64, usize)> {
    for word in [&b"infinity"[..], b"inf"] {
        if starts_with_ignoring_case(text, word) {
            return Some((f64::INFINITY, word.len()));
        }
    }
    if !starts_with_ignoring_case(text, b"nan") {
        return None;
    }
    // "nan(letters)" is a number, too.
    let payload = text[3..].strip_prefix(b"(").and_then(|inside| {
        let end = inside.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')?;
        (inside[end] == b')').then_some(end + 2)
    });
    Some((f64::NAN, 3 + payload.unwrap_or(0)))
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn read_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = count_digits(text);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = count_digits(&text[len + 1..]);
        if whole + fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    len += exponent_length(&text[len..], b'e');
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

/// Returns the length of an exponent with digits; 0 if there is none.
fn exponent_length(text: &[u8], letter: u8) -> usize {
    if !text.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&letter)) {
        return 0;
    }
    let signed = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    match count_digits(&text[1 + signed..]) {
        0 => 0,
        digits => 1 + signed + digits,
    }
}

/// Parses `0x1.8p3`. Digits beyond the 64th bit only matter for rounding: they show that the value is not exact.
fn read_hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    const EXPONENT_MAX: i64 = 1 << 40;
    if !starts_with_ignoring_case(text, b"0x") {
        return None;
    }
    let (mut mantissa, mut scale, mut seen, mut point, mut len) = (0u64, 0i64, false, false, 2);
    while let Some(&byte) = text.get(len) {
        match char::from(byte).to_digit(16) {
            Some(digit) if mantissa >> 60 == 0 => {
                mantissa = mantissa << 4 | u64::from(digit);
                scale -= if point { 4 } else { 0 };
            }
            Some(digit) => {
                mantissa |= u64::from(digit != 0);
                scale += if point { 0 } else { 4 };
            }
            None if byte == b'.' && !point => {
                point = true;
                len += 1;
                continue;
            }
            None => break,
        }
        seen = true;
        len += 1;
    }
    if !seen {
        // Only the zero before the "x" is a number.
        return Some((0.0, 1));
    }
    let exponent = exponent_length(&text[len..], b'p');
    if exponent > 0 {
        let digits = std::str::from_utf8(&text[len + 1..len + exponent]).unwrap_or("0");
        let beyond = if digits.starts_with('-') { -EXPONENT_MAX } else { EXPONENT_MAX };
        scale += digits.parse().unwrap_or(beyond).clamp(-EXPONENT_MAX, EXPONENT_MAX);
    }
    Some((scaled(mantissa, scale), len + exponent))
}

/// Returns `mantissa * 2^scale`, rounded once.
fn scaled(mantissa: u64, scale: i64) -> f64 {
    /// Difference between 64 bits and a double's 53.
    const SPARE_BITS: i64 = 11;
    const EXPONENT_MIN: i64 = -1022;
    if mantissa == 0 {
        return 0.0;
    }
    let zeros = mantissa.leading_zeros();
    let aligned = mantissa << zeros;
    let exponent = scale + 63 - i64::from(zeros);
    if exponent > 1023 {
        return f64::INFINITY;
    }
    // Below the smallest normal number, the mantissa has fewer bits.
    let dropped = SPARE_BITS + (EXPONENT_MIN - exponent).max(0);
    if dropped > 64 {
        return 0.0;
    }
    let (kept, rest) = if dropped == 64 { (0, aligned) } else { (aligned >> dropped, aligned << (64 - dropped)) };
    let up = rest > 1 << 63 || (rest == 1 << 63 && kept & 1 == 1);
    let unit = exponent.max(EXPONENT_MIN) - 52;
    // Two factors, since one power of two below the smallest normal number would be inexact. All operations are exact.
    let first = unit.max(-1000);
    (kept + u64::from(up)) as f64 * power_of_two(first) * power_of_two(unit - first)
}

fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: f64, precision: usize) -> String {
        let mut out = Vec::new();
        write(&mut out, number, precision);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, precision, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (0.1, 14, "0.1"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (100.0, 14, "100"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (0.0001, 14, "0.0001"),
            (0.000_012_5, 14, "1.25e-05"),
            (-1234.5, 3, "-1.23e+03"),
            (10.0, 1, "1e+01"),
            (9.99, 2, "10"),
            (5e-324, 14, "4.9406564584125e-324"),
            (f64::MAX, 14, "1.7976931348623e+308"),
        ] {
            assert_eq!(written(number, precision), text);
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, number, len) in [
            ("12]", 12.0, 2),
            ("1234567890123456", 1_234_567_890_123_456.0, 16),
            ("-1.5e3x", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("0x10", 16.0, 4),
            ("0x.8p1", 1.0, 6),
            ("0x", 0.0, 1),
            ("0x1.fffffffffffff8p0", 2.0, 20),
            ("0x1p-1074", 5e-324, 9),
            ("0x1p-1075", 0.0, 9),
            ("0x1.8p-1075", 5e-324, 11),
            ("0x1p99999999999999999999", f64::INFINITY, 24),
            ("-Infinity!", f64::NEG_INFINITY, 9),
            ("infinit", f64::INFINITY, 3),
        ] {
            assert_eq!(read(text.as_bytes()), Some((number, len)), "{text}");
        }
        assert_eq!(read(b"nan(x1)").map(|(_, len)| len), Some(7));
        assert_eq!(read(b"nan(x").map(|(_, len)| len), Some(3));
        assert_eq!(read(b"."), None);
        assert_eq!(read(b"-"), None);
        assert_eq!(read(b""), None);
    }
}
