//! Population count with the widest vectors of the processor.
//!
//! The program is built for the baseline of its architecture, which has vectors of two words and no instruction to
//! count their bits. The processor's further features are detected when many bytes are to be counted.

pub(crate) mod blocks;

/// Minimum number of bytes for which feature detection and wide vectors pay off.
#[cfg(target_arch = "x86_64")]
const WIDE_BYTES_MIN: usize = 256;

/// Returns the number of set bits.
#[must_use]
pub fn count_ones(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= WIDE_BYTES_MIN {
        if has_eights() {
            // SAFETY: the processor has the target features.
            return unsafe { in_eights(bytes) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            // SAFETY: likewise.
            return unsafe { in_fours(bytes) };
        }
    }
    count::<2>(bytes)
}

/// Returns true if the processor has the target features of [`in_eights`].
#[cfg(target_arch = "x86_64")]
fn has_eights() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

/// Counts with vectors of eight words and the instruction that counts the bits of each word. Uses intrinsics, because
/// compilers split vectors of this size.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
fn in_eights(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_popcnt_epi64,
        _mm512_reduce_add_epi64, _mm512_setzero_si512,
    };
    /// Number of independent sums: an addition takes a cycle, in which two vectors are loaded.
    const AT_ONCE: usize = 4;
    /// Bytes of a vector.
    const WIDTH: usize = 64;
    #[target_feature(enable = "avx512f,avx512vpopcntdq")]
    fn of_whole(vector: &[u8; WIDTH]) -> __m512i {
        // SAFETY: reads 64 bytes, at any address.
        _mm512_popcnt_epi64(unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) })
    }
    /// Counts the bits of fewer bytes than a vector has.
    #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
    fn of_part(part: &[u8]) -> __m512i {
        let mask = !(u64::MAX << part.len());
        // SAFETY: reads exactly the bytes of `part`: fewer than 64, because otherwise the shift would have overflowed.
        _mm512_popcnt_epi64(unsafe { _mm512_maskz_loadu_epi8(mask, part.as_ptr().cast()) })
    }
    // Alignment pays: a vector that spans two cache lines takes a tenth more time.
    let (head, bytes) = bytes.split_at(bytes.as_ptr().align_offset(WIDTH).min(bytes.len()).min(WIDTH - 1));
    let (blocks, rest) = bytes.as_chunks::<{ AT_ONCE * WIDTH }>();
    let (vectors, tail) = rest.as_chunks::<WIDTH>();
    let mut sums = [_mm512_setzero_si512(); AT_ONCE];
    for block in blocks {
        let (vectors, _) = block.as_chunks::<WIDTH>();
        for (sum, vector) in sums.iter_mut().zip(vectors) {
            *sum = _mm512_add_epi64(*sum, of_whole(vector));
        }
    }
    for count in vectors.iter().map(|vector| of_whole(vector)).chain([of_part(head), of_part(tail)]) {
        sums[0] = _mm512_add_epi64(sums[0], count);
    }
    let counted: i64 = sums.iter().map(|sum| _mm512_reduce_add_epi64(*sum)).sum();
    counted.cast_unsigned()
}

/// Counts with vectors of four words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn in_fours(bytes: &[u8]) -> u64 {
    count::<4>(bytes)
}

/// Groups of words that are added before their bits are counted.
const GROUPS: usize = 16;

/// The words of a vector register. Operations on each word become vector instructions.
type Lanes<const N: usize> = [u64; N];

#[inline(always)]
fn each<const N: usize>(a: Lanes<N>, b: Lanes<N>, with: impl Fn(u64, u64) -> u64) -> Lanes<N> {
    let mut lanes = a;
    // Not `array::map` or similar functions, which are not inlined in every build.
    for (lane, b) in lanes.iter_mut().zip(b) {
        *lane = with(*lane, b);
    }
    lanes
}

