//! Scripts that run for too long: the replies to other connections and threads meanwhile, and SCRIPT KILL.
//!
//! A script that has run for `busy-reply-threshold` milliseconds is *busy*. From then on its thread serves its other
//! connections at each poll of the script ([`crate::worker::BusyScriptHandler`]), and other threads give up long waits
//! for shards or for the gate. All of them answer BUSY to commands that they can't run. SCRIPT KILL ends a busy script
//! unless it has written.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use resp::request::{Args, OwnedArgs};

use statistics::ticks::{Ticks, to_microseconds};

/// No busy script runs on the thread.
const NONE: u8 = 0;
/// A busy script runs that has not written; the two states are for EVAL and for FCALL.
const CLEAN: [u8; 2] = [1, 2];
/// A busy script runs that has written.
const WRITTEN: [u8; 2] = [3, 4];
/// The script must end.
const KILLED: u8 = 5;

/// The time, in microseconds, that a thread waits for a lock while some script is busy, in case an ordinary command
/// holds it: longer than most commands take, even with all cores in use.
const PATIENCE_US: f64 = 2000.0;

/// The threads that run busy scripts.
pub struct Busy {
    threads: Box<[AtomicU8]>,
    count: AtomicUsize,
    running: Mutex<Vec<(usize, BusyScript)>>,
}

/// A busy script.
#[derive(Clone, Debug)]
pub struct BusyScript {
    /// Its name.
    pub name: String,
    /// The command that runs it.
    pub command: OwnedArgs,
    began: Ticks,
    /// Its run time so far.
    pub milliseconds: i64,
}

impl BusyScript {
    pub(crate) fn new(name: &str, command: Args<'_>, began: Ticks) -> BusyScript {
        BusyScript { name: name.to_string(), command: command.to_owned(), began, milliseconds: 0 }
    }
}

/// The kind of command that calls a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// EVAL and its kin.
    Eval,
    /// FCALL and FCALL_RO.
    Function,
}

impl Busy {
    /// The state without busy scripts.
    #[must_use]
    pub fn new(threads: usize) -> Busy {
        Busy {
            threads: (0..threads).map(|_| AtomicU8::new(NONE)).collect(),
            count: AtomicUsize::new(0),
            running: Mutex::default(),
        }
    }

    /// Returns whether a busy script runs on any thread.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns a predicate for waits for a shard or for the gate, which poll it once the wait has become long. The
    /// predicate becomes true two milliseconds after the first poll during a busy script.
    pub fn ends_waits(&self) -> impl Fn() -> bool + '_ {
        let first = Cell::new(None);
        move || {
            if !self.any() {
                return false;
            }
            let now = Ticks::now();
            let began = first.get().unwrap_or(now);
            first.set(Some(began));
            to_microseconds(now.since(began)) >= PATIENCE_US
        }
    }

    /// Notes that a thread's script has become busy.
    pub(crate) fn begin(&self, thread: usize, caller: Caller, has_written: bool, running: BusyScript) {
        self.running().push((thread, running));
        let states = if has_written { WRITTEN } else { CLEAN };
        self.threads[thread].store(states[caller as usize], Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that the thread's busy script has ended.
    pub(crate) fn end(&self, thread: usize) {
        self.running().retain(|(of, _)| *of != thread);
        self.threads[thread].store(NONE, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn running(&self) -> MutexGuard<'_, Vec<(usize, BusyScript)>> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the script that has been busy for the longest time.
    #[must_use]
    pub fn longest(&self) -> Option<BusyScript> {
        let mut running = self.running().first().map(|(_, running)| running.clone())?;
        running.milliseconds = (to_microseconds(Ticks::now().since(running.began)) / 1000.0) as i64;
        Some(running)
    }

    /// Notes the first write of a busy script. Returns false if the script was killed: it must not write, and has to
    /// end.
    pub(crate) fn write(&self, thread: usize, caller: Caller) -> bool {
        let (clean, written) = (CLEAN[caller as usize], WRITTEN[caller as usize]);
        let state = &self.threads[thread];
        state.compare_exchange(clean, written, Ordering::SeqCst, Ordering::SeqCst).is_ok() || !self.is_killed(thread)
    }

    /// Returns whether a thread's script has to end.
    pub(crate) fn is_killed(&self, thread: usize) -> bool {
        self.threads[thread].load(Ordering::SeqCst) == KILLED
    }

    /// Returns the error of commands that can't run.
    #[must_use]
    pub fn error(&self) -> Error {
        let is_function = |state: u8| state == CLEAN[1] || state == WRITTEN[1];
        let any = self.threads.iter().any(|t| is_function(t.load(Ordering::Relaxed)));
        Error::fixed(if any { BUSY_FUNCTION } else { BUSY_EVAL })
    }

    /// Ends the busy scripts of a kind that have not written.
    pub fn kill(&self, caller: Caller) -> Result<(), Error> {
        let other = CLEAN[1 - caller as usize];
        let mut outcome = Err(Error::fixed("NOTBUSY No scripts in execution right now."));
        for thread in &self.threads {
            let killed = thread.compare_exchange(CLEAN[caller as usize], KILLED, Ordering::SeqCst, Ordering::SeqCst);
            match killed {
                Ok(_) | Err(KILLED) => outcome = Ok(()),
                Err(state) if outcome.is_err() && WRITTEN.contains(&state) => outcome = Err(Error::fixed(UNKILLABLE)),
                Err(state) if outcome.is_err() && state == other => outcome = Err(self.error()),
                Err(_) => {}
            }
        }
        outcome
    }
}

const BUSY_EVAL: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
    wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn check(outcome: Result<(), Error>, expected: &str) {
        let text = outcome.err().map_or(String::new(), |e| String::from_utf8_lossy(e.text()).into_owned());
        assert_eq!(text.split(' ').next(), Some(expected), "{text}");
    }

    #[test]
    fn only_a_script_that_has_not_written_is_killed() {
        let busy = Busy::new(2);
        check(busy.kill(Caller::Eval), "NOTBUSY");
        let command = OwnedArgs::new([&b"eval"[..]].into_iter());
        let running = || BusyScript::new("x", command.args(), Ticks::now());
        busy.begin(0, Caller::Eval, false, running());
        assert!(busy.any());
        check(busy.kill(Caller::Function), "BUSY");
        assert!(busy.write(0, Caller::Eval));
        check(busy.kill(Caller::Eval), "UNKILLABLE");
        assert!(busy.write(0, Caller::Eval), "again");
        busy.begin(1, Caller::Eval, false, running());
        check(busy.kill(Caller::Eval), "");
        assert!(busy.is_killed(1) && !busy.is_killed(0));
        assert!(!busy.write(1, Caller::Eval));
        busy.end(0);
        busy.end(1);
        assert!(!busy.any() && !busy.is_killed(1));
    }

    #[test]
    fn a_wait_ends_only_beside_a_busy_script_and_after_a_while() {
        let busy = Busy::new(1);
        let while_it_takes = Duration::from_micros(2 * PATIENCE_US as u64);
        let idle = busy.ends_waits();
        assert!(!idle());
        thread::sleep(while_it_takes);
        assert!(!idle(), "no script is busy, however long the wait");

        let command = OwnedArgs::new([&b"eval"[..]].into_iter());
        busy.begin(0, Caller::Eval, false, BusyScript::new("x", command.args(), Ticks::now()));
        let ends = busy.ends_waits();
        assert!(!ends(), "the holder may be about to give it back");
        thread::sleep(while_it_takes);
        assert!(ends());
    }
}
