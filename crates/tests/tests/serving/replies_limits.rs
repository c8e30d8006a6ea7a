//! Unread replies without room: too many, a full disk, a failing disk, an unauthenticated client, subscribers and
//! monitors.

#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use penstock_tests::bytes::{command, encode_all};
use penstock_tests::server::Server;

/// Longest wait for the last reply on a busy machine.
const LONG: Duration = Duration::from_secs(120);
/// Size of an echo's reply.
const ECHO: usize = 998;

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.set_write_timeout(Some(LONG)).unwrap();
    socket
}

/// Sends commands with replies of `bytes` bytes in total from another thread, which ends when they are sent or the
/// connection is closed. Returns their number.
fn send_echoes(socket: &TcpStream, bytes: usize) -> usize {
    let count = bytes / ECHO;
    let mut socket = socket.try_clone().unwrap();
    thread::spawn(move || {
        for first in (0..count).step_by(50) {
            let echoes: String =
                (first..count.min(first + 50)).map(|i| format!("*2\r\n$4\r\nECHO\r\n$990\r\n{i:0>990}\r\n")).collect();
            if socket.write_all(echoes.as_bytes()).is_err() {
                return;
            }
        }
    });
    count
}

fn read_echoes(replies: &mut impl Read, count: usize) {
    let mut got = [0; ECHO];
    for i in 0..count {
        replies.read_exact(&mut got).unwrap();
        assert!(got[..] == *format!("$990\r\n{i:0>990}\r\n").as_bytes(), "reply {i}");
    }
}

fn wait_for_holds(server: &Server, connections: u64) {
    server.wait_until("requests wait", |server| server.figure("reply_held_clients") == connections);
}

/// Checks that a client that doesn't read is closed in the end, that the reason is counted and logged, and that other
/// clients are served.
fn is_closed_for(args: &[&str], counter: &str, logged: &str) {
    let server = Server::penstock(&[args, &["--reply-stall-timeout", "1"]].concat());
    let mut other = server.connect();
    other.cmd("SET k v").unwrap();
    let socket = connect(&server);
    send_echoes(&socket, 64 << 20);
    server.wait_until(counter, |server| server.figure(counter) == 1);
    assert!(server.log().contains(logged), "{}", server.log());
    assert_eq!(other.cmd("GET k").unwrap().text(), b"v");
    // The server counts the closed connection a moment before it closes it.
    server.wait_until("all is given back", |server| {
        let left = ["reply_held_clients", "reply_spill", "reply_memory"].map(|name| server.figure(name));
        left == [0; 3] && server.nameless_files().is_empty()
    });
}

#[test]
fn a_client_that_never_reads_is_closed_at_its_limit() {
    is_closed_for(&["--reply-spill-limit", "8mb"], "reply_stall_closes_spill_limit", "see reply-spill-limit");
    is_closed_for(&["--reply-spill-total", "8mb"], "reply_stall_closes_spill_total", "see reply-spill-total");
    is_closed_for(
        &["--reply-spill-keep-free", "1000000gb"],
        "reply_stall_closes_spill_keep_free",
        "see reply-spill-keep-free",
    );
    is_closed_for(&["--reply-spill-limit", "0"], "reply_stall_closes_spill_limit", "see reply-spill-limit");
}

/// The duration of a slow command or script does not count as time in which a client did not read.
#[test]
fn a_client_delayed_by_a_slow_command_is_not_closed() {
    let server = Server::penstock(&["--threads", "1", "--reply-spill-limit", "0", "--enable-debug-command", "yes"]);
    let mut other = server.connect();
    let socket = connect(&server);
    let count = send_echoes(&socket, 20 << 20);
    wait_for_holds(&server, 1);
    // The thread checks for clients that don't read while BLPOP waits.
    let commands = [
        "CONFIG SET reply-stall-timeout 3",
        "DEBUG SLEEP 4",
        "BLPOP nothing 0.15",
        "CONFIG SET reply-stall-timeout 60",
    ];
    other.send(&encode_all(&commands.map(command))).unwrap();
    other.read_n(4).unwrap();
    assert_eq!(server.figure("reply_held_clients"), 1, "{}", server.log());
    read_echoes(&mut BufReader::new(socket), count);
}

