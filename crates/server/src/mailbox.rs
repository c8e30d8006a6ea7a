//! Messages from other threads to a thread that checks for them in every turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread's mailbox. The check of an empty one takes no lock and no locked instruction: with clients that await each reply, a thread
/// checks once a request. The senders bound the contents.
pub struct Mailbox<T> {
    items: Mutex<Vec<T>>,
    /// True if there are messages. Changed under the lock.
    filled: AtomicBool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox { items: Mutex::default(), filled: AtomicBool::new(false) }
    }
}

impl<T> Mailbox<T> {
    fn items(&self) -> MutexGuard<'_, Vec<T>> {
        // The data behind the lock are consistent even if a holder panicked.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. Returns true if the mailbox was empty: the thread hasn't been woken yet, and the caller wakes it.
    pub fn leave(&self, item: T) -> bool {
        let mut items = self.items();
        items.push(item);
        !self.filled.swap(true, Ordering::Release)
    }

    /// Takes all messages in order.
    #[inline]
    pub fn take(&self) -> Vec<T> {
        if self.filled.load(Ordering::Acquire) { self.take_filled() } else { Vec::new() }
    }

    #[cold]
    fn take_filled(&self) -> Vec<T> {
        let mut items = self.items();
        self.filled.store(false, Ordering::Relaxed);
        std::mem::take(&mut *items)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn messages_are_taken_once_and_in_order() {
        let mailbox = Mailbox::default();
        assert!(mailbox.take().is_empty());
        assert!(mailbox.leave(1));
        assert!(!mailbox.leave(2));
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.take().is_empty());
        assert!(mailbox.leave(3));
        assert_eq!(mailbox.take(), [3]);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let (mailbox, announced, deadline) = (Mailbox::default(), AtomicUsize::new(0), Instant::now() + PATIENCE);
        let mut taken = 0;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (mailbox, announced) = (&mailbox, &announced);
                scope.spawn(move || {
                    for i in 0..1000 {
                        let was_empty = mailbox.leave((thread, i));
                        announced.fetch_add(usize::from(was_empty), Ordering::Relaxed);
                    }
                });
            }
            let mut next = [0; 3];
            while next != [1000; 3] {
                assert!(Instant::now() < deadline, "{next:?}");
                let items = mailbox.take();
                taken += usize::from(!items.is_empty());
                for (thread, i) in items {
                    assert_eq!(i, next[thread]);
                    next[thread] += 1;
                }
                std::thread::yield_now();
            }
        });
        // The sender into an empty mailbox wakes the thread: once for all messages that are taken together.
        assert_eq!(announced.into_inner(), taken);
    }
}