/// Adds three bits at each position. Returns the high and the low bits of the sums.
#[inline(always)]
fn add<const N: usize>(a: Lanes<N>, b: Lanes<N>, c: Lanes<N>) -> (Lanes<N>, Lanes<N>) {
    let half = each(a, b, |a, b| a ^ b);
    let both = each(a, b, |a, b| a & b);
    let carried = each(half, c, |half, c| half & c);
    (each(both, carried, |both, carried| both | carried), each(half, c, |half, c| half ^ c))
}

#[inline(always)]
fn ones<const N: usize>(lanes: Lanes<N>) -> u64 {
    lanes.iter().map(|lane| u64::from(lane.count_ones())).sum()
}

/// Counts the set bits with vectors of `N` words.
///
/// Uses the method of Harley and Seal: a carry-save adder adds sixteen groups of words, each bit position separately.
/// Only the carries of weight 16 then need a population count. If vectors have no instruction for it, this takes fewer
/// instructions per word than counting each word's bits.
#[inline(always)]
fn count<const N: usize>(bytes: &[u8]) -> u64 {
    let mut counter = Counter::<N>::default();
    let mut blocks = bytes.chunks_exact(GROUPS * N * size_of::<u64>());
    for block in &mut blocks {
        counter.add_block(block);
    }
    let (words, tail) = blocks.remainder().as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let tail: u32 = tail.iter().map(|byte| byte.count_ones()).sum();
    counter.total() + words + u64::from(tail)
}

/// The sum of the blocks: the bits of weight below sixteen at each position, and the number of carries of weight 16.
struct Counter<const N: usize> {
    ones: Lanes<N>,
    twos: Lanes<N>,
    fours: Lanes<N>,
    eights: Lanes<N>,
    sixteens: u64,
}

impl<const N: usize> Default for Counter<N> {
    #[inline(always)]
    fn default() -> Counter<N> {
        Counter { ones: [0; N], twos: [0; N], fours: [0; N], eights: [0; N], sixteens: 0 }
    }
}

impl<const N: usize> Counter<N> {
    #[inline(always)]
    fn add_block(&mut self, block: &[u8]) {
        let (words, _) = block.as_chunks::<8>();
        let load = |group: usize| -> Lanes<N> {
            let mut lanes = [0; N];
            for (lane, word) in lanes.iter_mut().zip(&words[group * N..][..N]) {
                *lane = u64::from_le_bytes(*word);
            }
            lanes
        };
        let mut eights = [[0; N]; 2];
        for (half, eight) in eights.iter_mut().enumerate() {
            let mut fours = [[0; N]; 2];
            for (quarter, four) in fours.iter_mut().enumerate() {
                let mut twos = [[0; N]; 2];
                for (eighth, two) in twos.iter_mut().enumerate() {
                    let at = half * 8 + quarter * 4 + eighth * 2;
                    (*two, self.ones) = add(self.ones, load(at), load(at + 1));
                }
                (*four, self.twos) = add(self.twos, twos[0], twos[1]);
            }
            (*eight, self.fours) = add(self.fours, fours[0], fours[1]);
        }
        let (sixteens, eights) = add(self.eights, eights[0], eights[1]);
        self.eights = eights;
        self.sixteens += ones(sixteens);
    }

    fn total(&self) -> u64 {
        16 * self.sixteens + 8 * ones(self.eights) + 4 * ones(self.fours) + 2 * ones(self.twos) + ones(self.ones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn all_implementations_count_the_same() {
        let random = &mut Random::new(1);
        let lengths = if cfg!(miri) { vec![0, 7, 255, 256, 300] } else { (0..1100).chain([100_000]).collect() };
        for len in lengths {
            let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let expected: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            let ways = [count::<2>(&bytes), count::<4>(&bytes), count::<8>(&bytes), count_ones(&bytes)];
            assert_eq!(ways, [expected; 4], "{len}");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
                // SAFETY: the processor has the target features.
                assert_eq!(unsafe { in_fours(&bytes) }, expected, "{len}");
            }
            #[cfg(target_arch = "x86_64")]
            if has_eights() {
                // SAFETY: likewise.
                assert_eq!(unsafe { in_eights(&bytes) }, expected, "{len}");
            }
        }
        assert_eq!(count_ones(&[0xff; 4096]), 8 * 4096);
    }
}
