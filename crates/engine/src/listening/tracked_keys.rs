//! The keys that clients cache (CLIENT TRACKING), each with the clients that have read it since its last change.
//!
//! The command that reads a key adds it under the lock of its shard, and the command that changes the key takes it out
//! under the same lock, so no change is missed. A key that is evicted from this table is taken out without that lock:
//! its clients are told, and a simultaneous reader is either among them or adds the key again afterwards. Names are
//! stored without their database, as in Redis.
//!
//! Every command checks if its keys are tracked. Keys are in buckets by their hash. Each bucket has a word with two
//! bits for each of its keys, and a bitmap of 16 kB over all buckets tells the used ones. With a few thousand keys the
//! bitmap alone suffices; with a million keys a check also reads one word of 1 MB, and one key in twenty is looked up
//! in vain.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasherDefault, Hasher};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use store::hash::KeyHash;
use store::prefetch::prefetch;

use super::tracking::Tracker;

/// Number of buckets, a power of two: eight keys each at the default limit.
const BUCKETS: usize = 1 << 17;
/// Number of parts of the buckets, each with its own lock: many more than threads, so that contention is rare.
const PARTS: usize = 64;
/// Initial capacity for clients of a tracked key.
const TRACKERS_MIN: usize = 1;

/// A key, and the clients that have read it.
struct TrackedKey {
    hash: KeyHash,
    key: Box<[u8]>,
    /// Sorted by client.
    trackers: Vec<Arc<Tracker>>,
}

/// A removed key, with its clients.
pub type Taken = (Box<[u8]>, Vec<Arc<Tracker>>);

/// The keys of a bucket. Most buckets have one key, which is stored inline.
struct Bucket {
    first: TrackedKey,
    more: Vec<TrackedKey>,
}

impl Bucket {
    fn keys(&self) -> impl Iterator<Item = &TrackedKey> {
        iter::once(&self.first).chain(&self.more)
    }

    fn len(&self) -> usize {
        1 + self.more.len()
    }

    fn position(&self, hash: KeyHash, key: &[u8]) -> Option<usize> {
        self.keys().position(|tracked| tracked.hash == hash && *tracked.key == *key)
    }

    /// Returns the tracked key with these bytes, after adding it if needed.
    fn get_or_insert(&mut self, hash: KeyHash, key: &[u8], new: impl FnOnce() -> TrackedKey) -> &mut TrackedKey {
        match self.position(hash, key) {
            None => self.more.push_mut(new()),
            Some(0) => &mut self.first,
            Some(at) => &mut self.more[at - 1],
        }
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut TrackedKey> {
        if at == 0 { Some(&mut self.first) } else { self.more.get_mut(at - 1) }
    }

    /// Removes a key, unless it is the only one.
    fn remove(&mut self, at: usize) -> Option<TrackedKey> {
        let last = self.more.pop()?;
        match self.get_mut(at) {
            Some(tracked) => Some(mem::replace(tracked, last)),
            None => Some(last),
        }
    }
}

/// Used buckets by number.
type Part = HashMap<usize, Bucket, BuildHasherDefault<Spread>>;

/// Spreads bucket numbers, which are hashes already; each part has only every 64th number.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(self.0 as usize ^ usize::from(byte)));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A filter for buckets that may have a key. Commands read it; changes happen under the locks of the parts.
struct BucketFilter {
    /// A bit for each bucket with a key.
    used: Box<[AtomicU64]>,
    /// For each bucket, the bits of its keys.
    words: Box<[AtomicU64]>,
}

impl BucketFilter {
    fn new() -> BucketFilter {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        BucketFilter { used: zeros(BUCKETS / 64), words: zeros(BUCKETS) }
    }

    fn set(&self, bucket: usize, word: u64) {
        self.words[bucket].store(word, Ordering::Relaxed);
        let (used, mask) = (&self.used[bucket / 64], 1 << (bucket % 64));
        // The word also has bits of buckets in other parts.
        if word == 0 {
            used.fetch_and(!mask, Ordering::Relaxed);
        } else {
            used.fetch_or(mask, Ordering::Relaxed);
        }
    }

    #[inline]
    fn may_have(&self, hash: KeyHash) -> bool {
        let (bucket, bits) = hash.tracked_place::<BUCKETS>();
        let is_used = self.used[bucket / 64].load(Ordering::Relaxed) & 1 << (bucket % 64) != 0;
        is_used && self.words[bucket].load(Ordering::Relaxed) & bits == bits
    }

