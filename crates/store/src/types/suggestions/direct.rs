//! Search for the best suggestions if all candidates are adjacent: in a bucket, or among the kept suggestions of a
//! fork.
//!
//! Most searches qualify: those that are exact, have a low count, and match texts in a few places that are buckets or
//! forks with an ASCII path. The results equal those of a best-first search (`best`).

use std::cmp::Ordering;

use super::best::{Best, SAME_SCORE};
use super::bucket::{Stored, TrieBucket};
use super::kept::KEPT_FOR;
use super::query::{Fuzziness, Query};
use super::tree::{Branch, Fork, TrieNode};

/// Maximum number of blocks that a search may read: several if texts begin with the same letters in different case.
const BLOCKS_MAX: usize = 4;
/// Initial capacity, enough for the candidates of most searches.
const ROOM: usize = 40;

/// A block of candidates, at the end of a path for the query.
struct CandidateBlock<'a> {
    /// The stored bytes of its texts before the records' own bytes.
    path: Vec<u8>,
    records: &'a TrieBucket,
    /// Number of the query's bytes that the records themselves must match.
    left: usize,
    /// The suggestion that ends at this fork, with the path as its text. None for a bucket.
    own: Option<Stored<'a>>,
}

/// A suggestion that may be a result.
struct Candidate<'a> {
    rank: f32,
    block: usize,
    stored: Stored<'a>,
}

/// Returns up to `count` of the best; None if a best-first search is necessary.
pub(super) fn find<'a>(root: &'a TrieNode, query: &Query, count: usize) -> Option<Best<'a>> {
    if query.fuzziness != Fuzziness::Exact || count > KEPT_FOR || !query.is_ascii() {
        return None;
    }
    let mut direct = Direct { query, blocks: Vec::with_capacity(BLOCKS_MAX), candidates: Vec::with_capacity(ROOM) };
    direct.follow(root, 0, Vec::with_capacity(query.folded.len() + 1))?;
    for block in 0..direct.blocks.len() {
        direct.gather(block)?;
    }
    Some(direct.best(root, count))
}

struct Direct<'a, 'q> {
    query: &'q Query,
    blocks: Vec<CandidateBlock<'a>>,
    candidates: Vec<Candidate<'a>>,
}

