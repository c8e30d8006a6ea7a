//! Blocking reads of streams, and the borders of their blocks, on Penstock with one thread and with several, and on the
//! oracle where it agrees.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::thread;
use std::time::Duration;

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

/// Runs a test on each server; on the oracle only if 7.0 behaves like 7.2.
fn on_all(with_oracle: bool, test: impl Fn(&Server)) {
    let penstocks = [Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])];
    penstocks.iter().for_each(&test);
    if with_oracle {
        test(&Server::oracle(&[]));
    }
}

pub(super) fn expect(conn: &mut Conn, reply: &str) {
    assert_eq!(conn.read().unwrap().escaped(), reply.replace('|', "\\r\\n"));
}

pub(super) fn ask(conn: &mut Conn, line: &str, reply: &str) {
    assert_eq!(conn.cmd(line).unwrap().escaped(), reply.replace('|', "\\r\\n"), "{line}");
}

fn wait_until_blocked(server: &Server, n: usize) {
    let wanted = format!("blocked_clients:{n}\r\n");
    let mut conn = server.connect();
    for _ in 0..2000 {
        if conn.cmd("INFO clients").unwrap().text().windows(wanted.len()).any(|w| w == wanted.as_bytes()) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("there never were {n} blocked clients");
}

/// Returns a connection with a blocked command, after which `n` clients are blocked.
pub(super) fn waiting(server: &Server, line: &str, n: usize) -> Conn {
    let mut conn = server.connect();
    conn.send(&encode(&command(line))).unwrap();
    wait_until_blocked(server, n);
    conn
}

/// The reply with one entry of one stream.
fn entry(key: &str, id: &str, value: &str) -> String {
    let bulk = |text: &str| format!("${}|{text}|", text.len());
    format!("*1|*2|{}*1|*2|{}*2|{}{}", bulk(key), bulk(id), bulk("f"), bulk(value))
}

#[test]
fn one_entry_serves_all_readers() {
    on_all(true, |server| {
        let mut all: Vec<Conn> = (1..=3).map(|n| waiting(server, "XREAD BLOCK 0 STREAMS other s $ $", n)).collect();
        let mut other = server.connect();
        ask(&mut other, "XADD s 5-1 f v", "$3|5-1|");
        all.iter_mut().for_each(|conn| expect(conn, &entry("s", "5-1", "v")));
        ask(&mut other, "XADD s 5-2 f w", "$3|5-2|");
        wait_until_blocked(server, 0);
    });
}

#[test]
fn dollar_means_the_last_id_when_the_wait_began() {
    on_all(true, |server| {
        let mut other = server.connect();
        ask(&mut other, "XADD s 5-1 f v", "$3|5-1|");
        let mut conn = waiting(server, "XREAD COUNT 1 BLOCK 0 STREAMS s $", 1);
        other.send(b"MULTI\r\nXADD s 6-1 f a\r\nXADD s 6-2 f b\r\nEXEC\r\n").unwrap();
        other.read_n(4).unwrap();
        expect(&mut conn, &entry("s", "6-1", "a"));
    });
}

#[test]
fn an_entry_that_is_deleted_at_once_ends_no_wait() {
    // 7.0 replies without an entry.
    on_all(false, |server| {
        let mut other = server.connect();
        let mut conn = waiting(server, "XREAD BLOCK 0 STREAMS s $", 1);
        other.send(b"MULTI\r\nXADD s 7-1 f a\r\nXDEL s 7-1\r\nEXEC\r\n").unwrap();
        other.read_n(4).unwrap();
        ask(&mut other, "XADD s 7-2 f b", "$3|7-2|");
        expect(&mut conn, &entry("s", "7-2", "b"));
    });
}

#[test]
fn entries_go_to_the_readers_of_a_group_in_order_of_arrival() {
    on_all(true, |server| {
        let mut other = server.connect();
        ask(&mut other, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        let names = ["a", "b", "c"];
        let mut all: Vec<Conn> = (0..3)
            .map(|n| {
                let line = format!("XREADGROUP GROUP g {} COUNT 1 BLOCK 0 STREAMS s >", names[n]);
                waiting(server, &line, n + 1)
            })
            .collect();
        for (n, conn) in all.iter_mut().enumerate() {
            let id = format!("5-{n}");
            ask(&mut other, &format!("XADD s {id} f v"), &format!("$3|{id}|"));
            expect(conn, &entry("s", &id, "v"));
        }
        ask(&mut other, "XPENDING s g", "*4|:3|$3|5-0|$3|5-2|*3|*2|$1|a|$1|1|*2|$1|b|$1|1|*2|$1|c|$1|1|");
    });
}

#[test]
fn a_waiter_in_a_group_learns_that_it_is_gone() {
    let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option|";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    let endings = [
        ("DEL s", gone),
        ("UNLINK s", gone),
        ("XGROUP DESTROY s g", gone),
        ("RENAME s t", gone),
        ("FLUSHALL", gone),
        ("FLUSHDB ASYNC", gone),
        ("PEXPIRE s 1", gone),
        ("SET s x", wrong_type),
        ("EVAL return(redis.call('del',KEYS[1])) 1 s", gone),
    ];
    // 7.0 has other texts.
    on_all(false, |server| {
        let mut other = server.connect();
        for (ending, reply) in endings {
            other.cmd("FLUSHALL").unwrap();
            ask(&mut other, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
            // The reader without a group stays blocked.
            let mut reader = waiting(server, "XREAD BLOCK 0 STREAMS s $", 1);
            let mut conn = waiting(server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", 2);
            assert!(!other.cmd(ending).unwrap().is_error(), "{ending}");
            expect(&mut conn, reply);
            other.cmd("DEL s").unwrap();
            ask(&mut other, "XADD s 9-9 f v", "$3|9-9|");
            expect(&mut reader, &entry("s", "9-9", "v"));
            wait_until_blocked(server, 0);
        }
    });
}

/// Commands on a stream `s` that add no entry, and whether they count as a change for its watchers. The stream has a
/// group `g`, which has read all but the second of two entries.
const WITHOUT_NEWS: &[(&str, bool)] = &[
    ("XGROUP CREATE s h 0", false),
    ("XGROUP CREATE s h 0 MKSTREAM", false),
    ("XGROUP SETID s other 0", false),
    ("XGROUP DESTROY s other", false),
    ("XGROUP CREATECONSUMER s g d", false),
    ("XGROUP DELCONSUMER s g c", false),
    ("XSETID s 9-9", false),
    ("XREADGROUP GROUP other d STREAMS s 0", false),
    ("XREADGROUP GROUP other d COUNT 1 STREAMS s >", false),
    ("XCLAIM s other d 0 1-1", false),
    ("XAUTOCLAIM s other d 0 0", false),
    ("XACK s other 1-1", false),
    ("XDEL s 1-2", true),
    ("XTRIM s MAXLEN 1", true),
    ("EXPIRE s 100", true),
    ("XADD s 5-1 f v", true),
    ("EXPIRE s -1", true),
];

/// Recreates the stream for the next of these commands.
fn make_stream(conn: &mut Conn) {
    let lines = "FLUSHALL\nXADD s 1-1 f v\nXADD s 1-2 f v\nXGROUP CREATE s g $\nXGROUP CREATECONSUMER s g c\n\
                 XGROUP CREATE s other 0\nXREADGROUP GROUP other c COUNT 1 STREAMS s >";
    lines.lines().for_each(|line| assert!(!conn.cmd(line).unwrap().is_error(), "{line}"));
}

#[test]
fn groups_do_not_count_as_a_change_of_what_is_watched() {
    on_all(true, |server| {
        let (mut conn, mut other) = (server.connect(), server.connect());
        for (line, changes) in WITHOUT_NEWS {
            make_stream(&mut other);
            conn.cmd("WATCH s").unwrap();
            assert!(!other.cmd(line).unwrap().is_error(), "{line}");
            conn.cmd("MULTI").unwrap();
            assert_eq!(conn.cmd("EXEC").unwrap().is_null(), *changes, "{line}");
        }
        // A new stream is a change.
        make_stream(&mut other);
        conn.cmd("WATCH new").unwrap();
        other.cmd("XGROUP CREATE new g 0 MKSTREAM").unwrap();
        conn.cmd("MULTI").unwrap();
        assert!(conn.cmd("EXEC").unwrap().is_null());
    });
}

#[test]
fn a_command_that_adds_nothing_to_a_stream_retries_no_waiter() {
    on_all(true, |server| {
        let mut other = server.connect();
        // The commands behind the first XADD add entries or remove the stream; and 7.2 wakes readers when a group is
        // destroyed.
        let without_news = WITHOUT_NEWS.iter().take_while(|(line, _)| !line.starts_with("XADD"));
        for (line, _) in without_news.filter(|(line, _)| !line.contains("DESTROY")) {
            make_stream(&mut other);
            let mut reader = waiting(server, "XREAD BLOCK 0 STREAMS s none $ $", 1);
            // If the command ran again now, it would find the wrong type.
            other.cmd("SET none 1").unwrap();
            let mut member = waiting(server, "XREADGROUP GROUP g x BLOCK 0 STREAMS s >", 2);
            other.cmd("XGROUP DELCONSUMER s g x").unwrap();
            assert!(!other.cmd(line).unwrap().is_error(), "{line}");
            // A second run would have recreated its consumer.
            let consumers = other.cmd("XINFO CONSUMERS s g").unwrap();
            assert!(!consumers.items().iter().any(|one| one.items()[1].text() == b"x"), "{line}");
            other.cmd("DEL none").unwrap();
            ask(&mut other, "XADD s 10-1 f v", "$4|10-1|");
            expect(&mut reader, &entry("s", "10-1", "v"));
            expect(&mut member, &entry("s", "10-1", "v"));
        }
        // Setting the group back wakes no reader either.
        make_stream(&mut other);
        let mut member = waiting(server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", 1);
        ask(&mut other, "XGROUP SETID s g 1-1", "+OK|");
        wait_until_blocked(server, 1);
        ask(&mut other, "XADD s 10-1 f v", "$4|10-1|");
        assert!(member.read().unwrap().escaped().contains("1-2"));
        wait_until_blocked(server, 0);
    });
}

#[test]
fn a_wait_ends_in_time_or_from_outside() {
    on_all(true, |server| {
        let (mut conn, mut other) = (server.connect(), server.connect());
        ask(&mut conn, "XREAD BLOCK 5 STREAMS s 0", "*-1|");
        let id = conn.cmd("CLIENT ID").unwrap().integer().unwrap();
        for (how, reply) in [("TIMEOUT", "*-1|"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|")] {
            conn.send(&encode(&command("XREAD BLOCK 0 STREAMS s $"))).unwrap();
            wait_until_blocked(server, 1);
            ask(&mut other, &format!("CLIENT UNBLOCK {id} {how}"), ":1|");
            expect(&mut conn, reply);
        }
        conn.cmd("HELLO 3").unwrap();
        ask(&mut conn, "XREAD BLOCK 5 STREAMS s 0", "_|");
        conn.send(&encode(&command("XREAD BLOCK 0 STREAMS s $"))).unwrap();
        wait_until_blocked(server, 1);
        ask(&mut other, "XADD s 1-1 f v", "$3|1-1|");
        expect(&mut conn, "%1|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|");
    });
}

#[test]
fn no_command_waits_within_a_transaction() {
    on_all(true, |server| {
        let mut conn = server.connect();
        ask(&mut conn, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        conn.send(
            b"MULTI\r\nXREAD BLOCK 0 STREAMS s $\r\nXREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\nEXEC\r\nPING\r\n",
        )
        .unwrap();
        let replies = conn.read_n(5).unwrap();
        assert_eq!(replies[3].escaped(), "*2\\r\\n*-1\\r\\n*-1\\r\\n");
    });
}

#[test]
fn no_command_waits_within_a_script() {
    // 7.0 refuses BLOCK in scripts.
    on_all(false, |server| {
        let mut conn = server.connect();
        ask(&mut conn, "EVAL return(redis.call('xread','block','0','streams',KEYS[1],'$')) 1 s", "$-1|");
    });
}

#[test]
fn events_of_streams_are_published() {
    on_all(true, |server| {
        let (mut listener, mut conn) = (server.connect(), server.connect());
        ask(&mut conn, "CONFIG SET notify-keyspace-events Et", "+OK|");
        listener.cmd("PSUBSCRIBE __keyevent@0__:*").unwrap();
        let lines = [
            ("XADD s MAXLEN 1 1-1 f v", "xadd"),
            ("XADD s 2-1 f v", "xadd"),
            ("XTRIM s MAXLEN 1", "xtrim"),
            ("XDEL s 2-1", "xdel"),
            ("XSETID s 5-5", "xsetid"),
            ("XGROUP CREATE s g 0", "xgroup-create"),
            ("XGROUP SETID s g 0", "xgroup-setid"),
            ("XGROUP CREATECONSUMER s g c", "xgroup-createconsumer"),
            ("XGROUP DELCONSUMER s g c", "xgroup-delconsumer"),
            ("XGROUP DESTROY s g", "xgroup-destroy"),
        ];
        for (line, event) in lines {
            conn.cmd(line).unwrap();
            let heard = listener.read().unwrap();
            assert_eq!(heard.items()[2].text(), format!("__keyevent@0__:{event}").as_bytes(), "{line}");
        }
    });
}

/// Returns the length of a stream after each of many additions that trim by whole blocks, for entries of several
/// shapes.
fn lengths_with_blocks(server: &Server) -> Vec<i64> {
    let mut conn = server.connect();
    ask(&mut conn, "CONFIG SET stream-node-max-entries 0", "+OK|");
    let mut lengths = Vec::new();
    for len in [1, 40, 60, 63, 100, 1000] {
        ask(&mut conn, "DEL s t", if lengths.is_empty() { ":0|" } else { ":2|" });
        for n in 1..=800 {
            let value = "x".repeat(len);
            let fields = match n % 5 {
                0 => format!("other {value} n -{n}"),
                _ => format!("n {n} event {value}"),
            };
            conn.cmd(&format!("XADD s MAXLEN ~ 10 {}-{} {fields}", 1_795_453_820_547_u64 + n / 3 * 7, n % 3)).unwrap();
            if n % 7 == 0 {
                conn.cmd(&format!("XDEL s {}-{}", 1_795_453_820_547_u64 + n / 3 * 7, n % 3)).unwrap();
            }
            if n % 400 == 30 {
                conn.cmd("COPY s t REPLACE").unwrap();
                conn.cmd("RENAME t s").unwrap();
                conn.cmd("COPY s t").unwrap();
            }
            lengths.push(conn.cmd("XLEN s").unwrap().integer().unwrap());
        }
    }
    lengths
}

#[test]
fn trimming_by_whole_blocks_leaves_as_much_as_in_redis() {
    let wanted = lengths_with_blocks(&Server::oracle(&[]));
    on_all(false, |server| assert_eq!(lengths_with_blocks(server), wanted));
}

/// Random commands about messages with producers' ids. The streams' last IDs are in the far future, so that new IDs
/// don't depend on the clock and no message is too old.
fn named_messages(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mut lines: Vec<String> = ["s", "t"].map(|key| format!("XADD {key} 9999999999999-1 a b")).into();
    let mut draw = |of: &[&'static str]| of[rng.below(of.len())];
    for _ in 0..200 {
        let key = draw(&["s", "t", "s", "new"]);
        let (producer, identity) = (draw(&["p", "q", "r"]), draw(&["1", "2", "3", "4", "5", "6", "*"]));
        let trim = draw(&["", "", " MAXLEN 3", " NOMKSTREAM", " KEEPREF"]);
        lines.push(
            match draw(&["add", "add", "add", "auto", "set", "record", "del", "info", "full", "copy", "wrong"]) {
                "add" if key == "new" => format!("XADD new NOMKSTREAM IDMP {producer} {identity} * f v"),
                "add" => {
                    format!("XADD {key}{trim} IDMP {producer} {identity}{} * f v", draw(&["", "", " MAXLEN ~ 10"]))
                }
                "auto" if key != "new" => {
                    format!("XADD {key} IDMPAUTO {producer}{trim} * {} x {} y", draw(&["a", "b"]), draw(&["a", "b"]))
                }
                "set" => format!(
                    "XCFGSET {key} IDMP-{}",
                    draw(&["MAXSIZE 2", "MAXSIZE 3 IDMP-DURATION 100", "DURATION 100", "MAXSIZE 0", "X"])
                ),
                "record" => {
                    format!("XIDMPRECORD {key} {producer} {identity} 9999999999999-{}", draw(&["1", "2", "3", "x"]))
                }
                "del" => format!("XDEL {key} 9999999999999-{}", draw(&["2", "3", "4", "5"])),
                "info" => format!("XINFO STREAM {key}"),
                "full" => format!("XINFO STREAM {key} FULL"),
                "copy" => "COPY s t REPLACE".to_owned(),
                _ => format!(
                    "XADD {key} {}",
                    draw(&["IDMP p 1 1-1 a b", "IDMP p * a b", "IDMPAUTO p IDMP p 1 * a b", "IDMP p 1 *", "IDMPAUTO"])
                ),
            },
        );
    }
    lines
}

#[test]
fn messages_that_producers_name_are_added_once_as_in_redis_8() {
    let Some(oracle) = Server::redis8(&[]) else { return };
    let subject = Server::penstock(&["--threads", "2"]);
    for seed in 0..60 {
        let mut conns = [subject.connect(), oracle.connect()];
        conns.each_mut().into_iter().for_each(|conn| drop(conn.cmd("FLUSHALL").unwrap()));
        for line in named_messages(seed) {
            let [own, redis] = conns.each_mut().map(|conn| without_nodes(&conn.cmd(&line).unwrap().escaped()));
            assert_eq!(own, redis, "seed {seed}: {line}");
        }
    }
}

/// Removes the count of radix tree nodes, since Penstock has no radix tree.
fn without_nodes(reply: &str) -> String {
    let Some((before, rest)) = reply.split_once("radix-tree-nodes\\r\\n") else { return reply.to_owned() };
    let (_, after) = rest.split_once("\\r\\n").unwrap();
    format!("{before}{after}")
}

/// The other server knows the same messages after DUMP and RESTORE.
#[test]
fn payloads_carry_producers_messages_to_and_from_redis_8() {
    let Some(oracle) = Server::redis8(&[]) else { return };
    let subject = Server::penstock(&[]);
    for (from, to) in [(&subject, &oracle), (&oracle, &subject)] {
        let (mut from, mut to) = (from.connect(), to.connect());
        from.cmd("FLUSHALL").unwrap();
        to.cmd("FLUSHALL").unwrap();
        ask(&mut from, "XADD s 9999999999999-1 a b", "$15|9999999999999-1|");
        ask(&mut from, "XCFGSET s IDMP-DURATION 50 IDMP-MAXSIZE 2", "+OK|");
        for (producer, identity) in [("p", "1"), ("p", "2"), ("p", "3"), ("q", "1"), ("q", "1")] {
            from.cmd(&format!("XADD s IDMP {producer} {identity} * f v")).unwrap();
        }
        from.cmd("XGROUP CREATE s g 0").unwrap();
        from.cmd("XREADGROUP GROUP g c COUNT 1 STREAMS s >").unwrap();
        let payload = from.cmd("DUMP s").unwrap().text().to_vec();
        let restored = to.call(&[b"RESTORE".to_vec(), b"s".to_vec(), b"0".to_vec(), payload]).unwrap();
        assert_eq!(restored.escaped(), "+OK\\r\\n");
        let [before, after] =
            [&mut from, &mut to].map(|conn| without_nodes(&conn.cmd("XINFO STREAM s").unwrap().escaped()));
        assert_eq!(before, after);
        ask(&mut to, "XADD s IDMP p 3 * f v", "$15|9999999999999-4|");
        ask(&mut to, "XADD s IDMP p 1 * f v", "$15|9999999999999-6|");
        ask(&mut to, "XADD s IDMP p 2 * f v", "$15|9999999999999-7|");
    }
}

/// Snapshots and append-only files of a server, read after a restart.
#[test]
fn files_keep_producers_messages() {
    for preamble in ["yes", "no"] {
        let server = Server::penstock(&[
            "--appendonly",
            "yes",
            "--aof-use-rdb-preamble",
            preamble,
            "--enable-debug-command",
            "yes",
        ]);
        let mut conn = server.connect();
        conn.cmd("XADD s 9999999999999-1 a b").unwrap();
        conn.cmd("XADD s IDMP p 1 * f v").unwrap();
        conn.cmd("BGREWRITEAOF").unwrap();
        server.wait_until("the rewrite to end", |server| server.figure("aof_rewrite_in_progress") == 0);
        conn.cmd("XADD s IDMP p 2 * f v").unwrap();
        conn.cmd("XADD s IDMPAUTO p * f v").unwrap();
        let info = conn.cmd("XINFO STREAM s").unwrap().escaped();
        for reload in ["DEBUG LOADAOF", "DEBUG RELOAD"] {
            ask(&mut conn, reload, "+OK|");
            assert_eq!(conn.cmd("XINFO STREAM s").unwrap().escaped(), info, "{reload}");
        }
        ask(&mut conn, "XADD s IDMP p 2 * f v", "$15|9999999999999-3|");
        ask(&mut conn, "XADD s IDMPAUTO p * f v", "$15|9999999999999-4|");
    }
}
