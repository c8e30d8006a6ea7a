//! Tests that each rule is necessary: a scenario succeeds with the rule, and fails without it.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply, SetSlot};
use crate::config::Config;
use crate::id::NodeId;
use crate::io::Input;
use crate::manual::FailoverMode;
use crate::rules::Rule;
use crate::slots::Slot;
use crate::wire::{self, Body, Message};

/// The complaints about a world that was left alone for a while.
fn complaints(mut world: World) -> Vec<String> {
    world.mend();
    world.settle_within(30);
    let mut found = world.checks.violations.clone();
    found.extend(world.lost_writes());
    found
}

/// Checks that a scenario is sound with all rules, and isn't without one of them.
fn check(rule: Rule, seeds: u64, scenario: impl Fn(u64, Option<Rule>) -> Vec<String>) {
    for seed in 0..seeds {
        assert_eq!(scenario(seed, None), Vec::<String>::new(), "{rule:?} holds, seed {seed}");
    }
    let fails = (0..seeds).any(|seed| !scenario(seed, Some(rule)).is_empty());
    assert!(fails, "nothing is wrong without {rule:?}");
}

fn expect(found: &mut Vec<String>, holds: bool, text: &str) {
    if !holds {
        found.push(text.to_owned());
    }
}

fn slot(number: u64) -> Slot {
    Slot::new(number).unwrap()
}

/// The host that owns a slot in another host's table.
fn owner(world: &World, at: usize, number: u64) -> Option<usize> {
    let table = world.hosts[at].machine.as_ref()?.table();
    world.host_of(table[table.owner(slot(number))?].id)
}

#[test]
fn save_before_send() {
    check(Rule::SaveBeforeSend, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.hosts[3].slow_disk = true;
        world.crash(0);
        world.run_ms(6 * TIMEOUT_MS);
        complaints(world)
    });
}

#[test]
fn epoch_collision() {
    check(Rule::EpochCollision, 1, |seed, without| {
        let mut world = World::new(4, seed, without);
        world.run_ms(200);
        for host in 0..4 {
            let range = (slot(host * 4096), slot(host * 4096 + 4095));
            world.command(host as usize, ClusterCommand::AddSlotsRange(vec![range]));
        }
        (1..4).for_each(|host| world.meet(0, host));
        complaints(world)
    });
}

#[test]
fn unclaimed_slots() {
    check(Rule::UnclaimedSlots, 1, |seed, without| {
        let mut world = World::cluster(3, 3, seed, without);
        // The owner with the greatest epoch gives a slot up; a node with a lower one takes it.
        let number = 16383;
        world.command(2, ClusterCommand::DelSlots(vec![slot(number)]));
        world.command(0, ClusterCommand::DelSlots(vec![slot(number)]));
        assert_eq!(world.command(0, ClusterCommand::AddSlots(vec![slot(number)])), Some(ClusterReply::Ok));
        complaints(world)
    });
}

#[test]
fn update_old_claims() {
    check(Rule::UpdateOldClaims, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.isolate(0);
        world.run_ms(5 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(3), "the replica has not taken over");
        // The old primary comes back, and can't talk to its successor: others must tell it.
        world.mend();
        world.net.set_cut(0, 3, true);
        world.net.set_cut(3, 0, true);
        world.run_ms(TIMEOUT_MS);
        expect(&mut found, !world.is_primary(0), "the old primary doesn't know of its successor");
        found.extend(complaints(world));
        found
    });
}

#[test]
fn greater_epoch_wins() {
    check(Rule::GreaterEpochWins, 2, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.isolate(0);
        world.run_ms(5 * TIMEOUT_MS);
        world.mend();
        world.run_ms(TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(3) && !world.is_primary(0), "the old primary has come back");
        found.extend(complaints(world));
        found
    });
}

#[test]
fn failure_quorum() {
    check(Rule::FailureQuorum, 2, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        // One link is cut: each end suspects the other, and nobody else does.
        world.net.set_cut(0, 1, true);
        world.net.set_cut(1, 0, true);
        world.run_ms(10 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.winners.is_empty(), "a working primary was replaced");
        found.extend(complaints(world));
        found
    });
}

