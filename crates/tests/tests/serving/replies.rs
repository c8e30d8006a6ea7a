//! Unread replies: a client may write as much as it likes before it reads; it gets all replies in order, the server's
//! memory is bounded, and other clients do not notice.
//!
//! `PENSTOCK_REPLIES_COMMANDS=N` is the number of commands that the large tests send in total. By default it is enough
//! to exceed the allowed memory by far; the full size is ten million.

#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use penstock_tests::conn::Conn;
use penstock_tests::server::Server;

/// Most memory that unread replies may take beside the data, in KiB.
const GROWTH_MAX_KIB: u64 = 64 * 1024;
/// Size of the large value.
const LARGE: usize = 1 << 20;
/// Number of commands between two GETs of the large value, unless there would be too many GETs.
const BETWEEN_LARGE: usize = 5000;
/// Most GETs of the large value.
const LARGES_MAX: usize = 300;
/// Fewest bytes of other replies on a connection: more than the kernel's socket buffers.
const ECHOED: usize = 8 << 20;
/// Longest wait for the last reply on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// A stream of commands of several kinds. The replies follow from its number alone.
struct Stream {
    key: String,
    commands: usize,
    between_large: usize,
    echo_bytes: usize,
}

impl Stream {
    fn new(number: usize, commands: usize, streams: usize) -> Stream {
        let between_large = BETWEEN_LARGE.max(commands * streams / LARGES_MAX).max(1);
        // Every tenth command is an echo; together they exceed the kernel's socket buffers.
        let echo_bytes = (ECHOED / (commands / 10).max(1)).clamp(100, 15_000);
        Stream { key: format!("stream:{number}"), commands, between_large, echo_bytes }
    }

    fn large_key(&self) -> String {
        format!("{}:large", self.key)
    }

    /// Writes the command at `index` and its reply.
    fn at(&self, index: usize, command: &mut Vec<u8>, reply: &mut Vec<u8>) {
        command.clear();
        reply.clear();
        if index % self.between_large == self.between_large - 1 {
            // The value changes after each GET, so each waiting reply keeps a value of its own.
            let large = self.large_key();
            write!(command, "GET {large}\r\n").unwrap();
            write!(reply, "${LARGE}\r\n{:07}", index / self.between_large).unwrap();
            reply.resize(reply.len() + LARGE - 7, b'x');
            reply.extend_from_slice(b"\r\n");
        } else if index.is_multiple_of(self.between_large) {
            write!(command, "SETRANGE {} 0 {:07}\r\n", self.large_key(), index / self.between_large).unwrap();
            write!(reply, ":{LARGE}\r\n").unwrap();
        } else if index % 10 == 9 {
            let bytes = self.echo_bytes;
            write!(command, "*2\r\n$4\r\nECHO\r\n").unwrap();
            write!(reply, "${bytes}\r\n{index:0>bytes$}\r\n").unwrap();
            command.extend_from_slice(reply);
        } else if index % 50 < 20 {
            write!(command, "SET {} {index}\r\n", self.key).unwrap();
            write!(reply, "+OK\r\n").unwrap();
        } else {
            write!(command, "SETRANGE {}:short 0 {index}\r\n", self.key).unwrap();
            write!(reply, ":{}\r\n", index.max(1).ilog10() + 1).unwrap();
        }
    }

    fn prepare(&self, server: &Server) {
        let value = vec![b'x'; LARGE];
        let set = [b"SET".to_vec(), self.large_key().into_bytes(), value];
        assert_eq!(server.connect().call(&set).unwrap().text(), b"OK");
    }

    fn write(&self, socket: &mut TcpStream) {
        let (mut out, mut command, mut reply) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..self.commands {
            self.at(index, &mut command, &mut reply);
            out.extend_from_slice(&command);
            if out.len() > 1 << 16 || index + 1 == self.commands {
                socket.write_all(&out).unwrap();
                out.clear();
            }
        }
    }

    fn read(&self, replies: &mut impl Read) {
        let (mut command, mut reply, mut got) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..self.commands {
            self.at(index, &mut command, &mut reply);
            got.resize(reply.len(), 0);
            replies.read_exact(&mut got).unwrap();
            assert!(got == reply, "reply {index} of {}", self.commands);
        }
    }
}

