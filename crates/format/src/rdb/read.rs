//! Reader of snapshots: a sequence of events, pulled from any source of bytes.

pub(crate) mod collections;
pub(crate) mod error;
pub(crate) mod source;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::io::Read;

use store::entry::Entry;

use self::error::{Error, Flaw};
use self::source::Source;
use self::values::Context;
use super::write::Access;
use super::{AUX_ACTIVE, opcode};
use crate::Limits;

/// Size of the magic and the version, in bytes.
const HEADER_BYTES: usize = 9;
/// Highest known version of Redis's format.
const REDIS_VERSION_MAX: u16 = 15;
/// Known versions of Valkey's format.
const VALKEY_VERSIONS: std::ops::RangeInclusive<u16> = 80..=81;
/// First version that ends with a checksum.
const CHECKSUM_VERSION: u16 = 5;

/// The server's format, and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Format of Redis, and of Valkey up to 8.
    Redis(u16),
    /// Format of Valkey from 9 on.
    Valkey(u16),
}

impl Format {
    /// The format of a payload, which has a version but no magic.
    pub(crate) fn of_payload(version: u16) -> Option<Format> {
        match version {
            1..=REDIS_VERSION_MAX => Some(Format::Redis(version)),
            _ => VALKEY_VERSIONS.contains(&version).then_some(Format::Valkey(version)),
        }
    }
}

/// Result of checking the checksum at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// There is none: it was switched off, or the version has none.
    Absent,
    /// The checksum matches.
    Right,
    /// The checksum doesn't match.
    Wrong,
}

/// A part of a snapshot.
pub enum Event {
    /// The beginning.
    Header(Format),
    /// A fact about the file. Unknown facts should be ignored.
    Aux {
        /// Name of the fact.
        name: Vec<u8>,
        /// The fact.
        text: Vec<u8>,
    },
    /// The following keys belong to this database.
    Select(u64),
    /// Approximate numbers of keys and of keys with an expiry. These are claims, so memory must not be allocated for
    /// them unchecked.
    Resize {
        /// Number of keys.
        keys: u64,
        /// Number of keys with an expiry.
        expiring: u64,
        /// Number of keys that the rest of the source can contain; 0 if its length is unknown.
        credible: usize,
    },
    /// Text of a function library.
    Function(Vec<u8>),
    /// A key. It may have expired; its expiry is as stored.
    Entry {
        /// The key with its value and expiry. Its access information is not set.
        entry: Entry,
        /// Stored information about its use.
        access: Access,
    },
    /// A key with an empty collection. Servers never have one, but older versions wrote some; Redis ignores them.
    EmptyKey(Vec<u8>),
    /// The end. Further bytes in the source don't belong to the snapshot.
    End(Checksum),
}

/// Information that comes before a key and belongs to it.
#[derive(Default)]
struct KeyHead {
    expiry: Option<u64>,
    access: Access,
}

/// Reads a snapshot. The source is read in pieces of 64 KB; longer data is read directly into its destination.
pub struct Reader<R> {
    source: Source<R>,
    limits: Limits,
    format: Option<Format>,
    head: KeyHead,
    /// The last key, and a flag that is set while its value is being read.
    key: Vec<u8>,
    is_in_value: bool,
    /// Contents of [`AUX_ACTIVE`] for the next stream.
    active_times: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Creates a reader. `limits` determine the encodings of collections.
    pub fn new(bytes: R, limits: Limits) -> Self {
        Reader {
            source: Source::new(bytes),
            limits,
            format: None,
            head: KeyHead::default(),
            key: Vec::new(),
            is_in_value: false,
            active_times: Vec::new(),
        }
    }

    /// Sets the source's length in bytes. Claimed sizes of collections are trusted as far as this length permits.
    #[must_use]
    pub fn with_len(mut self, len: u64) -> Self {
        self.source.set_len(len);
        self
    }

    /// Number of bytes read so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// The key whose value was being read when an error occurred.
    #[must_use]
    pub fn key_of_error(&self) -> Option<&[u8]> {
        self.is_in_value.then_some(&self.key)
    }

