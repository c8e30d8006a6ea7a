//! Reads the bytes between a client and a server as trips, for a proxy.
//!
//! A batch lasts from a moment with no reply outstanding until the client has all its replies. The tap keeps only the
//! beginnings of the first arguments of each request, and the beginning of each reply.

mod requests;
mod tapped;

use resp::request::{Args, ArgsBuffer};
use resp::skim::Skimmer;

pub use requests::Requests;
pub use tapped::Tapped;

use crate::trip::{Reply, TURNAROUND_NS, Trip};

/// Bytes of a reply's beginning that are kept.
const REPLY_BYTES_MAX: usize = 512;

/// One connection of a proxy.
#[derive(Debug)]
pub struct Tap {
    requests: Requests,
    replies: Skimmer,
    /// Number of requests without a reply so far.
    owed: u64,
    /// The number of commands in the batch, and the first command.
    depth: u32,
    first: ArgsBuffer,
    arrived_ns: u64,
    /// Time of the last reply.
    replied_ns: Option<u64>,
    /// A request that follows a reply sooner than this was sent before the client had the reply.
    turnaround_ns: u64,
    /// The beginning and the length of the batch's first reply, and whether the reply is complete.
    reply: Vec<u8>,
    reply_bytes: u64,
    has_reply: bool,
    /// True once replies can't be assigned to requests any more: the connection subscribes, monitors or turns replies
    /// off, or the bytes are not in the protocol.
    is_lost: bool,
}

impl Default for Tap {
    fn default() -> Tap {
        Tap::new()
    }
}

impl Tap {
    /// Returns the tap of a new connection.
    #[must_use]
    pub fn new() -> Tap {
        Tap::with_turnaround(TURNAROUND_NS)
    }

    /// Returns a tap for use inside the client. There the order of events shows whether a request leaves before the
    /// reply arrives, so no turnaround time is assumed: a whole trip to a server on the same machine may be shorter
    /// than one.
    #[must_use]
    pub fn at_client() -> Tap {
        Tap::with_turnaround(0)
    }

    fn with_turnaround(turnaround_ns: u64) -> Tap {
        Tap {
            requests: Requests::default(),
            replies: Skimmer::default(),
            owed: 0,
            depth: 0,
            first: ArgsBuffer::default(),
            arrived_ns: 0,
            replied_ns: None,
            turnaround_ns,
            reply: Vec::new(),
            reply_bytes: 0,
            has_reply: false,
            is_lost: false,
        }
    }

