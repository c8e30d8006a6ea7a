//! `penstock check` as a user runs it: intact files, and files with every kind of damage, of Redis and of Penstock.
//! Debian's redis-check-rdb and redis-check-aof provide the expected results for Redis's files.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use penstock_tests::directory::Directory;
use penstock_tests::loader::Ran;
use penstock_tests::rng::Rng;
use penstock_tests::server::{Server, subject_program};

/// Number of randomly damaged files of each kind for both checkers.
const ROUNDS: u64 = 60;

fn check_with(args: &[&str], input: &str) -> Ran {
    let mut command = Command::new(subject_program());
    command.arg("check").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ran::of(&child.wait_with_output().unwrap())
}

fn check(args: &[&str]) -> Ran {
    check_with(args, "")
}

/// Returns the exit status of one of Redis's own checkers.
fn checked_by_redis(program: &str, path: &str) -> i32 {
    Command::new(program).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code().unwrap()
}

/// Starts a server with an append-only file in a directory that outlives it.
fn start(server: fn(&[&str]) -> Server, directory: &Directory, more: &[&str]) -> Server {
    server(&[&["--dir", directory.root(), "--appendonly", "yes", "--appendfsync", "always"], more].concat())
}

fn run(server: &Server, commands: &[&str]) {
    let mut conn = server.connect();
    for command in commands {
        conn.cmd(command).unwrap();
    }
}

fn populate(server: &Server) {
    run(
        server,
        &[
            "SET a 1",
            "SET b hello EX 100000",
            "RPUSH l a b c",
            "SADD s x y",
            "ZADD z 1.5 a",
            "HSET h f v",
            "XADD stream 1-1 f v",
            "SELECT 3",
            "SET in-three v",
            "MULTI",
            "SET t 1",
            "SET u 2",
            "EXEC",
        ],
    );
}

