//! The end of a move of whole slots: the target's claim, and a replica's knowledge of it.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply};
use crate::manual::FailoverMode;
use crate::rules::Rule;
use crate::slots::{Slot, SlotSet};

fn name(world: &World, at: usize) -> String {
    world.hosts[at].machine.as_ref().unwrap().table().myself().id.to_string()
}

/// The owner of a slot as a node sees it.
fn owner(world: &World, at: usize, slot: Slot) -> String {
    let table = world.hosts[at].machine.as_ref().unwrap().table();
    table[table.owner(slot).unwrap()].id.to_string()
}

fn owner_or_none(world: &World, at: usize, slot: Slot) -> Option<String> {
    let table = world.hosts[at].machine.as_ref().unwrap().table();
    table.owner(slot).map(|owner| table[owner].id.to_string())
}

/// Returns a replica of a node.
fn replica_of(world: &World, primary: usize) -> usize {
    let primary = name(world, primary);
    let follows = |at: &usize| {
        let table = world.hosts[*at].machine.as_ref().unwrap().table();
        table.myself().primary().is_some_and(|key| table[key].id.to_string() == primary)
    };
    (3..6).find(follows).unwrap()
}

fn slots(numbers: std::ops::Range<u64>) -> Box<SlotSet> {
    Box::new(numbers.map(|number| Slot::new(number).unwrap()).collect())
}

fn claim(world: &mut World, at: usize, numbers: std::ops::Range<u64>, source: &str) -> ClusterReply {
    let (slots, source) = (slots(numbers), source.to_owned());
    match world.repeat_command(at, &ClusterCommand::PrepareClaim).unwrap() {
        ClusterReply::Ok => world.command(at, ClusterCommand::ClaimSlots { slots, source }).unwrap(),
        refused => refused,
    }
}

