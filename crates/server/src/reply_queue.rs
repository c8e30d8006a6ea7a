//! A connection's unsent replies: in memory, and beyond that in a file.
//!
//! While everything fits into memory, the queue is only the output that replies are written to. Once a part is in a file, the queue is a
//! chain, in the order of sending:
//!
//! ```text
//!   head            file                           piece              output
//!   read back,      written and not read back;     on its way to      where replies are
//!   sent next       its front on its way to head   the file           written
//! ```
//!
//! The chain ends as soon as nothing is left in the file and on the way. This module knows neither sockets nor files: its caller asks for
//! the next write and read, and reports the results in the same order.

use resp::reply::Output;

/// Replies on their way to the file.
struct Piece {
    /// Bytes to send.
    bytes: u64,
    /// Bytes of memory.
    memory: u64,
}

/// The part of a queue before its output.
#[derive(Default)]
struct Spilled {
    head: Output,
    /// Bytes in the file, including those that are being read.
    stored: u64,
    /// Bytes that are being read.
    reading: usize,
    piece: Option<Piece>,
}

impl Spilled {
    fn is_only_head(&self) -> bool {
        self.stored == 0 && self.piece.is_none()
    }
}

/// The unsent replies of a connection.
#[derive(Default)]
pub struct ReplyQueue {
    /// New replies are written here.
    pub output: Output,
    spilled: Option<Box<Spilled>>,
    /// True if the file is not needed any more.
    file_is_done: bool,
}

