//! The append-only file from outside: starts with torn files, damaged files and files of other servers, and the end of a server that can't
//! write.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use penstock_tests::directory::Directory;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, comes_true, subject_program};

const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";

fn args<'a>(directory: &'a Directory, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--appendonly", "yes", "--appendfsync", "always", "--dir", directory.root()];
    args.extend_from_slice(more);
    args
}

fn start(directory: &Directory, more: &[&str]) -> Server {
    Server::penstock(&args(directory, more))
}

/// Returns the message of a server that refuses to start in a directory.
fn refusal(directory: &Directory, more: &[&str]) -> String {
    let port = free_port().unwrap().to_string();
    let mut command = Command::new(subject_program());
    command.args(["server", "--port", &port, "--bind", "127.0.0.1"]).args(args(directory, more));
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Returns a reply, with bars between its lines.
fn text(server: &Server, line: &str) -> String {
    let reply = server.connect().cmd(line).unwrap().encode();
    String::from_utf8(reply).unwrap().trim_end().replace("\r\n", "|")
}

/// Returns a command in the file's form.
fn command(words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words}", words.matches('$').count())
}

/// Writes a file as another server does.
fn write_file(directory: &Directory, commands: &[String]) -> PathBuf {
    fs::create_dir_all(directory.join("appendonlydir")).unwrap();
    fs::write(directory.join(MANIFEST), "file appendonly.aof.1.incr.aof seq 1 type i\n").unwrap();
    let file = directory.join(INCREMENT);
    fs::write(&file, commands.concat()).unwrap();
    file
}

/// DEBUG POPULATE is in the file, and a later start may forbid DEBUG.
#[test]
fn made_up_keys_are_read_although_debug_is_forbidden_now() {
    let directory = Directory::new();
    let mut server = start(&directory, &["--enable-debug-command", "yes"]);
    assert_eq!(text(&server, "DEBUG POPULATE 10"), "+OK");
    server.kill();
    let server = start(&directory, &["--enable-debug-command", "no"]);
    assert_eq!(text(&server, "DBSIZE"), ":10");
    assert!(!server.log().contains("CRITICAL"), "{}", server.log());
    assert!(text(&server, "DEBUG POPULATE 10").starts_with("-ERR DEBUG command not allowed"));
}

#[test]
fn a_torn_pipeline_keeps_its_commands_before_the_tear() {
    let directory = Directory::new();
    let mut server = start(&directory, &["--appendfsync", "everysec"]);
    let mut conn = server.connect();
    let batch: String = (0..1000).map(|number| command(&["SET", &format!("key{number:04}"), "value"])).collect();
    conn.send(batch.as_bytes()).unwrap();
    for _ in 0..1000 {
        assert_eq!(conn.read().unwrap().text(), b"OK");
    }
    let file = directory.join(INCREMENT);
    assert!(comes_true(|| fs::read(&file).unwrap().windows(7).any(|window| window == b"key0999")));
    server.kill();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let mut server = start(&directory, &[]);
    let kept = server.connect().cmd("DBSIZE").unwrap().integer().unwrap();
    assert!((980..1000).contains(&kept), "{kept}");
    assert_eq!(text(&server, &format!("EXISTS key{:04} key{kept:04}", kept - 1)), ":1");
    server.connect().cmd("SET more 1").unwrap();
    server.kill();
    assert_eq!(text(&start(&directory, &[]), "DBSIZE"), format!(":{}", kept + 1));
}

/// Commands that answer errors are logged and skipped, as in Redis, unless a directive says otherwise.
#[test]
fn commands_of_a_file_that_answer_errors_are_logged_with_their_byte() {
    let (first, failing) = (command(&["SET", "a", "1"]), command(&["LPUSH", "a", "x"]));
    let transaction = [command(&["MULTI"]), command(&["SET", "c", "3"]), failing.clone(), command(&["EXEC"])].concat();
    let commands =
        [first.clone(), failing.clone(), command(&["SET", "b", "2"]), transaction.clone(), command(&["SET", "d", "4"])];
    let directory = Directory::new();
    write_file(&directory, &commands);
    let mut server = start(&directory, &[]);
    assert_eq!(text(&server, "MGET a b c d"), "*4|$1|1|$1|2|$1|3|$1|4");
    let log = server.log();
    let in_transaction = first.len() + failing.len() + first.len() + command(&["MULTI"]).len() + first.len();
    for byte in [first.len(), in_transaction] {
        let told = format!("after processing the command 'lpush', at byte {byte} of ");
        assert!(log.contains(&told), "{told}: {log}");
    }
    assert_eq!(server.figure("unexpected_error_replies"), 2);
    server.kill();
    let panic = ["--propagation-error-behavior", "panic"];
    write_file(&directory, &commands);
    let why = refusal(&directory, &panic);
    assert!(why.contains(&format!("at byte {}: ", first.len())) && why.contains("WRONGTYPE"), "{why}");
    write_file(&directory, &[first.clone(), transaction]);
    let why = refusal(&directory, &panic);
    assert!(why.contains("WRONGTYPE"), "{why}");
    // An unknown command ends the start in any case.
    write_file(&directory, &[first.clone(), command(&["NOSUCH", "a"])]);
    let why = refusal(&directory, &[]);
    assert!(why.contains(&format!("at byte {}: ", first.len())) && why.contains("unknown command"), "{why}");
}

