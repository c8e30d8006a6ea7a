//! Fields that expire, compared with Redis 8 and Valkey 9. Tests print a note if one isn't installed.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use penstock_tests::diff::Servers;
use penstock_tests::directory::Directory;
use penstock_tests::families::{self, FIELD_EFFECTS, FIELDS};
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;

/// Number of seeds in an ordinary run.
const ROUNDS: u64 = 120;
/// Fields of a hash that a snapshot saves in many steps.
const LARGE: usize = 10_000;
/// A time in the far future, in milliseconds.
const FAR_MS: u64 = 4_102_444_800_000;

/// True for an HSETEX with a duplicate field, which may crash Redis 8.6, and for one with NX or XX, which Redis doesn't
/// know.
fn is_apart(command: &[Vec<u8>]) -> bool {
    let asks_for_key = command.iter().any(|word| word.eq_ignore_ascii_case(b"nx") || word.eq_ignore_ascii_case(b"xx"));
    let at = command.iter().position(|word| word.eq_ignore_ascii_case(b"fields")).map_or(command.len(), |at| at + 2);
    let mut fields: Vec<_> = command.iter().skip(at).step_by(2).collect();
    let count = fields.len();
    fields.sort();
    fields.dedup();
    command[0].eq_ignore_ascii_case(b"HSETEX") && (fields.len() < count || asks_for_key)
}

#[test]
fn commands_on_fields_answer_as_those_of_redis_8() {
    let Some(oracle) = Server::redis8(&[]) else { return };
    let servers = Servers::with_oracle(oracle);
    // Commands of other families are compared with their own oracle.
    let keeps = |command: &Vec<Vec<u8>>| {
        // Redis 8 refuses an empty cursor.
        let has_cursor =
            !command[0].eq_ignore_ascii_case(b"HSCAN") || command.get(2).is_some_and(|cursor| cursor == b"0");
        // Redis 8 has other limits for the encodings of strings.
        let is_string = command[0].eq_ignore_ascii_case(b"SET");
        has_cursor && !is_string && !is_apart(command) && families::have(&[FIELDS, FIELD_EFFECTS], command)
    };
    let check = |seed| servers.check_those(&FIELDS, seed, keeps);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("PENSTOCK_SEED") {
        return check(seed);
    }
    (0..number("PENSTOCK_DIFF_ROUNDS").unwrap_or(ROUNDS)).for_each(check);
}

/// Sends commands, one in each line, and returns the replies.
fn answers(server: &Server, lines: &str) -> Vec<Reply> {
    let mut conn = server.connect();
    conn.send(lines.replace('\n', "\r\n").as_bytes()).unwrap();
    conn.read_n(lines.lines().count()).unwrap()
}

/// Sends commands, and checks that none fails.
fn fill(server: &Server, lines: &str) {
    let failed: Vec<_> = answers(server, lines).into_iter().filter(Reply::is_error).collect();
    assert!(failed.is_empty(), "{}", failed[0].escaped());
}

fn text(server: &Server, line: &str) -> String {
    String::from_utf8_lossy(server.connect().cmd(line).unwrap().text()).into_owned()
}

#[test]
fn fields_expire_as_in_redis_8() {
    let subject = Server::penstock(&["--threads", "2"]);
    let lines = "HSET h a 1 b 2 c 3\nHPEXPIRE h 500 FIELDS 2 a b\nHSET gone a 1\nHPEXPIRE gone 500 FIELDS 1 a\nHSETEX new PX 500 FIELDS 2 a 1 b 2\n\
                 HSET new c 3\nHSET kept a 1 b 2\nHPEXPIRE kept 500 FIELDS 2 a b\nHSET kept a 5\nHPERSIST kept FIELDS 1 b\nCOPY h copy\nRENAME new moved\n";
    let questions = "HGETALL h\nHLEN h\nEXISTS gone\nHGETALL moved\nHMGET kept a b\nHTTL kept FIELDS 2 a b\nHGETALL copy\nDBSIZE\nHTTL h FIELDS 3 a b c\n";
    let ask = |server: &Server| {
        fill(server, lines);
        sleep(Duration::from_millis(1200));
        answers(server, questions)
    };
    let got = ask(&subject);
    for oracle in [Server::redis8(&[]), Server::valkey9(&[])].into_iter().flatten() {
        assert_eq!(got, ask(&oracle));
    }
    assert_eq!((got[2].integer(), got[7].integer()), (Some(0), Some(4)));
    assert_eq!(subject.figure("expired_subkeys"), 7);
}

