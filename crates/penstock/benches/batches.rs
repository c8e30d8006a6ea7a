//! Runs batches through the engine without sockets, to measure a command's cost outside the kernel.
//!
//!     cargo run --release -p penstock --example batches                     every batch, nanoseconds per command
//!     cargo run --release -p penstock --example batches get zadd            only these
//!     cargo run --release -p penstock --example batches -- --rounds 1 get   number of rounds each (prints the least time of all)
//!
//! Every batch is a pipeline of 1000 commands on keys drawn from a million, as a load generator would send it. The keys
//! exist when the measurement begins.
//!
//! A name with `+trips` sends each command in a separate batch, from 50 connections in turn. `--advisor no` turns the
//! advisor off.
//!
//! A name with `+waiters` runs the batch while 1,000 connections block on other keys and 1,000 watch other keys,
//! `+trackers` while 1,000 connections cache other keys, `+journal` while the journal has a reader. With `+rules`,
//! `+glob` or `+selector` the user is limited to keys with a prefix, to keys that match a glob, or to both by a
//! selector.
//!
//! `--slots` assigns keys to shards by their slots, as a node of a cluster does.
//!
//! `--count N` makes a round of N batches, and `--dry` builds the batches without running them. The difference between
//! two runs under a tool that counts instructions is the cost of the batches (bench/instructions.py). `--still` stops
//! the engine's clock, so that the counts are equal on any machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use cluster::view::{ClusterState, EndpointKind, Endpoints, NodeIndex, NodeView, Role, ViewParts};
use cluster::{NodeId, ShardId, SlotSet, SlotView};
use config::{Loader, Settings};
use engine::clients::session::Session;
use engine::testing::Bench;
use journal::merge::Merge;
use resp::reply::{Output, Proto};
use server::allocator::{Counting, Mimalloc};
use statistics::ticks::{Ticks, assume_pace};

#[global_allocator]
static ALLOCATOR: Counting<Mimalloc> = Counting::new(Mimalloc);

/// Number of commands of a batch.
const DEPTH: usize = 1000;
/// Number of digits of a number in a command.
const NUMBER_BYTES: usize = 12;
/// Number of batches of a round.
const BATCHES: usize = 640;

/// A command that serializes the value at a key and restores it at another one.
macro_rules! copying_script {
    ($key:literal) => {
        concat!("EVAL return\tredis.call('restore',KEYS[1],0,redis.call('dump',KEYS[2]),'replace') 2 copy ", $key)
    };
}

