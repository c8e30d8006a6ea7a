//! Reads the output of MONITOR as trips: Redis and Valkey show no replies, Penstock's `MONITOR BATCHES REPLIES` does.
//!
//! ```text
//! 1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
//! 1341173848.796741 "zadd" "testing:redis:index:number1000" "10" "The Number10000"
//! ```
//!
//! The second form is from Redis before 2.6, which doesn't distinguish connections. Lines may begin with `+`. Commands
//! of scripts (`[0 lua]`) are left out: they make no trip. Source of the format: the "MONITOR" documentation page, and
//! the outputs of Redis 7.0 and Valkey 9.1.
//!
//! The log has the time of each command, but not the batches. Commands of a connection within [`TOGETHER_NS`] of each
//! other are taken for one batch: no round trip is that short. Penstock's output marks the beginning of each batch with
//! its number of commands, and shows the first bytes of each reply and the number of bytes left out:
//!
//! ```text
//! 1700000000.000120 [0 127.0.0.1:50000] batch 1
//! 1700000000.000124 [0 127.0.0.1:50000] "get" "long" => "$100000\r\n" +100002
//! ```

use std::collections::HashMap;

use resp::request::{Args, ArgsBuffer};

use crate::client::{Client, host};
use crate::trip::TURNAROUND_NS;
use crate::{Advisor, Connection, Reply, Trip};

/// Commands of a connection that ran within this time of each other were sent together.
pub const TOGETHER_NS: u64 = 12_000;
/// Longest line that is parsed in full. Of a longer line only the arguments at its start are parsed.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Most connections that are remembered.
const CONNECTIONS_MAX: usize = 10_000;

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// When the command ran, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The client's address with its port; empty if the log has no addresses.
    pub source: &'a [u8],
    /// Number of commands in the batch that begins here; None if the line is a command.
    pub batch: Option<u32>,
    /// Length of the command's reply; None if the line shows no reply. The buffer holds the first bytes.
    pub reply_bytes: Option<u64>,
}

/// The variable-length parts of a line. The memory is reused.
#[derive(Debug, Default)]
pub struct Texts {
    /// The command.
    pub args: ArgsBuffer,
    /// The first bytes of the reply, in the protocol.
    pub reply: Vec<u8>,
}

/// Parses one line. Returns None if the line is not a command of a client: a status, a script's command, or anything
/// else.
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

/// Parses the reply behind a command: ` => "beginning" +more`. Returns None if there is no reply or the line is
/// truncated.
fn reply(rest: &[u8], beginning: &mut Vec<u8>) -> Option<u64> {
    let rest = unquoted(rest.strip_prefix(b"=> \"")?, beginning);
    let more = match rest.strip_prefix(b" +") {
        Some(digits) => resp::num::parse_i64(digits).and_then(|more| u64::try_from(more).ok())?,
        None => 0,
    };
    Some(more.saturating_add(beginning.len() as u64))
}

/// Parses seconds and microseconds, and returns nanoseconds.
fn time(line: &[u8]) -> Option<(u64, &[u8])> {
    let point = line.iter().take(20).position(|&byte| byte == b'.')?;
    let (seconds, rest) = (line.get(..point)?, line.get(point + 1..)?);
    let (microseconds, rest) = (rest.get(..6)?, rest.get(6..)?);
    let number = |digits: &[u8]| {
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| resp::num::parse_u64_lenient(digits)).flatten()
    };
    // Microseconds may have leading zeros.
    let microseconds = microseconds
        .iter()
        .try_fold(0_u64, |value, &digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))?;
    let ns = number(seconds)?.checked_mul(1_000_000_000)?.checked_add(microseconds * 1000)?;
    Some((ns, rest))
}

/// Returns the source between `[0 ` and `] "`, and the rest. An IPv6 address has brackets of its own.
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

/// Parses the quoted arguments, and returns the rest. A truncated argument counts as it is.
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

/// Unescapes an argument behind its first quote, and returns the bytes behind its last quote.
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

/// Reads a log in pieces of any size, and passes its trips to an advisor.
#[derive(Debug, Default)]
pub struct MonitorReader {
    connections: HashMap<Box<[u8]>, Watched>,
    /// The beginning of a line that has not arrived in full.
    line: Vec<u8>,
    texts: Texts,
    counts: LogCounts,
    /// Clients that were introduced, by address and port.
    known: HashMap<Box<[u8]>, Client>,
    /// Number of complete lists of connections so far: one before the log, and one at its end.
    lists: u32,
}

