//! One item of a packed block: its kind, its length, and its encoding and decoding.
//!
//! This module knows nothing of blocks: every function takes a slice that begins (or ends) at an item's boundary.

use std::ops::Deref;

use crate::byte_order::{copy, is_same};

/// Maximum length of an item in bytes. Lengths have 32 bits, and so do positions within a block. Callers with items
/// from outside stay below it through the limit on a request's arguments.
pub const ITEM_BYTES_MAX: usize = u32::MAX as usize - 64;

/// One item, as read from a block or about to be written to one.
///
/// A byte string that is a decimal integer in canonical form is always an `Int`, so that two items are equal exactly if
/// their bytes are. `Item::from(bytes)` decides that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A byte string.
    Str(&'a [u8]),
    /// An integer, which stands for its decimal digits.
    Int(i64),
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Item<'a> {
    fn from(bytes: &'a T) -> Self {
        let bytes = bytes.as_ref();
        canonical_int(bytes).map_or(Item::Str(bytes), Item::Int)
    }
}

impl From<i64> for Item<'_> {
    fn from(value: i64) -> Self {
        Item::Int(value)
    }
}

impl<'a> Item<'a> {
    /// Returns true if the item's bytes equal these.
    pub fn eq_bytes(self, bytes: &[u8]) -> bool {
        match self {
            Item::Str(own) => is_same(own, bytes),
            Item::Int(value) => canonical_int(bytes) == Some(value),
        }
    }

    /// Returns the item's bytes; for an integer, its digits.
    pub fn text(self) -> ItemText<'a> {
        match self {
            Item::Str(bytes) => ItemText(TextBytes::Borrowed(bytes)),
            Item::Int(value) => ItemText(TextBytes::Digits(Digits::of(value))),
        }
    }

    /// Passes the item's bytes to `visit` and returns its result.
    pub fn with_bytes<R>(self, visit: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Item::Str(bytes) => visit(bytes),
            Item::Int(value) => visit(Digits::of(value).as_bytes()),
        }
    }

    /// Appends the item's bytes to `out`.
    pub fn write_to(self, out: &mut Vec<u8>) {
        self.with_bytes(|bytes| out.extend_from_slice(bytes));
    }

    /// Copies the item's bytes into a new buffer.
    pub fn to_vec(self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// Number of the item's bytes; for an integer, of its digits.
    pub fn text_len(self) -> usize {
        self.with_bytes(<[u8]>::len)
    }
}

/// An item's bytes: borrowed from the block, or an integer's digits on the stack. Dereferences to `[u8]`.
#[derive(Clone, Copy)]
pub struct ItemText<'a>(TextBytes<'a>);

/// The two sources of an item's bytes.
#[derive(Clone, Copy)]
enum TextBytes<'a> {
    Borrowed(&'a [u8]),
    Digits(Digits),
}

impl<'a> From<&'a [u8]> for ItemText<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(TextBytes::Borrowed(bytes))
    }
}

impl Deref for ItemText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            TextBytes::Borrowed(bytes) => bytes,
            TextBytes::Digits(digits) => digits.as_bytes(),
        }
    }
}

impl AsRef<[u8]> for ItemText<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Maximum length of an `i64` as decimal text: a sign and 19 digits.
const DIGITS_MAX: usize = 20;

/// An integer's decimal digits, at the end of a small buffer.
#[derive(Clone, Copy)]
struct Digits {
    buffer: [u8; DIGITS_MAX],
    start: u8,
}

