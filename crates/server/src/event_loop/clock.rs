//! Timers of the loop: timeouts of blocking commands and clients, and periodic work.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::clients::client::client_flag;
use engine::durability::DiskChange;
use resp::reply::Output;
use rustix::time::{ClockId, clock_gettime};

use super::{BUSY_TICK, EventLoop};
use crate::connection::Connection;
use crate::log;
use crate::poller::{Poller, TICK};
use engine::clients::progress::Progress;

/// The deadlines of ended waits are removed once there are this many more deadlines than twice the number of connections.
const DEADLINES_SLACK: usize = 64;

/// Microseconds until the next check of an expired wait that another thread is just ending.
const LOOK_AGAIN_US: u64 = 1000;

/// A measurement of how idle a thread is.
pub(super) struct Idleness {
    began: Instant,
    /// The thread's CPU time at the beginning.
    cpu: Duration,
    /// Time spent polling since, when there was nothing to do.
    polled: Duration,
}

impl Idleness {
    /// Begins the measurement of the calling thread.
    fn begin() -> Idleness {
        Idleness { began: Instant::now(), cpu: thread_cpu(), polled: Duration::ZERO }
    }

    /// Notes that the thread has polled.
    pub(super) fn note_polling(&mut self, time: Duration) {
        self.polled += time;
    }

