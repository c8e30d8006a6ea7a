//! What one thread has to tell another: a message for one of its connections, then a nudge to its poller.
//!
//! Messages for single connections are few, since each ends a wait that the connection is in, and are taken all at once.
//! Pushes (what is published, lines of MONITOR) may come faster than the thread hands them out. So they are taken in
//! portions, and every thread has its own room for them in every inbox: a thread that has filled its room is told so by
//! the push that did it, holds its publishers up (`execute::room`), and is sent [`Message::Room`] when half of the room
//! is free again. Nothing ever waits within a push: it may be done under any lock. What runs already may overfill a
//! room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

use journal::order::Position;
#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use resp::reply::Output;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// Bytes of pushes that may wait in an inbox, whatever has published them. Only a single command that publishes so much
/// gets there (a script, a transaction): the receivers of what is beyond are closed.
const PUSH_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What the rooms of an inbox hold together, in bytes that pushes cost: some milliseconds of a thread's work.
const ROOMS_COST_MAX: usize = 2 * 1024 * 1024;
/// The least room of a thread, however many there are.
const ROOM_COST_MIN: usize = 128 * 1024;
/// What a push costs beside its bytes.
const PUSH_COST: usize = 160;
/// What is counted, in bytes, for handing a push to a connection, beside its bytes: how much work a portion is.
const HANDING_COST: usize = 100;

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
    /// The thread that it comes from.
    from: usize,
}

impl Push {
    fn concerns(&self, client: u64) -> bool {
        client != self.except && self.clients.binary_search(&client).is_ok()
    }

    /// What it takes of its sender's room: memory, here and with the connections that get it.
    fn cost(&self) -> usize {
        let each = Output::push_cost(self.bytes.len());
        PUSH_COST + self.bytes.len() + each.saturating_mul(self.clients.len())
    }

    /// What it takes of a portion: the time to hand it out and to send it.
    fn work(&self) -> usize {
        (self.bytes.len() + HANDING_COST).saturating_mul(self.clients.len())
    }
}

/// What waits for one connection of a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// See [`Push::bytes`].
    pub bytes: Arc<Vec<u8>>,
    /// See [`Push::may_be_dropped`].
    pub may_be_dropped: bool,
}

/// What a thread is told beside pushes.
#[derive(Debug)]
pub enum Message {
    /// The reply to the blocking command that parked the connection, which goes on now.
    Unpark {
        /// The connection.
        client: u64,
        /// The reply.
        output: Output,
        /// The number of the latest push before it: the connection is shown those first.
        pushes: u64,
        /// The last unit that the reply depends on, if replies wait for the disk.
        depends: Position,
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
    /// Apply a part of a primary's stream, and say in `engine::replication` what became of it.
    Apply {
        /// Which of the streams that this server has followed it belongs to.
        stream: u64,
        /// Which change of the primary it belongs to.
        version: u64,
        /// Whole commands.
        commands: Vec<u8>,
        /// Where runs of commands end that are applied together: some are applied by themselves.
        cuts: Vec<usize>,
    },
    /// There are lanes of a primary's stream that this thread may apply: see `engine::replication::rounds`.
    Lanes,
    /// Replicas or the disk have more than before: look at connections that wait for that.
    Acknowledged,
    /// The migration of a connection has ended: take it up in `engine::migrations`.
    Migrated,
    /// Something that concerns all connections has changed (CLIENT PAUSE ended): look again at those that wait.
    Look,
    /// The receiver has room again in an inbox that it had overfilled.
    Room {
        /// The thread that owns the inbox.
        inbox: usize,
    },
}

/// What one thread has sent and the other is yet to take.
#[derive(Default, Clone)]
struct Room {
    cost: usize,
    /// Whether the sender has been told that it is full, and not yet that it isn't any more.
    is_full: bool,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    pushes: VecDeque<Push>,
    /// Pushes so far, also those that were taken.
    pushed: u64,
    push_bytes: usize,
    /// By sender.
    rooms: Vec<Room>,
    /// Pushes left out for want of room, by connection.
    dropped: BTreeMap<u64, u64>,
}

impl Queue {
    fn add(&mut self, push: Push, room_cost_max: usize) -> bool {
        let (cost, from) = (push.cost(), push.from);
        self.push_bytes += push.bytes.len();
        self.pushed = push.number;
        self.pushes.push_back(push);
        let Some(room) = self.rooms.get_mut(from) else { return false };
        room.cost += cost;
        room.is_full |= room.cost > room_cost_max;
        room.is_full
    }

