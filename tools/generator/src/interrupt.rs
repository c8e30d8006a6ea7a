//! Ctrl-C: at first it ends the process at once; while something is measured that is worth telling, or keys are to be
//! removed, it lets the tool come to an end in good order, without waiting for a server that doesn't answer.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Config, Connection, Connector, Error, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::STATUS_INTERRUPTED;

/// Whether Ctrl-C was pressed, or SIGTERM sent, and what that does.
#[derive(Clone)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on the first of these signals ends the process at once, by its status.
    pub fn watch() -> io::Result<Interrupt> {
        let interrupt = Interrupt::new(true);
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the signal that sets the flag doesn't find it set.
            for flag in [&interrupt.at_once, &interrupt.pressed] {
                flag::register_conditional_shutdown(signal, i32::from(STATUS_INTERRUPTED), Arc::clone(flag))?;
            }
            flag::register(signal, Arc::clone(&interrupt.pressed))?;
        }
        Ok(interrupt)
    }

    /// One that no signal reaches.
    fn new(at_once: bool) -> Interrupt {
        let flag = |is_set| Arc::new(AtomicBool::new(is_set));
        Interrupt { pressed: flag(false), at_once: flag(at_once) }
    }

    /// From now on the first signal only sets the flag; the second one ends the process at once.
    pub fn end_in_order(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Whether there was a signal.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// What the first signal sets.
    #[must_use]
    pub fn flag(&self) -> &AtomicBool {
        &self.pressed
    }

    /// The same way to a server. After the signal its connections wait no longer than `patience` for the next byte,
    /// and once one has waited in vain, none of them waits any more: replies of commands that are on the way can still
    /// be taken.
    #[must_use]
    pub fn impatient(&self, config: &Config, patience: Duration) -> Config {
        let mut impatient = config.clone();
        let (pressed, is_silent) = (Arc::clone(&self.pressed), AtomicBool::new(false));
        impatient.connector = Some(Arc::new(Impatient(Arc::new(Patience { pressed, most: patience, is_silent }))));
        impatient
    }
}

/// How long one server is waited for after the signal.
struct Patience {
    pressed: Arc<AtomicBool>,
    most: Duration,
    /// It has been waited for in vain.
    is_silent: AtomicBool,
}

/// Opens streams whose patience ends.
struct Impatient(Arc<Patience>);

impl Connector for Impatient {
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error> {
        let mut usual = config.clone();
        usual.connector = None;
        let (stream, _) = Connection::open(&usual)?.into_stream();
        Ok(Box::new(ImpatientStream { stream, patience: Arc::clone(&self.0), is_stuck: false }))
    }
}

struct ImpatientStream {
    stream: Box<dyn Stream>,
    patience: Arc<Patience>,
    /// The last bytes found no room.
    is_stuck: bool,
}

impl ImpatientStream {
    /// Waits for as long as there is patience; whether it has come to its end.
    fn waits_in_vain(&self) -> bool {
        let Patience { most, is_silent, .. } = &*self.patience;
        let interest = if self.is_stuck { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::from_borrowed_fd(self.stream.fd(), interest)];
        let timeout = Timespec::try_from(*most).ok();
        if !is_silent.load(Ordering::Relaxed) && !matches!(poll(&mut fds, timeout.as_ref()), Ok(0)) {
            return false;
        }
        is_silent.store(true, Ordering::Relaxed);
        true
    }
}

impl Stream for ImpatientStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    fn wants_write(&self) -> bool {
        self.stream.wants_write()
    }

    /// A connection asks this before it waits, and again when a signal has ended its waiting. Where that would be in
    /// vain, it is to read, and to find out.
    fn has_buffered(&self) -> bool {
        self.stream.has_buffered() || (self.patience.pressed.load(Ordering::Relaxed) && self.waits_in_vain())
    }
}

impl Read for ImpatientStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.patience.is_silent.load(Ordering::Relaxed) {
            return Err(io::Error::other("no reply after the interruption"));
        }
        self.stream.read(buffer)
    }
}

impl Write for ImpatientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes);
        self.is_stuck = written.is_err();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
impl Interrupt {
    /// As after the first signal.
    pub fn pressed() -> Interrupt {
        let interrupt = Interrupt::new(false);
        interrupt.pressed.store(true, Ordering::Relaxed);
        interrupt
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn impatient(port: u16) -> Connection {
        let config = Config::tcp("127.0.0.1", port);
        Connection::open(&Interrupt::pressed().impatient(&config, Duration::from_millis(300))).unwrap()
    }

    #[test]
    fn a_silent_server_is_not_waited_for_after_the_signal() {
        // It accepts, by the kernel, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = impatient(silent.local_addr().unwrap().port()).command(&["PING"]).unwrap_err();
        assert!(error.is_connection_lost() && !error.is_timeout(), "{error}");
    }

    #[test]
    fn a_request_that_does_not_go_at_once_is_answered_after_the_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // More than sockets keep, so that it has to be written while the server reads.
        let request = ["ECHO".to_owned(), "x".repeat(32 << 20)];
        let serving = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut buffer, mut received) = (vec![0; 1 << 20], 0);
            thread::sleep(Duration::from_millis(50));
            while received < 32 << 20 {
                received += socket.read(&mut buffer).unwrap();
            }
            socket.write_all(b"+OK\r\n").unwrap();
        });
        let reply = impatient(port).command(&request);
        assert!(matches!(reply, Ok(client::Value::Simple(_))), "{reply:?}");
        serving.join().unwrap();
    }
}
