//! Compares lists with a queue of vectors, with limits so small that nodes split, merge and vanish constantly.

use std::collections::VecDeque;

use super::*;
use crate::random::Random;

type Model = VecDeque<Vec<u8>>;

/// Random test data from a seed, so that a failure can be repeated.
trait Draw {
    fn end(&mut self) -> End;
    /// Returns one of few elements, so that searches find some; a few fill nodes.
    fn element(&mut self) -> Vec<u8>;
    fn limits(&mut self) -> ListLimits;
}

impl Draw for Random {
    fn end(&mut self) -> End {
        if self.below(2) == 0 { End::Left } else { End::Right }
    }

    fn element(&mut self) -> Vec<u8> {
        match self.below(24) {
            0 => vec![b'L'; self.below(6000)],
            1 => vec![b'M'; self.below(300)],
            2..=8 => self.below(5).to_string().into_bytes(),
            _ => vec![b'a' + self.below(5) as u8; 1 + self.below(3)],
        }
    }

    fn limits(&mut self) -> ListLimits {
        ListLimits::new([1, 2, 3, 5, 40, -1, -2][self.below(7)])
    }
}

fn check_same(list: &List, model: &Model) {
    assert_eq!(list.len(), model.len());
    assert_eq!(list.iter().len(), model.len());
    assert!(list.iter().map(Item::to_vec).eq(model.iter().cloned()));
    assert!(list.iter().rev().map(Item::to_vec).eq(model.iter().rev().cloned()));
    if let FormRef::Quick(quick) = list.view() {
        quick.check();
    }
    if model.is_empty() {
        assert_eq!((list.encoding(), list.memory_bytes()), ("listpack", 0));
    }
}

fn check_reads(list: &List, model: &Model, random: &mut Random) {
    let len = model.len();
    let index = random.below(len + 2);
    assert_eq!(list.get(index).map(Item::to_vec).as_ref(), model.get(index));
    let (start, end) = (random.below(len + 2), random.below(len + 2));
    let expected: Vec<_> = model.iter().take(end).skip(start).cloned().collect();
    check_range(list.range(start..end), &expected, random);
    check_positions(list, model, random);
}

/// Takes elements from both ends in random order until there are none.
fn check_range(mut range: Elements<'_>, expected: &[Vec<u8>], random: &mut Random) {
    let mut visited = Vec::new();
    let mut walk = range.clone();
    // `for_each` may begin in the middle.
    let before = random.below(2);
    visited.extend(walk.by_ref().take(before).map(Item::to_vec));
    walk.for_each(|element| visited.push(element.to_vec()));
    assert_eq!(visited, expected);
    let mut expected = expected.iter();
    loop {
        let skip = random.below(8).saturating_sub(5);
        let (own, model) = match random.end() {
            End::Left => (range.nth(skip), expected.nth(skip)),
            End::Right => (range.nth_back(skip), expected.nth_back(skip)),
        };
        assert_eq!(own.map(Item::to_vec).as_ref(), model);
        assert_eq!(range.len(), expected.len());
        if expected.len() == 0 {
            return assert!(range.next().is_none() && range.next_back().is_none());
        }
    }
}

fn check_positions(list: &List, model: &Model, random: &mut Random) {
    let needle = random.element();
    let maximum = |random: &mut Random| if random.below(2) == 0 { usize::MAX } else { random.below(9) };
    let search = Search {
        from: random.end(),
        skip: random.below(3),
        matches_max: maximum(random),
        compared_max: maximum(random),
    };
    let mut order: Vec<_> = model.iter().enumerate().collect();
    if search.from == End::Right {
        order.reverse();
    }
    order.truncate(search.compared_max);
    order.retain(|(_, element)| **element == needle);
    let expected: Vec<_> = order.iter().map(|(at, _)| *at).skip(search.skip).take(search.matches_max).collect();
    let mut found = Vec::new();
    list.positions(&needle, search, |index| found.push(index));
    assert_eq!(found, expected);
}

