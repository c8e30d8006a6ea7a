//! A thread that frees large values, so that no other thread waits for that behind a lock or the gate.
//!
//! It is started by the first value that is worth it. Its queue is bounded: when the thread can't keep up, the callers
//! free their values themselves, which slows down those that produce garbage and bounds the memory that waits.
//! Knows no keys: what it is given is out of every table already.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::entry::Entry;
use crate::value::Value;

/// Values with fewer bytes than this are freed on the spot: that takes some tens of microseconds at most, and handing
/// them over isn't free either.
const WORTHWHILE_BYTES: usize = 64 * 1024;
/// The same of strings, which are one block each and go at once, however long: only their pages take a while to be
/// given back.
const WORTHWHILE_STRING_BYTES: usize = 16 * 1024 * 1024;
/// Values of more parts than this count as freed lazily though they were small enough to be freed on the spot: Redis's
/// figure, by which tools tell whether UNLINK had anything to do.
const LAZY_PARTS: usize = 64;
/// Pieces of garbage that may wait. Fewer under Miri, which takes minutes to fill the queue otherwise.
const QUEUE_MAX: usize = if cfg!(miri) { 16 } else { 4096 };

/// Something to be dropped, and how many keys' values it is.
struct Garbage {
    what: Box<dyn Send>,
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
    /// None inside, if the thread could not be started.
    thread: OnceLock<Option<Thread>>,
    counts: Arc<Counts>,
    prepare: OnceLock<fn()>,
    /// Whether what has expired is freed at once, however large it is.
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
    for Garbage { what, values } in queue {
        drop(what);
        counts.pending.fetch_sub(values, Ordering::Relaxed);
        counts.freed.fetch_add(values as u64, Ordering::Relaxed);
    }
}

fn is_worthwhile(value: &Value) -> bool {
    let bytes_min = if let Value::Str(_) = value { WORTHWHILE_STRING_BYTES } else { WORTHWHILE_BYTES };
    value.memory_bytes() >= bytes_min
}

impl Reaper {
    /// Has the thread call this before anything else, if it isn't running yet: it should stand back behind those that
    /// serve.
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

    /// Frees a key whose time has come, with its value: a large one in the background, unless that is not wanted.
    pub fn free_expired(&self, entry: Entry) {
        if !self.expired_at_once.load(Ordering::Relaxed) {
            self.free_entry(entry);
        }
    }

    /// Sets whether large values that expire are freed in the background, as from the start, or at once.
    pub fn free_expired_lazily(&self, lazily: bool) {
        self.expired_at_once.store(!lazily, Ordering::Relaxed);
    }

    /// Frees anything in the background; `values` is how many keys' values it is.
    #[cold]
    pub(crate) fn free(&self, what: impl Send + 'static, values: usize) {
        let Some(thread) = self.thread.get_or_init(|| start(self.counts.clone(), self.prepare.get().copied())) else {
            return;
        };
        self.counts.pending.fetch_add(values, Ordering::Relaxed);
        if let Err(refused) = thread.queue.try_send(Garbage { what: Box::new(what), values }) {
            // Full: the garbage comes back with the refusal.
            drop(refused);
            self.counts.pending.fetch_sub(values, Ordering::Relaxed);
        }
    }

    /// Keys' values that wait to be freed: INFO's `lazyfree_pending_objects`.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.counts.pending.load(Ordering::Relaxed)
    }

    /// Keys' values that were freed in the background so far, or would have been if they were not so small: INFO's
    /// `lazyfreed_objects`.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.counts.freed.load(Ordering::Relaxed)
    }

    /// Counts those that were freed from 0 again (CONFIG RESETSTAT).
    pub fn reset_freed(&self) {
        self.counts.freed.store(0, Ordering::Relaxed);
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(Some(Thread { queue, handle })) = self.thread.take() {
            // Without a sender left, the thread ends once its queue is empty.
            drop(queue);
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long::Long;
    use crate::types::list::{End, List, ListLimits};
    use crate::types::set::{Set, SetLimits};

    /// A list that takes so much, in few nodes.
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
    fn what_expires_is_freed_at_once_if_that_is_wanted() {
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

    /// Garbage that says when it begins to be dropped, and waits until it may go on.
    struct Slow(SyncSender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }

    /// Garbage that counts.
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
