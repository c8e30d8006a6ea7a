//! Six-bit numbers, four in three bytes. This module unpacks them to a byte each, and packs them again.
//!
//! ```text
//!   byte 0     byte 1     byte 2
//! ┌──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │   a digit is the number that the bit belongs to
//! └──────────┴──────────┴──────────┘
//! ```
//!
//! Each number's lowest bit comes first. For the portable code the compiler generates shifts and masks of whole words.
//! Instructions that move bytes within a vector take a third of the time, but need code for each instruction set.

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Numbers per vector operation.
const BLOCK: usize = 64;
/// Bytes of a packed block.
const PACKED: usize = packed_bytes(BLOCK);

/// Number of bytes that `numbers` numbers are packed into, if `numbers` is a multiple of four.
#[must_use]
pub const fn packed_bytes(numbers: usize) -> usize {
    numbers / 4 * 3
}

/// A function that raises the numbers of blocks to packed ones, and one that packs blocks.
type Raise = fn(&mut [[u8; BLOCK]], &[[u8; PACKED]]);
type Pack = fn(&[[u8; BLOCK]], &mut [[u8; PACKED]]);

/// True if vector instructions are used on processors that have them.
static USES_VECTORS: AtomicBool = AtomicBool::new(true);

/// Enables or disables vector instructions. The data are the same either way.
pub fn use_vectors(uses: bool) {
    USES_VECTORS.store(uses, Ordering::Relaxed);
}

/// Returns the vector implementation, if the processor has one and it is enabled.
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

/// Raises each number, one byte each, to the packed number in the same position if that is greater. Stops at the end of
/// the shorter slice.
pub fn raise(numbers: &mut [u8], packed: &[u8]) {
    let blocks = (numbers.len() / BLOCK).min(packed.len() / PACKED);
    let (whole, rest) = numbers.split_at_mut(blocks * BLOCK);
    let (whole_packed, rest_packed) = packed.split_at(blocks * PACKED);
    ways().0(whole.as_chunks_mut().0, whole_packed.as_chunks().0);
    raise_each(rest, rest_packed);
}

/// Packs numbers, each at most 63, until one of the slices ends.
pub fn pack(numbers: &[u8], packed: &mut [u8]) {
    let blocks = (numbers.len() / BLOCK).min(packed.len() / PACKED);
    let (whole, rest) = numbers.split_at(blocks * BLOCK);
    let (whole_packed, rest_packed) = packed.split_at_mut(blocks * PACKED);
    ways().1(whole.as_chunks().0, whole_packed.as_chunks_mut().0);
    pack_each(rest, rest_packed);
}

/// Portable implementation.
fn raise_blocks(blocks: &mut [[u8; BLOCK]], packed: &[[u8; PACKED]]) {
    raise_each(blocks.as_flattened_mut(), packed.as_flattened());
}

fn pack_blocks(blocks: &[[u8; BLOCK]], packed: &mut [[u8; PACKED]]) {
    pack_each(blocks.as_flattened(), packed.as_flattened_mut());
}

/// Both loops are long and plain, so that the compiler vectorises them. It does not vectorise code that works on short
/// arrays.
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

    /// Returns all implementations that the processor supports.
    fn all_ways() -> Vec<(Raise, Pack)> {
        let mut all: Vec<(Raise, Pack)> = vec![(raise_blocks, pack_blocks)];
        #[cfg(target_arch = "x86_64")]
        all.extend([avx2::ways(), avx512::ways()].into_iter().flatten());
        all
    }

    /// Packs numbers bit by bit.
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
    fn all_implementations_agree_on_random_numbers() {
        let random = &mut Random::new(1);
        for _ in 0..if cfg!(miri) { 2 } else { 1000 } {
            // Any byte is allowed in the numbers that are raised.
            let before: Vec<u8> = (0..4 * BLOCK).map(|_| random.next() as u8).collect();
            let below: Vec<u8> = before.iter().map(|byte| byte & NUMBER_MAX).collect();
            let numbers: Vec<u8> = (0..4 * BLOCK).map(|_| random.next() as u8 & NUMBER_MAX).collect();
            check(&before, &numbers);
            check(&below, &numbers);
        }
    }

    #[test]
    fn all_implementations_agree_on_extreme_numbers() {
        for fill in [0, 1, 31, 32, NUMBER_MAX] {
            check(&[0; BLOCK], &[fill; BLOCK]);
            check(&[fill; BLOCK], &[0; BLOCK]);
            check(&[fill; BLOCK], &[NUMBER_MAX; BLOCK]);
            check(&[u8::MAX; BLOCK], &[fill; BLOCK]);
        }
        // Set one number at a time, to find swapped positions.
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
    fn partial_blocks_are_raised_and_packed_to_their_end() {
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
