//! Shortening bytes for CRC-64, the checksum of snapshots and payloads, by carry-less multiplication.
//!
//! A checksum is the remainder of a division by a polynomial. The remainder stays unchanged if a block at the front is multiplied by
//! the remainder of its distance to a later block, and added to that block ("folding": Gopal and others, "Fast CRC Computation for Generic
//! Polynomials Using PCLMULQDQ Instruction", Intel 2009). In the end, sixteen bytes are left.
//!
//! `unsafe` because the program is built for the baseline of its architecture. The invariant: **[`fold`] calls functions with the target
//! feature after it has detected that feature.**

/// Bytes that are left of a front part.
pub const FOLDED_BYTES: usize = 16;

/// Returns sixteen bytes with the same checksum as the first part of `bytes`, and the rest of `bytes`. The checksum has the polynomial of
/// CRC-64/REDIS, and begins with `sum` for `bytes`, with 0 for the sixteen bytes. Returns None if `bytes` are few, or if the processor has no
/// carry-less multiplication.
#[inline]
#[must_use]
pub fn fold(sum: u64, bytes: &[u8]) -> Option<([u8; FOLDED_BYTES], &[u8])> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the target feature.
        return unsafe { carry_less::fold(sum, bytes) };
    }
    let _ = (sum, bytes);
    None
}

#[cfg(target_arch = "x86_64")]
mod carry_less {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64,
        _mm_xor_si128,
    };

    use super::FOLDED_BYTES;

    /// The polynomial without its highest term. The highest bit is the coefficient of x^63.
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9;
    /// Blocks that are folded independently of each other, because the processor multiplies several at once.
    const LANES: usize = 4;
    /// Fewer bytes are faster with tables.
    const BYTES_MIN: usize = 2 * LANES * FOLDED_BYTES;

    /// Factors by which the halves of a block are moved over the next bytes. The bits of bytes are in ascending order, the coefficients in
    /// descending order, so a product is one bit too low; the exponent makes up for it.
    struct Distance {
        /// For the first eight bytes, which are eight bytes farther away.
        first: u64,
        second: u64,
    }

    impl Distance {
        const fn of(bytes: u32) -> Distance {
            Distance { first: power(8 * bytes + 63).reverse_bits(), second: power(8 * bytes - 1).reverse_bits() }
        }
    }

    const TO_NEXT: Distance = Distance::of(FOLDED_BYTES as u32);
    const OVER_LANES: Distance = Distance::of((LANES * FOLDED_BYTES) as u32);

    /// The remainder of a power of x.
    const fn power(exponent: u32) -> u64 {
        let (mut rest, mut done) = (1_u64, 0);
        while done < exponent {
            let carries = rest >> 63 != 0;
            rest = if carries { rest << 1 ^ POLYNOMIAL } else { rest << 1 };
            done += 1;
        }
        rest
    }

    /// See [`super::fold`].
    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn fold(sum: u64, bytes: &[u8]) -> Option<([u8; FOLDED_BYTES], &[u8])> {
        if bytes.len() < BYTES_MIN {
            return None;
        }
        let (blocks, rest) = bytes.as_chunks();
        let (groups, last_blocks) = blocks.as_chunks();
        let (first, groups) = groups.split_first()?;
        let mut lanes = loaded_all(first);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi64_si128(sum.cast_signed()));
        let over_lanes = vector(&OVER_LANES);
        for group in groups {
            let blocks = loaded_all(group);
            for lane in 0..LANES {
                lanes[lane] = _mm_xor_si128(moved(lanes[lane], over_lanes), blocks[lane]);
            }
        }
        let to_next = vector(&TO_NEXT);
        let [mut folded, following @ ..] = lanes;
        for block in following {
            folded = _mm_xor_si128(moved(folded, to_next), block);
        }
        for block in last_blocks {
            folded = _mm_xor_si128(moved(folded, to_next), loaded(block));
        }
        Some((stored(folded), rest))
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn moved(block: __m128i, by: __m128i) -> __m128i {
        _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11))
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn vector(distance: &Distance) -> __m128i {
        _mm_set_epi64x(distance.second.cast_signed(), distance.first.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn loaded_all(group: &[[u8; FOLDED_BYTES]; LANES]) -> [__m128i; LANES] {
        let [a, b, c, d] = group;
        [loaded(a), loaded(b), loaded(c), loaded(d)]
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn loaded(block: &[u8; FOLDED_BYTES]) -> __m128i {
        let word = u128::from_le_bytes(*block);
        _mm_set_epi64x((word >> 64) as i64, word as i64)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn stored(block: __m128i) -> [u8; FOLDED_BYTES] {
        let [first, second] = [block, _mm_unpackhi_epi64(block, block)].map(|half| _mm_cvtsi128_si64(half) as u64);
        (u128::from(second) << 64 | u128::from(first)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum, bit by bit, with bits in ascending order.
    fn divided(sum: u64, bytes: &[u8]) -> u64 {
        const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
        let step = |sum: u64, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ POLYNOMIAL };
        bytes.iter().fold(sum, |sum, &byte| (0..8).fold(sum ^ u64::from(byte), step))
    }

    #[test]
    fn the_test_divides_as_redis_does() {
        assert_eq!(divided(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn folded_bytes_have_the_checksum_of_all() {
        let mut word: u64 = 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
            (word >> 56) as u8
        })
        .take(400)
        .collect();
        for len in 0..=bytes.len() {
            let part = &bytes[..len];
            if let Some((folded, rest)) = fold(word, part) {
                assert_eq!(divided(divided(0, &folded), rest), divided(word, part), "{len}");
                assert!(rest.len() < FOLDED_BYTES && part.ends_with(rest));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn enough_bytes_are_folded() {
        assert!(fold(0, &[1; 100]).is_none());
        assert_eq!(fold(0, &[1; 1000]).is_some(), is_x86_feature_detected!("pclmulqdq"));
    }
}