/// Counters of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Commands of clients.
    pub commands: u64,
    /// Connections.
    pub connections: u64,
    /// Lines that are not commands.
    pub skipped: u64,
    /// Time of the first command.
    pub first_ns: u64,
    /// Time of the last command.
    pub last_ns: u64,
    /// True if the log doesn't distinguish connections.
    pub is_without_sources: bool,
}

/// A connection of the log, with its unfinished batch.
#[derive(Debug)]
struct Watched {
    connection: Connection,
    client: Client,
    first: ArgsBuffer,
    /// Number of commands in the batch so far.
    depth: u32,
    /// Number of commands in the batch if the log has it; then the batch ends at the next batch line.
    told: Option<u32>,
    /// First bytes of the reply to the first command, if the log has it.
    reply: Vec<u8>,
    /// Length of that reply.
    reply_bytes: Option<u64>,
    first_ns: u64,
    last_ns: u64,
    /// Time of the last command of the previous batch.
    ran_ns: u64,
    /// True behind a MULTI that was a batch of its own. The server shows the queued commands when EXEC runs, and their
    /// batches not at all.
    is_in_multi: bool,
    /// Number of commands that EXEC has shown so far.
    queued: u32,
    /// When the batch of one command began that shows the commands of the current batch, which begins with MULTI and lacks EXEC.
    exec_ns: Option<u64>,
}

/// True for EXEC and DISCARD.
fn ends_transaction(command: &Args<'_>) -> bool {
    [b"EXEC".as_slice(), b"DISCARD"].iter().any(|name| command.get(0).eq_ignore_ascii_case(name))
}

impl Watched {
    fn show(&mut self, advisor: &mut Advisor) {
        let depth = std::mem::take(&mut self.depth);
        let told = self.told.take();
        if depth > 0 {
            let (arrived_ns, replied_ns) = (self.first_ns, self.last_ns);
            let reply = self.reply_bytes.map(|len| Reply { start: &self.reply, len });
            let trip = Trip {
                command: self.first.args(),
                key: None,
                depth: told.unwrap_or(depth),
                overlaps: told.is_some() && arrived_ns < self.ran_ns + TURNAROUND_NS,
                arrived_ns,
                replied_ns,
                reply,
                redirected: reply.map_or(0, |reply| reply.redirected()),
            };
            advisor.trip(&mut self.connection, &trip);
            self.ran_ns = replied_ns;
            self.is_in_multi = told == Some(1) && self.first.args().get(0).eq_ignore_ascii_case(b"MULTI");
            self.queued = 0;
        }
    }

    /// Begins a batch.
    fn begin(&mut self, depth: u32, time_ns: u64, advisor: &mut Advisor) {
        if self.lacks_exec() {
            match depth {
                1 => self.exec_ns = Some(time_ns),
                // The client sends the commands of a transaction in parts.
                _ => self.told = self.told.map(|told| told + depth),
            }
            return;
        }
        self.exec_ns = None;
        self.show(advisor);
        (self.told, self.first_ns, self.last_ns) = (Some(depth), time_ns, time_ns);
        // The rest of the transaction came at once.
        self.is_in_multi &= depth == 1;
    }

    /// True if the current batch began a transaction and did not end it: its other commands were not shown.
    fn lacks_exec(&self) -> bool {
        let is_cut = self.depth == 1 && self.told.is_some_and(|told| told > 1);
        is_cut && self.first.args().get(0).eq_ignore_ascii_case(b"MULTI")
    }

    /// Adds an EXEC that came by itself behind the batch of its transaction.
    fn add_exec(&mut self, command: &Args<'_>, (began_ns, now_ns): (u64, u64), advisor: &mut Advisor) {
        self.show(advisor);
        self.keep(command);
        (self.told, self.depth, self.first_ns, self.last_ns) = (Some(1), 1, began_ns, now_ns);
    }

    /// Adds a command that EXEC shows, or EXEC itself. Each command was a batch of its own, because EXEC is one.
    fn add_queued(&mut self, command: &Args<'_>, advisor: &mut Advisor) {
        let is_end = ends_transaction(command);
        if self.queued == 0 || is_end {
            self.show_queued(advisor);
            self.keep(command);
        }
        self.queued += u32::from(!is_end);
        if is_end {
            (self.is_in_multi, self.queued, self.depth) = (false, 0, 1);
        }
    }

    /// Shows the queued commands, evenly spread over the time since MULTI.
    fn show_queued(&mut self, advisor: &mut Advisor) {
        let step_ns = self.first_ns.saturating_sub(self.ran_ns) / u64::from(self.queued + 1);
        for _ in 0..self.queued {
            self.ran_ns += step_ns;
            let trip = Trip {
                command: self.first.args(),
                key: None,
                depth: 1,
                overlaps: false,
                arrived_ns: self.ran_ns,
                replied_ns: self.ran_ns,
                reply: None,
                redirected: 0,
            };
            advisor.trip(&mut self.connection, &trip);
        }
    }

