//! Compares streams with a sorted map, with limits so small that blocks constantly begin and disappear.

use std::collections::BTreeMap;

use super::*;
use crate::random::Random;

type Pairs = Vec<Vec<u8>>;

/// Random test data from a seed, so that a failure can be repeated.
trait Draw {
    fn text(&mut self) -> Vec<u8>;
    /// Mostly the same names, so that entries share them.
    fn fields(&mut self) -> Pairs;
    fn limits(&mut self) -> StreamLimits;
}

impl Draw for Random {
    fn text(&mut self) -> Vec<u8> {
        let len = if self.below(20) == 0 { self.below(300) } else { self.below(6) };
        vec![b'a' + self.below(26) as u8; len]
    }

    fn fields(&mut self) -> Pairs {
        if self.below(4) > 0 {
            return vec![b"name".to_vec(), self.text(), b"value".to_vec(), self.text()];
        }
        (0..2 * (1 + self.below(4))).map(|_| self.text()).collect()
    }

    fn limits(&mut self) -> StreamLimits {
        StreamLimits::new([0, 64, 300, 4096][self.below(4)], [0, 1, 2, 7, 100][self.below(5)])
    }
}

struct Pair {
    entries: Entries,
    model: BTreeMap<StreamId, Pairs>,
    max_deleted: StreamId,
    added: u64,
}

fn collect(entry: StreamEntry<'_>) -> (StreamId, Pairs) {
    (entry.id, entry.flat_map(|(field, value)| [field.to_vec(), value.to_vec()]).collect())
}

impl Pair {
    fn push(&mut self, random: &mut Random) {
        let last = self.entries.last_id;
        let id = match random.below(4) {
            0 => StreamId::new(last.ms + 1 + random.below(100_000) as u64, random.below(3) as u64),
            1 => StreamId::new(last.ms + 1, u64::MAX - random.below(2) as u64),
            _ => last.next().unwrap(),
        };
        let fields = random.fields();
        self.entries.push(id, fields.iter().map(Vec::as_slice), random.limits());
        self.model.insert(id, fields);
        self.added += 1;
    }

    /// Returns an ID that exists, or is near one.
    fn id(&self, random: &mut Random) -> StreamId {
        let ids: Vec<StreamId> = self.model.keys().copied().collect();
        let id = if ids.is_empty() { self.entries.last_id } else { ids[random.below(ids.len())] };
        match random.below(8) {
            0 => id.next().unwrap_or(id),
            1 => id.previous().unwrap_or(id),
            2 => StreamId::MIN,
            3 => StreamId::MAX,
            _ => id,
        }
    }

    fn remove(&mut self, id: StreamId) {
        let removed = self.model.remove(&id).is_some();
        assert_eq!(self.entries.remove(id), removed, "{id}");
        if removed {
            self.max_deleted = self.max_deleted.max(id);
        }
    }

    fn trim(&mut self, random: &mut Random) {
        let keep = match random.below(2) {
            0 => Keep::Last(random.below(self.model.len() + 2) as u64),
            _ => Keep::From(self.id(random)),
        };
        let whole_blocks = random.below(2) == 0;
        let limit = if whole_blocks { [0, 1, 10, 1000][random.below(4)] } else { 0 };
        let before = self.model.len();
        let (count, _) = self.entries.trim(Trim { keep, whole_blocks, limit });
        // With `whole_blocks`, exactly `count` of the first entries are removed, and never more than wanted.
        let is_wanted = |model: &BTreeMap<StreamId, Pairs>| match keep {
            Keep::Last(keep) => model.len() as u64 > keep,
            Keep::From(id) => model.keys().next().is_some_and(|first| *first < id),
        };
        while is_wanted(&self.model) && (!whole_blocks || before - self.model.len() < count as usize) {
            self.model.pop_first();
        }
        assert_eq!(before - self.model.len(), count as usize, "{keep:?}");
        assert!(limit == 0 || count <= limit);
    }

