//! Measures how fast small strings are written and read: `rdb_speed [KEYS]`, by default 5 million. Prints the seconds
//! for writing them, for reading alone, and for reading them into a keyspace.

use std::time::Instant;

use penstock_format::Limits;
use penstock_format::crc64::Crc64;
use penstock_format::rdb::{Access, Event, Options, Reader, Writer, trailer};
use store::db::{Clock, Db, SideEffects};
use store::entry::Entry;
use store::hash::KeyHash;
use store::keyspace::{Key, Keyspace};

/// Number of keys that are prefetched together.
const AHEAD: usize = 64;

fn file(keys: u64) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(Options::default()), Vec::new());
    writer.header(&mut out, false);
    writer.select(&mut out, 0);
    for key in 0..keys {
        let entry = Entry::string(format!("key:{key:010}").as_bytes(), format!("value:{key:010}").as_bytes(), None);
        writer.entry(&mut out, &entry, Access::Unknown);
    }
    writer.end(&mut out);
    let mut sum = Crc64::new();
    sum.update(&out);
    out.extend_from_slice(&trailer(Some(&sum)));
    out
}

fn read(bytes: &[u8], mut take: impl FnMut(Entry)) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = Reader::new(bytes, Limits::default());
    loop {
        match reader.read_event()? {
            Event::Entry { entry, .. } => take(entry),
            Event::End(_) => return Ok(()),
            _ => {}
        }
    }
}

fn put(db: &mut Db<'_, '_>, pending: &mut Vec<(KeyHash, Entry)>) {
    db.prefetch(pending.iter().map(|(hash, _)| *hash));
    for (hash, entry) in pending.drain(..) {
        let key = entry.key().to_vec();
        db.put(Key { bytes: &key, hash }, entry);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys: u64 = std::env::args().nth(1).map_or(Ok(5_000_000), |keys| keys.parse())?;
    let started = Instant::now();
    let bytes = file(keys);
    println!("written: {:.2} s, {} MB", started.elapsed().as_secs_f64(), bytes.len() >> 20);
    let started = Instant::now();
    let mut count = 0u64;
    read(&bytes, |entry| count += entry.key().len() as u64)?;
    println!("read: {:.2} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let keyspace = Keyspace::new(256, 1);
    let alone = keyspace.gate().close();
    let mut locked = keyspace.all(&alone);
    let clock = Clock {
        now_ms: 1,
        due_ms: 1,
        uptime_s: 0,
        access: store::db::Access::Noted,
        frequency: None,
        keeps_due: false,
    };
    let mut observed = SideEffects::default();
    let mut db = Db::new(&mut locked, 0, &clock, &mut observed);
    let mut pending = Vec::with_capacity(AHEAD);
    read(&bytes, |entry| {
        pending.push((KeyHash::of(entry.key()), entry));
        if pending.len() == AHEAD {
            put(&mut db, &mut pending);
        }
    })?;
    put(&mut db, &mut pending);
    println!("read into a keyspace of {} keys: {:.2} s", db.sizes().0, started.elapsed().as_secs_f64());
    Ok(())
}
