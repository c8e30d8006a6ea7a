//! DEBUG's faults: each has its effect, and ends.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply};
use crate::config::Config;
use crate::debugging::Debug;
use crate::io::Input;
use crate::links::LinkId;
use crate::node::Health;
use crate::wire::Kind;

fn debug(world: &mut World, at: usize, debug: Debug) -> ClusterReply {
    world.command(at, ClusterCommand::Debug(debug)).unwrap()
}

/// A host's name, for commands.
fn name(world: &World, at: usize) -> String {
    world.hosts[at].machine.as_ref().unwrap().table().myself().id.to_string()
}

/// The links of a host to and from another one.
fn links(world: &World, at: usize, other: usize) -> (bool, bool) {
    let id = world.hosts[other].machine.as_ref().unwrap().table().myself().id;
    let table = world.hosts[at].machine.as_ref().unwrap().table();
    let node = &table[table.find(&id).unwrap()];
    (node.outbound.is_some(), node.inbound.is_some())
}

fn health(world: &World, at: usize, other: usize) -> Health {
    let id = world.hosts[other].machine.as_ref().unwrap().table().myself().id;
    let table = world.hosts[at].machine.as_ref().unwrap().table();
    table[table.find(&id).unwrap()].health
}

#[test]
fn links_are_killed_and_not_made_again() {
    let mut world = World::cluster(3, 3, 1, None);
    let (me, other) = (name(&world, 0), name(&world, 1));
    let kill = |direction: &str, node: &str| Debug::KillLink { direction: direction.into(), node: node.into() };
    let error = |text: &str| ClusterReply::Error(text.into());
    assert_eq!(debug(&mut world, 0, kill("all", "x")), error("Unknown node x"));
    assert_eq!(debug(&mut world, 0, kill("all", &me)), error("Cannot free cluster link(s) to myself"));
    assert_eq!(debug(&mut world, 0, kill("up", &other)), error("Unknown direction up"));
    assert_eq!(links(&world, 0, 1), (true, true));
    assert_eq!(debug(&mut world, 0, Debug::NoReconnection(true)), ClusterReply::Ok);
    assert_eq!(debug(&mut world, 0, kill("TO", &other)), ClusterReply::Ok);
    world.run_ms(500);
    assert_eq!(links(&world, 0, 1), (false, true));
    // Host 1 connects again: the switch is host 0's.
    debug(&mut world, 0, kill("from", &other));
    assert_eq!(links(&world, 0, 1), (false, false));
    world.run_ms(500);
    assert_eq!(links(&world, 0, 1), (false, true));
    debug(&mut world, 0, Debug::NoReconnection(false));
    world.run_ms(500);
    assert_eq!(links(&world, 0, 1), (true, true));
    debug(&mut world, 0, kill("all", &other));
    world.run_ms(500);
    assert_eq!(links(&world, 0, 1), (true, true));
}

#[test]
fn messages_are_dropped_by_their_kind() {
    let mut world = World::cluster(3, 3, 1, None);
    // Host 0 hears no PONG and suspects all; a number that no kind has lets all pass.
    debug(&mut world, 0, Debug::DropKind(Kind::Pong as i64));
    debug(&mut world, 0, Debug::CloseOnDrop(true));
    world.run_ms(200);
    assert_eq!(health(&world, 0, 1), Health::Well);
    world.run_ms(3 * TIMEOUT_MS);
    debug(&mut world, 0, Debug::DropKind(-2));
    world.run_ms(3 * TIMEOUT_MS);
    assert_ne!(health(&world, 0, 1), Health::Well);
    debug(&mut world, 0, Debug::DropKind(-1));
    debug(&mut world, 0, Debug::CloseOnDrop(false));
    world.run_ms(4 * TIMEOUT_MS);
    assert_eq!(health(&world, 0, 1), Health::Well);
}

#[test]
fn nodes_are_named_by_people_or_by_their_addresses() {
    let mut world = World::new(2, 1, None);
    world.meet(0, 1);
    world.run_ms(3000);
    let machine = world.hosts[0].machine.as_mut().unwrap();
    let other = machine.table().others()[0];
    let id = machine.table()[other].id;
    assert_eq!(machine.name(other), format!("{id} (10.0.0.1:2)"));
    machine.table[other].endpoints.ip = "fe80::1".into();
    assert_eq!(machine.name(other), format!("{id} ([fe80::1]:2)"));
    machine.table[other].node_name = "north".into();
    assert_eq!(machine.name(other), format!("{id} (north)"));
}

