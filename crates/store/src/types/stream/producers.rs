//! Identities of messages that producers have sent, so that a repeated message is not added again (XADD IDMP, Redis
//! 8.6).
//!
//! A producer names its messages by identities. Each is kept for some time after its entry's ID, and each producer has
//! a maximum number. Expired identities of a producer are removed when the producer sends a message. Each addition also
//! removes expired identities of [`SWEPT`] other producers, so that inactive producers do not keep memory while others
//! are active.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::StreamId;

/// Retention time of identities in seconds, and their maximum number per producer: `stream-idmp-duration`,
/// `stream-idmp-maxsize`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentityLimits {
    /// Seconds after the time of the entry's ID.
    pub seconds: u32,
    /// Identities per producer.
    pub count: u32,
}

impl IdentityLimits {
    /// The maximum of both: a day, and Redis's figure.
    pub const MAX: IdentityLimits = IdentityLimits { seconds: 86_400, count: 10_000 };
}

impl Default for IdentityLimits {
    fn default() -> Self {
        IdentityLimits { seconds: 100, count: 100 }
    }
}

/// Number of other producers to inspect when an identity is added. More than one, so that producers are removed faster
/// than they can be added.
const SWEPT: usize = 2;
/// Bytes of an identity in addition to its text: in the map, in the queue, and the counts before the shared text.
const IDENTITY_BYTES: usize = 2 * size_of::<(Arc<[u8]>, StreamId)>() + 2 * size_of::<usize>();
/// Bytes of a producer in addition to its name.
const PRODUCER_BYTES: usize = size_of::<(Box<[u8]>, Producer)>();

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    limits: IdentityLimits,
    producers: BTreeMap<Box<[u8]>, Producer>,
    /// The producer that was last inspected for expired identities.
    swept: Box<[u8]>,
    bytes: usize,
    /// Number of identities that were ever added.
    pub added: u64,
    /// Number of repeated messages.
    pub duplicates: u64,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    entries: BTreeMap<Arc<[u8]>, StreamId>,
    /// The identities in order of addition.
    order: VecDeque<(StreamId, Arc<[u8]>)>,
}

/// Returns true if an identity has expired at `now_ms`, in milliseconds of Unix time.
fn is_over(limits: IdentityLimits, id: StreamId, now_ms: u64) -> bool {
    id.ms.saturating_add(u64::from(limits.seconds) * 1000) <= now_ms
}

impl Producer {
    /// Forgets the oldest identity and returns the number of freed bytes.
    fn forget_oldest(&mut self) -> usize {
        let Some((_, identity)) = self.order.pop_front() else { return 0 };
        self.entries.remove(&identity);
        IDENTITY_BYTES + identity.len()
    }

    fn forget(&mut self, identity: &[u8]) -> usize {
        if self.entries.remove(identity).is_none() {
            return 0;
        }
        self.order.retain(|(_, known)| **known != *identity);
        IDENTITY_BYTES + identity.len()
    }

    /// Forgets expired identities and returns the number of freed bytes.
    fn sweep(&mut self, limits: IdentityLimits, now_ms: u64) -> usize {
        let mut freed = 0;
        while self.order.front().is_some_and(|&(id, _)| is_over(limits, id, now_ms)) {
            freed += self.forget_oldest();
        }
        freed
    }
}

impl Producers {
    /// Returns an object without producers, with these limits.
    #[must_use]
    pub fn new(limits: IdentityLimits) -> Producers {
        Producers { limits, ..Producers::default() }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> IdentityLimits {
        self.limits
    }

    /// Sets the limits. If they differ from the old ones, all identities are forgotten, as in Redis.
    pub fn set_limits(&mut self, limits: IdentityLimits) {
        if limits != self.limits {
            *self = Producers { limits, added: self.added, duplicates: self.duplicates, ..Producers::default() };
        }
    }

    /// Returns the ID of the entry that this message was added as, unless the identity has expired. `now_ms` is in
    /// milliseconds of Unix time.
    pub fn find(&mut self, producer: &[u8], identity: &[u8], now_ms: u64) -> Option<StreamId> {
        self.sweep(producer, now_ms);
        self.known(producer, identity)
    }

    /// Like [`Producers::find`], but ignores the expiry.
    #[must_use]
    pub fn known(&self, producer: &[u8], identity: &[u8]) -> Option<StreamId> {
        self.producers.get(producer)?.entries.get(identity).copied()
    }

    /// Adds an identity, and forgets the producer's oldest ones beyond the limit. An existing identity gets the new ID.
    /// `now_ms` is in milliseconds of Unix time.
    pub fn insert(&mut self, producer: &[u8], identity: &[u8], id: StreamId, now_ms: u64) {
        self.sweep(producer, now_ms);
        self.sweep_others(now_ms);
        self.push(producer, identity, id);
        self.added += 1;
    }

    /// Adds a loaded identity: does not count it as added, and forgets no expired ones.
    pub fn push(&mut self, producer: &[u8], identity: &[u8], id: StreamId) {
        if !self.producers.contains_key(producer) {
            self.bytes += PRODUCER_BYTES + producer.len();
        }
        let limit = self.limits.count as usize;
        let of = self.producers.entry(producer.into()).or_default();
        let mut freed = of.forget(identity);
        let text: Arc<[u8]> = identity.into();
        of.entries.insert(text.clone(), id);
        of.order.push_back((id, text));
        while of.order.len() > limit {
            freed += of.forget_oldest();
        }
        self.bytes += IDENTITY_BYTES + identity.len();
        self.bytes -= freed;
    }

    /// Forgets a producer's expired identities, and the producer if no identity is left.
    fn sweep(&mut self, producer: &[u8], now_ms: u64) {
        let Some(of) = self.producers.get_mut(producer) else { return };
        self.bytes -= of.sweep(self.limits, now_ms);
        if of.order.is_empty() {
            self.producers.remove(producer);
            self.bytes -= PRODUCER_BYTES + producer.len();
        }
    }

    fn sweep_others(&mut self, now_ms: u64) {
        for _ in 0..SWEPT {
            let after = (Bound::Excluded(&*self.swept), Bound::Unbounded);
            let next = self.producers.range::<[u8], _>(after).next().or_else(|| self.producers.first_key_value());
            let Some((name, _)) = next else { return };
            let name = name.clone();
            self.sweep(&name, now_ms);
            self.swept = name;
        }
    }

    /// Counts the producers with live identities, and these identities. Visits all producers and all expired
    /// identities.
    #[must_use]
    pub fn count(&self, now_ms: u64) -> (usize, usize) {
        let of_each = self.producers.values().map(|producer| {
            let order = &producer.order;
            order.len() - order.iter().take_while(|&&(id, _)| is_over(self.limits, id, now_ms)).count()
        });
        of_each.filter(|&count| count > 0).fold((0, 0), |(producers, all), count| (producers + 1, all + count))
    }

    /// Iterates over the producers by name, with their identities from the oldest on.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Identities<'_>)> {
        self.producers.iter().map(|(name, producer)| (&**name, Identities(producer.order.iter())))
    }

