//! The files of unsent replies, and the threads that write and read them.
//!
//! A worker thread never touches these files. It sends requests, and is woken at their end. A connection's file is a queue: it is written
//! at its end and read at its front, and space that was read is returned to the disk. The queues of a thread are parts of one file
//! (`chunks.rs`), because descriptors are for clients. The file has no name, and disappears with the process in any case.
//!
//! Requests are bounded: a connection has at most one write, one read and one end on its way. Their memory counts as the connection's.

mod chunks;
mod disk;

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use engine::replies::{BLOCK_BYTES_MAX, NoRoom};
use engine::state::Engine;
use resp::reply::Output;

use crate::log;
use crate::mailbox::Mailbox;
use crate::threads;
use crate::time::now_us;
use disk::{Disk, Spools};

/// Threads that write and read files. One is enough for most disks. The second continues while the other slowly frees a large file.
const THREADS: usize = 2;
/// Slices in one vectored write.
const SLICES_AT_ONCE: usize = 64;
/// Bytes of a disk's block, or a multiple: space is returned in this unit.
const BLOCK_BYTES: u64 = 4096;
/// The shortest interval between log lines about disk errors.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// A worker thread's request.
enum Task {
    /// Append this to the file, which is created if needed.
    Write(Output),
    /// Read this many bytes from its front. All of them have been written.
    Read(usize),
    /// Remove the file.
    End,
}

struct Request {
    client: u64,
    /// The requesting thread.
    worker: usize,
    task: Task,
}

/// The result of a request.
pub enum SpillOutcome {
    /// Of a write.
    Wrote {
        /// Bytes that are in the file.
        bytes: u64,
        /// The unwritten replies.
        rest: Output,
        /// The reason for these.
        failure: Option<NoRoom>,
    },
    /// Of a read: the bytes.
    Read(Output),
    /// Of a failed read, which may be requested again.
    NotRead,
}

/// A message for a worker thread.
pub struct Done {
    /// The client, which may be gone.
    pub client: u64,
    /// Bytes of its file on disk.
    pub disk_bytes: u64,
    /// The result.
    pub outcome: SpillOutcome,
}

/// The channels to the threads, shared by all workers.
pub struct Spill {
    threads: Vec<Sender<Request>>,
    /// Results for each worker thread that it has not collected.
    mailboxes: Arc<[Mailbox<Done>]>,
}

impl Spill {
    /// Starts the threads.
    pub fn start(engine: &'static Engine) -> io::Result<Spill> {
        let mailboxes: Arc<[Mailbox<Done>]> = engine.inboxes.iter().map(|_| Mailbox::default()).collect();
        let start = |id: usize| {
            let (sender, receiver) = mpsc::channel();
            let (mailboxes, files) = (mailboxes.clone(), SpillFiles::new(engine, Spools::new(engine)));
            let run = move || serve(engine, files, &receiver, &mailboxes);
            threads::spawn_numbered(&threads::SPILL, id, run).map(|_| sender)
        };
        let threads = (0..THREADS).map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Spill { threads, mailboxes })
    }

    fn ask(&self, worker: usize, client: u64, task: Task) {
        // One thread serves all requests of a connection, in order. The threads live as long as the process.
        let thread = &self.threads[client as usize % self.threads.len()];
        let _ = thread.send(Request { client, worker, task });
    }

    /// Requests to append `output` to a connection's file.
    pub fn write(&self, worker: usize, client: u64, output: Output) {
        self.ask(worker, client, Task::Write(output));
    }

    /// Requests to read the next bytes of a connection's file.
    pub fn read(&self, worker: usize, client: u64, bytes: usize) {
        self.ask(worker, client, Task::Read(bytes));
    }

    /// Requests to remove a connection's file.
    pub fn end(&self, worker: usize, client: u64) {
        self.ask(worker, client, Task::End);
    }

    /// Takes a worker's results since its last call.
    #[must_use]
    pub fn collect(&self, worker: usize) -> Vec<Done> {
        self.mailboxes[worker].take()
    }
}

/// The main function of a thread.
fn serve(engine: &Engine, mut files: SpillFiles<Spools>, requests: &Receiver<Request>, mailboxes: &[Mailbox<Done>]) {
    while let Ok(Request { client, worker, task }) = requests.recv() {
        let event = match task {
            Task::Write(_) => "reply-spill-write",
            Task::Read(_) => "reply-spill-read",
            Task::End => "reply-spill-end",
        };
        let began = Instant::now();
        let outcome = files.run(client, task);
        engine.note_latency(event, began.elapsed(), now_us() / 1_000_000);
        let Some(outcome) = outcome else { continue };
        let done = Done { client, disk_bytes: files.disk_bytes(client), outcome };
        if mailboxes[worker].leave(done) {
            engine.inboxes[worker].wake();
        }
    }
}

/// A connection's file, as a queue.
struct FileQueue<F> {
    file: F,
    /// Bytes before this offset have been returned to the disk.
    given_back: u64,
    /// Bytes before this offset have been read.
    read: u64,
    /// The offset of the next write.
    end: u64,
}

impl<F> FileQueue<F> {
    fn disk_bytes(&self) -> u64 {
        self.end - self.given_back
    }
}

/// One thread's files.
struct SpillFiles<D: Disk> {
    engine: &'static Engine,
    disk: D,
    queues: HashMap<u64, FileQueue<D::File>>,
    last_logged: Option<Instant>,
}

