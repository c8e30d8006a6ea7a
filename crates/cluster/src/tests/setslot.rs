//! CLUSTER SETSLOT: its check alone, and its refusals.

use super::world::{TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply, SetSlot};
use crate::dialect::Dialect;
use crate::io::{CommandId, Input};
use crate::manual::FailoverMode;
use crate::rules::Rule;
use crate::slots::Slot;

fn name(world: &World, at: usize) -> String {
    world.hosts[at].machine.as_ref().unwrap().table().myself().id.to_string()
}

/// The owner of a slot as a node sees it.
fn owner(world: &World, at: usize, slot: Slot) -> String {
    let table = world.hosts[at].machine.as_ref().unwrap().table();
    table.owner(slot).map(|owner| table[owner].id.to_string()).unwrap_or_default()
}

/// The reply of the check and that of the command, which must be equal.
fn both(world: &mut World, at: usize, slot: Slot, change: &SetSlot, has_keys: bool) -> ClusterReply {
    let check = ClusterCommand::CheckSetSlot { slot, change: change.clone(), has_keys };
    let open = world.hosts[at].machine.as_ref().unwrap().open.clone();
    let checked = world.command(at, check).unwrap();
    assert_eq!(world.hosts[at].machine.as_ref().unwrap().open, open, "a check changes nothing");
    let command = ClusterCommand::SetSlot { slot, change: change.clone(), has_keys, from_primary: false };
    assert_eq!(world.command(at, command), Some(checked.clone()));
    checked
}

#[test]
fn a_check_replies_as_the_command_does() {
    let mut world = World::cluster(4, 3, 1, None);
    let [first, second, third, replica] = [0, 1, 2, 3].map(|at| name(&world, at));
    let [mine, other] = [7, 16383].map(|number| Slot::new(number).unwrap());
    let error = |text: &str| ClusterReply::Error(text.to_owned());
    let cases = [
        (mine, SetSlot::Migrating(second.clone()), false, ClusterReply::Ok),
        (other, SetSlot::Migrating(second.clone()), false, error("I'm not the owner of hash slot 16383")),
        (mine, SetSlot::Migrating("x".into()), false, error("I don't know about node x")),
        (mine, SetSlot::Migrating(replica), false, error("Target node is not a master")),
        (mine, SetSlot::Importing(second.clone()), false, error("I'm already the owner of hash slot 7")),
        (other, SetSlot::Importing(third), false, ClusterReply::Ok),
        (other, SetSlot::Stable, false, ClusterReply::Ok),
        (mine, SetSlot::Node("x".into()), false, error("Unknown node x")),
        (
            mine,
            SetSlot::Node(second),
            true,
            error("Can't assign hashslot 7 to a different node while I still hold keys for this hash slot."),
        ),
        (mine, SetSlot::Node(first), true, ClusterReply::Ok),
    ];
    for (slot, change, has_keys, reply) in cases {
        assert_eq!(both(&mut world, 0, slot, &change, has_keys), reply, "{change:?}");
    }
    assert_eq!(both(&mut world, 3, mine, &SetSlot::Stable, false), error("Please use SETSLOT only with masters."));
}

/// A replica follows its primary before its primary hears of it. A change of slots that the stream did not have would be missing in its marker of
/// an import.
#[test]
fn the_stream_has_changes_of_slots_unless_a_replica_is_of_redis() {
    let mut world = World::cluster(4, 3, 1, None);
    let (primary, replica) = (0, world.hosts[3].machine.as_ref().unwrap().table().myself().id);
    let takes = |world: &World, at: usize| world.hosts[at].machine.as_ref().unwrap().replicas_take_slots();
    assert_eq!([0, 1].map(|at| takes(&world, at)), [true, true]);
    for (dialect, expected) in [(Dialect::Redis, false), (Dialect::Unknown, false), (Dialect::Valkey, true)] {
        let table = &mut world.hosts[primary].machine.as_mut().unwrap().table;
        let key = table.find(&replica).unwrap();
        table[key].dialect = dialect;
        assert_eq!(takes(&world, primary), expected, "{dialect:?}");
    }
    world.crash(primary);
    world.start(primary);
    assert!(takes(&world, primary), "nothing is known of the replica after a restart");
}

