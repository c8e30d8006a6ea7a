use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::hash::ItemHash;

/// The simplest record: a boxed key.
struct Word(Box<Box<[u8]>>);

// SAFETY: a Box of a fat box is aligned to eight, and the key never changes.
unsafe impl Record for Word {
    type Hash = crate::hash::ItemHash;

    fn into_raw(self) -> NonNull<u8> {
        NonNull::from(Box::leak(self.0)).cast()
    }
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: the caller's promise.
        Word(unsafe { Box::from_raw(raw.as_ptr().cast()) })
    }
    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { &*raw.as_ptr().cast::<Box<[u8]>>() }
    }
}

fn word(key: &str) -> Word {
    Word(Box::new(key.as_bytes().into()))
}

fn text(word: &Word) -> String {
    String::from_utf8(word.0.to_vec()).unwrap()
}

fn insert(table: &mut Table<Word>, key: &str) {
    table.insert(ItemHash::of(key.as_bytes()), word(key));
}

fn has(table: &Table<Word>, key: &str) -> bool {
    table.find(ItemHash::of(key.as_bytes()), key.as_bytes()).is_some()
}

fn remove(table: &mut Table<Word>, key: &str) -> bool {
    table.remove(ItemHash::of(key.as_bytes()), key.as_bytes()).is_some()
}

/// Small under Miri, which is slow; otherwise large enough for several growths.
const MANY: usize = if cfg!(miri) { 300 } else { 20_000 };

#[test]
fn inserted_records_are_found_and_removed_ones_are_not() {
    let mut table = Table::new();
    for i in 0..MANY {
        insert(&mut table, &format!("key:{i}"));
        assert!(has(&table, &format!("key:{}", i / 2)));
    }
    assert_eq!(table.len(), MANY);
    for i in (0..MANY).step_by(2) {
        assert!(remove(&mut table, &format!("key:{i}")));
        assert!(!remove(&mut table, &format!("key:{i}")));
    }
    for i in 0..MANY {
        assert_eq!(has(&table, &format!("key:{i}")), i % 2 == 1);
    }
    assert_eq!(table.iter().count(), MANY / 2);
}

#[test]
fn random_operations_agree_with_a_set() {
    let mut table = Table::new();
    let mut model = BTreeSet::new();
    let mut state = 7u64;
    for step in 0..MANY * 3 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("{}", (state >> 33) % (MANY as u64 / 4));
        // Long phases of growth and of shrinking alternate.
        let grow = (step / (MANY / 2)).is_multiple_of(2);
        if (state >> 20) % 4 < if grow { 3 } else { 1 } {
            if !has(&table, &key) {
                insert(&mut table, &key);
            }
            model.insert(key);
        } else {
            assert_eq!(remove(&mut table, &key), model.remove(&key));
        }
        assert_eq!(table.len(), model.len());
    }
    let seen: BTreeSet<String> = table.iter().map(|w| text(&w)).collect();
    assert_eq!(seen, model);
}

#[test]
fn a_scan_returns_all_lasting_records_while_the_table_grows_and_shrinks() {
    for grow in [true, false] {
        let mut table = Table::new();
        let stay: Vec<String> = (0..MANY / 10).map(|i| format!("stay:{i}")).collect();
        stay.iter().for_each(|k| insert(&mut table, k));
        if !grow {
            (0..MANY).for_each(|i| insert(&mut table, &format!("extra:{i}")));
        }
        let mut seen = HashSet::new();
        let (mut cursor, mut step) = (0, 0);
        loop {
            cursor = table.scan(cursor, |w| {
                seen.insert(text(w));
            });
            if cursor == 0 {
                break;
            }
            for _ in 0..20 {
                let key = format!("extra:{step}");
                if grow && step < MANY {
                    insert(&mut table, &key);
                } else if !grow {
                    remove(&mut table, &key);
                }
                step += 1;
            }
        }
        assert!(stay.iter().all(|k| seen.contains(k)), "grow: {grow}");
    }
}

