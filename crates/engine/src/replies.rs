//! Limits and figures of unread replies.
//!
//! A connection's unread replies stay in memory up to its share, then go to a file. The share is `reply-memory-limit`
//! while few connections have unread replies; if these exceed `reply-memory-total`, it is an equal part of that total.
//! This module only counts and decides; the queues and files belong to the server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use config::Settings;

/// Maximum bytes of one write to a file or read from it: enough for a disk, and small enough to be sent quickly.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Minimum bytes of a piece; a smaller one would split a file into a few replies per write.
const PIECE_BYTES_MIN: u64 = 16 << 10;
/// Size of the memory blocks for unread replies, in bytes. Blocks have one size, so that one connection's free block
/// fits the next. With many sizes, an allocator keeps unused memory of each size, for each thread.
pub const BLOCK_BYTES_MAX: usize = 32 << 10;
/// Pieces reserved in a connection's share: one on its way to the file, one from the file, and the output of one turn
/// before the next check of the queue.
const PIECES_RESERVED: u64 = 3;

/// Maximum bytes of a turn's replies by reference. The kernel copies them in a quarter of a millisecond, for which other connections wait.
const SHARED_TURN_BYTES_MAX: u64 = 1 << 20;

/// Memory is scarce once this part of the total is in use: one sixteenth.
const SCARCE_PART: u64 = 16;
/// The disk is behind once this part of the memory waits for it: one thirty-second, more than a disk needs to stay
/// busy.
const BEHIND_PART: u64 = 32;

/// Maximum bytes of unread replies for an unauthenticated connection: a few errors. Honest clients never need more.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 1024;

/// Present limits of one connection's queue, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Maximum memory.
    pub memory: u64,
    /// Bytes of one write to its file or read from it.
    pub piece: u64,
}

impl Share {
    /// Returns the share of each of `waiting` connections.
    #[must_use]
    pub fn new(limit: u64, total: u64, waiting: u64) -> Share {
        let memory = limit.min(total / waiting.max(1));
        // Small enough that the pieces of many simultaneous writers don't make memory scarce.
        let easy = memory.min(total / SCARCE_PART / waiting.max(1));
        let piece = (easy / (PIECES_RESERVED + 1)).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Share { memory, piece: 1 << piece.ilog2() }
    }

    /// Returns the size from which unread replies go to a file. While memory is scarce, this is low, so that a full
    /// queue goes to disk instead of waiting for ever.
    #[must_use]
    pub fn spills_from(self, is_scarce: bool) -> u64 {
        if is_scarce { self.piece } else { self.memory.saturating_sub(PIECES_RESERVED * self.piece).max(self.piece) }
    }

    /// Returns the size of the queue's blocks in bytes.
    #[must_use]
    pub fn block(self) -> usize {
        (self.piece as usize).min(BLOCK_BYTES_MAX)
    }

    /// Returns the bytes of replies after which a turn ends if the connection has unread replies: the room in its last
    /// block.
    #[must_use]
    pub fn waiting_turn(self) -> usize {
        self.block() / 2
    }

    /// Returns the bytes of replies after which a turn ends: small in relation to a piece, so that many simultaneous
    /// writers stay small, and large in relation to the cost of a system call.
    #[must_use]
    pub fn turn(self) -> u64 {
        self.piece / 4
    }

    /// Returns the bytes of replies after which a turn ends if nearly all of them are values by reference. Their keys usually hold the
    /// memory anyway, and each system call, with the wake-up of the client, costs as much as some 10 KB.
    #[must_use]
    pub fn shared_turn(self) -> usize {
        self.memory.min(SHARED_TURN_BYTES_MAX) as usize
    }

    /// Returns true if a connection whose queue takes `memory` may run more requests.
    #[must_use]
    pub fn has_room(self, memory: u64) -> bool {
        memory + self.piece <= self.memory.max(2 * self.piece)
    }

    /// Returns true if a connection without room may continue. Requires some additional room, so that it doesn't stop
    /// again at once.
    #[must_use]
    pub fn has_room_again(self, memory: u64) -> bool {
        self.has_room(memory + self.piece / 2)
    }
}