/// An operator has forced a failover of the target's shard. The source knows the winner, and the replaced target has not heard of it yet: it would
/// take the keys of a migrating slot, and lose them when it follows the winner.
#[test]
fn no_slot_migrates_to_a_node_that_a_failover_has_replaced() {
    let mut world = World::cluster(4, 3, 1, None);
    let (target, replica, mine) = (0, 3, Slot::new(16383).unwrap());
    (0..4).for_each(|other| world.net.set_cut(other, target, true));
    world.command(replica, ClusterCommand::Failover(FailoverMode::Force)).unwrap();
    let until_ms = world.now_ms + TIMEOUT_MS / 4;
    while owner(&world, 2, Slot::new(0).unwrap()) != name(&world, replica) && world.now_ms < until_ms {
        world.run_ms(1);
    }
    assert_eq!(owner(&world, 2, Slot::new(0).unwrap()), name(&world, replica));
    assert!(world.is_primary(target));
    let [old, new] = [target, replica].map(|at| SetSlot::Migrating(name(&world, at)));
    let refused = ClusterReply::Error("Target node is not a master".into());
    assert_eq!(both(&mut world, 2, mine, &old, false), refused);
    // A header from before it knows changes nothing.
    world.run_ms(200);
    assert!(world.is_primary(target));
    assert_eq!(both(&mut world, 2, mine, &old, false), refused);
    assert_eq!(both(&mut world, 2, mine, &new, false), ClusterReply::Ok);
    assert_eq!(both(&mut world, 2, mine, &SetSlot::Stable, false), ClusterReply::Ok);
    world.mend();
    world.settle_within(30);
    assert_eq!(both(&mut world, 2, mine, &old, false), refused, "it is a replica now");
    // Without a primary, it is an empty primary by an operator's decision.
    let reset = ClusterCommand::Reset { hard: false, has_keys: false };
    assert_eq!(world.command(target, reset), Some(ClusterReply::Ok));
    world.meet(target, 2);
    world.settle_within(30);
    assert!(world.is_primary(target));
    assert_eq!(both(&mut world, 2, mine, &old, false), ClusterReply::Ok);
}

/// No message comes between the commands of a transaction: a slot that is taken from its owner would return to it.
#[test]
fn commands_of_a_transaction_do_not_wait_for_the_disk() {
    let mut world = World::cluster(3, 3, 1, None);
    world.hosts[0].slow_disk = true;
    let slot = Slot::new(16383).unwrap();
    for command in
        [ClusterCommand::DelSlots(vec![slot]), ClusterCommand::AddSlots(vec![slot]), ClusterCommand::BumpEpoch]
    {
        world.input(0, Input::CommandAtOnce(CommandId(1_000_000), command));
        let reply = world.hosts[0].replies.remove(&1_000_000);
        assert!(matches!(reply, Some(ClusterReply::Ok | ClusterReply::Status(_))), "{reply:?}");
    }
    world.mend();
    world.settle_within(30);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
    let table = world.hosts[2].machine.as_ref().unwrap().table();
    assert_eq!(table[table.owner(slot).unwrap()].id.to_string(), name(&world, 0));
}

/// A save that began before a reset ends after it. The node doesn't claim its old slots again.
#[test]
fn a_reset_node_claims_nothing_whatever_save_is_under_way() {
    let mut world = World::cluster(3, 3, 1, None);
    world.hosts[0].slow_disk = true;
    world.begin_command(0, ClusterCommand::BumpEpoch);
    world.begin_command(0, ClusterCommand::Reset { hard: true, has_keys: false });
    let slots =
        |world: &World| world.hosts[0].machine.as_ref().unwrap().saves.durable().map(|claims| claims.slots.len());
    assert_eq!(slots(&world), Some(0));
    world.run_ms(6000);
    assert_eq!(slots(&world), Some(0));
    world.run_ms(6000);
    assert_eq!(slots(&world), Some(0));
}

