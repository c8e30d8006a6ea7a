//! Reading a snapshot, part by part.

use std::io::Read;

use format::Limits;
use format::rdb::{Checksum, Error, Event, Flaw as Why, Format, Reader};

use crate::finding::{Flaw, Largest, Snapshot, Verdict};
use crate::shown;

/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: u64 = 8;

const FROM_BACKUP: &str = "Restore it from a backup or a replica: no server loads it as it is.";
const INCOMPLETE: &str = "Its end is missing: copy it again if it is a copy. Else restore it from a backup or a replica; no server loads \
                          it as it is.";
const VALUES_DIFFER: &str = "Some value differs from what was written, though all can be read. Restore the file from a backup or a \
                             replica; servers load it with `rdbchecksum no`, with what is wrong in it.";
const OTHER_SERVER: &str = "It may be whole. The server that wrote it reads it.";

/// What follows a snapshot in its file: bytes that were read already, and the rest.
pub type Rest<R> = (Vec<u8>, R);

/// Reads a snapshot to its end; what it has is in `snapshot`, as far as it could be read. `now_ms` is the time by which keys have
/// expired.
///
/// # Errors
/// What is wrong.
pub fn read<R: Read>(bytes: R, now_ms: u64, snapshot: &mut Snapshot) -> Result<Rest<R>, Flaw> {
    let mut reader = Reader::new(bytes, Limits::default());
    let mut database = 0;
    loop {
        let start = reader.offset();
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(error) => {
                snapshot.bytes = reader.offset();
                return Err(flaw(&error, reader.key_of_error(), database));
            }
        };
        let bytes = reader.offset() - start;
        match event {
            Event::Header(format) => snapshot.format = format_name(format),
            Event::Aux { name, text } => note_fact(snapshot, &name, &text),
            Event::Select(number) => database = number,
            Event::Resize { .. } => {}
            Event::Function(text) => snapshot.functions.count(&library_name(&text)),
            Event::EmptyKey(_) => snapshot.empty_keys += 1,
            Event::Entry { entry, .. } => {
                note_key(snapshot, database, entry.kind().name(), entry.expiry().map(|at_ms| at_ms <= now_ms));
                note_size(snapshot, database, entry.key(), bytes);
            }
            Event::End(checksum) => {
                snapshot.bytes = reader.offset();
                return end(snapshot, checksum).map(|()| reader.into_rest());
            }
        }
    }
}

fn format_name(format: Format) -> String {
    match format {
        Format::Redis(version) => format!("REDIS{version:04}"),
        Format::Valkey(version) => format!("VALKEY{version:03}"),
    }
}

/// A fact about the file. Those that aren't known are passed over.
fn note_fact(snapshot: &mut Snapshot, name: &[u8], text: &[u8]) {
    const SERVERS: &[(&[u8], &str)] =
        &[(b"penstock-ver", "Penstock"), (b"valkey-ver", "Valkey"), (b"redis-ver", "Redis")];
    match name {
        b"ctime" => snapshot.created_s = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        b"lua" => snapshot.scripts += 1,
        b"penstock-pipeline" => snapshot.tokens += 1,
        // Other servers add it to their own, to say what they are compatible with.
        b"redis-ver" if snapshot.server.is_some() => {}
        _ => {
            if let Some((_, server)) = SERVERS.iter().find(|(known, _)| *known == name) {
                snapshot.server = Some(format!("{server} {}", shown::name(text)));
            }
        }
    }
}

/// The name of a library, which its first line says: `#!lua name=lib`.
fn library_name(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = line.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"name="));
    name.map_or_else(|| "(no name)".to_owned(), shown::name)
}

fn note_key(snapshot: &mut Snapshot, database: u64, kind: &'static str, has_expired: Option<bool>) {
    let database = snapshot.databases.entry(database).or_default();
    database.keys += 1;
    database.expiring += u64::from(has_expired.is_some());
    database.expired += u64::from(has_expired == Some(true));
    *database.types.entry(kind).or_default() += 1;
}

fn note_size(snapshot: &mut Snapshot, database: u64, key: &[u8], bytes: u64) {
    if snapshot.largest.as_ref().is_none_or(|largest| largest.bytes < bytes) {
        snapshot.largest = Some(Largest { key: shown::name(key), database, bytes });
    }
}

fn end(snapshot: &mut Snapshot, checksum: Checksum) -> Result<(), Flaw> {
    snapshot.checksum_is_right = match checksum {
        Checksum::Absent => None,
        Checksum::Right => Some(true),
        Checksum::Wrong => Some(false),
    };
    if checksum != Checksum::Wrong {
        return Ok(());
    }
    let offset = snapshot.bytes.saturating_sub(CHECKSUM_BYTES);
    Err(Flaw {
        verdict: Verdict::Broken,
        offset: Some(offset),
        key: None,
        what: format!("the checksum at byte {offset} is not that of the bytes before it"),
        advice: VALUES_DIFFER.into(),
    })
}

fn flaw(error: &Error, key: Option<&[u8]>, database: u64) -> Flaw {
    let (verdict, advice) = match error.flaw {
        Why::Version(_) | Why::Unsupported(_) => (Verdict::Unsupported, OTHER_SERVER),
        Why::Cut => (Verdict::Broken, INCOMPLETE),
        Why::Source(_) => (Verdict::Broken, "Look at the disk."),
        _ => (Verdict::Broken, FROM_BACKUP),
    };
    let key = key.map(shown::name);
    let of_key = key.as_ref().map(|key| format!(", in the value of the key {key} of database {database}"));
    Flaw {
        verdict,
        offset: Some(error.offset),
        key,
        what: format!("{error}{}", of_key.unwrap_or_default()),
        advice: advice.into(),
    }
}
