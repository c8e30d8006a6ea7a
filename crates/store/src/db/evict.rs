//! Eviction: samples some keys of a shard and scores them as candidates.

use crate::entry::Entry;
use crate::expiry::Note;
use crate::keyspace::Key;
use crate::random::Random;
use crate::table::Ref;

use super::{Clock, Db};

/// Number of expiry notes to try until one belongs to an existing key. At most half of the notes are stale.
const NOTES_TRIED: usize = 4;

/// The order of eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The keys with the oldest last use first.
    LeastRecent,
    /// The keys with the fewest uses first.
    LeastFrequent,
    /// The keys that expire soonest first.
    SoonestExpiry,
    /// Random order.
    Random,
}

/// A key that may be evicted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvictionCandidate {
    /// Its database.
    pub database: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// A greater score means an earlier eviction. Scores are comparable within the same order.
    pub score: u64,
    /// Decides between equal scores, which are frequent, because a use is known to the second. It is unrelated to the
    /// name: otherwise one application's keys would all go before another's.
    pub tie: u64,
}

impl Order {
    fn score(self, entry: &Entry, clock: &Clock, random: &mut Random) -> u64 {
        match self {
            Order::LeastRecent => u64::from(clock.idle_s(entry.access())),
            Order::LeastFrequent => {
                u64::from(u8::MAX) - u64::from(clock.frequency.map_or(0, |f| f.count(entry.access())))
            }
            Order::SoonestExpiry => u64::MAX - entry.expiry().unwrap_or(u64::MAX),
            Order::Random => random.next(),
        }
    }
}

