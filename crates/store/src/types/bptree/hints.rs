//! Hints: sixteen bits beside each handle that say where among equal scores to look first.
//!
//! Entries of equal score are ordered by bytes that lie elsewhere, and every look at them is likely a cache miss. So
//! the handles of a node carry sixteen bits of those bytes in their own words: those that follow the bits which all
//! members of the node have in common (`skip`). They lie where the handles lie, and leave two or three members of a
//! node to look at.
//!
//! **Hints can only cost time, never order.** Whatever they say, a place is only taken where comparisons of the bytes
//! themselves, or the end of the equal scores, confirm it on both sides. So hints may be wrong at any time, as when a
//! member with another beginning is sought or was just added, and needn't be corrected at once. If a node's hints are
//! found to be out of order, or to say little, it is given new ones, if enough of its scores are equal.

use std::cmp::Ordering;

use super::Tie;

/// Of how many handles the bytes are asked for at a time, when they decide. Measured with 400,000 members that
/// share a hundred scores: finding a rank takes half as long as with halving.
const TIES_AT_ONCE: usize = 8;

/// Up to so many entries of equal score are compared without a look at their hints: they are all asked for at once
/// anyway. Measured with ten members a score, up to eight makes no difference.
pub(super) const UNHINTED_MAX: usize = 3;

/// How many bytes that a node's members have in common are looked at when its hints are made: what that can cost for
/// each of its up to 63 members, however long they are. Members with more in common are compared as if there were no
/// hints.
const SKIP_BYTES_MAX: usize = 256;
/// As many bits.
pub(super) const SKIP_MAX: u32 = SKIP_BYTES_MAX as u32 * u8::BITS;

/// What is sought among entries of equal score: where they end that have lower bytes than these.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether an entry of the same bytes counts as lower.
    pub(super) past_equal: bool,
}

impl Sought<'_> {
    /// Whether an entry of these bytes and an equal score lies before what is sought.
    #[inline]
    pub(super) fn is_past(&self, bytes: &[u8]) -> bool {
        match bytes.cmp(self.bytes) {
            Ordering::Equal => self.past_equal,
            order => order.is_lt(),
        }
    }
}

/// The hint of these bytes: sixteen bits behind the first `skip`, as if zeros followed. Of members that have the
/// skipped bits in common, a lower one never has a higher hint.
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

/// How many bits all these handles' bytes have in common at their beginning.
pub(super) fn bits_in_common<T: Tie>(ties: &[T]) -> u32 {
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

/// How many of the handles, which are ascending by their bytes, have lower bytes than what is sought. The hints are
/// those behind the first `skip` bits.
#[inline]
pub(super) fn hinted_ties_before<T: Tie>(ties: &[T], skip: u32, sought: Sought<'_>) -> usize {
    if ties.len() <= UNHINTED_MAX {
        return ties_before(ties, sought);
    }
    let sought_hint = u64::from(hint_of(sought.bytes, skip));
    // Counted instead of searched: the lines of a cold node are then loaded side by side.
    let (below, up_to) = ties.iter().fold((0, 0), |(below, up_to), tie| {
        let hint = u64::from(tie.hint());
        (below + one_if_less(hint, sought_hint), up_to + one_if_less(hint, sought_hint + 1))
    });
    let (below, up_to) = (below as usize, up_to as usize);
    // With one more on either side, which confirm that the place lies between.
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

/// 1 if `a` is less than `b`, both far below 2^63; else 0. A difference instead of a comparison, which x86-64 at its
/// lowest level can't do to several numbers of 64 bits at once: half the instructions.
#[inline]
fn one_if_less(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b) >> 63
}

/// As [`hinted_ties_before`], by comparisons alone.
///
/// Every look at bytes is likely a cache miss. So this doesn't halve the range step by step: it asks for the ends of
/// eight parts side by side, and goes on in one of them. Two turns do for a node, in the time of two misses.
pub(super) fn ties_before<T: Tie>(ties: &[T], sought: Sought<'_>) -> usize {
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
