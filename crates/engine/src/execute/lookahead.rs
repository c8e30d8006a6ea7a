//! Prefetching of the memory that a window's commands will read.
//!
//! A command reads a chain of addresses: the bucket of its key, the entry, the entry's value, the bucket of the member,
//! the member. Each address is known only after the previous one has arrived. A window's commands therefore pass
//! through as many stages, and all of them pass one stage before any enters the next. When the last command of a stage
//! has requested its memory, the first command's memory has almost arrived.
//!
//! Prefetches are hints: a stale or wrong address costs only time.

use std::iter;
use std::ops::Range;

use commands::call::{KEYS_AHEAD, KEYS_IN_BATCH, KeyRef};
use commands::items::ITEMS_IN_BATCH;
use resp::request::{Batch, Input, likely_key};
use store::hash::KeyHash;
use store::keyspace::{Hints, Key};
use store::prefetch::Ahead;

use crate::clients::session::Session;
use crate::worker::Worker;
use crate::worker::tables::Planned;

/// The key that some input is likely to name first. Its bucket has been prefetched.
#[derive(Clone, Copy)]
pub struct PrefetchedKey {
    database: usize,
    hash: KeyHash,
}

/// The greatest number of keys that are prefetched together: each has a bit in a word.
pub const PREFETCHED_MAX: usize = 64;

impl Worker {
    /// Prefetches the bucket of the key that a connection's input is likely to name first. A thread that reads from
    /// several connections before it runs the first of them thus overlaps their memory accesses, as within a batch.
    #[inline]
    #[must_use]
    pub fn prefetch_key(&self, session: &Session, input: &[u8]) -> Option<PrefetchedKey> {
        let prefetched = PrefetchedKey { database: session.database, hash: Key::new(likely_key(input)?).hash };
        // The gate may stay closed, so the wait would be useless.
        if self.engine.busy.any() || self.engine.keyspace.gate().admits_helpers() {
            return None;
        }
        let inside = self.enter_gate_to_look();
        let hints = self.engine.keyspace.hints(prefetched.database, inside.as_ref()?);
        hints.locks(iter::once(prefetched.hash));
        hints.bucket(prefetched.hash);
        Some(prefetched)
    }

    /// Prefetches the entries of up to [`PREFETCHED_MAX`] keys, and their values.
    #[inline]
    pub fn prefetch_entries(&self, all: impl Iterator<Item = PrefetchedKey> + Clone) {
        let inside = self.enter_gate_to_look();
        let Some(inside) = &inside else { return };
        let hints = |key: PrefetchedKey| self.engine.keyspace.hints(key.database, inside);
        let mut chained = 0_u64;
        for (i, key) in all.clone().enumerate().take(PREFETCHED_MAX) {
            chained |= u64::from(hints(key).entry(key.hash)) << i;
        }
        if chained != 0 {
            let chained = all.clone().enumerate().take(PREFETCHED_MAX).filter(|(i, _)| chained >> i & 1 != 0);
            chained.for_each(|(_, key)| hints(key).chained_entry(key.hash));
        }
        for key in all.take(PREFETCHED_MAX) {
            hints(key).value(key.hash, Ahead::Value);
        }
    }
}

/// Returns the end of the group of commands, starting at `from`, that are prefetched together. The first-level cache
/// has room for their keys.
#[inline]
pub(crate) fn group_end(planned: &[Planned], keys: &[KeyRef], from: usize) -> usize {
    if keys.len() <= KEYS_AHEAD { planned.len() } else { until_full(planned, from) }
}

/// Returns the keys of some of a window's commands.
#[inline]
pub(crate) fn keys_of<'k>(planned: &[Planned], keys: &'k [KeyRef]) -> &'k [KeyRef] {
    match planned {
        [first, .., last] | [first @ last] => &keys[first.keys_start as usize..last.keys_end as usize],
        [] => &[],
    }
}

/// Prefetches the memory that some of a window's commands will read.
// Not inlined, to save registers, like framing.
#[inline(never)]
pub(crate) fn look_ahead(
    hints: &Hints<'_>,
    batch: &Batch,
    input: Input<'_>,
    planned: &[Planned],
    keys: &[KeyRef],
    group: Range<usize>,
) {
    let plans = &planned[group.clone()];
    let window = keys_of(plans, keys);
    // A lookup of a single key is as fast as its prefetch. A command with many keys prefetches them itself while it
    // holds their shards, which avoids a lock for every hint.
    let is_wide = plans.len() == 1 && window.len() > KEYS_IN_BATCH;
    let reads_collection = plans.iter().any(|plan| plan.reads_collection);
    if window.len() < 2 || (is_wide && !reads_collection) {
        return;
    }
    hints.locks(runs(window).map(|(_, hash)| hash));
    runs(window).for_each(|(_, hash)| hints.bucket(hash));
    for keys in window.chunks(KEYS_AHEAD) {
        ask_for_entries(hints, keys);
    }
    if reads_collection {
        look_into_collections(hints, batch, input, group, planned, keys);
    }
}

/// Returns the index and the hash of every key that differs from its predecessor. Many pipelines fill one list or use
/// one counter. One prefetch is enough for them, and its lock is taken less often.
#[inline(always)]
fn runs(keys: &[KeyRef]) -> impl Iterator<Item = (usize, KeyHash)> {
    let mut last = KeyHash::unlike(keys.first().map(|key| key.hash));
    keys.iter().enumerate().filter_map(move |(i, key)| {
        let is_new = key.hash != last;
        last = key.hash;
        is_new.then_some((i, key.hash))
    })
}

