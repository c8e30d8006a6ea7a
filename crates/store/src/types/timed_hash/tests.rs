use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::random::Random;

/// Value and expiry by field.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Returns one of few fields, so that they recur; some are integers, a few are long.
fn field(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => vec![b'x'; 9 + random.below(2)],
        n @ 1..20 => n.to_string().into_bytes(),
        n => format!("f{n}").into_bytes(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(60) {
        0 => vec![b'v'; [10, 253, 254, 300][random.below(4)]],
        n @ 1..20 => (n as i64 * 1_000_003 - 9_000_000).to_string().into_bytes(),
        n => vec![b'v'; n % 10],
    }
}

fn ttl(random: &mut Random, now_ms: u64) -> Ttl {
    match random.below(4) {
        0 => Ttl::Keep,
        1 => Ttl::Clear,
        _ => Ttl::At(now_ms + random.below(60) as u64),
    }
}

/// Returns the living fields of a model.
fn living(model: &Model, now_ms: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let alive = model.iter().filter(|(_, (_, expiry))| !is_due(*expiry, now_ms));
    alive.map(|(field, (value, _))| (field.clone(), value.clone())).collect()
}

fn scan_all(hash: Living<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut cursor, mut found) = (0, BTreeMap::new());
    loop {
        cursor = hash.scan(cursor, |field, value| found.extend([(field.to_vec(), value.to_vec())]));
        if cursor == 0 {
            return found;
        }
    }
}

fn check(hash: &TimedHash, model: &Model, now_ms: u64) {
    assert_eq!((hash.len(), hash.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(hash.timed_count(), model.values().filter(|(_, expiry)| expiry.is_some()).count());
    let earliest = model.values().filter_map(|(_, expiry)| *expiry).min();
    let next = hash.next_expiry();
    assert!(next.is_some() == earliest.is_some() && next <= earliest, "{next:?} {earliest:?}");
    let mut all = Model::new();
    hash.for_each(|field, value, expiry| _ = all.insert(field.to_vec(), (value.to_vec(), expiry)));
    assert_eq!(&all, model);
    let (alive, wanted) = (hash.living(now_ms), living(model, now_ms));
    assert_eq!((alive.len(), alive.is_empty()), (wanted.len(), wanted.is_empty()));
    let pairs: Vec<_> = alive.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    let mut visited = Vec::new();
    alive.for_each(|field, value| visited.push((field.to_vec(), value.to_vec())));
    assert!(pairs == visited && pairs.len() == wanted.len());
    assert_eq!(pairs.into_iter().collect::<BTreeMap<_, _>>(), wanted);
    assert_eq!(scan_all(alive), wanted);
}

fn change(hash: &mut TimedHash, model: &mut Model, limits: &HashLimits, random: &mut Random, now_ms: u64) {
    let field = field(random);
    for ahead in [Ahead::Value, Ahead::Bucket(&field), Ahead::Record(&field)] {
        hash.prefetch(ahead);
    }
    let known = model.get(&field).filter(|(_, expiry)| !is_due(*expiry, now_ms));
    let alive = hash.living(now_ms);
    assert_eq!((alive.contains(&field), alive.expiry(&field)), (known.is_some(), known.map(|(_, expiry)| *expiry)));
    assert_eq!(alive.get(&field).as_deref(), known.map(|(value, _)| value.as_slice()));
    assert_eq!(alive.value_len(&field), known.map(|(value, _)| value.len()));
    assert_eq!(hash.has_due(&field, now_ms), known.is_none() && model.contains_key(&field));
    match random.below(28) {
        0..8 => {
            let (value, ttl) = (value(random), ttl(random, now_ms));
            let expiry = after(ttl, model.get(&field).and_then(|(_, expiry)| *expiry));
            assert_eq!(hash.set(&field, &value, ttl, limits), model.insert(field, (value, expiry)).is_none());
        }
        8..14 => {
            let expiry = after(ttl(random, now_ms), None);
            hash.set_expiry(&field, expiry);
            model.entry(field).and_modify(|known| known.1 = expiry);
        }
        14..17 => assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
        17..20 => {
            let limit = random.below(6);
            let mut taken = Vec::new();
            let used = hash.take_due(now_ms, limit, |name| taken.push(name.to_vec()));
            assert!(used <= limit && taken.len() <= used);
            for name in taken {
                assert!(is_due(model.remove(&name).unwrap().1, now_ms));
            }
            if used < limit {
                assert!(model.values().all(|(_, expiry)| !is_due(*expiry, now_ms)));
            }
        }
        20 | 21 => {
            let wanted = living(model, now_ms);
            let picked = hash.living(now_ms).pick(&mut || random.next());
            assert!(picked.map_or(wanted.is_empty(), |(field, value)| wanted[&*field] == *value));
        }
        22 => *hash = hash.clone(),
        24..28 => {
            let at_ms = now_ms + random.below(60) as u64;
            let change = [ExpiryChange::Keep, ExpiryChange::Set(at_ms), ExpiryChange::Set(at_ms), ExpiryChange::Remove]
                [random.below(4)];
            let known = known.cloned();
            let mut seen = None;
            let found = hash.change_expiry(&field, now_ms, |value, before| {
                seen = Some((value.text().to_vec(), before));
                change
            });
            assert_eq!((found, seen), (known.is_some(), known));
            match change {
                ExpiryChange::Set(at_ms) if found => {
                    model.entry(field).and_modify(|known| known.1 = Some(at_ms));
                }
                ExpiryChange::Remove if found => {
                    model.remove(&field);
                }
                _ => {}
            }
        }
        _ => {
            let mut mover = Mover::new(&|_| true, 1000);
            let mut cursor = hash.compact(0, &mut mover);
            while cursor != 0 {
                cursor = hash.compact(cursor, &mut mover);
            }
        }
    }
}

/// Runs random operations with these limits, and expects to see exactly these forms.
fn behaves_like_a_map(limits: HashLimits, forms: &[&str]) {
    let mut seen = BTreeSet::new();
    for seed in 0..if cfg!(miri) { 4 } else { 200 } {
        let random = &mut Random::new(seed);
        let (mut hash, mut model, mut now_ms) = (TimedHash::new(), Model::new(), 1000);
        for _ in 0..random.below(if cfg!(miri) { 40 } else { 300 }) {
            change(&mut hash, &mut model, &limits, random, now_ms);
            now_ms += random.below(4) as u64;
            check(&hash, &model, now_ms);
            seen.insert(hash.encoding());
        }
    }
    assert!(seen.iter().eq(forms), "{seen:?}");
}

#[test]
fn a_block_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 1000, listpack_value: 1_000_000 }, &["listpackex"]);
}