fn commands() -> usize {
    env::var("PENSTOCK_REPLIES_COMMANDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000)
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.set_write_timeout(Some(LONG)).unwrap();
    socket
}

/// Each connection writes everything before it reads.
fn write_all_then_read(server: &Server, connections: usize) {
    let streams: Vec<Stream> =
        (0..connections).map(|i| Stream::new(i, commands() / connections, connections)).collect();
    streams.iter().for_each(|stream| stream.prepare(server));
    let before_kib = server.resident_kib();
    server.forget_peak();
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| {
                let mut socket = connect(server);
                stream.write(&mut socket);
                written.fetch_add(1, Ordering::SeqCst);
                while written.load(Ordering::SeqCst) < connections {
                    thread::sleep(Duration::from_millis(1));
                }
                stream.read(&mut BufReader::with_capacity(1 << 20, socket));
            });
        }
        // No other client notices.
        let mut other = server.connect();
        while written.load(Ordering::SeqCst) < connections {
            assert_eq!(other.cmd("PING").unwrap().text(), b"PONG");
            thread::sleep(Duration::from_millis(1));
        }
    });
    let grown_kib = server.resident_peak_kib().saturating_sub(before_kib);
    println!("{connections} connections, {} commands: {} MB of memory more at the peak", commands(), grown_kib >> 10);
    assert!(grown_kib < GROWTH_MAX_KIB, "memory grew by {grown_kib} KiB");
    let spilled = server.figure("reply_spilled_bytes");
    println!("{} MB were put on disk", spilled >> 20);
    // With many connections, the kernel's buffers may hold everything if the server is quick.
    assert!(connections > 1 || spilled > 20 << 20, "nothing went to disk");
    server.wait_until("all is given back", |server| {
        server.figure("reply_spill") + server.figure("reply_memory") + server.figure("reply_waiting_clients") == 0
    });
    // The bytes count until they are removed from the disk; the empty file is closed a moment later.
    server.wait_until("the files are closed", |server| server.nameless_files().is_empty());
}

#[test]
fn a_client_may_write_everything_before_it_reads() {
    write_all_then_read(&Server::penstock(&[]), 1);
}

#[test]
fn a_hundred_clients_may_write_everything_before_they_read() {
    write_all_then_read(&Server::penstock(&[]), 100);
}

/// Sends commands with replies of `bytes` bytes in total. The commands have one-line replies that are all different.
/// Returns their number.
fn send_echoes(conn: &mut impl Write, bytes: usize) -> usize {
    let count = bytes / 1000;
    for first in (0..count).step_by(50) {
        let echoes: String =
            (first..count.min(first + 50)).map(|i| format!("*2\r\n$4\r\nECHO\r\n$990\r\n{i:0>990}\r\n")).collect();
        conn.write_all(echoes.as_bytes()).unwrap();
    }
    count
}

fn read_echoes(replies: &mut impl Read, count: usize) {
    let mut got = [0; 998];
    for i in 0..count {
        replies.read_exact(&mut got).unwrap();
        assert!(got[..] == *format!("$990\r\n{i:0>990}\r\n").as_bytes(), "reply {i}");
    }
}

#[test]
fn a_closed_connection_gives_its_disk_space_back_at_once() {
    let server = Server::penstock(&[]);
    let mut socket = connect(&server);
    let count = send_echoes(&mut socket, 100 << 20);
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    let on_disk: u64 = server.nameless_files().iter().sum();
    assert!(on_disk > 80 << 20, "{on_disk}");
    assert!(server.figure("reply_spill") >= on_disk - (1 << 20), "{}", server.figure("reply_spill"));
    let info = String::from_utf8(server.connect().cmd("INFO replies").unwrap().text().to_vec()).unwrap();
    let largest = info.lines().find_map(|line| line.strip_prefix("reply_spill_largest:")).unwrap();
    let addr = format!(",addr={},bytes=", socket.local_addr().unwrap());
    let bytes = largest.split_once(&addr).map(|(_, bytes)| bytes.parse::<u64>().unwrap());
    assert!(bytes.is_some_and(|bytes| bytes > 80 << 20), "{largest}");
    drop(socket);
    server.wait_until("the files are gone", |server| server.nameless_files().is_empty());
    server.wait_until("nothing is counted", |server| server.figure("reply_spill") == 0);
}

#[test]
fn space_of_replies_that_were_read_is_freed_before_the_rest() {
    let server = Server::penstock(&[]);
    let mut socket = connect(&server);
    let count = send_echoes(&mut socket, 60 << 20);
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    let before: u64 = server.nameless_files().iter().sum();
    let mut replies = BufReader::new(socket);
    read_echoes(&mut replies, count / 2);
    server.wait_until("half is given back", |server| server.nameless_files().iter().sum::<u64>() < before - (20 << 20));
    let mut got = vec![0; 998 * (count - count / 2)];
    replies.read_exact(&mut got).unwrap();
    server.wait_until("all is given back", |server| server.nameless_files().is_empty());
}

