//! Announcements of maintenance to clients (CLIENT MAINT_NOTIFICATIONS), and the move of clients to another primary.
//!
//! Redis's client libraries ask each server for these pushes by default, with RESP3. A client that learns of a move
//! connects to the new address. Its old connection ends once it has no unanswered commands.
//!
//! A planned failover proceeds in this order, so that no client sees an error:
//! 1. The replica that is to take over holds the commands of such clients back (`Maintenance::hold`).
//! 2. The primary announces the move and goes on to serve, so that clients finish their commands on old connections.
//! 3. Writes wait, the replica gets the rest of the stream and becomes the primary, and the held commands run there.
//!
//! A node of a cluster announces the moves of its slots to the clients of a cluster. A client fetches the map of slots anew then, before a
//! redirect costs it a round trip.
//!
//! Source of the forms: the parsers of go-redis (`push/`, `maintnotifications`), redis-py (`maint_notifications`) and node-redis
//! (`enterprise-maintenance-manager`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::SlotSet;
use resp::reply::{Output, Proto, Reply};

use crate::inbox::Inbox;
use crate::pubsub::{Audience, Encoded, Origin, Subscriber};
use crate::replication::Primary;
use crate::slow_path::{AWAITS_PROMOTION, EngineFlags};

/// Time within which clients move, in seconds, as announced. Clients spread their connections over half of it.
const MOVE_S: u64 = 15;
/// Time within which a failover ends, in seconds, as announced. Clients wait longer for replies meanwhile.
const FAILOVER_S: u64 = 5;
/// Time for which a server that was replaced tells new clients of the new primary, in milliseconds.
const MOVED_MS: u64 = 30_000;
/// Longest hold of commands at a replica that is to take over, in milliseconds.
const HOLD_MAX_MS: u64 = 10_000;
/// The list of announced shards, as JSON. Clients pass it to their logs only; Lettuce wants a string.
const SHARDS: &str = "[\"1\"]";
/// The thread number of a sender without a worker, which has no quota in an inbox.
const NO_WORKER: usize = usize::MAX;

/// An announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// A failover begins.
    FailingOver,
    /// The failover has ended without a move.
    FailedOver,
    /// Clients connect to another server from now on.
    Moving(Primary),
    /// Slots of this node are about to go to another node, and writes to them wait.
    SlotsMigrating(Box<SlotSet>),
    /// Slots of this node have gone to other nodes.
    SlotsMigrated(Vec<SlotsMigrated>),
}

/// Slots that have gone from one node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotsMigrated {
    /// The endpoint of the node that had the slots, `host:port`.
    pub source: String,
    /// The endpoint of the node that has them now, `host:port`.
    pub target: String,
    /// The slots.
    pub slots: SlotSet,
}

/// The clients that listen, by the form of the address that they want.
#[derive(Default)]
struct Listeners {
    /// Clients that want an address.
    addressed: Audience,
    /// Clients that connect to the same address again (`moving-endpoint-type none`).
    unaddressed: Audience,
}

/// See the module's documentation.
pub struct Maintenance {
    listeners: Mutex<Listeners>,
    /// The number of the last announcement.
    sequence: AtomicU64,
    /// The end of the hold in milliseconds of Unix time; 0 without one.
    held_until_ms: Mutex<u64>,
    /// [`AWAITS_PROMOTION`] is set during a hold. Changed with `held_until_ms` locked.
    slow_path: Arc<EngineFlags>,
    /// The server that took this one's place, and the end of the time for which clients are told.
    moved: Mutex<Option<(Primary, u64)>>,
    /// Slots that have gone to other nodes and were not announced yet.
    migrated: Mutex<SlotSet>,
    /// True if `migrated` has a slot.
    has_migrated: AtomicBool,
}

