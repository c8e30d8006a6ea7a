//! The thread of the port: accepts connections and answers their requests.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::Upstream;
use crate::answer::respond;
use crate::encrypt::encrypt;
use crate::lines::Lines;
use crate::patience::Patient;

/// Bytes of a request's first line and headers together.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long accepting pauses when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);
/// How often connections to the server are looked at that wait for another request.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);
/// What a client is told that finds no room, in full, since it isn't served any further.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\n\
    content-length: 77\r\n\r\n{\"error\":\"ERR too many HTTP connections; see http-max-connections, and wait\"}";
/// What all connections share.
pub(crate) struct Port {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) lines: Lines,
    connections: Cell<usize>,
    /// Whether a task closes connections to the server that wait for too long.
    is_tidying: Cell<bool>,
}

/// Serves for good.
pub(crate) fn run(listeners: Vec<TcpListener>, running_max: usize, upstream: Arc<dyn Upstream>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return upstream.warn(&format!("HTTP is not served: {error}")),
    };
    let lines = Lines::new(upstream.clone(), running_max);
    let port = Rc::new(Port { upstream, lines, connections: Cell::new(0), is_tidying: Cell::new(false) });
    let tasks = LocalSet::new();
    for listener in listeners {
        tasks.spawn_local(accept(port.clone(), listener));
    }
    runtime.block_on(tasks);
}

async fn accept(port: Rc<Port>, listener: TcpListener) {
    let listener = match listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener)) {
        Ok(listener) => listener,
        Err(error) => return port.upstream.warn(&format!("HTTP is not served: {error}")),
    };
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => admit(&port, socket, peer.ip()),
            // The client has gone, or there is no descriptor left.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Serves a connection, if there is room.
fn admit(port: &Rc<Port>, mut socket: TcpStream, peer: IpAddr) {
    let terms = port.upstream.terms();
    let port = port.clone();
    if port.connections.get() >= terms.connections_max {
        if !terms.is_encrypted {
            // The empty send buffer of a new socket holds these bytes: the write does not block.
            let _ = socket.try_write(NO_ROOM);
        }
        spawn_local(async move { drop(timeout(PAUSE, socket.shutdown()).await) });
        return;
    }
    let _ = socket.set_nodelay(true);
    port.connections.set(port.connections.get() + 1);
    spawn_local(async move {
        if !terms.is_encrypted {
            serve(&port, socket, peer.to_canonical(), terms.timeout).await;
        } else if let Some(config) = port.upstream.encryption()
            && let Some(stream) = encrypt(socket, config).await
        {
            serve(&port, stream, peer.to_canonical(), terms.timeout).await;
        }
        port.connections.set(port.connections.get() - 1);
    });
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(port: &Rc<Port>, socket: S, peer: IpAddr, time: Duration) {
    let service = service_fn(|request| {
        let port = port.clone();
        async move {
            let response = respond(&port, request, peer).await;
            tidy_later(&port);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(time)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // A request may take its time to arrive, and as long to run.
        .serve_connection(Patient::new(socket, 2 * time), service);
    // What goes wrong with one connection concerns its client alone, which sees it.
    let _ = connection.await;
}

/// Has a task close connections to the server that are no longer used. There is none while none are kept: a port that isn't used
/// wakes up for nothing.
fn tidy_later(port: &Rc<Port>) {
    if !port.lines.keeps_any() || port.is_tidying.replace(true) {
        return;
    }
    let port = port.clone();
    spawn_local(async move {
        loop {
            sleep(TIDY_INTERVAL).await;
            if !port.lines.tidy() {
                break;
            }
        }
        port.is_tidying.set(false);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_as_long_as_it_says() {
        let text = std::str::from_utf8(NO_ROOM).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
