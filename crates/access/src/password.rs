//! Passwords: stored as digests, compared in constant time, and generated at random.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Characters of a digest in text.
const DIGEST_CHARS: usize = 64;

/// The SHA-256 of a password, as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PasswordDigest(String);

impl PasswordDigest {
    /// Returns the digest of a password.
    pub(super) fn of(password: &[u8]) -> PasswordDigest {
        PasswordDigest(hexadecimal(&Sha256::digest(password)))
    }

    /// Parses a digest; returns `None` unless the text has 64 lowercase hexadecimal digits.
    pub(super) fn parse(text: &[u8]) -> Option<PasswordDigest> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_whole = text.len() == DIGEST_CHARS && text.iter().all(is_digit);
        is_whole.then(|| PasswordDigest(String::from_utf8_lossy(text).into_owned()))
    }

    /// Returns the digest as text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares two digests, in a time that doesn't depend on the position of a difference.
    pub(super) fn is(&self, other: &PasswordDigest) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns `chars` random hexadecimal digits from the system's source.
///
/// # Errors
/// The error of the system's source.
pub fn generate(chars: usize) -> Result<String, String> {
    let mut bytes = vec![0; chars.div_ceil(2)];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    let mut text = hexadecimal(&bytes);
    text.truncate(chars);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_sha_256() {
        let of_p = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
        assert_eq!(PasswordDigest::of(b"p").text(), of_p);
        let parsed = PasswordDigest::parse(of_p.as_bytes());
        assert!(parsed.is_some_and(|p| p.is(&PasswordDigest::of(b"p")) && !p.is(&PasswordDigest::of(b"q"))));
        for bad in [&of_p[1..], &of_p.to_uppercase(), ""] {
            assert_eq!(PasswordDigest::parse(bad.as_bytes()), None);
        }
    }

    #[test]
    fn generated_passwords_have_the_length_and_differ() {
        let made: Vec<_> = (0..3).map(|_| generate(63)).collect();
        assert!(made.iter().all(|one| one.as_ref().is_ok_and(|text| text.len() == 63)));
        assert!(made[0] != made[1] && made[1] != made[2]);
    }
}