impl Db<'_, '_> {
    /// Samples up to `count` keys of a shard. With `volatile`, samples only keys with an expiry. The same key may occur
    /// twice.
    pub fn sample(
        &mut self,
        shard: usize,
        count: usize,
        volatile: bool,
        order: Order,
        random: &mut Random,
    ) -> Vec<EvictionCandidate> {
        let (clock, database) = (*self.clock, self.database);
        let mut candidates = Vec::new();
        self.locked.visit(database, shard, |s| {
            let mut add = |entry: Ref<'_, Entry>, random: &mut Random| {
                let score = order.score(&entry, &clock, random);
                // All keys of a shard share the high bits of the hash.
                let tie = Key::new(entry.key()).hash.tie();
                candidates.push(EvictionCandidate { database, key: entry.key().into(), score, tie });
            };
            let count = count.min(if volatile { s.volatile } else { s.table.len() });
            if !volatile {
                let picked: Vec<_> = (0..count).filter_map(|_| s.table.pick(&mut || random.next())).collect();
                picked.into_iter().for_each(|entry| add(entry, random));
            } else if s.volatile > 0 {
                s.tidy_queue();
                let Some(notes) = s.noted_keys() else { return };
                let noted = |note: Note| s.table.find_where(note.hash, |e| e.expiry().is_some());
                let mut pick = || (0..NOTES_TRIED).find_map(|_| notes.note_at(random.next()).and_then(noted));
                let picked: Vec<_> = (0..count).filter_map(|_| pick()).collect();
                // If the random notes were all stale, search all of them, from a random position: the first note is the
                // key that expires next.
                let rest = if picked.is_empty() { notes.notes_from(random.next()).find_map(noted) } else { None };
                picked.into_iter().chain(rest).for_each(|entry| add(entry, random));
            }
        });
        candidates
    }

    /// Removes a key to free memory and returns its size in bytes. Returns None if the key is gone. With `volatile`,
    /// also returns None if it has lost its expiry, because a SET or PERSIST may have come after the sample.
    pub fn evict(&mut self, key: Key<'_>, volatile: bool) -> Option<usize> {
        if volatile && self.shard(key.hash).table.find(key.hash, key.bytes)?.expiry().is_none() {
            return None;
        }
        self.discard(key).map(|entry| entry.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::Ttl;
    use super::super::tests::{clock, with_clock};
    use super::*;
    use crate::frequency::Frequency;
    use crate::keyspace::Keyspace;

    /// Returns the best of many samples of a keyspace in which key `i` was used at second `i`, `i` times. Odd keys
    /// expire in the same order.
    fn best(order: Order, volatile: bool) -> Option<String> {
        let keyspace = Keyspace::new(1, 1);
        let frequency = Frequency { minutes: 1, log_factor: 0, decay_minutes: 1, seed: 0 };
        let clock =
            |uptime_s| Clock { uptime_s, frequency: (order == Order::LeastFrequent).then_some(frequency), ..clock(0) };
        for i in 10..if cfg!(miri) { 14 } else { 30u32 } {
            with_clock(&keyspace, clock(i), |db| {
                let name = i.to_string();
                let key = Key::new(name.as_bytes());
                db.set_string(key, b"v", if i % 2 == 1 { Ttl::At(1000 + u64::from(i)) } else { Ttl::Clear });
                (0..i).for_each(|_| _ = db.get(key));
            });
        }
        let mut random = Random::new(7);
        let mut all = Vec::new();
        with_clock(&keyspace, clock(100), |db| {
            // One sample of a shard with two keys misses the better one in a quarter of the cases.
            for shard in (0..keyspace.shard_count()).flat_map(|shard| iter::repeat_n(shard, 12)) {
                all.extend(db.sample(shard, 12, volatile, order, &mut random));
            }
            let best = all.iter().max_by_key(|c| c.score)?;
            assert!(db.evict(Key::new(&best.key), volatile).is_some_and(|bytes| bytes > 8));
            assert_eq!(db.evict(Key::new(&best.key), volatile), None);
            Some(String::from_utf8_lossy(&best.key).into_owned())
        })
    }

    #[test]
    fn the_best_to_evict_is_found() {
        for order in [Order::LeastRecent, Order::LeastFrequent] {
            assert_eq!(best(order, false).as_deref(), Some("10"), "{order:?}");
            assert_eq!(best(order, true).as_deref(), Some("11"), "{order:?}");
        }
        assert_eq!(best(Order::SoonestExpiry, true).as_deref(), Some("11"));
        assert!(best(Order::Random, false).is_some());
    }

    /// Returns the mean number of the remaining keys, numbered from 0, after a random eviction of half of `keys`. Key
    /// `i` expires after key `i - 1`.
    fn mean_left(keys: u32) -> f64 {
        let keyspace = Keyspace::new(1, 1);
        let mut random = Random::new(3);
        with_clock(&keyspace, clock(0), |db| {
            let name = |i: u32| i.to_string();
            for i in 0..keys {
                db.set_string(Key::new(name(i).as_bytes()), b"v", Ttl::At(1000 + u64::from(i)));
            }
            let mut evicted = 0;
            while evicted < keys / 2 {
                let shard = random.below(keyspace.shard_count());
                let found = db.sample(shard, 1, true, Order::Random, &mut random);
                evicted += found.iter().filter(|c| db.evict(Key::new(&c.key), true).is_some()).count() as u32;
            }
            let left: Vec<u32> = (0..keys).filter(|i| db.get(Key::new(name(*i).as_bytes())).is_some()).collect();
            left.iter().map(|i| f64::from(*i)).sum::<f64>() / left.len() as f64
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of keys")]
    fn a_random_volatile_key_is_any_and_not_one_that_expires_soon() {
        const KEYS: u32 = 10_000;
        let (mean, middle) = (mean_left(KEYS), f64::from(KEYS) / 2.0);
        // The standard deviation of the mean is about 29.
        assert!((mean - middle).abs() < 200.0, "{mean}");
    }

    #[test]
    fn a_key_that_lost_its_expiry_is_not_evicted_as_volatile() {
        let keyspace = Keyspace::new(1, 1);
        with_clock(&keyspace, clock(0), |db| {
            let key = Key::new(b"k");
            db.set_string(key, b"v", Ttl::At(1000));
            db.set_string(key, b"v", Ttl::Clear);
            assert_eq!(db.evict(key, true), None);
            assert!(db.evict(key, false).is_some());
        });
    }

    #[test]
    fn an_empty_database_has_no_candidates() {
        let keyspace = Keyspace::new(1, 1);
        with_clock(&keyspace, clock(0), |db| {
            assert_eq!(db.sample(0, 5, false, Order::LeastRecent, &mut Random::new(1)), []);
            db.set_string(Key::new(b"k"), b"v", Ttl::Clear);
            let all =
                (0..keyspace.shard_count()).flat_map(|s| db.sample(s, 5, true, Order::Random, &mut Random::new(1)));
            assert_eq!(all.count(), 0);
        });
    }
}
