//! Snapshots of slots, which the thread of a move walks.

use std::sync::Arc;
use std::time::Duration;

use cluster::{SlotSet, key_slot};
use config::Settings;
use engine::slot_moves::SlotWalk;
use engine::snapshots::{BegunSlots, Outcome, Piece, SlotsHandover, WantedSlots};
use engine::testing::{Bench, request};

use crate::world::*;

/// Keys of a slot, more than one step of a walk saves.
const KEYS: usize = 2000;

/// A node with some threads, and keys in two slots that are about to move.
fn node_with_keys(threads: usize) -> Node {
    store::hash::hash_by_slot();
    let mut node = Node { bench: Bench::with_threads(Settings::new(), threads) };
    node.see(parts());
    let mut session = node.open();
    for tag in ["a", "foo"] {
        for number in 0..KEYS {
            let (key, value) = (format!("{{{tag}}}{number}"), "v".repeat(20));
            node.bench.run(&mut session, &request(&["set", &key, &value]));
        }
    }
    node
}

fn moving() -> SlotSet {
    [key_slot(b"a"), key_slot(b"foo")].into_iter().collect()
}

/// Begins the walk of a snapshot by the thread of the move.
fn walk(node: &Node, begun: &mut BegunSlots) -> SlotWalk {
    SlotWalk::begin(node.bench.worker.engine, begun.walk.take().unwrap(), &moving())
}

/// Begins a snapshot of the two slots.
fn begin(node: &mut Node) -> BegunSlots {
    let handover = Arc::<SlotsHandover>::default();
    node.bench.worker.engine.snapshots.want_slots(WantedSlots::new(moving(), handover.clone()));
    node.bench.worker.begin_wanted_snapshot();
    handover.take().unwrap().unwrap()
}

/// Returns the number of keys in the pieces so far, and true if they end with a whole snapshot.
fn read(begun: &BegunSlots) -> (usize, bool) {
    let (mut keys, mut is_whole) = (0, false);
    for piece in begun.pieces.try_iter() {
        match piece {
            Piece::Bytes(bytes) => {
                keys += String::from_utf8_lossy(&bytes).matches("{a}").count();
                keys += String::from_utf8_lossy(&bytes).matches("{foo}").count();
                begun.outlet.note_done(bytes.len());
            }
            Piece::Whole => is_whole = true,
            _ => {}
        }
    }
    (keys, is_whole)
}

fn let_workers_walk(node: &mut Node) {
    while node.bench.worker.walk_snapshot(Duration::from_secs(1)) {}
}

#[test]
fn workers_leave_the_slots_to_the_thread_of_the_move() {
    let mut node = node_with_keys(2);
    let mut begun = begin(&mut node);
    let mut walk = walk(&node, &mut begun);
    let_workers_walk(&mut node);
    assert!(!node.bench.worker.walks_snapshot());
    assert_eq!(read(&begun), (0, false));
    while walk.step() {}
    assert!(walk.is_done());
    assert_eq!(read(&begun), (2 * KEYS, false));
    drop(walk);
    // A worker ends the snapshot.
    assert!(node.bench.worker.walks_snapshot());
    let_workers_walk(&mut node);
    assert_eq!(read(&begun), (0, true));
    node.bench.worker.engine.snapshots.note_ended(Outcome::Saved { bytes: 0 }, 0);
}

#[test]
fn workers_walk_the_rest_after_the_end_of_the_thread() {
    let mut node = node_with_keys(2);
    let mut another = node.bench.another_worker(1, 1);
    let mut begun = begin(&mut node);
    let mut walk = walk(&node, &mut begun);
    assert!(walk.step() && !walk.is_done());
    drop(walk);
    let_workers_walk(&mut node);
    while another.walk_snapshot(Duration::from_secs(1)) {}
    assert_eq!(read(&begun), (2 * KEYS, true));
    node.bench.worker.engine.snapshots.note_ended(Outcome::Saved { bytes: 0 }, 0);
}

/// Shards have no locks then.
#[test]
fn a_single_worker_walks_the_slots_itself() {
    let mut node = node_with_keys(1);
    let begun = begin(&mut node);
    assert!(begun.walk.is_none());
    let_workers_walk(&mut node);
    assert_eq!(read(&begun), (2 * KEYS, true));
    node.bench.worker.engine.snapshots.note_ended(Outcome::Saved { bytes: 0 }, 0);
}
