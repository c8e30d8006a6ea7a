//! Checksums by carry-less multiplication, in place of the division by the polynomial (Barrett reduction).
//!
//! `unsafe` because the program is built for the baseline of its architecture. The invariant: **only functions with the target feature use
//! [`Products`], and [`with_slot`] calls them after it has detected the feature.**

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cmpeq_epi8, _mm_cvtsi64_si128, _mm_extract_epi16, _mm_movemask_epi8,
    _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128,
};

use super::{POLYNOMIAL, Sum, with_slot_by};

/// The quotient of x^80 by the polynomial, without its highest term x^64.
const QUOTIENT: u64 = quotient();

const fn quotient() -> u64 {
    let (mut quotient, mut rest, mut bit) = (0, POLYNOMIAL, 0);
    while bit < 64 {
        let carries = rest & 0x8000 != 0;
        quotient = quotient << 1 | carries as u64;
        rest = if carries { rest << 1 ^ POLYNOMIAL } else { rest << 1 };
        bit += 1;
    }
    quotient
}

/// See [`super::with_slot`]. None if the processor has no carry-less multiplication.
#[inline]
pub(super) fn with_slot(hash: u64, key: &[u8]) -> Option<u64> {
    if is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the target feature.
        return Some(unsafe { with_slot_of_products(hash, key) });
    }
    None
}

#[target_feature(enable = "pclmulqdq")]
fn with_slot_of_products(hash: u64, key: &[u8]) -> u64 {
    with_slot_by::<Products>(hash, key)
}

/// Only functions with the target feature use this type.
struct Products {
    sum: u16,
    /// All bits of a byte are set if there was a `{` at its place.
    braces: __m128i,
}

impl Sum for Products {
    #[inline(always)]
    fn new() -> Products {
        // SAFETY: SSE2 is part of x86-64.
        Products { sum: 0, braces: unsafe { _mm_setzero_si128() } }
    }

    #[inline(always)]
    fn add(&mut self, word: u64) {
        // SAFETY: SSE2 is part of x86-64, and the callers have the target feature.
        unsafe {
            let braces = _mm_cmpeq_epi8(_mm_cvtsi64_si128(word.cast_signed()), _mm_set1_epi8(b'{'.cast_signed()));
            self.braces = _mm_or_si128(self.braces, braces);
            self.sum = sum_of(word ^ u64::from(self.sum) << 48);
        }
    }

    #[inline(always)]
    fn finish(self) -> (u16, bool) {
        // SAFETY: SSE2 is part of x86-64.
        (self.sum, unsafe { _mm_movemask_epi8(self.braces) } != 0)
    }
}

/// The word, times x^16, is a multiple of the polynomial plus the checksum. The multiplication finds the factor, of which the checksum
/// needs the lowest 16 bits.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn sum_of(word: u64) -> u16 {
    let word_vector = _mm_cvtsi64_si128(word.cast_signed());
    let product = _mm_clmulepi64_si128(word_vector, _mm_cvtsi64_si128(QUOTIENT.cast_signed()), 0);
    let factor = word as u16 ^ _mm_extract_epi16(product, 4) as u16;
    const { assert!(POLYNOMIAL == 1 << 12 | 1 << 5 | 1) };
    factor ^ factor << 5 ^ factor << 12
}

#[cfg(test)]
mod tests {
    use super::super::{Tables, checksum};
    use super::*;

    #[target_feature(enable = "pclmulqdq")]
    fn sums(bytes: &[u8]) -> (u16, bool) {
        checksum::<Products>(bytes)
    }

    #[test]
    fn products_agree_with_tables() {
        if !is_x86_feature_detected!("pclmulqdq") {
            return;
        }
        let mut word: u64 = 1;
        for round in 0..10_000_u32 {
            // Each single bit, then arbitrary words.
            word = if round < 64 { 1 << round } else { word.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1) };
            let bytes = word.to_be_bytes();
            // SAFETY: the processor has the target feature.
            assert_eq!(unsafe { sums(&bytes) }, checksum::<Tables>(&bytes), "{word:x}");
        }
        // A `{` is the 124th byte.
        let bytes: Vec<u8> = (0..255).collect();
        for length in 0..=bytes.len() {
            // SAFETY: as above.
            assert_eq!(unsafe { sums(&bytes[..length]) }, checksum::<Tables>(&bytes[..length]), "{length}");
        }
    }
}
