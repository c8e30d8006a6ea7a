//! Canonical decimal integers: the strings that are stored as integers.

/// Parses a canonical integer, in its shortest decimal form: no plus sign, no leading zeros, no "-0".
#[inline]
#[must_use]
pub fn canonical_i64(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Nineteen digits fit into a u64.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shortest_form_counts() {
        for int in [0, 1, -1, 42, i64::MAX, i64::MIN, -9, 1_000_000_007] {
            assert_eq!(canonical_i64(int.to_string().as_bytes()), Some(int));
        }
        for text in
            ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809", "a"]
        {
            assert_eq!(canonical_i64(text.as_bytes()), None, "{text}");
        }
    }
}
