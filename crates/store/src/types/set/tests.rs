use std::collections::BTreeSet;

use super::*;
use crate::random::Random;

type Model = BTreeSet<Vec<u8>>;

/// Returns one of few members, so that they recur; some are strings, a few are long.
fn member(random: &mut Random, words_per_cent: usize) -> Vec<u8> {
    if random.below(100) >= words_per_cent {
        return (random.below(30) as i64 - 5).to_string().into_bytes();
    }
    match random.below(4) {
        0 => vec![b'x'; 9 + random.below(2)],
        1 => format!("0{}", random.below(9)).into_bytes(),
        _ => format!("w{}", random.below(20)).into_bytes(),
    }
}

fn check(set: &Set, model: &Model) {
    assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(set.iter().len(), model.len());
    let members: Vec<Vec<u8>> = set.iter().map(|member| member.to_vec()).collect();
    let mut visited = Vec::new();
    set.for_each(|member| visited.push(member.to_vec()));
    assert_eq!(members, visited);
    assert_eq!(members.len(), model.len());
    assert_eq!(&members.into_iter().collect::<Model>(), model);
    if let Some(ints) = set.ints() {
        assert!(ints.iter().is_sorted());
    }
}

/// Runs a whole iteration by cursor.
fn scan_all(set: &Set) -> Model {
    let (mut cursor, mut found) = (0, Model::new());
    loop {
        cursor = set.scan(cursor, |member| found.extend([member.to_vec()]));
        if cursor == 0 {
            return found;
        }
    }
}

fn change(set: &mut Set, model: &mut Model, limits: &SetLimits, words: usize, random: &mut Random) {
    let member = member(random, words);
    for ahead in [Ahead::Value, Ahead::Bucket(&member), Ahead::Record(&member)] {
        set.prefetch(ahead);
    }
    assert_eq!(set.contains(&member), model.contains(&member));
    match random.below(20) {
        0..11 => assert_eq!(set.insert(&member, limits), model.insert(member)),
        11..15 => assert_eq!(set.remove(&member), model.remove(&member)),
        15 => {
            let popped = set.pop(&mut || random.next());
            assert_eq!(popped.is_some(), !model.is_empty());
            assert!(popped.is_none_or(|member| model.remove(&member)));
        }
        16 => {
            let picked = set.pick(&mut || random.next());
            assert!(picked.map_or(model.is_empty(), |member| model.contains(&*member)));
        }
        17 => assert_eq!(&scan_all(set), model),
        18 => *set = set.clone(),
        _ => set.compact_ints(limits),
    }
}

/// Runs random operations with these limits and this percentage of words, on sets of all sizes, and expects to see
/// exactly these forms.
fn behaves_like_a_set(limits: SetLimits, words_per_cent: usize, forms: &[&str]) {
    let mut seen = BTreeSet::new();
    for seed in 0..if cfg!(miri) { 4 } else { 200 } {
        let random = &mut Random::new(seed);
        let (mut set, mut model) = (Set::new(), Model::new());
        seen.insert(set.encoding());
        for _ in 0..random.below(if cfg!(miri) { 40 } else { 200 }) {
            change(&mut set, &mut model, &limits, words_per_cent, random);
            check(&set, &model);
            seen.insert(set.encoding());
        }
    }
    assert!(seen.iter().eq(forms), "{seen:?}");
}

#[test]
fn integers_behave_like_a_set() {
    behaves_like_a_set(SetLimits::default(), 0, &["intset"]);
}

#[test]
fn a_block_behaves_like_a_set() {
    behaves_like_a_set(SetLimits { intset_entries: 0, ..SetLimits::default() }, 100, &["intset", "listpack"]);
}

#[test]
fn a_table_behaves_like_a_set() {
    let limits = SetLimits { intset_entries: 0, listpack_entries: 0, listpack_value: 0 };
    behaves_like_a_set(limits, 50, &["hashtable", "intset"]);
}

#[test]
fn a_set_in_any_form_behaves_like_a_set() {
    let limits = SetLimits { intset_entries: 8, listpack_entries: 12, listpack_value: 9 };
    behaves_like_a_set(limits, 10, &["hashtable", "intset", "listpack"]);
}

const TINY: SetLimits = SetLimits { intset_entries: 4, listpack_entries: 3, listpack_value: 5 };

/// Returns a set with these words, inserted one by one.
fn set_of(words: &str, limits: &SetLimits) -> Set {
    let mut set = Set::new();
    for word in words.split_whitespace() {
        set.insert(word.as_bytes(), limits);
    }
    set
}

/// Inserts words one by one, then compares the form and the members in order.
fn check_form(words: &str, form: &str, order: Option<&str>) {
    let set = set_of(words, &TINY);
    assert_eq!(set.encoding(), form, "{words}");
    if let Some(order) = order {
        let members: Vec<_> = set.iter().map(|member| String::from_utf8(member.to_vec()).unwrap()).collect();
        assert_eq!(members.join(" "), order);
    }
}

