//! Detects the kind of a file by its first bytes, and checks it.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use persistence::block::FILE_START;

use crate::commands;
use crate::finding::{Commands, Finding, Flaw, Kind, Snapshot, Verdict};
use crate::input::Input;
use crate::{shown, snapshot};

/// Number of first bytes that identify the kind.
const START_BYTES: u64 = 16;
/// Bytes per read in the search for trailing zeros.
const PIECE_BYTES: usize = 1 << 16;

/// Position of a file within its append-only file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartPlace {
    /// No manifest names the file.
    Alone,
    /// A manifest names the file, and later files after it.
    Before,
    /// The manifest names the file as the last one. A server appends to it.
    Last,
}

/// Options for the check of every file.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Reference time for expired keys, in milliseconds of Unix time.
    pub now_ms: u64,
    /// Hides the progress bar.
    pub quiet: bool,
}

/// Returns the kind that the first bytes show, if they are conclusive.
pub fn kind_of(start: &[u8]) -> Option<Kind> {
    let begins = |whole: &[u8]| start.starts_with(&whole[..whole.len().min(start.len())]);
    match start.first()? {
        b'*' | b'#' => Some(Kind::Commands),
        b'R' if begins(b"REDIS") => Some(Kind::Snapshot),
        b'V' if begins(b"VALKEY") => Some(Kind::Snapshot),
        b'f' if start.starts_with(b"file ") => Some(Kind::Manifest),
        _ => None,
    }
}

/// Returns the kind that the name suggests. It is used when the first bytes are inconclusive.
fn kind_by_name(path: &Path) -> Kind {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rdb") => Kind::Snapshot,
        Some("aof") => Kind::Commands,
        Some("manifest") => Kind::Manifest,
        _ => Kind::Unknown,
    }
}

/// Returns the kind of a file.
///
/// # Errors
/// Returns the system's error if the file can't be read.
pub fn kind(path: &Path) -> io::Result<Kind> {
    let mut start = Vec::new();
    File::open(path)?.take(START_BYTES).read_to_end(&mut start)?;
    match kind_by_name(path) {
        // A manifest may begin with a comment, like a file of commands, and is therefore identified by its name.
        Kind::Manifest => Ok(Kind::Manifest),
        by_name => Ok(kind_of(&start).unwrap_or(by_name)),
    }
}

/// Checks a snapshot or a file of commands.
pub fn check(path: &Path, place: PartPlace, options: Options) -> Finding {
    let mut finding = Finding::new(path, kind_by_name(path));
    let began = Instant::now();
    if let Err(flaw) = read(path, place, options, &mut finding) {
        finding.set_flaw(flaw);
    }
    finding.seconds = began.elapsed().as_secs_f64();
    finding
}

fn read(path: &Path, place: PartPlace, options: Options, finding: &mut Finding) -> Result<(), Flaw> {
    let mut input = Input::open(path, options.quiet).map_err(|error| unreadable(&error))?;
    finding.bytes = input.size();
    let mut start = Vec::new();
    input.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(|error| unreadable(&error))?;
    finding.kind = kind_of(&start).unwrap_or(finding.kind);
    let bytes = Cursor::new(start.clone()).chain(input);
    match finding.kind {
        Kind::Snapshot if start.is_empty() => Err(empty()),
        Kind::Snapshot => read_snapshot(path, bytes, place, options, finding),
        Kind::Commands => {
            let by_penstock = start.starts_with(FILE_START);
            read_commands(path, bytes, 0, place, by_penstock, finding)
        }
        _ => Err(unknown(&start)),
    }
}

/// Reads a snapshot and the commands after it. Commands follow in a base file of Redis's and in append-only files older
/// than Redis 7.
fn read_snapshot(
    path: &Path,
    bytes: impl Read,
    place: PartPlace,
    options: Options,
    finding: &mut Finding,
) -> Result<(), Flaw> {
    let snapshot = finding.snapshot.insert(Snapshot::default());
    let (mut more, mut rest) = snapshot::read(bytes, options.now_ms, snapshot)?;
    let end = snapshot.bytes;
    if more.is_empty() {
        rest.by_ref().take(START_BYTES).read_to_end(&mut more).map_err(|error| unreadable(&error))?;
    }
    match more.first() {
        None => Ok(()),
        Some(first) if place == PartPlace::Alone && !b"*#".contains(first) => {
            let rest = shown::count(finding.bytes.saturating_sub(end), "byte");
            finding.notes.push(format!("the snapshot ends at byte {end}; servers ignore the {rest} after it"));
            Ok(())
        }
        Some(_) => read_commands(path, Cursor::new(more).chain(rest), end, place, false, finding),
    }
}

