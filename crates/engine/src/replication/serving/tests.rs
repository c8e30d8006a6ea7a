use std::sync::atomic::{AtomicBool, Ordering};

use replication::answers::acknowledgement;
use replication::transfer::MARK_BYTES;

use super::*;
use crate::machine::version::VALKEY_VERSION;
use crate::replication::peer::ToSend;
use crate::replication::replicas::ReplicaIntroduction;
use crate::snapshots::SnapshotForm;
use crate::testing::Bench;

/// A snapshot of ten bytes.
struct Snapshot {
    cut: u64,
    form: SnapshotForm,
    is_whole: AtomicBool,
}

impl Snapshot {
    fn whole(cut: u64, form: SnapshotForm) -> Arc<Snapshot> {
        Arc::new(Snapshot { cut, form, is_whole: true.into() })
    }
}

impl SentSnapshot for Snapshot {
    fn cut(&self) -> u64 {
        self.cut
    }

    fn mark(&self) -> [u8; MARK_BYTES] {
        [b'm'; MARK_BYTES]
    }

    fn form(&self) -> SnapshotForm {
        self.form
    }

    fn written(&self) -> (u64, bool) {
        (10, self.is_whole.load(Ordering::Relaxed))
    }

    fn has_ended(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        false
    }
}

const RULES: ServingRules = ServingRules {
    timeout: Duration::from_secs(60),
    waiting_bytes_max: 0,
    ping_period: Duration::from_secs(10),
    backlog_ttl: Duration::from_secs(3600),
    backlog_bytes: 1 << 20,
    sends_early: true,
    good_wanted: 1,
    good_lag: Duration::from_secs(10),
};
/// The version that a Penstock replica reports.
const PENSTOCK: &str = VALKEY_VERSION;
const START: Duration = Duration::from_secs(1000);

/// Returns a primary with an active stream that has a client's write.
fn primary() -> (Bench, Serving<Snapshot, ()>) {
    let mut bench = Bench::default();
    let engine = bench.worker.engine;
    let alone = engine.keyspace.gate().close();
    engine.replication.begin_stream(&engine.journal);
    drop(alone);
    let mut session = bench.open();
    bench.check(&mut session, &[("set k v", "+OK")]);
    while engine.replication.stream.take() {}
    let serving = Serving::new(&engine.replication, START);
    (bench, serving)
}

/// Admits a replica that announces this version and asks for everything.
fn admit(bench: &Bench, serving: &mut Serving<Snapshot, ()>, client: u64, version: &str) {
    let introduction = ReplicaIntroduction {
        port: 7000,
        takes_marked: true,
        reads_all_forms: version == PENSTOCK,
        version: version.to_owned(),
        ..ReplicaIntroduction::default()
    };
    let peer = Peer::new(client, "127.0.0.1".into(), introduction, Wanted::All, START);
    serving.admit(&bench.worker.engine.replication, Served { peer, link: () }, Wanted::All, START);
}

/// Takes all bytes that a replica can be sent now.
fn send_all(bench: &Bench, serving: &mut Serving<Snapshot, ()>, now: Duration) {
    let end = bench.worker.engine.replication.stream.end();
    for served in &mut serving.all {
        loop {
            let bytes = match served.peer.next(now).unwrap() {
                ToSend::Nothing => break,
                ToSend::Lines => served.peer.lines().len(),
                ToSend::Snapshot { at, .. } => 10 - at as usize,
                ToSend::Stream { from } if from == end => break,
                ToSend::Stream { from } => (end - from) as usize,
            };
            served.peer.note_sent(bytes);
        }
    }
}

fn acknowledge(bench: &Bench, serving: &mut Serving<Snapshot, ()>, offset: u64, now: Duration) {
    let end = bench.worker.engine.replication.stream.end();
    serving.all[0].peer.hear(&acknowledgement(offset, None), now, 0, end).unwrap();
}

#[test]
fn a_replica_is_good_as_soon_as_it_is_online() {
    let (bench, mut serving) = primary();
    let replication = &bench.worker.engine.replication;
    admit(&bench, &mut serving, 1, "");
    serving.begin_sending(replication, Snapshot::whole(replication.stream.end(), SnapshotForm::Rdb), true, START);
    let later = START + Duration::from_secs(60);
    serving.count_good(replication, &RULES, later);
    assert_eq!(replication.replicas.good(), 0);
    send_all(&bench, &mut serving, later);
    serving.count_good(replication, &RULES, later);
    assert_eq!(replication.replicas.good(), 1);
    assert_eq!(serving.all[0].peer.figures(&replication.stream, 0).stage, ReplicaStage::Online);
    serving.count_good(replication, &RULES, later + Duration::from_secs(11));
    assert_eq!(replication.replicas.good(), 0);
}

