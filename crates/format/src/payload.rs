//! Payloads: single values or function libraries in the encodings of a snapshot.
//!
//! ```text
//! DUMP, RESTORE:             | type | value | version, u16 | CRC-64 of all before, u64 |     little endian
//! FUNCTION DUMP and RESTORE: | 0xF5 text, for each library | version | CRC-64 |
//! ```

use std::cell::RefCell;

use store::entry::{Entry, View};

use crate::Limits;
use crate::crc64::crc64;
use crate::rdb::{Error, Flaw, Format, Options, Source, Target, Writer, code, context, opcode, read_entry};

/// Size of the version and the checksum, in bytes.
const FOOTER_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 8;

/// Reason for refusing a payload.
#[derive(Debug)]
pub enum BadPayload {
    /// The version is unknown or the checksum is wrong.
    Footer,
    /// The contents are damaged or unsupported.
    Contents(Error),
}

/// Creates payloads. Reuse it, because it has a table of 256 KB.
pub struct Dumper(Writer);

thread_local! {
    static DUMPER: RefCell<Dumper> = RefCell::new(Dumper::new());
}

/// Runs `run` with a dumper that the thread keeps.
pub fn with_dumper<T>(run: impl FnOnce(&mut Dumper) -> T) -> T {
    DUMPER.with_borrow_mut(run)
}

impl Default for Dumper {
    fn default() -> Self {
        Self::new()
    }
}

impl Dumper {
    /// Creates a dumper. Redis 7.0 and all later servers can read its payloads; hashes with expiring fields need Redis
    /// 7.4 or later.
    #[must_use]
    pub fn new() -> Self {
        Dumper(Writer::new(Options::default()))
    }

    /// Returns a dumper for payloads that Redis 7.0, Valkey 7.2 and all later servers read. Expiry times of hash fields are left out.
    /// Streams with producers are the exception: only Redis 8.6 reads them.
    #[must_use]
    pub fn common() -> Self {
        Dumper(Writer::new(Options { field_times: false, ..Options::default() }))
    }

    /// Serializes a value.
    pub fn value(&mut self, view: &View<'_>) -> Vec<u8> {
        let code = self.0.code(view);
        let mut payload = vec![code];
        self.0.value(&mut payload, view);
        self.sealed(payload, self.0.version_of(code))
    }

    /// Serializes function libraries with these texts.
    pub fn functions<'t>(&mut self, texts: impl Iterator<Item = &'t [u8]>) -> Vec<u8> {
        let mut payload = Vec::new();
        texts.for_each(|text| self.0.function(&mut payload, text));
        let version = self.0.version_of(opcode::FUNCTION);
        self.sealed(payload, version)
    }

    fn sealed(&self, mut payload: Vec<u8>, version: u16) -> Vec<u8> {
        payload.extend_from_slice(&version.to_le_bytes());
        let sum = crc64(&payload);
        payload.extend_from_slice(&sum.to_le_bytes());
        payload
    }
}

/// Checks a payload's footer. Returns the contents and the format that the footer names.
fn opened(payload: &[u8]) -> Result<(&[u8], Format), BadPayload> {
    let body = payload.len().checked_sub(FOOTER_BYTES).map(|len| &payload[..len]).ok_or(BadPayload::Footer)?;
    let (summed, sum) = payload.split_at(payload.len() - CHECKSUM_BYTES);
    let version = u16::from_le_bytes([summed[body.len()], summed[body.len() + 1]]);
    let format = Format::of_payload(version).filter(|_| crc64(summed).to_le_bytes() == *sum);
    Ok((body, format.ok_or(BadPayload::Footer)?))
}

/// Returns the payload with the right checksum in its footer, or unchanged if it is too short for one.
#[must_use]
pub fn resealed(payload: &[u8]) -> Vec<u8> {
    let mut resealed = payload.to_vec();
    if let Some(len) = payload.len().checked_sub(CHECKSUM_BYTES) {
        let sum = crc64(&payload[..len]);
        resealed[len..].copy_from_slice(&sum.to_le_bytes());
    }
    resealed
}

