//! CLUSTER SETSLOT on a primary with replicas.
//!
//! The replicas get a change before it takes effect: once this primary has told others of its new slots, a replica that takes its
//! place must know them, too. The bus first checks the command; then the command goes into the stream; after all replicas have
//! acknowledged it, the bus executes it. Valkey 8 and 9 have the same order.

use std::sync::atomic::Ordering;

use cluster::commands::{ClusterCommand, ClusterReply};

use crate::clients::blocking::Waiter;
use crate::clients::slot_changes::SlotChange;
use crate::commit::{Changed, TokenCount};
use crate::replication::replicas::Acknowledgement;
use crate::slots::bus::{Answer, BusRequest};
use crate::worker::Worker;
use statistics::ticks::Ticks;

impl Worker {
    /// Sends a change to the replicas if the bus has just accepted it. Returns false for other answers. The caller is inside
    /// the gate.
    pub(super) fn begin_slot_change(&mut self, waiter: &Waiter, wait: u64, reply: &ClusterReply) -> bool {
        let Some(at) = self.slot_changes.iter().position(|change| change.wait == wait) else { return false };
        if *reply != ClusterReply::Ok {
            self.slot_changes.remove(at);
            return false;
        }
        if !self.engine.replication.stream.is_own() {
            // This server is no primary any more. The bus refuses the command.
            let change = self.slot_changes.remove(at);
            self.execute_slot_change(change);
            return true;
        }
        self.begin_effects(&[], None, self.engine.slow_path.get());
        let args = waiter.args.args();
        self.effects.record_message((0..args.len()).map(|at| args.get(at)));
        self.collect_effects(None, Changed::Keys(&[]));
        self.commit(TokenCount::None);
        let awaited = Acknowledgement {
            position: self.wrote,
            replicas: self.engine.replication.replicas.online(),
            on_disk: None,
            timeout_ms: None,
        };
        let change = &mut self.slot_changes[at];
        if let ClusterCommand::SetSlot { slot, change, .. } = &change.command {
            self.engine.slots.under_way.begin(wait, *slot, change.clone());
        }
        change.awaited = Some((awaited, self.clock.now_ms.saturating_add(change.timeout_ms)));
        let replication = &self.engine.replication;
        replication.replicas.note_awaited(self.id, true);
        replication.request_answers();
        true
    }

    /// Returns true while changes of slots are on their way to the replicas.
    #[must_use]
    pub fn awaits_slot_changes(&self) -> bool {
        !self.slot_changes.is_empty()
    }

    /// Goes on with changes that all replicas have, or that took too long. Call it many times a second, and after
    /// acknowledgements.
    pub fn continue_slot_changes(&mut self) {
        if self.slot_changes.is_empty() {
            return;
        }
        self.clock.follow(Ticks::now());
        let now_ms = self.clock.now_ms;
        for change in std::mem::take(&mut self.slot_changes) {
            match &change.awaited {
                Some((awaited, _)) if self.engine.has_acknowledged(awaited) => self.execute_slot_change(change),
                Some((_, deadline_ms)) if now_ms >= *deadline_ms => {
                    self.answer_for_bus(change.client, change.wait, Box::new(ClusterReply::NotReplicated));
                }
                _ => self.slot_changes.push(change),
            }
        }
    }

    /// Tells the replicas of imports that the bus has opened without a command. Call it on [`Message::TellReplicas`], and many times a second.
    ///
    /// [`Message::TellReplicas`]: crate::inbox::Message::TellReplicas
    pub fn tell_replicas(&mut self) {
        if !self.engine.slots.untold_imports.has_any() {
            return;
        }
        self.clock.follow(Ticks::now());
        let inside = self.enter_gate();
        // A replica that takes over during a pause must have the whole stream.
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) {
            return;
        }
        let imports = self.engine.slots.untold_imports.take();
        let takes_slots = self.engine.slots.replicas_take_slots.load(Ordering::Relaxed);
        if !takes_slots || !self.engine.replication.stream.is_own() {
            return;
        }
        // No reply waits for these records.
        let durable_after = self.take_durable_after();
        for (slots, source) in imports {
            for slot in slots.iter() {
                self.record_for_replicas(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", source.as_str()]);
            }
        }
        self.durable_after = durable_after;
    }

    fn record_for_replicas(&mut self, words: &[&str]) {
        self.begin_effects(&[], None, self.engine.slow_path.get());
        self.effects.record_message(words.iter().map(|word| word.as_bytes()));
        self.collect_effects(None, Changed::Keys(&[]));
        self.commit(TokenCount::None);
    }

    /// Passes a change that all replicas have to the bus. Keys may have come or gone since the check.
    fn execute_slot_change(&mut self, change: SlotChange) {
        let SlotChange { client, wait, mut command, .. } = change;
        if let ClusterCommand::SetSlot { slot, has_keys, .. } = &mut command {
            let (keyspace, shard) = (&self.engine.keyspace, slot.index());
            *has_keys = (0..keyspace.databases()).any(|at| keyspace.next_occupied(at, shard) == Some(shard));
        }
        let answer = Answer::Client { client, worker: self.id, wait };
        if let Err(error) = self.engine.host.cluster(BusRequest { command, answer }) {
            self.answer_for_bus(client, wait, Box::new(ClusterReply::Error(error)));
        }
    }
}