#[test]
fn a_client_that_has_read_a_little_may_go_on_writing() {
    // Scarce memory. If the server wrongly delays a client until it reads, the client is closed before the test's
    // timeout; waiting for a busy disk takes less.
    let server = Server::penstock(&["--reply-memory-total", "1mb", "--reply-stall-timeout", "60"]);
    let mut sockets: Vec<_> = (0..16).map(|_| connect(&server)).collect();
    let count = 12 << 10;
    let send = |socket: &mut TcpStream| assert_eq!(send_echoes(socket, count * 1000), count);
    sockets.iter_mut().for_each(send);
    sockets.iter_mut().for_each(|socket| read_echoes(socket, count / 2));
    sockets.iter_mut().for_each(send);
    for socket in &mut sockets {
        let mut rest = vec![0; 998 * (count - count / 2)];
        socket.read_exact(&mut rest).unwrap();
        read_echoes(socket, count);
    }
    server.wait_until("all is given back", |server| server.figure("reply_memory") == 0);
}

/// Each client's request is incomplete while the clients take turns.
#[test]
fn clients_that_take_turns_are_read_from() {
    const CLIENTS: usize = 8;
    const BYTES: usize = 12 << 20;
    let server = Server::penstock(&["--reply-memory-total", "1mb", "--threads", "1"]);
    let sockets: Vec<_> = (0..CLIENTS).map(|_| connect(&server)).collect();
    thread::scope(|scope| {
        let writers: Vec<_> =
            sockets.iter().map(|mut socket| scope.spawn(move || send_echoes(&mut socket, BYTES))).collect();
        server.wait_until("all has run", |server| {
            server.figure("total_commands_processed") > (CLIENTS * (BYTES / 1000)) as u64
        });
        for (writer, socket) in writers.into_iter().zip(&sockets) {
            read_echoes(&mut BufReader::new(socket), writer.join().unwrap());
        }
    });
}

#[test]
fn replies_and_messages_of_a_connection_keep_their_order() {
    let server = Server::penstock(&[]);
    let mut socket = connect(&server);
    let count = send_echoes(&mut socket, 20 << 20);
    socket.write_all(b"MULTI\r\n").unwrap();
    (0..1000).for_each(|_| socket.write_all(b"INCR n\r\n").unwrap());
    socket.write_all(b"EXEC\r\nCLIENT REPLY OFF\r\n").unwrap();
    let silent = send_echoes(&mut socket, 5 << 20);
    socket.write_all(b"CLIENT REPLY ON\r\nBLPOP list 0\r\nPING\r\n").unwrap();
    let more = send_echoes(&mut socket, 20 << 20);
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    assert_eq!(server.connect().cmd("RPUSH list element").unwrap().integer(), Some(1));
    socket.write_all(b"QUIT\r\nECHO never\r\n").unwrap();
    let total = (count + silent + more) as u64;
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > total);
    socket.shutdown(Shutdown::Write).unwrap();

    let mut replies = BufReader::new(socket);
    read_echoes(&mut replies, count);
    let queued = "+QUEUED\r\n".repeat(1000);
    let numbers: String = (1..=1000).map(|n| format!(":{n}\r\n")).collect();
    let expected = format!("+OK\r\n{queued}*1000\r\n{numbers}+OK\r\n*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n+PONG\r\n");
    let mut got = vec![0; expected.len()];
    replies.read_exact(&mut got).unwrap();
    assert!(got == expected.as_bytes());
    read_echoes(&mut replies, more);
    let mut rest = Vec::new();
    replies.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"+OK\r\n");
}

#[test]
fn a_million_equal_replies_take_neither_memory_nor_disk() {
    let server = Server::penstock(&[]);
    let mut socket = connect(&server);
    server.forget_peak();
    let before_kib = server.resident_kib();
    let count = 3_000_000;
    for _ in 0..count / 1000 {
        socket.write_all(&b"PING\r\n".repeat(1000)).unwrap();
    }
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    assert_eq!(server.figure("reply_spilled_bytes"), 0);
    let grown_kib = server.resident_peak_kib().saturating_sub(before_kib);
    // A new server takes up to 8 MB for its first commands; the replies are 20 MB.
    assert!(grown_kib < 12 << 10, "memory grew by {grown_kib} KiB");
    let mut replies = BufReader::new(socket);
    let mut got = [0; 7000];
    for _ in 0..count / 1000 {
        replies.read_exact(&mut got).unwrap();
        assert!(got[..] == b"+PONG\r\n".repeat(1000));
    }
}