impl Maintenance {
    /// Creates a state without clients.
    #[must_use]
    pub fn new(slow_path: Arc<EngineFlags>) -> Maintenance {
        Maintenance {
            listeners: Mutex::default(),
            sequence: AtomicU64::new(0),
            held_until_ms: Mutex::new(0),
            slow_path,
            moved: Mutex::new(None),
            migrated: Mutex::default(),
            has_migrated: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, or changes the form of the address that it wants.
    pub(crate) fn add(&self, subscriber: Subscriber, wants_address: bool) {
        let mut listeners = self.lock();
        let Listeners { addressed, unaddressed } = &mut *listeners;
        let (wanted, other) = if wants_address { (addressed, unaddressed) } else { (unaddressed, addressed) };
        other.remove(subscriber);
        wanted.add(subscriber);
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, subscriber: Subscriber) {
        let mut listeners = self.lock();
        listeners.addressed.remove(subscriber);
        listeners.unaddressed.remove(subscriber);
    }

    /// Returns the number of connections that listen.
    #[must_use]
    pub fn listeners(&self) -> usize {
        let listeners = self.lock();
        listeners.addressed.len() + listeners.unaddressed.len()
    }

    /// Returns the number of the next announcement. Clients ignore a number that they know, from any server. Unix time
    /// makes the numbers of all servers ascend.
    fn next_number(&self, now_ms: u64) -> u64 {
        let next = |last: u64| Some(now_ms.max(last + 1));
        let last = self.sequence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        now_ms.max(last + 1)
    }

    /// Sends an announcement to all connections that listen. `now_ms` is Unix time.
    pub fn announce(&self, inboxes: &[Inbox], announcement: &Announcement, now_ms: u64) {
        let number = self.next_number(now_ms);
        let listeners = self.lock();
        for (audience, has_address) in [(&listeners.addressed, true), (&listeners.unaddressed, false)] {
            send(audience, inboxes, |reply| write(reply, announcement, number, has_address));
        }
    }

    /// Sends an announcement with an address to these connections. `now_ms` is Unix time.
    pub(crate) fn announce_to(&self, audience: &Audience, inboxes: &[Inbox], announcement: &Announcement, now_ms: u64) {
        let number = self.next_number(now_ms);
        send(audience, inboxes, |reply| write(reply, announcement, number, true));
    }

    /// Notes slots that have gone to other nodes.
    pub(crate) fn note_migrated(&self, slots: &SlotSet) {
        if slots.is_empty() {
            return;
        }
        self.migrated.lock().unwrap_or_else(PoisonError::into_inner).add(slots);
        self.has_migrated.store(true, Ordering::Release);
    }

    /// Returns the slots that have gone to other nodes since the last call.
    pub(crate) fn take_migrated(&self) -> SlotSet {
        match self.has_migrated.load(Ordering::Acquire) && self.has_migrated.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut *self.migrated.lock().unwrap_or_else(PoisonError::into_inner)),
            false => SlotSet::EMPTY,
        }
    }

    /// Notes that another server takes this server's place, or that none does. `now_ms` is Unix time.
    pub fn note_moved(&self, to: Option<Primary>, now_ms: u64) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = to.map(|to| (to, now_ms + MOVED_MS));
    }

    /// Returns the announcement for a client that connects during a move or after it.
    pub(crate) fn announcement_for_new(&self, has_address: bool, now_ms: u64) -> Option<Output> {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (to, _) = moved.filter(|(_, until_ms)| *until_ms > now_ms && has_address)?;
        let mut output = Output::default();
        let number = self.next_number(now_ms);
        write(&mut Reply::new(&mut output, Proto::Resp3), &Announcement::Moving(to), number, has_address);
        Some(output)
    }

    fn lock_hold(&self) -> MutexGuard<'_, u64> {
        self.held_until_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the commands of clients that come because this replica is to take over soon. With 0, a hold is overdue at
    /// once.
    pub(crate) fn hold(&self, now_ms: u64, for_ms: u64) {
        let mut held_until_ms = self.lock_hold();
        if for_ms > 0 || *held_until_ms > 0 {
            *held_until_ms = now_ms + for_ms.min(HOLD_MAX_MS);
            self.slow_path.set(AWAITS_PROMOTION, true);
        }
    }

    /// Makes a hold overdue at this time, unless it is earlier. The link to the primary has ended: the promotion comes
    /// now or not at all.
    pub fn shorten_hold(&self, until_ms: u64) {
        let mut held_until_ms = self.lock_hold();
        *held_until_ms = until_ms.min(*held_until_ms);
    }

    /// Ends a hold, because the role of this server changes.
    pub(crate) fn release(&self) {
        let mut held_until_ms = self.lock_hold();
        *held_until_ms = 0;
        self.slow_path.set(AWAITS_PROMOTION, false);
    }

    /// Returns true during a hold.
    #[must_use]
    pub(crate) fn holds(&self) -> bool {
        self.slow_path.has(AWAITS_PROMOTION)
    }

    /// Returns true if a hold has lasted too long: this server did not take over.
    #[must_use]
    pub(crate) fn is_hold_due(&self, now_ms: u64) -> bool {
        self.holds() && *self.lock_hold() <= now_ms
    }

    /// Ends a hold that has lasted too long, and returns true if there was one.
    #[must_use]
    pub(crate) fn end_hold_if_due(&self, now_ms: u64) -> bool {
        let mut held_until_ms = self.lock_hold();
        let is_due = *held_until_ms != 0 && *held_until_ms <= now_ms;
        if is_due {
            *held_until_ms = 0;
            self.slow_path.set(AWAITS_PROMOTION, false);
        }
        is_due
    }
}

