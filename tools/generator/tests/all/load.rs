//! Plain load, end to end, with Penstock and Redis.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, at, check_refusal, command, on_both, output, run, signal};
use tests::certificates::Certificates;
use tests::ports::free_port;
use tests::reply::Reply;
use tests::server::Server;

/// Returns the titles in a report with one line per test.
fn titles(quiet: &str) -> Vec<&str> {
    quiet.lines().map(|line| line.split(": ").next().unwrap()).collect()
}

fn bulk(text: &[u8]) -> Reply {
    Reply::Blob(b'$', text.into())
}

/// Returns the number of times that the server has run a command.
fn calls(server: &Server, command: &str) -> u64 {
    let Reply::Blob(_, info) = server.connect().cmd("INFO commandstats").unwrap() else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn the_tests_are_redis_benchmarks_with_its_titles_in_its_order() {
    on_both(&[], |server| {
        let ours = at(server, &["-q", "-n", "60", "-c", "3"]);
        let port = server.port().to_string();
        let theirs = Command::new("redis-benchmark").args(["-p", &port, "-n", "60", "-c", "3", "--csv"]).output();
        let theirs = String::from_utf8(theirs.unwrap().stdout).unwrap();
        let theirs: Vec<&str> = theirs.lines().skip(1).map(|line| line.split('"').nth(1).unwrap()).collect();
        assert_eq!(titles(&ours), theirs);
        assert_eq!(theirs.len(), 20);
    });
}

#[test]
fn the_table_of_all_tests_fits_into_a_terminal() {
    on_both(&[], |server| {
        let text = at(server, &["-n", "60", "-c", "3"]);
        let lines: Vec<&str> = text.lines().collect();
        // The prompt takes the last of 24 lines.
        assert_eq!(lines.len(), 23, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(lines[2].starts_with("PING_INLINE ") && lines[21].starts_with("MSET (10 keys) "), "{text}");
        assert!(lines[22].starts_with("Verdict: "), "{text}");
    });
}

#[test]
fn exactly_the_requests_that_were_asked_for_are_sent() {
    on_both(&[], |server| {
        at(server, &["-q", "-n", "1003", "-c", "7", "-P", "16", "-t", "set"]);
        assert_eq!(calls(server, "set"), 1003);
        at(server, &["-q", "-n", "1000", "-c", "7", "-P", "3", "--threads", "3", "INCR", "counter"]);
        assert_eq!(server.connect().cmd("GET counter").unwrap(), bulk(b"1000"));
        at(server, &["-q", "-n", "500", "-c", "4", "--rate", "20000", "--threads", "2", "INCR", "counter"]);
        at(server, &["-q", "-n", "10", "INCRBY", "negative", "-2"]);
        assert_eq!(server.connect().cmd("GET negative").unwrap(), bulk(b"-20"));
        at(server, &["-q", "-n", "100", "-c", "5", "-k", "0", "INCR", "counter"]);
        at(server, &["-q", "-n", "100", "-c", "5", "-k", "0", "-P", "4", "--rate", "9000", "INCR", "counter"]);
        assert_eq!(server.connect().cmd("GET counter").unwrap(), bulk(b"1700"));
    });
}

#[test]
fn a_ratio_of_sets_and_gets_is_exact() {
    on_both(&[], |server| {
        let text =
            at(server, &["-q", "-n", "1100", "-c", "7", "-P", "16", "--threads", "2", "--ratio", "1:10", "-r", "50"]);
        assert_eq!(titles(&text), ["SET and GET 1:10"], "{text}");
        assert_eq!((calls(server, "set"), calls(server, "get")), (100, 1000));
    });
    check_refusal(&["--ratio", "1:1", "-t", "get"], 2, "cannot be used with");
    check_refusal(&["--ratio", "0:0"], 2, "expected two whole numbers");
    check_refusal(&["pipelinig"], 2, "'pipelinig' is no experiment; did you mean 'penstock bench pipelining'?");
    check_refusal(&["Pipeling", "redis://localhost"], 2, "did you mean 'penstock bench pipelining'?");
    check_refusal(&["--raito", "1:1"], 2, "'--raito' found; did you mean '--ratio'? (see penstock bench --help)");
}

#[test]
fn zipf_makes_low_numbers_frequent() {
    let server = Server::penstock(&[]);
    let incr = |keys: &str, distribution: &str| {
        let key = format!("{keys}:__rand_int__");
        at(&server, &["-q", "-n", "20000", "-P", "50", "-r", "1000", "--distribution", distribution, "INCR", &key]);
        let Reply::Blob(_, text) = server.connect().cmd(&format!("GET {keys}:000000000000")).unwrap() else { panic!() };
        String::from_utf8(text).unwrap().parse::<u64>().unwrap()
    };
    let (uniform, zipf) = (incr("uniform", "uniform"), incr("zipf", "zipf"));
    assert!(uniform < 100 && zipf > 2000, "{uniform} {zipf}");
    check_refusal(&["-r", "5", "--distribution", "zipf:2"], 2, "between 0 and 1");
    check_refusal(&["--distribution", "zipf"], 2, "required");
}

#[test]
fn the_distribution_of_latencies_is_written_to_a_file() {
    let server = Server::penstock(&[]);
    let path = std::env::temp_dir().join(format!("penstock-bench-hdr-{}", std::process::id()));
    let file = path.to_str().unwrap();
    at(&server, &["-q", "-n", "500", "--hdr", file, "GET", "key"]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"), "{text}");
    assert!(text.contains("1.000000000000        500            inf\n") && text.contains("#[Max "), "{text}");
    let port = server.port().to_string();
    check_refusal(&["-p", &port, "--hdr", file, "-t", "set,get"], 2, "a single test");
    assert!(!path.exists());
    check_refusal(&["-p", &port, "--hdr", "/nowhere/file", "-t", "get"], 1, "can't write /nowhere/file");
}

#[test]
fn the_last_of_equal_flags_counts() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    let text = output(&["-p", "1", "-n", "5", "-q", "-p", &port, "-n", "7", "INCR", "counter"]);
    assert_eq!(titles(&text), ["INCR counter"]);
    assert_eq!(server.connect().cmd("GET counter").unwrap(), bulk(b"7"));
}

#[test]
fn placeholders_become_numbers_and_data() {
    on_both(&[], |server| {
        at(server, &["-q", "-n", "2000", "-r", "10", "-d", "5", "SET", "k:__rand_int__", "<__data__>"]);
        let mut conn = server.connect();
        assert_eq!(conn.cmd("DBSIZE").unwrap(), Reply::Line(b':', b"10".into()));
        assert_eq!(conn.cmd("STRLEN k:000000000009").unwrap(), Reply::Line(b':', b"7".into()));
        conn.cmd("FLUSHALL").unwrap();
        at(server, &["-q", "-n", "10", "SET", "k:__rand_int__", "v"]);
        assert_eq!(conn.cmd("GET k:__rand_int__").unwrap(), bulk(b"v"));
        let mut child = command(&["-p", &server.port().to_string(), "-q", "-n", "10", "-x", "SET", "k"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from\r\nstdin").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(conn.cmd("GET k").unwrap(), bulk(b"from\r\nstdin"));
    });
}

#[test]
fn a_seed_gives_the_same_keys_whatever_sends_them() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let mut keys = |args: &[&str]| {
        conn.cmd("FLUSHALL").unwrap();
        let usual = ["-q", "-n", "3000", "-r", "1000000", "-P", "4"];
        at(&server, &[&usual, args, &["SET", "k:__rand_int__:__rand_int__", "v"]].concat());
        let Reply::Many(_, keys) = conn.cmd("KEYS *").unwrap() else { panic!("no keys") };
        let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| key.text().to_vec()).collect();
        keys.sort();
        keys
    };
    let expected = keys(&["-c", "1"]);
    assert!(expected.len() > 2990, "{}", expected.len());
    for args in [
        &["--threads", "3"][..],
        &["-c", "7", "-P", "1000"],
        &["--threads", "2", "--rate", "50000"],
        &["-k", "0", "-c", "3", "--threads", "2"],
    ] {
        assert!(keys(args) == expected, "{args:?}");
    }
    assert!(keys(&["--seed", "1"]) != expected);
}

#[test]
fn a_command_may_have_any_bytes() {
    on_both(&[], |server| {
        let mut binary = command(&["-p", &server.port().to_string(), "-q", "-n", "3", "SET"]);
        let ran = binary.args([OsStr::from_bytes(b"\xff"), OsStr::new("v")]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(server.connect().call(&[b"GET".to_vec(), b"\xff".to_vec()]).unwrap(), bulk(b"v"));
    });
}

#[test]
fn a_database_a_password_and_resp3_reach_every_connection() {
    on_both(&["--requirepass", "secret"], |server| {
        let (port, name) = (server.port().to_string(), "default");
        output(&["-p", &port, "-a", "secret", "-q", "-n", "10", "--dbnum", "3", "-3", "SET", "k", "v"]);
        output(&["-p", &port, "-a", "secret", "--user", name, "-q", "-n", "10", "--dbnum", "4", "SET", "k", "v"]);
        output(&["-u", &format!("redis://:secret@127.0.0.1:{port}/5"), "-q", "-n", "10", "-k", "0", "SET", "k", "v"]);
        let mut conn = server.connect();
        conn.cmd("AUTH secret").unwrap();
        for db in [3, 4, 5] {
            conn.cmd(&format!("SELECT {db}")).unwrap();
            assert_eq!(conn.cmd("GET k").unwrap(), bulk(b"v"), "{db}");
        }
        check_refusal(&["-p", &port, "-q", "-n", "10"], 1, "NOAUTH");
        check_refusal(&["-p", &port, "-a", "wrong", "-q", "-n", "10"], 1, "WRONGPASS");
    });
}

#[test]
fn csv_and_json_are_read_by_programs() {
    on_both(&[], |server| {
        let csv = at(server, &["--csv", "-n", "200", "-t", "get,mset"]);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("\"test\",\"rps\",") && lines[2].starts_with("\"MSET (10 keys)\","), "{csv}");
        assert!(lines.iter().all(|line| line.split(',').count() == 8), "{csv}");
        // Enough requests for a reliable CPU time even if the server doesn't become idle in between.
        let json = at(server, &["--json", "-n", "100000", "-t", "get,mset", "-P", "4"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["pipeline_depth"], 4);
        let test = &json["tests"][1];
        assert_eq!((&test["test"], &test["requests"]), (&"MSET (10 keys)".into(), &100_000.into()));
        assert!(test["latency_ms"]["p99"].as_f64() >= test["latency_ms"]["min"].as_f64(), "{test}");
        // The server is a process on this machine.
        assert!(test["server"]["resident_bytes"].as_u64().unwrap() > 1 << 20, "{test}");
    });
}

#[test]
fn a_unix_socket_serves_as_well_and_its_process_is_known() {
    let path = std::env::temp_dir().join(format!("penstock-bench-{}.sock", std::process::id()));
    let server = Server::penstock(&["--unixsocket", path.to_str().unwrap()]);
    // Enough requests for a reliable CPU time even if the server doesn't become idle in between.
    let common = ["-s", path.to_str().unwrap(), "-n", "100000", "-t", "ping_mbulk", "--precision", "1"];
    let text = output(&[&common[..], &["--full"]].concat());
    assert!(text.contains("100000 requests completed"), "{text}");
    assert!(text.contains("server process: "), "{text}");
    // The default is a line for each test, and a verdict.
    let text = output(&common);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].ends_with(", 1 thread, values of 3 bytes, 100,000 requests a test"), "{text}");
    assert!(lines[2].starts_with("PING_MBULK ") && lines[2].ends_with("s"), "{text}");
    assert!(lines[3].starts_with("Verdict: "), "{text}");
    drop(server);
    let _ = std::fs::remove_file(path);
}

#[test]
fn an_error_reply_ends_the_run_unless_errors_are_to_be_shown() {
    on_both(&[], |server| {
        let port = server.port().to_string();
        check_refusal(&["-p", &port, "-n", "10", "NOSUCH", "x"], 1, "Error from server: ERR unknown command");
        let ran = run(&["-p", &port, "-n", "10", "-e", "NOSUCH", "x"]);
        assert_eq!(ran.status, Some(0));
        assert!(ran.stdout.contains("  10 errors\n"), "{}", ran.stdout);
        assert!(ran.stderr.contains("Error from server: ERR unknown command") && ran.stderr.lines().count() == 1);
    });
}

/// Titles are redis-benchmark's, except for characters that would harm a terminal, and for long ones.
#[test]
fn a_users_command_has_a_title_of_one_line() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    let titled = |form: &str, words: &[&[u8]], input: &[u8]| {
        let mut command = command(&["-p", &port, "-n", "10", form]);
        command.args(if input.is_empty() { &[][..] } else { &["-x"] }).args(words.iter().map(|w| OsStr::from_bytes(w)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // An argument can't contain a zero byte.
    let binary: Vec<u8> = (1..=255).cycle().take(10_000).collect();
    assert_eq!(titles(&titled("-q", &[b"SET", b"xx"], &binary)), ["SET xx"]);
    assert_eq!(titles(&titled("-q", &[b"SET", b"a b", b"\xff\n"], b"")), [r"SET a b \xff\n"]);
    let csv = titled("--csv", &[b"SET", b"a\n\"b\"", &binary], b"");
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with(r#""SET a\n""b"" \x01\x02"#) && csv.len() < 1000, "{csv}");
    let json: serde_json::Value = serde_json::from_str(&titled("--json", &[b"SET", &binary, b"v"], b"")).unwrap();
    let title = json["tests"][0]["test"].as_str().unwrap();
    assert!(title.starts_with(r"SET \x01\x02") && title.ends_with("..."), "{title}");
}

#[test]
fn idle_connections_are_kept_until_the_server_refuses_or_closes_one() {
    on_both(&["--requirepass", "secret"], |server| {
        let port = server.port().to_string();
        let mut conn = server.connect();
        conn.cmd("AUTH secret").unwrap();
        let mut begin = |clients: u64| {
            let child = command(&["-p", &port, "-a", "secret", "-c", &clients.to_string(), "-I"]);
            let mut child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let expected = format!("connected_clients:{}\r", clients + 1);
            let is_there = |info: &Reply| String::from_utf8_lossy(info.text()).contains(&expected);
            while clients <= 5 && !is_there(&conn.cmd("INFO clients").unwrap()) {
                assert!(child.try_wait().unwrap().is_none(), "it has ended");
                thread::sleep(Duration::from_millis(10));
            }
            (child, format!("Creating {clients} idle connections and waiting forever (Ctrl+C when done)\n"))
        };

        let (child, announced) = begin(5);
        signal("INT", child.id());
        let ran = common::Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), ""));
        assert!(ran.stdout.starts_with(&announced), "{}", ran.stdout);

        // The server counts a connection before its login is answered, so the tool's own words tell that all are open.
        let (mut child, announced) = begin(4);
        let (mut stdout, mut text) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        (0..2).for_each(|_| _ = stdout.read_line(&mut text).unwrap());
        let mut other = server.connect();
        other.cmd("AUTH secret").unwrap();
        other.cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        let ran = common::Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(1), "penstock bench: the server closed the connection\n"));
        stdout.read_to_string(&mut text).unwrap();
        assert_eq!(text, announced + "clients: 4\n");

        other.cmd("CONFIG SET maxclients 5").unwrap();
        let (child, _) = begin(10);
        let ran = common::Ran::from(child.wait_with_output().unwrap());
        let refusal = "penstock bench: Error from server: ERR max number of clients reached\n";
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(1), refusal));
    });
}

