//! Connections to the server. They are opened on demand, run one request at a time, and are kept for the same user's
//! next request.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use resp::parse::{Parser, ReplyLimits, Value, encode_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::commands::Words;
use crate::credentials::Identity;
use crate::failure::Failure;
use crate::rates::Allowances;
use crate::{Terms, Upstream};

/// Largest number of idle connections.
const IDLE_MAX: usize = 16;
/// Largest idle time of a connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// Largest number of remembered valid credentials.
const KNOWN_MAX: usize = 1024;
/// Number of bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// Largest buffer that an idle connection keeps, in bytes.
const KEPT_BYTES: usize = 64 * 1024;
/// Initially selected database of a connection.
const FIRST_DATABASE: u32 = 0;

/// A connection to the server.
struct UpstreamConnection {
    stream: UnixStream,
    identity: Identity,
    /// Edition of the users with which it was authenticated.
    edition: u64,
    database: u32,
    /// Bytes of an incomplete reply; empty between requests.
    buffer: Vec<u8>,
    kept_since: Instant,
}

/// The result of admission, which a request needs for running.
pub(crate) struct Admitted {
    identity: Identity,
    edition: u64,
}

/// See the module's documentation.
pub(crate) struct UpstreamPool {
    upstream: Arc<dyn Upstream>,
    running: Arc<Semaphore>,
    idle: RefCell<VecDeque<UpstreamConnection>>,
    /// Credentials that were valid when they were last checked, with the edition of the users at that time.
    known: RefCell<HashMap<Identity, u64>>,
    allowances: RefCell<Allowances>,
}

impl UpstreamPool {
    pub(crate) fn new(upstream: Arc<dyn Upstream>, running_max: usize) -> UpstreamPool {
        UpstreamPool {
            upstream,
            running: Arc::new(Semaphore::new(running_max)),
            idle: RefCell::default(),
            known: RefCell::default(),
            allowances: RefCell::new(Allowances::new(Instant::now())),
        }
    }