#[test]
fn forms_change_where_redis_changes_them() {
    check_form("3 1 2 4", "intset", Some("1 2 3 4"));
    check_form("3 1 2 4 4", "intset", Some("1 2 3 4"));
    check_form("3 1 2 4 5", "hashtable", None);
    check_form("3 -1 a", "listpack", Some("-1 3 a"));
    check_form("3 1 2 a", "hashtable", None);
    check_form("b 10 a", "listpack", Some("b 10 a"));
    check_form("b 10 a b 10", "listpack", Some("b 10 a"));
    check_form("b 10 a c", "hashtable", None);
    check_form("b abcde", "listpack", Some("b abcde"));
    check_form("b abcdef", "hashtable", None);
    check_form("1 abcdef", "hashtable", None);
    check_form("123456 a", "hashtable", None);
    check_form("-12345 a", "hashtable", None);
    check_form("12345 a", "listpack", Some("12345 a"));
    check_form("1 +1 01", "listpack", Some("1 +1 01"));
    check_form("-0", "listpack", None);
}

#[test]
fn forms_do_not_change_back() {
    let mut set = Set::with_first(b"word", 1, &TINY);
    assert!(!set.insert(b"word", &TINY));
    for round in 0..20 {
        set.insert(format!("w{round}").as_bytes(), &TINY);
    }
    let random = &mut Random::new(0);
    while set.len() > 1 {
        set.pop(&mut || random.next());
    }
    assert_eq!(set.encoding(), "hashtable");
}

fn check_prepared(before: &str, first: &str, expected: usize, form: &str) {
    let mut set = set_of(before, &TINY);
    set.prepare(first.as_bytes(), expected, &TINY);
    assert_eq!(set.encoding(), form, "{before:?} {first} {expected}");
    assert_eq!(set.len(), before.split_whitespace().count());
}

#[test]
fn preparing_chooses_the_form() {
    check_prepared("", "1", 4, "intset");
    check_prepared("", "1", 5, "hashtable");
    check_prepared("", "a", 3, "listpack");
    check_prepared("", "a", 4, "hashtable");
    check_prepared("1 2", "a", 4, "intset");
    check_prepared("1 2", "3", 5, "hashtable");
    check_prepared("a 2", "3", 3, "listpack");
    check_prepared("a 2", "3", 4, "hashtable");
    let narrow = SetLimits { intset_entries: 1, ..TINY };
    let mut set = Set::new();
    set.prepare(b"1", 2, &narrow);
    assert_eq!(set.encoding(), "listpack");
}

fn check_compacted(words: &str, form: &str) {
    let limits = SetLimits { intset_entries: 1, ..TINY };
    let mut set = set_of(words, &limits);
    let before: BTreeSet<_> = set.iter().map(|member| member.to_vec()).collect();
    set.compact_ints(&TINY);
    assert_eq!(set.encoding(), form, "{words}");
    assert_eq!(set.iter().map(|member| member.to_vec()).collect::<BTreeSet<_>>(), before);
}

#[test]
fn only_integers_can_be_compacted() {
    check_compacted("3 1 2 4", "intset");
    check_compacted("3 1 2 4 5", "hashtable");
    check_compacted("3 1 2 x", "hashtable");
    check_compacted("x 1", "listpack");
}

#[test]
#[cfg_attr(miri, ignore = "it is about chance, and takes Miri long")]
fn picks_are_even() {
    let random = &mut Random::new(1);
    for words in ["1 2 3 4", "a b c", "a b c d e f g"] {
        let set = set_of(words, &TINY);
        let rounds = if cfg!(miri) { 100 } else { 2000 };
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..rounds * set.len() {
            *counts.entry(set.pick(&mut || random.next()).unwrap().to_vec()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), set.len());
        assert!(counts.values().all(|&count| count > rounds / 2 && count < rounds * 2), "{counts:?}");
    }
}

#[test]
fn memory_is_the_size_of_the_allocations() {
    let mut set = Set::new();
    assert_eq!(set.memory_bytes(), 0);
    set.insert(b"1", &TINY);
    assert_eq!(set.memory_bytes(), 16);
    for i in 0..100 {
        set.insert(format!("member:{i}").as_bytes(), &TINY);
    }
    let Form::Table(members) = &set.0 else { panic!("{}", set.encoding()) };
    // A length and eight or nine bytes take sixteen bytes, and the "1" takes eight.
    assert_eq!(members.bytes, 100 * 16 + 8);
    assert!(set.memory_bytes() > members.bytes + 100 * 8);
    for i in 0..100 {
        assert!(set.remove(format!("member:{i}").as_bytes()));
    }
    assert!(set.remove(b"1"));
    let Form::Table(members) = &set.0 else { panic!("{}", set.encoding()) };
    assert_eq!(members.bytes, 0);
}