    fn check(&self, random: &mut Random) {
        assert_eq!(self.entries.len(), self.model.len() as u64);
        assert_eq!(self.entries.first_id(), self.model.keys().next().copied().unwrap_or_default());
        assert_eq!((self.entries.max_deleted_id, self.entries.entries_added), (self.max_deleted, self.added));
        let (from, to) = (self.id(random), self.id(random));
        let expected: Vec<_> = if from > to {
            Vec::new()
        } else {
            self.model.range(from..=to).map(|(id, fields)| (*id, fields.clone())).collect()
        };
        let range = || self.entries.range(from, to).map(collect);
        assert_eq!(range().collect::<Vec<_>>(), expected, "{from} to {to}");
        let mut reversed: Vec<_> = self.entries.range(from, to).rev().map(collect).collect();
        reversed.reverse();
        assert_eq!(reversed, expected, "backwards from {to} to {from}");
        self.check_both_ends(from, to, &expected, random);
        assert!(self.entries.blocks.values().all(|block| block.live > 0));
        let sealed: usize = self.entries.blocks.values().map(EntryBlock::allocated).sum();
        assert_eq!(self.entries.sealed_bytes, sealed);
    }

    fn check_both_ends(&self, from: StreamId, to: StreamId, expected: &[(StreamId, Pairs)], random: &mut Random) {
        let (mut left, mut right) = (0, expected.len());
        let mut range = self.entries.range(from, to);
        while left < right {
            if random.below(2) == 0 {
                assert_eq!(range.next().map(collect).as_ref(), Some(&expected[left]));
                left += 1;
            } else {
                right -= 1;
                assert_eq!(range.next_back().map(collect).as_ref(), Some(&expected[right]));
            }
        }
        assert!(range.next().is_none() && range.next_back().is_none());
    }
}

#[test]
fn a_stream_agrees_with_a_sorted_map_after_any_changes() {
    let (seeds, steps) = if cfg!(miri) { (3, 60) } else { (60, 400) };
    for seed in 1..=seeds {
        let mut random = Random::new(seed);
        let mut pair =
            Pair { entries: Entries::default(), model: BTreeMap::new(), max_deleted: StreamId::MIN, added: 0 };
        for _ in 0..steps {
            match random.below(20) {
                0 => pair.trim(&mut random),
                1..5 => {
                    let id = pair.id(&mut random);
                    pair.remove(id);
                }
                _ => pair.push(&mut random),
            }
            pair.check(&mut random);
        }
        let ids: Vec<StreamId> = pair.model.keys().copied().collect();
        ids.into_iter().rev().for_each(|id| pair.remove(id));
        assert_eq!((pair.entries.block_count(), pair.entries.sealed_bytes), (0, 0));
    }
}

fn filled(count: u64) -> Entries {
    let mut entries = Entries::default();
    for ms in 1..=count {
        let text = ms.to_string();
        let fields = [b"temperature", text.as_bytes(), b"humidity", b"50"];
        entries.push(StreamId::new(ms, 0), fields.into_iter(), StreamLimits::default());
    }
    entries
}

#[test]
fn entries_with_the_same_fields_take_little_more_than_their_values() {
    let entries = filled(100_000);
    let values = 5 + 2;
    let bytes_each = entries.memory_bytes() / 100_000;
    assert!(bytes_each <= values + 12, "{bytes_each} bytes each");
}

/// Returns the numbers of the first entries of the second and the third block in a stream of these entries, with only
/// Redis's limit on bytes.
fn block_starts(id: impl Fn(u64) -> StreamId, pairs: impl Fn(u64) -> Pairs) -> [u64; 2] {
    let (mut entries, mut starts) = (Entries::default(), [0; 2]);
    for n in 1.. {
        let fields = pairs(n);
        entries.push(id(n), fields.iter().map(Vec::as_slice), StreamLimits::new(4096, 0));
        match entries.block_count() {
            1 => {}
            2 if starts[0] == 0 => starts[0] = n,
            2 => {}
            _ => {
                starts[1] = n;
                break;
            }
        }
    }
    starts
}

