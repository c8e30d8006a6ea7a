//! A hash tag for each slot.

use std::sync::OnceLock;

use cluster::{SLOTS, Slot, key_slot};

/// Length of a hash tag.
pub const TAG_BYTES: usize = 3;

const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns a word that makes a key belong to a slot: `user:{tag}:1`, for example. It is always the same.
#[must_use]
pub fn slot_tag(slot: Slot) -> [u8; TAG_BYTES] {
    static TAGS: OnceLock<Vec<[u8; TAG_BYTES]>> = OnceLock::new();
    TAGS.get_or_init(tags)[slot.index()]
}

/// Returns the first word of three letters for each slot.
fn tags() -> Vec<[u8; TAG_BYTES]> {
    let mut tags = vec![[0; TAG_BYTES]; SLOTS];
    for &first in LETTERS {
        for &second in LETTERS {
            for &third in LETTERS {
                let word = [first, second, third];
                let tag = &mut tags[key_slot(&word).index()];
                if tag[0] == 0 {
                    *tag = word;
                }
            }
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_tag() {
        for slot in Slot::all() {
            let key = [&b"key:{"[..], &slot_tag(slot), b"}:1"].concat();
            assert_eq!(key_slot(&key), slot);
        }
    }
}
