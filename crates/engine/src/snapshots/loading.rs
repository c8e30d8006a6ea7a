//! How far the loading of data is, for INFO.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// Clients are served other data meanwhile.
    is_beside: AtomicBool,
    began_s: AtomicU64,
    all: AtomicU64,
    /// Those of the files before the present one, and of this one.
    before: AtomicU64,
    loaded: AtomicU64,
}

impl LoadProgress {
    /// Loading begins, at this time in seconds of Unix time.
    pub(crate) fn begin(&self, now_s: u64) {
        self.began_s.store(now_s, Ordering::Relaxed);
        [&self.all, &self.before, &self.loaded].into_iter().for_each(|figure| figure.store(0, Ordering::Relaxed));
    }

    pub(crate) fn set_beside(&self, is_beside: bool) {
        self.is_beside.store(is_beside, Ordering::Relaxed);
    }

    /// Whether data are being loaded while clients are served other data.
    pub(crate) fn is_beside(&self) -> bool {
        self.is_beside.load(Ordering::Relaxed)
    }

    /// Notes that all files together have this many bytes.
    pub fn expect(&self, bytes: u64) {
        self.all.store(bytes, Ordering::Relaxed);
    }

    /// Notes how many bytes of the present file have been loaded.
    pub fn note(&self, of_file: u64) {
        self.loaded.store(self.before.load(Ordering::Relaxed) + of_file, Ordering::Relaxed);
    }

    /// Notes that a file of this many bytes has been loaded.
    pub fn note_file(&self, bytes: u64) {
        let before = self.before.load(Ordering::Relaxed) + bytes;
        self.before.store(before, Ordering::Relaxed);
        self.loaded.store(before, Ordering::Relaxed);
    }

    /// When it began, in seconds of Unix time.
    #[must_use]
    pub fn began_s(&self) -> u64 {
        self.began_s.load(Ordering::Relaxed)
    }

    /// Bytes that have been loaded, and those of all files.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.loaded.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}
