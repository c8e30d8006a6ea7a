//! What looks after a thread's other connections while a script keeps the thread from them.

use std::ptr::NonNull;

use super::Worker;
use crate::machine::ticks::Ticks;

/// Looks after a thread's other connections while a script keeps the thread from them.
pub trait Attendant {
    /// Runs what they send by [`Worker::run_busy`], and sends the replies.
    fn attend(&mut self, worker: &mut Worker);
}

/// The attendant that is lent to a worker for the time of a batch.
#[derive(Default)]
pub(crate) struct Lent(Option<NonNull<dyn Attendant>>);

// SAFETY: a worker goes to its thread before an attendant is lent to it.
unsafe impl Send for Lent {}

impl Worker {
    /// Lends the attendant for the time in which `run` runs.
    pub(crate) fn attended_by<T>(&mut self, attendant: &mut dyn Attendant, run: impl FnOnce(&mut Worker) -> T) -> T {
        // SAFETY: only the lifetime changes. The pointer is taken back before this returns, and until then the
        // attendant is used through it alone.
        let lent = unsafe {
            std::mem::transmute::<NonNull<dyn Attendant + '_>, NonNull<dyn Attendant>>(NonNull::from(attendant))
        };
        self.attendant = Lent(Some(lent));
        let result = run(self);
        self.attendant = Lent(None);
        result
    }

    /// Lets other connections be looked after, in the midst of a script.
    pub(crate) fn attend(&mut self) {
        // Taken out, so that it is not used twice.
        let Some(mut attendant) = self.attendant.0.take() else { return };
        let (running, busy_turn) = (self.scripts.running, self.scripts.busy_turn);
        (self.scripts.running, self.scripts.busy_turn) = (false, true);
        // For the script, time stands still.
        let clock = self.clock;
        let may_start_over = std::mem::take(&mut self.scripts.may_start_over);
        // What they run is no part of the script's unit.
        let unit = std::mem::take(&mut self.unit);
        // For others it goes on.
        self.clock.set(Ticks::now());
        // SAFETY: see `attended_by`.
        unsafe { attendant.as_mut() }.attend(self);
        self.clock = clock;
        (self.scripts.running, self.scripts.busy_turn) = (running, busy_turn);
        self.scripts.may_start_over = may_start_over;
        self.unit = unit;
        self.attendant = Lent(Some(attendant));
    }
}
