//! Redis's zipmap: what small hashes were kept in up to Redis 2.4. Only read.
//!
//! ```text
//! | count of fields, u8; 254: too many to say | entries | 0xFF |
//!
//! an entry: | length | field | length | free bytes, u8 | value | that many free bytes |
//! a length: 1 byte up to 253, or 0xFE and u32 little endian
//! ```
//!
//! Source: the comment at the top of Redis's `zipmap.c`.

use store::types::packed::Item;

const END: u8 = 0xFF;
const LONG: u8 = 0xFE;
/// Stands for a count that is not known.
const COUNT_UNKNOWN: u8 = 254;

/// The fields and values in turn of a zipmap that has been checked.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    left: usize,
}

/// Checks a zipmap to its last byte; none if anything is wrong with it.
#[must_use]
pub fn parse(block: &[u8]) -> Option<Items<'_>> {
    let (&said, rest) = block.split_first()?;
    let (&end, entries) = rest.split_last()?;
    let mut items = Items { rest: entries, left: 0 };
    let mut count = 0;
    while !items.rest.is_empty() {
        items.rest = if count % 2 == 0 { read(items.rest, false)?.1 } else { read(items.rest, true)?.1 };
        count += 1;
    }
    let whole = count % 2 == 0 && end == END;
    let counted = said >= COUNT_UNKNOWN || usize::from(said) == count / 2;
    (whole && counted).then_some(Items { rest: entries, left: count })
}

/// A field, or a value with the free bytes behind it.
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

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (item, rest) = read(self.rest, !self.left.is_multiple_of(2))?;
        self.rest = rest;
        self.left -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}

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
