//! Histories of clusters of whole nodes keep all promises, and break one if a rule is left out.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Number of seeds in an ordinary run. The stage `simulation` of `./test` runs a thousand, and `bench/simulate.sh` any number.
const SEEDS: u64 = 40;
/// Number of seeds for each process: an engine is never freed, and each seed takes some ten megabytes.
const SEEDS_AT_ONCE: u64 = 10;
/// Most seeds for a mutation.
const MUTATED_SEEDS: u64 = 40;

/// Runs seeds in a process of its own. Returns its output if a history has failed.
fn run(first: u64, count: u64, mutation: Option<&str>) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_penstock-simulator");
    let numbers = [first, count].map(|number| number.to_string());
    let output = Command::new(program).arg("cluster").args(numbers).args(mutation).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (!output.status.success()).then_some(text)
}

/// Runs the seed in `SIMULATE_SEED`, or the first ones.
#[test]
fn clusters_keep_all_promises() {
    if let Ok(seed) = env::var("SIMULATE_SEED") {
        assert_eq!(run(seed.parse().unwrap(), 1, None), None);
        return;
    }
    let (cores, next) = (thread::available_parallelism().map_or(2, usize::from), AtomicU64::new(0));
    let run_some = || {
        let next_first = || Some(next.fetch_add(SEEDS_AT_ONCE, Ordering::Relaxed)).filter(|first| *first < SEEDS);
        std::iter::from_fn(next_first).filter_map(|first| run(first, SEEDS_AT_ONCE, None)).collect::<Vec<_>>()
    };
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<String>>()
    });
    assert!(failed.is_empty(), "{}", failed.concat());
}

/// Looks for the first seed that finds a mutation. The failure must name this promise.
fn is_found(mutation: &str, promise: &str) {
    let found = (0..MUTATED_SEEDS).find_map(|seed| run(seed, 1, Some(mutation)));
    let text = found.unwrap_or_else(|| panic!("nothing is wrong with {mutation}"));
    assert!(text.contains(promise), "{mutation}: {text}");
}

#[test]
fn a_message_before_its_save_is_found() {
    is_found("save-before-send", ": S3: ");
}

/// A delayed header puts a new primary below the old one.
#[test]
fn a_stale_header_is_found() {
    is_found("stale-headers", ": S6: ");
}

#[test]
fn a_collision_of_epochs_that_stays_is_found() {
    is_found("epoch-collision", "epochs collide");
}

/// The source ends before its target hears of the slot. Another target gets it, and the keys stay with the first one.
#[test]
fn a_source_that_gives_a_slot_up_first_is_found() {
    is_found("source-first", ": S5: ");
}

#[test]
fn a_slot_that_nobody_may_claim_is_found() {
    is_found("unclaimed-slots", "L1: ");
}
