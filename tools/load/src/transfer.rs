//! Moves bytes between the flight and one connection, until everything is answered or the connection breaks.
//!
//! One thread writes and reads: it never waits to write without reading meanwhile, so a server that stops reading until
//! its replies are taken can't bring it to a halt.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use client::Stream;
use resp::skim::Skimmer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::belt::{Belt, Taken};
use crate::exit::{Exit, Failure};
use crate::flight::Flight;
use crate::interrupt::Interrupt;
use crate::limits::TRANSACTION_BYTES;
use crate::progress::{Figures, ProgressDisplay};
use crate::report::Report;

/// Bytes that one read asks of the connection.
const READ_BYTES: usize = 128 << 10;
/// How long to wait at most before looking at the clock and at signals.
const TICK: Duration = Duration::from_millis(100);
/// With so many commands unanswered, a server has work for far longer than a nap.
const NAP_COMMANDS: u64 = 5_000;
/// How long to let replies gather while the server has plenty to do: it is not held up by waking us for every few of
/// them.
const NAP: Duration = Duration::from_micros(100);
/// So many naps are taken in a row, each twice as long as the one before, until there is a reply: 1.5 milliseconds in
/// all. A server that takes longer is waited for: looking would cost more than being woken.
const NAPS_MAX: u32 = 4;
/// How the answer to what is no request begins: it is of no command, and the connection's last.
const PROTOCOL_ERROR: &[u8] = b"ERR Protocol error";
/// How long the replies to what was sent may take after an interrupt.
const GRACE: Duration = Duration::from_secs(5);

/// Everything of a load but its connection.
pub struct Load<'l> {
    /// Where blocks come from.
    pub belt: &'l Belt,
    /// What isn't answered.
    pub flight: Flight,
    /// Where errors go.
    pub report: Report,
    /// Shows how far things are.
    pub progress: ProgressDisplay,
    /// What may end it: Ctrl-C and SIGTERM.
    pub interrupt: Interrupt,
    /// Whether the first error ends it that no earlier life has reported.
    pub stop_on_error: bool,
    /// How long the server may be silent while replies are awaited; none: for ever.
    pub silence_max: Option<Duration>,
    /// How the inputs ended, once they have.
    pub input_end: Option<Result<(), Failure>>,
}

/// Why a connection is of no use any more.
#[derive(Debug)]
pub enum Ended {
    /// It broke: what a line of text can say about it.
    Broken(String),
    /// The load can't go on over any connection.
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

impl Load<'_> {
    /// Takes blocks from the belt while the flight has use for them; true if that changed anything.
    pub fn refill(&mut self) -> bool {
        let mut took = false;
        while self.input_end.is_none() && self.flight.wants_block() {
            match self.belt.take() {
                Taken::Block(block) => {
                    self.flight.push(block, &mut self.report, |block| self.belt.give_back(block));
                    took = true;
                }
                Taken::Nothing => break,
                Taken::End(end) => self.input_end = Some(end),
            }
        }
        took
    }

    /// Nothing will follow, and everything is answered.
    ///
    /// # Errors
    /// The report can't be written.
    pub fn close(&mut self) -> Result<(), Failure> {
        let ended = matches!(self.input_end, Some(Ok(())));
        self.flight.close(ended, &mut self.report, |block| self.belt.give_back(block));
        self.report.flush()
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.flight.has_landed(self.input_end.is_some())
    }

    /// What is to be done from time to time, and what must not be overlooked.
    pub fn tick(&mut self, now: Instant) -> Result<(), Failure> {
        // What an earlier life has executed is to be passed first: until then nothing is sent anyway.
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

/// A connection over which commands travel.
pub struct Transfer<'t, 'l> {
    load: &'t mut Load<'l>,
    stream: &'t mut dyn Stream,
    skimmer: Skimmer,
    buffer: Vec<u8>,
    /// The number of the request that the connection's first reply is for.
    first: u64,
    /// When a byte was moved last, in any direction.
    moved: Instant,
    interrupted: Option<Instant>,
    /// Naps since a byte was moved.
    naps: u32,
}

impl<'t, 'l> Transfer<'t, 'l> {
    /// Over a connection on which nothing is awaited.
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

    /// Sends and reads until nothing is left to do. Each turn shows `on_turn` what is answered and reported, and the
    /// time.
    ///
    /// # Errors
    /// [`Ended`]; the flight knows what was answered before.
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

    /// Writes once, as much as goes without waiting; whether anything went.
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
            // The server may have said why it closes; that is still to be read.
            Err(error) => loop {
                match self.read() {
                    Ok(true) => {}
                    Ok(false) => return Err(Ended::Broken(format!("the connection broke: {}", plain(&error)))),
                    Err(ended) => return Err(ended),
                }
            },
        }
    }

