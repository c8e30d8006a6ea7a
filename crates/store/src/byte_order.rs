//! Comparing and copying short byte strings by overlapping words: nearly all keys, fields and members are short, and a
//! call of the general functions would cost more. Also words that sort like byte strings or numbers.

use std::cmp::Ordering;

/// Returns true if two byte strings are equal. Compares their ends first, because different names often have a common
/// beginning.
#[inline]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    match a.len() {
        len if len != b.len() => false,
        1..4 => few(a) == few(b),
        4..8 => a.last_chunk::<4>() == b.last_chunk() && a.first_chunk::<4>() == b.first_chunk(),
        8..=16 => a.last_chunk::<8>() == b.last_chunk() && a.first_chunk::<8>() == b.first_chunk(),
        17..=32 => a.last_chunk::<16>() == b.last_chunk() && a.first_chunk::<16>() == b.first_chunk(),
        _ => a == b,
    }
}

/// Returns one to three bytes as a number: the first, the middle and the last byte.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let at = |index: usize| u64::from(bytes[index]) << (56 - 8 * index);
    at(0) | at(bytes.len() / 2) | at(bytes.len() - 1)
}

/// Bytes at the beginning of a byte string that are part of its [`order_word`].
const ORDER_BYTES: usize = 7;

/// Returns a word that sorts like the byte strings themselves, so that a comparison of words can replace one of
/// strings. Equal strings have equal words. Strings of more than seven bytes also have equal words if their first seven
/// bytes are equal.
#[inline]
#[must_use]
pub fn order_word(bytes: &[u8]) -> u64 {
    let word = match (bytes.len(), bytes.first_chunk::<8>()) {
        (_, Some(word)) => u64::from_be_bytes(*word) & !0xFF,
        (0, None) => 0,
        (1..4, None) => few(bytes),
        (len, None) => match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => {
                let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
                u64::from(first) << 32 | u64::from(last) << (8 * (8 - len))
            }
            _ => 0,
        },
    };
    // Among strings that differ only in zero bytes at the end, the shorter one sorts first.
    word | bytes.len().min(ORDER_BYTES + 1) as u64
}

/// Returns the length of the common prefix of all texts. Names often have a common beginning, so order words are more
/// selective behind it.
#[must_use]
pub fn common_prefix<'t>(mut texts: impl Iterator<Item = &'t [u8]>) -> usize {
    let first = texts.next().unwrap_or_default();
    let shared = texts.try_fold(first, |shared, text| match text.get(..shared.len()) {
        _ if shared.is_empty() => None,
        Some(start) if is_same(start, shared) => Some(shared),
        _ => Some(&shared[..shared.iter().zip(text).take_while(|(a, b)| a == b).count()]),
    });
    shared.map_or(0, <[u8]>::len)
}

/// Returns a word that sorts like the numbers themselves, except for NaN. Both zeros have the same word.
#[inline]
#[must_use]
pub fn number_word(number: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    // The addition turns -0 into +0.
    let bits = (number + 0.0).to_bits();
    // Among negative numbers, the one with the greater magnitude sorts first.
    let negative = (bits.cast_signed() >> 63).cast_unsigned();
    bits ^ (negative | SIGN)
}

/// Compares two byte strings.
#[inline]
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some((a_word, a_rest)), Some((b_word, b_rest))) = (a.split_first_chunk::<8>(), b.split_first_chunk::<8>()) {
        let (a_word, b_word) = (u64::from_be_bytes(*a_word), u64::from_be_bytes(*b_word));
        if a_word != b_word {
            return a_word.cmp(&b_word);
        }
        // Both have the same length, at most two words: the rest is in the last word.
        if a.len() == b.len()
            && a.len() <= 16
            && let (Some(a_word), Some(b_word)) = (a.last_chunk::<8>(), b.last_chunk::<8>())
        {
            return u64::from_be_bytes(*a_word).cmp(&u64::from_be_bytes(*b_word));
        }
        return a_rest.cmp(b_rest);
    }
    a.cmp(b)
}

/// Copies `from` to the beginning of `to`, which is at least as long.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
        *to.first_chunk_mut::<N>()? = *from.first_chunk()?;
        *to.last_chunk_mut::<N>()? = *from.last_chunk()?;
        Some(())
    }
    let to = &mut to[..from.len()];
    let done = match from.len() {
        4..8 => both_ends::<4>(to, from),
        8..=16 => both_ends::<8>(to, from),
        17..=32 => both_ends::<16>(to, from),
        _ => None,
    };
    if done.is_none() {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn comparisons_agree_with_slices() {
        let random = &mut Random::new(3);
        for _ in 0..if cfg!(miri) { 500 } else { 100_000 } {
            let a: Vec<u8> = (0..random.below(40)).map(|_| [0, 1, 127, 128, 255][random.below(5)]).collect();
            let mut b = a.clone();
            match random.below(4) {
                0 => b.truncate(random.below(a.len() + 1)),
                1 => b.push(random.below(3) as u8),
                _ => {}
            }
            if random.below(3) > 0 && !b.is_empty() {
                let at = random.below(b.len());
                b[at] = [0, 1, 127, 128, 255][random.below(5)];
            }
            assert_eq!(is_same(&a, &b), a == b, "{a:?} {b:?}");
            assert_eq!(compare(&a, &b), a.cmp(&b), "{a:?} {b:?}");
            match order_word(&a).cmp(&order_word(&b)) {
                Ordering::Equal if a.len().min(b.len()) > ORDER_BYTES => assert_eq!(a[..ORDER_BYTES], b[..ORDER_BYTES]),
                by_word => assert_eq!(by_word, a.cmp(&b), "{a:?} {b:?}"),
            }
            let mut to = vec![7; a.len() + random.below(3)];
            copy(&mut to, &a);
            assert!(to.starts_with(&a) && to[a.len()..].iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn words_of_numbers_are_in_their_order() {
        let numbers = [f64::NEG_INFINITY, f64::MIN, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1e300, f64::INFINITY];
        assert!(numbers.map(number_word).is_sorted_by(|a, b| a < b));
        assert_eq!(number_word(-0.0), number_word(0.0));
    }

    #[test]
    fn a_common_prefix_is_that_of_all() {
        let common = |texts: &[&str]| common_prefix(texts.iter().map(|text| text.as_bytes()));
        assert_eq!((common(&[]), common(&["abc"]), common(&["", "abc"]), common(&["abc", ""])), (0, 3, 0, 0));
        assert_eq!((common(&["abc", "abc"]), common(&["abcd", "abx", "abc"]), common(&["ab", "abc"])), (3, 2, 2));
        assert_eq!(common(&["abc", "xbc", "abc"]), 0);
    }
}
