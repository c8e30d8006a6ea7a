//! MIGRATE: keys on their way to another process. A migration at a time, without waiting for bytes.

use std::collections::VecDeque;

use engine::inbox::Message;
use engine::migrations::{Migration, MigrationError};
use engine::state::Engine;
use engine::testing::request;

use crate::network::{Network, WireId};
use crate::reply::{SimReply, parse_reply};
use crate::setup::PORTS;

/// A migration whose keys are sent.
struct Sent {
    migration: Box<Migration>,
    wire: WireId,
    read: Vec<u8>,
    /// The number of keys with a reply.
    answered: usize,
    due_us: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct SimMigrator {
    waiting: VecDeque<Box<Migration>>,
    sent: Option<Sent>,
}

impl SimMigrator {
    /// Queues migrations.
    pub fn add(&mut self, migrations: VecDeque<Box<Migration>>) {
        self.waiting.extend(migrations);
    }

    /// Returns true if there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sent.is_none() && self.waiting.is_empty()
    }

    /// Sends the keys of the next migration, or reads replies.
    pub fn step(&mut self, process: usize, engine: &Engine, network: &mut Network, (now_us, unix_us): (u64, u64)) {
        if let Some(sent) = self.sent.take() {
            self.sent = read(sent, engine, network, now_us);
        } else if let Some(mut migration) = self.waiting.pop_front() {
            let target = usize::from(migration.port.saturating_sub(PORTS));
            let Some(wire) = network.open([Some(process), Some(target)]) else {
                migration.error = Some(MigrationError::Connecting);
                return end(*migration, engine);
            };
            for key in &migration.keys {
                // 0 would mean no expiry.
                let ttl_ms = key.expires_ms.map_or(0, |at_ms| at_ms.saturating_sub(unix_us / 1000).max(1)).to_string();
                let words = [migration.restore(), &key.name, ttl_ms.as_bytes(), &key.payload, b"REPLACE"];
                let words = if migration.replaces { &words[..] } else { &words[..4] };
                network.send(wire, 0, &request(words), now_us);
            }
            let due_us = now_us + migration.timeout_ms * 1000;
            self.sent = Some(Sent { migration, wire, read: Vec::new(), answered: 0, due_us });
        }
    }
}

fn read(mut sent: Sent, engine: &Engine, network: &mut Network, now_us: u64) -> Option<Sent> {
    let (bytes, has_ended) = network.receive(sent.wire, 0, now_us);
    sent.read.extend_from_slice(&bytes);
    while let Some((reply, len)) = parse_reply(&sent.read) {
        sent.read.drain(..len);
        let key = sent.migration.keys.get_mut(sent.answered)?;
        sent.answered += 1;
        match reply {
            SimReply::Error(why) => sent.migration.error = Some(MigrationError::Refused(why.into_bytes())),
            _ => key.has_arrived = true,
        }
    }
    let is_over = sent.answered == sent.migration.keys.len();
    if !is_over && !has_ended && now_us < sent.due_us {
        return Some(sent);
    }
    if !is_over {
        sent.migration.error = Some(MigrationError::Reading);
    }
    network.close(sent.wire, 0);
    end(*sent.migration, engine);
    None
}

fn end(migration: Migration, engine: &Engine) {
    let worker = migration.worker;
    engine.migrations.leave(migration);
    engine.inboxes[worker].send(Message::Migrated);
}
