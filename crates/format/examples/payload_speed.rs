//! Measures DUMP and RESTORE of single values: `payload_speed [CASE [ROUNDS]]`. Prints for each case the nanoseconds that it takes to
//! serialize a value and to restore it. With a case and rounds it suits callgrind; "dump " or "restore " before the case leaves the other out.

use std::hint::black_box;
use std::time::Instant;

use penstock_format::Limits;
use penstock_format::payload::{Dumper, read_value};
use store::entry::Entry;
use store::hash::ItemHash;
use store::types::hash::Hash;
use store::types::intset::IntSet;
use store::types::list::{End, List};
use store::types::set::Set;
use store::types::stream::{Stream, StreamId, StreamLimits};
use store::types::zset::ZSetBuilder;
use store::unaligned_box::TightBox;
use store::value::Value;

const ROUNDS: usize = 2000;

fn list(count: usize) -> Value {
    let mut list = List::new();
    let items: Vec<Vec<u8>> = (0..count).map(|i| format!("member:{i:06}").into_bytes()).collect();
    list.push_all(End::Right, items.iter().map(Vec::as_slice), Limits::default().list);
    Value::List(list)
}

fn hash(count: usize) -> Value {
    let mut hash = Hash::new();
    for i in 0..count {
        hash.insert(format!("field:{i:04}").as_bytes(), format!("value:{i:04}").as_bytes(), &Limits::default().hash);
    }
    Value::Hash(hash)
}

fn set(count: usize) -> Value {
    let mut set = Set::new();
    for i in 0..count {
        set.insert(format!("member:{i:06}").as_bytes(), &Limits::default().set);
    }
    Value::Set(set)
}

fn zset(count: usize, divisor: f64) -> Value {
    let mut builder = ZSetBuilder::with_capacity(count);
    for i in 0..count {
        let member = format!("member:{i:06}");
        builder.insert_new(ItemHash::of(member.as_bytes()), member.as_bytes(), (i * 7919 % 10_007) as f64 / divisor);
    }
    Value::ZSet(builder.finish(Limits::default().zset))
}

fn stream(count: usize) -> Value {
    let mut stream = Stream::default();
    for i in 0..count {
        let value = format!("value:{i:06}");
        stream.entries.push(
            StreamId::new(i as u64 + 1, 1),
            [&b"field"[..], value.as_bytes()].into_iter(),
            StreamLimits::new(4096, 100),
        );
    }
    Value::Stream(TightBox::new(stream))
}

/// Words with numbers.
fn text(len: usize) -> Vec<u8> {
    let mut text: String = (0..len / 6 + 1).map(|i| format!("{}word", i * 7919 % 10_007)).collect();
    text.truncate(len);
    text.into_bytes()
}

fn entries() -> Vec<(&'static str, Entry)> {
    let object = |value| Entry::object(b"k", value, None);
    vec![
        ("list 100", object(list(100))),
        ("list 600", object(list(600))),
        ("list 3000", object(list(3000))),
        ("hash 5", object(hash(5))),
        ("hash 100", object(hash(100))),
        ("set 100", object(set(100))),
        ("ints 100", object(Value::Set(Set::from_ints((0..100).map(|i| i * 7).collect::<IntSet>())))),
        ("zset 5", object(zset(5, 1.0))),
        ("zset 100", object(zset(100, 1.0))),
        ("fractions 100", object(zset(100, 17.0))),
        ("stream 100", object(stream(100))),
        ("stream 3000", object(stream(3000))),
        ("text 20000", Entry::string(b"k", &text(20_000), None)),
        ("text 100000", Entry::string(b"k", &text(100_000), None)),
    ]
}

/// The least time of a run, in nanoseconds.
fn time(rounds: usize, mut run: impl FnMut()) -> u128 {
    let one = |_| {
        let started = Instant::now();
        run();
        started.elapsed().as_nanos()
    };
    (0..rounds).map(one).min().unwrap_or(0)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let chosen = words.next().unwrap_or_default();
    let rounds = words.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let mut dumper = Dumper::new();
    for (name, entry) in entries() {
        let payload = dumper.value(&entry.view());
        let wanted = |kind: &str| format!("{kind} {name}").contains(&chosen);
        if wanted("dump") {
            let dump = time(rounds, || _ = black_box(dumper.value(&entry.view())));
            println!("dump {name}: {dump} ns, {} bytes", payload.len());
        }
        if wanted("restore") {
            let restore = time(rounds, || _ = black_box(read_value(&payload, b"r", None, &Limits::default()).is_ok()));
            println!("restore {name}: {restore} ns");
        }
    }
}
