//! Connections to the server: made when a request needs one, kept for the next request of the same user, one request at a time on each.

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

/// Connections that are kept without a request.
const IDLE_MAX: usize = 16;
/// For how long one is kept.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// Credentials that are remembered as right.
const KNOWN_MAX: usize = 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of a buffer that a kept connection keeps.
const KEPT_BYTES: usize = 64 * 1024;
/// The database that a connection has selected at its beginning.
const FIRST_DATABASE: u32 = 0;

/// A connection to the server.
struct Line {
    stream: UnixStream,
    identity: Identity,
    /// The edition of the users by which it was authenticated.
    edition: u64,
    database: u32,
    /// What was read and isn't a whole reply yet: nothing, between requests.
    buffer: Vec<u8>,
    kept_since: Instant,
}

/// What a request is allowed to run for.
pub(crate) struct Admitted {
    identity: Identity,
    edition: u64,
}

/// See the module's documentation.
pub(crate) struct Lines {
    upstream: Arc<dyn Upstream>,
    running: Arc<Semaphore>,
    idle: RefCell<VecDeque<Line>>,
    /// Which credentials were right, and of which edition of the users.
    known: RefCell<HashMap<Identity, u64>>,
    allowances: RefCell<Allowances>,
}

impl Lines {
    pub(crate) fn new(upstream: Arc<dyn Upstream>, running_max: usize) -> Lines {
        Lines {
            upstream,
            running: Arc::new(Semaphore::new(running_max)),
            idle: RefCell::default(),
            known: RefCell::default(),
            allowances: RefCell::new(Allowances::new(Instant::now())),
        }
    }

    /// Waits until a request may run: only so many do at a time, and only then is a body read, so that all of them together take a
    /// bounded amount of memory.
    pub(crate) async fn turn(&self, terms: &Terms) -> Result<OwnedSemaphorePermit, Failure> {
        match timeout(terms.timeout, self.running.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ERR too many requests are running; try again, or raise http-max-running",
            )),
        }
    }

    /// Authenticates, before anything of a request's body is read.
    pub(crate) async fn admit(&self, identity: Identity, peer: IpAddr, terms: &Terms) -> Result<Admitted, Failure> {
        let edition = self.upstream.edition();
        let is_known = match &identity {
            Identity::Anybody => self.upstream.is_open(),
            user => self.known.borrow().get(user) == Some(&edition),
        };
        if !is_known {
            if !self.allowances.borrow_mut().take(peer, terms.unauthenticated_rate, Instant::now()) {
                return Err(Failure::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "ERR too many requests with a missing or wrong token; wait a second",
                ));
            }
            if identity == Identity::Anybody {
                return Err(unauthorized("WRONGPASS a token is missing: send 'Authorization: Bearer user:password'"));
            }
            let line = timeout(terms.timeout, self.connect(&identity, edition)).await.map_err(|_| too_slow())??;
            self.keep(line);
            let mut known = self.known.borrow_mut();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(identity.clone(), edition);
        }
        Ok(Admitted { identity, edition })
    }

    /// Runs commands as one batch in a database; answers as many replies.
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
        // A line that is given up in the midst is closed.
        timeout(terms.timeout, run).await.map_err(|_| too_slow())?
    }

    /// A connection that is kept for this user. Those of an older edition are closed: they may be what they mustn't any more.
    fn take(&self, admitted: &Admitted) -> Option<Line> {
        let mut idle = self.idle.borrow_mut();
        let edition = self.upstream.edition();
        idle.retain(|line| line.edition == edition && line.kept_since.elapsed() < IDLE_TIME_MAX && line.is_alive());
        if edition != admitted.edition {
            return None;
        }
        let at = idle.iter().rposition(|line| line.identity == admitted.identity)?;
        idle.remove(at)
    }

    fn keep(&self, mut line: Line) {
        line.kept_since = Instant::now();
        line.buffer.shrink_to(KEPT_BYTES);
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= IDLE_MAX {
            idle.pop_front();
        }
        idle.push_back(line);
    }

    /// Closes connections that have been idle for too long. False if none are left.
    pub(crate) fn tidy(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|line| line.kept_since.elapsed() < IDLE_TIME_MAX);
        !idle.is_empty()
    }

    /// Whether connections are kept that have to be closed sometime.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.idle.borrow().is_empty()
    }

    async fn connect(&self, identity: &Identity, edition: u64) -> Result<Line, Failure> {
        let unavailable = |text: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, text);
        let stream = self.upstream.connect().map_err(unavailable)?;
        stream
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(stream))
            .map_or_else(
                |error| Err(unavailable(format!("ERR no connection: {error}"))),
                |stream| {
                    let (identity, buffer) = (identity.clone(), Vec::new());
                    Ok(Line { stream, identity, edition, database: FIRST_DATABASE, buffer, kept_since: Instant::now() })
                },
            )?
            .introduce()
            .await
    }
}

impl Line {
    /// Authenticates, and says in CLIENT LIST what it is.
    async fn introduce(mut self) -> Result<Line, Failure> {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Words>();
        let mut commands = Vec::new();
        if let Identity::User { name, password } = &self.identity {
            commands.push(words(&[b"AUTH", name, password]));
        }
        // A user that mustn't say so may do all the rest.
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

    /// Whether the server has neither closed it nor said anything unasked.
    fn is_alive(&self) -> bool {
        let mut byte = [0];
        matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn run(&mut self, commands: &[Words], reply_bytes_max: usize) -> Result<Vec<Value>, Failure> {
        let mut request = Vec::new();
        commands.iter().for_each(|words| encode_request(words, &mut request));
        let (mut reader, mut writer) = self.stream.split();
        // At the same time: the server may wait for its replies to be read.
        let write = async { writer.write_all(&request).await.map_err(|_| broken()) };
        let read = read_replies(&mut reader, &mut self.buffer, commands.len(), reply_bytes_max);
        tokio::try_join!(write, read).map(|((), values)| values)
    }
}

async fn read_replies(
    reader: &mut (impl AsyncReadExt + Unpin),
    buffer: &mut Vec<u8>,
    count: usize,
    bytes_max: usize,
) -> Result<Vec<Value>, Failure> {
    let limits = ReplyLimits {
        reply_bytes_max: bytes_max,
        bulk_bytes_max: bytes_max,
        // What an element takes in memory is counted as if it had come with so many bytes.
        elements_max: bytes_max / size_of::<Value>(),
        ..ReplyLimits::default()
    };
    let too_large = || {
        let text = format!("ERR the replies are larger than {bytes_max} bytes; ask for less, or raise http-max-reply");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let mut parser = Parser::new(limits);
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
        "ERR the server has not answered within http-timeout; the commands may run all the same",
    )
}

fn broken() -> Failure {
    Failure::new(
        StatusCode::BAD_GATEWAY,
        "ERR the server has closed the connection that ran this; it may have run all the same",
    )
}