impl<'a> Direct<'a, '_> {
    /// Finds the blocks at and below a node; `path` leads to it and matches the first `read` bytes of the query.
    /// Returns None if it cannot find all of them.
    fn follow(&mut self, mut node: &'a TrieNode, mut read: usize, mut path: Vec<u8>) -> Option<()> {
        loop {
            let query = &self.query.folded;
            let fork = match node {
                TrieNode::Bucket(records) => {
                    return self.add(CandidateBlock { path, records, left: query.len() - read, own: None });
                }
                TrieNode::Fork(fork) => fork,
            };
            let compared = fork.label.len().min(query.len() - read);
            if !agree(&fork.label[..compared], &query[read..read + compared])? {
                return Some(());
            }
            read += compared;
            path.extend_from_slice(&fork.label);
            let Some(&byte) = query.get(read) else {
                let own = fork.own.records().next();
                return self.add(CandidateBlock { path, records: fork.kept.records()?, left: 0, own });
            };
            read += 1;
            let mut ways = Direct::ways(fork, byte)?.into_iter().flatten();
            let Some((byte, next)) = ways.next() else { return Some(()) };
            if let Some((byte, other)) = ways.next() {
                self.follow(other, read, [&*path, &[byte]].concat())?;
            }
            path.push(byte);
            node = next;
        }
    }

    /// Returns the branches for a letter and for its upper case. Returns None if a branch may have the same letter in
    /// other bytes.
    #[inline]
    fn ways(fork: &'a Fork, byte: u8) -> Option<[Option<(u8, &'a TrieNode)>; 2]> {
        let (mut ways, mut count) = ([None; 2], 0);
        for branch in &fork.branches {
            if branch.byte.to_ascii_lowercase() == byte {
                ways[count] = Some((branch.byte, &branch.node));
                count += 1;
            } else if !branch.byte.is_ascii() && may_lead_to(branch, byte) {
                return None;
            }
        }
        Some(ways)
    }

    fn add(&mut self, block: CandidateBlock<'a>) -> Option<()> {
        self.blocks.push(block);
        (self.blocks.len() <= BLOCKS_MAX).then_some(())
    }

    /// Adds the matching suggestions of a block as candidates. Returns None if one of them needs a comparison letter by
    /// letter.
    fn gather(&mut self, at: usize) -> Option<()> {
        let CandidateBlock { path, records, left, own } = &self.blocks[at];
        let query = &self.query.folded;
        let wanted = &query[query.len() - left..];
        let candidate = |stored: Stored<'a>, score| Candidate {
            rank: self.query.rank(score, stored.characters, 0),
            block: at,
            stored,
        };
        // The text that equals the query is first, and need not be among a fork's kept suggestions.
        let same = own.filter(|_| path == query);
        self.candidates.extend(same.map(|own| candidate(own, SAME_SCORE)));
        for stored in records.records() {
            let compared = stored.rest.len().min(*left);
            if !agree(&stored.rest[..compared], &wanted[..compared])? || compared < *left {
                continue;
            }
            let is_same = path.len() + stored.rest.len() == query.len() && [path, stored.rest].concat() == *query;
            if !is_same {
                self.candidates.push(candidate(stored, stored.score));
            } else if same.is_none() {
                self.candidates.push(candidate(stored, SAME_SCORE));
            }
        }
        Some(())
    }

    /// Returns the first candidates in order.
    fn best(mut self, root: &'a TrieNode, count: usize) -> Best<'a> {
        let Direct { blocks, candidates, .. } = &mut self;
        candidates.sort_unstable_by(|one, other| Direct::order(blocks, one, other));
        candidates.truncate(count);
        let mut best = Best::with_capacity(count);
        for Candidate { rank, block, stored } in candidates.iter() {
            let path = &blocks[*block].path;
            let text = best.push(&[path, stored.rest], *rank);
            // Kept suggestions only know that there is a payload.
            if stored.payload.is_some() {
                let payload = root.find(text).and_then(|stored| stored.payload);
                best.set_payload(payload);
            }
        }
        best
    }

    fn order(blocks: &[CandidateBlock<'_>], one: &Candidate<'_>, other: &Candidate<'_>) -> Ordering {
        let by_rank = other.rank.partial_cmp(&one.rank).unwrap_or(Ordering::Equal);
        by_rank.then_with(|| {
            if one.block == other.block {
                return one.stored.rest.cmp(other.stored.rest);
            }
            let text = |it: &Candidate<'_>| [&*blocks[it.block].path, it.stored.rest].concat();
            text(one).cmp(&text(other))
        })
    }
}

/// Returns true if stored bytes match the query's bytes. Returns None if the first difference is not ASCII: it may be
/// the same letter in other bytes.
#[inline]
fn agree(stored: &[u8], query: &[u8]) -> Option<bool> {
    let differing = stored.iter().zip(query).find(|(one, other)| one.to_ascii_lowercase() != **other);
    match differing {
        None => Some(true),
        Some((byte, _)) => byte.is_ascii().then_some(false),
    }
}

/// Returns true if texts on a branch may continue with a character that equals this letter except for case.
fn may_lead_to(branch: &Branch, letter: u8) -> bool {
    let may_be = |second: Option<&u8>| second.is_none_or(|second| may_be(letter, branch.byte, *second));
    match &branch.node {
        TrieNode::Bucket(bucket) => bucket.records().any(|stored| may_be(stored.rest.first())),
        TrieNode::Fork(fork) if !fork.label.is_empty() => may_be(fork.label.first()),
        TrieNode::Fork(fork) => fork.branches.iter().any(|branch| may_be(Some(&branch.byte))),
    }
}

/// Returns true if a character with these first two bytes may fold to this letter, like the long s, or may be the
/// letter in an overlong form.
fn may_be(letter: u8, first: u8, second: u8) -> bool {
    match (first, second) {
        (0xC3, 0x9F) | (0xC5, 0xBF) => letter == b's',
        (0xC4, 0xB0) => letter == b'i',
        (0xC7, 0xB0) => letter == b'j',
        (0xE1, 0xBA) => b"ahstwy".contains(&letter),
        (0xE2, 0x84) => letter == b'k',
        (0xEF, 0xAC) => b"fs".contains(&letter),
        (0xE0, second) => second < 0xA0,
        (0xF0, second) => second < 0x90,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::suggestions::letters::fold;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, and has no unsafe code")]
    fn characters_that_fold_to_ascii_are_known() {
        for letter in ('\u{80}'..=char::MAX).filter(|letter| fold(u32::from(*letter)) < 0x80) {
            let folded = fold(u32::from(letter)) as u8;
            let bytes = letter.to_string().into_bytes();
            assert!(may_be(folded, bytes[0], bytes[1]), "{letter} {bytes:x?} {}", char::from(folded));
        }
    }
}
