//! The server as a process: its start, its output, its errors, its end.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, subject_program};

/// Long enough for a busy machine. No test measures it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest duration of a graceful end.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Creates a directory for this test.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("penstock-process-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// A server with its directory of data. The server is killed at the end of the test.
struct Running(Child, #[expect(dead_code, reason = "removed when it is dropped")] Directory);

impl Running {
    fn spawn(command: &mut Command) -> Running {
        let directory = Directory::new();
        Running(command.current_dir(directory.root()).spawn().unwrap(), directory)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server and waits until it is ready. Returns its output so far.
fn start(args: &[&str], stdin: &str) -> (Running, String) {
    let mut command = Command::new(subject_program());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut running = Running::spawn(&mut command);
    let child = &mut running.0;
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let mut said = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    while !said.ends_with(b"Ready to accept connections\n") {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "ended: {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    (running, String::from_utf8(said).unwrap())
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE);
        sleep(Duration::from_millis(5));
    }
}

/// Runs the server with invalid arguments. Returns its output.
fn refused(args: &[&str]) -> String {
    // A server that accepts the arguments must end, too.
    let mut limited = Command::new("timeout");
    let Output { status, stdout, stderr } = limited.arg("10").arg(subject_program()).args(args).output().unwrap();
    assert_eq!(status.code(), Some(1), "{args:?} was accepted");
    String::from_utf8([stdout, stderr].concat()).unwrap()
}

/// Sends a signal and checks that the process ends in time.
fn end(mut running: Running, signal: &str) {
    let child = &mut running.0;
    // A closed terminal (SIGHUP) and an alarm do not end it.
    for signal in ["-HUP", "-ALRM", signal] {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    }
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "{signal} does not end the server");
        sleep(Duration::from_millis(1));
    }
    assert!(began.elapsed() < FAREWELL_MAX, "{signal} took {:?}", began.elapsed());
    assert!(child.wait().unwrap().success());
}

fn ask(stream: &mut (impl Read + Write), request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), expected, "{request:?}");
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn it_prints_its_name_and_addresses_and_ends_gracefully() {
    for signal in ["-TERM", "-INT"] {
        let port = free_port().unwrap().to_string();
        let (child, said) = start(&["--port", &port, "--bind", "127.0.0.1"], "");
        for part in [env!("CARGO_PKG_VERSION"), &format!("pid {}", child.0.id()), &format!("127.0.0.1:{port}")] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
        end(child, signal);
    }
}

#[test]
fn a_signal_ends_it_in_time_in_spite_of_busy_clients() {
    let port = free_port().unwrap();
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1"], "");
    let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(port)).collect();
    ask(&mut clients[0], "SET a 1\r\n", "+OK\r\n");
    clients[1].write_all(b"BLPOP q 0\r\n").unwrap();
    clients[2].write_all(b"*3\r\n$3\r\nSET\r\n$1\r\n").unwrap();
    end(child, "-TERM");
    let mut rest = Vec::new();
    assert_eq!(clients[0].read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_the_flag() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refused(&["--port", &port, "--bind", "127.0.0.1"]);
    assert!(said.contains("--port") && said.contains(&port), "{said}");
}

