//! Moves bytes between the flight and one connection, until everything is answered or the connection breaks.
//!
//! One thread writes and reads. It also reads while it waits to write, so that a server that stops reading until its
//! replies are taken can't cause a deadlock.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use client::Stream;
use resp::skim::Skimmer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::block_channel::{BlockChannel, Taken};
use crate::exit::{Exit, Failure};
use crate::flight::Flight;
use crate::interrupt::Interrupt;
use crate::limits::TRANSACTION_BYTES;
use crate::progress::{Figures, ProgressDisplay};
use crate::report::Report;

/// Bytes per read of the connection.
const READ_BYTES: usize = 128 << 10;
/// Maximum wait between checks of the clock and of signals.
const TICK: Duration = Duration::from_millis(100);
/// Minimum number of unanswered commands for a nap: the server is then busy for far longer than the nap.
const NAP_COMMANDS: u64 = 5_000;
/// Duration of the first nap. Replies accumulate during a nap, so that the server isn't slowed down by a wakeup for
/// every few of them.
const NAP: Duration = Duration::from_micros(100);
/// Maximum number of naps in a row, each twice as long as the previous one: 1.5 milliseconds in total. For a slower
/// server, polling costs less than more naps.
const NAPS_MAX: u32 = 4;
/// Beginning of the reply to an invalid request. It belongs to no command and is the connection's last reply.
const PROTOCOL_ERROR: &[u8] = b"ERR Protocol error";
/// Time limit for pending replies after an interrupt.
const GRACE: Duration = Duration::from_secs(5);

/// State of a load without its connection.
pub struct Load<'l> {
    /// Source of blocks.
    pub block_channel: &'l BlockChannel,
    /// Unanswered commands.
    pub flight: Flight,
    /// Destination of errors.
    pub report: Report,
    /// Shows the progress.
    pub progress: ProgressDisplay,
    /// State of Ctrl-C and SIGTERM.
    pub interrupt: Interrupt,
    /// True if the first error that no earlier run has reported ends the load.
    pub stop_on_error: bool,
    /// Maximum time without a reply; `None` is unlimited.
    pub silence_max: Option<Duration>,
    /// Result of reading the inputs, after their end.
    pub input_end: Option<Result<(), Failure>>,
}

/// Reason why a connection is no longer usable.
#[derive(Debug)]
pub enum Ended {
    /// The connection broke, with a description.
    Broken(String),
    /// The load can't continue over any connection.
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

impl Load<'_> {
    /// Takes blocks from the queue while the flight needs them. Returns true if anything changed.
    pub fn refill(&mut self) -> bool {
        let mut took = false;
        while self.input_end.is_none() && self.flight.wants_block() {
            match self.block_channel.take() {
                Taken::Block(block) => {
                    self.flight.push(block, &mut self.report, |block| self.block_channel.give_back(block));
                    took = true;
                }
                Taken::Nothing => break,
                Taken::End(end) => self.input_end = Some(end),
            }
        }
        took
    }

    /// Ends the load after everything is answered.
    ///
    /// # Errors
    /// Returns an error if the report can't be written.
    pub fn close(&mut self) -> Result<(), Failure> {
        let ended = matches!(self.input_end, Some(Ok(())));
        self.flight.close(ended, &mut self.report, |block| self.block_channel.give_back(block));
        self.report.flush()
    }

    /// Returns true if nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.flight.has_landed(self.input_end.is_some())
    }

    /// Performs periodic tasks: checks for a stop, flushes the report, and shows the progress.
    pub fn tick(&mut self, now: Instant) -> Result<(), Failure> {
        // Requests that an earlier run has executed must be skipped first. Nothing is sent until then.
        let ends = self.interrupt.was_asked() || (self.stop_on_error && self.report.has_news());
        if ends && !self.flight.is_skipping() {
            self.flight.stop();
        }
        self.report.flush()?;
        self.progress.show(
            now,
            Figures {
                commands: self.flight.done(),
                errors: self.report.errors(),
                input_bytes: self.flight.input_bytes(),
            },
        );
        Ok(())
    }
}

