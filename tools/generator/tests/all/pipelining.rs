//! The experiments on pipelining, end to end and small, with Penstock and Redis.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, Ran, check_refusal, command, on_both, output, signal};
use serde_json::Value as Json;
use tests::conn::Conn;
use tests::ports::free_port;
use tests::reply::Reply;
use tests::server::{Server, comes_true, subject_program};

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&output(&[&["pipelining", "--json"], args].concat())).unwrap()
}

fn rows<'a>(results: &'a Json, id: &str) -> &'a Vec<Json> {
    let experiments = results["experiments"].as_array().unwrap();
    let found = experiments.iter().find(|experiment| experiment["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {results}"))["rows"].as_array().unwrap()
}

fn count(cell: &Json, command: &str) -> u64 {
    cell["counted"][command].as_u64().unwrap_or(0)
}

#[test]
fn every_experiment_sends_what_its_document_sends() {
    on_both(&[], |server| {
        let results = json(&[&url(server), "--scale", "0.01"]);
        let counted = |id: &str, row: usize, command: &str| count(&rows(&results, id)[row]["servers"][0], command);
        assert_eq!((counted("pings", 0, "ping"), counted("pings", 1, "ping")), (100, 100));
        let labels: Vec<&str> = rows(&results, "keys").iter().map(|row| row["label"].as_str().unwrap()).collect();
        // With a hundredth of the keys, 1,000 calls would be more than the number of keys.
        assert_eq!(labels[..4], ["redis set", "redis get", "redis mset with 100", "redis mget with 100"]);
        assert_eq!(labels.len(), 8);
        assert_eq!((counted("keys", 0, "set"), counted("keys", 1, "get")), (100, 100));
        assert_eq!((counted("keys", 4, "mset"), counted("keys", 7, "mget")), (10, 1));
        assert_eq!((counted("sets", 0, "set"), counted("sets", 1, "set")), (1000, 1000));
        // "the" and "number" have 7 prefixes; a number has as many prefixes as digits.
        let prefixes = 100 * 7 + 9 + 90 * 2 + 3;
        assert_eq!((counted("movies", 0, "zscore"), counted("movies", 0, "zadd")), (prefixes, prefixes));
        for row in [1, 2] {
            assert_eq!((counted("movies", row, "zscore"), counted("movies", row, "zadd")), (100, prefixes), "{row}");
            assert_eq!(counted("movies", row, "hset"), 100);
        }
        assert_eq!((counted("incr", 0, "incr"), counted("incr", 1, "incr")), (4, 4));
    });
}

#[test]
fn scripts_write_the_same_keys() {
    on_both(&[], |server| {
        let results = json(&[&url(server), "--scale", "0.002", "--only", "movies"]);
        let rows = rows(&results, "movies");
        assert_eq!(rows.len(), 5);
        let knows = |name: &str| {
            !matches!(server.connect().cmd(name).unwrap(), Reply::Line(b'-', text)
            if text.starts_with(b"ERR unknown command"))
        };
        for row in &rows[3..] {
            let cell = &row["servers"][0];
            if knows("SCRIPT EXISTS x") {
                assert_eq!((count(cell, "evalsha"), count(cell, "hset")), (20, 20), "{row}");
                assert_eq!(count(cell, "zadd"), count(&rows[0]["servers"][0], "zadd"), "{row}");
            } else {
                assert!(cell["impossible"].as_str().unwrap().contains("no scripting"), "{row}");
            }
        }
    });
}

#[test]
fn only_its_own_keys_are_touched_and_removed() {
    on_both(&[], |server| {
        let mut conn = server.connect();
        conn.cmd("SET key1 mine").unwrap();
        output(&["pipelining", &url(server), "--scale", "0.003", "--depths", "2"]);
        assert_eq!(conn.cmd("DBSIZE").unwrap(), Reply::Line(b':', b"1".into()));
        assert_eq!(conn.cmd("GET key1").unwrap(), Reply::Blob(b'$', b"mine".into()));
    });
}