#[test]
fn a_client_that_begins_to_read_in_time_gets_everything() {
    for args in [["--reply-spill-limit", "8mb"], ["--reply-spill-limit", "0"], ["--reply-spill-total", "3mb"]] {
        let server = Server::penstock(&args);
        let socket = connect(&server);
        let count = send_echoes(&socket, 40 << 20);
        // The client is also blocked for a moment before the disk is used, so wait until no reply is left in memory.
        server.wait_until("requests wait", |server| {
            let memory = server.figure("reply_memory");
            assert!(memory <= 1 << 20, "{memory} bytes of memory");
            memory > 0 && server.figure("reply_held_clients") == 1
        });
        assert!(server.figure("reply_spill") <= 8 << 20);
        read_echoes(&mut BufReader::new(socket), count);
        server.wait_until("nothing waits", |server| server.figure("reply_waiting_clients") == 0);
        assert_eq!((server.figure("reply_held_clients"), server.figure("reply_spill")), (0, 0));
    }
}

/// A client's replies on a disk that refuses them: the client blocks, reads, and gets all of them; or it doesn't read,
/// and is closed.
fn survives_a_bad_disk(server: &Server) {
    let mut other = server.connect();
    let socket = connect(server);
    let count = send_echoes(&socket, 40 << 20);
    // The client is also blocked for a moment before the disk is used.
    server.wait_until("the disk takes some", |server| server.figure("reply_spilled_bytes") > 0);
    wait_for_holds(server, 1);
    assert!(server.figure("reply_memory") <= 1 << 20);
    assert_eq!(other.cmd("PING").unwrap().text(), b"PONG");
    read_echoes(&mut BufReader::new(&socket), count);
    // Once more, and the client doesn't read.
    send_echoes(&socket, 40 << 20);
    wait_for_holds(server, 1);
    other.cmd("CONFIG SET reply-stall-timeout 1").unwrap();
    server.wait_until("it is closed", |server| {
        server.figure("reply_stall_closes_spill_failure") + server.figure("reply_stall_closes_spill_keep_free") == 1
    });
    assert_eq!(other.cmd("PING").unwrap().text(), b"PONG");
}

#[test]
fn a_failing_disk_stops_only_clients_that_need_it() {
    // 4 MB, then every write fails.
    let server = Server::penstock_with_small_files(&[], 8192);
    survives_a_bad_disk(&server);
    assert!(server.figure("reply_spill_failures") > 0);
    assert!(server.log().contains("Unread replies can't be written"), "{}", server.log());
}

#[test]
fn spill_files_leave_descriptors_for_clients() {
    const CLIENTS: usize = 90;
    // Leaves a few free descriptors.
    let server = Server::penstock_with_open_files(&["--reply-spill-keep-free", "0", "--threads", "2"], 160);
    let sockets: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
    let count = sockets.iter().map(|socket| send_echoes(socket, 12 << 20)).max().unwrap();
    server.wait_until("all are on disk", |server| server.figure("reply_spilling_clients") == CLIENTS as u64);
    let more: Vec<_> = (CLIENTS..120).map(|_| server.connect()).collect();
    for mut conn in more {
        assert_eq!(conn.cmd("PING").unwrap().text(), b"PONG");
    }
    assert_eq!(server.figure("reply_spill_failures"), 0, "{}", server.log());
    for socket in &sockets {
        read_echoes(&mut BufReader::new(socket), count);
    }
    server.wait_until("nothing is on disk", |server| server.figure("reply_spill") == 0);
}

/// A small disk of its own, if this process may mount one.
struct SmallDisk<'p>(&'p Path);