/// Shuts a server down, so that all data is on disk.
fn end(mut server: Server) {
    let _ = server.connect().cmd("SHUTDOWN NOSAVE");
    for _ in 0..500 {
        if !server.is_alive() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    server.kill();
}

/// Creates a Redis snapshot with a key of each type.
fn snapshot(directory: &Directory) -> PathBuf {
    let server = Server::oracle(&["--dir", directory.root()]);
    populate(&server);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let load: Vec<Vec<u8>> = ["FUNCTION", "LOAD", library].iter().map(|word| word.as_bytes().to_vec()).collect();
    assert_eq!(server.connect().call(&load).unwrap().text(), b"lib");
    run(&server, &["SAVE"]);
    end(server);
    PathBuf::from(directory.path("dump.rdb"))
}

/// Creates an append-only file that contains only commands: `--aof-use-rdb-preamble no` makes Redis write its first
/// base as commands, too.
fn log(server: fn(&[&str]) -> Server, directory: &Directory) -> PathBuf {
    let server = start(server, directory, &["--aof-use-rdb-preamble", "no"]);
    populate(&server);
    end(server);
    let path = directory.path("appendonlydir/appendonly.aof.1.incr.aof");
    PathBuf::from(path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Checks that each expected text occurs in a line of its own.
fn has(ran: &Ran, expected: &[&str]) {
    for line in expected {
        assert!(ran.out.contains(line), "{line:?} is not in:\n{}{}", ran.out, ran.err);
    }
}

#[test]
fn a_snapshot_is_described() {
    let directory = Directory::new();
    let path = snapshot(&directory);
    let ran = check(&[text(&path)]);
    assert_eq!((ran.status, &*ran.err), (0, ""), "{}", ran.out);
    has(
        &ran,
        &[
            "dump.rdb: whole, a snapshot, ",
            "written by Redis 7.0.",
            " in format REDIS0010, checksum right\n",
            "database 0: 7 keys (2 strings, 1 list, 1 set, 1 sorted set, 1 hash, 1 stream), 1 expires\n",
            "database 3: 3 keys (3 strings)\n",
            "libraries of functions: lib\n",
            "largest keys, in bytes of the file: stream ",
        ],
    );
    let ran = check(&["--quiet", text(&path)]);
    assert_eq!((ran.status, &*ran.out, &*ran.err), (0, "", ""));
    let ran = check(&["--json", text(&path)]);
    has(
        &ran,
        &["\"whole\": true,\n", "\"kind\": \"snapshot\"", "\"string\": 2", "\"lib\": 1", "\"checksum_is_right\": true"],
    );
}

#[test]
fn the_difference_of_two_snapshots_is_listed() {
    let (one, other) = (Directory::new(), Directory::new());
    let first = snapshot(&one);
    let server = Server::penstock(&["--dir", other.root()]);
    populate(&server);
    run(&server, &["SELECT 0", "DEL a", "SET new:1 x", "SET new:2 y", "RPUSH l d", "SELECT 3", "INCR counter", "SAVE"]);
    end(server);
    let second = other.path("dump.rdb");
    has(&check(&[&second]), &["largest prefixes: new: ", " in 2 keys\n"]);
    // The servers store the same values differently, and their times to live began at different times.
    let ran = check(&["--diff", text(&first), &second]);
    assert_eq!((ran.status, &*ran.err), (1, ""), "{}", ran.out);
    let expected = [
        "7 keys equal\n",
        "3 keys added: new:1, new:2, counter (database 3)\n",
        "1 key removed: a\n",
        "1 key changed: l\n",
        "1 key with another expiry time: b\n",
    ];
    has(&ran, &expected);
    let ran = check(&["--diff", &second, text(&first)]);
    has(&ran, &["1 key added: a\n", "3 keys removed: new:1, new:2, counter (database 3)\n"]);
    let ran = check(&["--diff", text(&first), text(&first)]);
    assert_eq!((ran.status, &*ran.out, &*ran.err), (0, "10 keys equal\n", ""));
    let ran = check(&["--diff", "--json", text(&first), &second]);
    has(&ran, &["\"removed\": {\n    \"count\": 1,", "\"equal\": 7"]);
    assert_eq!(check(&["--diff", text(&first)]).status, 2);
    let ran = check(&["--diff", text(&first), "Cargo.toml"]);
    assert_eq!((ran.status, &*ran.out), (2, ""));
    assert!(ran.err.starts_with("penstock check: can't read Cargo.toml as a snapshot: "), "{}", ran.err);
}

#[test]
fn data_that_only_penstock_has_is_described() {
    let directory = Directory::new();
    let server = Server::penstock(&["--dir", directory.root()]);
    populate(&server);
    run(&server, &["SCRIPT LOAD return", "PIPELINE START token", "PIPELINE ABORT ON", "SAVE"]);
    end(server);
    let ran = check(&[&directory.path("dump.rdb")]);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    has(&ran, &["database 3: 3 keys", "1 script, of SCRIPT LOAD\n", "1 pipeline token of Penstock\n"]);
}

#[test]
fn fixtures_of_other_servers_are_whole() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/fixtures");
    let ran = check(&[text(&fixtures)]);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    has(
        &ran,
        &["redis-7.0.rdb: whole", "redis-8.6.rdb: whole", "valkey-9.1.rdb: whole", "by Valkey 9.1.", "VALKEY080"],
    );
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_snapshot_is_detected() {
    let directory = Directory::new();
    let path = snapshot(&directory);
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let cut = directory.file("cut.rdb", &bytes[..at]);
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let flipped = directory.file("flip.rdb", flipped);
        let ran = check(&[&cut, &flipped]);
        assert_eq!(ran.status, 1, "{at}: {}", ran.out);
        assert_eq!(ran.out.matches("problem: ").count(), 2, "{at}: {}", ran.out);
        assert_eq!(ran.out.matches("remedy: ").count(), 2, "{at}: {}", ran.out);
    }
    let cut = directory.file("cut.rdb", &bytes[..bytes.len() - 30]);
    has(&check(&[&cut]), &["cut.rdb: BROKEN, a snapshot, ", &format!("it is cut off at byte {}\n", bytes.len() - 30)]);
}

#[test]
fn errors_in_a_snapshot_name_the_key() {
    let directory = Directory::new();
    let bytes = fs::read(snapshot(&directory)).unwrap();
    let at = bytes.windows(3).position(|window| window == b"\x01sz" || window == b"\x01s\x02").unwrap();
    // One member of the set becomes equal to the other one.
    let mut twice = bytes.clone();
    let x = at + bytes[at..].iter().position(|&byte| byte == b'x').unwrap();
    twice[x] = b'y';
    let path = directory.file("twice.rdb", twice);
    let ran = check(&[&path]);
    assert_eq!(ran.status, 1);
    has(&ran, &["a collection with a duplicate element at byte ", "in the value of the key s of database 0"]);
    let mut later = bytes;
    later[5..9].copy_from_slice(b"0099");
    let path = directory.file("later.rdb", later);
    let ran = check(&[&path]);
    assert_eq!(ran.status, 1);
    has(&ran, &["later.rdb: NOT SUPPORTED", "its version, REDIS0099, is not known"]);
}

#[test]
fn commands_are_described() {
    for (server, expected) in [
        (Server::oracle as fn(&[&str]) -> Server, "incr.aof: whole, commands of an append-only file, "),
        (Server::penstock, " of Penstock with checksums\n"),
    ] {
        let directory = Directory::new();
        let path = log(server, &directory);
        let ran = check(&[text(&path)]);
        assert_eq!((ran.status, &*ran.err), (0, ""), "{}", ran.out);
        has(&ran, &[expected, "12 commands, 1 transaction", "SET 5, ", "databases: 0, 3\n"]);
        let ran = check(&[directory.root()]);
        assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
        has(&ran, &["appendonly.aof.manifest: whole, the manifest of an append-only file; it names "]);
    }
}

#[test]
fn a_snapshot_base_and_its_increments_are_checked() {
    let directory = Directory::new();
    let server = start(Server::oracle, &directory, &[]);
    populate(&server);
    run(&server, &["BGREWRITEAOF"]);
    server.wait_until("the rewrite has ended", |_| {
        fs::read_to_string(directory.path("appendonlydir/appendonly.aof.manifest")).unwrap().contains("2.base.rdb")
    });
    run(&server, &["SET after 1"]);
    end(server);
    let base = PathBuf::from(directory.path("appendonlydir/appendonly.aof.2.base.rdb"));
    let increment = PathBuf::from(directory.path("appendonlydir/appendonly.aof.2.incr.aof"));
    let manifest = directory.path("appendonlydir/appendonly.aof.manifest");
    let ran = check(&[&manifest]);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    has(
        &ran,
        &["it names 2 files\n", "base.rdb: whole, a snapshot, ", "incr.aof: whole, commands", "database 3: 3 keys"],
    );
    // An append-only file of Redis 6: a snapshot followed by commands.
    let both = [fs::read(&base).unwrap(), fs::read(&increment).unwrap()].concat();
    let path = directory.file("old.aof", &both);
    let ran = check(&[&path]);
    assert_eq!((ran.status, checked_by_redis("redis-check-aof", &path)), (0, 0), "{}", ran.out);
    has(&ran, &["old.aof: whole, a snapshot and commands, ", "2 commands\n"]);
    let path = directory.file("old.aof", &both[..both.len() - 1]);
    let ran = check(&["--fix", "--yes", &path]);
    assert_eq!((ran.status, checked_by_redis("redis-check-aof", &path)), (0, 0), "{}", ran.out);
    has(&ran, &["old.aof: TORN at its end, a snapshot and commands, "]);
    // A truncated base can't be repaired.
    let whole = fs::read(&base).unwrap();
    fs::write(&base, &whole[..whole.len() - 1]).unwrap();
    let ran = check(&["--fix", "--yes", &manifest]);
    assert_eq!(ran.status, 1);
    has(&ran, &["base.rdb: BROKEN, a snapshot, "]);
    assert!(ran.err.contains("--fix can't repair this file"), "{}", ran.err);
    assert_eq!(fs::metadata(&base).unwrap().len(), whole.len() as u64 - 1);
    // A missing base.
    fs::remove_file(&base).unwrap();
    let ran = check(&[&manifest]);
    assert_eq!(ran.status, 1);
    has(&ran, &["base.rdb: BROKEN", "the file can't be read: No such file"]);
}

#[test]
fn a_torn_end_is_cut_off_and_the_file_loads() {
    for server in [Server::oracle as fn(&[&str]) -> Server, Server::penstock] {
        let directory = Directory::new();
        let path = log(server, &directory);
        let bytes = fs::read(&path).unwrap();
        let torn = &bytes[..bytes.len() - 5];
        fs::write(&path, torn).unwrap();
        let ran = check(&[text(&path)]);
        assert_eq!(ran.status, 1);
        has(&ran, &["TORN at its end", "were not written whole", "--fix"]);
        assert_eq!(fs::read(&path).unwrap(), torn);
        // Without consent, nothing is done.
        for answer in ["", "n\n", "yonder\n"] {
            let ran = check_with(&["--fix", text(&path)], answer);
            assert_eq!((ran.status, fs::read(&path).unwrap() == torn), (1, true), "{}", ran.err);
            assert!(ran.err.contains("? [y/N] ") && ran.err.contains("is unchanged"), "{}", ran.err);
        }
        let ran = check_with(&["--fix", text(&path)], "y\n");
        assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
        let whole = fs::read(&path).unwrap();
        let kept = fs::read(directory.path(&format!(
            "appendonlydir/{}.cut-{}",
            path.file_name().unwrap().to_str().unwrap(),
            whole.len()
        )));
        assert_eq!([&whole[..], &kept.unwrap()].concat(), torn);
        assert_eq!(check(&[text(&path)]).status, 0);
        let again = start(server, &directory, &["--aof-load-truncated", "no"]);
        let mut conn = again.connect();
        conn.cmd("SELECT 3").unwrap();
        assert_eq!(conn.cmd("GET in-three").unwrap().text(), b"v");
        assert_eq!(conn.cmd("EXISTS t u").unwrap().integer(), Some(0));
    }
}

#[test]
fn zeros_at_the_end_are_cut_off() {
    let directory = Directory::new();
    let path = log(Server::oracle, &directory);
    let bytes = fs::read(&path).unwrap();
    let filled = [&bytes[..], &[0; 5000]].concat();
    fs::write(&path, filled).unwrap();
    let ran = check(&["--fix", "-y", text(&path)]);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    has(&ran, &[&format!("zeros fill the file from byte {} to its end", bytes.len())]);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    // A transaction with its end among the zeros is removed completely.
    let exec = bytes.len() - b"*1\r\n$4\r\nEXEC\r\n".len();
    fs::write(&path, [&bytes[..exec], &[0; 5000]].concat()).unwrap();
    assert_eq!(check(&["--fix", "-y", text(&path)]).status, 0);
    let left = fs::read(&path).unwrap();
    assert!(bytes.starts_with(&left) && !left.windows(5).any(|window| window == b"MULTI"));
}

#[test]
fn damage_before_the_end_is_not_taken_for_a_torn_end() {
    let directory = Directory::new();
    let server = start(Server::penstock, &directory, &[]);
    for number in 0..20 {
        run(&server, &[&format!("SET key:{number} value:{number}")]);
    }
    end(server);
    let path = PathBuf::from(directory.path("appendonlydir/appendonly.aof.1.incr.aof"));
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|window| window == b"value:3\r").unwrap();
    bytes[at] = b'V';
    fs::write(&path, &bytes).unwrap();
    let ran = check(&["--fix", "--yes", text(&path)]);
    assert_eq!(ran.status, 1);
    has(&ran, &["BROKEN", "a block whose checksum is wrong, at byte ", "Restore the file from a backup"]);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_file_that_another_follows_is_not_cut() {
    let directory = Directory::new();
    let one = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r";
    let manifest = "file a.1.incr.aof seq 1 type i\nfile a.2.incr.aof seq 2 type i\nfile a.0.incr.aof seq 0 type h\n";
    let (first, manifest) = (directory.file("a.1.incr.aof", one), directory.file("a.manifest", manifest));
    directory.file("a.2.incr.aof", "");
    directory.file("a.0.incr.aof", "");
    directory.file("a.3.incr.aof", "");
    for name in [&manifest, &first] {
        let ran = check(&["--fix", "--yes", name]);
        assert_eq!(ran.status, 1, "{}", ran.out);
        has(&ran, &["a.1.incr.aof: BROKEN", "though another file follows"]);
        assert_eq!(fs::read(&first).unwrap(), one);
    }
    has(
        &check(&[&manifest]),
        &["a.0.incr.aof is superseded; a server will remove it\n", "a.3.incr.aof is in the same directory, but"],
    );
}

#[test]
fn manifests_that_are_wrong_are_explained() {
    let directory = Directory::new();
    for (text, expected) in [
        ("file a seq 1 type x\n", "line 1: a type that is none of b, i and h"),
        ("# nothing\n", "the manifest names no file"),
        ("file a seq 1 type b\nfile b seq 2 type b\n", "line 2: a second base file"),
    ] {
        let path = directory.file("x.manifest", text);
        let ran = check(&[&path]);
        assert_eq!(ran.status, 1);
        has(&ran, &["x.manifest: BROKEN", expected, "remedy: "]);
    }
}

#[test]
fn errors_in_the_command_line_give_status_2() {
    let directory = Directory::new();
    fs::create_dir(directory.path("empty")).unwrap();
    for (args, expected) in [
        (&[][..], "required arguments were not provided"),
        (&["--nonsense", "x"], "unexpected argument '--nonsense'"),
        (&["--jsno", "x"], "unexpected argument '--jsno' found (did you mean '--json'?); see"),
        (&["--yes", "x"], "--fix"),
        (&[&*directory.path("none")], "can't open "),
        (&[&*directory.path("empty")], "nothing to check in "),
        (&["/dev/null"], "is neither a file nor a directory"),
    ] {
        let ran = check(args);
        assert_eq!((ran.status, &*ran.out), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("penstock check: ") && ran.err.contains(expected), "{args:?}: {}", ran.err);
    }
    let path = directory.file("x", "\x1f\u{8b}zipped");
    let ran = check(&[&path]);
    assert_eq!(ran.status, 1);
    has(&ran, &["x: BROKEN, neither a snapshot nor an append-only file", "the file begins with \"\\x1f"]);
}

#[test]
fn the_file_of_a_running_server_is_not_cut() {
    let directory = Directory::new();
    let server = start(Server::penstock, &directory, &[]);
    run(&server, &["SET a 1"]);
    let path = directory.path("appendonlydir/appendonly.aof.1.incr.aof");
    let torn = [&fs::read(&path).unwrap()[..], b"#block 0000"].concat();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"#block 0000").unwrap();
    let ran = check(&["--fix", "--yes", &path]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains(&format!("is open in process {}", server.pid())), "{}", ran.err);
    assert_eq!(fs::read(&path).unwrap(), torn);
}

/// Files that Redis's checkers refuse are refused; files that they accept are accepted, except for damage that they
/// don't check for.
#[test]
fn damaged_files_are_judged_as_by_redis() {
    let directory = Directory::new();
    let commands = fs::read(log(Server::oracle, &directory)).unwrap();
    let snapshot = fs::read(snapshot(&directory)).unwrap();
    for seed in 0..ROUNDS {
        let mut rng = Rng::new(seed);
        for (whole, program, name) in [(&commands, "redis-check-aof", "x.aof"), (&snapshot, "redis-check-rdb", "x.rdb")]
        {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(2) {
                let at = rng.below(bytes.len());
                match rng.below(4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => _ = bytes.remove(at),
                    2 => bytes.insert(at, b'7'),
                    _ => bytes[at] = bytes[at].wrapping_add(1),
                }
            }
            let path = directory.file(name, &bytes);
            let (ours, theirs) = (check(&[&path]), checked_by_redis(program, &path));
            assert!(
                ours.status == 1 || theirs == 0 && ours.status == 0,
                "seed {seed}, {name}: redis says {theirs}\n{}",
                ours.out
            );
        }
    }
}
