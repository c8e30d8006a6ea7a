//! Every crash of random histories recovers to a prefix that has all that was acknowledged.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use journal::lane::{Audience, Writer as Lane, lane};
use journal::merge::Merge;
use journal::record::{Kind, Record};
use penstock_persistence::block;
use penstock_persistence::disk::Disk;
use penstock_persistence::fake::{FakeDisk, FakeSync};
use penstock_persistence::files::Files;
use penstock_persistence::recovery::{Apply, Damage, Extent, read_file, take_command};
use penstock_persistence::writer::{Policy, Writer};

const NAME: &str = "appendonly.aof";

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What a file gave: for each unit its number, and whether all of its parts were there.
#[derive(Default)]
struct Applied {
    commands: Vec<u8>,
    own: Vec<Vec<u8>>,
}

impl Apply for Applied {
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        self.commands.extend_from_slice(commands);
        Ok(())
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.own.push(record.to_vec());
        Ok(())
    }
}

impl Applied {
    /// The arguments of all commands, SELECT apart.
    fn words(&self) -> Vec<Vec<String>> {
        let text = String::from_utf8_lossy(&self.commands).into_owned();
        let mut lines = text.split("\r\n");
        let mut commands = Vec::new();
        while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
            let count: usize = count.parse().unwrap();
            let words: Vec<_> = (0..count).map(|_| lines.nth(1).unwrap().to_string()).collect();
            if words[0] != "SELECT" {
                commands.push(words);
            }
        }
        commands
    }

    /// The units that it has, each whole: their numbers.
    fn units(&self) -> Vec<u64> {
        let mut units = Vec::new();
        let mut words = self.words().into_iter();
        let mut own = self.own.iter().map(|record| String::from_utf8_lossy(record).into_owned());
        while let Some(first) = words.next() {
            let number = if first[0] == "MULTI" {
                let commands: Vec<_> = words.by_ref().take_while(|words| words[0] != "EXEC").collect();
                let number: u64 = commands[0][1].parse().unwrap();
                assert!(
                    commands.iter().enumerate().all(|(at, words)| words[1..] == [format!("{number}"), format!("{at}")])
                );
                assert_eq!(commands.len() as u64, 2 + number % 3, "half a transaction");
                number
            } else {
                first[1].parse().unwrap()
            };
            if number.is_multiple_of(5) {
                // Each carries its number, and comes with the command.
                assert!(own.next().unwrap().ends_with(&format!("{number}\r\n")), "a count of another unit");
            }
            units.push(number);
        }
        assert!(own.next().is_none(), "a count without its command");
        units
    }
}

/// The record of the unit with this number: one command, or several, and a count with some.
fn record(number: u64, padding: usize) -> Record {
    let mut record = Record::default();
    let text = number.to_string();
    let several = number % 4 == 1;
    for at in 0..if several { 2 + number % 3 } else { 1 } {
        let at = at.to_string();
        let database = (number % 3) as usize;
        if several {
            record.push(database, Kind::Command, [&b"SET"[..], text.as_bytes(), at.as_bytes()].into_iter());
        } else {
            let padding = vec![b'x'; padding];
            record.push(database, Kind::Command, [&b"SET"[..], text.as_bytes(), &padding].into_iter());
        }
    }
    if number.is_multiple_of(5) {
        record.push(0, Kind::Own, [&b"COUNT"[..], &vec![b'y'; padding % 200], text.as_bytes()].into_iter());
    }
    record
}

/// Reads all increments. `damage`: what is found damaged before a torn end.
fn recover(disk: &FakeDisk) -> Result<(Vec<u64>, Extent), Damage> {
    let files = Files::open(disk.clone(), NAME).unwrap();
    let mut applied = Applied::default();
    let mut last = Extent { whole: 0, torn: 0 };
    for part in files.manifest().increments() {
        assert_eq!(last.torn, 0, "an increment that another follows is whole");
        let (mut reader, _) = disk.read(&part.name).unwrap();
        last = read_file(&mut reader, &mut applied)?;
    }
    Ok((applied.units(), last))
}