#[test]
fn a_replica_that_answers_a_question_has_everything() {
    let (bench, mut serving) = primary();
    let replication = &bench.worker.engine.replication;
    admit(&bench, &mut serving, 1, "");
    let units_end = replication.stream.end();
    serving.begin_sending(replication, Snapshot::whole(units_end, SnapshotForm::Rdb), true, START);
    send_all(&bench, &mut serving, START);
    replication.begin_failover(Failover {
        target: None,
        deadline_ms: None,
        is_forced: false,
        has_asked_for_hold: false,
        stage: FailoverStage::AwaitsReplica,
    });
    replication.stream.ask();
    assert_eq!(serving.judge_failover(replication, 0), FailoverVerdict::Waits);
    // The answer covers the bytes before the question.
    acknowledge(&bench, &mut serving, units_end, START);
    let successor = Primary { host: "127.0.0.1".into(), port: 7000 };
    let verdict = FailoverVerdict::HandsOver { to: successor.clone(), acknowledged: units_end };
    assert_eq!(serving.judge_failover(replication, 0), verdict);
    // This server asks the successor to continue from there, because the successor's history need not contain the
    // question.
    replication.note_failover_follows(units_end);
    let engine = bench.worker.engine;
    let alone = engine.keyspace.gate().close();
    assert!(engine.replication.follow(&engine.journal, Some(successor), true));
    drop(alone);
    assert_eq!((replication.stream.end(), replication.link().applied), (units_end, units_end));
}

/// The successor's backlog begins with its snapshot. An offset before it would need another snapshot.
#[test]
fn a_failover_continues_where_the_successor_loaded_its_snapshot() {
    let (bench, mut serving) = primary();
    let replication = &bench.worker.engine.replication;
    replication.stream.ping();
    admit(&bench, &mut serving, 1, "");
    let cut = replication.stream.end();
    assert!(cut > replication.stream.units_end());
    serving.begin_sending(replication, Snapshot::whole(cut, SnapshotForm::Rdb), true, START);
    send_all(&bench, &mut serving, START);
    acknowledge(&bench, &mut serving, cut, START);
    replication.stream.ask();
    let stage = FailoverStage::AwaitsReplica;
    replication.begin_failover(Failover {
        target: None,
        deadline_ms: None,
        is_forced: false,
        has_asked_for_hold: false,
        stage,
    });
    let FailoverVerdict::HandsOver { to, acknowledged } = serving.judge_failover(replication, 0) else {
        panic!("the replica has everything");
    };
    replication.note_failover_follows(acknowledged);
    let engine = bench.worker.engine;
    let alone = engine.keyspace.gate().close();
    assert!(engine.replication.follow(&engine.journal, Some(to), true));
    drop(alone);
    assert_eq!((replication.stream.end(), replication.link().applied), (cut, cut));
}

#[test]
fn each_replica_is_sent_a_snapshot_that_it_reads() {
    let (bench, mut serving) = primary();
    let replication = &bench.worker.engine.replication;
    for (client, version) in [(1, ""), (2, "9.1.2"), (3, PENSTOCK), (4, "8.1.0")] {
        admit(&bench, &mut serving, client, version);
    }
    assert!(serving.provide_snapshot(replication, true, START));
    assert_eq!(replication.replicas.wanted_form(), SnapshotForm::Rdb);
    let cut = replication.stream.end();
    serving.begin_sending(replication, Snapshot::whole(cut, SnapshotForm::Rdb), true, START);
    let waiting = |serving: &Serving<Snapshot, ()>| -> Vec<u64> {
        serving.all.iter().filter(|served| served.peer.awaits_snapshot()).map(|served| served.peer.client).collect()
    };
    assert_eq!(waiting(&serving), [2]);
    assert!(serving.provide_snapshot(replication, true, START));
    assert_eq!(replication.replicas.wanted_form(), SnapshotForm::ValkeyRdb);
    serving.begin_sending(replication, Snapshot::whole(cut, SnapshotForm::ValkeyRdb), true, START);
    assert_eq!(waiting(&serving), [0; 0]);
    assert!(!serving.provide_snapshot(replication, true, START));
}
