//! A thread that frees large values, so that no other thread waits for that behind a lock or the gate.
//!
//! The first large value starts the thread. Its queue is bounded: when the thread cannot keep up, callers free their
//! values themselves, which slows down producers of garbage and bounds the queued memory. The reaper knows no keys: its
//! values have already left every table.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::entry::Entry;
use crate::value::Value;

/// Values with fewer bytes than this are freed on the spot. Freeing them takes some tens of microseconds at most, and
/// passing them on has a cost, too.
const WORTHWHILE_BYTES: usize = 64 * 1024;
/// The corresponding limit for strings. A string is a single block and quick to free at any length; only returning its
/// pages to the system takes a while.
const WORTHWHILE_STRING_BYTES: usize = 16 * 1024 * 1024;
/// Small values with more allocations than this count as freed lazily though they are freed on the spot. Redis's
/// figure: tools use the count to see if UNLINK had work to do.
const LAZY_PARTS: usize = 64;
/// Capacity of the queue. Lower under Miri, which would take minutes to fill the queue.
const QUEUE_MAX: usize = if cfg!(miri) { 16 } else { 4096 };

/// An object to drop, and the number of values in it.
struct Garbage {
    value: Box<dyn Send>,
    values: usize,
}

struct Thread {
    queue: SyncSender<Garbage>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    pending: AtomicUsize,
    freed: AtomicU64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Reaper {
    /// None inside if the thread could not be started.
    thread: OnceLock<Option<Thread>>,
    counts: Arc<Counts>,
    prepare: OnceLock<fn()>,
    /// True if expired values are freed at once at any size.
    expired_at_once: AtomicBool,
}

fn start(counts: Arc<Counts>, prepare: Option<fn()>) -> Option<Thread> {
    let (queue, garbage) = sync_channel(QUEUE_MAX);
    let work = move || {
        prepare.into_iter().for_each(|prepare| prepare());
        run(&garbage, &counts);
    };
    let handle = Builder::new().name("penstock-reaper".into()).spawn(work).ok()?;
    Some(Thread { queue, handle })
}

fn run(queue: &Receiver<Garbage>, counts: &Counts) {
    for Garbage { value, values } in queue {
        drop(value);
        counts.pending.fetch_sub(values, Ordering::Relaxed);
        counts.freed.fetch_add(values as u64, Ordering::Relaxed);
    }
}

fn is_worthwhile(value: &Value) -> bool {
    let bytes_min = if let Value::Str(_) = value { WORTHWHILE_STRING_BYTES } else { WORTHWHILE_BYTES };
    value.memory_bytes() >= bytes_min
}

impl Reaper {
    /// Sets a function that the thread calls first, unless it runs already. The function lowers the thread's priority
    /// below that of the workers.
    pub fn prepare_with(&self, prepare: fn()) {
        let _ = self.prepare.set(prepare);
    }

    /// Frees a value, a large one in the background.
    pub fn free_value(&self, value: Value) {
        if is_worthwhile(&value) {
            self.free(value, 1);
        } else {
            self.count_small(&value);
        }
    }

    /// Counts a value that is about to be freed on the spot, if Redis would free it in the background.
    fn count_small(&self, value: &Value) {
        if value.parts() > LAZY_PARTS {
            self.counts.freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Frees a key with its value, a large one in the background.
    #[inline]
    pub fn free_entry(&self, mut entry: Entry) {
        match entry.object_mut() {
            Some(value) if is_worthwhile(value) => self.free(entry, 1),
            Some(value) => self.count_small(value),
            None => {}
        }
    }

    /// Frees an expired key with its value: a large one in the background, unless this is disabled.
    pub fn free_expired(&self, entry: Entry) {
        if !self.expired_at_once.load(Ordering::Relaxed) {
            self.free_entry(entry);
        }
    }

    /// Enables (the default) or disables freeing large expired values in the background.
    pub fn free_expired_lazily(&self, lazily: bool) {
        self.expired_at_once.store(!lazily, Ordering::Relaxed);
    }

    /// Frees any object in the background; `values` is the number of values in it.
    #[cold]
    pub(crate) fn free(&self, value: impl Send + 'static, values: usize) {
        let Some(thread) = self.thread.get_or_init(|| start(self.counts.clone(), self.prepare.get().copied())) else {
            return;
        };
        self.counts.pending.fetch_add(values, Ordering::Relaxed);
        if let Err(refused) = thread.queue.try_send(Garbage { value: Box::new(value), values }) {
            // The queue is full: the refusal returns the garbage.
            drop(refused);
            self.counts.pending.fetch_sub(values, Ordering::Relaxed);
        }
    }

    /// Number of queued values: INFO's `lazyfree_pending_objects`.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.counts.pending.load(Ordering::Relaxed)
    }

    /// Number of values that were freed in the background, or would have been if they were not so small: INFO's
    /// `lazyfreed_objects`.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.counts.freed.load(Ordering::Relaxed)
    }

