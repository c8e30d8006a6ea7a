//! The state file of a load with `--resume`: what a killed loader's successor has to know.
//!
//! One line of JSON. It names the server's token, the inputs as they were, and how far things were known to be. It is
//! written in place and never longer than a page, so that a killed process leaves the old or the new line; the lock on it
//! keeps two loaders from taking the token from each other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::plan::{Content, Plan};
use crate::source::Origin;

/// Bytes of a state file: hundreds of inputs.
const BYTES_MAX: u64 = 1 << 20;

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The token is chosen, and the server may or may not know it.
    New,
    /// The server has counted since.
    Started,
    /// All was executed; only the token and this file are to be removed.
    Finished,
}

/// What identifies an input and notices that it was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The absolute path; empty for standard input.
    path: String,
    /// Bytes; 0 where it isn't a regular file.
    size: u64,
    /// When it was changed last, in nanoseconds of Unix time.
    modified_ns: i128,
    /// Format and template.
    content: String,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The server and its database, as the command line names them.
    pub server: String,
    /// The inputs in order.
    pub inputs: Vec<Identity>,
    /// The token.
    pub token: String,
    /// How far the load is.
    pub phase: Phase,
    /// So many commands were known to be answered, at least.
    pub answered: u64,
}

/// An open and locked state file.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
    /// What it says, or is to say.
    pub state: State,
}

impl Identity {
    fn of(origin: &Origin, content: &Content) -> Identity {
        let content = match content {
            Content::Commands => "commands".to_owned(),
            Content::Csv(template, dialect) => {
                let template = String::from_utf8_lossy(template);
                format!("csv {} {}: {template}", char::from(dialect.delimiter), dialect.has_header)
            }
            Content::JsonLines(template) => format!("json: {}", String::from_utf8_lossy(template)),
        };
        let Origin::File(path) = origin else {
            return Identity { path: String::new(), size: 0, modified_ns: 0, content };
        };
        let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file);
        let modified =
            |file: &std::fs::Metadata| i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
        Identity {
            path: std::path::absolute(path).unwrap_or_else(|_| path.clone()).to_string_lossy().into_owned(),
            size: metadata.as_ref().map_or(0, std::fs::Metadata::len),
            modified_ns: metadata.as_ref().map_or(0, modified),
            content,
        }
    }
}

/// The identities of a plan's inputs.
fn identities(plan: &Plan) -> Vec<Identity> {
    plan.sources.iter().map(|source| Identity::of(&source.origin, &source.content)).collect()
}

/// Where the state of a load is kept unless the user says where: it follows from server, files and templates, so that the
/// same command line finds it again.
///
/// # Errors
/// Standard input has no name, or there is no home directory.
pub fn default_path(plan: &Plan, server: &str) -> Result<PathBuf, Failure> {
    if plan.sources.iter().any(|source| source.origin == Origin::Stdin) {
        let text = "standard input has no name by which to find the load again: name a file for its state with --state";
        return Err(Failure::new(Exit::Usage, text));
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let Some(directory) = directory else {
        return Err(Failure::new(
            Exit::Usage,
            "there is no home directory: name a file for the load's state with --state",
        ));
    };
    let mut hash = Fnv::default();
    hash.add(server);
    for identity in identities(plan) {
        hash.add(&identity.path);
        hash.add(&identity.content);
    }
    Ok(directory.join(format!("penstock/load-{:016x}.json", hash.0)))
}

/// FNV-1a with 64 bits: a hash that is the same in every release. Source: the IETF draft of Fowler, Noll, Vo, Eastlake.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl StateFile {
    /// Opens the file, or makes it, and locks it. `restart` forgets what it says.
    ///
    /// # Errors
    /// Another loader has it; it can't be written; what it says is of another load, or of inputs that have changed since.
    pub fn open(path: &Path, plan: &Plan, server: &str, restart: bool) -> Result<StateFile, Failure> {
        let trouble = |error: std::io::Error| cannot_write(path, &error);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(trouble)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(trouble)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Exit::Resume,
                    format!("another loader is at work on this ({})", path.display()),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(trouble(error)),
        }
        let mut text = String::new();
        Read::by_ref(&mut file).take(BYTES_MAX).read_to_string(&mut text).map_err(trouble)?;
        let fresh = State {
            server: server.to_owned(),
            inputs: identities(plan),
            token: new_token(),
            phase: Phase::New,
            answered: 0,
        };
        let line = text.lines().next().unwrap_or_default();
        let state = if line.is_empty() || restart { fresh } else { recognise(line, &fresh, path)? };
        let mut state_file = StateFile { file, path: path.to_path_buf(), state };
        state_file.write()?;
        state_file.file.sync_all().map_err(trouble)?;
        Ok(state_file)
    }

    /// Writes what has changed.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&mut self) -> Result<(), Failure> {
        let written = serde_json::to_string(&self.state).map_err(std::io::Error::from).and_then(|mut line| {
            line.push('\n');
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(line.as_bytes())
        });
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    /// Sets the phase, and writes it.
    ///
    /// # Errors
    /// It can't be written.
    pub fn enter(&mut self, phase: Phase) -> Result<(), Failure> {
        self.state.phase = phase;
        self.write()
    }

    /// Removes the file: the load is complete, or never began. The lock lasts as long as this.
    pub fn forget(&self) {
        // Whoever finds it all the same sees in it that there is nothing left to do.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What an earlier loader left, if it is of the same load.
fn recognise(line: &str, fresh: &State, path: &Path) -> Result<State, Failure> {
    let refuse = |text: String| Err(Failure::new(Exit::Resume, text));
    let path = path.display();
    let Ok(found) = serde_json::from_str::<State>(line) else {
        return refuse(format!("{path} is not a load's state; name another file with --state, or remove it"));
    };
    if found.server != fresh.server {
        return refuse(format!("{path} is of a load into {}; --restart forgets it", found.server));
    }
    if found.inputs.len() != fresh.inputs.len() {
        return refuse(format!("{path} is of a load with other inputs; --restart forgets it"));
    }
    for (was, is) in found.inputs.iter().zip(&fresh.inputs) {
        if (&was.path, &was.content) != (&is.path, &is.content) {
            return refuse(format!("{path} is of a load with other inputs or templates; --restart forgets it"));
        }
        if was != is {
            let name = &is.path;
            return refuse(format!(
                "{name} was changed since the load began, and going on could apply a line twice or leave one out; \
                 --restart begins anew"
            ));
        }
    }
    Ok(found)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Output, format!("can't keep the load's state in {}: {error}", path.display()))
}