/// Name and command of each batch; `#` is a random number below the number of keys, `~` a number that never repeats in
/// a row.
const CASES: &[(&str, &str)] = &[
    ("ping", "PING"),
    ("get", "GET key:#"),
    ("set", "SET key:# vvvvvvvvvvvvvvvv"),
    ("incr", "INCR counter:#"),
    ("hset", "HSET hash:# field vvvvvvvvvvvvvvvv"),
    ("hget", "HGET hash:# field"),
    ("zadd", "ZADD zset:# 1 #"),
    ("lpush1", "LPUSH list vvvvvvvvvvvvvvvv"),
    ("sadd1", "SADD set #"),
    ("hset1", "HSET hash # vvvvvvvvvvvvvvvv"),
    ("zadd1", "ZADD zset 1 #"),
    ("zscore1", "ZSCORE zset #"),
    ("mset10", "MSET m0:# v m1:# v m2:# v m3:# v m4:# v m5:# v m6:# v m7:# v m8:# v m9:# v"),
    ("mget10", "MGET key:# key:# key:# key:# key:# key:# key:# key:# key:# key:#"),
    ("zrange100", "ZRANGE zset 0 99"),
    ("getbit", "GETBIT key:# 7"),
    ("setbit", "SETBIT bits:# 77 1"),
    ("pfadd", "PFADD hll:# element"),
    ("pfadd1", "PFADD hll #"),
    ("hexpire", "HEXPIRE hash:# 1000 FIELDS 1 field"),
    ("hexpire1", "HEXPIRE hash 1000 FIELDS 1 #"),
    ("hgetex", "HGETEX hash:# EX 1000 FIELDS 1 field"),
    ("hsetex", "HSETEX hash:# EX 1000 FIELDS 1 field vvvvvvvvvvvvvvvv"),
    ("bitcount", "BITCOUNT key:#"),
    ("bitfield", "BITFIELD bits:# INCRBY u8 64 1"),
    ("bitop", "BITOP OR all:# bits:# bits:#"),
    ("pfcount", "PFCOUNT hll:#"),
    ("pfcount2", "PFCOUNT hll:# hll:#"),
    ("geoadd", "GEOADD geo:# 13.4 52.5 member"),
    ("geodist", "GEODIST geo:# member member"),
    ("hgetdel", "HGETDEL hash:# FIELDS 1 nofield"),
    ("httl", "HTTL hash:# FIELDS 1 field"),
    ("xadd", "XADD stream:# MAXLEN 10 * field vvvvvvvvvvvvvvvv"),
    ("xadd+idmp", "XADD stream:# IDMP producer # MAXLEN 10 * field vvvvvvvvvvvvvvvv"),
    ("lmovem", "LMOVEM list:# list:# LEFT RIGHT COUNT 2 BULK"),
    ("sinter2", "SINTER ints:1 ints:2"),
    ("zintercard2", "ZINTERCARD 2 zset:1 zset:2"),
    ("zinter2", "ZINTER 2 zset:1 zset:2"),
    ("hgetex100", "HGETEX hash:100 EX 1000 FIELDS 1 field:0050"),
    ("command_docs", "COMMAND DOCS"),
    ("config_get", "CONFIG GET *"),
    ("shardchannels", "PUBSUB SHARDCHANNELS"),
    ("randomkey", "RANDOMKEY"),
    ("resetstat", "CONFIG RESETSTAT"),
    ("swapdb", "SWAPDB 1 2"),
    ("keys_none", "KEYS x*y"),
    ("scan", "SCAN 0"),
    ("info", "INFO"),
    ("memory_stats", "MEMORY STATS"),
    ("acl_setuser", "ACL SETUSER default on"),
    ("lolwut", "LOLWUT"),
    ("dump_fractions", "DUMP zset:fractions"),
    ("pfadd5", "PFADD hll # # # # #"),
    ("restore_hash", copying_script!("hash:100")),
    ("restore_list", copying_script!("list:600")),
    ("restore_set", copying_script!("set:100")),
    ("restore_ints", copying_script!("ints:100")),
    ("restore_zset", copying_script!("zset:100")),
    ("restore_stream", copying_script!("stream:100")),
    ("sort_numbers", "EVAL local\tt={}for\ti=1,100\tdo\tt[i]=i*37%101\tend\ttable.sort(t)return\tt[1] 0"),
    ("texts", "EVAL local\tt={}for\ti=1,200\tdo\tt[i]='value'..i\tend\treturn\tt 0"),
    (
        "library",
        "FUNCTION LOAD REPLACE #!lua\tname=lib\nredis.register_function('set',function(keys,args)return\tredis.call('set',keys[1],args[1])end)",
    ),
    ("get+rules", "GET key:#"),
    ("set+rules", "SET key:# vvvvvvvvvvvvvvvv"),
    ("get+glob", "GET key:#"),
    ("get+selector", "GET key:#"),
    ("set+waiters", "SET key:# vvvvvvvvvvvvvvvv"),
    ("get+trackers", "GET key:#"),
    ("set+trackers", "SET key:# vvvvvvvvvvvvvvvv"),
    ("mset10+trackers", "MSET key:# v key:# v key:# v key:# v key:# v key:# v key:# v key:# v key:# v key:# v"),
    ("incr+waiters", "INCR counter:#"),
    ("lpush1+waiters", "LPUSH list vvvvvvvvvvvvvvvv"),
    ("hset+waiters", "HSET hash:# field vvvvvvvvvvvvvvvv"),
    ("ping+trips", "PING"),
    ("get+trips", "GET key:#"),
    ("set+trips", "SET key:# vvvvvvvvvvvvvvvv"),
    ("set+journal", "SET key:# vvvvvvvvvvvvvvvv"),
    ("lpush1+journal", "LPUSH list vvvvvvvvvvvvvvvv"),
];

