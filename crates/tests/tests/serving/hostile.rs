//! Malformed requests and hostile clients: clear errors, as in Redis, bounded memory, and no effect on other clients.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{command, encode, encode_all, escape};
use penstock_tests::conn::{Conn, closed};
use penstock_tests::scripts::text;
use penstock_tests::server::Server;
use penstock_tests::transcript::transcript;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Most memory that a hostile client may add, in KiB: buffers and allocator slack, but no memory for an announced
/// length.
const GROWTH_MAX_KIB: u64 = 64 * 1024;

/// Input and complete output. A server that waits for more input stays silent; the replies show whether it has closed
/// the connection, since every stream ends with a PING.
const MALFORMED: &[(&str, &str)] = &[
    ("*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*-2147483649\r\n", "+PONG\r\n"),
    ("*-2\r\n", "+PONG\r\n"),
    ("*-1\r\n", "+PONG\r\n"),
    ("*0\r\n", "+PONG\r\n"),
    ("*\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("* 1\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*1 \r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*+1\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*01\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*0x1\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*1.0\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ("*1\r\n$-2\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\n$9223372036854775808\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\n$\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\n$4x\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ("*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n"),
    ("*1\r\n:4\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
    ("*1\r\n\r\n", "-ERR Protocol error: expected '$', got ' '\r\n"),
    ("*1\r\n*1\r\n$4\r\nPING\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
    ("SET \"k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ("SET 'k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ("SET \"k\"v\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ("*1\r\n$0\r\n\r\n", "-ERR unknown command '', with args beginning with: \r\n+PONG\r\n"),
    ("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "$0\r\n\r\n+PONG\r\n"),
    // The two bytes behind a bulk string count as its end, whatever they are.
    ("*1\r\n$4\r\nPINGxx", "+PONG\r\n+PONG\r\n"),
    ("\r\n", "+PONG\r\n"),
    ("   \r\n", "+PONG\r\n"),
    ("*1\r\n$536870912\r\n", ""),
];

fn check_bytes(server: &Server, requests: &[u8], expected: &str) {
    let got = transcript(server, &[requests, b"PING\r\n"].concat()).unwrap();
    let shown = &requests[..requests.len().min(200)];
    assert_eq!(escape(&got), escape(expected.as_bytes()), "after {}", escape(shown));
}

/// Runs `hostile` against the server while another connection works, and checks that the server is unaffected.
fn unharmed(args: &[&str], hostile: impl FnOnce(&Server)) {
    let mut server = Server::penstock(args);
    let mut innocent = server.connect();
    innocent.cmd("SET innocent 1").unwrap();
    let before = server.resident_kib();
    hostile(&server);
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "memory grew by {grown} KiB");
    assert_eq!(innocent.cmd("INCR innocent").unwrap().integer(), Some(2));
    assert!(server.is_alive());
}

#[test]
fn malformed_requests_get_redis_errors() {
    let oracle = Server::oracle(&[]);
    for (requests, expected) in MALFORMED {
        check_bytes(&oracle, requests.as_bytes(), expected);
    }
    unharmed(&[], |server| {
        for (requests, expected) in MALFORMED {
            check_bytes(server, requests.as_bytes(), expected);
        }
    });
}

#[test]
fn more_arguments_than_allowed() {
    for server in [Server::penstock(&[]), Server::oracle(&[])] {
        check_bytes(&server, b"*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n");
        check_bytes(&server, b"*2147483647\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n");
    }
}

#[test]
fn a_request_of_millions_of_arguments() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let command: Vec<Vec<u8>> =
        [b"RPUSH".to_vec(), b"list".to_vec()].into_iter().chain((0..1_500_000).map(|_| b"x".to_vec())).collect();
    assert_eq!(text(&conn.call(&command).unwrap()), "1500000");
    assert_eq!(text(&conn.cmd("LLEN list").unwrap()), "1500000");
}

#[test]
fn a_pipeline_stays_within_maxmemory_though_its_commands_are_short() {
    let batch: Vec<_> = (0..40).map(|n| command(&format!("SETRANGE key:{n} 20000000 x"))).collect();
    // For all ways to run commands: fast, slow, and counted under a token.
    for first in ["PING", "CLIENT REPLY ON", "PIPELINE START token"] {
        let server = Server::penstock(&["--maxmemory", "50mb"]);
        let mut conn = server.connect();
        conn.cmd(first).unwrap();
        let replies = conn.pipeline(&batch).unwrap();
        let taken = replies.iter().filter(|reply| text(reply) == "20000001").count();
        // The third is the first one beyond the limit.
        assert_eq!(taken, 3, "{first}");
    }
}

#[test]
fn http_requests_on_the_plain_port_run_no_commands() {
    for server in [Server::penstock(&[]), Server::oracle(&[])] {
        for start in ["POST / HTTP/1.1\r\nHost: 127.0.0.1", "get / HTTP/1.1\r\nhOST: localhost"] {
            let mut conn = server.connect();
            conn.send(format!("{start}\r\n\r\nSET pwned yes\r\n").as_bytes()).unwrap();
            let _ = conn.read_to_close();
            assert_eq!(text(&server.connect().cmd("EXISTS pwned").unwrap()), "0", "{start}");
        }
    }
}

#[test]
fn requests_before_an_error_are_answered() {
    let requests = b"SET k 1\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$-9\r\nSET k 2\r\n";
    let expected = "+OK\r\n$1\r\n1\r\n-ERR Protocol error: invalid bulk length\r\n";
    check_bytes(&Server::oracle(&[]), requests, expected);
    unharmed(&[], |server| {
        check_bytes(server, requests, expected);
        check_bytes(server, b"GET k\r\n", "$1\r\n1\r\n+PONG\r\n");
    });
}

#[test]
fn before_authentication_requests_are_small() {
    const TABLE: &[(&str, &str)] = &[
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*10\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$16384\r\n", ""),
        ("GET k\r\n", "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n"),
        (
            "AUTH wrong\r\n",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n-NOAUTH Authentication required.\r\n",
        ),
        ("AUTH secret\r\n", "+OK\r\n+PONG\r\n"),
        ("AUTH secret\r\n*11\r\n", "+OK\r\n-ERR Protocol error: expected '$', got 'P'\r\n"),
        ("AUTH secret\r\n*2\r\n$4\r\nAUTH\r\n$16385\r\n", "+OK\r\n"),
        (
            "AUTH secret\r\nRESET\r\n*11\r\n",
            "+OK\r\n+RESET\r\n-ERR Protocol error: unauthenticated multibulk length\r\n",
        ),
    ];
    let oracle = Server::oracle(&["--requirepass", "secret"]);
    for (requests, expected) in TABLE {
        check_bytes(&oracle, requests.as_bytes(), expected);
    }
    let server = Server::penstock(&["--requirepass", "secret"]);
    for (requests, expected) in TABLE {
        check_bytes(&server, requests.as_bytes(), expected);
    }
}

#[test]
fn announced_lengths_take_no_memory() {
    unharmed(&[], |server| {
        let _conns: Vec<Conn> = (0..200)
            .map(|i| {
                let mut conn = server.connect();
                let half =
                    ["*1048576\r\n$1\r\na\r\n", "*2\r\n$4\r\nECHO\r\n$536870912\r\nabc", "*1000000\r\n$3\r\nDEL"];
                conn.send(half[i % half.len()].as_bytes()).unwrap();
                conn
            })
            .collect();
        assert_eq!(server.connect().cmd("PING").unwrap().text(), b"PONG");
    });
}

#[test]
fn half_a_request_then_silence() {
    unharmed(&[], |server| {
        let mut half = server.connect();
        half.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhe").unwrap();
        let mut inline = server.connect();
        inline.send(b"GET ").unwrap();
        let mut other = server.connect();
        for i in 0..1000 {
            assert_eq!(other.cmd(&format!("SET k {i}")).unwrap().text(), b"OK");
        }
        half.send(b"llo\r\n").unwrap();
        assert_eq!(half.read().unwrap().text(), b"OK");
        inline.send(b"k\r\n").unwrap();
        assert_eq!(inline.read().unwrap().text(), b"hello");
    });
}

#[test]
fn a_long_inline_request_is_cut_off() {
    let too_long = "-ERR Protocol error: too big inline request\r\n";
    let line = vec![b'a'; 64 * 1024 + 1];
    for server in [Server::oracle(&[]), Server::penstock(&[])] {
        let got = transcript(&server, &line).unwrap();
        assert_eq!(escape(&got), escape(too_long.as_bytes()));
    }
    // The same limit applies to the line of a length.
    let got = transcript(&Server::penstock(&[]), &[b"*", vec![b'1'; 64 * 1024 + 1].as_slice()].concat()).unwrap();
    assert_eq!(escape(&got), escape(b"-ERR Protocol error: too big mbulk count string\r\n"));
    let got = transcript(&Server::penstock(&[]), &[b"*1\r\n$", vec![b'1'; 64 * 1024 + 1].as_slice()].concat()).unwrap();
    assert_eq!(escape(&got), escape(b"-ERR Protocol error: too big bulk count string\r\n"));
}

#[test]
fn a_gigabyte_inline_is_cut_off_early() {
    const CHUNK: usize = 1 << 20;
    /// More than fits into the socket's buffers while the server closes.
    const CHUNKS_MAX: usize = 64;
    unharmed(&[], |server| {
        let mut conn = server.connect();
        let chunk = vec![b'x'; CHUNK];
        let sent = (0..1024).take_while(|_| conn.send(&chunk).is_ok()).count();
        assert!(sent < CHUNKS_MAX, "{sent} MiB were taken");
    });
}

#[test]
fn a_large_value_is_still_welcome() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let value: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 253) as u8).collect();
    assert_eq!(conn.call(&[b"SET".to_vec(), b"k".to_vec(), value.clone()]).unwrap().text(), b"OK");
    assert!(conn.cmd("GET k").unwrap().text() == value);
}

/// Commands with numbers that overflow, on keys that the first lines create.
const OVERFLOWS: &str = "\
SET n 9223372036854775807
INCR n
INCRBY n 1
DECRBY n -1
DECRBY n -9223372036854775808
SET m -9223372036854775808
DECR m
DECRBY m 1
INCRBY m -1
INCRBYFLOAT n 1e5000
INCRBYFLOAT n inf
INCRBYFLOAT n 1.7976931348623157e308
HSET h f 9223372036854775807
HINCRBY h f 1
HINCRBY h f 9223372036854775807
HINCRBYFLOAT h f nan
HINCRBYFLOAT h f inf
HRANDFIELD h -9223372036854775808
HRANDFIELD h -4611686018427387904 WITHVALUES
HRANDFIELD h 9223372036854775807 WITHVALUES
HRANDFIELD h 9223372036854775807
SADD t a
SRANDMEMBER t -9223372036854775808
SRANDMEMBER t 9223372036854775807
SRANDMEMBER t 9223372036854775808
SPOP t -1
SPOP t 9223372036854775808
SPOP t 9223372036854775807
ZADD z 1 a
ZRANDMEMBER z -9223372036854775808
ZRANDMEMBER z -4611686018427387904 WITHSCORES
ZRANDMEMBER z 9223372036854775807
ZPOPMIN z -1
ZRANGE z -9223372036854775808 9223372036854775807
ZRANGEBYSCORE z -inf +inf LIMIT 9223372036854775807 9223372036854775807
ZRANGEBYSCORE z -inf +inf LIMIT -9223372036854775808 -9223372036854775808
ZRANGE z 0 9223372036854775807 BYSCORE LIMIT 1 9223372036854775807
ZINCRBY z inf a
ZINCRBY z -inf a
ZREMRANGEBYRANK z 9223372036854775806 9223372036854775807
RPUSH l a b c
LRANGE l -9223372036854775808 9223372036854775807
LRANGE l 9223372036854775806 9223372036854775807
LRANGE l -9223372036854775808 -9223372036854775807
LINDEX l 9223372036854775807
LINDEX l -9223372036854775808
LPOS l a RANK -9223372036854775807
LPOS l a RANK 9223372036854775807
LPOS l a RANK 9223372036854775808
LPOS l a COUNT 9223372036854775807 MAXLEN 9223372036854775807
LPOS l a COUNT -1
LREM l -9223372036854775808 x
LREM l 9223372036854775807 x
LSET l -9223372036854775808 x
LTRIM l -9223372036854775808 9223372036854775807
LPOP l 9223372036854775808
LPOP l -1
LMPOP 9223372036854775807 l LEFT
LMPOP 1 l LEFT COUNT 9223372036854775808
LMPOP 1 l LEFT COUNT 9223372036854775807
SINTERCARD 9223372036854775807 t
ZUNION 9223372036854775807 z
ZUNION -9223372036854775808 z
SET s abc
SETRANGE s 536870911 ab
SETRANGE s 536870912 a
SETRANGE s 9223372036854775807 a
SETRANGE s -1 a
SETRANGE s -9223372036854775808 a
GETRANGE s -9223372036854775808 9223372036854775807
GETRANGE s 9223372036854775806 9223372036854775807
SUBSTR s 1 9223372036854775807
EXPIRE s 9223372036854775807
EXPIRE s -9223372036854775808
SET s abc
PEXPIRE s 9223372036854775807
EXPIREAT s 9223372036854775807
PEXPIREAT s -9223372036854775808
SET s abc EX 9223372036854775807
SET s abc PX 9223372036854775807
SET s abc EXAT 9223372036854775
SETEX s 9223372036854775807 v
PSETEX s 9223372036854775807 v
GETEX s EX 9223372036854775807
SCAN 18446744073709551616
SCAN 0 MATCH nothing COUNT 9223372036854775807
SCAN 0 COUNT -1
BLPOP nothing 1e400
BLPOP nothing 9223372036854775807
OBJECT FREQ s
SELECT 9223372036854775807
MOVE s 2147483648
COPY s t DB 9223372036854775807
CLIENT UNBLOCK 9223372036854775808
CLIENT KILL ID 9223372036854775808
CLIENT LIST ID 9223372036854775808
CLIENT PAUSE 9223372036854775808
LCS s s MINMATCHLEN -9223372036854775808
LCS s s IDX MINMATCHLEN 9223372036854775807
SORT l LIMIT 9223372036854775807 9223372036854775807
SORT l LIMIT -9223372036854775808 -9223372036854775808
";

/// Replies of 7.2, or of later versions, that differ from 7.0.
const CHANGED_SINCE_7_0: &[(&str, &str)] = &[
    (
        "LREM l -9223372036854775808 x",
        "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    ),
    ("BLPOP nothing 1e400", "-ERR timeout is out of range"),
    ("BLPOP nothing 9223372036854775807", "-ERR timeout is out of range"),
];

#[test]
fn numbers_that_overflow() {
    let oracle = Server::oracle(&[]);
    unharmed(&[], |server| {
        let (mut ours, mut theirs) = (server.connect(), oracle.connect());
        let mut differ = Vec::new();
        for line in OVERFLOWS.lines() {
            let (a, b) = (ours.cmd(line).unwrap(), theirs.cmd(line).unwrap());
            let changed = CHANGED_SINCE_7_0.iter().find(|(on, _)| *on == line);
            let expected = changed.map_or_else(|| b.escaped(), |(_, text)| format!("{text}\\r\\n"));
            if a.escaped() != expected && a.tag() != b'%' {
                differ.push(format!("{line}\n  penstock: {a:?}\n  oracle:   {expected}"));
            }
        }
        assert!(differ.is_empty(), "{}", differ.join("\n"));
    });
}

#[test]
fn binary_and_empty_keys() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let all_bytes: Vec<u8> = (0..=255).collect();
    let keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], b"\r\n".to_vec(), vec![0xff; 70_000], all_bytes];
    let sets: Vec<_> = keys.iter().map(|key| vec![b"SET".to_vec(), key.clone(), key.clone()]).collect();
    let gets: Vec<_> = keys.iter().map(|key| vec![b"GET".to_vec(), key.clone()]).collect();
    conn.send(&encode_all(&sets)).unwrap();
    conn.send(&encode_all(&gets)).unwrap();
    for _ in &keys {
        assert_eq!(conn.read().unwrap().text(), b"OK");
    }
    for key in &keys {
        assert_eq!(conn.read().unwrap().text(), key);
    }
    assert_eq!(conn.cmd("DBSIZE").unwrap().integer(), Some(keys.len() as i64));
}

