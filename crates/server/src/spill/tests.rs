use std::sync::{Arc, Mutex};

use super::*;
use crate::testing::engine;

/// A disk in memory of limited size, which fails on demand.
#[derive(Default)]
struct FakeDisk {
    room: u64,
    /// Bytes that the disk reports as free although they are not.
    overstated: u64,
    /// Bytes in use, by file.
    used: Arc<Mutex<HashMap<u64, u64>>>,
    files: u64,
    is_broken: bool,
    is_without_holes: bool,
}

struct FakeFile {
    number: u64,
    bytes: Mutex<Vec<u8>>,
    used: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Drop for FakeFile {
    fn drop(&mut self) {
        self.used.lock().unwrap().remove(&self.number);
    }
}

impl FakeDisk {
    fn in_use(&self) -> u64 {
        self.used.lock().unwrap().values().sum()
    }

    fn use_more(&self, file: &FakeFile, bytes: i64) {
        let mut used = self.used.lock().unwrap();
        let file = used.entry(file.number).or_default();
        *file = file.checked_add_signed(bytes).unwrap();
    }

    fn check(&self) -> io::Result<()> {
        if self.is_broken { Err(io::Error::other("broken")) } else { Ok(()) }
    }
}

impl Disk for FakeDisk {
    type File = FakeFile;

    fn create(&mut self) -> io::Result<FakeFile> {
        self.check()?;
        self.files += 1;
        Ok(FakeFile { number: self.files, bytes: Mutex::default(), used: self.used.clone() })
    }

    fn write(&mut self, file: &mut FakeFile, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.check()?;
        // A little at a time, like with a signal or a nearly full disk.
        let wanted = slices[0].len().min(3000) as u64;
        let count = wanted.min(self.room - self.in_use()) as usize;
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = file.bytes.lock().unwrap();
        assert_eq!(bytes.len() as u64, at);
        bytes.extend_from_slice(&slices[0][..count]);
        self.use_more(file, count as i64);
        Ok(count)
    }

    fn read(&mut self, file: &FakeFile, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.check()?;
        let bytes = file.bytes.lock().unwrap();
        let count = into.len().min(1000).min(bytes.len() - at as usize);
        into[..count].copy_from_slice(&bytes[at as usize..][..count]);
        Ok(count)
    }

    fn give_back(&mut self, file: &mut FakeFile, from: u64, until: u64) -> io::Result<()> {
        if self.is_without_holes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        file.bytes.lock().unwrap()[from as usize..until as usize].fill(b'?');
        self.use_more(file, from as i64 - until as i64);
        Ok(())
    }

    fn empty(&mut self, file: &mut FakeFile) -> io::Result<()> {
        file.bytes.lock().unwrap().clear();
        self.used.lock().unwrap().insert(file.number, 0);
        Ok(())
    }

    fn remove(&mut self, file: FakeFile) {
        drop(file);
    }

    fn free_bytes(&mut self, _: &FakeFile) -> io::Result<u64> {
        Ok(self.room - self.in_use() + self.overstated)
    }
}

struct Bench {
    files: SpillFiles<FakeDisk>,
    /// The expected contents of each file.
    expected: HashMap<u64, Vec<u8>>,
}

impl Bench {
    fn new(engine: &'static Engine, room: u64) -> Bench {
        let disk = FakeDisk { room, ..FakeDisk::default() };
        Bench { files: SpillFiles::new(engine, disk), expected: HashMap::new() }
    }

    /// Writes that many bytes like a worker. Returns the number written, and the reason for a shortfall.
    fn write(&mut self, client: u64, count: usize) -> (u64, Option<NoRoom>) {
        let bytes: Vec<u8> = (0..count).map(|i| (i * 7 + client as usize) as u8).collect();
        self.files.engine.replies.spill_bytes.add(count as u64);
        let Some(SpillOutcome::Wrote { bytes: written, rest, failure }) =
            self.files.run(client, Task::Write(Output::from(bytes.clone())))
        else {
            unreachable!("a write ends as one")
        };
        let (there, missing) = bytes.split_at(written as usize);
        assert_eq!(rest.slices().collect::<Vec<_>>().concat(), missing);
        self.expected.entry(client).or_default().extend_from_slice(there);
        self.check_figures();
        (written, failure)
    }

