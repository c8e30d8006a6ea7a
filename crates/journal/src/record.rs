//! A unit's record: the commands that reproduce it, each with its database, as requests of the Redis protocol.
//!
//! ```text
//! entry:   | bytes of the command, u32 | database << 8 | kind, u32 | the command, an array of bulk strings |
//! record:  entry entry ...
//! ```
//!
//! Numbers are little-endian. This format never leaves the process: readers write their own formats.

use resp::num::write_u64;

/// Bytes before an entry's command.
const HEAD_BYTES: usize = 8;
/// Buffer capacity that a record keeps from unit to unit: enough for ordinary ones.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A Redis command, which every reader understands.
    Command = 0,
    /// A command that only Penstock understands: the state of a pipeline token.
    Own = 1,
    /// A published message: replicas pass it on to their subscribers, and the file ignores it.
    Message = 2,
    /// A command of Redis's that a script has kept from replicas.
    FileCommand = 3,
    /// A command of Redis's that a script has kept from the append-only file.
    ReplicaCommand = 4,
}

/// The readers that a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readers {
    /// The append-only file.
    pub file: bool,
    /// Replicas.
    pub replicas: bool,
}

impl Readers {
    /// Every reader.
    pub const ALL: Readers = Readers { file: true, replicas: true };
}

impl Default for Readers {
    fn default() -> Readers {
        Readers::ALL
    }
}

impl Kind {
    fn of_number(number: u32) -> Kind {
        match number {
            0 => Kind::Command,
            1 => Kind::Own,
            3 => Kind::FileCommand,
            4 => Kind::ReplicaCommand,
            _ => Kind::Message,
        }
    }

    /// True if the append-only file has it.
    #[must_use]
    pub fn is_for_file(self) -> bool {
        !matches!(self, Kind::Message | Kind::ReplicaCommand)
    }

    /// True if replicas get it.
    #[must_use]
    pub fn is_for_replicas(self) -> bool {
        self != Kind::FileCommand
    }

    /// True if it changes data.
    #[must_use]
    pub fn is_command(self) -> bool {
        matches!(self, Kind::Command | Kind::FileCommand | Kind::ReplicaCommand)
    }

    /// Returns the kind of the same entry for these readers only. None if there is no reader.
    #[must_use]
    pub fn only_for(self, readers: Readers) -> Option<Kind> {
        match (self, readers) {
            (kind, Readers::ALL) => Some(kind),
            (Kind::Command, Readers { file: true, .. }) => Some(Kind::FileCommand),
            (Kind::Command, Readers { replicas: true, .. }) => Some(Kind::ReplicaCommand),
            (Kind::Message | Kind::ReplicaCommand, Readers { replicas: true, .. }) => Some(self),
            (Kind::FileCommand, Readers { file: true, .. }) | (Kind::Own, _) => Some(self),
            _ => None,
        }
    }
}

/// One command of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'r> {
    /// The database that it runs in.
    pub database: usize,
    /// Its kind.
    pub kind: Kind,
    /// The command, an array of bulk strings.
    pub command: &'r [u8],
}

/// The record of a unit in progress.
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

    /// Number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Returns the entries, in the format of the module's diagram.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory of the entries, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
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

    /// Adds a command that is already written as a request.
    #[inline]
    pub fn push_written(&mut self, database: usize, kind: Kind, command: &[u8]) {
        let head = entry_head(database, kind, command);
        self.bytes.reserve(HEAD_BYTES + command.len());
        self.bytes.extend_from_slice(&head.to_le_bytes());
        self.bytes.extend_from_slice(command);
        self.entries += 1;
    }

    /// Appends another record's commands to this one, and clears the other.
    pub fn append(&mut self, other: &mut Record) {
        self.bytes.extend_from_slice(&other.bytes);
        self.entries += other.entries;
        other.clear();
    }

    /// Like [`Record::append`], for commands that are for some readers only.
    pub fn append_for(&mut self, other: &mut Record, readers: Readers) {
        for Entry { database, kind, command } in entries(&other.bytes) {
            if let Some(kind) = kind.only_for(readers) {
                self.push_written(database, kind, command);
            }
        }
        other.clear();
    }

    /// Removes all commands.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        }
        self.entries = 0;
    }
}

/// Returns the head of a command's entry, as a little-endian number.
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

/// Iterates over the entries of a record's bytes. Malformed bytes end the iteration.
pub fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> + Clone {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (command, rest) = rest.split_at_checked(number(0) as usize)?;
        bytes = rest;
        let kind = Kind::of_number(number(4) & 0xff);
        Some(Entry { database: (number(4) >> 8) as usize, kind, command })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_for_the_readers_that_are_chosen() {
        use Kind::{Command, FileCommand, Message, Own, ReplicaCommand};
        let kept = |file, replicas| {
            let readers = Readers { file, replicas };
            [Command, Own, Message, FileCommand, ReplicaCommand].map(|kind| kind.only_for(readers))
        };
        let all = [Command, Own, Message, FileCommand, ReplicaCommand].map(Some);
        assert_eq!(kept(true, true), all);
        assert_eq!(kept(true, false), [Some(FileCommand), Some(Own), None, Some(FileCommand), None]);
        assert_eq!(kept(false, true), [Some(ReplicaCommand), Some(Own), Some(Message), None, Some(ReplicaCommand)]);
        assert_eq!(kept(false, false), [None, Some(Own), None, None, None]);
    }

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
    fn a_truncated_entry_ends_the_iteration() {
        let record = record(&[(0, &["SET", "a", "b"]), (0, &["DEL", "a"])]);
        let bytes = record.bytes();
        let whole = (0..bytes.len()).map(|end| entries(&bytes[..end]).count());
        assert!(whole.clone().is_sorted() && whole.max() == Some(1));
    }

    #[test]
    fn a_large_record_frees_its_memory() {
        let mut record = record(&[(0, &["SET", "k", &"x".repeat(1 << 20)])]);
        record.clear();
        assert!(record.is_empty() && record.bytes.capacity() <= KEPT_BYTES_MAX);
    }
}
