//! Hints: sixteen bits beside each handle that give a starting point for searches among equal scores.
//!
//! Entries of equal score are ordered by bytes that are stored elsewhere, and every read of them is probably a cache
//! miss. Therefore the handles of a node carry sixteen bits of those bytes in their own words: the bits behind the
//! common prefix of all members in the node (`skip`). The hints are adjacent, like the handles, and leave two or three
//! members of a node to be read.
//!
//! **Hints can only cost time, never order.** A place is used only if it is confirmed on both sides: by comparisons of
//! the bytes themselves, or by the end of the equal scores. Therefore hints may be wrong at any time, for example if a
//! member with another prefix is sought or was just added, and need not be corrected at once. If a node's hints are out
//! of order or unselective, and enough of its scores are equal, it gets new ones.

use std::cmp::Ordering;

use super::MemberHandle;

/// Number of handles to prefetch at a time if their bytes decide. Measured with 400,000 members that share a hundred
/// scores: finding a rank takes half the time of a binary search.
const TIES_AT_ONCE: usize = 8;

/// Maximum number of entries of equal score that are compared without their hints, because all of them are prefetched
/// at once anyway. Measured with ten members per score: values up to eight make no difference.
pub(super) const UNHINTED_MAX: usize = 3;

/// Maximum length of the common prefix that is read to make a node's hints, in bytes. It limits the cost for each of
/// the node's up to 63 members of any length. Members with a longer common prefix are compared as if there were no
/// hints.
const SKIP_BYTES_MAX: usize = 256;
/// The corresponding number of bits.
pub(super) const SKIP_MAX: u32 = SKIP_BYTES_MAX as u32 * u8::BITS;

/// A target among entries of equal score: the place behind all entries with lower bytes.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) bytes: &'a [u8],
    /// True if an entry with the same bytes counts as lower.
    pub(super) past_equal: bool,
}

impl Sought<'_> {
    /// Returns true if an entry with these bytes and an equal score is before the target.
    #[inline]
    pub(super) fn is_past(&self, bytes: &[u8]) -> bool {
        match bytes.cmp(self.bytes) {
            Ordering::Equal => self.past_equal,
            order => order.is_lt(),
        }
    }
}

/// Returns the hint of these bytes: sixteen bits behind the first `skip`, padded with zeros. Among members with the
/// same skipped bits, a lower member never has a higher hint.
#[inline]
pub(super) fn hint_of(bytes: &[u8], skip: u32) -> u16 {
    let rest = bytes.get(skip as usize / 8..).unwrap_or_default();
    let word = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0; size_of::<u32>()];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    });
    (u32::from_be_bytes(word) << (skip % 8) >> 16) as u16
}

/// Returns the number of leading bits that all these handles' bytes share.
pub(super) fn bits_in_common<T: MemberHandle>(ties: &[T]) -> u32 {
    let Some((first, others)) = ties.split_first() else { return 0 };
    let first = first.bytes();
    others.iter().map(|tie| common_bits(first, tie.bytes())).min().unwrap_or(0)
}

fn common_bits(a: &[u8], b: &[u8]) -> u32 {
    let bytes_max = a.len().min(b.len()).min(SKIP_BYTES_MAX);
    match (0..bytes_max).find(|&at| a[at] != b[at]) {
        Some(at) => at as u32 * 8 + (a[at] ^ b[at]).leading_zeros(),
        None => bytes_max as u32 * 8,
    }
}

/// Counts the handles with lower bytes than the target's; `ties` is ascending by bytes. The hints are the bits behind
/// the first `skip`.
#[inline]
pub(super) fn hinted_ties_before<T: MemberHandle>(ties: &[T], skip: u32, sought: Sought<'_>) -> usize {
    if ties.len() <= UNHINTED_MAX {
        return ties_before(ties, sought);
    }
    let sought_hint = u64::from(hint_of(sought.bytes, skip));
    // Counting instead of binary search lets a cold node's cache lines load in parallel.
    let (below, up_to) = ties.iter().fold((0, 0), |(below, up_to), tie| {
        let hint = u64::from(tie.hint());
        (below + one_if_less(hint, sought_hint), up_to + one_if_less(hint, sought_hint + 1))
    });
    let (below, up_to) = (below as usize, up_to as usize);
    // One more entry on each side confirms that the place is between them.
    let (start, end) = (below.saturating_sub(1), ties.len().min(up_to + 1));
    let at = start + ties_before(&ties[start..end], sought);
    if at == start {
        return ties_before(&ties[..start], sought);
    }
    if at == end {
        return end + ties_before(&ties[end..], sought);
    }
    at
}

/// Returns 1 if `a` is less than `b`, both far below 2^63; otherwise 0. Uses a subtraction, because baseline x86-64 has
/// no vector comparison of 64-bit numbers: half the instructions.
#[inline]
fn one_if_less(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b) >> 63
}

/// Like [`hinted_ties_before`], but without hints.
///
/// Every read of bytes is probably a cache miss. Instead of a binary search, this prefetches the ends of eight parts in
/// parallel, and continues in one of them. Two rounds are enough for a node, in the time of two misses.
pub(super) fn ties_before<T: MemberHandle>(ties: &[T], sought: Sought<'_>) -> usize {
    let (mut start, mut end) = (0, ties.len());
    while start < end {
        let step = (end - start).div_ceil(TIES_AT_ONCE);
        let parts = ties[start..end].chunks(step);
        if parts.len() > 1 {
            parts.clone().filter_map(<[T]>::last).for_each(|tie| tie.prefetch());
        }
        let (mut low, mut high) = (0, parts.len());
        while low < high {
            let middle = (low + high) / 2;
            let last = end.min(start + (middle + 1) * step) - 1;
            match ties[last].bytes().cmp(sought.bytes) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return last + usize::from(sought.past_equal),
            }
        }
        if low == parts.len() {
            return end;
        }
        start += low * step;
        end = end.min(start + step) - 1;
    }
    start
}

#[cfg(all(test, not(miri)))] // There is nothing unsafe here; Miri would take minutes.
mod tests;
