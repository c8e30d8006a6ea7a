//! Reads and writes recordings of round trips. A recording is a sequence of records, and each record is a RESP array of
//! strings.
//!
//! ```text
//! penstock-trips 1
//! open ID NS NAME LIBRARY USER ADDRESS
//! client ID NAME LIBRARY USER ADDRESS
//! trip ID DEPTH OVERLAPS ARRIVED_NS REPLIED_NS REPLY_BYTES REPLY COMMAND [ARGUMENT]...
//! network ID NS
//! busy NS
//! close ID NS
//! ```
//!
//! Times are nanoseconds of Unix time. The record `network` has the network's part of a round trip in nanoseconds, and
//! `busy` is a time at which threads of the machine waited for a core. OVERLAPS is 1 if the batch was sent before the replies to the previous batch.
//! REPLY is the beginning of the first reply, and REPLY_BYTES its length, or -1 if the length is unknown. Arguments are
//! cut to 256 bytes. A truncated recording is read up to its last complete record.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use advisor::client::Client;
use advisor::{Advisor, Connection, Reply, Trip};
use resp::num::parse_i64;
use resp::parse::encode_request;
use resp::request::{Args, ArgsBuffer, Batch, Framer, Limits};

/// First record of a recording.
pub const HEAD: &[u8] = b"*2\r\n$14\r\npenstock-trips\r\n$1\r\n1\r\n";
/// Bytes per read.
const READ_BYTES: usize = 256 * 1024;
/// Maximum number of records per framing call.
const RECORDS: usize = 1000;
/// Maximum size of a record. The writer's records have about 5,000 bytes at most.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Maximum number of open connections. Further ones are ignored.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Writes a recording.
pub struct Recorder<W: Write> {
    output: W,
    record: Vec<u8>,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// All methods return errors of the output.
    pub fn new(mut output: W) -> io::Result<Recorder<W>> {
        output.write_all(HEAD)?;
        Ok(Recorder { output, record: Vec::new() })
    }

    fn write(&mut self, words: &[&[u8]]) -> io::Result<()> {
        self.record.clear();
        encode_request(words, &mut self.record);
        self.output.write_all(&self.record)
    }

    /// Records that a connection was opened.
    pub fn opened(&mut self, id: u64, client: &Client, now_ns: u64) -> io::Result<()> {
        let (id, now) = (id.to_string(), now_ns.to_string());
        let [name, library, user, address] = texts(client);
        self.write(&[b"open", id.as_bytes(), now.as_bytes(), name, library, user, address])
    }

    /// Records a new description of a client.
    pub fn renamed(&mut self, id: u64, client: &Client) -> io::Result<()> {
        let [name, library, user, address] = texts(client);
        self.write(&[b"client", id.to_string().as_bytes(), name, library, user, address])
    }

    /// Records a round trip.
    pub fn trip(&mut self, id: u64, trip: &Trip<'_>) -> io::Result<()> {
        let numbers = [id, trip.depth.into(), trip.overlaps.into(), trip.arrived_ns, trip.replied_ns];
        let numbers = numbers.map(|number| number.to_string());
        let (len, start) = match &trip.reply {
            Some(reply) => (reply.len.to_string(), reply.start),
            None => ("-1".to_owned(), b"".as_slice()),
        };
        let mut words = vec![b"trip".as_slice()];
        words.extend(numbers.iter().map(String::as_bytes));
        words.extend([len.as_bytes(), start]);
        words.extend(trip.command.from(0));
        self.write(&words)
    }

    /// Records the network's part of a connection's round trip.
    pub fn measured(&mut self, id: u64, measured_ns: u64) -> io::Result<()> {
        self.write(&[b"network", id.to_string().as_bytes(), measured_ns.to_string().as_bytes()])
    }

    /// Records that threads of the machine wait for a core.
    pub fn busy(&mut self, now_ns: u64) -> io::Result<()> {
        self.write(&[b"busy", now_ns.to_string().as_bytes()])
    }

