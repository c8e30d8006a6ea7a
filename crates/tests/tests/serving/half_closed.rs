//! A client that has closed its sending side still gets all replies.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use penstock_tests::server::Server;

/// Sends everything, closes the sending side, and reads until the server closes the connection.
fn exchange(server: &Server, requests: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(requests).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    replies
}

#[test]
fn every_request_that_came_before_the_end_is_answered() {
    let server = Server::penstock(&["--threads", "1"]);
    assert_eq!(exchange(&server, b"PING\r\n"), b"+PONG\r\n");
    // Too much to run in one turn.
    let list: String = (0..500).map(|i| format!(" {i}")).collect();
    assert_eq!(exchange(&server, format!("RPUSH list{list}\r\n").as_bytes()), b":500\r\n");
    let many = 3000;
    assert_eq!(exchange(&server, &b"LPOS list 499\r\n".repeat(many)), b":499\r\n".repeat(many));
    // Too much for the socket buffer.
    let value = "x".repeat(60_000);
    assert_eq!(exchange(&server, format!("SET big {value}\r\n").as_bytes()), b"+OK\r\n");
    let many = 300;
    let expected = format!("$60000\r\n{value}\r\n").repeat(many);
    assert!(exchange(&server, &b"GET big\r\n".repeat(many)) == expected.as_bytes());
    assert!(exchange(&server, &[&*b"GET big\r\n".repeat(many), b"QUIT\r\n"].concat()).ends_with(b"x\r\n+OK\r\n"));
    // A blocked client is closed.
    assert_eq!(exchange(&server, b"BLPOP nothing 0\r\n"), b"");
}