/// Marks one host as failed in the tables of others, as a FAIL message does.
fn mark_failed(world: &mut World, failed: usize, at: &[usize]) {
    let id = NodeId::new(world.id(failed).as_bytes()).unwrap();
    for host in at {
        let machine = world.hosts[*host].machine.as_mut().unwrap();
        let key = machine.table().find(&id).unwrap();
        machine.fail(key);
    }
}

/// A replica is elected that the voters have marked as failed, because a partition has ended just now. Its old primary, which has marked it
/// as well, comes back as its replica.
#[test]
fn failure_epoch() {
    check(Rule::FailureEpoch, 3, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.isolate(0);
        let has_voted = |world: &World| world.hosts[1].machine.as_ref().unwrap().last_vote_epoch > 0;
        let deadline_ms = world.now_ms + 10 * TIMEOUT_MS;
        while !has_voted(&world) && world.now_ms < deadline_ms {
            world.run_ms(1);
        }
        let epoch = world.hosts[1].machine.as_ref().unwrap().last_vote_epoch;
        mark_failed(&mut world, 3, &[0, 1, 2]);
        world.run_ms(100);
        world.net.mend_all();
        world.run_ms(10 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.winners == [3], "the old primary has replaced its successor");
        let epochs = world.hosts.iter().map(|host| host.machine.as_ref().unwrap().current_epoch);
        expect(&mut found, epochs.max() == Some(epoch), "the old primary has asked for votes");
        found.extend(complaints(world));
        found
    });
}

/// News of a failure from before an election say nothing about the winner, neither in gossip nor in a FAIL message.
#[test]
fn news_of_before_an_election_are_no_failure() {
    let mut world = World::cluster(6, 3, 1, None);
    let old = world.last_message(1, 2);
    world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
    world.run_ms(TIMEOUT_MS);
    let Ok(Message::Full(header, _)) = wire::read(&old) else { panic!() };
    let id = NodeId::new(world.id(3).as_bytes()).unwrap();
    let fails = |world: &World| {
        let table = world.hosts[2].machine.as_ref().unwrap().table();
        table[table.find(&id).unwrap()].has_failed()
    };
    let fail = |header: wire::Header| Message::Full(Box::new(header), Body::Fail(id)).to_bytes();
    world.replay(1, 2, &fail((*header).clone()));
    assert!(!fails(&world), "an old FAIL message");
    let current_epoch = world.hosts[1].machine.as_ref().unwrap().current_epoch;
    world.replay(1, 2, &fail(wire::Header { current_epoch, ..*header }));
    assert!(fails(&world), "a FAIL message of now");
}

#[test]
fn blacklist() {
    check(Rule::Blacklist, 1, |seed, without| {
        let mut world = World::cluster(4, 3, seed, without);
        let id = world.id(3);
        // The others don't hear of it yet, and go on with their gossip.
        (1..4).for_each(|other| world.net.set_cut(0, other, true));
        world.command(0, ClusterCommand::Forget(id.clone()));
        world.run_ms(2 * TIMEOUT_MS);
        let table = world.hosts[0].machine.as_ref().unwrap().table();
        let is_known = table.keys().any(|key| table[key].id.to_string() == id);
        let mut found = Vec::new();
        expect(&mut found, !is_known, "a forgotten node is back");
        found
    });
}

#[test]
fn handshake_timeout() {
    check(Rule::HandshakeTimeout, 1, |seed, without| {
        let mut world = World::cluster(3, 3, seed, without);
        let (ip, port) = ("10.0.0.1".to_owned(), 9);
        world.isolate(2);
        world.command(0, ClusterCommand::Meet { ip, port, bus_port: Some(10_002) });
        world.run_ms(3 * TIMEOUT_MS);
        let table = world.hosts[0].machine.as_ref().unwrap().table();
        let mut found = Vec::new();
        expect(&mut found, table.keys().all(|key| !table[key].in_handshake()), "a handshake goes on for ever");
        found
    });
}