/// The target of a move is killed right after its replica has executed the end. The source has the greater epoch, and still claims the slot. The
/// replica has the keys, and takes the slot with the target's place.
#[test]
fn a_slot_survives_the_failure_of_its_target_at_the_end() {
    let mut world = World::cluster(6, 3, 1, None);
    let (slot, names) = (Slot::new(16_383).unwrap(), [0, 2, 3].map(|at| name(&world, at)));
    let [target, source, successor] = &names;
    let importing = SetSlot::Importing(source.clone());
    let set = |world: &mut World, at, change: SetSlot| {
        let command = ClusterCommand::SetSlot {
            slot,
            change,
            has_keys: false,
            from_primary: at == 3 && world.winners.is_empty(),
        };
        assert_eq!(world.command(at, command), Some(ClusterReply::Ok));
    };
    set(&mut world, 3, importing.clone());
    set(&mut world, 0, importing);
    set(&mut world, 2, SetSlot::Migrating(target.clone()));
    set(&mut world, 3, SetSlot::Node(target.clone()));
    world.run_ms(TIMEOUT_MS / 2);
    world.crash(0);
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(3));
    assert_eq!(owner(&world, 3, slot), *successor, "the keys are deleted");
    world.mend();
    world.settle_within(30);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
    for host in 0..6 {
        assert_eq!(owner(&world, host, slot), *successor);
        assert!(world.hosts[host].machine.as_ref().unwrap().open.is_empty());
    }
}

#[test]
fn a_replica_closes_a_slot_that_its_primary_has_imported() {
    let mut world = World::cluster(6, 3, 1, None);
    world.move_slot(16_383, 0);
    world.settle_within(30);
    assert!(world.checks.violations.is_empty(), "{}", world.checks.violations.join("\n"));
    assert!(world.hosts.iter().all(|host| host.machine.as_ref().unwrap().open.is_empty()));
}

/// A replica believes that its old primary has a slot that the winner does not claim. It follows the winner once the old primary does. The move
/// of another slot goes on.
#[test]
fn a_replica_of_a_replaced_primary_keeps_open_slots() {
    let mut world = World::cluster(9, 3, 1, None);
    let (slot, source) = (Slot::new(16_383).unwrap(), name(&world, 2));
    let (importing, node) = (SetSlot::Importing(source.clone()), SetSlot::Node(name(&world, 0)));
    let other = Slot::new(16_382).unwrap();
    for (at, slot, change) in [(3, slot, &importing), (6, slot, &importing), (0, slot, &importing), (6, other, &node)] {
        let command = ClusterCommand::SetSlot { slot, change: change.clone(), has_keys: false, from_primary: at != 0 };
        assert_eq!(world.command(at, command), Some(ClusterReply::Ok));
    }
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
    world.run_ms(TIMEOUT_MS);
    let table = world.hosts[6].machine.as_ref().unwrap().table();
    assert_eq!(table.myself().primary().map(|key| table[key].id.to_string()), Some(name(&world, 3)));
    for at in [3, 6] {
        assert!(world.hosts[at].machine.as_ref().unwrap().open.contains_key(&slot), "host {at}");
    }
}

