use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::random::Random;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns one of few fields, so that they recur; some are integers, a few are long.
fn field(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => vec![b'x'; 9 + random.below(2)],
        n @ 1..20 => n.to_string().into_bytes(),
        n => format!("f{n}").into_bytes(),
    }
}

/// Returns a value; a few have lengths that change the form of a length or the allocation.
fn value(random: &mut Random) -> Vec<u8> {
    match random.below(60) {
        0 => vec![b'v'; [10, 253, 254, 300, 70_000][random.below(5)]],
        n @ 1..20 => (n as i64 * 1_000_003 - 9_000_000).to_string().into_bytes(),
        n => vec![b'v'; n % 10],
    }
}

fn check(hash: &Hash, model: &Model) {
    assert_eq!((hash.len(), hash.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(hash.iter().len(), model.len());
    let pairs: Vec<_> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    let mut visited = Vec::new();
    hash.for_each(|field, value| visited.push((field.to_vec(), value.to_vec())));
    assert!(pairs == visited);
    assert_eq!(pairs.len(), model.len());
    assert!(&pairs.into_iter().collect::<Model>() == model);
}

/// Runs a whole iteration by cursor.
fn scan_all(hash: &Hash) -> Model {
    let (mut cursor, mut found) = (0, Model::new());
    loop {
        cursor = hash.scan(cursor, |field, value| found.extend([(field.to_vec(), value.to_vec())]));
        if cursor == 0 {
            return found;
        }
    }
}

fn change(hash: &mut Hash, model: &mut Model, limits: &HashLimits, random: &mut Random) {
    let field = field(random);
    let known = model.get(&field);
    for ahead in [Ahead::Value, Ahead::Bucket(&field), Ahead::Record(&field)] {
        hash.prefetch(ahead);
    }
    assert_eq!(hash.contains(&field), known.is_some());
    assert_eq!(hash.get(&field).as_deref(), known.map(Vec::as_slice));
    assert_eq!(hash.value_len(&field), known.map(Vec::len));
    match random.below(20) {
        0..12 => {
            let value = value(random);
            assert_eq!(hash.insert(&field, &value, limits), model.insert(field, value).is_none());
        }
        12..17 => assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
        17 => {
            let picked = hash.pick(&mut || random.next());
            assert!(picked.map_or(model.is_empty(), |(field, value)| model[&*field] == *value));
        }
        18 => assert!(&scan_all(hash) == model),
        _ => *hash = hash.clone(),
    }
}

/// Runs random operations with these limits, and expects to see exactly these forms.
fn behaves_like_a_map(limits: HashLimits, forms: &[&str]) {
    let mut seen = BTreeSet::new();
    for seed in 0..if cfg!(miri) { 4 } else { 200 } {
        let random = &mut Random::new(seed);
        let (mut hash, mut model) = (Hash::new(), Model::new());
        seen.insert(hash.encoding());
        for _ in 0..random.below(if cfg!(miri) { 40 } else { 200 }) {
            change(&mut hash, &mut model, &limits, random);
            check(&hash, &model);
            seen.insert(hash.encoding());
        }
    }
    assert!(seen.iter().eq(forms), "{seen:?}");
}

#[test]
fn a_block_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 1000, listpack_value: 1_000_000 }, &["listpack"]);
}

#[test]
fn a_table_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 0, listpack_value: 0 }, &["hashtable", "listpack"]);
}

#[test]
fn a_hash_in_any_form_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 12, listpack_value: 9 }, &["hashtable", "listpack"]);
}

const TINY: HashLimits = HashLimits { listpack_entries: 2, listpack_value: 5 };

/// Inserts pairs of words one by one, then compares the form and the pairs in order.
fn check_form(words: &str, form: &str, order: Option<&str>) {
    let mut hash = Hash::new();
    let words: Vec<_> = words.split(' ').collect();
    for pair in words.chunks(2) {
        hash.insert(pair[0].as_bytes(), pair[1].as_bytes(), &TINY);
    }
    assert_eq!(hash.encoding(), form, "{words:?}");
    if let Some(order) = order {
        let pairs: Vec<_> = hash.iter().map(|(field, value)| [&*field, &*value].join(&b' ')).collect();
        assert_eq!(String::from_utf8(pairs.join(&b' ')).unwrap(), order);
    }
}

#[test]
fn forms_change_where_redis_changes_them() {
    check_form("b 1 a 2", "listpack", Some("b 1 a 2"));
    check_form("b 1 a 2 b 3 a 1", "listpack", Some("b 3 a 1"));
    check_form("b 1 a 2 c 3", "hashtable", None);
    check_form("abcde abcde", "listpack", None);
    check_form("abcdef 1", "hashtable", None);
    check_form("a 123456", "hashtable", None);
    check_form("a 1 a 123456 a 1", "hashtable", Some("a 1"));
    // A value is not found as a field.
    check_form("a b b a", "listpack", Some("a b b a"));
}

fn check_prepared(expected: usize, longest: usize, form: &str) {
    let mut hash = Hash::new();
    hash.insert(b"a", b"1", &TINY);
    hash.prepare(expected, longest, &TINY);
    assert_eq!(hash.encoding(), form, "{expected} {longest}");
    assert_eq!(hash.get(b"a").as_deref(), Some(&b"1"[..]));
}

#[test]
fn preparing_chooses_the_form() {
    check_prepared(2, 5, "listpack");
    check_prepared(3, 5, "hashtable");
    check_prepared(2, 6, "hashtable");
}

#[test]
fn forms_do_not_change_back() {
    let mut hash = Hash::new();
    (0..9).for_each(|i| assert!(hash.insert(format!("f{i}").as_bytes(), b"v", &TINY)));
    (1..9).for_each(|i| assert!(hash.remove(format!("f{i}").as_bytes())));
    assert_eq!((hash.len(), hash.encoding()), (1, "hashtable"));
}

#[test]
fn memory_is_the_size_of_the_allocations() {
    let mut hash = Hash::new();
    assert_eq!(hash.memory_bytes(), 0);
    for i in 0..100 {
        hash.insert(format!("field:{i}").as_bytes(), &vec![b'v'; i * 10], &TINY);
    }
    for i in 0..100 {
        hash.insert(format!("field:{i}").as_bytes(), b"short", &TINY);
    }
    let Form::Table(fields) = &hash.0 else { panic!("{}", hash.encoding()) };
    // Two lengths, seven or eight bytes of name and five of value.
    assert_eq!(fields.bytes, 100 * 16);
    for i in 0..100 {
        assert!(hash.remove(format!("field:{i}").as_bytes()));
    }
    let Form::Table(fields) = &hash.0 else { panic!("{}", hash.encoding()) };
    assert_eq!(fields.bytes, 0);
}