#[test]
fn meet_again() {
    check(Rule::MeetAgain, 1, |seed, without| {
        let mut world = World::cluster(2, 2, seed, without);
        // Host 1 forgets host 0 and starts anew, so that nothing remembers that it was to be forgotten.
        let id = world.id(0);
        world.command(1, ClusterCommand::Forget(id));
        world.run_ms(100);
        world.kill(1);
        world.start(1);
        world.run_ms(5 * TIMEOUT_MS);
        complaints(world)
    });
}

#[test]
fn one_vote() {
    check(Rule::OneVote, 3, |seed, without| {
        let mut world = World::cluster(12, 3, seed, without);
        for _ in 0..3 {
            // Three replicas of one primary stand for election at the same time.
            let primary = (0..12).find(|host| host % 3 == 0 && world.is_primary(*host));
            primary.into_iter().for_each(|host| world.crash(host));
            let replicas: Vec<usize> = (0..12).filter(|host| host % 3 == 0 && !world.is_primary(*host)).collect();
            world.run_ms(TIMEOUT_MS);
            for host in replicas {
                world.start_election(host, FailoverMode::Force);
            }
            world.run_ms(3 * TIMEOUT_MS);
            world.mend();
            world.settle_within(30);
        }
        complaints(world)
    });
}

#[test]
fn vote_quorum() {
    check(Rule::VoteQuorum, 3, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.hosts[1].slow_disk = true;
        world.crash(0);
        world.run_ms(5 * TIMEOUT_MS);
        complaints(world)
    });
}

#[test]
fn vote_epoch() {
    check(Rule::VoteEpoch, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        // Votes of another epoch arrive while those of this one wait for slow disks.
        world.hosts[1].slow_disk = true;
        world.hosts[2].slow_disk = true;
        world.crash(0);
        world.run_ms(2 * TIMEOUT_MS);
        for voter in [1, 2] {
            let Ok(Message::Full(mut header, _)) = wire::read(&world.last_message(voter, 3)) else { panic!() };
            header.current_epoch += 100;
            world.replay(voter, 3, &Message::Full(header, Body::AuthAck).to_bytes());
        }
        complaints(world)
    });
}

#[test]
fn offset_rank() {
    check(Rule::OffsetRank, 4, |seed, without| {
        let mut world = World::cluster(9, 3, seed, without);
        world.write_with_clients(true);
        world.hosts[3].lags = true;
        world.run_ms(5000);
        world.write_with_clients(false);
        world.run_ms(1000);
        world.crash(0);
        world.run_ms(4 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(6), "the replica with less data was elected");
        found
    });
}

#[test]
fn own_data() {
    check(Rule::OwnData, 2, |seed, without| {
        let mut world = World::cluster(7, 3, seed, without);
        world.write_with_clients(true);
        world.run_ms(3000);
        // A replica of shard 0 moves to shard 1, and that one's primary fails before it has sent its data.
        let primary = world.id(1);
        world.crash(4);
        world.hosts[6].lags = true;
        world.command(6, ClusterCommand::Replicate { node: primary, has_keys: false });
        world.run_ms(1000);
        world.crash(1);
        world.run_ms(4 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, !world.is_primary(6), "a replica with another shard's data was elected");
        found
    });
}

#[test]
fn requested_slots() {
    check(Rule::RequestedSlots, 2, |seed, without| {
        let mut world = World::cluster(9, 3, seed, without);
        // Host 3 sleeps while host 6 replaces host 0, and then asks for votes as a replica of host 0.
        world.isolate(3);
        world.crash(0);
        world.run_ms(5 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(6), "the other replica has not taken over");
        world.net.mend_all();
        for end in [(3, 6), (6, 3)] {
            world.net.set_cut(end.0, end.1, true);
        }
        world.run_ms(TIMEOUT_MS / 2);
        world.start_election(3, FailoverMode::Force);
        world.run_ms(TIMEOUT_MS);
        expect(&mut found, world.winners == [6], "a replica with old slots was elected");
        found
    });
}

#[test]
fn paused_offset() {
    check(Rule::PausedOffset, 2, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.write_with_clients(true);
        world.run_ms(3000);
        world.hosts[3].lags = true;
        world.run_ms(2000);
        world.start_election(3, FailoverMode::Planned);
        world.run_ms(1000);
        world.hosts[3].lags = false;
        world.run_ms(2 * TIMEOUT_MS);
        complaints(world)
    });
}