/// No cut is to be made.
const NO_CUT: u64 = u64::MAX;

struct Log {
    lane: Lane,
    writer: Writer<FakeDisk>,
    files: Files<FakeDisk>,
    cut: AtomicU64,
    /// The sync that runs in another thread.
    syncing: Option<FakeSync>,
    tells_time: bool,
}

impl Log {
    /// A step, and the beginning of the next increment where one is to begin. Says up to which unit the policy's promise is
    /// kept, and up to which units are durable.
    fn step(&mut self, now: Duration) -> io::Result<(u64, u64)> {
        self.writer.set_time(self.tells_time.then(|| 1_700_000_000 + now.as_secs()));
        self.writer.write(&self.cut)?;
        let stepped = self.writer.sync_if_due(now, &self.cut)?;
        if let Some(file) = stepped.sync {
            self.syncing = Some(file.begin_sync());
        }
        if stepped.reached_cut {
            self.writer.finish_increment(now)?;
            self.writer.go_on_in(self.files.begin_increment()?);
            self.cut.store(NO_CUT, Ordering::Release);
        }
        Ok((stepped.safe, stepped.synced))
    }

    /// Ends the sync that runs, if one does.
    fn end_sync(&mut self) -> io::Result<()> {
        self.syncing.take().map_or(Ok(()), |sync| self.writer.end_sync(sync.end()))
    }
}

fn begin(disk: &FakeDisk, last: u64, whole: u64, policy: Policy) -> io::Result<Log> {
    let mut files = Files::open(disk.clone(), NAME).unwrap();
    let appender = files.last_increment(whole)?;
    let (lane, read) = lane();
    let reader = read.join(Audience::File).ok_or_else(|| io::Error::other("the lane has a reader"))?;
    let writer = Writer::new(Merge::new(vec![reader], last), last, appender, policy, Duration::ZERO);
    Ok(Log { lane, writer, files, cut: AtomicU64::new(NO_CUT), syncing: None, tells_time: false })
}

/// A history: units, steps that may fail, and a crash; then another on what is left.
fn history(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut disk = FakeDisk::new(seed);
    let (mut last, mut whole) = (0, 0);
    for life in 0..3 {
        let mut policy = if numbers.below(3) == 0 { Policy::EverySecond } else { Policy::Always };
        if numbers.below(2) == 0 {
            disk.fail(numbers.below(20), numbers.below(6));
        }
        let Ok(mut log) = begin(&disk, last, whole, policy) else {
            // It could not start: as if it had not been tried.
            disk = disk.crash(numbers.0);
            let (units, extent) = recover(&disk).unwrap_or_else(|damage| panic!("seed {seed}: {damage}"));
            assert!(units.len() as u64 >= last, "seed {seed}");
            (last, whole) = (units.len() as u64, extent.whole);
            continue;
        };
        log.tells_time = numbers.below(2) == 0;
        // What survives a loss of power, and what survives the end of the process while no call fails.
        let (mut durable, mut written) = (last, last);
        let mut now = Duration::ZERO;
        for _ in 0..numbers.below(40) {
            for _ in 0..numbers.below(6) {
                last += 1;
                let padding = if numbers.below(8) == 0 { numbers.below(5000) } else { numbers.below(60) };
                log.lane.append(last, record(last, padding as usize).bytes());
            }
            if numbers.below(6) == 0 {
                disk.fail(numbers.below(4), 1 + numbers.below(3));
            }
            if numbers.below(10) == 0 {
                let room = numbers.below(200) as usize;
                disk.leave_room(if numbers.below(2) == 0 { Some(room) } else { None });
            }
            now += Duration::from_millis(numbers.below(700));
            if numbers.below(8) == 0 && log.cut.load(Ordering::Acquire) == NO_CUT {
                log.cut.store(last, Ordering::Release);
            }
            if numbers.below(10) == 0 {
                policy = if policy == Policy::Always { Policy::EverySecond } else { Policy::Always };
                log.writer.set_policy(policy);
            }
            let is_cut = log.cut.load(Ordering::Acquire) != NO_CUT;
            let ended = if numbers.below(3) == 0 { log.end_sync() } else { Ok(()) };
            match ended.and_then(|()| log.step(now)) {
                Ok((safe, synced)) => {
                    assert!(policy == Policy::Always || is_cut || safe == last, "seed {seed}: not all is written");
                    assert!(safe >= synced, "seed {seed}");
                    (durable, written) = (durable.max(synced), safe);
                    // With `always`, what is told of is durable.
                    durable = if policy == Policy::Always { durable.max(safe) } else { durable };
                }
                Err(_) => written = durable,
            }
        }
        let (there, _) = recover(&disk).unwrap_or_else(|damage| panic!("seed {seed}, life {life}: {damage}"));
        assert!(there.len() as u64 >= written, "seed {seed}: {} of {written} after a kill", there.len());
        let crashed = disk.crash(numbers.0);
        let (units, extent) = recover(&crashed).unwrap_or_else(|damage| panic!("seed {seed}, life {life}: {damage}"));
        let expected: Vec<u64> = (1..=units.len() as u64).collect();
        assert_eq!(units, expected, "seed {seed}: not a prefix");
        assert!(units.len() as u64 >= durable, "seed {seed}: {} of {durable}", units.len());
        disk = crashed;
        (last, whole) = (units.len() as u64, extent.whole);
    }
}

