//! Sends the same stream to two servers and reports the first difference.

use crate::bytes::{Command, as_typed, command, encode_all};
use crate::conn::Conn;
use crate::dataset;
use crate::families::{ALL, Family};
use crate::known_differences::{explains, explains_encoding, same_doubles};
use crate::normalise::{same, same_shape, sorted};
use crate::reply::Reply;
use crate::server::Server;
use crate::shrink::shrink;
use crate::stream::{Mode, Stream, generate};
use std::io;

/// The server under test and the oracle.
pub struct Servers {
    subject: Server,
    oracle: Server,
    /// Commands that the server under test doesn't have yet; they are not sent.
    missing: Vec<Vec<u8>>,
    /// True if the number of counted changes is compared after each command.
    compares_counts: bool,
}

/// Two connections, one to each server.
struct Pair {
    subject: Conn,
    oracle: Conn,
    /// The commands queued for EXEC, so that its reply can be compared element by element.
    queued: Vec<Command>,
    /// Set if the numbers of counted changes are compared, too.
    counts: Option<Counts>,
}

/// Reads each server's number of changes (`rdb_changes_since_last_save`) on separate connections.
struct Counts {
    subject: Conn,
    oracle: Conn,
    /// Each server's count after the last command.
    before: [i64; 2],
}

impl Counts {
    fn of(subject: Conn, oracle: Conn) -> io::Result<Counts> {
        let mut counts = Counts { subject, oracle, before: [0; 2] };
        counts.new_changes()?;
        Ok(counts)
    }

    /// Returns the changes since the last call, of the subject and of the oracle.
    fn new_changes(&mut self) -> io::Result<[i64; 2]> {
        let now = [counted_changes(&mut self.subject)?, counted_changes(&mut self.oracle)?];
        let new = [now[0] - self.before[0], now[1] - self.before[1]];
        self.before = now;
        Ok(new)
    }
}

fn counted_changes(conn: &mut Conn) -> io::Result<i64> {
    let info = conn.cmd("INFO persistence")?;
    let text = String::from_utf8_lossy(info.text()).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| io::Error::other("INFO doesn't say the changes"))
}

/// A difference between the servers.
#[derive(Debug)]
pub struct Difference {
    /// The index of the command with different replies; the stream's length for a difference in the data.
    at: usize,
    asked: String,
    subject: String,
    oracle: String,
}

/// A longer iteration counts as endless.
const ITERATIONS_MAX: usize = 100_000;

impl Servers {
    /// Starts both servers.
    pub fn start() -> Servers {
        let missing = missing_commands();
        // Small blocks, so that short streams have many.
        let args = ["--stream-node-max-entries", "5"];
        let (subject, oracle) = (Server::penstock(&args), Server::oracle(&args));
        Servers { subject, oracle, missing, compares_counts: false }
    }

    /// Starts the servers with another oracle.
    pub fn with_oracle(oracle: Server) -> Servers {
        Servers { oracle, ..Servers::start() }
    }

    /// Starts the servers with a node of a cluster under test. The reply to HELLO shows the mode, so it is not compared.
    pub fn with_node(subject: Server) -> Servers {
        let mut servers = Servers { subject, ..Servers::start() };
        servers.missing.push(b"HELLO".to_vec());
        servers
    }

    /// Starts the servers for a comparison that includes, beside the replies, the number of changes that each command
    /// counts. Each command waits for the previous reply.
    pub fn start_counting() -> Servers {
        Servers { compares_counts: true, ..Servers::start() }
    }

    fn lacks(&self, name: &[u8]) -> bool {
        self.missing.iter().any(|missing| missing.eq_ignore_ascii_case(name))
    }

    /// Runs `stream` on both servers and compares all replies and the resulting data.
    pub fn run(&self, stream: &Stream) -> Option<Difference> {
        let fresh = self.lacks(b"FLUSHALL").then(|| Server::penstock(&[]));
        let subject = fresh.as_ref().unwrap_or(&self.subject);
        let counts = self.compares_counts.then(|| Counts::of(subject.connect(), self.oracle.connect()).ok()).flatten();
        let (subject, oracle) = (subject.connect(), self.oracle.connect());
        let mut pair = Pair { subject, oracle, queued: Vec::new(), counts };
        pair.prepare(stream, fresh.is_some()).or_else(|| pair.run(stream)).or_else(|| self.compare_datasets(stream))
    }

    /// Runs the stream of `seed` for `family`; panics with the shortest stream found if the servers differ.
    pub fn check(&self, family: &Family, seed: u64) {
        self.check_those(family, seed, |_| true);
    }

