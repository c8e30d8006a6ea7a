//! Deletes the keys of slots that this node has lost.

use commands::effects::Class;
use store::db::Db;
use store::keyspace::{Key, Shards};

use crate::slots::Slot;
use crate::worker::{GateGuard, Worker};
use statistics::ticks::{Ticks, per_microsecond};

/// Keys of a slot that are deleted in one unit.
const KEYS_AT_ONCE: usize = 64;
/// The time of a step, in microseconds. Clients wait for it.
const STEP_US: f64 = 1000.0;

impl Worker {
    /// Deletes keys of lost slots for a moment. Returns whether there are more. `serve` serves the waiters of deleted keys.
    ///
    /// A pause does not stop the deletion, as in Valkey: the bus's later decisions wait for it, and one of them may end the pause.
    pub(crate) fn drop_slot_keys(&mut self, serve: impl FnOnce(&mut Worker, &mut GateGuard)) -> bool {
        let Some(first) = self.engine.slots.dropped.next() else { return false };
        let began = Ticks::now();
        if !self.log_has_room() {
            return true;
        }
        self.clock.follow(began);
        let mut inside = self.enter_gate();
        if inside.is_none() {
            return true;
        }
        let mut next = Some(first);
        while let Some(slot) = next
            && to_us(began) < STEP_US
        {
            match self.drop_some(slot) {
                None => break,
                Some(0) => self.engine.slots.dropped.note_empty(slot),
                Some(_) => {}
            }
            next = self.engine.slots.dropped.next();
        }
        serve(self, &mut inside);
        self.note_observed();
        next.is_some()
    }

    /// Deletes some keys of a slot, and returns their number. Returns `None` if a busy script holds them.
    fn drop_some(&mut self, slot: Slot) -> Option<usize> {
        let (engine, shard) = (self.engine, slot.index());
        let mut locked = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits())?;
        self.begin_effects(&[], None, engine.slow_path.get());
        for database in (0..engine.keyspace.databases()).filter(|database| engine.keyspace.had_keys(*database)) {
            let mut db = Db::new(&mut locked, database, &self.clock, &mut self.observed);
            let mut names = Vec::<Box<[u8]>>::new();
            db.visit_slot(slot.number(), KEYS_AT_ONCE, |entry| names.push(entry.key().into()));
            if names.is_empty() {
                continue;
            }
            names.iter().for_each(|name| _ = db.unlink(Key::new(name)));
            names.iter().for_each(|name| self.effects.changed(database, name, Class::Generic, "del"));
            let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(names.iter().map(|name| &**name)).collect();
            self.effects.record_as(database, words.into_iter());
            self.commit_upkeep(shard);
            return Some(names.len());
        }
        Some(0)
    }
}

fn to_us(began: Ticks) -> f64 {
    Ticks::now().since(began) as f64 / per_microsecond()
}
