//! A snapshot on its way to replicas: a file without a name, written once and sent to each replica at its own pace.
//!
//! A slow replica therefore takes no memory and delays no worker, and a replica that joins a little later gets the same snapshot. The file
//! is never synced: the part that fits into the page cache costs no disk access.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use engine::replication::peer::SentSnapshot;
use engine::snapshots::SnapshotForm;

pub use replication::transfer::MARK_BYTES;

/// The state of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Progress {
    Written = 0,
    Whole = 1,
    Failed = 2,
}

/// The file and its readable length.
pub struct SnapshotSpool {
    file: OnceLock<File>,
    /// Readable bytes.
    len: AtomicU64,
    progress: AtomicU8,
    cut: u64,
    mark: [u8; MARK_BYTES],
    form: SnapshotForm,
}

impl SnapshotSpool {
    /// Returns a snapshot of this offset and form without bytes.
    #[must_use]
    pub fn new(cut: u64, mark: [u8; MARK_BYTES], form: SnapshotForm) -> SnapshotSpool {
        let progress = (Progress::Written as u8).into();
        SnapshotSpool { file: OnceLock::new(), len: 0.into(), progress, cut, mark, form }
    }

    /// Opens the file that its bytes are written to. The name may be removed afterwards.
    ///
    /// # Errors
    /// If the file can't be opened.
    pub fn begin(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        // There is one writer.
        let _ = self.file.set(file);
        Ok(())
    }

    /// Sets the number of readable bytes.
    pub fn note_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Ends the file, as complete or as failed.
    pub fn end(&self, is_whole: bool) {
        let progress = if is_whole { Progress::Whole } else { Progress::Failed };
        self.progress.store(progress as u8, Ordering::Release);
    }

    /// Reads available bytes.
    ///
    /// # Errors
    /// The disk's error.
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

    fn form(&self) -> SnapshotForm {
        self.form
    }

    fn written(&self) -> (u64, bool) {
        // The end is read before the length: a complete file has its final length.
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
    fn written_bytes_are_readable_at_once() {
        let path = std::env::temp_dir().join(format!("penstock-spool-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let spool = SnapshotSpool::new(7, [b'm'; MARK_BYTES], SnapshotForm::Rdb);
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
