//! The service of a thread's other connections during a busy script.

use std::ptr::NonNull;

use super::Worker;
use statistics::ticks::Ticks;

/// The handler that serves a thread's other connections during a busy script.
pub trait BusyScriptHandler {
    /// Runs their requests by [`Worker::run_busy`], and sends the replies.
    fn serve_others(&mut self, worker: &mut Worker);
}

/// The handler that is lent to a worker for the time of a batch.
#[derive(Default)]
pub(crate) struct LentHandler(Option<NonNull<dyn BusyScriptHandler>>);

// SAFETY: a worker goes to its thread before a handler is lent to it.
unsafe impl Send for LentHandler {}

impl Worker {
    /// Lends the handler for the time of `run`.
    pub(crate) fn with_busy_script_handler<T>(
        &mut self,
        busy_script_handler: &mut dyn BusyScriptHandler,
        run: impl FnOnce(&mut Worker) -> T,
    ) -> T {
        // SAFETY: only the lifetime changes. The pointer is taken back before this returns, and until then the handler
        // is used through it alone.
        let lent = unsafe {
            std::mem::transmute::<NonNull<dyn BusyScriptHandler + '_>, NonNull<dyn BusyScriptHandler>>(NonNull::from(
                busy_script_handler,
            ))
        };
        self.busy_script_handler = LentHandler(Some(lent));
        let result = run(self);
        self.busy_script_handler = LentHandler(None);
        result
    }

    /// Serves other connections in the middle of a script.
    pub(crate) fn serve_others(&mut self) {
        // Taken out, so that it can't be used twice.
        let Some(mut busy_script_handler) = self.busy_script_handler.0.take() else { return };
        let (running, busy_turn) = (self.scripts.running, self.scripts.busy_turn);
        (self.scripts.running, self.scripts.busy_turn) = (false, true);
        // The script's clock stands still.
        let clock = self.clock;
        let may_start_over = std::mem::take(&mut self.scripts.may_start_over);
        // The commands of other connections are no part of the script's unit.
        let unit = std::mem::take(&mut self.unit);
        // The clock of other connections goes on.
        self.clock.set(Ticks::now());
        // SAFETY: see `with_busy_script_handler`.
        unsafe { busy_script_handler.as_mut() }.serve_others(self);
        self.clock = clock;
        (self.scripts.running, self.scripts.busy_turn) = (running, busy_turn);
        self.scripts.may_start_over = may_start_over;
        self.unit = unit;
        self.busy_script_handler = LentHandler(Some(busy_script_handler));
    }
}
