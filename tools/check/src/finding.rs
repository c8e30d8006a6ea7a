//! What was found in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Names of commands and libraries that are told apart in one file: a damaged or hostile one may have any.
const NAMES_MAX: usize = 256;
/// What the others are counted as.
const OTHERS: &str = "(others)";

/// In what state a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it can be read.
    Whole,
    /// What was written last isn't there as a whole; servers cut that off, or can be told to.
    Torn,
    /// Something is wrong that no server passes over.
    Broken,
    /// It has something that Penstock doesn't have, or is of a version that it doesn't know.
    Unsupported,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Flaw {
    /// The state that it leaves the file in.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Where, in bytes from the file's start.
    pub offset: Option<u64>,
    /// The key in whose value it is.
    pub key: Option<String>,
    /// What is wrong, as a sentence without its full stop.
    pub what: String,
    /// What to do, as sentences.
    pub advice: String,
}

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A snapshot, also one that commands follow.
    Snapshot,
    /// Commands.
    Commands,
    /// A manifest.
    Manifest,
    /// None of these.
    Unknown,
}

impl Kind {
    /// As a phrase.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Snapshot => "a snapshot",
            Kind::Commands => "commands of an append-only file",
            Kind::Manifest => "the manifest of an append-only file",
            Kind::Unknown => "neither a snapshot nor an append-only file",
        }
    }
}

/// A file with all that was found in it.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its name, as it was given or as its manifest and directory say.
    #[serde(skip)]
    pub path: PathBuf,
    /// The same as text.
    pub file: String,
    /// What it is.
    pub kind: Kind,
    /// Its state.
    pub verdict: Verdict,
    /// Its size.
    pub bytes: u64,
    /// How long reading it took.
    pub seconds: f64,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<Flaw>,
    /// What is worth knowing and not wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What there is of a snapshot, as far as it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// What there is of commands, as far as they could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
    /// The files that a manifest names, in the order in which they are read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Up to where a torn file is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_bytes: Option<u64>,
    /// Where what was cut off is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_to: Option<String>,
}

impl Finding {
    /// A file of which nothing has been read yet.
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

    /// The same with what is wrong.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Finding {
        self.set_flaw(flaw);
        self
    }

    /// Notes what is wrong.
    pub fn set_flaw(&mut self, flaw: Flaw) {
        self.verdict = flaw.verdict;
        self.flaw = Some(flaw);
    }
}

/// What a snapshot has.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Whose format it is and in which version, as the file begins.
    pub format: String,
    /// The server that wrote it, if it says so.
    pub server: Option<String>,
    /// When it was written, in seconds of Unix time, if it says so.
    pub created_s: Option<u64>,
    /// Bytes of it.
    pub bytes: u64,
    /// Whether its checksum is right, if it has one.
    pub checksum_is_right: Option<bool>,
    /// By number.
    pub databases: BTreeMap<u64, Database>,
    /// Names of libraries of functions.
    pub functions: Names,
    /// Scripts of SCRIPT LOAD.
    pub scripts: u64,
    /// Pipeline tokens, which only Penstock has.
    pub tokens: u64,
    /// Collections without elements, which servers pass over.
    pub empty_keys: u64,
    /// The key whose value takes most bytes of the file.
    pub largest: Option<Largest>,
}

/// What a database of a snapshot has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Database {
    /// Keys.
    pub keys: u64,
    /// Keys that expire.
    pub expiring: u64,
    /// Keys that have expired, which servers don't load.
    pub expired: u64,
    /// Keys by type.
    pub types: BTreeMap<&'static str, u64>,
}

/// The largest key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// Its name.
    pub key: String,
    /// Its database.
    pub database: u64,
    /// What it takes of the file.
    pub bytes: u64,
}

/// What commands there are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Commands {
    /// Whether Penstock has written some of them.
    pub by_penstock: bool,
    /// How many.
    pub count: u64,
    /// How often each of them, by name in capitals.
    pub names: Names,
    /// Databases that they select.
    pub databases: BTreeSet<u64>,
    /// Transactions.
    pub transactions: u64,
    /// Blocks with checksums.
    pub blocks: u64,
    /// Records that only Penstock reads: changes of pipeline tokens.
    pub records: u64,
    /// The first and last time that the file notes (`aof-timestamp-enabled`), in seconds of Unix time.
    pub noted_s: Option<(u64, u64)>,
    /// Bytes up to which they are whole, from the file's start.
    pub whole_bytes: u64,
}

/// Counts by name; names beyond the first few hundred are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(pub BTreeMap<String, u64>);

impl Names {
    /// Counts one of this name.
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
    fn names_are_bounded() {
        let mut names = Names::default();
        for number in 0..10_000 {
            names.count(&number.to_string());
        }
        names.count("5");
        assert_eq!((names.0.len(), names.0["5"], names.0[OTHERS]), (NAMES_MAX + 1, 2, 10_000 - NAMES_MAX as u64));
    }
}