#[test]
fn a_table_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 0, listpack_value: 0 }, &["hashtable", "listpackex"]);
}

#[test]
fn a_hash_in_any_form_behaves_like_a_map() {
    behaves_like_a_map(HashLimits { listpack_entries: 12, listpack_value: 9 }, &["hashtable", "listpackex"]);
}

#[test]
fn a_hash_keeps_its_fields_and_its_form() {
    let limits = HashLimits { listpack_entries: 2, listpack_value: 64 };
    for (count, form) in [(0, "listpackex"), (2, "listpackex"), (3, "hashtable"), (100, "hashtable")] {
        let mut hash = Hash::new();
        (0..count).for_each(|i: u32| _ = hash.insert(&i.to_le_bytes(), b"v", &limits));
        let memory = hash.memory_bytes();
        let mut timed = TimedHash::from(hash);
        assert_eq!((timed.len(), timed.encoding(), timed.next_expiry()), (count as usize, form, None));
        assert!((0..count).all(|i| timed.living(9).get(&i.to_le_bytes()).as_deref() == Some(&b"v"[..])));
        assert!(timed.memory_bytes() >= memory);
        timed.set_expiry(&0u32.to_le_bytes(), Some(5));
        assert_eq!(timed.next_expiry(), (count > 0).then_some(5));
    }
}

/// Changes a block of the fields a to d step by step: "a5" sets a's expiry, "a" removes it, "a=" sets its value. Then
/// compares the fields in order, with their times.
fn check_order(steps: &str, expected: &str) {
    let limits = HashLimits::default();
    let mut hash = TimedHash::new();
    [b"a", b"b", b"c", b"d"].iter().for_each(|field| _ = hash.set(*field, b"v", Ttl::Clear, &limits));
    for step in steps.split(' ') {
        let (field, rest) = step.as_bytes().split_at(1);
        match rest {
            b"=" => _ = hash.set(field, b"w", Ttl::Clear, &limits),
            b"+" => _ = hash.set(field, b"w", Ttl::Keep, &limits),
            time => hash.set_expiry(field, std::str::from_utf8(time).unwrap().parse().ok()),
        }
    }
    let mut order = Vec::new();
    hash.for_each(|field, _, expiry| {
        order.push(String::from_utf8_lossy(field).into_owned() + &expiry.map_or(String::new(), |at| at.to_string()));
    });
    assert_eq!(order.join(" "), expected, "{steps}");
}

#[test]
fn a_block_has_the_order_of_redis() {
    check_order("b5", "b5 a c d");
    check_order("b5 c5", "c5 b5 a d");
    check_order("b5 c7 d6", "b5 d6 c7 a");
    check_order("b5 c7 d6 c", "b5 d6 a c");
    check_order("a5 b6 a7", "b6 a7 c d");
    check_order("a5 b6 b4", "b4 a5 c d");
    check_order("a5 b6 a5", "a5 b6 c d");
    check_order("a5 b5 a5", "a5 b5 c d");
    check_order("a5 b6 a+", "a5 b6 c d");
    check_order("a5 b6 a=", "b6 c d a");
    check_order("a=", "a b c d");
    check_order("a5 b6 c7 d8 b9", "a5 c7 d8 b9");
}

#[test]
fn times_out_of_range_become_the_nearest_valid_time() {
    for limits in [HashLimits::default(), HashLimits { listpack_entries: 0, listpack_value: 0 }] {
        let mut hash = TimedHash::new();
        hash.set(b"f", b"v", Ttl::At(0), &limits);
        assert_eq!(hash.living(0).expiry(b"f"), Some(Some(1)));
        hash.set_expiry(b"f", Some(u64::MAX));
        assert_eq!(hash.living(0).expiry(b"f"), Some(Some(EXPIRY_MS_MAX)));
    }
}

#[test]
fn notes_of_fields_that_change_often_take_little_memory() {
    let limits = HashLimits { listpack_entries: 0, listpack_value: 0 };
    let mut hash = TimedHash::new();
    for i in 0..if cfg!(miri) { 300 } else { 20_000u64 } {
        hash.set(b"f", b"v", Ttl::At(1_000_000 - i), &limits);
        hash.set(b"f", b"v", Ttl::Clear, &limits);
    }
    assert!(hash.memory_bytes() < 5000, "{}", hash.memory_bytes());
}
