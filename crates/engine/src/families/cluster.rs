//! CLUSTER and its companions, answered as by a Redis that is no part of a cluster.
//!
//! Source of the semantics: Redis's command pages of the group "cluster", and the replies of a running server.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, acl, fact};

use crate::worker::turn::{Run, Turn};

/// Flags of what tells of the cluster, of what changes it, and of both for operators.
const LOOK: u32 = STALE;
const OPERATOR: u32 = ADMIN | STALE;
const CHANGE: u32 = ADMIN | STALE | NO_ASYNC_LOADING;
const CHANGES: &[&str] = &["nondeterministic_output"];

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("asking", 1, FAST, Run::Session(disabled))
        .facts(fact::HOLDS_CONNECTION)
        .categories(acl::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Says that a redirection of one command is followed.", ""),
    Spec::new("cluster", -2, 0, Run::Session(disabled))
        .docs(Group::Cluster, "3.0.0", "Depends on subcommand.", "Is refused: the server is no part of a cluster.", "")
        .subcommands(SUBCOMMANDS),
    Spec::new("readonly", 1, LOADING | STALE | FAST, Run::Session(disabled))
        .facts(fact::HOLDS_CONNECTION)
        .categories(acl::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Has a cluster's replica answer reads.", ""),
    Spec::new("readwrite", 1, LOADING | STALE | FAST, Run::Session(disabled))
        .facts(fact::HOLDS_CONNECTION)
        .categories(acl::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Ends READONLY.", ""),
];

/// A subcommand of CLUSTER.
const fn subcommand(
    name: &'static str,
    arity: i32,
    flags: u32,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Spec<Run> {
    Spec::new(name, arity, flags, Run::Session(disabled)).docs(Group::Cluster, since, "O(1)", summary, syntax)
}

const SUBCOMMANDS: &[Spec<Run>] = &[
    subcommand("addslots", -3, CHANGE, "3.0.0", "Gives slots to the node.", "slot:integer [slot:integer ...]"),
    subcommand(
        "addslotsrange",
        -4,
        CHANGE,
        "7.0.0",
        "Gives ranges of slots to the node.",
        "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]:range",
    ),
    subcommand("bumpepoch", 2, CHANGE, "3.0.0", "Advances the cluster's epoch.", "").tips(CHANGES),
    subcommand("count-failure-reports", 3, OPERATOR, "3.0.0", "Counts reports that a node fails.", "node-id:string")
        .tips(CHANGES),
    subcommand("countkeysinslot", 3, LOOK, "3.0.0", "Counts the keys of a slot.", "slot:integer"),
    subcommand("delslots", -3, CHANGE, "3.0.0", "Takes slots from the node.", "slot:integer [slot:integer ...]"),
    subcommand(
        "delslotsrange",
        -4,
        CHANGE,
        "7.0.0",
        "Takes ranges of slots from the node.",
        "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]:range",
    ),
    subcommand("failover", -2, CHANGE, "3.0.0", "Has a replica take its master's place.", "[FORCE | TAKEOVER]:options"),
    subcommand("flushslots", 2, CHANGE, "3.0.0", "Takes all slots from the node.", ""),
    subcommand("forget", 3, CHANGE, "3.0.0", "Removes a node from the node's view of the cluster.", "node-id:string"),
    subcommand("getkeysinslot", 4, LOOK, "3.0.0", "Answers keys of a slot.", "slot:integer count:integer")
        .tips(CHANGES),
    subcommand("help", 2, LOADING | STALE, "5.0.0", "Says what the subcommands are.", ""),
    subcommand("info", 2, LOOK, "3.0.0", "Tells of the cluster's state.", "").tips(CHANGES),
    subcommand("keyslot", 3, LOOK, "3.0.0", "Answers the slot of a key.", "key:string"),
    subcommand("links", 2, LOOK, "7.0.0", "Tells of the node's connections to others.", "").tips(CHANGES),
    subcommand(
        "meet",
        -4,
        CHANGE,
        "3.0.0",
        "Makes two nodes known to each other.",
        "ip:string port:integer [cluster-bus-port:integer@4.0.0]",
    )
    .history(&[("4.0.0", "The bus's port.")]),
    subcommand("myid", 2, LOOK, "3.0.0", "Answers the node's name.", ""),
    subcommand("myshardid", 2, LOOK, "7.2.0", "Answers the name of the node's shard.", "").tips(CHANGES),
    subcommand("nodes", 2, LOOK, "3.0.0", "Lists the cluster's nodes.", "").tips(CHANGES),
    subcommand("replicas", 3, OPERATOR, "5.0.0", "Lists a node's replicas.", "node-id:string").tips(CHANGES),
    subcommand("replicate", 3, CHANGE, "3.0.0", "Makes the node a replica of another.", "node-id:string"),
    subcommand(
        "reset",
        -2,
        ADMIN | NOSCRIPT | STALE,
        "3.0.0",
        "Has the node leave the cluster.",
        "[HARD | \
                                                                                                   SOFT]:reset-type",
    ),
    subcommand("saveconfig", 2, CHANGE, "3.0.0", "Writes the node's view of the cluster to its file.", ""),
    subcommand("set-config-epoch", 3, CHANGE, "3.0.0", "Sets the epoch of a new node.", "config-epoch:integer"),
    subcommand(
        "setslot",
        -4,
        CHANGE,
        "3.0.0",
        "Binds a slot to a node, or moves it.",
        "slot:integer <IMPORTING importing:string | MIGRATING migrating:string | NODE node:string | STABLE>:subcommand",
    ),
    subcommand("shards", 2, LOOK, "7.0.0", "Tells which slots each shard has.", "").tips(CHANGES),
    subcommand("slaves", 3, OPERATOR, "3.0.0", "Lists a node's replicas.", "node-id:string")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .tips(CHANGES),
    subcommand("slots", 2, LOOK, "3.0.0", "Tells which slots each node has.", "")
        .deprecated("7.0.0", "`CLUSTER SHARDS`")
        .history(&[("4.0.0", "The nodes' names."), ("7.0.0", "More of how nodes are reached.")])
        .tips(CHANGES),
];

/// What everything about a cluster is answered.
fn disabled(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.command.parent.is_none() && turn.len() == 1 && !turn.command.subcommands.is_empty() {
        return Err(Error::arity(&turn.command.name));
    }
    Err(Error::fixed("ERR This instance has cluster support disabled"))
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