/// Ticks per microsecond with `--still`: more than any run takes.
const STILL: f64 = 1e12;

/// Number of connections that take turns in a batch with `+trips`.
const CLIENTS: usize = 50;

/// Number of blocked connections, and of watching connections, beside the measured batches.
const LISTENERS: usize = 1000;

struct Options {
    rounds: usize,
    keys: u64,
    count: usize,
    dry: bool,
    advisor: String,
    names: Vec<String>,
}

fn options() -> Option<Options> {
    let advisor = "yes".to_owned();
    let mut options = Options { rounds: 5, keys: 1_000_000, count: BATCHES, dry: false, advisor, names: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--rounds" => options.rounds = args.next()?.parse().ok()?,
            "--keys" => options.keys = args.next()?.parse().ok()?,
            "--count" => options.count = args.next()?.parse().ok()?,
            "--dry" => options.dry = true,
            "--advisor" => options.advisor = args.next()?,
            "--still" => assume_pace(STILL),
            "--slots" => store::hash::hash_by_slot(),
            // Added by cargo.
            "--bench" | "--test" => {}
            name => options.names.push(name.to_string()),
        }
    }
    Some(options)
}

/// Returns the view of a node that owns all slots.
fn all_slots() -> SlotView {
    let (me, id) = (NodeIndex::new(0), [b'a'; 40]);
    let names = NodeId::new(&id).zip(ShardId::new(&id));
    let node = names.map(|(id, shard)| NodeView {
        id,
        shard,
        role: Role::Primary,
        endpoints: Endpoints::default(),
        failed: false,
        secret: None,
    });
    SlotView::new(ViewParts {
        edition: 1,
        state: ClusterState::Ok,
        nodes: node.into_iter().collect(),
        me,
        bound: vec![(me, SlotSet::FULL)],
        open: BTreeMap::new(),
        endpoint_kind: EndpointKind::Ip,
        reads_when_down: false,
        pubsubshard_when_down: true,
    })
}

/// Pseudo-random numbers that are equal in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// This thread's CPU time so far, in nanoseconds; 0 if the system doesn't report it. Unlike elapsed time, it excludes
/// other processes.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

/// Builds a batch. It must be cheap: under a tool that counts instructions, it once took longer than running the batch.
fn batch(pattern: &str, numbers: &mut impl FnMut() -> u64, commands: usize, into: &mut Vec<u8>) {
    into.clear();
    let words: Vec<&str> = pattern.split(' ').collect();
    for _ in 0..commands {
        // Writing to a vector can't fail.
        let _ = write!(into, "*{}\r\n", words.len());
        for word in &words {
            let number = numbers();
            // The first line of a library begins with the same byte.
            let _ = match word.split_once('#').filter(|(_, after)| !after.starts_with('!')) {
                Some((before, after)) => {
                    let bytes = before.len() + NUMBER_BYTES + after.len();
                    write!(into, "${bytes}\r\n{before}{number:0>NUMBER_BYTES$}{after}\r\n")
                }
                None => write!(into, "${}\r\n{word}\r\n", word.len()),
            };
        }
    }
}

fn run(bench: &mut Bench, session: &mut Session, input: &[u8], out: &mut Output) {
    let mut at = 0;
    bench.now_us += 1000;
    bench.worker.begin_turn(bench.now_us);
    while at < input.len() {
        at = bench.worker.run(session, input.into(), at, out).0;
    }
    let waiting = out.len();
    bench.worker.note_answered(session, waiting, Ticks::now());
    out.advance(waiting);
}

/// Runs each command in a separate batch, from one connection after the other.
fn run_trips(bench: &mut Bench, sessions: &mut [Session], input: &[u8], out: &mut Output) {
    for (turn, commands) in input.chunks(input.len() / DEPTH * sessions.len()).enumerate() {
        bench.now_us += 100;
        bench.worker.begin_turn(bench.now_us);
        let request_bytes = input.len() / DEPTH;
        for (session, request) in sessions.iter_mut().zip(commands.chunks(request_bytes)) {
            bench.worker.run(session, request.into(), 0, out);
            let began = Ticks::now();
            bench.worker.note_answered(session, out.len(), began);
            bench.worker.note_sent(session, began, true);
            out.advance(out.len());
        }
        if turn.is_multiple_of(1000) {
            bench.worker.settle_trips();
        }
    }
}

