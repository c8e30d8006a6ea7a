//! The HTTP port: metrics, REST, static files and the console.
//!
//! This crate knows HTTP and the Redis protocol, but no command, key or user. Requests run on a connection to the
//! server like a client's ([`Upstream::connect`]): it authenticates with AUTH, appears in CLIENT LIST, and obeys the
//! access rules and all limits. The port has its own thread; its requests cost the workers no more than any client's.
//!
//! Path of a request: [`router`] determines its target, [`guard`] checks that no foreign page caused it,
//! [`credentials`] determines the user. Then `rest`, [`metrics`], `files` or `console` responds; the first two send
//! commands through `lines`. [`history`] keeps the figures of a day for the console's charts, and `live` streams commands
//! and messages to it.

#![forbid(unsafe_code)]

mod answer;
pub mod commands;
mod console;
pub mod credentials;
mod encrypt;
mod failure;
mod files;
pub mod guard;
pub mod history;
mod idle_timeout;
pub mod json;
mod live;
pub mod metrics;
#[cfg(test)]
mod port_tests;
mod rates;
mod respond;
mod rest;
pub mod router;
mod serve;
mod upstream_pool;

use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

/// The server behind the port.
pub trait Upstream: Send + Sync + 'static {
    /// Called at the start of the port's thread: lowers the thread's priority below the workers'.
    fn give_way(&self);

    /// Opens a new unauthenticated connection to the server, like a client's.
    ///
    /// # Errors
    /// Returns an error text for the client, for example if `maxclients` is reached.
    fn connect(&self) -> Result<UnixStream, String>;

    /// A number that changes whenever users or passwords change; clients must then authenticate again.
    fn edition(&self) -> u64;

    /// True if clients need no password.
    fn is_open(&self) -> bool;

    /// True if a client at this address is served (protected mode).
    fn admits(&self, peer: IpAddr) -> bool;

    /// Properties of a command; `args` begins with its name.
    fn nature(&self, args: &[Vec<u8>]) -> Nature;

    /// Configuration for encrypting a new connection, if the port is encrypted and has a certificate.
    fn encryption(&self) -> Option<Arc<ServerConfig>>;

    /// The current settings.
    fn terms(&self) -> Terms;

    /// Reads the server's figures. Called once a second while the console is on.
    fn sample(&self) -> history::Sample;

    /// Checks that clients can use the server.
    ///
    /// # Errors
    /// Returns the reason against it, for people.
    fn readiness(&self) -> Result<(), &'static str>;

    /// Writes a warning to the server's log.
    fn warn(&self, text: &str);
}

/// Properties of a command that the port must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// It blocks, subscribes, or changes its connection's state, so it can't run on a shared connection.
    pub holds_connection: bool,
    /// It changes neither data nor the server.
    pub only_reads: bool,
}

/// Permissions of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleMode {
    /// The console is off.
    Off,
    /// It runs only commands that read.
    ReadOnly,
    /// It runs all commands that its user may run.
    Full,
}

/// Current settings of the port.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Permissions of the console.
    pub console: ConsoleMode,
    /// True if REST is available.
    pub rest: bool,
    /// The directory, or the single file, that is served under `/files/`.
    pub files: Option<PathBuf>,
    /// True if connections are encrypted.
    pub is_encrypted: bool,
    /// Largest number of connections.
    pub connections_max: usize,
    /// Largest body of a request, in bytes.
    pub body_bytes_max: usize,
    /// Largest size of the replies to a request, in bytes.
    pub reply_bytes_max: usize,
    /// Time for a request to arrive, for it to run, and for an idle connection.
    pub timeout: Duration,
    /// Requests per second from an address without known credentials.
    pub unauthenticated_rate: u32,
}

/// Starts serving on a separate thread. At most `running_max` requests run concurrently.
///
/// # Errors
/// The system can't create a thread.
pub fn start(listeners: Vec<TcpListener>, running_max: usize, upstream: Arc<dyn Upstream>) -> std::io::Result<()> {
    let serve = move || {
        upstream.give_way();
        serve::run(listeners, running_max, upstream);
    };
    std::thread::Builder::new().name("http".into()).spawn(serve).map(drop)
}
