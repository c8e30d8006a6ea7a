use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::compact::Mover;
use crate::db::evict::Order;
use crate::db::{Access, Clock, Db, SideEffects, Ttl};
use crate::entry::View;
use crate::frequency::Frequency;
use crate::keyspace::{Key, Shards, never};
use crate::random::Random;
use crate::types::hash::{Hash, HashLimits};
use crate::types::list::{End, List, ListLimits};
use crate::types::set::{Set, SetLimits};
use crate::types::stream::{Stream, StreamId, StreamLimits};
use crate::types::suggestions::Suggestions;
use crate::types::timed_hash::TimedHash;
use crate::types::zset::{ZSet, ZSetLimits};
use crate::value::{Type, Value};

const DATABASES: usize = 3;
/// Keys of the histories, all in few shards, so that their tables grow and shrink.
const NAMES: usize = if cfg!(miri) { 24 } else { 400 };
const SHARDS_USED: usize = 2;
/// Limits of small collections.
const HASH: HashLimits = HashLimits { listpack_entries: 4, listpack_value: 64 };
const SET: SetLimits = SetLimits { intset_entries: 4, listpack_entries: 4, listpack_value: 64 };
const ZSET: ZSetLimits = ZSetLimits { entries_max: 4, member_bytes_max: 64 };

/// Limits for lists with few elements per node.
fn limits_of_lists() -> ListLimits {
    ListLimits::new(3)
}

/// The saved content of all keys, by database and name.
type Picture = BTreeMap<(usize, Vec<u8>), Shown>;

/// An entry's value and expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    value: String,
    expiry: Option<u64>,
}

/// Formats a field of a hash with its value and expiry.
fn text_of_field(field: &str, value: &str, expiry: Option<u64>) -> String {
    format!("{field}={value}{}", expiry.map_or(String::new(), |at| format!("@{at}")))
}

fn text_of_suggestion(text: &[u8], score: f32, payload: Option<&[u8]>) -> String {
    format!("{} {score} {payload:?}", String::from_utf8_lossy(text))
}

fn shown(entry: &Entry) -> Shown {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let sorted = |mut parts: Vec<String>| {
        parts.sort_unstable();
        parts.join(" ")
    };
    let value = match entry.view() {
        View::Int(int) => format!("int {int}"),
        View::Bytes(bytes) => text(bytes),
        View::Object(Value::Str(long)) => text(long),
        View::Object(Value::Hash(hash)) => sorted(hash.iter().map(|(f, v)| text(&f) + "=" + &text(&v)).collect()),
        View::Object(Value::TimedHash(hash)) => {
            let mut parts = Vec::new();
            hash.for_each(|field, value, expiry| parts.push(text_of_field(&text(field), &text(value), expiry)));
            sorted(parts)
        }
        View::Object(Value::Set(set)) => sorted(set.iter().map(|member| text(&member)).collect()),
        View::Object(Value::ZSet(zset)) => {
            sorted(zset.iter().map(|(m, score)| text(&m) + &score.to_string()).collect())
        }
        View::Object(Value::List(list)) => list.iter().map(|e| text(&e.to_vec()) + " ").collect(),
        View::Object(Value::Stream(stream)) => format!("{:?} {}", stream.entries.last_id, stream.entries.len()),
        View::Object(Value::Suggestions(suggestions)) => {
            let mut parts = Vec::new();
            suggestions.for_each(|found| parts.push(text_of_suggestion(found.text, found.score, found.payload)));
            sorted(parts)
        }
    };
    Shown { value: format!("{} {value}", entry.kind().name()), expiry: entry.expiry() }
}

/// Everything that the sinks of a snapshot have received.
#[derive(Default)]
struct Taken {
    picture: Picture,
    /// Keys that came more than once.
    repeated: Vec<(usize, Vec<u8>)>,
    finished: BTreeSet<usize>,
    /// Number of collections that were saved in pieces.
    in_pieces: usize,
}

