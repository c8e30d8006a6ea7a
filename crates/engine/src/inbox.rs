//! What one thread has to tell another: a message for one of its connections, then a nudge to its poller.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use resp::reply::Output;

/// Tells a thread's poller that its inbox has something. Must be cheap, and safe to call from any thread.
pub trait Wake: Send + Sync {
    /// Wakes the thread, or keeps it from falling asleep.
    fn wake(&self);
}

/// Why a reply is delivered.
#[derive(Debug)]
pub enum Message {
    /// Bytes that are no reply (a published message, a line of MONITOR), the same for all that get them.
    Push {
        /// The connection.
        client: u64,
        /// The bytes in the protocol's form.
        bytes: Arc<[u8]>,
    },
    /// The reply to the blocking command that parked the connection, which goes on now.
    Unpark {
        /// The connection.
        client: u64,
        /// The reply.
        output: Output,
    },
    /// Close the connection, now.
    Close {
        /// The connection.
        client: u64,
    },
    /// Something that concerns all connections has changed (CLIENT PAUSE ended): look again at those that wait.
    Look,
}

/// A thread's messages, and how to wake it.
pub struct Inbox {
    messages: Mutex<VecDeque<Message>>,
    /// Whether there is anything, so that a thread with nothing to do need not take the lock.
    filled: AtomicBool,
    wake: Box<dyn Wake>,
}

impl Inbox {
    /// An empty inbox of the thread that `wake` wakes.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Inbox {
        Inbox { messages: Mutex::default(), filled: AtomicBool::new(false), wake }
    }

    /// Adds a message and wakes the thread if it may be asleep.
    pub fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        // One nudge for many messages: the thread clears the mark before it looks.
        if !self.filled.swap(true, Ordering::AcqRel) {
            self.wake.wake();
        }
    }

    /// Whether there may be messages.
    #[inline]
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes all messages, in the order in which they were sent.
    #[must_use]
    pub fn take(&self) -> VecDeque<Message> {
        // Clear the mark before taking, because a message sent in between must wake the thread again.
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.wake.wake();
    }
}
