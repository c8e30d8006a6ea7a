//! Ctrl-C and SIGTERM: the first asks to stop in good order, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Exit;

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

    /// Whether it was.
    pub fn was_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
