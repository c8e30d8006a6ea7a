//! `penstock cli` compared with redis-cli: the same command lines against the same server, and every byte compared.
//!
//! The command lines are in `cli/cases.txt`. Each runs twice, with a pipe and with a terminal as standard output,
//! against redis-server and against Penstock.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, subject_program};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

const CASES: &str = include_str!("cli/cases.txt");

/// Longest duration of a case, in seconds.
const CASE_SECONDS_MAX: &str = "20";

/// The data in the server before every case.
const SEED: &[&[&[u8]]] = &[
    &[b"FLUSHALL"],
    &[b"SET", b"string", b"a \"string\""],
    &[b"SET", b"number", b"41"],
    &[b"SET", b"empty", b""],
    &[b"SET", b"binary", b"\x00\xff\xc3\xa9 \n\r\t\\\"\x07\x08\x0c\x7f\x1b"],
    &[b"SET", b"control", b"\x00\xff\n"],
    &[b"RPUSH", b"list", b"a", b"b\nb", b"", b"d", b"e", b"f", b"g", b"h", b"i", b"j"],
    &[b"HSET", b"hash", b"field", b"value"],
    &[b"SADD", b"one", b"member"],
    &[b"ZADD", b"zset", b"1.5", b"a", b"2", b"b"],
];

/// The output of a run, and its exit status.
#[derive(PartialEq)]
struct Outcome {
    stdout: String,
    stderr: String,
    status: Option<i32>,
}

/// The cases: lines of the file, with continuation lines joined.
fn cases() -> Vec<String> {
    let text = CASES.replace("\\\n", "");
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The directory for files of the cases with a server; tests run in parallel, so each has its own.
fn directory(port: u16) -> PathBuf {
    env::temp_dir().join(format!("penstock-cli-{}-{port}", std::process::id()))
}

/// Returns a command that runs a shell script in which `cli` is `program`.
fn shell(program: &str, script: &str, port: u16, fake: u16) -> Command {
    let directory = directory(port);
    fs::create_dir_all(&directory).unwrap();

    let mut command = Command::new("timeout");
    command
        .args(["-k1", CASE_SECONDS_MAX, "bash", "-c", &format!("cli() {{ {program} -p $PORT \"$@\"; }}\n{script}")])
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("TERM", "xterm")
        .env("PORT", port.to_string())
        .env("FAKE", fake.to_string())
        .env("DIR", directory)
        .stdin(Stdio::null());
    command
}

fn outcome(stdout: Vec<u8>, stderr: Vec<u8>, status: Option<i32>) -> Outcome {
    let text = |bytes: Vec<u8>| {
        let text: String = bytes.iter().map(|&byte| shown(byte)).collect();
        // The one intended difference: each program prints its own name.
        let text = text.replace(concat!("penstock cli ", env!("CARGO_PKG_VERSION")), "redis-cli 7.0.15");
        // On a busy machine any command may take long enough for its time to be printed.
        text.split_inclusive('\n').filter(|line| !is_time_taken(line)).collect()
    };
    Outcome { stdout: text(stdout), stderr: text(stderr), status }
}

/// Returns true for a line with a command's duration: `(0.51s)`, with a final `\r` on a terminal.
fn is_time_taken(line: &str) -> bool {
    let line = line.trim_end().trim_end_matches("\\r");
    let seconds = line.strip_prefix('(').and_then(|line| line.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.contains('.') && seconds.parse::<f64>().is_ok())
}

/// A byte in the report of a failed comparison.
fn shown(byte: u8) -> String {
    if matches!(byte, b'\n' | b' '..=b'~') { char::from(byte).to_string() } else { byte.escape_ascii().to_string() }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {:?}\n-- output\n{}\n-- errors\n{}", self.status, self.stdout, self.stderr)
    }
}

fn run_in_pipe(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    outcome(output.stdout, output.stderr, output.status.code())
}