fn push(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let end = random.end();
    let count = [1, 1, 2, 9][random.below(4)];
    let elements: Vec<_> = (0..count).map(|_| random.element()).collect();
    list.push_all(end, elements.iter().map(Vec::as_slice), limits);
    for element in elements {
        match end {
            End::Left => model.push_front(element),
            End::Right => model.push_back(element),
        }
    }
}

fn pop(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    for _ in 0..random.below(3) {
        let end = random.end();
        let expected = if end == End::Left { model.pop_front() } else { model.pop_back() };
        assert_eq!(list.pop(end, limits), expected);
    }
}

fn rotate(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let (from, to) = (random.end(), random.end());
    let moved = if from == End::Left { model.pop_front() } else { model.pop_back() };
    assert_eq!(list.rotate_with(from, to, limits, <[u8]>::to_vec), moved);
    if let Some(moved) = moved {
        model.insert(if to == End::Left { 0 } else { model.len() }, moved);
    }
}

fn insert(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let (side, pivot, element) = (random.end(), random.element(), random.element());
    let index = model.iter().position(|own| *own == pivot);
    assert_eq!(list.insert(side, &pivot, &element, limits), index.map(|_| ()));
    if let Some(index) = index {
        model.insert(index + usize::from(side == End::Right), element);
    }
}

fn set(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let (index, element) = (random.below(model.len() + 1), random.element());
    assert_eq!(list.set(index, &element, limits), index < model.len());
    if let Some(own) = model.get_mut(index) {
        *own = element;
    }
}

fn remove(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let (count, needle) = (random.below(7) as i64 - 3, random.element());
    let mut matching: Vec<_> = (0..model.len()).filter(|at| model[*at] == needle).collect();
    if count < 0 {
        matching.reverse();
    }
    matching.truncate(if count == 0 { usize::MAX } else { count.unsigned_abs() as usize });
    assert_eq!(list.remove(count, &needle, limits), matching.len());
    let mut index = 0;
    model.retain(|_| {
        index += 1;
        !matching.contains(&(index - 1))
    });
}

fn trim(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    let (start, end) = (random.below(5), (model.len() + 1).saturating_sub(random.below(5)));
    list.trim(start..end, limits);
    model.truncate(end);
    model.drain(..start.min(model.len()));
}

fn change(list: &mut List, model: &mut Model, limits: ListLimits, random: &mut Random) {
    match random.below(16) {
        0..=4 => push(list, model, limits, random),
        5..=7 => pop(list, model, limits, random),
        8 => rotate(list, model, limits, random),
        9..=11 => insert(list, model, limits, random),
        12 => set(list, model, limits, random),
        13 => remove(list, model, limits, random),
        14 => trim(list, model, limits, random),
        _ if random.below(50) == 0 => {
            list.trim(0..0, limits);
            model.clear();
        }
        _ => {}
    }
}

#[test]
fn a_list_behaves_like_a_queue_of_vectors() {
    let (seeds, rounds) = if cfg!(miri) { (3, 60) } else { (60, 800) };
    for seed in 1..=seeds {
        let random = &mut Random::new(seed * 0x9E37_79B9);
        let mut limits = random.limits();
        let (mut list, mut model) = (List::new(), Model::new());
        for _ in 0..rounds {
            change(&mut list, &mut model, limits, random);
            check_same(&list, &model);
            check_reads(&list, &model, random);
            if random.below(200) == 0 {
                limits = random.limits();
            }
        }
    }
}

/// Pushes `count` elements of length `len`, one by one.
fn filled(count: usize, len: usize, limits: ListLimits) -> List {
    let mut list = List::new();
    (0..count).for_each(|_| list.push(End::Right, &vec![b'x'; len], limits));
    list
}

fn check_encoding(limit: i64, count: usize, len: usize, encoding: &str) {
    let list = filled(count, len, ListLimits::new(limit));
    assert_eq!(list.encoding(), encoding, "limit {limit}, {count} of {len} bytes");
}

