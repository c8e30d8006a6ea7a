//! Writes a snapshot's file: beside the old one, synced, and renamed over it once it is whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::io::{self, Read};

use crate::disk::{Disk, DiskFile};

/// Bytes between syncs while a file is written (`rdb-save-incremental-fsync`): Redis's figure. A single sync of the whole file at the end
/// would block the disk for other writers.
const SYNC_EVERY_BYTES: u64 = 4 << 20;

/// A snapshot that is being written. The file is removed unless it is finished.
pub struct SnapshotFile<D: Disk> {
    disk: D,
    /// `None` once it is finished.
    file: Option<D::File>,
    temporary: String,
    len: u64,
    unsynced: u64,
    /// True if it is synced while it is written.
    pub syncs_early: bool,
}

impl<D: Disk> SnapshotFile<D> {
    /// Begins a file, named `temporary` until it is whole.
    ///
    /// # Errors
    /// The disk's error.
    pub fn begin(disk: D, temporary: String) -> io::Result<SnapshotFile<D>> {
        let file = disk.create(&temporary)?;
        Ok(SnapshotFile { disk, file: Some(file), temporary, len: 0, unsynced: 0, syncs_early: true })
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// The disk's error. The file is useless then.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        write_all(file, self.len, bytes)?;
        self.len += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.syncs_early && self.unsynced >= SYNC_EVERY_BYTES {
            file.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Makes the bytes so far durable, which leaves little for [`SnapshotFile::finish`].
    ///
    /// # Errors
    /// The disk's error. The file is useless then.
    pub fn sync(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.file.as_mut().map_or(Ok(()), DiskFile::sync)
    }

    /// Number of bytes so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the file durable and gives it its name, in place of an existing file.
    ///
    /// # Errors
    /// The disk's error. The name belongs to either the old or the new file then.
    pub fn finish(mut self, name: &str) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Err(io::ErrorKind::NotFound.into()) };
        // Before the rename: after a crash the name must not refer to a partial file.
        let renamed = file.sync().and_then(|()| self.disk.rename(&self.temporary, name));
        if renamed.is_err() {
            self.file = Some(file);
        }
        renamed?;
        self.disk.sync_directory()
    }
}

/// Writes all of these bytes at position `at`.
pub(crate) fn write_all<F: DiskFile>(file: &mut F, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(at, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => (at, bytes) = (at + count as u64, &bytes[count..]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<D: Disk> Drop for SnapshotFile<D> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // A failed removal has no remedy.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

/// Bytes read back at once.
const READ_BYTES: usize = 256 << 10;

/// Records of a snapshot that arrive in parts among other records. A snapshot has each record in one piece, so each is collected in a file
/// of its own. A collection of any size takes no memory. The files are never synced, and are removed in the end.
pub struct PartialRecords<D: Disk> {
    disk: D,
    /// The prefix of the files' names.
    prefix: String,
    /// The unfinished records, with their sizes in bytes.
    open: BTreeMap<u64, (D::File, u64)>,
}

impl<D: Disk> PartialRecords<D> {
    /// Begins without records.
    pub fn new(disk: D, prefix: String) -> PartialRecords<D> {
        PartialRecords { disk, prefix, open: BTreeMap::new() }
    }

    fn name(&self, record: u64) -> String {
        name(&self.prefix, record)
    }

    /// Adds bytes at the end of a record.
    ///
    /// # Errors
    /// The disk's error.
    pub fn add(&mut self, record: u64, bytes: &[u8]) -> io::Result<()> {
        let (file, len) = match self.open.entry(record) {
            MapEntry::Occupied(open) => open.into_mut(),
            // Kept even after a failure, because the file must be removed.
            MapEntry::Vacant(new) => new.insert((self.disk.create(&name(&self.prefix, record))?, 0)),
        };
        write_all(file, *len, bytes)?;
        *len += bytes.len() as u64;
        Ok(())
    }

    /// Passes a record's bytes to `each` in order, and removes it.
    ///
    /// # Errors
    /// The disk's error, or the error of `each`.
    pub fn take(&mut self, record: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !self.open.contains_key(&record) {
            return Ok(());
        }
        let (mut reader, _) = self.disk.read(&self.name(record))?;
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match reader.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => each(&bytes[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.open.remove(&record);
        self.disk.remove(&self.name(record))
    }
}

/// The name of a record's file.
fn name(prefix: &str, record: u64) -> String {
    format!("{prefix}-{record}.part")
}

impl<D: Disk> Drop for PartialRecords<D> {
    fn drop(&mut self) {
        for record in std::mem::take(&mut self.open).into_keys() {
            // A failed removal has no remedy.
            let _ = self.disk.remove(&self.name(record));
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

    #[test]
    fn records_in_parts_are_given_whole_and_leave_no_files() {
        let disk = FakeDisk::new(1);
        let mut records = PartialRecords::new(disk.clone(), "temp-1".into());
        for (record, part) in [(1, "one, "), (2, "other"), (1, "two, "), (3, "given up"), (1, "three")] {
            records.add(record, part.as_bytes()).unwrap();
        }
        let mut taken = Vec::new();
        for record in [1, 4, 2] {
            let each = |bytes: &[u8]| {
                taken.extend_from_slice(bytes);
                Ok(())
            };
            records.take(record, each).unwrap();
        }
        assert_eq!(taken, b"one, two, threeother");
        assert_eq!(text(&disk, "temp-1-1.part"), None);
        assert_eq!(text(&disk, "temp-1-3.part").unwrap(), "given up");
        drop(records);
        assert_eq!(text(&disk, "temp-1-3.part"), None);
    }
}
