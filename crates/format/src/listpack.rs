//! Redis's listpack: the items of a [packed block](store::types::packed) between a header and an end mark.
//!
//! ```text
//! | total bytes, u32 | count of items, u16; 65535: unknown | items | 0xFF |     numbers little endian
//! ```
//!
//! [`store::types::packed`] shows the layout of an item. The reader accepts longer encodings than necessary: numbers
//! may be wider, and a string may contain the digits of an integer.

use store::types::packed::{self, Item, ItemText};

use crate::items::Items;

/// Size of the header, in bytes.
pub const HEADER_BYTES: usize = 6;
const END: u8 = 0xFF;
/// A count that is unknown or too large.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// Longest text of an integer, in bytes.
pub(crate) const INT_TEXT_BYTES_MAX: usize = 20;

/// Size of a listpack without its items, in bytes.
pub const FRAME_BYTES: usize = HEADER_BYTES + 1;

/// Completes a listpack of `count` items, which follow [`HEADER_BYTES`] arbitrary bytes: writes the header and appends
/// the end mark.
pub fn finish(block: &mut Vec<u8>, count: usize) {
    block.push(END);
    let bytes = u32::try_from(block.len()).unwrap_or(u32::MAX).to_le_bytes();
    let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN).to_le_bytes();
    if let Some(header) = block.first_chunk_mut::<HEADER_BYTES>() {
        header[..bytes.len()].copy_from_slice(&bytes);
        header[bytes.len()..].copy_from_slice(&count);
    }
}

/// Checks a listpack up to its last byte; none if it is invalid.
#[must_use]
pub fn parse(block: &[u8]) -> Option<Items<'_>> {
    let mut unread = Unread::open(block)?;
    let (items, mut is_shortest) = (unread.rest, true);
    while !unread.is_empty() {
        if unread.skip_plain() {
            continue;
        }
        let before = unread.rest.len();
        let item = unread.next()?;
        // Every longer encoding has a different size.
        is_shortest &= packed::encoded_len(item) == before - unread.rest.len();
        unread.longest = unread.longest.max(INT_TEXT_BYTES_MAX.max(before - unread.rest.len()));
    }
    let count = unread.checked_count()?;
    let items =
        if is_shortest { Items::shortest(items, count) } else { Items::new(items, count, |bytes, _| read(bytes)) };
    Some(items.with_longest(unread.longest))
}

/// A position in a listpack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Bytes of the remaining items.
    left: usize,
    /// Number of items before.
    read: usize,
}

/// The unread items of a listpack, which are checked while they are read. For blocks that need no other pass.
#[derive(Clone, Debug)]
pub(crate) struct Unread<'b> {
    /// All items.
    items: &'b [u8],
    rest: &'b [u8],
    /// Number of items that were read.
    read: usize,
    /// Number of items according to the header.
    said: u16,
    /// No text of an item that [`parse`] has read has more bytes.
    longest: usize,
}

impl<'b> Unread<'b> {
    /// Checks the header and the end mark.
    pub(crate) fn open(block: &'b [u8]) -> Option<Self> {
        let (header, rest) = block.split_at_checked(HEADER_BYTES)?;
        let (&end, rest) = rest.split_last()?;
        let bytes = u32::from_le_bytes(*header.first_chunk()?);
        let said = u16::from_le_bytes(*header.last_chunk()?);
        (bytes as usize == block.len() && end == END).then_some(Unread { items: rest, rest, read: 0, said, longest: 0 })
    }

    /// Returns the position, for [`Self::return_to`]. It stays in registers, while the wide loads of a copy of the whole would wait for narrower
    /// stores.
    pub(crate) fn mark(&self) -> Mark {
        Mark { left: self.rest.len(), read: self.read }
    }

