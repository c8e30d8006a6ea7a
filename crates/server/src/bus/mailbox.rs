//! The bus's mailbox: commands and published messages of the workers, finished saves, and changes of this server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cluster::Generation;
use cluster::slots::SlotSet;
use engine::inbox::Wake;
use engine::slots::bus::BusRequest;

use crate::mailbox::Mailbox;
use crate::poller::WakeFd;

/// Bytes of published messages in the mailbox. Further ones are dropped.
const PUBLISHED_BYTES_MAX: usize = 64 << 20;
/// Overhead of a published message.
const PUBLISHED_BYTES: usize = 64;

/// A message to the bus.
pub enum BusMail {
    /// A command of a client.
    Command(BusRequest),
    /// A message for subscribers of other nodes.
    Publish {
        /// The channel.
        channel: Box<[u8]>,
        /// The message.
        message: Box<[u8]>,
        /// True for a shard channel.
        sharded: bool,
    },
    /// A save of nodes.conf has ended, with this error or well.
    Saved(Generation, Option<String>),
    /// Writes are held back, behind this offset.
    Paused(u64),
    /// Directives have changed.
    Configured,
    /// The data are loaded, with keys in these slots.
    Loaded(Box<SlotSet>),
}

/// The mailbox.
#[derive(Default)]
pub struct BusMailbox {
    mail: Mailbox<BusMail>,
    wake: OnceLock<WakeFd>,
    published_bytes: AtomicUsize,
    published_dropped: AtomicU64,
    /// The bytes in the links.
    link_bytes: AtomicU64,
    /// Set once the data of the start are loaded.
    is_loaded: AtomicBool,
}

impl BusMailbox {
    /// Sets the waker of the bus's thread. Called once.
    pub fn set_wake(&self, wake: WakeFd) {
        let _ = self.wake.set(wake);
    }

    /// Leaves a message.
    pub fn leave(&self, mail: BusMail) {
        if self.mail.leave(mail)
            && let Some(wake) = self.wake.get()
        {
            wake.wake();
        }
    }

    /// Leaves a published message, if there is room.
    pub fn publish(&self, channel: &[u8], message: &[u8], sharded: bool) {
        let bytes = channel.len() + message.len() + PUBLISHED_BYTES;
        let before = self.published_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > PUBLISHED_BYTES_MAX {
            self.published_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.published_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.leave(BusMail::Publish { channel: channel.into(), message: message.into(), sharded });
    }

    /// Takes all messages.
    pub fn take(&self) -> Vec<BusMail> {
        self.mail.take()
    }

    /// Notes that the bus has taken a published message.
    pub fn note_published(&self, channel: &[u8], message: &[u8]) {
        self.published_bytes.fetch_sub(channel.len() + message.len() + PUBLISHED_BYTES, Ordering::Relaxed);
    }

    /// Notes the bytes in the links.
    pub fn note_link_bytes(&self, bytes: u64) {
        self.link_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of published messages and of the links.
    pub fn memory(&self) -> u64 {
        self.published_bytes.load(Ordering::Relaxed) as u64 + self.link_bytes.load(Ordering::Relaxed)
    }

    /// Notes that a link had no room for a published message.
    pub fn note_dropped(&self) {
        self.published_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the number of published messages that were dropped.
    pub fn take_dropped(&self) -> u64 {
        self.published_dropped.swap(0, Ordering::Relaxed)
    }

    /// Notes that the data of the start are loaded, with keys in these slots.
    pub fn note_loaded(&self, slots: SlotSet) {
        self.is_loaded.store(true, Ordering::Release);
        self.leave(BusMail::Loaded(Box::new(slots)));
    }

    /// Returns true once the data of the start are loaded.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_messages_beyond_the_limit_are_dropped_until_the_bus_takes_some() {
        let mailbox = BusMailbox::default();
        let message = vec![0; PUBLISHED_BYTES_MAX / 2];
        (0..3).for_each(|_| mailbox.publish(b"c", &message, false));
        assert_eq!((mailbox.take().len(), mailbox.take_dropped(), mailbox.take_dropped()), (1, 2, 0));
        mailbox.note_published(b"c", &message);
        // A message beyond the limit passes alone.
        mailbox.publish(b"c", &vec![0; PUBLISHED_BYTES_MAX], true);
        mailbox.publish(b"c", b"", true);
        assert_eq!((mailbox.take().len(), mailbox.take_dropped()), (1, 1));
        mailbox.note_dropped();
        assert_eq!(mailbox.take_dropped(), 1);
        // Messages in links count for the memory as well as those in the mailbox.
        let before = mailbox.memory();
        mailbox.note_link_bytes(7);
        assert_eq!(mailbox.memory(), before + 7);
    }
}
