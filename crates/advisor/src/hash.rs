//! Hashes of arguments, compared for equality only. A collision makes a count wrong by one.

/// Odd constants with as many ones as zeros.
const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xd6e8_feb8_6659_fd93;

/// Arguments up to this length are hashed whole.
const WHOLE_BYTES_MAX: usize = 128;
/// Bytes of a longer argument's start, and of its end, that are hashed.
const PART_BYTES: usize = WHOLE_BYTES_MAX / 2;

/// Mixes two words into one.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ A) * u128::from(b ^ B);
    product as u64 ^ (product >> 64) as u64
}

/// Returns eight bytes from `at` on; missing bytes are zero.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
        None => tail(bytes.get(at..).unwrap_or_default()),
    }
}

/// Up to seven bytes as a word.
#[inline]
fn tail(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
    }
}

/// The hash of all bytes.
#[inline]
pub fn bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ bytes.len() as u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = mix(hash, word(bytes, at));
        at += 8;
    }
    hash
}

/// A bit of each byte, by which the cases of a letter differ.
const CASE: u64 = 0x2020_2020_2020_2020;

/// The hash of a text's bytes, whatever the case of their letters.
#[inline]
pub fn letters(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = mix(hash, word(bytes, at) | CASE);
        at += 8;
    }
    hash
}

/// Returns the hash of an argument in bounded time. A long argument is represented by its length, its start and its
/// end.
#[inline]
pub fn argument(seed: u64, argument: &[u8]) -> u64 {
    if argument.len() <= WHOLE_BYTES_MAX {
        return bytes(seed, argument);
    }
    let (start, _) = argument.split_at(PART_BYTES);
    let (_, end) = argument.split_at(argument.len() - PART_BYTES);
    mix(bytes(seed ^ argument.len() as u64, start), bytes(seed, end))
}

/// A hasher for maps with keys that already are hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hashed(u64);

impl std::hash::Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes_of_key: &[u8]) {
        self.0 = bytes(self.0, bytes_of_key);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// A map with keys that already are hashes.
pub type HashedMap<V> = std::collections::HashMap<u64, V, std::hash::BuildHasherDefault<Hashed>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_hash_differently() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..200 {
            let text = vec![b'x'; len];
            assert!(seen.insert(argument(1, &text)), "{len}");
            for at in (0..len.min(64)).chain(len.saturating_sub(64)..len) {
                let mut other = text.clone();
                other[at] = b'y';
                seen.insert(argument(1, &other));
            }
        }
        let tried = (0..200).map(|len: usize| {
            let places: std::collections::HashSet<_> = (0..len.min(64)).chain(len.saturating_sub(64)..len).collect();
            1 + places.len()
        });
        assert_eq!(seen.len(), tried.sum::<usize>());
    }

    #[test]
    fn a_long_argument_is_known_by_its_length_and_ends() {
        let long = vec![b'x'; 1 << 20];
        assert_ne!(argument(1, &long), argument(1, &long[1..]));
    }
}
