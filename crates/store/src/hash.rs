//! The one hash function: keys of the keyspace, fields of hashes, members of sets.
//!
//! It is seeded, so that a client can't choose keys that collide; the server sets the seed once, before the first key.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FoldHasher;

/// The seed; a constant until [`set_seed`], so that tests are reproducible.
static SEED: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);

/// Sets the seed of every table of this process. Must happen before the first key is stored: a table never rehashes
/// for a new seed.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// The 64-bit hash of a key's bytes.
#[inline]
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let seed = SEED.load(Ordering::Relaxed);
    let mut hasher = FoldHasher::with_seed(seed, foldhash::SharedSeed::global_fixed());
    hasher.write(bytes);
    hasher.finish()
}
