//! Writing a snapshot's file: beside the old one, synced, and renamed over it once it is whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::io::{self, Read};

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

    /// Makes what there is durable, so that little is left for [`SnapshotFile::finish`].
    ///
    /// # Errors
    /// The disk's. The file is of no use then.
    pub fn sync(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.file.as_mut().map_or(Ok(()), DiskFile::sync)
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

/// Writes all of these from byte `at` on.
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
            // Nothing else can be done with what can't be removed.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

/// Bytes that are read back at once.
const READ_BYTES: usize = 256 << 10;

/// Records of a snapshot that come in parts, among other records: each waits in a file of its own until it is whole, for a
/// snapshot has it in one piece. So a collection of any size takes no memory. The files are never synced, and removed in the end.
pub struct PartialRecords<D: Disk> {
    disk: D,
    /// What the names of the files begin with.
    prefix: String,
    /// Those that have begun, and how many bytes of each there are.
    open: BTreeMap<u64, (D::File, u64)>,
}

impl<D: Disk> PartialRecords<D> {
    /// No records yet.
    pub fn new(disk: D, prefix: String) -> PartialRecords<D> {
        PartialRecords { disk, prefix, open: BTreeMap::new() }
    }

    fn name(&self, record: u64) -> String {
        name(&self.prefix, record)
    }

    /// Adds bytes at the end of a record.
    ///
    /// # Errors
    /// The disk's.
    pub fn add(&mut self, record: u64, bytes: &[u8]) -> io::Result<()> {
        let (file, len) = match self.open.entry(record) {
            MapEntry::Occupied(open) => open.into_mut(),
            // Kept in any case, for the file has to be removed.
            MapEntry::Vacant(new) => new.insert((self.disk.create(&name(&self.prefix, record))?, 0)),
        };
        write_all(file, *len, bytes)?;
        *len += bytes.len() as u64;
        Ok(())
    }

    /// Gives a record's bytes in their order, and forgets it.
    ///
    /// # Errors
    /// The disk's, or those of `each`.
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
            // Nothing else can be done with what can't be removed.
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
