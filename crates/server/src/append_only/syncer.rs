//! A thread that syncs the append-only file while the log's thread writes on.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

use persistence::disk::DiskFile;

/// See the module's documentation. The thread ends when this is dropped and no sync runs.
pub struct Syncer<F> {
    jobs: Sender<(F, Thread)>,
    results: Receiver<io::Result<()>>,
}

impl<F: DiskFile> Syncer<F> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no room for it.
    pub fn start() -> io::Result<Syncer<F>> {
        let (jobs, taken) = channel::<(F, Thread)>();
        let (done, results) = channel();
        std::thread::Builder::new().name("log-sync".into()).spawn(move || {
            for (mut file, caller) in taken {
                // The caller may have given up waiting when the server ends.
                let _ = done.send(file.sync());
                caller.unpark();
            }
        })?;
        Ok(Syncer { jobs, results })
    }

    /// Begins to sync a file. The calling thread is unparked when that is done. No other sync may run.
    pub fn begin(&self, file: F) {
        // The thread ends only after this.
        let _ = self.jobs.send((file, std::thread::current()));
    }

    /// The result of the sync that runs, if it has ended.
    pub fn result(&self) -> Option<io::Result<()>> {
        self.results.try_recv().ok()
    }

    /// The same, waiting for so long. Call it only while a sync runs.
    pub fn await_result(&self, patience: Duration) -> Option<io::Result<()>> {
        self.results.recv_timeout(patience).ok()
    }
}
