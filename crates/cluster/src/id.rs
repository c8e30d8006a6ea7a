//! Names of nodes and shards: 40 characters, digits and lower-case letters.

use std::fmt;

/// The number of characters of a name.
pub const ID_LEN: usize = 40;

/// 40 characters of `[0-9a-z]`. The peers make hexadecimal ones and accept all of these.
fn is_valid(bytes: &[u8; ID_LEN]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// Writes random numbers as 40 hexadecimal digits.
fn hexadecimal(mut random: impl FnMut() -> u64) -> [u8; ID_LEN] {
    let mut id = [0; ID_LEN];
    for part in id.chunks_mut(16) {
        let number = random();
        for (at, digit) in part.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
        }
    }
    id
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; ID_LEN]);

        impl $name {
            /// Reads a name; `None` if the bytes aren't 40 characters of `[0-9a-z]`.
            pub fn new(bytes: &[u8]) -> Option<$name> {
                let bytes: &[u8; ID_LEN] = bytes.try_into().ok()?;
                is_valid(bytes).then_some($name(*bytes))
            }

            /// Makes a new name of random numbers.
            pub fn random(random: impl FnMut() -> u64) -> $name {
                $name(hexadecimal(random))
            }

            /// The name's characters.
            pub fn bytes(&self) -> &[u8; ID_LEN] {
                &self.0
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).unwrap_or_default()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(self.as_str())
            }
        }
    };
}

name! {
    /// The name of a node. It stays for the node's life, unless `CLUSTER RESET HARD` replaces it.
    NodeId
}

name! {
    /// The name of a shard: a primary and its replicas share it.
    ShardId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_40_digits_and_letters() {
        let check = |text: &str, is_name: bool| assert_eq!(NodeId::new(text.as_bytes()).is_some(), is_name, "{text}");
        check(&"0".repeat(40), true);
        check(&"z9".repeat(20), true);
        check(&"0".repeat(39), false);
        check(&"0".repeat(41), false);
        check(&"A".repeat(40), false);
        check(&"\0".repeat(40), false);
    }

    #[test]
    fn random_names_are_hexadecimal() {
        let mut number = 0x0123_4567_89ab_cdef_u64;
        let id = NodeId::random(|| {
            number = number.rotate_left(12);
            number
        });
        assert!(id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()), "{id}");
        assert_eq!(NodeId::new(id.bytes()), Some(id));
    }
}
