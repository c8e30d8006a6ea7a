//! The result of checking a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Maximum number of distinct names of commands and libraries that are counted for a file. A damaged or hostile file
/// may have any number.
const NAMES_MAX: usize = 256;
/// Name that counts all names beyond the limits.
const OTHERS: &str = "(others)";
/// Maximum number of distinct prefixes of keys that are counted for a snapshot.
const PREFIXES_MAX: usize = 4096;
/// Number of the largest keys of a snapshot that are kept.
const LARGEST_MAX: usize = 10;

/// State of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole file can be read.
    Whole,
    /// The last write is incomplete. Servers cut it off, or have an option to do this.
    Torn,
    /// The file has a flaw that every server refuses.
    Broken,
    /// The file has data that Penstock doesn't support, or a newer format version.
    Unsupported,
}

/// A flaw of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Flaw {
    /// State of the file because of this flaw.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Offset of the flaw, in bytes from the start of the file.
    pub offset: Option<u64>,
    /// The key, if the flaw is in its value.
    pub key: Option<String>,
    /// Description of the flaw, without a full stop.
    pub what: String,
    /// Advice for the user, in sentences.
    pub advice: String,
}

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A snapshot; commands may follow it.
    Snapshot,
    /// A file of commands.
    Commands,
    /// A manifest.
    Manifest,
    /// Any other file.
    Unknown,
}

impl Kind {
    /// Returns the kind as a phrase.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Snapshot => "a snapshot",
            Kind::Commands => "commands of an append-only file",
            Kind::Manifest => "the manifest of an append-only file",
            Kind::Unknown => "neither a snapshot nor an append-only file",
        }
    }
}

/// The result of checking one file.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Path as given by the user, or as derived from the manifest or directory.
    #[serde(skip)]
    pub path: PathBuf,
    /// The path as text.
    pub file: String,
    /// Kind of the file.
    pub kind: Kind,
    /// State of the file.
    pub verdict: Verdict,
    /// Size of the file.
    pub bytes: u64,
    /// Duration of the check.
    pub seconds: f64,
    /// The flaw, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<Flaw>,
    /// Remarks on things that are no flaws.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Contents of the snapshot, as far as it was readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Summary of the commands, as far as they were readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
    /// Files that a manifest names, in reading order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Length of the whole part of a torn file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_bytes: Option<u64>,
    /// File that keeps the bytes that were cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_to: Option<String>,
}

impl Finding {
    /// Returns a finding for a file that hasn't been read yet.
    pub fn new(path: &Path, kind: Kind) -> Finding {
        Finding {
            path: path.to_owned(),
            file: path.display().to_string(),
            kind,
            verdict: Verdict::Whole,
            bytes: 0,
            seconds: 0.0,
            flaw: None,
            notes: Vec::new(),
            snapshot: None,
            commands: None,
            parts: Vec::new(),
            whole_bytes: None,
            cut_to: None,
        }
    }

    /// Returns the finding with a flaw.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Finding {
        self.set_flaw(flaw);
        self
    }

    /// Sets the flaw and the verdict.
    pub fn set_flaw(&mut self, flaw: Flaw) {
        self.verdict = flaw.verdict;
        self.flaw = Some(flaw);
    }
}

/// Contents of a snapshot.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Format and version, as the file header gives them.
    pub format: String,
    /// The server that wrote the snapshot, if the file names it.
    pub server: Option<String>,
    /// Time of writing, in seconds of Unix time, if the file has it.
    pub created_s: Option<u64>,
    /// Size of the snapshot.
    pub bytes: u64,
    /// Result of the checksum test; `None` if the snapshot has no checksum.
    pub checksum_is_right: Option<bool>,
    /// Databases by number.
    pub databases: BTreeMap<u64, Database>,
    /// Names of function libraries.
    pub functions: Names,
    /// Number of scripts from SCRIPT LOAD.
    pub scripts: u64,
    /// Number of pipeline tokens. Only Penstock writes them.
    pub tokens: u64,
    /// Number of collections without elements. Servers skip them.
    pub empty_keys: u64,
    /// The key with the largest value, measured in bytes of the file.
    pub largest: Option<Largest>,
    /// The largest keys, the largest first.
    pub largest_keys: Vec<Largest>,
    /// Keys and bytes by prefix.
    pub prefixes: Prefixes,
}

/// Contents of one database of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Database {
    /// Number of keys.
    pub keys: u64,
    /// Number of keys with an expiry time.
    pub expiring: u64,
    /// Number of expired keys. Servers don't load them.
    pub expired: u64,
    /// Number of keys by type.
    pub types: BTreeMap<&'static str, u64>,
}