#[test]
fn values_over_the_limit_for_clients_are_loaded() {
    let directory = Directory::new();
    write_file(&directory, &[command(&["SET", "large", &"x".repeat(2 << 20)]), command(&["SET", "b", "2"])]);
    let server = start(&directory, &["--proto-max-bulk-len", "1mb"]);
    assert_eq!(text(&server, "STRLEN large"), format!(":{}", 2 << 20));
    assert_eq!(text(&server, "GET b"), "$1|2");
    let mut conn = server.connect();
    // The length alone is refused. The value is not sent: the server resets a connection that it closes with unread input.
    conn.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nc\r\n${}\r\n", 2 << 20).as_bytes()).unwrap();
    assert!(conn.read().unwrap().escaped().contains("invalid bulk length"));
}

#[test]
fn a_manifest_that_leaves_data_out_ends_the_start() {
    let directory = Directory::new();
    let mut server = start(&directory, &[]);
    server.connect().cmd("SET a 1").unwrap();
    assert!(!server.connect().cmd("BGREWRITEAOF").unwrap().is_error());
    let manifest = directory.join(MANIFEST);
    assert!(comes_true(|| fs::read_to_string(&manifest).unwrap().contains("type b")));
    server.connect().cmd("SET b 2").unwrap();
    server.kill();
    let written = fs::read_to_string(&manifest).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    let without_last = lines[..lines.len() - 1].join("\n") + "\n";
    fs::write(&manifest, &without_last).unwrap();
    assert!(refusal(&directory, &[]).contains("checksum"));
    // Redis writes manifests without a checksum.
    let plain = lines[1..].join("\n") + "\n";
    for damaged in
        [without_last.lines().skip(1).collect::<Vec<_>>().join("\n") + "\n", plain.replace("type i", "type h")]
    {
        fs::write(&manifest, damaged).unwrap();
        let why = refusal(&directory, &[]);
        assert!(why.contains("appendonly.aof.2.incr.aof has data, and the manifest leaves it out"), "{why}");
        let checked = Command::new(subject_program()).arg("check").arg(&manifest).output().unwrap();
        assert!(!checked.status.success() && String::from_utf8_lossy(&checked.stdout).contains("leaves it out"));
    }
    fs::write(&manifest, plain).unwrap();
    assert_eq!(text(&start(&directory, &[]), "MGET a b"), "*2|$1|1|$1|2");
}

#[test]
fn a_rewrite_writes_the_file_that_is_off_and_one_may_follow_another_at_once() {
    let directory = Directory::new();
    let mut server = Server::penstock(&["--dir", directory.root(), "--save", ""]);
    server.connect().cmd("SET a 1").unwrap();
    assert_eq!(text(&server, "BGREWRITEAOF"), "+Background append only file rewriting started");
    let manifest = directory.join(MANIFEST);
    assert!(comes_true(|| fs::read_to_string(&manifest).is_ok_and(|text| text.contains("type b"))));
    server.kill();
    let mut server = start(&directory, &["--save", ""]);
    assert_eq!(text(&server, "GET a"), "$1|1");
    for round in 0..5 {
        for value in ["no", "yes"] {
            assert_eq!(text(&server, &format!("CONFIG SET appendonly {value}")), "+OK", "round {round}");
        }
    }
    server.connect().cmd("SET b 2").unwrap();
    server.wait_until("the file is whole", |server| {
        text(server, "INFO persistence").contains("aof_rewrite_in_progress:0")
            && text(server, "BGREWRITEAOF").contains("started")
    });
    server
        .wait_until("it is rewritten", |server| text(server, "INFO persistence").contains("aof_rewrite_in_progress:0"));
    server.kill();
    assert_eq!(text(&start(&directory, &[]), "MGET a b"), "*2|$1|1|$1|2");
}

