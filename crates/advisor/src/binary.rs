//! Binary numbers in replies. A page of a database names the next page by four bytes, for example, and a record of Protocol Buffers, MessagePack
//! or CBOR has numbers of one to nine bytes.

use crate::evidence::number_hash;

/// Bits of a filter.
const BITS: usize = 4096;
/// Smaller numbers stand in all binary replies.
const NUMBER_MIN: u64 = 2;
/// Replies up to this length are looked through for numbers of one byte.
const SHORT_BYTES: usize = 64;
/// Most bytes of a number of variable length.
const VARINT_BYTES_MAX: usize = 9;

/// A set of hashes that also contains a few other ones by chance.
#[derive(Clone, Debug)]
pub struct Filter {
    bits: [u64; BITS / 64],
    is_empty: bool,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { bits: [0; BITS / 64], is_empty: true }
    }
}

impl Filter {
    fn place(hash: u32) -> (usize, u64) {
        let place = (u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BITS;
        (place / 64, 1 << (place % 64))
    }

    /// Removes all hashes.
    #[inline]
    pub fn clear(&mut self) {
        if !self.is_empty {
            *self = Filter::default();
        }
    }

    /// True if no hash was added.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Adds a hash.
    pub fn add(&mut self, hash: u32) {
        let (index, bit) = Filter::place(hash);
        self.bits[index] |= bit;
        self.is_empty = false;
    }

    /// True if the filter is likely to have the hash.
    #[inline]
    pub fn has(&self, hash: u32) -> bool {
        let (index, bit) = Filter::place(hash);
        !self.is_empty && self.bits[index] & bit != 0
    }

    /// Replaces the hashes by those of all numbers that a binary reply may have.
    #[cold]
    pub fn set_numbers(&mut self, reply: &[u8]) {
        self.clear();
        for at in 0..reply.len() {
            let rest = reply.get(at..).unwrap_or_default();
            self.add_tagged(rest);
            self.add_number(varint(rest).unwrap_or_default());
            if at.is_multiple_of(2)
                && let Some(bytes) = rest.first_chunk()
            {
                self.add_number(u16::from_be_bytes(*bytes).into());
                self.add_number(u16::from_le_bytes(*bytes).into());
            }
            if at.is_multiple_of(4)
                && let Some(bytes) = rest.first_chunk()
            {
                self.add_number(u32::from_be_bytes(*bytes).into());
                self.add_number(u32::from_le_bytes(*bytes).into());
            }
            if at.is_multiple_of(4)
                && let Some(bytes) = rest.first_chunk()
            {
                self.add_number(u64::from_be_bytes(*bytes));
                self.add_number(u64::from_le_bytes(*bytes));
            }
        }
        if reply.len() <= SHORT_BYTES {
            reply.iter().for_each(|byte| self.add_number((*byte).into()));
        }
    }

    /// Adds a number behind its tag in MessagePack or CBOR.
    fn add_tagged(&mut self, bytes: &[u8]) {
        let Some((tag, rest)) = bytes.split_first() else { return };
        let number = match tag {
            0xcc | 0x18 => rest.first().map(|byte| u64::from(*byte)),
            0xcd | 0xd1 | 0x19 => rest.first_chunk().map(|bytes| u16::from_be_bytes(*bytes).into()),
            0xce | 0xd2 | 0x1a => rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes).into()),
            0xcf | 0xd3 | 0x1b => rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
            _ => None,
        };
        self.add_number(number.unwrap_or_default());
    }

    fn add_number(&mut self, number: u64) {
        if number >= NUMBER_MIN {
            self.add(number_hash(number));
        }
    }
}

/// Reads a number of several bytes with seven bits each, the lowest ones first, as in Protocol Buffers.
fn varint(bytes: &[u8]) -> Option<u64> {
    let more = bytes.iter().take(VARINT_BYTES_MAX).take_while(|byte| **byte >= 0x80).count();
    let last = bytes.get(more).filter(|byte| more > 0 && **byte < 0x80)?;
    let above = bytes.get(..more)?.iter().rev();
    Some(above.fold(u64::from(*last), |value, byte| value << 7 | u64::from(byte & 0x7f)))
}

/// True for a text with control characters, or with bytes that are no characters. The text may end within a character.
#[inline]
pub fn is_binary(text: &[u8]) -> bool {
    let is_control = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
    has(text, is_control)
        || has(text, |byte| byte >= 0x80) && std::str::from_utf8(text).is_err_and(|error| error.error_len().is_some())
}

/// True if the text has such a byte. All bytes are compared, because the compiler does this with vectors.
#[inline]
fn has(text: &[u8], is: impl Fn(u8) -> bool) -> bool {
    text.iter().fold(false, |has, byte| has | is(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(reply: &[u8], number: u64) -> bool {
        let mut filter = Filter::default();
        filter.set_numbers(reply);
        filter.has(number_hash(number))
    }

    #[test]
    fn binary_numbers_of_any_form_are_found() {
        assert!(finds(b"\x00\x00\x0f\xa1....", 4001));
        assert!(finds(b"\xa1\x0f\x00\x00....", 4001));
        assert!(finds(b"....\x01\x02\x03\x04\x05\x06\x07\x08", 0x0102_0304_0506_0708));
        assert!(finds(b"\x08\xa1\x1f\x12\x01x", 4001), "Protocol Buffers");
        assert!(finds(b"\x81\xa4next\xcd\x0f\xa1", 4001), "MessagePack");
        assert!(finds(b"\xa1\x64next\x19\x0f\xa1", 4001), "CBOR");
        assert!(finds(b"\x08\x39", 57));
        assert!(!finds(b"\x00\x00\x0f\xa1....", 4002));
        for len in 0..12 {
            assert!(!finds(&[0xff; 12][..len], 4001));
        }
    }

    #[test]
    fn texts_are_not_binary() {
        assert!(!is_binary("{\"name\": \"Zürich\"}\r\n".as_bytes()));
        assert!(!is_binary("Zü".as_bytes().get(..2).unwrap()), "cut within a character");
        assert!(is_binary(b"\x08\x39") && is_binary(b"\x81\xa4next\xcd\x0f\xa1") && is_binary(b"\xff\xfe"));
    }
}
