//! Digests in keys. In a chain of digests, each key is the digest of the reply before, so that no reply contains the next key.

use blake2::Blake2bVar;
use blake2::digest::{Update, VariableOutput};
use md5::Md5;
use sha2::{Digest, Sha256};

/// Longest digest as text: SHA-512.
const TEXT_BYTES_MAX: usize = 128;

/// True for a word with the form of a digest: MD5, SHA-1, or SHA-2, in hexadecimal digits.
#[inline]
pub fn is_digest(word: &[u8]) -> bool {
    matches!(word.len(), 32 | 40 | 56 | 64 | 96 | TEXT_BYTES_MAX) && word.iter().all(u8::is_ascii_hexdigit)
}

/// Digits of digests that are computed. Applications cut long digests.
const DIGITS: std::ops::RangeInclusive<usize> = 16..=64;
/// Bytes of a digest of BLAKE2b unless the application asks for another length.
const BLAKE2_BYTES: usize = 64;

/// Returns the last word of a key if it may be a digest that is computed, or a part of one.
#[inline]
pub fn of_key(key: &[u8]) -> Option<&[u8]> {
    let word = key.rsplit(|byte| !byte.is_ascii_alphanumeric()).next()?;
    let is_digest = DIGITS.contains(&word.len())
        && word.len().is_multiple_of(2)
        && word.iter().all(u8::is_ascii_hexdigit)
        && word.iter().any(u8::is_ascii_alphabetic);
    is_digest.then_some(word)
}

/// Passes the digests of a text on that have the form of `like`, another digest: MD5, SHA-1, SHA-256 and BLAKE2b, the longer ones cut, and
/// BLAKE2b of this length.
pub fn digests(text: &[u8], like: &[u8], mut take: impl FnMut(&[u8])) {
    let mut hex = |bytes: &[u8]| {
        let mut digits = [0; BLAKE2_BYTES * 2];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        if let Some(digits) = digits.get(..like.len()).filter(|_| bytes.len() * 2 >= like.len()) {
            take(digits);
        }
    };
    hex(&Md5::digest(text));
    hex(&sha1_smol::Sha1::from(text).digest().bytes());
    hex(&Sha256::digest(text));
    for len in [like.len() / 2, BLAKE2_BYTES] {
        let mut digest = [0; BLAKE2_BYTES];
        if let (Ok(mut state), Some(digest)) = (Blake2bVar::new(len), digest.get_mut(..len)) {
            state.update(text);
            if state.finalize_variable(digest).is_ok() {
                hex(digest);
            }
        }
    }
}

/// Digits of hexadecimal numbers. The case of a digest's letters is ignored later.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns the first digest of a text with so many digits that the longest algorithm yields.
#[cfg(test)]
pub fn digest(text: &[u8], len: usize) -> String {
    let mut all = Vec::new();
    digests(text, &vec![b'a'; len], |digest| all.push(String::from_utf8_lossy(digest).into_owned()));
    all.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_known_by_their_form() {
        for (len, expected) in [(32, true), (40, true), (64, true), (39, false), (8, false)] {
            assert_eq!(is_digest(&vec![b'a'; len]), expected, "{len}");
        }
        assert!(!is_digest(&[b'g'; 40]));
        let key = [b"blob:x:".as_slice(), &[b'a'; 40]].concat();
        assert_eq!((of_key(&key), of_key(b"blob:17")), (Some([b'a'; 40].as_slice()), None));
        assert_eq!(of_key(b"a:0123456789abcdef"), Some(b"0123456789abcdef".as_slice()));
        assert_eq!((of_key(b"a:0123456789012345"), of_key(b"a:0123456789abcde"), of_key(b"")), (None, None, None));
    }

    /// The expected digests are those of Python's hashlib.
    #[test]
    fn digests_of_texts_are_computed() {
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let md5 = "900150983cd24fb0d6963f7d28e17f72";
        let blake2 = "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1";
        let blake2_of_8 = "d8bb14d833d59559";
        for (len, expected) in [(64, [sha256, blake2]), (40, [sha1, &sha256[..40]]), (32, [md5, &sha1[..32]])] {
            let mut all = Vec::new();
            digests(b"abc", &vec![b'a'; len], |digest| all.push(String::from_utf8_lossy(digest).into_owned()));
            assert!(expected.iter().all(|one| all.iter().any(|known| known == one)), "{len} {all:?}");
        }
        let mut is_short = false;
        digests(b"abc", &[b'a'; 16], |digest| is_short |= digest == blake2_of_8.as_bytes());
        assert!(is_short);
    }
}