#[test]
fn many_arguments() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    const N: usize = 500_000;
    let push: Vec<Vec<u8>> = ["RPUSH", "l"]
        .iter()
        .map(|w| w.as_bytes().to_vec())
        .chain((0..N).map(|i| i.to_string().into_bytes()))
        .collect();
    assert_eq!(conn.call(&push).unwrap().integer(), Some(N as i64));
    assert_eq!(conn.cmd("LINDEX l -1").unwrap().text(), (N - 1).to_string().as_bytes());
}

/// Raises this process's limit of open files to its maximum, and returns it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).unwrap();
    most
}

#[test]
fn thousands_of_idle_connections() {
    // Leaves descriptors for the server, and for other files of this process.
    let most = raise_open_files();
    let n = 5000.min(most.saturating_sub(200)) as usize;
    unharmed(&["--maxclients", "6000"], |server| {
        let mut idle: Vec<Conn> = (0..n).map(|_| server.connect()).collect();
        let mut busy = server.connect();
        for i in 0..1000 {
            assert_eq!(busy.cmd(&format!("SET k {i}")).unwrap().text(), b"OK");
        }
        for conn in idle.iter_mut().step_by(97) {
            assert_eq!(conn.cmd("GET k").unwrap().text(), b"999");
        }
    });
}

