//! Runs histories: `penstock-simulator <first seed> <count>`. One that fails is told, with the seed that replays it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use penstock_simulator::world::run_history;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (Some(first), count) = (numbers.next(), numbers.next().unwrap_or(1)) else {
        eprintln!("usage: penstock-simulator <first seed> [<count>]");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for seed in first..first.saturating_add(count) {
        match run_history(seed) {
            Ok(figures) if count == 1 => println!("{figures:?}"),
            Ok(_) => {}
            Err(why) => {
                eprintln!("{why}\n");
                failed += 1;
            }
        }
    }
    println!("{count} histories, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
