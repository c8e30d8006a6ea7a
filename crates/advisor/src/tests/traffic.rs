//! Connections with commands, replies and times chosen by the test.

use resp::request::ArgsBuffer;

use crate::client::Client;
use crate::findings::{Group, Kind};
use crate::{Advisor, Config, Connection, Reply, Trip};

/// The synthetic network's round trip.
pub const ROUND_TRIP_NS: u64 = 60_000;
pub const COMMAND_NS: u64 = 2_000;
/// Servers report the work of connections that have been silent for as long.
const SETTLED_AFTER_NS: u64 = 150_000_000;
/// The time of a whole trip.
pub const TRIP_NS: u64 = ROUND_TRIP_NS + COMMAND_NS;

/// A connection and its advisor.
pub struct Traffic {
    pub advisor: Advisor,
    pub connection: Connection,
    pub now_ns: u64,
    /// The gap before the next request.
    pub gap_ns: u64,
    /// True if the client doesn't wait for replies.
    pub overlaps: bool,
    /// The random delays of a busy machine; None on a quiet one.
    pub noise: Option<Noise>,
    /// False if the advisor gets no replies, as with a log of MONITOR.
    pub shows_replies: bool,
    /// The index of the key as a server knows it.
    pub key: Option<u8>,
    args: ArgsBuffer,
}

/// The delays of a client whose thread waits for a core.
pub struct Noise {
    random: u64,
    /// One of so many gaps is longer, by at most `longest_ns`.
    one_of: u64,
    longest_ns: u64,
}

impl Noise {
    pub fn new(one_of: u64, longest_ms: u64) -> Noise {
        Noise { random: 1, one_of, longest_ns: longest_ms * 1_000_000 }
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Returns the next delay.
    pub fn delay_ns(&mut self) -> u64 {
        if self.next().is_multiple_of(self.one_of) { self.next() % self.longest_ns } else { self.next() % 20_000 }
    }
}

/// A reply in the protocol: `nil`, `OK`, `:5` is a number, and any other text a string.
pub fn reply(text: &str) -> Vec<u8> {
    match text {
        "nil" => b"$-1\r\n".to_vec(),
        "OK" | "QUEUED" => format!("+{text}\r\n").into_bytes(),
        "[]" => b"*0\r\n".to_vec(),
        _ if text.starts_with(':') => format!("{text}\r\n").into_bytes(),
        _ => format!("${}\r\n{text}\r\n", text.len()).into_bytes(),
    }
}

impl Traffic {
    pub fn new() -> Traffic {
        let client = Client { name: "importer".to_owned(), ..Client::default() };
        Traffic {
            advisor: Advisor::new(Config::default()),
            connection: Connection::opened(1, client, 0),
            now_ns: 1_000_000,
            gap_ns: ROUND_TRIP_NS,
            overlaps: false,
            noise: None,
            shows_replies: true,
            key: None,
            args: ArgsBuffer::default(),
        }
    }

    /// Traffic of a client that has logged in, so that the round trip is known.
    pub fn logged_in() -> Traffic {
        let mut traffic = Traffic::new();
        for command in ["HELLO 3", "CLIENT SETNAME importer", "SELECT 1"] {
            traffic.send(command, "OK");
        }
        traffic
    }

    /// Sends a command in a batch of its own.
    pub fn send(&mut self, command: &str, answer: &str) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send_words(&words, 1, &reply(answer));
    }

    /// Sends a batch of several commands; only the first one is given.
    pub fn batch(&mut self, command: &str, depth: u32) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send_words(&words, depth, b"+OK\r\n");
    }

    pub fn send_words(&mut self, words: &[&[u8]], depth: u32, answer: &[u8]) {
        self.args.clear();
        for word in words {
            assert!(self.args.push(word));
        }
        let delay_ns = self.noise.as_mut().map_or(0, Noise::delay_ns);
        self.now_ns += self.gap_ns + delay_ns;
        let arrived_ns = self.now_ns;
        if delay_ns > SETTLED_AFTER_NS {
            self.advisor.settle(&mut self.connection, arrived_ns - 1);
        }
        self.now_ns += COMMAND_NS;
        let reply = self.shows_replies.then(|| Reply::whole(answer));
        let trip = Trip {
            command: self.args.args(),
            key: self.key,
            depth,
            overlaps: self.overlaps,
            arrived_ns,
            replied_ns: self.now_ns,
            reply,
            redirected: u32::from(answer.starts_with(b"-MOVED ")),
        };
        self.advisor.trip(&mut self.connection, &trip);
    }

    /// Lets the client do something else for this many milliseconds.
    pub fn pause(&mut self, milliseconds: u64) {
        self.now_ns += milliseconds * 1_000_000;
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.advisor.closed(&mut self.connection, self.now_ns);
    }

    /// The significant findings.
    pub fn groups(&mut self) -> Vec<Group> {
        self.close();
        self.advisor.findings().groups()
    }

    /// The only significant finding.
    pub fn only(&mut self) -> Group {
        let groups = self.groups();
        assert_eq!(groups.len(), 1, "{groups:#?}");
        groups.into_iter().next().unwrap()
    }

    /// The only significant finding of this kind.
    pub fn of_kind(&mut self, kind: Kind) -> Group {
        let groups = self.groups();
        let mut of_kind = groups.iter().filter(|group| group.total.kind == kind);
        let found = of_kind.next().unwrap_or_else(|| panic!("no {kind:?} in {groups:#?}")).clone();
        assert!(of_kind.next().is_none(), "{groups:#?}");
        found
    }

    /// Asserts that there is no significant finding.
    pub fn assert_clean(&mut self) {
        let groups = self.groups();
        assert!(groups.is_empty(), "{groups:#?}");
    }
}

/// The steps of a finding as text.
pub fn steps(group: &Group) -> Vec<String> {
    group.total.steps.iter().map(ToString::to_string).collect()
}

/// Trips made, trips needed.
pub fn trips(group: &Group) -> (u64, u64) {
    (group.total.sums.made, group.total.sums.needed)
}
