//! A node, its neighbours and their slots.
//!
//! | node | is | port |
//! | --- | --- | --- |
//! | `a` | this one | 7000 |
//! | `b` | another primary | 7001 |
//! | `c` | `a`'s primary, where that is a replica | 7002 |
//!
//! | keys | slot |
//! | --- | --- |
//! | `a`, `{a}...` | 15495 |
//! | `foo` | 12182 |
//! | `c` | 7365 |
//! | `b` | 3300 |
//! | `x43` | beyond 16000 |

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::view::{
    ClusterState, DownReason, EndpointKind, Endpoints, NodeIndex, NodeView, Open, Ports, Role, SlotView, ViewParts,
};
use cluster::{NodeId, ShardId, Slot, SlotSet, key_slot};
use config::Settings;
use engine::clients::session::Session;
use engine::inbox::Message;
use engine::testing::{Bench, request};

pub const UNBOUND: &str = "-CLUSTERDOWN Hash slot not served";
pub const DOWN: &str = "-CLUSTERDOWN The cluster is down";
pub const CROSS: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
pub const TRYAGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot";
pub const MOVED_B: &str = "-MOVED 3300 127.0.0.1:7001";

pub const A: NodeIndex = NodeIndex::new(0);
pub const B: NodeIndex = NodeIndex::new(1);
pub const C: NodeIndex = NodeIndex::new(2);

fn node(letter: &str, port: u16, role: Role) -> NodeView {
    let name = letter.repeat(40);
    let endpoints = Endpoints {
        ip: "127.0.0.1".into(),
        hostname: format!("{letter}.example"),
        ports: Ports { plain: port, tls: 0 },
        ..Endpoints::default()
    };
    let (id, shard) = (NodeId::new(name.as_bytes()).unwrap(), ShardId::new(name.as_bytes()).unwrap());
    NodeView { id, shard, role, endpoints, failed: false, secret: None }
}

pub fn slot(number: u64) -> Slot {
    Slot::new(number).unwrap()
}

fn slots(from: u64, to: u64) -> SlotSet {
    (from..=to).map(slot).collect()
}

/// Returns a view: `a` has the slots from 8192 to 16000, `b` the lower ones; the last slots have no owner.
pub fn parts() -> ViewParts {
    ViewParts {
        edition: 1,
        state: ClusterState::Ok,
        nodes: vec![node("a", 7000, Role::Primary), node("b", 7001, Role::Primary), node("c", 7002, Role::Primary)],
        me: A,
        bound: vec![(A, slots(8192, 16000)), (B, slots(0, 8191))],
        open: BTreeMap::new(),
        endpoint_kind: EndpointKind::Ip,
        reads_when_down: false,
        pubsubshard_when_down: true,
    }
}

/// Returns the view of [`parts`], with `a` as a replica of `c`, which has the slots of `a`.
pub fn replica() -> ViewParts {
    let mut parts = parts();
    parts.nodes[0].role = Role::Replica(Some(C));
    parts.bound = vec![(C, slots(8192, 16000)), (B, slots(0, 8191))];
    parts
}

/// Returns a view with open slots.
pub fn with_open(mut parts: ViewParts, open: &[(&str, Open)]) -> ViewParts {
    parts.open = open.iter().map(|(key, open)| (key_slot(key.as_bytes()), *open)).collect();
    parts
}

/// Returns a view of a cluster that is down.
pub fn down(mut parts: ViewParts) -> ViewParts {
    parts.state = ClusterState::Down(DownReason::Starting);
    parts
}

/// A node with one thread.
pub struct Node {
    pub bench: Bench,
}

impl Node {
    pub fn new(parts: ViewParts) -> Node {
        Node::with(Settings::new(), 1, parts)
    }

    pub fn with(settings: Settings, threads: usize, parts: ViewParts) -> Node {
        store::hash::hash_by_slot();
        let mut bench = Bench::with_threads(settings, threads);
        bench.never_yield();
        let node = Node { bench };
        node.see(parts);
        node
    }

    /// Replaces the view of the node.
    pub fn see(&self, parts: ViewParts) {
        self.bench.worker.engine.replace_slots(Arc::new(SlotView::new(parts)));
    }

    pub fn open(&mut self) -> Session {
        self.bench.open()
    }

    pub fn check(&mut self, session: &mut Session, script: &[(&str, &str)]) {
        self.bench.check(session, script);
    }

    /// Sends lines as a pipeline, and returns their replies.
    pub fn pipeline(&mut self, session: &mut Session, lines: &[&str]) -> String {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
        let (reply, _) = self.bench.run(session, &bytes);
        String::from_utf8_lossy(&reply).replace("\r\n", "|")
    }

    /// Sends one command whose arguments may contain blanks, and returns its reply.
    pub fn words(&mut self, session: &mut Session, words: &[&str]) -> String {
        let (reply, _) = self.bench.run(session, &request(words));
        let text = String::from_utf8_lossy(&reply).replace("\r\n", "|");
        text.strip_suffix('|').unwrap_or(&text).to_owned()
    }

    /// Returns the replies that have arrived for parked connections, and true if threads must check their subscribers.
    pub fn messages(&mut self, session: &mut Session) -> (String, bool) {
        let (mut text, mut looks) = (String::new(), false);
        for message in self.bench.worker.engine.inboxes[0].take() {
            match message {
                Message::Unpark { client, mut output, .. } => {
                    assert_eq!(client, session.client.id);
                    let mut out = resp::reply::Output::default();
                    self.bench.worker.resume(session, &mut output, &mut out);
                    text += &String::from_utf8_lossy(&out.slices().collect::<Vec<_>>().concat());
                }
                Message::SlotsChanged => looks = true,
                _ => {}
            }
        }
        (text, looks)
    }
}

#[test]
fn the_store_and_the_cluster_have_the_same_slots() {
    let mut keys: Vec<Vec<u8>> = (0..2000_u32).map(|i| format!("key:{{{}}}:{i}", i % 7).into_bytes()).collect();
    keys.extend((0..2000_u32).map(|i| i.to_string().into_bytes()));
    keys.extend((0..256).flat_map(|byte| [vec![byte as u8], vec![byte as u8; 40], vec![b'{', byte as u8, b'}', 7]]));
    keys.extend([&b"{}"[..], b"{}a", b"a{}{b}", b"{a", b"}{", b"{{a}}", b""].map(<[u8]>::to_vec));
    for key in keys {
        let slot = key_slot(&key);
        assert_eq!(store::hash::slot_of(&key), slot.number(), "{}", String::from_utf8_lossy(&key));
        store::hash::hash_by_slot();
        assert_eq!(store::hash::KeyHash::of(&key).slot(), slot.number());
    }
    assert_eq!(store::hash::SLOTS, cluster::SLOTS);
}
