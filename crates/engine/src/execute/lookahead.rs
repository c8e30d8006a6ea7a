//! Memory is asked for ahead of the commands that will read it.
//!
//! What a command reads lies behind a chain of addresses, each known only when the one before has arrived: the bucket
//! of its key, the entry, what the entry points to, the bucket of the member, the member. So a window's commands go
//! through as many stages, all of them through one before any goes through the next: by the time the last of a stage
//! has asked, the first has nearly got its answer.
//!
//! All of it is hints: what they find may be stale or another key's, and costs nothing but time.

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

/// The key that some input is likely to name first. Its bucket has been asked for.
#[derive(Clone, Copy)]
pub struct Foreseen {
    database: usize,
    hash: KeyHash,
}

/// How many may be asked for together: each has a bit in a word.
pub const FORESEEN_MAX: usize = 64;

impl Worker {
    /// Asks for the bucket of the key that a connection's input names first, most likely: a thread that has read from
    /// several connections before it runs the first of them doesn't wait for each one's memory then, as within a batch.
    #[inline]
    #[must_use]
    pub fn foresee(&self, session: &Session, input: &[u8]) -> Option<Foreseen> {
        let foreseen = Foreseen { database: session.database, hash: Key::new(likely_key(input)?).hash };
        // The gate would be waited for in vain.
        if self.engine.busy.any() || self.engine.keyspace.gate().has_guests() {
            return None;
        }
        let inside = self.look_inside();
        let hints = self.engine.keyspace.hints(foreseen.database, inside.as_ref()?);
        hints.locks(iter::once(foreseen.hash));
        hints.bucket(foreseen.hash);
        Some(foreseen)
    }

    /// Asks for the entries of up to [`FORESEEN_MAX`] such keys, and for what they point to.
    #[inline]
    pub fn foresee_entries(&self, all: impl Iterator<Item = Foreseen> + Clone) {
        let inside = self.look_inside();
        let Some(inside) = &inside else { return };
        let hints = |key: Foreseen| self.engine.keyspace.hints(key.database, inside);
        let mut chained = 0_u64;
        for (i, key) in all.clone().enumerate().take(FORESEEN_MAX) {
            chained |= u64::from(hints(key).entry(key.hash)) << i;
        }
        if chained != 0 {
            let chained = all.clone().enumerate().take(FORESEEN_MAX).filter(|(i, _)| chained >> i & 1 != 0);
            chained.for_each(|(_, key)| hints(key).chained_entry(key.hash));
        }
        for key in all.take(FORESEEN_MAX) {
            hints(key).value(key.hash, Ahead::Value);
        }
    }
}

/// Where the commands from `from` on end that are looked ahead for together: the first-level cache has room for their
/// keys.
#[inline]
pub(crate) fn group_end(planned: &[Planned], keys: &[KeyRef], from: usize) -> usize {
    if keys.len() <= KEYS_AHEAD { planned.len() } else { until_full(planned, from) }
}

/// The keys of some of a window's commands.
#[inline]
pub(crate) fn keys_of<'k>(planned: &[Planned], keys: &'k [KeyRef]) -> &'k [KeyRef] {
    match planned {
        [first, .., last] | [first @ last] => &keys[first.keys_start as usize..last.keys_end as usize],
        [] => &[],
    }
}

/// Asks for what some of a window's commands will read.
// On its own for the registers' sake, as framing is.
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
    // A single key is looked up as quickly as it would be prefetched; a command with many asks for them when it holds
    // their shards, without taking each for every hint.
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

/// The place and the hash of every key that isn't the same as the one before it. Many pipelines fill one list or count
/// with one key: to ask for it once is enough, and several threads take its lock less often.
#[inline(always)]
fn runs(keys: &[KeyRef]) -> impl Iterator<Item = (usize, KeyHash)> {
    let mut last = KeyHash::unlike(keys.first().map(|key| key.hash));
    keys.iter().enumerate().filter_map(move |(i, key)| {
        let is_new = key.hash != last;
        last = key.hash;
        is_new.then_some((i, key.hash))
    })
}

/// Asks for the entries of up to [`KEYS_AHEAD`] keys. One in ten is in a chain, which is a bucket more to wait for.
#[inline(always)]
fn ask_for_entries(hints: &Hints<'_>, keys: &[KeyRef]) {
    // A bit for each key that a chain was asked for of.
    let mut chained = 0_u64;
    runs(keys).for_each(|(i, hash)| chained |= u64::from(hints.entry(hash)) << i);
    while chained != 0 {
        hints.chained_entry(keys[chained.trailing_zeros() as usize].hash);
        chained &= chained - 1;
    }
}

const _: () = assert!(KEYS_AHEAD <= u64::BITS as usize, "keys have a bit each in `ask_for_entries`");

/// Where the commands from `from` on have more keys than are asked for together. A command with many keys is alone.
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
    // A bit for each command of the window that works on a collection with a table of its own.
    let mut big = 0_u64;
    let window = planned.iter().enumerate().take(commands.end).skip(commands.start);
    // The hash that was asked for last, and whether it is big.
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
    use crate::config::Settings;
    use crate::testing::Bench;

    #[test]
    fn what_several_connections_send_is_foreseen_whatever_it_is() {
        for threads in [1, 2] {
            let mut bench = Bench::with_threads(Settings::default(), threads);
            let mut session = bench.open();
            bench.check(&mut session, &[("SET string value", "+OK"), ("SADD set a b c", ":3"), ("SELECT 3", "+OK")]);
            let foreseen = |input: &str| bench.worker.foresee(&session, input.as_bytes());
            let of_key = |key: &str| foreseen(&format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()));
            let all: Vec<_> = ["string", "set", "none"].into_iter().map(|key| of_key(key).unwrap()).collect();
            assert_eq!((all[0].hash, all[0].database), (Key::new(b"string").hash, 3));
            // More than are asked for together.
            bench.worker.foresee_entries(all.iter().copied().cycle().take(FORESEEN_MAX + 9));
            for keyless in ["*1\r\n$4\r\nPING\r\n", "PING\r\n", "GET string\r\n", "*2\r\n$3\r\nGET\r\n$6\r\nstr", ""] {
                assert!(foreseen(keyless).is_none(), "{keyless:?}");
            }
        }
    }

    #[test]
    fn a_key_that_follows_itself_is_asked_for_once() {
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