/// Sends the bytes that `build` writes to connections.
fn send(audience: &Audience, inboxes: &[Inbox], build: impl Fn(&mut Reply<'_>)) {
    let mut origin = Origin { worker: NO_WORKER, own: None, may_be_dropped: false, overfilled: None };
    audience.send(inboxes, &mut origin, &mut Encoded::new(build));
}

/// Writes an announcement. The durations are in seconds.
fn write(reply: &mut Reply<'_>, announcement: &Announcement, number: u64, has_address: bool) {
    let number = number as i64;
    match announcement {
        Announcement::FailingOver => {
            reply.push(4);
            reply.bulk("FAILING_OVER");
            reply.int(number);
            reply.int(FAILOVER_S as i64);
            reply.bulk(SHARDS);
        }
        Announcement::FailedOver => {
            reply.push(3);
            reply.bulk("FAILED_OVER");
            reply.int(number);
            reply.bulk(SHARDS);
        }
        Announcement::Moving(Primary { host, port }) => {
            reply.push(4);
            reply.bulk("MOVING");
            reply.int(number);
            reply.int(MOVE_S as i64);
            match (has_address, host.contains(':')) {
                (true, false) => reply.bulk(format!("{host}:{port}")),
                (true, true) => reply.bulk(format!("[{host}]:{port}")),
                (false, _) => reply.null(),
            }
        }
        Announcement::SlotsMigrating(slots) => {
            reply.push(3);
            reply.bulk("SMIGRATING");
            reply.int(number);
            reply.bulk(listed(slots));
        }
        Announcement::SlotsMigrated(migrated) => {
            reply.push(3);
            reply.bulk("SMIGRATED");
            reply.int(number);
            reply.array(migrated.len());
            for SlotsMigrated { source, target, slots } in migrated {
                reply.array(3);
                reply.bulk(source);
                reply.bulk(target);
                reply.bulk(listed(slots));
            }
        }
    }
}

/// Returns slots and ranges of slots, separated by commas.
fn listed(slots: &SlotSet) -> String {
    slots.to_string().replace(' ', ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(announcement: &Announcement, has_address: bool) -> String {
        let mut output = Output::default();
        write(&mut Reply::new(&mut output, Proto::Resp3), announcement, 7, has_address);
        String::from_utf8(output.slices().collect::<Vec<_>>().concat()).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn announcements_have_the_forms_that_clients_parse() {
        let to = |host: &str| Announcement::Moving(Primary { host: host.into(), port: 7 });
        assert_eq!(text(&Announcement::FailingOver, true), ">4 $12 FAILING_OVER :7 :5 $5 [\"1\"] ");
        assert_eq!(text(&Announcement::FailedOver, true), ">3 $11 FAILED_OVER :7 $5 [\"1\"] ");
        assert_eq!(text(&to("h"), true), ">4 $6 MOVING :7 :15 $3 h:7 ");
        assert_eq!(text(&to("::1"), true), ">4 $6 MOVING :7 :15 $7 [::1]:7 ");
        assert_eq!(text(&to("h"), false), ">4 $6 MOVING :7 :15 _ ");
    }

    #[test]
    fn moves_of_slots_have_the_forms_that_clients_parse() {
        let slots: SlotSet = cluster::Slot::all().take(12).filter(|slot| slot.index() != 1).collect();
        let migrating = text(&Announcement::SlotsMigrating(Box::new(slots.clone())), true);
        assert_eq!(migrating, ">3 $10 SMIGRATING :7 $6 0,2-11 ");
        let migrated = SlotsMigrated { source: "a:1".into(), target: "b:2".into(), slots };
        let migrated = text(&Announcement::SlotsMigrated(vec![migrated]), false);
        assert_eq!(migrated, ">3 $9 SMIGRATED :7 *1 *3 $3 a:1 $3 b:2 $6 0,2-11 ");
    }

    #[test]
    fn numbers_ascend_although_the_clock_goes_back() {
        let maintenance = Maintenance::new(Arc::default());
        assert_eq!([5, 3, 9].map(|now_ms| maintenance.next_number(now_ms)), [5, 6, 9]);
    }

    #[test]
    fn a_hold_is_bounded_and_ends_once() {
        let maintenance = Maintenance::new(Arc::default());
        maintenance.hold(100, u64::MAX);
        assert!(maintenance.holds() && !maintenance.is_hold_due(100 + HOLD_MAX_MS - 1));
        let ends = [(), ()].map(|()| maintenance.end_hold_if_due(100 + HOLD_MAX_MS));
        assert_eq!(ends, [true, false]);
        maintenance.hold(100, 5);
        maintenance.shorten_hold(200);
        assert!(!maintenance.is_hold_due(104) && maintenance.is_hold_due(105));
        maintenance.shorten_hold(102);
        assert!(maintenance.end_hold_if_due(102) && !maintenance.holds());
        maintenance.hold(101, 0);
        maintenance.shorten_hold(1);
        assert!(!maintenance.holds() && !maintenance.end_hold_if_due(1000));
        maintenance.hold(101, 5);
        maintenance.hold(102, 0);
        assert!(maintenance.end_hold_if_due(102));
        maintenance.hold(103, 5);
        maintenance.release();
        assert!(!maintenance.holds() && !maintenance.end_hold_if_due(1000));
    }
}
