//! The progress of loading data, for INFO.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// True if clients are served from other data meanwhile.
    is_beside: AtomicBool,
    began_s: AtomicU64,
    all: AtomicU64,
    /// The bytes of the earlier files, and these with the loaded part of the present file.
    before: AtomicU64,
    loaded: AtomicU64,
    /// Commands of files that answered an error, since the server began.
    failed: AtomicU64,
}

impl LoadProgress {
    /// Begins loading, at this time in seconds of Unix time.
    pub(crate) fn begin(&self, now_s: u64) {
        self.began_s.store(now_s, Ordering::Relaxed);
        [&self.all, &self.before, &self.loaded].into_iter().for_each(|figure| figure.store(0, Ordering::Relaxed));
    }

    pub(crate) fn set_beside(&self, is_beside: bool) {
        self.is_beside.store(is_beside, Ordering::Relaxed);
    }

    /// Returns whether data are being loaded while clients are served from other data.
    pub(crate) fn is_beside(&self) -> bool {
        self.is_beside.load(Ordering::Relaxed)
    }

    /// Notes the size of all files together.
    pub fn expect(&self, bytes: u64) {
        self.all.store(bytes, Ordering::Relaxed);
    }

    /// Notes the number of loaded bytes of the present file.
    pub fn note(&self, of_file: u64) {
        self.loaded.store(self.before.load(Ordering::Relaxed) + of_file, Ordering::Relaxed);
    }

    /// Notes that a file of this size has been loaded.
    pub fn note_file(&self, bytes: u64) {
        let before = self.before.load(Ordering::Relaxed) + bytes;
        self.before.store(before, Ordering::Relaxed);
        self.loaded.store(before, Ordering::Relaxed);
    }

    /// Counts a command of a file that answered an error. Returns how many there have been.
    pub fn note_failed(&self) -> u64 {
        self.failed.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Commands of files that answered an error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the start of loading, in seconds of Unix time.
    #[must_use]
    pub fn began_s(&self) -> u64 {
        self.began_s.load(Ordering::Relaxed)
    }

    /// Returns the number of loaded bytes, and the size of all files.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.loaded.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}
