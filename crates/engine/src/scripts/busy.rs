//! Scripts that run for too long: what their thread's other connections and the other threads are told, and how one is
//! ended.
//!
//! A script that has run for `busy-reply-threshold` milliseconds is *busy*. From then on its thread looks after its
//! other connections whenever the script is looked at ([`crate::worker::Attendant`]), and other threads that wait for
//! shards or for the gate give up waiting; all answer BUSY to what they can't run. SCRIPT KILL ends a busy script
//! unless it has written.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use resp::request::{Args, OwnedArgs};

use crate::machine::ticks::{Ticks, to_microseconds};

/// No busy script runs on the thread.
const NONE: u8 = 0;
/// One runs that has not written, called by EVAL or by FCALL.
const CLEAN: [u8; 2] = [1, 2];
/// One that has.
const WRITTEN: [u8; 2] = [3, 4];
/// One that has to end.
const KILLED: u8 = 5;

/// How long a thread waits for others that hold what it needs though no busy script does, in microseconds: longer than
/// most commands take, on a machine with all cores taken, too.
const PATIENCE_US: f64 = 2000.0;

/// Which threads run busy scripts.
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
    /// For how long it has run.
    pub milliseconds: i64,
}

impl BusyScript {
    pub(crate) fn new(name: &str, command: Args<'_>, began: Ticks) -> BusyScript {
        BusyScript { name: name.to_string(), command: command.to_owned(), began, milliseconds: 0 }
    }
}

/// What calls a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// EVAL and its kin.
    Eval,
    /// FCALL and FCALL_RO.
    Function,
}

impl Busy {
    /// None yet.
    #[must_use]
    pub fn new(threads: usize) -> Busy {
        Busy {
            threads: (0..threads).map(|_| AtomicU8::new(NONE)).collect(),
            count: AtomicUsize::new(0),
            running: Mutex::default(),
        }
    }

    /// Whether a busy script runs anywhere.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// What a wait for a shard or for the gate asks, again and again once it has become long, whether it is to be given
    /// up: when a busy script runs anywhere and it has been asked for two milliseconds.
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

    /// A thread's script is busy from now on.
    pub(crate) fn begin(&self, thread: usize, caller: Caller, has_written: bool, running: BusyScript) {
        self.running().push((thread, running));
        let states = if has_written { WRITTEN } else { CLEAN };
        self.threads[thread].store(states[caller as usize], Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// It has ended.
    pub(crate) fn end(&self, thread: usize) {
        self.running().retain(|(of, _)| *of != thread);
        self.threads[thread].store(NONE, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn running(&self) -> MutexGuard<'_, Vec<(usize, BusyScript)>> {
        // What is behind the lock is always whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script that has been busy for longest.
    #[must_use]
    pub fn longest(&self) -> Option<BusyScript> {
        let mut running = self.running().first().map(|(_, running)| running.clone())?;
        running.milliseconds = (to_microseconds(Ticks::now().since(running.began)) / 1000.0) as i64;
        Some(running)
    }

    /// It is about to write for the first time. False: it must not, and has to end.
    pub(crate) fn write(&self, thread: usize, caller: Caller) -> bool {
        let (clean, written) = (CLEAN[caller as usize], WRITTEN[caller as usize]);
        let state = &self.threads[thread];
        state.compare_exchange(clean, written, Ordering::SeqCst, Ordering::SeqCst).is_ok() || !self.is_killed(thread)
    }

    /// Whether a thread's script has to end.
    pub(crate) fn is_killed(&self, thread: usize) -> bool {
        self.threads[thread].load(Ordering::SeqCst) == KILLED
    }

    /// What commands are answered that can't be run.
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
    fn only_what_has_not_written_is_killed() {
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
    fn a_wait_is_given_up_only_beside_a_busy_script_and_after_a_while() {
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
