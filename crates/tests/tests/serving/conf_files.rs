//! Configuration files made for Redis and Valkey, the options of container images, and the effects of directives on the
//! process.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, comes_true, subject_program};

/// Returns the files of Debian's packages, if they are installed, and the files named in the environment.
fn conf_files() -> Vec<PathBuf> {
    let named = std::env::var("PENSTOCK_CONF_FILES").unwrap_or_default();
    let installed = ["/etc/redis/redis.conf", "/etc/valkey/valkey.conf"];
    let all = named.split(':').chain(installed).filter(|name| !name.is_empty()).map(PathBuf::from);
    all.filter(|path| fs::read(path).is_ok()).collect()
}

/// Returns a file's directives, with another port, and with its paths inside `root`.
fn copied(file: &Path, root: &str, port: u16) -> String {
    let lines = fs::read_to_string(file).unwrap();
    let line = |line: &str| match line.split(' ').next() {
        Some("port") => format!("port {port}"),
        Some("dir") => format!("dir {root}"),
        Some("logfile") => format!("logfile {root}/log"),
        Some("pidfile") => format!("pidfile {root}/pid"),
        _ => line.to_owned(),
    };
    lines.lines().map(|text| line(text) + "\n").collect()
}

fn ended(pid: &str) -> bool {
    !Path::new("/proc").join(pid).exists()
}

#[test]
fn files_of_other_servers_start_the_server_in_the_background() {
    let files = conf_files();
    assert!(!files.is_empty(), "there is no redis.conf to try; on Debian: apt-get install redis-server");
    for file in files {
        let (directory, port) = (Directory::new(), free_port().unwrap());
        let conf = directory.join("server.conf");
        fs::write(&conf, copied(&file, directory.root(), port)).unwrap();
        let output = Command::new(subject_program()).arg(&conf).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", file.display());
        // The command has ended, and the server is running.
        let mut conn = Conn::open(port).unwrap();
        assert_eq!(conn.cmd("PING").unwrap().text(), b"PONG", "{}", file.display());
        let log = fs::read_to_string(directory.join("log")).unwrap();
        assert!(log.contains("Without effect here: "), "{log}");
        assert!(log.contains("repl-diskless-sync"), "{log}");
        let pid = fs::read_to_string(directory.join("pid")).unwrap().trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
        assert_eq!(session, pid, "it has left the session of the command");
        assert_eq!(conn.cmd("CONFIG REWRITE").unwrap().text(), b"OK");
        let _ = conn.send(b"SHUTDOWN NOSAVE\r\n");
        assert!(comes_true(|| ended(&pid)));
    }
}

#[test]
fn a_failure_of_the_background_process_fails_the_command() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let Output { status, stderr, .. } = Command::new(subject_program())
        .args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "yes"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && said.contains("another server uses this port"), "{said}");
}