impl SmallDisk<'_> {
    fn mount(path: &Path, megabytes: usize) -> Option<SmallDisk<'_>> {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        let size = format!("size={megabytes}m");
        mount.args(["-t", "tmpfs", "-o", &size, "penstock-tests"]).arg(path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(SmallDisk(path))
    }

    /// Free bytes.
    fn free(&self) -> u64 {
        let df = Command::new("df").args(["--output=avail", "-B1"]).arg(self.0).output().unwrap();
        String::from_utf8(df.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap()
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_stops_only_clients_that_need_it() {
    let server = Server::penstock(&["--reply-spill-keep-free", "0"]);
    let path = server.dir().join("tiny");
    let Some(_disk) = SmallDisk::mount(&path, 4) else {
        return println!("this process may not mount a disk: not tested");
    };
    let set = format!("CONFIG SET reply-spill-dir {}", path.display());
    assert_eq!(server.connect().cmd(&set).unwrap().text(), b"OK");
    survives_a_bad_disk(&server);
}

#[test]
fn a_disk_has_its_space_back_as_soon_as_a_connection_is_closed() {
    const SPILLED: u64 = 120 << 20;
    let server = Server::penstock(&["--reply-spill-keep-free", "0"]);
    let path = server.dir().join("disk");
    let Some(disk) = SmallDisk::mount(&path, 160) else {
        return println!("this process may not mount a disk: not tested");
    };
    let set = format!("CONFIG SET reply-spill-dir {}", path.display());
    assert_eq!(server.connect().cmd(&set).unwrap().text(), b"OK");
    let before = disk.free();
    // Closed by the client, and by an operator.
    for kill in [false, true] {
        let socket = connect(&server);
        let ran = server.figure("total_commands_processed");
        let count = send_echoes(&socket, SPILLED as usize + (20 << 20)) as u64;
        server.wait_until("all has run", |server| server.figure("total_commands_processed") > ran + count);
        assert!(before - disk.free() > SPILLED / 2, "{} bytes are free", disk.free());
        if kill {
            server.connect().cmd("CLIENT KILL TYPE normal").unwrap();
        }
        drop(socket);
        server.wait_until("nothing is counted", |server| server.figure("reply_spill") == 0);
        assert_eq!(disk.free(), before);
    }
}

#[test]
fn clients_with_unread_replies_share_memory_fairly() {
    const CONNECTIONS: usize = 32;
    const TOTAL: u64 = 4 << 20;
    let total = TOTAL.to_string();
    let server = Server::penstock(&["--reply-memory-total", &total, "--reply-spill-limit", "0"]);
    let sockets: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    let count = sockets.iter().map(|socket| send_echoes(socket, 12 << 20)).max().unwrap();
    wait_for_holds(&server, CONNECTIONS as u64);
    let memory = server.figure("reply_memory");
    assert!(memory <= TOTAL, "{memory}");
    assert_eq!(server.figure("reply_memory_share"), TOTAL / CONNECTIONS as u64);
    let list = String::from_utf8(server.connect().cmd("CLIENT LIST").unwrap().text().to_vec()).unwrap();
    let omem = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("omem=")?.parse::<u64>().ok());
    let each: Vec<u64> = list.lines().filter_map(omem).filter(|&omem| omem > 0).collect();
    assert_eq!(each.len(), CONNECTIONS, "{list}");
    // The first clients took shares for a smaller number of clients; no client is left with nothing.
    let least = TOTAL / CONNECTIONS as u64 / 8;
    assert!(each.iter().all(|&memory| memory >= least), "{each:?}");
    thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(move || read_echoes(&mut BufReader::new(socket), count));
        }
    });
    server.wait_until("nothing waits", |server| server.figure("reply_memory") == 0);
}

#[test]
fn an_unauthenticated_client_cannot_make_the_server_keep_replies() {
    let server = Server::penstock(&["--requirepass", "secret"]);
    let mut operator = server.connect();
    operator.cmd("AUTH secret").unwrap();
    let figure = |conn: &mut penstock_tests::conn::Conn, name: &str| {
        let info = String::from_utf8(conn.cmd("INFO replies").unwrap().text().to_vec()).unwrap();
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse::<u64>().ok()).unwrap()
    };
    let mut taken = 0;
    let mut write_until_closed = || {
        let mut socket = connect(&server);
        let chunk = b"GET k\r\n".repeat(10_000);
        while socket.write_all(&chunk).is_ok() {
            taken += chunk.len();
            assert!(taken < 1 << 30);
        }
    };
    // The first clients make the server take memory from the system, which it reuses for later ones.
    (0..4).for_each(|_| write_until_closed());
    server.forget_peak();
    let before_kib = server.resident_kib();
    (0..20).for_each(|_| write_until_closed());
    assert_eq!(figure(&mut operator, "reply_unauthenticated_closes"), 24);
    assert_eq!(figure(&mut operator, "reply_spilled_bytes"), 0);
    let grown_kib = server.resident_peak_kib().saturating_sub(before_kib);
    assert!(grown_kib < 4 << 10, "memory grew by {grown_kib} KiB");
    assert!(server.log().contains("it has yet to authenticate"));
    // A client that reads always gets its replies.
    let mut reader = server.connect();
    for _ in 0..100 {
        reader.send(&b"GET k\r\n".repeat(1000)).unwrap();
        assert!(reader.read_n(1000).unwrap().iter().all(|reply| reply.text().starts_with(b"NOAUTH")));
    }
    assert_eq!(reader.cmd("AUTH secret").unwrap().text(), b"OK");
}

