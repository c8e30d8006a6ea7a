//! Measures pauses during a snapshot. Saves one collection with many members while one thread writes to it and another
//! reads and writes other keys, of the same shard and of others. Prints the longest operations and the longest step.
//!
//! ```text
//! cargo run --release -p penstock-store --example snapshot_pauses -- [MEMBERS] [zset|hash|set|list]
//! ```

// An example may panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_store::db::{Access, Clock, Db, SideEffects, Ttl};
use penstock_store::entry::Entry;
use penstock_store::keyspace::{Key, Keyspace, Shards, never};
use penstock_store::random::Random;
use penstock_store::snapshot::{Element, ElementSink, Sink, Step};
use penstock_store::types::hash::{Hash, HashLimits};
use penstock_store::types::list::{End, List, ListLimits};
use penstock_store::types::set::{Set, SetLimits};
use penstock_store::types::zset::{ZSet, ZSetLimits};

const CLOCK: Clock =
    Clock { now_ms: 1, due_ms: 1, uptime_s: 1, access: Access::Noted, frequency: None, keeps_due: false };
const LARGE: &[u8] = b"large";
/// Budget of a step in bytes: about a hundred microseconds.
const STEP_BYTES: usize = 16 * 1024;
/// Buffer size. Copying and summing an element's bytes simulates the cost of serialisation.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Totals {
    elements: AtomicUsize,
    /// A sum over all elements that does not depend on their order.
    sum: AtomicU64,
    ended: AtomicUsize,
}

struct Counting {
    totals: Arc<Totals>,
    buffer: Vec<u8>,
    elements: usize,
    sum: u64,
}

impl Counting {
    fn new(totals: &Arc<Totals>) -> Box<Counting> {
        Box::new(Counting { totals: totals.clone(), buffer: Vec::new(), elements: 0, sum: 0 })
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(bytes);
    }
}

fn digest(name: &[u8], score: f64) -> u64 {
    penstock_store::hash::hash(name).wrapping_add(score.to_bits().wrapping_mul(31))
}

impl Sink for Counting {
    fn entry(&mut self, _database: usize, entry: &Entry) {
        self.put(entry.key());
    }

    fn begin(&mut self, _database: usize, _entry: &Entry) -> Box<dyn ElementSink> {
        Counting::new(&self.totals)
    }

    fn is_full(&self) -> bool {
        false
    }

    fn finish(&mut self) {}
}

impl ElementSink for Counting {
    fn element(&mut self, element: Element<'_>) {
        self.elements += 1;
        let digest = match element {
            Element::Scored(name, score) => digest(name, score),
            Element::Member(name) => digest(name, 0.0),
            Element::Field(name, value, _) => digest(name, 0.0).wrapping_add(digest(value, 0.0)),
            Element::Item(item) => digest(&item.to_vec(), 0.0).wrapping_mul(self.elements as u64),
            Element::Suggestion(text, score, _) => digest(text, f64::from(score)),
        };
        self.sum = self.sum.wrapping_add(digest);
        if let Element::Scored(name, _) | Element::Member(name) | Element::Field(name, ..) = element {
            self.put(name);
        }
    }

    fn is_full(&self) -> bool {
        false
    }

