//! The output of MONITOR as trips: of Redis's and Valkey's without replies, of Penstock's `MONITOR BATCHES REPLIES` with them.
//!
//! ```text
//! 1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
//! 1341173848.796741 "zadd" "testing:redis:index:number1000" "10" "The Number10000"
//! ```
//!
//! The second form is that of Redis before 2.6, which doesn't tell connections apart. Lines may begin with `+`. Commands of scripts
//! (`[0 lua]`) are left out: they make no trip. Source of the format: the "MONITOR" documentation page, and the
//! outputs of Redis 7.0 and Valkey 9.1.
//!
//! The log tells when a command ran, not what was sent together. Commands of a connection within [`TOGETHER_NS`] of each
//! other are taken for one batch: no round trip is that short. Penstock's tells where batches begin, with how many commands they have,
//! and what was replied, as far as it is shown, and how many bytes more:
//!
//! ```text
//! 1700000000.000120 [0 127.0.0.1:50000] batch 1
//! 1700000000.000124 [0 127.0.0.1:50000] "get" "long" => "$100000\r\n" +100002
//! ```

use std::collections::HashMap;

use resp::request::ArgsBuffer;

use crate::client::{Client, host};
use crate::trip::TURNAROUND_NS;
use crate::{Advisor, Connection, Reply, Trip};

/// Commands of a connection that ran within so short a time of each other were sent together.
pub const TOGETHER_NS: u64 = 12_000;
/// Longest line that is read as a whole; of a longer one the arguments at its start are looked at.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Connections that are remembered.
const CONNECTIONS_MAX: usize = 10_000;

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// When the command ran, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The client's address, with its port; empty if the log doesn't tell it.
    pub source: &'a [u8],
    /// Commands of the batch that begins here; None: the line is a command.
    pub batch: Option<u32>,
    /// How many bytes the command's reply has; None if the line shows no reply. The buffer has the first of them.
    pub reply_bytes: Option<u64>,
}

/// What is read of a line beside what [`Line`] has, in memory that is used again.
#[derive(Debug, Default)]
pub struct Texts {
    /// The command.
    pub args: ArgsBuffer,
    /// The beginning of its reply, as it was sent.
    pub reply: Vec<u8>,
}

/// Reads one line. None if it is no command of a client: a status, a script's command, or something else.
pub fn parse<'a>(line: &'a [u8], texts: &mut Texts) -> Option<Line<'a>> {
    texts.args.clear();
    texts.reply.clear();
    let line = line.strip_prefix(b"+").unwrap_or(line);
    let (time_ns, rest) = time(line)?;
    let rest = rest.strip_prefix(b" ")?;
    let (source, rest) = match rest.strip_prefix(b"[") {
        Some(rest) => source(rest)?,
        None => (b"".as_slice(), database(rest)),
    };
    if let Some(depth) = rest.strip_prefix(b"batch ") {
        let depth = resp::num::parse_i64(depth).and_then(|depth| u32::try_from(depth).ok())?;
        return (depth > 0).then_some(Line { time_ns, source, batch: Some(depth), reply_bytes: None });
    }
    let rest = arguments(rest, &mut texts.args);
    let reply_bytes = reply(rest, &mut texts.reply);
    let is_command = texts.args.args().len() > 0 && source != b"lua";
    is_command.then_some(Line { time_ns, source, batch: None, reply_bytes })
}

/// The reply behind a command: ` => "beginning" +more`. None if there is none, or its end is cut off.
fn reply(rest: &[u8], beginning: &mut Vec<u8>) -> Option<u64> {
    let rest = unquoted(rest.strip_prefix(b"=> \"")?, beginning);
    let more = match rest.strip_prefix(b" +") {
        Some(digits) => resp::num::parse_i64(digits).and_then(|more| u64::try_from(more).ok())?,
        None => 0,
    };
    Some(more.saturating_add(beginning.len() as u64))
}

/// Seconds and microseconds, as nanoseconds.
fn time(line: &[u8]) -> Option<(u64, &[u8])> {
    let point = line.iter().take(20).position(|&byte| byte == b'.')?;
    let (seconds, rest) = (line.get(..point)?, line.get(point + 1..)?);
    let (microseconds, rest) = (rest.get(..6)?, rest.get(6..)?);
    let number = |digits: &[u8]| {
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| resp::num::parse_cursor(digits)).flatten()
    };
    // Microseconds have zeros in front.
    let microseconds = microseconds
        .iter()
        .try_fold(0_u64, |value, &digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))?;
    let ns = number(seconds)?.checked_mul(1_000_000_000)?.checked_add(microseconds * 1000)?;
    Some((ns, rest))
}

