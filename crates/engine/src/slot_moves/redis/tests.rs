//! Conversations with a Redis source that consists of bytes.

use std::cell::RefCell;
use std::rc::Rc;

use cluster::dialect::NodeSecret;
use cluster::slots::SlotRange;
use cluster::view::{Endpoints, Role};
use cluster::{NodeId, ShardId, Slot};

use super::*;
use crate::slots::jobs::{JobNodes, NewJob, Operation, SlotRanges};
use crate::testing::{Bench, request};

const SECRET: &[u8] = b"00112233445566778899aabbccddeeff00112233";
const SECOND: Duration = Duration::from_secs(1);

/// The other ends of the connections.
#[derive(Default)]
struct State {
    now: Duration,
    open: [bool; 2],
    incoming: [Vec<u8>; 2],
    outgoing: [Vec<u8>; 2],
    lost: [bool; 2],
    overflows: usize,
}

#[derive(Clone, Default)]
struct Wires(Rc<RefCell<State>>);

/// A file in memory.
struct File(Vec<u8>);

impl Overflow for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = self.0.get(at as usize..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }
}

impl MoveClock for Wires {
    fn now(&self) -> Duration {
        self.0.borrow().now
    }

    fn unix_us(&self) -> u64 {
        0
    }
}

impl RedisLink for Wires {
    fn open(&mut self, channel: Channel, node: &NodeView) -> Result<(), String> {
        assert_eq!(node.endpoints.ip, "192.0.2.9");
        self.0.borrow_mut().open[channel as usize] = true;
        Ok(())
    }

    fn connect(&mut self, channel: Channel) -> io::Result<bool> {
        Ok(self.0.borrow().open[channel as usize])
    }

    fn read(&mut self, channel: Channel, into: &mut Vec<u8>) -> io::Result<bool> {
        let mut state = self.0.borrow_mut();
        let bytes = std::mem::take(&mut state.incoming[channel as usize]);
        into.extend_from_slice(&bytes);
        match bytes.is_empty() && state.lost[channel as usize] {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(!bytes.is_empty()),
        }
    }

    fn write(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().outgoing[channel as usize].extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn close(&mut self, channel: Channel) {
        self.0.borrow_mut().open[channel as usize] = false;
    }

    fn make_overflow(&self) -> io::Result<Box<dyn Overflow>> {
        self.0.borrow_mut().overflows += 1;
        Ok(Box::new(File(Vec::new())))
    }
}

struct Conversation {
    _bench: Bench,
    job: Arc<SlotJob>,
    wires: Wires,
    source: RedisSource<Wires>,
}

fn letter(letter: char) -> String {
    letter.to_string().repeat(40)
}

impl Conversation {
    fn new() -> Conversation {
        let (bench, wires) = (Bench::default(), Wires::default());
        let range = |first, last| SlotRange::new(Slot::new(first)?, Slot::new(last)?);
        let job = Arc::new(SlotJob::new(NewJob {
            name: letter('c'),
            operation: Operation::Import,
            ranges: SlotRanges([range(5, 9), range(11, 11)].into_iter().flatten().collect()),
            nodes: Some(JobNodes { target: letter('b'), source: letter('a') }),
            source: None,
            worker: 0,
            reports_progress: true,
            now_s: 0,
        }));
        let name = letter('a');
        let node = NodeView {
            id: NodeId::new(name.as_bytes()).unwrap(),
            shard: ShardId::new(name.as_bytes()).unwrap(),
            role: Role::Primary,
            endpoints: Endpoints { ip: "192.0.2.9".into(), ..Endpoints::default() },
            failed: false,
            secret: NodeSecret::new(SECRET),
        };
        let nodes = Nodes { source: node, me: letter('b') };
        let source = RedisSource::begin(bench.worker.engine, job.clone(), nodes, wires.clone());
        Conversation { _bench: bench, job, wires, source }
    }

