//! The slot of a key in a cluster: CRC16/XMODEM of the key, or of its hash tag, modulo 16384. Every server and client of a cluster computes
//! it in this way.
//!
//! Processors with a carry-less multiplication need a third of the instructions of a lookup in tables (`carry_less`).

#[cfg(target_arch = "x86_64")]
mod carry_less;

use super::SLOT_SHIFT;

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
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    (with_slot(0, key) >> SLOT_SHIFT) as u16
}

/// Returns a hash with the key's slot in its upper bits.
// Not inlined, because servers outside of a cluster never call it.
#[inline(never)]
pub(super) fn with_slot(hash: u64, key: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(hash) = carry_less::with_slot(hash, key) {
        return hash;
    }
    with_slot_of_tables(hash, key)
}

// Not inlined, so that `with_slot` stays small.
#[inline(never)]
fn with_slot_of_tables(hash: u64, key: &[u8]) -> u64 {
    with_slot_by::<Tables>(hash, key)
}

#[inline(always)]
fn with_slot_by<S: Sum>(hash: u64, key: &[u8]) -> u64 {
    let (sum, has_brace) = checksum::<S>(key);
    let slot = if has_brace { slot_of_tagged(key, sum) } else { sum % SLOTS as u16 };
    hash & ((1 << SLOT_SHIFT) - 1) | u64::from(slot) << SLOT_SHIFT
}

/// Returns the slot of a key that contains a `{`. `sum` is the checksum of the whole key.
#[inline(never)]
fn slot_of_tagged(key: &[u8], sum: u16) -> u16 {
    tag_of(key).map_or(sum, |tag| checksum::<Tables>(tag).0) % SLOTS as u16
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
            (b'}', Tag::Since(from)) => return Some(checksum::<Tables>(&pattern[from..at]).0 % SLOTS as u16),
            _ => {}
        }
    }
    Some(checksum::<Tables>(pattern).0 % SLOTS as u16)
}

/// The state of the search for a hash tag.
#[derive(Clone, Copy)]
enum Tag {
    Unseen,
    Since(usize),
    None,
}

/// The checksum of the bytes so far, and a search for `{` among them.
trait Sum: Sized {
    /// The sum of no bytes.
    fn new() -> Self;

    /// Adds the bytes of a word, the highest byte first.
    fn add(&mut self, word: u64);

    /// Returns the checksum, and true if there was a `{`.
    fn finish(self) -> (u16, bool);
}

/// Lookups in [`TABLES`].
struct Tables {
    sum: u16,
    /// The upper bit of a byte is set if there was a `{` at its place or below.
    braces: u64,
}

impl Sum for Tables {
    #[inline(always)]
    fn new() -> Tables {
        Tables { sum: 0, braces: 0 }
    }

    #[inline(always)]
    fn add(&mut self, word: u64) {
        self.braces |= braces_in(word);
        let word = word ^ u64::from(self.sum) << 48;
        let part = |zeros: usize| TABLES[zeros][(word >> (8 * zeros)) as usize & 0xFF];
        self.sum = part(7) ^ part(6) ^ part(5) ^ part(4) ^ part(3) ^ part(2) ^ part(1) ^ part(0);
    }

    #[inline(always)]
    fn finish(self) -> (u16, bool) {
        (self.sum, self.braces != 0)
    }
}

/// Returns the checksum of some bytes, and true if they contain a `{`.
#[inline(always)]
fn checksum<S: Sum>(bytes: &[u8]) -> (u16, bool) {
    let odd = bytes.len() % BLOCK;
    let mut sum = S::new();
    if odd > 0 {
        // Leading zero bytes don't change the checksum, so the incomplete block comes first.
        sum.add(match bytes.first_chunk::<BLOCK>() {
            Some(first) => u64::from_be_bytes(*first) >> (8 * (BLOCK - odd)),
            None => short(bytes),
        });
    }
    bytes[odd..].as_chunks::<BLOCK>().0.iter().for_each(|chunk| sum.add(u64::from_be_bytes(*chunk)));
    sum.finish()
}

/// Returns fewer than eight bytes as a number. Reads parts that overlap, because a loop of a random length is mispredicted.
#[inline(always)]
fn short(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>(), bytes) {
        (Some(first), Some(last), _) => {
            u64::from(u32::from_be_bytes(*first)) << (8 * (bytes.len() - 4)) | u64::from(u32::from_be_bytes(*last))
        }
        (_, _, [first, .., last]) => {
            let middle = u64::from(bytes[bytes.len() / 2]) << (8 * (bytes.len() - 1 - bytes.len() / 2));
            u64::from(*first) << (8 * (bytes.len() - 1)) | middle | u64::from(*last)
        }
        (_, _, [only]) => u64::from(*only),
        _ => 0,
    }
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
            assert_eq!(checksum::<Tables>(key), (naive(key), false), "{length}");
            assert_eq!(slot_of(key), naive(key) % SLOTS as u16);
            for at in 0..length {
                let mut braced = key.to_vec();
                braced[at] = b'{';
                assert_eq!(checksum::<Tables>(&braced), (naive(&braced), true), "{length} {at}");
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