    /// Reads once, if anything is there; whether anything was.
    fn read(&mut self) -> Result<bool, Ended> {
        if self.load.flight.sent() == self.load.flight.answered() && !self.stream.has_buffered() && !self.is_idle() {
            // Nothing is awaited, so that looking would be in vain.
            return Ok(false);
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(Ended::Broken("the server closed the connection".to_owned())),
            Ok(count) => self.understand(count).map(|()| true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(Ended::Broken(format!("the connection broke: {}", plain(&error)))),
        }
    }

    /// Whether there is nothing to send either: then the server's closing should be noticed.
    fn is_idle(&self) -> bool {
        self.load.flight.sendable().is_empty()
    }

    fn understand(&mut self, count: usize) -> Result<(), Ended> {
        let Load { belt, flight, report, .. } = &mut *self.load;
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
            flight.fail(number, &text, report, |block| belt.give_back(block));
        });
        let answered = self.first + self.skimmer.replies();
        excess |= answered > sent;
        let executed = unreadable.as_ref().map_or(answered, |(number, _)| *number);
        flight.answer(executed.min(sent), report, |block| belt.give_back(block));
        if let Some((number, text)) = unreadable {
            return Err(self.end_at(number, &text));
        }
        if flight.open_bytes() > TRANSACTION_BYTES {
            return Err(transaction_too_long());
        }
        match (fed, refusal) {
            (Err(error), _) => {
                Err(Ended::Failed(Failure::new(Exit::Server, format!("the server sent what is no reply: {error}"))))
            }
            (Ok(()), Some(text)) => Err(Ended::Broken(format!("the server said: {text}"))),
            (Ok(()), None) if excess => {
                Err(Ended::Failed(Failure::new(Exit::Server, "the server sent more replies than it got commands")))
            }
            (Ok(()), None) => Ok(()),
        }
    }

    /// Ends the load at a request that the server can't read: it reads nothing behind it, over whatever connection.
    fn end_at(&mut self, request: u64, error: &[u8]) -> Ended {
        let Load { flight, report, .. } = &mut *self.load;
        let place = flight.unreadable(request, error, report);
        let place = place.map_or(String::new(), |(input, line)| format!("{}:{line}: ", report.name(input)));
        let error = crate::shown::error(error);
        let text = format!("{place}the server can't read this command, and nothing behind it was executed: {error}");
        Ended::Failed(Failure::new(Exit::Server, text))
    }

    /// Ends the waiting for a transaction's rest for which there is no room beside what is kept of it.
    fn check_transaction(&self) -> Result<(), Ended> {
        let Load { belt, flight, .. } = &*self.load;
        let awaits_block = flight.sent() == flight.answered() && flight.wants_block();
        let is_stuck = awaits_block && flight.open_bytes() > 0 && belt.is_exhausted();
        if is_stuck { Err(transaction_too_long()) } else { Ok(()) }
    }

    /// Ends the waiting for a server that is silent for too long.
    fn check_patience(&mut self) -> Result<(), Ended> {
        if self.load.flight.sent() == self.load.flight.answered() {
            self.moved = Instant::now();
        }
        if self.load.interrupt.was_asked() && self.interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Err(Ended::Broken("the server did not answer what it was sent before the interrupt".to_owned()));
        }
        match self.load.silence_max {
            Some(limit) if self.moved.elapsed() > limit => {
                Err(Ended::Broken(format!("no reply within {} s; --timeout sets how long to wait", limit.as_secs())))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the connection or the belt has something, or a tick is over.
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
        let belt = PollFd::from_borrowed_fd(self.load.belt.fd(), PollFlags::IN);
        let mut fds = [PollFd::from_borrowed_fd(self.stream.fd(), interest), belt];
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

/// The system's text without the number that the standard library appends.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}
