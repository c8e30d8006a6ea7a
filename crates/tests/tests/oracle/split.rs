//! The split property: a stream of requests gets the same replies, at whatever bytes it is cut.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{encode, encode_all, escape};
use penstock_tests::families;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use penstock_tests::stream::generate;
use penstock_tests::transcript::{transcript, transcript_of_pieces};
use std::time::Duration;

/// Usually long enough for the server to read a piece before the next one arrives; otherwise the pieces count as one,
/// which is a valid case as well.
const PAUSE: Duration = Duration::from_micros(300);

/// Streams that change the parsing of later bytes, or end in the middle. Each starts from an empty server.
const STREAMS: &[(&str, &str)] = &[
    ("plain", "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
    ("inline", "PING\r\nSET k \"a b\\x00\"\n\r\n\nGET k\r\n  ECHO  'it\\'s'  \r\nGET \"unbalanced\r\n"),
    ("both", "PING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\nECHO x\r\n*0\r\n*-1\r\nPING\r\n"),
    ("errors", "*1\r\n$3\r\nGET\r\n*2\r\n$4\r\nNOPE\r\n$1\r\nx\r\n*1\r\n$0\r\n\r\nINCR k x\r\nPING\r\n"),
    (
        "transaction",
        "MULTI\r\nSET k 1\r\nINCR k\r\nINCR k x\r\nEXEC\r\nMULTI\r\nSET k 1\r\nINCR k\r\nEXEC\r\nGET k\r\n",
    ),
    ("protocols", "HELLO 3\r\nGET nothing\r\nHELLO 2\r\nGET nothing\r\nRESET\r\nGET nothing\r\n"),
    (
        "subscriptions",
        "SUBSCRIBE a b\r\nPING\r\nGET k\r\nUNSUBSCRIBE a b\r\nGET k\r\nHELLO 3\r\nSUBSCRIBE a\r\nPUBLISH a m\r\nGET k\r\n",
    ),
    ("silence", "CLIENT REPLY SKIP\r\nPING\r\nECHO 1\r\nCLIENT REPLY OFF\r\nECHO 2\r\nCLIENT REPLY ON\r\nECHO 3\r\n"),
    ("quit", "SET k v\r\nQUIT\r\nSET k w\r\n"),
    ("blocking", "RPUSH l a b\r\nBLPOP l 1\r\nBLPOP nothing l 1\r\nLLEN l\r\n"),
    (
        "fields",
        "HSET h a 1 b 2\r\nHPEXPIREAT h 4102444800000 FIELDS 2 a c\r\nHPEXPIRETIME h FIELDS 2 a b\r\nHGETEX h PERSIST FIELDS 1 a\r\n\
         HSETEX h PXAT 4102444800000 FIELDS 1 c 3\r\nHGETDEL h FIELDS 2 a b\r\nHEXPIRE h 0 FIELDS 1 c\r\nEXISTS h\r\n",
    ),
    (
        "streams",
        "XADD s 1-1 a b\r\nXADD s 1-* a b c d\r\nXGROUP CREATE s g 0\r\nXREADGROUP GROUP g c COUNT 1 STREAMS s >\r\n\
         XREAD BLOCK 1 COUNT 1 STREAMS s 0\r\nXPENDING s g\r\n",
    ),
    ("unfinished", "PING\r\n*2\r\n$3\r\nGET\r\n$1\r\n"),
    ("bad count", "PING\r\n*x\r\nPING\r\n"),
    ("bad length", "*2\r\n$4\r\nECHO\r\n$-5\r\nPING\r\n"),
    ("no length", "*2\r\n$4\r\nECHO\r\nPING\r\n"),
];

/// Removes the connection's number from HELLO's reply, since it differs between connections.
fn without_ids(transcript: &[u8]) -> Vec<u8> {
    const FIELD: &[u8] = b"$2\r\nid\r\n:";
    let mut out = Vec::new();
    let mut rest = transcript;
    while let Some(at) = rest.windows(FIELD.len()).position(|w| w == FIELD) {
        out.extend_from_slice(&rest[..at]);
        let after = &rest[at + FIELD.len()..];
        rest = &after[after.iter().take_while(|b| b.is_ascii_digit()).count()..];
    }
    out.extend_from_slice(rest);
    out
}

fn from_empty(requests: &[u8]) -> Vec<u8> {
    [b"FLUSHALL\r\n", requests].concat()
}

fn first_difference(whole: &[u8], torn: &[u8]) -> String {
    let same = whole.iter().zip(torn).take_while(|(a, b)| a == b).count();
    let part = |bytes: &[u8]| escape(bytes.get(same.saturating_sub(60)..(same + 100).min(bytes.len())).unwrap_or(b""));
    format!("whole: ...{}\ntorn:  ...{}", part(whole), part(torn))
}

fn check(server: &Server, name: &str, requests: &[u8], cuts: &[usize]) {
    let whole = transcript(server, &from_empty(requests)).unwrap();
    check_against(server, name, requests, &whole, cuts);
}

fn check_against(server: &Server, name: &str, requests: &[u8], whole: &[u8], cuts: &[usize]) {
    let bytes = from_empty(requests);
    let prefix = bytes.len() - requests.len();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| prefix + cut).collect();
    ends.push(bytes.len());
    let mut start = 0;
    let pieces: Vec<&[u8]> = ends.iter().map(|&end| &bytes[std::mem::replace(&mut start, end)..end]).collect();
    let torn = transcript_of_pieces(server, &pieces, PAUSE).unwrap();
    let (whole, torn) = (without_ids(whole), without_ids(&torn));
    assert!(
        whole == torn,
        "{name}, cut at {cuts:?}\n{}\nrequests: {}",
        first_difference(&whole, &torn),
        escape(requests)
    );
}

