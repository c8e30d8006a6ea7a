//! The port's thread: accepts connections and processes their requests.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::answer::respond;
use crate::encrypt::encrypt;
use crate::history::History;
use crate::idle_timeout::WithIdleTimeout;
use crate::upstream_pool::UpstreamPool;
use crate::{ConsoleMode, Upstream};

/// Largest total size of a request's first line and headers, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Largest number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Pause of accepting when the system is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval for checking idle connections to the server.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the history's samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The complete response to a client beyond the limit; its connection is then closed.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\n\
    content-length: 77\r\n\r\n{\"error\":\"ERR too many HTTP connections; see http-max-connections, and wait\"}";
/// Shared state of all connections.
pub(crate) struct Port {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) lines: UpstreamPool,
    /// Figures for the console's charts.
    pub(crate) history: RefCell<History>,
    /// Number of open live views.
    pub(crate) views: Cell<usize>,
    connections: Cell<usize>,
    /// True if a task closes idle connections to the server.
    is_tidying: Cell<bool>,
}

/// Serves forever.
pub(crate) fn run(listeners: Vec<TcpListener>, running_max: usize, upstream: Arc<dyn Upstream>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return upstream.warn(&format!("HTTP is not available: {error}")),
    };
    let lines = UpstreamPool::new(upstream.clone(), running_max);
    let port = Rc::new(Port {
        upstream,
        lines,
        history: RefCell::default(),
        views: Cell::new(0),
        connections: Cell::new(0),
        is_tidying: Cell::new(false),
    });
    let tasks = LocalSet::new();
    tasks.spawn_local(take_samples(port.clone()));
    for listener in listeners {
        tasks.spawn_local(accept(port.clone(), listener));
    }
    runtime.block_on(tasks);
}

/// Adds the server's figures to the history, while there is a console that can show them.
async fn take_samples(port: Rc<Port>) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let began = Instant::now();
    loop {
        ticks.tick().await;
        if port.upstream.terms().console == ConsoleMode::Off {
            continue;
        }
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let sample = port.upstream.sample();
        port.history.borrow_mut().add(began.elapsed(), at_s, sample);
    }
}

async fn accept(port: Rc<Port>, listener: TcpListener) {
    let listener = match listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener)) {
        Ok(listener) => listener,
        Err(error) => return port.upstream.warn(&format!("HTTP is not available: {error}")),
    };
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => admit(&port, socket, peer.ip()),
            // The client has gone, or the system is out of descriptors.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Serves a connection, if the limit permits.
fn admit(port: &Rc<Port>, mut socket: TcpStream, peer: IpAddr) {
    let terms = port.upstream.terms();
    let port = port.clone();
    if port.connections.get() >= terms.connections_max {
        if !terms.is_encrypted {
            // The empty send buffer of a new socket holds these bytes, so the write doesn't block.
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
        // A request may use the timeout for arriving, and again for running.
        .serve_connection(WithIdleTimeout::new(socket, 2 * time), service);
    // An error of one connection concerns only its client, which notices it.
    let _ = connection.await;
}

/// Starts a task that closes idle connections to the server. Without such connections there is no task.
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
    fn the_response_beyond_the_limit_has_the_right_length() {
        let text = std::str::from_utf8(NO_ROOM).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