/// The source behind `[0 ` and before `] "`. An IPv6 address has brackets of its own.
fn source(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_end = |bytes: &[u8]| matches!(bytes, [b']', b' ', b'"' | b'b']);
    let end = rest.windows(3).take(300).position(is_end)?;
    let (inside, rest) = (rest.get(..end)?, rest.get(end + 2..)?);
    let space = inside.iter().position(|&byte| byte == b' ')?;
    Some((inside.get(space + 1..)?, rest))
}

/// Skips `(db 0) `, which Redis 2.4 writes.
fn database(rest: &[u8]) -> &[u8] {
    if !rest.starts_with(b"(db ") {
        return rest;
    }
    match rest.iter().take(20).position(|&byte| byte == b')') {
        Some(end) => rest.get(end + 2..).unwrap_or_default(),
        None => b"",
    }
}

/// The arguments, each in quotes, and what follows them. One that is cut off is as long as it is.
fn arguments<'a>(mut rest: &'a [u8], args: &mut ArgsBuffer) -> &'a [u8] {
    let mut argument = Vec::new();
    while let Some(quoted) = rest.strip_prefix(b"\"") {
        argument.clear();
        rest = unquoted(quoted, &mut argument);
        if !args.push(&argument) {
            return b"";
        }
        rest = rest.strip_prefix(b" ").unwrap_or_default();
    }
    rest
}

/// An argument behind its first quote, and what follows its last one.
fn unquoted<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> &'a [u8] {
    loop {
        let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\').unwrap_or(rest.len());
        let (text, special) = rest.split_at(plain);
        argument.extend_from_slice(text);
        rest = match *special {
            [b'"', ref after @ ..] => return after,
            [b'\\', b'x', high, low, ref after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
                argument.push(digit(high) << 4 | digit(low));
                after
            }
            [b'\\', escaped, ref after @ ..] => {
                argument.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => other,
                });
                after
            }
            _ => return b"",
        };
    }
}

/// Reads a log in pieces of any size, and shows an advisor its trips.
#[derive(Debug, Default)]
pub struct MonitorReader {
    connections: HashMap<Box<[u8]>, Watched>,
    /// The beginning of a line whose end hasn't come.
    line: Vec<u8>,
    texts: Texts,
    counts: LogCounts,
    /// Clients that were introduced, by their address and port.
    known: HashMap<Box<[u8]>, Client>,
}

/// What a log had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Commands of clients.
    pub commands: u64,
    /// Connections.
    pub connections: u64,
    /// Lines that were none.
    pub skipped: u64,
    /// Times of the first command and the last.
    pub first_ns: u64,
    /// The last command's.
    pub last_ns: u64,
    /// True if the log doesn't tell connections apart.
    pub is_without_sources: bool,
}

/// A connection of the log, and the batch that may go on.
#[derive(Debug)]
struct Watched {
    connection: Connection,
    client: Client,
    first: ArgsBuffer,
    /// Its commands so far.
    depth: u32,
    /// How many it has, if the log tells: then it ends with the next line that tells of a batch.
    told: Option<u32>,
    /// The beginning and the length of the reply to the first command, if the log has it.
    reply: Vec<u8>,
    /// See above.
    reply_bytes: Option<u64>,
    first_ns: u64,
    last_ns: u64,
    /// When the batch before had run.
    ran_ns: u64,
}

impl Watched {
    fn show(&mut self, advisor: &mut Advisor) {
        let depth = std::mem::take(&mut self.depth);
        let told = self.told.take();
        if depth > 0 {
            let (arrived_ns, replied_ns) = (self.first_ns, self.last_ns);
            let trip = Trip {
                command: self.first.args(),
                key: None,
                depth: told.unwrap_or(depth),
                overlaps: told.is_some() && arrived_ns < self.ran_ns + TURNAROUND_NS,
                arrived_ns,
                replied_ns,
                reply: self.reply_bytes.map(|len| Reply { start: &self.reply, len }),
            };
            advisor.trip(&mut self.connection, &trip);
            self.ran_ns = replied_ns;
        }
    }

    /// A batch begins.
    fn begin(&mut self, depth: u32, time_ns: u64, advisor: &mut Advisor) {
        self.show(advisor);
        (self.told, self.first_ns, self.last_ns) = (Some(depth), time_ns, time_ns);
    }

