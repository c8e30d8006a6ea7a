//! Reading a snapshot: a sequence of events, pulled from any source of bytes.

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

/// Bytes of the magic and the version.
const HEADER_BYTES: usize = 9;
/// The highest version of Redis's format that is known.
const REDIS_VERSION_MAX: u16 = 15;
/// The versions of Valkey's format that are known.
const VALKEY_VERSIONS: std::ops::RangeInclusive<u16> = 80..=81;
/// The first version that ends with a checksum.
const CHECKSUM_VERSION: u16 = 5;

/// Whose format it is, and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Redis's, and that of Valkey up to 8.
    Redis(u16),
    /// Valkey's from 9 on.
    Valkey(u16),
}

impl Format {
    /// That of a payload, which has no magic but a version.
    pub(crate) fn of_payload(version: u16) -> Option<Format> {
        match version {
            1..=REDIS_VERSION_MAX => Some(Format::Redis(version)),
            _ => VALKEY_VERSIONS.contains(&version).then_some(Format::Valkey(version)),
        }
    }
}

/// What the checksum at the end says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// There is none: it was switched off, or the version has none.
    Absent,
    /// All bytes are as they were written.
    Right,
    /// Bytes differ from what was written.
    Wrong,
}

/// A part of a snapshot.
pub enum Event {
    /// The beginning.
    Header(Format),
    /// A fact about the file. Those that aren't known are to be passed over.
    Aux {
        /// What it is about.
        name: Vec<u8>,
        /// The fact.
        text: Vec<u8>,
    },
    /// What follows is in this database.
    Select(u64),
    /// About how many keys the database has, and how many of them expire: claims, not to be trusted with memory.
    Resize {
        /// Keys.
        keys: u64,
        /// Keys that expire.
        expiring: u64,
        /// As many of the keys as the source may have: none if its length isn't known.
        credible: usize,
    },
    /// The text of a library of functions.
    Function(Vec<u8>),
    /// A key. It may have expired: its time is as it was written.
    Entry {
        /// The key with its value and expiry. Its access is not set.
        entry: Entry,
        /// What is known of its use.
        access: Access,
    },
    /// A key whose collection is empty. Servers never have such, but older ones wrote some; Redis passes over them.
    EmptyKey(Vec<u8>),
    /// The end. What follows it in the source isn't part of the snapshot.
    End(Checksum),
}

/// What comes before a key and belongs to it.
#[derive(Default)]
struct KeyHead {
    expiry: Option<u64>,
    access: Access,
}

/// Reads a snapshot. The source is read in pieces of 64 KB; what is longer is read straight to where it stays.
pub struct Reader<R> {
    source: Source<R>,
    limits: Limits,
    format: Option<Format>,
    head: KeyHead,
    /// The key that was read last, and whether its value is being read.
    key: Vec<u8>,
    is_in_value: bool,
    /// What [`AUX_ACTIVE`] said for the stream to come.
    active_times: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// A reader of what begins here. Collections are kept in the forms that `limits` ask for.
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

    /// The same, of so many bytes: what is claimed of a collection's size is believed as far as they may have it.
    #[must_use]
    pub fn with_len(mut self, len: u64) -> Self {
        self.source.set_len(len);
        self
    }

    /// How many bytes have been read so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// After an error in a key's value: the key.
    #[must_use]
    pub fn key_of_error(&self) -> Option<&[u8]> {
        self.is_in_value.then_some(&self.key)
    }

    /// What was read from the source beyond the end of the snapshot, and the source: for the commands that follow a snapshot in an
    /// append-only file.
    #[must_use]
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.source.into_rest()
    }

    /// The next event. After an error or the end there is no other.
    ///
    /// # Errors
    /// When the source fails or ends too early, and when something is damaged, unknown or not supported.
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

    /// A part that is no key; none if it belongs to the key that follows, or may be passed over.
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
                // The slot, its keys, and those that expire: hints for a cluster.
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
                    Format::Redis(_) => "what a module has noted for a key",
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

/// The expiry that a file's number stands for: a negative one is a time before 1970, long ago.
fn expiry(ms: i64) -> Option<u64> {
    Some(u64::try_from(ms).unwrap_or(0))
}

/// The name of a module's type: nine characters of six bits each; the lowest ten are a version.
pub(crate) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|place| char::from(LETTERS[(id >> (58 - 6 * place)) as usize & 63])).collect()
}
