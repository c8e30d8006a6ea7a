//! The state file of a load with `--resume`: what a killed loader's successor has to know.
//!
//! Lines of JSON. The first says how far things are known to be; it has a fixed length and is written in place, so that
//! a killed process leaves the old or the new one. The second names the server's token and the inputs as they were; it
//! never changes. The third says how the load ended; it is written before the first says that there is one. A complete
//! load's file stays: its loader may have been killed before it could report the end. The lock on the file keeps two
//! loaders from taking the token from each other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::complete::LoadOutcome;
use crate::exit::{Exit, Failure};
use crate::merge::Merging;
use crate::plan::{Content, Plan};
use crate::source::Origin;

/// Bytes of a state file: tens of thousands of inputs. What is larger is none, and isn't read to the end.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of the first line, which is filled up with blanks: its longest content fits, which a test sees to.
const PROGRESS_BYTES: usize = 320;
/// Bytes of the third line, at most, which a test sees to as well.
const OUTCOME_BYTES_MAX: usize = 512;

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The token is chosen, and the server may or may not know it.
    New,
    /// The server has counted since.
    Started,
    /// All was executed. The server may still have the token.
    Finished,
    /// The server has no token of it any more, either.
    Complete,
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

/// Which failures a successor need not look for: they were reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The requests before this number are done, and those that failed were reported, unless their replies were lost:
    pub requests: u64,
    /// so many requests,
    pub failed_requests: u64,
    /// which are so many of the input's commands.
    pub failed: u64,
    /// So many rejected lines were reported. Older loaders didn't say.
    #[serde(default)]
    pub rejected: u64,
    /// The loader came to an orderly end then. After any other, more may have been reported.
    pub is_all: bool,
}

/// The first line: what changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProgress {
    /// How far the load is.
    pub phase: Phase,
    /// So many commands were known to be answered, at least.
    pub answered: u64,
    /// What is merged; decided when the load starts. Older loaders merged nothing.
    #[serde(default)]
    pub merging: Merging,
    /// What was reported. Older loaders didn't say.
    #[serde(default)]
    pub reported: Reported,
}

/// The second line: which load it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The server and its database, as the command line names them.
    pub server: String,
    /// The inputs in order.
    pub inputs: Vec<Identity>,
    /// The token.
    pub token: String,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadState {
    /// How far the load is.
    pub progress: SavedProgress,
    /// Which load it is.
    pub name: Name,
    /// How it ended; there as soon as it is finished.
    pub outcome: Option<LoadOutcome>,
}

/// An open and locked state file.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
    /// What it says, or is to say.
    pub state: LoadState,
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

