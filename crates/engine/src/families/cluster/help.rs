//! CLUSTER HELP.

use commands::error::Outcome;

use super::only_in_cluster;
use crate::families::help::help;
use crate::worker::turn::Turn;

const LINES: &[&str] = &[
    "ADDSLOTS <slot> [<slot> ...]",
    "    Assign slots to current node.",
    "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Assign slots which are between <start-slot> and <end-slot> to current node.",
    "BUMPEPOCH",
    "    Advance the cluster config epoch.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Return number of failure reports for <node-id>.",
    "COUNTKEYSINSLOT <slot>",
    "    Return the number of keys in <slot>.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Delete slots information from current node.",
    "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Delete slots information which are between <start-slot> and <end-slot> from current node.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Promote current replica node to being a primary.",
    "FLUSHSLOT <slot> [ASYNC|SYNC]",
    "    Delete the keys of <slot>.",
    "FLUSHSLOTS",
    "    Delete current node own slots information.",
    "FORGET <node-id>",
    "    Remove a node from the cluster.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return key names stored by current node in a slot.",
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "LINKS",
    "    Return information about all network links between this node and its peers.",
    "MEET <ip> <port> [<bus-port>]",
    "    Connect nodes into a working cluster.",
    "MIGRATION (IMPORT <start slot> <end slot> [<start slot> <end slot> ...] | STATUS (ID <task-id> | ALL) | CANCEL (ID <task-id> | ALL))",
    "    Move slots of a Redis node to this node; show or cancel such moves.",
    "MYID",
    "    Return the node id.",
    "MYSHARDID",
    "    Return the node's shard id.",
    "NODES",
    "    Return cluster configuration seen by node.",
    "REPLICAS <node-id>",
    "    Return <node-id> replicas.",
    "REPLICATE (<node-id> | NO ONE)",
    "    Configure current node as replica to <node-id> or turn it into empty primary.",
    "RESET [HARD|SOFT]",
    "    Reset current node (default: soft).",
    "SAVECONFIG",
    "    Force saving cluster configuration on disk.",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set config epoch of current node.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>) [TIMEOUT <ms>]",
    "    Set slot state.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOT-STATS SLOTSRANGE <start slot> <end slot> | ORDERBY <metric> [LIMIT <limit>] [ASC|DESC]",
    "    Return the use of slots.",
    "SLOTS",
    "    Return information about slots range mappings.",
];

pub(super) fn show(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    help(turn, LINES)
}