impl Snapshot {
    /// Notes the size of a key. `name` formats it, if it is one of the largest.
    pub fn note_size(&mut self, database: u64, bytes: u64, name: impl FnOnce() -> String) {
        let is_large =
            self.largest_keys.len() < LARGEST_MAX || self.largest_keys.last().is_some_and(|last| last.bytes < bytes);
        if !is_large {
            return;
        }
        let at = self.largest_keys.partition_point(|known| known.bytes >= bytes);
        self.largest_keys.insert(at, Largest { key: name(), database, bytes });
        self.largest_keys.truncate(LARGEST_MAX);
        self.largest = self.largest_keys.first().cloned();
    }
}

/// Number and size of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefixSize {
    /// Number of keys.
    pub keys: u64,
    /// Their size in the file.
    pub bytes: u64,
}

/// Keys by prefix: the part of the name up to the first colon. All prefixes beyond the first few thousand share one
/// entry, and keys without a colon have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Prefixes(pub BTreeMap<String, PrefixSize>);

impl Prefixes {
    /// Counts a key with this prefix.
    pub fn count(&mut self, prefix: &str, bytes: u64) {
        let is_known = self.0.contains_key(prefix) || self.0.len() < PREFIXES_MAX;
        let size = match self.0.get_mut(prefix) {
            Some(size) => size,
            None => self.0.entry(if is_known { prefix } else { OTHERS }.to_owned()).or_default(),
        };
        size.keys += 1;
        size.bytes += bytes;
    }

    /// Returns the largest prefixes, the largest first.
    pub fn largest(&self) -> Vec<(&str, PrefixSize)> {
        let mut all: Vec<(&str, PrefixSize)> = self.0.iter().map(|(prefix, size)| (prefix.as_str(), *size)).collect();
        all.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes));
        all
    }
}

/// The size of a key of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// Name of the key.
    pub key: String,
    /// Number of its database.
    pub database: u64,
    /// Its size in the file.
    pub bytes: u64,
}

/// Summary of a sequence of commands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Commands {
    /// True if Penstock wrote some of the commands.
    pub by_penstock: bool,
    /// Number of commands.
    pub count: u64,
    /// Number of commands by name, in capitals.
    pub names: Names,
    /// Databases that the commands select.
    pub databases: BTreeSet<u64>,
    /// Number of transactions.
    pub transactions: u64,
    /// Number of blocks with checksums.
    pub blocks: u64,
    /// Number of records that only Penstock reads: changes of pipeline tokens.
    pub records: u64,
    /// First and last timestamp of the file (`aof-timestamp-enabled`), in seconds of Unix time.
    pub noted_s: Option<(u64, u64)>,
    /// Length of the whole part, from the start of the file.
    pub whole_bytes: u64,
    /// Bytes to append after the whole part if the rest is cut off.
    #[serde(skip)]
    pub closing: Vec<u8>,
}

/// Counts by name. All names beyond the first few hundred share one count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(pub BTreeMap<String, u64>);

impl Names {
    /// Adds one to the count of a name.
    pub fn count(&mut self, name: &str) {
        if let Some(count) = self.0.get_mut(name) {
            *count += 1;
            return;
        }
        let name = if self.0.len() < NAMES_MAX { name } else { OTHERS };
        *self.0.entry(name.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_keys_are_kept_in_order() {
        let mut snapshot = Snapshot::default();
        for bytes in [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7] {
            snapshot.note_size(0, bytes, || bytes.to_string());
        }
        let sizes: Vec<u64> = snapshot.largest_keys.iter().map(|key| key.bytes).collect();
        assert_eq!(sizes, [9, 9, 8, 7, 6, 5, 5, 5, 4, 3]);
        assert_eq!(snapshot.largest.map(|key| key.key), Some("9".to_owned()));
    }

    #[test]
    fn prefixes_are_bounded() {
        let mut prefixes = Prefixes::default();
        for number in 0..10_000_u64 {
            prefixes.count(&format!("{number}:"), 1);
        }
        prefixes.count("7:", 5);
        assert_eq!(prefixes.0.len(), PREFIXES_MAX + 1);
        let others = 10_000 - PREFIXES_MAX as u64;
        let sizes = prefixes.largest();
        assert_eq!(sizes[0], (OTHERS, PrefixSize { keys: others, bytes: others }));
        assert_eq!(sizes[1], ("7:", PrefixSize { keys: 2, bytes: 6 }));
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names::default();
        for number in 0..10_000 {
            names.count(&number.to_string());
        }
        names.count("5");
        assert_eq!((names.0.len(), names.0["5"], names.0[OTHERS]), (NAMES_MAX + 1, 2, 10_000 - NAMES_MAX as u64));
    }
}
