//! Ctrl-C: it ends the program, or what the program is waiting for when it is interactive.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}
