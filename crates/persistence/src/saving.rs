//! Writing a snapshot's file: beside the old one, synced, and renamed over it once it is whole.

use std::io;

use crate::disk::{Disk, DiskFile};

/// Bytes after which a file is synced while it is written (`rdb-save-incremental-fsync`): Redis's figure. A sync of all of it at
/// the end would keep the disk from others for as long.
const SYNC_EVERY_BYTES: u64 = 4 << 20;

/// A snapshot that is being written. Unless it is finished, its file is removed.
pub struct SnapshotFile<D: Disk> {
    disk: D,
    /// None once it is finished.
    file: Option<D::File>,
    temporary: String,
    len: u64,
    unsynced: u64,
    /// Whether it is synced while it is written.
    pub syncs_early: bool,
}

impl<D: Disk> SnapshotFile<D> {
    /// Begins a file, which has the name `temporary` until it is whole.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(disk: D, temporary: String) -> io::Result<SnapshotFile<D>> {
        let file = disk.create(&temporary)?;
        Ok(SnapshotFile { disk, file: Some(file), temporary, len: 0, unsynced: 0, syncs_early: true })
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// The disk's. The file is of no use then.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        self.len += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.syncs_early && self.unsynced >= SYNC_EVERY_BYTES {
            file.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes it durable and gives it its name, in place of what had it.
    ///
    /// # Errors
    /// The disk's. Then what had the name may have it still, or the new file has it.
    pub fn finish(mut self, name: &str) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Err(io::ErrorKind::NotFound.into()) };
        // Before it is renamed: after a crash, the name must not stand for a file that isn't whole.
        let renamed = file.sync().and_then(|()| self.disk.rename(&self.temporary, name));
        if renamed.is_err() {
            self.file = Some(file);
        }
        renamed?;
        self.disk.sync_directory()
    }
}

impl<D: Disk> Drop for SnapshotFile<D> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nothing else can be done with what can't be removed.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::fake::FakeDisk;

    fn text(disk: &FakeDisk, name: &str) -> Option<String> {
        let (mut reader, _) = disk.read(name).ok()?;
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn the_name_stands_for_a_whole_file_and_one_that_is_given_up_is_removed() {
        let disk = FakeDisk::new(1);
        for (content, finishes) in [("old", true), ("given up", false), ("new", true)] {
            let mut file = SnapshotFile::begin(disk.clone(), "temp-1.rdb".into()).unwrap();
            file.write(content.as_bytes()).unwrap();
            assert_eq!(file.len(), content.len() as u64);
            if finishes {
                file.finish("dump.rdb").unwrap();
            } else {
                drop(file);
            }
            assert_eq!(text(&disk, "temp-1.rdb"), None);
            let expected = if content == "new" { "new" } else { "old" };
            assert_eq!(text(&disk, "dump.rdb").unwrap(), expected);
        }
    }
}