/// The first MEET of a handshake may lack nodes that a later one names.
#[test]
fn every_meet_of_a_handshake_teaches_nodes() {
    let mut tried = 0;
    for seed in 0..50 {
        let mut world = World::new(3, seed, None);
        world.run_ms(200);
        world.meet(0, 1);
        world.run_ms(1000);
        // Host 0 takes no replies, so that its handshake with host 2 goes on.
        debug(&mut world, 0, Debug::DropKind(-2));
        world.meet(0, 2);
        world.run_ms(150);
        let known = world.hosts[1].machine.as_ref().unwrap().table().myself().id;
        let knows = |world: &World| world.hosts[2].machine.as_ref().unwrap().table().find(&known).is_some();
        if knows(&world) {
            continue;
        }
        tried += 1;
        for _ in 0..6 {
            let table = world.hosts[0].machine.as_ref().unwrap().table();
            let handshake = table.others().into_iter().map(|key| &table[key]).find(|node| node.in_handshake());
            let node = handshake.unwrap().id.to_string();
            debug(&mut world, 0, Debug::KillLink { direction: "all".into(), node });
            world.run_ms(150);
        }
        assert!(knows(&world), "seed {seed}");
    }
    assert!(tried > 0);
}

/// An empty queue has a size, too, so a limit of one byte closes all links at the next tick.
#[test]
fn links_over_the_limit_are_closed_at_each_tick() {
    let mut world = World::cluster(3, 3, 1, None);
    let config = |world: &World, bytes: u64| {
        let config = world.hosts[0].machine.as_ref().unwrap().config().clone();
        Input::Configured(Box::new(Config { link_buffer_bytes_max: bytes, ..config }))
    };
    let closed = |world: &mut World| {
        let Some(ClusterReply::Verbatim(info)) = world.command(0, ClusterCommand::Info) else { panic!("no INFO") };
        let line = info.lines().find_map(|line| line.strip_prefix("total_cluster_links_buffer_limit_exceeded:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let input = config(&world, 1 << 20);
    world.input(0, input);
    world.run_ms(500);
    assert_eq!(closed(&mut world), 0);
    let input = config(&world, 1);
    world.input(0, input);
    world.run_ms(500);
    assert!(closed(&mut world) >= 4);
    let input = config(&world, 0);
    world.input(0, input);
    world.run_ms(1000);
    assert_eq!(links(&world, 0, 1), (true, true));
}

/// A PING has as many nodes as the directive wants, and three at least.
#[test]
fn gossip_has_the_configured_part_of_the_nodes() {
    let mut world = World::cluster(12, 3, 1, None);
    for (percent, least, most) in [(10, 3, 3), (80, 6, 9), (100, 7, 10)] {
        let machine = world.hosts[0].machine.as_mut().unwrap();
        machine.config.gossip_percent = percent;
        let entries = machine.gossip_for(None).len();
        assert!((least..=most).contains(&entries), "{percent} percent: {entries}");
    }
}

#[test]
fn dropped_messages_are_counted() {
    let mut world = World::new(1, 1, None);
    world.run_ms(200);
    let link = LinkId::Inbound(1);
    world.input(0, Input::Accepted { link, peer_ip: "10.0.0.2", local_ip: "10.0.0.1" });
    let mut bytes = vec![0; 2256];
    bytes[..8].copy_from_slice(b"RCmb\0\0\x08\xd0");
    bytes[9] = 1;
    bytes[13] = Kind::Publish as u8;
    world.input(0, Input::Received { link, bytes: &bytes });
    let Some(ClusterReply::Verbatim(info)) = world.command(0, ClusterCommand::Info) else { panic!("no INFO") };
    assert!(info.contains("cluster_stats_messages_publish_received:1\r\n"), "{info}");
    assert!(info.contains("cluster_stats_pubsub_bytes_received:2256\r\n"), "{info}");
}
