//! The end of a move at the moment of a failover: the target's shard keeps the slots.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply, SetSlot};
use crate::file::NodesFile;
use crate::machine::OpenSlot;
use crate::manual::FailoverMode;
use crate::rules::Rule;
use crate::slots::{SLOTS, Slot, SlotSet};

/// Shards of a primary and a replica. Two failed primaries are a minority.
const SHARDS: usize = 5;

/// A cluster whose targets take epochs without votes.
fn cluster(seed: u64, without: Option<Rule>) -> World {
    let mut world = World::cluster(2 * SHARDS, SHARDS, seed, without);
    world.end_epoch_votes();
    world
}

/// A slot of a shard.
fn slot_of(shard: usize) -> Slot {
    Slot::new((SLOTS * shard / SHARDS + 7) as u64).unwrap()
}

/// The host that owns a slot in another host's table.
fn owner(world: &World, at: usize, slot: Slot) -> Option<usize> {
    let table = world.hosts[at].machine.as_ref()?.table();
    world.host_of(table[table.owner(slot)?].id)
}

/// A move key by key, before its end.
fn open(world: &mut World, slot: Slot, source: usize, target: usize) {
    let importing = SetSlot::Importing(world.id(source));
    let migrating = SetSlot::Migrating(world.id(target));
    for (at, change) in [(target, importing), (source, migrating)] {
        for (at, from_primary) in [(at + SHARDS, true), (at, false)] {
            let command = ClusterCommand::SetSlot { slot, change: change.clone(), has_keys: false, from_primary };
            assert_eq!(world.command(at, command), Some(ClusterReply::Ok));
        }
    }
}

/// The end of the move at the target and at its replica. Nobody else hears of it.
fn end_alone(world: &mut World, slot: Slot, target: usize) {
    (0..2 * SHARDS).filter(|other| *other != target).for_each(|other| world.net.set_cut(target, other, true));
    for (at, from_primary) in [(target + SHARDS, true), (target, false)] {
        let change = SetSlot::Node(world.id(target));
        world.begin_command(at, ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary });
    }
    world.run_ms(30);
}

/// The same for slots that move as a whole.
fn claim_alone(world: &mut World, slots: &SlotSet, source: usize, target: usize) {
    (0..2 * SHARDS).filter(|other| *other != target).for_each(|other| world.net.set_cut(target, other, true));
    let (slots, source) = (Box::new(slots.clone()), world.id(source));
    world.begin_command(target + SHARDS, ClusterCommand::NoteOwner { slots: slots.clone(), owner: None });
    world.begin_command(target, ClusterCommand::ClaimSlots { slots, source });
    world.run_ms(30);
}

/// Has the replica of a source win an election.
fn replace(world: &mut World, source: usize) {
    let before = world.winners.len();
    world.command(source + SHARDS, ClusterCommand::Failover(FailoverMode::Force)).unwrap();
    let until_ms = world.now_ms + TIMEOUT_MS;
    while world.winners.len() == before && world.now_ms < until_ms {
        world.run_ms(1);
    }
    assert!(world.winners.len() > before, "nobody has won");
}

/// The hosts that see another owner of the slot in the end, and all violations.
fn complaints(mut world: World, slot: Slot, expected: usize) -> Vec<String> {
    world.mend();
    world.settle_within(30);
    let mut found = world.checks.violations.clone();
    let is_wrong = |at: &usize| owner(&world, *at, slot) != Some(expected);
    found.extend((0..2 * SHARDS).filter(is_wrong).map(|at| format!("host {at}: {:?}", owner(&world, at, slot))));
    found
}

/// Checks that a scenario is sound, and that one of its histories is not without the rule.
fn check(scenario: impl Fn(usize, usize, Option<Rule>) -> Vec<String>) {
    let pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 4), (4, 0)];
    for (source, target) in pairs {
        assert_eq!(scenario(source, target, None), Vec::<String>::new(), "from {source} to {target}");
    }
    let fails = |(source, target)| !scenario(source, target, Some(Rule::FinishedImports)).is_empty();
    assert!(pairs.into_iter().any(fails), "nothing is wrong without the rule");
}

/// Source and target fail together right after the end.
#[test]
fn a_slot_survives_the_failure_of_both_primaries_at_the_end() {
    check(|source, target, without| {
        let (mut world, slot) = (cluster(1, without), slot_of(source));
        open(&mut world, slot, source, target);
        end_alone(&mut world, slot, target);
        world.crash(source);
        world.crash(target);
        world.run_ms(10 * TIMEOUT_MS);
        complaints(world, slot, target + SHARDS)
    });
}