/// Errors are reported once a second, and the rest at the end: the counts add up to the total.
#[test]
fn error_counts_add_up_to_the_total() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    // Long enough for a report before the end, and too short for a third one.
    let ran = run(&["-p", &port, "-q", "-e", "--rate", "2000", "-n", "1400", "NOSUCH"]);
    let count = |line: &str| line.rsplit_once('(')?.1.strip_suffix(" new errors)")?.parse::<u64>().ok();
    let counts: Vec<u64> = ran.stderr.lines().map(|line| count(line).unwrap()).collect();
    assert!(counts.len() > 1 && counts.iter().sum::<u64>() == 1400, "{}", ran.stderr);
}

#[test]
fn bad_input_gives_one_line_and_a_status() {
    let port = free_port().unwrap().to_string();
    check_refusal(&["-p", &port, "-q"], 1, "Connection refused");
    check_refusal(&["-s", "/nonexistent/socket"], 1, "/nonexistent/socket");
    check_refusal(&["-n", "abc"], 2, "abc");
    check_refusal(&["-n", "0"], 2, "above 0");
    check_refusal(&["--nonsense"], 2, "--nonsense");
    check_refusal(&["-t", "nope"], 2, "there is no test \"nope\"");
    check_refusal(&["--rate", "-1"], 2, "--rate");
    check_refusal(&["--rate", "1e300"], 2, "1000000000");
    check_refusal(&["--rate", "1e-9"], 2, "0.001");
    check_refusal(&["--threads", "501"], 2, "500");
    check_refusal(&["-u", "http://x"], 2, "scheme");
    check_refusal(&["--csv", "--json"], 2, "--json");
    check_refusal(&["-x"], 2, "-x");
}