#[test]
fn stale_headers() {
    check(Rule::StaleHeaders, 1, |seed, without| {
        let mut world = World::cluster(9, 3, seed, without);
        let old = [0, 3].map(|from| world.last_message(from, 6));
        world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
        world.run_ms(TIMEOUT_MS);
        // Messages of before the failover arrive once more.
        world.replay(0, 6, &old[0]);
        world.replay(3, 6, &old[1]);
        let table = world.hosts[6].machine.as_ref().unwrap().table();
        let mut found = Vec::new();
        let is_primary = |host: usize| {
            table.keys().any(|key| table[key].id.to_string() == world.id(host) && table[key].is_primary())
        };
        expect(&mut found, is_primary(3) && !is_primary(0), "roles go back to those of before");
        expect(
            &mut found,
            world.hosts[6].follows.and_then(|id| world.host_of(id)) == Some(3),
            "a replica follows a replica",
        );
        found
    });
}

#[test]
fn a_directive_is_told_to_all() {
    let mut world = World::cluster(3, 3, 1, None);
    let mut config: Config = world.hosts[0].machine.as_ref().unwrap().config().clone();
    config.announce.hostname = "name.example".into();
    world.input(0, Input::Configured(Box::new(config)));
    world.run_ms(1000);
    for host in 1..3 {
        let table = world.hosts[host].machine.as_ref().unwrap().table();
        let names: Vec<&str> = table.keys().map(|key| table[key].endpoints.hostname.as_str()).collect();
        assert!(names.contains(&"name.example"), "{names:?}");
    }
}

#[test]
fn a_source_that_gives_a_slot_up_loses_it_to_the_target() {
    let mut world = World::cluster(3, 3, 1, None);
    let (source, target) = (world.id(0), world.id(1));
    let set = |change| ClusterCommand::SetSlot { slot: slot(7), change, has_keys: false, from_primary: false };
    world.command(1, set(SetSlot::Importing(source)));
    world.command(0, set(SetSlot::Migrating(target.clone())));
    // The wrong order: the source first. The target takes the slot that nobody has.
    world.command(0, set(SetSlot::Node(target)));
    world.settle_within(20);
    assert_eq!(world.checks.violations, Vec::<String>::new());
    assert_eq!((0..3).map(|host| owner(&world, host, 7)).collect::<Vec<_>>(), [Some(1); 3]);
}

#[test]
fn a_slot_that_is_claimed_again_is_not_anybodys() {
    let mut world = World::cluster(3, 3, 1, None);
    let number = slot(16383);
    let is_unclaimed = |world: &World| world.hosts[0].machine.as_ref().unwrap().table().unclaimed.contains(number);
    world.command(2, ClusterCommand::DelSlots(vec![number]));
    world.run_ms(2 * TIMEOUT_MS);
    assert!(is_unclaimed(&world));
    world.command(2, ClusterCommand::AddSlots(vec![number]));
    world.run_ms(2 * TIMEOUT_MS);
    assert!(!is_unclaimed(&world));
    assert_eq!(owner(&world, 0, 16383), Some(2));
}

/// A node that starts again must not defend a slot for an owner with a great epoch that has given it up.
#[test]
fn a_slot_that_was_given_up_is_anybodys_after_a_restart() {
    let mut world = World::cluster(3, 3, 1, None);
    let number = slot(16383);
    world.command(2, ClusterCommand::DelSlots(vec![number]));
    world.run_ms(2 * TIMEOUT_MS);
    world.command(1, ClusterCommand::SaveConfig);
    world.kill(1);
    world.command(0, ClusterCommand::DelSlots(vec![number]));
    assert_eq!(world.command(0, ClusterCommand::AddSlots(vec![number])), Some(ClusterReply::Ok));
    // The node hears of the new owner only.
    world.net.set_cut(1, 2, true);
    world.net.set_cut(2, 1, true);
    world.start(1);
    world.run_ms(2 * TIMEOUT_MS);
    assert_eq!([0, 1].map(|host| owner(&world, host, 16383)), [Some(0); 2]);
}