/// The target fails right after the end, and an operator replaces the source at the moment at which the target's replica has won.
#[test]
fn a_slot_survives_two_elections_at_the_same_time() {
    check(|source, target, without| {
        let (mut world, slot) = (cluster(1, without), slot_of(source));
        open(&mut world, slot, source, target);
        end_alone(&mut world, slot, target);
        world.crash(target);
        world.net.set_cut(target + SHARDS, source, true);
        world.net.set_cut(target + SHARDS, source + SHARDS, true);
        let until_ms = world.now_ms + 10 * TIMEOUT_MS;
        while world.winners.is_empty() && world.now_ms < until_ms {
            world.run_ms(10);
        }
        world.command(source + SHARDS, ClusterCommand::Failover(FailoverMode::Takeover)).unwrap();
        world.run_ms(TIMEOUT_MS);
        complaints(world, slot, target + SHARDS)
    });
}

/// The target goes on, and a replica of the source wins with a greater epoch before it hears of the end.
#[test]
fn a_target_keeps_its_slots_after_a_failover_of_the_source() {
    for is_whole in [false, true] {
        check(|source, target, without| {
            let (mut world, slot) = (cluster(1, without), slot_of(source));
            if is_whole {
                claim_alone(&mut world, &[slot].into_iter().collect(), source, target);
            } else {
                open(&mut world, slot, source, target);
                end_alone(&mut world, slot, target);
            }
            // The requests of a first election get lost, so the winner has a greater epoch than the target.
            let others = |world: &mut World, is_cut: bool| {
                let others = (0..2 * SHARDS).filter(|other| *other != source + SHARDS);
                others.for_each(|other| world.net.set_cut(source + SHARDS, other, is_cut));
            };
            others(&mut world, true);
            world.command(source + SHARDS, ClusterCommand::Failover(FailoverMode::Force)).unwrap();
            world.run_ms(100);
            others(&mut world, false);
            replace(&mut world, source);
            complaints(world, slot, target)
        });
    }
}

/// A target that was cut off for long must not take slots back from a winner that has taken writes to them.
#[test]
fn a_target_that_was_cut_off_gives_whole_slots_up() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    claim_alone(&mut world, &[slot].into_iter().collect(), 0, 1);
    world.isolate(1);
    world.hosts[1 + SHARDS].stopped = true;
    world.command(2, ClusterCommand::BumpEpoch);
    world.command(3, ClusterCommand::BumpEpoch);
    replace(&mut world, 0);
    world.run_ms(3 * TIMEOUT_MS / 2);
    world.hosts[1 + SHARDS].stopped = false;
    assert_eq!(complaints(world, slot, SHARDS), Vec::<String>::new());
}

/// A source that keeps its slots has taken writes to them: its claim counts.
#[test]
fn a_target_gives_slots_up_that_the_source_keeps() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    let slots: SlotSet = [slot].into_iter().collect();
    claim_alone(&mut world, &slots, 0, 1);
    assert_eq!(world.command(0, ClusterCommand::KeepSlots { slots: Box::new(slots) }), Some(ClusterReply::Ok));
    assert_eq!(complaints(world, slot, 0), Vec::<String>::new());
}

/// Moves in both directions right after one another, with and without a failover of the first source's shard.
#[test]
fn a_slot_moves_back() {
    for fails_over in [false, true] {
        let (mut world, slot) = (cluster(1, None), slot_of(0));
        let slots: SlotSet = [slot].into_iter().collect();
        let owner_of_shard = |world: &World, shard: usize| {
            if world.is_primary(shard) { shard } else { shard + SHARDS }
        };
        for (source, target) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
            let (source, target) = (owner_of_shard(&world, source), owner_of_shard(&world, target));
            let name = world.id(target);
            let grant = ClusterCommand::GrantSlots { slots: Box::new(slots.clone()), target: name };
            assert_eq!(world.repeat_command(source, &grant), Some(ClusterReply::Ok));
            let claim = ClusterCommand::ClaimSlots { slots: Box::new(slots.clone()), source: world.id(source) };
            assert_eq!(world.command(target, claim), Some(ClusterReply::Ok));
            world.run_ms(200);
            assert!((0..2 * SHARDS).all(|at| owner(&world, at, slot) == Some(target)), "{source} to {target}");
            if fails_over {
                let replica = if world.is_primary(0) { SHARDS } else { 0 };
                let planned = ClusterCommand::Failover(FailoverMode::Planned);
                assert_eq!(world.command(replica, planned), Some(ClusterReply::Ok));
                world.run_ms(500);
            }
        }
        let expected = owner_of_shard(&world, 0);
        assert_eq!(complaints(world, slot, expected), Vec::<String>::new());
    }
}