#[test]
fn blocks_end_at_the_same_entries_as_in_redis() {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Pairs>();
    let by_1_ms = |n| StreamId::new(n, 1);
    let by_7_ms = |n| StreamId::new(1_795_453_820_547 + n * 7, 0);
    // Source: XINFO STREAM of redis-server 7.0.15.
    let number = |n: u64| texts(&["f", &n.to_string()]);
    assert_eq!(block_starts(by_1_ms, number), [362, 713]);
    assert_eq!(block_starts(by_7_ms, number), [353, 694]);
    let long = |len: usize| move |_| texts(&["f", &"x".repeat(len)]);
    assert_eq!(block_starts(by_1_ms, long(40)), [82, 163]);
    assert_eq!(block_starts(by_1_ms, long(100)), [37, 73]);
    assert_eq!(block_starts(by_1_ms, long(200)), [20, 39]);
    let alternate = |n: u64| match n % 2 {
        0 => texts(&["b", &"y".repeat(50), "c", "1"]),
        _ => texts(&["a", &"x".repeat(50)]),
    };
    assert_eq!(block_starts(by_7_ms, alternate), [63, 125]);
    let back = |n| StreamId::new(n, u64::MAX - n);
    assert_eq!(block_starts(back, |n| texts(&["-", &(-1i64 << (n % 64)).to_string(), "", "007"])), [190, 379]);
}

#[test]
fn deleted_entries_affect_the_ends_of_blocks_as_in_redis() {
    // Returns the number of the first entry in a second block after 300 entries, some of them deleted.
    let next_start = |entries: &mut Entries, deleted: u64| {
        let id = |seq| StreamId::new(1, seq);
        let add = |entries: &mut Entries, seq: u64, bytes_max: usize| {
            entries.push(id(seq), [&b"f"[..], b"v"].into_iter(), StreamLimits::new(bytes_max, 0));
            entries.block_count()
        };
        let from = entries.last_id.seq + 1;
        (from..from + 300).for_each(|seq| assert_eq!(add(entries, seq, 100_000), 1));
        (from..from + deleted).for_each(|seq| assert!(entries.remove(id(seq))));
        (from + 300..).find(|&seq| add(entries, seq, 4010) == 2).map(|seq| seq - from + 1)
    };
    let mut entries = Entries::default();
    assert_eq!(next_start(&mut entries, 0), Some(345));
    // The number of deleted entries takes one more byte. A new block starts with new counts.
    entries.trim(Trim { keep: Keep::Last(0), whole_blocks: false, limit: 0 });
    assert_eq!(next_start(&mut entries, 200), Some(344));
    let mut entries = entries.clone();
    entries.trim(Trim { keep: Keep::Last(0), whole_blocks: false, limit: 0 });
    assert_eq!(next_start(&mut entries, 0), Some(345));
}

#[test]
fn a_large_trim_returns_the_blocks_and_an_inexact_one_keeps_partial_blocks() {
    let mut entries = filled(100_000);
    let trim = |keep, whole_blocks, limit| Trim { keep: Keep::Last(keep), whole_blocks, limit };
    assert_eq!(entries.trim(trim(99_950, true, 0)).0, 0);
    assert_eq!(entries.trim(trim(99_850, true, 0)).0, 100);
    assert_eq!(entries.trim(trim(99_850, false, 0)).0, 50);
    assert_eq!(entries.trim(trim(0, true, 250)).0, 250);
    let (count, blocks) = entries.trim(trim(10, false, 0));
    assert_eq!((count, entries.len(), entries.block_count()), (99_590, 10, 1));
    assert_eq!(blocks.len(), 995);
    assert_eq!(entries.trim(trim(0, true, 0)).0, 10);
    assert_eq!((entries.memory_bytes(), entries.first_id()), (0, StreamId::MIN));
}

#[test]
fn a_block_with_deleted_entries_only_is_removed_by_a_trim() {
    let mut entries = filled(3);
    assert!(entries.remove(StreamId::new(3, 0)));
    let keep = Keep::From(StreamId::new(3, 0));
    assert_eq!(entries.trim(Trim { keep, whole_blocks: false, limit: 0 }).0, 2);
    assert_eq!((entries.len(), entries.block_count(), entries.first_id()), (0, 0, StreamId::MIN));
}

