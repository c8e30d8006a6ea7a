//! Timers of the loop: timeouts of blocking commands and clients, and periodic work.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::clients::client::client_flag;
use engine::durability::DiskChange;
use resp::reply::Output;
use rustix::time::{ClockId, clock_gettime};

use super::{BUSY_TICK, EventLoop};
use crate::connection::{Connection, Hold};
use crate::log;
use crate::poller::{Poller, TICK};

/// Deadlines that may be noted beyond twice the connections, before those of waits that have ended are removed.
const DEADLINES_SLACK: usize = 64;

/// If another thread is just ending a wait whose time is up, the wait is checked again after so many microseconds.
const LOOK_AGAIN_US: u64 = 1000;

/// How idle a thread is from a moment on.
pub(super) struct Idleness {
    began: Instant,
    /// The thread's CPU time then.
    cpu: Duration,
    /// For how long it has polled since, which it does because it has nothing to do.
    polled: Duration,
}

impl Idleness {
    /// From now on, of the thread that calls it.
    fn begin() -> Idleness {
        Idleness { began: Instant::now(), cpu: thread_cpu(), polled: Duration::ZERO }
    }

    /// Notes that the thread has polled.
    pub(super) fn note_polling(&mut self, time: Duration) {
        self.polled += time;
    }