    /// Like [`Servers::check`], with only the commands that `keeps` selects.
    pub fn check_those(&self, family: &Family, seed: u64, keeps: impl Fn(&Command) -> bool) {
        let mut stream = generate(family, seed);
        stream.commands.retain(|command| keeps(command) && !self.lacks(&command[0]));
        stream.resp3 &= !self.lacks(b"HELLO");
        if let Some(difference) = self.run(&stream) {
            panic!("{}", self.report(family, seed, &stream, difference));
        }
    }

    fn report(&self, family: &Family, seed: u64, stream: &Stream, found: Difference) -> String {
        let cut = &stream.commands[..(found.at + 1).min(stream.commands.len())];
        let with = |commands: &[Command]| Stream { commands: commands.to_vec(), ..stream.clone() };
        let commands = shrink(cut, |part| self.run(&with(part)).is_some());
        // A difference that does not recur (it depended on time or chance) is reported with the whole stream.
        let (commands, found) = match self.run(&with(&commands)) {
            Some(difference) => (commands, difference),
            None => (cut.to_vec(), found),
        };
        let replay: Vec<String> = commands.iter().map(|c| as_typed(c)).collect();
        format!(
            "penstock and the oracle differ ({}, PENSTOCK_SEED={seed}, RESP{}, {:?})\n{}\nasked:    {}\npenstock: {}\noracle:   {}\n",
            family.name,
            if stream.resp3 { 3 } else { 2 },
            stream.mode,
            replay.join("\n"),
            found.asked,
            found.subject,
            found.oracle
        )
    }

    fn compare_datasets(&self, stream: &Stream) -> Option<Difference> {
        let at = stream.commands.len();
        if [&b"FLUSHALL"[..], b"KEYS", b"TYPE", b"OBJECT", b"PTTL"].iter().any(|name| self.lacks(name)) {
            return None;
        }
        let subject = dataset::read(&mut self.subject.connect());
        let oracle = dataset::read(&mut self.oracle.connect());
        let (subject, oracle) = match (subject, oracle) {
            (Ok(subject), Ok(oracle)) => (subject, oracle),
            (subject, oracle) => {
                let asked = "everything, at the end".to_string();
                return Some(Difference { at, asked, subject: outcome(&subject), oracle: outcome(&oracle) });
            }
        };
        let shown = |entry: Option<&dataset::Entry>| entry.map_or("nothing".to_string(), |entry| format!("{entry:?}"));
        for i in 0..subject.len().max(oracle.len()) {
            let (a, b) = (subject.get(i), oracle.get(i));
            if !a.zip(b).is_some_and(|(a, b)| same_entry(a, b, sorts(stream))) {
                let asked = format!("what it holds at the end, key {i}");
                return Some(Difference { at, asked, subject: shown(a), oracle: shown(b) });
            }
        }
        None
    }
}

/// Returns the commands of the families that are unknown to the server under test.
fn missing_commands() -> Vec<Vec<u8>> {
    let server = Server::penstock(&[]);
    let mut names: Vec<&str> = ALL.iter().flat_map(|family| family.table.lines()).filter_map(template_name).collect();
    names.sort();
    names.dedup();
    let is_unknown = |name: &&str| {
        let reply = server.connect().cmd(name);
        *name != "NOSUCHCOMMAND" && reply.is_ok_and(|reply| reply.text().starts_with(b"ERR unknown command"))
    };
    names.into_iter().filter(is_unknown).map(|name| name.as_bytes().to_vec()).collect()
}

/// Returns the command's name in a line of a table.
fn template_name(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| !word.ends_with(':'))
}

/// `sorted` is true after SORT, which leaves a sorted set in its large encoding in Redis, but unchanged in Penstock.
fn same_entry(subject: &dataset::Entry, oracle: &dataset::Entry, sorted: bool) -> bool {
    let content = subject.content == oracle.content || {
        let all = |entry: &dataset::Entry| Reply::Many(b'*', entry.content.concat());
        oracle.kind == "zset" && same_doubles(&all(subject), &all(oracle))
    };
    let encoding = subject.encoding == oracle.encoding
        || explains_encoding(subject, oracle)
        || sorted && (subject.encoding.as_str(), oracle.encoding.as_str()) == ("listpack", "skiplist");
    let rest = |e: &dataset::Entry| (e.database, e.key.clone(), e.kind.clone(), e.expires);
    content && encoding && rest(subject) == rest(oracle)
}

fn sorts(stream: &Stream) -> bool {
    stream.commands.iter().any(|command| command[0].to_ascii_uppercase().starts_with(b"SORT"))
}

