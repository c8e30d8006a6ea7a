//! Checks that wrong hints never change the order, and that hints save reads of bytes or at least cost few.

use std::cell::Cell;

use super::*;
use crate::random::Random;
use crate::types::bptree::{Boundary, Tree, compare};

thread_local! {
    /// Number of times that this thread has read the bytes of a word.
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// An entry that counts reads of its bytes. With `LIES`, it returns another hint than it was given.
#[derive(Clone, Copy, Debug)]
struct Word<'a, const LIES: bool> {
    bytes: &'a [u8],
    hint: u16,
}

impl<'a, const LIES: bool> Word<'a, LIES> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, hint: 0 }
    }
}

impl<const LIES: bool> PartialEq for Word<'_, LIES> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes, other.bytes)
    }
}

impl<const LIES: bool> MemberHandle for Word<'_, LIES> {
    fn bytes(&self) -> &[u8] {
        LOOKS.set(LOOKS.get() + 1);
        self.bytes
    }

    fn hint(self) -> u16 {
        if LIES { self.hint.wrapping_mul(0x9E37).rotate_left(5) } else { self.hint }
    }

    fn with_hint(self, hint: u16) -> Self {
        Self { hint, ..self }
    }
}

/// Returns the number of reads that `work` makes.
fn looks(work: impl FnOnce()) -> usize {
    let before = LOOKS.get();
    work();
    LOOKS.get() - before
}

fn shuffled(mut words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    (1..words.len()).for_each(|at| words.swap(at, random.below(at + 1)));
    words
}

