//! Compares the tree with a sorted vector, and checks its invariants.

use std::mem::size_of;

use super::node::items_min;
use super::*;

/// Simple entries: the bytes are the number, big-endian.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Name([u8; 4]);

impl MemberHandle for Name {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn name(n: u32) -> Name {
    Name(n.to_be_bytes())
}

/// A small generator (xorshift64*), so that failures are reproducible.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// The model that the tree must equal: the entries in a sorted vector.
#[derive(Default)]
struct Model(Vec<(f64, Name)>);

impl Model {
    fn insert(&mut self, score: f64, tie: Name) {
        let at = self.0.partition_point(|(s, t)| compare(*s, t.bytes(), score, tie.bytes()).is_lt());
        self.0.insert(at, (score, tie));
    }
}

/// Checks every invariant below `node`, and returns its depth.
fn check_node(node: &Node<Name>, entries: &mut Vec<(f64, Name)>) -> usize {
    match node {
        Node::Empty => 0,
        Node::Leaf(leaf) => {
            assert!(leaf.len() > 0 && leaf.len() <= LEAF_MAX);
            entries.extend((0..leaf.len()).filter_map(|at| leaf.get(at)));
            1
        }
        Node::Inner(inner) => {
            assert!(inner.len() > 0 && inner.len() <= INNER_MAX);
            let depths: Vec<_> = (0..inner.len())
                .map(|at| {
                    let start = entries.len();
                    let depth = check_node(&inner.kids[at], entries);
                    assert_eq!(inner.counts[at], entries.len() - start);
                    assert_eq!(inner.firsts.get(at), Some(entries[start]));
                    depth
                })
                .collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "all leaves have the same depth");
            assert!(inner.kids[inner.len()..].iter().all(|kid| matches!(kid, Node::Empty)));
            depths[0] + 1
        }
    }
}

fn check(tree: &Tree<Name>, model: &Model) {
    let mut entries = Vec::new();
    check_node(&tree.root, &mut entries);
    assert_eq!(entries, model.0);
    assert_eq!(tree.len(), model.0.len());
    assert!(!matches!(&tree.root, Node::Inner(inner) if inner.len() < 2), "an inner root has several children");
}

/// Checks that no node on the path to this rank is short, except for the root.
fn check_path(tree: &Tree<Name>, rank: usize) {
    let (mut node, mut left) = (&tree.root, rank);
    while let Node::Inner(inner) = node {
        let (kid, before) = inner.kid_of_rank(left);
        (node, left) = (&inner.kids[kid], left - before);
        assert!(!node.is_short());
    }
}

/// Checks all lookups at a random place.
fn check_lookups(tree: &Tree<Name>, model: &Model, rng: &mut Rng, names: usize, scores: usize) {
    let (score, tie) = (rng.below(scores) as f64, name(rng.below(names) as u32));
    let before = |f: &dyn Fn(f64, Name) -> bool| model.0.iter().filter(|(s, t)| f(*s, *t)).count();
    assert_eq!(tree.entries_before(Boundary::BeforeScore(score)), before(&|s, _| s < score));
    assert_eq!(tree.entries_before(Boundary::AfterScore(score)), before(&|s, _| s <= score));
    let rank = model.0.iter().position(|entry| *entry == (score, tie));
    assert_eq!(tree.rank(score, tie), rank);
    if scores == 1 {
        assert_eq!(tree.entries_before(Boundary::BeforeBytes(tie.bytes())), before(&|_, t| t.0 < tie.0));
        assert_eq!(tree.entries_before(Boundary::AfterBytes(tie.bytes())), before(&|_, t| t.0 <= tie.0));
    }
    let rank = rng.below(names);
    assert_eq!(tree.get(rank), model.0.get(rank).copied());
    let (start, end) = (rng.below(names), rng.below(names));
    let end_cut = end.min(model.0.len());
    let wanted = &model.0[start.min(end_cut)..end_cut];
    assert!(tree.iter(start..end, false).eq(wanted.iter().copied()));
    assert!(tree.iter(start..end, true).eq(wanted.iter().rev().copied()));
    // `for_each` iterates leaf by leaf, not entry by entry.
    for reverse in [false, true] {
        let mut all = Vec::new();
        tree.iter(start..end, reverse).for_each(|entry| all.push(entry));
        assert!(tree.iter(start..end, reverse).eq(all));
    }
}