/// Prefetches the entries of up to [`KEYS_AHEAD`] keys. One in ten is in a chain, which costs one more bucket.
#[inline(always)]
fn ask_for_entries(hints: &Hints<'_>, keys: &[KeyRef]) {
    // A bit for each key with a prefetched chain.
    let mut chained = 0_u64;
    runs(keys).for_each(|(i, hash)| chained |= u64::from(hints.entry(hash)) << i);
    while chained != 0 {
        hints.chained_entry(keys[chained.trailing_zeros() as usize].hash);
        chained &= chained - 1;
    }
}

const _: () = assert!(KEYS_AHEAD <= u64::BITS as usize, "keys have a bit each in `ask_for_entries`");

/// Returns the first command at or after `from` at which the group would exceed the number of keys that are prefetched
/// together. A command with many keys forms a group of its own.
#[inline(never)]
fn until_full(planned: &[Planned], from: usize) -> usize {
    let mut keys = 0;
    let fits = |plan: &&Planned| {
        let own = (plan.keys_end - plan.keys_start) as usize;
        keys += own;
        own <= KEYS_IN_BATCH && keys <= KEYS_AHEAD
    };
    from + planned[from..].iter().take_while(fits).count().max(1)
}

fn look_into_collections(
    hints: &Hints<'_>,
    batch: &Batch,
    input: Input<'_>,
    commands: Range<usize>,
    planned: &[Planned],
    keys: &[KeyRef],
) {
    // A bit for each command of the window that works on a collection with its own hash table.
    let mut big = 0_u64;
    let window = planned.iter().enumerate().take(commands.end).skip(commands.start);
    // The hash that was prefetched last, and whether its collection is big.
    let mut last = None;
    for (i, plan) in window.filter(|(_, plan)| plan.reads_collection) {
        for key in &keys[plan.keys_start as usize..plan.keys_end as usize] {
            let is_big = match last {
                Some((hash, is_big)) if hash == key.hash => is_big,
                _ => hints.value(key.hash, Ahead::Value),
            };
            last = Some((key.hash, is_big));
            big |= u64::from(is_big) << i;
        }
    }
    for ahead in [Ahead::Bucket, Ahead::Record] {
        let mut left = big;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            look_for_items(hints, batch, input, i, planned, keys, ahead);
        }
    }
}

fn look_for_items<'w>(
    hints: &Hints<'_>,
    batch: &'w Batch,
    input: Input<'w>,
    index: usize,
    planned: &[Planned],
    keys: &[KeyRef],
    ahead: impl Fn(&'w [u8]) -> Ahead<'w>,
) {
    let (Some(command), Some(key)) = (planned[index].command, keys.get(planned[index].keys_start as usize)) else {
        return;
    };
    let (first, step) = command.info.items;
    if step == 0 {
        return;
    }
    let args = batch.args(&batch.requests()[index], input);
    let items = (first..args.len()).step_by(step);
    if items.len() <= ITEMS_IN_BATCH {
        items.for_each(|i| _ = hints.value(key.hash, ahead(args.get(i))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use config::Settings;

    #[test]
    fn keys_of_several_connections_are_prefetched() {
        for threads in [1, 2] {
            let mut bench = Bench::with_threads(Settings::default(), threads);
            let mut session = bench.open();
            bench.check(&mut session, &[("SET string value", "+OK"), ("SADD set a b c", ":3"), ("SELECT 3", "+OK")]);
            let prefetched = |input: &str| bench.worker.prefetch_key(&session, input.as_bytes());
            let of_key = |key: &str| prefetched(&format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()));
            let all: Vec<_> = ["string", "set", "none"].into_iter().map(|key| of_key(key).unwrap()).collect();
            assert_eq!((all[0].hash, all[0].database), (Key::new(b"string").hash, 3));
            // The number exceeds the limit.
            bench.worker.prefetch_entries(all.iter().copied().cycle().take(PREFETCHED_MAX + 9));
            for keyless in ["*1\r\n$4\r\nPING\r\n", "PING\r\n", "GET string\r\n", "*2\r\n$3\r\nGET\r\n$6\r\nstr", ""] {
                assert!(prefetched(keyless).is_none(), "{keyless:?}");
            }
        }
    }

    #[test]
    fn a_repeated_key_is_prefetched_once() {
        let first_of_runs = |hashes: &[KeyHash]| {
            let keys: Vec<_> = hashes.iter().map(|&hash| KeyRef { arg: 1, hash }).collect();
            runs(&keys).collect::<Vec<_>>()
        };
        let [a, b, c] = [&b"a"[..], b"b", b"c"].map(KeyHash::of);
        assert_eq!(first_of_runs(&[a, a, b, b, a, c, c]), [(0, a), (2, b), (4, a), (5, c)]);
        assert_eq!(first_of_runs(&[c, c]), [(0, c)]);
        let unlike = KeyHash::unlike(Some(a));
        assert_eq!(first_of_runs(&[unlike, a]), [(0, unlike), (1, a)]);
        assert_eq!(first_of_runs(&[]), []);
    }
}
