//! Measures the operations of a sorted set: `cargo run --release -p penstock-store --example zset_speed [MEMBERS
//! [TITLE]]`.
//!
//! Prints nanoseconds of this thread's CPU time per operation, and bytes per member without the member itself. With a
//! title, runs only the large sets with titles that begin with it.

use std::hint::black_box;

use penstock_store::random::Random;
use penstock_store::types::zset::{ZSet, ZSetLimits};

/// Returns this thread's CPU time in nanoseconds, which excludes other processes.
fn thread_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or_default()
}

/// Runs `work` and prints the mean time of its `count` operations.
fn measure(name: &str, count: usize, work: impl FnOnce()) {
    let start = thread_ns();
    work();
    println!("  {name:<34} {:>7} ns", (thread_ns() - start) / count as u64);
}

/// Number of entries that are sorted before insertion, like in bulk loads.
const IN_ORDER: usize = 60_000;

/// The name of a member. All have the same length, so that their memory can be subtracted.
type Name = [u8; 16];

fn name_of(text: &str) -> Name {
    *text.as_bytes().first_chunk().unwrap_or(&[0; 16])
}

fn numbered(n: usize) -> Name {
    name_of(&format!("member:{n:09}"))
}

/// A hundred names share a prefix, and then half of the rest: a few bits of a name say little about its place.
fn clustered(n: usize) -> Name {
    name_of(&format!("{:08x}0000{:04}", ((n / 100) as u32).wrapping_mul(0x9E37_79B9), n % 100))
}

/// Measures the operations on one large set, with scores below `scores`.
fn large(title: &str, members: usize, name: impl Fn(usize) -> Name, scores: usize) {
    if !title.starts_with(&std::env::args().nth(2).unwrap_or_default()) {
        return;
    }
    println!("{title}");
    let (limits, mut random) = (ZSetLimits::default(), Random::new(1));
    // The names are in random order, and in memory in the order of their use, like arguments of requests.
    let mut names: Vec<_> = (0..members).map(name).collect();
    let mut shuffle = |names: &mut [Name]| (1..names.len()).for_each(|at| names.swap(at, random.below(at + 1)));
    shuffle(&mut names);
    let mut set = ZSet::new();
    let mut random = Random::new(2);
    measure("insert", members, || {
        names.iter().for_each(|name| _ = set.insert(name, random.below(scores) as f64, limits))
    });
    let mut entries: Vec<_> = names.iter().map(|name| (random.below(scores), *name)).collect();
    entries.chunks_mut(IN_ORDER).for_each(<[_]>::sort_unstable);
    let mut ordered = ZSet::new();
    measure("insert, many at a time in order", members, || {
        entries.iter().for_each(|(score, name)| _ = ordered.insert(name, *score as f64, limits))
    });
    drop((ordered, entries));
    println!("  {:<34} {:>7} bytes", "memory beside the member", set.memory_bytes() / members - names[0].len());
    shuffle(&mut names);
    measure("score", members, || names.iter().for_each(|name| _ = black_box(set.score(name))));
    measure("rank", members, || names.iter().for_each(|name| _ = black_box(set.rank(name, false))));
    measure("100 by rank, from random ranks", members / 10, || {
        for _ in 0..members / 10 {
            let start = random.below(members);
            set.range_by_rank(start..start + 100, false).for_each(|(member, score)| _ = black_box((member[0], score)));
        }
    });
    measure("100 by rank, from the lowest", members / 10, || {
        for _ in 0..members / 10 {
            set.range_by_rank(0..100, false).for_each(|(member, score)| _ = black_box((member[0], score)));
        }
    });
    measure("another score", members, || {
        names.iter().for_each(|name| _ = set.insert(name, random.below(scores) as f64, limits));
    });
    measure("a score one higher", members, || {
        for name in &names {
            let score = set.score(name).unwrap_or_default();
            set.insert(name, score + 1.0, limits);
        }
    });
    measure("clone, per member", members, || drop(black_box(set.clone())));
    shuffle(&mut names);
    measure("remove", members / 2, || names[..members / 2].iter().for_each(|name| _ = set.remove(name)));
    let left = set.len();
    measure("pop one", left / 2, || (0..left / 2).for_each(|_| _ = set.pop_min(1, |_, _| {})));
    measure("remove all by rank, per member", set.len(), || _ = set.remove_range_by_rank(0..usize::MAX));
}

/// Measures sets of `len` members, filled one by one and read.
fn small(len: usize, fraction: f64) {
    println!("{len} members, scores {}", if fraction == 0.0 { "integers" } else { "with fractions" });
    let (limits, mut random, rounds) = (ZSetLimits::default(), Random::new(1), 1_000_000 / len);
    let names: Vec<_> = (0..len).map(|n| format!("member:{n}")).collect();
    let mut set = ZSet::new();
    measure("insert", rounds * len, || {
        for _ in 0..rounds {
            set = ZSet::new();
            names.iter().for_each(|name| _ = set.insert(name.as_bytes(), random.below(1000) as f64 + fraction, limits));
        }
    });
    measure("another score", rounds * len, || {
        for name in names.iter().cycle().take(rounds * len) {
            set.insert(name.as_bytes(), random.below(1000) as f64 + fraction, limits);
        }
    });
    measure("score", rounds * len, || {
        names.iter().cycle().take(rounds * len).for_each(|name| _ = black_box(set.score(name.as_bytes())));
    });
    measure("all by rank, per member", rounds * len, || {
        for _ in 0..rounds {
            set.iter().for_each(|(member, score)| _ = black_box((member[0], score)));
        }
    });
}

fn main() {
    let members = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    if std::env::args().nth(2).is_none() {
        for len in [1, 10, 128] {
            small(len, 0.0);
            small(len, 0.1);
        }
    }
    large("random scores", members, numbered, usize::MAX / 2);
    large("ten members a score", members, numbered, members / 10);
    large("a hundred scores", members, numbered, 100);
    large("one score", members, numbered, 1);
    large("one score, names in clusters", members, clustered, 1);
}
