//! Keys on their way to other servers (MIGRATE): threads that open connections, send values, and read the replies.
//!
//! A migration without a free thread starts one, up to a limit. An idle thread ends after a while. Connections are kept for the same time
//! and serve further migrations to the same server.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::Settings;
use engine::inbox::Message;
use engine::migrations::{Credentials, MigratingKey, Migration, MigrationError};
use engine::state::Engine;
use resp::num::IntText;

use crate::log;
use crate::peer_socket::{CannotOpen, PeerSocket};
use crate::threads;
use crate::time::now_us;

/// The most threads. Further migrations queue. There are as many migrations as connections with a running MIGRATE.
const THREADS_MAX: usize = 16;
/// Lifetime of an idle thread and connection. Redis keeps connections for the same time.
const IDLE: Duration = Duration::from_secs(10);
/// The longest timeout of a step.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Bytes sent at once, if values are small.
const PART_BYTES: usize = 64 << 10;
/// Longest line accepted from another server.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The state shared by the threads.
#[derive(Default)]
pub struct Migrators {
    queue: Mutex<MigrationQueue>,
    filled: Condvar,
}

/// The queued migrations, and the number of threads.
#[derive(Default)]
struct MigrationQueue {
    waiting: VecDeque<Box<Migration>>,
    threads: usize,
    idle: usize,
    /// Recently used connections, with the time of the last use.
    kept: Vec<(Kept, Instant)>,
}

impl Migrators {
    fn queue(&self) -> MutexGuard<'_, MigrationQueue> {
        // The data behind the lock are consistent even if a holder panicked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues keys to be sent.
    ///
    /// # Errors
    /// The migration, if there is no thread and none can be started.
    pub fn send(
        self: &std::sync::Arc<Self>,
        engine: &'static Engine,
        migration: Box<Migration>,
    ) -> Result<(), (Box<Migration>, String)> {
        let mut queue = self.queue();
        if queue.idle <= queue.waiting.len() && queue.threads < THREADS_MAX {
            let migrators = self.clone();
            let run = move || migrators.run(engine);
            match threads::spawn(&threads::MIGRATION, run) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => return Err((migration, format!("can't start a thread: {error}"))),
                Err(_) => {}
            }
        }
        queue.waiting.push_back(migration);
        drop(queue);
        self.filled.notify_one();
        Ok(())
    }

    /// Returns the next migration. Returns `None` after an idle time, which ends the thread.
    fn next(&self) -> Option<Box<Migration>> {
        let mut queue = self.queue();
        let deadline = Instant::now() + IDLE;
        loop {
            if let Some(migration) = queue.waiting.pop_front() {
                return Some(migration);
            }
            let now = Instant::now();
            queue.kept.retain(|(_, used)| now.duration_since(*used) < IDLE);
            if now >= deadline {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            (queue, _) = self.filled.wait_timeout(queue, deadline - now).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn take_kept(&self, migration: &Migration, settings: &Settings) -> Option<Kept> {
        let mut queue = self.queue();
        let at = queue.kept.iter().position(|(kept, _)| kept.is_for(migration, settings))?;
        Some(queue.kept.swap_remove(at).0)
    }

    fn keep(&self, connection: Kept) {
        let mut queue = self.queue();
        if queue.kept.len() < THREADS_MAX {
            queue.kept.push((connection, Instant::now()));
        }
    }

    fn run(&self, engine: &'static Engine) {
        while let Some(mut migration) = self.next() {
            let kept = self.take_kept(&migration, &engine.settings);
            match send_with_retry(kept, &mut migration, &engine.settings) {
                Ok((connection, refused)) => {
                    migration.error = refused;
                    // Before the command is answered: the next command finds the connection.
                    self.keep(connection);
                }
                Err(error) => migration.error = Some(error),
            }
            let worker = migration.worker;
            engine.migrations.leave(*migration);
            engine.inboxes[worker].send(Message::Migrated);
        }
    }
}

/// A connection kept for the next migration to the same server.
struct Kept {
    socket: PeerSocket,
    host: String,
    port: u16,
    /// The credentials of its login. A migration with others gets another connection.
    credentials: Option<Credentials>,
    is_encrypted: bool,
    /// The selected database.
    database: Option<i64>,
}

impl Kept {
    fn open(migration: &Migration, settings: &Settings, timeout: Duration) -> Result<Kept, MigrationError> {
        let is_encrypted = settings.tls_cluster.get();
        let encryption = is_encrypted.then_some(settings);
        let address = (migration.host.as_str(), migration.port);
        let source = settings.bind_source_addr.get();
        let socket = PeerSocket::open(address, &source, encryption, timeout, timeout).map_err(|why| match why {
            // Redis notices a refused connection only when it writes.
            CannotOpen::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => MigrationError::Writing,
            CannotOpen::Io(_) => MigrationError::Connecting,
            CannotOpen::Unusable(why) => {
                log::warning(format!("MIGRATE can't connect to {}:{}: {why}", migration.host, migration.port));
                MigrationError::Connecting
            }
        })?;
        let (host, port) = (migration.host.clone(), migration.port);
        Ok(Kept { socket, host, port, credentials: None, is_encrypted, database: None })
    }

    fn is_for(&self, migration: &Migration, settings: &Settings) -> bool {
        self.host == migration.host
            && self.port == migration.port
            && self.is_encrypted == settings.tls_cluster.get()
            && (self.credentials.is_none() || self.credentials == migration.credentials)
    }
}

/// Sends a migration. The other side may have closed a kept connection meanwhile, and a new one is opened then. Returns the usable
/// connection and the first refusal.
fn send_with_retry(
    kept: Option<Kept>,
    migration: &mut Migration,
    settings: &Settings,
) -> Result<(Kept, Option<MigrationError>), MigrationError> {
    let timeout = Duration::from_millis(migration.timeout_ms).min(TIMEOUT_MAX);
    if let Some(mut connection) = kept {
        let began = Instant::now();
        let is_set = connection.socket.set_timeout(timeout).is_ok();
        let sent = if is_set { send(&mut connection, migration) } else { Err(MigrationError::Writing) };
        let was_answered = migration.keys.iter().any(|key| key.has_arrived);
        // A step that took the whole timeout isn't retried.
        if sent.is_ok() || was_answered || began.elapsed() >= timeout {
            return sent.map(|refused| (connection, refused));
        }
    }
    let mut connection = Kept::open(migration, settings, timeout)?;
    let refused = send(&mut connection, migration)?;
    Ok((connection, refused))
}

/// Sends everything on a connection, and reads the replies. Returns the first refusal.
fn send(connection: &mut Kept, migration: &mut Migration) -> Result<Option<MigrationError>, MigrationError> {
    let logs_in = connection.credentials.is_none() && migration.credentials.is_some();
    let selects = connection.database != Some(migration.target_database);
    let mut writer = io::BufWriter::with_capacity(PART_BYTES, &mut connection.socket);
    write_all(&mut writer, migration, logs_in, selects).map_err(|_| MigrationError::Writing)?;
    drop(writer);
    let mut lines = Lines { socket: &mut connection.socket, arrived: Vec::new(), start: 0 };
    let mut first_error = None;
    let mut is_ready = true;
    if logs_in {
        is_ready &= lines.answer(&mut first_error)?;
        connection.credentials = migration.credentials.clone().filter(|_| is_ready);
    }
    if selects {
        is_ready &= lines.answer(&mut first_error)?;
        connection.database = is_ready.then_some(migration.target_database);
    }
    for key in &mut migration.keys {
        // After a refused login or database, an accepted value is in the wrong place.
        key.has_arrived = lines.answer(&mut first_error)? && is_ready;
    }
    Ok(first_error.map(MigrationError::Refused))
}

fn write_all(out: &mut impl Write, migration: &Migration, logs_in: bool, selects: bool) -> io::Result<()> {
    match migration.credentials.as_ref().filter(|_| logs_in) {
        Some(Credentials::Password(password)) => write_request(out, &[b"AUTH", password])?,
        Some(Credentials::User(name, password)) => write_request(out, &[b"AUTH", name, password])?,
        None => {}
    }
    if selects {
        write_request(out, &[b"SELECT", migration.target_database.to_string().as_bytes()])?;
    }
    let now_ms = now_us() / 1000;
    for MigratingKey { name, payload, expires_ms, .. } in &migration.keys {
        // 0 would mean no expiry.
        let ttl_ms = expires_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1));
        let mut text = IntText::new();
        let words = [migration.restore(), &**name, text.u64(ttl_ms), payload, b"REPLACE"];
        write_request(out, if migration.replaces { &words } else { &words[..4] })?;
    }
    out.flush()
}

