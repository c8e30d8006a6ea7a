//! Callers that lost a command with a connection and don't know it yet.
//!
//! The commands of a thread are a sequence. After a lost command, later commands of the thread must not run as if
//! nothing had happened. [`super::shared`] removes those that are queued. Commands that the thread hands over later are
//! refused until it has seen the loss in any ticket or failed call. A caller that has dropped all tickets of lost
//! commands is not informed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::slot::Slot;
use crate::error::{Error, Fate};

/// A thread that hands over commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller(u64);

impl Caller {
    /// Returns the current thread. This is cheaper than the standard library's id, which counts references.
    pub(super) fn this() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static THIS: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        Self(THIS.with(|number| *number))
    }
}

/// Losses that callers don't know yet.
#[derive(Debug, Default)]
pub(super) struct Losses {
    of_callers: HashMap<Caller, Loss>,
}

#[derive(Debug)]
struct Loss {
    error: Error,
    /// Slots that can report the loss.
    slots: Vec<Weak<Slot>>,
}

impl Loss {
    fn may_be_learned(&self) -> bool {
        self.slots.iter().any(|slot| slot.strong_count() > 0)
    }
}

impl Losses {
    /// Notes that the batch of `slot` is lost.
    pub(super) fn note(&mut self, slot: &Arc<Slot>, error: &Error) {
        let new = || Loss { error: error.clone().with_fate(Fate::NotRun), slots: Vec::new() };
        let slots = &mut self.of_callers.entry(slot.caller()).or_insert_with(new).slots;
        if slots.len() == slots.capacity() {
            // Without this, the list would grow while a caller drops one ticket after the other.
            slots.retain(|slot| slot.strong_count() > 0);
        }
        slots.push(Arc::downgrade(slot));
    }

    /// Notes that a caller has taken the outcome of `slot`. It may belong to an earlier loss that the caller knew
    /// already.
    pub(super) fn heard(&mut self, slot: &Slot) {
        let is_of = |loss: &Loss| loss.slots.iter().any(|known| std::ptr::eq(known.as_ptr(), slot));
        if self.of_callers.get(&slot.caller()).is_some_and(is_of) {
            self.told(slot.caller());
        }
    }

    /// Notes that a caller knows of its loss.
    pub(super) fn told(&mut self, caller: Caller) {
        self.of_callers.remove(&caller);
    }

    /// Returns the error for new commands of a caller with an unknown loss.
    pub(super) fn untold(&self, caller: Caller) -> Option<Error> {
        // The normal case.
        if self.of_callers.is_empty() {
            return None;
        }
        self.of_callers.get(&caller).filter(|loss| loss.may_be_learned()).map(|loss| loss.error.clone())
    }

    /// Removes losses that no caller can learn of any more.
    pub(super) fn purge(&mut self) {
        self.of_callers.retain(|_, loss| loss.may_be_learned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Lost;

    #[test]
    fn a_loss_is_untold_while_a_caller_may_ask() {
        let (first, second) = (Arc::new(Slot::new()), Arc::new(Slot::new()));
        let error = Error::Lost { cause: Lost::Closed, fate: Fate::MayHaveRun };
        let mut losses = Losses::default();
        losses.note(&first, &error);
        losses.note(&second, &error);
        losses.heard(&Slot::new());
        drop(first);
        losses.purge();
        assert_eq!(losses.untold(Caller::this()).map(|error| error.fate()), Some(Fate::NotRun));
        let other = std::thread::spawn(Caller::this).join().unwrap();
        assert!(losses.untold(other).is_none());
        drop(second);
        assert!(losses.untold(Caller::this()).is_none());
        losses.purge();
        assert!(losses.of_callers.is_empty());
    }

    #[test]
    fn an_old_loss_heard_late_does_not_hide_a_new_one() {
        let (old, new) = (Arc::new(Slot::new()), Arc::new(Slot::new()));
        let error = Error::Lost { cause: Lost::Closed, fate: Fate::MayHaveRun };
        let mut losses = Losses::default();
        losses.note(&old, &error);
        losses.told(Caller::this());
        losses.note(&new, &error);
        losses.heard(&old);
        assert!(losses.untold(Caller::this()).is_some());
        losses.heard(&new);
        assert!(losses.untold(Caller::this()).is_none());
    }
}
