//! Connections of an encrypted port: the TLS handshake, and an error for clients that speak plain HTTP.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// Timeout of a handshake, including its first byte, as on the TLS port.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// First byte of every TLS client's data: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;
/// The complete response to plain HTTP.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n\
    content-length: 70\r\n\r\n{\"error\":\"ERR this port is encrypted (http-tls): use https:// for it\"}";

/// Encrypts the connection. None if that fails.
pub(crate) async fn encrypt(socket: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    timeout(HANDSHAKE_TIME_MAX, shake_hands(socket, config)).await.ok().flatten()
}

async fn shake_hands(mut socket: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if socket.peek(&mut first).await.ok()? == 1 && first != [HANDSHAKE_RECORD] {
        // An error of one connection concerns only its client, which notices it.
        let _ = socket.write_all(PLAIN).await;
        let _ = socket.shutdown().await;
        // Closing a socket with unread data makes the system reset it, and the client could lose the response.
        while matches!(socket.read(&mut [0; 1024]).await, Ok(1..)) {}
        return None;
    }
    TlsAcceptor::from(config).accept(socket).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_to_plain_http_has_the_right_length() {
        let text = std::str::from_utf8(PLAIN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
