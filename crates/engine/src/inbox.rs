//! Messages from one thread to another: a message for one of its connections, then a wakeup of its poller.
//!
//! Messages for single connections are few, because each ends a wait of the connection, and are taken all at once.
//! Pushes (published messages, lines of MONITOR) may come faster than the thread delivers them. They are therefore
//! taken in portions, and every sending thread has a quota in every inbox. The push that exhausts a quota tells the
//! sender so. The sender then holds its publishers back (`execute::backpressure`) until [`Message::Room`] reports that
//! half of the quota is free again. A push never waits, so it may be done under any lock. A running command may exceed
//! the quota.

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

/// Maximum size of all pushes in an inbox, in bytes, for all senders. Only a single command that publishes this much
/// reaches it (a script, a transaction): the receivers of further pushes are closed.
const PUSH_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Sum of the quotas of an inbox, in units of [`Push::cost`]: some milliseconds of a thread's work.
const ROOMS_COST_MAX: usize = 2 * 1024 * 1024;
/// Minimum quota of a thread, for any number of threads.
const ROOM_COST_MIN: usize = 128 * 1024;
/// Overhead of a push in its quota.
const PUSH_COST: usize = 160;
/// Overhead of the delivery of a push to a connection, in the work of a portion, in bytes.
const HANDING_COST: usize = 100;

/// Wakes a thread's poller when its inbox has something. Must be cheap, and safe to call from any thread.
pub trait Wake: Send + Sync {
    /// Wakes the thread, or keeps it from falling asleep.
    fn wake(&self);
}

/// Bytes outside of replies (a published message, a line of MONITOR), the same for all receivers.
#[derive(Debug)]
pub struct Push {
    /// Sequence number among the pushes to this thread, from 1.
    pub number: u64,
    /// The receiving connections, ascending.
    pub clients: Arc<Vec<u64>>,
    /// The receiver that already has it, because it caused it; 0 for none.
    pub except: u64,
    /// The bytes in the protocol's form.
    pub bytes: Arc<Vec<u8>>,
    /// True if it may be dropped for a connection that lags behind (a line of MONITOR).
    pub may_be_dropped: bool,
    /// The sending thread.
    from: usize,
}

impl Push {
    fn concerns(&self, client: u64) -> bool {
        client != self.except && self.clients.binary_search(&client).is_ok()
    }

    /// Returns its share of the sender's quota: memory, here and in the receiving connections.
    fn cost(&self) -> usize {
        let each = Output::push_cost(self.bytes.len());
        PUSH_COST + self.bytes.len() + each.saturating_mul(self.clients.len())
    }

    /// Returns its share of a portion: the time to deliver and send it.
    fn work(&self) -> usize {
        (self.bytes.len() + HANDING_COST).saturating_mul(self.clients.len())
    }
}

/// A pending push for one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// See [`Push::bytes`].
    pub bytes: Arc<Vec<u8>>,
    /// See [`Push::may_be_dropped`].
    pub may_be_dropped: bool,
}

/// Messages to a thread, other than pushes.
#[derive(Debug)]
pub enum Message {
    /// The reply to the blocking command that parked the connection. The connection continues.
    Unpark {
        /// The connection.
        client: u64,
        /// The reply.
        output: Output,
        /// The number of the latest push before it; the connection is sent those first.
        pushes: u64,
        /// The last unit that the reply depends on, if replies wait for the disk.
        durable_after: Position,
    },
    /// Droppable pushes were dropped, because this inbox had no room for them.
    Dropped {
        /// The connection.
        client: u64,
        /// Number of dropped pushes.
        pushes: u64,
    },
    /// Closes the connection now.
    Close {
        /// The connection.
        client: u64,
    },
    /// Applies a part of a primary's stream, and reports the result in `engine::replication`.
    Apply {
        /// The number of the stream, among those that this server has followed.
        stream: u64,
        /// The number of the primary's change that it belongs to.
        version: u64,
        /// Whole commands.
        commands: Vec<u8>,
        /// Ends of the runs of commands that are applied together; some commands are applied alone.
        cuts: Vec<usize>,
    },
    /// Lanes of a primary's stream are ready for this thread: see `engine::replication::rounds`.
    Lanes,
    /// Replicas or the disk have progressed: check the connections that wait for them.
    Acknowledged,
    /// Another server has taken this one's place: close idle connections of clients that were told to move.
    ClientsMoved,
    /// Slots of the cluster went to other nodes: end the subscriptions to shard channels of these slots.
    SlotsChanged,
    /// The migration of a connection has ended: take it from `engine::migrations`.
    Migrated,
    /// The bus has answered a command of a connection.
    ClusterAnswered {
        /// The connection.
        client: u64,
        /// The number of its wait.
        wait: u64,
        /// The answer.
        reply: Box<cluster::commands::ClusterReply>,
    },
    /// There is work for imports of slots: take it from `engine::slots::jobs`.
    SlotImports,
    /// This node has lost slots: delete their keys.
    DropSlots,
    /// The bus has opened imports of slots: tell the replicas (`engine::slots::Slots::untold_imports`).
    TellReplicas,
    /// A condition of all connections has changed (CLIENT PAUSE ended): check the waiting ones again.
    Look,
    /// The receiver's quota in a full inbox has room again.
    Room {
        /// The thread that owns the inbox.
        inbox: usize,
    },
}