#[test]
fn mistakes_in_the_configuration_are_located() {
    let directory = directory("mistakes");
    let file = directory.join("some.conf");
    fs::write(&file, "port 0\n\nnonsense yes\n").unwrap();
    let path = file.to_str().unwrap();
    for args in [&["server", path][..], &[path]] {
        let said = refused(args);
        assert!(said.contains("line 3") && said.contains("some.conf") && said.contains("nonsense yes"), "{said}");
    }
    let said = refused(&["--nonsense", "yes"]);
    assert!(said.contains("nonsense"), "{said}");
    let said = refused(&["--port", "many"]);
    assert!(said.contains("port"), "{said}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn standard_input_a_file_and_options_add_up() {
    let directory = directory("sources");
    let (file, socket) = (directory.join("some.conf"), directory.join("socket"));
    fs::write(&file, "port 0\nmaxclients 77\ntimeout 11\n").unwrap();
    let socket = socket.to_str().unwrap();
    let (child, said) = start(
        &["server", file.to_str().unwrap(), "--unixsocket", socket, "--timeout", "33", "-"],
        "timeout 22\nhz 50\n",
    );
    assert!(said.contains(socket), "{said}");
    let mut stream = UnixStream::connect(socket).unwrap();
    ask(&mut stream, "PING\r\n", "+PONG\r\n");
    for (name, value) in [("maxclients", "77"), ("timeout", "33"), ("hz", "50"), ("port", "0")] {
        let expected = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
        ask(&mut stream, &format!("CONFIG GET {name}\r\n"), &expected);
    }
    end(child, "-TERM");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn clients_are_limited_and_silent_ones_closed() {
    let port = free_port().unwrap();
    let port_text = port.to_string();
    let (child, _) = start(&["--port", &port_text, "--bind", "127.0.0.1", "--maxclients", "2"], "");
    let (mut first, mut second) = (connect(port), connect(port));
    ask(&mut first, "PING\r\n", "+PONG\r\n");
    ask(&mut second, "PING\r\n", "+PONG\r\n");
    // A client that is blocked does not count as silent.
    second.write_all(b"BLPOP q 0\r\n").unwrap();
    ask(&mut connect(port), "", "-ERR max number of clients reached\r\n");
    ask(&mut first, "CONFIG SET timeout 1\r\n", "+OK\r\n");
    let mut rest = Vec::new();
    assert_eq!(first.read_to_end(&mut rest).unwrap(), 0);
    ask(&mut connect(port), "RPUSH q x\r\n", ":1\r\n");
    ask(&mut second, "", "*2\r\n$1\r\nq\r\n$1\r\nx\r\n");
    end(child, "-TERM");
}

/// Returns the idle time of a connection in seconds, as another connection sees it.
fn idle_seconds(other: &mut Conn, id: i64) -> u64 {
    let line = other.cmd(&format!("CLIENT LIST ID {id}")).unwrap();
    let line = String::from_utf8(line.text().to_vec()).unwrap();
    line.split(' ').find_map(|word| word.strip_prefix("idle=")?.parse().ok()).unwrap()
}

#[test]
fn a_reply_ends_a_silence() {
    let debug = ["--enable-debug-command", "yes"];
    let penstock = |threads| Server::penstock(&[&debug[..], &["--threads", threads]].concat());
    let servers = [penstock("1"), penstock("2"), Server::oracle(&debug)];
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| check_a_silence(server));
        }
    });
}

fn check_a_silence(server: &Server) {
    let (mut waiting, mut other) = (server.connect(), server.connect());
    let id = waiting.cmd("CLIENT ID").unwrap().integer().unwrap();
    waiting.send(b"BLPOP q 0\r\n").unwrap();
    server.wait_until("it is silent", |_| idle_seconds(&mut other, id) >= 3);
    other.cmd("RPUSH q x").unwrap();
    waiting.read().unwrap();
    let after_wait = idle_seconds(&mut other, id);
    waiting.cmd("DEBUG SLEEP 3.1").unwrap();
    let after_slow = idle_seconds(&mut other, id);
    assert!(after_wait < 3 && after_slow < 3, "{after_wait} {after_slow}");
}