impl Digits {
    fn of(value: i64) -> Self {
        let mut buffer = [0; DIGITS_MAX];
        let mut start = DIGITS_MAX;
        let mut rest = value.unsigned_abs();
        loop {
            start -= 1;
            buffer[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            start -= 1;
            buffer[start] = b'-';
        }
        Self { buffer, start: start as u8 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.buffer[usize::from(self.start)..]
    }
}

/// Parses an integer in canonical decimal form: no sign except a minus, no leading zero, no `-0`, no space.
fn canonical_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 19 digits always fit a u64, so the loop below cannot overflow.
    if !matches!(digits.first(), Some(b'1'..=b'9')) || digits.len() > 19 {
        return None;
    }
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

// The first byte of an item tells its kind; see the diagram in `packed`.
pub(super) const STR_6: u8 = 0x80;
const INT_13: u8 = 0xC0;
const STR_12: u8 = 0xE0;
const STR_32: u8 = 0xF0;
const INT_16: u8 = 0xF1;
const INT_24: u8 = 0xF2;
const INT_32: u8 = 0xF3;
const INT_64: u8 = 0xF4;

/// The kind and size that a first byte indicates.
enum Shape {
    /// A string: the lengths of its head and of its bytes.
    Str(usize, usize),
    /// An integer: the length of its head, which contains the value.
    Int(usize),
}

fn shape(entry: &[u8]) -> Shape {
    match entry[0] {
        0..STR_6 => Shape::Int(1),
        first @ STR_6..INT_13 => Shape::Str(1, usize::from(first & 0x3F)),
        INT_13..STR_12 => Shape::Int(2),
        first @ STR_12..STR_32 => Shape::Str(2, usize::from(first & 0x0F) << 8 | usize::from(entry[1])),
        STR_32 => Shape::Str(5, u32::from_le_bytes([entry[1], entry[2], entry[3], entry[4]]) as usize),
        INT_16 => Shape::Int(3),
        INT_24 => Shape::Int(4),
        INT_32 => Shape::Int(5),
        _ => Shape::Int(9),
    }
}

/// Returns the size in bytes of the encoded item at the start of `entry`.
#[inline]
pub fn size(entry: &[u8]) -> usize {
    match entry[0] {
        0..STR_6 => 2,
        first @ STR_6..INT_13 => usize::from(first & 0x3F) + 2,
        INT_13..STR_12 => 3,
        // Times and scores.
        first @ INT_16..=INT_64 => INT_SIZES[usize::from(first - INT_16)],
        _ => size_of_long(entry),
    }
}

/// Sizes of items with the heads `INT_16` to `INT_64`.
const INT_SIZES: [usize; 4] = [4, 5, 6, 10];

#[inline(never)]
fn size_of_long(entry: &[u8]) -> usize {
    match shape(entry) {
        Shape::Str(head, len) => head + len + back_len(head + len),
        Shape::Int(head) => head + 1,
    }
}

/// Returns the size in bytes of the encoded item at the end of `before`.
#[inline]
pub fn size_before(before: &[u8]) -> usize {
    match before.last() {
        Some(&len @ 0..0x80) => usize::from(len) + 1,
        _ => size_of_long_before(before),
    }
}

#[inline(never)]
fn size_of_long_before(before: &[u8]) -> usize {
    let mut len = 0;
    let mut back = 0;
    for &byte in before.iter().rev() {
        len |= usize::from(byte & 0x7F) << (7 * back);
        back += 1;
        if byte < 0x80 {
            break;
        }
    }
    len + back
}

/// Returns the item at the start of `entry`, and its size in bytes there.
#[inline]
pub fn decode(entry: &[u8]) -> (Item<'_>, usize) {
    match entry[0] {
        first @ 0..STR_6 => (Item::Int(i64::from(first)), 2),
        first @ STR_6..INT_13 => {
            let len = usize::from(first & 0x3F);
            (Item::Str(&entry[1..1 + len]), len + 2)
        }
        _ => decode_long(entry),
    }
}

#[inline(never)]
fn decode_long(entry: &[u8]) -> (Item<'_>, usize) {
    match shape(entry) {
        Shape::Str(head, len) => (Item::Str(&entry[head..head + len]), head + len + back_len(head + len)),
        Shape::Int(head) => (Item::Int(decode_int(&entry[..head])), head + 1),
    }
}

fn decode_int(head: &[u8]) -> i64 {
    match *head {
        [small] => i64::from(small),
        // Shifting the 13 bits up and down again extends their sign.
        [high, low] => i64::from((i16::from_be_bytes([high, low]) << 3) >> 3),
        [_, a, b] => i64::from(i16::from_le_bytes([a, b])),
        [_, a, b, c] => i64::from(i32::from_le_bytes([0, a, b, c]) >> 8),
        [_, a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [_, a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// Returns the size in bytes of the encoded item.
#[inline]
pub fn encoded_len(item: Item<'_>) -> usize {
    match item {
        Item::Str(bytes) if bytes.len() <= SHORT_STR_BYTES_MAX => bytes.len() + 2,
        Item::Str(bytes) => {
            let body = str_head_len(bytes.len()) + bytes.len();
            body + back_len(body)
        }
        Item::Int(value) => int_head_len(value) + 1,
    }
}

/// An item to search for. Each comparison first checks the byte that contains kind and length, and only then the rest.
#[derive(Clone, Copy)]
pub struct Needle<'a> {
    item: Item<'a>,
    first: u8,
}

impl<'a> Needle<'a> {
    pub fn of(item: Item<'a>) -> Self {
        Self { item, first: first_byte(item) }
    }

    /// Returns true if the item at the start of `entry` is equal.
    #[inline(always)]
    pub fn is_at(&self, entry: &[u8]) -> bool {
        if entry[0] != self.first {
            return false;
        }
        match self.item {
            // The first byte contains the length.
            Item::Str(needle) if needle.len() <= SHORT_STR_BYTES_MAX => {
                entry.get(1..1 + needle.len()).is_some_and(|bytes| is_same(needle, bytes))
            }
            _ => self.is(decode(entry).0),
        }
    }

    /// Returns true if `item` is equal.
    #[inline]
    pub fn is(&self, item: Item<'_>) -> bool {
        match (self.item, item) {
            (Item::Str(needle), Item::Str(bytes)) => is_same(needle, bytes),
            (needle, item) => needle == item,
        }
    }
}

fn first_byte(item: Item<'_>) -> u8 {
    match item {
        Item::Str(bytes) => match str_head_len(bytes.len()) {
            1 => STR_6 | bytes.len() as u8,
            2 => STR_12 | (bytes.len() >> 8) as u8,
            _ => STR_32,
        },
        Item::Int(value) => match int_head_len(value) {
            1 => value as u8,
            2 => INT_13 | (value >> 8) as u8 & 0x1F,
            3 => INT_16,
            4 => INT_24,
            5 => INT_32,
            _ => INT_64,
        },
    }
}

fn str_head_len(len: usize) -> usize {
    match len {
        0..=0x3F => 1,
        0x40..=0xFFF => 2,
        _ => 5,
    }
}

fn int_head_len(value: i64) -> usize {
    match value {
        0..=127 => 1,
        -0x1000..=0xFFF => 2,
        -0x8000..=0x7FFF => 3,
        -0x80_0000..=0x7F_FFFF => 4,
        -0x8000_0000..=0x7FFF_FFFF => 5,
        _ => 9,
    }
}

/// Maximum length of a string with a head of one byte.
pub(super) const SHORT_STR_BYTES_MAX: usize = (INT_13 - STR_6 - 1) as usize;

/// Writes `item` into `entry`, which has exactly `encoded_len` bytes.
#[inline(always)]
pub fn encode(item: Item<'_>, entry: &mut [u8]) {
    match item {
        Item::Str(bytes) if bytes.len() <= SHORT_STR_BYTES_MAX && entry.len() == bytes.len() + 2 => {
            let body = bytes.len() + 1;
            entry[0] = STR_6 | bytes.len() as u8;
            copy(&mut entry[1..body], bytes);
            entry[body] = body as u8;
        }
        Item::Str(bytes) => encode_str(bytes, entry),
        Item::Int(value @ 0..=127) if entry.len() == 2 => (entry[0], entry[1]) = (value as u8, 1),
        Item::Int(value) => encode_int(value, entry),
    }
}

#[inline(never)]
fn encode_str(bytes: &[u8], entry: &mut [u8]) {
    debug_assert!(bytes.len() <= ITEM_BYTES_MAX);
    let len = bytes.len();
    let head = str_head_len(len);
    entry[0] = first_byte(Item::Str(bytes));
    match head {
        1 => {}
        2 => entry[1] = len as u8,
        _ => entry[1..5].copy_from_slice(&(len as u32).to_le_bytes()),
    }
    copy(&mut entry[head..head + len], bytes);
    write_back_len(head + len, &mut entry[head + len..]);
}

#[inline(never)]
fn encode_int(value: i64, entry: &mut [u8]) {
    let head = int_head_len(value);
    entry[0] = first_byte(Item::Int(value));
    match head {
        1 => {}
        // Only the 13-bit form is big-endian: its upper bits share the first byte.
        2 => entry[1] = value as u8,
        _ => entry[1..head].copy_from_slice(&value.to_le_bytes()[..head - 1]),
    }
    entry[head] = head as u8;
}

/// Returns the size of the back length for an item's `body` (its head and string). From the second limit on, the limits
/// are one less than 2^(7n) - 1, as in Redis's listpacks.
#[inline]
fn back_len(body: usize) -> usize {
    match body {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Fills `entry` with the back length of `body` bytes: seven bits per byte, the lowest in the last byte. The top bit,
/// set in all bytes except the first, means that more bytes follow to the left.
#[inline]
fn write_back_len(body: usize, entry: &mut [u8]) {
    let mut rest = body;
    for byte in entry.iter_mut().rev() {
        *byte = (rest & 0x7F) as u8 | 0x80;
        rest >>= 7;
    }
    entry[0] &= 0x7F;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_int(text: &str, value: Option<i64>) {
        assert_eq!(canonical_int(text.as_bytes()), value, "{text:?}");
        if let Some(value) = value {
            assert_eq!(&*Item::Int(value).text(), text.as_bytes());
        }
    }

    #[test]
    fn only_canonical_decimals_are_integers() {
        for value in [0, 1, -1, 9, 10, -10, 127, 128, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            check_int(&value.to_string(), Some(value));
        }
        for text in ["", "-", "-0", "+1", "00", "01", "-01", " 1", "1 ", "1.0", "1e3", "0x1", "12a", ":1", "1/"] {
            check_int(text, None);
        }
        for text in ["9223372036854775808", "-9223372036854775809", "99999999999999999999", "18446744073709551616"] {
            check_int(text, None);
        }
    }

    fn check_entry(item: Item<'_>, first: u8, len: usize) {
        let mut entry = vec![0xAA; encoded_len(item)];
        encode(item, &mut entry);
        assert_eq!((entry[0], entry.len()), (first, len), "{:?}", item.text_len());
        entry.splice(..0, *b"before");
        assert_eq!(size_before(&entry), len);
        entry.extend_from_slice(b"after");
        assert_eq!(size(&entry[6..]), len);
        assert!(decode(&entry[6..]) == (item, len));
        assert!(Needle::of(item).is_at(&entry[6..]));
    }

    #[test]
    fn integers_take_the_narrowest_form() {
        for (value, first, len) in [
            (0, 0x00, 2),
            (127, 0x7F, 2),
            (128, 0xC0, 3),
            (4095, 0xCF, 3),
            (-1, 0xDF, 3),
            (-4096, 0xD0, 3),
            (4096, INT_16, 4),
            (-4097, INT_16, 4),
            (32_767, INT_16, 4),
            (-32_768, INT_16, 4),
            (32_768, INT_24, 5),
            (-32_769, INT_24, 5),
            (8_388_607, INT_24, 5),
            (-8_388_608, INT_24, 5),
            (8_388_608, INT_32, 6),
            (-8_388_609, INT_32, 6),
            (i64::from(i32::MAX), INT_32, 6),
            (i64::from(i32::MIN), INT_32, 6),
            (i64::from(i32::MAX) + 1, INT_64, 10),
            (i64::from(i32::MIN) - 1, INT_64, 10),
            (i64::MAX, INT_64, 10),
            (i64::MIN, INT_64, 10),
        ] {
            check_entry(Item::Int(value), first, len);
        }
    }

    #[test]
    fn strings_take_the_narrowest_head_and_back_length() {
        for (len, first, size) in [
            (0, 0x80, 2),
            (1, 0x81, 3),
            (63, 0xBF, 65),
            (64, 0xE0, 67),
            (125, 0xE0, 128),
            (126, 0xE0, 130),
            (4095, 0xEF, 4099),
            (4096, 0xF0, 4103),
            (16_377, 0xF0, 16_384),
            (16_378, 0xF0, 16_386),
            (2_097_145, 0xF0, 2_097_153),
            (2_097_146, 0xF0, 2_097_155),
        ] {
            check_entry(Item::Str(&vec![b'x'; len]), first, size);
        }
    }
}
