//! Ctrl-C and SIGTERM: the first asks to stop in good order, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure};

/// How often a wait checks whether the process was asked to stop.
const TICK: Duration = Duration::from_millis(20);

/// The process was asked to stop before the load had begun.
pub fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before anything was sent")
}

/// Whether the process was asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Notes signals from now on, instead of being ended by the first of them.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the signal that sets the flag must not find it set. Where no handler can be installed, a
            // signal ends the process, which is not so bad either.
            let _ = flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, interrupt.0.clone());
            let _ = flag::register(signal, interrupt.0.clone());
        }
        interrupt
    }

    /// What `work` comes to, which may wait for a server as long as it likes: it is left alone when the process is
    /// asked to stop.
    ///
    /// # Errors
    /// It was asked to stop, or there is no room for a thread.
    pub fn wait_for<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let (sender, receiver) = channel();
        let started = std::thread::Builder::new().name("connects".to_owned()).spawn(move || drop(sender.send(work())));
        started.map_err(|error| Failure::new(Exit::Server, format!("can't start a thread: {error}")))?;
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) if !self.was_asked() => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(Exit::Server, "connecting failed; this is a bug of penstock load"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(interrupted());
                }
            }
        }
    }

    /// Whether it was.
    pub fn was_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
