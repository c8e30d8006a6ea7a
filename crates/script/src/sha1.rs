//! SHA-1, by which scripts are known. It protects nothing here: names only have to differ.
//!
//! Source of the algorithm: RFC 3174.

/// The digest of some bytes as 40 hexadecimal digits in lower case.
#[must_use]
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 40];
    for (i, byte) in sha1(bytes).into_iter().enumerate() {
        hex[2 * i] = DIGITS[usize::from(byte >> 4)];
        hex[2 * i + 1] = DIGITS[usize::from(byte & 15)];
    }
    hex
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| add_block(&mut state, block));
    // What is left, a one bit, zeros, and the length in bits in the last eight bytes.
    let mut last = [0; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    last[end - 8..end].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    last[..end].as_chunks::<64>().0.iter().for_each(|block| add_block(&mut state, block));
    let mut digest = [0; 20];
    digest.as_chunks_mut::<4>().0.iter_mut().zip(state).for_each(|(to, word)| *to = u32::to_be_bytes(word));
    digest
}

fn add_block(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for i in 16..80 {
        words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (i, word) in words.into_iter().enumerate() {
        let (mixed, constant) = match i {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999_u32),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let check = |text: &[u8], expected: &str| assert_eq!(sha1_hex(text), expected.as_bytes());
        check(b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        check(b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(&b"a".repeat(1_000_000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        check(
            &b"0123456701234567012345670123456701234567012345670123456701234567".repeat(10),
            "dea356a2cddd90c7a7ecedc5ebb563934f460452",
        );
        check(&b"x".repeat(55), "cef734ba81a024479e09eb5a75b6ddae62e6abf1");
        check(&b"x".repeat(56), "901305367c259952f4e7af8323f480d59f81335b");
    }
}