#[test]
fn an_id_after_a_reset_to_before_a_deleted_entry_is_found() {
    let mut entries = filled(5);
    entries.remove(StreamId::new(5, 0));
    (entries.last_id, entries.max_deleted_id) = (StreamId::new(4, 0), StreamId::new(1, 0));
    let again = StreamId::new(4, 1);
    entries.push(again, [&b"f"[..], b"v"].into_iter(), StreamLimits::default());
    assert!(entries.contains(again));
    let ids: Vec<u64> = entries.range(StreamId::new(4, 0), StreamId::new(4, 5)).map(|entry| entry.id.seq).collect();
    assert_eq!(ids, [0, 1]);
}

#[test]
fn ids_have_successors_and_predecessors() {
    let last = StreamId::new(5, u64::MAX);
    assert_eq!(last.next(), Some(StreamId::new(6, 0)));
    assert_eq!(StreamId::new(6, 0).previous(), Some(last));
    assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    assert_eq!(last.after(9), Some(StreamId::new(9, 0)));
    assert_eq!(last.after(5), Some(StreamId::new(6, 0)));
    assert_eq!(StreamId::MAX.after(5), None);
}

#[test]
fn a_pending_entry_belongs_to_one_consumer() {
    let mut group = Group::new(StreamId::MIN, None);
    assert!(group.add_consumer(b"a", 1) && group.add_consumer(b"b", 1) && !group.add_consumer(b"a", 2));
    let (first, second) = (StreamId::new(1, 0), StreamId::new(2, 0));
    let pending = |group: &Group| {
        let of = |name: &[u8]| group.consumer(name).map(|c| c.pending().len());
        (group.pending().len(), of(b"a"), of(b"b"))
    };
    group.deliver(first, b"a", Delivery { at_ms: 5, deliveries: 1 });
    group.deliver(second, b"a", Delivery { at_ms: 5, deliveries: 1 });
    group.deliver(first, b"b", Delivery { at_ms: 6, deliveries: 2 });
    assert_eq!(pending(&group), (2, Some(1), Some(1)));
    group.deliver(first, b"missing", Delivery { at_ms: 6, deliveries: 2 });
    assert!(group.acknowledge(first) && !group.acknowledge(first));
    assert_eq!(pending(&group), (1, Some(1), Some(0)));
    assert_eq!((group.remove_consumer(b"a"), group.remove_consumer(b"a")), (Some(1), None));
    assert_eq!(pending(&group), (0, None, Some(0)));
}

/// Checks that the order survives every kind of change, and takes memory only after its first use.
#[test]
fn pending_entries_are_ordered_by_age() {
    let ids: Vec<StreamId> = (1..=6).map(|ms| StreamId::new(ms, 0)).collect();
    let mut rng = Random::new(7);
    let mut group = Group::new(StreamId::MIN, None);
    assert!(group.add_consumer(b"a", 1) && group.add_consumer(b"b", 1));
    let delivery = |rng: &mut Random| Delivery { at_ms: rng.below(4) as u64, deliveries: 1 };
    ids.iter().for_each(|id| group.deliver(*id, b"a", delivery(&mut rng)));
    let before = group.memory_bytes();
    assert_eq!(group.by_delivery().count(), 6);
    assert!(group.memory_bytes() > before);
    for turn in 0..500 {
        let id = ids[rng.below(ids.len())];
        match rng.below(20) {
            0 => {
                group.remove_consumer(b"b");
                group.add_consumer(b"b", 1);
            }
            1..5 => {
                group.acknowledge(id);
            }
            5..9 => {
                group.deliver_again(id, rng.below(4) as u64);
            }
            _ => group.deliver(id, if rng.below(2) == 0 { b"a" } else { b"b" }, delivery(&mut rng)),
        }
        let mut expected: Vec<_> = group.pending().iter().map(|(id, pending)| (pending.delivered_ms, *id)).collect();
        expected.sort_unstable();
        let got: Vec<_> = group.by_delivery().map(|(id, pending)| (pending.delivered_ms, id)).collect();
        assert_eq!(got, expected, "turn {turn}");
    }
}