#[test]
fn a_password_is_asked_for() {
    let port = free_port().unwrap();
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1", "--requirepass", "secret"], "");
    let mut stream = connect(port);
    ask(&mut stream, "GET a\r\n", "-NOAUTH Authentication required.\r\n");
    ask(&mut stream, "AUTH wrong\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    ask(&mut stream, "AUTH secret\r\nGET a\r\n", "+OK\r\n$-1\r\n");
    end(child, "-TERM");
}

#[test]
fn the_port_can_be_changed_while_it_runs() {
    let (port, other) = (free_port().unwrap(), free_port().unwrap());
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1"], "");
    let mut stream = connect(port);
    ask(&mut stream, &format!("CONFIG SET port {other}\r\n"), "+OK\r\n");
    let began = Instant::now();
    let mut moved = loop {
        match TcpStream::connect(("127.0.0.1", other)) {
            Ok(stream) => break stream,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    };
    ask(&mut moved, "PING\r\n", "+PONG\r\n");
    ask(&mut stream, "PING\r\n", "+PONG\r\n");
    end(child, "-TERM");
}

#[test]
fn its_process_id_is_in_a_file_while_it_runs() {
    let directory = directory("pidfile");
    let path = directory.join("server.pid");
    let (dir, port) = (directory.to_str().unwrap(), free_port().unwrap().to_string());
    // A relative name refers to `dir` at the time of the start.
    let args = ["--port", &port, "--bind", "127.0.0.1", "--dir", dir, "--pidfile", "server.pid"];
    let (child, _) = start(&[&args[..], &["--enable-protected-configs", "yes"]].concat(), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", child.0.id()));
    ask(&mut connect(port.parse().unwrap()), "CONFIG SET dir /\r\n", "+OK\r\n");
    end(child, "-TERM");
    assert!(!path.exists(), "it is still there");

    // The file of another server with the same path is not removed.
    let (child, _) = start(&args, "");
    fs::write(&path, "1\n").unwrap();
    end(child, "-TERM");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn its_unix_socket_is_removed_and_no_other_file() {
    let directory = directory("unixsocket");
    let (first, second) = (directory.join("d1"), directory.join("d2"));
    for path in [&first, &second] {
        fs::create_dir_all(path).unwrap();
    }
    let (dir, stranger) = (first.to_str().unwrap(), second.join("rel.sock"));
    let args = [
        "--port",
        "0",
        "--dir",
        dir,
        "--unixsocket",
        "rel.sock",
        "--unixsocketperm",
        "700",
        "--enable-protected-configs",
        "yes",
    ];
    let (child, _) = start(&args, "");
    fs::write(&stranger, "precious").unwrap();
    assert_eq!(fs::metadata(first.join("rel.sock")).unwrap().permissions().mode() & 0o777, 0o700);
    let mut stream = UnixStream::connect(first.join("rel.sock")).unwrap();
    let set = format!("CONFIG SET dir {}\r\n", second.display());
    stream.write_all(set.as_bytes()).unwrap();
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    end(child, "-TERM");
    assert!(!first.join("rel.sock").exists(), "it is still there");
    assert_eq!(fs::read_to_string(&stranger).unwrap(), "precious");

    // The socket of another server with the same path is not removed.
    let (child, _) = start(&args, "");
    fs::remove_file(first.join("rel.sock")).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(first.join("rel.sock")).unwrap();
    end(child, "-TERM");
    assert!(first.join("rel.sock").exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_file_for_the_process_id_that_cannot_be_written_is_logged_and_no_more() {
    let port = free_port().unwrap().to_string();
    let (child, said) = start(&["--port", &port, "--bind", "127.0.0.1", "--pidfile", "/nonexistent/pid"], "");
    assert!(said.contains("Failed to write PID file: /nonexistent/pid: No such file or directory"), "{said}");
    end(child, "-TERM");
}

#[test]
fn a_server_that_would_listen_nowhere_does_not_start() {
    let port = free_port().unwrap().to_string();
    for args in [&["--port", "0"][..], &["--port", &port, "--bind", ""], &["--port", &port, "--bind", "-192.0.2.1"]] {
        let said = refused(args);
        assert!(said.ends_with("Configured to not listen anywhere, exiting.\n"), "{args:?}: {said}");
    }
    // A running server may be configured to listen nowhere.
    let port = free_port().unwrap();
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1"], "");
    let mut stream = connect(port);
    ask(&mut stream, "CONFIG SET port 0\r\n", "+OK\r\n");
    ask(&mut stream, &format!("CONFIG SET port {port} bind \"\"\r\nPING\r\n"), "+OK\r\n+PONG\r\n");
    end(child, "-TERM");
}

#[test]
fn an_optional_address_that_is_not_there_is_passed_over_with_a_warning() {
    let port = free_port().unwrap().to_string();
    let (child, said) = start(&["--port", &port, "--bind", "127.0.0.1", "-192.0.2.1"], "");
    let what = format!("Could not create server TCP listening socket 192.0.2.1:{port}");
    assert!(said.contains(&format!("# Warning: {what}: bind: Cannot assign requested address [PS101]\n")), "{said}");
    assert!(said.contains(&format!("* Listening on 127.0.0.1:{port}\n")), "{said}");
    assert!(!said.contains("Listening on 192.0.2.1"), "{said}");
    end(child, "-TERM");
}

#[test]
fn writes_are_refused_without_enough_replicas() {
    let port = free_port().unwrap();
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1", "--min-replicas-to-write", "1"], "");
    let mut stream = connect(port);
    ask(&mut stream, "SET k v\r\n", "-NOREPLICAS Not enough good replicas to write.\r\n");
    ask(&mut stream, "GET k\r\n", "$-1\r\n");
    ask(&mut stream, "CONFIG SET min-slaves-to-write 0\r\n", "+OK\r\n");
    ask(&mut stream, "SET k v\r\n", "+OK\r\n");
    end(child, "-TERM");
}

/// Returns the messages that a server with this `supervised` setting sends to its supervisor at the socket `name`.
/// `at_start` messages come before the end.
fn told(socket: &UnixDatagram, name: &str, supervised: &str, at_start: usize) -> Vec<String> {
    let port = free_port().unwrap();
    let args = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--supervised", supervised];
    let mut command = Command::new(subject_program());
    let running = Running::spawn(command.args(args).env("NOTIFY_SOCKET", name).stdout(Stdio::null()));
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    ask(&mut connect(port), "PING\r\n", "+PONG\r\n");
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let receive = || {
        let mut datagram = [0; 100];
        socket.recv(&mut datagram).map(|len| String::from_utf8_lossy(&datagram[..len]).into_owned())
    };
    // The messages of the start come soon after the server accepts connections.
    let mut all: Vec<String> = (0..at_start).map_while(|_| receive().ok()).collect();
    end(running, "-TERM");
    // There are no further messages.
    socket.set_nonblocking(true).unwrap();
    all.extend(std::iter::from_fn(|| receive().ok()));
    all
}

#[test]
fn systemd_is_notified_of_the_start_and_the_end() {
    let directory = directory("supervised");
    let path = directory.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let expected = ["STATUS=Ready to accept connections\n", "READY=1\n", "STOPPING=1\n"];
    for supervised in ["systemd", "auto"] {
        assert_eq!(told(&socket, path.to_str().unwrap(), supervised, 2), expected, "{supervised}");
    }
    assert_eq!(told(&socket, path.to_str().unwrap(), "no", 0), [""; 0]);
    let name = format!("penstock-process-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    assert_eq!(told(&socket, &format!("@{name}"), "systemd", 2), expected);
    fs::remove_dir_all(directory).unwrap();

    let port = free_port().unwrap().to_string();
    let (child, said) = start(&["--port", &port, "--bind", "127.0.0.1", "--supervised", "systemd"], "");
    assert!(said.contains("# systemd supervision error: NOTIFY_SOCKET not found! [PS504]\n"), "{said}");
    end(child, "-TERM");
}

#[test]
fn a_log_file_that_cannot_be_opened_ends_the_start() {
    let port = free_port().unwrap().to_string();
    for (file, why) in [("/nonexistent/log", "No such file or directory"), ("/proc/version", "Invalid argument")] {
        let said = refused(&["--port", &port, "--bind", "127.0.0.1", "--logfile", file]);
        assert!(said.starts_with("\n*** FATAL CONFIG FILE ERROR "), "{said}");
        assert!(said.ends_with(&format!("Can't open the log file: {why}\n")), "{said}");
    }
}

#[test]
fn the_log_file_is_in_the_directory_of_the_configuration_and_may_be_moved_away() {
    let directory = directory("log");
    let log = directory.join("log");
    let port = free_port().unwrap();
    let (dir, port_text) = (directory.to_str().unwrap(), port.to_string());
    let args = ["--port", &port_text, "--bind", "127.0.0.1", "--dir", dir, "--logfile", "log"];
    let running = Running::spawn(Command::new(subject_program()).args(args));
    wait_until(|| fs::read_to_string(&log).is_ok_and(|said| said.contains("Ready to accept connections")));
    fs::rename(&log, directory.join("log.1")).unwrap();
    // A failing write of a log line does not end the server either: here a directory has the file's name.
    fs::create_dir(&log).unwrap();
    ask(
        &mut connect(port),
        "CONFIG SET bind 192.0.2.1\r\n",
        &refusal("bind", "Failed to bind to specified addresses."),
    );
    fs::remove_dir(&log).unwrap();
    end(running, "-TERM");
    assert!(fs::read_to_string(&log).unwrap().contains("bye bye"));
    fs::remove_dir_all(directory).unwrap();
}

/// The error of a CONFIG SET that can't be applied.
fn refusal(name: &str, text: &str) -> String {
    format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {text}\r\n")
}

#[test]
fn settings_that_cannot_be_applied_are_refused_and_explained_in_the_log() {
    let directory = directory("refusals");
    let log = directory.join("log");
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let taken_port = taken.local_addr().unwrap().port();
    let port = free_port().unwrap();
    let args =
        ["--port", &port.to_string(), "--bind", "127.0.0.1", "--threads", "1", "--logfile", log.to_str().unwrap()];
    let limited = ["-c", "ulimit -n 1032 && exec \"$0\" \"$@\""];
    let running = Running::spawn(Command::new("sh").args(limited).arg(subject_program()).args(args));
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());

    let unavailable = "192.0.2.1";
    let clients = "The operating system is not able to handle the specified number of clients, try with 1000";
    let refusals = [
        (format!("port {taken_port}"), "port", "Unable to listen on this port. Check server logs."),
        (format!("bind {unavailable}"), "bind", "Failed to bind to specified addresses."),
        (format!("hz 20 bind {unavailable} port {taken_port}"), "bind", "Failed to bind to specified addresses."),
        ("maxclients 1001".into(), "maxclients", clients),
    ];
    let mut stream = connect(port);
    for (setting, name, text) in &refusals {
        ask(&mut stream, &format!("CONFIG SET {setting}\r\n"), &refusal(name, text));
        // Nothing has changed.
        ask(&mut connect(port), "PING\r\n", "+PONG\r\n");
    }
    ask(&mut stream, "CONFIG SET maxclients 1000\r\n", "+OK\r\n");
    ask(&mut stream, "CONFIG SET maxmemory 1024\r\n", "+OK\r\n");
    let said = fs::read_to_string(&log).unwrap();
    let ports = format!("127.0.0.1:{taken_port}: Address already in use");
    let memory = "the new maxmemory value set via CONFIG SET (1024) is smaller than the current memory usage";
    for why in [&*ports, "192.0.2.1", "'ulimit -n 1033'", memory] {
        assert!(said.contains(why), "{why} is missing in {said}");
    }
    end(running, "-TERM");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn addresses_that_overlap_those_before_can_be_listened_on() {
    let (port, other) = (free_port().unwrap(), free_port().unwrap());
    let (child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1"], "");
    let mut stream = connect(port);
    for bind in ["\"127.0.0.1 127.0.0.2\"", "*", "127.0.0.2", "\"* -::*\"", "127.0.0.1"] {
        ask(&mut stream, &format!("CONFIG SET bind {bind}\r\n"), "+OK\r\n");
        let host = if bind == "127.0.0.2" { bind } else { "127.0.0.1" };
        ask(&mut TcpStream::connect((host, port)).unwrap(), "PING\r\n", "+PONG\r\n");
    }
    // Both at once are one change of the sockets.
    ask(&mut stream, &format!("CONFIG SET port {other} bind *\r\n"), "+OK\r\n");
    ask(&mut connect(other), "PING\r\n", "+PONG\r\n");
    // If the new addresses are taken, the old ones stay, although they had to be closed for the attempt.
    let taken = TcpListener::bind(("127.0.0.3", other));
    assert!(taken.is_err(), "all addresses are listened on");
    let text = refusal("bind", "Failed to bind to specified addresses.");
    ask(&mut stream, "CONFIG SET bind \"127.0.0.1 192.0.2.1\"\r\n", &text);
    ask(&mut connect(other), "PING\r\n", "+PONG\r\n");
    end(child, "-TERM");
}

/// The process title, as `ps` shows it.
fn title(child: &Running) -> String {
    let bytes = fs::read(format!("/proc/{}/cmdline", child.0.id())).unwrap();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

#[test]
fn the_process_title_follows_the_template() {
    let port = free_port().unwrap();
    let (program, text) = (subject_program().to_string_lossy().into_owned(), port.to_string());
    let args = ["--port", &text, "--bind", "127.0.0.1", "::1"];
    let (child, _) = start(&args, "");
    assert_eq!(title(&child), format!("{program} 127.0.0.1:{port}"));
    let mut stream = connect(port);
    // Longer than the command line was.
    let long = "x".repeat(200);
    let template = format!("{long} {{port}} {{config-file}}");
    ask(&mut stream, &format!("CONFIG SET proc-title-template \"{template}\"\r\n"), "+OK\r\n");
    assert_eq!(title(&child), format!("{long} {port} -"));
    ask(&mut stream, "CONFIG SET proc-title-template {title}\r\n", "+OK\r\n");
    assert_eq!(title(&child), program);
    end(child, "-TERM");
    let (child, _) = start(&[&args[..], &["--set-proc-title", "no"]].concat(), "");
    assert!(title(&child).ends_with("\0--set-proc-title\0no"), "{}", title(&child));
}

#[test]
fn the_log_names_the_reason_for_the_end() {
    for (ends_with, expected) in [("SHUTDOWN", 0), ("-TERM", 1)] {
        let port = free_port().unwrap();
        let (mut child, _) = start(&["--port", &port.to_string(), "--bind", "127.0.0.1"], "");
        if ends_with == "SHUTDOWN" {
            connect(port).write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
        } else {
            assert!(Command::new("kill").args([ends_with, &child.0.id().to_string()]).status().unwrap().success());
        }
        let mut said = String::new();
        child.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said.matches("Received SIGTERM scheduling shutdown...").count(), expected, "{said}");
        assert!(said.contains("* User requested shutdown..."), "{said}");
    }
}

#[test]
fn unread_files_are_reported() {
    let dir = directory("unread");
    let path = dir.to_str().unwrap();
    let port = free_port().unwrap().to_string();
    let args = ["--port", &port, "--bind", "127.0.0.1", "--dir", path, "--dbfilename", "my.rdb"];
    let (child, said) = start(&args, "");
    assert!(!said.contains("is not read"), "{said}");
    end(child, "-TERM");
    fs::create_dir(dir.join("appendonlydir")).unwrap();
    let (child, said) = start(&args, "");
    assert!(
        said.contains(&format!("# {path}/appendonlydir exists and is not read, since appendonly is off")),
        "{said}"
    );
    // The first server saved it at its end.
    assert!(said.contains(&format!("0 keys of {path}/my.rdb")), "{said}");
    end(child, "-TERM");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn all_mistakes_of_a_file_are_named_at_once() {
    let dir = directory("mistakes");
    let file = dir.join("valkey.conf");
    fs::write(&file, "port 0\nno-such-directive yes\nhz x\nnor-this-one strict\n").unwrap();
    let said = refused(&[file.to_str().unwrap()]);
    for (line, text) in [(2, "no-such-directive yes"), (3, "hz x"), (4, "nor-this-one strict")] {
        assert!(said.contains(&format!("at line {line} of {}\n>>> '{text}'\n", file.display())), "{said}");
    }
    // Redis accepts a directive without dashes after the file, too.
    fs::write(&file, "").unwrap();
    let said = refused(&[file.to_str().unwrap(), "hz", "x"]);
    assert!(said.contains(">>> 'hz x'\n"), "{said}");
    fs::remove_dir_all(dir).unwrap();
}

/// DEBUG RESTART saves the data; CRASH-AND-RECOVER does not. The process id stays the same.
#[test]
fn a_server_restarts_itself() {
    let server = Server::penstock(&["--enable-debug-command", "yes", "--save", "3600 1"]);
    // None while the server restarts.
    let run_id = |server: &Server| {
        let reply = Conn::open(server.port()).and_then(|mut conn| conn.cmd("INFO server")).ok()?;
        let text = String::from_utf8_lossy(reply.text()).into_owned();
        Some(text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned())
    };
    let start_anew = |server: &Server, command: &str| {
        let before = run_id(server).unwrap();
        let mut conn = server.connect();
        conn.send(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(conn.read_to_close().unwrap_or_default(), b"");
        let deadline = Instant::now() + PATIENCE;
        let answers =
            || Conn::open(server.port()).and_then(|mut conn| conn.cmd("PING")).is_ok_and(|reply| !reply.is_error());
        while run_id(server).is_none_or(|now| now == before) || !answers() {
            assert!(Instant::now() < deadline, "{}", server.log());
            sleep(Duration::from_millis(10));
        }
    };
    let mut conn = server.connect();
    conn.cmd("SET saved 1").unwrap();
    start_anew(&server, "DEBUG RESTART 20");
    let mut conn = server.connect();
    assert_eq!(conn.cmd("GET saved").unwrap().text(), b"1");
    conn.cmd("SET lost 1").unwrap();
    start_anew(&server, "DEBUG CRASH-AND-RECOVER");
    let mut conn = server.connect();
    assert_eq!(conn.cmd("EXISTS saved lost").unwrap().integer(), Some(1));
}
