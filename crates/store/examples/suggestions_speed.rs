//! Compares suggestions with one sorted set per prefix, without a server or protocol. Adds the titles of a CSV file
//! (title, votes) to both, and searches for the best ten by prefixes of one to ten letters. Times are CPU time of the
//! thread, in nanoseconds.
//!
//! ```sh
//! cargo run --release -p penstock-store --example suggestions_speed -- titles.csv
//! ```
//!
//! Needs Linux (/proc/thread-self/schedstat).

#![allow(clippy::expect_used)]

use std::collections::HashMap;

use penstock_store::random::Random;
use penstock_store::types::suggestions::{Fuzziness, Query, Suggestions};
use penstock_store::types::zset::{ZSet, ZSetLimits};

/// Letters of the longest prefix.
const LETTERS: usize = 10;
/// Searches per row.
const SEARCHES: usize = 10_000;
/// Fuzzy searches per row: fewer, because they take longer.
const FUZZY_SEARCHES: usize = 500;
/// Results per search.
const COUNT: usize = 10;

fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Returns the CPU time of a call per piece.
fn timed(pieces: usize, run: impl FnOnce()) -> f64 {
    let began = cpu_ns();
    run();
    (cpu_ns() - began) as f64 / pieces as f64
}

fn prefix(title: &str, letters: usize) -> String {
    title.to_lowercase().chars().take(letters).collect()
}

fn main() {
    let path = std::env::args().nth(1).expect("a file of titles");
    let file = std::fs::read_to_string(path).expect("a file that can be read");
    let titles: Vec<(&str, f32)> = file
        .lines()
        .filter_map(|line| line.rsplit_once(','))
        .map(|(title, votes)| (title.trim_matches('"'), votes.parse().unwrap_or(1.0)))
        .collect();
    let (mut suggestions, mut sets) = (Suggestions::default(), HashMap::<String, ZSet>::new());
    let adding = timed(titles.len(), || {
        for (title, votes) in &titles {
            suggestions.set(title.as_bytes(), *votes, None);
        }
    });
    println!(
        "suggestions: {adding:5.0} ns to add one, {:.1} bytes each",
        suggestions.memory_bytes() as f64 / titles.len() as f64
    );
    let adding = timed(titles.len(), || {
        for (title, votes) in &titles {
            for letters in 1..=LETTERS.min(title.chars().count()) {
                let set = sets.entry(prefix(title, letters)).or_default();
                set.insert(title.as_bytes(), f64::from(*votes), ZSetLimits::default());
            }
        }
    });
    // Without the keys and their entries.
    let bytes: usize = sets.values().map(ZSet::memory_bytes).sum();
    println!(
        "sorted sets: {adding:5.0} ns to add one, {:.1} bytes each, {} sets",
        bytes as f64 / titles.len() as f64,
        sets.len()
    );
    println!("letters  suggestions  sorted sets  fuzzy");
    for letters in 1..=LETTERS {
        let random = &mut Random::new(letters as u64);
        let queries: Vec<_> = (0..SEARCHES).map(|_| prefix(titles[random.below(titles.len())].0, letters)).collect();
        let mut bytes = [0; 3];
        let search = |fuzziness, queries: &[String], bytes: &mut usize| {
            for query in queries {
                let Ok(query) = Query::new(query.as_bytes(), fuzziness) else { continue };
                suggestions.best(&query, COUNT).iter().for_each(|(text, ..)| *bytes += text.len());
            }
        };
        let exact = timed(SEARCHES, || search(Fuzziness::Exact, &queries, &mut bytes[0]));
        let sets = timed(SEARCHES, || {
            for query in &queries {
                if let Some(set) = sets.get(query) {
                    set.visit_ranks(0..COUNT.min(set.len()), true, |member, _| bytes[1] += member.len());
                }
            }
        });
        let fuzzy = timed(FUZZY_SEARCHES, || search(Fuzziness::Fuzzy, &queries[..FUZZY_SEARCHES], &mut bytes[2]));
        println!("{letters:7} {exact:12.0} {sets:12.0} {fuzzy:6.0}   ({bytes:?} bytes found)");
    }
}