#[test]
fn blocks_hold_all_entries_and_end_on_request() {
    let mut entries = Entries::default();
    for number in 1..=30u64 {
        if number % 7 == 0 {
            entries.end_block();
        }
        entries.push(StreamId::new(1, number), [&b"a"[..], b"1"].into_iter(), StreamLimits::new(0, 0));
    }
    entries.remove(StreamId::new(1, 7));
    let blocks: Vec<_> = entries.blocks().map(|block| (block.first.seq, block.len)).collect();
    assert_eq!(blocks, [(1, 6), (7, 6), (14, 7), (21, 7), (28, 3)]);
    assert_eq!(entries.block_count(), 5);
    assert!(entries.blocks().all(|block| block.entries.count() == block.len));
    let all: Vec<_> = entries.blocks().flat_map(|block| block.entries.map(|entry| entry.id)).collect();
    assert!(entries.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).eq(all));
}

#[test]
fn entries_of_stored_blocks_equal_added_ones() {
    let limits = StreamLimits::new(0, 0);
    for seed in 0..200 {
        let random = &mut Random::new(seed);
        let (mut added, mut loaded) = (Entries::default(), Entries::default());
        let mut id = StreamId::new(5, 3);
        for _ in 0..random.below(40) {
            id = if random.below(2) == 0 { StreamId::new(id.ms, id.seq + 1) } else { StreamId::new(id.ms + 200, 1) };
            let values = [0; 2].map(|_| vec![b'1'; random.below(3) * random.below(90)]);
            let field: &[u8] = if random.below(10) == 0 { b"other" } else { b"a" };
            let pairs = [field, &*values[0], b"b", &*values[1]];
            added.push(id, pairs.into_iter(), limits);
            let write = |out: &mut Values<'_>| {
                values.iter().for_each(|value| out.push(value));
                Some(())
            };
            let is_like_first =
                loaded.first().is_some_and(|mut first| first.next().is_some_and(|(name, _)| name == field));
            // An abandoned entry leaves nothing.
            assert!(!loaded.push_values(id, |out| write(out).and(None)));
            if !is_like_first || !loaded.push_values(id, write) {
                loaded.push(id, pairs.into_iter(), limits);
            }
        }
        let all = |entries: &Entries| {
            let texts =
                |entry: StreamEntry<'_>| (entry.id, entry.map(|(f, v)| [f, v].map(<[u8]>::to_vec)).collect::<Vec<_>>());
            let (from, to) = (StreamId::MIN, StreamId::MAX);
            let back = entries.range(from, to).rev().map(|entry| entry.id).collect::<Vec<_>>();
            (entries.range(from, to).map(texts).collect::<Vec<_>>(), back)
        };
        assert_eq!(all(&loaded), all(&added), "{seed}");
        assert_eq!((loaded.len(), loaded.last_id), (added.len(), added.last_id));
        // New entries end the block at the same place, and deleted ones don't matter.
        let listpack = |entries: &Entries| entries.tail_listpack.unwrap_or_else(|| entries.tail.listpack_bytes());
        let size = |entries: &Entries| listpack(entries).with_counts(entries.tail.live, entries.tail.dead);
        assert!(added.is_empty() || size(&loaded) == size(&added), "{seed}");
        if let Some(first) = added.first().map(|entry| entry.id).filter(|_| added.len() > 1) {
            assert!(added.remove(first) && loaded.remove(first));
            assert_eq!(
                (size(&loaded), listpack(&added).with_counts(0, 0)),
                (size(&added), loaded.tail.listpack_bytes().with_counts(0, 0))
            );
        }
        // A limit that is exactly reached.
        let limits = StreamLimits::new(size(&added) + 4, 0);
        for entries in [&mut added, &mut loaded] {
            (1..=2).for_each(|ms| {
                entries.push(StreamId::new(id.ms + ms, 1), [&b"a"[..], b"1", b"b", b"2"].into_iter(), limits)
            });
        }
        assert_eq!(loaded.block_count(), added.block_count(), "{seed}");
    }
}
