//! One connection of a thread to another node, for forwarded commands.
//!
//! Requests are appended in the order of the clients' runs, and replies come back in that order. The link knows for each reply which client
//! it is for. It never repeats a request: after a failure, the outcome of a write that has been sent is unknown.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use engine::slots::forward::{ForwardedCommand, Share, Target};
use resp::parse::encode_request;
use resp::skim::Skimmer;

use crate::bus::socket::BusSocket;

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// Bytes read in one turn. Other connections must not starve.
const TURN_BYTES: usize = 1024 * 1024;
/// Bytes of memory that an empty buffer keeps.
const KEPT_BYTES: usize = 256 * 1024;

/// The name that a link shows in CLIENT LIST of the other node.
const LIBRARY: &str = "penstock-forward";

/// The place of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTo {
    /// The client.
    pub client: u64,
    /// The chunk of its held replies.
    pub chunk: u64,
    /// The command's index in the chunk.
    pub index: usize,
}

/// All commands of a chunk for the link's node, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareId {
    /// The client.
    pub client: u64,
    /// The chunk of its held replies.
    pub chunk: u64,
    /// The index of the node among the chunk's targets.
    pub target: usize,
}

/// The use of the next reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// The other node accepts the credentials, or the link is useless.
    Login,
    /// The reply is unused: the other node may not know the command.
    Nothing,
    /// The other node counts for the client's pipeline, or the link is useless. The client may be asking for the count.
    Attached { to: Option<ReplyTo> },
    /// The other node has forgotten the count, and the link ends.
    Ended,
    /// The reply to a command of a transaction, before EXEC's. A redirect concerns the whole transaction.
    Queued,
    /// The reply is for a client.
    Reply {
        to: ReplyTo,
        only_reads: bool,
        /// The start of its request in the stream of all requests.
        sent_from: u64,
    },
    /// The next replies are for a client: one for each of the last commands of a share.
    Replies {
        to: ShareId,
        left: usize,
        /// The start of the share's requests in the stream of all requests.
        sent_from: u64,
    },
}

/// The end of a link.
#[derive(Debug)]
pub struct Broken {
    /// The reason.
    pub reason: String,
    /// True if this end is no failure.
    pub is_wanted: bool,
}

impl Broken {
    /// Creates the end of a link that has failed.
    pub fn new(reason: impl std::fmt::Display) -> Broken {
        Broken { reason: reason.to_string(), is_wanted: false }
    }
}

/// Commands without replies, because their link broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// One command.
    Command {
        /// The place of its reply.
        to: ReplyTo,
        /// True if the command may have run and changed something.
        is_unknown: bool,
    },
    /// The last commands of a share.
    Share {
        /// The share.
        to: ShareId,
        /// The number of these commands.
        left: usize,
        /// The number of bytes of the share's requests that have been sent. Commands may have run if their requests begin before.
        sent: usize,
    },
}

/// Results of commands at the other node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The reply for the client: its place in [`Received::bytes`].
    Reply(ReplyTo, Range<usize>),
    /// The other node names another node that has the keys: a line of `MOVED` or `ASK`, without `-`.
    Redirect(ReplyTo, Vec<u8>),
    /// The replies to the next commands of a share: their place in [`Received::bytes`], and that of their lengths in
    /// [`Received::lengths`].
    Replies(ShareId, Range<usize>, Range<usize>),
    /// Like [`Outcome::Redirect`], for the next command of a share.
    RedirectOfShare(ShareId, Vec<u8>),
}

impl Outcome {
    /// Returns the client, and the chunk of its held replies.
    pub fn chunk(&self) -> (u64, u64) {
        match self {
            Outcome::Reply(to, _) | Outcome::Redirect(to, _) => (to.client, to.chunk),
            Outcome::Replies(to, ..) | Outcome::RedirectOfShare(to, _) => (to.client, to.chunk),
        }
    }
}