/// Runs one random operation on both.
fn step(tree: &mut Tree<Name>, model: &mut Model, rng: &mut Rng, names: usize, scores: usize, grow: bool) {
    let tie = name(rng.below(names) as u32);
    let old = model.0.iter().position(|(_, t)| *t == tie);
    let score = rng.below(scores) as f64;
    match (old, rng.below(if grow { 8 } else { 3 })) {
        (Some(at), 0) => {
            let (old, _) = model.0.remove(at);
            assert!(tree.remove(old, tie));
            assert!(!tree.remove(old, tie));
        }
        (Some(at), _) => {
            let (old, _) = model.0.remove(at);
            let near = scores > 1 && rng.below(2) == 0;
            let score = if near { old + 1.0 } else { score };
            tree.rescore(old, tie, score);
            model.insert(score, tie);
        }
        (None, 0) if rng.below(4) == 0 => {
            let start = rng.below(model.0.len() + 1);
            let end = (start + rng.below(model.0.len() / 2 + 1)).min(model.0.len());
            let mut removed = Vec::new();
            tree.remove_ranks(start..end, |score, tie| removed.push((score, tie)));
            assert!(model.0.drain(start..end).eq(removed));
        }
        (None, _) => {
            tree.insert(score, tie);
            model.insert(score, tie);
        }
    }
}

fn random_steps(seed: u64, steps: usize, names: usize, scores: usize) {
    let (mut tree, mut model, mut rng) = (Tree::new(), Model::default(), Rng(seed));
    for at in 0..steps {
        // Phases of growth and shrinking alternate, so that the tree becomes high and low again.
        step(&mut tree, &mut model, &mut rng, names, scores, (at / names) % 3 < 2);
        if at % 16 == 0 {
            check_lookups(&tree, &model, &mut rng, names, scores);
        }
        if at % 64 == 0 {
            check(&tree, &model);
        }
    }
    check(&tree, &model);
}

#[test]
fn a_tree_agrees_with_a_sorted_vector() {
    let steps = 30_000;
    for (seed, names, scores) in [(1, 300, 1), (2, 300, 5), (3, 3000, 1000), (4, 8000, 1_000_000), (5, 8000, 1)] {
        random_steps(seed, steps, names, scores);
    }
}

#[test]
fn insertions_in_order_leave_full_nodes() {
    for step in [1.0, -1.0] {
        let mut tree = Tree::new();
        let len = 20_000;
        for n in 0..len {
            tree.insert(f64::from(n) * step, name(n));
        }
        let mut entries = Vec::new();
        check_node(&tree.root, &mut entries);
        assert_eq!(entries.len(), len as usize);
        let leaves_bytes = (len as usize).div_ceil(LEAF_MAX) * size_of::<Leaf<Name>>();
        assert!(tree.memory_bytes() < leaves_bytes * 5 / 4, "{} {leaves_bytes}", tree.memory_bytes());
    }
}

#[test]
fn a_tree_built_at_once_is_valid() {
    for len in [0, 1, 55, 56, 2750, 10_000] {
        let entries: Vec<_> = (0..len).map(|n| (f64::from(n / 10), name(n))).collect();
        let tree = Tree::from_sorted(&entries);
        check(&tree, &Model(entries));
    }
}

#[test]
fn every_range_of_ranks_can_be_removed() {
    let len = 9000;
    let entries: Vec<_> = (0..len).map(|n| (f64::from(n), name(n))).collect();
    let mut rng = Rng(7);
    for _ in 0..300 {
        let (mut tree, mut model) = (Tree::from_sorted(&entries), Model(entries.clone()));
        while !tree.is_empty() {
            let (a, b) = (rng.below(tree.len() + 1), rng.below(tree.len() + 1));
            let mut count = 0;
            tree.remove_ranks(a.min(b)..a.max(b), |_, _| count += 1);
            assert_eq!(model.0.drain(a.min(b)..a.max(b)).count(), count);
            check(&tree, &model);
            if let Some(last) = tree.len().checked_sub(1) {
                check_path(&tree, a.min(b).saturating_sub(1));
                check_path(&tree, a.min(b).min(last));
            }
        }
    }
}

#[test]
fn short_nodes_do_not_accumulate() {
    let mut tree = Tree::from_sorted(&(0..50_000).map(|n| (f64::from(n), name(n))).collect::<Vec<_>>());
    let mut rng = Rng(9);
    while tree.len() > 1000 {
        let at = rng.below(tree.len());
        tree.remove_ranks(at..at + 7, |_, _| {});
    }
    let fullest = tree.len().div_ceil(items_min(LEAF_MAX)) * size_of::<Leaf<Name>>();
    assert!(tree.memory_bytes() < fullest * 3 / 2, "{} {fullest}", tree.memory_bytes());
}

#[test]
fn infinities_and_zeros_are_ordered() {
    let mut tree = Tree::new();
    for (n, score) in [f64::INFINITY, -0.0, f64::NEG_INFINITY, 0.0, f64::MIN_POSITIVE].into_iter().enumerate() {
        tree.insert(score, name(n as u32));
    }
    let order: Vec<_> = tree.iter(0..5, false).map(|(_, tie)| tie).collect();
    assert_eq!(order, [2, 1, 3, 4, 0].map(name));
    assert_eq!(tree.entries_before(Boundary::BeforeScore(0.0)), 1);
    assert_eq!(tree.entries_before(Boundary::AfterScore(-0.0)), 3);
    assert!(tree.remove(0.0, name(1)), "both zeros find it");
}
