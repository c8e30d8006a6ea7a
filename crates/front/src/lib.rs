//! The HTTP port: metrics, REST, static files and the console.
//!
//! This room knows HTTP and the Redis protocol, and no command, key or user. What runs, runs on a connection to the server as any
//! client has one ([`Upstream::connect`]): authenticated by AUTH, in CLIENT LIST, bound by the access rules and all limits. It has one
//! thread of its own and takes nothing from the workers but what its requests cost as those of a client.
//!
//! A request goes: [`router`] tells what is asked for, [`guard`] whether a browser was tricked into asking, [`credentials`] for whom;
//! then `rest`, [`metrics`], `files` or `console` answers, the first two through `lines`.

#![forbid(unsafe_code)]

mod answer;
pub mod commands;
mod console;
pub mod credentials;
mod encrypt;
mod failure;
mod files;
pub mod guard;
pub mod json;
mod lines;
pub mod metrics;
mod patience;
mod rates;
mod respond;
mod rest;
pub mod router;
mod serve;

use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

/// The server behind the port.
pub trait Upstream: Send + Sync + 'static {
    /// The port's thread begins: what calls this gives way to those that execute commands.
    fn give_way(&self);

    /// A new connection to the server, not authenticated yet, as if a client had connected.
    ///
    /// # Errors
    /// Why there is none, in words for the client, such as that there are `maxclients` already.
    fn connect(&self) -> Result<UnixStream, String>;

    /// Changes whenever users or passwords do: what was authenticated before has to be again.
    fn edition(&self) -> u64;

    /// Whether clients need no password.
    fn is_open(&self) -> bool;

    /// Whether a client at this address is served at all (protected mode).
    fn admits(&self, peer: IpAddr) -> bool;

    /// What is known of a command; its arguments begin with its name.
    fn nature(&self, args: &[Vec<u8>]) -> Nature;

    /// The certificate and what else a new connection is encrypted by, if the port is encrypted and there is one.
    fn encryption(&self) -> Option<Arc<ServerConfig>>;

    /// The present settings.
    fn terms(&self) -> Terms;

    /// Writes a warning to the server's log.
    fn warn(&self, text: &str);
}

/// What the port has to know of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// It waits, subscribes, or changes how its connection goes on: not for connections that requests share.
    pub holds_connection: bool,
    /// It neither changes data nor the server.
    pub only_reads: bool,
}

/// What the console may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleMode {
    /// There is none.
    Off,
    /// It runs commands that only read.
    ReadOnly,
    /// It runs what its user may.
    Full,
}

/// The settings of the port, as they are at the moment.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What the console may do.
    pub console: ConsoleMode,
    /// Whether there is REST.
    pub rest: bool,
    /// The directory, or the one file, that is given out under `/files/`.
    pub files: Option<PathBuf>,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// Connections at a time.
    pub connections_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of the replies to a request.
    pub reply_bytes_max: usize,
    /// For a request to arrive, for it to run, and for a silent connection.
    pub timeout: Duration,
    /// Requests a second of an address without known credentials.
    pub unauthenticated_rate: u32,
}

/// Serves from now on, on a thread of its own. At most `running_max` requests run at a time.
///
/// # Errors
/// The system gives no thread.
pub fn start(listeners: Vec<TcpListener>, running_max: usize, upstream: Arc<dyn Upstream>) -> std::io::Result<()> {
    let serve = move || {
        upstream.give_way();
        serve::run(listeners, running_max, upstream);
    };
    std::thread::Builder::new().name("http".into()).spawn(serve).map(drop)
}
