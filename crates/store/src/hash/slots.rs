//! The slot of a key in a cluster: CRC16/XMODEM of the key, or of its hash tag, modulo 16384. Every server and client of a cluster computes
//! it in this way.

/// Slots of a cluster.
pub const SLOTS: usize = 1 << 14;

/// The polynomial of CRC16/XMODEM; the initial value is 0.
const POLYNOMIAL: u16 = 0x1021;
/// Bytes of a key that are looked up together.
const BLOCK: usize = 8;

/// `TABLES[k][b]` is the checksum of the byte `b` with `k` zero bytes behind it: the bytes of a block are looked up
/// independently of each other ("slicing by 8").
static TABLES: [[u16; 256]; BLOCK] = tables();

const fn tables() -> [[u16; 256]; BLOCK] {
    let mut tables = [[0; 256]; BLOCK];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < BLOCK {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// Returns the slot of a key.
#[inline]
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    let (sum, has_brace) = checksum(key);
    let sum = if has_brace { tag_of(key).map_or(sum, |tag| checksum(tag).0) } else { sum };
    sum % SLOTS as u16
}

/// Returns the hash tag of a key: the bytes between the first `{` and the next `}`. The tag is hashed in place of the key. None if there is
/// no tag or it is empty.
#[must_use]
pub fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// Returns the slot of all keys that match a glob pattern. None if they may have several, because a wildcard comes before
/// the end of the hash tag.
#[must_use]
pub fn pattern_slot(pattern: &[u8]) -> Option<u16> {
    let mut open = Tag::Unseen;
    for (at, byte) in pattern.iter().enumerate() {
        match (byte, open) {
            (b'*' | b'?' | b'[' | b'\\', _) => return None,
            (b'{', Tag::Unseen) => open = Tag::Since(at + 1),
            // After an empty tag, the whole key is hashed.
            (b'}', Tag::Since(from)) if from == at => open = Tag::None,
            (b'}', Tag::Since(from)) => return Some(checksum(&pattern[from..at]).0 % SLOTS as u16),
            _ => {}
        }
    }
    Some(checksum(pattern).0 % SLOTS as u16)
}

/// The state of the search for a hash tag.
#[derive(Clone, Copy)]
enum Tag {
    Unseen,
    Since(usize),
    None,
}

/// Returns the checksum of some bytes, and true if they contain a `{`.
#[inline]
fn checksum(bytes: &[u8]) -> (u16, bool) {
    // Leading zero bytes don't change the checksum, so the incomplete block comes first.
    let odd = bytes.len() % BLOCK;
    let head = match bytes.first_chunk::<BLOCK>() {
        Some(_) if odd == 0 => 0,
        Some(first) => u64::from_be_bytes(*first) >> (8 * (BLOCK - odd)),
        None => bytes.iter().fold(0, |head, &byte| head << 8 | u64::from(byte)),
    };
    let (mut sum, mut braces) = (block(head), braces_in(head));
    for chunk in bytes[odd..].as_chunks::<BLOCK>().0 {
        let word = u64::from_be_bytes(*chunk);
        braces |= braces_in(word);
        sum = block(word ^ u64::from(sum) << 48);
    }
    (sum, braces != 0)
}

/// The checksum of a block.
#[inline(always)]
fn block(word: u64) -> u16 {
    let part = |zeros: usize| TABLES[zeros][(word >> (8 * zeros)) as usize & 0xFF];
    part(7) ^ part(6) ^ part(5) ^ part(4) ^ part(3) ^ part(2) ^ part(1) ^ part(0)
}

/// Returns a number other than 0 if one of the bytes is `{`.
#[inline(always)]
fn braces_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xFF;
    // The lowest byte that is 0 borrows from its own upper bit.
    let other = word ^ (ONES * b'{' as u64);
    other.wrapping_sub(ONES) & !other & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the checksum bit by bit, by its definition.
    fn naive(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |sum, &byte| {
            (0..8).fold(
                sum ^ u16::from(byte) << 8,
                |sum: u16, _| {
                    if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ POLYNOMIAL }
                },
            )
        })
    }

    #[test]
    fn slots_are_those_of_redis() {
        // Results of CLUSTER KEYSLOT in redis-server 7.0.
        let cases: [(&[u8], u16); 12] = [
            (b"", 0),
            (b"a", 15495),
            (b"foo", 12182),
            (b"123456789", 12739),
            (b"somekey", 11058),
            (b"foo{hash_tag}", 2515),
            (b"{user1000}.following", 3443),
            (b"{user1000}.followers", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"foo{bar", 15278),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key), slot, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn keys_of_every_length_are_summed_as_bit_by_bit() {
        let text: Vec<u8> = (0..200_u32).map(|i| (i * i * 7 + i) as u8 | 0x80).collect();
        for length in 0..text.len() {
            let key = &text[text.len() - length..];
            assert_eq!(checksum(key), (naive(key), false), "{length}");
            assert_eq!(slot_of(key), naive(key) % SLOTS as u16);
            for at in 0..length {
                let mut braced = key.to_vec();
                braced[at] = b'{';
                assert_eq!(checksum(&braced), (naive(&braced), true), "{length} {at}");
            }
        }
    }

    #[test]
    fn a_glob_has_a_slot_if_all_that_match_have_it() {
        for (pattern, key) in [
            ("{user}:*", Some("user")),
            ("a", Some("a")),
            ("x{a}[bc]", Some("a")),
            ("{}{a}", Some("{}{a}")),
            ("*", None),
            ("a*{b}", None),
            ("{a*}b", None),
            ("{}*", None),
            ("a?", None),
            ("a\\*", None),
        ] {
            assert_eq!(pattern_slot(pattern.as_bytes()), key.map(|key| slot_of(key.as_bytes())), "{pattern}");
        }
    }

    #[test]
    fn the_first_tag_counts_if_it_has_bytes() {
        for (key, tag) in [
            ("a{b}c", Some("b")),
            ("{b}{c}", Some("b")),
            ("{}{c}", None),
            ("a}b{c}", Some("c")),
            ("a{b", None),
            ("}{", None),
            ("{{b}}", Some("{b")),
        ] {
            assert_eq!(tag_of(key.as_bytes()), tag.map(str::as_bytes), "{key}");
        }
    }
}
