//! Random streams of every family, sent to Penstock and to Redis: a client must not be able to distinguish the servers.

#![allow(clippy::panic)]

use penstock_tests::diff::Servers;
use penstock_tests::families::{self, Family};
use std::env;

/// Number of seeds per family in an ordinary run: about half a minute in total on two cores.
const ROUNDS: u64 = 60;

/// Number of seeds for the comparison of counted changes: each command takes three round trips more.
const COUNTED_ROUNDS: u64 = 12;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn check(family: Family) {
    let servers = Servers::start();
    if let Some(seed) = number("PENSTOCK_SEED") {
        return servers.check(&family, seed);
    }
    for seed in 0..number("PENSTOCK_DIFF_ROUNDS").unwrap_or(ROUNDS) {
        servers.check(&family, seed);
    }
}

/// Defines a test for each family, and the list of their names.
macro_rules! tests {
    ($($test:ident: $family:ident,)*) => {
        $(#[test] fn $test() { check(families::$family); })*
        const TESTED: &[&str] = &[$(families::$family.name),*];
    };
}

tests! {
    strings: STRINGS,
    keys: KEYS,
    hashes: HASHES,
    lists: LISTS,
    sets: SETS,
    sorted_sets: SORTED_SETS,
    streams: STREAMS,
    bits: BITS,
    hyperloglogs: HYPERLOGLOGS,
    geo: GEO,
    scans: SCANS,
    sort: SORT,
    transactions: TRANSACTIONS,
    connection: CONNECTION,
}

#[test]
fn every_family_has_its_test() {
    assert_eq!(families::ALL.iter().map(|family| family.name).collect::<Vec<_>>(), TESTED);
}

/// Every command counts the same number of changes as in Redis; `save` and tools depend on it.
#[test]
fn counted_changes() {
    let servers = Servers::start_counting();
    let families: Vec<Family> = match std::env::var("PENSTOCK_FAMILY") {
        Ok(name) => families::ALL.iter().copied().filter(|family| family.name == name).collect(),
        Err(_) => families::ALL.to_vec(),
    };
    for family in families {
        if let Some(seed) = number("PENSTOCK_SEED") {
            servers.check(&family, seed);
            continue;
        }
        for seed in 0..number("PENSTOCK_DIFF_ROUNDS").unwrap_or(COUNTED_ROUNDS) {
            servers.check(&family, seed);
        }
    }
}
