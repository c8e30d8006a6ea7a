//! Commands: whatever a client sends, the engine answers every request with one well-formed reply and never panics.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::config::{Apply, ConfigHost, Settings};
use engine::engine::{Engine, Host};
use engine::inbox::Wake;
use engine::worker::{Ran, Worker};
use libfuzzer_sys::fuzz_target;
use resp::parse::{ReplyLimits, parse};
use resp::reply::Output;

struct Nothing;

impl Wake for Nothing {
    fn wake(&self) {}
}

impl ConfigHost for Nothing {
    fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
        Ok(())
    }
}

impl Host for Nothing {
    fn shut_down(&self) {}
}

static ENGINE: LazyLock<&'static Engine> =
    LazyLock::new(|| Engine::start(Settings::new(), None, vec![Box::new(Nothing)], Box::new(Nothing), 0));
static NOW_US: AtomicU64 = AtomicU64::new(1_700_000_000_000_000);

/// Words that a command is made of: names, options, keys and values; a byte of the input picks one.
const WORDS: &[&str] = &[
    "a", "b", "c", "1", "0", "-1", "9223372036854775807", "-9223372036854775808", "1.5", "inf", "-inf", "nan", "(1", "[a",
    "+", "-", "*", "", "\r\n", "EX", "PX", "NX", "XX", "GT", "LT", "CH", "INCR", "KEEPTTL", "GET", "COUNT", "MATCH",
    "LIMIT", "WITHSCORES", "WITHVALUES", "WEIGHTS", "AGGREGATE", "SUM", "LEFT", "RIGHT", "BEFORE", "AFTER", "BYSCORE",
    "BYLEX", "REV", "STORE", "ASC", "ALPHA", "BY", "RANK", "MAXLEN", "IDX", "LEN", "MINMATCHLEN", "TYPE", "string",
];

/// A request made of the input: the first byte picks the command, the others its arguments.
fn request(data: &[u8], out: &mut Vec<u8>) {
    let commands = engine::command_table::table().all();
    let top: Vec<_> = commands.iter().filter(|c| c.parent.is_none()).collect();
    let Some((&name, rest)) = data.split_first() else { return };
    let command = top[usize::from(name) % top.len()];
    // These end or hold up the server, as they should.
    if matches!(&*command.name, "shutdown" | "debug" | "client" | "quit") {
        return;
    }
    let mut words = vec![command.name.as_bytes()];
    words.extend(rest.iter().map(|&b| WORDS[usize::from(b) % WORDS.len()].as_bytes()));
    resp::parse::encode_request(&words, out);
}

fuzz_target!(|data: &[u8]| {
    let engine = *ENGINE;
    let mut worker = Worker::new(0, engine, 1);
    worker.begin_turn(NOW_US.fetch_add(1000, Ordering::Relaxed));
    let mut session = worker.open("fuzz:1".into(), "fuzz:2".into(), 1, 0, true);
    let mut stream = b"FLUSHALL\r\n".to_vec();
    // A byte 255 ends a request; a stream that begins with 254 is given to the engine as it is.
    match data.split_first() {
        Some((254, raw)) => stream.extend_from_slice(raw),
        _ => data.split(|&b| b == 255).for_each(|words| request(words, &mut stream)),
    }
    let mut out = Output::default();
    let (mut at, mut ran) = (0, Ran::Yielded);
    while ran == Ran::Yielded {
        (at, ran) = worker.run(&mut session, &stream, at, &mut out);
    }
    let replies = out.slices().collect::<Vec<_>>().concat();
    let mut rest = &replies[..];
    while !rest.is_empty() {
        match parse(rest, &ReplyLimits::default()) {
            Ok(Some((_, used))) => rest = &rest[used..],
            other => panic!("malformed reply {other:?} in {:?}", String::from_utf8_lossy(rest)),
        }
    }
    worker.close(&mut session);
});
