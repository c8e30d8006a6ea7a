//! Every crash of random histories recovers to a prefix with all acknowledged units.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use journal::lane::{Audience, Writer as Lane, lane};
use journal::merge::Merge;
use journal::record::{Kind, Record};
use penstock_persistence::block;
use penstock_persistence::disk::{Disk, DiskFile};
use penstock_persistence::fake::{FakeDisk, FakeSync};
use penstock_persistence::files::Files;
use penstock_persistence::manifest::Role;
use penstock_persistence::recovery::{Apply, Damage, Extent, Place, read_file, take_command};
use penstock_persistence::writer::{Policy, Writer};

const NAME: &str = "appendonly.aof";

/// Random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The contents of a file: its commands and its records.
#[derive(Default)]
struct Applied {
    commands: Vec<u8>,
    own: Vec<Vec<u8>>,
}

impl Apply for Applied {
    fn commands(&mut self, commands: &[u8], _place: &Place) -> Result<(), (usize, String)> {
        self.commands.extend_from_slice(commands);
        Ok(())
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.own.push(record.to_vec());
        Ok(())
    }
}

impl Applied {
    /// The arguments of all commands except SELECT.
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

    /// The numbers of its units, each checked to be whole.
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
                // Each record has the number of its command, and comes with it.
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

/// Reads all increments. Fails for damage before a torn end.
fn recover(disk: &FakeDisk) -> Result<(Vec<u64>, Extent), Damage> {
    let files = Files::open(disk.clone(), NAME).unwrap();
    let mut applied = Applied::default();
    let mut last = Extent::default();
    for part in files.manifest().increments() {
        assert!(last.is_whole(), "an increment that another follows is whole");
        let (mut reader, _) = disk.read(&part.name).unwrap();
        last = read_file(&mut reader, &mut applied)?;
    }
    Ok((applied.units(), last))
}

/// The position that requests no cut.
const NO_CUT: u64 = u64::MAX;

struct Log {
    lane: Lane,
    writer: Writer<FakeDisk>,
    files: Files<FakeDisk>,
    cut: AtomicU64,
    /// The sync in another thread.
    syncing: Option<FakeSync>,
    tells_time: bool,
}

impl Log {
    /// Runs a step, and begins the next increment at a cut. Returns the last unit with the policy's guarantee, and the last durable unit.
    fn step(&mut self, now: Duration) -> io::Result<(u64, u64)> {
        self.writer.set_time(self.tells_time.then(|| 1_700_000_000 + now.as_secs()));
        self.writer.write(&self.cut, |_| {})?;
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

    /// Ends the running sync, if there is one.
    fn end_sync(&mut self) -> io::Result<()> {
        self.syncing.take().map_or(Ok(()), |sync| self.writer.end_sync(sync.end()))
    }
}

fn begin(disk: &FakeDisk, last: u64, whole: Extent, policy: Policy) -> io::Result<Log> {
    let mut files = Files::open(disk.clone(), NAME).unwrap();
    let appender = files.last_increment(whole)?;
    let (lane, read) = lane();
    let reader = read.join(Audience::File).ok_or_else(|| io::Error::other("the lane has a reader"))?;
    let writer = Writer::new(Merge::new(vec![reader], last), last, appender, policy, Duration::ZERO);
    Ok(Log { lane, writer, files, cut: AtomicU64::new(NO_CUT), syncing: None, tells_time: false })
}

/// A history: units, steps that may fail, and a crash; then another history on the remains.
fn history(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut disk = FakeDisk::new(seed);
    let (mut last, mut whole) = (0, Extent::default());
    for life in 0..3 {
        let mut policy = if numbers.below(3) == 0 { Policy::EverySecond } else { Policy::Always };
        if numbers.below(2) == 0 {
            disk.fail(numbers.below(20), numbers.below(6));
        }
        let Ok(mut log) = begin(&disk, last, whole, policy) else {
            // The start failed: it counts as not tried.
            disk = disk.crash(numbers.0);
            let (units, extent) = recover(&disk).unwrap_or_else(|damage| panic!("seed {seed}: {damage}"));
            assert!(units.len() as u64 >= last, "seed {seed}");
            (last, whole) = (units.len() as u64, extent);
            continue;
        };
        log.tells_time = numbers.below(2) == 0;
        // The units that survive a loss of power, and those that survive the end of the process without a failed call.
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
                    // With `always`, reported units are durable.
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
        (last, whole) = (units.len() as u64, extent);
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
    let mut log = begin(&disk, 0, Extent::default(), Policy::EverySecond).unwrap();
    log.lane.append(1, record(1, 10).bytes());
    let second = Duration::from_secs(1);
    assert_eq!(log.step(second).unwrap(), (1, 0));
    disk.fail(0, 1);
    assert!(log.end_sync().is_err());
    // Units that aren't durable are written again, and the sync fails.
    disk.fail(2, 1);
    assert!(log.step(second).is_err());
    assert_eq!(log.step(second).unwrap(), (1, 1));
}

/// A file of several synced blocks, and the positions of its blocks.
fn synced_file() -> (FakeDisk, String) {
    let disk = FakeDisk::new(7);
    let mut log = begin(&disk, 0, Extent::default(), Policy::Always).unwrap();
    for number in 1..=40 {
        log.lane.append(number, record(number, 30).bytes());
        if number % 10 == 0 {
            log.step(Duration::ZERO).unwrap();
        }
    }
    let name = Files::open(disk.clone(), NAME).unwrap().manifest().last_increment().unwrap().name.clone();
    (disk, name)
}

/// Units left to the system are not reported as durable (WAITAOF, a replica's acknowledgements) until a sync has made them so.
#[test]
fn what_the_system_is_to_sync_is_durable_after_a_sync_only() {
    let disk = FakeDisk::new(3);
    let mut log = begin(&disk, 0, Extent::default(), Policy::Never).unwrap();
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

/// Commands that another server appends to the file can be read, by it and by Penstock. The other server skips lines that begin with `#`,
/// and reads 127 characters of one at a time.
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

/// A sync need not write the file's length then. Filler after the last block is no torn end, and is cut at the file's end.
#[test]
fn where_each_write_is_synced_the_file_is_made_longer_ahead() {
    let disk = FakeDisk::new(5);
    let mut log = begin(&disk, 0, Extent::default(), Policy::Always).unwrap();
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
        // The filler changes nothing about the contents.
        let mut applied = Applied::default();
        let all = read_file(&mut &bytes[..extent.whole as usize], &mut applied).unwrap();
        assert_eq!((all, applied.units()), (extent, units));
        check_others_can_append(&bytes, number as usize);
    }
    lens.dedup();
    assert!((2..10).contains(&lens.len()), "{lens:?}");
    // With one sync for many writes, filler saves nothing.
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
    // A finished increment has none.
    log.lane.append(122, padded(122).bytes());
    log.step(Duration::ZERO).unwrap();
    log.cut.store(123, Ordering::Release);
    log.lane.append(123, padded(123).bytes());
    log.step(Duration::ZERO).unwrap();
    assert!(!disk.bytes(&name).unwrap().ends_with(b"##\n"));
    assert_eq!(recover(&disk).unwrap().0.len(), 123);
    // A full disk has room for the data, but not for filler.
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
    let parts: Vec<usize> =
        (0..end).filter(|&at| bytes[at..].starts_with(b"#ahead ") || blocks.contains(&at)).collect();
    let checkpoints: Vec<usize> = (blocks[3]..end).filter(|&at| bytes[at..].starts_with(b"#=")).collect();
    assert!(checkpoints.len() > 1);
    let line = "#=01234567\n".len();
    for at in block::FILE_START.len()..end {
        disk.rot(&name, at);
        let recovered = recover(&disk);
        if at < blocks[3] {
            let Err(Damage::Bytes { offset, .. }) = recovered else { panic!("rot at {at} was not found") };
            let part = parts.iter().rposition(|&start| start <= at).unwrap();
            assert_eq!(offset, parts[part] as u64, "rot at {at}");
        } else {
            // The last block may not have been durable, so it is cut at its last checkpoint. The rest is never applied.
            let (units, extent) = recovered.unwrap();
            let is_cut_at = |checked: usize| units.len() > 30 && extent.is_cut && extent.whole == checked as u64;
            let is_gone = units.len() == 30 && !extent.is_cut && extent.whole == blocks[3] as u64;
            let last = checkpoints[checkpoints.len() - 1] + line;
            let before = checkpoints.iter().map(|start| start + line).rfind(|&end| end <= at);
            let is_right = match before {
                Some(checked) => is_cut_at(checked),
                // Of the first line, a checkpoint covers only the link.
                None => is_gone || at < blocks[3] + block::HEAD_BYTES && is_cut_at(last),
            };
            assert!(is_right, "rot at {at}: {} units, {extent:?}", units.len());
        }
        disk.rot(&name, at);
    }
    assert_eq!(recover(&disk).unwrap().0.len(), 40);
}

#[test]
fn a_file_that_is_cut_at_a_time_is_whole_and_has_all_that_came_before() {
    let disk = FakeDisk::new(7);
    let mut log = begin(&disk, 0, Extent::default(), Policy::Always).unwrap();
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
    // A line that has become longer has absorbed the next one.
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
    // MULTI, SET and the DISCARD that cancels them.
    assert_eq!(read(&open), Ok((4, len, open.len() as u64 - len)));
    assert_eq!(read(&format!("{set}garbage")), Err(format!("at byte {len}: neither a command nor a comment")));
    assert_eq!(read(&format!("{set}*1\r\n$x\r\n{set}")), Err(format!("at byte {len}: a length that is no number")));
}

/// Appends commands to a file, as another server does.
fn append_as_another(disk: &FakeDisk, name: &str, number: u64) {
    let (mut file, len) = disk.append(name).unwrap();
    let number = number.to_string();
    let command = format!("*3\r\n$3\r\nSET\r\n${}\r\n{number}\r\n$1\r\n1\r\n", number.len());
    let (mut at, mut bytes) = (len, command.as_bytes());
    while !bytes.is_empty() {
        let written = file.write_at(at, bytes).unwrap();
        (at, bytes) = (at + written as u64, &bytes[written..]);
    }
    file.sync().unwrap();
}

fn last_name(disk: &FakeDisk) -> String {
    Files::open(disk.clone(), NAME).unwrap().manifest().last_increment().unwrap().name.clone()
}

/// Writes some synced units and some unsynced ones, and loses power. Each sector of the unsynced writes may have any of its versions since
/// the sync.
fn tear(seed: u64, sector: usize) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut disk = FakeDisk::new(seed);
    let (mut last, mut extent) = (0, Extent::default());
    for life in 0..4 {
        let mut log = begin(&disk, last, extent, Policy::Always).unwrap();
        // Short commands, so that some command begins at every offset in a sector.
        let mut add = |log: &mut Log, count: u64| {
            for _ in 0..count {
                last += 1;
                let padding = if numbers.below(4) == 0 { numbers.below(700) } else { numbers.below(20) };
                log.lane.append(last, record(last, padding as usize).bytes());
            }
        };
        for _ in 0..3 {
            add(&mut log, 1 + seed % 7);
            log.step(Duration::ZERO).unwrap();
        }
        let before = last_of(&disk);
        for _ in 0..1 + seed % 3 {
            add(&mut log, 1 + seed % 40);
            log.writer.write(&log.cut, |_| {}).unwrap();
        }
        let after = disk.crash_with(seed ^ (life << 32), sector);
        let (units, found) = recover(&after).unwrap_or_else(|damage| panic!("seed {seed}, {sector}: {damage}"));
        let expected: Vec<u64> = (1..=units.len() as u64).collect();
        assert_eq!(units, expected, "seed {seed}, {sector}, life {life}: not a prefix");
        assert!(units.len() as u64 >= before, "seed {seed}, {sector}: {} of {before}", units.len());
        // Penstock opens the file, and then another server appends to it.
        drop(begin(&after, units.len() as u64, found, Policy::Always).unwrap());
        append_as_another(&after, &last_name(&after), 1_000_002);
        let (others, all) = recover(&after).unwrap();
        assert_eq!(
            (others.len(), others.last(), all.is_whole()),
            (units.len() + 1, Some(&1_000_002), true),
            "seed {seed}"
        );
        let (mut file, len) = after.append(&last_name(&after)).unwrap();
        // Removes that command again for the next start.
        file.truncate(len - "*3\r\n$3\r\nSET\r\n$7\r\n1000002\r\n$1\r\n1\r\n".len() as u64).unwrap();
        file.sync().unwrap();
        (last, extent) = (units.len() as u64, recover(&after).unwrap().1);
        disk = after;
    }
}

/// Returns the number of units.
fn last_of(disk: &FakeDisk) -> u64 {
    recover(disk).unwrap().0.len() as u64
}

#[test]
fn a_torn_write_is_absent_or_found_whatever_its_sectors_and_their_order() {
    let count = if cfg!(miri) { 2 } else { 400 };
    for sector in [64, 512, 4096] {
        (1..=count).for_each(|seed| tear(seed, sector));
    }
}

/// A command at the start of a sector, after a lost sector, is not mistaken for a command that another server has appended.
#[test]
fn the_rest_of_a_torn_block_is_not_applied_wherever_its_commands_begin() {
    for sector in [512, 4096] {
        let mut found = 0;
        for padding in 0..sector {
            let disk = FakeDisk::new(padding as u64 + 1);
            let mut log = begin(&disk, 0, Extent::default(), Policy::Always).unwrap();
            log.lane.append(1, record(2, padding).bytes());
            log.step(Duration::ZERO).unwrap();
            let name = last_name(&disk);
            let before = disk.bytes(&name).unwrap();
            for number in [3, 4] {
                log.lane.append(number - 1, record(number, 700).bytes());
            }
            log.writer.write(&log.cut, |_| {}).unwrap();
            let mut torn = disk.bytes(&name).unwrap();
            let Some(first) = (0..torn.len().min(before.len())).find(|&at| torn[at] != before[at]) else { continue };
            let lost = first / sector * sector..(first / sector + 1) * sector;
            let end = lost.end.min(before.len());
            torn[lost.start..end].copy_from_slice(&before[lost.start..end]);
            found += u32::from(torn.get(lost.end..).is_some_and(|rest| rest.starts_with(b"*")));
            let mut applied = Applied::default();
            let extent = read_file(&mut &*torn, &mut applied).unwrap();
            assert_eq!(applied.units(), [2], "{sector}, {padding}");
            assert_eq!(extent.torn > 0, torn != before, "{sector}, {padding}");
        }
        assert!(found > 0, "no command begins where a sector does");
    }
}

/// The file ends at a block that a crash has lost as a whole, even if the next block is intact.
#[test]
fn a_block_that_is_filler_still_is_missed_by_the_one_behind_it() {
    let mut found = 0;
    for padding in 0..200 {
        let disk = FakeDisk::new(3);
        let mut log = begin(&disk, 0, Extent::default(), Policy::Always).unwrap();
        log.lane.append(1, record(1, 0).bytes());
        log.step(Duration::ZERO).unwrap();
        let name = last_name(&disk);
        let before = disk.bytes(&name).unwrap();
        let start = recover(&disk).unwrap().1.whole;
        log.lane.append(2, record(2, padding).bytes());
        log.writer.write(&log.cut, |_| {}).unwrap();
        let end = recover(&disk).unwrap().1.whole as usize;
        log.lane.append(3, record(3, 10).bytes());
        log.writer.write(&log.cut, |_| {}).unwrap();
        let mut torn = disk.bytes(&name).unwrap();
        torn[start as usize..end].copy_from_slice(&before[start as usize..end]);
        found += u32::from(end.is_multiple_of(64));
        let mut applied = Applied::default();
        let extent = read_file(&mut &*torn, &mut applied).unwrap();
        assert_eq!((applied.units(), extent.whole), (vec![1], start), "{padding}");
        assert!(extent.torn > 0, "{padding}");
    }
    assert!(found > 0, "no block begins where a line of filler does");
}

#[test]
fn a_block_that_is_cut_keeps_its_units_up_to_the_last_checkpoint() {
    let disk = FakeDisk::new(3);
    let mut log = begin(&disk, 0, Extent::default(), Policy::EverySecond).unwrap();
    (1..=1000).for_each(|number| log.lane.append(number, record(number, 10).bytes()));
    log.step(Duration::ZERO).unwrap();
    log.writer.sync(Duration::ZERO).unwrap();
    let name = last_name(&disk);
    let bytes = disk.bytes(&name).unwrap();
    assert_eq!(bytes.windows(7).filter(|window| *window == block::HEAD_START).count(), 1);
    for cut in (1..1000).chain([bytes.len() - 200]) {
        let cut_bytes = &bytes[..bytes.len() - cut];
        let mut applied = Applied::default();
        let extent = read_file(&mut &*cut_bytes, &mut applied).unwrap();
        let units = applied.units();
        assert_eq!(units, (1..=units.len() as u64).collect::<Vec<_>>());
        let lost = cut_bytes.len() as u64 - extent.whole;
        assert!(lost < 700 && extent.torn == lost && !extent.is_whole(), "cut {cut}: {extent:?}");
        if cut % 97 == 0 {
            go_on_behind_cut(&disk, cut_bytes, &name, &units);
        }
    }
}

/// After the cut, Penstock and another server both continue the file.
fn go_on_behind_cut(from: &FakeDisk, bytes: &[u8], name: &str, units: &[u64]) {
    let disk = from.crash(1);
    let (mut file, _) = disk.append(name).unwrap();
    file.truncate(bytes.len() as u64).unwrap();
    file.sync().unwrap();
    let (there, extent) = recover(&disk).unwrap();
    assert_eq!(there, units);
    let last = units.len() as u64;
    let mut log = begin(&disk, last, extent, Policy::Always).unwrap();
    assert!(recover(&disk).unwrap().1.is_whole());
    append_as_another(&disk, name, 1_000_002);
    assert_eq!(recover(&disk).unwrap().0.len(), units.len() + 1);
    let (mut file, len) = disk.append(name).unwrap();
    file.truncate(len - "*3\r\n$3\r\nSET\r\n$7\r\n1000002\r\n$1\r\n1\r\n".len() as u64).unwrap();
    for number in last + 1..last + 4 {
        log.lane.append(number, record(number, 10).bytes());
        log.step(Duration::ZERO).unwrap();
        assert_eq!(recover(&disk).unwrap().0.len() as u64, number);
    }
}

/// Files of the previous version are read and continued.
#[test]
fn files_of_version_1_are_read_and_continued() {
    let block = |number: u64| format!("*3\r\n$3\r\nSET\r\n$1\r\n{number}\r\n$1\r\nv\r\n");
    let mut text = String::from("#penstock 1\r\n");
    for number in [1, 2] {
        let commands = block(number);
        let start = format!("#block {:012} {:015} 0 ", commands.len(), text.len());
        let checksum = crc32fast::hash(format!("{start}{commands}").as_bytes());
        text += &format!("{start}{checksum:08x}\r\n{commands}");
    }
    let whole = text.len();
    let filler: String = (whole..whole.next_multiple_of(64)).map(|at| if at % 64 == 63 { '\n' } else { '#' }).collect();
    text += &filler;
    let read = |text: &[u8]| {
        let mut applied = Applied::default();
        let extent = read_file(&mut &*text, &mut applied).unwrap();
        (applied.units(), extent)
    };
    let (units, extent) = read(text.as_bytes());
    assert_eq!((units, extent.whole, extent.is_whole()), (vec![1, 2], whole as u64, true));
    // Commands that another server has appended.
    assert_eq!(read((text.clone() + &block(4)).as_bytes()).0, [1, 2, 4]);
    let disk = FakeDisk::new(1);
    drop(begin(&disk, 0, Extent::default(), Policy::Always).unwrap());
    let name = last_name(&disk);
    let (mut file, _) = disk.append(&name).unwrap();
    file.truncate(0).unwrap();
    let mut at = 0;
    while at < text.len() {
        at += file.write_at(at as u64, &text.as_bytes()[at..]).unwrap();
    }
    file.sync().unwrap();
    let (_, extent) = recover(&disk).unwrap();
    let mut log = begin(&disk, 2, extent, Policy::Always).unwrap();
    log.lane.append(3, record(3, 10).bytes());
    log.step(Duration::ZERO).unwrap();
    assert_eq!(recover(&disk).unwrap().0, [1, 2, 3]);
    let later = disk.bytes(&name).unwrap();
    // A file of this version must not contain blocks of the previous version.
    let old = text.as_bytes()["#penstock 1\r\n".len()..whole].to_vec();
    assert_eq!(read(&[&later[..recover(&disk).unwrap().1.whole as usize], &old].concat()).0, [1, 2, 3]);
}

/// Writes files with the unit `old`, then files of other data with the unit `new`, until a call fails.
fn replace_data(disk: &FakeDisk) -> io::Result<()> {
    let write = |name: &str, number: u64| -> io::Result<()> {
        let mut file = disk.create(name)?;
        let mut bytes = block::FILE_START.to_vec();
        record_bytes(number, &mut bytes);
        file.write_at(0, &bytes)?;
        file.sync()
    };
    let mut files = Files::open(disk.clone(), NAME).unwrap();
    let _ = files.begin_increment()?;
    write("appendonly.aof.1.incr.aof", 1)?;
    disk.sync_directory()?;
    files.begin_anew();
    let _ = files.begin_increment()?;
    let _ = files.begin_increment()?;
    for name in ["temp-appendonly.aof.2.incr.aof", "temp-appendonly.aof.3.incr.aof"] {
        write(name, 2)?;
    }
    let (name, sequence) = files.next_base("aof");
    write(&name, 2)?;
    files.install_base(name, sequence, 2)
}

fn record_bytes(number: u64, out: &mut Vec<u8>) {
    let text = number.to_string();
    out.extend_from_slice(format!("*3\r\n$3\r\nSET\r\n${}\r\n{text}\r\n$1\r\nx\r\n", text.len()).as_bytes());
}

/// A start never meets a file with data that the manifest leaves out, nor a manifest that names a missing file.
#[test]
fn the_manifest_fits_the_files_after_every_crash_of_a_first_base() {
    let calls = {
        let disk = FakeDisk::new(1);
        replace_data(&disk).unwrap();
        disk.calls()
    };
    for after in 0..=calls {
        for seed in 1..20 {
            let disk = FakeDisk::new(seed);
            disk.fail(after, u64::MAX);
            let _ = replace_data(&disk);
            let crashed = disk.crash(seed);
            let files = Files::open(crashed.clone(), NAME).unwrap();
            if files.manifest().parts.is_empty() {
                continue;
            }
            let sizes = |name: String| (name.clone(), crashed.bytes(&name).map_or(0, |bytes| bytes.len() as u64));
            let there: Vec<(String, u64)> = crashed.names().into_iter().map(sizes).collect();
            let contradiction = files.manifest().contradiction(NAME, &there);
            assert_eq!(contradiction, None, "call {after}, seed {seed}: {there:?}");
            for part in files.manifest().parts.iter().filter(|part| part.role != Role::History) {
                assert!(crashed.bytes(&part.name).is_some(), "call {after}, seed {seed}: {} is missing", part.name);
            }
        }
    }
}
