//! Implementation with AVX-512's vectors of 64 bytes. Its extension VBMI moves bytes between any two positions.

use std::arch::x86_64::{
    __m512i, __mmask64, _mm512_and_si512, _mm512_loadu_epi8, _mm512_madd_epi16, _mm512_maddubs_epi16,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_max_epu8, _mm512_multishift_epi64_epi8,
    _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_storeu_epi8,
};

use super::{BLOCK, PACKED, Pack, Raise};

/// Mask of the bytes of a vector that hold packed numbers.
const IS_PACKED: __mmask64 = (1 << PACKED) - 1;

/// Returns this implementation, if the processor supports it.
pub(super) fn ways() -> Option<(Raise, Pack)> {
    fn checked_raise(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
        // SAFETY: `ways` returns this function only if the processor has the target features.
        unsafe { raise(blocks, packed) }
    }
    fn checked_pack(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
        // SAFETY: likewise.
        unsafe { pack(blocks, packed) }
    }
    let is_here = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi");
    is_here.then_some((checked_raise, checked_pack))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn raise(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
    for (numbers, packed) in blocks.iter_mut().zip(packed) {
        let raised = _mm512_max_epu8(load(numbers), unpack(load_packed(packed)));
        store(numbers, raised);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn pack(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
    for (packed, numbers) in packed.iter_mut().zip(blocks) {
        store_packed(packed, pack_vector(load(numbers)));
    }
}

/// Unpacks the numbers in a vector's first 48 bytes: each group of eight bytes gets the six bytes with its numbers, and
/// each byte gets the bits from six times its index on.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn unpack(packed: __m512i) -> __m512i {
    const SIX_OF_EIGHT: [u8; BLOCK] = places(8, 6);
    let spread = _mm512_permutexvar_epi8(load(&SIX_OF_EIGHT), packed);
    let first_bits = _mm512_set1_epi64(i64::from_le_bytes([0, 6, 12, 18, 24, 30, 36, 42]));
    _mm512_and_si512(_mm512_multishift_epi64_epi8(first_bits, spread), _mm512_set1_epi8(0x3f))
}

/// Packs numbers into the vector's first 48 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn pack_vector(numbers: __m512i) -> __m512i {
    const THREE_OF_FOUR: [u8; BLOCK] = places(3, 4);
    // First form pairs, with the second number 6 bits higher, then quads, with the second pair 12 bits higher.
    let pairs = _mm512_maddubs_epi16(numbers, _mm512_set1_epi16(1 | 1 << 6 << 8));
    let quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(1 | 1 << 12 << 16));
    _mm512_permutexvar_epi8(load(&THREE_OF_FOUR), quads)
}

/// Returns the source position of each byte: groups of `group` bytes come from groups that are `from` bytes apart.
/// Positions beyond the vector are irrelevant.
const fn places(group: usize, from: usize) -> [u8; BLOCK] {
    let mut places = [0; BLOCK];
    let mut at = 0;
    while at < BLOCK {
        places[at] = ((at / group * from + at % group) % BLOCK) as u8;
        at += 1;
    }
    places
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(bytes: &[u8; BLOCK]) -> __m512i {
    // SAFETY: the array has 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_epi8(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(bytes: &mut [u8; BLOCK], vector: __m512i) {
    // SAFETY: the array has 64 bytes, and the store needs no alignment.
    unsafe { _mm512_storeu_epi8(bytes.as_mut_ptr().cast(), vector) }
}

/// Loads 48 bytes, followed by zeros.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_packed(packed: &[u8; PACKED]) -> __m512i {
    // SAFETY: the array has 48 bytes; the masked load reads no others and needs no alignment.
    unsafe { _mm512_maskz_loadu_epi8(IS_PACKED, packed.as_ptr().cast()) }
}

/// Writes the first 48 bytes of a vector.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store_packed(packed: &mut [u8; PACKED], vector: __m512i) {
    // SAFETY: the array has 48 bytes; the masked store writes no others and needs no alignment.
    unsafe { _mm512_mask_storeu_epi8(packed.as_mut_ptr().cast(), IS_PACKED, vector) }
}