/// A token that nobody else has: 128 random bits.
fn new_token() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library seeds each of these from the operating system's randomness.
    let half = || RandomState::new().build_hasher().finish();
    format!("load-{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Source;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("penstock-load-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn plan(path: &Path, template: &str) -> Plan {
        let content = Content::JsonLines(template.as_bytes().to_vec());
        Plan { sources: vec![Source { origin: Origin::File(path.to_path_buf()), content }], command_bytes_max: 100 }
    }

    #[test]
    fn the_same_load_is_found_again_and_no_other() {
        let directory = Directory::new("state");
        let (input, path) = (directory.0.join("input"), directory.0.join("deep/er/state"));
        std::fs::write(&input, "PING\n").unwrap();
        let open = |template: &str, server: &str| StateFile::open(&path, &plan(&input, template), server, false);
        let mut first = open("SET {a} 1", "here").unwrap();
        assert!(open("SET {a} 1", "here").unwrap_err().message.contains("another loader"));
        first.state.answered = 1234;
        first.enter(Phase::Started).unwrap();
        first.state.answered = 5;
        first.write().unwrap();
        let token = first.state.token.clone();
        drop(first);
        let second = open("SET {a} 1", "here").unwrap();
        assert_eq!((&second.state.token, second.state.phase, second.state.answered), (&token, Phase::Started, 5));
        drop(second);
        assert!(open("SET {a} 2", "here").unwrap_err().message.contains("other inputs or templates"));
        assert!(open("SET {a} 1", "there").unwrap_err().message.contains("a load into here"));
        std::fs::write(&input, "PING\nPING\n").unwrap();
        let changed = open("SET {a} 1", "here").unwrap_err();
        assert!(changed.message.contains("was changed") && changed.exit == Exit::Resume, "{changed}");
        let anew = StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", true).unwrap();
        assert!(anew.state.token != token && anew.state.phase == Phase::New);
        anew.forget();
        assert!(!path.exists());
        std::fs::write(&path, "{}").unwrap();
        assert!(open("SET {a} 1", "here").unwrap_err().message.contains("is not a load's state"));
    }

    #[test]
    fn the_default_place_follows_from_what_is_loaded() {
        let name =
            |path: &str, template: &str, server: &str| default_path(&plan(Path::new(path), template), server).unwrap();
        assert_eq!(name("/a", "SET {a} 1", "here"), name("/a", "SET {a} 1", "here"));
        assert_ne!(name("/a", "SET {a} 1", "here"), name("/b", "SET {a} 1", "here"));
        assert_ne!(name("/a", "SET {a} 1", "here"), name("/a", "SET {a} 2", "here"));
        assert_ne!(name("/a", "SET {a} 1", "here"), name("/a", "SET {a} 1", "there"));
        let stdin =
            Plan { sources: vec![Source { origin: Origin::Stdin, content: Content::Commands }], command_bytes_max: 1 };
        assert_eq!(default_path(&stdin, "here").unwrap_err().exit, Exit::Usage);
    }
}