fn write_request(out: &mut impl Write, words: &[&[u8]]) -> io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// The reply lines of the other server.
struct Lines<'s, S> {
    socket: &'s mut S,
    arrived: Vec<u8>,
    start: usize,
}

impl<S: Read> Lines<'_, S> {
    /// Returns true if the next request succeeded. Notes its error if it is the first.
    fn answer(&mut self, first_error: &mut Option<Vec<u8>>) -> Result<bool, MigrationError> {
        let line = self.line().map_err(|_| MigrationError::Reading)?;
        match line.split_first() {
            Some((b'+', _)) => Ok(true),
            Some((b'-', error)) => {
                first_error.get_or_insert_with(|| error.to_vec());
                Ok(false)
            }
            // The reply is neither a status nor an error, so the other side is no Redis server.
            _ => Err(MigrationError::Reading),
        }
    }

    /// Returns the next line, without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.arrived[self.start..];
            if let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let line = rest[..end].to_vec();
                self.start += end + 2;
                return Ok(line);
            }
            if rest.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.arrived.drain(..self.start);
            self.start = 0;
            let mut room = [0; 4096];
            match self.socket.read(&mut room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.arrived.extend_from_slice(&room[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(bytes: &[u8], count: usize) -> (Vec<Result<bool, MigrationError>>, Option<Vec<u8>>) {
        let mut bytes = bytes;
        let mut lines = Lines { socket: &mut bytes, arrived: Vec::new(), start: 0 };
        let mut first_error = None;
        ((0..count).map(|_| lines.answer(&mut first_error)).collect(), first_error)
    }

    #[test]
    fn replies_are_classified() {
        let (read, first) = answers(b"+OK\r\n-ERR a\r\n-ERR b\r\n+OK\r\n", 5);
        assert_eq!(read, [Ok(true), Ok(false), Ok(false), Ok(true), Err(MigrationError::Reading)]);
        assert_eq!(first.as_deref(), Some(&b"ERR a"[..]));
        assert_eq!(answers(b"HTTP/1.1 400 Bad Request\r\n", 1).0, [Err(MigrationError::Reading)]);
        assert_eq!(answers(&[b'+'; LINE_BYTES_MAX * 2], 1).0, [Err(MigrationError::Reading)]);
    }
}