/// A node was a primary without slots, with a great epoch, after a reset. It follows its old primary again, and others still know it in that
/// one's shard.
#[test]
fn a_reset_node_becomes_a_replica_for_all() {
    let mut world = World::cluster(6, 3, 1, None);
    let primary = world.id(0);
    assert_eq!(world.command(3, ClusterCommand::Reset { hard: false, has_keys: false }), Some(ClusterReply::Ok));
    world.meet(3, 0);
    world.run_ms(2 * TIMEOUT_MS);
    world.command(3, ClusterCommand::BumpEpoch);
    world.run_ms(TIMEOUT_MS);
    let keys = |world: &World| {
        let table = world.hosts[1].machine.as_ref().unwrap().table();
        [0, 3].map(|host| table.find(&NodeId::new(world.id(host).as_bytes()).unwrap()).unwrap())
    };
    let [first, replica] = keys(&world);
    let table = &mut world.hosts[1].machine.as_mut().unwrap().table;
    let shard = table[first].shard;
    assert!(table[replica].config_epoch > table[first].config_epoch && table[replica].shard != shard);
    table.set_shard(replica, shard);
    world.command(3, ClusterCommand::Replicate { node: primary, has_keys: false });
    world.run_ms(TIMEOUT_MS);
    assert_eq!(world.hosts[1].machine.as_ref().unwrap().table()[replica].primary(), Some(first));
}

/// A node hears of an election from the old primary, and not from the winner. The winner's slots count for the majority at once.
#[test]
fn a_winner_that_its_replica_names_has_slots() {
    let mut world = World::cluster(6, 3, 1, None);
    world.isolate(5);
    world.crash(0);
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(3));
    world.restart_dead();
    world.run_ms(TIMEOUT_MS);
    world.net.set_cut(0, 5, false);
    world.net.set_cut(5, 0, false);
    world.run_ms(TIMEOUT_MS);
    assert_eq!(owner(&world, 5, 0), Some(3));
    assert_eq!(world.hosts[5].machine.as_ref().unwrap().table().size(), 3);
    assert_eq!(complaints(world), Vec::<String>::new());
}

/// A primary gives a slot up, and fails before its replica hears of it. It comes back as a replica. Any primary may
/// claim the slot, also one with an older epoch.
#[test]
fn a_replica_has_no_slots() {
    let mut world = World::cluster(6, 3, 1, None);
    let number = 16383;
    (0..6).filter(|host| *host != 2).for_each(|host| world.net.set_cut(host, 2, true));
    world.command(0, ClusterCommand::DelSlots(vec![slot(number)]));
    world.command(2, ClusterCommand::DelSlots(vec![slot(number)]));
    world.crash(2);
    world.run_ms(5 * TIMEOUT_MS);
    world.mend();
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(5) && !world.is_primary(2));
    for host in 0..6 {
        let table = world.hosts[host].machine.as_ref().unwrap().table();
        let replicas = table.keys().filter(|key| !table[*key].is_primary());
        assert!(replicas.into_iter().all(|key| table[key].slot_count == 0), "host {host}");
    }
}

/// A primary starts again during a planned failover, and holds no writes back any more. The first election of the replica finds no majority, and
/// a second one would take the place of a primary that has gone on.
#[test]
fn pause_proof() {
    check(Rule::PauseProof, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.write_with_clients(true);
        let mut config = world.hosts[3].machine.as_ref().unwrap().config().clone();
        config.manual_failover_timeout_ms = 60_000;
        world.input(3, Input::Configured(Box::new(config)));
        world.run_ms(1000);
        let set_cut = |world: &mut World, cut| {
            for voter in [1, 2] {
                world.net.set_cut(voter, 3, cut);
                world.net.set_cut(3, voter, cut);
            }
        };
        set_cut(&mut world, true);
        world.start_election(3, FailoverMode::Planned);
        world.run_ms(500);
        world.kill(0);
        world.start(0);
        world.run_ms(3 * TIMEOUT_MS);
        set_cut(&mut world, false);
        world.run_ms(5 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(0) && world.winners.is_empty(), "the replica has taken over");
        found.extend(complaints(world));
        found
    });
}

