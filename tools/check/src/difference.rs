//! The difference of two snapshots: added, removed and changed keys.
//!
//! The first snapshot's keys are kept as hashes, about 50 bytes each, and the second one is compared with them. The
//! names of removed keys come from a second reading of the first snapshot.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use format::Limits;
use format::rdb::{Checksum, Event, Reader};
use serde::Serialize;
use store::entry::Entry;

use crate::digest;
use crate::shown::{self, count, grouped};

/// Number of keys that are named for each kind of difference.
const NAMED_MAX: usize = 10;

/// Keys with one kind of difference.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keys {
    /// Number of keys.
    pub count: u64,
    /// The first keys in the order of databases and names. The order of keys in a file varies.
    pub first: Vec<NamedKey>,
}

/// A key of a database.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NamedKey {
    /// Number of the database.
    pub database: u64,
    /// Name of the key.
    pub key: String,
}

impl Keys {
    fn add(&mut self, database: u64, key: &[u8]) {
        self.count += 1;
        let named = NamedKey { database, key: shown::name(key) };
        let place = self.first.partition_point(|known| *known < named);
        if place < NAMED_MAX {
            self.first.insert(place, named);
            self.first.truncate(NAMED_MAX);
        }
    }
}

/// The difference of two snapshots.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Keys that only the second snapshot has.
    pub added: Keys,
    /// Keys that only the first snapshot has.
    pub removed: Keys,
    /// Keys with another type or value.
    pub changed: Keys,
    /// Keys with the same value and another expiry time.
    pub other_expiry: Keys,
    /// Number of equal keys.
    pub equal: u64,
}

/// A key's value and expiry time in the first snapshot.
struct Before {
    digest: u64,
    expiry_ms: Option<u64>,
}

impl Difference {
    /// Compares two snapshots.
    ///
    /// # Errors
    /// Returns a message if a file is no whole snapshot.
    pub fn between(first: &Path, second: &Path) -> Result<Difference, String> {
        let mut before = HashMap::new();
        for_each_key(first, |database, entry| {
            let known = Before { digest: digest::of(entry), expiry_ms: entry.expiry() };
            before.insert(digest::sum((database, entry.key())), known);
        })?;
        let mut difference = Difference::default();
        for_each_key(second, |database, entry| {
            let known = before.remove(&digest::sum((database, entry.key())));
            difference.note(known.as_ref(), database, entry);
        })?;
        if !before.is_empty() {
            for_each_key(first, |database, entry| {
                if before.contains_key(&digest::sum((database, entry.key()))) {
                    difference.removed.add(database, entry.key());
                }
            })?;
        }
        Ok(difference)
    }

    fn note(&mut self, before: Option<&Before>, database: u64, entry: &Entry) {
        let keys = match before {
            None => &mut self.added,
            Some(before) if before.digest != digest::of(entry) => &mut self.changed,
            Some(before) if before.expiry_ms != entry.expiry() => &mut self.other_expiry,
            Some(_) => {
                self.equal += 1;
                return;
            }
        };
        keys.add(database, entry.key());
    }

    fn parts(&self) -> [(&'static str, &Keys); 4] {
        [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("with another expiry time", &self.other_expiry),
        ]
    }

    /// Returns true if the snapshots have the same keys, values and expiry times.
    pub fn is_empty(&self) -> bool {
        self.parts().iter().all(|(_, keys)| keys.count == 0)
    }

    /// Returns the difference as lines.
    pub fn text(&self) -> String {
        let mut text = format!("{} equal\n", count(self.equal, "key"));
        for (what, keys) in self.parts().into_iter().filter(|(_, keys)| keys.count > 0) {
            let names: Vec<String> = keys.first.iter().map(NamedKey::text).collect();
            let more = keys.count - names.len() as u64;
            let more = if more > 0 { format!(" and {} more", grouped(more)) } else { String::new() };
            text += &format!("{} {what}: {}{more}\n", count(keys.count, "key"), names.join(", "));
        }
        text
    }
}

impl NamedKey {
    /// Returns the name, with the database unless it is 0.
    pub fn text(&self) -> String {
        if self.database == 0 { self.key.clone() } else { format!("{} (database {})", self.key, self.database) }
    }
}

/// Calls `visit` with the database and entry of each key of a snapshot.
fn for_each_key(path: &Path, mut visit: impl FnMut(u64, &Entry)) -> Result<(), String> {
    let cant = |what: String| format!("can't read {} as a snapshot: {what}", path.display());
    let file = File::open(path).map_err(|error| cant(error.to_string()))?;
    let mut reader = Reader::new(file, Limits::default());
    let mut database = 0;
    loop {
        match reader.read_event().map_err(|error| cant(error.to_string()))? {
            Event::Select(number) => database = number,
            Event::Entry { entry, .. } => visit(database, &entry),
            Event::End(Checksum::Wrong) => return Err(cant("its checksum is wrong".to_owned())),
            Event::End(_) => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_keys_are_named() {
        let mut difference = Difference { equal: 1, ..Difference::default() };
        assert!(difference.is_empty());
        assert_eq!(difference.text(), "1 key equal\n");
        (0..1234).rev().for_each(|number| difference.added.add(number % 2, format!("k{number}").as_bytes()));
        difference.changed.add(0, b"a\n");
        assert!(!difference.is_empty());
        let lines: Vec<String> = difference.text().lines().map(str::to_owned).collect();
        assert!(lines[1].starts_with("1,234 keys added: k0, k10, k100, k1000, "), "{lines:?}");
        assert!(lines[1].ends_with(" and 1,224 more") && lines[2] == "1 key changed: a\\n", "{lines:?}");
    }
}
