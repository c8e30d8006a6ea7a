//! Histories with cut links, lost power and failovers keep what was promised.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;

use penstock_simulator::world::{HistoryFigures, run_history};

/// Seeds of an ordinary run.
const SEEDS: u64 = 1000;

/// The seeds that are run: one, by `SIMULATE_SEED`, or the first ones.
fn seeds() -> std::ops::Range<u64> {
    match env::var("SIMULATE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    }
}

#[test]
fn histories_keep_what_was_promised() {
    let mut sum = HistoryFigures::default();
    for seed in seeds() {
        match run_history(seed) {
            Ok(figures) => {
                sum.operations += figures.operations;
                sum.failovers += figures.failovers;
                sum.restarts += figures.restarts;
                sum.compared += figures.compared;
                sum.looks += figures.looks;
            }
            Err(why) => panic!("{why}"),
        }
    }
    // A history in which nothing happens keeps every promise.
    let count = seeds().count() as u64;
    if count > 1 {
        assert!(sum.operations > 20 * count && sum.compared > 10 * count && sum.looks > 10 * count, "{sum:?}");
        assert!(sum.failovers > count / 2 && sum.restarts > count / 2, "{sum:?}");
    }
}