#[test]
fn a_target_claims_slots_of_their_owner_only() {
    let mut world = World::cluster(6, 3, 1, None);
    let [first, second, third] = [0, 1, 2].map(|at| name(&world, at));
    let not_owned = ClusterReply::Error("Slots are no longer owned by source node".into());
    // Slot 16383 belongs to the third node.
    assert_eq!(claim(&mut world, 1, 16_380..16_384, &first), not_owned);
    assert_eq!(claim(&mut world, 1, 0..3, "x"), not_owned);
    let replica = ClusterReply::Error("A failover occurred during slot import".into());
    assert_eq!(claim(&mut world, 4, 0..3, &first), replica);
    assert_eq!(claim(&mut world, 1, 0..3, &first), ClusterReply::Ok);
    assert_eq!(claim(&mut world, 1, 16_383..16_384, &third), ClusterReply::Ok);
    world.settle_within(30);
    for at in 0..6 {
        for slot in [0, 2, 16_383] {
            assert_eq!(owner(&world, at, Slot::new(slot).unwrap()), second, "{slot} at {at}");
        }
        assert_eq!(owner(&world, at, Slot::new(3).unwrap()), first);
    }
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// Nobody hears of a claim that is not on disk: after a crash the source still has the slot.
#[test]
fn a_claim_that_is_not_on_disk_does_not_count() {
    let mut world = World::cluster(3, 3, 1, None);
    let first = name(&world, 0);
    world.hosts[1].slow_disk = true;
    world.begin_command(1, ClusterCommand::ClaimSlots { slots: slots(0..3), source: first.clone() });
    world.kill(1);
    world.start(1);
    world.mend();
    world.settle_within(30);
    assert!((0..3).all(|at| owner(&world, at, Slot::new(0).unwrap()) == first));
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// A replica of the source asks for votes in the epoch that the target has taken, and not yet shown.
#[test]
fn a_target_leaves_its_epoch_to_an_election() {
    for seed in 1..20 {
        let mut world = World::cluster(6, 3, seed, None);
        let (source, target) = (name(&world, 0), name(&world, 1));
        let replica = replica_of(&world, 0);
        world.end_epoch_votes();
        world.hosts[1].slow_disk = true;
        world.begin_command(1, ClusterCommand::ClaimSlots { slots: slots(0..3), source });
        let force = ClusterCommand::Failover(FailoverMode::Force);
        assert_eq!(world.command(replica, force), Some(ClusterReply::Ok));
        world.run_ms(200);
        world.hosts[1].slow_disk = false;
        world.settle_within(30);
        assert!(world.checks.violations.is_empty(), "seed {seed}: {}", world.checks.violations.join("\n"));
        assert!(world.is_primary(replica), "seed {seed}");
        assert!((0..6).all(|at| owner(&world, at, Slot::new(0).unwrap()) == target), "seed {seed}");
    }
}

#[test]
fn a_replica_notes_the_owner_that_its_stream_names() {
    let mut world = World::cluster(6, 3, 1, None);
    let (slot, source) = (Slot::new(16_383).unwrap(), name(&world, 2));
    let at = replica_of(&world, 0);
    let note = |owner: Option<String>| ClusterCommand::NoteOwner { slots: slots(16_383..16_384), owner };
    assert_eq!(world.command(at, note(None)), Some(ClusterReply::Ok));
    assert_eq!(owner(&world, at, slot), name(&world, 0));
    assert_eq!(world.command(at, note(Some(source.clone()))), Some(ClusterReply::Ok));
    assert_eq!(owner(&world, at, slot), source);
    // An unknown node, and a primary, change nothing.
    assert_eq!(world.command(at, note(Some("x".into()))), Some(ClusterReply::Ok));
    assert_eq!(world.command(1, note(None)), Some(ClusterReply::Ok));
    assert_eq!([owner(&world, at, slot), owner(&world, 1, slot)], [source.clone(), source]);
}

/// All nodes would redirect to different owners if a replica took a slot that another node claims, too.
#[test]
fn a_replica_takes_no_slot_by_command() {
    let mut world = World::cluster(6, 3, 1, None);
    let slot = Slot::new(7).unwrap();
    let owner = (0..3).find(|at| world.hosts[*at].machine.as_ref().unwrap().table().myself().slots.contains(slot));
    for at in [owner.unwrap(), 3] {
        assert_eq!(world.command(at, ClusterCommand::DelSlots(vec![slot])), Some(ClusterReply::Ok));
    }
    world.run_ms(1000);
    let refused = Some(ClusterReply::Error("Please use ADDSLOTS only with masters.".into()));
    assert_eq!(world.command(3, ClusterCommand::AddSlots(vec![slot])), refused);
    assert_eq!(world.command(3, ClusterCommand::AddSlotsRange(vec![(slot, slot)])), refused);
    assert_eq!(world.command(1, ClusterCommand::DelSlots(vec![slot])), Some(ClusterReply::Ok));
    assert_eq!(world.command(1, ClusterCommand::AddSlots(vec![slot])), Some(ClusterReply::Ok));
    world.settle_within(20);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// A target that has saved its claim, and has told nobody, starts again after the source has taken writes. Both orders of names: the smaller one
/// resolves a collision of epochs.
#[test]
fn a_late_claim_of_a_target_does_not_count() {
    for (source, target) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        // The links are cut before the target claims the slots, so it gets no votes.
        let mut world = World::cluster(3, 3, 1, Some(Rule::ReservedEpochs));
        let (source_name, target_name) = (name(&world, source), name(&world, target));
        let slot = world.hosts[source].machine.as_ref().unwrap().table().myself().slots.iter().next().unwrap();
        let first = slot.index() as u64;
        for other in (0..3).filter(|other| *other != target) {
            world.net.set_cut(target, other, true);
        }
        assert_eq!(claim(&mut world, target, first..first + 3, &source_name), ClusterReply::Ok);
        assert_eq!(owner(&world, target, slot), target_name);
        world.kill(target);
        world.mend();
        let kept = world.command(source, ClusterCommand::KeepSlots { slots: slots(first..first + 3) });
        assert_eq!(kept, Some(ClusterReply::Ok));
        world.start(target);
        world.settle_within(30);
        assert!((0..3).all(|at| owner(&world, at, slot) == source_name), "from {source} to {target}");
        assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
    }
}

/// The target ends between the message to its replicas and its claim, and a replica wins after the source has taken writes.
#[test]
fn a_target_s_replica_does_not_claim_slots_that_the_source_keeps() {
    let mut world = World::cluster(6, 3, 1, None);
    let (source, slot) = (name(&world, 0), Slot::new(0).unwrap());
    let replica = replica_of(&world, 1);
    world.command(replica, ClusterCommand::NoteOwner { slots: slots(0..3), owner: None }).unwrap();
    world.kill(1);
    assert_eq!(world.command(0, ClusterCommand::KeepSlots { slots: slots(0..3) }), Some(ClusterReply::Ok));
    world.run_ms(60_000);
    let table = world.hosts[replica].machine.as_ref().unwrap().table();
    assert!(table.myself().is_primary());
    for at in [0, 2, 3, 4, 5] {
        assert_eq!(owner(&world, at, slot), source, "at {at}");
    }
    let mine = ClusterCommand::KeepSlots { slots: slots(0..3) };
    let refused = Some(ClusterReply::Error("Slots are no longer owned by myself".into()));
    assert_eq!(world.command(replica, mine), refused);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// The target starts again without its claim. Its replica gets a snapshot without the keys, and takes its place at once.
#[test]
fn a_snapshot_ends_the_promises_of_the_stream() {
    let mut world = World::cluster(6, 3, 1, None);
    let (source, slot) = (name(&world, 0), Slot::new(0).unwrap());
    let replica = replica_of(&world, 1);
    world.command(replica, ClusterCommand::NoteOwner { slots: slots(0..3), owner: None }).unwrap();
    assert_eq!(world.command(replica, ClusterCommand::TakeSlotStates(Box::default())), Some(ClusterReply::Ok));
    assert_eq!(world.command(replica, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
    world.run_ms(500);
    assert!(world.is_primary(replica));
    assert_eq!(owner(&world, replica, slot), source);
    world.settle_within(30);
    assert!((0..6).all(|at| owner(&world, at, slot) == source));
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

fn grant(world: &mut World, at: usize, numbers: std::ops::Range<u64>, target: &str) -> Option<ClusterReply> {
    world.command(at, ClusterCommand::GrantSlots { slots: slots(numbers), target: target.to_owned() })
}

/// The claim of a target that does not know the source's epoch could have this epoch, and two nodes would claim the slots in it.
#[test]
fn a_source_grants_slots_once_the_target_knows_its_epoch() {
    let mut world = World::cluster(3, 3, 1, None);
    let [source, target] = [0, 1].map(|at| name(&world, at));
    assert_eq!(grant(&mut world, 0, 0..3, &target), Some(ClusterReply::Ok));
    assert_eq!(world.command(0, ClusterCommand::EndGrant), Some(ClusterReply::Ok));
    world.net.set_cut(0, 1, true);
    world.net.set_cut(0, 2, true);
    assert_eq!(world.command(0, ClusterCommand::KeepSlots { slots: slots(0..3) }), Some(ClusterReply::Ok));
    assert_eq!(grant(&mut world, 0, 0..3, &target), Some(ClusterReply::Later));
    world.mend();
    world.run_ms(300);
    assert_eq!(grant(&mut world, 0, 0..3, &target), Some(ClusterReply::Ok));
    assert_eq!(claim(&mut world, 1, 0..3, &source), ClusterReply::Ok);
    world.settle_within(30);
    assert!((0..3).all(|at| owner(&world, at, Slot::new(0).unwrap()) == target));
    let refused = [
        (grant(&mut world, 0, 0..3, &target), "Slots are no longer owned by myself"),
        (grant(&mut world, 1, 0..3, "x"), "The target is no primary"),
        (grant(&mut world, 1, 0..3, &target), "The target is no primary"),
    ];
    for (reply, text) in refused {
        assert_eq!(reply, Some(ClusterReply::Error(text.into())));
    }
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// The target may have claimed the slots with the next epoch, and the source has not heard of it.
#[test]
fn a_source_takes_no_epoch_while_slots_are_granted() {
    let mut world = World::cluster(3, 3, 1, None);
    let [target, third] = [1, 2].map(|at| name(&world, at));
    let epoch = |world: &World| world.hosts[0].machine.as_ref().unwrap().table().myself().config_epoch;
    let before = epoch(&world);
    assert_eq!(grant(&mut world, 0, 0..3, &target), Some(ClusterReply::Ok));
    assert_eq!(claim(&mut world, 0, 16_380..16_384, &third), ClusterReply::Later);
    let bumped = world.command(0, ClusterCommand::BumpEpoch);
    assert!(matches!(bumped, Some(ClusterReply::Error(_))), "{bumped:?}");
    assert_eq!(epoch(&world), before);
    assert_eq!(world.command(0, ClusterCommand::EndGrant), Some(ClusterReply::Ok));
    assert_eq!(claim(&mut world, 0, 16_380..16_384, &third), ClusterReply::Ok);
    assert!(epoch(&world) > before);
    world.settle_within(30);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
}

/// A replica knows of its primary's claim, and the primary fails before the claim is on disk. The source has missed an earlier epoch of the
/// target: the replica must not tell it that the target has the slots.
#[test]
fn a_promise_to_a_target_is_no_claim() {
    for without in [None, Some(Rule::PromisedSlots)] {
        let mut world = World::cluster(6, 3, 1, without);
        let (source, slot) = (name(&world, 1), world.hosts[1].machine.as_ref().unwrap().table().myself().slots.iter());
        let first = slot.map(|slot| slot.index() as u64).next().unwrap();
        world.kill(1);
        let bumped = world.command(0, ClusterCommand::BumpEpoch);
        assert!(matches!(bumped, Some(ClusterReply::Status(text)) if text.starts_with("BUMPED")));
        world.run_ms(100);
        let note = ClusterCommand::NoteOwner { slots: slots(first..first + 3), owner: None };
        assert_eq!(world.command(3, note), Some(ClusterReply::Ok));
        [(0, 1), (1, 0)].into_iter().for_each(|(from, to)| world.net.set_cut(from, to, true));
        world.start(1);
        world.run_ms(500);
        world.mend();
        world.settle_within(30);
        let has_slot = |at: &usize| owner_or_none(&world, *at, Slot::new(first).unwrap()) == Some(source.clone());
        let is_sound = world.checks.violations.is_empty() && (0..6).all(|at| has_slot(&at));
        assert_eq!(is_sound, without.is_none(), "{}", world.checks.violations.join("\n"));
    }
}

/// A promise ends with the primary's claim, also if the claim changes nothing in the replica's table.
#[test]
fn a_claim_ends_a_promise() {
    let mut world = World::cluster(6, 3, 1, None);
    let source = name(&world, 2);
    let note = ClusterCommand::NoteOwner { slots: slots(16_380..16_384), owner: None };
    assert_eq!(world.command(3, note), Some(ClusterReply::Ok));
    let shown = |world: &World| world.hosts[3].machine.as_ref().unwrap().shown_claims().slots.len();
    let before = shown(&world);
    assert_eq!(claim(&mut world, 0, 16_380..16_384, &source), ClusterReply::Ok);
    world.run_ms(1000);
    assert_eq!(shown(&world), before + 4);
    assert!(world.hosts[3].machine.as_ref().unwrap().table().promised.is_empty());
}

/// A target that does not know yet that it is in a minority claims nothing. The majority could elect its replica in the same epoch.
#[test]
fn a_target_in_a_minority_claims_nothing() {
    for without in [None, Some(Rule::ReservedEpochs)] {
        let mut world = World::cluster(10, 5, 1, without);
        let (source, slot) = (name(&world, 1), world.hosts[1].machine.as_ref().unwrap().table().myself().slots.iter());
        let first = slot.map(|slot| slot.index() as u64).next().unwrap();
        let replica = replica_of(&world, 0);
        for (one, other) in [0, 1].into_iter().flat_map(|one| (2..10).map(move |other| (one, other))) {
            world.net.set_cut(one, other, true);
            world.net.set_cut(other, one, true);
        }
        let reply = claim(&mut world, 0, first..first + 3, &source);
        assert_eq!(reply == ClusterReply::Later, without.is_none());
        world.run_ms(4 * TIMEOUT_MS);
        assert!(world.is_primary(replica));
        world.mend();
        world.settle_within(30);
        assert_eq!(world.checks.violations.is_empty(), without.is_none(), "{}", world.checks.violations.join("\n"));
    }
}
