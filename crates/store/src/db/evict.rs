//! Eviction: which keys of a shard would be missed least, by looking at a few of them.

use crate::entry::Entry;
use crate::expiry::Note;
use crate::keyspace::Key;
use crate::random::Random;
use crate::table::Ref;

use super::{Clock, Db};

/// Which keys go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Those that have not been used for the longest time.
    LeastRecent,
    /// Those that are used least often.
    LeastFrequent,
    /// Those that expire soonest.
    SoonestExpiry,
    /// Any.
    Random,
}

/// A key that may be evicted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its database.
    pub database: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// The greater, the less it would be missed. Comparable for keys of the same order.
    pub score: u64,
}

impl Order {
    fn score(self, entry: &Entry, clock: &Clock, random: &mut Random) -> u64 {
        match self {
            Order::LeastRecent => u64::from(clock.uptime_s.saturating_sub(entry.access())),
            Order::LeastFrequent => {
                u64::from(u8::MAX) - u64::from(clock.frequency.map_or(0, |f| f.count(entry.access())))
            }
            Order::SoonestExpiry => u64::MAX - entry.expiry().unwrap_or(u64::MAX),
            Order::Random => random.next(),
        }
    }
}

impl Db<'_, '_> {
    /// Looks at `count` keys of a shard, or as many as it has, of those that have an expiry if only `volatile` ones may
    /// go; the same key may come twice.
    pub fn sample(
        &mut self,
        shard: usize,
        count: usize,
        volatile: bool,
        order: Order,
        random: &mut Random,
    ) -> Vec<Candidate> {
        let (clock, database) = (*self.clock, self.database);
        let mut candidates = Vec::new();
        self.locked.visit(database, shard, |s| {
            let mut add = |entry: Ref<'_, Entry>, random: &mut Random| {
                let score = order.score(&entry, &clock, random);
                candidates.push(Candidate { database, key: entry.key().into(), score });
            };
            let count = count.min(if volatile { s.volatile } else { s.table.len() });
            if !volatile {
                let picked: Vec<_> = (0..count).filter_map(|_| s.table.pick(&mut || random.next())).collect();
                picked.into_iter().for_each(|entry| add(entry, random));
            } else if s.volatile > 0 {
                let noted = |note: Note| s.table.find_where(note.hash, |e| e.expiry().is_some());
                let picked: Vec<_> =
                    (0..count).filter_map(|_| s.queue.note_at(random.next()).and_then(noted)).collect();
                // Some notes are of keys that are gone. Where that is all that chance has found, look at all.
                let rest = if picked.is_empty() { s.queue.notes().find_map(noted) } else { None };
                picked.into_iter().chain(rest).for_each(|entry| add(entry, random));
            }
        });
        candidates
    }

    /// Removes a key to make room. Says how many bytes it took, or nothing if it is gone already.
    pub fn evict(&mut self, key: Key<'_>) -> Option<usize> {
        self.take(key).map(|entry| entry.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ttl;
    use super::super::tests::{clock, with_clock};
    use super::*;
    use crate::frequency::Frequency;
    use crate::keyspace::Keyspace;

    /// The best of many samples of a keyspace where key `i` was used at second `i`, `i` times, and expires in that
    /// order if `i` is odd.
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
            for shard in 0..keyspace.shard_count() {
                all.extend(db.sample(shard, 12, volatile, order, &mut random));
            }
            let best = all.iter().max_by_key(|c| c.score)?;
            assert!(db.evict(Key::new(&best.key)).is_some_and(|bytes| bytes > 8));
            assert_eq!(db.evict(Key::new(&best.key)), None);
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