/// The log gives the number of lost units, and the next start has all others.
#[test]
fn a_server_that_ends_with_a_full_disk_says_how_much_is_lost() {
    let directory = Directory::new();
    let args = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", directory.root()];
    // The limit of 100 KB per file stands for a full disk.
    let mut server = Server::penstock_with_small_files(&args, 200);
    let mut conn = server.connect();
    let value = "v".repeat(1000);
    let mut acknowledged = 0;
    while conn.cmd(&format!("SET key{acknowledged} {value}")).unwrap().text() == b"OK" {
        acknowledged += 1;
    }
    assert!(acknowledged > 50);
    assert_eq!(text(&server, "SHUTDOWN"), "-ERR Errors trying to SHUTDOWN. Check logs.");
    assert!(server.log().contains("can't exit"));
    assert!(Command::new("kill").arg(server.pid().to_string()).status().unwrap().success());
    server.wait_until_ended();
    let log = server.log();
    let told = log.split("its last ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<i64>().ok());
    let lost = told.unwrap_or_else(|| panic!("{log}"));
    let server = start(&directory, &[]);
    assert_eq!(server.connect().cmd("DBSIZE").unwrap().integer().unwrap(), acknowledged - lost, "{log}");
}

#[test]
fn a_file_that_was_just_turned_off_may_be_rewritten_at_once() {
    let directory = Directory::new();
    let mut server = start(&directory, &["--save", ""]);
    server.connect().cmd("SET a 1").unwrap();
    let mut conn = server.connect();
    for round in 0..20 {
        conn.send(b"CONFIG SET appendonly no\r\nBGREWRITEAOF\r\nCONFIG SET appendonly yes\r\n").unwrap();
        for _ in 0..3 {
            // A rewrite of the previous round may still be about to begin.
            let reply = conn.read().unwrap();
            assert!(!reply.is_error() || reply.escaped().contains("already"), "round {round}: {}", reply.escaped());
        }
        server.wait_until("it is rewritten", |server| {
            let info = text(server, "INFO persistence");
            info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
        });
    }
    server.kill();
    assert_eq!(text(&start(&directory, &[]), "GET a"), "$1|1");
}

/// Redis names the single file of earlier versions in the manifest before it moves the file.
#[test]
fn an_interrupted_adoption_of_an_old_file_is_completed() {
    let directory = Directory::new();
    fs::create_dir_all(directory.join("appendonlydir")).unwrap();
    fs::write(directory.join("appendonly.aof"), command(&["SET", "a", "1"])).unwrap();
    fs::write(directory.join(MANIFEST), "file appendonly.aof seq 1 type b\n").unwrap();
    let mut server = start(&directory, &[]);
    assert_eq!(text(&server, "GET a"), "$1|1");
    server.connect().cmd("SET b 2").unwrap();
    server.kill();
    assert!(directory.join("appendonlydir/appendonly.aof").exists() && !directory.join("appendonly.aof").exists());
    assert_eq!(text(&start(&directory, &[]), "MGET a b"), "*2|$1|1|$1|2");
}

#[test]
fn servers_may_share_a_directory_under_similar_names() {
    let directory = Directory::new();
    let mut longer = start(&directory, &["--appendfilename", "appendonly.aof2"]);
    longer.connect().cmd("SET a 1").unwrap();
    let mut shorter = start(&directory, &[]);
    shorter.connect().cmd("SET b 2").unwrap();
    longer.kill();
    shorter.kill();
    assert_eq!(text(&start(&directory, &["--appendfilename", "appendonly.aof2"]), "MGET a b"), "*2|$1|1|$-1");
    assert_eq!(text(&start(&directory, &[]), "MGET a b"), "*2|$-1|$1|2");
}

#[test]
fn a_name_with_blanks_and_line_breaks_is_read_again() {
    let directory = Directory::new();
    let args = ["--appendfilename", " file seq \n\n.aof "];
    let mut server = start(&directory, &args);
    server.connect().cmd("SET a 1").unwrap();
    server.kill();
    assert_eq!(text(&start(&directory, &args), "GET a"), "$1|1");
}

/// The files on disk lack the data until the first base is written.
#[test]
fn a_server_does_not_end_before_the_first_base_is_written() {
    let directory = Directory::new();
    let args =
        ["--dir", directory.root(), "--save", "", "--enable-debug-command", "yes", "--rdb-key-save-delay", "1000"];
    let mut server = Server::penstock(&args);
    server.connect().cmd("DEBUG POPULATE 3000").unwrap();
    assert_eq!(text(&server, "CONFIG SET appendonly yes"), "+OK");
    assert_eq!(text(&server, "SHUTDOWN"), "-ERR Errors trying to SHUTDOWN. Check logs.");
    let terminate = || assert!(Command::new("kill").arg(server.pid().to_string()).status().unwrap().success());
    terminate();
    assert!(comes_true(|| server.log().matches("Writing initial AOF, can't exit").count() == 2));
    assert_eq!(text(&server, "DBSIZE"), ":3000");
    server.wait_until("the base is written", |server| {
        text(server, "INFO persistence").contains("aof_rewrite_in_progress:0")
    });
    server.kill();
    assert_eq!(text(&start(&directory, &[]), "DBSIZE"), ":3000");
}