/// Hashes in every encoding, most of them with fields that expire. `ways`: true if the server has HSETEX.
fn hashes() -> String {
    let mut lines = format!(
        "HSET plain a 1\nHSET small a 1 b 2 c 3\nHPEXPIREAT small {FAR_MS} FIELDS 2 a c\nHSET long a {}\nHPEXPIREAT long {} FIELDS 1 a\n\
         HSET mixed a 1 b {}\nHPEXPIREAT mixed {FAR_MS} FIELDS 1 a\nHSET stays a 1 b 2\nHPEXPIREAT stays {FAR_MS} FIELDS 1 a\nHPERSIST stays FIELDS 1 a\n",
        "x".repeat(100),
        FAR_MS + 5,
        "y".repeat(100),
    );
    for i in 0..LARGE / 100 {
        let range = i * 100..(i + 1) * 100;
        let words = |word: &dyn Fn(usize) -> String| range.clone().map(word).collect::<Vec<_>>().join(" ");
        lines += &format!("HSET wide {}\n", words(&|n| format!("field{n} value{n}")));
        lines += &format!("HSET wide2 {}\n", words(&|n| format!("field{n} value{n}")));
        if i % 2 == 0 {
            lines += &format!("HPEXPIREAT wide {} FIELDS 100 {}\n", FAR_MS + i as u64, words(&|n| format!("field{n}")));
        }
    }
    lines
}

fn start(directory: &Directory, args: &[&str]) -> Server {
    let own = ["--dir", directory.root(), "--threads", "2", "--enable-debug-command", "yes"];
    Server::penstock(&[&own[..], args].concat())
}

fn redis8(directory: &Directory) -> Option<Server> {
    Server::redis8(&["--dir", directory.root(), "--enable-debug-command", "yes"])
}

#[test]
fn saved_fields_that_expire_are_loaded_again_and_by_redis_8() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    let header = || fs::read(directory.join("dump.rdb")).unwrap()[..9].to_vec();
    fill(&server, "HSET h a 1\n");
    assert_eq!(text(&server, "SAVE"), "OK");
    assert_eq!(header(), b"REDIS0010", "without such fields, the version is the one that all can read");
    fill(&server, &hashes());
    let before = text(&server, "DEBUG DIGEST");
    assert_eq!(text(&server, "BGSAVE"), "Background saving started");
    server.wait_until("the snapshot has been made", |server| server.figure("rdb_bgsave_in_progress") == 0);
    assert_eq!(header(), b"REDIS0012");
    drop(server);
    if let Some(redis) = redis8(&directory) {
        assert_eq!(text(&redis, "DEBUG DIGEST"), before, "Redis reads what Penstock wrote");
        assert_eq!(
            answers(&redis, "HPEXPIRETIME wide FIELDS 2 field0 field100\n")[0].items()[0].integer(),
            Some(FAR_MS as i64)
        );
    }
    let server = start(&directory, &[]);
    assert_eq!(text(&server, "DEBUG DIGEST"), before);
    let times = answers(&server, "HPEXPIRETIME wide FIELDS 3 field0 field100 field250\n");
    let times: Vec<_> = times[0].items().iter().map(|time| time.integer().unwrap()).collect();
    assert_eq!(times, [FAR_MS as i64, -1, FAR_MS as i64 + 2]);
    assert!(text(&server, "INFO keyspace").contains("subexpiry=4"), "{}", text(&server, "INFO keyspace"));
    fill(&server, "FLUSHALL\nHSET h a 1\n");
    assert_eq!(text(&server, "SAVE"), "OK");
    assert_eq!(header(), b"REDIS0010");
}