/// A connection that transfers commands.
pub struct Transfer<'t, 'l> {
    load: &'t mut Load<'l>,
    stream: &'t mut dyn Stream,
    skimmer: Skimmer,
    buffer: Vec<u8>,
    /// Number of the request that the connection's first reply belongs to.
    first: u64,
    /// Time of the last transfer in either direction.
    moved: Instant,
    interrupted: Option<Instant>,
    /// Number of naps since the last transfer.
    naps: u32,
}

impl<'t, 'l> Transfer<'t, 'l> {
    /// Creates a transfer over a connection without pending replies.
    pub fn new(load: &'t mut Load<'l>, stream: &'t mut dyn Stream) -> Self {
        let first = load.flight.answered_requests();
        let skimmer = Skimmer::new();
        Transfer {
            load,
            stream,
            skimmer,
            buffer: vec![0; READ_BYTES],
            first,
            moved: Instant::now(),
            interrupted: None,
            naps: 0,
        }
    }

    /// Sends and reads until nothing is left to do. `on_turn` is called in each turn with the progress and the time.
    ///
    /// # Errors
    /// Returns [`Ended`]. The flight holds the answered part.
    pub fn run(&mut self, mut on_turn: impl FnMut(&Load<'_>, Instant) -> Result<(), Failure>) -> Result<(), Ended> {
        loop {
            let now = Instant::now();
            self.load.tick(now)?;
            on_turn(self.load, now)?;
            let took = self.load.refill();
            let wrote = self.write()?;
            let read = self.read()?;
            if self.load.is_done() {
                return Ok(());
            }
            if wrote || read {
                self.moved = Instant::now();
                self.naps = 0;
            } else if !took {
                self.check_transaction()?;
                self.check_patience()?;
                self.wait()?;
            }
        }
    }

    /// Writes once without waiting. Returns true if bytes were written.
    fn write(&mut self) -> Result<bool, Ended> {
        let bytes = self.load.flight.sendable();
        let written = if !bytes.is_empty() {
            self.stream.write(bytes)
        } else if self.stream.wants_write() {
            self.stream.flush().map(|()| 0)
        } else {
            return Ok(false);
        };
        match written {
            Ok(count) => {
                self.load.flight.mark_sent(count);
                Ok(count > 0)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            // The server may have sent a reason before it closed the connection.
            Err(error) => loop {
                match self.read() {
                    Ok(true) => {}
                    Ok(false) => return Err(Ended::Broken(format!("the connection broke: {}", plain(&error)))),
                    Err(ended) => return Err(ended),
                }
            },
        }
    }

    /// Reads once if bytes are available. Returns true if there were any.
    fn read(&mut self) -> Result<bool, Ended> {
        if self.load.flight.sent() == self.load.flight.answered() && !self.stream.has_buffered() && !self.is_idle() {
            // No reply is pending, so the read would fail.
            return Ok(false);
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(Ended::Broken("the server closed the connection".to_owned())),
            Ok(count) => self.understand(count).map(|()| true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(Ended::Broken(format!("the connection broke: {}", plain(&error)))),
        }
    }

    /// Returns true if there is nothing to send either. Reads then detect that the server closes the connection.
    fn is_idle(&self) -> bool {
        self.load.flight.sendable().is_empty()
    }

    fn understand(&mut self, count: usize) -> Result<(), Ended> {
        let Load { block_channel, flight, report, .. } = &mut *self.load;
        let sent = flight.sent_requests();
        let (mut excess, mut refusal, mut unreadable) = (false, None, None);
        let fed = self.skimmer.feed(&self.buffer[..count], |error| {
            let number = self.first + error.reply;
            if unreadable.is_some() {
                return;
            }
            if number >= sent {
                excess = true;
                refusal = Some(String::from_utf8_lossy(error.text).into_owned());
                return;
            }
            if error.element.is_none() && error.text.starts_with(PROTOCOL_ERROR) {
                unreadable.get_or_insert_with(|| (number, error.text.to_vec()));
                return;
            }
            let text = match error.element {
                None => std::borrow::Cow::Borrowed(error.text),
                Some(element) => {
                    [format!("in element {} of the reply: ", element + 1).as_bytes(), error.text].concat().into()
                }
            };
            flight.fail(number, &text, report, |block| block_channel.give_back(block));
        });
        let answered = self.first + self.skimmer.replies();
        excess |= answered > sent;
        let executed = unreadable.as_ref().map_or(answered, |(number, _)| *number);
        flight.answer(executed.min(sent), report, |block| block_channel.give_back(block));
        if let Some((number, text)) = unreadable {
            return Err(self.end_at(number, &text));
        }
        if flight.open_bytes() > TRANSACTION_BYTES {
            return Err(transaction_too_long());
        }
        match (fed, refusal) {
            (Err(error), _) => {
                Err(Ended::Failed(Failure::new(Exit::Server, format!("the server sent an invalid reply: {error}"))))
            }
            (Ok(()), Some(text)) => Err(Ended::Broken(format!("the server said: {text}"))),
            (Ok(()), None) if excess => {
                Err(Ended::Failed(Failure::new(Exit::Server, "the server sent more replies than it received commands")))
            }
            (Ok(()), None) => Ok(()),
        }
    }

    /// Ends the load at a request that the server can't parse, because the server would stop at it on any connection.
    fn end_at(&mut self, request: u64, error: &[u8]) -> Ended {
        let Load { flight, report, .. } = &mut *self.load;
        let place = flight.unreadable(request, error, report);
        let place = place.map_or(String::new(), |(input, line)| format!("{}:{line}: ", report.name(input)));
        let error = crate::shown::error(error);
        let text = format!("{place}the server can't parse this command and executed nothing after it: {error}");
        Ended::Failed(Failure::new(Exit::Server, text))
    }

    /// Fails if the rest of a transaction doesn't fit into memory beside its kept part.
    fn check_transaction(&self) -> Result<(), Ended> {
        let Load { block_channel, flight, .. } = &*self.load;
        let awaits_block = flight.sent() == flight.answered() && flight.wants_block();
        let is_stuck = awaits_block && flight.open_bytes() > 0 && block_channel.is_exhausted();
        if is_stuck { Err(transaction_too_long()) } else { Ok(()) }
    }

    /// Fails if the server is silent for too long.
    fn check_patience(&mut self) -> Result<(), Ended> {
        if self.load.flight.sent() == self.load.flight.answered() {
            self.moved = Instant::now();
        }
        if self.load.interrupt.was_asked() && self.interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Err(Ended::Broken(
                "the server did not answer the commands that were sent before the interrupt".to_owned(),
            ));
        }
        match self.load.silence_max {
            Some(limit) if self.moved.elapsed() > limit => {
                Err(Ended::Broken(format!("no reply within {} s; --timeout changes this limit", limit.as_secs())))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the connection or the queue is ready, or a tick is over.
    fn wait(&mut self) -> Result<(), Ended> {
        if self.stream.has_buffered() {
            return Ok(());
        }
        if self.load.flight.sent() - self.load.flight.answered() >= NAP_COMMANDS && self.naps < NAPS_MAX {
            std::thread::sleep(NAP * (1 << self.naps));
            self.naps += 1;
            return Ok(());
        }
        let write = !self.load.flight.sendable().is_empty() || self.stream.wants_write();
        let interest = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let block_channel = PollFd::from_borrowed_fd(self.load.block_channel.fd(), PollFlags::IN);
        let mut fds = [PollFd::from_borrowed_fd(self.stream.fd(), interest), block_channel];
        let wants_block = self.load.input_end.is_none() && self.load.flight.wants_block();
        let fds = if wants_block { &mut fds[..] } else { &mut fds[..1] };
        match poll(fds, Timespec::try_from(TICK).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Ended::Broken(format!("can't wait for the connection: {error}"))),
        }
    }
}

fn transaction_too_long() -> Ended {
    let text = format!(
        "a transaction is longer than {TRANSACTION_BYTES} bytes, too long to be sent again after a broken connection: load \
         it without --resume"
    );
    Ended::Failed(Failure::new(Exit::Resume, text))
}

/// Returns the system's text without the number that the standard library appends.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}