impl Pair {
    fn prepare(&mut self, stream: &Stream, fresh: bool) -> Option<Difference> {
        let mut commands = vec![command("FLUSHALL")];
        if fresh {
            let _ = self.oracle.cmd("FLUSHALL");
            commands.clear();
        }
        if stream.resp3 {
            commands.push(command("HELLO 3"));
        }
        // A difference here belongs to no command of the stream, but shrinking must still work.
        self.batch(&commands, 0)
    }

    fn run(&mut self, stream: &Stream) -> Option<Difference> {
        let size = match stream.mode {
            _ if self.counts.is_some() => 1,
            Mode::OneByOne => 1,
            Mode::Pipelined(size) => size,
        };
        let mut batch = Vec::new();
        let mut start = 0;
        let mut in_multi = false;
        for (at, command) in stream.commands.iter().enumerate() {
            let alone = needs_own_exchange(command);
            in_multi = stays_in_multi(command, in_multi);
            if alone && in_multi {
                // A random choice within a transaction can't be repeated on the other server.
                continue;
            }
            if alone || batch.len() == size {
                if let Some(difference) = self.batch(&batch, start) {
                    return Some(difference);
                }
                batch.clear();
            }
            if alone {
                if let Some(difference) = self.exchange(command, at) {
                    return Some(difference);
                }
                continue;
            }
            if batch.is_empty() {
                start = at;
            }
            batch.push(command.clone());
        }
        self.batch(&batch, start)
    }

    /// Sends `commands` at once to both servers and compares each reply; `start` is the index of the first command.
    fn batch(&mut self, commands: &[Command], start: usize) -> Option<Difference> {
        let bytes = encode_all(commands);
        let sent = (self.subject.send(&bytes), self.oracle.send(&bytes));
        for (i, command) in commands.iter().enumerate() {
            let subject = sent.0.as_ref().map_err(copy).and_then(|()| self.subject.read());
            let oracle = sent.1.as_ref().map_err(copy).and_then(|()| self.oracle.read());
            if !self.agree(command, &subject, &oracle) {
                return Some(difference(start + i, command, &subject, &oracle));
            }
        }
        let last = commands.last()?;
        self.compare_counts(last, start + commands.len() - 1)
    }

    /// Compares the number of changes that a command has counted.
    fn compare_counts(&mut self, command: &Command, at: usize) -> Option<Difference> {
        let shown = |count: i64| Ok(Reply::Line(b':', format!("{count} changes counted").into_bytes()));
        match self.counts.as_mut()?.new_changes() {
            Ok([subject, oracle]) if subject == oracle => None,
            Ok([subject, oracle]) => Some(difference(at, command, &shown(subject), &shown(oracle))),
            Err(e) => Some(difference(at, command, &Err(e), &shown(0))),
        }
    }

    fn agree(&mut self, command: &Command, subject: &io::Result<Reply>, oracle: &io::Result<Reply>) -> bool {
        let (Ok(subject), Ok(oracle)) = (subject, oracle) else { return false };
        let one = |command: &[Vec<u8>], a: &Reply, b: &Reply| same(command, a, b) || explains(command, a, b);
        let name = command[0].to_ascii_uppercase();
        match name.as_slice() {
            b"EXEC" if oracle.tag() == b'*' && !oracle.is_null() => {
                let queued = std::mem::take(&mut self.queued);
                let lengths = (subject.items().len(), oracle.items().len());
                let mut replies = queued.iter().zip(subject.items().iter().zip(oracle.items()));
                let agree = replies.all(|(command, (a, b))| one(command, a, b));
                return agree && subject.tag() == b'*' && lengths == (queued.len(), queued.len());
            }
            _ if oracle.text() == b"QUEUED" => self.queued.push(command.clone()),
            b"EXEC" | b"DISCARD" | b"RESET" => self.queued.clear(),
            _ => {}
        }
        one(command, subject, oracle)
    }

    /// Handles commands with replies that depend on chance or on the table's layout, by making the replies comparable.
    fn exchange(&mut self, command: &Command, at: usize) -> Option<Difference> {
        let name = command[0].to_ascii_uppercase();
        let outcome = match name.as_slice() {
            b"SPOP" => self.pop(command),
            b"XADD" => self.add(command),
            _ => self.iterate(command),
        };
        match outcome {
            // For SPOP the oracle gets other commands than the subject.
            Ok(None) if name == b"SPOP" => {
                let _ = self.counts.as_mut().map(Counts::new_changes);
                None
            }
            Ok(None) => self.compare_counts(command, at),
            Ok(Some((subject, oracle))) => Some(difference(at, command, &Ok(subject), &Ok(oracle))),
            Err(e) => Some(difference(at, command, &Err(e), &Ok(Reply::Line(b'+', b"...".to_vec())))),
        }
    }

