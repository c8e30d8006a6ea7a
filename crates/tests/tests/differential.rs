//! Random streams of every family, sent to Penstock and to Redis: no client may be able to tell them apart.

#![allow(clippy::panic)]

use penstock_tests::diff::Servers;
use penstock_tests::families::{self, Family};
use std::env;

/// Seeds per family in an ordinary run: together about half a minute on two cores.
const ROUNDS: u64 = 60;

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

#[test]
fn strings() {
    check(families::STRINGS);
}

#[test]
fn keys() {
    check(families::KEYS);
}

#[test]
fn hashes() {
    check(families::HASHES);
}

#[test]
fn lists() {
    check(families::LISTS);
}

#[test]
fn sets() {
    check(families::SETS);
}

#[test]
fn sorted_sets() {
    check(families::SORTED_SETS);
}

#[test]
fn streams() {
    check(families::STREAMS);
}

#[test]
fn scans() {
    check(families::SCANS);
}

#[test]
fn sort() {
    check(families::SORT);
}

#[test]
fn transactions() {
    check(families::TRANSACTIONS);
}

#[test]
fn connection() {
    check(families::CONNECTION);
}
