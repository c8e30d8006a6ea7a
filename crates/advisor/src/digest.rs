//! Digests in keys. In a chain of digests, each key is the digest of the reply before, so that no reply contains the next key.

use sha2::{Digest, Sha256};

/// Longest digest as text: SHA-512.
const TEXT_BYTES_MAX: usize = 128;

/// True for a word with the form of a digest: MD5, SHA-1, or SHA-2, in hexadecimal digits.
#[inline]
pub fn is_digest(word: &[u8]) -> bool {
    matches!(word.len(), 32 | 40 | 56 | 64 | 96 | TEXT_BYTES_MAX) && word.iter().all(u8::is_ascii_hexdigit)
}

/// Returns the last word of a key if it has the form of a digest.
#[inline]
pub fn of_key(key: &[u8]) -> Option<&[u8]> {
    key.rsplit(|byte| !byte.is_ascii_alphanumeric()).next().filter(|word| is_digest(word))
}

/// Returns the digest of a text in the form of `like`, another digest. Returns None for forms other than those of SHA-1 and SHA-256.
pub fn digest(text: &[u8], like: &[u8]) -> Option<String> {
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digest = match like.len() {
        40 => sha1_smol::Sha1::from(text).digest().to_string(),
        64 => digits(&Sha256::digest(text)),
        _ => return None,
    };
    let is_upper = like.iter().any(u8::is_ascii_uppercase);
    Some(if is_upper { digest.to_uppercase() } else { digest })
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
    }

    #[test]
    fn digests_of_texts_are_computed() {
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        assert_eq!(digest(b"abc", &[b'0'; 40]).as_deref(), Some(sha1));
        assert_eq!(digest(b"abc", &[b'A'; 40]), Some(sha1.to_uppercase()));
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc", &[b'0'; 64]).as_deref(), Some(sha256));
        assert_eq!(digest(b"abc", &[b'0'; 32]), None);
    }
}