    /// Returns to an earlier position.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        self.rest = &self.items[self.items.len() - mark.left..];
        self.read = mark.read;
    }

    /// Returns true if all items were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips the next item if it is a number up to 127 or a short text that can't be an integer, as most items are, and has no damage. Such
    /// an item has its shortest encoding. Otherwise returns false.
    #[inline]
    fn skip_plain(&mut self) -> bool {
        let body = match *self.rest {
            [0..=0x7F, ..] => 1,
            [head @ 0x81..=0xBF, text, ..] if text > b'9' => usize::from(head & 0x3F) + 1,
            _ => return false,
        };
        if self.rest.get(body).is_none_or(|&back| usize::from(back) != body) {
            return false;
        }
        self.rest = &self.rest[body + 1..];
        self.read += 1;
        // A number of one byte has up to three digits.
        self.longest = self.longest.max(body + 2);
        true
    }

    /// Reads an integer; none if the next item is another one, or damaged.
    #[inline]
    pub(crate) fn int(&mut self) -> Option<i64> {
        // Most integers of a stream are small.
        if let [small @ 0..=0x7F, 1, ref rest @ ..] = *self.rest {
            self.rest = rest;
            self.read += 1;
            return Some(small.into());
        }
        if let Item::Int(int) = self.next()? { Some(int) } else { None }
    }

    /// Reads a short text; none if the next item is another one, or damaged.
    #[inline]
    fn short_text(&mut self) -> Option<&'b [u8]> {
        let [head @ 0x80..=0xBF, ref rest @ ..] = *self.rest else { return None };
        let (text, rest) = rest.split_at_checked(usize::from(head & 0x3F))?;
        let (&back, rest) = rest.split_first()?;
        if usize::from(back) != text.len() + 1 {
            return None;
        }
        self.rest = rest;
        self.read += 1;
        Some(text)
    }

    /// Reads the text of an item; none if it is damaged.
    #[inline]
    pub(crate) fn text(&mut self) -> Option<ItemText<'b>> {
        match self.short_text() {
            Some(text) => Some(ItemText::from(text)),
            None => Some(self.next()?.text()),
        }
    }

    /// Passes the text of the next item to `visit`, and returns its result; none if the item is damaged.
    #[inline]
    pub(crate) fn with_text<T>(&mut self, visit: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.short_text() {
            Some(text) => Some(visit(text)),
            None => Some(self.next()?.with_bytes(visit)),
        }
    }

    /// Number of items that were read so far.
    pub(crate) fn read(&self) -> usize {
        self.read
    }

    /// Returns the number of items, after all were read; none if the header says another one.
    pub(crate) fn checked_count(&self) -> Option<usize> {
        let is_right = self.said == COUNT_UNKNOWN || usize::from(self.said) == self.read;
        (self.is_empty() && is_right).then_some(self.read)
    }
}

impl<'b> Iterator for Unread<'b> {
    type Item = Item<'b>;

    /// Returns none behind the last item, and for a damaged one.
    #[inline]
    fn next(&mut self) -> Option<Item<'b>> {
        let (item, rest) = read(self.rest)?;
        self.rest = rest;
        self.read += 1;
        Some(item)
    }
}

/// The first of these items, which have no header.
pub(crate) fn first(items: &[u8]) -> Option<Item<'_>> {
    read(items).map(|(item, _)| item)
}

/// Reads the item at the start of these bytes; returns it with the remaining bytes.
#[inline]
fn read(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (item, body) = body(bytes)?;
    if body <= BODY_SHORT_MAX {
        // A comparison of one byte, because most items are short.
        let (&back, rest) = bytes.get(body..)?.split_first()?;
        return (usize::from(back) == body).then_some((item, rest));
    }
    let mut back = [0; BACK_BYTES_MAX];
    let rest = bytes.get(body..)?.strip_prefix(back_length(body, &mut back))?;
    Some((item, rest))
}

/// Reads the item without its back length; returns it with its size in bytes.
#[inline]
fn body(bytes: &[u8]) -> Option<(Item<'_>, usize)> {
    let string = |head: usize, len: usize| Some((Item::from(bytes.get(head..head.checked_add(len)?)?), head + len));
    let first = *bytes.first()?;
    match first {
        0x00..=0x7F => Some((Item::Int(first.into()), 1)),
        0x80..=0xBF => string(1, usize::from(first & 0x3F)),
        0xC0..=0xDF => {
            // The sign is the highest of 13 bits; shifting left and right extends it.
            let value = i16::from_be_bytes([first, *bytes.get(1)?]) << 3 >> 3;
            Some((Item::Int(value.into()), 2))
        }
        0xE0..=0xEF => string(2, usize::from(first & 0x0F) << 8 | usize::from(*bytes.get(1)?)),
        0xF0 => string(5, u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?) as usize),
        0xF1 => int::<2>(bytes),
        0xF2 => int::<3>(bytes),
        0xF3 => int::<4>(bytes),
        0xF4 => int::<8>(bytes),
        _ => None,
    }
}

