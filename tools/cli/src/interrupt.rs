//! Ctrl-C ends the program, or the current wait in interactive mode.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a wait checks for Ctrl-C.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// State of Ctrl-C. Before [`Interrupt::watch`], Ctrl-C ends the program.
#[derive(Clone, Default)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    watched: bool,
}

impl Interrupt {
    /// Makes Ctrl-C set a flag instead of ending the program.
    ///
    /// # Errors
    /// Returns the system's error if it refuses the signal handler.
    pub fn watch(&mut self) -> io::Result<()> {
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&self.pressed))?;
        self.watched = true;
        Ok(())
    }

    /// Returns true if Ctrl-C sets a flag.
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Returns true if Ctrl-C was pressed since the last call.
    pub fn take(&self) -> bool {
        self.pressed.swap(false, Ordering::Relaxed)
    }

    /// Sleeps for `time`, or until Ctrl-C. Returns true if Ctrl-C was pressed.
    pub fn sleep(&self, time: Duration) -> bool {
        let start = Instant::now();
        loop {
            if self.take() {
                return true;
            }
            let rest = time.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return false;
            }
            thread::sleep(rest.min(INTERVAL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_ctrl_c_is_pressed() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.sleep(Duration::from_millis(1)));
        let (sleeper, start) = (interrupt.clone(), Instant::now());
        let sleeping = thread::spawn(move || sleeper.sleep(Duration::from_secs(600)));
        interrupt.pressed.store(true, Ordering::Relaxed);
        assert!(sleeping.join().unwrap() && start.elapsed() < Duration::from_secs(60));
        assert!(!interrupt.take(), "sleep() has consumed the flag");
    }
}
