//! Runs histories: `penstock-simulator [cluster|moves|pairs] <first seed> <count> [<mutation>]`. Reports a failing history with the seed that repeats it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use penstock_simulator::nodes::{self, Mutation, NodesFigures, SlotMoves};
use penstock_simulator::world::{HistoryFigures, run_history};

const USAGE: &str = "usage: penstock-simulator [cluster|moves|pairs] <first seed> [<count>] [<mutation>]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let moves = match words.first().map(String::as_str) {
        Some("cluster") => Some(SlotMoves::ByKey),
        Some("moves") => Some(SlotMoves::Whole),
        Some("pairs") => Some(SlotMoves::InPairs),
        _ => None,
    };
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let (Some(first), count) = (numbers.next(), numbers.next().unwrap_or(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_sound = match (moves, words.get(3)) {
        (None, _) => run_replication(first, count),
        (Some(moves), None) => run_cluster(first, count, moves, Mutation::None),
        (Some(moves), Some(name)) => {
            let mutation = Mutation::ALL.iter().find(|(known, _)| known == name);
            let Some((_, mutation)) = mutation else {
                eprintln!("{USAGE}, one of {:?}", Mutation::ALL.map(|(name, _)| name));
                return ExitCode::from(2);
            };
            run_cluster(first, count, moves, *mutation)
        }
    };
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs histories of a primary and its replicas. Returns false if one fails.
fn run_replication(first: u64, count: u64) -> bool {
    let (mut failed, mut sum) = (0, HistoryFigures::default());
    for seed in first..first.saturating_add(count) {
        match run_history(seed) {
            Ok(figures) => sum.add(&figures),
            Err(why) => {
                eprintln!("{why}\n");
                failed += 1;
            }
        }
    }
    println!("{count} histories, {failed} failed: {sum:?}");
    // A history without events would keep every promise, so a minimum of events is required.
    let is_idle =
        count >= 100 && (sum.operations < 20 * count || sum.compared < 10 * count || sum.failovers < count / 2);
    if is_idle {
        eprintln!("the histories have too few operations, comparisons or failovers to prove anything");
    }
    failed == 0 && !is_idle
}

/// Runs histories of clusters. Returns false if one fails.
fn run_cluster(first: u64, count: u64, moves: SlotMoves, mutation: Mutation) -> bool {
    store::hash::hash_by_slot();
    let (mut failed, mut sum) = (0, NodesFigures::default());
    for seed in first..first.saturating_add(count) {
        match nodes::run_history(seed, moves, mutation) {
            Ok(figures) => sum.add(&figures),
            Err(why) => {
                eprintln!("{why}\n");
                failed += 1;
            }
        }
    }
    println!("{count} histories, {failed} failed: {sum:?}");
    let is_idle = count >= 10 && failed == 0 && (sum.writes < 100 * count || sum.elections < count / 2);
    if is_idle {
        eprintln!("the histories have too few writes or elections to prove anything");
    }
    failed == 0 && !is_idle
}