/// The reason why a connection's requests wait for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// The connection's memory is full, and is being written to a file, or the client gets a moment to read.
    Memory,
    /// All connections together have reached `reply-memory-total`.
    MemoryTotal,
    /// The disk is behind: connections take turns.
    Pace,
    /// `reply-spill-limit`.
    SpillLimit,
    /// `reply-spill-total`.
    SpillTotal,
    /// `reply-spill-keep-free`.
    KeepFree,
    /// The disk has failed.
    Disk,
}

impl NoRoom {
    /// All reasons.
    pub const ALL: [NoRoom; 7] = [
        NoRoom::Memory,
        NoRoom::MemoryTotal,
        NoRoom::Pace,
        NoRoom::SpillLimit,
        NoRoom::SpillTotal,
        NoRoom::KeepFree,
        NoRoom::Disk,
    ];

    /// Returns the name in INFO.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NoRoom::Memory => "memory_limit",
            NoRoom::MemoryTotal => "memory_total",
            NoRoom::Pace => "spill_pace",
            NoRoom::SpillLimit => "spill_limit",
            NoRoom::SpillTotal => "spill_total",
            NoRoom::KeepFree => "spill_keep_free",
            NoRoom::Disk => "spill_failure",
        }
    }

    /// Returns the text for the log: the cause, and a remedy for operators.
    #[must_use]
    pub fn explained(self) -> &'static str {
        match self {
            NoRoom::Memory => "its memory for replies is used up; see reply-memory-limit",
            NoRoom::MemoryTotal => "the memory for all connections' replies is used up; see reply-memory-total",
            NoRoom::Pace => "the disk of reply-spill-dir doesn't keep up; put it on a faster one",
            NoRoom::SpillLimit => "its spill file is as large as it may be; see reply-spill-limit",
            NoRoom::SpillTotal => "all spill files together are as large as they may be; see reply-spill-total",
            NoRoom::KeepFree => "the disk of reply-spill-dir is nearly full; see reply-spill-keep-free",
            NoRoom::Disk => "its spill file can't be written or read; see reply-spill-dir",
        }
    }
}

/// A gauge or a counter that any thread changes, rarely enough to avoid contention.
#[derive(Default, Debug)]
pub struct Figure(AtomicU64);

impl Figure {
    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds an amount, and returns the sum.
    pub fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Relaxed).wrapping_add(amount)
    }

    /// Subtracts an earlier addition.
    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    /// Replaces a part of the sum.
    pub fn replace(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Relaxed);
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Figures of all connections' replies, for INFO.
#[derive(Default, Debug)]
pub struct ReplyFigures {
    /// Connections with unread replies. Subscribers and monitors have their own limits and aren't counted here.
    pub waiting: Figure,
    /// Memory of the unread replies, in bytes.
    pub memory: Figure,
    /// Part of that memory that is on its way to files, or large enough to be next, in bytes.
    pub leaving: Figure,
    /// Connections with a spill file.
    pub spilling: Figure,
    /// Size of the spill files, including data on the way there, in bytes.
    pub spill_bytes: Figure,
    /// Connections with requests that wait for room.
    pub held: Figure,
    /// Number of times that requests had to wait for room.
    pub holds: Figure,
    /// Bytes written to files so far.
    pub spilled: Figure,
    /// Bytes read back from files so far.
    pub read_back: Figure,
    /// Number of failed writes and reads of files.
    pub spill_failures: Figure,
    /// Connections closed after `reply-stall-timeout`, by reason; see [`NoRoom::ALL`].
    pub stall_closes: [Figure; NoRoom::ALL.len()],
    /// Unauthenticated connections closed because they didn't read.
    pub unauthenticated_closes: Figure,
    /// Lines of MONITOR that were dropped.
    pub monitor_drops: Figure,
}

impl ReplyFigures {
    /// Returns the share of each connection with unread replies.
    #[must_use]
    pub fn share(&self, settings: &Settings) -> Share {
        Share::new(settings.reply_memory_limit.get(), settings.reply_memory_total.get(), self.waiting.get())
    }

    /// Returns true if memory is scarce, so that no connection should take more than it needs.
    #[must_use]
    pub fn is_scarce(&self, settings: &Settings) -> bool {
        self.memory.get() > settings.reply_memory_total.get() / SCARCE_PART
    }

    /// Returns true if the total of memory is exceeded.
    #[must_use]
    pub fn is_used_up(&self, settings: &Settings) -> bool {
        self.memory.get() > settings.reply_memory_total.get()
    }

