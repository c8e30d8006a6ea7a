//! Handles Ctrl-C. At first it ends the process at once. While there are results to print or keys to remove, it lets
//! the tool shut down in order, without waiting for an unresponsive server.

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

/// State of Ctrl-C and SIGTERM.
#[derive(Clone)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs handlers. The first signal ends the process at once with its exit status.
    ///
    /// # Errors
    /// Returns the system's error if no handler can be installed.
    pub fn watch() -> io::Result<Interrupt> {
        let interrupt = Interrupt::new(true);
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the signal that sets the flag must not find it set.
            for flag in [&interrupt.at_once, &interrupt.pressed] {
                flag::register_conditional_shutdown(signal, i32::from(STATUS_INTERRUPTED), Arc::clone(flag))?;
            }
            flag::register(signal, Arc::clone(&interrupt.pressed))?;
        }
        Ok(interrupt)
    }

    /// Creates a state without signal handlers.
    fn new(at_once: bool) -> Interrupt {
        let flag = |is_set| Arc::new(AtomicBool::new(is_set));
        Interrupt { pressed: flag(false), at_once: flag(at_once) }
    }

    /// Makes the first signal only set the flag. The second one ends the process at once.
    pub fn end_in_order(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Returns true if a signal has arrived.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Returns the flag that the first signal sets.
    #[must_use]
    pub fn flag(&self) -> &AtomicBool {
        &self.pressed
    }

    /// Returns the configuration with a time limit after the signal: connections then wait at most `patience` for the
    /// next byte. After the first timeout they don't wait at all, but replies that are on their way can still be read.
    #[must_use]
    pub fn impatient(&self, config: &Config, patience: Duration) -> Config {
        let mut impatient = config.clone();
        let (pressed, is_silent) = (Arc::clone(&self.pressed), AtomicBool::new(false));
        impatient.connector = Some(Arc::new(Impatient(Arc::new(Patience { pressed, most: patience, is_silent }))));
        impatient
    }
}

/// Waiting limit of one server after the signal.
struct Patience {
    pressed: Arc<AtomicBool>,
    most: Duration,
    /// True if a wait has timed out.
    is_silent: AtomicBool,
}

/// Opens streams with this limit.
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
    /// True if the last write didn't fit into the socket.
    is_stuck: bool,
}

impl ImpatientStream {
    /// Waits up to the limit. Returns true if the wait has timed out.
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

    /// A connection calls this before it waits, and again after a signal has interrupted its wait. Once the wait is
    /// pointless, it returns true, and the following read reports the timeout.
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
    /// Returns the state after the first signal.
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
        // The kernel accepts the connection, and no program answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = impatient(silent.local_addr().unwrap().port()).command(&["PING"]).unwrap_err();
        assert!(error.is_connection_lost() && !error.is_timeout(), "{error}");
    }

    #[test]
    fn a_request_that_does_not_go_at_once_is_answered_after_the_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Larger than the socket buffers, so that it must be written while the server reads.
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