#[test]
fn a_table_of_any_size_takes_little_beyond_its_records() {
    let per_record = |table: &Table<Word>| table.memory_bytes() as f64 / table.len() as f64;
    let mut table = Table::new();
    for i in 0..MANY {
        insert(&mut table, &format!("key:{i}"));
        // In a small table an unused part of a segment has too much weight.
        if i > MANY / 2 {
            assert!(per_record(&table) < 15.5, "{} of {i}", per_record(&table));
        }
    }
    for i in 0..MANY / 2 {
        remove(&mut table, &format!("key:{i}"));
        assert!(per_record(&table) < 30.0, "{} after {i}", per_record(&table));
    }
    for i in MANY / 2..MANY {
        remove(&mut table, &format!("key:{i}"));
    }
    assert_eq!(table.memory_bytes(), 0);
}

#[test]
fn a_tag_tells_a_buckets_records_apart_at_any_size() {
    let mut table = Table::new();
    for i in 0..MANY {
        insert(&mut table, &format!("key:{i}"));
        if (i + 1).is_power_of_two() || (i + 1) % 1000 == 0 {
            let mut alike = 0;
            for index in 0..table.buckets.len() {
                let mut tags = Vec::new();
                Table::<Word>::visit_chain(table.bucket(index), &mut |slot| tags.push(slot.tag()));
                tags.sort_unstable();
                alike += tags.windows(2).filter(|pair| pair[0] == pair[1]).count();
            }
            // In the worst case the window has one bit left for splits, and seven bits tell the records apart.
            assert!(alike <= 1 + i / 16, "{alike} of {i}");
        }
    }
}

#[test]
fn prefetches_find_records_in_chains() {
    let mut table = Table::new();
    (0..MANY).for_each(|i| insert(&mut table, &format!("key:{i}")));
    let mut right = 0;
    for key in (0..MANY).map(|i| format!("key:{i}")) {
        let candidate = table.peek_candidate(ItemHash::of(key.as_bytes())).map(|found| text(&found));
        right += usize::from(candidate == Some(key));
    }
    // Some candidates are other records with the same tag.
    assert!(
        table.buckets.chained as usize > MANY / 100 && right > MANY * 97 / 100,
        "{right} of {MANY}, {} chains",
        table.buckets.chained
    );
}

#[test]
fn a_table_with_capacity_does_not_grow() {
    for count in [1, 5, 6, 40, 47, 300, MANY] {
        let mut table = Table::with_capacity(count);
        let buckets = table.buckets.len();
        (0..count).for_each(|i| insert(&mut table, &format!("{i}")));
        assert_eq!(table.buckets.len(), buckets);
        assert!((0..count).all(|i| has(&table, &format!("{i}"))));
        (0..count).for_each(|i| assert!(remove(&mut table, &format!("{i}"))));
    }
}

#[test]
fn picks_are_even() {
    let mut table = Table::new();
    let count = 50;
    (0..count).for_each(|i| insert(&mut table, &format!("{i}")));
    let mut state = 3u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    let rounds = if cfg!(miri) { 200 } else { 50_000 };
    let mut seen = vec![0; count];
    for _ in 0..rounds {
        seen[text(&table.pick(&mut random).unwrap()).parse::<usize>().unwrap()] += 1;
    }
    if !cfg!(miri) {
        let fair = rounds / count;
        assert!(seen.iter().all(|&n| n > fair * 7 / 10 && n < fair * 13 / 10), "{seen:?}");
    }
}

#[test]
fn a_record_can_be_replaced_in_place() {
    let mut table = Table::new();
    insert(&mut table, "a");
    {
        let mut found = table.find_mut(ItemHash::of(b"a"), b"a").unwrap();
        *found = word("a");
    }
    assert!(has(&table, "a"));
    table.clear();
    assert!(table.is_empty() && !has(&table, "a"));
}