    /// Returns true if the disk is behind, so that connections that add to its backlog must take turns.
    #[must_use]
    pub fn is_behind(&self, settings: &Settings) -> bool {
        self.leaving.get() > settings.reply_memory_total.get() / BEHIND_PART
    }

    /// Returns the number of connections that may have a turn before the disk is behind, at least one; `None` if it is
    /// behind.
    #[must_use]
    pub fn turns_left(&self, settings: &Settings, share: Share) -> Option<u64> {
        let left = (settings.reply_memory_total.get() / BEHIND_PART).checked_sub(self.leaving.get())?;
        Some((left / share.piece).max(1))
    }

    /// Returns true if there is room for more replies of a connection with `memory` unspilled bytes. While memory is
    /// scarce, only a connection with less than a piece has room: many simultaneous writers must not all fill their
    /// shares because of a slow disk, and the first one leaves room for the others.
    #[must_use]
    pub fn has_room(&self, settings: &Settings, share: Share, memory: u64) -> bool {
        if memory >= share.piece {
            return !self.is_scarce(settings);
        }
        !self.is_used_up(settings)
    }

    /// Resets the counters (CONFIG RESETSTAT); gauges stay.
    pub fn reset(&self) {
        let counters = [
            &self.holds,
            &self.spilled,
            &self.read_back,
            &self.spill_failures,
            &self.unauthenticated_closes,
            &self.monitor_drops,
        ];
        counters.into_iter().chain(&self.stall_closes).for_each(Figure::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_equally_by_connections_with_unread_replies() {
        let share = |waiting| Share::new(1 << 20, 256 << 20, waiting);
        assert_eq!((share(0), share(256).memory), (share(1), share(1).memory));
        assert_eq!((share(16).piece, share(64).piece, share(100).piece), (256 << 10, 64 << 10, 32 << 10));
        assert_eq!(share(1), Share { memory: 1 << 20, piece: 256 << 10 });
        for waiting in 1..20_000 {
            let share = share(waiting);
            assert!(share.memory * waiting <= 256 << 20);
            assert!(share.has_room(0) && share.piece >= PIECE_BYTES_MIN && share.piece as usize >= share.block());
        }
        assert_eq!(share(1024).memory, 256 << 10);
    }

    #[test]
    fn scarce_memory_has_room_for_small_users() {
        let (settings, figures) = (Settings::new(), ReplyFigures::default());
        let share = figures.share(&settings);
        let has_room = |used: u64, memory: u64| {
            figures.memory.replace(figures.memory.get(), used);
            figures.has_room(&settings, share, memory)
        };
        assert!(has_room(16 << 20, share.piece) && !has_room((16 << 20) + 1, share.piece));
        assert!(has_room(256 << 20, share.piece - 1) && !has_room((256 << 20) + 1, 1));
        // A queue without room may go to disk then.
        assert!(share.spills_from(true) <= share.piece);
    }

    #[test]
    fn turns_are_granted_at_the_speed_of_the_disk() {
        let (settings, figures) = (Settings::new(), ReplyFigures::default());
        let share = figures.share(&settings);
        let turns_left = |leaving: u64| {
            figures.leaving.replace(figures.leaving.get(), leaving);
            assert_eq!(figures.turns_left(&settings, share).is_none(), figures.is_behind(&settings));
            figures.turns_left(&settings, share)
        };
        assert_eq!((turns_left(0), turns_left(4 << 20)), (Some(32), Some(16)));
        assert_eq!((turns_left(8 << 20), turns_left((8 << 20) + 1)), (Some(1), None));
    }

    #[test]
    fn the_share_has_room_for_pieces_in_transit() {
        let share = Share::new(1 << 20, 256 << 20, 1);
        assert_eq!(share.spills_from(false), share.piece);
        assert!(share.has_room(3 * share.piece) && !share.has_room(3 * share.piece + 1));
        assert!(!share.has_room_again(3 * share.piece) && share.has_room_again(2 * share.piece));
        // A setting with more memory means that memory is used before the disk.
        let large = Share::new(64 << 20, 256 << 20, 1);
        assert_eq!((large.piece, large.spills_from(false)), (PIECE_BYTES_MAX, 61 << 20));
    }
}