    /// Keeps the first command of a batch.
    fn keep(&mut self, command: &Args<'_>) {
        self.first.clear();
        for argument in command.from(0) {
            self.first.push(argument);
        }
        self.reply_bytes = None;
    }

    /// Adds a command.
    fn add(&mut self, texts: &Texts, line: &Line<'_>, advisor: &mut Advisor) {
        if self.is_in_multi && self.told == Some(1) {
            self.last_ns = line.time_ns;
            return self.add_queued(&texts.args.args(), advisor);
        }
        if let Some(began_ns) = self.exec_ns.take_if(|_| ends_transaction(&texts.args.args())) {
            return self.add_exec(&texts.args.args(), (began_ns, line.time_ns), advisor);
        }
        let is_near = self.depth > 0 && line.time_ns.saturating_sub(self.last_ns) < TOGETHER_NS;
        if self.told.is_none() && !is_near {
            self.show(advisor);
            self.first_ns = line.time_ns;
        }
        let is_behind_multi = self.depth == 1 && self.first.args().get(0).eq_ignore_ascii_case(b"MULTI");
        if self.depth == 0 || is_behind_multi && self.told != Some(1) {
            self.keep(&texts.args.args());
            self.reply.clear();
            self.reply.extend_from_slice(&texts.reply);
            self.reply_bytes = line.reply_bytes;
        }
        // The batch ended before its commands were shown.
        self.last_ns = if self.exec_ns.is_some() { self.last_ns } else { line.time_ns };
        self.depth += 1;
        if self.client.learn(&texts.args.args()) {
            self.connection.set_client(self.client.clone());
        }
    }
}

impl MonitorReader {
    /// Returns a reader at the start of a log.
    #[must_use]
    pub fn new() -> MonitorReader {
        MonitorReader::default()
    }

    /// Sets the attributes of the client with this address and port. The address comes from the log.
    pub fn introduce(&mut self, source: &[u8], client: Client) {
        if let Some(watched) = self.connections.get_mut(source) {
            // The connection is still open.
            watched.connection.opened_ns = None;
            watched.client = Client { address: watched.client.address.clone(), ..client.clone() };
            watched.connection.set_client(watched.client.clone());
        }
        if self.known.len() < CONNECTIONS_MAX {
            self.known.insert(source.into(), client);
        }
    }

    /// Notes that all open connections were introduced. After the first list, any other connection opens in the log. After the second one, it
    /// has closed, too.
    pub fn note_list(&mut self) {
        self.lists += u32::from(self.known.len() < CONNECTIONS_MAX);
    }

    /// Takes the next bytes of the log.
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

    /// Ends the log.
    pub fn end(&mut self, advisor: &mut Advisor) {
        // The last line may lack its line end, and may be truncated.
        let line = std::mem::take(&mut self.line);
        self.line(&line, advisor);
        let shows_ends = self.lists > 1;
        for (_, mut watched) in self.connections.drain() {
            watched.show(advisor);
            watched.connection.opened_ns = watched.connection.opened_ns.filter(|_| shows_ends);
            advisor.closed(&mut watched.connection, watched.last_ns);
        }
    }

    /// Counters so far.
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

    /// Adds a new connection. At the limit, all other connections count as closed.
    fn begin(&mut self, source: &[u8], time_ns: u64, advisor: &mut Advisor) {
        if self.connections.len() >= CONNECTIONS_MAX {
            for (_, mut watched) in self.connections.drain() {
                watched.show(advisor);
                watched.connection.opened_ns = None;
                advisor.closed(&mut watched.connection, watched.last_ns);
            }
        }
        self.counts.connections += 1;
        let address = host(&String::from_utf8_lossy(source)).to_owned();
        let client = Client { address, ..self.known.get(source).cloned().unwrap_or_default() };
        let opens = self.lists == 1 && !self.known.contains_key(source);
        let mut connection = Connection::new(self.counts.connections, client.clone()).of_log();
        connection.opened_ns = opens.then_some(time_ns);
        let watched = Watched {
            connection,
            client,
            first: ArgsBuffer::default(),
            depth: 0,
            told: None,
            reply: Vec::new(),
            reply_bytes: None,
            first_ns: time_ns,
            last_ns: time_ns,
            ran_ns: 0,
            is_in_multi: false,
            queued: 0,
            exec_ns: None,
        };
        self.connections.insert(source.into(), watched);
    }
}

#[cfg(test)]
mod tests;
