//! Connections whose commands and replies a test writes down, with times of its own.

use resp::request::ArgsBuffer;

use crate::client::Client;
use crate::findings::{Group, Kind};
use crate::{Advisor, Config, Connection, Reply, Trip};

/// A round trip of the synthetic network, and the time that a command takes.
pub const ROUND_TRIP_NS: u64 = 60_000;
pub const COMMAND_NS: u64 = 2_000;
/// What a trip takes in all.
pub const TRIP_NS: u64 = ROUND_TRIP_NS + COMMAND_NS;

/// A connection and its advisor.
pub struct Traffic {
    pub advisor: Advisor,
    pub connection: Connection,
    pub now_ns: u64,
    /// The gap before the next request.
    pub gap_ns: u64,
    /// True: the client doesn't wait for replies.
    pub overlaps: bool,
    /// False: replies aren't passed on, as in a log of MONITOR.
    pub shows_replies: bool,
    args: ArgsBuffer,
}

/// A reply in the protocol: `nil`, `OK`, a number as `:5`, and anything else is a string.
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
            shows_replies: true,
            args: ArgsBuffer::default(),
        }
    }

    /// Traffic of a client that has logged in, by which the round trip is known.
    pub fn logged_in() -> Traffic {
        let mut traffic = Traffic::new();
        for command in ["HELLO 3", "CLIENT SETNAME importer", "SELECT 1"] {
            traffic.send(command, "OK");
        }
        traffic
    }

    /// A command in a batch of its own.
    pub fn send(&mut self, command: &str, answer: &str) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send_words(&words, 1, &reply(answer));
    }

    /// A batch of several commands; the first is enough.
    pub fn batch(&mut self, command: &str, depth: u32) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send_words(&words, depth, b"+OK\r\n");
    }

    pub fn send_words(&mut self, words: &[&[u8]], depth: u32, answer: &[u8]) {
        self.args.clear();
        for word in words {
            assert!(self.args.push(word));
        }
        self.now_ns += self.gap_ns;
        let arrived_ns = self.now_ns;
        self.now_ns += COMMAND_NS;
        let reply = self.shows_replies.then(|| Reply::whole(answer));
        let trip = Trip {
            command: self.args.args(),
            key: None,
            depth,
            overlaps: self.overlaps,
            arrived_ns,
            replied_ns: self.now_ns,
            reply,
        };
        self.advisor.trip(&mut self.connection, &trip);
    }

    /// The client does something else for so many milliseconds.
    pub fn pause(&mut self, milliseconds: u64) {
        self.now_ns += milliseconds * 1_000_000;
    }

    /// Closes the connection; what was found, worth telling or not.
    pub fn close(&mut self) {
        self.advisor.closed(&mut self.connection, self.now_ns);
    }

    /// What is worth telling.
    pub fn groups(&mut self) -> Vec<Group> {
        self.close();
        self.advisor.findings().groups()
    }

    /// The only thing that is worth telling.
    pub fn only(&mut self) -> Group {
        let groups = self.groups();
        assert_eq!(groups.len(), 1, "{groups:#?}");
        groups.into_iter().next().unwrap()
    }

    /// What is worth telling of this kind: exactly one group.
    pub fn of_kind(&mut self, kind: Kind) -> Group {
        let groups = self.groups();
        let mut of_kind = groups.iter().filter(|group| group.total.kind == kind);
        let found = of_kind.next().unwrap_or_else(|| panic!("no {kind:?} in {groups:#?}")).clone();
        assert!(of_kind.next().is_none(), "{groups:#?}");
        found
    }

    /// Nothing is worth telling.
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