    /// Resets the number of freed values to 0 (CONFIG RESETSTAT).
    pub fn reset_freed(&self) {
        self.counts.freed.store(0, Ordering::Relaxed);
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(Some(Thread { queue, handle })) = self.thread.take() {
            // The thread ends once no sender exists and its queue is empty.
            drop(queue);
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_bytes::Long;
    use crate::types::list::{End, List, ListLimits};
    use crate::types::set::{Set, SetLimits};

    /// Returns a list of this size with few nodes.
    fn large() -> Value {
        let mut list = List::new();
        let half = vec![b'x'; WORTHWHILE_BYTES / 2 + 1];
        (0..2).for_each(|_| list.push(End::Right, &half, ListLimits::default()));
        Value::List(list)
    }

    #[test]
    fn only_large_values_are_freed_in_the_background() {
        let reaper = Reaper::default();
        reaper.free_entry(Entry::object(b"key", Value::List(List::new()), None));
        reaper.free_entry(Entry::string(b"key", b"small", None));
        reaper.free_value(Value::long(Long::from(vec![b'x'; WORTHWHILE_BYTES])));
        assert!(reaper.thread.get().is_none());
        reaper.free_entry(Entry::object(b"key", large(), None));
        reaper.free_value(large());
        let counts = reaper.counts.clone();
        drop(reaper);
        assert_eq!(counts.freed.load(Ordering::Relaxed), 2);
        assert_eq!(counts.pending.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn small_values_of_many_parts_count_as_freed_lazily() {
        let reaper = Reaper::default();
        for (members, freed) in [(64, 0), (65, 1), (200, 2)] {
            let limits = SetLimits { listpack_entries: 1, ..SetLimits::default() };
            let mut set = Set::new();
            for i in 0..members {
                set.insert(format!("m{i}").as_bytes(), &limits);
            }
            reaper.free_entry(Entry::object(b"key", Value::Set(set), None));
            assert_eq!(reaper.freed(), freed, "{members}");
        }
        assert!(reaper.thread.get().is_none());
    }

    #[test]
    fn expired_values_are_freed_at_once_if_configured() {
        let reaper = Reaper::default();
        reaper.free_expired_lazily(false);
        reaper.free_expired(Entry::object(b"key", large(), None));
        assert!(reaper.thread.get().is_none());
        reaper.free_expired_lazily(true);
        reaper.free_expired(Entry::object(b"key", large(), None));
        let counts = reaper.counts.clone();
        drop(reaper);
        assert_eq!(counts.freed.load(Ordering::Relaxed), 1);
    }

    /// Garbage that signals when its drop begins, and waits for permission to continue.
    struct Slow(SyncSender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }

    /// Garbage that counts its drops.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_full_queue_makes_the_producer_free() {
        let reaper = Reaper::default();
        let (begin, begun) = sync_channel(1);
        let (release, released) = sync_channel(1);
        reaper.free(Slow(begin, released), 1);
        begun.recv().unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        for _ in 0..QUEUE_MAX + 2 {
            reaper.free(Counted(dropped.clone()), 1);
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        assert_eq!(reaper.pending(), QUEUE_MAX + 1);
        release.send(()).unwrap();
        drop(reaper);
        assert_eq!(dropped.load(Ordering::Relaxed), QUEUE_MAX + 2);
    }
}