    /// SPOP: removes the members that one server popped from the other one, which must have had them.
    fn pop(&mut self, command: &Command) -> io::Result<Option<(Reply, Reply)>> {
        let popped = self.subject.call(command)?;
        let members: Vec<Vec<u8>> = match &popped {
            Reply::Blob(b'$', member) => vec![member.clone()],
            _ => popped.items().iter().map(|item| item.text().to_vec()).collect(),
        };
        if popped.is_error() || members.is_empty() {
            let oracle = self.oracle.call(command)?;
            return Ok((popped != oracle).then_some((popped, oracle)));
        }
        let key = command[1].clone();
        let scratch = b"scratch for pop".to_vec();
        let with_key = |name: &[u8], rest: &[Vec<u8>]| [&[name.to_vec(), key.clone()], rest].concat();
        // The oracle pops from a copy, so that the shape of its reply can be compared, too.
        self.oracle.call(&with_key(b"COPY", &[scratch.clone(), b"REPLACE".to_vec()]))?;
        let mut from_scratch = command.clone();
        from_scratch[1] = scratch.clone();
        let shape = self.oracle.call(&from_scratch)?;
        self.oracle.call(&[b"DEL".to_vec(), scratch])?;
        if shape.is_error() || !same_shape(&popped, &shape) {
            return Ok(Some((popped, shape)));
        }
        let removed = self.oracle.call(&with_key(b"SREM", &members))?;
        let all_removed = removed.integer() == Some(members.len() as i64);
        Ok((!all_removed).then_some((popped, removed)))
    }

    /// XADD with an ID generated by the server: the oracle gets the ID of the subject.
    fn add(&mut self, command: &Command) -> io::Result<Option<(Reply, Reply)>> {
        let added = self.subject.call(command)?;
        let mut command = command.clone();
        if let (Reply::Blob(b'$', id), Some(given)) = (&added, command.iter_mut().find(|arg| *arg == b"*")) {
            *given = id.clone();
        }
        let oracle = self.oracle.call(&command)?;
        Ok((added != oracle && !explains(&command, &added, &oracle)).then_some((added, oracle)))
    }

    /// The scan family: compares the set of elements of a whole iteration.
    fn iterate(&mut self, command: &Command) -> io::Result<Option<(Reply, Reply)>> {
        let subject = iterate_on(&mut self.subject, command)?;
        let oracle = iterate_on(&mut self.oracle, command)?;
        let differ = subject != oracle && !explains(command, &subject, &oracle);
        Ok(differ.then_some((subject, oracle)))
    }
}

/// Returns the elements of a whole iteration, sorted and without duplicates; or the first reply if it is an error.
fn iterate_on(conn: &mut Conn, command: &Command) -> io::Result<Reply> {
    let name = command[0].to_ascii_uppercase();
    let cursor_at = if name == b"SCAN" { 1 } else { 2 };
    let group = if matches!(name.as_slice(), b"HSCAN" | b"ZSCAN") { 2 } else { 1 };
    let mut command = command.clone();
    let mut found = Vec::new();
    for _ in 0..ITERATIONS_MAX {
        let reply = conn.call(&command)?;
        let [cursor, elements] = reply.items() else { return Ok(reply) };
        found.extend(sorted(elements, group));
        if cursor.text() == b"0" {
            break;
        }
        command[cursor_at] = cursor.text().to_vec();
    }
    found.sort();
    found.dedup();
    Ok(Reply::Many(b'*', found.concat()))
}

/// True for commands that can't be compared reply by reply within a pipeline.
fn needs_own_exchange(command: &Command) -> bool {
    let cursor_at = match command[0].to_ascii_uppercase().as_slice() {
        b"SPOP" => return true,
        b"XADD" => return command.iter().any(|arg| arg == b"*"),
        b"SCAN" => 1,
        b"SSCAN" | b"HSCAN" | b"ZSCAN" => 2,
        _ => return false,
    };
    command.get(cursor_at).is_some_and(|cursor| cursor == b"0")
}

fn stays_in_multi(command: &Command, in_multi: bool) -> bool {
    match (command[0].to_ascii_uppercase().as_slice(), command.len()) {
        (b"MULTI", 1) => true,
        (b"EXEC" | b"DISCARD", 1) | (b"RESET", 1) => false,
        _ => in_multi,
    }
}

fn difference(at: usize, command: &Command, subject: &io::Result<Reply>, oracle: &io::Result<Reply>) -> Difference {
    Difference { at, asked: as_typed(command), subject: outcome(subject), oracle: outcome(oracle) }
}

fn outcome<T: std::fmt::Debug>(result: &io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(e) => format!("no reply: {e}"),
    }
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