    fn end(self: Box<Self>) {
        self.totals.elements.fetch_add(self.elements, Ordering::Relaxed);
        self.totals.sum.fetch_add(self.sum, Ordering::Relaxed);
        self.totals.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn name(i: usize) -> Vec<u8> {
    format!("member:{i:09}").into_bytes()
}

/// Adds or changes an element.
fn write(db: &mut Db<'_, '_>, kind: &str, i: usize, score: f64) {
    let (key, name) = (Key::new(LARGE), name(i));
    match kind {
        "zset" => _ = db.object_or_new::<ZSet>(key).ok().unwrap().insert(&name, score, ZSetLimits::default()),
        "hash" => {
            let value = score.to_string();
            db.object_or_new::<Hash>(key).ok().unwrap().insert(&name, value.as_bytes(), &HashLimits::default());
        }
        "set" => _ = db.object_or_new::<Set>(key).ok().unwrap().insert(&name, &SetLimits::default()),
        _ => db.object_or_new::<List>(key).ok().unwrap().push(End::Right, &name, ListLimits::default()),
    }
}

/// Removes an element.
fn remove(db: &mut Db<'_, '_>, kind: &str, i: usize) {
    let (key, name) = (Key::new(LARGE), name(i));
    match kind {
        "zset" => _ = db.object_mut::<ZSet>(key).ok().unwrap().unwrap().remove(&name),
        "hash" => _ = db.object_mut::<Hash>(key).ok().unwrap().unwrap().remove(&name),
        "set" => _ = db.object_mut::<Set>(key).ok().unwrap().unwrap().remove(&name),
        _ => _ = db.object_mut::<List>(key).ok().unwrap().unwrap().pop(End::Left, ListLimits::default()),
    }
}

/// Runs a function on the large key's shard. Returns its time, including the wait for the shard.
fn timed<T>(keyspace: &Keyspace, thread: usize, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> Duration {
    let begun = Instant::now();
    let _inside = keyspace.gate().enter(thread);
    let mut locked = keyspace.lock(Shards::One(keyspace.shard_of(Key::new(LARGE).hash)), never).unwrap();
    run(&mut Db::new(&mut locked, 0, &CLOCK, &mut SideEffects::default()));
    begun.elapsed()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let members: usize = args.next().map_or(10_000_000, |arg| arg.parse().unwrap());
    let kind = args.next().unwrap_or_else(|| "zset".into());
    let keyspace = Keyspace::new(1, 3);
    let large_shard = keyspace.shard_of(Key::new(LARGE).hash);
    let other: Vec<_> =
        (0..).map(name).filter(|name| keyspace.shard_of(Key::new(name).hash) == large_shard).take(100).collect();
    timed(&keyspace, 0, |db| {
        (0..members).for_each(|i| write(db, &kind, i, i as f64));
        other.iter().for_each(|name| db.set_string(Key::new(name), b"value", Ttl::Clear));
    });
    let wanted = (0..members).fold(0u64, |sum, i| {
        let (name, value) = (name(i), (i as f64).to_string());
        sum.wrapping_add(match kind.as_str() {
            "zset" => digest(&name, i as f64),
            "hash" => digest(&name, 0.0).wrapping_add(digest(value.as_bytes(), 0.0)),
            "set" => digest(&name, 0.0),
            _ => digest(&name, 0.0).wrapping_mul(i as u64 + 1),
        })
    });
    let totals = Arc::<Totals>::default();
    let begun = Instant::now();
    let snapshot = keyspace
        .begin_snapshot(&keyspace.gate().close(), |_| -> Option<Box<dyn Sink>> { Some(Counting::new(&totals)) })
        .unwrap();
    let cut = begun.elapsed();
    let is_done = AtomicBool::new(false);
    let (mut steps, mut worst_step) = (0, Duration::ZERO);
    let (writer, reader) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut random, mut worst, mut count) = (Random::new(1), Duration::ZERO, 0usize);
            while !is_done.load(Ordering::Relaxed) {
                let i = random.below(members + members / 10);
                let taken = timed(&keyspace, 1, |db| match count % 3 {
                    0 => remove(db, &kind, i),
                    _ => write(db, &kind, i, -1.5),
                });
                (worst, count) = (worst.max(taken), count + 1);
                thread::sleep(Duration::from_micros(20));
            }
            (worst, count)
        });
        let reader = scope.spawn(|| {
            let (mut random, mut worst, mut count) = (Random::new(2), Duration::ZERO, 0usize);
            while !is_done.load(Ordering::Relaxed) {
                let key = Key::new(&other[random.below(other.len())]);
                let taken = timed(&keyspace, 2, |db| match count % 2 {
                    0 => assert!(db.get(key).is_some()),
                    _ => db.set_string(key, b"other", Ttl::Clear),
                });
                (worst, count) = (worst.max(taken), count + 1);
                thread::sleep(Duration::from_micros(20));
            }
            (worst, count)
        });
        for shard in 0..keyspace.shard_count() {
            loop {
                let inside = keyspace.gate().enter(0);
                let begun = Instant::now();
                let step = keyspace.lock(Shards::One(shard), never).unwrap().snapshot_step(shard, STEP_BYTES);
                let took = begun.elapsed();
                drop(inside);
                (steps, worst_step) = (steps + 1, worst_step.max(took));
                if step == Step::Done {
                    break;
                }
                // Other threads get the shard for as long as the step took.
                let free = Instant::now();
                while free.elapsed() < took {
                    thread::yield_now();
                }
            }
        }
        is_done.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), reader.join().unwrap())
    });
    let took = begun.elapsed();
    let ended = keyspace.end_snapshot(&keyspace.gate().close());
    println!("{kind} of {members}: cut in {cut:?}, saved in {took:?} by {steps} steps, the longest {worst_step:?}");
    println!("writes to it: {} in all, the longest {:?}", writer.1, writer.0);
    println!("others of its shard: {} in all, the longest {:?}", reader.1, reader.0);
    assert_eq!(ended, Some(penstock_store::snapshot::Ended::Complete));
    assert_eq!(snapshot.shards_left(), 0);
    assert_eq!(totals.elements.load(Ordering::Relaxed), members, "each once");
    assert_eq!(totals.sum.load(Ordering::Relaxed), wanted, "as at the cut");
}
