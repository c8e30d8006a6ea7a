//! The answers of the cluster's bus for connections that wait for them.

use cluster::commands::ClusterReply;
use resp::reply::{Output, Reply};

use crate::clients::blocking::Awaited;
use crate::commit::{Changed, TokenCount};
use crate::services::bus_replies;
use crate::slots::bus::LateAnswer;
use crate::worker::Worker;
use statistics::ticks::Ticks;

impl Worker {
    /// Gives a connection the bus's answer.
    pub fn answer_for_bus(&mut self, client: u64, wait: u64, reply: Box<ClusterReply>) {
        if let Err(late) = self.try_answer_for_bus(LateAnswer { client, wait, reply }) {
            self.late_answers.push(late);
        }
    }

    /// Gives the answers that a busy script has delayed. Call it many times a second.
    pub fn answer_late_for_bus(&mut self) {
        for late in std::mem::take(&mut self.late_answers) {
            if let Err(late) = self.try_answer_for_bus(late) {
                self.late_answers.push(late);
            }
        }
    }

    fn try_answer_for_bus(&mut self, answer: LateAnswer) -> Result<(), LateAnswer> {
        let waiter = self.engine.clients.get(answer.client).and_then(|client| client.waiter());
        let for_replicas = waiter.as_ref().and_then(|waiter| match waiter.awaited {
            Some(Awaited::Bus { wait, for_replicas }) if wait == answer.wait => Some(for_replicas),
            _ => None,
        });
        let Some((waiter, for_replicas)) = waiter.zip(for_replicas) else {
            self.engine.slots.under_way.end(answer.wait);
            return Ok(());
        };
        self.clock.follow(Ticks::now());
        // The answer counts for the connection's pipeline, which no other connection takes over meanwhile.
        let inside = self.enter_gate();
        if inside.is_none() {
            return Err(answer);
        }
        if self.begin_slot_change(&waiter, answer.wait, &answer.reply) {
            return Ok(());
        }
        self.engine.slots.under_way.end(answer.wait);
        if !waiter.claim() {
            return Ok(());
        }
        let durable_after = self.take_durable_after();
        self.begin_effects(&[], None, self.engine.slow_path.get());
        match bus_replies::error_text(&answer.reply) {
            Some(error) => self.count_failed(&waiter, error.as_bytes()),
            None => {
                self.count_ended(&waiter);
                if for_replicas && self.engine.replication.stream.is_own() {
                    let args = waiter.args.args();
                    self.effects.record_message((0..args.len()).map(|at| args.get(at)));
                }
            }
        }
        self.collect_effects(None, Changed::Keys(&[]));
        self.commit(TokenCount::Waiter(&waiter));
        let mut output = Output::default();
        bus_replies::write(&answer.reply, &mut Reply::new(&mut output, waiter.proto));
        self.engine.waiters.remove(&waiter);
        let own = self.take_durable_after();
        self.engine.inboxes[self.id].unpark(waiter.client, output, own);
        self.durable_after = durable_after;
        Ok(())
    }
}