    /// Reads that many bytes. Returns true on success.
    fn read(&mut self, client: u64, count: usize) -> bool {
        let outcome = self.files.run(client, Task::Read(count));
        self.check_figures();
        let Some(SpillOutcome::Read(mut read)) = outcome else { return false };
        let expected: Vec<u8> = self.expected.get_mut(&client).unwrap().drain(..count).collect();
        assert!(read.joined() == expected);
        true
    }

    fn end(&mut self, client: u64) {
        assert!(self.files.run(client, Task::End).is_none());
        self.expected.remove(&client);
        self.check_figures();
    }

    /// Checks that the counters agree with the disk.
    fn check_figures(&self) {
        let figures = &self.files.engine.replies;
        assert_eq!(figures.spill_bytes.get(), self.files.disk.in_use());
        assert_eq!(figures.spilling.get(), self.files.queues.len() as u64);
    }
}

#[test]
fn files_are_queues_and_give_back_what_was_read() {
    let mut bench = Bench::new(engine(&[("reply-spill-keep-free", "0")]), 1 << 20);
    for client in [1, 2] {
        assert_eq!(bench.write(client, 100_000), (100_000, None));
    }
    assert!(bench.read(1, 10_000) && bench.read(1, 1));
    assert_eq!(bench.files.disk_bytes(1), 100_000 - 2 * BLOCK_BYTES);
    assert_eq!(bench.write(1, 5), (5, None));
    assert!(bench.read(1, 90_004) && bench.read(2, 100));
    assert_eq!(bench.files.disk_bytes(1), 0);
    assert_eq!(bench.write(1, 5000), (5000, None));
    assert!(bench.read(1, 5000));
    bench.end(1);
    bench.end(2);
    bench.end(3);
    assert_eq!(bench.files.disk.in_use(), 0);
}

#[test]
fn space_that_cannot_be_freed_in_parts_counts() {
    let mut bench = Bench::new(engine(&[("reply-spill-keep-free", "0")]), 1 << 20);
    bench.files.disk.is_without_holes = true;
    bench.write(1, 100_000);
    assert!(bench.read(1, 99_999));
    assert_eq!(bench.files.disk_bytes(1), 100_000);
    assert!(bench.read(1, 1));
    assert_eq!(bench.files.disk_bytes(1), 0);
}

#[test]
fn a_full_disk_takes_what_it_can_and_goes_on_when_there_is_room() {
    let mut bench = Bench::new(engine(&[("reply-spill-keep-free", "0")]), 10_000);
    assert_eq!(bench.write(1, 15_000), (0, Some(NoRoom::KeepFree)));
    // Others fill the disk between the check and the write.
    bench.files.disk.overstated = 10_000;
    assert_eq!(bench.write(1, 15_000), (10_000, Some(NoRoom::Disk)));
    assert_eq!(bench.write(2, 2000), (0, Some(NoRoom::Disk)));
    assert!(bench.read(1, 10_000));
    assert_eq!(bench.write(1, 5000), (5000, None));
    assert_eq!(bench.write(2, 2000), (2000, None));
    assert!(bench.read(1, 5000) && bench.read(2, 2000));
}

#[test]
fn some_of_the_disk_stays_free() {
    let mut bench = Bench::new(engine(&[("reply-spill-keep-free", "100kb")]), 200 << 10);
    assert_eq!(bench.write(1, 100 << 10), (100 << 10, None));
    assert_eq!(bench.write(2, 1), (0, Some(NoRoom::KeepFree)));
    bench.end(1);
    assert_eq!(bench.write(2, 1), (1, None));
}

#[test]
fn a_broken_disk_loses_nothing_that_it_gives_back_later() {
    let mut bench = Bench::new(engine(&[("reply-spill-keep-free", "0")]), 1 << 20);
    bench.files.disk.is_broken = true;
    assert_eq!(bench.write(1, 10), (0, Some(NoRoom::Disk)));
    bench.files.disk.is_broken = false;
    assert_eq!(bench.write(1, 50_000), (50_000, None));
    bench.files.disk.is_broken = true;
    assert_eq!(bench.write(1, 10), (0, Some(NoRoom::Disk)));
    assert!(!bench.read(1, 10));
    bench.files.disk.is_broken = false;
    assert!(bench.read(1, 50_000));
    assert_eq!(bench.files.engine.replies.spill_failures.get(), 3);
}