#[test]
fn a_list_is_a_listpack_up_to_the_limit() {
    // Seven bytes of frame; each existing element counts two more than its length, and the new one only its length.
    check_encoding(-2, 0, 0, "listpack");
    check_encoding(-2, 454, 16, "listpack");
    check_encoding(-2, 455, 16, "quicklist");
    check_encoding(-2, 1, 8185, "listpack");
    check_encoding(-2, 1, 8186, "quicklist");
    check_encoding(-1, 1, 4090, "quicklist");
    check_encoding(-5, 1, 65_529, "listpack");
    check_encoding(-9, 1, 65_529, "listpack");
    check_encoding(0, 1, 1, "listpack");
    check_encoding(0, 2, 1, "quicklist");
    check_encoding(128, 128, 10, "listpack");
    check_encoding(128, 129, 10, "quicklist");
    check_encoding(128, 1, 8186, "quicklist");
}

#[test]
fn elements_pushed_together_choose_the_form_together() {
    let limits = ListLimits::default();
    let element = [b'x'; 16];
    for (count, encoding) in [(511, "listpack"), (512, "quicklist")] {
        let mut list = List::new();
        list.push_all(End::Left, std::iter::repeat_n(&element[..], count), limits);
        assert_eq!(list.encoding(), encoding, "{count} elements");
    }
}

#[test]
fn a_list_is_a_listpack_again_at_half_the_limit() {
    let limits = ListLimits::new(8);
    let mut list = filled(9, 1, limits);
    while list.len() > 4 {
        assert_eq!(list.encoding(), "quicklist");
        list.pop(End::Right, limits);
    }
    assert_eq!(list.encoding(), "listpack");
    // Two nodes are never a listpack, even with few elements.
    let mut list = filled(9, 1, limits);
    list.trim(7..9, limits);
    assert_eq!(list.encoding(), "quicklist");
    list.pop(End::Left, limits);
    assert_eq!(list.encoding(), "listpack");
}

#[test]
fn an_inserted_element_splits_a_full_node() {
    let limits = ListLimits::new(4);
    let mut list = List::new();
    "abcdefgh".bytes().for_each(|letter| list.push(End::Right, &[letter], limits));
    assert_eq!(list.insert(End::Right, b"b", b"1", limits), Some(()));
    assert_eq!(list.insert(End::Left, b"g", b"2", limits), Some(()));
    let FormRef::Quick(quick) = list.view() else { panic!("{}", list.encoding()) };
    let lens: Vec<_> = quick.nodes().iter().map(ListNode::len).collect();
    assert_eq!(lens, [2, 3, 3, 2]);
    assert!(list.iter().flat_map(Item::to_vec).eq("ab1cdef2gh".bytes()));
}

// Too much for Miri, which covers the same code in other tests.
#[cfg(not(miri))]
#[test]
fn a_huge_replacement_gets_its_own_node() {
    let limits = ListLimits::default();
    let huge = vec![b'h'; 1 << 20];
    for index in 0..4 {
        let mut list = List::new();
        let mut model: Model = "abcd".bytes().map(|letter| vec![letter]).collect();
        model.iter().for_each(|element| list.push(End::Right, element, limits));
        // The second replacement finds the element alone in its node.
        for element in [&huge[..], &huge[1..], b"small"] {
            assert!(list.set(index, element, limits));
            model[index] = element.to_vec();
            check_same(&list, &model);
        }
        let FormRef::Quick(quick) = list.view() else { panic!("{}", list.encoding()) };
        assert_eq!(quick.nodes().len(), if index % 3 == 0 { 2 } else { 3 });
    }
}

// Too much for Miri, which covers the same code in other tests.
#[cfg(not(miri))]
#[test]
fn slack_stays_in_bounds() {
    let limits = ListLimits::default();
    for end in [End::Left, End::Right] {
        let mut list = List::new();
        (0..20_000).for_each(|_| list.push(end, &[b'x'; 16], limits));
        let per_element = list.memory_bytes() as f64 / 20_000.0;
        assert!((18.0..19.0).contains(&per_element), "{per_element} bytes an element of 16");
    }
    // A queue of constant length does not grow.
    let mut list = filled(100, 16, limits);
    for _ in 0..10_000 {
        list.push(End::Left, &[b'x'; 16], limits);
        list.pop(End::Right, limits);
    }
    assert!(list.memory_bytes() <= 4096 + size_of::<Big>(), "{}", list.memory_bytes());
}

