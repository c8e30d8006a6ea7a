//! Reads a snapshot, event by event.

use std::io::Read;

use format::Limits;
use format::rdb::{Checksum, Error, Event, Flaw as Why, Format, Reader};

use crate::finding::{Flaw, Snapshot, Verdict};
use crate::shown;

/// Size of the checksum at the end.
const CHECKSUM_BYTES: u64 = 8;

const FROM_BACKUP: &str = "Restore the file from a backup or a replica: no server loads it in this state.";
const INCOMPLETE: &str = "The end is missing. If the file is a copy, copy it again. Otherwise restore it from a backup or a replica; no server loads \
                          it in this state.";
const VALUES_DIFFER: &str = "Everything can be read, but some value differs from the one that was written. Restore the file from a backup or a \
                             replica; servers load it, with its wrong value, if `rdbchecksum no` is set.";
const OTHER_SERVER: &str = "The file may be whole. Read it with the server that wrote it.";

/// The rest of a file after a snapshot: the bytes already read, and the reader.
pub type Rest<R> = (Vec<u8>, R);

/// Reads a snapshot to its end, and counts its contents in `snapshot`. A key is expired if its expiry time is before
/// `now_ms`.
///
/// # Errors
/// Returns the first flaw. `snapshot` then holds the counts up to it.
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

/// The field of the records of pipeline tokens: commands of the wire format.
const TOKEN_FIELD: &[u8] = b"penstock-pipeline";

/// Returns true for the record that brings a token.
fn names_token(record: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"$8\r\nPIPELINE\r\n$4\r\nKEEP\r\n";
    record.iter().position(|&byte| byte == b'\n').is_some_and(|end| record[end + 1..].starts_with(BEGINNING))
}

/// Notes a metadata field of the file. Unknown fields are ignored.
fn note_fact(snapshot: &mut Snapshot, name: &[u8], text: &[u8]) {
    const SERVERS: &[(&[u8], &str)] =
        &[(b"penstock-ver", "Penstock"), (b"valkey-ver", "Valkey"), (b"redis-ver", "Redis")];
    match name {
        b"ctime" => snapshot.created_s = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        b"lua" => snapshot.scripts += 1,
        // A token that stops at failures has a second record.
        TOKEN_FIELD if names_token(text) => snapshot.tokens += 1,
        // Other servers write it in addition to their own version, to declare compatibility.
        b"redis-ver" if snapshot.server.is_some() => {}
        _ => {
            if let Some((_, server)) = SERVERS.iter().find(|(known, _)| *known == name) {
                snapshot.server = Some(format!("{server} {}", shown::name(text)));
            }
        }
    }
}

/// Returns the name of a library, as given on its first line: `#!lua name=lib`.
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
    snapshot.note_size(database, bytes, || shown::name(key));
    if let Some(end) = key.iter().position(|&byte| byte == b':') {
        snapshot.prefixes.count(&shown::name(&key[..=end]), bytes);
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
        what: format!("the checksum at byte {offset} doesn't match the bytes before it"),
        advice: VALUES_DIFFER.into(),
    })
}

fn flaw(error: &Error, key: Option<&[u8]>, database: u64) -> Flaw {
    let (verdict, advice) = match error.flaw {
        Why::Version(_) | Why::Unsupported(_) => (Verdict::Unsupported, OTHER_SERVER),
        Why::Cut => (Verdict::Broken, INCOMPLETE),
        Why::Source(_) => (Verdict::Broken, "Check the disk."),
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
