//! Implementation with AVX2's vectors of 32 bytes.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_storel_epi64, _mm_storeu_si128, _mm256_and_si256, _mm256_blend_epi16,
    _mm256_blendv_epi8, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_max_epu8, _mm256_permutevar8x32_epi32, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_setr_epi8, _mm256_setr_epi32, _mm256_setr_m128i, _mm256_shuffle_epi8, _mm256_slli_epi16,
    _mm256_srli_epi16, _mm256_storeu_si256,
};

use super::{BLOCK, PACKED, Pack, Raise, packed_bytes};

/// Numbers of a vector.
const LANES: usize = 32;
/// Bytes of the packed numbers of a vector.
const LANES_PACKED: usize = packed_bytes(LANES);
/// Bytes of half a vector. Shuffles move no byte from one half to the other.
const HALF: usize = 16;

/// Returns this implementation, if the processor supports it.
pub(super) fn ways() -> Option<(Raise, Pack)> {
    fn checked_raise(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
        // SAFETY: `ways` returns this function only if the processor has AVX2.
        unsafe { raise(blocks, packed) }
    }
    fn checked_pack(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
        // SAFETY: likewise.
        unsafe { pack(blocks, packed) }
    }
    is_x86_feature_detected!("avx2").then_some((checked_raise, checked_pack))
}

#[target_feature(enable = "avx2")]
fn raise(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
    let (vectors, _) = blocks.as_flattened_mut().as_chunks_mut();
    let (packed, _) = packed.as_flattened().as_chunks();
    for (numbers, packed) in vectors.iter_mut().zip(packed) {
        let raised = _mm256_max_epu8(load(numbers), unpack(halves(packed)));
        store(numbers, raised);
    }
}

#[target_feature(enable = "avx2")]
fn pack(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
    let (vectors, _) = blocks.as_flattened().as_chunks();
    let (packed, _) = packed.as_flattened_mut().as_chunks_mut();
    for (packed, numbers) in packed.iter_mut().zip(vectors) {
        store_packed(packed, pack_vector(load(numbers)));
    }
}

/// Unpacks 32 numbers: sixteen from the first twelve bytes of the lower half, and sixteen from the last twelve of the
/// upper half.
///
/// Four numbers in the bytes a, b and c are spread over the words (a, b) and (b, c). The second word is shifted, so
/// that each word has two numbers in its lowest bits.
#[target_feature(enable = "avx2")]
#[inline]
fn unpack(packed: __m256i) -> __m256i {
    #[rustfmt::skip]
    let two_words = _mm256_setr_epi8(
        0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11,
        4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15,
    );
    const SECOND_OF_TWO: i32 = 0b1010_1010;
    let words = _mm256_shuffle_epi8(packed, two_words);
    let pairs = _mm256_blend_epi16::<SECOND_OF_TWO>(words, _mm256_srli_epi16::<4>(words));
    let upper_byte = _mm256_set1_epi16(0xff00_u16.cast_signed());
    let bytes = _mm256_blendv_epi8(pairs, _mm256_slli_epi16::<2>(pairs), upper_byte);
    _mm256_and_si256(bytes, _mm256_set1_epi8(0x3f))
}

/// Packs numbers into the vector's first 24 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn pack_vector(numbers: __m256i) -> __m256i {
    const NONE: i8 = -1;
    // First form pairs, with the second number 6 bits higher, then quads, with the second pair 12 bits higher.
    let pairs = _mm256_maddubs_epi16(numbers, _mm256_set1_epi16(1 | 1 << 6 << 8));
    let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(1 | 1 << 12 << 16));
    #[rustfmt::skip]
    let three_of_four = _mm256_setr_epi8(
        0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, NONE, NONE, NONE, NONE,
        0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, NONE, NONE, NONE, NONE,
    );
    let halves = _mm256_shuffle_epi8(quads, three_of_four);
    _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7))
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; LANES]) -> __m256i {
    // SAFETY: the array has 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; LANES], vector: __m256i) {
    // SAFETY: the array has 32 bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

/// Loads the first 16 of 24 bytes, and the last 16.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(packed: &[u8; LANES_PACKED]) -> __m256i {
    let from = packed.as_ptr();
    // SAFETY: 16 bytes are readable from the first and from the ninth byte on, and the loads need no alignment.
    let (first, last) =
        unsafe { (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(LANES_PACKED - HALF).cast())) };
    _mm256_setr_m128i(first, last)
}

/// Writes the first 24 bytes of a vector.
#[target_feature(enable = "avx2")]
#[inline]
fn store_packed(packed: &mut [u8; LANES_PACKED], vector: __m256i) {
    let to = packed.as_mut_ptr();
    // SAFETY: the array has space for 16 bytes and 8 more, and the stores need no alignment.
    unsafe {
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(vector));
        _mm_storel_epi64(to.add(HALF).cast(), _mm256_extracti128_si256::<1>(vector));
    }
}
