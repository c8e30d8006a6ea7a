//! Numbers of six bits, of which four are packed into three bytes: unpacked to a byte each, and packed again.
//!
//! ```text
//!   byte 0     byte 1     byte 2
//! ┌──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │   a digit is the number that the bit belongs to
//! └──────────┴──────────┴──────────┘
//! ```
//!
//! Each number's lowest bit comes first. The compiler makes shifts and masks of whole words of it; what moves bytes within a vector takes a
//! third of the time, but must be written for the processor that has it.

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Numbers that vectors take at a time.
const BLOCK: usize = 64;
/// Bytes of a block that is packed.
const PACKED: usize = packed_bytes(BLOCK);

/// Bytes that so many numbers are packed into, if they are a multiple of four.
#[must_use]
pub const fn packed_bytes(numbers: usize) -> usize {
    numbers / 4 * 3
}

/// A way to raise blocks to those that are packed, and one to pack blocks.
type Raise = fn(&mut [[u8; BLOCK]], &[[u8; PACKED]]);
type Pack = fn(&[[u8; BLOCK]], &mut [[u8; PACKED]]);

/// True if vectors are used where the processor has them.
static USES_VECTORS: AtomicBool = AtomicBool::new(true);

/// Has vectors be used, or not: what is read and written is the same.
pub fn use_vectors(uses: bool) {
    USES_VECTORS.store(uses, Ordering::Relaxed);
}

/// The ways of the processor's vectors, if it has them and they are to be used.
fn ways_of_vectors() -> Option<(Raise, Pack)> {
    #[cfg(target_arch = "x86_64")]
    if USES_VECTORS.load(Ordering::Relaxed) {
        return avx512::ways().or_else(avx2::ways);
    }
    None
}

fn ways() -> (Raise, Pack) {
    ways_of_vectors().unwrap_or((raise_blocks, pack_blocks))
}

/// Raises numbers, a byte each, to those that are packed, as far as both go.
pub fn raise(numbers: &mut [u8], packed: &[u8]) {
    let blocks = (numbers.len() / BLOCK).min(packed.len() / PACKED);
    let (whole, rest) = numbers.split_at_mut(blocks * BLOCK);
    let (whole_packed, rest_packed) = packed.split_at(blocks * PACKED);
    ways().0(whole.as_chunks_mut().0, whole_packed.as_chunks().0);
    raise_each(rest, rest_packed);
}

/// Packs numbers that are 63 at most, as far as there is room.
pub fn pack(numbers: &[u8], packed: &mut [u8]) {
    let blocks = (numbers.len() / BLOCK).min(packed.len() / PACKED);
    let (whole, rest) = numbers.split_at(blocks * BLOCK);
    let (whole_packed, rest_packed) = packed.split_at_mut(blocks * PACKED);
    ways().1(whole.as_chunks().0, whole_packed.as_chunks_mut().0);
    pack_each(rest, rest_packed);
}

/// What every processor can do.
fn raise_blocks(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
    raise_each(blocks.as_flattened_mut(), packed.as_flattened());
}

fn pack_blocks(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
    pack_each(blocks.as_flattened(), packed.as_flattened_mut());
}

/// Both loops are long and plain, so that the compiler makes vectors of them: it leaves alone what goes through short arrays.
#[inline]
fn raise_each(numbers: &mut [u8], packed: &[u8]) {
    const PART: usize = 16 * BLOCK;
    for (numbers, packed) in numbers.chunks_mut(PART).zip(packed.chunks(packed_bytes(PART))) {
        let mut others = [0; PART];
        let (quads, _) = others.as_chunks_mut::<4>();
        let (threes, _) = packed.as_chunks::<3>();
        for (quad, &[a, b, c]) in quads.iter_mut().zip(threes) {
            let bits = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
            let spread = bits & 0x3f | (bits & 0xfc0) << 2 | (bits & 0x3_f000) << 4 | (bits & 0xfc_0000) << 6;
            *quad = spread.to_le_bytes();
        }
        for (number, other) in numbers.iter_mut().zip(&others) {
            *number = (*number).max(*other);
        }
    }
}

