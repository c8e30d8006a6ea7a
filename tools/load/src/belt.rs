//! Between the thread that reads the inputs and the one that talks to the server: blocks on their way, in bounded
//! memory.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::limits::{BLOCKS_BYTES, SPARE_BYTES};

/// The putter is woken when so much is left: being woken for every block would cost it, and the thread that it
/// displaces, more than the block.
const BLOCKS_BYTES_LOW: usize = BLOCKS_BYTES / 2;

/// A bounded queue of blocks. What was taken from it counts until it is given back.
pub struct Belt {
    state: Mutex<BeltState>,
    room: Condvar,
    /// Readable when something was put while the taker had found nothing.
    filled: OwnedFd,
}

#[derive(Default)]
struct BeltState {
    queue: VecDeque<Block>,
    spare: Vec<Block>,
    /// What those keep of memory.
    spare_bytes: usize,
    /// Of the blocks that were put and not given back.
    bytes: usize,
    end: Option<Result<(), Failure>>,
    taker_waits: bool,
    /// What the putter waits to put.
    waiting_bytes: usize,
    stopped: bool,
}

/// What [`Belt::take`] found.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made once for thousands of commands, and at once taken apart")]
pub enum Taken {
    /// The next block.
    Block(Block),
    /// Nothing yet; [`Belt::fd`] becomes readable when that changes.
    Nothing,
    /// Nothing more, since the inputs ended or can't be read any further.
    End(Result<(), Failure>),
}

impl Belt {
    /// An empty belt.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> Result<Belt, Failure> {
        let filled = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| Failure::new(Exit::Input, format!("can't open an event descriptor: {error}")))?;
        Ok(Belt { state: Mutex::default(), room: Condvar::new(), filled })
    }

    fn lock(&self) -> MutexGuard<'_, BeltState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty block to fill.
    pub fn spare(&self) -> Block {
        let mut state = self.lock();
        let Some(block) = state.spare.pop() else { return Block::default() };
        state.spare_bytes -= block.kept_bytes();
        block
    }

    /// Puts a block behind the others, once there is room. False if the belt was stopped.
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

    /// Says that nothing will follow, and why.
    pub fn end(&self, end: Result<(), Failure>) {
        let mut state = self.lock();
        state.end = Some(end);
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, BeltState>) {
        if std::mem::take(&mut state.taker_waits) {
            drop(state);
            // The counter can't overflow, so nothing can fail.
            let _ = rustix::io::write(&self.filled, &1u64.to_ne_bytes());
        }
    }

    /// The next block, without waiting.
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
        // What is out may be all that there may be: then there is room for as much as fits beside it.
        self.room.notify_one();
        Taken::Nothing
    }

    /// Gives a block back.
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

    /// True if the putter waits for room until blocks are given back, while nothing is left to be taken.
    pub fn is_exhausted(&self) -> bool {
        let state = self.lock();
        state.waiting_bytes > 0 && state.bytes + state.waiting_bytes > BLOCKS_BYTES && state.queue.is_empty()
    }

    /// Says that no more blocks are wanted.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_one();
    }

    /// Waits until there may be something, or a moment is over.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(&self.filled, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // The caller checks again anyway.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// What to wait on when there was nothing.
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
        let belt = Arc::new(Belt::new().unwrap());
        let putter = belt.clone();
        let thread = std::thread::spawn(move || {
            // Every hundredth block is larger than all that is allowed: it must travel alone.
            for number in 0..500 {
                assert!(putter.put(block(if number % 100 == 7 { BLOCKS_BYTES + 1 } else { BLOCKS_BYTES / 5 }, number)));
            }
            putter.end(Ok(()));
        });
        let (mut expected, mut held) = (0, VecDeque::new());
        loop {
            match belt.take() {
                Taken::Block(block) => {
                    assert_eq!(block.first, expected);
                    expected += 1;
                    held.push_back(block);
                    let bytes: usize = held.iter().map(Block::memory_bytes).sum();
                    assert!(bytes <= BLOCKS_BYTES || held.len() == 1, "{bytes} in {} blocks", held.len());
                }
                // The putter waits for room or is about to put; both are over when a block is given back.
                Taken::Nothing => {
                    if let Some(block) = held.pop_front() {
                        belt.give_back(block);
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
        let belt = Arc::new(Belt::new().unwrap());
        assert!(belt.put(block(BLOCKS_BYTES, 0)));
        let putter = belt.clone();
        let thread = std::thread::spawn(move || putter.put(block(10, 1)));
        belt.stop();
        assert!(!thread.join().unwrap());
    }
}