impl ReplyQueue {
    /// Bytes of unsent replies, in memory and in the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        let output = self.output.len() as u64;
        let spilled = self.spilled.as_ref();
        output + spilled.map_or(0, |s| s.head.len() as u64 + s.stored + s.piece.as_ref().map_or(0, |p| p.bytes))
    }

    /// Returns true if there are no unsent replies.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spilled.is_none() && self.output.is_empty()
    }

    /// Bytes of memory of the queue, including the bytes on their way to or from the file.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let output = self.output.memory() as u64;
        let before =
            |s: &Spilled| s.head.memory() as u64 + s.reading as u64 + s.piece.as_ref().map_or(0, |piece| piece.memory);
        output + self.spilled.as_ref().map_or(0, |s| before(s))
    }

    /// Bytes of memory behind the contents of the file that have not been written to it.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.output.memory() as u64 + self.writing()
    }

    /// Bytes of memory on their way to the file.
    #[must_use]
    pub fn writing(&self) -> u64 {
        self.spilled.as_ref().and_then(|s| s.piece.as_ref()).map_or(0, |piece| piece.memory)
    }

    /// Segments of the queue. The file is one.
    #[must_use]
    pub fn segments(&self) -> usize {
        let before = |s: &Spilled| s.head.segments() + usize::from(s.stored > 0) + usize::from(s.piece.is_some());
        self.output.segments() + self.spilled.as_ref().map_or(0, |s| before(s))
    }

    /// Returns true if part of the queue is in a file, or on its way there.
    #[must_use]
    pub fn is_spilling(&self) -> bool {
        self.spilled.is_some()
    }

    /// The replies to send next. May be empty in a non-empty queue: the rest is in the file then.
    #[inline]
    pub fn front(&mut self) -> &mut Output {
        if self.spilled.is_some() {
            self.join();
        }
        match &mut self.spilled {
            Some(spilled) => &mut spilled.head,
            None => &mut self.output,
        }
    }

    /// Ends the chain if nothing is in the file.
    fn join(&mut self) {
        if let Some(mut spilled) = self.spilled.take_if(|s| s.is_only_head()) {
            spilled.head.append(&mut self.output);
            self.output = spilled.head;
            self.file_is_done = true;
        }
    }

    /// Returns true once after the file has become unneeded.
    #[must_use]
    pub fn take_file_is_done(&mut self) -> bool {
        std::mem::take(&mut self.file_is_done)
    }

    /// Directs replies through a file from now on. The front of the queue that takes next to no memory stays.
    pub fn begin_spilling(&mut self) {
        if self.spilled.is_none() {
            self.spilled = Some(Box::new(Spilled { head: self.output.take_runs(), ..Spilled::default() }));
        }
    }

    /// Returns the next replies for the file's end, if they take at least `memory_min` bytes of memory and no others are on their way.
    #[must_use]
    pub fn next_write(&mut self, memory_min: u64) -> Option<Output> {
        let spilled = self.spilled.as_mut()?;
        if spilled.piece.is_some() || (self.output.memory() as u64) < memory_min || self.output.is_empty() {
            return None;
        }
        let output = std::mem::take(&mut self.output);
        spilled.piece = Some(Piece { bytes: output.len() as u64, memory: output.memory() as u64 });
        Some(output)
    }

    /// Notes that `written` bytes of the piece are in the file. The rest stays in memory.
    pub fn wrote(&mut self, written: u64, mut rest: Output) {
        let Some(spilled) = self.spilled.as_mut() else { return };
        spilled.piece = None;
        spilled.stored += written;
        if !rest.is_empty() {
            rest.append(&mut self.output);
            self.output = rest;
        }
    }

    /// Returns the number of bytes to read from the file's front, at most `piece`, if there are any and little is left to send before them.
    #[must_use]
    pub fn next_read(&mut self, piece: u64) -> Option<usize> {
        let spilled = self.spilled.as_mut()?;
        if spilled.reading > 0 || spilled.stored == 0 || spilled.head.memory() as u64 > piece / 2 {
            return None;
        }
        spilled.reading = spilled.stored.min(piece) as usize;
        Some(spilled.reading)
    }

    /// Adds the bytes read from the file, or none after a failure, which is tried again.
    pub fn read(&mut self, mut bytes: Output) {
        let Some(spilled) = self.spilled.as_mut() else { return };
        spilled.reading = 0;
        spilled.stored -= bytes.len() as u64;
        spilled.head.append(&mut bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use store::random::Random;

    use super::*;

    /// A file, and the bytes on their way to and from it.
    #[derive(Default)]
    struct File {
        bytes: VecDeque<u8>,
        writing: Option<Output>,
        reading: usize,
    }

    impl File {
        fn ask(&mut self, queue: &mut ReplyQueue, piece: u64) {
            if let Some(output) = queue.next_write(piece) {
                assert!(self.writing.replace(output).is_none());
            }
            if let Some(count) = queue.next_read(piece) {
                assert_eq!(std::mem::replace(&mut self.reading, count), 0);
            }
        }

        /// Writes the piece, or only its beginning.
        fn write(&mut self, queue: &mut ReplyQueue, count: impl FnOnce(usize) -> usize) {
            let Some(mut output) = self.writing.take() else { return };
            let count = count(output.len());
            self.bytes.extend(&output.slices().collect::<Vec<_>>().concat()[..count]);
            output.advance(count);
            queue.wrote(count as u64, output);
        }

        fn read(&mut self, queue: &mut ReplyQueue, fails: bool) {
            if std::mem::take(&mut self.reading) > 0 {
                let count = if fails { 0 } else { queue.spilled.as_ref().unwrap().reading };
                queue.read(Output::from(self.bytes.drain(..count).collect::<Vec<u8>>()));
            }
        }
    }

    fn send(queue: &mut ReplyQueue, model: &mut VecDeque<u8>, count: usize) {
        let front = queue.front();
        let count = count.min(front.len());
        let sent = front.slices().collect::<Vec<_>>().concat();
        assert!(model.drain(..count).eq(sent.into_iter().take(count)));
        front.advance(count);
    }

    #[test]
    fn the_order_is_kept_however_parts_go_to_the_file_and_come_back() {
        let large = Arc::new((0..40_000u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let mut below = |n: u64| random.next() % n;
            let (mut queue, mut model, mut file) = (ReplyQueue::default(), VecDeque::new(), File::default());
            let piece = 1 + below(30_000);
            let steps = below(200);
            for step in 0..steps {
                match below(12) {
                    0..3 => {
                        let reply = format!(":{step}\r\n").repeat(below(4000) as usize);
                        queue.output.extend(reply.as_bytes());
                        model.extend(reply.bytes());
                    }
                    3 => {
                        queue.output.extend_shared(large.clone());
                        model.extend(large.iter());
                    }
                    4 => queue.output.fold(),
                    5 => queue.begin_spilling(),
                    6 => file.write(&mut queue, |len| len),
                    7 => file.write(&mut queue, |len| below(len as u64 + 1) as usize),
                    8 => file.read(&mut queue, false),
                    9 => file.read(&mut queue, true),
                    _ => send(&mut queue, &mut model, below(50_000) as usize),
                }
                file.ask(&mut queue, piece);
                queue.front();
                assert_eq!((queue.len(), queue.is_empty()), (model.len() as u64, model.is_empty()));
                assert!(queue.memory() >= queue.output.memory() as u64);
                if queue.take_file_is_done() {
                    assert!(file.bytes.is_empty() && file.writing.is_none() && !queue.is_spilling());
                }
            }
            // The queue ends empty.
            while !queue.is_empty() {
                file.ask(&mut queue, piece);
                file.write(&mut queue, |len| len);
                file.read(&mut queue, false);
                send(&mut queue, &mut model, usize::MAX);
                queue.front();
            }
            assert!(model.is_empty() && queue.memory() == 0);
        }
    }

    #[test]
    fn replies_without_memory_stay_out_of_the_file() {
        let mut queue = ReplyQueue::default();
        queue.output.extend(&b"+OK\r\n".repeat(100_000));
        queue.output.fold();
        queue.output.extend(b":1\r\n");
        queue.begin_spilling();
        assert_eq!(queue.next_write(1).map(|piece| piece.len()), Some(4));
        assert_eq!(queue.front().len(), 500_000);
    }
}