#[test]
fn snapshots_of_redis_8_and_valkey_9_are_read() {
    for is_redis in [true, false] {
        let directory = Directory::new();
        let args = ["--dir", directory.root(), "--enable-debug-command", "yes"];
        let oracle = if is_redis { Server::redis8(&args) } else { Server::valkey9(&args) };
        let Some(oracle) = oracle else { continue };
        fill(&oracle, &hashes());
        let questions = "HPEXPIRETIME wide FIELDS 3 field0 field100 field250\nHPEXPIRETIME small FIELDS 3 a b c\nHPEXPIRETIME long FIELDS 1 a\n\
                         HLEN wide\nHMGET mixed a b\nHPEXPIRETIME mixed FIELDS 2 a b\nDBSIZE\n";
        let (digest, said) = (text(&oracle, "DEBUG DIGEST"), answers(&oracle, questions));
        assert_eq!(text(&oracle, "SAVE"), "OK");
        drop(oracle);
        let server = start(&directory, &[]);
        assert_eq!(answers(&server, questions), said);
        // Valkey's digest doesn't depend on the expiry of fields.
        assert!(!is_redis || text(&server, "DEBUG DIGEST") == digest);
    }
}

#[test]
fn payloads_are_those_of_redis_8_but_for_their_version() {
    let Some(redis) = Server::redis8(&[]) else { return };
    let server = Server::penstock(&[]);
    let lines = format!(
        "HSET h a 1 b 2 c 3 d {}\nHPEXPIREAT h {} FIELDS 1 d\nHPEXPIREAT h {FAR_MS} FIELDS 2 b c\nHSET one a {}\nHPEXPIREAT one {FAR_MS} FIELDS 1 a\n",
        "v".repeat(60),
        // The earliest time first: Redis tolerates some seconds in the payloads that it writes.
        FAR_MS - 1,
        "v".repeat(100)
    );
    [&redis, &server].into_iter().for_each(|server| fill(server, &lines));
    for key in ["h", "one"] {
        let payload = |server: &Server| server.connect().cmd(&format!("DUMP {key}")).unwrap().text().to_vec();
        let (theirs, ours) = (payload(&redis), payload(&server));
        // Version and checksum are the last ten bytes.
        assert_eq!(theirs[..theirs.len() - 10], ours[..ours.len() - 10], "{key}");
        for (from, to) in [(&theirs, &server), (&ours, &redis)] {
            let words = [b"RESTORE".to_vec(), b"copy".to_vec(), b"0".to_vec(), from.clone(), b"REPLACE".to_vec()];
            assert_eq!(to.connect().call(&words).unwrap().text(), b"OK");
            let encoding = |key: &str| text(to, &format!("OBJECT ENCODING {key}"));
            assert_eq!(encoding("copy"), encoding(key));
            let copied = answers(
                to,
                &format!(
                    "HGETALL copy\nHGETALL {key}\nHPEXPIRETIME copy FIELDS 2 a b\nHPEXPIRETIME {key} FIELDS 2 a b\n"
                ),
            );
            assert_eq!((&copied[0], &copied[2]), (&copied[1], &copied[3]));
        }
    }
}

#[test]
fn an_append_only_file_has_the_times_of_fields() {
    for preamble in ["yes", "no"] {
        let directory = Directory::new();
        let args = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let server = start(&directory, &args);
        fill(&server, &hashes());
        fill(
            &server,
            "HSET soon a 1 b 2\nHPEXPIRE soon 30 FIELDS 1 a\nHSETEX later EX 1000 FIELDS 1 a 1\nHGETEX later EX 2000 FIELDS 1 a\n",
        );
        sleep(Duration::from_millis(200));
        let before = text(&server, "DEBUG DIGEST");
        drop(server);
        let server = start(&directory, &args);
        assert_eq!(text(&server, "DEBUG DIGEST"), before, "from the commands as they came");
        assert_eq!(text(&server, "BGREWRITEAOF"), "Background append only file rewriting started");
        server.wait_until("the file has been rewritten", |server| server.figure("aof_rewrite_in_progress") == 0);
        fill(&server, "HPEXPIREAT wide2 4102444800009 FIELDS 1 field7\nHGETDEL small FIELDS 1 a\n");
        let before = text(&server, "DEBUG DIGEST");
        drop(server);
        assert_eq!(text(&start(&directory, &args), "DEBUG DIGEST"), before, "from a base with preamble: {preamble}");
    }
}
