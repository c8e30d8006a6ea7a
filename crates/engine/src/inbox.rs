//! What one thread has to tell another: a message for one of its connections, then a nudge to its poller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resp::reply::Output;

/// Bytes of pushes that may wait in an inbox. A thread that is kept busy for so long that more is published to its
/// connections closes those: they lag further behind than client-output-buffer-limit would let them.
const PUSH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Tells a thread's poller that its inbox has something. Must be cheap, and safe to call from any thread.
pub trait Wake: Send + Sync {
    /// Wakes the thread, or keeps it from falling asleep.
    fn wake(&self);
}

/// Bytes that are no reply (a published message, a line of MONITOR), the same for all that get them.
#[derive(Debug)]
pub struct Push {
    /// Its place among the pushes to this thread, from 1.
    pub number: u64,
    /// The connections, ascending.
    pub clients: Arc<Vec<u64>>,
    /// The one of them that has it already, since it is what caused it; 0 is none.
    pub except: u64,
    /// The bytes in the protocol's form.
    pub bytes: Arc<Vec<u8>>,
    /// Whether it may be left out for a connection that lags behind (a line of MONITOR).
    pub may_be_dropped: bool,
}

impl Push {
    fn concerns(&self, client: u64) -> bool {
        client != self.except && self.clients.binary_search(&client).is_ok()
    }
}

/// Why a reply is delivered.
#[derive(Debug)]
pub enum Message {
    /// Something that no command asked for.
    Push(Push),
    /// The reply to the blocking command that parked the connection, which goes on now.
    Unpark {
        /// The connection.
        client: u64,
        /// The reply.
        output: Output,
    },
    /// So many pushes that may be dropped have been, since there was no room for them here.
    Dropped {
        /// The connection.
        client: u64,
        /// How many.
        pushes: u64,
    },
    /// Close the connection, now.
    Close {
        /// The connection.
        client: u64,
    },
    /// Something that concerns all connections has changed (CLIENT PAUSE ended): look again at those that wait.
    Look,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// Pushes so far, also those that were taken.
    pushes: u64,
    push_bytes: usize,
    /// Connections for which there was no room any more.
    lost: BTreeSet<u64>,
    /// Pushes left out for want of room, by connection.
    dropped: BTreeMap<u64, u64>,
}

/// A thread's messages, and how to wake it.
pub struct Inbox {
    queue: Mutex<Queue>,
    /// Whether there is anything, so that a thread with nothing to do need not take the lock.
    filled: AtomicBool,
    wake: Box<dyn Wake>,
}

impl Inbox {
    /// An empty inbox of the thread that `wake` wakes.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Inbox {
        Inbox { queue: Mutex::default(), filled: AtomicBool::new(false), wake }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message and wakes the thread if it may be asleep.
    pub fn send(&self, message: Message) {
        self.queue().messages.push_back(message);
        self.nudge();
    }

    fn nudge(&self) {
        // One nudge for many messages: the thread clears the mark before it looks.
        if !self.filled.swap(true, Ordering::AcqRel) {
            self.wake.wake();
        }
    }

    /// Adds a push to these connections, but for `except`. `to_self`: the caller is the thread itself, which looks
    /// again before it sleeps.
    pub fn push(
        &self,
        clients: &Arc<Vec<u64>>,
        except: u64,
        bytes: &Arc<Vec<u8>>,
        to_self: bool,
        may_be_dropped: bool,
    ) {
        {
            let mut queue = self.queue();
            if queue.push_bytes.saturating_add(bytes.len()) > PUSH_BYTES_MAX {
                let receivers = clients.iter().filter(|&&client| client != except);
                if may_be_dropped {
                    receivers.for_each(|client| *queue.dropped.entry(*client).or_default() += 1);
                } else {
                    queue.lost.extend(receivers);
                }
            } else {
                queue.push_bytes += bytes.len();
                queue.pushes += 1;
                let number = queue.pushes;
                let (clients, bytes) = (clients.clone(), bytes.clone());
                let push = Push { number, clients, except, bytes, may_be_dropped };
                queue.messages.push_back(Message::Push(push));
            }
        }
        if to_self { self.filled.store(true, Ordering::Release) } else { self.nudge() }
    }

    /// What waits for a connection beyond the push with number `after`, and the number of the latest push.
    #[must_use]
    pub fn pushes_for(&self, client: u64, after: u64) -> (Vec<Arc<Vec<u8>>>, u64) {
        let queue = self.queue();
        let pushes = queue.messages.iter().filter_map(|m| if let Message::Push(push) = m { Some(push) } else { None });
        let concerns = |push: &&Push| push.number > after && push.concerns(client);
        (pushes.filter(concerns).map(|push| push.bytes.clone()).collect(), queue.pushes)
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
        let mut queue = self.queue();
        queue.push_bytes = 0;
        let mut messages = std::mem::take(&mut queue.messages);
        let dropped = std::mem::take(&mut queue.dropped).into_iter();
        messages.extend(dropped.map(|(client, pushes)| Message::Dropped { client, pushes }));
        messages.extend(std::mem::take(&mut queue.lost).into_iter().map(|client| Message::Close { client }));
        messages
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.wake.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Asleep;

    impl Wake for Asleep {
        fn wake(&self) {}
    }

    #[test]
    fn pushes_are_looked_up_by_connection_and_never_twice() {
        let inbox = Inbox::new(Box::new(Asleep));
        let both = Arc::new(vec![3, 7]);
        for (text, except) in [("a", 0), ("b", 7), ("c", 3)] {
            inbox.push(&both, except, &Arc::new(text.into()), false, false);
        }
        let (found, until) = inbox.pushes_for(7, 0);
        assert_eq!((found, until), (vec![Arc::new(b"a".to_vec()), Arc::new(b"c".to_vec())], 3));
        assert_eq!(inbox.pushes_for(7, until).0.len(), 0);
        assert_eq!(inbox.pushes_for(5, 0).0.len(), 0);
        assert_eq!(inbox.take().len(), 3);
        assert_eq!(inbox.pushes_for(3, 0), (vec![], 3));
    }

    #[test]
    fn connections_for_which_there_is_no_room_are_closed() {
        let inbox = Inbox::new(Box::new(Asleep));
        let large = Arc::new(vec![0; PUSH_BYTES_MAX]);
        inbox.push(&Arc::new(vec![1]), 0, &large, true, false);
        inbox.push(&Arc::new(vec![1, 2, 3]), 3, &large, true, false);
        inbox.push(&Arc::new(vec![2]), 0, &large, true, false);
        let closed = |m: &Message| if let Message::Close { client } = m { Some(*client) } else { None };
        assert_eq!(inbox.take().iter().filter_map(closed).collect::<Vec<_>>(), [1, 2]);
        inbox.push(&Arc::new(vec![2]), 0, &large, true, false);
        inbox.push(&Arc::new(vec![2, 5]), 0, &large, true, true);
        inbox.push(&Arc::new(vec![5]), 0, &large, true, true);
        let messages: Vec<_> = inbox.take().into();
        assert!(matches!(
            &*messages,
            [Message::Push(_), Message::Dropped { client: 2, pushes: 1 }, Message::Dropped { client: 5, pushes: 2 }]
        ));
    }
}
