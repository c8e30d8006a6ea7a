//! Announcements of moved slots to clients that hear of maintenance.

use cluster::view::{Role, ViewParts};
use engine::clients::session::Session;

use crate::world::{B, C, Node, parts, slot};

/// Returns all announcements for a connection so far, with the number of each replaced by `N`.
fn told(node: &Node, session: &Session) -> Vec<String> {
    let engine = node.bench.worker.engine;
    engine.announce_migrated(node.bench.now_us / 1000);
    let pushes = engine.inboxes[0].pushes_for(session.client.id, 0, u64::MAX);
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
        let number = text.split(' ').find(|word| word.starts_with(':')).unwrap_or_default().to_owned();
        text.replace(&number, ":N")
    };
    pushes.iter().map(|push| text(&push.bytes)).collect()
}

fn listener(node: &mut Node) -> Session {
    let mut session = node.open();
    node.words(&mut session, &["HELLO", "3"]);
    node.check(&mut session, &[("client maint_notifications on", "+OK")]);
    session
}

/// Gives slots of `a` to other nodes.
fn given(to: &[(cluster::view::NodeIndex, u64)]) -> ViewParts {
    let mut parts = parts();
    for (owner, number) in to {
        parts.bound.push((*owner, [slot(*number)].into_iter().collect()));
    }
    parts
}

#[test]
fn slots_that_went_to_other_shards_are_announced_together() {
    let mut node = Node::new(parts());
    let session = listener(&mut node);
    node.see(given(&[(B, 9000)]));
    node.see(given(&[(B, 9000), (B, 9001), (C, 16000)]));
    let b = "*3 $14 127.0.0.1:7000 $14 127.0.0.1:7001 $9 9000-9001 ";
    let c = "*3 $14 127.0.0.1:7000 $14 127.0.0.1:7002 $5 16000 ";
    assert_eq!(told(&node, &session), [format!(">3 $9 SMIGRATED :N *2 {b}{c}")]);
    // Slots that return, and slots without an owner, have not moved.
    node.see(given(&[(B, 9000), (B, 9001), (C, 16000), (B, 9005)]));
    node.see(given(&[(B, 9000), (B, 9001), (C, 16000)]));
    let mut unbound = parts();
    unbound.bound.truncate(1);
    unbound.bound[0].1 = [slot(8192)].into_iter().collect();
    node.see(unbound);
    assert_eq!(told(&node, &session).len(), 1, "nothing new");
}

#[test]
fn slots_that_a_replica_took_over_are_not_announced() {
    let mut node = Node::new(parts());
    let session = listener(&mut node);
    let mut taken = parts();
    taken.nodes[2].shard = taken.nodes[0].shard;
    taken.nodes[0].role = Role::Replica(Some(C));
    taken.bound[0].0 = C;
    node.see(taken);
    assert_eq!(told(&node, &session), Vec::<String>::new());
}

/// A node that gave its last slots away becomes a replica of their new owner.
#[test]
fn the_last_slots_of_a_node_are_announced() {
    let mut node = Node::new(parts());
    let session = listener(&mut node);
    let mut last = parts();
    last.nodes[0].shard = last.nodes[2].shard;
    last.nodes[0].role = Role::Replica(Some(C));
    last.bound[0].0 = C;
    node.see(last);
    let c = "*3 $14 127.0.0.1:7000 $14 127.0.0.1:7002 $10 8192-16000 ";
    assert_eq!(told(&node, &session), [format!(">3 $9 SMIGRATED :N *1 {c}")]);
}

#[test]
fn slots_about_to_move_are_announced() {
    let mut node = Node::new(parts());
    let session = listener(&mut node);
    let engine = node.bench.worker.engine;
    engine.announce_migrating(&[slot(9000), slot(9002)].into_iter().collect(), node.bench.now_us / 1000);
    assert_eq!(told(&node, &session), [">3 $10 SMIGRATING :N $9 9000,9002 ".to_owned()]);
}
