//! Replies that their clients have not read yet: how much of them may be where, and how much there is.
//!
//! A connection's replies wait in memory up to its share, then in a file. The share is `reply-memory-limit` while few
//! connections have replies that wait; when there are more than `reply-memory-total` has room for, it is an equal part
//! of that. This module only counts and decides; the queues and files are the server's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::Settings;

/// Bytes that are written to a file, or read from it, at once: enough for a disk, little enough to be sent in no time.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Below this a file would be written a few replies at a time.
const PIECE_BYTES_MIN: u64 = 16 << 10;
/// Bytes of the blocks that memory for replies that wait is taken in: of one size, so that what one connection gives
/// back fits the next. An allocator keeps memory of many sizes, and for each thread, that is not used.
pub const BLOCK_BYTES_MAX: usize = 32 << 10;
/// Parts of its share that a connection needs beside what just waits: what is on its way to the file, what comes from
/// it, and what a turn may add before the queue is looked at.
const PIECES_RESERVED: u64 = 3;

/// Memory is scarce once this part of what all connections may take is in use.
const SCARCE_PART: u64 = 16;
/// The disk is behind once this part of it waits for the disk: more than a disk needs to be kept busy.
const BEHIND_PART: u64 = 32;

/// Bytes that may wait for a connection that has yet to authenticate: a few errors. More is queued by no client that
/// means well.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 1024;

/// What one connection's queue may take at the moment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Memory that it is not to exceed.
    pub memory: u64,
    /// What is written to its file, or read from it, at once.
    pub piece: u64,
}

impl Share {
    /// The share of each of `waiting` connections.
    #[must_use]
    pub fn new(limit: u64, total: u64, waiting: u64) -> Share {
        let memory = limit.min(total / waiting.max(1));
        // With many that write at once, so that all their pieces together don't make memory scarce.
        let easy = memory.min(total / SCARCE_PART / waiting.max(1));
        let piece = (easy / (PIECES_RESERVED + 1)).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Share { memory, piece: 1 << piece.ilog2() }
    }

    /// From how much on what waits is put into a file, if its client doesn't read. While memory is scarce, a queue that
    /// has no room for more must be put on disk, or it would wait for ever.
    #[must_use]
    pub fn spills_from(self, is_scarce: bool) -> u64 {
        if is_scarce { self.piece } else { self.memory.saturating_sub(PIECES_RESERVED * self.piece).max(self.piece) }
    }

    /// Bytes of the blocks that the queue is made of.
    #[must_use]
    pub fn block(self) -> usize {
        (self.piece as usize).min(BLOCK_BYTES_MAX)
    }

    /// Bytes of replies after which the turn of a connection ends that has replies waiting: what its last block has
    /// room for.
    #[must_use]
    pub fn waiting_turn(self) -> usize {
        self.block() / 2
    }

    /// Bytes of replies after which a connection's turn ends: little beside a piece, so that those of many connections
    /// that write at once stay little, and much beside what a system call costs.
    #[must_use]
    pub fn turn(self) -> u64 {
        self.piece / 4
    }

    /// Whether a connection with a queue that takes `memory` may run more requests.
    #[must_use]
    pub fn has_room(self, memory: u64) -> bool {
        memory + self.piece <= self.memory.max(2 * self.piece)
    }

    /// Whether one that had no room may go on: with some room more, so that it doesn't stop again at once.
    #[must_use]
    pub fn has_room_again(self, memory: u64) -> bool {
        self.has_room(memory + self.piece / 2)
    }
}

/// Why a connection's requests wait for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// Its memory is full, and is just being written to a file or given a moment to be read.
    Memory,
    /// All connections together have reached `reply-memory-total`.
    MemoryTotal,
    /// The disk is behind: they take turns.
    Pace,
    /// `reply-spill-limit`.
    SpillLimit,
    /// `reply-spill-total`.
    SpillTotal,
    /// `reply-spill-keep-free`.
    KeepFree,
    /// The disk fails.
    Disk,
}

impl NoRoom {
    /// All of them.
    pub const ALL: [NoRoom; 7] = [
        NoRoom::Memory,
        NoRoom::MemoryTotal,
        NoRoom::Pace,
        NoRoom::SpillLimit,
        NoRoom::SpillTotal,
        NoRoom::KeepFree,
        NoRoom::Disk,
    ];

    /// What INFO calls it.
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

