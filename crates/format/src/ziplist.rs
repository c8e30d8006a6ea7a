//! Redis's ziplist: the encoding of small collections up to Redis 6.2. It is only read.
//!
//! ```text
//! | bytes of all, u32 | offset of the last entry, u32 | count, u16; 65535: too many to say | entries | 0xFF |
//!
//! an entry: | bytes of the one before: 1 byte, or 0xFE and u32 | encoding | bytes, if it is a string |
//! 00llllll                   string of up to 63 bytes          11000000  i16        1111vvvv  v - 1, 0 to 12
//! 01llllll llllllll          string of up to 16383 bytes       11010000  i32        11110000  i24
//! 10000000 l l l l           string, length big endian         11100000  i64        11111110  i8
//! ```
//!
//! Numbers are little endian, except for the lengths of strings. Source: the comment at the top of Redis's `ziplist.c`.

use store::types::packed::Item;

use crate::items::Items;

use crate::listpack::signed;

const HEADER_BYTES: usize = 10;
const END: u8 = 0xFF;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Marks that the length of the previous entry takes four more bytes.
const LONG_BEFORE: u8 = 0xFE;

/// Checks a ziplist up to its last byte; none if it is invalid.
#[must_use]
pub fn parse(block: &[u8]) -> Option<Items<'_>> {
    let (header, rest) = block.split_at_checked(HEADER_BYTES)?;
    let (&end, entries) = rest.split_last()?;
    let number = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?) as usize);
    let said = u16::from_le_bytes(*header.last_chunk()?);
    if number(0)? != block.len() || end != END {
        return None;
    }
    let (mut count, mut unread, mut before) = (0usize, entries, 0);
    while !unread.is_empty() {
        let entry = read(unread)?;
        if entry.before != before {
            return None;
        }
        before = unread.len() - entry.rest.len();
        unread = entry.rest;
        count += 1;
    }
    let last = HEADER_BYTES + entries.len() - before;
    let counted = said == COUNT_UNKNOWN || usize::from(said) == count;
    (counted && number(4)? == last)
        .then_some(Items::new(entries, count, |bytes, _| read(bytes).map(|entry| (entry.item, entry.rest))))
}

struct ZiplistEntry<'a> {
    /// Size of the previous entry, as stated by this one.
    before: usize,
    item: Item<'a>,
    rest: &'a [u8],
}

fn read(bytes: &[u8]) -> Option<ZiplistEntry<'_>> {
    let (&first, rest) = bytes.split_first()?;
    let (before, rest) = match first {
        END => return None,
        LONG_BEFORE => {
            let (before, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*before) as usize, rest)
        }
        short => (short.into(), rest),
    };
    let (item, rest) = item(rest)?;
    Some(ZiplistEntry { before, item, rest })
}

fn item(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        0x00..=0x3F => string(rest, first.into()),
        0x40..=0x7F => {
            let (&low, rest) = rest.split_first()?;
            string(rest, usize::from(first & 0x3F) << 8 | usize::from(low))
        }
        0x80 => {
            let (len, rest) = rest.split_first_chunk()?;
            string(rest, u32::from_be_bytes(*len) as usize)
        }
        0xC0 => int::<2>(rest),
        0xD0 => int::<4>(rest),
        0xE0 => int::<8>(rest),
        0xF0 => int::<3>(rest),
        0xFE => int::<1>(rest),
        0xF1..=0xFD => Some((Item::Int(i64::from(first & 0x0F) - 1), rest)),
        _ => None,
    }
}

fn string(bytes: &[u8], len: usize) -> Option<(Item<'_>, &[u8])> {
    bytes.split_at_checked(len).map(|(string, rest)| (Item::from(string), rest))
}

fn int<const BYTES: usize>(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    bytes.split_first_chunk::<BYTES>().map(|(bytes, rest)| (Item::Int(signed(bytes)), rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a ziplist from these entries, each without the length of the previous one.
    pub(crate) fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut before) = (Vec::new(), 0usize);
        for entry in entries {
            let start = body.len();
            match u8::try_from(before) {
                Ok(short) if short < LONG_BEFORE => body.push(short),
                _ => {
                    body.push(LONG_BEFORE);
                    body.extend_from_slice(&(before as u32).to_le_bytes());
                }
            }
            body.extend_from_slice(entry);
            before = body.len() - start;
        }
        let last = HEADER_BYTES + body.len() - before;
        let numbers = [(HEADER_BYTES + body.len() + 1) as u32, last as u32];
        let header: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [&header[..], &(entries.len() as u16).to_le_bytes(), &body, &[END]].concat()
    }

    #[test]
    fn every_encoding_is_read() {
        let long = [&[0x80, 0, 0, 0x40, 1][..], &[b'y'; 0x4001]].concat();
        let middle = [&[0x41, 0][..], &[b'x'; 256]].concat();
        let entries: [&[u8]; 11] = [
            b"\x02ab",
            &middle,
            &long,
            b"\xC0\xFE\xFF",
            b"\xD0\0\0\x01\0",
            b"\xE0\0\0\0\0\0\0\0\x80",
            b"\xF0\xFF\xFF\x7F",
            b"\xFE\x80",
            b"\xF1",
            b"\xFD",
            b"\x0212",
        ];
        let block = ziplist(&entries);
        let (x, y) = (vec![b'x'; 256], vec![b'y'; 0x4001]);
        let strings = [Item::Str(b"ab"), Item::Str(&x), Item::Str(&y)];
        let ints = [-2, 1 << 16, i64::MIN, 0x7F_FFFF, -128, 0, 12, 12].map(Item::Int);
        assert!(parse(&block).unwrap().eq(strings.into_iter().chain(ints)));
        assert_eq!(parse(&ziplist(&[])).unwrap().len(), 0);
        for cut in 0..block.len() {
            assert!(parse(&block[..cut]).is_none());
        }
    }

    #[test]
    fn damage_is_detected() {
        let block = ziplist(&[b"\x02ab", b"\xC0\x00\x01", b"\x01c"]);
        for at in 0..block.len() {
            let mut damaged = block.clone();
            damaged[at] ^= 0x10;
            if let Some(items) = parse(&damaged) {
                // Texts, and an integer.
                assert!([12, 13, 16, 17, 20].contains(&at), "{at} {:?}", items.collect::<Vec<_>>());
            }
        }
    }
}