/// Starts a server that answers every PING, except for one pause.
fn stalling_server(stall: Duration, after: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        // The first connection is the tool's own, for queries that this server can't answer.
        for (number, stream) in listener.incoming().enumerate() {
            thread::spawn(move || serve(stream.unwrap(), if number == 0 { None } else { Some((stall, after)) }));
        }
    });
    port
}

fn serve(mut stream: std::net::TcpStream, mut stall: Option<(Duration, usize)>) {
    let mut buffer = [0; 1 << 16];
    let (mut answered, mut unfinished) = (0, 0);
    while let Ok(received @ 1..) = stream.read(&mut buffer) {
        // Each request contains exactly one star.
        let requests = buffer[..received].iter().filter(|&&b| b == b'*').count();
        unfinished += requests;
        if let Some((pause, _)) = stall.take_if(|(_, after)| answered > *after) {
            thread::sleep(pause);
        }
        let replies = std::mem::take(&mut unfinished);
        answered += replies;
        if stream.write_all(&b"-ERR no\r\n".repeat(replies)).is_err() {
            return;
        }
    }
}

#[test]
fn with_a_rate_every_request_due_in_a_stall_is_late() {
    // 500 requests at 1,000 per second on one connection, with a pause of half a second after the first hundred. A
    // client that waits for replies sees one slow request; on a schedule, about 400 requests are due during the pause.
    let latencies = |rate: &[&str]| {
        let port = stalling_server(Duration::from_millis(500), 100).to_string();
        let args = [&["-p", &port, "-n", "500", "-c", "1", "-e", "--json"], rate, &["PING"]].concat();
        let ran = run(&args);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let at = |name: &str| json["tests"][0]["latency_ms"][name].as_f64().unwrap();
        (at("p50"), at("p90"), at("max"))
    };
    let (p50, _, max) = latencies(&[]);
    assert!(p50 < 100.0 && max > 400.0, "waiting for replies: p50 {p50}, max {max}");
    let (p50, p90, max) = latencies(&["--rate", "1000"]);
    // A slow machine can't reduce these values, because due times don't depend on its speed.
    assert!(p50 > 100.0 && p90 > 350.0 && max > 400.0, "by the clock: p50 {p50}, p90 {p90}, max {max}");
}

