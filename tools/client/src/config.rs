//! Address and settings of a connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use resp::parse::ReplyLimits;
use resp::reply::Proto;

use crate::Error;
use crate::stream::Connector;

/// Default port of Redis servers.
pub const DEFAULT_PORT: u16 = 6379;

/// Default limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default limit for the silence of the server: longer than a command should take, and short enough that a user still
/// remembers the cause.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Default silence before the system sends keep-alive probes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Default maximum of push messages that are kept for [`crate::Connection::next_push`].
const PUSHES_MAX: usize = 10_000;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// Name or address; an IPv6 address has no brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A socket in the file system.
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

/// Trusted certificates, and the client's certificate. By default, the system's certificates are trusted, and the
/// client has no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// CA certificates (PEM), instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Client certificate with its issuers (PEM).
    pub cert_file: Option<PathBuf>,
    /// Key of `cert_file` (PEM).
    pub key_file: Option<PathBuf>,
    /// Host name for SNI and for the check of the server's certificate.
    pub server_name: Option<String>,
    /// Accepts any certificate. An attacker on the network can then read and change everything.
    pub insecure: bool,
}

/// Address and settings of a connection. Start from [`Config::tcp`], [`Config::unix`] or [`Config::parse`] and change
/// fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Address of the server.
    pub address: Address,
    /// Enables TLS (TCP only; the program needs the feature `tls`, or a `connector`).
    pub tls: bool,
    /// TLS options.
    pub tls_options: TlsOptions,
    /// User name for authentication; `None` is the default user.
    pub user: Option<Vec<u8>>,
    /// Password; without one the client doesn't authenticate.
    pub password: Option<Vec<u8>>,
    /// Database to select.
    pub db: u32,
    /// Protocol version. With RESP3 the handshake sends `HELLO 3`.
    pub proto: Proto,
    /// Client name for CLIENT LIST. If the server refuses it, connecting fails.
    pub client_name: Option<Vec<u8>>,
    /// Client name if `client_name` is unset. If the server refuses it, for example by ACL, the connection is used
    /// without a name.
    pub fallback_name: Option<Vec<u8>>,
    /// Limit for establishing a connection, for each address of a name. The system's own limits apply to name
    /// resolution.
    pub connect_timeout: Duration,
    /// Maximum time without a received byte while a reply is pending; `None` is unlimited. A [`crate::Client`] adds the
    /// timeout of a blocking command; on a [`crate::Connection`], use [`crate::Connection::set_read_timeout`].
    pub read_timeout: Option<Duration>,
    /// Maximum time without a sent byte while a request is being written; `None` is unlimited.
    pub write_timeout: Option<Duration>,
    /// Silence after which the system probes the peer (TCP only).
    pub keep_alive: Option<Duration>,
    /// Limits on replies.
    pub limits: ReplyLimits,
    /// Maximum number of push messages (RESP3) that are kept while replies are read. Above it, the oldest are dropped;
    /// [`crate::Connection::pushes_dropped`] counts them.
    pub pushes_max: usize,
    /// Opens the byte stream, instead of the default for `address` and `tls`.
    pub connector: Option<Arc<dyn Connector>>,
}

impl Config {
    /// Returns a configuration for a server at a TCP port, without password, with database 0 and RESP2.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Address::Tcp { host: host.into(), port })
    }

    /// Returns a configuration for a server at a Unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(Address::Unix(path.into()))
    }

    /// Parses a URL.
    ///
    /// - `redis://[[user]:password@][host][:port][/db]`, also `valkey:`; `rediss:` and `valkeys:` use TLS. Without a
    ///   colon, the text before the `@` is the password.
    /// - `unix://[[user]:password@]/path/to/socket`, also `redis+unix:` and `valkey+unix:`.
    /// - Both may end in `?name=value&...` with `db`, `protocol` (2 or 3), `client_name`, and `connect_timeout`,
    ///   `read_timeout`, `write_timeout` in seconds (`0` is unlimited, except for the first).
    ///
    /// All parts may be percent-encoded. Sources: the registration of the scheme "redis" with IANA, and redis-cli's
    /// `-u`.
    ///
    /// # Errors
    /// Returns [`Error::Config`] with a description that never contains a password.
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

/// Omits the password, which must not get into logs.
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