/// Opens a terminal: the user's side, and the program's side.
fn terminal() -> (File, OwnedFd) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let path = PathBuf::from(ptsname(&controller, Vec::new()).unwrap().into_string().unwrap());
    let program_side = OpenOptions::new().read(true).write(true).open(path).unwrap();
    (File::from(controller), program_side.into())
}

/// Runs a command with a terminal as its standard output. Coloured replies are an addition of penstock cli, and are
/// tested in `cli_interactive`.
fn run_on_terminal(mut command: Command) -> Outcome {
    let (mut screen, program_side) = terminal();
    command.env("NO_COLOR", "1");
    let mut child = command.stdout(Stdio::from(program_side)).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut stderr = child.stderr.take().unwrap();
    let errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut stdout = Vec::new();
    let mut piece = [0; 4096];
    // A terminal whose other side is closed returns an error at its end.
    while let Ok(n @ 1..) = screen.read(&mut piece) {
        stdout.extend_from_slice(&piece[..n]);
    }
    let status = child.wait().unwrap();
    outcome(stdout, errors.join().unwrap(), status.code())
}

fn seed(server: &Server) {
    let mut conn = server.connect();
    for request in SEED {
        conn.call(&request.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>()).unwrap();
    }
}

/// Runs all cases with both programs against a server, and returns the differing ones.
fn compare(server: &Server, fake: u16, run: fn(Command) -> Outcome) -> Vec<String> {
    let subject = format!("{} cli", subject_program().display());
    let mut differences = Vec::new();
    for case in cases() {
        let [expected, found] = ["redis-cli", &subject].map(|program| {
            seed(server);
            run(shell(program, &case, server.port(), fake))
        });
        if expected != found {
            differences.push(format!("$ {case}\n== redis-cli: {expected}\n== penstock cli: {found}\n"));
        }
    }
    differences
}

/// Starts Redis. Without active rehashing, the order of its keys does not depend on idle time.
fn oracle() -> Server {
    Server::oracle(&["--enable-debug-command", "yes", "--activerehashing", "no"])
}

fn check(server: &Server, run: fn(Command) -> Outcome) {
    let differences = compare(server, fake_server(), run);
    fs::remove_dir_all(directory(server.port())).unwrap();
    assert!(differences.is_empty(), "{} cases differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn as_redis_cli_in_a_pipe() {
    check(&oracle(), run_in_pipe);
}

#[test]
fn as_redis_cli_on_a_terminal() {
    check(&oracle(), run_on_terminal);
}

#[test]
fn as_redis_cli_with_penstock() {
    check(&Server::penstock(&["--enable-debug-command", "yes"]), run_in_pipe);
}

/// A closed pipe ends the program neither by a signal nor with an internal error message.
#[test]
fn output_to_a_closed_pipe_is_no_crash() {
    let run = |args: &[&str], redirection: &str| {
        let script = format!("\"$0\" \"$@\" {redirection}");
        let mut command = Command::new("bash");
        let output =
            command.args(["-o", "pipefail", "-c", &script]).arg(subject_program()).args(args).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!errors.contains("panicked"), "{args:?} {redirection}: {errors}");
        (output.status.code(), errors)
    };
    for args in [
        &["--help"][..],
        &["--version"],
        &["cli", "--help"],
        &["cli", "--version"],
        &["load", "--help"],
        &["load", "--version"],
        &["bench", "--help"],
        &["bench", "--version"],
        &["bench", "pipelining", "--help"],
    ] {
        assert_eq!(run(args, "| :"), (Some(0), String::new()), "{args:?}");
        let (status, errors) = run(args, ">/dev/full");
        assert!(status == Some(1) && errors.contains("No space left on device"), "{args:?}: {errors}");
    }
    for args in [
        &["cli", "-p", "1", "PING"][..],
        &["cli", "--nonsense"],
        &["load", "-p", "1"],
        &["bench", "-p", "1"],
        &["--port", "x"],
    ] {
        let (status, _) = run(args, "2>/dev/full </dev/null");
        assert!(matches!(status, Some(1..=4)), "{args:?}: {status:?}");
    }
}