#[test]
fn every_key_is_removed_by_a_command_of_its_own() {
    // In cluster mode, a command can't have keys of different slots.
    let server = Server::oracle(&[]);
    output(&["pipelining", &url(&server), "--only", "sets", "--scale", "0.001", "--rounds", "1"]);
    let info = server.connect().cmd("INFO commandstats").unwrap();
    let info = String::from_utf8_lossy(info.text()).into_owned();
    let calls = info.split("cmdstat_del:calls=").nth(1).unwrap().split(',').next().unwrap();
    // For a hundred keys: before the experiment, before each of the two variants, and at the end.
    assert_eq!(calls, "400");
}

#[test]
fn keys_that_the_server_does_not_remove_are_reported() {
    let server = Server::oracle(&[]);
    let mut conn = server.connect();
    conn.cmd("ACL SETUSER bench on >secret ~* +@all -del").unwrap();
    let (port, url) = (server.port(), format!("redis://bench:secret@127.0.0.1:{}", server.port()));
    let run = |args: &[&str]| common::run(&[&["pipelining", &url, "--only"], args].concat());
    let refused = "penstock bench: the server refuses DEL, which the experiments need to remove their keys: NOPERM ";
    // Keys that can't be removed must not be written.
    let ran = run(&["sets", "--scale", "0.0001"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.stderr.starts_with(refused) && !ran.stderr.contains("left"), "{}", ran.stderr);
    assert_eq!(conn.cmd("DBSIZE").unwrap(), Reply::Line(b':', b"0".into()));
    // The user loses the permission during the experiment.
    conn.cmd("ACL SETUSER bench +del").unwrap();
    let mut slow = command(&["pipelining", &url, "--rtt", "5ms", "--only", "keys", "--scale", "0.01"]);
    let child = slow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_run(&mut conn, "get");
    conn.cmd("ACL SETUSER bench -del").unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.status, Some(1));
    let told = format!("; 100 keys that begin with penstock-bench: are left on 127.0.0.1:{port}; to remove them, ");
    assert!(ran.stderr.starts_with(refused) && ran.stderr.contains(&told), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    // The command in the message removes them.
    let (_, script) = ran.stderr.trim_end().split_once("a user who may: ").unwrap();
    let script = script.replace("penstock cli", &format!("{} cli", subject_program().display()));
    assert!(Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(conn.cmd("DBSIZE").unwrap(), Reply::Line(b':', b"0".into()));
}

#[test]
fn a_server_that_counts_no_commands_has_no_table_of_them() {
    let server = Server::oracle(&["--rename-command", "INFO", ""]);
    let path = std::env::temp_dir().join(format!("penstock-bench-uncounted-{}.html", std::process::id()));
    let movies = ["--only", "movies", "--scale", "0.001", "--html", path.to_str().unwrap()];
    let text = output(&[&["pipelining", &url(&server)], &movies[..]].concat());
    let page = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    for text in [text, page] {
        assert!(text.contains("no command counts: the server refuses INFO commandstats"), "{text}");
        assert!(!text.contains("as counted by the server"), "{text}");
    }
}

#[test]
fn tables_are_printed_and_name_server_and_columns() {
    let server = Server::oracle(&[]);
    let text = output(&["pipelining", &url(&server), "--scale", "0.002", "--depths", "1,7"]);
    assert!(text.starts_with("Redis ") && text.contains(&format!(" at 127.0.0.1:{}", server.port())), "{text}");
    for words in
        ["user     system      total", "redis mset with 10 ", "a ZSCORE for every prefix", "Server: 4", "\n         7 "]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The server is a process on this machine, so its CPU time is known.
    assert!(text.contains("server/cmd") && text.contains(" µs"), "{text}");
}

#[test]
fn a_round_trip_is_made_longer_and_a_pipeline_pays_it_once() {
    let server = Server::penstock(&[]);
    let results = json(&[&url(&server), "--rtt", "30ms", "--only", "incr,pings", "--scale", "0.001"]);
    let real = |id: &str, row: usize| rows(&results, id)[row]["servers"][0]["real_s"].as_f64().unwrap();
    assert!(results["servers"][0]["rtt_ms"].as_f64().unwrap() >= 30.0, "{results}");
    assert!(real("incr", 0) >= 0.12 && real("incr", 1) >= 0.03, "{results}");
    assert!(real("pings", 0) >= 0.3 && real("pings", 1) < real("pings", 0) / 2.0, "{results}");
    let transcript = results["experiments"][1]["transcript"].as_array().unwrap();
    let said: Vec<&str> = transcript.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(said[..8], ["INCR X", "1", "INCR X", "2", "INCR X", "3", "INCR X", "4"]);
    assert_eq!(said[8..], ["INCR X", "INCR X", "INCR X", "INCR X", "1", "2", "3", "4"]);
}

#[test]
fn a_row_that_takes_too_long_is_cut_off_and_estimated() {
    let server = Server::penstock(&[]);
    let args = [&url(&server), "--rtt", "20ms", "--only", "pings", "--scale", "0.1", "--limit", "1"];
    let results = json(&args);
    let cell = &rows(&results, "pings")[0]["servers"][0];
    let done = cell["done"].as_u64().unwrap();
    assert!((1..=50).contains(&done) && cell["of"] == 1000, "{cell}");
    // The estimate covers all thousand round trips of 20 ms.
    assert!(cell["real_s"].as_f64().unwrap() >= 20.0, "{cell}");
}

/// Returns the server's counters of keys that were found and not found.
fn hits_and_misses(server: &Server) -> (u64, u64) {
    let info = server.connect().cmd("INFO stats").unwrap();
    let info = String::from_utf8_lossy(info.text()).into_owned();
    let field = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.parse().ok()).unwrap();
    (field("keyspace_hits:"), field("keyspace_misses:"))
}

#[test]
fn every_round_reads_keys_that_are_there() {
    on_both(&[], |server| {
        let before = hits_and_misses(server);
        let results = json(&[&url(server), "--only", "keys", "--scale", "0.001", "--rounds", "3"]);
        let after = hits_and_misses(server);
        let reading_rows = rows(&results, "keys").iter().filter(|row| row["does"] == "read").count() as u64;
        assert_eq!((after.0 - before.0, after.1 - before.1), (3 * 10 * reading_rows, 0), "{results}");
        // Reading variants are compared with reading variants.
        assert_eq!(rows(&results, "keys")[1]["servers"][0]["times"], 1.0);
    });
}

#[test]
fn rounds_are_shown_with_their_spread() {
    let server = Server::penstock(&[]);
    let results = json(&[&url(&server), "--only", "pings", "--scale", "0.01"]);
    let number = |name: &str| rows(&results, "pings")[0]["servers"][0][name].as_f64().unwrap();
    assert_eq!(number("rounds"), 3.0);
    assert!(number("real_min_s") <= number("real_s") && number("real_s") <= number("real_max_s"), "{results}");
    assert!(results["load_average"].as_f64().is_some() && results["cores"].as_u64() > Some(0), "{results}");
    let text = output(&["pipelining", &url(&server), "--only", "pings", "--scale", "0.01"]);
    // `±3 %`, or `>100 %` on a machine that is busy with other work.
    let told = |row: &str| row.split(' ').any(|word| word.starts_with('±') || word.starts_with('>'));
    let rows = text.lines().skip_while(|line| !line.ends_with(" spread")).skip(1).take(2);
    assert_eq!(rows.filter(|row| told(row)).count(), 2, "{text}");
}

/// Times of 10,000 commands aren't comparable with those of a hundred.
#[test]
fn the_documents_times_are_shown_for_the_same_number_of_commands_only() {
    let server = Server::penstock(&[]);
    let url = url(&server);
    let run = |args: &[&str]| {
        let args = [&[url.as_str(), "--only", "pings", "--rounds", "1"], args].concat();
        (json(&args), output(&[&["pipelining"][..], &args].concat()))
    };
    let (full, text) = run(&[]);
    assert_eq!(rows(&full, "pings")[0]["document_s"], 1.185_238);
    assert!(text.contains(" document\n") && text.contains(" 1.185238\n"), "{text}");
    let (part, text) = run(&["--scale", "0.01"]);
    assert!(rows(&part, "pings")[0]["document_s"].is_null(), "{part}");
    assert!(!text.contains(" document\n") && text.contains("not for this one"), "{text}");
}

#[test]
fn counts_of_a_part_are_marked_as_estimates() {
    let server = Server::penstock(&[]);
    let args = ["--only", "movies", "--scale", "0.01", "--rtt", "20ms", "--limit", "1"];
    let text = output(&[&["pipelining", &url(&server)], &args[..]].concat());
    let counts = text.split("as counted by the server").nth(1).unwrap();
    let first = counts.lines().find(|line| line.starts_with("a ZSCORE for every prefix")).unwrap();
    let second = counts.lines().find(|line| line.starts_with("one ZSCORE per movie")).unwrap();
    // A hundred movies have about eight hundred ZSCOREs, and save almost all of them.
    assert_eq!(first.matches('~').count(), 4, "{text}");
    assert!(second.contains("~100 ") && second.rsplit(' ').next().unwrap().starts_with('~'), "{text}");
}

#[test]
fn two_servers_are_compared() {
    let (penstock, redis) = (Server::penstock(&[]), Server::oracle(&[]));
    let args = [&url(&penstock), "--against", &url(&redis), "--scale", "0.002", "--rounds", "3", "--depths", "1,5"];
    let results = json(&args);
    assert_eq!(results["servers"].as_array().unwrap().len(), 2);
    for experiment in results["experiments"].as_array().unwrap() {
        for row in experiment["rows"].as_array().unwrap() {
            assert_eq!(row["servers"].as_array().unwrap().len(), 2, "{row}");
        }
    }
    assert_eq!(results["sweep"]["rows"][1]["servers"].as_array().unwrap().len(), 2);
    let text = output(&[&["pipelining"], &args[..], &["--only", "pings,incr"]].concat());
    assert!(text.contains("times as long as A (") && text.contains("B Redis "), "{text}");
    // The transcript of each server.
    for heading in ["A one by one:", "B one by one:", "A in a pipeline:", "B in a pipeline:"] {
        assert!(text.contains(&format!("\n   {heading}\n")), "{heading}: {text}");
    }
    let transcript =
        results["experiments"].as_array().unwrap().last().unwrap()["transcript"].as_array().unwrap().clone();
    assert_eq!(transcript.iter().filter(|line| line["server"] == 1).count(), 16);
}

#[test]
fn unread_replies_wait_in_the_server() {
    on_both(&[], |server| {
        let results = json(&[&url(server), "--only", "depths", "--depths", "1,3000", "-d", "10000"]);
        let cell = |row: usize| results["sweep"]["rows"][row]["servers"][0].clone();
        assert_eq!(cell(0)["queued_bytes"], 0);
        assert_eq!(cell(1)["reply_bytes"], 3000 * 10_010);
        // The kernel buffers some megabytes of these thirty. Penstock puts most or all of the others on disk.
        let queued = cell(1)["queued_bytes"].as_u64().unwrap();
        let is_penstock = results["servers"][0]["name"].as_str().unwrap().starts_with("Penstock");
        let expected = if is_penstock { 0..1 << 20 } else { 10_000_000..60_000_000 };
        assert!(expected.contains(&queued), "{results}");
        assert!(cell(1)["per_second"].as_f64().unwrap() > 0.0);
    });
}

/// Returns the children of a process.
fn children(pid: u32) -> Vec<String> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "waited in vain: {what}");
}