    /// Records that a connection was closed.
    pub fn closed(&mut self, id: u64, now_ns: u64) -> io::Result<()> {
        self.write(&[b"close", id.to_string().as_bytes(), now_ns.to_string().as_bytes()])
    }

    /// Flushes the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }
}

fn texts(client: &Client) -> [&[u8]; 4] {
    [&client.name, &client.library, &client.user, &client.address].map(|text| text.as_bytes())
}

/// Replays a recording into an advisor.
pub struct Player<'a> {
    advisor: &'a mut Advisor,
    connections: HashMap<u64, Connection>,
    command: ArgsBuffer,
    last_ns: u64,
    /// Number of round trips so far.
    pub trips: u64,
    /// Number of invalid records.
    pub skipped: u64,
}

impl Player<'_> {
    /// Returns a player that has read nothing yet.
    pub fn new(advisor: &mut Advisor) -> Player<'_> {
        Player {
            advisor,
            connections: HashMap::new(),
            command: ArgsBuffer::default(),
            last_ns: 0,
            trips: 0,
            skipped: 0,
        }
    }

    /// Reads a recording to its end. `first` holds the bytes that were read already.
    ///
    /// # Errors
    /// Returns errors of the input. A protocol error ends the reading like the end of the input.
    pub fn read(&mut self, first: &[u8], input: &mut impl Read) -> io::Result<()> {
        let (mut bytes, mut piece) = (first.to_vec(), vec![0; READ_BYTES]);
        while let Some(used) = self.play(&bytes) {
            bytes.drain(..used);
            let len = match input.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            bytes.extend_from_slice(piece.get(..len).unwrap_or_default());
        }
        for (_, mut connection) in self.connections.drain() {
            self.advisor.closed(&mut connection, self.last_ns);
        }
        Ok(())
    }

    /// Replays the complete records, and returns their length in bytes, or `None` after the end of the recording.
    fn play(&mut self, bytes: &[u8]) -> Option<usize> {
        let (limits, mut batch, mut at) = (Limits::default(), Batch::default(), 0);
        loop {
            batch.clear();
            let (end, stop) = Framer::default().frame(bytes.into(), at, &limits, RECORDS, &mut batch);
            for request in batch.requests() {
                let args = batch.args(request, bytes.into());
                if self.record(&args).is_none() {
                    self.skipped += 1;
                }
            }
            at = end;
            match stop {
                resp::request::Stop::Full => {}
                resp::request::Stop::Incomplete if bytes.len() - at < RECORD_BYTES_MAX => return Some(at),
                resp::request::Stop::Incomplete | resp::request::Stop::Error(_) => {
                    self.skipped += 1;
                    return None;
                }
            }
        }
    }

    /// Replays one record. Returns `None` if it is invalid.
    fn record(&mut self, args: &Args<'_>) -> Option<()> {
        let number = |index: usize| u64::try_from(parse_i64(args.get(index))?).ok();
        let id = number(1)?;
        match (args.get(0), args.len()) {
            (b"open", 7) if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.insert(id, Connection::opened(id, client(args, 3), number(2)?));
            }
            (b"client", 6) => self.connections.get_mut(&id)?.set_client(client(args, 2)),
            (b"trip", 9..) => {
                let (arrived_ns, replied_ns) = (number(4)?, number(5)?);
                let reply = number(6).map(|len| Reply { start: args.get(7), len });
                self.command.clear();
                for argument in args.from(8) {
                    self.command.push(argument);
                }
                let trip = Trip {
                    command: self.command.args(),
                    key: None,
                    depth: u32::try_from(number(2)?).ok()?,
                    overlaps: number(3)? != 0,
                    arrived_ns,
                    replied_ns,
                    reply,
                    redirected: reply.map_or(0, |reply| reply.redirected()),
                };
                self.advisor.trip(self.connections.get_mut(&id)?, &trip);
                (self.last_ns, self.trips) = (self.last_ns.max(replied_ns), self.trips + 1);
            }
            (b"network", 3) => self.connections.get_mut(&id)?.set_round_trip(number(2)?),
            (b"close", 3) => self.advisor.closed(&mut self.connections.remove(&id)?, number(2)?),
            (b"busy", 2) => self.advisor.note_busy(number(1)?),
            (b"penstock-trips", 2) if id == 1 => {}
            _ => return None,
        }
        Some(())
    }
}