    /// Leaves a push out for which the inbox has no room whatever, and has its receivers told or closed.
    #[cold]
    fn refuse(&mut self, push: &Push) {
        let receivers = push.clients.iter().copied().filter(|&client| client != push.except);
        if push.may_be_dropped {
            receivers.for_each(|client| *self.dropped.entry(client).or_default() += 1);
        } else {
            self.messages.extend(receivers.map(|client| Message::Close { client }));
        }
    }
}

/// Pushes that are handed out together.
#[derive(Default)]
pub struct Portion {
    /// In their order.
    pub pushes: Vec<Push>,
    /// Threads that have room again, and are to be sent [`Message::Room`].
    pub has_room: Vec<usize>,
}

/// A thread's messages, and how to wake it.
pub struct Inbox {
    queue: Mutex<Queue>,
    room_cost_max: usize,
    /// Whether there is anything, so that a thread with nothing to do need not take the lock. Cleared under the lock, by
    /// the thread that has left nothing; set after something was added.
    filled: AtomicBool,
    /// Whether there are messages other than pushes; changed under the lock.
    has_messages: AtomicBool,
    wake: Box<dyn Wake>,
}

impl Inbox {
    /// An empty inbox of the thread that `wake` wakes, for so many `threads` to send to.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>, threads: usize) -> Inbox {
        let rooms = vec![Room::default(); threads];
        Inbox {
            queue: Mutex::new(Queue { rooms, ..Queue::default() }),
            room_cost_max: (ROOMS_COST_MAX / threads.max(1)).max(ROOM_COST_MIN),
            filled: AtomicBool::new(false),
            has_messages: AtomicBool::new(false),
            wake,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message and wakes the thread if it may be asleep.
    pub fn send(&self, message: Message) {
        self.add_message(|_| message);
    }

    /// Sends the reply that ends a connection's wait, to be shown behind what has been pushed before.
    pub fn unpark(&self, client: u64, output: Output, depends: Position) {
        self.add_message(|pushes| Message::Unpark { client, output, pushes, depends });
    }

    fn add_message(&self, message: impl FnOnce(u64) -> Message) {
        let is_first = {
            let mut queue = self.queue();
            let pushed = queue.pushed;
            queue.messages.push_back(message(pushed));
            !self.has_messages.swap(true, Ordering::AcqRel)
        };
        self.nudge(is_first);
    }

    /// Wakes the thread unless that has been done for what is there already: the mark is cleared only by the thread that
    /// has found nothing more. It may leave pushes for later and sleep, but no messages: `must`.
    fn nudge(&self, must: bool) {
        if !self.filled.swap(true, Ordering::AcqRel) || must {
            self.wake.wake();
        }
    }

    /// Adds a push of the thread `from` to these connections, but for `except`. `to_self`: the caller is the inbox's own
    /// thread, which looks again before it sleeps. Says whether the sender's room is full: then it is sent
    /// [`Message::Room`] later.
    pub fn push(
        &self,
        clients: &Arc<Vec<u64>>,
        except: u64,
        bytes: &Arc<Vec<u8>>,
        (from, to_self): (usize, bool),
        may_be_dropped: bool,
    ) -> bool {
        let is_full = {
            let mut queue = self.queue();
            let number = queue.pushed + 1;
            let (clients, bytes) = (clients.clone(), bytes.clone());
            let push = Push { number, clients, except, bytes, may_be_dropped, from };
            if queue.push_bytes.saturating_add(push.bytes.len()) > PUSH_BYTES_MAX {
                queue.refuse(&push);
                self.has_messages.store(true, Ordering::Release);
                queue.rooms.get(from).is_some_and(|room| room.is_full)
            } else {
                queue.add(push, self.room_cost_max)
            }
        };
        if to_self {
            self.filled.store(true, Ordering::Release)
        } else {
            self.nudge(false)
        }
        is_full
    }

    /// What waits for a connection of the pushes with numbers beyond `after` and up to `until`.
    #[must_use]
    pub fn pushes_for(&self, client: u64, after: u64, until: u64) -> Vec<Waiting> {
        let queue = self.queue();
        // They are numbered without a gap.
        let first = queue.pushes.front().map_or(0, |push| push.number);
        let skipped = (after + 1).saturating_sub(first).min(queue.pushes.len() as u64) as usize;
        let wanted = queue.pushes.range(skipped..).take_while(|push| push.number <= until);
        let concerned = wanted.filter(|push| push.concerns(client));
        concerned.map(|push| Waiting { bytes: push.bytes.clone(), may_be_dropped: push.may_be_dropped }).collect()
    }

    /// The number of the latest push.
    #[must_use]
    pub fn pushed(&self) -> u64 {
        self.queue().pushed
    }

    /// Whether there may be messages or pushes.
    #[inline]
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Whether there are messages other than pushes.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::Acquire)
    }

    /// Takes all messages but pushes, in the order in which they were sent. Costs nothing if there are none.
    #[inline]
    #[must_use]
    pub fn take(&self) -> VecDeque<Message> {
        if self.has_messages() { self.take_messages() } else { VecDeque::new() }
    }

    fn take_messages(&self) -> VecDeque<Message> {
        let mut queue = self.queue();
        self.has_messages.store(false, Ordering::Release);
        let mut messages = std::mem::take(&mut queue.messages);
        let dropped = std::mem::take(&mut queue.dropped).into_iter();
        messages.extend(dropped.map(|(client, pushes)| Message::Dropped { client, pushes }));
        self.note_left(&queue);
        messages
    }

    /// Takes pushes, in their order: one, and more while all of them are no more than `work_max`, roughly bytes to be
    /// sent. What is left keeps the inbox filled.
    #[must_use]
    pub fn take_pushes(&self, work_max: usize) -> Portion {
        let mut portion = Portion::default();
        let mut work = 0;
        let mut queue = self.queue();
        while let Some(next) = queue.pushes.front() {
            work += next.work();
            if work > work_max && !portion.pushes.is_empty() {
                break;
            }
            let Some(push) = queue.pushes.pop_front() else { break };
            queue.push_bytes -= push.bytes.len();
            if let Some(room) = queue.rooms.get_mut(push.from) {
                room.cost -= push.cost();
                if room.is_full && room.cost <= self.room_cost_max / 2 {
                    room.is_full = false;
                    portion.has_room.push(push.from);
                }
            }
            portion.pushes.push(push);
        }
        self.note_left(&queue);
        portion
    }

    /// Clears the mark if nothing is left. The lock is held: what is added later sets it again.
    fn note_left(&self, queue: &Queue) {
        if queue.pushes.is_empty() && queue.messages.is_empty() && queue.dropped.is_empty() {
            self.filled.store(false, Ordering::Release);
        }
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.wake.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
