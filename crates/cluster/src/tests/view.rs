//! Views: sets that follow from owners, and endpoints for clients.

use std::collections::BTreeMap;

use crate::id::{NodeId, ShardId};
use crate::slots::{Slot, SlotSet};
use crate::view::*;

fn slot(number: u64) -> Slot {
    Slot::new(number).unwrap()
}

fn slots(from: u64, to: u64) -> SlotSet {
    (from..=to).map(slot).collect()
}

fn node(letter: char, role: Role) -> NodeView {
    let name = letter.to_string().repeat(40);
    let endpoints = Endpoints {
        ip: "10.0.0.1".into(),
        client_ipv4: "192.0.2.1".into(),
        hostname: "host".into(),
        ports: Ports { plain: 6379, tls: 6380 },
        client_ports: Ports { plain: 0, tls: 443 },
        ..Endpoints::default()
    };
    let (id, shard) = (NodeId::new(name.as_bytes()).unwrap(), ShardId::new(name.as_bytes()).unwrap());
    NodeView { id, shard, role, endpoints, failed: false, secret: None }
}

fn parts(me: u16) -> ViewParts {
    let [first, second] = [0, 1].map(NodeIndex::new);
    ViewParts {
        edition: 7,
        state: ClusterState::Ok,
        nodes: vec![node('a', Role::Primary), node('b', Role::Primary), node('c', Role::Replica(Some(first)))],
        me: NodeIndex::new(me),
        bound: vec![(first, slots(0, 99)), (second, slots(100, 199)), (NodeIndex::new(9), slots(300, 300))],
        open: BTreeMap::from([(slot(5), Open::Migrating { to: second })]),
        endpoint_kind: EndpointKind::Ip,
        reads_when_down: false,
        pubsubshard_when_down: true,
    }
}

#[test]
fn my_slots_are_bound_to_me_and_not_open() {
    let view = SlotView::new(parts(0));
    assert_eq!(view.mine.to_string(), "0-4 6-99");
    assert_eq!(view.owner(slot(5)), Some(NodeIndex::new(0)));
    assert_eq!(view.owner(slot(150)), Some(NodeIndex::new(1)));
    assert_eq!(view.owner(slot(200)), None);
    assert_eq!(view.owner(slot(300)), None, "an owner beyond the nodes");
    assert_eq!(view.open(slot(5)), Some(Open::Migrating { to: NodeIndex::new(1) }));
    assert_eq!(view.open(slot(6)), None);
    assert!(view.is_primary() && view.served_as_replica.is_empty());
}

#[test]
fn a_replica_serves_the_slots_of_its_primary() {
    let view = SlotView::new(parts(2));
    assert_eq!((view.served_as_replica.to_string(), view.mine.len()), ("0-4 6-99".into(), 0));
    assert_eq!(view.my_primary(), Some(NodeIndex::new(0)));
}

#[test]
fn nothing_is_served_while_the_cluster_is_down() {
    let view = SlotView::new(parts(0));
    assert_eq!(view.served(), &view.mine);
    let down = SlotView::new(ViewParts { state: ClusterState::Down(DownReason::Starting), ..parts(0) });
    assert!(down.served().is_empty() && down.mine == view.mine && !down.is_up());
}

#[test]
fn endpoints_follow_the_clients_connection() {
    let check = |endpoint_kind, ipv6, tls, host: &str, port| {
        let view = SlotView::new(ViewParts { endpoint_kind, ..parts(0) });
        assert_eq!(view.endpoint(NodeIndex::new(1), ClientPath { ipv6, tls }), Endpoint { host, port });
    };
    check(EndpointKind::Ip, false, false, "192.0.2.1", 6379);
    check(EndpointKind::Ip, true, true, "10.0.0.1", 443);
    check(EndpointKind::Hostname, false, false, "host", 6379);
    check(EndpointKind::Unknown, false, true, "", 443);
    let mut nameless = parts(0);
    nameless.endpoint_kind = EndpointKind::Hostname;
    nameless.nodes[1].endpoints.hostname.clear();
    let view = SlotView::new(nameless);
    assert_eq!(view.endpoint(NodeIndex::new(1), ClientPath::default()).host, "?");
    assert_eq!(view.endpoint(NodeIndex::new(8), ClientPath::default()), Endpoint { host: "?", port: 0 });
}

#[test]
fn endpoints_are_found_by_all_their_names() {
    let endpoints = node('a', Role::Primary).endpoints;
    let is_there = |host: &str, port| endpoints.are_at(host, port, true);
    for host in ["10.0.0.1", "192.0.2.1", "host"] {
        assert!(is_there(host, 6380) && is_there(host, 443) && !is_there(host, 6379), "{host}");
    }
}