/// States of open slots go from a primary's view to its replica, and malformed ones change nothing. A snapshot without states closes the slots
/// of a replica that has missed the end of their moves.
#[test]
fn open_slots_come_with_a_snapshot() {
    let mut world = World::cluster(6, 3, 1, None);
    let (target, source) = (name(&world, 1), name(&world, 2));
    let slots = [Slot::new(0), Slot::new(16_383)].map(Option::unwrap);
    both(&mut world, 0, slots[0], &SetSlot::Migrating(target.clone()), false);
    both(&mut world, 0, slots[1], &SetSlot::Importing(source.clone()), false);
    world.run_ms(1000);
    let states = |world: &World, at: usize| world.hosts[at].view.as_ref().unwrap().slot_states(&[]);
    let text = format!("0>{target},16383<{source},");
    assert_eq!(states(&world, 0), Some(text.clone()));
    let take = |text: &str| ClusterCommand::TakeSlotStates(text.as_bytes().into());
    for (given, open) in [
        ("0>nosuch,", None),
        ("16384>x,", None),
        (&text[..text.len() - 1], None),
        (&text, Some(text.clone())),
        ("", None),
        (&text, Some(text.clone())),
        ("0>0123456789012345678901234567890123456789,", Some("0>0123456789012345678901234567890123456789,".into())),
        // The targets have become replicas: one of host 1, one of this node's primary.
        (&format!("0>{},7>{},", name(&world, 4), name(&world, 3)), Some(format!("0>{target},"))),
        (&format!("16383<{},", name(&world, 5)), Some(format!("16383<{source},"))),
    ] {
        assert_eq!(world.command(3, take(given)), Some(ClusterReply::Ok));
        world.run_ms(1000);
        assert_eq!(states(&world, 3), open, "{given:?}");
    }
    // So may the target of a change in the stream.
    let change = SetSlot::Migrating(name(&world, 4));
    let command = ClusterCommand::SetSlot { slot: slots[0], change, has_keys: false, from_primary: true };
    assert_eq!(world.command(3, command), Some(ClusterReply::Ok));
    world.run_ms(1000);
    assert_eq!(states(&world, 3), Some(format!("0>{target},16383<{source},")));
    // A primary knows its open slots itself.
    assert_eq!(world.command(0, take(&format!("5>{target},"))), Some(ClusterReply::Ok));
    world.run_ms(1000);
    assert_eq!(states(&world, 0), Some(text));
    // The replicas have changes that this node has not executed.
    let view = world.hosts[0].view.as_ref().unwrap();
    let under_way = [(slots[0], SetSlot::Stable), (Slot::new(7).unwrap(), SetSlot::Migrating(target.clone()))];
    assert_eq!(view.slot_states(&under_way), Some(format!("7>{target},16383<{source},")));
}

/// A failover takes all but one of its slots from the source of an import. The target has missed it, and hears from the source first. It does
/// not take the slot from the successor.
#[test]
fn a_slot_of_a_replaced_source_is_not_abandoned() {
    let mut world = World::cluster(6, 3, 1, None);
    let [number, kept] = [7, 16383].map(|number| Slot::new(number).unwrap());
    let (source, successor) = (name(&world, 0), name(&world, 3));
    let change = SetSlot::Importing(source);
    let command = ClusterCommand::SetSlot { slot: number, change, has_keys: false, from_primary: false };
    assert_eq!(world.command(1, command), Some(ClusterReply::Ok));
    world.crash(1);
    world.run_ms(5 * TIMEOUT_MS);
    // The source gets a slot that it tells nobody of, and comes back with it.
    for host in [2, 0] {
        world.command(host, ClusterCommand::DelSlots(vec![kept]));
    }
    world.begin_command(0, ClusterCommand::AddSlots(vec![kept]));
    let text = world.hosts[0].machine.as_ref().unwrap().file_text();
    world.crash(0);
    world.write_disk(0, text);
    world.run_ms(5 * TIMEOUT_MS);
    world.start(0);
    world.run_ms(TIMEOUT_MS);
    assert!(world.is_primary(0) && world.is_primary(3));
    let set_cut = |world: &mut World, is_cut| {
        world.net.set_cut(1, 3, is_cut);
        world.net.set_cut(3, 1, is_cut);
    };
    set_cut(&mut world, true);
    world.start(1);
    world.run_ms(3 * TIMEOUT_MS);
    assert_ne!(owner(&world, 1, number), name(&world, 1));
    set_cut(&mut world, false);
    world.settle_within(30);
    assert_eq!(world.checks.violations, Vec::<String>::new());
    assert_eq!([0, 1, 2].map(|host| owner(&world, host, number)), [&successor; 3].map(String::clone));
}

