//! A bounded queue of blocks between the thread that reads the inputs and the thread that talks to the server.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::limits::{BLOCKS_BYTES, SPARE_BYTES};

/// The putter wakes up when the queue has shrunk to this size. A wakeup for every block would cost both threads more
/// than the block.
const BLOCKS_BYTES_LOW: usize = BLOCKS_BYTES / 2;

/// A bounded queue of blocks. A block counts until the taker gives it back.
pub struct BlockChannel {
    state: Mutex<ChannelState>,
    room: Condvar,
    /// An eventfd. It is readable after a put that followed a take without result.
    filled: OwnedFd,
}

#[derive(Default)]
struct ChannelState {
    queue: VecDeque<Block>,
    spare: Vec<Block>,
    /// Memory of the spare blocks.
    spare_bytes: usize,
    /// Bytes of all blocks between their put and their return.
    bytes: usize,
    end: Option<Result<(), Failure>>,
    taker_waits: bool,
    /// Size of the block that the putter is waiting to put.
    waiting_bytes: usize,
    stopped: bool,
}

/// Result of [`BlockChannel::take`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made once for thousands of commands, and at once taken apart")]
pub enum Taken {
    /// The next block.
    Block(Block),
    /// No block is available now. [`BlockChannel::fd`] becomes readable when this changes.
    Nothing,
    /// No more blocks will come, because the inputs have ended or can't be read any further.
    End(Result<(), Failure>),
}

impl BlockChannel {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Returns an error if the process has too many open files.
    pub fn new() -> Result<BlockChannel, Failure> {
        let filled = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| Failure::new(Exit::Input, format!("can't open an event descriptor: {error}")))?;
        Ok(BlockChannel { state: Mutex::default(), room: Condvar::new(), filled })
    }

    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty block to fill.
    pub fn spare(&self) -> Block {
        let mut state = self.lock();
        let Some(block) = state.spare.pop() else { return Block::default() };
        state.spare_bytes -= block.kept_bytes();
        block
    }

    /// Appends a block, after waiting for room. Returns false if the queue was stopped.
    pub fn put(&self, block: Block) -> bool {
        let bytes = block.memory_bytes();
        let mut state = self.lock();
        while state.bytes > 0 && state.bytes + bytes > BLOCKS_BYTES && !state.stopped {
            state.waiting_bytes = bytes;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting_bytes = 0;
        state.bytes += bytes;
        state.queue.push_back(block);
        let stopped = state.stopped;
        self.wake(state);
        !stopped
    }

    /// Marks the end of the blocks, with its reason.
    pub fn end(&self, end: Result<(), Failure>) {
        let mut state = self.lock();
        state.end = Some(end);
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, ChannelState>) {
        if std::mem::take(&mut state.taker_waits) {
            drop(state);
            // The counter can't overflow, so the write can't fail.
            let _ = rustix::io::write(&self.filled, &1u64.to_ne_bytes());
        }
    }

    /// Returns the next block without waiting.
    pub fn take(&self) -> Taken {
        let mut state = self.lock();
        if let Some(block) = state.queue.pop_front() {
            return Taken::Block(block);
        }
        if let Some(end) = &state.end {
            return Taken::End(end.clone());
        }
        let _ = rustix::io::read(&self.filled, &mut [0; 8]);
        state.taker_waits = true;
        // The taker may hold all blocks that fit. The putter then checks if its block fits, too.
        self.room.notify_one();
        Taken::Nothing
    }

    /// Returns a block to the queue.
    pub fn give_back(&self, mut block: Block) {
        let bytes = block.memory_bytes();
        block.clear();
        let mut state = self.lock();
        state.bytes -= bytes;
        if state.spare_bytes + block.kept_bytes() <= SPARE_BYTES {
            state.spare_bytes += block.kept_bytes();
            state.spare.push(block);
        }
        let has_room = state.bytes <= BLOCKS_BYTES_LOW;
        drop(state);
        if has_room {
            self.room.notify_one();
        }
    }

    /// Returns true if the putter waits for blocks to be given back, and no block is left to take.
    pub fn is_exhausted(&self) -> bool {
        let state = self.lock();
        state.waiting_bytes > 0 && state.bytes + state.waiting_bytes > BLOCKS_BYTES && state.queue.is_empty()
    }

    /// Stops the queue: the putter's calls return false.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_one();
    }

    /// Waits until a block may be available, or for a short time.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(&self.filled, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // The caller checks again in any case.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Returns the descriptor to poll after [`Taken::Nothing`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.filled.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn block(bytes: usize, number: u64) -> Block {
        let mut block = Block::default();
        block.first = number;
        block.command(
            1,
            || b"",
            |out| {
                out.resize(bytes, b'x');
                Ok(crate::block::Head { name: 0..1, argument: 0..0 })
            },
        );
        block
    }

    #[test]
    fn blocks_come_in_order_and_in_bounded_memory() {
        let block_channel = Arc::new(BlockChannel::new().unwrap());
        let putter = block_channel.clone();
        let thread = std::thread::spawn(move || {
            // Every hundredth block exceeds the limit and must pass alone.
            for number in 0..500 {
                assert!(putter.put(block(if number % 100 == 7 { BLOCKS_BYTES + 1 } else { BLOCKS_BYTES / 5 }, number)));
            }
            putter.end(Ok(()));
        });
        let (mut expected, mut held) = (0, VecDeque::new());
        loop {
            match block_channel.take() {
                Taken::Block(block) => {
                    assert_eq!(block.first, expected);
                    expected += 1;
                    held.push_back(block);
                    let bytes: usize = held.iter().map(Block::memory_bytes).sum();
                    assert!(bytes <= BLOCKS_BYTES || held.len() == 1, "{bytes} in {} blocks", held.len());
                }
                // The putter waits for room or is about to put. Giving a block back resolves both.
                Taken::Nothing => {
                    if let Some(block) = held.pop_front() {
                        block_channel.give_back(block);
                    }
                }
                Taken::End(end) => {
                    assert_eq!(end, Ok(()));
                    break;
                }
            }
        }
        assert_eq!(expected, 500);
        thread.join().unwrap();
    }

    #[test]
    fn a_putter_that_waits_for_room_is_released_by_a_stop() {
        let block_channel = Arc::new(BlockChannel::new().unwrap());
        assert!(block_channel.put(block(BLOCKS_BYTES, 0)));
        let putter = block_channel.clone();
        let thread = std::thread::spawn(move || putter.put(block(10, 1)));
        block_channel.stop();
        assert!(!thread.join().unwrap());
    }
}