#[test]
fn a_server_of_its_own_is_started_and_gone_after_ctrl_c() {
    let text = output(&["pipelining", "--only", "incr"]);
    assert!(text.starts_with("Penstock "), "{text}");
    let mut slow = command(&["pipelining", "--rtt", "100ms", "--only", "pings", "--limit", "50"]);
    let child = slow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    wait_until("a server starts", || !children(pid).is_empty());
    let server = children(pid).remove(0);
    thread::sleep(Duration::from_millis(300));
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    assert!(!std::path::Path::new(&format!("/proc/{server}")).exists(), "the server is still there");
}

/// Waits until a server has run the command `name`.
fn wait_until_run(conn: &mut Conn, name: &str) {
    let counted = format!("cmdstat_{name}:");
    wait_until(name, || String::from_utf8_lossy(conn.cmd("INFO commandstats").unwrap().text()).contains(&counted));
}

/// Waits until `server` has run the command `name`, then presses Ctrl-C like a terminal, which signals every process of
/// the group.
fn interrupted(server: &Server, name: &str, args: &[&str]) -> Ran {
    let mut slow = command(&[&["pipelining"], args].concat());
    let child = slow.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_run(&mut server.connect(), name);
    assert!(Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status().unwrap().success());
    child.wait_with_output().unwrap().into()
}