/// Where the state of a load is kept unless the user says where: it follows from server, files and templates, so that
/// the same command line finds it again.
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
    /// Opens the file, or makes it, and locks it. `restart` forgets what it says of whatever load.
    ///
    /// # Errors
    /// Another loader has it; it can't be written; it is no load's state, or of another load, or of inputs that have
    /// changed since; this load's state would be too large to be read.
    pub fn open(path: &Path, plan: &Plan, server: &str, restart: bool) -> Result<StateFile, Failure> {
        let trouble = |error: std::io::Error| cannot_write(path, &error);
        let name = Name { server: server.to_owned(), inputs: identities(plan), token: new_token() };
        name.refuse_if_too_large()?;
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(trouble)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(trouble)?;
        if !file.metadata().map_err(trouble)?.is_file() {
            return Err(no_state(path));
        }
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
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(BYTES_MAX as u64).read_to_end(&mut bytes).map_err(trouble)?;
        let known = if restart { forget(&bytes, path)? } else { find(&bytes, &name, path)? };
        // The first line of a loader with less to say was shorter.
        let is_as_written = known.is_some() && memchr::memchr(b'\n', &bytes) == Some(PROGRESS_BYTES - 1);
        let mut state_file =
            StateFile { file, path: path.to_path_buf(), state: known.unwrap_or_else(|| LoadState::new(name)) };
        if !is_as_written {
            state_file.write_all().map_err(trouble)?;
        }
        Ok(state_file)
    }

    /// Writes all of the state to the disk.
    fn write_all(&mut self) -> std::io::Result<()> {
        let mut text = line(&self.state.progress, PROGRESS_BYTES)?;
        text += &line(&self.state.name, 0)?;
        if let Some(outcome) = &self.state.outcome {
            text += &line(outcome, 0)?;
        }
        // At once, so that a killed process leaves the old or the new one; what is behind it then is not looked at.
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        // The file's name must be on the disk, too.
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all())
    }

    /// Writes how far things are.
    ///
    /// # Errors
    /// It can't be written.
    pub fn note(&mut self, answered: u64, reported: Reported) -> Result<(), Failure> {
        self.state.progress.answered = answered;
        self.state.progress.reported = reported;
        self.write_progress().map_err(|error| cannot_write(&self.path, &error))
    }

    fn write_progress(&self) -> std::io::Result<()> {
        self.file.write_all_at(line(&self.state.progress, PROGRESS_BYTES)?.as_bytes(), 0)
    }

    /// Sets the phase, and writes it to the disk: what follows relies on it.
    ///
    /// # Errors
    /// It can't be written.
    pub fn enter(&mut self, phase: Phase) -> Result<(), Failure> {
        self.state.progress.phase = phase;
        let written = self.write_progress().and_then(|()| self.file.sync_data());
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    /// Writes how the load ended, and that it did.
    ///
    /// # Errors
    /// It can't be written.
    pub fn finish(&mut self, outcome: LoadOutcome) -> Result<(), Failure> {
        let written = line(&self.state.name, 0).and_then(|name| {
            let at = (PROGRESS_BYTES + name.len()) as u64;
            self.file.set_len(at)?;
            self.file.write_all_at(line(&outcome, 0)?.as_bytes(), at)?;
            // Before the first line says that this one is there.
            self.file.sync_data()
        });
        written.map_err(|error| cannot_write(&self.path, &error))?;
        self.state.outcome = Some(outcome);
        self.enter(Phase::Finished)
    }

    /// Removes the file: the load never began. The lock lasts as long as this.
    pub fn forget(&self) {
        // If the file stays all the same, it says that nothing was sent.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Name {
    /// Refuses a load of which the state would be too large to be read again.
    fn refuse_if_too_large(&self) -> Result<(), Failure> {
        let bytes = line(self, 0).map_or(usize::MAX, |line| line.len());
        if bytes <= BYTES_MAX - PROGRESS_BYTES - OUTCOME_BYTES_MAX {
            return Ok(());
        }
        let text = format!(
            "the names and templates of {} inputs are more than the {} MB that a load's state may have, and nothing was \
             sent: load them in several parts, or without --resume",
            self.inputs.len(),
            BYTES_MAX >> 20
        );
        Err(Failure::new(Exit::Usage, text))
    }
}

impl LoadState {
    /// Of a load that nothing was sent of.
    fn new(name: Name) -> LoadState {
        let (merging, reported) = (Merging::default(), Reported::default());
        LoadState { progress: SavedProgress { phase: Phase::New, answered: 0, merging, reported }, name, outcome: None }
    }
}

/// A line of the file, filled up to so many bytes.
fn line(content: &impl Serialize, bytes: usize) -> std::io::Result<String> {
    let text = serde_json::to_string(content)?;
    Ok(format!("{text:width$}\n", width = bytes.saturating_sub(1)))
}

/// The first line of a load's state. None if that is not what the file is.
fn first_line(content: &[u8]) -> Option<SavedProgress> {
    serde_json::from_slice(content.split(|&byte| byte == b'\n').next()?).ok()
}

/// The state that a file's content stands for.
fn parse(content: &[u8]) -> Option<LoadState> {
    let progress = first_line(content)?;
    let mut lines = std::str::from_utf8(content).ok()?.lines().skip(1);
    let name = serde_json::from_str(lines.next()?).ok()?;
    // What stands there before the first line says so was cut off by the loader's end.
    let has_ended = matches!(progress.phase, Phase::Finished | Phase::Complete);
    let outcome = if has_ended { Some(serde_json::from_str(lines.next()?).ok()?) } else { None };
    Some(LoadState { progress, name, outcome })
}

/// What an earlier loader left of the load with this name, if it left anything.
fn find(content: &[u8], name: &Name, path: &Path) -> Result<Option<LoadState>, Failure> {
    if content.is_empty() {
        return Ok(None);
    }
    match parse(content) {
        Some(found) => recognise(found, name, path),
        None if first_line(content).is_some() => Err(damaged(path)),
        None => Err(no_state(path)),
    }
}

/// Nothing of what is there is known. All that this asks is whether it may be overwritten: the first line tells a
/// load's state from a file of the user's, in whatever state the rest is.
fn forget(content: &[u8], path: &Path) -> Result<Option<LoadState>, Failure> {
    if content.is_empty() || first_line(content).is_some() { Ok(None) } else { Err(no_state(path)) }
}

/// What an earlier loader left, if it is of the same load. None if that was complete, and its inputs were replaced
/// since.
fn recognise(found: LoadState, name: &Name, path: &Path) -> Result<Option<LoadState>, Failure> {
    let refuse = |text: String| Err(Failure::new(Exit::Resume, text));
    let path = path.display();
    let is_complete = found.outcome.is_some();
    let of = if is_complete { "of a complete load" } else { "of a load" };
    if found.name.server != name.server {
        return refuse(format!("{path} is {of} into {}; --restart forgets it", found.name.server));
    }
    if found.name.inputs.len() != name.inputs.len() {
        return refuse(format!("{path} is {of} with other inputs; --restart forgets it"));
    }
    for (was, is) in found.name.inputs.iter().zip(&name.inputs) {
        if (&was.path, &was.content) != (&is.path, &is.content) {
            return refuse(format!("{path} is {of} with other inputs or templates; --restart forgets it"));
        }
        if was != is && !is_complete {
            let name = &is.path;
            return refuse(format!(
                "{name} was changed since the load began, and going on could apply a line twice or leave one out; \
                 --restart begins anew"
            ));
        }
    }
    let is_same = found.name.inputs == name.inputs;
    Ok(is_same.then_some(found))
}

fn no_state(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(Exit::Resume, format!("{path} is not a load's state; name another file with --state, or remove it"))
}

fn damaged(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        Exit::Resume,
        format!("{path} is a load's state, but not all of it can be read; --restart begins anew"),
    )
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Output, format!("can't keep the load's state in {}: {error}", path.display()))
}