/// Reads an integer of this many bytes after the first one.
fn int<const BYTES: usize>(bytes: &[u8]) -> Option<(Item<'_>, usize)> {
    Some((Item::Int(signed(bytes.get(1..)?.first_chunk::<BYTES>()?)), 1 + BYTES))
}

/// Decodes little-endian two's complement of up to eight bytes.
pub(crate) fn signed<const BYTES: usize>(bytes: &[u8; BYTES]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - BYTES..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * BYTES)
}

const BACK_BYTES_MAX: usize = 5;
/// Longest body whose back length has one byte.
const BODY_SHORT_MAX: usize = 127;

/// Encodes the back length of an item with a body of `body` bytes: seven bits per byte, the lowest in the last one; all
/// but the first have the top bit set.
fn back_length(body: usize, room: &mut [u8; BACK_BYTES_MAX]) -> &[u8] {
    let bytes = match body {
        0..=BODY_SHORT_MAX => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => BACK_BYTES_MAX,
    };
    let back = &mut room[BACK_BYTES_MAX - bytes..];
    for (place, byte) in back.iter_mut().rev().enumerate() {
        let more = if place + 1 < bytes { 0x80 } else { 0 };
        *byte = (body >> (7 * place)) as u8 & 0x7F | more;
    }
    back
}

#[cfg(test)]
mod tests {
    use store::types::packed::Packed;

    use super::*;

    fn written(packed: &Packed) -> Vec<u8> {
        let mut block = vec![0; HEADER_BYTES];
        block.extend_from_slice(packed.items());
        finish(&mut block, packed.len());
        block
    }

    #[test]
    fn items_are_read_again_from_a_mark() {
        let mut packed = Packed::new();
        for text in ["one", "two", "three"] {
            packed.push_back(text.as_bytes());
        }
        let block = written(&packed);
        let mut unread = Unread::open(&block).unwrap();
        unread.next().unwrap();
        let mark = unread.mark();
        for _ in 0..2 {
            assert_eq!(unread.with_text(<[u8]>::to_vec).unwrap(), b"two");
            unread.return_to(mark);
        }
        assert_eq!((unread.read(), unread.by_ref().count()), (1, 2));
        assert_eq!(unread.checked_count(), Some(3));
    }

    #[test]
    fn packed_blocks_are_listpacks() {
        let mut packed = Packed::new();
        for int in [0, 127, 128, -1, -4096, 4095, 5000, -40_000, 1 << 23, i64::MIN, i64::MAX] {
            packed.push_back(int);
        }
        for len in [0, 1, 63, 64, 125, 126, 4095, 4096, 16_377, 16_378, 16_400, 2_097_145, 2_097_146] {
            packed.push_back(&vec![b'x'; len]);
        }
        let block = written(&packed);
        assert!(parse(&block).unwrap().eq(packed.iter()));
        assert_eq!(parse(&block).unwrap().encoded(), Some(packed.items()));
        assert_eq!(parse(&block).unwrap().packed(), packed);
        for cut in (0..300).chain(block.len() - 20..block.len()) {
            assert!(parse(&block[..cut]).is_none());
        }
    }

    #[test]
    fn more_items_than_the_header_can_count() {
        let mut packed = Packed::new();
        packed.extend((0..70_000).map(|_| 1));
        assert_eq!(parse(&written(&packed)).unwrap().len(), 70_000);
    }

    #[test]
    fn longer_encodings_than_necessary_are_read() {
        let items = b"\xF2\x05\0\0\x04\x8212\x03\xE0\x01a\x03";
        let block = [&(items.len() as u32 + 7).to_le_bytes()[..], &[3, 0], items, &[0xFF]].concat();
        let expected = [Item::Int(5), Item::Int(12), Item::Str(b"a")];
        assert!(parse(&block).unwrap().eq(expected));
        assert_eq!(parse(&block).unwrap().packed().items(), b"\x05\x01\x0c\x01\x81a\x02");
    }

    #[test]
    fn damage_is_detected() {
        let mut packed = Packed::new();
        packed.extend([&b"ab"[..], b"7", b"300"]);
        let block = written(&packed);
        for at in 0..block.len() {
            for bit in 0..8 {
                let mut damaged = block.clone();
                damaged[at] ^= 1 << bit;
                // A flipped bit within a text or a number doesn't damage the block.
                if let Some(items) = parse(&damaged) {
                    assert!([7, 8, 10, 12, 13].contains(&at), "{at} {:?}", items.collect::<Vec<_>>());
                }
            }
        }
    }
}
