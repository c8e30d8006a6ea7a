//! Changes of slots on their way to the replicas.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::NodeId;
use cluster::commands::{ClusterCommand, ClusterReply};
use config::{Apply, ConfigHost, Loader, Settings};
use engine::host::{Host, Shutdown};
use engine::replication::Primary;
use engine::replication::replicas::{ReplicaFigures, ReplicaStage};
use engine::slots::bus::{Answer, BusRequest};
use engine::snapshots::{Outcome, Outlet, Piece, Purpose, SnapshotForm};
use engine::testing::{Bench, request};
use replication::id::{HistoryId, HistoryPoint};

use crate::world::*;

/// A server that notes requests to its bus, and the snapshots that begin.
#[derive(Default)]
struct Notes {
    requests: Mutex<Vec<BusRequest>>,
    snapshots: Mutex<Vec<Receiver<Piece>>>,
}

struct Server(Arc<Notes>);

impl ConfigHost for Server {
    fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
        Ok(())
    }
}

impl Host for Server {
    fn shut_down(&self, _: Shutdown) {}

    fn cluster(&self, request: BusRequest) -> Result<(), String> {
        self.0.requests.lock().unwrap().push(request);
        Ok(())
    }

    fn save(&self, _: Purpose, _: SnapshotForm, _: Arc<Outlet>, pieces: Receiver<Piece>) -> Result<(), String> {
        self.0.snapshots.lock().unwrap().push(pieces);
        Ok(())
    }
}

/// A primary with a replica that takes changes of slots from its stream.
fn primary() -> (Node, Arc<Notes>) {
    store::hash::hash_by_slot();
    let notes = Arc::<Notes>::default();
    let host = Box::new(Server(notes.clone()));
    let settings = Settings::new();
    // Names of equal letters would be compressed in snapshots.
    Loader::new(&settings).directive(&[b"rdbcompression".to_vec(), b"no".to_vec()]).unwrap();
    let bench = Bench::with_host(settings, 1, host, 1_700_000_000_000_000, 1);
    let engine = bench.worker.engine;
    let point = HistoryPoint { id: HistoryId::new([1; 20]), offset: 50, database: 0 };
    engine.follow(Some(Primary { host: "10.0.0.1".into(), port: 1 }), 0);
    engine.replication.begin_history(engine.replication.primary().1, point);
    engine.follow(None, 0);
    let (position, synced_position) = (engine.journal.position(), engine.journal.position());
    engine.replication.replicas.note(vec![ReplicaFigures {
        client: 1000,
        address: "10.0.0.2".into(),
        port: 1,
        stage: ReplicaStage::Online,
        offset: 0,
        synced: 0,
        position,
        synced_position,
        heard_ms: 0,
        node: None,
        takes_over: false,
    }]);
    engine.slots.replicas_take_slots.store(true, Ordering::Relaxed);
    let node = Node { bench };
    node.see(parts());
    (node, notes)
}

/// The states of slots at the beginning of a snapshot for replicas that is cut now.
fn states(node: &mut Node, notes: &Notes) -> Option<String> {
    let engine = node.bench.worker.engine;
    engine.snapshots.want(Purpose::Replicas);
    node.bench.worker.begin_wanted_snapshot();
    while node.bench.worker.walk_snapshot(Duration::from_secs(1)) {}
    let pieces = notes.snapshots.lock().unwrap().pop().unwrap();
    let header = match pieces.try_recv() {
        Ok(Piece::Bytes(bytes)) => bytes,
        _ => Vec::new(),
    };
    assert!(!header.is_empty(), "a snapshot begins with its header");
    let text = String::from_utf8_lossy(&header).into_owned();
    engine.snapshots.note_ended(Outcome::Failed, 0);
    let (_, rest) = text.split_once("cluster-slot-states")?;
    let end = rest.find(',').unwrap() + 1;
    // A length precedes the text.
    Some(rest[..end].trim_start_matches(|letter: char| !letter.is_ascii_digit()).to_owned())
}

/// A replica that loads a snapshot from between the two moments gets the change neither from the stream nor from the map.
#[test]
fn a_snapshot_shows_a_change_that_is_in_the_stream_and_not_in_the_map() {
    let (mut node, notes) = primary();
    let mut session = node.open();
    let target = "b".repeat(40);
    node.bench.run(&mut session, &request(&["cluster", "setslot", "12182", "migrating", &target]));
    let check = notes.requests.lock().unwrap().pop().unwrap();
    assert!(matches!(check.command, ClusterCommand::CheckSetSlot { .. }));
    let Answer::Client { client, wait, .. } = check.answer else { panic!("nobody waits") };
    assert_eq!(states(&mut node, &notes), None);
    node.bench.worker.answer_for_bus(client, wait, Box::new(ClusterReply::Ok));
    assert_eq!(states(&mut node, &notes), Some(format!("12182>{target},")));
    node.bench.worker.answer_for_bus(client, wait, Box::new(ClusterReply::NotReplicated));
    assert_eq!(states(&mut node, &notes), None);
}

/// The stream of the replicas, as text.
fn stream(node: &Node) -> String {
    let stream = &node.bench.worker.engine.replication.stream;
    while stream.take() {}
    let whole = stream.with_backlog(|backlog| {
        let (mut scratch, mut at, mut text) = (Vec::new(), backlog.start(), String::new());
        while let Ok(Some(piece)) = backlog.piece(at, &mut scratch) {
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            text += &String::from_utf8_lossy(piece);
        }
        text
    });
    whole.unwrap_or_default().replace("\r\n", "|")
}

/// The bus opens an import again without a command.
#[test]
fn replicas_hear_of_imports_that_the_bus_opens() {
    let (mut node, _) = primary();
    let engine = node.bench.worker.engine;
    let (first, second) = ("b".repeat(40), "c".repeat(40));
    let tell = |node: &mut Node, slots: &[u64], source: &str| {
        engine
            .slots
            .untold_imports
            .add(slots.iter().map(|at| slot(*at)).collect(), NodeId::new(source.as_bytes()).unwrap());
        node.bench.worker.tell_replicas();
    };
    let record = |slot: &str, source: &str| {
        format!("*5|$7|CLUSTER|$7|SETSLOT|${}|{slot}|$9|IMPORTING|$40|{source}|", slot.len())
    };
    engine.slots.replicas_take_slots.store(false, Ordering::Relaxed);
    tell(&mut node, &[3], &first);
    assert_eq!(stream(&node), "", "a replica of Redis");
    engine.slots.replicas_take_slots.store(true, Ordering::Relaxed);
    tell(&mut node, &[7, 12182], &first);
    tell(&mut node, &[9], &second);
    let expected = [record("7", &first), record("12182", &first), record("9", &second)].concat();
    assert!(stream(&node).ends_with(&expected), "{}", stream(&node));
    node.bench.worker.tell_replicas();
    assert!(stream(&node).ends_with(&expected), "each is recorded once");
    // A replica may take over during the pause.
    let mut session = node.open();
    node.check(&mut session, &[("client pause 100000 write", "+OK")]);
    tell(&mut node, &[10], &second);
    assert!(stream(&node).ends_with(&expected), "a pause");
    node.check(&mut session, &[("client unpause", "+OK")]);
    node.bench.worker.tell_replicas();
    assert!(stream(&node).ends_with(&record("10", &second)), "{}", stream(&node));
}
