//! Histories with cut links, lost power and failovers keep all promises.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::process::Command;

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Number of seeds for each process: an engine is never freed, and each seed takes some megabytes.
const SEEDS_AT_ONCE: u64 = 100;
/// Number of processes that run at the same time.
const PROCESSES: u64 = 2;

/// Runs seeds in a process of its own. Returns its output if a history has failed.
fn run(first: u64, count: u64) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_penstock-simulator");
    let output = Command::new(program).args([first, count].map(|number| number.to_string())).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (!output.status.success()).then_some(text)
}

/// Runs the seed in `SIMULATE_SEED`, or the first thousand.
#[test]
fn histories_keep_all_promises() {
    if let Ok(seed) = env::var("SIMULATE_SEED") {
        assert_eq!(run(seed.parse().unwrap(), 1), None);
        return;
    }
    let chunks = |of: u64| (0..SEEDS / SEEDS_AT_ONCE).filter(move |chunk| chunk % PROCESSES == of);
    std::thread::scope(|scope| {
        let threads = (0..PROCESSES).map(|of| {
            scope.spawn(move || {
                chunks(of).filter_map(|chunk| run(chunk * SEEDS_AT_ONCE, SEEDS_AT_ONCE)).collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        let failed: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(failed.is_empty(), "{}", failed.concat());
    });
}
