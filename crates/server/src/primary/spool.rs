//! A snapshot on its way to replicas: a file without a name, which is written once and sent to each replica at its own pace.
//!
//! So a slow replica takes no memory and keeps no worker waiting, and one that comes a little later is sent the same snapshot. The file
//! is never synced: what the page cache has room for costs no disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use engine::replication::peer::SentSnapshot;

pub use replication::transfer::MARK_BYTES;

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Progress {
    Written = 0,
    Whole = 1,
    Failed = 2,
}

/// See the module's documentation.
pub struct SnapshotSpool {
    file: OnceLock<File>,
    /// Bytes that can be read.
    len: AtomicU64,
    progress: AtomicU8,
    cut: u64,
    mark: [u8; MARK_BYTES],
}

impl SnapshotSpool {
    /// A snapshot of this offset that has no bytes yet.
    #[must_use]
    pub fn new(cut: u64, mark: [u8; MARK_BYTES]) -> SnapshotSpool {
        SnapshotSpool { file: OnceLock::new(), len: 0.into(), progress: (Progress::Written as u8).into(), cut, mark }
    }

    /// Says where its bytes are written. The name may be gone afterwards.
    ///
    /// # Errors
    /// If the file can't be opened.
    pub fn begin(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        // There is one writer.
        let _ = self.file.set(file);
        Ok(())
    }

    /// Notes that there are so many bytes.
    pub fn note_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Notes that there are no more to come: all are there, or it has failed.
    pub fn end(&self, is_whole: bool) {
        let progress = if is_whole { Progress::Whole } else { Progress::Failed };
        self.progress.store(progress as u8, Ordering::Release);
    }

    /// Reads bytes that there are.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let Some(file) = self.file.get() else { return Ok(0) };
        let left = self.len.load(Ordering::Acquire).saturating_sub(at);
        let room = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_at(into.get_mut(..room).unwrap_or_default(), at)
    }
}

impl SentSnapshot for SnapshotSpool {
    fn cut(&self) -> u64 {
        self.cut
    }

    fn mark(&self) -> [u8; MARK_BYTES] {
        self.mark
    }

    fn written(&self) -> (u64, bool) {
        // The end before the length: what is whole has its last length.
        let is_whole = self.progress.load(Ordering::Acquire) == Progress::Whole as u8;
        (self.len.load(Ordering::Acquire), is_whole)
    }

    fn has_ended(&self) -> bool {
        self.progress.load(Ordering::Acquire) != Progress::Written as u8
    }

    fn has_failed(&self) -> bool {
        self.progress.load(Ordering::Acquire) == Progress::Failed as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_so_far_is_read() {
        let path = std::env::temp_dir().join(format!("penstock-spool-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let spool = SnapshotSpool::new(7, [b'm'; MARK_BYTES]);
        let mut bytes = [0; 4];
        assert_eq!((spool.read(&mut bytes, 0).unwrap(), spool.written()), (0, (0, false)));
        spool.begin(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        spool.note_len(6);
        assert_eq!((spool.read(&mut bytes, 0).unwrap(), bytes), (4, *b"0123"));
        assert_eq!((spool.read(&mut bytes, 4).unwrap(), &bytes[..2]), (2, &b"45"[..]));
        assert_eq!(spool.read(&mut bytes, 6).unwrap(), 0);
        spool.note_len(10);
        spool.end(true);
        assert_eq!((spool.written(), spool.has_ended(), spool.has_failed()), ((10, true), true, false));
    }
}
