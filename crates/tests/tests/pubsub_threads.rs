//! Publish and subscribe between threads: those who read get everything, in order, and take little of the server's memory;
//! those who don't are closed alone; nobody waits for ever, whoever publishes to whom; and of a client that has been
//! answered QUIT nothing is left.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::server::Server;
use std::sync::Barrier;
use std::thread;

const THREADS: &[&str] = &["2", "4"];

fn server(threads: &str) -> Server {
    Server::penstock(&["--threads", threads])
}

fn subscriber(server: &Server, channels: &str) -> Conn {
    let mut conn = server.connect();
    for _ in channels.split(' ').enumerate() {
        conn.send(if conn_is_fresh(&conn) { b"" } else { b"" }).unwrap();
    }
    conn.send(&encode(&command(&format!("SUBSCRIBE {channels}")))).unwrap();
    conn.read_n(channels.split(' ').count()).unwrap();
    conn
}