#[test]
fn a_half_closed_client_gets_its_replies_from_disk() {
    let server = Server::penstock(&[]);
    let mut socket = connect(&server);
    let count = send_echoes(&mut socket, 30 << 20);
    socket.write_all(b"BLPOP nothing 0\r\n").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    let mut replies = BufReader::new(socket);
    read_echoes(&mut replies, count);
    let mut rest = Vec::new();
    replies.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn one_huge_reply_is_read_in_any_case() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let element = "e".repeat(1000);
    for _ in 0..60 {
        let mut push = vec![b"RPUSH".to_vec(), b"list".to_vec()];
        push.resize(1002, element.clone().into_bytes());
        conn.call(&push).unwrap();
    }
    let mut slow = connect(&server);
    slow.write_all(b"LRANGE list 0 -1\r\nPING\r\n").unwrap();
    server.wait_until("it is on disk", |server| server.figure("reply_spilled_bytes") > 50 << 20);
    let mut replies = BufReader::new(slow);
    let expected = format!("*60000\r\n{}+PONG\r\n", format!("$1000\r\n{element}\r\n").repeat(60_000));
    let mut got = vec![0; expected.len()];
    replies.read_exact(&mut got).unwrap();
    assert!(got == expected.as_bytes());
}

/// Values so large that a few of them exhaust the memory budget stay in memory for clients that read them quickly.
#[test]
fn large_replies_to_fast_readers_need_no_disk() {
    const BYTES: usize = 8 << 20;
    const CONNECTIONS: usize = 4;
    const ROUNDS: usize = 20;
    let server = Server::penstock(&[]);
    let value = vec![b'v'; BYTES];
    server.connect().call(&[b"SET".to_vec(), b"large".to_vec(), value]).unwrap();
    let header = format!("${BYTES}\r\n");
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut socket = connect(&server);
                let mut reply = vec![0; header.len() + BYTES + 2];
                for _ in 0..ROUNDS {
                    socket.write_all(b"GET large\r\n").unwrap();
                    socket.read_exact(&mut reply).unwrap();
                    assert!(reply.starts_with(header.as_bytes()) && reply.ends_with(b"v\r\n"));
                }
            });
        }
    });
    // Replies of a reader that the machine delays go to disk for good reason.
    let spilled = server.figure("reply_spilled_bytes") as usize;
    assert!(spilled < CONNECTIONS * ROUNDS * BYTES / 4, "{spilled}");
}

#[test]
fn a_slow_reader_costs_others_nothing() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut slow = connect(&server);
    let count = send_echoes(&mut slow, 20 << 20);
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    let mut other = server.connect();
    other.cmd("SUBSCRIBE nothing").unwrap();
    let mut other = server.connect();
    let figure = |conn: &mut Conn, name: &str| {
        let info = String::from_utf8(conn.cmd("INFO stats").unwrap().text().to_vec()).unwrap();
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse::<u64>().ok()).unwrap()
    };
    let before = figure(&mut other, "total_writes_processed");
    for _ in 0..500 {
        // Meanwhile the client gets replies, which it doesn't read.
        slow.write_all(b"PING\r\n").unwrap();
        other.cmd("PING").unwrap();
    }
    let writes = figure(&mut other, "total_writes_processed") - before;
    assert!(writes <= 501, "{writes} system calls");
    // The client does not keep its thread busy either.
    let before = server.cpu_ticks();
    thread::sleep(Duration::from_secs(1));
    let ticks = server.cpu_ticks() - before;
    assert!(ticks < 50, "{ticks} ticks of CPU time in a second of silence");
}

#[test]
fn a_shutdown_does_not_wait_for_unread_replies() {
    let mut server = Server::penstock(&[]);
    let mut socket = connect(&server);
    let count = send_echoes(&mut socket, 30 << 20);
    server.wait_until("all has run", |server| server.figure("total_commands_processed") > count as u64);
    server.connect().send(b"SHUTDOWN NOSAVE\r\n").unwrap();
    let mut tries = 0;
    while server.is_alive() {
        tries += 1;
        assert!(tries < 2000);
        thread::sleep(Duration::from_millis(10));
    }
    // Only the log remains.
    let files: Vec<_> = server.dir().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["log"]);
}