    /// Returns the share of the elapsed time, from 0 to 1, in which the calling thread did not run, or only polled.
    fn part(&self) -> f64 {
        let passed = self.began.elapsed().as_secs_f64();
        let worked = thread_cpu().saturating_sub(self.cpu).saturating_sub(self.polled).as_secs_f64();
        if passed > 0.0 { (1.0 - worked / passed).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Returns the CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the deadline of the blocking command of a connection.
fn due_us(connection: &Connection) -> Option<u64> {
    connection.session.client.deadline_us()
}

/// Time for a snapshot in each tick, one per millisecond then. Clients get the rest. An idle thread walks for twice as long.
const SAVING_TIME: Duration = Duration::from_micros(250);

/// Time in milliseconds within which a connection beyond `maxclients` must send an operator's command: enough for a program that connects
/// to send one.
const RESERVE_MS: u64 = 1000;

impl EventLoop {
    /// Milliseconds since the thread began, by a monotonic clock, for waits within the server.
    pub(super) fn steady_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Does the timed work: deadlines of blocking commands, expired keys, idle clients.
    pub(super) fn tick(&mut self) {
        self.time_out();
        self.end_patience();
        if self.worker.walks_snapshot() && !self.ticks_early {
            self.tick_early();
        }
        if !self.poller.take_tick() {
            return;
        }
        self.shared.heartbeats.beat(self.worker.id);
        let now = Instant::now();
        self.ticks_early = false;
        // Unknown in the first tick of a pass.
        let idle = self.idleness.take().map_or(0.0, |since| since.part());
        self.worker.serve_late();
        self.worker.end_migrations();
        self.worker.answer_late_for_bus();
        self.worker.continue_slot_changes();
        if self.worker.id == 0 {
            self.worker.tell_replicas();
        }
        let dropping = self.worker.id == 0 && self.worker.drop_slots();
        let removing = self.worker.look_for_expired(BUSY_TICK) | self.worker.relieve_memory();
        let compacting = self.worker.compact_memory(BUSY_TICK, now.elapsed(), idle);
        self.ticks_early = removing | compacting | dropping | self.save(idle);
        // Begins here: the time of the tick's own work must not count as the clients'.
        self.idleness = (self.worker.may_compact() || self.worker.walks_snapshot()).then(Idleness::begin);
        self.end_pause();
        // Half, since a timer isn't exact.
        if now.duration_since(self.last_cron) >= TICK / 2 {
            let last = std::mem::replace(&mut self.last_cron, now);
            self.cron(now - last);
        }
        self.poller.tick_every(if self.ticks_early { BUSY_TICK } else { TICK });
    }

    /// Continues a snapshot, or begins a requested one. `idle` is the thread's idle share of the time. Returns true if there is more to do.
    fn save(&mut self, idle: f64) -> bool {
        if self.worker.id == 0 {
            self.worker.begin_wanted_snapshot();
        }
        self.worker.walk_snapshot(SAVING_TIME.mul_f64(1.0 + idle));
        self.worker.walks_snapshot()
    }

    /// Does the work that is not due at every early tick.
    fn cron(&mut self, since_last: Duration) {
        self.close_idle();
        self.close_reserve();
        self.enforce_backlog_limits(since_last);
        self.look_at_disk();
        self.give_up_on_replicas();
        self.end_late_links();
        self.worker.settle_trips();
        self.worker.unload_scripts();
        if self.worker.id == 0 {
            self.shared.engine.sample(self.worker.clock.now_ms, self.steady_ms());
        }
    }

    /// Refuses write commands while the disk of the append-only file doesn't answer.
    fn look_at_disk(&self) {
        match self.shared.engine.durability.look_at_disk(Instant::now()) {
            None => {}
            Some(DiskChange::Answers) => log::notice("The disk of the append-only file answers again."),
            Some(DiskChange::Hangs(what)) => log::warning(format!(
                "{what}. Commands that write are refused until it answers; no acknowledged change is lost."
            )),
        }
    }

    /// Makes the next tick early.
    pub(super) fn tick_early(&mut self) {
        self.ticks_early = true;
        self.poller.tick_every(BUSY_TICK);
    }

    pub(super) fn note_deadline(&mut self, deadline_us: u64, client: u64) {
        self.deadlines.push(Reverse((deadline_us, client)));
        if self.deadlines.len() > 2 * self.connections.len() + DEADLINES_SLACK {
            let (connections, by_client, now_us) = (&self.connections, &self.by_client, self.turn_began_us);
            let due = |client: &u64| due_us(connections.get(*by_client.get(client)?)?);
            // An overdue deadline is noted for a later time than its own.
            let counts = |noted_us, due_us| due_us == noted_us || due_us <= now_us;
            self.deadlines.retain(|Reverse((noted_us, client))| due(client).is_some_and(|due| counts(*noted_us, due)));
        }
    }

    /// Answers blocking commands whose deadline had passed at the start of this turn. Later deadlines belong to the next turn, which
    /// follows at once.
    fn time_out(&mut self) {
        let now_us = self.turn_began_us;
        while let Some(&Reverse((deadline_us, client))) = self.deadlines.peek() {
            if deadline_us > now_us {
                return;
            }
            self.deadlines.pop();
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // The deadline may belong to an earlier wait.
            if due_us(connection).is_none_or(|due| due > now_us) {
                continue;
            }
            let mut reply = Output::default();
            if self.worker.time_out(&mut connection.session, &mut reply) {
                let durable_after = self.worker.take_durable_after();
                self.take_replies(key, &mut reply, durable_after);
                self.go_on(key);
            } else {
                // Another thread is just serving the command, or finding nothing for it: check again.
                self.deadlines.push(Reverse((now_us + LOOK_AGAIN_US, client)));
            }
        }
    }

    fn end_pause(&mut self) {
        let engine = self.shared.engine;
        engine.pause.end_if_due(self.worker.clock.now_ms);
        engine.end_overdue_hold(self.worker.clock.now_ms);
        engine.announce_migrated(self.worker.clock.now_ms);
        if !self.paused.is_empty() {
            if engine.is_held_up() { self.tick_early() } else { self.run_paused() }
        }
    }

    /// Refuses connections beyond `maxclients` that have not sent an operator's command in time.
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
            connection.progress = Progress::Closing;
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
            // A connection that was blocked or ran a slow command until now gets its reply at the turn's end.
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

    /// Works for twice the time in CPU time, and returns the elapsed time.
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
        // Holds on a busy machine, too.
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