impl<D: Disk> SpillFiles<D> {
    fn new(engine: &'static Engine, disk: D) -> SpillFiles<D> {
        SpillFiles { engine, disk, queues: HashMap::new(), last_logged: None }
    }

    fn disk_bytes(&self, client: u64) -> u64 {
        self.queues.get(&client).map_or(0, FileQueue::disk_bytes)
    }

    /// Performs a worker's request. The end of a file has no result.
    fn run(&mut self, client: u64, task: Task) -> Option<SpillOutcome> {
        match task {
            Task::Write(output) => Some(self.write(client, output)),
            Task::Read(bytes) => Some(self.read(client, bytes)),
            Task::End => {
                self.end(client);
                None
            }
        }
    }

    fn write(&mut self, client: u64, mut rest: Output) -> SpillOutcome {
        let asked = rest.len() as u64;
        let failure = self.try_write(client, &mut rest).err();
        let bytes = asked - rest.len() as u64;
        let figures = &self.engine.replies;
        figures.spilled.add(bytes);
        // The worker has counted all the bytes.
        figures.spill_bytes.sub(asked - bytes);
        let failure = failure.map(|failure| self.note_failure("written", failure));
        SpillOutcome::Wrote { bytes, rest, failure }
    }

    /// Writes as much as there is room for. An error without a text means the limit `reply-spill-keep-free`.
    fn try_write(&mut self, client: u64, rest: &mut Output) -> Result<(), Option<io::Error>> {
        if !self.queues.contains_key(&client) {
            let file = self.disk.create()?;
            self.queues.insert(client, FileQueue { file, given_back: 0, read: 0, end: 0 });
            self.engine.replies.spilling.add(1);
        }
        let Some(queue) = self.queues.get_mut(&client) else { return Ok(()) };
        let keep_free = self.engine.settings.reply_spill_keep_free.get();
        if self.disk.free_bytes(&queue.file)? < keep_free.saturating_add(rest.len() as u64) {
            return Err(None);
        }
        while !rest.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_AT_ONCE];
            let mut count = 0;
            for (slot, slice) in slices.iter_mut().zip(rest.slices()) {
                *slot = IoSlice::new(slice);
                count += 1;
            }
            match self.disk.write(&mut queue.file, &slices[..count], queue.end) {
                Ok(0) => return Err(Some(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    queue.end += written as u64;
                    rest.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Some(error)),
            }
        }
        Ok(())
    }

    fn read(&mut self, client: u64, bytes: usize) -> SpillOutcome {
        match self.try_read(client, bytes) {
            Ok(read) => {
                self.engine.replies.read_back.add(read.len() as u64);
                self.give_back(client);
                SpillOutcome::Read(read)
            }
            Err(error) => {
                self.note_failure("read", Some(error));
                SpillOutcome::NotRead
            }
        }
    }

    fn try_read(&mut self, client: u64, bytes: usize) -> io::Result<Output> {
        let queue = self.queues.get_mut(&client).ok_or(io::ErrorKind::NotFound)?;
        let mut read = Output::default();
        while read.len() < bytes {
            let mut block = vec![0; (bytes - read.len()).min(BLOCK_BYTES_MAX)];
            fill(&mut self.disk, &queue.file, &mut block, queue.read + read.len() as u64)?;
            read.append(&mut Output::from(block));
        }
        queue.read += bytes as u64;
        Ok(read)
    }

    /// Returns the space of read bytes to the disk, as far as the disk can.
    fn give_back(&mut self, client: u64) {
        let Some(queue) = self.queues.get_mut(&client) else { return };
        let before = queue.disk_bytes();
        if queue.read == queue.end {
            if self.disk.empty(&mut queue.file).is_ok() {
                (queue.given_back, queue.read, queue.end) = (0, 0, 0);
            }
        } else {
            let until = queue.read / BLOCK_BYTES * BLOCK_BYTES;
            // A disk that can't free parts frees the file once everything has been read.
            if until > queue.given_back && self.disk.give_back(&mut queue.file, queue.given_back, until).is_ok() {
                queue.given_back = until;
            }
        }
        self.engine.replies.spill_bytes.sub(before - queue.disk_bytes());
    }

    fn end(&mut self, client: u64) {
        if let Some(queue) = self.queues.remove(&client) {
            let bytes = queue.disk_bytes();
            // The space is free only now.
            self.disk.remove(queue.file);
            self.engine.replies.spill_bytes.sub(bytes);
            self.engine.replies.spilling.sub(1);
        }
    }

    fn note_failure(&mut self, what: &str, error: Option<io::Error>) -> NoRoom {
        let Some(error) = error else { return NoRoom::KeepFree };
        self.engine.replies.spill_failures.add(1);
        if self.last_logged.is_none_or(|last| last.elapsed() >= LOG_EVERY) {
            self.last_logged = Some(Instant::now());
            log::warning(format!(
                "Unread replies can't be {what} in {}: {error}; their connections wait (reply-spill-dir)",
                disk::directory(self.engine),
            ));
        }
        NoRoom::Disk
    }
}

/// Reads all of `into` from a position.
fn fill<D: Disk>(disk: &mut D, file: &D::File, into: &mut [u8], at: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match disk.read(file, &mut into[filled..], at + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
