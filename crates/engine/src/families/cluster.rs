//! CLUSTER and related commands. A server that is not a node of a cluster refuses them.
//!
//! Commands on the keys of slots are in `slots.rs`, CLUSTERSCAN in `scan.rs`.
//!
//! Source of the semantics: Redis's command pages of the group "cluster", and the replies of a running server.

mod bus;
mod exporting;
mod help;
mod migrating;
mod migration;
mod scan;
mod slots;

pub(super) use bus::ask as ask_bus;
use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NOSCRIPT, READONLY, STALE, WRITE};
use commands::spec::key_flag::NOT_KEY;
use commands::spec::{Group, KeySpec, Scope, Spec, acl, fact};

use crate::worker::turn::{Run, SessionHandler, Turn};

/// Flags of commands that read the cluster's state, of those that the bus answers even while data load, of operators' commands, and of
/// commands that change the cluster.
const LOOK: u32 = STALE;
const LOOK_ALWAYS: u32 = LOADING | STALE;
const OPERATOR: u32 = ADMIN | STALE;
const CHANGE: u32 = ADMIN | STALE | NO_ASYNC_LOADING;
const CHANGES: &[&str] = &["nondeterministic_output"];

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("asking", 1, FAST, Run::Session(asking)).facts(fact::HOLDS_CONNECTION).categories(acl::CONNECTION).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Announces that the next command follows a redirection.",
        "",
    ),
    Spec::new("cluster", -2, 0, Run::Session(alone))
        .docs(Group::Cluster, "3.0.0", "Depends on subcommand.", "Shows and changes the cluster.", "")
        .subcommands(SUBCOMMANDS),
    Spec::new("clusterscan", -2, READONLY, Run::Session(scan::clusterscan))
        .keys(&[KeySpec::at(1, NOT_KEY)])
        .scope(Scope::Each)
        .categories(acl::KEYSPACE)
        .not_in_group_category()
        .docs(
            Group::Cluster,
            "9.1.0",
            "O(N) where N is the number of keys that are visited",
            "Finds the keys of a cluster, a few with each call.",
            "cursor:string [MATCH match-pattern:pattern] [COUNT count:integer] [TYPE type:string] [SLOT slot:integer]",
        )
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    Spec::new("readonly", 1, LOADING | STALE | FAST, Run::Session(readonly))
        .facts(fact::HOLDS_CONNECTION)
        .categories(acl::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Lets a cluster's replica serve reads.", ""),
    Spec::new("readwrite", 1, LOADING | STALE | FAST, Run::Session(readwrite))
        .facts(fact::HOLDS_CONNECTION)
        .categories(acl::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Ends READONLY.", ""),
];

/// Returns a subcommand of CLUSTER that handles the keys of a slot.
const fn of_slot(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: SessionHandler,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Spec<Run> {
    Spec::new(name, arity, flags, Run::Session(run)).docs(Group::Cluster, since, "O(N)", summary, syntax)
}

/// Returns a subcommand of CLUSTER that the bus answers.
const fn subcommand(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: SessionHandler,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Spec<Run> {
    Spec::new(name, arity, flags, Run::Session(run)).docs(Group::Cluster, since, "O(1)", summary, syntax)
}

const SUBCOMMANDS: &[Spec<Run>] = &[
    subcommand(
        "addslots",
        -3,
        CHANGE,
        bus::addslots,
        "3.0.0",
        "Gives slots to the node.",
        "slot:integer [slot:integer ...]",
    ),
    subcommand(
        "addslotsrange",
        -4,
        CHANGE,
        bus::addslotsrange,
        "7.0.0",
        "Gives ranges of slots to the node.",
        "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]:range",
    ),
    subcommand(
        "cancelslotmigrations",
        2,
        CHANGE,
        exporting::cancelslotmigrations,
        "9.0.0",
        "Cancels all moves of slots away from the node.",
        "",
    ),
    subcommand("bumpepoch", 2, CHANGE, bus::bumpepoch, "3.0.0", "Advances the cluster's epoch.", "").tips(CHANGES),
    subcommand(
        "count-failure-reports",
        3,
        OPERATOR,
        bus::count_failure_reports,
        "3.0.0",
        "Counts the failure reports about a node.",
        "node-id:string",
    )
    .tips(CHANGES),
    of_slot("countkeysinslot", 3, LOOK, slots::countkeysinslot, "3.0.0", "Counts the keys of a slot.", "slot:integer")
        .scope(Scope::Each),
    subcommand(
        "delslots",
        -3,
        CHANGE,
        bus::delslots,
        "3.0.0",
        "Takes slots from the node.",
        "slot:integer [slot:integer ...]",
    ),
    subcommand(
        "delslotsrange",
        -4,
        CHANGE,
        bus::delslotsrange,
        "7.0.0",
        "Takes ranges of slots from the node.",
        "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]:range",
    ),
    subcommand(
        "failover",
        -2,
        CHANGE,
        bus::failover,
        "3.0.0",
        "Makes a replica take its master's place.",
        "[FORCE | TAKEOVER]:options",
    ),
    of_slot(
        "flushslot",
        -3,
        WRITE | ADMIN | NO_ASYNC_LOADING,
        slots::flushslot,
        "9.0.0",
        "Removes the keys of a slot.",
        "slot:integer [ASYNC | SYNC]:flush-type",
    )
    .scope(Scope::Whole)
    .facts(fact::ALL_DATABASES)
    .categories(acl::KEYSPACE),
    subcommand("flushslots", 2, CHANGE, bus::flushslots, "3.0.0", "Takes all slots from the node.", "")
        .scope(Scope::Each),
    subcommand(
        "forget",
        3,
        CHANGE,
        bus::forget,
        "3.0.0",
        "Removes a node from the node's view of the cluster.",
        "node-id:string",
    ),
    of_slot(
        "getkeysinslot",
        4,
        LOOK,
        slots::getkeysinslot,
        "3.0.0",
        "Answers keys of a slot.",
        "slot:integer count:integer",
    )
    .scope(Scope::Each)
    .tips(CHANGES),
    subcommand(
        "getslotmigrations",
        2,
        CHANGE,
        migrating::getslotmigrations,
        "9.0.0",
        "Lists moves of whole slots to the node.",
        "",
    ),
    subcommand("help", 2, LOADING | STALE, help::show, "5.0.0", "Describes the subcommands.", ""),
    subcommand("info", 2, LOOK_ALWAYS, bus::info, "3.0.0", "Shows the cluster's state.", "").tips(CHANGES),
    of_slot("keyslot", 3, LOOK, slots::keyslot, "3.0.0", "Answers the slot of a key.", "key:string"),
    subcommand("links", 2, LOOK, bus::links, "7.0.0", "Shows the node's connections to others.", "").tips(CHANGES),
    subcommand(
        "meet",
        -4,
        CHANGE,
        bus::meet,
        "3.0.0",
        "Makes two nodes known to each other.",
        "ip:string port:integer [cluster-bus-port:integer@4.0.0]",
    )
    .history(&[("4.0.0", "The bus's port.")]),
    subcommand(
        "migrateslots",
        -4,
        CHANGE,
        exporting::migrateslots,
        "9.0.0",
        "Moves whole slots to other nodes.",
        "SLOTSRANGE start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...] NODE node-id:string",
    )
    .facts(fact::REFUSES_SHORT),
    subcommand(
        "migration",
        -4,
        CHANGE,
        migration::migration,
        "8.4.0",
        "Moves whole slots of a Redis node here, and shows or cancels moves.",
        "<IMPORT start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...] | STATUS <ID \
         task-id:string | ALL>:status | CANCEL <ID task-id:string | ALL>:cancel>:subcommand",
    ),
    subcommand("myid", 2, LOOK_ALWAYS, bus::myid, "3.0.0", "Answers the node's name.", ""),
    subcommand("myshardid", 2, LOOK_ALWAYS, bus::myshardid, "7.2.0", "Answers the name of the node's shard.", "")
        .tips(CHANGES),
    subcommand("nodes", 2, LOOK_ALWAYS, bus::nodes, "3.0.0", "Lists the cluster's nodes.", "").tips(CHANGES),
    subcommand("replicas", 3, OPERATOR, bus::replicas, "5.0.0", "Lists a node's replicas.", "node-id:string")
        .tips(CHANGES),
    subcommand(
        "replicate",
        -3,
        CHANGE,
        bus::replicate,
        "3.0.0",
        "Makes the node a replica of another.",
        "node-id:string",
    )
    .scope(Scope::Each),
    subcommand(
        "reset",
        -2,
        ADMIN | NOSCRIPT | STALE,
        bus::reset,
        "3.0.0",
        "Makes the node leave the cluster.",
        "[HARD | \
                                                                                                   SOFT]:reset-type",
    )
    .scope(Scope::Each),
    subcommand(
        "saveconfig",
        2,
        CHANGE,
        bus::saveconfig,
        "3.0.0",
        "Writes the node's view of the cluster to its file.",
        "",
    ),
    subcommand(
        "set-config-epoch",
        3,
        CHANGE,
        bus::set_config_epoch,
        "3.0.0",
        "Sets the epoch of a new node.",
        "config-epoch:integer",
    ),
    subcommand(
        "setslot",
        -4,
        CHANGE,
        bus::setslot,
        "3.0.0",
        "Binds a slot to a node, or moves it.",
        "slot:integer <IMPORTING importing:string | MIGRATING migrating:string | NODE node:string | STABLE>:subcommand",
    )
    .scope(Scope::Each),
    subcommand("shards", 2, LOOK_ALWAYS, bus::shards, "7.0.0", "Lists the slots of each shard.", "").tips(CHANGES),
    subcommand("slaves", 3, OPERATOR, bus::replicas, "3.0.0", "Lists a node's replicas.", "node-id:string")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .tips(CHANGES),
    of_slot(
        "slot-stats",
        -4,
        LOADING | STALE,
        slots::slot_stats,
        "8.0.0",
        "Shows the use of the node's slots.",
        "<SLOTSRANGE start-slot:integer end-slot:integer | ORDERBY metric:string [LIMIT limit:integer] \
         [ASC | DESC]:order>:filter",
    )
    .scope(Scope::Each)
    .tips(&["nondeterministic_output", "request_policy:all_shards"]),
    subcommand("slots", 2, LOOK_ALWAYS, bus::show_slots, "3.0.0", "Lists the slots of each node.", "")
        .deprecated("7.0.0", "`CLUSTER SHARDS`")
        .history(&[("4.0.0", "The nodes' names."), ("7.0.0", "More of the nodes' addresses.")])
        .tips(CHANGES),
    migrating::syncslots_entry(CHANGE),
];

/// Refuses CLUSTER without a subcommand.
fn alone(turn: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::arity(&turn.command.name))
}

/// Refuses a command on a server that is not a node of a cluster.
fn only_in_cluster(turn: &Turn<'_, '_>) -> Result<(), Error> {
    match turn.engine().slots.are_on() {
        true => Ok(()),
        false => Err(Error::fixed("ERR This instance has cluster support disabled")),
    }
}

/// Returns the error for a number of arguments that the entry's arity admits and the subcommand doesn't.
fn bad_subcommand(turn: &Turn<'_, '_>) -> Error {
    let name = String::from_utf8_lossy(turn.arg(1)).into_owned();
    Error::new(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP."))
}

fn asking(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    turn.session.forwarding.decline();
    turn.session.set_asking(true);
    turn.reply.ok();
    Ok(())
}

fn readonly(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    turn.session.forwarding.decline();
    turn.session.set_reads_replica(true);
    turn.reply.ok();
    Ok(())
}

fn readwrite(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    turn.session.set_reads_replica(false);
    turn.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn there_is_no_cluster() {
        const DISABLED: &str = "-ERR This instance has cluster support disabled";
        check(&[
            ("cluster", "-ERR wrong number of arguments for 'cluster' command"),
            ("cluster info", DISABLED),
            ("cluster help", DISABLED),
            ("cluster keyslot k", DISABLED),
            ("cluster meet", "-ERR wrong number of arguments for 'cluster|meet' command"),
            ("cluster bogus", "-ERR unknown subcommand 'bogus'. Try CLUSTER HELP."),
            ("readonly", DISABLED),
            ("readwrite", DISABLED),
            ("asking", DISABLED),
        ]);
    }
}