/// Creates each key of a case with the value that the case would leave.
fn fill(bench: &mut Bench, session: &mut Session, pattern: &str, keys: u64) {
    let (mut input, mut out) = (Vec::new(), Output::default());
    let pattern = if pattern.starts_with("GET ") || pattern.starts_with("MGET") || pattern.starts_with("BITCOUNT") {
        "SET key:# vvvvvvvvvvvvvvvv"
    } else if pattern.starts_with("BITFIELD") || pattern.starts_with("BITOP") {
        "SETBIT bits:# 77 1"
    } else if pattern.starts_with("PFCOUNT") {
        "PFADD hll:# element"
    } else if pattern.starts_with("GEODIST") {
        "GEOADD geo:# 13.4 52.5 member"
    } else if pattern.starts_with("HTTL") {
        "HSETEX hash:# EX 1000 FIELDS 1 field vvvvvvvvvvvvvvvv"
    } else if pattern.starts_with("LMOVEM") {
        "RPUSH list:# a b c"
    } else if pattern.starts_with("HEXPIRE hash ") {
        "HSET hash # vvvvvvvvvvvvvvvv"
    } else if pattern.starts_with("HGET") || pattern.starts_with("HEXPIRE") {
        "HSET hash:# field vvvvvvvvvvvvvvvv"
    } else if pattern.starts_with("ZSCORE") || pattern.starts_with("ZRANGE") {
        "ZADD zset 1 #"
    } else {
        pattern
    };
    let mut order = Numbers(7);
    for first in (0..keys).step_by(DEPTH) {
        let mut next = first;
        let mut numbers = || {
            next += 1;
            // A permutation, so that neighbours in memory are not neighbours in name.
            if pattern.contains("10") { order.below(keys) } else { (next - 1).wrapping_mul(7_368_787) % keys }
        };
        batch(pattern, &mut numbers, DEPTH.min((keys - first) as usize), &mut input);
        run(bench, session, &input, &mut out);
    }
}

/// Commands that make the data of a case which has more than one key or element.
fn before(name: &str) -> Vec<String> {
    let some = |count, word: fn(usize) -> String| (0..count).map(word).collect::<Vec<_>>().join(" ");
    let words = |word: fn(usize) -> String| some(100, word);
    match name {
        "sinter2" => [1, 2].map(|set| format!("SADD ints:{set} {}", words(|i| (i * 7).to_string()))).into(),
        "zintercard2" | "zinter2" => {
            let members =
                |set: usize| (0..600).map(|i| format!("{i} member:{:06}", i * set)).collect::<Vec<_>>().join(" ");
            [1, 2].map(|set| format!("ZADD zset:{set} {}", members(set))).into()
        }
        "restore_hash" | "hgetex100" => {
            vec![format!("HSET hash:100 {}", words(|i| format!("field:{i:04} value:{i:04}")))]
        }
        "restore_list" => vec![format!("RPUSH list:600 {}", some(600, |i| format!("member:{i:06}")))],
        "restore_ints" => vec![format!("SADD ints:100 {}", words(|i| (i * 7).to_string()))],
        "restore_zset" => vec![format!("ZADD zset:100 {}", words(|i| format!("{} member:{i:06}", i * 3)))],
        "restore_set" => vec![format!("SADD set:100 {}", words(|i| format!("member:{i:06}")))],
        "restore_stream" => (1..=100).map(|i| format!("XADD stream:100 1-{i} field value:{i:06} more v")).collect(),
        "dump_fractions" => {
            vec![format!(
                "ZADD zset:fractions {}",
                words(|i| format!("{} member:{i:06}", f64::from(i as u32 * 7919 % 10_007) / 17.0))
            )]
        }
        "randomkey" | "keys_none" | "scan" => (0..1000).map(|i| format!("SET key:{i} v")).collect(),
        _ => Vec::new(),
    }
}

