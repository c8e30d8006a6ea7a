//! A node of a cluster with `cluster-cross-slot local` that serves all slots, compared with Redis without cluster mode. Random
//! commands with several keys, and transactions of them, are answered alike.

use penstock_tests::bytes::Command;
use penstock_tests::diff::Servers;
use penstock_tests::families::{self, Family};
use penstock_tests::nodes::{Make, SLOTS, node_with};

/// Number of seeds for each family.
const ROUNDS: u64 = 20;

/// The families with commands on several keys.
const FAMILIES: &[Family] = &[
    families::STRINGS,
    families::KEYS,
    families::LISTS,
    families::SETS,
    families::SORTED_SETS,
    families::STREAMS,
    families::BITS,
    families::HYPERLOGLOGS,
    families::GEO,
    families::SORT,
    families::TRANSACTIONS,
];

/// Returns true for a command that a cluster allows. It refuses to swap databases, and patterns of other keys in SORT.
fn is_allowed(command: &Command) -> bool {
    let is = |word: &Vec<u8>, other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    let sorts = is(&command[0], "SORT") || is(&command[0], "SORT_RO");
    !(is(&command[0], "SWAPDB") || sorts && command.iter().any(|word| is(word, "BY") || is(word, "GET")))
}

#[test]
fn commands_over_local_slots_answer_as_without_a_cluster() {
    let directives = ["--cluster-cross-slot", "local", "--cluster-databases", "16", "--stream-node-max-entries", "5"];
    let node = node_with(Make::Penstock, &directives);
    node.ok(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1));
    node.wait_until("it serves", |node| node.is_ok());
    let servers = Servers::with_node(node.server);
    for family in FAMILIES {
        for seed in 0..ROUNDS {
            servers.check_those(family, seed, is_allowed);
        }
    }
}