/// Returns true if Redis 7.0, Valkey 7.2 and all later servers read this valid payload.
#[must_use]
pub fn is_common(payload: &[u8]) -> bool {
    let has_common_type = |body: &[u8]| matches!(body.first(), Some(&(..=code::STREAM_2 | opcode::FUNCTION)) | None);
    let is_common = |format| matches!(format, Format::Redis(version) if version <= Target::Redis70.version());
    opened(payload).is_ok_and(|(body, format)| is_common(format) && has_common_type(body))
}

/// Returns the libraries of a payload in the form that every server reads. None if the payload already has that form, or is invalid.
#[must_use]
pub fn common_functions(payload: &[u8]) -> Option<Vec<u8>> {
    let texts = read_functions(payload).ok().filter(|_| !is_common(payload))?;
    Some(Dumper::common().functions(texts.iter().map(Vec::as_slice)))
}

/// Reads the value of a payload as the value of this key. `expiry` is in milliseconds of Unix time.
///
/// # Errors
/// The payload has an unknown version, is damaged, or contains something that this server doesn't support. Collections
/// must not be empty.
pub fn read_value(payload: &[u8], key: &[u8], expiry: Option<u64>, limits: &Limits) -> Result<Entry, BadPayload> {
    let (body, format) = opened(payload)?;
    let mut source = Source::whole(body);
    let code = source.opcode().map_err(BadPayload::Contents)?;
    let entry = read_entry(&mut source, code, key, expiry, &context(limits, format)).map_err(BadPayload::Contents)?;
    if source.is_drained() { Ok(entry) } else { Err(BadPayload::Contents(source.damaged("the data after the value"))) }
}