/// Nodes are killed after they have shown claims that they could not save: a primary with a new epoch and a new slot, and a winner of an election.
#[test]
fn own_claims() {
    check(Rule::OwnClaims, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        let [disk, winners_disk] = [0, 4].map(|host| world.hosts[host].disk.clone());
        let source = world.id(2);
        let target = world.id(0);
        for (host, change) in
            [(0, SetSlot::Importing(source)), (0, SetSlot::Node(target.clone())), (2, SetSlot::Node(target))]
        {
            let command = ClusterCommand::SetSlot { slot: slot(16383), change, has_keys: false, from_primary: false };
            assert_eq!(world.command(host, command), Some(ClusterReply::Ok));
        }
        assert_eq!(world.command(4, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
        world.run_ms(TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(4), "the replica has not taken over");
        for (host, disk) in [(0, disk), (4, winners_disk)] {
            world.kill(host);
            world.hosts[host].disk = disk;
            world.start(host);
        }
        world.run_ms(5 * TIMEOUT_MS);
        expect(&mut found, world.is_primary(4), "the winner has forgotten its election");
        expect(&mut found, owner(&world, 0, 16383) == Some(0), "the slot is lost");
        found.extend(complaints(world));
        found
    });
}

/// The epoch of a host's slots.
fn epoch(world: &World, at: usize) -> u64 {
    world.hosts[at].machine.as_ref().unwrap().table().myself().config_epoch
}

/// A primary has saved an epoch without votes, and is killed before anybody hears of it. Returns the epoch.
fn fail_with_an_unseen_epoch(world: &mut World) -> u64 {
    let unseen = epoch(world, 0);
    let text = world.hosts[0].machine.as_ref().unwrap().file_text();
    world.crash(0);
    world.write_disk(0, text);
    unseen
}

/// The stream has told the replica of the end of an import. Neither the replica nor another target takes the same epoch.
#[test]
fn unseen_epoch() {
    check(Rule::UnseenEpoch, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.end_epoch_votes();
        let (source, target) = (world.id(2), world.id(0));
        for (host, from_primary) in [(3, true), (0, false)] {
            for change in [SetSlot::Importing(source.clone()), SetSlot::Node(target.clone())] {
                let command = ClusterCommand::SetSlot { slot: slot(16383), change, has_keys: false, from_primary };
                world.begin_command(host, command);
            }
        }
        let unseen = fail_with_an_unseen_epoch(&mut world);
        world.run_ms(TIMEOUT_MS);
        world.command(1, ClusterCommand::BumpEpoch);
        let mut found = Vec::new();
        expect(&mut found, epoch(&world, 1) > unseen, "another primary has taken the epoch");
        world.run_ms(5 * TIMEOUT_MS);
        expect(&mut found, world.is_primary(3), "the replica has not taken over");
        expect(&mut found, epoch(&world, 3) > unseen, "the replica has won the epoch of its primary");
        found.extend(complaints(world));
        found
    });
}

/// The replica can't know of the epoch. The primary comes back, with a greater or a smaller name than the winner's.
#[test]
fn votes_win() {
    check(Rule::VotesWin, 4, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        world.begin_command(0, ClusterCommand::BumpEpoch);
        let unseen = fail_with_an_unseen_epoch(&mut world);
        world.run_ms(5 * TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, epoch(&world, 3) == unseen, "the replica has not won the epoch of its primary");
        world.mend();
        world.run_ms(5 * TIMEOUT_MS);
        expect(&mut found, world.is_primary(3) && !world.is_primary(0), "the old primary has come back");
        found.extend(complaints(world));
        found
    });
}

/// A winner starts again, and an old primary with the same epoch comes back at this moment.
#[test]
fn a_winner_that_starts_again_yields_to_nobody() {
    for seed in 0..4 {
        let mut world = World::cluster(6, 3, seed, None);
        world.isolate(0);
        world.begin_command(0, ClusterCommand::BumpEpoch);
        world.run_ms(5 * TIMEOUT_MS);
        assert!(world.is_primary(3) && epoch(&world, 3) == epoch(&world, 0), "seed {seed}");
        world.kill(3);
        world.mend();
        world.run_ms(5 * TIMEOUT_MS);
        assert!(world.is_primary(3) && !world.is_primary(0), "seed {seed}");
        world.settle_within(30);
        assert_eq!(world.disagreements(), Vec::<String>::new(), "seed {seed}");
    }
}