/// A unique token: 128 random bits.
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
    use crate::source::Streamed;

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
    fn the_first_line_has_its_length() {
        let merging = r#"{"families":255,"most":65535,"rules":65535}"#;
        for phase in [Phase::New, Phase::Started, Phase::Finished, Phase::Complete] {
            for (most, merging) in [(0, Merging::default()), (u64::MAX, serde_json::from_str(merging).unwrap())] {
                let reported =
                    Reported { requests: most, failed_requests: most, failed: most, rejected: most, is_all: false };
                let progress = SavedProgress { phase, answered: most, merging, reported };
                let text = line(&progress, PROGRESS_BYTES).unwrap();
                assert_eq!(text.len(), PROGRESS_BYTES, "{text}");
            }
        }
    }

    #[test]
    fn the_last_line_is_no_longer_than_was_reckoned_with() {
        let most = u64::MAX;
        let streamed = Streamed { bytes: most, crc32: u32::MAX };
        let (executed, failed, rejected, ended_s) = (most, most, most, most);
        let outcome = LoadOutcome { executed, failed, failed_at_least: false, rejected, streamed, ended_s };
        assert!(line(&outcome, 0).unwrap().len() <= OUTCOME_BYTES_MAX);
    }

    #[test]
    fn a_state_that_is_kept_can_be_read_and_one_too_large_is_refused_beforehand() {
        let directory = Directory::new("large");
        let path = directory.0.join("state");
        let plan = |inputs: usize| {
            let input = directory.0.join("a".repeat(90)).join("b".repeat(90));
            let source = || Source { origin: Origin::File(input.clone()), content: Content::Commands };
            Plan { sources: (0..inputs).map(|_| source()).collect(), command_bytes_max: 100 }
        };
        let open = |inputs, restart| StateFile::open(&path, &plan(inputs), "here", restart);
        let mut first = open(20_000, false).unwrap();
        first.enter(Phase::Started).unwrap();
        drop(first);
        assert_eq!(open(20_000, false).unwrap().state.progress.phase, Phase::Started);
        assert_eq!(open(20_000, true).unwrap().state.progress.phase, Phase::New);
        std::fs::remove_file(&path).unwrap();
        let refused = open(80_000, false).unwrap_err();
        assert!(refused.message.contains("several parts") && refused.exit == Exit::Usage, "{refused}");
        assert!(!path.exists());
    }

    #[test]
    fn a_damaged_state_says_what_to_do_and_doing_so_helps() {
        let directory = Directory::new("damaged");
        let (input, path) = (directory.0.join("input"), directory.0.join("state"));
        std::fs::write(&input, "PING\n").unwrap();
        let open = |restart| StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", restart);
        drop(open(false).unwrap());
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        let refused = open(false).unwrap_err();
        assert!(refused.message.contains("--restart") && refused.exit == Exit::Resume, "{refused}");
        drop(open(true).unwrap());
        open(false).unwrap();
    }

    #[test]
    fn the_same_load_is_found_again_and_no_other() {
        let directory = Directory::new("state");
        let (input, path) = (directory.0.join("input"), directory.0.join("deep/er/state"));
        std::fs::write(&input, "PING\n").unwrap();
        let open = |template: &str, server: &str| StateFile::open(&path, &plan(&input, template), server, false);
        let mut first = open("SET {a} 1", "here").unwrap();
        assert!(open("SET {a} 1", "here").unwrap_err().message.contains("another loader"));
        let reported = Reported { requests: 4, failed_requests: 2, failed: 3, rejected: 1, is_all: true };
        first.note(1234, Reported::default()).unwrap();
        first.enter(Phase::Started).unwrap();
        first.note(5, reported).unwrap();
        let token = first.state.name.token.clone();
        drop(first);
        let second = open("SET {a} 1", "here").unwrap();
        assert_eq!(second.state.name.token, token);
        let merging = Merging::default();
        assert_eq!(second.state.progress, SavedProgress { phase: Phase::Started, answered: 5, merging, reported });
        drop(second);
        assert!(open("SET {a} 2", "here").unwrap_err().message.contains("other inputs or templates"));
        assert!(open("SET {a} 1", "there").unwrap_err().message.contains("a load into here"));
        std::fs::write(&input, "PING\nPING\n").unwrap();
        let changed = open("SET {a} 1", "here").unwrap_err();
        assert!(changed.message.contains("was changed") && changed.exit == Exit::Resume, "{changed}");
        let anew = StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", true).unwrap();
        assert!(anew.state.name.token != token && anew.state.progress.phase == Phase::New);
        anew.forget();
        assert!(!path.exists());
        for content in [&b"{}"[..], b"SET a 1\nSET b 2\n", b"\x1f\x8b\xff"] {
            std::fs::write(&path, content).unwrap();
            for restart in [false, true] {
                let opened = StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", restart);
                let refused = opened.unwrap_err();
                assert!(refused.message.contains("is not a load's state") && refused.exit == Exit::Resume, "{refused}");
                assert_eq!(std::fs::read(&path).unwrap(), content);
            }
        }
    }

    #[test]
    fn a_state_of_an_older_loader_is_taken_over() {
        let directory = Directory::new("older");
        let (input, path) = (directory.0.join("input"), directory.0.join("state"));
        std::fs::write(&input, "PING\n").unwrap();
        let open = || StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", false).unwrap();
        let mut first = open();
        let outcome = LoadOutcome { executed: 7, ..LoadOutcome::default() };
        first.finish(outcome.clone()).unwrap();
        let name = first.state.name.clone();
        drop(first);
        let older = r#"{"phase":"finished","answered":7}"#;
        let rest = line(&name, 0).unwrap() + r#"{"executed":7,"failed":0,"rejected":0,"#;
        let rest = rest + r#""streamed":{"bytes":0,"crc32":0},"ended_s":0}"#;
        std::fs::write(&path, format!("{older:127}\n{rest}\n")).unwrap();
        let mut second = open();
        assert_eq!((&second.state.name, &second.state.outcome), (&name, &Some(outcome)));
        second.enter(Phase::Complete).unwrap();
        let state = second.state.clone();
        drop(second);
        assert_eq!(open().state, state);
    }

    #[test]
    fn a_complete_load_is_known_until_its_input_is_replaced() {
        let directory = Directory::new("complete");
        let (input, path) = (directory.0.join("input"), directory.0.join("state"));
        std::fs::write(&input, "PING\n").unwrap();
        let open = || StateFile::open(&path, &plan(&input, "SET {a} 1"), "here", false).unwrap();
        let outcome = LoadOutcome { executed: 7, ..LoadOutcome::default() };
        let mut first = open();
        first.finish(outcome.clone()).unwrap();
        drop(first);
        let second = open();
        assert_eq!((second.state.progress.phase, &second.state.outcome), (Phase::Finished, &Some(outcome)));
        drop(second);
        // A loader that ended while it wrote its last line, and before it said so.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text[..text.len() - 10].replacen("finished\"", "started\" ", 1)).unwrap();
        assert_eq!(open().state.progress.phase, Phase::Started);
        std::fs::write(&path, text).unwrap();
        std::fs::write(&input, "PING\nPING\n").unwrap();
        let anew = open();
        assert_eq!((anew.state.progress.phase, &anew.state.outcome), (Phase::New, &None));
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
