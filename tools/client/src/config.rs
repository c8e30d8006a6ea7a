//! Where to connect and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use resp::parse::ReplyLimits;
use resp::reply::Proto;

use crate::Error;
use crate::stream::Connector;

/// The port of Redis servers.
pub const DEFAULT_PORT: u16 = 6379;

/// How long a connection may take to come about, unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the other side may be silent when it is its turn, unless told otherwise: longer than any command that a
/// program waits for should run, and short enough that its user still remembers what they did.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long a connection must have been silent before the system asks whether the peer is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Messages that are set aside until [`crate::Connection::next_push`] asks for them.
const PUSHES_MAX: usize = 10_000;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a TCP port.
    Tcp {
        /// Name or address, an IPv6 address without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// At a socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Which certificates to trust, and which one to show. By default, the system's authorities, and none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The authorities' certificates (PEM), instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and those of its issuers (PEM), for servers that ask for one.
    pub cert_file: Option<PathBuf>,
    /// The key to `cert_file` (PEM).
    pub key_file: Option<PathBuf>,
    /// The name to ask for and to find in the server's certificate, instead of the host's.
    pub server_name: Option<String>,
    /// Accept any certificate: an attacker in between can read and change everything.
    pub insecure: bool,
}

/// Where to connect and how. Start from [`Config::tcp`], [`Config::unix`] or [`Config::parse`] and change fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Where the server listens.
    pub address: Address,
    /// Whether to encrypt (TCP only; in programs that were built with the feature `tls`, or with a `connector`).
    pub tls: bool,
    /// How to encrypt.
    pub tls_options: TlsOptions,
    /// The user that authenticates; without a name, the default user.
    pub user: Option<Vec<u8>>,
    /// The password; without one nothing is authenticated.
    pub password: Option<Vec<u8>>,
    /// The database to select.
    pub db: u32,
    /// The protocol's version. With RESP3 the handshake sends `HELLO 3`.
    pub proto: Proto,
    /// The name that CLIENT LIST shows; a server that refuses it is not connected to.
    pub client_name: Option<Vec<u8>>,
    /// The name that it shows where `client_name` has none, unless the server refuses it: a user may be forbidden to
    /// give one.
    pub fallback_name: Option<Vec<u8>>,
    /// How long a connection may take to come about, for each address that a name stands for. Looking names up is the
    /// system's affair and has its limits.
    pub connect_timeout: Duration,
    /// How long no byte may arrive while a reply is awaited; `None`: for ever. A [`crate::Client`] adds the timeout of
    /// a blocking command; on a [`crate::Connection`], [`crate::Connection::set_read_timeout`] makes room for it.
    pub read_timeout: Option<Duration>,
    /// How long the server may accept no byte of a request; `None`: for ever.
    pub write_timeout: Option<Duration>,
    /// After so much silence the system begins to ask whether the peer is still there (TCP only).
    pub keep_alive: Option<Duration>,
    /// What a reply may ask of us.
    pub limits: ReplyLimits,
    /// So many push messages (RESP3) are set aside while replies are read; beyond, the oldest are dropped, which
    /// [`crate::Connection::pushes_dropped`] counts.
    pub pushes_max: usize,
    /// Opens the byte stream, instead of what `address` and `tls` ask for.
    pub connector: Option<Arc<dyn Connector>>,
}

impl Config {
    /// A server at a TCP port, without password, database 0, RESP2.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Address::Tcp { host: host.into(), port })
    }

    /// A server at a Unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(Address::Unix(path.into()))
    }

    /// Reads a URL.
    ///
    /// - `redis://[[user]:password@][host][:port][/db]`, also `valkey:`; `rediss:` and `valkeys:` encrypt. Without a
    ///   colon, what stands before the `@` is the password.
    /// - `unix://[[user]:password@]/path/to/socket`, also `redis+unix:` and `valkey+unix:`.
    /// - Both may end in `?name=value&...` with `db`, `protocol` (2 or 3), `client_name`, and `connect_timeout`,
    ///   `read_timeout`, `write_timeout` in seconds (`0`: none, but for the first).
    ///
    /// All parts may be percent-encoded. Sources: the registration of the scheme "redis" with IANA, and redis-cli's
    /// `-u`.
    ///
    /// # Errors
    /// [`Error::Config`] with a text that says what is wrong; it never repeats a password.
    pub fn parse(url: &str) -> Result<Self, Error> {
        crate::url::parse(url)
    }

    fn new(address: Address) -> Self {
        Self {
            address,
            tls: false,
            tls_options: TlsOptions::default(),
            user: None,
            password: None,
            db: 0,
            proto: Proto::Resp2,
            client_name: None,
            fallback_name: None,
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(SILENCE_MAX),
            write_timeout: Some(SILENCE_MAX),
            keep_alive: Some(KEEP_ALIVE),
            limits: ReplyLimits::default(),
            pushes_max: PUSHES_MAX,
            connector: None,
        }
    }
}

/// Everything but the password, which must not get into logs.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("user", &self.user.as_ref().map(|user| String::from_utf8_lossy(user)))
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("db", &self.db)
            .field("proto", &self.proto)
            .finish_non_exhaustive()
    }
}