/// Reads the texts of a payload's libraries.
///
/// # Errors
/// The payload has an unknown version, is damaged, or contains something else.
pub fn read_functions(payload: &[u8]) -> Result<Vec<Vec<u8>>, BadPayload> {
    let (body, _) = opened(payload)?;
    let mut source = Source::whole(body);
    let mut texts = Vec::new();
    while !source.is_drained() {
        let text = match source.opcode().map_err(BadPayload::Contents)? {
            opcode::FUNCTION => source.string_owned().map_err(BadPayload::Contents)?,
            _ => return Err(BadPayload::Contents(source.flaw(Flaw::Damaged("a payload of functions")))),
        };
        texts.push(text);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(body: &[u8], version: u16) -> Vec<u8> {
        let mut payload = [body, &version.to_le_bytes()].concat();
        payload.extend_from_slice(&crc64(&payload).to_le_bytes());
        payload
    }

    fn restored(payload: &[u8]) -> Result<Entry, BadPayload> {
        read_value(payload, b"k", Some(7), &Limits::default())
    }

    #[test]
    fn a_payload_equals_redis_to_the_byte() {
        let entry = Entry::string(b"k", &[b'x'; 21], None);
        let payload = Dumper::new().value(&entry.view());
        // The bytes come from DUMP in redis-server 7.0.15.
        assert_eq!(payload, b"\0\xC3\x06\x15\x01xx\xE0\x0A\0\x0A\0\x94\x1A\x83\x67\x60\x17\x19\x2F");
        let back = restored(&payload).unwrap();
        assert!(matches!(back.view(), View::Bytes(bytes) if bytes == [b'x'; 21]));
        assert_eq!((back.key(), back.expiry()), (&b"k"[..], Some(7)));
    }

    #[test]
    fn expiring_fields_equal_redis_except_for_the_version() {
        // The bytes come from DUMP in Redis 8.6.3, without version and checksum.
        let bodies: [&[u8]; 2] = [
            b"\x19\x7b\xb4\xc5\xda\xb8\x01\0\0\xc3\x25\x2c\x11\x2c\0\0\0\x09\0\x81b\x02\x02\x01\xf4\x7b\xb4\xc5\xda\xb8\x01\x20\x0f\
              \x03\x81a\x02\x01\xe0\x03\x0e\x06c\x02\x03\x01\0\x01\xff",
            b"\x18\x7b\xb4\xc5\xda\xb8\x01\0\0\x01\x01\x01a\xc0\x01",
        ];
        let mut limits = Limits::default();
        for body in bodies {
            let entry = read_value(&sealed(body, 13), b"k", None, &limits).unwrap();
            let payload = Dumper::new().value(&entry.view());
            assert_eq!(payload, sealed(body, 12), "{}", entry.encoding());
            limits.hash.listpack_entries = 0;
        }
        let mut entry = restored(&sealed(bodies[0], 13)).unwrap();
        let Some(store::value::Value::TimedHash(hash)) = entry.object_mut() else { panic!("no such hash") };
        [b"a", b"b"].iter().for_each(|field| hash.set_expiry(*field, None));
        // Any server can read this payload.
        let plain = Dumper::new().value(&entry.view());
        assert_eq!(
            plain,
            sealed(b"\x10\x16\x16\0\0\0\x06\0\x81c\x02\x03\x01\x81a\x02\x01\x01\x81b\x02\x02\x01\xff", 10)
        );
    }

    #[test]
    fn what_not_all_servers_read_is_written_anew() {
        // The reply of Redis 8.6.3 to DUMP of a hash with an expiring field, without version and checksum.
        let timed = sealed(b"\x18\x7b\xb4\xc5\xda\xb8\x01\0\0\x01\x01\x01a\xc0\x01", 13);
        let entry = restored(&timed).unwrap();
        let common = Dumper::common().value(&entry.view());
        assert_eq!(common, sealed(b"\x10\x0c\x0c\0\0\0\x02\0\x81a\x02\x01\x01\xff", 10));
        assert_eq!([&timed, &common].map(|payload| is_common(payload)), [false, true]);
        // The version alone does not decide: the type is too new.
        assert!(!is_common(&sealed(&timed[..timed.len() - 10], 10)));
        let library = |version| sealed(b"\xf5\x02ab", version);
        assert_eq!(common_functions(&library(80)), Some(library(10)));
        assert_eq!(common_functions(&library(10)), None);
        assert_eq!(common_functions(&timed), None);
    }

    #[test]
    fn unknown_versions_and_wrong_checksums_differ_from_bad_contents() {
        for version in [1, 10, 15, 80, 81] {
            assert!(restored(&sealed(b"\0\x01v", version)).is_ok(), "{version}");
        }
        for version in [0, 16, 79, 82] {
            assert!(matches!(restored(&sealed(b"\0\x01v", version)), Err(BadPayload::Footer)), "{version}");
        }
        let payload = sealed(b"\0\x01v", 10);
        for cut in 0..payload.len() {
            assert!(matches!(restored(&payload[..cut]), Err(BadPayload::Footer)));
        }
        for body in [&b""[..], b"\0\x02v", b"\0\x01vw", b"\xFE\0", b"\x02\0", b"\x02\x02\x01a\x01a"] {
            assert!(matches!(restored(&sealed(body, 10)), Err(BadPayload::Contents(_))), "{body:?}");
        }
    }

    #[test]
    fn libraries_are_read_as_written() {
        let texts: Vec<Vec<u8>> = [0, 1, 63, 64, 16383, 16384, 70000].iter().map(|&len| vec![b'x'; len]).collect();
        let payload = Dumper::new().functions(texts.iter().map(Vec::as_slice));
        assert_eq!(read_functions(&payload).unwrap(), texts);
        for cut in 0..payload.len().min(200) {
            assert!(matches!(read_functions(&payload[..cut]), Err(BadPayload::Footer)));
        }
        for bad in [&b"\xf6\x01x"[..], b"\xf5\x02x", b"\xf5\xc3\x02\x05\x20\x00", b"\xf5\x82", b"\xf5"] {
            assert!(matches!(read_functions(&sealed(bad, 10)), Err(BadPayload::Contents(_))), "{bad:?}");
        }
        assert_eq!(read_functions(&sealed(b"\xf5\xc3\x06\x14\x01ab\xe0\x09\x01", 10)).unwrap(), [b"ab".repeat(10)]);
    }
}