#[inline]
fn pack_each(numbers: &[u8], packed: &mut [u8]) {
    let (quads, _) = numbers.as_chunks::<4>();
    let (threes, _) = packed.as_chunks_mut::<3>();
    for (three, quad) in threes.iter_mut().zip(quads) {
        let spread = u32::from_le_bytes(*quad);
        let bits = spread & 0x3f | spread >> 2 & 0xfc0 | spread >> 4 & 0x3_f000 | spread >> 6 & 0xfc_0000;
        let [a, b, c, _] = bits.to_le_bytes();
        *three = [a, b, c];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const NUMBER_MAX: u8 = 63;

    /// All ways that the processor has.
    fn all_ways() -> Vec<(Raise, Pack)> {
        let mut all: Vec<(Raise, Pack)> = vec![(raise_blocks, pack_blocks)];
        #[cfg(target_arch = "x86_64")]
        all.extend([avx2::ways(), avx512::ways()].into_iter().flatten());
        all
    }

    /// Numbers packed one bit after another.
    fn packed_by_bits(numbers: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; packed_bytes(numbers.len())];
        for (index, number) in numbers.iter().enumerate() {
            for bit in (0..6).filter(|bit| number >> bit & 1 == 1) {
                let at = index * 6 + bit;
                packed[at / 8] |= 1 << (at % 8);
            }
        }
        packed
    }

    fn check(before: &[u8], numbers: &[u8]) {
        let packed = packed_by_bits(numbers);
        let raised: Vec<u8> = before.iter().zip(numbers).map(|(before, number)| *before.max(number)).collect();
        for (way, (raise, pack)) in all_ways().into_iter().enumerate() {
            let (mut is, mut again) = (before.to_vec(), vec![0xa5; packed.len()]);
            raise(is.as_chunks_mut().0, packed.as_chunks().0);
            assert_eq!(is, raised, "raised by way {way}");
            pack(numbers.as_chunks().0, again.as_chunks_mut().0);
            assert_eq!(again, packed, "packed by way {way}");
        }
        let (mut is, mut again) = (before.to_vec(), vec![0xa5; packed.len()]);
        raise(&mut is, &packed);
        pack(numbers, &mut again);
        assert_eq!((is, again), (raised, packed));
    }

    #[test]
    fn every_way_gives_the_same_of_random_numbers() {
        let random = &mut Random::new(1);
        for _ in 0..if cfg!(miri) { 2 } else { 1000 } {
            // Any byte may stand where numbers are raised.
            let before: Vec<u8> = (0..4 * BLOCK).map(|_| random.next() as u8).collect();
            let below: Vec<u8> = before.iter().map(|byte| byte & NUMBER_MAX).collect();
            let numbers: Vec<u8> = (0..4 * BLOCK).map(|_| random.next() as u8 & NUMBER_MAX).collect();
            check(&before, &numbers);
            check(&below, &numbers);
        }
    }

    #[test]
    fn every_way_gives_the_same_of_extreme_numbers() {
        for fill in [0, 1, 31, 32, NUMBER_MAX] {
            check(&[0; BLOCK], &[fill; BLOCK]);
            check(&[fill; BLOCK], &[0; BLOCK]);
            check(&[fill; BLOCK], &[NUMBER_MAX; BLOCK]);
            check(&[u8::MAX; BLOCK], &[fill; BLOCK]);
        }
        // Each number alone, so that none is taken for another.
        for at in (0..BLOCK).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for number in if cfg!(miri) { [1, NUMBER_MAX].to_vec() } else { (1..=NUMBER_MAX).collect() } {
                let mut numbers = [0; BLOCK];
                numbers[at] = number;
                check(&[0; BLOCK], &numbers);
                let others = numbers.map(|own| NUMBER_MAX - own);
                check(&[0; BLOCK], &others);
            }
        }
    }

    #[test]
    fn vectors_are_used_unless_they_are_turned_off() {
        use_vectors(false);
        let without = ways_of_vectors();
        use_vectors(true);
        assert!(without.is_none());
        #[cfg(target_arch = "x86_64")]
        assert_eq!(ways_of_vectors().is_some(), avx2::ways().is_some() || avx512::ways().is_some());
    }

    #[test]
    fn what_is_no_whole_block_is_raised_and_packed_as_far_as_it_goes() {
        let random = &mut Random::new(2);
        for len in (0..=3 * BLOCK).step_by(if cfg!(miri) { 60 } else { 4 }) {
            let numbers: Vec<u8> = (0..len).map(|_| random.next() as u8 & NUMBER_MAX).collect();
            let packed = packed_by_bits(&numbers);
            for more in [0, 4, BLOCK, BLOCK + 4] {
                let mut raised = vec![0; len + more];
                raise(&mut raised, &packed);
                assert_eq!((&raised[..len], &raised[len..]), (&numbers[..], &vec![0; more][..]));
                let mut again = vec![0xa5; packed.len() + more];
                pack(&numbers, &mut again);
                assert_eq!((&again[..packed.len()], &again[packed.len()..]), (&packed[..], &vec![0xa5; more][..]));
                let mut short = vec![0; len.saturating_sub(more)];
                raise(&mut short, &packed);
                assert_eq!(short, numbers[..short.len()]);
            }
        }
    }
}