    /// A command of the log.
    fn add(&mut self, texts: &Texts, line: &Line<'_>, advisor: &mut Advisor) {
        let is_near = self.depth > 0 && line.time_ns.saturating_sub(self.last_ns) < TOGETHER_NS;
        if self.told.is_none() && !is_near {
            self.show(advisor);
            self.first_ns = line.time_ns;
        }
        if self.depth == 0 {
            self.first.clear();
            for argument in texts.args.args().from(0) {
                self.first.push(argument);
            }
            self.reply.clear();
            self.reply.extend_from_slice(&texts.reply);
            self.reply_bytes = line.reply_bytes;
        }
        self.last_ns = line.time_ns;
        self.depth += 1;
        if self.client.learn(&texts.args.args()) {
            self.connection.set_client(self.client.clone());
        }
    }
}

impl MonitorReader {
    /// A reader at the start of a log.
    #[must_use]
    pub fn new() -> MonitorReader {
        MonitorReader::default()
    }

    /// Tells what is known of the client with this address and port. Its address is the log's.
    pub fn introduce(&mut self, source: &[u8], client: Client) {
        if self.known.len() >= CONNECTIONS_MAX {
            return;
        }
        if let Some(watched) = self.connections.get_mut(source) {
            watched.client = Client { address: watched.client.address.clone(), ..client.clone() };
            watched.connection.set_client(watched.client.clone());
        }
        self.known.insert(source.into(), client);
    }

    /// The next bytes of the log.
    pub fn feed(&mut self, bytes: &[u8], advisor: &mut Advisor) {
        let mut lines = bytes.split(|&byte| byte == b'\n');
        let mut piece = lines.next().unwrap_or_default();
        for next in lines {
            if self.line.is_empty() {
                self.line(piece, advisor);
            } else {
                self.keep(piece);
                let line = std::mem::take(&mut self.line);
                self.line(&line, advisor);
                self.line = line;
                self.line.clear();
            }
            piece = next;
        }
        self.keep(piece);
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// The log has ended.
    pub fn end(&mut self, advisor: &mut Advisor) {
        // The last line may lack its end, and be cut.
        let line = std::mem::take(&mut self.line);
        self.line(&line, advisor);
        for (_, mut watched) in self.connections.drain() {
            watched.show(advisor);
            advisor.closed(&mut watched.connection, watched.last_ns);
        }
    }

    /// What the log had so far.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        self.counts
    }

    fn line(&mut self, line: &[u8], advisor: &mut Advisor) {
        let line = line.get(..LINE_BYTES_MAX).unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(parsed) = parse(line, &mut self.texts) else {
            self.counts.skipped += u64::from(!line.is_empty());
            return;
        };
        let Line { time_ns, source, batch, .. } = parsed;
        self.counts.commands += u64::from(batch.is_none());
        if self.counts.first_ns == 0 {
            self.counts.first_ns = time_ns;
        }
        self.counts.last_ns = self.counts.last_ns.max(time_ns);
        self.counts.is_without_sources |= source.is_empty();
        if !self.connections.contains_key(source) {
            self.begin(source, time_ns, advisor);
        }
        if let Some(watched) = self.connections.get_mut(source) {
            match batch {
                Some(depth) => watched.begin(depth, time_ns, advisor),
                None => watched.add(&self.texts, &parsed, advisor),
            }
        }
    }

    /// A connection that wasn't seen yet. If there are too many, all others are taken for closed.
    fn begin(&mut self, source: &[u8], time_ns: u64, advisor: &mut Advisor) {
        if self.connections.len() >= CONNECTIONS_MAX {
            for (_, mut watched) in self.connections.drain() {
                watched.show(advisor);
                advisor.closed(&mut watched.connection, watched.last_ns);
            }
        }
        self.counts.connections += 1;
        let address = host(&String::from_utf8_lossy(source)).to_owned();
        let client = Client { address, ..self.known.get(source).cloned().unwrap_or_default() };
        let watched = Watched {
            connection: Connection::new(self.counts.connections, client.clone()),
            client,
            first: ArgsBuffer::default(),
            depth: 0,
            told: None,
            reply: Vec::new(),
            reply_bytes: None,
            first_ns: time_ns,
            last_ns: time_ns,
            ran_ns: 0,
        };
        self.connections.insert(source.into(), watched);
    }
}

#[cfg(test)]
mod tests;
