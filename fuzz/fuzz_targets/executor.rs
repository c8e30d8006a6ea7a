//! Commands: for any input, the engine answers every request with one well-formed reply and never panics.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use config::{Apply, ConfigHost, Settings};
use engine::clients::progress::Progress;
use engine::clients::session::Session;
use engine::host::{Host, Shutdown};
use engine::inbox::Wake;
use engine::state::Engine;
use engine::worker::Worker;
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
    fn shut_down(&self, _: Shutdown) {}
}

static ENGINE: LazyLock<&'static Engine> = LazyLock::new(|| {
    Engine::start(engine::registry::table(), Settings::new(), None, vec![Box::new(Nothing)], Box::new(Nothing), 0)
});
static NOW_US: AtomicU64 = AtomicU64::new(1_700_000_000_000_000);

/// The words of commands: names, options, keys and values; a byte of the input selects one.
const WORDS: &[&str] = &[
    "a",
    "b",
    "c",
    "1",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "inf",
    "-inf",
    "nan",
    "(1",
    "[a",
    "+",
    "-",
    "*",
    "",
    "\r\n",
    "EX",
    "PX",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "KEEPTTL",
    "GET",
    "COUNT",
    "MATCH",
    "LIMIT",
    "WITHSCORES",
    "WITHVALUES",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "BYSCORE",
    "BYLEX",
    "REV",
    "STORE",
    "ASC",
    "ALPHA",
    "BY",
    "RANK",
    "MAXLEN",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "TYPE",
    "string",
    "START",
    "TTL",
    "RESUME",
    "STATUS",
    "END",
    "LIST",
    "STREAMS",
    "GROUP",
    "CREATE",
    "MKSTREAM",
    "MINID",
    "~",
    "=",
    ">",
    "$",
    "1-1",
    "2-*",
    "BLOCK",
    "FORCE",
    "JUSTID",
    "IDLE",
    "FULL",
    "ENTRIESREAD",
    "MAXDELETEDID",
    "FIELDS",
    "FNX",
    "FXX",
    "PERSIST",
    "PXAT",
    "2",
];

/// The token of a pipeline that is interrupted. It is not among the words, so no command can use it.
const TOKEN: &[u8] = b"cut";

/// Builds a request from the input: the first byte selects the command, the others its arguments.
fn request(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let commands = engine::registry::table().all();
    let top: Vec<_> = commands.iter().filter(|c| c.parent.is_none()).collect();
    let Some((&name, rest)) = data.split_first() else { return out };
    let command = top[usize::from(name) % top.len()];
    // These commands end or block the server, as they should.
    if matches!(&*command.name, "shutdown" | "debug" | "client" | "quit") {
        return out;
    }
    let mut words = vec![command.name.as_bytes()];
    words.extend(rest.iter().map(|&b| WORDS[usize::from(b) % WORDS.len()].as_bytes()));
    resp::parse::encode_request(&words, &mut out);
    out
}

/// Requests that are not counted, or that end the counting.
const UNCOUNTED: &[&[u8]] = &[b"\r\npipeline\r\n", b"\r\nreset\r\n"];

fn contains(request: &[u8], part: &[u8]) -> bool {
    request.windows(part.len()).any(|window| window == part)
}

fn open(worker: &mut Worker) -> Session {
    worker.open("fuzz:1".into(), "fuzz:2".into(), 1, 0, true)
}

/// Runs a stream as far as possible, and checks the form of the replies.
fn run(worker: &mut Worker, session: &mut Session, stream: &[u8]) -> Progress {
    let mut out = Output::default();
    let (mut at, mut ran) = (0, Progress::Yielded);
    while ran == Progress::Yielded {
        (at, ran) = worker.run(session, stream.into(), at, &mut out);
    }
    let replies = out.slices().collect::<Vec<_>>().concat();
    let mut rest = &replies[..];
    while !rest.is_empty() {
        match parse(rest, &ReplyLimits::default()) {
            Ok(Some((_, used))) => rest = &rest[used..],
            other => panic!("malformed reply {other:?} in {:?}", String::from_utf8_lossy(rest)),
        }
    }
    ran
}

/// Runs requests under a token on a connection that is interrupted after `cut` bytes, then the unexecuted ones on
/// another connection. In the end each request must be counted exactly once.
fn cut_and_resume(worker: &mut Worker, cut: usize, requests: &[Vec<u8>]) {
    let executed = || ENGINE.pipelines.get(TOKEN, 0).map_or(0, |pipeline| pipeline.executed()) as usize;
    let (mut old, mut new) = (open(worker), open(worker));
    run(worker, &mut old, b"PIPELINE START cut\r\n");
    let stream = requests.concat();
    let cut = cut % (stream.len() + 1);
    run(worker, &mut old, &stream[..cut]);
    run(worker, &mut new, b"PIPELINE RESUME cut\r\n");
    let done = executed();
    let sent = requests.iter().scan(0, |end, request| {
        *end += request.len();
        Some(*end)
    });
    assert!(done <= sent.take_while(|end| *end <= cut).count(), "more was counted than was sent");
    if old.client.waiter().is_none() {
        assert_eq!(run(worker, &mut old, b"SET a b\r\n"), Progress::Closing);
    }
    let ran = run(worker, &mut new, &requests[done..].concat());
    let all = executed();
    assert!(done <= all && all <= requests.len());
    if ran == Progress::Ready && new.multi.is_none() {
        assert_eq!(all, requests.len(), "cut at {cut}, resumed after {done}");
    }
    worker.close(&mut old);
    worker.close(&mut new);
    ENGINE.pipelines.remove(TOKEN, 0);
}

fuzz_target!(|data: &[u8]| {
    let engine = *ENGINE;
    let mut worker = Worker::new(0, engine, 1);
    worker.begin_turn(NOW_US.fetch_add(1000, Ordering::Relaxed));
    let mut session = open(&mut worker);
    run(&mut worker, &mut session, b"FLUSHALL\r\n");
    // Byte 255 ends a request. A stream that begins with 254 goes to the engine unchanged; one that begins with 253 is
    // interrupted at the position in the next bytes.
    let requests = |data: &[u8]| {
        let all = data.split(|&b| b == 255).map(request).filter(|request| !request.is_empty());
        all.collect::<Vec<_>>()
    };
    match data {
        [254, raw @ ..] => drop(run(&mut worker, &mut session, raw)),
        [253, high, low, rest @ ..] => {
            let cut = usize::from(u16::from_be_bytes([*high, *low]));
            let counts = |request: &Vec<u8>| !UNCOUNTED.iter().any(|name| contains(request, name));
            let requests: Vec<_> = requests(rest).into_iter().filter(counts).collect();
            cut_and_resume(&mut worker, cut, &requests);
        }
        _ => drop(run(&mut worker, &mut session, &requests(data).concat())),
    }
    worker.close(&mut session);
    // Nothing reads the messages between the threads.
    drop(engine.inboxes[0].take());
});