/// Returns the client that a record describes in four arguments from `first` on.
fn client(args: &Args<'_>, first: usize) -> Client {
    let text = |index: usize| String::from_utf8_lossy(args.get(first + index)).into_owned();
    Client { name: text(0), library: text(1), user: text(2), address: text(3), in_cluster: false }
}

#[cfg(test)]
mod tests {
    use advisor::Config;
    use advisor::report::json;
    use resp::request::OwnedArgs;

    use super::*;

    /// Returns a recording of a loop, and the report of the advisor that watched it live.
    fn recorded(shows_all: bool, is_busy: bool) -> (Vec<u8>, String) {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes).unwrap();
        let mut advisor = Advisor::new(Config::default());
        let mut client = Client { address: "127.0.0.1".to_owned(), ..Client::default() };
        recorder.opened(1, &client, 1000).unwrap();
        let mut connection = Connection::opened(1, client.clone(), 1000);
        if is_busy {
            recorder.busy(2000).unwrap();
            advisor.note_busy(2000);
        }
        client.name = "importer".to_owned();
        recorder.renamed(1, &client).unwrap();
        connection.set_client(client);
        for number in 1..=100 {
            let command = OwnedArgs::new([b"GET".as_slice(), format!("key:{number}").as_bytes()].into_iter());
            let now_ns = number * 100_000;
            let reply = (shows_all || number % 3 > 0).then(|| Reply::whole(b"$1\r\nx\r\n"));
            let trip = Trip {
                command: command.args(),
                key: None,
                depth: 1,
                overlaps: false,
                arrived_ns: now_ns,
                replied_ns: now_ns + 5000,
                reply,
                redirected: 0,
            };
            recorder.trip(1, &trip).unwrap();
            advisor.trip(&mut connection, &trip);
        }
        recorder.closed(1, 20_000_000).unwrap();
        advisor.closed(&mut connection, 20_000_000);
        recorder.finish().unwrap();
        let report = json(&advisor.findings());
        (bytes, report)
    }

    fn played(bytes: &[u8]) -> (String, u64, u64) {
        let mut advisor = Advisor::new(Config::default());
        let mut player = Player::new(&mut advisor);
        let (first, mut rest) = bytes.split_at(bytes.len().min(10));
        player.read(first, &mut rest).unwrap();
        let (trips, skipped) = (player.trips, player.skipped);
        let report = json(&advisor.findings());
        (report, trips, skipped)
    }

    #[test]
    fn a_replay_gives_the_same_report() {
        for (shows_all, is_busy, confidence) in
            [(false, false, "medium"), (true, false, "high"), (true, true, "medium")]
        {
            let (bytes, report) = recorded(shows_all, is_busy);
            assert!(report.contains("\"trips_made\":100"), "{report}");
            assert!(report.contains(&format!("\"{confidence}\"")), "{report}");
            assert_eq!(played(&bytes), (report, 100, 0));
        }
    }

    #[test]
    fn a_recording_may_be_cut_anywhere() {
        let (bytes, _) = recorded(false, true);
        for len in (0..bytes.len()).step_by(7) {
            let (_, trips, skipped) = played(&bytes[..len]);
            assert!(trips <= 100 && skipped == 0, "{len}");
        }
    }

    #[test]
    fn invalid_records_are_skipped() {
        let bytes = [HEAD, b"*1\r\n$4\r\nopen\r\n*3\r\n$5\r\nclose\r\n$1\r\n9\r\n$1\r\n1\r\n*2\r\n$3\r\n"].concat();
        assert_eq!(played(&bytes).2, 2);
        assert_eq!(played(&[HEAD, b"*1\r\n!no\r\n"].concat()).2, 1);
    }
}