    /// Returns the bytes that were read beyond the snapshot's end, and the source. Commands follow a snapshot in an
    /// append-only file.
    #[must_use]
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.source.into_rest()
    }

    /// Returns the next event. No event follows an error or the end.
    ///
    /// # Errors
    /// The source failed or ended early, or an element is damaged, unknown or unsupported.
    pub fn read_event(&mut self) -> Result<Event, Error> {
        let Some(format) = self.format else {
            let format = self.read_header()?;
            self.format = Some(format);
            return Ok(Event::Header(format));
        };
        loop {
            let code = self.source.opcode()?;
            if code < opcode::SLOT_IMPORT_OR_KEY_META {
                return self.read_key(code, format);
            }
            if let Some(event) = self.read_part(code, format)? {
                return Ok(event);
            }
        }
    }

    fn read_header(&mut self) -> Result<Format, Error> {
        self.source.begin();
        let header: [u8; HEADER_BYTES] = self.source.array()?;
        let number = |digits: &[u8]| {
            let all_digits = digits.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(digits).ok().filter(|_| all_digits).and_then(|digits| digits.parse::<u16>().ok())
        };
        let (redis, valkey) = (header.strip_prefix(b"REDIS"), header.strip_prefix(b"VALKEY"));
        match (redis.map(number), valkey.map(number)) {
            (Some(Some(version @ 1..=REDIS_VERSION_MAX)), _) => Ok(Format::Redis(version)),
            (_, Some(Some(version))) if VALKEY_VERSIONS.contains(&version) => Ok(Format::Valkey(version)),
            (None, None) | (Some(None), _) | (_, Some(None)) => Err(self.source.flaw(Flaw::NotASnapshot)),
            _ => {
                let name = String::from_utf8_lossy(&header).into_owned();
                Err(self.source.flaw(Flaw::Version(name)))
            }
        }
    }

    /// Reads a part that isn't a key. Returns none if the part belongs to the next key or is ignored.
    fn read_part(&mut self, code: u8, format: Format) -> Result<Option<Event>, Error> {
        let source = &mut self.source;
        match code {
            opcode::EXPIRY_MS => self.head.expiry = expiry(i64::from_le_bytes(source.array()?)),
            opcode::EXPIRY_S => {
                let seconds = i32::from_le_bytes(source.array()?);
                self.head.expiry = expiry(i64::from(seconds) * 1000);
            }
            opcode::IDLE => self.head.access = Access::IdleSeconds(source.length()?),
            opcode::FREQUENCY => self.head.access = Access::Frequency(source.byte()?),
            opcode::AUX => return self.read_aux(),
            opcode::SELECT => return Ok(Some(Event::Select(source.length()?))),
            opcode::RESIZE => {
                let (keys, expiring) = (source.length()?, source.length()?);
                return Ok(Some(Event::Resize { keys, expiring, credible: source.credible(keys) }));
            }
            opcode::FUNCTION => return Ok(Some(Event::Function(source.string_owned()?))),
            opcode::SLOT_INFO => {
                // The slot, its number of keys, and its number of keys with an expiry: hints for a cluster.
                for _ in 0..3 {
                    source.length()?;
                }
            }
            opcode::MODULE_AUX => {
                let module = source.length()?;
                return Err(source.flaw(Flaw::Unsupported(format!("data of the module '{}'", module_name(module)))));
            }
            opcode::SLOT_IMPORT_OR_KEY_META => {
                let what = match format {
                    Format::Valkey(_) => "the import of a cluster's slot",
                    Format::Redis(_) => "the module metadata of a key",
                };
                return Err(source.flaw(Flaw::Unsupported(what.into())));
            }
            opcode::FUNCTION_BEFORE_RELEASE => {
                let what = "a function of a release candidate of Redis 7.0";
                return Err(source.flaw(Flaw::Unsupported(what.into())));
            }
            _ => return self.read_end(format).map(Some),
        }
        Ok(None)
    }

    fn read_aux(&mut self) -> Result<Option<Event>, Error> {
        let name = self.source.string_owned()?;
        let text = self.source.string_owned()?;
        if name == AUX_ACTIVE {
            self.active_times = text;
            return Ok(None);
        }
        Ok(Some(Event::Aux { name, text }))
    }

    fn read_end(&mut self, format: Format) -> Result<Event, Error> {
        if matches!(format, Format::Redis(version) if version < CHECKSUM_VERSION) {
            return Ok(Event::End(Checksum::Absent));
        }
        let counted = self.source.checksum();
        let written = u64::from_le_bytes(self.source.array()?);
        Ok(Event::End(match written {
            0 => Checksum::Absent,
            sum if sum == counted => Checksum::Right,
            _ => Checksum::Wrong,
        }))
    }

    fn read_key(&mut self, code: u8, format: Format) -> Result<Event, Error> {
        let KeyHead { expiry, access } = std::mem::take(&mut self.head);
        self.source.string_into(&mut self.key)?;
        self.is_in_value = true;
        let active_times = std::mem::take(&mut self.active_times);
        let context = Context { limits: &self.limits, format, active_times: &active_times };
        let event = match values::read_entry(&mut self.source, code, &self.key, expiry, &context) {
            Err(Error { flaw: Flaw::Empty, .. }) => Event::EmptyKey(self.key.clone()),
            read => Event::Entry { entry: read?, access },
        };
        self.is_in_value = false;
        Ok(event)
    }
}

/// Converts a stored expiry; a negative one is a time before 1970, which counts as 0.
fn expiry(ms: i64) -> Option<u64> {
    Some(u64::try_from(ms).unwrap_or(0))
}

/// The name of a module's type: nine characters of six bits each; the lowest ten bits are a version.
pub(crate) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|place| char::from(LETTERS[(id >> (58 - 6 * place)) as usize & 63])).collect()
}