/// The target of a move has saved its new epoch, and is killed before anybody hears of it. A replica of the source wins the same epoch. The
/// target has the keys, and keeps the slot, whether its name is the greater one or not.
#[test]
fn a_target_keeps_a_slot_that_has_moved_in_an_epoch_that_another_node_has_won() {
    for seed in 0..4 {
        let mut world = World::cluster(6, 3, seed, None);
        world.end_epoch_votes();
        let slot = Slot::new(7).unwrap();
        let (source, target) = (name(&world, 0), name(&world, 1));
        let set = |change, from_primary| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary };
        world.command(1, set(SetSlot::Importing(source), false));
        for (host, from_primary) in [(0, false), (3, true)] {
            world.command(host, set(SetSlot::Migrating(target.clone()), from_primary));
        }
        world.begin_command(1, set(SetSlot::Node(target.clone()), false));
        let epoch = |world: &World, at: usize| world.hosts[at].machine.as_ref().unwrap().table().myself().config_epoch;
        let unseen = epoch(&world, 1);
        let text = world.hosts[1].machine.as_ref().unwrap().file_text();
        world.crash(1);
        world.write_disk(1, text);
        world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
        world.run_ms(TIMEOUT_MS);
        assert!(world.is_primary(3) && epoch(&world, 3) == unseen, "seed {seed}");
        world.mend();
        world.settle_within(30);
        assert_eq!(world.checks.violations, Vec::<String>::new(), "seed {seed}");
        assert_eq!((0..6).map(|host| owner(&world, host, slot)).collect::<Vec<_>>(), vec![target; 6], "seed {seed}");
    }
}

/// The replica of a target has executed the end of a move, and the target fails before it does. The source gives the slot up, so that the
/// winner of its failover does not have it.
#[test]
fn a_source_hears_of_the_end_of_a_move_from_the_targets_replica() {
    let mut world = World::cluster(6, 3, 1, None);
    let slot = Slot::new(7).unwrap();
    let (source, target) = (name(&world, 0), name(&world, 2));
    let set = |change, from_primary| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary };
    for (host, from_primary) in [(2, false), (5, true)] {
        world.command(host, set(SetSlot::Importing(source.clone()), from_primary));
    }
    for (host, from_primary) in [(0, false), (3, true)] {
        world.command(host, set(SetSlot::Migrating(target.clone()), from_primary));
    }
    world.crash(2);
    world.command(5, set(SetSlot::Node(target.clone()), true));
    world.run_ms(TIMEOUT_MS * 3 / 4);
    assert_eq!(owner(&world, 0, slot), target);
    world.command(3, ClusterCommand::Failover(FailoverMode::Planned));
    world.run_ms(200);
    world.mend();
    world.settle_within(30);
    assert!(world.is_primary(3));
    assert_eq!(world.checks.violations, Vec::<String>::new());
    assert_eq!((0..6).map(|host| owner(&world, host, slot)).collect::<Vec<_>>(), vec![target; 6]);
}

/// The host to which a slot of another host migrates.
fn migrates_to(world: &World, at: usize, slot: Slot) -> Option<usize> {
    let machine = world.hosts[at].machine.as_ref()?;
    world.host_of(machine.table()[machine.open.get(&slot)?.peer()].id)
}

