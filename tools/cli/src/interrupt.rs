//! Ctrl-C: it ends the program, or what the program is waiting for when it is interactive.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a wait looks whether Ctrl-C was pressed.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Whether the user pressed Ctrl-C. Until [`Interrupt::watch`], that simply ends the program.
#[derive(Clone, Default)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    watched: bool,
}

impl Interrupt {
    /// From now on Ctrl-C is noted instead of ending the program.
    ///
    /// # Errors
    /// The system's, if it refuses the signal's handler.
    pub fn watch(&mut self) -> io::Result<()> {
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&self.pressed))?;
        self.watched = true;
        Ok(())
    }

    /// Whether Ctrl-C is noted.
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Whether it was pressed since this was last asked.
    pub fn take(&self) -> bool {
        self.pressed.swap(false, Ordering::Relaxed)
    }

    /// Lets so much time pass, unless Ctrl-C is pressed meanwhile: whether it was.
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
        assert!(!interrupt.take(), "it was taken");
    }
}