/// Opens connections that block on or watch keys that no batch touches.
fn listen(bench: &mut Bench) -> Vec<Session> {
    let open = |command: &str, bench: &mut Bench| {
        let mut session = bench.open();
        bench.line(&mut session, command);
        session
    };
    (0..LISTENERS)
        .flat_map(|i| [open(&format!("BLPOP idle:{i} 0"), bench), open(&format!("WATCH seen:{i}"), bench)])
        .collect()
}

/// Access rules of the batch's user, unless the user is unrestricted.
fn rules(name: &str) -> Option<&'static str> {
    match name.split_once('+')?.1 {
        "rules" => Some("~key:* +@all -@dangerous"),
        "glob" => Some("~key:*[0-9] +@all -@dangerous"),
        "selector" => Some("(~key:* +@all -@dangerous)"),
        _ => None,
    }
}

/// Opens connections that have read, and therefore cache, keys that no batch touches.
fn track(bench: &mut Bench) -> Vec<Session> {
    let open = |i: usize| {
        let mut session = bench.open_with(Proto::Resp3);
        for line in ["CLIENT TRACKING ON", &format!("GET cached:{i}")] {
            bench.line(&mut session, line);
        }
        session
    };
    (0..LISTENERS).map(open).collect()
}

/// Reads everything from the journal.
fn drain(journal: &mut Option<Merge>) {
    while journal.as_mut().is_some_and(|journal| journal.next_unit().is_some()) {}
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: batches [--rounds N] [--keys N] [--count N] [--dry] [--still] [--advisor yes|no] [NAME...]");
        return ExitCode::FAILURE;
    };
    for (name, pattern) in CASES {
        if !options.names.is_empty() && !options.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let settings = Settings::new();
        let directive = [b"advisor".to_vec(), options.advisor.clone().into_bytes()];
        if let Err(error) = Loader::new(&settings).directive(&directive) {
            eprintln!("--advisor: {error}");
            return ExitCode::FAILURE;
        }
        let mut bench = Bench::with(settings);
        bench.never_yield();
        if store::hash::hashes_by_slot() {
            bench.worker.engine.replace_slots(Arc::new(all_slots()));
        }
        let mut session = bench.open();
        let mut sessions: Vec<Session> = (0..CLIENTS).map(|_| bench.open()).collect();
        before(name).iter().for_each(|line| drop(bench.line(&mut session, line)));
        fill(&mut bench, &mut session, pattern, options.keys);
        if let Some(rules) = rules(name) {
            bench.line(&mut session, &format!("ACL SETUSER limited on nopass {rules}"));
            bench.line(&mut session, "AUTH limited x");
        }
        let listeners = match name {
            _ if name.ends_with("+waiters") => listen(&mut bench),
            _ if name.ends_with("+trackers") => track(&mut bench),
            _ => Vec::new(),
        };
        let engine = bench.worker.engine;
        let mut journal = if name.ends_with("+journal") {
            engine.journal.read(&engine.keyspace, journal::lane::Audience::File)
        } else {
            None
        };
        let mut random = Numbers(42);
        let mut inputs: Vec<Vec<u8>> = vec![Vec::new(); 64];
        let mut out = Output::default();
        let mut best = f64::INFINITY;
        for _ in 0..options.rounds {
            let mut spent = 0.0;
            for first in (0..options.count).step_by(inputs.len()) {
                let many = inputs.len().min(options.count - first);
                for input in &mut inputs[..many] {
                    batch(pattern, &mut || random.below(options.keys), DEPTH, input);
                }
                for input in inputs[..many].iter().filter(|_| !options.dry) {
                    let began = cpu_ns();
                    if name.ends_with("+trips") {
                        run_trips(&mut bench, &mut sessions, input, &mut out);
                    } else {
                        run(&mut bench, &mut session, input, &mut out);
                    }
                    spent += cpu_ns() - began;
                    // In a server, another thread does this work about as often.
                    drain(&mut journal);
                }
            }
            best = best.min(spent / (options.count * DEPTH) as f64);
        }
        println!("{name:14} {best:8.1} ns");
        drop(listeners);
    }
    ExitCode::SUCCESS
}