#[test]
fn a_configuration_from_standard_input_reaches_the_background() {
    let (directory, port) = (Directory::new(), free_port().unwrap());
    let script = format!("printf 'timeout 77\\npidfile pid\\n' | '{}' --port {port} --daemonize yes -", {
        subject_program().display()
    });
    let output = Command::new("sh").args(["-c", &script]).current_dir(directory.root()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut conn = Conn::open(port).unwrap();
    assert_eq!(conn.cmd("CONFIG GET timeout").unwrap().items()[1].text(), b"77");
    let pid = fs::read_to_string(directory.join("pid")).unwrap().trim().to_owned();
    let _ = conn.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(comes_true(|| ended(&pid)));
}

#[test]
fn options_of_container_images_are_accepted() {
    for args in [
        &["--save", "60", "1", "--loglevel", "warning"][..],
        &["--appendonly", "yes", "--requirepass", "x"],
        &["--save", "--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"],
        &["--protected-mode", "no", "--io-threads", "2", "--repl-diskless-sync", "no", "--replica-announced", "no"],
        &["--enable-debug-command", "yes", "--enable-module-command", "yes", "--enable-protected-configs", "yes"],
        &["--logfile", "", "--daemonize", "no", "--dir", "."],
        &["--notify-keyspace-events", "KEA", "--tcp-keepalive", "60", "--databases", "32"],
    ] {
        let mut server = Server::penstock(args);
        assert!(server.is_alive(), "{args:?}");
    }
}

#[test]
fn the_log_has_the_configured_form_and_level() {
    let server = Server::penstock(&["--log-format", "logfmt", "--log-timestamp-format", "iso8601"]);
    let line = " role=primary timestamp=\"20";
    assert!(server.log().lines().all(|text| text.starts_with("pid=") && text.contains(line)), "{}", server.log());
    assert_eq!(server.connect().cmd("CONFIG SET log-format legacy").unwrap().text(), b"OK");
    assert_eq!(server.connect().cmd("CONFIG SET loglevel debug").unwrap().text(), b"OK");
    let silent = Server::penstock(&["--loglevel", "nothing"]);
    assert_eq!(silent.log(), "");
}

#[test]
fn the_unix_socket_is_given_to_a_group() {
    let group = fs::read_to_string("/etc/group").unwrap();
    let Some((name, id)) = group.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id != "0").then(|| (name.to_owned(), id.parse::<u32>().unwrap()))
    }) else {
        return;
    };
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        let server = Server::penstock(&["--unixsocket", "s", "--unixsocketgroup", &name, "--unixsocketperm", "770"]);
        let file = fs::metadata(server.dir().join("s")).unwrap();
        assert_eq!((file.gid(), file.mode() & 0o777), (id, 0o770));
    }
    let args = ["--port", "0", "--unixsocket", "/tmp/penstock-no-group.sock", "--unixsocketgroup", "no such group"];
    let output = Command::new(subject_program()).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("there is no group no such group"), "{said}");
}

#[test]
fn an_operator_can_connect_although_there_are_too_many_clients() {
    let server = Server::penstock(&["--maxclients", "3"]);
    let mut clients: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|conn| assert_eq!(conn.cmd("PING").unwrap().text(), b"PONG"));
    let refused = b"-ERR max number of clients reached\r\n";
    // Typical first commands of programs get the error at once; silent connections get it soon.
    for (commands, answer) in [
        ("PING\r\n", "+PONG"),
        ("SELECT 0\r\nGET k\r\n", "$-1"),
        ("INFO server\r\nMULTI\r\nSET k v\r\n", "+OK"),
        ("", "+"),
    ] {
        let mut conn = server.connect();
        conn.send(commands.as_bytes()).unwrap();
        let began = Instant::now();
        let said = conn.read_to_close().unwrap();
        let said = String::from_utf8_lossy(&said);
        assert!(said.ends_with(&*String::from_utf8_lossy(refused)), "{commands}: {said}");
        let said = said.replacen("+OK\r\n", "", usize::from(commands.starts_with("SELECT")));
        assert!(!said.contains(answer), "{commands}: {said}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    // An operator's connection stays, for administrative commands.
    let mut operator = server.connect();
    assert_eq!(operator.cmd("CLIENT LIST").unwrap().text().iter().filter(|&&byte| byte == b'\n').count(), 4);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(operator.cmd("CONFIG SET maxclients 10").unwrap().text(), b"OK");
    // There is room again, so the connection becomes an ordinary client.
    assert_eq!(operator.cmd("SET k v").unwrap().text(), b"OK");
    assert_eq!(operator.cmd("CONFIG SET maxclients 3").unwrap().text(), b"OK");
    // The number of such connections is limited, too.
    let mut others: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
    let (said, closed) = others[2].read_for(Duration::from_millis(500)).unwrap();
    assert!(closed && said == refused);
    assert_eq!(clients[0].cmd("PING").unwrap().text(), b"PONG");
}
