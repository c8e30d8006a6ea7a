//! Clusters in the simulated world: they form, survive faults, and agree again.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply};
use crate::manual::FailoverMode;
use crate::rules::Rule;

fn assert_sound(world: &World) {
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

#[test]
fn a_cluster_forms() {
    let world = World::cluster(6, 3, 1, None);
    assert_sound(&world);
    assert!(world.unserved().is_empty(), "{}", world.unserved());
}

#[test]
fn a_replica_takes_the_place_of_a_crashed_primary() {
    let mut world = World::cluster(6, 3, 2, None);
    world.write_with_clients(true);
    world.run_ms(3000);
    world.crash(0);
    world.run_ms(4 * TIMEOUT_MS);
    assert!(world.unserved().is_empty(), "{}", world.unserved());
    assert!(world.is_primary(3));
    world.mend();
    world.settle_within(20);
    assert!(!world.is_primary(0));
    assert_sound(&world);
    assert_eq!(world.lost_writes(), Vec::<String>::new());
}

#[test]
fn a_planned_failover_loses_no_write() {
    let mut world = World::cluster(6, 3, 3, None);
    world.write_with_clients(true);
    for round in 0..10 {
        world.run_ms(2000);
        let replica = if world.is_primary(0) { 3 } else { 0 };
        assert_eq!(world.command(replica, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
        world.run_ms(TIMEOUT_MS);
        assert!(world.is_primary(replica), "round {round}");
    }
    world.settle_within(20);
    assert_sound(&world);
    assert_eq!(world.lost_writes(), Vec::<String>::new());
}

/// The replica that has asked first may win. A write that the primary takes when the second one asks would be lost.
#[test]
fn a_second_planned_failover_lets_no_write_pass() {
    let mut world = World::cluster(9, 3, 3, None);
    world.write_with_clients(true);
    world.run_ms(2000);
    [3, 6].into_iter().for_each(|replica| world.hosts[replica].lags = true);
    world.run_ms(500);
    for replica in [3, 6] {
        assert_eq!(world.command(replica, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
        world.run_ms(200);
        assert!(world.is_primary(0));
        assert_eq!(world.hosts[0].resumed, 0);
    }
    world.hosts[6].lags = false;
    world.run_ms(TIMEOUT_MS);
    assert!(world.is_primary(6));
    assert_sound(&world);
}

/// The primary takes writes again after the timeout. A replica that wins shortly before would tell it too late.
#[test]
fn a_planned_failover_ends_before_the_primary_takes_writes_again() {
    let mut world = World::cluster(6, 3, 3, None);
    let timeout_ms = world.hosts[3].machine.as_ref().unwrap().config().manual_failover_timeout_ms;
    world.write_with_clients(true);
    world.run_ms(2000);
    world.hosts[3].lags = true;
    world.run_ms(500);
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
    world.run_ms(timeout_ms * 9 / 10);
    assert_eq!(world.hosts[0].resumed, 0);
    world.hosts[3].lags = false;
    world.run_ms(4 * TIMEOUT_MS);
    assert!(world.is_primary(0) && !world.is_primary(3));
    assert_sound(&world);
}

/// A primary that hears its replica ask for votes holds writes back: the winner lacks them. Clients go to the winner once it claims the slots.
#[test]
fn a_primary_holds_writes_while_its_replica_asks_for_votes() {
    let mut world = World::cluster(6, 3, 3, None);
    world.write_with_clients(true);
    world.run_ms(2000);
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
    world.run_ms(500);
    assert!(world.is_primary(3) && !world.is_primary(0));
    assert_eq!(world.hosts[0].resumed, 1);
}

/// A voter that has just voted for a replica gives its primary no epoch above the winner's.
#[test]
fn a_primary_gets_no_epoch_while_its_replica_is_elected() {
    let mut world = World::cluster(10, 5, 1, None);
    // The replica's requests reach everybody but its primary.
    world.net.set_cut(5, 0, true);
    assert_eq!(world.command(5, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
    // The claim of the winner is not on disk yet.
    world.hosts[5].slow_disk = true;
    while !world.is_primary(5) {
        world.run_ms(1);
    }
    // The target asks for a second epoch after half a second.
    (0..8).for_each(|_| assert_eq!(world.repeat_command(0, &ClusterCommand::PrepareClaim), Some(ClusterReply::Later)));
    world.hosts[5].slow_disk = false;
    world.mend();
    world.run_ms(4 * TIMEOUT_MS);
    assert!(world.is_primary(5) && !world.is_primary(0));
    assert_sound(&world);
}

/// Two nodes ask for votes in one epoch: a replica, and the target of a move. The replica asks again at once.
#[test]
fn an_election_goes_on_beside_the_end_of_a_move() {
    for seed in 0..20 {
        let mut world = World::cluster(10, 5, seed, None);
        world.begin_command(1, ClusterCommand::PrepareClaim);
        assert_eq!(world.command(5, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
        world.run_ms(500);
        assert!(world.is_primary(5), "seed {seed}");
        assert_sound(&world);
    }
}

/// Offsets of two histories can't be compared: the primary has started again, and the replica has not noticed it.
#[test]
fn a_planned_failover_needs_the_data_of_the_present_primary() {
    let mut world = World::cluster(6, 3, 14, None);
    world.write_with_clients(true);
    world.run_ms(2000);
    world.hosts[3].lags = true;
    world.hosts[0].log = std::rc::Rc::new(vec![0]);
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
    world.run_ms(2000);
    assert!(world.is_primary(0) && !world.is_primary(3));
    world.hosts[3].lags = false;
    world.run_ms(2000);
    assert!(world.is_primary(3));
    assert_sound(&world);
}

/// A replica whose data are being replaced would lose them all. FORCE is refused, and an election that FORCE has begun waits for the data.
#[test]
fn a_forced_failover_waits_for_complete_data() {
    let mut world = World::cluster(6, 3, 15, None);
    let mut config = world.hosts[3].machine.as_ref().unwrap().config().clone();
    config.manual_failover_timeout_ms = 60_000;
    world.input(3, crate::io::Input::Configured(Box::new(config)));
    world.hosts[3].loads = true;
    world.run_ms(200);
    let reply = world.command(3, ClusterCommand::Failover(FailoverMode::Force));
    assert!(matches!(reply, Some(ClusterReply::Error(text)) if text.starts_with("The data of this replica")));
    world.hosts[3].loads = false;
    world.run_ms(200);
    world.isolate(3);
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
    world.hosts[3].loads = true;
    world.run_ms(200);
    world.mend();
    world.run_ms(10 * TIMEOUT_MS);
    assert!(!world.is_primary(3));
    let obstacle = world.hosts[3].machine.as_ref().unwrap().failover_obstacle();
    assert_eq!(obstacle, Some(crate::election::Obstacle::Incomplete));
    world.hosts[3].loads = false;
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(3));
    assert_sound(&world);
}

/// A life of faults, and peace behind it.
fn storm(hosts: usize, shards: usize, seed: u64, rounds: u64, without: Option<Rule>) -> World {
    let mut world = World::cluster(hosts, shards, seed, without);
    world.write_with_clients(true);
    for _ in 0..rounds {
        let number = world.dice.below(16384) as usize;
        let to = world.dice.below(hosts as u64) as usize;
        world.move_slot(number, to);
        for _ in 0..world.dice.below(4) + 1 {
            world.fault();
            let pause = world.dice.below(2 * TIMEOUT_MS);
            world.run_ms(pause);
        }
        world.mend();
        if world.dice.chance(50) {
            world.settle_within(60);
        }
    }
    world.mend();
    world.settle_within(100);
    world
}

#[test]
fn faults_leave_a_sound_cluster() {
    let mut ticks = 0;
    let only = std::env::var("WORLD_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in only.map_or(0..8, |seed| seed..seed + 1) {
        let world = storm(6, 3, 100 + seed, 20, None);
        assert!(world.checks.violations.is_empty(), "seed {seed}: {}", world.checks.violations.join("\n"));
        assert_eq!(world.lost_writes(), Vec::<String>::new(), "seed {seed}");
        ticks += world.node_ticks;
    }
    assert!(ticks > 1000, "{ticks} ticks of nodes");
}

#[test]
fn a_large_cluster_forms_and_loses_a_tenth() {
    lose_a_tenth(40);
}

#[test]
#[ignore = "takes minutes"]
fn two_hundred_nodes_form_and_lose_a_tenth() {
    lose_a_tenth(200);
}

fn lose_a_tenth(hosts: usize) {
    let mut world = World::cluster(hosts, hosts / 2, 1, None);
    assert_sound(&world);
    for host in 0..hosts / 10 {
        world.crash(host * 3 % (hosts / 2));
    }
    world.run_ms(12 * TIMEOUT_MS);
    assert!(world.unserved().is_empty(), "{}", world.unserved());
    world.mend();
    world.settle_within(30);
    assert_sound(&world);
}

#[test]
fn a_replica_moves_to_a_primary_without_any() {
    let mut world = World::cluster(7, 3, 5, None);
    // Shard 0 has two replicas, 3 and 6. Shard 1 loses its only one.
    world.crash(4);
    world.run_ms(10 * TIMEOUT_MS);
    let replicas: Vec<usize> = [3, 6].into_iter().filter(|host| follows(&world, *host) == Some(1)).collect();
    assert_eq!(replicas.len(), 1);
    world.mend();
    world.settle_within(20);
    assert_sound(&world);
}

fn follows(world: &World, host: usize) -> Option<usize> {
    world.hosts[host].follows.and_then(|id| world.host_of(id))
}

#[test]
fn a_forgotten_node_stays_so_for_a_while() {
    let mut world = World::cluster(5, 3, 6, None);
    let id = world.id(4);
    world.isolate(4);
    world.command(0, ClusterCommand::Forget(id.clone()));
    let knowing = |world: &World| {
        let knows = |host: &usize| {
            let table = world.hosts[*host].machine.as_ref().unwrap().table();
            table.keys().any(|key| table[key].id.to_string() == id)
        };
        (0..4).filter(knows).count()
    };
    world.run_ms(3 * TIMEOUT_MS);
    assert_eq!(knowing(&world), 0, "peers tell each other");
    world.run_ms(50_000);
    assert_eq!(knowing(&world), 0);
    // The node itself comes back, and is a stranger.
    world.net.mend_all();
    world.run_ms(2000);
    assert_eq!(knowing(&world), 0);
}

#[test]
fn a_reset_node_is_alone_and_can_join_again() {
    let mut world = World::cluster(4, 3, 7, None);
    let id = world.id(3);
    for host in 0..3 {
        world.command(host, ClusterCommand::Forget(id.clone()));
    }
    assert_eq!(world.command(3, ClusterCommand::Reset { hard: true, has_keys: true }), Some(ClusterReply::Ok));
    assert_ne!(world.id(3), id);
    world.run_ms(TIMEOUT_MS);
    assert_eq!(world.hosts[3].machine.as_ref().unwrap().table().count(), 1);
    world.meet(1, 3);
    world.settle_within(20);
    assert_sound(&world);
    assert_eq!(world.hosts[0].machine.as_ref().unwrap().table().count(), 4);
}

#[test]
fn a_replica_says_why_it_does_not_take_over() {
    let mut world = World::cluster(6, 3, 8, None);
    let mut config = world.hosts[3].machine.as_ref().unwrap().config().clone();
    config.replica_no_failover = true;
    world.input(3, crate::io::Input::Configured(Box::new(config)));
    world.crash(0);
    world.run_ms(4 * TIMEOUT_MS);
    let machine = world.hosts[3].machine.as_ref().unwrap();
    assert_eq!(machine.failover_obstacle(), Some(crate::election::Obstacle::Forbidden));
    let Some(ClusterReply::Verbatim(info)) = world.command(3, ClusterCommand::Info) else { panic!() };
    assert!(info.contains("cluster_failover_obstacle:cluster-replica-no-failover is on\r\n"), "{info}");
    assert!(info.contains("cluster_state:fail\r\n") && info.contains("cluster_size:3\r\n"), "{info}");
}

/// Runs the worlds of `WORLD_SEEDS` seeds from `WORLD_SEED` on, or as many as have a million ticks together. Names every seed that fails.
#[test]
#[ignore = "takes a minute: a million ticks of nodes, in worlds of several sizes"]
fn many_worlds_are_sound() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("WORLD_SEED").unwrap_or(0), number("WORLD_SEEDS"));
    let (mut ticks, mut failed) = (0, Vec::new());
    for seed in first.. {
        if count.map_or(ticks > 1_000_000, |count| seed - first >= count) {
            break;
        }
        let (hosts, shards) = [(6, 3), (9, 3), (8, 4), (12, 5), (5, 5), (3, 3)][seed as usize % 6];
        let world = storm(hosts, shards, 10_000 + seed, 20, None);
        let found = world.checks.violations.iter().cloned().chain(world.lost_writes());
        failed.extend(found.map(|text| format!("seed {seed}: {text}")));
        ticks += world.node_ticks;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_primary_that_shuts_down_names_its_successor() {
    let mut world = World::cluster(6, 3, 11, None);
    let [other, chosen] =
        [4, 3].map(|host| world.hosts[host].machine.as_ref().unwrap().table().myself().id.to_string());
    let shut_down = |id: &str| ClusterCommand::FailoverAtShutdown(id.to_owned());
    assert_eq!(world.command(3, shut_down(&other)), Some(ClusterReply::Ok));
    world.run_ms(1000);
    assert!(!world.is_primary(3));
    assert_eq!(world.command(3, shut_down(&chosen)), Some(ClusterReply::Ok));
    world.run_ms(1000);
    assert!(world.is_primary(3) && world.unserved().is_empty());
    assert_sound(&world);
}

/// The bus of a stopped process may have a tick before the first worker runs. The workers count as hanging in that tick.
#[test]
fn a_primary_that_was_stopped_does_not_serve_before_a_majority_answers() {
    let mut world = World::cluster(6, 3, 12, None);
    let stale: Vec<(usize, Vec<u8>)> = [1, 2].map(|from| (from, world.last_message(from, 0))).into();
    world.isolate(0);
    world.hosts[0].stopped = true;
    world.run_ms(4 * TIMEOUT_MS);
    assert!(world.is_primary(3));
    (world.hosts[0].stopped, world.hosts[0].hangs) = (false, true);
    world.run_ms(100);
    world.hosts[0].hangs = false;
    world.run_ms(100);
    assert!(!serves(&world, 0));
    // Messages from before the stop prove nothing.
    for (from, bytes) in stale {
        let id = world.id(from);
        let table = world.hosts[0].machine.as_ref().unwrap().table();
        let link = table.keys().map(|key| &table[key]).find(|node| node.id.to_string() == id).unwrap().inbound;
        world.input(0, crate::io::Input::Received { link: link.unwrap(), bytes: &bytes });
    }
    world.run_ms(TIMEOUT_MS / 2);
    assert!(!serves(&world, 0));
    world.mend();
    world.settle_within(20);
    assert!(!world.is_primary(0));
    assert_sound(&world);
}

/// A process that was stopped for a moment serves again once a majority has answered.
#[test]
fn a_primary_that_was_stopped_for_a_moment_serves_again() {
    let mut world = World::cluster(6, 3, 13, None);
    world.hosts[0].hangs = true;
    world.run_ms(TIMEOUT_MS * 3 / 4);
    world.hosts[0].hangs = false;
    world.run_ms(100);
    assert!(!serves(&world, 0));
    world.run_ms(TIMEOUT_MS / 2);
    assert!(serves(&world, 0) && world.is_primary(0));
    assert_sound(&world);
}

fn serves(world: &World, host: usize) -> bool {
    world.hosts[host].view.as_ref().is_some_and(|view| view.is_up() && !view.mine.is_empty())
}