/// Has host 3 win shard 0, and take a slot that it tells nobody of. Host 0 takes its place, and host 3 comes back with this slot alone and
/// its old epoch. Host 5 hears nothing of all this.
fn keep_a_slot(world: &mut World) {
    world.crash(5);
    world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
    world.run_ms(TIMEOUT_MS);
    for host in [2, 3] {
        world.command(host, ClusterCommand::DelSlots(vec![slot(16383)]));
    }
    world.begin_command(3, ClusterCommand::AddSlots(vec![slot(16383)]));
    let text = world.hosts[3].machine.as_ref().unwrap().file_text();
    world.crash(3);
    world.write_disk(3, text);
    world.run_ms(5 * TIMEOUT_MS);
    world.start(3);
    world.run_ms(5 * TIMEOUT_MS);
}

/// A node takes a primary for a replica, because it has missed the failovers of a shard: only the other one of its primaries has a great
/// epoch. Later the primary forgets after a crash that it has become a replica.
#[test]
fn present_claims() {
    check(Rule::PresentClaims, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        keep_a_slot(&mut world);
        let mut found = Vec::new();
        expect(&mut found, world.is_primary(0) && world.is_primary(3), "the shard has one primary");
        expect(&mut found, owner(&world, 0, 16383) == Some(3), "the slot is lost");
        world.start(5);
        world.run_ms(2 * TIMEOUT_MS);
        expect(&mut found, owner(&world, 5, 16383) == Some(3), "a node ignores a primary that it takes for a replica");
        found
    });
}

#[test]
fn present_claims_of_a_node_that_has_forgotten_its_primary() {
    check(Rule::PresentClaims, 1, |seed, without| {
        let mut world = World::cluster(6, 3, seed, without);
        keep_a_slot(&mut world);
        let (primary, disk) = (world.id(0), world.hosts[3].disk.clone());
        world.command(3, ClusterCommand::DelSlots(vec![slot(16383)]));
        world.command(3, ClusterCommand::Replicate { node: primary, has_keys: false });
        world.run_ms(TIMEOUT_MS);
        let mut found = Vec::new();
        expect(&mut found, !world.is_primary(3) && owner(&world, 1, 16383).is_none(), "the primary is no replica");
        world.kill(3);
        world.write_disk(3, disk.unwrap());
        world.start(3);
        world.start(5);
        found.extend(complaints(world));
        found
    });
}

/// A PONG may be older than claims that have come by another link. The PONG of a later PING is not.
#[test]
fn only_the_answer_to_a_later_ping_shows_present_claims() {
    let mut world = World::cluster(6, 3, 1, None);
    world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
    world.run_ms(TIMEOUT_MS);
    let Ok(Message::Full(header, _)) = wire::read(&world.last_message(3, 5)) else { panic!() };
    let body = Body::Ping { kind: wire::Kind::Pong, gossip: Vec::new(), extensions: Vec::new() };
    let pong = Message::Full(header, body).to_bytes();
    world.command(0, ClusterCommand::Failover(FailoverMode::Planned));
    world.run_ms(TIMEOUT_MS);
    world.net.set_cut(3, 5, true);
    let id = NodeId::new(world.id(3).as_bytes()).unwrap();
    let table = |world: &World| world.hosts[5].machine.as_ref().unwrap().table().clone();
    let key = table(&world).find(&id).unwrap();
    let is_primary = |world: &World| table(world)[key].is_primary();
    while table(&world)[key].unanswered == 0 {
        world.run_ms(100);
    }
    world.hosts[5].machine.as_mut().unwrap().table[key].note_claims();
    for expected in [false, true] {
        assert!(!is_primary(&world));
        let link = table(&world)[key].outbound.unwrap();
        world.input(5, Input::Received { link, bytes: &pong });
        assert_eq!(is_primary(&world), expected);
    }
}
