//! A thread that syncs the append-only file while the log's thread keeps writing.

use crate::threads;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

use persistence::disk::DiskFile;

/// A handle of the thread, which ends once this is dropped and no sync runs.
pub struct Syncer<F> {
    jobs: Sender<(F, Thread)>,
    results: Receiver<io::Result<()>>,
}

impl<F: DiskFile> Syncer<F> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn start() -> io::Result<Syncer<F>> {
        let (jobs, taken) = channel::<(F, Thread)>();
        let (done, results) = channel();
        threads::spawn(&threads::AOF_SYNC, move || {
            for (mut file, caller) in taken {
                // At the server's end the caller may have stopped listening.
                let _ = done.send(file.sync());
                caller.unpark();
            }
        })?;
        Ok(Syncer { jobs, results })
    }

    /// Begins to sync a file. The thread unparks the caller at the end of the sync. No other sync may run.
    pub fn begin(&self, file: F) {
        // The thread ends only after the sender is dropped.
        let _ = self.jobs.send((file, std::thread::current()));
    }

    /// Returns the result of the running sync if it has ended.
    pub fn result(&self) -> Option<io::Result<()>> {
        self.results.try_recv().ok()
    }

    /// Waits up to `patience` for the result of the running sync. A sync must be running.
    pub fn await_result(&self, patience: Duration) -> Option<io::Result<()>> {
        self.results.recv_timeout(patience).ok()
    }
}