#[test]
fn every_crash_leaves_a_prefix_with_all_that_was_acknowledged() {
    let count = if cfg!(miri) { 2 } else { 3000 };
    (1..=count).for_each(history);
}

#[test]
fn after_a_sync_that_failed_no_step_succeeds_until_a_sync_has() {
    let disk = FakeDisk::new(1);
    let mut log = begin(&disk, 0, 0, Policy::EverySecond).unwrap();
    log.lane.append(1, record(1, 10).bytes());
    let second = Duration::from_secs(1);
    assert_eq!(log.step(second).unwrap(), (1, 0));
    disk.fail(0, 1);
    assert!(log.end_sync().is_err());
    // What is not durable is written again, and the sync fails.
    disk.fail(2, 1);
    assert!(log.step(second).is_err());
    assert_eq!(log.step(second).unwrap(), (1, 1));
}

/// A file of several blocks, all of them synced, and where its blocks begin.
fn synced_file() -> (FakeDisk, String) {
    let disk = FakeDisk::new(7);
    let mut log = begin(&disk, 0, 0, Policy::Always).unwrap();
    for number in 1..=40 {
        log.lane.append(number, record(number, 30).bytes());
        if number % 10 == 0 {
            log.step(Duration::ZERO).unwrap();
        }
    }
    let name = Files::open(disk.clone(), NAME).unwrap().manifest().last_increment().unwrap().name.clone();
    (disk, name)
}

/// What is left to the system to sync is not told of as durable (WAITAOF, a replica's acknowledgements) until a sync has made it so.
#[test]
fn what_the_system_is_to_sync_is_durable_after_a_sync_only() {
    let disk = FakeDisk::new(3);
    let mut log = begin(&disk, 0, 0, Policy::Never).unwrap();
    let step = |log: &mut Log, number: u64| {
        log.lane.append(number, record(number, 30).bytes());
        log.step(Duration::from_secs(2 * number)).unwrap()
    };
    assert_eq!(step(&mut log, 1), (1, 0));
    log.cut.store(2, Ordering::Release);
    assert_eq!(step(&mut log, 2), (2, 0));
    assert_eq!(step(&mut log, 3), (3, 2), "the increment that has ended was synced");
    log.writer.set_policy(Policy::Always);
    assert_eq!(log.step(Duration::from_secs(6)).unwrap(), (3, 3), "what was written before is synced, too");
    log.writer.set_policy(Policy::Never);
    assert_eq!(step(&mut log, 4), (4, 3));
    log.writer.set_policy(Policy::EverySecond);
    assert_eq!(log.step(Duration::from_secs(9)).unwrap(), (4, 3));
    log.end_sync().unwrap();
    assert_eq!(log.step(Duration::from_secs(9)).unwrap(), (4, 4));
}

