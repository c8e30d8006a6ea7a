//! What the server asks of its process: descriptors, signals, randomness.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the server needs beside those of its clients: Redis's figure.
const DESCRIPTORS_RESERVED: u64 = 32;

/// Raises the limit on descriptors as far as is needed and allowed, and returns how many clients it leaves room for.
#[must_use]
pub fn room_for_clients(wanted: u64) -> u64 {
    let needed = wanted.saturating_add(DESCRIPTORS_RESERVED);
    let now = getrlimit(Resource::Nofile);
    let soft = now.current.unwrap_or(u64::MAX);
    if soft >= needed {
        return wanted;
    }
    let target = needed.min(now.maximum.unwrap_or(u64::MAX));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: now.maximum });
    let soft = if raised.is_ok() { target } else { soft };
    wanted.min(soft.saturating_sub(DESCRIPTORS_RESERVED))
}

/// A number that nobody can guess, from the operating system.
#[must_use]
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How many threads to run by default: one per core that the process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