/// Imports are remembered for some node timeouts, and not after another change of the slot.
#[test]
fn imports_are_forgotten() {
    let mut world = cluster(1, None);
    let slot = slot_of(0);
    let remembers = |world: &World, at: usize| world.hosts[at].machine.as_ref().unwrap().imported.contains_key(&slot);
    let import = |world: &mut World| {
        open(world, slot, 0, 1);
        end_alone(world, slot, 1);
        world.mend();
        world.run_ms(100);
        assert!(remembers(world, 1) && remembers(world, 1 + SHARDS));
    };
    import(&mut world);
    world.run_ms(2 * TIMEOUT_MS + 200);
    assert!(!remembers(&world, 1) && !remembers(&world, 1 + SHARDS), "the time is over");
    world.move_slot(slot.index(), 0);
    world.settle_within(30);
    import(&mut world);
    open(&mut world, slot, 1, 0);
    assert!(!remembers(&world, 1) && !remembers(&world, 1 + SHARDS), "the slot moves back");
    let stable = ClusterCommand::SetSlot { slot, change: SetSlot::Stable, has_keys: false, from_primary: false };
    world.command(1, stable);
    assert_eq!(world.command(1, ClusterCommand::DelSlots(vec![slot])), Some(ClusterReply::Ok));
    assert!(!remembers(&world, 1));
}

/// The imports in a host's nodes.conf.
fn imports_on_disk(world: &World, at: usize) -> usize {
    let file = NodesFile::parse(world.hosts[at].disk.as_deref().unwrap()).unwrap().unwrap();
    file.imports.iter().map(|saved| saved.slots.len()).sum()
}

/// The process at the other end of an import that a host has open.
fn import_from(world: &World, at: usize, slot: Slot) -> Option<usize> {
    let machine = world.hosts[at].machine.as_ref()?;
    match machine.open.get(&slot)? {
        OpenSlot::Importing(from) => world.host_of(machine.table()[*from].id),
        OpenSlot::Migrating(_) => None,
    }
}

/// All nodes of the target's shard fail right after the end, and so does the source. Its replica wins with a greater epoch. The target starts
/// again and keeps the keys, and the move ends a second time.
#[test]
fn a_target_that_starts_again_keeps_the_keys() {
    check(|source, target, without| {
        let (mut world, slot) = (cluster(1, without), slot_of(source));
        open(&mut world, slot, source, target);
        end_alone(&mut world, slot, target);
        [source, target, target + SHARDS].into_iter().for_each(|at| world.crash(at));
        assert_eq!(imports_on_disk(&world, target), usize::from(without.is_none()));
        let other = (0..SHARDS).find(|at| ![source, target].contains(at)).unwrap();
        (0..2).for_each(|_| _ = world.command(other, ClusterCommand::BumpEpoch));
        world.command((other + 1..).find(|at| ![source, target].contains(at)).unwrap(), ClusterCommand::BumpEpoch);
        world.run_ms(10 * TIMEOUT_MS);
        let winner = source + SHARDS;
        assert!(world.is_primary(winner) && owner(&world, winner, slot) == Some(winner), "{source} to {target}");
        world.mend();
        world.run_ms(5 * TIMEOUT_MS);
        if world.hosts[target].dropped.contains(slot) {
            return vec!["the target deletes the keys".into()];
        }
        assert_eq!(owner(&world, target, slot), Some(winner));
        assert_eq!(import_from(&world, target, slot), Some(winner));
        world.move_slot(slot.index(), target);
        complaints(world, slot, target)
    });
}

/// A replica of such a target is in sync again, and takes its place before the move ends a second time.
#[test]
fn a_replica_of_a_target_that_starts_again_keeps_the_keys() {
    for is_told_late in [false, true] {
        let (mut world, slot) = (cluster(1, None), slot_of(0));
        open(&mut world, slot, 0, 1);
        end_alone(&mut world, slot, 1);
        // A snapshot of the target has no marker of the import any more.
        assert_eq!(world.command(1 + SHARDS, ClusterCommand::TakeSlotStates(Box::default())), Some(ClusterReply::Ok));
        [0, 1, 1 + SHARDS].into_iter().for_each(|at| world.crash(at));
        (2..4).for_each(|at| _ = world.command(at, ClusterCommand::BumpEpoch));
        world.run_ms(10 * TIMEOUT_MS);
        world.hosts[1 + SHARDS].misses_stream = is_told_late;
        world.mend();
        world.run_ms(TIMEOUT_MS / 2);
        assert_eq!(import_from(&world, 1, slot), Some(SHARDS));
        world.hosts[1 + SHARDS].misses_stream = false;
        world.run_ms(5 * TIMEOUT_MS);
        assert_eq!(import_from(&world, 1 + SHARDS, slot), Some(SHARDS), "late: {is_told_late}");
        world.crash(1);
        world.run_ms(10 * TIMEOUT_MS);
        assert!(world.is_primary(1 + SHARDS));
        assert!(!world.hosts[1 + SHARDS].dropped.contains(slot), "the keys are deleted");
        world.move_slot(slot.index(), 1 + SHARDS);
        assert_eq!(complaints(world, slot, 1 + SHARDS), Vec::<String>::new());
    }
}