#[test]
fn rows_that_were_measured_are_printed_after_ctrl_c() {
    let keys = ["--rtt", "5ms", "--only", "keys", "--scale", "0.03"];
    let server = Server::penstock(&[]);
    // The second row of the experiment is the first one that reads.
    let ran = interrupted(&server, "get", &[&[&url(&server)[..]], &keys[..]].concat());
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    assert!(ran.stdout.contains("\nredis set ") && !ran.stdout.contains("\nredis get "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\n   unfinished: only 1 of 8 rows were measured\n"), "{}", ran.stdout);
    // Keys are removed after each depth.
    let server = Server::penstock(&[]);
    let ran = interrupted(&server, "del", &[&url(&server), "--depths", "1,2,3", "--only", "depths"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    assert!(ran.stdout.contains("\n         1 ") && !ran.stdout.contains("\n         2 "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\n   unfinished: only 1 of 3 rows were measured\n"), "{}", ran.stdout);
    // The private server must not end before the keys on the other server are removed.
    let server = Server::penstock(&[]);
    let ran = interrupted(&server, "get", &[&["--against", &url(&server)[..]], &keys[..]].concat());
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    assert_eq!(server.connect().cmd("DBSIZE").unwrap(), Reply::Line(b':', b"0".into()));
}

#[test]
fn ctrl_c_ends_an_experiment_whose_server_has_fallen_silent() {
    let server = Server::penstock(&[]);
    let mut command = command(&["pipelining", &url(&server), "--only", "sets", "--scale", "0.01", "--rtt", "20ms"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_run(&mut server.connect(), "set");
    signal("STOP", server.pid());
    let began = Instant::now();
    signal("INT", child.id());
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.status, Some(130));
    let told = "penstock bench: interrupted; keys that begin with penstock-bench: may be left on 127.0.0.1:";
    assert!(ran.stderr.starts_with(told) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_report_is_written_as_a_whole_or_not_at_all() {
    let path = std::env::temp_dir().join(format!("penstock-bench-interrupted-{}.html", std::process::id()));
    let file = path.to_str().unwrap();
    let check = |args: &[&str]| {
        let server = Server::penstock(&[]);
        let keys = [&url(&server), "--rtt", "5ms", "--only", "keys", "--scale", "0.03"];
        let ran = interrupted(&server, "get", &[&keys[..], args].concat());
        assert_eq!(
            (ran.status, ran.stderr.as_str()),
            (Some(130), "penstock bench: interrupted; no report was written\n")
        );
        ran.stdout
    };
    assert_eq!(check(&["--json"]), "");
    assert!(check(&["--html", file]).ends_with("only 1 of 8 rows were measured\n"));
    assert!(!path.exists());
    let before = "a page that is longer than the next one".repeat(10_000);
    std::fs::write(&path, &before).unwrap();
    check(&["--html", file]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    output(&["pipelining", "--only", "incr", "--html", file]);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.len() < before.len() && page.trim_end().ends_with("</html>"), "{page}");
    std::fs::remove_file(path).unwrap();
}

/// Returns true if a process runs. A process that has ended may still wait for its parent to collect it.
fn is_running(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[test]
fn a_server_of_its_own_goes_with_a_benchmark_that_is_killed() {
    // The benchmark is killed just after the start of the server, when it may not have registered for the parent's end,
    // and at work.
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let mut slow = command(&["pipelining", "--rtt", "100ms", "--only", "pings", "--limit", "50"]);
        let mut child = slow.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        wait_until("a server starts", || !children(pid).is_empty());
        let server = children(pid).remove(0);
        thread::sleep(wait);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the server is gone", || !is_running(&server));
    }
}

#[test]
fn only_a_child_is_ended_with_its_parent() {
    // The server notices that its real parent has ended.
    let mut late = Command::new(subject_program());
    let not_the_parent = std::process::id() + 1;
    let ran: Ran = late.args(["--end-with", &not_the_parent.to_string(), "--port", "0"]).output().unwrap().into();
    let expected = format!("--end-with: process {not_the_parent} is not the parent of this process\n");
    assert_eq!((ran.status, ran.stderr), (Some(1), expected));
    // A server started by another program survives the end of that program.
    let port = free_port().unwrap();
    let script = r#""$0" server --bind 127.0.0.1 --save "" --port "$1" >/dev/null 2>&1 & echo $!"#;
    let mut shell = Command::new("sh");
    let ran: Ran = shell.args(["-c", script]).arg(subject_program()).arg(port.to_string()).output().unwrap().into();
    let server = ran.stdout.trim();
    wait_until("it answers", || answers(port));
    assert!(Command::new("kill").arg(server).status().unwrap().success());
    wait_until("it ends", || !is_running(server));
}

fn answers(port: u16) -> bool {
    Conn::open(port).and_then(|mut conn| conn.cmd("PING")).is_ok()
}

#[test]
fn help_is_an_answer() {
    for args in [&["--help"][..], &["pipelining", "--help"], &["pipelining", "-h"], &["--version"]] {
        assert!(output(args).contains("enstock bench"), "{args:?}");
    }
}

#[test]
fn bad_input_gives_one_line_and_a_status() {
    let gone = format!("redis://127.0.0.1:{}", free_port().unwrap());
    check_refusal(&["pipelining", &gone], 1, "Connection refused");
    check_refusal(&["pipelining", "localhost"], 2, "redis://");
    check_refusal(&["pipelining", "rediss://localhost"], 2, "don't encrypt");
    check_refusal(&["pipelining", "--rtt", "250"], 2, "250ms");
    check_refusal(&["pipelining", "--depths", "1,0"], 2, "above 0");
    check_refusal(&["pipelining", "--only", "nope"], 2, "nope");
    check_refusal(&["pipelining", "--depths", "1,1000001"], 2, "the deepest is 1000000");
    check_refusal(&["pipelining", "--depths", "20000", "-d", "100000"], 2, "1073741824 bytes");
    check_refusal(&["pipelining", "--only", "depths", "-d", "99999999999999"], 2, "too large");
    let server = Server::penstock(&["--requirepass", "secret"]);
    check_refusal(&["pipelining", &url(&server), "--only", "incr"], 1, "NOAUTH");
    let wrong = format!("redis://:wrong@127.0.0.1:{}", server.port());
    check_refusal(&["pipelining", &wrong, "--only", "incr"], 1, "WRONGPASS");
    let right = format!("redis://:secret@127.0.0.1:{}/3", server.port());
    output(&["pipelining", &right, "--rtt", "1ms", "--only", "incr,depths", "--depths", "1,2"]);
}

/// Checks that tags are properly nested.
fn check_nesting(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.split([' ', '/']).next().unwrap();
        let alone = tag.ends_with('/') || ["!doctype", "meta", "br"].contains(&name);
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "in {tag:?}");
        } else if !alone {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

/// Heading of the plot of unread replies.
const QUEUED_TITLE: &str = "Bytes of unread replies that the server keeps";

#[test]
fn the_page_stands_by_itself_and_shows_every_table() {
    let (penstock, redis) = (Server::penstock(&[]), Server::oracle(&[]));
    let path = std::env::temp_dir().join(format!("penstock-bench-{}.html", std::process::id()));
    let file = path.to_str().unwrap();
    let args =
        ["pipelining", &url(&penstock), "--scale", "0.002", "--depths", "1,5,2000", "-d", "5000", "--html", file];
    output(&args);
    let page = std::fs::read_to_string(&path).unwrap();
    check_nesting(&page);
    for id in ["pings", "keys", "sets", "movies", "incr", "depths"] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    // Bars for four experiments, a strip for each variant of the fifth, and one or two plots: the server may have kept
    // no replies in memory at the times of the queries.
    let queued = usize::from(page.contains(QUEUED_TITLE));
    assert_eq!(page.matches("<svg ").count(), 4 + 2 + 1 + queued);
    for outside in ["src=", "href=", "url(", "@import", "http:", "https:", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    output(&[&args[..], &["--against", &url(&redis)]].concat());
    let page = std::fs::read_to_string(&path).unwrap();
    check_nesting(&page);
    assert!(page.contains("<th>B / A</th>") && page.contains("class=\"s1\""));
    assert!(page.contains(QUEUED_TITLE), "redis-server keeps ten megabytes of replies");
    std::fs::remove_file(path).unwrap();
    check_refusal(
        &["pipelining", &url(&penstock), "--html", "/nonexistent/x.html"],
        1,
        "can't write /nonexistent/x.html",
    );
}