#[test]
fn blocks_hold_all_elements_in_order() {
    for seed in 0..20 {
        let (mut list, random) = (List::new(), &mut Random::new(seed));
        for _ in 0..random.below(200) {
            list.push(random.end(), &random.element(), random.limits());
        }
        let elements: Vec<_> = list.blocks().flat_map(|(items, _)| packed::Iter::of(items)).collect();
        assert!(list.iter().eq(elements));
        assert_eq!(list.blocks().map(|(_, count)| count).sum::<usize>(), list.len());
    }
}

/// Adds a block as a whole if possible, and returns whether it was.
fn add_block(list: &mut List, items: &[u8], count: usize, limits: ListLimits) -> bool {
    let is_whole = list.push_block(items, count, limits);
    if !is_whole {
        Packed::of_items(items, count).iter().for_each(|item| list.push(End::Right, &item.text(), limits));
    }
    is_whole
}

#[test]
fn a_block_that_exceeds_the_limit_stays_together() {
    let limits = ListLimits::default();
    // One push of all elements counts only their bytes.
    let made = filled_at_once(600, 13, limits);
    let blocks: Vec<_> = made.blocks().collect();
    assert_eq!((blocks.len(), blocks[0].0.len()), (1, 9000));
    let mut list = List::new();
    for part in 1..4 {
        assert!(add_block(&mut list, blocks[0].0, 600, limits));
        assert_eq!((list.encoding(), list.node_count(), list.len()), ("quicklist", part, 600 * part));
    }
    assert!(list.blocks().all(|block| block == blocks[0]));
    list.push(End::Right, b"more", limits);
    assert_eq!(list.node_count(), 4);
    // Too long for any node, and too many for this limit.
    let long = Packed::of_items(&blocks[0].0.repeat(8), 4800);
    assert!(!add_block(&mut List::new(), long.items(), long.len(), limits));
    assert!(!add_block(&mut List::new(), blocks[0].0, 600, ListLimits::new(599)));
}

/// A list to which elements of this size were added by one push.
fn filled_at_once(count: usize, bytes: usize, limits: ListLimits) -> List {
    let (mut list, element) = (List::new(), vec![b'x'; bytes]);
    list.push_all(End::Right, std::iter::repeat_n(&element[..], count), limits);
    list
}

#[test]
fn a_block_is_added_like_its_elements() {
    let mut whole = 0;
    for seed in 0..if cfg!(miri) { 5 } else { 300 } {
        let random = &mut Random::new(seed);
        let limits = random.limits();
        // Full blocks, as another server writes them, and then a block of any length.
        let (mut blocks, mut last) = (List::new(), Packed::new());
        (0..random.below(if cfg!(miri) { 30 } else { 800 }))
            .for_each(|_| blocks.push(End::Right, &random.element(), limits));
        (0..random.below(10)).for_each(|_| {
            let element = random.element();
            // Longer blocks stay together.
            if !limits.exceeded(last.bytes() + element.len() + 8, last.len() + 1) {
                last.push_back(&element);
            }
        });
        let (mut by_blocks, mut by_elements) = (List::new(), List::new());
        for (items, count) in blocks.blocks().chain([(last.items(), last.len())]) {
            whole += usize::from(add_block(&mut by_blocks, items, count, limits));
            let elements = Packed::of_items(items, count);
            elements.iter().for_each(|item| by_elements.push(End::Right, &item.text(), limits));
            assert!(by_blocks.blocks().eq(by_elements.blocks()), "{seed}");
            assert_eq!(by_blocks.encoding(), by_elements.encoding());
            if let FormRef::Quick(quick) = by_blocks.view() {
                quick.check();
            }
        }
    }
    assert!(whole > if cfg!(miri) { 2 } else { 1000 }, "{whole}");
}