    /// Waits until a request may run. The number of running requests is limited, and bodies are only read while
    /// running, so the memory of all requests is bounded.
    pub(crate) async fn turn(&self, terms: &Terms) -> Result<OwnedSemaphorePermit, Failure> {
        match timeout(terms.timeout, self.running.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ERR too many requests are running; try again, or raise http-max-running",
            )),
        }
    }

    /// Authenticates before the request's body is read.
    pub(crate) async fn admit(&self, identity: Identity, peer: IpAddr, terms: &Terms) -> Result<Admitted, Failure> {
        let edition = self.upstream.edition();
        let valid_at = self.known.borrow().get(&identity).copied();
        let is_admitted = match &identity {
            Identity::Anybody => self.upstream.is_open(),
            Identity::User { .. } => valid_at == Some(edition),
        };
        if !is_admitted {
            // After a change of the users, credentials that were valid before are checked at no charge. Otherwise an
            // attacker could lock out everybody behind the same address with each change.
            if valid_at.is_none()
                && !self.allowances.borrow_mut().take(peer, terms.unauthenticated_rate, Instant::now())
            {
                return Err(Failure::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "ERR too many requests with a missing or wrong token; wait a second",
                ));
            }
            if identity == Identity::Anybody {
                return Err(unauthorized("WRONGPASS a token is missing: send 'Authorization: Bearer user:password'"));
            }
            self.authenticate(&identity, edition, terms).await?;
        }
        Ok(Admitted { identity, edition })
    }

    /// Checks credentials, and remembers valid ones. Credentials that are invalid now are forgotten: each further check
    /// takes from the allowance of its address.
    async fn authenticate(&self, identity: &Identity, edition: u64, terms: &Terms) -> Result<(), Failure> {
        let connected = timeout(terms.timeout, self.connect(identity, edition)).await.map_err(|_| too_slow())?;
        let mut known = self.known.borrow_mut();
        let line = connected.inspect_err(|failure| {
            if failure.status == StatusCode::UNAUTHORIZED {
                known.remove(identity);
            }
        })?;
        if known.len() >= KNOWN_MAX && !known.contains_key(identity) {
            known.clear();
        }
        known.insert(identity.clone(), edition);
        drop(known);
        self.keep(line);
        Ok(())
    }

    /// Runs commands as one batch in a database and returns one reply per command.
    pub(crate) async fn run(
        &self,
        admitted: &Admitted,
        database: u32,
        commands: &[Words],
        terms: &Terms,
    ) -> Result<Vec<Value>, Failure> {
        let run = async {
            let mut line = match self.take(admitted) {
                Some(line) => line,
                None => self.connect(&admitted.identity, admitted.edition).await?,
            };
            line.select(database).await?;
            let values = line.run(commands, terms.reply_bytes_max).await?;
            self.keep(line);
            Ok(values)
        };
        // A connection is closed if the timeout interrupts its request.
        timeout(terms.timeout, run).await.map_err(|_| too_slow())?
    }

    /// Opens a connection, and sends commands that cause an unlimited number of replies.
    pub(crate) async fn feed(
        &self,
        admitted: &Admitted,
        database: u32,
        commands: &[Words],
        terms: &Terms,
    ) -> Result<Feed, Failure> {
        let open = async {
            let mut line = self.connect(&admitted.identity, admitted.edition).await?;
            line.select(database).await?;
            let mut request = Vec::new();
            commands.iter().for_each(|words| encode_request(words, &mut request));
            line.stream.write_all(&request).await.map_err(|_| broken())?;
            Ok(Feed { line, parser: Parser::new(limits(terms.reply_bytes_max)), done: 0 })
        };
        timeout(terms.timeout, open).await.map_err(|_| too_slow())?
    }

    /// Returns an idle connection of this user. Connections of an older edition are closed, because their user may have
    /// lost permissions.
    fn take(&self, admitted: &Admitted) -> Option<UpstreamConnection> {
        let mut idle = self.idle.borrow_mut();
        let edition = self.upstream.edition();
        idle.retain(|line| line.edition == edition && line.kept_since.elapsed() < IDLE_TIME_MAX && line.is_alive());
        if edition != admitted.edition {
            return None;
        }
        let at = idle.iter().rposition(|line| line.identity == admitted.identity)?;
        idle.remove(at)
    }

    fn keep(&self, mut line: UpstreamConnection) {
        line.kept_since = Instant::now();
        line.buffer.shrink_to(KEPT_BYTES);
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= IDLE_MAX {
            idle.pop_front();
        }
        idle.push_back(line);
    }

    /// Closes connections that have been idle for too long. Returns false if none are left.
    pub(crate) fn tidy(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|line| line.kept_since.elapsed() < IDLE_TIME_MAX);
        !idle.is_empty()
    }

    /// True if there are idle connections, which must be closed eventually.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.idle.borrow().is_empty()
    }

    async fn connect(&self, identity: &Identity, edition: u64) -> Result<UpstreamConnection, Failure> {
        let unavailable = |text: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, text);
        let stream = self.upstream.connect().map_err(unavailable)?;
        stream
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(stream))
            .map_or_else(
                |error| Err(unavailable(format!("ERR no connection: {error}"))),
                |stream| {
                    let (identity, buffer) = (identity.clone(), Vec::new());
                    Ok(UpstreamConnection {
                        stream,
                        identity,
                        edition,
                        database: FIRST_DATABASE,
                        buffer,
                        kept_since: Instant::now(),
                    })
                },
            )?
            .introduce()
            .await
    }
}

impl UpstreamConnection {
    /// Authenticates, and sets the connection's name in CLIENT LIST.
    async fn introduce(mut self) -> Result<UpstreamConnection, Failure> {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Words>();
        let mut commands = Vec::new();
        if let Identity::User { name, password } = &self.identity {
            commands.push(words(&[b"AUTH", name, password]));
        }
        // A user without the permission for this command may still use all others.
        commands.push(words(&[b"CLIENT", b"SETINFO", b"LIB-NAME", b"penstock-http"]));
        commands.push(words(&[b"CLIENT", b"SETINFO", b"LIB-VER", env!("CARGO_PKG_VERSION").as_bytes()]));
        let is_user = commands.len() == 3;
        let values = self.run(&commands, READ_BYTES).await?;
        match values.first().and_then(Value::error).filter(|_| is_user) {
            Some(error) => Err(unauthorized(&String::from_utf8_lossy(error))),
            None => Ok(self),
        }
    }

