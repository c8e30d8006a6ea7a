//! Handles Ctrl-C and SIGTERM: the first signal asks for an orderly stop, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure};

/// Interval at which a wait checks for a signal.
const TICK: Duration = Duration::from_millis(20);

/// Returns the failure for a signal before the start of the load.
pub fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before anything was sent")
}

/// True if the process was asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs handlers, so that the first signal sets a flag instead of ending the process.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the signal that sets the flag must not find it set. If no handler can be installed, a
            // signal ends the process, which is acceptable.
            let _ = flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, interrupt.0.clone());
            let _ = flag::register(signal, interrupt.0.clone());
        }
        interrupt
    }

    /// Runs `work` in a thread and returns its result. `work` may wait for a server without a limit; it is abandoned
    /// when the process is asked to stop.
    ///
    /// # Errors
    /// Returns an error if the process was asked to stop, or the thread can't be started.
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

    /// Returns true if the process was asked to stop.
    pub fn was_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