    /// Returns the first bucket with a key from this one on, with wraparound.
    fn next_used(&self, from: usize) -> Option<usize> {
        let words = self.used.len();
        let first = from / 64;
        let of = |nth: usize| {
            let at = (first + nth) % words;
            let bits = self.used[at].load(Ordering::Relaxed);
            // In the first word, only the bits from the bucket on; the other bits follow at the end of the wraparound.
            let bits = if nth == 0 { bits & (u64::MAX << (from % 64)) } else { bits };
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        };
        (0..=words).find_map(of)
    }
}

/// See the module's documentation.
pub struct TrackedKeys {
    parts: Box<[Mutex<Part>]>,
    /// Allocated for the first key.
    filter: OnceLock<BucketFilter>,
    keys: AtomicUsize,
    items: AtomicUsize,
}

impl Default for TrackedKeys {
    fn default() -> TrackedKeys {
        TrackedKeys {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            filter: OnceLock::new(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
        }
    }
}

impl TrackedKeys {
    fn part(&self, bucket: usize) -> MutexGuard<'_, Part> {
        self.parts[bucket % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tracked keys.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns true if no key is tracked.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of pairs of key and client.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns false if no key with this hash is tracked. The caller holds the key's shard.
    #[inline]
    #[must_use]
    pub fn may_have(&self, hash: KeyHash) -> bool {
        self.filter.get().is_some_and(|filter| filter.may_have(hash))
    }

    /// Prefetches the memory that [`TrackedKeys::may_have`] reads.
    #[inline]
    pub fn ask_for(&self, hash: KeyHash) {
        if let Some(filter) = self.filter.get() {
            prefetch((&raw const filter.words[hash.tracked_place::<BUCKETS>().0]).cast());
        }
    }

    /// Tracks a key for a client. The caller holds the key's shard.
    pub fn add(&self, hash: KeyHash, key: &[u8], tracker: &Arc<Tracker>) {
        let filter = self.filter.get_or_init(BucketFilter::new);
        let (bucket, bits) = hash.tracked_place::<BUCKETS>();
        let mut part = self.part(bucket);
        let new = || {
            self.keys.fetch_add(1, Ordering::Relaxed);
            filter.set(bucket, filter.words[bucket].load(Ordering::Relaxed) | bits);
            TrackedKey { hash, key: key.into(), trackers: Vec::with_capacity(TRACKERS_MIN) }
        };
        let tracked = match part.entry(bucket) {
            Slot::Vacant(vacant) => &mut vacant.insert(Bucket { first: new(), more: Vec::new() }).first,
            Slot::Occupied(occupied) => occupied.into_mut().get_or_insert(hash, key, new),
        };
        let trackers = &mut tracked.trackers;
        if trackers.binary_search_by_key(&tracker.client, |t| t.client).is_ok() {
            return;
        }
        if trackers.len() == trackers.capacity() {
            // Clients that are gone would otherwise remain until the key changes.
            let before = trackers.len();
            trackers.retain(|tracker| !tracker.is_gone());
            self.items.fetch_sub(before - trackers.len(), Ordering::Relaxed);
        }
        let place = trackers.partition_point(|t| t.client < tracker.client);
        trackers.insert(place, tracker.clone());
        self.items.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a changed key, and returns its clients. The caller holds its shard.
    #[must_use]
    pub fn take(&self, hash: KeyHash, key: &[u8]) -> Vec<Arc<Tracker>> {
        let Some(filter) = self.filter.get() else { return Vec::new() };
        let (bucket, _) = hash.tracked_place::<BUCKETS>();
        let mut part = self.part(bucket);
        let at = part.get(&bucket).and_then(|keys| keys.position(hash, key));
        at.and_then(|at| self.remove(&mut part, filter, bucket, at)).map(|tracked| tracked.trackers).unwrap_or_default()
    }

    /// Removes an arbitrary key, selected by two random numbers.
    #[must_use]
    pub fn take_any(&self, random: [usize; 2]) -> Option<Taken> {
        let filter = self.filter.get()?;
        let bucket = filter.next_used(random[0] % BUCKETS)?;
        let mut part = self.part(bucket);
        // Another thread may have just emptied the bucket.
        let len = part.get(&bucket).map_or(0, Bucket::len);
        let tracked = self.remove(&mut part, filter, bucket, random[1].checked_rem(len)?)?;
        Some((tracked.key, tracked.trackers))
    }

    fn remove(&self, part: &mut Part, filter: &BucketFilter, bucket: usize, at: usize) -> Option<TrackedKey> {
        let kept = part.get_mut(&bucket)?;
        let tracked = match kept.remove(at) {
            Some(tracked) => {
                let bits = |tracked: &TrackedKey| tracked.hash.tracked_place::<BUCKETS>().1;
                filter.set(bucket, kept.keys().map(bits).fold(0, |all, bits| all | bits));
                tracked
            }
            None => {
                filter.set(bucket, 0);
                part.remove(&bucket)?.first
            }
        };
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(tracked.trackers.len(), Ordering::Relaxed);
        Some(tracked)
    }

    /// Removes all keys.
    pub fn clear(&self) {
        let Some(filter) = self.filter.get() else { return };
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            for (bucket, kept) in part.drain() {
                filter.set(bucket, 0);
                self.keys.fetch_sub(kept.len(), Ordering::Relaxed);
                self.items.fetch_sub(kept.keys().map(|tracked| tracked.trackers.len()).sum(), Ordering::Relaxed);
            }
            part.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> (KeyHash, Vec<u8>) {
        let key = format!("key:{number}").into_bytes();
        (KeyHash::of(&key), key)
    }

    fn add(keys: &TrackedKeys, number: usize, tracker: &Arc<Tracker>) {
        let (hash, key) = key(number);
        keys.add(hash, &key, tracker);
    }

    fn take(keys: &TrackedKeys, number: usize) -> Vec<u64> {
        let (hash, key) = key(number);
        keys.take(hash, &key).iter().map(|tracker| tracker.client).collect()
    }

    #[test]
    fn a_key_is_tracked_once_per_client_until_it_is_taken() {
        let keys = TrackedKeys::default();
        let trackers = [3, 1, 2].map(|client| Arc::new(Tracker::new(client, 0)));
        assert!(!keys.may_have(key(1).0) && take(&keys, 1).is_empty());
        for tracker in trackers.iter().chain(&trackers) {
            add(&keys, 1, tracker);
            add(&keys, 2, tracker);
        }
        assert_eq!((keys.len(), keys.items()), (2, 6));
        assert!(keys.may_have(key(1).0));
        assert_eq!(take(&keys, 1), [1, 2, 3]);
        assert_eq!((take(&keys, 1).len(), keys.len(), keys.items()), (0, 1, 3));
        assert!(!keys.may_have(key(1).0) && keys.may_have(key(2).0));
        keys.clear();
        assert_eq!((keys.len(), keys.items(), keys.may_have(key(2).0)), (0, 0, false));
    }

    #[test]
    fn false_positives_of_the_bucket_filter_are_rare() {
        let keys = TrackedKeys::default();
        let tracker = Arc::new(Tracker::new(1, 0));
        for (count, in_vain_max) in [(2000, 20), (200_000, 2_000)] {
            (0..count).for_each(|number| add(&keys, number, &tracker));
            assert!((0..count).all(|number| keys.may_have(key(number).0)));
            let in_vain = (1_000_000..1_100_000).filter(|&number| keys.may_have(key(number).0)).count();
            assert!(in_vain < in_vain_max, "{count}: {in_vain}");
        }
        (0..200_000).for_each(|number| assert_eq!(take(&keys, number), [1]));
        assert!(keys.is_empty() && !(0..200_000).any(|number| keys.may_have(key(number).0)));
    }

    #[test]
    fn any_key_can_be_taken_until_there_is_none() {
        let keys = TrackedKeys::default();
        let tracker = Arc::new(Tracker::new(1, 0));
        assert!(keys.take_any([0, 0]).is_none());
        (0..1000).for_each(|number| add(&keys, number, &tracker));
        let mut taken = std::collections::BTreeSet::new();
        let mut random = 1_usize;
        while let Some((key, trackers)) = keys.take_any([random, random >> 20]) {
            assert_eq!(trackers.len(), 1);
            assert!(taken.insert(key));
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        assert_eq!((taken.len(), keys.len(), keys.items()), (1000, 0, 0));
        // The bucket before the requested one is found after the wraparound.
        let (hash, name) = key(1);
        let bucket = hash.tracked_place::<BUCKETS>().0;
        for from in [bucket, bucket + 1, bucket + 64, 0] {
            keys.add(hash, &name, &tracker);
            assert!(keys.take_any([from, 0]).is_some(), "{from}");
        }
    }

    #[test]
    fn closed_clients_are_removed() {
        let keys = TrackedKeys::default();
        for client in 0..1000 {
            let tracker = Arc::new(Tracker::new(client, 0));
            add(&keys, 1, &tracker);
            tracker.note_gone();
        }
        assert!(keys.items() < 10, "{}", keys.items());
    }
}