    /// True once the tap can't tell anything more about the connection.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// True if no reply is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.owed == 0
    }

    /// Takes bytes from the client. Calls `seen` with each request.
    pub fn request(&mut self, bytes: &[u8], now_ns: u64, mut seen: impl FnMut(&Args<'_>)) {
        if self.is_lost {
            return;
        }
        let Tap { requests, owed, depth, first, arrived_ns, reply, reply_bytes, has_reply, is_lost, .. } = self;
        let mut on_request = |args: &Args<'_>| {
            if *owed == 0 {
                (*arrived_ns, *depth, *reply_bytes, *has_reply) = (now_ns, 0, 0, false);
                reply.clear();
                first.clear();
                for argument in args.from(0) {
                    first.push(argument);
                }
            }
            if *depth == 1 && first.args().len() == 1 && first.args().get(0).eq_ignore_ascii_case(b"MULTI") {
                // The first command of a transaction says more about it than MULTI.
                first.clear();
                for argument in args.from(0) {
                    first.push(argument);
                }
            }
            *owed += 1;
            *depth = depth.saturating_add(1);
            *is_lost |= ends_order(args);
            seen(args);
        };
        if requests.feed(bytes, &mut on_request).is_err() {
            self.is_lost = true;
        }
    }

    /// Takes bytes from the server. Calls `seen` with each trip that they complete.
    pub fn reply(&mut self, mut bytes: &[u8], now_ns: u64, mut seen: impl FnMut(&Trip<'_>)) {
        while !self.is_lost && !bytes.is_empty() {
            let before = self.replies.replies();
            let Ok(taken) = self.replies.feed_one(bytes) else {
                self.is_lost = true;
                return;
            };
            if !self.has_reply {
                self.keep(bytes.get(..taken).unwrap_or(bytes));
            }
            bytes = bytes.get(taken..).unwrap_or_default();
            if self.replies.replies() == before {
                continue;
            }
            self.has_reply = true;
            self.is_lost = self.owed == 0;
            self.owed = self.owed.saturating_sub(1);
            if self.owed == 0 && !self.is_lost {
                self.complete(now_ns, &mut seen);
            }
        }
    }

    /// Keeps more bytes of the first reply's beginning.
    fn keep(&mut self, bytes: &[u8]) {
        let room = REPLY_BYTES_MAX - self.reply.len();
        self.reply.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.reply_bytes += bytes.len() as u64;
    }

    fn complete(&mut self, now_ns: u64, seen: &mut impl FnMut(&Trip<'_>)) {
        // A push may have come before the reply.
        let is_reply = !matches!(self.reply.first(), None | Some(b'>' | b'|'));
        let reply = is_reply.then_some(Reply { start: &self.reply, len: self.reply_bytes });
        seen(&Trip {
            command: self.first.args(),
            key: None,
            depth: self.depth,
            overlaps: self.replied_ns.is_some_and(|replied_ns| self.arrived_ns < replied_ns + self.turnaround_ns),
            arrived_ns: self.arrived_ns,
            replied_ns: now_ns,
            // Only the batch's first reply is kept.
            redirected: reply.map_or(0, |reply| reply.redirected()),
            reply,
        });
        self.replied_ns = Some(now_ns);
    }
}

/// True if from now on there is not exactly one reply for each request, in order.
fn ends_order(args: &Args<'_>) -> bool {
    let is = |index: usize, word: &[u8]| args.get(index).eq_ignore_ascii_case(word);
    let subscribes = [b"SUBSCRIBE".as_slice(), b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR", b"SYNC", b"PSYNC"];
    subscribes.iter().any(|name| is(0, name)) || is(0, b"CLIENT") && is(1, b"REPLY")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trips of some traffic: `>` is a request and `<` a reply, with its time in microseconds.
    fn trips(mut tap: Tap, lines: &[(char, &str, u64)], piece: usize) -> (Vec<String>, bool) {
        let mut seen = Vec::new();
        for &(direction, bytes, now_us) in lines {
            for bytes in bytes.as_bytes().chunks(piece) {
                if direction == '>' {
                    tap.request(bytes, now_us * 1000, |_| ());
                } else {
                    tap.reply(bytes, now_us * 1000, |trip| {
                        let name = String::from_utf8_lossy(trip.command.get(0)).into_owned();
                        let reply = trip.reply.map_or(0, |reply| reply.len);
                        let times = (trip.arrived_ns / 1000, trip.replied_ns / 1000);
                        seen.push(format!("{name} {} {reply} {times:?} {}", trip.depth, trip.overlaps));
                    });
                }
            }
        }
        (seen, tap.is_lost())
    }

    fn check(lines: &[(char, &str, u64)], expected: &[&str], is_lost: bool) {
        for piece in 1..100 {
            assert_eq!(
                trips(Tap::new(), lines, piece),
                (expected.iter().map(ToString::to_string).collect(), is_lost),
                "{piece}"
            );
        }
    }

    const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

    #[test]
    fn a_request_and_its_reply_are_a_trip() {
        check(
            &[('>', GET, 10), ('<', "$5\r\nalice\r\n", 20), ('>', "PING\r\n", 70), ('<', "+PONG\r\n", 80)],
            &["GET 1 11 (10, 20) false", "PING 1 7 (70, 80) false"],
            false,
        );
    }

    #[test]
    fn requests_sent_before_the_replies_are_one_batch() {
        let pings = format!("{GET}PING\r\nPING\r\n");
        check(
            &[('>', &pings, 10), ('<', "$-1\r\n+PONG\r\n", 20), ('>', GET, 30), ('<', "+PONG\r\n:1\r\n", 40)],
            &["GET 4 5 (10, 40) false"],
            false,
        );
    }

    /// A proxy sees a reply before the client has it; a tap in the client sees it at the same time.
    #[test]
    fn in_the_client_the_order_shows_whether_it_waited() {
        let lines = [('>', GET, 1), ('<', "$-1\r\n", 5), ('>', GET, 6), ('<', "$-1\r\n", 9)];
        let seen = |tap| trips(tap, &lines, 100).0.pop().unwrap();
        assert_eq!(seen(Tap::new()), "GET 1 5 (6, 9) true");
        assert_eq!(seen(Tap::at_client()), "GET 1 5 (6, 9) false");
        assert!(Tap::new().is_idle());
    }

    #[test]
    fn a_client_on_the_same_machine_answers_within_ten_microseconds() {
        check(
            &[('>', GET, 1), ('<', ":1\r\n", 5), ('>', GET, 12), ('<', ":1\r\n", 15)],
            &["GET 1 4 (1, 5) false", "GET 1 4 (12, 15) false"],
            false,
        );
    }

    #[test]
    fn pushes_are_no_replies() {
        check(
            &[('>', GET, 10), ('<', ">2\r\n+invalidate\r\n*0\r\n$1\r\n5\r\n", 20), ('>', GET, 22), ('<', ":1\r\n", 25)],
            &["GET 1 0 (10, 20) false", "GET 1 4 (22, 25) true"],
            false,
        );
    }

    #[test]
    fn a_subscriber_is_ignored() {
        let subscribe = "*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n";
        check(&[('>', GET, 1), ('<', ":1\r\n", 9), ('>', subscribe, 20)], &["GET 1 4 (1, 9) false"], true);
        check(&[('>', "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n", 1)], &[], true);
    }

    #[test]
    fn bytes_outside_the_protocol_end_the_tap() {
        check(&[('>', GET, 1), ('<', "HTTP/1.1\r\n", 2)], &[], true);
        check(&[('>', "*1\r\n!x\r\n", 1)], &[], true);
        check(&[('<', "+OK\r\n", 1)], &[], true);
    }
}