#[test]
fn ctrl_c_ends_a_run_with_one_line() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    let interrupted = |test: &str, form: &str| {
        let child = command(&["-p", &port, form, "-l", "-t", test, "-n", "100000000"]);
        let child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while calls(&server, test) == 0 {
            thread::sleep(Duration::from_millis(10));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        common::Ran::from(child.wait_with_output().unwrap())
    };
    let ran = interrupted("get", "-q");
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    // The results so far are printed.
    assert!(ran.stdout.starts_with("GET: "), "{}", ran.stdout);
    // A partial document would look complete.
    let ran = interrupted("set", "--json");
    let expected = "penstock bench: interrupted; no report was written\n";
    assert_eq!((ran.status, ran.stderr.as_str(), ran.stdout.as_str()), (Some(130), expected, ""));
}

#[test]
fn ctrl_c_ends_a_wait_for_a_silent_server_at_once() {
    // The kernel accepts connections, and no program answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for args in [&["-p", &port.to_string(), "-q"][..], &["pipelining", &format!("redis://127.0.0.1:{port}")]] {
        let mut child = command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let _connection = silent.accept().unwrap();
        let began = Instant::now();
        signal("INT", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{args:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{args:?}: {:?}", began.elapsed());
    }
}

#[test]
fn ctrl_c_ends_a_run_whose_server_has_fallen_silent() {
    let server = Server::penstock(&[]);
    let child = command(&["-p", &server.port().to_string(), "-q", "-t", "get", "-n", "100000000"]);
    let child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while calls(&server, "get") == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    signal("STOP", server.pid());
    let began = Instant::now();
    signal("INT", child.id());
    let ran = common::Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(130), "penstock bench: interrupted\n"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn naming_the_server_before_the_experiments_is_explained() {
    on_both(&[], |server| {
        let port = server.port().to_string();
        let right = format!("penstock bench pipelining redis://127.0.0.1:{port}");
        check_refusal(&["-p", &port, "-q", "pipelining"], 1, &right);
    });
}

#[test]
fn a_server_that_goes_away_is_reported() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    let child = command(&["-p", &port, "-q", "-t", "get", "-n", "100000000"]);
    let child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while calls(&server, "get") == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    // Only the connections are closed. Killing the process would make its owner report the end.
    server.connect().cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
    let ran = common::Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(1), "penstock bench: the server closed the connection\n"));
}