/// The target opens the import again, and fails before it tells its replica. It tells it when it starts again.
#[test]
fn a_target_tells_its_replica_of_the_imports_in_nodes_conf() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    open(&mut world, slot, 0, 1);
    let forget = ClusterCommand::SetSlot { slot, change: SetSlot::Stable, has_keys: false, from_primary: true };
    assert_eq!(world.command(1 + SHARDS, forget), Some(ClusterReply::Ok));
    world.crash(1);
    world.mend();
    world.run_ms(100);
    assert_eq!((import_from(&world, 1, slot), import_from(&world, 1 + SHARDS, slot)), (Some(0), None));
    world.run_ms(6 * TIMEOUT_MS);
    assert_eq!(import_from(&world, 1 + SHARDS, slot), Some(0));
}

/// A target whose only slot has been imported does not become a replica of the source's successor.
#[test]
fn a_target_with_imported_slots_only_keeps_the_keys() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    let others = (SLOTS / SHARDS..2 * SLOTS / SHARDS).map(|number| Slot::new(number as u64).unwrap()).collect();
    assert_eq!(world.command(1, ClusterCommand::DelSlots(others)), Some(ClusterReply::Ok));
    world.run_ms(TIMEOUT_MS);
    open(&mut world, slot, 0, 1);
    end_alone(&mut world, slot, 1);
    [0, 1, 1 + SHARDS].into_iter().for_each(|at| world.crash(at));
    (2..4).for_each(|at| _ = world.command(at, ClusterCommand::BumpEpoch));
    world.run_ms(10 * TIMEOUT_MS);
    world.mend();
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(1) && !world.hosts[1].dropped.contains(slot));
    assert_eq!(import_from(&world, 1, slot), Some(SHARDS));
}

/// The target's replica wins, and the slot moves back before the target starts again.
#[test]
fn a_target_that_starts_again_after_a_move_back_keeps_nothing() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    open(&mut world, slot, 0, 1);
    end_alone(&mut world, slot, 1);
    world.crash(1);
    world.run_ms(10 * TIMEOUT_MS);
    assert_eq!(owner(&world, 0, slot), Some(1 + SHARDS));
    world.move_slot(slot.index(), 0);
    // The target hears of the source's claim first.
    world.net.set_cut(1, 1 + SHARDS, true);
    world.net.set_cut(1 + SHARDS, 1, true);
    world.start(1);
    world.run_ms(TIMEOUT_MS / 2);
    assert_eq!(complaints(world, slot, 0), Vec::<String>::new());
}

/// The target hears of its successor first. It has kept the imported slot then, and loses it to the source.
#[test]
fn a_target_that_starts_again_leaves_imports_to_its_successor() {
    let (mut world, slot) = (cluster(1, None), slot_of(2));
    open(&mut world, slot, 2, 1);
    end_alone(&mut world, slot, 1);
    world.crash(1);
    world.run_ms(10 * TIMEOUT_MS);
    assert_eq!(owner(&world, 2, slot), Some(1 + SHARDS));
    world.move_slot(slot.index(), 2);
    world.run_ms(TIMEOUT_MS);
    // The source's shard can't reach the target yet.
    for at in (0..2 * SHARDS).filter(|at| *at != 1) {
        world.net.set_cut(1, at, at % SHARDS == 2);
        world.net.set_cut(at, 1, at % SHARDS == 2);
    }
    world.start(1);
    world.run_ms(2 * TIMEOUT_MS);
    assert!(owner(&world, 1, slot) == Some(2) && !world.is_primary(1));
    assert_eq!(import_from(&world, 1, slot), None);
    assert_eq!(complaints(world, slot, 2), Vec::<String>::new());
}

/// nodes.conf names an import as long as it is remembered, and on primaries only. A restart renews the time.
#[test]
fn nodes_conf_keeps_imports_for_a_time() {
    let (mut world, slot) = (cluster(1, None), slot_of(0));
    open(&mut world, slot, 0, 1);
    end_alone(&mut world, slot, 1);
    world.mend();
    world.run_ms(TIMEOUT_MS);
    assert_eq!([1, 1 + SHARDS, 0].map(|at| imports_on_disk(&world, at)), [1, 0, 0]);
    world.kill(1);
    world.run_ms(100);
    world.start(1);
    world.run_ms(2 * TIMEOUT_MS);
    assert_eq!(imports_on_disk(&world, 1), 1);
    world.run_ms(4 * TIMEOUT_MS);
    assert_eq!(imports_on_disk(&world, 1), 0);
    assert_eq!(complaints(world, slot, 1), Vec::<String>::new());
}
