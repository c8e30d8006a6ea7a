//! The claim on a waiter: decides which thread may answer it, and tells that thread about changes of the keys since its
//! claim.
//!
//! Under `cfg(loom)` the claim uses loom's atomics, and tests run every interleaving of its threads.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The connection waits, and no thread is answering it.
const PARKED: u8 = 0;
/// A thread has the right to answer it.
const CLAIMED: u8 = 1;
/// A thread has the right, and another thread has changed one of the keys since.
const MISSED: u8 = 2;
/// A thread has the right, and the connection is gone.
const ABANDONED: u8 = 3;

/// Result of giving the right back after a failed attempt to serve a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// The waiter is parked again.
    Again,
    /// A key has changed. The caller keeps the right and must try once more.
    Missed,
    /// The connection is gone. The caller keeps the right and must remove the waiter from the queues.
    Abandoned,
}

/// The state of the claim, as one atomic word.
#[derive(Debug)]
pub struct Claim(AtomicU8);

impl Claim {
    /// Returns the claim of a parked waiter.
    pub fn parked() -> Claim {
        Claim(AtomicU8::new(PARKED))
    }

    /// Takes the right to answer; false if another thread has it.
    pub fn take(&self) -> bool {
        self.replace(PARKED, CLAIMED)
    }

    /// Takes the right to serve, after one of the waiter's keys has changed. If another thread has the right, that
    /// thread is told to try again before it gives the right back, because it may have read the key before the change.
    pub fn take_to_serve(&self) -> bool {
        loop {
            if self.take() {
                return true;
            }
            if self.replace(CLAIMED, MISSED) || self.0.load(Ordering::Acquire) != PARKED {
                return false;
            }
        }
    }

    /// Gives the right back after a failed attempt to serve the waiter.
    pub fn give_back(&self) -> Parked {
        if self.replace(CLAIMED, PARKED) {
            Parked::Again
        } else if self.replace(MISSED, CLAIMED) {
            Parked::Missed
        } else {
            Parked::Abandoned
        }
    }

    /// Reports that the connection is gone. Returns false if another thread has the right to answer; that thread then
    /// removes the waiter from the queues.
    pub fn abandon(&self) -> bool {
        self.0.swap(ABANDONED, Ordering::AcqRel) == PARKED
    }

    fn replace(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// A waiter's claim with its one key. The waiter's command pops `wanted` elements at once.
    struct TestWaiter {
        claim: Claim,
        wanted: usize,
        /// The key's elements, behind the lock of its shard.
        key: Mutex<usize>,
        /// Number of answers.
        answered: AtomicUsize,
        removed: AtomicUsize,
    }

    impl TestWaiter {
        fn new(wanted: usize) -> Arc<TestWaiter> {
            let count = || AtomicUsize::new(0);
            let (key, answered, removed) = (Mutex::new(0), count(), count());
            Arc::new(TestWaiter { claim: Claim::parked(), wanted, key, answered, removed })
        }

        /// Changes the key and serves the waiter, like `Worker::serve_key` and `Worker::serve`.
        fn push(&self) {
            *self.key.lock().unwrap() += 1;
            if !self.claim.take_to_serve() {
                return;
            }
            loop {
                if *self.key.lock().unwrap() >= self.wanted {
                    self.answer();
                    return self.remove();
                }
                match self.claim.give_back() {
                    Parked::Again => return,
                    Parked::Missed => {}
                    Parked::Abandoned => return self.remove(),
                }
            }
        }

        /// Uses the claim like `Worker::time_out`.
        fn time_out(&self) {
            if self.claim.take() {
                self.answer();
                self.remove();
            }
        }

        /// Uses the claim like `Worker::unpark`, when the connection is gone.
        fn leave(&self) {
            if self.claim.abandon() {
                self.remove();
            }
        }

        fn answer(&self) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }

        fn remove(&self) {
            self.removed.fetch_add(1, Ordering::Relaxed);
        }

        fn counts(&self) -> (usize, usize) {
            (self.answered.load(Ordering::Relaxed), self.removed.load(Ordering::Relaxed))
        }
    }

    fn spawn(waiter: &Arc<TestWaiter>, run: impl FnOnce(&TestWaiter) + 'static) -> thread::JoinHandle<()> {
        let waiter = waiter.clone();
        thread::spawn(move || run(&waiter))
    }

    #[test]
    fn loom_a_waiter_is_served_by_the_last_of_two_changes() {
        loom::model(|| {
            let waiter = TestWaiter::new(2);
            let other = spawn(&waiter, TestWaiter::push);
            waiter.push();
            other.join().unwrap();
            assert_eq!(waiter.counts(), (1, 1));
        });
    }

    #[test]
    fn loom_a_waiter_is_answered_once_despite_a_timeout() {
        // All interleavings of three threads would take minutes.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let waiter = TestWaiter::new(1);
            let others = [spawn(&waiter, TestWaiter::push), spawn(&waiter, TestWaiter::time_out)];
            waiter.push();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(waiter.counts(), (1, 1));
        });
    }

    #[test]
    fn loom_a_waiter_that_leaves_is_taken_out_of_the_queues_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            // Both changes together give the waiter its elements.
            let waiter = TestWaiter::new(2);
            let others = [spawn(&waiter, TestWaiter::push), spawn(&waiter, TestWaiter::leave)];
            waiter.push();
            others.into_iter().for_each(|other| other.join().unwrap());
            let (answered, removed) = waiter.counts();
            assert!(answered <= 1 && removed == 1, "{answered} {removed}");
        });
    }
}