/// Sent and untaken pushes of one sender, within its quota.
#[derive(Default, Clone)]
struct Room {
    cost: usize,
    /// True from the moment the sender is told that its quota is full until it is told that there is room.
    is_full: bool,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    pushes: VecDeque<Push>,
    /// Number of pushes so far, including taken ones.
    pushed: u64,
    push_bytes: usize,
    /// Quotas by sender.
    rooms: Vec<Room>,
    /// Dropped pushes, by connection.
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

    /// Drops a push that exceeds the inbox's limit, and notifies or closes its receivers.
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

/// Pushes that are delivered together.
#[derive(Default)]
pub struct Portion {
    /// The pushes, in order.
    pub pushes: Vec<Push>,
    /// Threads with room again; the caller sends them [`Message::Room`].
    pub has_room: Vec<usize>,
}

/// A thread's messages, and its wakeup.
pub struct Inbox {
    queue: Mutex<Queue>,
    room_cost_max: usize,
    /// True if there may be something, so that an idle thread needn't take the lock. The thread clears it under the
    /// lock when the inbox is empty; senders set it after adding something.
    filled: AtomicBool,
    /// True if there are messages other than pushes; changed under the lock.
    has_messages: AtomicBool,
    wake: Box<dyn Wake>,
}

impl Inbox {
    /// Creates an empty inbox for the thread behind `wake`, with `threads` senders.
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

    /// Sends the reply that ends a connection's wait, to be delivered after earlier pushes.
    pub fn unpark(&self, client: u64, output: Output, durable_after: Position) {
        self.add_message(|pushes| Message::Unpark { client, output, pushes, durable_after });
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

    /// Wakes the thread unless the flag is already set: only the thread clears it, when the inbox is empty. The thread
    /// may sleep with pushes left over, but not with messages; `must` wakes it in any case.
    fn nudge(&self, must: bool) {
        if !self.filled.swap(true, Ordering::AcqRel) || must {
            self.wake.wake();
        }
    }

    /// Adds a push from the thread `from` to these connections, except `except`. `to_self`: the caller is the inbox's
    /// own thread, which checks the inbox again before it sleeps. Returns true if the sender's quota is full;
    /// [`Message::Room`] follows later.
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

    /// Returns the pending pushes for a connection with numbers after `after`, up to `until`.
    #[must_use]
    pub fn pushes_for(&self, client: u64, after: u64, until: u64) -> Vec<Waiting> {
        let queue = self.queue();
        // The numbers have no gaps.
        let first = queue.pushes.front().map_or(0, |push| push.number);
        let skipped = (after + 1).saturating_sub(first).min(queue.pushes.len() as u64) as usize;
        let wanted = queue.pushes.range(skipped..).take_while(|push| push.number <= until);
        let concerned = wanted.filter(|push| push.concerns(client));
        concerned.map(|push| Waiting { bytes: push.bytes.clone(), may_be_dropped: push.may_be_dropped }).collect()
    }

    /// Returns the number of the latest push.
    #[must_use]
    pub fn pushed(&self) -> u64 {
        self.queue().pushed
    }

    /// Returns true if there may be messages or pushes.
    #[inline]
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Returns true if there are messages other than pushes.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::Acquire)
    }

    /// Takes all messages except pushes, in order. Free if there are none.
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

    /// Takes pushes in order: one, and more as long as their total stays within `work_max`, roughly in bytes to send.
    /// Remaining pushes keep the inbox filled.
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

    /// Clears the flag if the inbox is empty. The lock is held; a later addition sets the flag again.
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
