//! Connections of a port that is encrypted: the handshake, and a word for those that speak plain HTTP to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take, its first byte included: as on the TLS port.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// The first byte of all that TLS clients begin with: the type of a record of the handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// What a client is told that speaks plain HTTP, in full.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n\
    content-length: 70\r\n\r\n{\"error\":\"ERR this port is encrypted (http-tls): use https:// for it\"}";

/// The connection, encrypted. None if that doesn't come about.
pub(crate) async fn encrypt(socket: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    timeout(HANDSHAKE_TIME_MAX, shake_hands(socket, config)).await.ok().flatten()
}

async fn shake_hands(mut socket: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if socket.peek(&mut first).await.ok()? == 1 && first != [HANDSHAKE_RECORD] {
        // What goes wrong with one connection concerns its client alone, which sees it.
        let _ = socket.write_all(PLAIN).await;
        let _ = socket.shutdown().await;
        // What is left unread when a socket closes has the system reset it, and the client may lose the answer.
        while matches!(socket.read(&mut [0; 1024]).await, Ok(1..)) {}
        return None;
    }
    TlsAcceptor::from(config).accept(socket).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_plain_http_is_as_long_as_it_says() {
        let text = std::str::from_utf8(PLAIN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