/// Returns true if the server serves a new connection, false if it refuses or closes it.
fn is_served(conn: &mut Conn) -> bool {
    match conn.cmd("PING") {
        Ok(reply) if reply.text() == b"PONG" => true,
        Ok(reply) => {
            assert!(reply.text().starts_with(b"ERR max number of clients"), "{reply:?}");
            false
        }
        Err(e) => {
            assert!(closed(&e), "neither served nor refused: {e}");
            false
        }
    }
}

#[test]
fn file_descriptors_that_run_out() {
    let mut server = Server::penstock_with_open_files(&[], 64);
    let mut old = server.connect();
    let mut new: Vec<Conn> = (0..100).map(|_| server.connect()).collect();
    let served: Vec<bool> = new.iter_mut().map(is_served).collect();
    assert!(served.iter().any(|&yes| yes) && served.iter().any(|&yes| !yes), "{served:?}");
    assert_eq!(old.cmd("SET k v").unwrap().text(), b"OK");
    assert!(server.is_alive());
    drop(new);
    // After the server has noticed closed connections, there is room again.
    let mut tries = 0..1000;
    assert!(tries.any(|_| Conn::open(server.port()).is_ok_and(|mut conn| is_served(&mut conn))));
    assert_eq!(old.cmd("GET k").unwrap().text(), b"v");
}

#[test]
fn more_clients_than_allowed() {
    for server in [Server::oracle(&["--maxclients", "3"]), Server::penstock(&["--maxclients", "3"])] {
        let mut allowed: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
        allowed.iter_mut().for_each(|conn| assert_eq!(conn.cmd("PING").unwrap().text(), b"PONG"));
        let mut refused = server.connect();
        assert_eq!(escape(&refused.read_to_close().unwrap()), "-ERR max number of clients reached\\r\\n");
        assert_eq!(allowed[0].cmd("PING").unwrap().text(), b"PONG");
    }
}

#[test]
fn clients_that_vanish() -> io::Result<()> {
    unharmed(&[], |server| {
        let stream = encode_all(&[command("SET k 1"), command("MULTI"), command("INCR k"), command("SUBSCRIBE c")]);
        for cut in 0..stream.len() {
            server.connect().send(&stream[..cut]).unwrap();
        }
        for _ in 0..100 {
            let mut conn = server.connect();
            conn.send(&encode(&command("BLPOP nothing 0"))).unwrap();
            conn.send(&b"PING\r\n".repeat(100)).unwrap();
        }
    });
    Ok(())
}