#[test]
fn every_single_cut() {
    let server = Server::penstock(&[]);
    for (name, requests) in STREAMS {
        let whole = transcript(&server, &from_empty(requests.as_bytes())).unwrap();
        for cut in 0..=requests.len() {
            check_against(&server, name, requests.as_bytes(), &whole, &[cut]);
        }
    }
}

#[test]
fn byte_by_byte() {
    let server = Server::penstock(&[]);
    for (name, requests) in STREAMS {
        check(&server, name, requests.as_bytes(), &(1..requests.len()).collect::<Vec<_>>());
    }
}

#[test]
fn every_pair_of_cuts() {
    let server = Server::penstock(&[]);
    let (name, requests) = STREAMS[0];
    let whole = transcript(&server, &from_empty(requests.as_bytes())).unwrap();
    for first in 0..requests.len() {
        for second in first + 1..=requests.len() {
            check_against(&server, name, requests.as_bytes(), &whole, &[first, second]);
        }
    }
}

#[test]
fn random_streams_at_random_cuts() {
    let server = Server::penstock(&[]);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let all: Vec<_> = families::ALL.iter().chain(families::NEWER).chain(families::OWN).collect();
        let family = rng.pick(&all);
        let mut commands = generate(family, seed).commands;
        commands.retain(|command| repeats(command));
        let requests = encode_all(&commands);
        let mut cuts: Vec<usize> = (0..1 + rng.below(60)).map(|_| rng.below(requests.len())).collect();
        cuts.sort();
        cuts.dedup();
        check(&server, &format!("{} of seed {seed}", family.name), &requests, &cuts);
    }
}

/// True for commands with the same replies when the stream is run again from the start.
fn repeats(command: &[Vec<u8>]) -> bool {
    let name = command[0].to_ascii_uppercase();
    let sub = command.get(1).map(|arg| arg.to_ascii_uppercase()).unwrap_or_default();
    match (name.as_slice(), sub.as_slice()) {
        (b"SPOP" | b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" | b"RANDOMKEY" | b"TIME" | b"PTTL" | b"TTL", _) => {
            false
        }
        (b"HTTL" | b"HPTTL" | b"HEXPIRETIME" | b"HPEXPIRETIME", _) => false,
        // A key with a short expiry may or may not exist in the second run.
        (b"PEXPIRE", _) => command.get(2).is_none_or(|ms| ms.len() > 4),
        (b"EXPIRETIME" | b"PEXPIRETIME", _) | (b"CLIENT", b"ID" | b"INFO" | b"LIST") => false,
        (b"OBJECT", b"IDLETIME" | b"FREQ") | (b"COMMAND", _) => false,
        // The scan family's cursors and every unordered reply may depend on a table's history.
        (b"SCAN" | b"SSCAN" | b"HSCAN" | b"ZSCAN" | b"KEYS" | b"SMEMBERS" | b"SUNION" | b"SINTER" | b"SDIFF", _) => {
            false
        }
        (b"HGETALL" | b"HKEYS" | b"HVALS" | b"SORT" | b"SORT_RO", _) => false,
        // A blocked command is closed with its connection's other half; the other commands show times.
        (b"XADD", _) => !command.iter().any(|arg| arg == b"*"),
        (b"XREAD" | b"XREADGROUP", _) => !command.iter().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK")),
        (b"XPENDING" | b"XINFO", _) => false,
        (name, _) => !name.starts_with(b"B"),
    }
}

