//! What happens by the clock.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engine::client::client_flag;

use super::{BUSY_TICK, EventLoop, TICK};
use crate::connection::Connection;

/// How long one look for expired keys may take, in microseconds: others wait for as long.
const RECLAIM_US: f64 = 1000.0;
/// Deadlines that may be noted beyond twice the connections, before those of waits that have ended are removed.
const DEADLINES_SLACK: usize = 64;

impl EventLoop {
    /// What happens by the clock: blocking commands that run out of time, expired keys, idle clients.
    pub(super) fn tick(&mut self) {
        self.time_out();
        self.end_patience();
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.worker.serve_late();
        let more = self.worker.reclaim_expired(RECLAIM_US)
            | self.worker.relieve_memory()
            | self.worker.compact_memory(BUSY_TICK.as_micros() as u64);
        self.next_tick = now + if more { BUSY_TICK } else { TICK };
        self.end_pause();
        self.close_idle();
        self.mind_backlogs();
        if self.worker.id == 0 {
            self.shared.engine.sample(self.worker.clock.now_ms);
        }
    }

    pub(super) fn note_deadline(&mut self, deadline_ms: u64, client: u64) {
        self.deadlines.push(Reverse((deadline_ms, client)));
        if self.deadlines.len() > 2 * self.connections.len() + DEADLINES_SLACK {
            let (connections, by_client, now_ms) = (&self.connections, &self.by_client, self.worker.clock.now_ms);
            let due = |client: &u64| {
                let waiter = connections.get(*by_client.get(client)?)?.session.parked.as_ref()?;
                waiter.wait.deadline_ms
            };
            // One that is overdue is noted for a later moment than its own.
            let counts = |noted_ms, due_ms| due_ms == noted_ms || due_ms <= now_ms;
            self.deadlines.retain(|Reverse((noted_ms, client))| due(client).is_some_and(|due| counts(*noted_ms, due)));
        }
    }

    fn time_out(&mut self) {
        let now_ms = self.worker.clock.now_ms;
        while let Some(&Reverse((deadline_ms, client))) = self.deadlines.peek() {
            if deadline_ms > now_ms {
                return;
            }
            self.deadlines.pop();
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let due = connection.session.parked.as_ref().and_then(|w| w.wait.deadline_ms);
            // The deadline may be that of an earlier wait.
            if due.is_none_or(|due| due > now_ms) {
                continue;
            }
            if self.worker.time_out(&mut connection.session, &mut connection.replies.output) {
                self.go_on(key);
            } else {
                // Somebody is just serving it, or finding that there is nothing after all: look again.
                self.deadlines.push(Reverse((now_ms + 1, client)));
            }
        }
    }

    fn end_pause(&mut self) {
        let engine = self.shared.engine;
        let until_ms = engine.paused_until_ms.load(Ordering::Relaxed);
        if until_ms != 0 && until_ms <= self.worker.clock.now_ms {
            let _ = engine.paused_until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        if !self.paused.is_empty() {
            if engine.is_held_up() { self.next_tick = Instant::now() + BUSY_TICK } else { self.run_paused() }
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
            !client.has(exempt) && now_ms.saturating_sub(active_ms) > (limit_s as u64).saturating_mul(1000)
        };
        let keys: Vec<usize> = self.connections.iter().filter(|(_, c)| idle(c)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key));
    }
}
