//! SHA-1, the identifier of scripts. The digests only have to differ, so the weaknesses of SHA-1 do not matter here.

/// The digest of some bytes as 40 hexadecimal digits in lower case.
#[must_use]
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 40];
    for (i, byte) in sha1_smol::Sha1::from(bytes).digest().bytes().into_iter().enumerate() {
        hex[2 * i] = DIGITS[usize::from(byte >> 4)];
        hex[2 * i + 1] = DIGITS[usize::from(byte & 15)];
    }
    hex
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