#[test]
fn large_arguments() {
    let server = Server::penstock(&[]);
    for len in [16 * 1024 - 1, 16 * 1024, 32 * 1024 + 1, 64 * 1024, 300_000] {
        let value: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let set = encode(&[b"SET".to_vec(), b"k".to_vec(), value]);
        let requests = [set, encode(&[b"GET".to_vec(), b"k".to_vec()]), b"PING\r\n".to_vec()].concat();
        for seed in 0..10 {
            let mut rng = Rng::new(seed);
            let mut cuts: Vec<usize> = (0..5).map(|_| rng.below(requests.len())).collect();
            cuts.sort();
            cuts.dedup();
            check(&server, &format!("{len} bytes"), &requests, &cuts);
        }
        let near_the_end = requests.len() - len - 20;
        for cut in near_the_end..near_the_end + 10 {
            check(&server, &format!("{len} bytes"), &requests, &[cut, cut + len - 5]);
        }
    }
}

#[test]
fn large_arguments_beside_others() {
    let server = Server::penstock(&[]);
    let large = |len: usize, by: usize| -> Vec<u8> { (0..len).map(|i| (i * by % 251) as u8).collect() };
    let words = |words: &[&[u8]]| encode(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
    let (a, b) = (large(33_000, 3), large(70_000, 5));
    let script = b"return {#ARGV[1], redis.call('set', KEYS[1], ARGV[2])}";
    let streams: &[(&str, &[Vec<u8>])] = &[
        ("several", &[words(&[b"MSET", b"k", &a, b"l", &b, b"m", &a]), words(&[b"MGET", b"k", b"l", b"m"])]),
        ("in a row", &[words(&[b"SET", b"k", &a]), words(&[b"SET", b"k", &b, b"GET"]), words(&[b"GETSET", b"k", &a])]),
        (
            "small ones behind",
            &[words(&[b"SET", b"k", &a, b"EX", b"100", b"GET"]), words(&[b"GETEX", b"k", b"PERSIST"])],
        ),
        (
            "fields",
            &[words(&[b"HSET", b"h", &a, &b, b"f", &a]), words(&[b"HGET", b"h", &a]), words(&[b"HGET", b"h", b"f"])],
        ),
        (
            "transaction",
            &[
                words(&[b"MULTI"]),
                words(&[b"SET", b"k", &b]),
                words(&[b"APPEND", b"k", &a]),
                words(&[b"MSET", b"l", &a, b"m", &b]),
                words(&[b"EXEC"]),
                words(&[b"MGET", b"k", b"l", b"m"]),
            ],
        ),
        ("script", &[words(&[b"EVAL", script, b"1", b"k", &a, &b]), words(&[b"GET", b"k"])]),
        ("names", &[words(&[&a, &b]), words(&[&a]), words(&[b"CONFIG", &a]), words(&[b"ECHO", &a]), words(&[b"PING"])]),
        ("bad length behind", &[words(&[b"ECHO", &a]), [&b"*3\r\n$33000\r\n"[..], &a, b"\r\n$-5\r\n"].concat()]),
        ("unfinished", &[words(&[b"SET", b"k", &a]), [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$70000\r\n"[..], &a].concat()]),
    ];
    for (name, requests) in streams {
        let requests = requests.concat();
        let whole = transcript(&server, &from_empty(&requests)).unwrap();
        for seed in 0..25 {
            let mut rng = Rng::new(seed);
            let mut cuts: Vec<usize> = (0..1 + rng.below(8)).map(|_| rng.below(requests.len())).collect();
            cuts.sort();
            cuts.dedup();
            check_against(&server, name, &requests, &whole, &cuts);
        }
        // Around every line end: the beginnings and ends of lengths and arguments.
        let ends = requests.windows(2).enumerate().filter(|(_, w)| w == b"\r\n").map(|(at, _)| at);
        for end in ends.filter(|at| requests[..*at].len() < 200 || rng_keeps(*at)) {
            for cut in end.saturating_sub(1)..(end + 4).min(requests.len()) {
                check_against(&server, name, &requests, &whole, &[cut]);
            }
        }
    }
}

/// Selects some of many positions, always the same ones.
fn rng_keeps(at: usize) -> bool {
    Rng::new(at as u64).below(10) == 0
}