/// Opens a slot of host 1 that moves to host 0, and has host 0 take the last slot of all without the knowledge of its replica, host 3.
fn open_and_take_a_slot(world: &mut World, takes: bool) -> Slot {
    let (slot, last) = (Slot::new(8000).unwrap(), Slot::new(16_383).unwrap());
    let (target, source) = (name(world, 0), name(world, 1));
    let [importing, migrating] = [SetSlot::Importing(source), SetSlot::Migrating(target)];
    for (at, change, from_primary) in [(3, &importing, true), (0, &importing, false), (1, &migrating, false)] {
        let command = ClusterCommand::SetSlot { slot, change: change.clone(), has_keys: false, from_primary };
        assert_eq!(world.command(at, command), Some(ClusterReply::Ok));
    }
    if takes {
        world.net.set_cut(0, 3, true);
        for at in [2, 0] {
            assert_eq!(world.command(at, ClusterCommand::DelSlots(vec![last])), Some(ClusterReply::Ok));
        }
        assert_eq!(world.command(0, ClusterCommand::AddSlots(vec![last])), Some(ClusterReply::Ok));
        world.run_ms(TIMEOUT_MS);
        assert_eq!(owner(world, 1, last), name(world, 0));
    }
    slot
}

/// A failover of the target redirects a move, also if the target has taken a slot in its last moment, and never comes back.
#[test]
fn a_move_follows_a_failover_of_its_target() {
    for (takes, is_planned) in [(false, true), (false, false), (true, false)] {
        let mut world = World::cluster(6, 3, 1, None);
        let slot = open_and_take_a_slot(&mut world, takes);
        if is_planned {
            assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
        } else {
            world.crash(0);
        }
        world.run_ms(5 * TIMEOUT_MS);
        assert!(world.is_primary(3));
        assert_eq!(migrates_to(&world, 1, slot), Some(3), "takes a slot: {takes}, planned: {is_planned}");
    }
}

/// A forced failover leaves a target with one slot. The move goes on to it, also when the winner shows other claims later, and at the end the
/// winner deletes its copies of the keys.
#[test]
fn a_move_goes_on_to_a_target_that_has_kept_a_slot() {
    let mut world = World::cluster(6, 3, 1, None);
    let slot = open_and_take_a_slot(&mut world, true);
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Force)), Some(ClusterReply::Ok));
    world.run_ms(100);
    assert!(world.is_primary(3) && world.is_primary(0));
    assert_eq!(migrates_to(&world, 1, slot), Some(0));
    world.mend();
    let given_up = Slot::new(7).unwrap();
    assert_eq!(world.command(3, ClusterCommand::DelSlots(vec![given_up])), Some(ClusterReply::Ok));
    world.command(3, ClusterCommand::BumpEpoch);
    world.run_ms(2 * TIMEOUT_MS);
    assert_eq!((migrates_to(&world, 1, slot), migrates_to(&world, 3, slot)), (Some(0), Some(1)));
    let end = SetSlot::Node(name(&world, 0));
    for at in [0, 1] {
        let command = ClusterCommand::SetSlot { slot, change: end.clone(), has_keys: false, from_primary: false };
        assert_eq!(world.command(at, command), Some(ClusterReply::Ok));
    }
    world.run_ms(2 * TIMEOUT_MS);
    assert_eq!(migrates_to(&world, 3, slot), None);
    assert!(world.hosts[3].dropped.contains(slot) && !world.hosts[0].dropped.contains(slot));
}

/// The former primary of a source comes back after its successor has given a slot up. It has old copies of the keys, and claims the slot
/// with its old epoch. The target of the move has missed the end, and has the present keys.
#[test]
fn a_target_takes_an_abandoned_slot_before_an_old_owner() {
    let mut world = World::cluster(6, 3, 1, None);
    let slot = Slot::new(7).unwrap();
    let target = name(&world, 1);
    world.crash(0);
    world.run_ms(5 * TIMEOUT_MS);
    assert!(world.is_primary(3));
    let source = name(&world, 3);
    let set = |change, from_primary| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary };
    for (at, change, from_primary) in [
        (4, SetSlot::Importing(source.clone()), true),
        (1, SetSlot::Importing(source), false),
        (3, SetSlot::Migrating(target.clone()), false),
        (3, SetSlot::Node(target.clone()), false),
    ] {
        assert_eq!(world.command(at, set(change, from_primary)), Some(ClusterReply::Ok));
    }
    world.run_ms(TIMEOUT_MS / 2);
    world.mend();
    world.settle_within(30);
    assert_eq!(world.checks.violations, Vec::<String>::new());
    assert_eq!((0..6).map(|host| owner(&world, host, slot)).collect::<Vec<_>>(), vec![target; 6]);
}

