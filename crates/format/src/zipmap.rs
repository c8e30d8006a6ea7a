//! Redis's zipmap: the encoding of small hashes up to Redis 2.4. It is only read.
//!
//! ```text
//! | count of fields, u8; 254: unknown | entries | 0xFF |
//!
//! an entry: | length | field | length | free bytes, u8 | value | that many free bytes |
//! a length: 1 byte up to 253, or 0xFE and u32 little endian
//! ```
//!
//! Source: the comment at the top of Redis's `zipmap.c`.

use store::types::packed::Item;

use crate::items::Items;

const END: u8 = 0xFF;
const LONG: u8 = 0xFE;
/// An unknown count.
const COUNT_UNKNOWN: u8 = 254;

/// Checks a zipmap up to its last byte; none if it is invalid.
#[must_use]
pub fn parse(block: &[u8]) -> Option<Items<'_>> {
    let (&said, rest) = block.split_first()?;
    let (&end, entries) = rest.split_last()?;
    let (mut unread, mut count) = (entries, 0);
    while !unread.is_empty() {
        unread = read(unread, count % 2 == 1)?.1;
        count += 1;
    }
    let whole = count % 2 == 0 && end == END;
    let counted = said >= COUNT_UNKNOWN || usize::from(said) == count / 2;
    (whole && counted).then_some(Items::new(entries, count, |bytes, left| read(bytes, !left.is_multiple_of(2))))
}

/// Reads a field, or a value with the free bytes after it.
fn read(bytes: &[u8], is_value: bool) -> Option<(Item<'_>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (len, rest) = match first {
        END => return None,
        LONG => {
            let (len, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*len) as usize, rest)
        }
        short => (short.into(), rest),
    };
    let (free, rest) = if is_value {
        let (&free, rest) = rest.split_first()?;
        (free.into(), rest)
    } else {
        (0, rest)
    };
    let (text, rest) = rest.split_at_checked(len)?;
    Some((Item::from(text), rest.get(free..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_values_are_read_in_turn() {
        let long = [&b"\x01k\xFE\x00\x01\0\0\x02"[..], &[b'v'; 256], b"??"].concat();
        let value = [b'v'; 256];
        let block = [&b"\x03\x03foo\x03\0bar\x02hi\x02\x0117!"[..], &long, b"\xFF"].concat();
        let expected =
            [Item::Str(b"foo"), Item::Str(b"bar"), Item::Str(b"hi"), Item::Int(17), Item::Str(b"k"), Item::Str(&value)];
        assert!(parse(&block).unwrap().eq(expected));
        for cut in 0..block.len() {
            assert!(parse(&block[..cut]).is_none());
        }
    }
}