/// What another server writes behind the file's end is read, by it and by Penstock. It passes over lines that begin with `#`, of which
/// it reads 127 characters at once.
fn check_others_can_append(bytes: &[u8], units: usize) {
    let more = [bytes, b"*3\r\n$3\r\nSET\r\n$5\r\n99999\r\n$1\r\n1\r\n"].concat();
    let mut applied = Applied::default();
    let extent = read_file(&mut &*more, &mut applied).unwrap();
    assert_eq!((extent.whole, extent.torn, applied.units().len()), (more.len() as u64, 0, units + 1));
    let mut rest = &more[..];
    while !rest.is_empty() {
        let len = if rest[0] == b'#' {
            rest.iter().take(127).position(|&byte| byte == b'\n').map_or(127, |end| end + 1).min(rest.len())
        } else {
            take_command(rest, &mut Vec::new()).unwrap_or_else(|| panic!("{}", rest.escape_ascii()))
        };
        rest = &rest[len..];
    }
}

/// A sync need not write the file's length then. What is behind the last block is no torn end, and goes with the file's end.
#[test]
fn where_each_write_is_synced_the_file_is_made_longer_ahead() {
    let disk = FakeDisk::new(5);
    let mut log = begin(&disk, 0, 0, Policy::Always).unwrap();
    let name = Files::open(disk.clone(), NAME).unwrap().manifest().last_increment().unwrap().name.clone();
    let mut lens = Vec::new();
    for number in 1..=100 {
        log.lane.append(number, record(number, 30).bytes());
        log.step(Duration::ZERO).unwrap();
        let (units, extent) = recover(&disk).unwrap();
        assert_eq!((units.len() as u64, extent.torn), (number, 0));
        let bytes = disk.bytes(&name).unwrap();
        lens.push(bytes.len() as u64);
        assert!(extent.whole <= lens[lens.len() - 1]);
        // It says no more than the file that it would be without.
        let mut applied = Applied::default();
        let all = read_file(&mut &bytes[..extent.whole as usize], &mut applied).unwrap();
        assert_eq!((all, applied.units()), (extent, units));
        check_others_can_append(&bytes, number as usize);
    }
    lens.dedup();
    assert!((2..10).contains(&lens.len()), "{lens:?}");
    // Where one sync is for many writes, there is nothing to be saved.
    log.writer.set_policy(Policy::Never);
    let padded = |number| record(number, 4000);
    (101..=120).for_each(|number| log.lane.append(number, padded(number).bytes()));
    log.step(Duration::ZERO).unwrap();
    let bytes = disk.bytes(&name).unwrap();
    assert!(!bytes.ends_with(b"##\n") && recover(&disk).unwrap().1.whole == bytes.len() as u64);
    log.writer.set_policy(Policy::Always);
    log.lane.append(121, padded(121).bytes());
    log.step(Duration::ZERO).unwrap();
    assert!(disk.bytes(&name).unwrap().ends_with(b"##\n"));
    log.writer.finish_increment(Duration::ZERO).unwrap();
    let (units, extent) = recover(&disk).unwrap();
    assert_eq!((units.len(), extent.whole), (121, disk.bytes(&name).unwrap().len() as u64));
    // An increment that ends has none.
    log.lane.append(122, padded(122).bytes());
    log.step(Duration::ZERO).unwrap();
    log.cut.store(123, Ordering::Release);
    log.lane.append(123, padded(123).bytes());
    log.step(Duration::ZERO).unwrap();
    assert!(!disk.bytes(&name).unwrap().ends_with(b"##\n"));
    assert_eq!(recover(&disk).unwrap().0.len(), 123);
    // A full disk has room for what is written, if not for more.
    disk.leave_room(Some(300));
    log.lane.append(124, record(124, 30).bytes());
    log.step(Duration::ZERO).unwrap();
    assert_eq!(recover(&disk).unwrap().0.len(), 124);
}