struct Collecting {
    shard: usize,
    taken: Arc<Mutex<Taken>>,
    is_full: Arc<AtomicBool>,
}

/// A collection that is being saved.
struct InPieces {
    place: (usize, Vec<u8>),
    kind: Type,
    expiry: Option<u64>,
    len: usize,
    parts: Vec<String>,
    taken: Arc<Mutex<Taken>>,
    is_full: Arc<AtomicBool>,
}

impl ElementSink for InPieces {
    fn element(&mut self, element: Element<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.parts.push(match element {
            Element::Member(member) => text(member),
            Element::Field(field, value, expiry) => text_of_field(&text(field), &text(value), expiry),
            Element::Scored(member, score) => text(member) + &score.to_string(),
            Element::Item(item) => text(&item.to_vec()) + " ",
            Element::Suggestion(text, score, payload) => text_of_suggestion(text, score, payload),
        });
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn end(mut self: Box<Self>) {
        assert_eq!(self.parts.len(), self.len, "{:?}", self.place);
        let value = if self.kind == Type::List {
            self.parts.concat()
        } else {
            self.parts.sort_unstable();
            self.parts.join(" ")
        };
        let mut taken = self.taken.lock().unwrap();
        taken.in_pieces += 1;
        taken.add(self.place, Shown { value: format!("{} {value}", self.kind.name()), expiry: self.expiry });
    }
}

impl Taken {
    fn add(&mut self, place: (usize, Vec<u8>), shown: Shown) {
        if self.picture.insert(place.clone(), shown).is_some() {
            self.repeated.push(place);
        }
    }
}

fn len(entry: &Entry) -> usize {
    match entry.view() {
        View::Object(Value::Hash(hash)) => hash.len(),
        View::Object(Value::TimedHash(hash)) => hash.len(),
        View::Object(Value::Set(set)) => set.len(),
        View::Object(Value::ZSet(zset)) => zset.len(),
        View::Object(Value::List(list)) => list.len(),
        View::Object(Value::Suggestions(suggestions)) => suggestions.len(),
        _ => panic!("not in pieces"),
    }
}

impl Sink for Collecting {
    fn entry(&mut self, database: usize, entry: &Entry) {
        let mut taken = self.taken.lock().unwrap();
        assert!(!taken.finished.contains(&self.shard), "an entry after `finish`");
        taken.add((database, entry.key().to_vec()), shown(entry));
    }

