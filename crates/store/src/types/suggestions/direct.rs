//! Finding the best suggestions where all candidates lie together: in a bucket, or in what a fork has kept.
//!
//! That is so for most searches: those that are exact, ask for few, and agree with texts in a few places, each of which is a bucket or
//! a fork behind a way of ASCII. What is found is the same as by a walk (`best`).

use std::cmp::Ordering;

use super::best::{Best, SAME_SCORE};
use super::bucket::{Stored, TrieBucket};
use super::kept::KEPT_FOR;
use super::query::{Fuzziness, Query};
use super::tree::{Branch, Fork, TrieNode};

/// Blocks that a search may look at: more than one where texts begin with the same letters in another case.
const BLOCKS_MAX: usize = 4;
/// Room for the candidates of most searches.
const ROOM: usize = 40;

/// A block in which candidates lie, at the end of a query's way through the tree.
struct CandidateBlock<'a> {
    /// The bytes of the texts there up to the records' own, as they are stored.
    path: Vec<u8>,
    records: &'a TrieBucket,
    /// How much of the query the records themselves are to begin with.
    left: usize,
    /// The suggestion that ends at this fork: its text is the path. None for a bucket.
    own: Option<Stored<'a>>,
}

/// A suggestion that may be a result.
struct Candidate<'a> {
    rank: f32,
    block: usize,
    stored: Stored<'a>,
}

/// The best, up to `count`; None if a walk has to find them.
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
    /// Finds the blocks at and below a node, to which so many bytes of the query lead by `path`. None if they can't all be told so.
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

    /// The ways on by a letter and by its upper case. None if there is one that may be the same letter by other bytes.
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

    /// Makes those of a block's suggestions candidates that agree. None if one of them has to be looked at letter by letter.
    fn gather(&mut self, at: usize) -> Option<()> {
        let CandidateBlock { path, records, left, own } = &self.blocks[at];
        let query = &self.query.folded;
        let wanted = &query[query.len() - left..];
        let candidate = |stored: Stored<'a>, score| Candidate {
            rank: self.query.rank(score, stored.characters, 0),
            block: at,
            stored,
        };
        // The text that is the query comes first, and need not be among those that a fork has kept.
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

    /// The first of the candidates, in their order.
    fn best(mut self, root: &'a TrieNode, count: usize) -> Best<'a> {
        let Direct { blocks, candidates, .. } = &mut self;
        candidates.sort_unstable_by(|one, other| Direct::order(blocks, one, other));
        candidates.truncate(count);
        let mut best = Best::with_capacity(count);
        for Candidate { rank, block, stored } in candidates.iter() {
            let path = &blocks[*block].path;
            let text = best.push(&[path, stored.rest], *rank);
            // What is kept knows only that there is one.
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

/// Whether bytes of texts agree with as many of a query. None if the first that differs isn't ASCII: its letter may be the same by other bytes.
#[inline]
fn agree(stored: &[u8], query: &[u8]) -> Option<bool> {
    let differing = stored.iter().zip(query).find(|(one, other)| one.to_ascii_lowercase() != **other);
    match differing {
        None => Some(true),
        Some((byte, _)) => byte.is_ascii().then_some(false),
    }
}

/// Whether texts on a branch may go on with a character that is this letter, but for its case.
fn may_lead_to(branch: &Branch, letter: u8) -> bool {
    let may_be = |second: Option<&u8>| second.is_none_or(|second| may_be(letter, branch.byte, *second));
    match &branch.node {
        TrieNode::Bucket(bucket) => bucket.records().any(|stored| may_be(stored.rest.first())),
        TrieNode::Fork(fork) if !fork.label.is_empty() => may_be(fork.label.first()),
        TrieNode::Fork(fork) => fork.branches.iter().any(|branch| may_be(Some(&branch.byte))),
    }
}

/// Whether a character with these first two bytes may be folded to this letter, as the long s is, or be the letter in a form that is longer
/// than it need be.
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
    fn what_is_folded_to_ascii_is_known() {
        for letter in ('\u{80}'..=char::MAX).filter(|letter| fold(u32::from(*letter)) < 0x80) {
            let folded = fold(u32::from(letter)) as u8;
            let bytes = letter.to_string().into_bytes();
            assert!(may_be(folded, bytes[0], bytes[1]), "{letter} {bytes:x?} {}", char::from(folded));
        }
    }
}
