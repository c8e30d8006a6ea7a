//! Pipelines with servers of different behaviour: they must neither deadlock nor mix up replies.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::common::{connect, on_both};
use client::{Command, Config, Connection, Error, Lost, Next, Pipeline, Request, Value, Window};
use proptest::prelude::*;
use rustix::net::sockopt;

/// Behaviour of a test server.
#[derive(Clone, Debug)]
struct ServerBehaviour {
    /// Bytes per read.
    read_bytes: usize,
    /// Pause after each of the first reads.
    rest: Duration,
    /// The server doesn't read while it has unsent replies. A client that only writes would wait forever.
    stubborn: bool,
    /// Size of the socket buffers. The kernel has a minimum.
    buffer_bytes: usize,
    /// Size of each reply.
    reply_bytes: usize,
}

/// Answers each request with its number and padding, until the client has gone.
fn serve(mut stream: UnixStream, behaviour: &ServerBehaviour) -> std::io::Result<()> {
    stream.set_nonblocking(!behaviour.stubborn)?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; behaviour.read_bytes];
    let mut rests = 20;
    loop {
        let read = match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        input.extend_from_slice(&chunk[..read]);
        if rests > 0 {
            rests -= 1;
            thread::sleep(behaviour.rest);
        }
        let used = answer_all(&input, &mut output, behaviour.reply_bytes);
        input.drain(..used);
        let written = match stream.write(&output) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if behaviour.stubborn {
            stream.write_all(&output[written..])?;
            output.clear();
        } else {
            output.drain(..written);
            if read == 0 && written == 0 {
                thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

/// Answers all complete requests of `input`, and returns their size in bytes.
fn answer_all(input: &[u8], output: &mut Vec<u8>, reply_bytes: usize) -> usize {
    let mut used = 0;
    // Each request is an array of two: the number in eight digits, and a filling.
    while let Some(head) = input.get(used..used + 4 + 4 + 8 + 2) {
        assert_eq!(&head[..8], b"*2\r\n$8\r\n");
        let number = &head[8..16];
        let rest = &input[used + 18..];
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { break };
        let filling: usize = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        let whole = 18 + end + 2 + filling + 2;
        if input.len() < used + whole {
            break;
        }
        used += whole;
        output.extend_from_slice(format!("${}\r\n", reply_bytes + 8).as_bytes());
        output.extend_from_slice(number);
        output.resize(output.len() + reply_bytes, b'x');
        output.extend_from_slice(b"\r\n");
    }
    used
}

/// Connects to a server with this behaviour. A pair of Unix sockets avoids TCP's timers, which small buffers would
/// trigger.
fn start(behaviour: ServerBehaviour) -> Connection {
    let (ours, theirs) = UnixStream::pair().unwrap();
    sockopt::set_socket_send_buffer_size(&ours, behaviour.buffer_bytes).unwrap();
    sockopt::set_socket_send_buffer_size(&theirs, behaviour.buffer_bytes).unwrap();
    // If the client ends early, its own test reports the failure.
    thread::spawn(move || drop(serve(theirs, &behaviour)));
    ours.set_nonblocking(true).unwrap();
    let mut config = Config::unix("pair");
    config.read_timeout = Some(crate::common::PATIENCE);
    config.write_timeout = Some(crate::common::PATIENCE);
    Connection::over(Box::new(ours), &config)
}

fn request(number: u64, filling: usize) -> impl Request {
    Command::new(&format!("{number:08}")).arg(vec![b'x'; filling])
}

fn behaviour() -> impl Strategy<Value = ServerBehaviour> {
    let read_bytes = prop_oneof![Just(1usize), 2usize..100, 1000usize..100_000];
    (read_bytes, 0u64..3, any::<bool>(), 1usize..20_000, prop_oneof![Just(0usize), 0usize..100, 0usize..5000]).prop_map(
        |(read_bytes, rest, stubborn, buffer_bytes, reply_bytes)| {
            let rest = Duration::from_millis(rest);
            ServerBehaviour { read_bytes, rest, stubborn, buffer_bytes, reply_bytes }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_never_deadlocks_with_any_server_behaviour(
        behaviour in behaviour(),
        bytes in prop_oneof![Just(0usize), 1usize..200_000],
        filling in prop_oneof![Just(0usize), 0usize..10_000],
        commands in 1usize..20_000,
    ) {
        // The number of bytes that the server reads in a short time, for any combination of random parameters.
        let bytes_max = (behaviour.read_bytes * 10_000).min(2_000_000);
        let requests = (bytes_max / (30 + filling + behaviour.reply_bytes)).max(3);
        let mut connection = start(behaviour.clone());
        let mut next = 0;
        let all = (0..requests as u64).map(|number| request(number, filling));
        let run = Window { commands, bytes }.run_each(&mut connection, all, |index, reply| {
            assert_eq!(index, next);
            next += 1;
            assert_eq!(&reply.bytes().unwrap()[..8], format!("{index:08}").as_bytes());
        });
        prop_assert_eq!(run.map_err(|error| error.to_string()), Ok(requests as u64));
    }
}

#[test]
fn a_server_that_reads_nothing_ends_in_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    config.write_timeout = Some(Duration::from_millis(100));
    let mut connection = Connection::connect(&config).unwrap();
    let requests = (0..1_000_000).map(|number| request(number, 1000));
    let interrupted = Window::default().run_each(&mut connection, requests, |_, _| {}).unwrap_err();
    assert!(matches!(interrupted.error, Error::Lost { cause: Lost::Stuck(_), .. }), "{interrupted:?}");
    assert_eq!(interrupted.answered, 0);
    assert!(interrupted.sent <= 10_000);
    let mut connection = Connection::connect(&config).unwrap();
    for number in 0..20_000 {
        connection.send(&request(number, 1000));
    }
    assert!(connection.flush().unwrap_err().is_timeout());
    drop(listener);
}

#[test]
fn requests_in_flight_never_exceed_the_window() {
    on_both(&[], |server| {
        for commands in [0, 1, 2, 7, 100] {
            let mut connection = connect(server);
            let under_way = RefCell::new(0usize);
            let mut left = 500;
            let next = |out: &mut Vec<u8>| {
                if left == 0 {
                    return Next::End;
                }
                left -= 1;
                *under_way.borrow_mut() += 1;
                assert!(*under_way.borrow() <= commands.max(1));
                ["PING"].pack(out);
                Next::Request
            };
            let reply = |_, _| {
                *under_way.borrow_mut() -= 1;
                ControlFlow::Continue(())
            };
            let ran = Window::of(commands).run(&mut connection, &mut (next, reply));
            assert_eq!(ran.unwrap(), 500);
        }
    });
}

#[test]
fn a_pause_waits_for_all_replies() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let under_way = RefCell::new(0);
        let mut script = "rrrprrrrpprp".chars();
        let mut after_pause = false;
        let next = |out: &mut Vec<u8>| {
            if std::mem::take(&mut after_pause) {
                assert_eq!(*under_way.borrow(), 0);
            }
            match script.next() {
                Some('r') => {
                    ["PING"].pack(out);
                    *under_way.borrow_mut() += 1;
                    Next::Request
                }
                Some(_) => {
                    after_pause = true;
                    Next::Pause
                }
                None => Next::End,
            }
        };
        let reply = |_, _| {
            *under_way.borrow_mut() -= 1;
            ControlFlow::Continue(())
        };
        assert_eq!(Window::default().run(&mut connection, &mut (next, reply)).unwrap(), 8);
    });
}

#[test]
fn a_break_still_takes_replies_to_sent_requests() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let issued = RefCell::new(0u64);
        let mut answered = 0;
        let next = |out: &mut Vec<u8>| {
            *issued.borrow_mut() += 1;
            ["PING"].pack(out);
            Next::Request
        };
        let reply = |index, _| {
            answered += 1;
            if index == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let ran = Window::of(50).run(&mut connection, &mut (next, reply)).unwrap();
        assert_eq!((ran, answered), (*issued.borrow(), *issued.borrow()));
        assert!((101..=151).contains(&ran), "{ran}");
        // The connection is usable as before.
        assert_eq!(connection.command(&["PING"]).unwrap(), Value::Simple(b"PONG".into()));
    });
}

#[test]
fn unread_replies_prevent_a_run() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        connection.send(&["PING"]);
        let mut pipeline = Pipeline::new();
        pipeline.add(&["PING"]);
        assert!(matches!(pipeline.run(&mut connection).unwrap_err().error, Error::Unread(1)));
        connection.read_reply().unwrap();
        assert_eq!(pipeline.run(&mut connection).unwrap().len(), 1);
    });
}