    fn begin(&mut self, database: usize, entry: &Entry) -> Box<dyn ElementSink> {
        Box::new(InPieces {
            place: (database, entry.key().to_vec()),
            kind: entry.kind(),
            expiry: entry.expiry(),
            len: len(entry),
            parts: Vec::new(),
            taken: self.taken.clone(),
            is_full: self.is_full.clone(),
        })
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn finish(&mut self) {
        assert!(self.taken.lock().unwrap().finished.insert(self.shard), "a second `finish`");
    }
}

/// A running snapshot and its expected result.
pub(crate) struct SnapshotRun {
    snapshot: Snapshot,
    taken: Arc<Mutex<Taken>>,
    is_full: Arc<AtomicBool>,
    wanted: Picture,
    /// The shards that have a sink: those that may have had keys at the cut.
    sinks: BTreeSet<usize>,
}

/// Returns all entries, expired or not.
fn picture(keyspace: &Keyspace) -> Picture {
    let mut all = Picture::new();
    with(keyspace, 0, 0, |db| {
        for database in 0..DATABASES {
            let (mut db, mut cursor) = (db.other(database), 0);
            loop {
                cursor = db.scan(cursor, 1000, |entry| _ = all.insert((database, entry.key().to_vec()), shown(entry)));
                if cursor == 0 {
                    break;
                }
            }
        }
    });
    all
}

fn with<T>(keyspace: &Keyspace, database: usize, now_ms: u64, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> T {
    let frequency = (now_ms % 2 == 1).then_some(Frequency { minutes: 1, log_factor: 0, decay_minutes: 1, seed: 0 });
    let clock = Clock {
        now_ms,
        due_ms: now_ms,
        uptime_s: now_ms as u32,
        access: Access::Noted,
        frequency,
        keeps_due: now_ms.is_multiple_of(3),
    };
    let alone = keyspace.gate().close();
    let mut locked = keyspace.all(&alone);
    run(&mut Db::new(&mut locked, database, &clock, &mut SideEffects::default()))
}

pub(crate) fn begin(keyspace: &Keyspace) -> SnapshotRun {
    let wanted = picture(keyspace);
    let (taken, is_full) = (Arc::<Mutex<Taken>>::default(), Arc::<AtomicBool>::default());
    let mut sinks = BTreeSet::new();
    let sink = |shard| -> Option<Box<dyn Sink>> {
        assert!(sinks.insert(shard), "a second sink");
        Some(Box::new(Collecting { shard, taken: taken.clone(), is_full: is_full.clone() }))
    };
    let snapshot = keyspace.begin_snapshot(&keyspace.gate().close(), sink).unwrap();
    let of_keys: BTreeSet<_> = wanted.keys().map(|(_, name)| keyspace.shard_of(Key::new(name).hash)).collect();
    assert!(of_keys.is_subset(&sinks), "a shard without a sink");
    SnapshotRun { snapshot, taken, is_full, wanted, sinks }
}

fn end(keyspace: &Keyspace) -> Option<Ended> {
    keyspace.end_snapshot(&keyspace.gate().close())
}

fn step(keyspace: &Keyspace, shard: usize, budget: usize) -> Step {
    let alone = keyspace.gate().close();
    keyspace.all(&alone).snapshot_step(shard, budget)
}

fn walk_to_the_end(keyspace: &Keyspace) {
    (0..keyspace.shard_count()).for_each(|shard| while step(keyspace, shard, 300) != Step::Done {});
}

impl SnapshotRun {
    /// Walks to the end, and compares the results.
    pub(crate) fn check(self, keyspace: &Keyspace) {
        self.is_full.store(false, Ordering::Relaxed);
        walk_to_the_end(keyspace);
        assert_eq!((self.snapshot.shards_left(), end(keyspace)), (0, Some(Ended::Complete)));
        let taken = self.taken.lock().unwrap();
        assert_eq!(taken.repeated, [], "saved twice");
        assert_eq!(taken.finished, self.sinks);
        assert_eq!(self.snapshot.keys_saved(), self.wanted.len());
        for (place, shown) in &self.wanted {
            let name = String::from_utf8_lossy(&place.1);
            assert_eq!(taken.picture.get(place), Some(shown), "{name} of database {}", place.0);
        }
        let more = taken.picture.keys().find(|place| !self.wanted.contains_key(*place));
        assert_eq!(more, None, "saved, but absent at the cut");
    }
}

/// Returns names that belong to the first few shards.
fn names(keyspace: &Keyspace) -> Vec<Vec<u8>> {
    let all = (0..).map(|i| format!("key number {i}").into_bytes());
    all.filter(|name| keyspace.shard_of(Key::new(name).hash) < SHARDS_USED).take(NAMES).collect()
}

/// A random history of changes to a keyspace.
struct History {
    keyspace: Keyspace,
    names: Vec<Vec<u8>>,
    random: Random,
    now_ms: u64,
    /// Most changes concern elements of collections, which have more than a few elements.
    of_collections: bool,
    /// Number of changes made, by kind.
    made: [u64; KINDS],
}

/// Kinds of changes: see [`History::change`].
const KINDS: usize = 24;

impl History {
    fn new(seed: u64) -> History {
        History::with_layout(seed, Layout::Threads)
    }

    /// A history of a few slots, of which some have no keys at the cut.
    fn of_slots(seed: u64) -> History {
        let mut history = History::with_layout(seed, Layout::Slots);
        history.names.truncate(2 + seed as usize % 6);
        history.of_collections = seed.is_multiple_of(2);
        history
    }

    fn with_layout(seed: u64, layout: Layout) -> History {
        let keyspace = Keyspace::with_layout(DATABASES, 1, layout);
        let names = names(&keyspace);
        let random = Random::new(seed);
        History { keyspace, names, random, now_ms: 1000, of_collections: false, made: [0; KINDS] }
    }

    /// A history of few keys, mostly collections, so that steps fall between changes to them.
    fn of_collections(seed: u64) -> History {
        let mut history = History::new(seed);
        history.names.truncate(5);
        history.of_collections = true;
        history
    }

    fn name(&mut self) -> Vec<u8> {
        self.names[self.random.below(self.names.len())].clone()
    }

    fn ttl(&mut self) -> Ttl {
        match self.random.below(4) {
            0 => Ttl::Keep,
            1 => Ttl::At(self.now_ms + self.random.below(300) as u64),
            _ => Ttl::Clear,
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let len = [3, 20, 100, 1500][self.random.below(4)];
        match self.random.below(3) {
            0 => self.random.below(1000).to_string().into_bytes(),
            _ => vec![b'a' + self.random.below(26) as u8; len],
        }
    }

    /// Returns a value of any type except string.
    fn value(&mut self) -> Value {
        let most = if self.of_collections { 150 } else { [3, 10, 60][self.random.below(3)] };
        let count = 1 + self.random.below(most);
        let items: Vec<_> = (0..count).map(|_| format!("m{}", self.random.below(100)).into_bytes()).collect();
        match self.random.below(7) {
            6 => {
                let mut suggestions = Suggestions::default();
                for item in &items {
                    suggestions.set(item, self.random.below(50) as f32, (item[1] == b'7').then_some(item));
                }
                Value::Suggestions(crate::unaligned_box::TightBox::new(suggestions))
            }
            5 => {
                let mut hash = TimedHash::new();
                for item in &items {
                    let ttl = if self.random.below(2) == 0 { Ttl::Clear } else { self.ttl() };
                    hash.set(item, item, ttl, &HASH);
                }
                Value::TimedHash(hash)
            }
            0 => {
                let mut hash = Hash::new();
                items.iter().for_each(|item| _ = hash.insert(item, item, &HASH));
                Value::Hash(hash)
            }
            1 => {
                let mut set = Set::new();
                items.iter().for_each(|item| _ = set.insert(item, &SET));
                Value::Set(set)
            }
            2 => Value::ZSet(ZSet::from_pairs(items.iter().map(|item| (item, item.len() as f64)), ZSET)),
            3 => {
                let mut list = List::new();
                items.iter().for_each(|item| list.push(End::Right, item, limits_of_lists()));
                Value::List(list)
            }
            _ => {
                let mut stream = Stream::default();
                let id = StreamId { ms: self.now_ms, seq: 1 };
                stream.entries.push(id, [&b"f"[..], b"v"].into_iter(), StreamLimits::default());
                Value::Stream(crate::unaligned_box::TightBox::new(stream))
            }
        }
    }

    /// Makes a random change.
    fn change(&mut self) {
        let kind = if self.of_collections && self.random.below(25) != 0 { 7 } else { self.random.below(KINDS) };
        self.made[kind] += 1;
        self.now_ms += self.random.below(3) as u64;
        let (database, to) = (self.random.below(DATABASES), self.random.below(DATABASES));
        let (name, other, ttl, text) = (self.name(), self.name(), self.ttl(), self.text());
        let (value, number, many) = (self.value(), self.random.below(100), self.random.below(40) == 0);
        let mut random = Random::new(self.random.next());
        let key = Key::new(&name);
        with(&self.keyspace, database, self.now_ms, |db| match kind {
            0..3 => db.set_string(key, &text, ttl),
            3 => db.set_string_over(key, &text, ttl),
            4 => db.set_int(key, number as i64, ttl),
            5 | 6 => db.set_object(key, value, ttl),
            7 if self.of_collections && db.kind(key).is_none_or(|kind| kind == Type::String) => {
                db.set_object(key, value, ttl);
            }
            7 | 8 => (0..1 + number / 8).for_each(|i| change_collection(db, key, number + i)),
            9 => {
                let Some(mut entry) = db.get_mut(key) else { return };
                let len = match entry.view() {
                    View::Bytes(bytes) => bytes.len(),
                    View::Int(_) => 1,
                    View::Object(_) => return,
                };
                entry.string_mut(len + number % 20).unwrap().fill(b'!');
            }
            10 => {
                let at = if let Ttl::At(at) = ttl { Some(at) } else { None };
                db.set_expiry(key, at);
            }
            11 => _ = db.remove(key),
            12 => _ = db.unlink(key),
            13 => _ = db.remove_overwritten(key),
            14 => rename(db, key, Key::new(&other)),
            15 => {
                if let Some(entry) = db.take(key) {
                    db.other(to).put(key, entry);
                }
            }
            16 => {
                if let Some(copy) = db.peek(key).map(|entry| entry.copy_as(&other)) {
                    db.other(to).put(Key::new(&other), copy);
                }
            }
            17 => db.empty(key),
            18 => (0..SHARDS_USED).for_each(|shard| while db.reclaim(shard, 3) {}),
            19 => _ = (db.get(key).is_some(), db.touch(key), db.look(Key::new(&other)).is_some()),
            20 => {
                let shard = random.below(SHARDS_USED);
                let candidates = db.sample(shard, 3, number % 2 == 0, Order::Random, &mut random);
                candidates.iter().for_each(|c| _ = db.evict(Key::new(&c.key), number % 2 == 0));
            }
            21 => compact(db),
            22 if many => _ = db.flush(number % 2 == 0),
            _ => {}
        });
        match kind {
            22 if many => self.fill_or_clear(),
            23 if many => {
                let alone = self.keyspace.gate().close();
                self.keyspace.all(&alone).swap(database, to);
            }
            23 => self.fill_or_clear(),
            _ => {}
        }
    }

    /// Adds or removes many keys, so that tables grow or shrink.
    fn fill_or_clear(&mut self) {
        let (database, fill) = (self.random.below(DATABASES), self.random.below(2) == 0);
        let names = self.names.len();
        let from = self.random.below(names);
        for name in &self.names[from..(from + names / 2).min(names)] {
            with(&self.keyspace, database, self.now_ms, |db| match fill {
                true => db.set_string(Key::new(name), name, Ttl::Clear),
                false => _ = db.remove(Key::new(name)),
            });
        }
    }

    fn step(&mut self) {
        let most = if self.of_collections { 600 } else { 2000 };
        let (shard, budget) = (self.random.below(SHARDS_USED + 1), self.random.below(most));
        step(&self.keyspace, shard, budget);
    }
}

/// Changes the key's value in place, and removes the key when it is empty.
fn change_collection(db: &mut Db<'_, '_>, key: Key<'_>, number: usize) {
    let item = format!("m{number}").into_bytes();
    let is_empty = match db.kind(key) {
        Some(Type::Hash) if number.is_multiple_of(3) || db.peek_object::<Hash>(key).is_err() => {
            let now = db.now_ms();
            db.expire_fields(key, [&item[..]].into_iter());
            let is_empty = db.change_timed(key, |hash| {
                match number % 5 {
                    0 => hash.set_expiry(&item, Some(now + number as u64)),
                    1 => _ = hash.set(&item, b"timed", Ttl::At(now + 3), &HASH),
                    2 => _ = hash.set(&item, b"kept", Ttl::Keep, &HASH),
                    _ if !hash.remove(&item) => _ = hash.set(&item, b"new", Ttl::Clear, &HASH),
                    _ => {}
                }
                hash.is_empty()
            });
            is_empty.ok().flatten().unwrap_or(false)
        }
        Some(Type::Hash) => db.object_mut::<Hash>(key).ok().flatten().is_some_and(|hash| {
            if !hash.remove(&item) {
                hash.insert(&item, b"new", &HASH);
            }
            hash.is_empty()
        }),
        Some(Type::ZSet) => db.object_mut::<ZSet>(key).ok().flatten().is_some_and(|zset| {
            zset.insert(&item, number as f64, ZSET);
            zset.pop_min(number / 50, |_, _| {});
            zset.remove(format!("m{}", number * 7 % 100).as_bytes());
            zset.is_empty()
        }),
        Some(Type::List) => db.object_mut::<List>(key).ok().flatten().is_some_and(|list| {
            change_list(list, number, &item);
            list.is_empty()
        }),
        Some(Type::Suggestions) => db.object_mut::<Suggestions>(key).ok().flatten().is_some_and(|suggestions| {
            if number.is_multiple_of(3) || !suggestions.remove(&item) {
                suggestions.set(&item, number as f32, (number < 50).then_some(b"new"));
            }
            suggestions.remove(format!("m{}", number * 7 % 100).as_bytes());
            suggestions.is_empty()
        }),
        Some(Type::Stream) => db.object_mut::<Stream>(key).ok().flatten().is_some_and(|stream| {
            let id = StreamId { ms: stream.entries.last_id.ms + 1, seq: 0 };
            stream.entries.push(id, [&item[..], b"v"].into_iter(), StreamLimits::default());
            false
        }),
        _ => {
            if let Ok(set) = db.object_or_new::<Set>(key)
                && !set.remove(&item)
            {
                set.insert(&item, &SET);
            }
            false
        }
    };
    if is_empty {
        db.remove(key);
    }
}

fn change_list(list: &mut List, number: usize, item: &[u8]) {
    let (limits, end) = (limits_of_lists(), if number.is_multiple_of(2) { End::Left } else { End::Right });
    match number / 2 % 8 {
        0 | 1 => _ = list.pop(end, limits),
        2 | 3 => list.push(end, item, limits),
        4 => _ = list.set(number * 7 % list.len(), item, limits),
        5 => _ = list.insert(end, item, b"inserted", limits),
        6 => _ = list.remove((number % 3) as i64 - 1, item, limits),
        _ if number.is_multiple_of(5) => list.trim(0..0, limits),
        _ => {
            let end = list.len().saturating_sub(number % 3);
            list.trim((number % 4).min(end)..end, limits);
        }
    }
}

/// Does the same as RENAME.
fn rename(db: &mut Db<'_, '_>, from: Key<'_>, to: Key<'_>) {
    if db.get_mut(from).is_some()
        && let Some(entry) = db.take(from)
    {
        db.put(to, entry.with_key(to.bytes));
    }
}

/// Moves every block of one database.
fn compact(db: &mut Db<'_, '_>) {
    let mut mover = Mover::new(&|_| true, 6);
    for shard in 0..SHARDS_USED {
        let (mut cursor, mut large) = (0, Vec::new());
        loop {
            cursor = db.compact(shard, cursor, &mut mover, &mut large);
            if cursor == 0 {
                break;
            }
        }
        large.iter().for_each(|name| _ = db.compact_large(Key::new(name), 0, &mut mover));
    }
}

/// Scales the work of a test with random histories.
fn rounds(usual: usize) -> usize {
    if cfg!(miri) { 2 } else { usual }
}

#[test]
fn a_snapshot_is_the_state_at_the_cut_despite_later_changes() {
    let (made, in_pieces) = try_histories(History::new, rounds(100));
    assert!(cfg!(miri) || made.iter().all(|made| *made > 100) && in_pieces > 700, "{made:?}, {in_pieces} in pieces");
}

#[test]
fn collections_that_are_saved_in_pieces_may_change_meanwhile() {
    let (_, in_pieces) = try_histories(History::of_collections, rounds(300));
    assert!(cfg!(miri) || in_pieces > 1000, "{in_pieces} in pieces");
}

#[test]
#[cfg_attr(miri, ignore = "there are thousands of slots")]
fn slots_without_keys_at_the_cut_may_get_collections_from_others() {
    let (made, in_pieces) = try_histories(History::of_slots, 60);
    assert!(made.iter().sum::<u64>() > 10_000 && in_pieces > 50, "{made:?}, {in_pieces} in pieces");
}

/// Begins snapshots in random histories. Returns the number of changes of each kind, and the number of collections that
/// were saved in pieces.
fn try_histories(history: impl Fn(u64) -> History, count: usize) -> ([u64; KINDS], usize) {
    let (mut made, mut in_pieces) = ([0; KINDS], 0);
    for seed in 0..count as u64 {
        let mut history = history(seed);
        (0..rounds(300)).for_each(|_| history.change());
        for _ in 0..1 + history.random.below(4) {
            let run = begin(&history.keyspace);
            let (changes, steps) = (history.random.below(rounds(400)), 1 + history.random.below(20));
            for _ in 0..changes {
                history.change();
                if history.random.below(steps) == 0 {
                    history.step();
                }
                let is_full = history.random.below(10) == 0;
                run.is_full.store(is_full, Ordering::Relaxed);
            }
            if history.random.below(3) == 0 {
                let before = history.keyspace.snapshots().mark();
                let expected = if run.snapshot.shards_left() == 0 { Ended::Complete } else { Ended::Cancelled };
                assert_eq!(end(&history.keyspace), Some(expected), "with mark {before}");
            } else {
                let taken = run.taken.clone();
                run.check(&history.keyspace);
                in_pieces += taken.lock().unwrap().in_pieces;
            }
            (0..history.random.below(rounds(200))).for_each(|_| history.change());
        }
        made.iter_mut().zip(history.made).for_each(|(all, made)| *all += made);
    }
    (made, in_pieces)
}

#[test]
fn a_full_sink_stops_the_walk_but_not_saves_before_changes() {
    let mut history = History::new(1);
    history.names.iter().for_each(|name| {
        with(&history.keyspace, 0, 1, |db| db.set_string(Key::new(name), b"v", Ttl::Clear));
    });
    let run = begin(&history.keyspace);
    run.is_full.store(true, Ordering::Relaxed);
    assert_eq!((step(&history.keyspace, 0, 10_000), run.snapshot.keys_saved()), (Step::Full, 0));
    let name = history.name();
    with(&history.keyspace, 0, 1, |db| assert!(db.remove(Key::new(&name))));
    assert_eq!(run.snapshot.keys_saved(), 1);
    run.is_full.store(false, Ordering::Relaxed);
    assert_eq!(step(&history.keyspace, 0, 1), Step::More);
    run.check(&history.keyspace);
}

#[test]
fn cancelled_snapshots_leave_no_trace_and_used_up_marks_are_swept() {
    let mut history = History::new(2);
    (0..rounds(300)).for_each(|_| history.change());
    let mut sweeps = Vec::new();
    for round in 0..20 {
        let run = begin(&history.keyspace);
        assert!(history.keyspace.begin_snapshot(&history.keyspace.gate().close(), |_| panic!()).is_err());
        (0..20).for_each(|_| history.step());
        (0..rounds(20)).for_each(|_| history.change());
        let ended = end(&history.keyspace);
        if ended == Some(Ended::Sweeping) {
            sweeps.push(round);
            assert_eq!(end(&history.keyspace), Some(Ended::Sweeping));
            assert!(history.keyspace.begin_snapshot(&history.keyspace.gate().close(), |_| panic!()).is_err());
            (0..rounds(100)).for_each(|_| history.change());
            walk_to_the_end(&history.keyspace);
            assert_eq!(run.snapshot.shards_left(), 0);
            assert_eq!(end(&history.keyspace), Some(Ended::Cancelled));
        } else {
            assert_eq!(ended, Some(Ended::Cancelled));
        }
        assert_eq!(end(&history.keyspace), None);
        if ended == Some(Ended::Sweeping) {
            begin(&history.keyspace).check(&history.keyspace);
        }
    }
    // There are seven marks, and the snapshot after each sweep leaves one of them in use.
    assert_eq!(sweeps, [6, 12, 18]);
}

/// Begins a snapshot of every other shard.
fn begin_partly(keyspace: &Keyspace) -> SnapshotRun {
    let mut wanted = picture(keyspace);
    wanted.retain(|(_, name), _| keyspace.shard_of(Key::new(name).hash).is_multiple_of(2));
    let (taken, is_full) = (Arc::<Mutex<Taken>>::default(), Arc::<AtomicBool>::default());
    let mut sinks = BTreeSet::new();
    let sink = |shard: usize| -> Option<Box<dyn Sink>> {
        shard.is_multiple_of(2).then(|| -> Box<dyn Sink> {
            sinks.insert(shard);
            Box::new(Collecting { shard, taken: taken.clone(), is_full: is_full.clone() })
        })
    };
    let snapshot = keyspace.begin_snapshot(&keyspace.gate().close(), sink).unwrap();
    SnapshotRun { snapshot, taken, is_full, wanted, sinks }
}

#[test]
fn snapshots_of_some_shards_and_of_all_may_follow_each_other() {
    let mut history = History::new(3);
    (0..rounds(300)).for_each(|_| history.change());
    for round in 0..30 {
        let run = if round % 10 == 9 { begin(&history.keyspace) } else { begin_partly(&history.keyspace) };
        (0..20).for_each(|_| history.step());
        (0..rounds(20)).for_each(|_| history.change());
        if round % 4 == 3 {
            _ = end(&history.keyspace);
            walk_to_the_end(&history.keyspace);
            _ = end(&history.keyspace);
        } else {
            run.check(&history.keyspace);
        }
    }
}

#[test]
fn threads_that_write_and_walk_concurrently_save_the_cut() {
    const THREADS: usize = 2;
    let keyspace = Keyspace::new(DATABASES, THREADS);
    let count = if cfg!(miri) { 50 } else { 20_000 };
    let name = |i: usize| format!("key {i}").into_bytes();
    (0..count).for_each(|i| {
        with(&keyspace, i % DATABASES, 1, |db| db.set_string(Key::new(&name(i)), &name(i), Ttl::Clear));
    });
    let run = begin(&keyspace);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        let clock =
            Clock { now_ms: 1, due_ms: 1, uptime_s: 1, access: Access::Noted, frequency: None, keeps_due: false };
        let mut shards = (0..keyspace.shard_count()).filter(|shard| shard % THREADS == thread).collect::<Vec<_>>();
        while let Some(&shard) = shards.last() {
            let _inside = keyspace.gate().enter(thread);
            for _ in 0..20 {
                let name = name(random.below(count));
                let key = Key::new(&name);
                let mut locked = keyspace.lock(Shards::One(keyspace.shard_of(key.hash)), never).unwrap();
                let mut observed = SideEffects::default();
                let mut db = Db::new(&mut locked, random.below(DATABASES), &clock, &mut observed);
                match random.below(2) {
                    0 => db.set_string(key, b"new", Ttl::Clear),
                    _ => _ = db.remove(key),
                }
            }
            if keyspace.lock(Shards::One(shard), never).unwrap().snapshot_step(shard, 1000) == Step::Done {
                shards.pop();
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || work(thread))));
    run.check(&keyspace);
}

#[test]
fn a_mark_stays_with_its_entry() {
    let mut entry = Entry::string(b"key", b"12", Some(3));
    entry.set_mark(5);
    for value in [&b"abc"[..], &[b'x'; 2000], b"7", b"abcdef"] {
        entry.set_string(value);
        for expiry in [None, Some(9)] {
            entry.set_expiry(expiry);
            assert_eq!((entry.mark(), entry.expiry()), (5, expiry));
        }
    }
    assert_eq!(entry.copy_as(b"other").mark(), 0);
    let mut entry = entry.with_key(b"renamed");
    entry.set_mark(2);
    assert_eq!((entry.mark(), entry.expiry(), entry.encoding()), (2, Some(9), "embstr"));
}