/// A target saves its epoch, and is killed before anybody hears of it. The source ends another import, and still serves the slot. Their epochs
/// differ, because a majority has voted for each one.
#[test]
fn an_epoch_with_votes_belongs_to_one_node() {
    for without in [None, Some(Rule::ReservedEpochs)] {
        let mut world = World::cluster(3, 3, 1, without);
        let names = [0, 1, 2].map(|at| name(&world, at));
        let [from_first, from_third] = [7, 16_000].map(|number| Slot::new(number).unwrap());
        let set = |slot, change| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary: false };
        for (target, slot, source) in [(1, from_first, 0), (0, from_third, 2)] {
            let importing = set(slot, SetSlot::Importing(names[source].clone()));
            assert_eq!(world.command(target, importing), Some(ClusterReply::Ok));
            let migrating = set(slot, SetSlot::Migrating(names[target].clone()));
            assert_eq!(world.command(source, migrating), Some(ClusterReply::Ok));
        }
        let epoch = |world: &World, at: usize| world.hosts[at].machine.as_ref().unwrap().table().myself().config_epoch;
        let before = epoch(&world, 1);
        world.begin_command(1, set(from_first, SetSlot::Node(names[1].clone())));
        while epoch(&world, 1) == before {
            world.run_ms(1);
        }
        let unseen = epoch(&world, 1);
        let text = world.hosts[1].machine.as_ref().unwrap().file_text();
        world.crash(1);
        world.write_disk(1, text);
        assert_eq!(world.command(0, set(from_third, SetSlot::Node(names[0].clone()))), Some(ClusterReply::Ok));
        assert_eq!(epoch(&world, 0) == unseen, without.is_some());
        world.mend();
        world.settle_within(30);
        assert_eq!(world.checks.violations.is_empty(), without.is_none(), "{}", world.checks.violations.join("\n"));
        assert!(!world.hosts[1].dropped.contains(from_first), "the target deletes the keys");
    }
}

/// An operator repairs a cluster without a majority. The command waits for votes for a moment only.
#[test]
fn an_import_ends_without_a_majority() {
    let mut world = World::cluster(3, 3, 1, None);
    let (slot, source, target) = (Slot::new(7).unwrap(), name(&world, 0), name(&world, 1));
    let set = |change| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary: false };
    assert_eq!(world.command(1, set(SetSlot::Importing(source))), Some(ClusterReply::Ok));
    [0, 2].into_iter().for_each(|at| world.crash(at));
    let id = world.begin_command(1, set(SetSlot::Node(target.clone())));
    world.run_ms(50);
    assert_eq!(world.hosts[1].replies.remove(&id), None);
    world.run_ms(300);
    assert_eq!(world.hosts[1].replies.remove(&id), Some(ClusterReply::Ok));
    assert_eq!(owner(&world, 1, slot), target);
}

/// A failover has replaced the source. The winner need not know that the slot migrates, and would take writes to it while the target waits for
/// votes.
#[test]
fn an_import_from_a_winner_ends_at_once() {
    let mut world = World::cluster(6, 3, 1, None);
    let (slot, source, target) = (Slot::new(7).unwrap(), name(&world, 0), name(&world, 1));
    let set = |change| ClusterCommand::SetSlot { slot, change, has_keys: false, from_primary: false };
    assert_eq!(world.command(1, set(SetSlot::Importing(source))), Some(ClusterReply::Ok));
    assert_eq!(world.command(3, ClusterCommand::Failover(FailoverMode::Planned)), Some(ClusterReply::Ok));
    world.run_ms(TIMEOUT_MS);
    assert!(world.is_primary(3));
    world.begin_command(1, set(SetSlot::Node(target.clone())));
    assert_eq!(owner(&world, 1, slot), target);
}
