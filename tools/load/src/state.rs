//! The state file of a load with `--resume`: the information for a later loader if this one is killed.
//!
//! The file has lines of JSON. The first line is the progress. It has a fixed length and is overwritten in place, so
//! that a killed process leaves the old or the new line. The second line contains the server's token and the identities
//! of the inputs; it never changes. The third line is the result of the load; it is written before the first line
//! declares it. The file of a complete load stays, because its loader may have been killed before it could report the
//! end. A lock on the file prevents two loaders from using the same token.

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

/// Maximum size of a state file: enough for tens of thousands of inputs. Larger files aren't state files, and aren't
/// read to the end.
const BYTES_MAX: usize = 16 << 20;
/// Length of the first line, which is padded with blanks. A test checks that its longest content fits.
const PROGRESS_BYTES: usize = 320;
/// Maximum length of the third line. A test checks it, too.
const OUTCOME_BYTES_MAX: usize = 512;

/// Phase of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The token was chosen. The server may know it or not.
    New,
    /// The server has counted requests.
    Started,
    /// All commands were executed. The server may still have the token.
    Finished,
    /// The load is finished, and the server has no token.
    Complete,
}

/// Identity of an input. It detects changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Absolute path; empty for standard input.
    path: String,
    /// Size in bytes; 0 if it isn't a regular file.
    size: u64,
    /// Time of the last modification, in nanoseconds of Unix time.
    modified_ns: i128,
    /// Format and template.
    content: String,
}

/// Errors that were reported. A later run need not report them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The requests before this number are done, and their failures were reported, except for lost replies.
    pub requests: u64,
    /// Number of the reported failed requests.
    pub failed_requests: u64,
    /// Number of the reported failed commands.
    pub failed: u64,
    /// Number of the reported rejected lines. Older loaders didn't write it.
    #[serde(default)]
    pub rejected: u64,
    /// True after an orderly end of the loader. Otherwise more errors may have been reported.
    pub is_all: bool,
}

/// The first line: the parts that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProgress {
    /// Phase of the load.
    pub phase: Phase,
    /// Minimum number of answered commands.
    pub answered: u64,
    /// Settings for merging, fixed at the start of the load. Older loaders didn't merge.
    #[serde(default)]
    pub merging: Merging,
    /// Reported errors. Older loaders didn't write them.
    #[serde(default)]
    pub reported: Reported,
}

/// The second line: the identity of the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The server and its database, as given on the command line.
    pub server: String,
    /// The inputs in order.
    pub inputs: Vec<Identity>,
    /// The token.
    pub token: String,
}

/// Contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadState {
    /// Progress of the load.
    pub progress: SavedProgress,
    /// Identity of the load.
    pub name: Name,
    /// Result of the load, from its end on.
    pub outcome: Option<LoadOutcome>,
}

/// An open and locked state file.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
    /// Current contents.
    pub state: LoadState,
}

impl Identity {
    fn of(origin: &Origin, content: &Content) -> Identity {
        let text = |templates: &[Vec<u8>]| String::from_utf8_lossy(&templates.join(&b'\n')).into_owned();
        let content = match content {
            Content::Commands => "commands".to_owned(),
            Content::Csv(templates, dialect) => {
                let text = text(templates);
                format!("csv {} {}: {text}", char::from(dialect.delimiter), dialect.has_header)
            }
            Content::JsonLines(templates) => format!("json: {}", text(templates)),
            Content::JsonArray(templates) => format!("json array: {}", text(templates)),
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

/// Returns the identities of a plan's inputs.
fn identities(plan: &Plan) -> Vec<Identity> {
    plan.sources.iter().map(|source| Identity::of(&source.origin, &source.content)).collect()
}

/// Returns the default path of the state file. It is derived from the server, files and templates, so that the same
/// command line finds it again.
///
/// # Errors
/// Returns an error if standard input is among the inputs, because it has no name, or if there is no home directory.
pub fn default_path(plan: &Plan, server: &str) -> Result<PathBuf, Failure> {
    if plan.sources.iter().any(|source| source.origin == Origin::Stdin) {
        let text = "standard input has no name that identifies the load: name a state file with --state";
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

/// FNV-1a with 64 bits: a hash that is stable across releases. Source: the IETF draft of Fowler, Noll, Vo, Eastlake.
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
    /// Opens or creates the file, and locks it. `restart` discards the state of any load.
    ///
    /// # Errors
    /// Returns an error if another loader has locked the file; if it can't be written; if it isn't a state file, or
    /// belongs to another load or to inputs that have changed; or if this load's state would be too large.
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
        // The first line of older loaders was shorter.
        let is_as_written = known.is_some() && memchr::memchr(b'\n', &bytes) == Some(PROGRESS_BYTES - 1);
        let mut state_file =
            StateFile { file, path: path.to_path_buf(), state: known.unwrap_or_else(|| LoadState::new(name)) };
        if !is_as_written {
            state_file.write_all().map_err(trouble)?;
        }
        Ok(state_file)
    }

    /// Writes the whole state to disk.
    fn write_all(&mut self) -> std::io::Result<()> {
        let mut text = line(&self.state.progress, PROGRESS_BYTES)?;
        text += &line(&self.state.name, 0)?;
        if let Some(outcome) = &self.state.outcome {
            text += &line(outcome, 0)?;
        }
        // A single write, so that a killed process leaves the old or the new state. Bytes after it are ignored in this
        // case.
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        // The file's directory entry must be on disk, too.
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all())
    }

    /// Writes the progress.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn note(&mut self, answered: u64, reported: Reported) -> Result<(), Failure> {
        self.state.progress.answered = answered;
        self.state.progress.reported = reported;
        self.write_progress().map_err(|error| cannot_write(&self.path, &error))
    }

    fn write_progress(&self) -> std::io::Result<()> {
        self.file.write_all_at(line(&self.state.progress, PROGRESS_BYTES)?.as_bytes(), 0)
    }

    /// Sets the phase and syncs it to disk, because later steps rely on it.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn enter(&mut self, phase: Phase) -> Result<(), Failure> {
        self.state.progress.phase = phase;
        let written = self.write_progress().and_then(|()| self.file.sync_data());
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    /// Writes the result of the load, and the phase `Finished`.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn finish(&mut self, outcome: LoadOutcome) -> Result<(), Failure> {
        let written = line(&self.state.name, 0).and_then(|name| {
            let at = (PROGRESS_BYTES + name.len()) as u64;
            self.file.set_len(at)?;
            self.file.write_all_at(line(&outcome, 0)?.as_bytes(), at)?;
            // The third line must be on disk before the first line declares it.
            self.file.sync_data()
        });
        written.map_err(|error| cannot_write(&self.path, &error))?;
        self.state.outcome = Some(outcome);
        self.enter(Phase::Finished)
    }