    /// What the log says of it: the cause, and what an operator can do.
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

/// A figure that goes up and down, or only up. Any thread changes it; seldom enough not to matter.
#[derive(Default, Debug)]
pub struct Figure(AtomicU64);

impl Figure {
    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds, and returns the sum.
    pub fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Relaxed).wrapping_add(amount)
    }

    /// Takes away what was added before.
    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    /// Counts something as `after` that was counted as `before`.
    pub fn replace(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Relaxed);
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// What INFO shows of all connections' replies.
#[derive(Default, Debug)]
pub struct ReplyFigures {
    /// Connections that have replies waiting. Subscribers and monitors have limits of their own, and aren't counted
    /// here.
    pub waiting: Figure,
    /// Bytes of memory that those replies take.
    pub memory: Figure,
    /// Bytes of that memory that are on their way to files, or large enough to be next.
    pub leaving: Figure,
    /// Connections with a spill file.
    pub spilling: Figure,
    /// Bytes of disk that the files take, and that are on their way there.
    pub spill_bytes: Figure,
    /// Connections that have requests waiting for room.
    pub held: Figure,
    /// How often requests had to wait for room.
    pub holds: Figure,
    /// Bytes written to files so far.
    pub spilled: Figure,
    /// Bytes read back from files so far.
    pub read_back: Figure,
    /// Writes and reads of files that failed.
    pub spill_failures: Figure,
    /// Connections closed after `reply-stall-timeout`, by what there was no room in; see [`NoRoom::ALL`].
    pub stall_closes: [Figure; NoRoom::ALL.len()],
    /// Connections closed because they had yet to authenticate and didn't read.
    pub unauthenticated_closes: Figure,
    /// Lines of MONITOR that were dropped.
    pub monitor_drops: Figure,
}

impl ReplyFigures {
    /// The share of each connection that has replies waiting, and of one that is to join them.
    #[must_use]
    pub fn share(&self, settings: &Settings) -> Share {
        Share::new(settings.reply_memory_limit.get(), settings.reply_memory_total.get(), self.waiting.get())
    }

    /// Whether so much of the memory for all connections is in use that no connection should take more than it needs.
    #[must_use]
    pub fn is_scarce(&self, settings: &Settings) -> bool {
        self.memory.get() > settings.reply_memory_total.get() / SCARCE_PART
    }

    /// Whether all of it is in use.
    #[must_use]
    pub fn is_used_up(&self, settings: &Settings) -> bool {
        self.memory.get() > settings.reply_memory_total.get()
    }

    /// Whether so much waits for the disk that a connection that makes more of it has to wait for a turn.
    #[must_use]
    pub fn is_behind(&self, settings: &Settings) -> bool {
        self.leaving.get() > settings.reply_memory_total.get() / BEHIND_PART
    }

    /// How many connections may have their turns before the disk is behind, and at least one; `None` if it is.
    #[must_use]
    pub fn turns_left(&self, settings: &Settings, share: Share) -> Option<u64> {
        let left = (settings.reply_memory_total.get() / BEHIND_PART).checked_sub(self.leaving.get())?;
        Some((left / share.piece).max(1))
    }

    /// Whether the memory for all connections has room for more replies of one of which `memory` isn't on disk already.
    /// Once it is scarce, only for one of which that is less than a piece: many that write at once don't all fill their
    /// shares because the disk is slow, and one that came first and took much leaves something to the others.
    #[must_use]
    pub fn has_room(&self, settings: &Settings, share: Share, memory: u64) -> bool {
        if memory >= share.piece {
            return !self.is_scarce(settings);
        }
        !self.is_used_up(settings)
    }

    /// Starts the counters over (CONFIG RESETSTAT); what is present stays.
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
    fn memory_is_shared_equally_by_those_whose_replies_wait() {
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
    fn when_memory_is_scarce_there_is_room_for_those_that_take_little() {
        let (settings, figures) = (Settings::new(), ReplyFigures::default());
        let share = figures.share(&settings);
        let has_room = |used: u64, memory: u64| {
            figures.memory.replace(figures.memory.get(), used);
            figures.has_room(&settings, share, memory)
        };
        assert!(has_room(16 << 20, share.piece) && !has_room((16 << 20) + 1, share.piece));
        assert!(has_room(256 << 20, share.piece - 1) && !has_room((256 << 20) + 1, 1));
        // A queue that has no room then may go to disk instead.
        assert!(share.spills_from(true) <= share.piece);
    }

    #[test]
    fn turns_are_given_as_fast_as_the_disk_takes_what_they_make() {
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
    fn there_is_room_for_what_is_on_its_way() {
        let share = Share::new(1 << 20, 256 << 20, 1);
        assert_eq!(share.spills_from(false), share.piece);
        assert!(share.has_room(3 * share.piece) && !share.has_room(3 * share.piece + 1));
        assert!(!share.has_room_again(3 * share.piece) && share.has_room_again(2 * share.piece));
        // A setting that allows more memory asks for it to be used before the disk is.
        let large = Share::new(64 << 20, 256 << 20, 1);
        assert_eq!((large.piece, large.spills_from(false)), (PIECE_BYTES_MAX, 61 << 20));
    }
}
