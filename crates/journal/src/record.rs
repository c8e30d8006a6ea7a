//! A unit's record: the commands that reproduce it, each with its database, as requests of the Redis protocol.
//!
//! ```text
//! entry:   | bytes of the command, u32 | database << 8 | kind, u32 | the command, an array of bulk strings |
//! record:  entry entry ...
//! ```
//!
//! Numbers are little-endian. The form never leaves the process: readers write what their own format asks for.

use resp::num::write_u64;

/// Bytes before an entry's command.
const HEAD_BYTES: usize = 8;
/// Bytes of memory that a record keeps from unit to unit: enough for ordinary ones.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A command of Redis's, which every reader understands.
    Command = 0,
    /// A command that only Penstock understands: the state of a pipeline token.
    Own = 1,
    /// A message that is published: replicas pass it on to their subscribers, and the file has no use for it.
    Message = 2,
}

/// One command of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'r> {
    /// The database that it runs in.
    pub database: usize,
    /// What it is.
    pub kind: Kind,
    /// The command, an array of bulk strings.
    pub command: &'r [u8],
}

/// The record of a unit that is in progress.
#[derive(Debug, Default)]
pub struct Record {
    bytes: Vec<u8>,
    entries: u32,
}

impl Record {
    /// True if nothing has been recorded.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// The entries, in the form that the module's documentation draws.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a command. `args` begins with its name.
    #[inline]
    pub fn push<'a>(&mut self, database: usize, kind: Kind, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        write_head(&mut self.bytes, b'*', args.len());
        for arg in args {
            write_head(&mut self.bytes, b'$', arg.len());
            self.bytes.extend_from_slice(arg);
            self.bytes.extend_from_slice(b"\r\n");
        }
        // A request has at most 4 GB: see `resp::request::BUFFER_BYTES_MAX`.
        let len = (self.bytes.len() - start - HEAD_BYTES) as u32;
        let tail = (database as u32) << 8 | kind as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
        self.bytes[start + 4..start + HEAD_BYTES].copy_from_slice(&tail.to_le_bytes());
        self.entries += 1;
    }

    /// Adds a command that is written as a request already.
    #[inline]
    pub fn push_written(&mut self, database: usize, kind: Kind, command: &[u8]) {
        let head = entry_head(database, kind, command);
        self.bytes.reserve(HEAD_BYTES + command.len());
        self.bytes.extend_from_slice(&head.to_le_bytes());
        self.bytes.extend_from_slice(command);
        self.entries += 1;
    }

    /// Moves another record's commands behind this one's.
    pub fn append(&mut self, other: &mut Record) {
        self.bytes.extend_from_slice(&other.bytes);
        self.entries += other.entries;
        other.clear();
    }

    /// Forgets all commands.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        }
        self.entries = 0;
    }
}

/// What precedes a command in its entry, as a little-endian number.
#[inline]
#[must_use]
pub fn entry_head(database: usize, kind: Kind, command: &[u8]) -> u64 {
    let tail = (database as u32) << 8 | kind as u32;
    u64::from(tail) << 32 | command.len() as u64
}

/// Writes the line of an array's or a bulk string's length.
#[inline]
fn write_head(out: &mut Vec<u8>, sign: u8, len: usize) {
    if len < 10 {
        out.extend_from_slice(&[sign, b'0' + len as u8, b'\r', b'\n']);
    } else {
        out.push(sign);
        write_u64(out, len as u64);
        out.extend_from_slice(b"\r\n");
    }
}

/// The entries of a record's bytes. Bytes that are no record end the iteration.
pub fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> + Clone {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (command, rest) = rest.split_at_checked(number(0) as usize)?;
        bytes = rest;
        let kind = match number(4) & 0xff {
            0 => Kind::Command,
            1 => Kind::Own,
            _ => Kind::Message,
        };
        Some(Entry { database: (number(4) >> 8) as usize, kind, command })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(commands: &[(usize, &[&str])]) -> Record {
        let mut record = Record::default();
        for (database, words) in commands {
            record.push(*database, Kind::Command, words.iter().map(|word| word.as_bytes()));
        }
        record
    }

    #[test]
    fn a_record_gives_its_commands_back() {
        let long = "x".repeat(100_000);
        let mut record = record(&[(0, &["SET", "key", ""]), (15, &["PING"]), (16_777_215, &["APPEND", "k", &long])]);
        let mut other = Record::default();
        other.push(2, Kind::Own, [&b"PIPELINE"[..]].into_iter());
        record.append(&mut other);
        record.push_written(3, Kind::Command, b"*1\r\n$4\r\nPING\r\n");
        record.push_written(4, Kind::Message, b"*1\r\n$4\r\nPING\r\n");
        assert!(other.is_empty());
        let read: Vec<_> = entries(record.bytes()).collect();
        assert_eq!(read.len(), record.len());
        assert_eq!(read[0].command, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n");
        assert_eq!(
            (read[1].database, read[1].kind, read[1].command),
            (15, Kind::Command, &b"*1\r\n$4\r\nPING\r\n"[..])
        );
        assert_eq!((read[2].database, read[2].command.len()), (16_777_215, 100_000 + 34));
        assert_eq!((read[3].database, read[3].kind), (2, Kind::Own));
        assert_eq!((read[4].database, read[4].kind, read[4].command), (3, Kind::Command, read[1].command));
        assert_eq!((read[5].database, read[5].kind, read[5].command), (4, Kind::Message, read[1].command));
    }

    #[test]
    fn what_is_cut_off_is_no_entry() {
        let record = record(&[(0, &["SET", "a", "b"]), (0, &["DEL", "a"])]);
        let bytes = record.bytes();
        let whole = (0..bytes.len()).map(|end| entries(&bytes[..end]).count());
        assert!(whole.clone().is_sorted() && whole.max() == Some(1));
    }

    #[test]
    fn a_large_record_gives_its_memory_back() {
        let mut record = record(&[(0, &["SET", "k", &"x".repeat(1 << 20)])]);
        record.clear();
        assert!(record.is_empty() && record.bytes.capacity() <= KEPT_BYTES_MAX);
    }
}