/// Replies that the link has received.
#[derive(Default, Debug)]
pub struct Received {
    /// The input. It may end with the beginning of another reply.
    pub bytes: Vec<u8>,
    /// The results of commands, in order.
    pub outcomes: Vec<Outcome>,
    /// The lengths of the replies to commands of shares, in order.
    pub lengths: Vec<usize>,
}

impl Received {
    /// Adds the reply to the next command of a share.
    #[inline]
    fn push(&mut self, to: ShareId, place: Range<usize>) {
        if let Some(line) = redirect(&self.bytes[place.clone()]) {
            let line = line.to_vec();
            return self.outcomes.push(Outcome::RedirectOfShare(to, line));
        }
        let at = self.lengths.len();
        self.lengths.push(place.len());
        match self.outcomes.last_mut() {
            Some(Outcome::Replies(last, bytes, lengths)) if *last == to && bytes.end == place.start => {
                (bytes.end, lengths.end) = (place.end, at + 1);
            }
            _ => self.outcomes.push(Outcome::Replies(to, place, at..at + 1)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Connecting,
    Encrypting,
    Open,
}

/// See the module's documentation.
pub struct Link {
    /// The other node.
    pub target: Target,
    socket: BusSocket,
    phase: Phase,
    output: Vec<u8>,
    /// Bytes at the start of `output` that are sent.
    output_sent: usize,
    /// Bytes sent before those in `output`.
    sent_before: u64,
    /// The input, and the outcomes of commands in it that have not been taken.
    received: Received,
    /// The end of the input in `received`. The rest is room for the next read, so that each byte is set to zero only once.
    filled: usize,
    /// The end of the complete replies in the input.
    parsed: usize,
    skimmer: Skimmer,
    expected: VecDeque<Expected>,
    /// The redirect of a queued command of the present transaction.
    redirect: Option<Vec<u8>>,
    /// True if the other node has been told to count.
    is_attached: bool,
    /// True if the other node has refused the link, so that it ran no command.
    is_refused: bool,
    /// True if the other node has been told to forget the count.
    is_ending: bool,
    /// The time of the last progress, in milliseconds of the thread's monotonic clock.
    active_ms: u64,
    /// True while the poller watches for room to write.
    pub wants_write: bool,
}

/// The credentials for other nodes; `None` if they need none.
pub type Login = Option<(String, String)>;

impl Link {
    /// Begins a link with a socket that may still be connecting.
    pub fn new(target: Target, socket: BusSocket, login: Login, now_ms: u64) -> Link {
        let mut link = Link {
            target,
            socket,
            phase: Phase::Connecting,
            output: Vec::new(),
            output_sent: 0,
            sent_before: 0,
            received: Received::default(),
            filled: 0,
            parsed: 0,
            skimmer: Skimmer::new(),
            expected: VecDeque::new(),
            redirect: None,
            is_attached: false,
            is_refused: false,
            is_ending: false,
            active_ms: now_ms,
            wants_write: true,
        };
        link.introduce(login);
        link
    }

    fn introduce(&mut self, login: Login) {
        if let Some((user, password)) = &login {
            let words = if user.is_empty() { vec!["AUTH", password] } else { vec!["AUTH", user, password] };
            self.ask(&words, Expected::Login);
        }
        if self.target.resp3 {
            self.ask(&["HELLO", "3"], Expected::Login);
        }
        // A node that forwards commands itself takes this connection for one that knows clusters: no command is forwarded twice.
        self.ask(&["ASKING"], Expected::Nothing);
        self.ask(&["CLIENT", "SETINFO", "LIB-NAME", LIBRARY], Expected::Nothing);
    }

    fn ask(&mut self, words: &[&str], expected: Expected) {
        encode_request(words, &mut self.output);
        self.expected.push_back(expected);
    }

    /// Appends a command. `asks`: ASKING must precede it.
    pub fn push(&mut self, command: &ForwardedCommand, asks: bool, requests: &[u8], to: ReplyTo, now_ms: u64) {
        if self.expected.is_empty() {
            self.active_ms = now_ms;
        }
        if self.target.counter.is_some() && (command.attaches || !self.is_attached) {
            self.attach(command.attaches.then_some(to));
        }
        if command.attaches {
            return;
        }
        match command.counted {
            Some(counted) => {
                let position = counted.position.to_string();
                let words = ["PIPELINE", "AT", &position, "ASKING"];
                self.ask(&words[..3 + usize::from(asks)], Expected::Nothing);
            }
            None if asks => self.ask(&["ASKING"], Expected::Nothing),
            None => {}
        }
        // The client of a counted command is closed rather than told a guess.
        let only_reads = command.only_reads && command.counted.is_none();
        let sent_from = self.sent_before + self.output.len() as u64;
        self.output.extend_from_slice(requests);
        self.expected.extend(std::iter::repeat_n(Expected::Queued, command.skipped));
        self.expected.push_back(Expected::Reply { to, only_reads, sent_from });
    }

    /// Appends all commands of a share whose requests can be sent in one piece. The target has no counter.
    pub fn push_share(&mut self, share: &Share, to: ShareId, now_ms: u64) {
        if self.expected.is_empty() {
            self.active_ms = now_ms;
        }
        let sent_from = self.sent_before + self.output.len() as u64;
        self.output.extend_from_slice(&share.requests);
        self.expected.push_back(Expected::Replies { to, left: share.commands, sent_from });
    }

    /// Has the other node count for the client's pipeline. `to` gets its present count.
    fn attach(&mut self, to: Option<ReplyTo>) {
        let Some(counter) = self.target.counter.clone() else { return };
        self.is_attached = true;
        let [generation, seconds] = [counter.generation, counter.ttl_s].map(|number| number.to_string());
        let name = String::from_utf8_lossy(&counter.name);
        self.ask(&["PIPELINE", "ATTACH", &name, &generation, &seconds], Expected::Attached { to });
    }

    /// Has the other node forget its count for the client's pipeline.
    pub fn end_token(&mut self, now_ms: u64) {
        let Some(counter) = self.target.counter.clone().filter(|_| !self.is_ending) else { return };
        if self.expected.is_empty() {
            self.active_ms = now_ms;
        }
        self.is_ending = true;
        self.ask(&["PIPELINE", "END", &String::from_utf8_lossy(&counter.name)], Expected::Ended);
    }

    /// Returns true if the link ends by itself.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns true if there are requests to send.
    pub fn has_output(&self) -> bool {
        self.output_sent < self.output.len() || self.socket.has_records() || self.phase != Phase::Open
    }

    /// The number of bytes of requests that have not been sent.
    pub fn unsent_bytes(&self) -> usize {
        self.output.len() - self.output_sent
    }

    /// Continues to connect, and sends as much as the socket takes.
    ///
    /// # Errors
    /// The link is broken.
    pub fn send(&mut self) -> Result<(), Broken> {
        while let Some(unsent) = self.output.get(self.output_sent..).filter(|unsent| !unsent.is_empty()) {
            match self.socket.write(unsent).map_err(Broken::new)? {
                Some(bytes) => self.output_sent += bytes,
                None => return Ok(()),
            }
        }
        self.sent_before += self.output_sent as u64;
        self.output_sent = 0;
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES);
        Ok(())
    }

    /// Continues to connect. Returns true once requests can be sent.
    ///
    /// # Errors
    /// There is no connection.
    pub fn connect(&mut self) -> Result<bool, Broken> {
        if self.phase == Phase::Connecting {
            self.socket.check_connected().map_err(Broken::new)?;
            self.phase = Phase::Encrypting;
        }
        if self.phase == Phase::Encrypting && self.socket.shake_hands().map_err(Broken::new)? {
            self.phase = Phase::Open;
        }
        Ok(self.phase == Phase::Open)
    }

    /// Returns true once requests can be sent.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Reads replies. [`Link::take_received`] has them, also after an error.
    ///
    /// # Errors
    /// The link is broken.
    pub fn receive(&mut self, now_ms: u64) -> Result<(), Broken> {
        let mut left = TURN_BYTES;
        while left > 0 {
            let (start, end) = (self.filled, self.filled + READ_BYTES);
            if self.received.bytes.len() < end {
                self.received.bytes.resize(end, 0);
            }
            match self.socket.read(&mut self.received.bytes[start..end]).map_err(Broken::new)? {
                None => break,
                Some(0) => return Err(Broken::new("the other node closed the connection")),
                Some(bytes) => {
                    (self.active_ms, left) = (now_ms, left.saturating_sub(bytes));
                    self.filled = start + bytes;
                    self.parse(start)?;
                    if bytes < READ_BYTES && matches!(self.socket, BusSocket::Plain(_)) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the replies that have been received. The caller gives their memory back.
    pub fn take_received(&mut self) -> Received {
        std::mem::take(&mut self.received)
    }

    /// Takes the memory of replies back, and keeps the beginning of the next reply.
    pub fn give_back(&mut self, mut received: Received) {
        if self.parsed > 0 {
            received.bytes.copy_within(self.parsed..self.filled, 0);
            (self.filled, self.parsed) = (self.filled - self.parsed, 0);
        }
        // An incomplete reply that is large keeps its memory: it would be copied with each read otherwise.
        if received.bytes.len() > KEPT_BYTES && self.filled <= KEPT_BYTES {
            received.bytes.truncate(KEPT_BYTES);
            received.bytes.shrink_to_fit();
        }
        received.outcomes.clear();
        received.lengths.clear();
        self.received = received;
    }

    /// Finds the complete replies in the input, which has been parsed up to `new`.
    fn parse(&mut self, new: usize) -> Result<(), Broken> {
        let mut at = new;
        while at < self.filled {
            let before = self.skimmer.replies();
            at += self.skimmer.feed_one(&self.received.bytes[at..self.filled]).map_err(Broken::new)?;
            if self.skimmer.replies() > before {
                let reply = self.parsed..at;
                self.parsed = at;
                self.take_reply(reply)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn take_reply(&mut self, place: Range<usize>) -> Result<(), Broken> {
        match self.expected.front_mut() {
            Some(Expected::Replies { to, left, .. }) => {
                self.received.push(*to, place);
                *left -= 1;
                if *left == 0 {
                    self.expected.pop_front();
                }
                Ok(())
            }
            _ => self.take_other_reply(place),
        }
    }

    /// Takes a reply that is not one of a share.
    fn take_other_reply(&mut self, place: Range<usize>) -> Result<(), Broken> {
        let reply = &self.received.bytes[place.clone()];
        match self.expected.pop_front() {
            None => return Err(Broken::new("the other node sent a reply without a request")),
            Some(Expected::Login) => {
                if let Some(text) = error_text(reply) {
                    self.is_refused = true;
                    return Err(Broken::new(format!("the other node refuses the login: {text}")));
                }
            }
            Some(Expected::Attached { to }) => {
                let error = error_text(reply);
                self.received.outcomes.extend(to.map(|to| Outcome::Reply(to, place)));
                if let Some(text) = error {
                    self.is_refused = true;
                    return Err(Broken::new(format!("the other node does not count for a pipeline token: {text}")));
                }
            }
            Some(Expected::Ended) => {
                return Err(Broken { reason: "the pipeline token has ended".to_owned(), is_wanted: true });
            }
            Some(Expected::Nothing) => {}
            Some(Expected::Queued) => {
                self.redirect = self.redirect.take().or_else(|| redirect(reply).map(<[u8]>::to_vec))
            }
            Some(Expected::Reply { to, .. }) => {
                let of_transaction = self.redirect.take().filter(|_| reply.starts_with(b"-EXECABORT"));
                let outcome = match redirect(reply).map(<[u8]>::to_vec).or(of_transaction) {
                    Some(line) => Outcome::Redirect(to, line),
                    None => Outcome::Reply(to, place),
                };
                self.received.outcomes.push(outcome);
            }
            // `take_reply` has these.
            Some(Expected::Replies { .. }) => {}
        }
        Ok(())
    }

    /// Returns true if the other node has not answered for this time.
    pub fn is_late(&self, now_ms: u64, timeout_ms: u64) -> bool {
        !self.expected.is_empty() && now_ms.saturating_sub(self.active_ms) > timeout_ms
    }

    /// Ends the link. Returns the commands without a reply.
    pub fn end(self) -> impl Iterator<Item = Unanswered> {
        let sent = if self.is_refused { 0 } else { self.sent_before + self.output_sent as u64 };
        self.expected.into_iter().filter_map(move |expected| match expected {
            Expected::Reply { to, only_reads, sent_from } => {
                Some(Unanswered::Command { to, is_unknown: !only_reads && sent_from < sent })
            }
            Expected::Replies { to, left, sent_from } => {
                Some(Unanswered::Share { to, left, sent: sent.saturating_sub(sent_from) as usize })
            }
            Expected::Attached { to } => to.map(|to| Unanswered::Command { to, is_unknown: false }),
            _ => None,
        })
    }
}

/// Returns the text of an error reply.
fn error_text(reply: &[u8]) -> Option<String> {
    reply.strip_prefix(b"-").map(|error| String::from_utf8_lossy(error).trim_end().to_owned())
}

/// Returns the line of a redirect, without `-` and the line's end.
fn redirect(reply: &[u8]) -> Option<&[u8]> {
    let line = reply.strip_prefix(b"-")?.strip_suffix(b"\r\n")?;
    (line.starts_with(b"MOVED ") || line.starts_with(b"ASK ")).then_some(line)
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a socket to another node.
///
/// # Errors
/// The address or the configuration is unusable.
pub fn open(target: &Target, settings: &config::Settings) -> Result<BusSocket, String> {
    let source = settings.bind_source_addr.get();
    let tcp = BusSocket::connect(&target.host, target.port, &source).map_err(|error: io::Error| error.to_string())?;
    if settings.tls_cluster.get() {
        return BusSocket::encrypt_outbound(tcp, &target.host, settings);
    }
    Ok(BusSocket::Plain(tcp))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use engine::slots::forward::{Counted, Counter};

    use super::*;

    const INTRODUCTION: &str =
        "*1\r\n$6\r\nASKING\r\n*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$16\r\npenstock-forward\r\n";

    fn command(skipped: usize, only_reads: bool) -> ForwardedCommand {
        ForwardedCommand { at: 0, target: 0, asks: false, only_reads, counted: None, attaches: false, skipped, end: 0 }
    }

    fn to(index: usize) -> ReplyTo {
        ReplyTo { client: 7, chunk: 3, index }
    }

    /// Returns an open link, and the other end of its connection.
    fn open_link(login: Login) -> (Link, TcpStream) {
        open_link_for(login, None)
    }

    /// Returns an open link for the pipeline of a client.
    fn counting_link() -> (Link, TcpStream) {
        let counter = Counter { name: b"n"[..].into(), generation: 7, ttl_s: 60 };
        open_link_for(None, Some(Arc::new(counter)))
    }

    fn open_link_for(login: Login, counter: Option<Arc<Counter>>) -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = Target { host: address.ip().to_string(), port: address.port(), resp3: false, counter };
        let socket = BusSocket::connect(&target.host, target.port, "").unwrap();
        let (other, _) = listener.accept().unwrap();
        let mut link = Link::new(target, BusSocket::Plain(socket), login, 0);
        assert!(link.has_output() && !link.is_open());
        assert!(link.connect().unwrap());
        link.send().unwrap();
        (link, other)
    }

    fn expect(other: &mut TcpStream, expected: &str) {
        let mut bytes = vec![0; expected.len()];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    /// Receives until there are so many replies, or the link breaks.
    fn receive(link: &mut Link, count: usize) -> Result<Vec<String>, Broken> {
        let mut received = Vec::new();
        while received.len() < count {
            let result = link.receive(9);
            let taken = link.take_received();
            for outcome in &taken.outcomes {
                assert_eq!(outcome.chunk(), (7, 3));
                received.push(match outcome {
                    Outcome::Reply(to, place) => shown("Reply", to.index, &taken.bytes[place.clone()]),
                    Outcome::Redirect(to, line) => shown("Redirect", to.index, line),
                    Outcome::RedirectOfShare(of, line) => shown("Redirect of share", of.target, line),
                    Outcome::Replies(of, place, lengths) => {
                        let shown = shown("Replies of share", of.target, &taken.bytes[place.clone()]);
                        format!("{shown} {:?}", &taken.lengths[lengths.clone()])
                    }
                });
            }
            link.give_back(taken);
            result?;
            std::thread::yield_now();
        }
        Ok(received)
    }

    fn unanswered(unanswered: Unanswered) -> (usize, bool) {
        match unanswered {
            Unanswered::Command { to, is_unknown } => (to.index, is_unknown),
            Unanswered::Share { left, sent, .. } => (left, sent > 0),
        }
    }

    fn shown(kind: &str, index: usize, bytes: impl AsRef<[u8]>) -> String {
        format!("{kind} {index}: {:?}", String::from_utf8_lossy(bytes.as_ref()))
    }

    #[test]
    fn replies_are_matched_with_commands_in_order_and_in_pieces() {
        let (mut link, mut other) = open_link(None);
        expect(&mut other, INTRODUCTION);
        link.push(&command(0, false), false, b"*1\r\n$1\r\nA\r\n", to(0), 5);
        link.push(&command(0, false), true, b"*1\r\n$1\r\nB\r\n", to(1), 5);
        assert!(link.has_output());
        link.send().unwrap();
        assert!(!link.has_output());
        expect(&mut other, "*1\r\n$1\r\nA\r\n*1\r\n$6\r\nASKING\r\n*1\r\n$1\r\nB\r\n");
        // A node that does not know the introduction's commands is no problem.
        for byte in b"-ERR\r\n-ERR unknown command\r\n*2\r\n$1\r\na\r\n:1\r\n+OK\r\n-MOVED 5 10.0.0.1:7\r\n" {
            other.write_all(&[*byte]).unwrap();
        }
        let received = receive(&mut link, 2).unwrap();
        assert_eq!(
            received,
            [shown("Reply", 0, "*2\r\n$1\r\na\r\n:1\r\n"), shown("Redirect", 1, "MOVED 5 10.0.0.1:7"),]
        );
        assert!(!link.is_late(1_000_000, 10), "there is nothing to wait for");
    }

    fn share(requests: &str, commands: usize) -> Share {
        Share { requests: requests.as_bytes().to_vec(), commands, is_plain: true }
    }

    fn share_id(target: usize) -> ShareId {
        ShareId { client: 7, chunk: 3, target }
    }

    #[test]
    fn the_replies_of_a_share_are_taken_together() {
        let (mut link, mut other) = open_link(None);
        expect(&mut other, INTRODUCTION);
        link.push_share(&share("*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n", 4), share_id(0), 5);
        link.push(&command(0, false), true, b"*1\r\n$1\r\nC\r\n", to(9), 5);
        link.push_share(&share("", 1), share_id(1), 5);
        link.send().unwrap();
        expect(&mut other, "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n*1\r\n$6\r\nASKING\r\n*1\r\n$1\r\nC\r\n");
        other.write_all(b"+OK\r\n+OK\r\n:1\r\n$1\r\na\r\n-MOVED 5 h:7\r\n-ERR x\r\n+OK\r\n:9\r\n:2\r\n").unwrap();
        assert_eq!(
            receive(&mut link, 5).unwrap(),
            [
                shown("Replies of share", 0, ":1\r\n$1\r\na\r\n") + " [4, 7]",
                shown("Redirect of share", 0, "MOVED 5 h:7"),
                shown("Replies of share", 0, "-ERR x\r\n") + " [8]",
                shown("Reply", 9, ":9\r\n"),
                shown("Replies of share", 1, ":2\r\n") + " [4]",
            ]
        );
        assert!(!link.is_late(1_000_000, 10), "there is nothing to wait for");
    }

    #[test]
    fn the_unsent_part_of_a_share_is_known() {
        let (mut link, mut other) = open_link(None);
        link.push_share(&share("*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n", 2), share_id(0), 5);
        link.send().unwrap();
        link.push_share(&share("*1\r\n$1\r\nC\r\n", 1), share_id(1), 5);
        other.write_all(b"+OK\r\n+OK\r\n:1\r\n").unwrap();
        receive(&mut link, 1).unwrap();
        let without_reply: Vec<_> = link.end().collect();
        assert_eq!(
            without_reply,
            [
                Unanswered::Share { to: share_id(0), left: 1, sent: 22 },
                Unanswered::Share { to: share_id(1), left: 1, sent: 0 },
            ]
        );
    }

    #[test]
    fn the_memory_of_a_large_reply_is_freed_once_it_is_complete() {
        let (mut link, mut other) = open_link(None);
        link.push(&command(0, true), false, b"", to(0), 0);
        let (value, len) = (vec![b'x'; 3 << 20], 3 << 20);
        let sender = std::thread::spawn(move || {
            other.write_all(format!("+OK\r\n+OK\r\n${len}\r\n").as_bytes()).unwrap();
            other.write_all(&[&value[..], b"\r\n+"].concat()).unwrap();
            other
        });
        let received = receive(&mut link, 1).unwrap();
        assert!(received[0].len() > len, "{}", received[0].len());
        let _other = sender.join().unwrap();
        while link.filled == 0 {
            link.receive(9).unwrap();
            std::thread::yield_now();
        }
        assert_eq!((link.filled, link.received.bytes.len()), (1, KEPT_BYTES));
    }

    #[test]
    fn a_redirect_within_a_transaction_concerns_the_whole() {
        let (mut link, mut other) = open_link(None);
        for index in 0..3 {
            link.push(&command(2, false), false, b"", to(index), 0);
        }
        let refused = "-EXECABORT Transaction discarded because of previous errors.\r\n";
        let first = format!("+OK\r\n-ASK 5 h:7\r\n{refused}");
        let second = format!("+OK\r\n-ERR wrong number of arguments\r\n{refused}");
        other.write_all(format!("+OK\r\n+OK\r\n{first}{second}+OK\r\n+QUEUED\r\n*1\r\n:1\r\n").as_bytes()).unwrap();
        assert_eq!(
            receive(&mut link, 3).unwrap(),
            [shown("Redirect", 0, "ASK 5 h:7"), shown("Reply", 1, refused), shown("Reply", 2, "*1\r\n:1\r\n"),]
        );
    }

    #[test]
    fn the_outcome_of_writes_that_are_sent_is_unknown() {
        let (mut link, mut other) = open_link(None);
        link.push(&command(0, true), false, b"*1\r\n$4\r\nREAD\r\n", to(0), 0);
        link.push(&command(0, false), false, b"*1\r\n$5\r\nWRITE\r\n", to(1), 0);
        link.send().unwrap();
        link.push(&command(0, false), false, b"*1\r\n$5\r\nWRITE\r\n", to(2), 0);
        assert!(link.is_late(11, 10) && !link.is_late(10, 10));
        expect(&mut other, INTRODUCTION);
        drop(other);
        assert!(receive(&mut link, 1).is_err());
        let without_reply: Vec<_> = link.end().map(unanswered).collect();
        assert_eq!(without_reply, [(0, false), (1, true), (2, false)]);
    }

    const ATTACH: &str = "*5\r\n$8\r\nPIPELINE\r\n$6\r\nATTACH\r\n$1\r\nn\r\n$1\r\n7\r\n$2\r\n60\r\n";

    fn counted(position: u64, only_reads: bool) -> ForwardedCommand {
        ForwardedCommand { counted: Some(Counted { position, commands: 1 }), ..command(0, only_reads) }
    }

    #[test]
    fn counted_commands_follow_their_positions() {
        let (mut link, mut other) = counting_link();
        let ask = ForwardedCommand { attaches: true, ..command(0, true) };
        link.push(&ask, false, b"", to(0), 5);
        link.push(&counted(3, false), false, b"*1\r\n$1\r\nA\r\n", to(1), 5);
        link.push(&counted(4, false), true, b"*1\r\n$1\r\nB\r\n", to(2), 5);
        link.send().unwrap();
        let at = |position, asking| format!("PIPELINE\r\n$2\r\nAT\r\n$1\r\n{position}\r\n{asking}*1\r\n$1\r\n");
        let [first, second] = [at(3, ""), at(4, "$6\r\nASKING\r\n")];
        expect(&mut other, &format!("{INTRODUCTION}{ATTACH}*3\r\n$8\r\n{first}A\r\n*4\r\n$8\r\n{second}B\r\n"));
        other.write_all(b"+OK\r\n+OK\r\n*2\r\n:2\r\n:0\r\n+OK\r\n:5\r\n+OK\r\n-ASK 5 h:7\r\n").unwrap();
        let expected =
            [shown("Reply", 0, "*2\r\n:2\r\n:0\r\n"), shown("Reply", 1, ":5\r\n"), shown("Redirect", 2, "ASK 5 h:7")];
        assert_eq!(receive(&mut link, 3).unwrap(), expected);
        link.end_token(9);
        link.end_token(9);
        link.send().unwrap();
        expect(&mut other, "*3\r\n$8\r\nPIPELINE\r\n$3\r\nEND\r\n$1\r\nn\r\n");
        other.write_all(b"+OK\r\n").unwrap();
        let end = receive(&mut link, 1).unwrap_err();
        assert!(end.is_wanted && link.is_ending());
    }

    #[test]
    fn a_node_that_refuses_to_count_has_run_nothing() {
        for asks in [false, true] {
            let (mut link, mut other) = counting_link();
            if asks {
                link.push(&ForwardedCommand { attaches: true, ..command(0, true) }, false, b"", to(0), 0);
            }
            link.push(&counted(1, false), false, b"*1\r\n$5\r\nWRITE\r\n", to(1), 0);
            link.send().unwrap();
            other.write_all(b"+OK\r\n+OK\r\n-ERR unknown command\r\n").unwrap();
            let broken = receive(&mut link, 2).unwrap_err();
            assert_eq!(broken.reason, "the other node does not count for a pipeline token: ERR unknown command");
            assert_eq!(link.take_received().outcomes.len(), 0);
            let without_reply: Vec<_> = link.end().map(unanswered).collect();
            assert_eq!(without_reply, [(1, false)]);
        }
    }

    /// A counted read is as uncertain as a write: the count must be exact.
    #[test]
    fn a_counted_command_that_is_sent_has_an_unknown_outcome() {
        let (mut link, other) = counting_link();
        link.push(&counted(1, true), false, b"*1\r\n$4\r\nREAD\r\n", to(0), 0);
        link.send().unwrap();
        link.push(&counted(2, false), false, b"*1\r\n$5\r\nWRITE\r\n", to(1), 0);
        link.push(&ForwardedCommand { attaches: true, ..command(0, true) }, false, b"", to(2), 0);
        drop(other);
        let without_reply: Vec<_> = link.end().map(unanswered).collect();
        assert_eq!(without_reply, [(0, true), (1, false), (2, false)]);
    }

    #[test]
    fn a_refused_login_and_a_reply_too_many_end_the_link() {
        let login = Some((String::new(), "secret".to_owned()));
        let (mut link, mut other) = open_link(login);
        expect(&mut other, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
        other.write_all(b"-WRONGPASS invalid\r\n").unwrap();
        let broken = receive(&mut link, 1).unwrap_err();
        assert_eq!(broken.reason, "the other node refuses the login: WRONGPASS invalid");
        let (mut link, mut other) = open_link(None);
        other.write_all(b"+OK\r\n+OK\r\n+OK\r\n").unwrap();
        assert!(receive(&mut link, 1).unwrap_err().reason.contains("without a request"));
        let (mut link, mut other) = open_link(None);
        other.write_all(b"?\r\n").unwrap();
        assert!(receive(&mut link, 1).is_err());
    }
}