/// Help comes from the server; the program reports if the user may not request it.
#[test]
fn a_server_that_refuses_to_list_its_commands_is_reported() {
    let server = Server::oracle(&[]);
    server.connect().cmd("ACL SETUSER low on nopass +get").unwrap();
    let port = server.port().to_string();
    let mut command = Command::new(subject_program());
    command.args(["cli", "-p", &port, "--user", "low", "--pass", "x", "--no-auth-warning", "help", "get"]);
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"");
    assert!(String::from_utf8(output.stderr).unwrap().contains("no help available: the server refuses COMMAND DOCS"));
}

/// Returns all output of a program. Its connection is killed once it has printed `before` in reply to `first`, and it
/// then reads `later`.
fn bereft(program: &str, server: &Server, [first, before, later]: [&str; 3]) -> Outcome {
    let mut command = shell(program, "cli", server.port(), 0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdin.write_all(first.as_bytes()).unwrap();
    let mut printed = vec![0; before.len()];
    stdout.read_exact(&mut printed).unwrap();
    assert_eq!(String::from_utf8_lossy(&printed), before);

    let mut conn = server.connect();
    for kind in ["normal", "pubsub"] {
        conn.cmd(&format!("CLIENT KILL TYPE {kind} SKIPME yes")).unwrap();
    }
    while conn.cmd("CLIENT LIST").unwrap().text().iter().filter(|byte| **byte == b'\n').count() > 1 {
        thread::sleep(Duration::from_millis(5));
    }
    // A program that has ended reads no more.
    let _ = stdin.write_all(later.as_bytes());
    drop(stdin);
    stdout.read_to_end(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    outcome(printed, output.stderr, output.status.code())
}

/// Commands of a lost transaction do not run outside of it, and a program that reads messages for ever ends.
#[test]
fn a_lost_connection_is_reported() {
    let server = Server::oracle(&[]);
    let subject = format!("{} cli", subject_program().display());
    for (lines, status) in [
        (["multi\nset a 1\n", "OK\nQUEUED\n", "set a 2\nexec\nget a\n"], 0),
        (["watch a\n", "OK\n", "set a 3\nping\n"], 0),
        (["subscribe a\nping\n", "subscribe\na\n1\n", ""], 1),
        (["monitor\nping\n", "OK\n", ""], 1),
    ] {
        server.connect().cmd("DEL a").unwrap();
        let [expected, found] = ["redis-cli", &subject].map(|program| bereft(program, &server, lines));
        assert!(found == expected, "{lines:?}\nexpected {expected}\nfound {found}");
        assert_eq!((found.stderr.as_str(), found.status), ("Error: Server closed the connection\n", Some(status)));
        assert_eq!(server.connect().cmd("EXISTS a").unwrap().integer(), Some(0), "{lines:?}");
    }
}

/// Statistics continue when the server is back.
#[test]
fn statistics_continue_after_a_lost_connection() {
    let server = Server::oracle(&[]);
    let mut command = Command::new(subject_program());
    let port = server.port().to_string();
    command.args(["cli", "-p", &port, "--stat", "-i", "0.05", "-r", "3"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // Two lines of the heading, and a row.
    (0..3).for_each(|_| assert!(lines.read_line(&mut text).unwrap() > 0));
    server.connect().cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
    lines.read_to_string(&mut text).unwrap();
    assert!(text.contains("\r\x1b[0KReconnecting... 1\r\r\x1b[0K"), "{text:?}");
    assert_eq!((text.lines().count(), child.wait().unwrap().code()), (5, Some(0)), "{text:?}");
}

/// Returns the output and the exit status of the subject with these arguments.
fn subject(args: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(subject_program()).arg("cli").args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn parameters_of_a_uri_are_obeyed() {
    let server = Server::oracle(&[]);
    let uri = format!("redis://127.0.0.1:{}/3?client_name=me&protocol=3&no_such=1", server.port());
    let (info, errors, status) = subject(&["-u", &uri, "CLIENT", "INFO"]);
    assert!(info.contains(" name=me ") && info.contains(" db=3 ") && info.contains(" resp=3"), "{info}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    server.connect().cmd("ACL SETUSER u2 on >pa?ss ~* +@all").unwrap();
    let uri = format!("redis://u2:pa?ss@127.0.0.1:{}/?db=2", server.port());
    let (user, errors, _) = subject(&["--no-auth-warning", "-u", &uri, "ACL", "WHOAMI"]);
    assert_eq!((user.as_str(), errors.as_str()), ("u2\n", ""));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("redis://127.0.0.1:{}?read_timeout=0.1", silent.local_addr().unwrap().port());
    let (output, errors, status) = subject(&["-u", &uri, "PING"]);
    assert!(errors.starts_with("Error: ") && output.is_empty() && status == Some(1), "{errors}");
}

/// Commands that never have a reply, and help that doesn't exist.
#[test]
fn impossible_requests_are_reported() {
    let server = Server::oracle(&[]);
    let port = server.port().to_string();
    for name in ["SYNC", "psync"] {
        let (output, errors, status) = subject(&["-p", &port, name, "?", "-1"]);
        assert!(errors.contains(&format!("'{name}' is not supported")) && output.is_empty(), "{errors}");
        assert_eq!(status, Some(1));
    }
    let (_, errors, status) = subject(&["-p", "1", "help", "set"]);
    assert!(errors.contains("help on commands comes from the server"), "{errors}");
    assert_eq!(status, Some(1));
}

/// `--rdb` writes a snapshot, and `--replica` prints the commands that replicas get.
#[test]
fn the_stream_of_a_replica_is_read() {
    for server in [Server::penstock(&[]), Server::oracle(&[])] {
        server.connect().cmd("SET before 1").unwrap();
        let port = server.port().to_string();
        let path = env::temp_dir().join(format!("penstock-cli-{}-{port}.rdb", std::process::id()));
        let (output, errors, status) = subject(&["-p", &port, "--rdb", path.to_str().unwrap()]);
        assert!(output.is_empty() && errors.contains("Transfer finished with success"), "{errors}");
        assert_eq!(status, Some(0), "{errors}");
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"REDIS") && bytes.windows(6).any(|window| window == b"before"));
        fs::remove_file(&path).unwrap();
        let (_, errors, status) = subject(&["-p", &port, "--rdb", "/nowhere/dump.rdb"]);
        assert!(errors.contains("Error opening '/nowhere/dump.rdb.part'") && status == Some(1), "{errors}");
        // Only the snapshot goes to standard output. A device is written to, and not replaced by a file.
        for path in ["-", "/dev/stdout"] {
            let mut command = Command::new(subject_program());
            let output = command.args(["cli", "-p", &port, "--rdb", path]).stdin(Stdio::null()).output().unwrap();
            assert!(output.stdout.starts_with(b"REDIS") && output.status.success(), "{path}");
            assert!(output.stdout.windows(6).any(|window| window == b"before"), "{path}");
        }

        let mut child = Command::new(subject_program());
        child.args(["cli", "-p", &port, "--replica"]).stdin(Stdio::null());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        assert!(errors.lines().map_while(Result::ok).any(|line| line.contains("SYNC done")));
        server.connect().cmd("SET after 2").unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        assert!(lines.lines().map_while(Result::ok).any(|line| line.to_lowercase() == "\"set\",\"after\",\"2\""));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Starts two nodes of a cluster, each with half of the slots.
fn cluster(start: impl Fn(&[&str]) -> Server) -> [Server; 2] {
    let nodes = [(); 2].map(|()| start(&["--cluster-enabled", "yes"]));
    for (node, slots) in nodes.iter().zip(["0 8191", "8192 16383"]) {
        node.connect().cmd(&format!("CLUSTER ADDSLOTSRANGE {slots}")).unwrap();
    }
    let mut conn = nodes[0].connect();
    conn.cmd(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port())).unwrap();
    let is_whole = |node: &Server| {
        let info = node.connect().cmd("CLUSTER INFO").unwrap();
        let text = String::from_utf8_lossy(info.text()).into_owned();
        text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:2")
    };
    while !nodes.iter().all(is_whole) {
        thread::sleep(Duration::from_millis(20));
    }
    nodes
}

/// With -c a command goes to the node that has its key; without it, the node's reply is printed.
#[test]
fn as_redis_cli_in_a_cluster() {
    for start in [Server::oracle, Server::penstock] {
        check_redirections(&cluster(start));
    }
}

fn check_redirections(nodes: &[Server; 2]) {
    let [low, high] = nodes.each_ref().map(Server::port);
    // The slot of `foo` is 12182, of `bar` 5061, of `q{z}` 8157, which is being moved to the other node.
    let [low_id, high_id] = nodes
        .each_ref()
        .map(|node| String::from_utf8(node.connect().cmd("CLUSTER MYID").unwrap().text().to_vec()).unwrap());
    nodes[1].connect().cmd(&format!("CLUSTER SETSLOT 8157 IMPORTING {low_id}")).unwrap();
    nodes[0].connect().cmd(&format!("CLUSTER SETSLOT 8157 MIGRATING {high_id}")).unwrap();
    for script in [
        "cli set foo 1",
        "cli -c set foo 1",
        "cli -c get bar; cli -c --no-raw get foo; cli -c --csv get foo; cli -c -e get foo",
        "cli -c -r 2 get foo",
        "printf 'set foo 1\\nset bar 2\\nget foo\\nget foo\\n' | cli -c",
        "printf 'set foo 1\\nget foo\\n' | cli -c --no-raw",
        "printf 'multi\\nget bar\\nget foo\\nexec\\n' | cli -c",
        "cli get 'q{z}'",
        "cli -c set 'q{z}' 5; printf 'get q{z}\\nget q{z}\\n' | cli -c",
    ] {
        for port in [low, high] {
            let [expected, found] = ["redis-cli".to_owned(), format!("{} cli", subject_program().display())]
                .map(|program| run_in_pipe(shell(&program, script, port, 0)));
            assert!(found == expected, "{script} at {port}\nexpected {expected}\nfound {found}");
        }
    }
}

/// --pipe sends everything to one node. It says so after redirections, also with -c.
#[test]
fn a_pipe_follows_no_redirection_and_says_so() {
    let nodes = cluster(Server::penstock);
    let program = format!("{} cli", subject_program().display());
    let pipe = |script: &str| run_in_pipe(shell(&program, script, nodes[0].port(), 0));
    let piped = pipe("printf 'SET bar 1\\r\\nSET foo 1\\r\\nSET foo 2\\r\\n' | cli -c --pipe");
    let errors = &piped.stderr;
    assert!(errors.contains("2 commands belong to other nodes of the cluster"), "{errors}");
    assert!(errors.contains("penstock load --cluster"), "{errors}");
    assert!(piped.stdout.contains("errors: 2, replies: 3"), "{piped}");
    let piped = pipe("printf 'SET bar 1\\r\\n' | cli -c --pipe");
    assert!(piped.stderr.is_empty() && piped.status == Some(0), "{piped}");
}

/// Encrypted connections have the same output; only the text about an untrusted certificate comes from another library.
#[test]
fn as_redis_cli_with_encryption() {
    let directory = env::temp_dir().join(format!("penstock-cli-tls-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.join(name).display().to_string());
    fs::write(&cert, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let port = free_port().unwrap();
    let tls_port = port.to_string();
    let files = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &cert];
    let args = [&files[..], &["--tls-auth-clients", "no", "--tls-port", &tls_port]].concat();
    let _server = Server::oracle(&args);
    for (args, answered) in [
        (format!("--tls --cacert {cert} ping"), true),
        ("--tls --insecure echo hello".to_owned(), true),
        (format!("-u rediss://localhost:{port} --cacert {cert} ping"), true),
        ("--tls ping".to_owned(), false),
    ] {
        let [expected, found] = ["redis-cli".to_owned(), format!("{} cli", subject_program().display())]
            .map(|program| run_in_pipe(shell(&program, &format!("cli {args}"), port, 0)));
        assert_eq!((&found.stdout, found.status), (&expected.stdout, expected.status), "{args}");
        assert_eq!(found.stderr.is_empty(), answered, "{args}: {found}");
    }
    fs::remove_dir_all(directory).unwrap();
}

/// The fake server's replies.
fn wire(command: &str) -> Option<&'static [u8]> {
    Some(match command {
        "nestedmap" => {
            b"%2\r\n$1\r\na\r\n*2\r\n:1\r\n%1\r\n+k\r\n~2\r\n,1.5\r\n#t\r\n$1\r\nb\r\n_\r\n"
        }
        "nestedset" => {
            b"~2\r\n~0\r\n*11\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n%2\r\n:1\r\n:2\r\n$3\r\nabc\r\n*0\r\n*0\r\n"
        }
        "single" => b"%2\r\n+a\r\n%1\r\n+b\r\n~1\r\n:1\r\n+c\r\n*1\r\n%2\r\n:2\r\n:3\r\n:4\r\n*1\r\n*0\r\n",
        "empties" => b"*6\r\n*0\r\n~0\r\n%0\r\n*-1\r\n$-1\r\n$0\r\n\r\n",
        "emptymap" => b"%0\r\n",
        "emptyset" => b"~0\r\n",
        "nullarray" => b"*-1\r\n",
        "nullbulk" => b"$-1\r\n",
        "errorinside" => b"*2\r\n-ERR x \"y\"\r\n+OK\r\n",
        "verbatim" => b"=8\r\ntxt:a\nb\"\r\n",
        "verbatiminside" => b"*2\r\n=8\r\ntxt:a\nb\"\r\n:1\r\n",
        "doubles" => b"*4\r\n,inf\r\n,-inf\r\n,1e100\r\n,3.0\r\n",
        "push" => b">2\r\n+msg\r\n*1\r\n:2\r\n+OK\r\n",
        "invalidate" => b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$3\r\nb\"c\r\n+OK\r\n",
        "invalidatenil" => b">2\r\n$10\r\ninvalidate\r\n_\r\n+OK\r\n",
        "emptypush" => b">0\r\n+OK\r\n",
        "deep" => b"*1\r\n*2\r\n*1\r\n:1\r\n*1\r\n*2\r\n+a\r\n+b\r\n",
        "bool" => b"#f\r\n",
        "null" => b"_\r\n",
        "status" => b"+a \"b\"\r\n",
        "negative" => b":-5\r\n",
        "garbage" => b"hello\r\n",
        "half" => b"*2\r\n:1\r\n",
        "close" => return None,
        _ => b"+OK\r\n",
    })
}

/// Starts a server with the replies of [`wire`], and returns its port. The server ends with the test.
fn fake_server() -> u16 {
    let port = free_port().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve_fake(stream));
        }
    });
    port
}

/// Replies until the client leaves, or a command tells the server to close the connection.
fn serve_fake(mut stream: TcpStream) -> Option<()> {
    let mut requests = BufReader::new(stream.try_clone().ok()?);
    loop {
        let count: usize = read_line(&mut requests)?[1..].parse().ok()?;
        let mut name = None;
        for _ in 0..count {
            let length: usize = read_line(&mut requests)?[1..].parse().ok()?;
            let mut bytes = vec![0; length + 2];
            requests.read_exact(&mut bytes).ok()?;
            name = name.or(String::from_utf8(bytes[..length].to_vec()).ok());
        }
        let name = name?;
        stream.write_all(wire(&name)?).ok()?;
        if name == "half" {
            return None;
        }
    }
}

fn read_line(requests: &mut impl BufRead) -> Option<String> {
    let mut line = "\n".to_owned();
    while line == "\n" || line == "\r\n" {
        line.clear();
        requests.read_line(&mut line).ok()?;
    }
    Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
}