#[test]
fn rot_before_the_last_block_is_found_wherever_it_is() {
    let (disk, name) = synced_file();
    let bytes = disk.bytes(&name).unwrap();
    let blocks: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(block::HEAD_START)).collect();
    assert_eq!(blocks.len(), 4);
    let end = recover(&disk).unwrap().1.whole as usize;
    assert!(end < bytes.len(), "it has been made longer ahead");
    for at in block::FILE_START.len()..end {
        disk.rot(&name, at);
        let recovered = recover(&disk);
        if at < blocks[3] {
            let Err(Damage::Bytes { offset, .. }) = recovered else { panic!("rot at {at} was not found") };
            let block = blocks.iter().rposition(|&start| start <= at).unwrap();
            assert_eq!(offset, blocks[block] as u64, "rot at {at}");
        } else {
            // Nothing tells that the last block was durable; it is left out, never applied as it is.
            let (units, extent) = recovered.unwrap();
            assert_eq!((units.len(), extent.whole), (30, blocks[3] as u64), "rot at {at}");
        }
        disk.rot(&name, at);
    }
    assert_eq!(recover(&disk).unwrap().0.len(), 40);
}

#[test]
fn a_file_that_is_cut_at_a_time_is_whole_and_has_all_that_came_before() {
    let disk = FakeDisk::new(7);
    let mut log = begin(&disk, 0, 0, Policy::Always).unwrap();
    log.tells_time = true;
    for number in 1..=40 {
        log.lane.append(number, record(number, 30).bytes());
        log.step(Duration::from_millis(number * 100)).unwrap();
    }
    let name = Files::open(disk.clone(), NAME).unwrap().manifest().last_increment().unwrap().name.clone();
    let bytes = disk.bytes(&name).unwrap();
    let times: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"#TS:")).collect();
    assert_eq!(times.len(), 5);
    for (second, &at) in times.iter().enumerate() {
        let mut applied = Applied::default();
        let extent = read_file(&mut &bytes[..at], &mut applied).unwrap();
        assert_eq!((extent.whole, extent.torn), (at as u64, 0));
        assert_eq!(applied.units().len(), (second * 10).saturating_sub(1));
    }
    // A line that has become longer has swallowed the one behind it.
    let end = times[1] + bytes[times[1]..].iter().position(|&byte| byte == b'\r').unwrap();
    disk.rot(&name, end + 1);
    let Err(Damage::Bytes { offset, .. }) = recover(&disk) else { panic!("rot was not found") };
    assert_eq!(offset, times[1] as u64);
}

#[test]
fn what_redis_was_writing_last_is_cut_and_what_is_no_command_is_refused() {
    let read = |text: &str| {
        let mut applied = Applied::default();
        let extent = read_file(&mut text.as_bytes(), &mut applied).map_err(|damage| damage.to_string())?;
        Ok::<_, String>((applied.words().len(), extent.whole, extent.torn))
    };
    let set = "*3\r\n$3\r\nSET\r\n$1\r\n1\r\n$1\r\nv\r\n";
    let len = set.len() as u64;
    assert_eq!(read(set), Ok((1, len, 0)));
    assert_eq!(read(&format!("#TS:1700000000\r\n{set}")), Ok((1, len + 16, 0)));
    for cut in 1..set.len() {
        assert_eq!(read(&format!("{set}{}", &set[..cut])), Ok((1, len, cut as u64)), "{cut}");
    }
    let open = format!("{set}*1\r\n$5\r\nMULTI\r\n{set}");
    // MULTI, SET and the DISCARD that takes them back.
    assert_eq!(read(&open), Ok((4, len, open.len() as u64 - len)));
    assert_eq!(read(&format!("{set}garbage")), Err(format!("at byte {len}: neither a command nor a comment")));
    assert_eq!(read(&format!("{set}*1\r\n$x\r\n{set}")), Err(format!("at byte {len}: a length that is no number")));
}