#[test]
fn connections_may_be_encrypted() {
    let certificates = Certificates::create();
    let (server, port) = certificates.server(true);
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.text(name));
    let port = port.to_string();
    let tls = ["-h", "localhost", "-p", &port, "--tls", "--cacert", &ca, "--cert", &cert, "--key", &key];
    let ran = |args: &[&str]| output(&[&tls[..], args].concat());
    // Replies and requests larger than any buffer; a connection for each request; a schedule.
    ran(&["-q", "-n", "200", "-c", "3", "-P", "50", "-d", "30000", "SET", "big", "__data__"]);
    ran(&["-q", "-n", "200", "-c", "3", "-P", "50", "GET", "big"]);
    ran(&["-q", "-n", "100", "-c", "10", "-k", "0", "INCR", "calls"]);
    ran(&["-q", "-n", "100", "--rate", "2000", "INCR", "calls"]);
    ran(&["-q", "-n", "100", "--threads", "2", "INCR", "calls"]);
    assert_eq!(server.connect().cmd("GET calls").unwrap().text(), b"300");
    let refused = |args: &[&str], words: &str| {
        check_refusal(&[&["-h", "localhost", "-p", &port, "-n", "9"], args].concat(), 1, words)
    };
    refused(&["--tls"], "certificate");
    refused(&["--tls", "--cacert", &ca], "");
    refused(&["--tls", "--cacert", &ca, "--sni", "wrong.example"], "certificate");
    check_refusal(&["-h", "localhost", "-p", &port, "--tls", "--cacert", "/nowhere.pem"], 2, "/nowhere.pem");
    check_refusal(&["-s", "/tmp/x", "--tls"], 2, "a Unix socket is not encrypted");
}