    /// Lets the source send bytes.
    fn send(&self, channel: Channel, bytes: &[u8]) {
        self.wires.0.borrow_mut().incoming[channel as usize].extend_from_slice(bytes);
    }

    /// Returns the bytes that the import gets.
    fn read(&mut self) -> Vec<u8> {
        let mut into = Vec::new();
        while self.source.read(&mut into).unwrap() {}
        into
    }

    fn write(&mut self, words: &[&str]) {
        let bytes = request(words);
        assert_eq!(self.source.write(&bytes).unwrap(), bytes.len());
    }

    /// Checks the bytes that the source has got.
    fn expect(&mut self, channel: Channel, words: &[&str]) {
        let bytes = std::mem::take(&mut self.wires.0.borrow_mut().outgoing[channel as usize]);
        let expected = if words.is_empty() { Vec::new() } else { request(words) };
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    fn pass(&mut self, time: Duration) {
        self.wires.0.borrow_mut().now += time;
        self.source.pump();
    }

    /// Speaks until the snapshot begins.
    fn begin(&mut self) {
        self.source.write(ACCEPTED).unwrap();
        assert!(self.read().is_empty());
        let secret = String::from_utf8_lossy(SECRET).into_owned();
        self.expect(Channel::Main, &["AUTH", "internal connection", &secret]);
        self.send(Channel::Main, b"+OK\r\n");
        assert!(self.read().is_empty());
        let (hold, lag) =
            ("cluster-slot-migration-write-pause-timeout", "cluster-slot-migration-handoff-max-lag-bytes");
        self.expect(Channel::Main, &["CONFIG", "GET", hold, lag]);
        self.send(Channel::Main, &request(&[lag, "100", hold, "5000"]));
        assert!(self.read().is_empty());
        self.expect(Channel::Main, &["CLUSTER", "SYNCSLOTS", "CONF", "NODE-ID", &letter('b')]);
        self.send(Channel::Main, b"+OK\r\n");
        assert!(self.read().is_empty());
        self.expect(Channel::Main, &["CLUSTER", "SYNCSLOTS", "SYNC", &letter('c'), "5", "9", "11", "11"]);
        self.send(Channel::Main, b"+RDBCHANNELSYNCSLOTS\r\n");
        assert!(self.read().is_empty());
        self.expect(Channel::Snapshot, &["AUTH", "internal connection", &secret]);
        self.send(Channel::Snapshot, b"+OK\r\n");
        assert!(self.read().is_empty());
        self.expect(Channel::Snapshot, &["CLUSTER", "SYNCSLOTS", "RDBCHANNEL", &letter('c')]);
        self.send(Channel::Snapshot, b"\n\n+SLOTSSNAPSHOT\r\n");
        assert_eq!(self.read(), message("ACK"));
    }

    /// Lets the import apply the whole snapshot, whose end it has been given.
    fn end_snapshot(&mut self) {
        self.send(Channel::Snapshot, &message("SNAPSHOT-EOF"));
        assert_eq!(self.read(), message("SNAPSHOT-EOF"));
        assert!(!self.wires.0.borrow().open[Channel::Snapshot as usize]);
        self.write(&["CLUSTER", "SYNCSLOTS", "REQUEST-PAUSE"]);
    }

    fn expect_ack(&mut self, state: &str, offset: usize) {
        self.expect(Channel::Main, &["CLUSTER", "SYNCSLOTS", "ACK", state, &offset.to_string()]);
    }

    fn failure(&self) -> Option<String> {
        self.job.asked_failure()
    }
}

#[test]
fn the_import_gets_the_snapshot_then_the_changes_and_the_slots() {
    let mut talk = Conversation::new();
    talk.begin();
    let (kept, changed, last) = (request(&["SET", "a", "1"]), request(&["INCR", "a"]), request(&["INCR", "b"]));
    // Changes wait for the end of the snapshot.
    talk.send(Channel::Main, &changed);
    talk.send(
        Channel::Snapshot,
        &[request(&["CLUSTER", "SYNCSLOTS", "CONF", "SLOT-INFO", "5:1:0"]), kept.clone()].concat(),
    );
    assert_eq!(talk.read(), kept);
    talk.write(&["CLUSTER", "SYNCSLOTS", "ACK"]);
    talk.expect_ack("accumulate-buffer", 0);
    talk.write(&["CLUSTER", "SYNCSLOTS", "APPLIED", &(message("ACK").len() + kept.len()).to_string()]);
    talk.expect(Channel::Main, &[]);
    talk.send(Channel::Snapshot, &message("SNAPSHOT-EOF"));
    assert_eq!(talk.read(), [message("SNAPSHOT-EOF"), changed.clone()].concat());
    // The source begins the hold by an acknowledgment. There is none while the snapshot is not applied.
    talk.pass(SECOND);
    talk.expect(Channel::Main, &[]);
    talk.write(&["CLUSTER", "SYNCSLOTS", "REQUEST-PAUSE"]);
    talk.expect_ack("streaming-buffer", 0);
    let base = message("ACK").len() + kept.len() + message("SNAPSHOT-EOF").len();
    talk.write(&["CLUSTER", "SYNCSLOTS", "APPLIED", &(base + changed.len()).to_string()]);
    talk.expect_ack("wait-stream-eof", changed.len());
    talk.pass(SECOND / 20);
    talk.expect(Channel::Main, &[]);
    talk.pass(SECOND / 20);
    talk.expect_ack("wait-stream-eof", changed.len());
    talk.send(Channel::Main, &[last.clone(), message("STREAM-EOF")].concat());
    assert_eq!(talk.read(), [last, message("PAUSED")].concat());
    talk.write(&["CLUSTER", "SYNCSLOTS", "REQUEST-FAILOVER"]);
    assert_eq!(talk.read(), message("FAILOVER-GRANTED"));
    talk.pass(SECOND);
    talk.expect(Channel::Main, &[]);
    assert_eq!(talk.failure(), None);
    talk.source.close();
    assert_eq!(talk.wires.0.borrow().open, [false; 2]);
    assert_eq!(talk._bench.worker.engine.slots.jobs.bytes.import_memory.load(Ordering::Relaxed), 0);
}

/// The hold may be over once its time has passed since an acknowledgment that can have begun it.
#[test]
fn late_slots_are_not_taken() {
    for (late, expected) in [(SECOND * 3, None), (SECOND * 3 + SECOND / 100, Some(NO_TIME.to_owned()))] {
        let mut talk = Conversation::new();
        talk.begin();
        talk.end_snapshot();
        talk.expect_ack("wait-stream-eof", 0);
        talk.wires.0.borrow_mut().now += late;
        talk.send(Channel::Main, &message("STREAM-EOF"));
        assert_eq!(talk.read(), message("PAUSED"));
        talk.write(&["CLUSTER", "SYNCSLOTS", "REQUEST-FAILOVER"]);
        assert_eq!((talk.failure(), talk.read().is_empty()), (expected.clone(), expected.is_some()));
        assert_eq!(talk.wires.0.borrow().open[0], expected.is_none(), "a failure ends the connection");
    }
}

#[test]
fn many_changes_go_to_disk_and_come_back_in_order() {
    let mut talk = Conversation::new();
    talk.begin();
    let value = "x".repeat(1 << 20);
    let changes: Vec<_> = (0..20).map(|at| request(&["SET", &at.to_string(), &value])).collect();
    for change in &changes {
        talk.send(Channel::Main, change);
        assert!(talk.source.pump());
    }
    let state = talk.wires.clone();
    assert_eq!(state.0.borrow().overflows, 1);
    let memory = talk._bench.worker.engine.slots.jobs.bytes.import_memory.load(Ordering::Relaxed);
    assert!(memory < 12 << 20, "{memory}");
    talk.send(Channel::Snapshot, &message("SNAPSHOT-EOF"));
    talk.send(Channel::Main, &message("STREAM-EOF"));
    assert_eq!(talk.read(), [message("SNAPSHOT-EOF"), changes.concat(), message("PAUSED")].concat());
}

#[test]
fn a_source_that_is_not_ready_is_asked_again() {
    let mut talk = Conversation::new();
    for reply in [&b"+OK\r\n"[..], b"-NOPERM no\r\n", b"+OK\r\n"] {
        talk.read();
        talk.send(Channel::Main, reply);
    }
    talk.read();
    let line = ["CLUSTER", "SYNCSLOTS", "SYNC", &letter('c'), "5", "9", "11", "11"];
    talk.wires.0.borrow_mut().outgoing[0].clear();
    talk.send(Channel::Main, b"-NOTREADY Cluster is not ready to migrate slots\r\n");
    talk.read();
    talk.wires.0.borrow_mut().now += SECOND / 2;
    talk.read();
    talk.expect(Channel::Main, &[]);
    talk.wires.0.borrow_mut().now += SECOND / 2;
    talk.read();
    talk.expect(Channel::Main, &line);
    assert_eq!(talk.failure(), None);
}

#[test]
fn a_failure_has_the_source_s_words() {
    let unknown = "-ERR unknown subcommand 'SYNCSLOTS'. Try CLUSTER HELP.";
    let (ok, none): (&[u8], &[u8]) = (b"+OK\r\n", b"*0\r\n");
    let cases: [(&[&[u8]], &str, String); 4] = [
        (&[], "-WRONGPASS no", "Error reply to AUTH from the source: -WRONGPASS no".into()),
        (
            &[ok, none],
            unknown,
            format!("The source has no atomic slot migration, which needs Redis 8.4 or later: {unknown}"),
        ),
        (&[ok, none], "-ERR x", "Error reply to CLUSTER SYNCSLOTS CONF from the source: -ERR x".into()),
        (&[ok, none, ok], "-ERR x", "Error reply to CLUSTER SYNCSLOTS SYNC from the source: -ERR x".into()),
    ];
    for (before, line, failure) in cases {
        let mut talk = Conversation::new();
        for reply in before {
            talk.read();
            talk.send(Channel::Main, reply);
        }
        talk.read();
        talk.send(Channel::Main, format!("{line}\r\n").as_bytes());
        assert!(talk.read().is_empty());
        assert_eq!(talk.failure(), Some(failure));
        assert_eq!(talk.wires.0.borrow().open, [false; 2]);
        assert!(talk.read().is_empty(), "nothing follows");
    }
}

#[test]
fn a_lost_connection_ends_the_import() {
    let begun = || {
        let mut talk = Conversation::new();
        talk.begin();
        talk
    };
    let mut talk = begun();
    talk.wires.0.borrow_mut().lost[Channel::Snapshot as usize] = true;
    talk.read();
    assert!(talk.failure().unwrap().starts_with("RDB channel - "));
    // Changes that came before are used: they may be complete.
    for is_complete in [true, false] {
        let mut talk = begun();
        talk.send(Channel::Main, &request(&["SET", "a", "1"]));
        if is_complete {
            talk.send(Channel::Main, &message("STREAM-EOF"));
        }
        talk.wires.0.borrow_mut().lost[Channel::Main as usize] = true;
        talk.source.pump();
        talk.source.pump();
        assert_eq!(talk.failure(), None);
        talk.send(Channel::Snapshot, &message("SNAPSHOT-EOF"));
        assert!(talk.read().ends_with(if is_complete { b"PAUSED\r\n" } else { b"$1\r\n1\r\n" }));
        let failure = talk.failure();
        assert_eq!(failure.is_none(), is_complete);
        assert!(failure.is_none_or(|why| why.starts_with("Main channel - ")));
    }
}