fn read_commands(
    path: &Path,
    mut bytes: impl Read,
    start: u64,
    place: PartPlace,
    by_penstock: bool,
    finding: &mut Finding,
) -> Result<(), Flaw> {
    let found = finding.commands.insert(Commands { by_penstock, ..Commands::default() });
    let read = commands::read(&mut bytes, start, found);
    let Err(mut flaw) = read else { return Ok(()) };
    if flaw.verdict == Verdict::Broken
        && let Some(offset) = flaw.offset
        && let Ok(true) = is_zero_from(path, offset)
    {
        flaw = zeros(path, start, offset, found);
    }
    if flaw.verdict != Verdict::Torn {
        return Err(flaw);
    }
    if place == PartPlace::Before {
        return Err(torn_before(flaw));
    }
    finding.whole_bytes = Some(found.whole_bytes);
    Err(flaw)
}

/// Returns true if the file holds only zeros from `offset` to its end.
fn is_zero_from(path: &Path, offset: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(true),
            count if piece[..count].iter().any(|&byte| byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Returns the flaw of a file whose end is filled with zeros from `offset` on. The command before the zeros may be torn
/// as well.
fn zeros(path: &Path, start: u64, offset: u64, found: &mut Commands) -> Flaw {
    let before = || {
        let mut file = File::open(path).ok()?;
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut commands = Commands::default();
        let _ = commands::read(&mut file.take(offset - start), start, &mut commands);
        Some((commands.whole_bytes, commands.closing))
    };
    let (whole, closing) = before().unwrap_or((offset, Vec::new()));
    (found.whole_bytes, found.closing) = (whole, closing);
    Flaw {
        verdict: Verdict::Torn,
        offset: Some(whole),
        key: None,
        what: format!("zeros fill the file from byte {offset} to its end"),
        advice: "The machine stopped before the data reached the disk. Servers refuse the file; `penstock check --fix` cuts \
                 the zeros off."
            .into(),
    }
}

fn torn_before(flaw: Flaw) -> Flaw {
    Flaw {
        verdict: Verdict::Broken,
        what: format!("{}, though another file follows", flaw.what),
        advice: "The file was whole when the next one was started: restore it from a backup or a replica. Commands of the next file may \
                 depend on the missing commands, and no server loads the two files."
            .into(),
        ..flaw
    }
}

/// Returns the flaw of a file that is missing or unreadable.
pub fn unreadable(error: &io::Error) -> Flaw {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "Restore it from a backup.",
        io::ErrorKind::PermissionDenied => "Run this command as a user that may read the file.",
        _ => "Check the disk.",
    };
    Flaw {
        verdict: Verdict::Broken,
        offset: None,
        key: None,
        what: format!("the file can't be read: {error}"),
        advice: advice.into(),
    }
}

fn empty() -> Flaw {
    Flaw {
        verdict: Verdict::Broken,
        offset: Some(0),
        key: None,
        what: "the file is empty".into(),
        advice: "Restore it from a backup or a replica.".into(),
    }
}

fn unknown(start: &[u8]) -> Flaw {
    Flaw {
        verdict: Verdict::Broken,
        offset: Some(0),
        key: None,
        what: format!(
            "the file begins with \"{}\"; no snapshot or append-only file begins this way",
            start.escape_ascii()
        ),
        advice: "If the file is compressed, decompress it first.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        for (start, kind) in [
            (&b"REDIS0010"[..], Some(Kind::Snapshot)),
            (b"RED", Some(Kind::Snapshot)),
            (b"VALKEY080", Some(Kind::Snapshot)),
            (b"*2\r\n", Some(Kind::Commands)),
            (b"#penstock 1\r\n", Some(Kind::Commands)),
            (b"file appendonly", Some(Kind::Manifest)),
            (b"\x1f\x8b", None),
            (b"", None),
        ] {
            assert_eq!(kind_of(start), kind, "{start:?}");
        }
    }
}