    async fn select(&mut self, database: u32) -> Result<(), Failure> {
        if self.database == database {
            return Ok(());
        }
        let select = vec![b"SELECT".to_vec(), database.to_string().into_bytes()];
        let values = self.run(&[select], READ_BYTES).await?;
        if let Some(error) = values.first().and_then(Value::error) {
            return Err(Failure::bad(String::from_utf8_lossy(error)));
        }
        self.database = database;
        Ok(())
    }

    /// True if the server has neither closed the connection nor sent anything unexpected.
    fn is_alive(&self) -> bool {
        let mut byte = [0];
        matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn run(&mut self, commands: &[Words], reply_bytes_max: usize) -> Result<Vec<Value>, Failure> {
        let mut request = Vec::new();
        commands.iter().for_each(|words| encode_request(words, &mut request));
        let (mut reader, mut writer) = self.stream.split();
        // Write and read concurrently, because the server may stop reading until its replies are read.
        let write = async { writer.write_all(&request).await.map_err(|_| broken()) };
        let read = read_replies(&mut reader, &mut self.buffer, commands.len(), reply_bytes_max);
        tokio::try_join!(write, read).map(|((), values)| values)
    }
}

/// A connection that receives replies for as long as it is open.
pub(crate) struct Feed {
    line: UpstreamConnection,
    parser: Parser,
    /// Number of parsed bytes at the start of the line's buffer.
    done: usize,
}

impl Feed {
    /// Waits for the next reply. No data are lost if the caller stops waiting.
    pub(crate) async fn next(&mut self) -> Result<Value, Failure> {
        loop {
            let buffer = &mut self.line.buffer;
            let advanced = self.parser.advance(&buffer[self.done..]).map_err(|_| broken())?;
            self.done += advanced.consumed;
            if let Some(value) = advanced.value {
                return Ok(value);
            }
            buffer.drain(..std::mem::take(&mut self.done));
            buffer.reserve(READ_BYTES);
            match self.line.stream.read_buf(buffer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(broken()),
            }
        }
    }
}

fn limits(bytes_max: usize) -> ReplyLimits {
    ReplyLimits {
        reply_bytes_max: bytes_max,
        bulk_bytes_max: bytes_max,
        // Counts each element's memory as if it had arrived with that many bytes.
        elements_max: bytes_max / size_of::<Value>(),
        ..ReplyLimits::default()
    }
}

async fn read_replies(
    reader: &mut (impl AsyncReadExt + Unpin),
    buffer: &mut Vec<u8>,
    count: usize,
    bytes_max: usize,
) -> Result<Vec<Value>, Failure> {
    let too_large = || {
        let text =
            format!("ERR the replies are larger than {bytes_max} bytes; request less data, or raise http-max-reply");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let mut parser = Parser::new(limits(bytes_max));
    let (mut values, mut bytes) = (Vec::with_capacity(count.min(1024)), 0);
    while values.len() < count {
        buffer.reserve(READ_BYTES);
        match reader.read_buf(buffer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(broken()),
        }
        let mut done = 0;
        while values.len() < count {
            let advanced = parser.advance(&buffer[done..]).map_err(|error| match error {
                resp::parse::ReplyError::Limit(_) => too_large(),
                _ => broken(),
            })?;
            done += advanced.consumed;
            let Some(value) = advanced.value else { break };
            values.push(value);
        }
        bytes += done;
        if bytes + buffer.len() - done > bytes_max.max(READ_BYTES) {
            return Err(too_large());
        }
        buffer.drain(..done);
    }
    match buffer.is_empty() {
        true => Ok(values),
        false => Err(broken()),
    }
}

fn unauthorized(text: &str) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, text)
}

fn too_slow() -> Failure {
    Failure::new(
        StatusCode::GATEWAY_TIMEOUT,
        "ERR the server has not replied within http-timeout; the commands may still run",
    )
}

fn broken() -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "ERR the server has closed the connection; the commands may have run")
}