#[test]
fn a_slow_monitor_learns_how_many_lines_it_missed() {
    const COMMANDS: u64 = 60_000;
    for args in [&[][..], &["--client-output-buffer-limit", "normal 200kb 0 0"]] {
        let server = Server::penstock(args);
        let mut monitor = server.connect();
        monitor.cmd("MONITOR").unwrap();
        let mut other = server.connect();
        let filler = "f".repeat(400);
        for _ in 0..COMMANDS / 100 {
            other.send(format!("*2\r\n$4\r\nECHO\r\n$400\r\n{filler}\r\n").repeat(100).as_bytes()).unwrap();
            other.read_n(100).unwrap();
        }
        assert!(server.figure("monitor_lines_dropped") > 0);
        let (mut shown, mut dropped) = (0, 0);
        while shown + dropped < COMMANDS {
            let line = String::from_utf8(monitor.read().unwrap().text().to_vec()).unwrap();
            if line.contains("\"ECHO\"") {
                shown += 1;
            } else if let Some((_, count)) = line.split_once("\"monitor\" \"dropped\" \"") {
                assert!(line.contains(" [0 0.0.0.0:0] "), "{line}");
                dropped += count.trim_end_matches('"').parse::<u64>().unwrap();
            }
        }
        // The monitor's figures agree with INFO, except that INFO's own lines may be among the dropped ones.
        assert!(dropped > 0 && shown > 1000, "{shown} {dropped}");
        assert!(server.figure("monitor_lines_dropped") >= dropped);
        other.cmd("PING").unwrap();
        let is_ping = |line: &[u8]| String::from_utf8_lossy(line).ends_with("\"PING\"");
        assert!((0..100).any(|_| is_ping(monitor.read().unwrap().text())));
    }
}

#[test]
fn limits_of_subscribers_apply_without_further_messages() {
    let publish = |server: &Server, bytes: usize| {
        let mut conn = server.connect();
        let message = "m".repeat(10_000);
        for _ in 0..bytes / 10_000 {
            conn.cmd(&format!("PUBLISH c {message}")).unwrap();
        }
    };
    let closes = |server: &Server| server.figure("client_output_buffer_limit_disconnections");
    // The hard limit.
    let server = Server::penstock(&["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let mut subscriber = server.connect();
    subscriber.cmd("SUBSCRIBE c").unwrap();
    publish(&server, 20 << 20);
    server.wait_until("it is closed", |server| closes(server) == 1);
    // The soft limit: after a time.
    let server = Server::penstock(&["--client-output-buffer-limit", "pubsub 0 100kb 1"]);
    let mut subscriber = server.connect();
    subscriber.cmd("SUBSCRIBE c").unwrap();
    publish(&server, 10 << 20);
    server.wait_until("it is closed", |server| closes(server) == 1);
    // Messages for subscribers don't go to disk, and don't use the memory shared by other replies.
    let server = Server::penstock(&[]);
    let mut subscriber = server.connect();
    subscriber.cmd("SUBSCRIBE c").unwrap();
    publish(&server, 20 << 20);
    assert_eq!((server.figure("reply_spilled_bytes"), server.figure("reply_memory")), (0, 0));
    for _ in 0..(20 << 20) / 10_000 {
        assert_eq!(subscriber.read().unwrap().items().len(), 3);
    }
}

#[test]
fn a_limit_for_normal_clients_closes_them_as_in_redis() {
    for limit in ["normal 20mb 0 0", "normal 0 5mb 1"] {
        let server = Server::penstock(&["--client-output-buffer-limit", limit]);
        let socket = connect(&server);
        send_echoes(&socket, 64 << 20);
        server.wait_until("it is closed", |server| server.figure("client_output_buffer_limit_disconnections") == 1);
    }
}

#[test]
fn the_directives_can_be_read_changed_and_refused() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let table = [
        ("reply-memory-limit", "1048576", "2mb", "2097152"),
        ("reply-memory-total", "268435456", "64mb", "67108864"),
        ("reply-spill-dir", "", "/", "/"),
        ("reply-spill-limit", "4294967296", "0", "0"),
        ("reply-spill-total", "17179869184", "1gb", "1073741824"),
        ("reply-spill-keep-free", "1073741824", "0", "0"),
        ("reply-stall-timeout", "60", "0", "0"),
    ];
    for (name, default, new, shown) in table {
        let mut get = || conn.cmd(&format!("CONFIG GET {name}")).unwrap().items()[1].text().to_vec();
        assert_eq!(get(), default.as_bytes(), "{name}");
        assert_eq!(server.connect().cmd(&format!("CONFIG SET {name} {new}")).unwrap().text(), b"OK");
        assert_eq!(get(), shown.as_bytes(), "{name}");
    }
    for bad in ["reply-spill-dir /nonexistent", "reply-memory-limit 1kb", "reply-stall-timeout -1"] {
        assert!(conn.cmd(&format!("CONFIG SET {bad}")).unwrap().is_error(), "{bad}");
    }
}
