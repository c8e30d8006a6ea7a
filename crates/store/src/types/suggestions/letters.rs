//! Characters of arbitrary byte strings, and case folding.
//!
//! A text's characters are those of UTF-8. A byte that belongs to no valid character counts as a character of its own,
//! so that any text has a length, can be searched for, and is returned unchanged.

/// Marks a byte that is not part of a UTF-8 character: beyond all code points.
const STRAY: u32 = 0x8000_0000;
/// Maximum size of a character in bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// Assembles characters from single bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Letters {
    bytes: [u8; CHARACTER_BYTES_MAX],
    /// Number of bytes of the incomplete character to this point.
    len: u8,
    /// Number of bytes of the complete character.
    needed: u8,
}

impl Letters {
    /// Takes the next byte. Calls `emit` with each character that it completes or proves invalid.
    #[inline]
    pub fn feed(&mut self, byte: u8, emit: &mut impl FnMut(u32)) {
        if self.len == 0 && byte.is_ascii() {
            return emit(u32::from(byte));
        }
        self.feed_part(byte, emit);
    }

    /// Returns true within an incomplete character.
    #[inline]
    pub fn is_within(&self) -> bool {
        self.len > 0
    }

    fn feed_part(&mut self, byte: u8, emit: &mut impl FnMut(u32)) {
        if self.len > 0 && byte & 0xC0 == 0x80 {
            self.bytes[usize::from(self.len)] = byte;
            self.len += 1;
            if self.len == self.needed {
                emit(self.whole());
                self.len = 0;
            }
            return;
        }
        self.finish(emit);
        self.needed = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ if byte.is_ascii() => return emit(u32::from(byte)),
            _ => return emit(STRAY | u32::from(byte)),
        };
        (self.bytes[0], self.len) = (byte, 1);
    }

    /// Returns the code of a complete character. Some codes are not valid characters, but are still distinguished.
    fn whole(&self) -> u32 {
        let lead = u32::from(self.bytes[0]) & (0x7F >> self.needed);
        let rest = &self.bytes[1..usize::from(self.needed)];
        rest.iter().fold(lead, |code, byte| code << 6 | (u32::from(*byte) & 0x3F))
    }

    /// Ends the text. Calls `emit` with each byte of an incomplete character.
    pub fn finish(&mut self, emit: &mut impl FnMut(u32)) {
        self.bytes[..usize::from(self.len)].iter().for_each(|byte| emit(STRAY | u32::from(*byte)));
        self.len = 0;
    }
}

/// Calls `emit` with every character of a text.
pub(super) fn each(text: &[u8], mut emit: impl FnMut(u32)) {
    let mut letters = Letters::default();
    text.iter().for_each(|byte| letters.feed(*byte, &mut emit));
    letters.finish(&mut emit);
}

/// Returns the number of characters in a text.
pub(super) fn count(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let mut count = 0;
    each(text, |_| count += 1);
    count
}

/// Returns a character without its case: the first character of its Unicode case folding, as in RediSearch.
///
/// Uses the tables of the standard library: two characters have the same folding exactly if lower case of upper case of
/// lower case is the same for both, with one exception.
#[inline]
pub(super) fn fold(letter: u32) -> u32 {
    /// The dotless i has the same upper case as i, but another folding.
    const DOTLESS_I: char = 'ı';
    if letter < 0x80 {
        return u32::from((letter as u8).to_ascii_lowercase());
    }
    let Some(letter) = char::from_u32(letter).filter(|letter| *letter != DOTLESS_I) else { return letter };
    let lower = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    let upper = |letter: char| letter.to_uppercase().next().unwrap_or(letter);
    u32::from(lower(upper(lower(letter))))
}

/// Appends a character's bytes.
pub(super) fn push(text: &mut Vec<u8>, letter: u32) {
    match char::from_u32(letter) {
        Some(letter) => text.extend_from_slice(letter.encode_utf8(&mut [0; CHARACTER_BYTES_MAX]).as_bytes()),
        None if letter & STRAY != 0 => text.push(letter as u8),
        // A surrogate, or a code beyond Unicode.
        None => {
            let tail = |shift: u32| 0x80 | (letter >> shift & 0x3F) as u8;
            if letter < 0x1_0000 {
                text.extend_from_slice(&[0xE0 | (letter >> 12) as u8, tail(6), tail(0)]);
            } else {
                text.extend_from_slice(&[0xF0 | (letter >> 18) as u8, tail(12), tail(6), tail(0)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &[u8]) -> Vec<u32> {
        let mut all = Vec::new();
        each(text, |letter| all.push(letter));
        all
    }

    #[test]
    fn any_bytes_have_characters() {
        assert_eq!(letters("aé€😀".as_bytes()), [0x61, 0xE9, 0x20AC, 0x1F600]);
        let stray = |byte: u8| STRAY | u32::from(byte);
        assert_eq!(letters(b"\x80a\xC3"), [stray(0x80), 0x61, stray(0xC3)]);
        assert_eq!(letters(b"\xE2\x82a"), [stray(0xE2), stray(0x82), 0x61]);
        assert_eq!(letters(b"\xE2\xC3\xA9\xFF"), [stray(0xE2), 0xE9, stray(0xFF)]);
        assert_eq!(count("naïve café".as_bytes()), 10);
    }

    #[test]
    fn characters_that_are_read_are_written_unchanged() {
        for text in [&b"a\x80\xC3"[..], b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b"\xE0\x80\x80\xF0", "é😀ß".as_bytes()]
        {
            let mut back = Vec::new();
            // Overlong forms are normalised.
            letters(text).iter().for_each(|letter| push(&mut back, *letter));
            assert_eq!(letters(&back), letters(text));
        }
    }

    #[test]
    fn case_is_folded_to_one_character() {
        for (one, other) in
            [('A', 'a'), ('É', 'é'), ('ß', 's'), ('ẞ', 's'), ('ς', 'σ'), ('Σ', 'σ'), ('ſ', 's'), ('Ꭰ', 'ꭰ'), ('İ', 'i')]
        {
            assert_eq!(fold(one.into()), fold(other.into()), "{one} {other}");
        }
        assert_ne!(fold('ı'.into()), fold('i'.into()));
        assert_eq!(fold(STRAY | 0xC3), STRAY | 0xC3);
    }
}