    /// Removes the file of a load that never began. The lock is held until this value is dropped.
    pub fn forget(&self) {
        // If the file stays, it says that nothing was sent.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Name {
    /// Refuses a load with a state that would be too large to be read again.
    fn refuse_if_too_large(&self) -> Result<(), Failure> {
        let bytes = line(self, 0).map_or(usize::MAX, |line| line.len());
        if bytes <= BYTES_MAX - PROGRESS_BYTES - OUTCOME_BYTES_MAX {
            return Ok(());
        }
        let text = format!(
            "the names and templates of {} inputs exceed the limit of {} MB for a load's state, and nothing was \
             sent: load them in several parts, or without --resume",
            self.inputs.len(),
            BYTES_MAX >> 20
        );
        Err(Failure::new(Exit::Usage, text))
    }
}

impl LoadState {
    /// Returns the state of a load before anything was sent.
    fn new(name: Name) -> LoadState {
        let (merging, reported) = (Merging::default(), Reported::default());
        LoadState { progress: SavedProgress { phase: Phase::New, answered: 0, merging, reported }, name, outcome: None }
    }
}

/// Formats a line of the file, padded to `bytes` bytes.
fn line(content: &impl Serialize, bytes: usize) -> std::io::Result<String> {
    let text = serde_json::to_string(content)?;
    Ok(format!("{text:width$}\n", width = bytes.saturating_sub(1)))
}

/// Parses the first line of a state file. Returns `None` if the file isn't one.
fn first_line(content: &[u8]) -> Option<SavedProgress> {
    serde_json::from_slice(content.split(|&byte| byte == b'\n').next()?).ok()
}

/// Parses a state file.
fn parse(content: &[u8]) -> Option<LoadState> {
    let progress = first_line(content)?;
    let mut lines = std::str::from_utf8(content).ok()?.lines().skip(1);
    let name = serde_json::from_str(lines.next()?).ok()?;
    // A third line that the first one doesn't declare was cut off by the loader's end.
    let has_ended = matches!(progress.phase, Phase::Finished | Phase::Complete);
    let outcome = if has_ended { Some(serde_json::from_str(lines.next()?).ok()?) } else { None };
    Some(LoadState { progress, name, outcome })
}

/// Returns the state that an earlier loader left of the load with this name, if there is one.
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

/// Checks that the file may be overwritten, and returns no state. The first line distinguishes a state file from a file
/// of the user's, whatever the condition of the rest.
fn forget(content: &[u8], path: &Path) -> Result<Option<LoadState>, Failure> {
    if content.is_empty() || first_line(content).is_some() { Ok(None) } else { Err(no_state(path)) }
}

/// Returns the earlier state if it belongs to the same load. Returns `None` if that load was complete and its inputs
/// were replaced since.
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
                "{name} was changed since the load began; continuing could apply a line twice or omit one; use \
                 --restart to start again"
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
        format!("{path} is a load's state, but parts of it are unreadable; use --restart to start again"),
    )
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Output, format!("can't keep the load's state in {}: {error}", path.display()))
}

/// Returns a unique token: 128 random bits.
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
        let content = Content::JsonLines(vec![template.as_bytes().to_vec()]);
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
    fn the_last_line_fits_into_its_limit() {
        let most = u64::MAX;
        let streamed = Streamed { bytes: most, crc32: u32::MAX };
        let (executed, failed, rejected, ended_s) = (most, most, most, most);
        let outcome = LoadOutcome { executed, failed, failed_at_least: false, rejected, streamed, ended_s };
        assert!(line(&outcome, 0).unwrap().len() <= OUTCOME_BYTES_MAX);
    }

    #[test]
    fn a_state_too_large_to_be_read_is_refused_beforehand() {
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
    fn the_advice_for_a_damaged_state_works() {
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
        // The state of a loader that was killed while it wrote the third line, before it declared it.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text[..text.len() - 10].replacen("finished\"", "started\" ", 1)).unwrap();
        assert_eq!(open().state.progress.phase, Phase::Started);
        std::fs::write(&path, text).unwrap();
        std::fs::write(&input, "PING\nPING\n").unwrap();
        let anew = open();
        assert_eq!((anew.state.progress.phase, &anew.state.outcome), (Phase::New, &None));
    }

    #[test]
    fn the_default_path_depends_on_the_inputs() {
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