    /// Estimates the bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Producers>() + self.bytes + self.swept.len()
    }
}

/// Iterates over a producer's identities from the oldest on.
#[derive(Clone, Debug)]
pub struct Identities<'p>(std::collections::vec_deque::Iter<'p, (StreamId, Arc<[u8]>)>);

impl<'p> Iterator for Identities<'p> {
    type Item = (&'p [u8], StreamId);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(id, identity)| (&**identity, *id))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Identities<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId::new(ms, 0)
    }

    fn limits(seconds: u32, count: u32) -> IdentityLimits {
        IdentityLimits { seconds, count }
    }

    #[test]
    fn an_identity_is_known_until_it_expires() {
        let mut producers = Producers::new(limits(2, 10));
        producers.insert(b"p", b"i", id(1000), 1000);
        assert_eq!(producers.find(b"p", b"i", 2999), Some(id(1000)));
        assert_eq!(producers.find(b"q", b"i", 2999), None);
        assert_eq!(producers.count(2999), (1, 1));
        assert_eq!(producers.count(3000), (0, 0));
        assert_eq!(producers.find(b"p", b"i", 3000), None);
        assert_eq!(producers.memory_bytes(), size_of::<Producers>());
    }

    #[test]
    fn a_producers_oldest_identities_are_forgotten_at_the_limit() {
        let mut producers = Producers::new(limits(100, 2));
        for (at, identity) in [b"a", b"b", b"c"].into_iter().enumerate() {
            producers.insert(b"p", identity, id(at as u64), 0);
        }
        producers.insert(b"q", b"a", id(7), 0);
        let known = [b"a", b"b", b"c"].map(|identity| producers.find(b"p", identity, 0));
        assert_eq!(known, [None, Some(id(1)), Some(id(2))]);
        assert_eq!(producers.count(0), (2, 3));
    }

    #[test]
    fn an_existing_identity_gets_the_new_id() {
        let mut producers = Producers::new(limits(100, 2));
        for (identity, ms) in [(b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4)] {
            producers.insert(b"p", identity, id(ms), 0);
        }
        let (_, identities) = producers.iter().next().unwrap();
        assert_eq!(identities.collect::<Vec<_>>(), [(&b"a"[..], id(3)), (b"c", id(4))]);
        assert_eq!(producers.known(b"p", b"a"), Some(id(3)));
    }

    #[test]
    fn inactive_producers_are_removed_while_others_are_active() {
        let mut producers = Producers::new(limits(1, 10));
        for n in 0..10_000u64 {
            producers.insert(n.to_string().as_bytes(), b"i", id(n), n);
        }
        assert!(producers.iter().len() < 4000, "{}", producers.iter().len());
        for n in 0..5000u64 {
            producers.insert(b"p", n.to_string().as_bytes(), id(20_000 + n), 20_000 + n);
        }
        assert_eq!(producers.iter().len(), 1);
        let bytes: usize = 10 * (IDENTITY_BYTES + "4999".len()) + PRODUCER_BYTES + "p".len();
        assert_eq!(producers.memory_bytes(), size_of::<Producers>() + bytes + "p".len());
    }

    #[test]
    fn changed_limits_forget_identities_but_not_counts() {
        let mut producers = Producers::new(limits(100, 10));
        producers.insert(b"p", b"i", id(1), 0);
        producers.set_limits(limits(100, 10));
        assert_eq!(producers.count(0), (1, 1));
        producers.set_limits(limits(100, 9));
        assert_eq!((producers.count(0), producers.added), ((0, 0), 1));
    }
}