    /// The part of the time since it began, from 0 to 1, in which the thread that calls it did not run, or only polled.
    fn part(&self) -> f64 {
        let passed = self.began.elapsed().as_secs_f64();
        let worked = thread_cpu().saturating_sub(self.cpu).saturating_sub(self.polled).as_secs_f64();
        if passed > 0.0 { (1.0 - worked / passed).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The CPU time that the thread which calls it has taken so far.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// When the blocking command in which a connection waits runs out of time.
fn due_us(connection: &Connection) -> Option<u64> {
    connection.session.client.deadline_us()
}

/// How long a thread walks in a snapshot at each tick, of which there is one a millisecond then: the rest is its clients'. One that has
/// nothing else to do walks for twice as long.
const SAVING_TIME: Duration = Duration::from_micros(250);

/// For how long a connection beyond `maxclients` may be there without a command of an operator, in milliseconds: long enough for
/// a program that connects to give one.
const RESERVE_MS: u64 = 1000;

impl EventLoop {
    /// Milliseconds since the thread began, by a monotonic clock: for waits that are only within the server.
    pub(super) fn steady_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// What happens by the clock: blocking commands that run out of time, expired keys, idle clients.
    pub(super) fn tick(&mut self) {
        self.time_out();
        self.end_patience();
        if self.worker.walks_snapshot() && !self.ticks_early {
            self.tick_early();
        }
        if !self.poller.take_tick() {
            return;
        }
        let now = Instant::now();
        self.ticks_early = false;
        // In the first tick of a pass, it isn't known.
        let idle = self.idleness.take().map_or(0.0, |since| since.part());
        self.worker.serve_late();
        self.worker.end_migrations();
        let removing = self.worker.look_for_expired(BUSY_TICK) | self.worker.relieve_memory();
        let compacting = self.worker.compact_memory(BUSY_TICK, now.elapsed(), idle);
        self.ticks_early = removing | compacting | self.save(idle);
        // From here on, so that the time that it takes itself is not taken for the clients'.
        self.idleness = (self.worker.may_compact() || self.worker.walks_snapshot()).then(Idleness::begin);
        self.end_pause();
        // Half, since a timer isn't exact.
        if now.duration_since(self.looked_around) >= TICK / 2 {
            let last = std::mem::replace(&mut self.looked_around, now);
            self.look_around(now - last);
        }
        self.poller.tick_every(if self.ticks_early { BUSY_TICK } else { TICK });
    }

    /// Walks on in a snapshot that is being made, or begins one that is wanted. `idle` is the part of the time in which the thread had
    /// nothing to do. Says whether there is more to do.
    fn save(&mut self, idle: f64) -> bool {
        if self.worker.id == 0 {
            self.worker.begin_wanted_snapshot();
        }
        self.worker.walk_snapshot(SAVING_TIME.mul_f64(1.0 + idle));
        self.worker.walks_snapshot()
    }

    /// What needn't happen at every tick while they come early.
    fn look_around(&mut self, since_last: Duration) {
        self.close_idle();
        self.close_reserve();
        self.mind_backlogs(since_last);
        self.look_at_disk();
        self.give_up_on_replicas();
        self.worker.settle_trips();
        if self.worker.id == 0 {
            self.shared.engine.sample(self.worker.clock.now_ms, self.steady_ms());
        }
    }

    /// Has commands that write be refused while the disk of the append-only file doesn't answer.
    fn look_at_disk(&self) {
        match self.shared.engine.durability.look_at_disk(Instant::now()) {
            None => {}
            Some(DiskChange::Answers) => log::notice("The disk of the append-only file answers again."),
            Some(DiskChange::Hangs(what)) => log::warning(format!(
                "{what}. Commands that write are refused until it does; nothing that was acknowledged is lost."
            )),
        }
    }

    /// Has the next tick come soon.
    pub(super) fn tick_early(&mut self) {
        self.ticks_early = true;
        self.poller.tick_every(BUSY_TICK);
    }

    pub(super) fn note_deadline(&mut self, deadline_us: u64, client: u64) {
        self.deadlines.push(Reverse((deadline_us, client)));
        if self.deadlines.len() > 2 * self.connections.len() + DEADLINES_SLACK {
            let (connections, by_client, now_us) = (&self.connections, &self.by_client, self.turn_began_us);
            let due = |client: &u64| due_us(connections.get(*by_client.get(client)?)?);
            // One that is overdue is noted for a later moment than its own.
            let counts = |noted_us, due_us| due_us == noted_us || due_us <= now_us;
            self.deadlines.retain(|Reverse((noted_us, client))| due(client).is_some_and(|due| counts(*noted_us, due)));
        }
    }

    /// Answers blocking commands that have run out of time when this turn began. What has become due since has its turn
    /// next, and at once.
    fn time_out(&mut self) {
        let now_us = self.turn_began_us;
        while let Some(&Reverse((deadline_us, client))) = self.deadlines.peek() {
            if deadline_us > now_us {
                return;
            }
            self.deadlines.pop();
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // The deadline may be that of an earlier wait.
            if due_us(connection).is_none_or(|due| due > now_us) {
                continue;
            }
            let mut reply = Output::default();
            if self.worker.time_out(&mut connection.session, &mut reply) {
                let depends = self.worker.take_depends();
                self.take_replies(key, &mut reply, depends);
                self.go_on(key);
            } else {
                // Another thread is just serving it, or finding that there is nothing after all: check again.
                self.deadlines.push(Reverse((now_us + LOOK_AGAIN_US, client)));
            }
        }
    }

    fn end_pause(&mut self) {
        let engine = self.shared.engine;
        engine.pause.end_if_due(self.worker.clock.now_ms);
        if !self.paused.is_empty() {
            if engine.is_held_up() { self.tick_early() } else { self.run_paused() }
        }
    }

    /// Refuses connections beyond `maxclients` that have not given a command of an operator in time.
    fn close_reserve(&mut self) {
        let now_ms = self.worker.clock.now_ms;
        if (self.shared.connected() as i64) <= self.shared.settings().maxclients.get() {
            return;
        }
        let is_late = |c: &Connection| {
            let client = &c.session.client;
            client.has(client_flag::ON_RESERVE) && now_ms.saturating_sub(client.created_ms) >= RESERVE_MS
        };
        let late: Vec<usize> = self.connections.iter().filter(|(_, c)| is_late(c)).map(|(key, _)| key).collect();
        for key in late {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.hold = Hold::Closing;
            connection.replies_end().extend(b"-ERR max number of clients reached\r\n");
            self.worker.stats().rejected_connections.add(1);
            self.queue_write(key);
        }
    }

    /// Closes connections that have been silent for longer than `timeout`.
    fn close_idle(&mut self) {
        let (now_ms, limit_s) = (self.worker.clock.now_ms, self.shared.settings().timeout_s.get());
        let now_s = now_ms / 1000;
        if limit_s <= 0 || now_s == self.timeouts_checked_s {
            return;
        }
        self.timeouts_checked_s = now_s;
        let idle = |c: &Connection| {
            let client = &c.session.client;
            let exempt = client_flag::BLOCKED | client_flag::PUBSUB | client_flag::MONITOR;
            let active_ms = client.active_ms.load(Ordering::Relaxed);
            let is_silent = now_ms.saturating_sub(active_ms) > (limit_s as u64).saturating_mul(1000);
            // One that has waited or run a slow command until now gets its reply at the turn's end.
            is_silent && !client.has(exempt) && !c.in_write_list
        };
        let keys: Vec<usize> = self.connections.iter().filter(|(_, c)| idle(c)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Duration = Duration::from_millis(20);

    /// Works for twice as long, of its own time, and says how long it took by the clock.
    fn work() -> Duration {
        let (began, before) = (Instant::now(), thread_cpu());
        while thread_cpu() - before < 2 * WORK {}
        began.elapsed()
    }

    #[test]
    fn a_thread_that_sleeps_is_idle() {
        let idleness = Idleness::begin();
        std::thread::sleep(Duration::from_millis(30));
        assert!(idleness.part() > 0.8);
    }

    #[test]
    fn a_thread_that_works_is_not_idle() {
        let idleness = Idleness::begin();
        let took = work();
        // However busy the machine is with others.
        let idle = idleness.part();
        assert!(idle < 1.0 - WORK.as_secs_f64() / took.as_secs_f64(), "{idle}");
    }

    #[test]
    fn a_thread_that_only_polls_is_idle() {
        let mut idleness = Idleness::begin();
        let took = work();
        idleness.note_polling(took);
        assert!(idleness.part() > 0.8);
    }
}