/// Returns distinct words of all kinds: some of the lowest and highest bytes, prefixes of others, the empty one, some
/// with short and some with long common prefixes, and some with prefixes longer than the maximum of `skip`.
fn words(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut all: Vec<Vec<u8>> = (0..count)
        .map(|n| match n % 6 {
            0 => (0..random.below(9)).map(|_| [0, 1, 254, 255][random.below(4)]).collect(),
            1 => format!("member:{n:09}").into_bytes(),
            2 => vec![b'x'; n % 300],
            3 => [vec![b'y'; SKIP_BYTES_MAX - 20 + n % 40], n.to_be_bytes().to_vec()].concat(),
            4 => [format!("cluster:{}:", n % 7).into_bytes(), vec![0; n % 5], vec![255; n % 3]].concat(),
            _ => n.to_string().into_bytes(),
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    shuffled(all)
}

/// Runs random operations on a tree and on a sorted vector, which must agree. Up to `run` consecutive words are used in
/// order, with one score.
fn check_order<const LIES: bool>(words: &[Vec<u8>], scores: usize, steps: usize, run: usize) {
    let mut random = Random::new(3);
    let (mut tree, mut model) = (Tree::<Word<'_, LIES>>::new(), Vec::<(f64, &[u8])>::new());
    let (mut at, mut score) = (0, 0.0);
    for step in 0..steps {
        if random.below(run) == 0 {
            (at, score) = (random.below(words.len()), random.below(scores) as f64);
        }
        at = (at + 1) % words.len();
        let word = &*words[at];
        let old = model.iter().position(|(_, other)| *other == word).map(|at| model.remove(at).0);
        let place = model.partition_point(|(s, other)| compare(*s, other, score, word).is_lt());
        match old {
            Some(old) if random.below(3) == 0 => assert!(tree.remove(old, Word::new(word))),
            _ => {
                match old {
                    Some(old) => tree.rescore(old, Word::new(word), score),
                    None => tree.insert(score, Word::new(word)),
                }
                model.insert(place, (score, word));
            }
        }
        if step % 500 == 499 {
            let start = random.below(model.len());
            let end = (start + random.below(400)).min(model.len());
            let mut removed = Vec::new();
            tree.remove_ranks(start..end, |score, word| removed.push((score, word.bytes)));
            assert!(model.drain(start..end).eq(removed));
        }
        check_places(&tree, &model, &words[random.below(words.len())], score, scores == 1);
        if step % 100 == 0 {
            assert!(tree.iter(0..usize::MAX, false).map(|(score, word)| (score, word.bytes)).eq(model.iter().copied()));
        }
    }
    let entries: Vec<_> = model.iter().map(|&(score, word)| (score, Word::<LIES>::new(word))).collect();
    let built = Tree::from_sorted(&entries);
    words.iter().for_each(|word| check_places(&built, &model, word, 0.0, scores == 1));
}

fn check_places<const LIES: bool>(
    tree: &Tree<Word<'_, LIES>>,
    model: &[(f64, &[u8])],
    word: &[u8],
    score: f64,
    one_score: bool,
) {
    let before = model.partition_point(|(s, other)| compare(*s, other, score, word).is_lt());
    let is_there = model.get(before) == Some(&(score, word));
    assert_eq!(tree.rank(score, Word::new(word)), is_there.then_some(before));
    if one_score {
        let up_to = model.partition_point(|(_, other)| *other <= word);
        assert_eq!(tree.entries_before(Boundary::BeforeBytes(word)), before);
        assert_eq!(tree.entries_before(Boundary::AfterBytes(word)), up_to);
    }
}

#[test]
fn bytes_decide_even_if_hints_are_wrong() {
    let words = words(4000);
    for scores in [1, 3, 40] {
        check_order::<false>(&words, scores, 8000, 1);
        check_order::<true>(&words, scores, 8000, 1);
    }
}

#[test]
fn bytes_decide_at_any_place_of_the_finger() {
    let mut words = words(4000);
    words.sort_unstable();
    for (scores, run) in [(1, 3), (1, 100), (3, 30), (40, 300)] {
        check_order::<false>(&words, scores, 8000, run);
        check_order::<true>(&words, scores, 8000, run);
        words.reverse();
    }
}

#[test]
fn the_finger_saves_reads_for_insertions_in_order() {
    let mut words: Vec<_> = (0..LOOKED_UP).map(|n| format!("member:{:09}", n * 7).into_bytes()).collect();
    // 120 without a finger.
    check_looks(&words, 60, 55);
    // In eight sorted parts: 115 without a finger.
    words = shuffled(words);
    words.chunks_mut(LOOKED_UP / 8).for_each(<[_]>::sort_unstable);
    check_looks(&words, 75, 55);
}

#[test]
fn hints_of_ascending_words_ascend() {
    let mut words = words(600);
    words.sort_unstable();
    for (at, first) in words.iter().enumerate() {
        for last in at..words.len().min(at + 40) {
            let ties: Vec<_> = words[at..=last].iter().map(|word| Word::<false>::new(word)).collect();
            let skip = bits_in_common(&ties);
            let hints = words[at..=last].iter().map(|word| hint_of(word, skip));
            assert!(hints.is_sorted(), "{first:?} to {:?} without {skip} bits", words[last]);
        }
    }
}

#[test]
fn hints_are_the_bits_behind_the_prefix() {
    for (bytes, skip, hint) in [
        (&b""[..], 0, 0),
        (b"a", 0, 0x6100),
        (b"a", 3, 0x0800),
        (b"a", 8, 0),
        (b"a", 800, 0),
        (b"\x12\x34\x56\x78\x9A", 0, 0x1234),
        (b"\x12\x34\x56\x78\x9A", 4, 0x2345),
        (b"\x12\x34\x56\x78\x9A", 16, 0x5678),
        (b"\x12\x34\x56\x78\x9A", 28, 0x89A0),
    ] {
        assert_eq!(hint_of(bytes, skip), hint, "{bytes:?} {skip}");
    }
}

/// Inserts these words with one score; twenty thousand of them make three levels. Counts the reads of an average
/// insertion into the half-filled tree, with the renewals of hints, and of an average search. Both limits are in tenths
/// of a read.
fn check_looks(words: &[Vec<u8>], insert_max: usize, rank_max: usize) {
    let mut tree = Tree::<Word<'_, false>>::new();
    let (first, second) = words.split_at(words.len() / 2);
    first.iter().for_each(|word| tree.insert(0.0, Word::new(word)));
    let inserts = looks(|| second.iter().for_each(|word| tree.insert(0.0, Word::new(word))));
    let searches = looks(|| words.iter().for_each(|word| _ = tree.rank(0.0, Word::new(word))));
    let (insert, rank) = (inserts * 10 / second.len(), searches * 10 / words.len());
    assert!(insert <= insert_max && rank <= rank_max, "tenths of looks: {insert} {rank}");
}

/// Number of words in the tests that count reads.
const LOOKED_UP: usize = 20_000;

#[test]
fn hints_save_reads() {
    // Without hints: 197 and 139 (a search then also read the leaf's members).
    check_looks(&shuffled((0..LOOKED_UP).map(|n| format!("member:{n:09}").into_bytes()).collect()), 130, 55);
}

#[test]
fn misleading_words_cost_few_reads() {
    // The common prefixes are alternately long and short.
    let uneven = |n: usize| [vec![b'a'; n % 200], n.to_be_bytes().to_vec()].concat();
    check_looks(&shuffled((0..LOOKED_UP).map(uneven).collect()), 185, 105);
    // The common prefix is longer than the maximum of `skip`.
    check_looks(&shuffled((0..LOOKED_UP).map(|n| format!("{n:0300}").into_bytes()).collect()), 195, 110);
    // Each word shares one bit less with the others than the previous word.
    let descending = |n: usize| [vec![255; 255 - n % 256], vec![0], (n / 256).to_be_bytes().to_vec()].concat();
    check_looks(&(0..LOOKED_UP).map(descending).collect::<Vec<_>>(), 170, 105);
}
