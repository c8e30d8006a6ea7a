//! The stream to the target of moving slots: a snapshot of the slots and the later changes of their keys, as single commands. Also the
//! target's messages.
//!
//! The commands of a transaction are sent without MULTI, because the target shows none of the keys before the end of the move.

use cluster::{Slot, SlotSet};
use journal::record::{Entry, entries};
use resp::num::{parse_i64, write_u64};
use resp::request::{Args, Batch, Framer, Input, Limits, Stop};
use store::hash;

use crate::registry::table;

/// Commands without keys that remove all keys.
const FLUSHES: [&[u8]; 2] = [b"FLUSHALL", b"FLUSHDB"];
/// The error for them, which is Valkey's.
const FLUSHED: &str = "Data was flushed";
/// Other commands without keys that change keys. The target can't apply them, because it has other slots, too.
const OF_ALL_KEYS: [&[u8]; 2] = [b"SWAPDB", b"DEBUG"];
/// Commands that the removal of expired or evicted keys and fields is recorded as.
const REMOVALS: [&[u8]; 3] = [b"DEL", b"UNLINK", b"HDEL"];

/// The slots of a command's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Concerns {
    /// None of them moves.
    Others,
    /// All of them move.
    Slots,
}

/// Turns records into the stream.
pub struct SlotFeed {
    slots: SlotSet,
    /// The database selected in the stream.
    database: Option<usize>,
    batch: Batch,
}

impl SlotFeed {
    /// Begins a stream of these slots.
    #[must_use]
    pub fn new(slots: SlotSet) -> SlotFeed {
        SlotFeed { slots, database: None, batch: Batch::default() }
    }

    /// Appends a piece of a snapshot: entries that concern the slots only.
    pub fn snapshot(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        entries(piece).for_each(|entry| self.push(entry, out));
    }

    /// Appends the commands of a unit that concern the slots.
    ///
    /// # Errors
    /// The reason why the slots can't move: a command also concerns other slots.
    pub fn unit<'e>(&mut self, unit: impl Iterator<Item = Entry<'e>>, out: &mut Vec<u8>) -> Result<(), String> {
        for entry in unit.filter(|entry| entry.kind.is_command() && entry.kind.is_for_replicas()) {
            if self.concerns(entry.command)? == Concerns::Slots {
                self.push(entry, out);
            }
        }
        Ok(())
    }

    /// Checks a unit behind the end of the changes: expired and evicted keys may be removed, because the target removes them, too.
    ///
    /// # Errors
    /// The reason why the slots can't move: the target lacks a change.
    pub fn late_unit<'e>(&mut self, unit: impl Iterator<Item = Entry<'e>>) -> Result<(), String> {
        for entry in unit.filter(|entry| entry.kind.is_command() && entry.kind.is_for_replicas()) {
            let is_removal = REMOVALS.iter().any(|name| is_named(entry.command, name));
            if !is_removal && self.concerns(entry.command)? == Concerns::Slots {
                return Err("A key has changed while writes were held".into());
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry<'_>, out: &mut Vec<u8>) {
        if self.database != Some(entry.database) {
            self.database = Some(entry.database);
            let mut digits = Vec::new();
            write_u64(&mut digits, entry.database as u64);
            out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n$");
            write_u64(out, digits.len() as u64);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&digits);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(entry.command);
    }

    /// Returns the slots that a recorded command concerns.
    fn concerns(&mut self, command: &[u8]) -> Result<Concerns, String> {
        self.batch.clear();
        let input = Input::from(command);
        _ = Framer::default().frame(input, 0, &Limits::UNLIMITED, 1, &mut self.batch);
        let Some(args) = self.batch.requests().iter().next().map(|request| self.batch.args(request, input)) else {
            return Err("A change can't be read".into());
        };
        let (inside, outside) = count_keys(&self.slots, args);
        let name = args.get(0).escape_ascii();
        match (inside, outside) {
            (0, 0) if FLUSHES.iter().any(|name| args.get(0).eq_ignore_ascii_case(name)) => Err(FLUSHED.into()),
            (0, 0) if OF_ALL_KEYS.iter().any(|name| args.get(0).eq_ignore_ascii_case(name)) => {
                Err(format!("A command has changed keys of all slots: {name}"))
            }
            (0, _) => Ok(Concerns::Others),
            (_, 0) => Ok(Concerns::Slots),
            _ => Err(format!("A command has used keys of the moving slots and of others: {name}")),
        }
    }
}

/// Returns the numbers of a command's keys in these slots, and in others.
fn count_keys(slots: &SlotSet, args: Args<'_>) -> (usize, usize) {
    let found = table().find(args.get(0)).and_then(|command| table().resolve(command, args));
    let Some(command) = found.filter(|command| command.info.accepts(args.len())) else { return (0, 0) };
    let (mut inside, mut outside) = (0, 0);
    command.info.visit_keys(args, |at| match slots.contains(Slot::of_hash(hash::slot_of(args.get(at)))) {
        true => inside += 1,
        false => outside += 1,
    });
    (inside, outside)
}

/// Returns true for a request with this name, which has fewer than ten letters.
fn is_named(command: &[u8], name: &[u8]) -> bool {
    let after_count = command.iter().position(|&byte| byte == b'$').and_then(|at| command.get(at..));
    let text = after_count.and_then(|text| text.get(b"$1\r\n".len()..b"$1\r\n".len() + name.len() + 1));
    let is_long = |text: &[u8]| after_count.and_then(|all| all.get(1)) == Some(&(b'0' + text.len() as u8));
    text.and_then(|text| text.split_last())
        .is_some_and(|(end, text)| *end == b'\r' && is_long(name) && text.eq_ignore_ascii_case(name))
}

/// A message of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetMessage {
    /// A sign of life.
    Ack,
    /// The snapshot is applied: writes are to be held.
    RequestPause,
    /// All changes are applied: the target asks for the slots.
    RequestFailover,
    /// The target has applied so many bytes of the stream. Only a target of Penstock says so, if it was asked to.
    Applied(u64),
    /// The target's abilities, or a message for others.
    Other,
}

/// Splits the target's messages.
#[derive(Default)]
pub struct TargetMessages {
    batch: Batch,
}

/// The longest message in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

impl TargetMessages {
    /// Returns the first message and its end. None if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no message of a target.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<(TargetMessage, usize)>, String> {
        if bytes.first() == Some(&b'-') {
            let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
            return Err(format!("The target has answered an error: {}", line.escape_ascii()));
        }
        self.batch.clear();
        let input = Input::from(bytes);
        let (_, stop) = Framer::default().frame(input, 0, &Limits::default(), 1, &mut self.batch);
        let Some(request) = self.batch.requests().iter().next() else {
            return match matches!(stop, Stop::Error(_)) || bytes.len() > MESSAGE_BYTES_MAX {
                true => Err("Protocol error in the messages of the target".into()),
                false => Ok(None),
            };
        };
        let args = self.batch.args(request, input);
        let is = |at: usize, word: &str| args.len() > at && args.get(at).eq_ignore_ascii_case(word.as_bytes());
        if !(is(0, "cluster") && is(1, "syncslots") && args.len() > 2) {
            return Err("The target has sent a command that is no message".into());
        }
        let words = [
            ("ack", TargetMessage::Ack),
            ("request-pause", TargetMessage::RequestPause),
            ("request-failover", TargetMessage::RequestFailover),
            ("capa", TargetMessage::Other),
        ];
        let applied = || (is(2, "applied") && args.len() == 4).then(|| parse_i64(args.get(3))).flatten();
        let found = words.into_iter().find(|(name, _)| is(2, name)).map(|(_, message)| message);
        let found = found.or_else(|| u64::try_from(applied()?).ok().map(TargetMessage::Applied));
        let message = found.ok_or("Unknown SYNCSLOTS subcommand used")?;
        Ok(Some((message, request.end as usize)))
    }
}

#[cfg(test)]
mod tests {
    use journal::record::{Kind, Record};

    use super::*;
    use crate::testing::request;

    fn feed() -> SlotFeed {
        SlotFeed::new(["a", "b"].iter().map(|tag| Slot::of_hash(hash::slot_of(tag.as_bytes()))).collect())
    }

    fn record(lines: &[(usize, Kind, &str)]) -> Record {
        let mut record = Record::default();
        for (database, kind, line) in lines {
            record.push(*database, *kind, line.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter());
        }
        record
    }

    fn fed(feed: &mut SlotFeed, lines: &[(usize, Kind, &str)]) -> Result<String, String> {
        let (record, mut out) = (record(lines), Vec::new());
        feed.unit(entries(record.bytes()), &mut out)?;
        let text = String::from_utf8(out).unwrap();
        let words = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with('$'));
        Ok(words.map(|word| if word.starts_with('*') { ";" } else { word }).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn only_changes_of_the_slots_are_sent() {
        let (feed, command) = (&mut feed(), Kind::Command);
        assert_eq!(fed(feed, &[(0, command, "SET {a}1 x")]), Ok("; SELECT 0 ; SET {a}1 x".into()));
        let unit = [(0, command, "SET c x"), (3, command, "DEL {b}1 {a}2"), (3, Kind::Message, "PUBLISH a x")];
        assert_eq!(fed(feed, &unit), Ok("; SELECT 3 ; DEL {b}1 {a}2".into()));
        let unit = [(3, Kind::FileCommand, "DEL a"), (3, Kind::ReplicaCommand, "XGROUP CREATE {b}s g 0 MKSTREAM")];
        assert_eq!(fed(feed, &unit), Ok("; XGROUP CREATE {b}s g 0 MKSTREAM".into()));
        assert_eq!(fed(feed, &[(0, command, "FUNCTION FLUSH"), (0, Kind::Own, "x")]), Ok(String::new()));
    }

    #[test]
    fn a_change_that_the_target_cannot_apply_ends_the_move() {
        for line in ["MSET {a}1 x c y", "FLUSHALL", "SWAPDB 0 1", "DEBUG POPULATE 5"] {
            assert!(fed(&mut feed(), &[(0, Kind::Command, line)]).is_err(), "{line}");
        }
    }

    #[test]
    fn keys_may_only_be_removed_behind_the_end() {
        let late = |line: &str| feed().late_unit(entries(record(&[(0, Kind::Command, line)]).bytes()));
        for line in ["DEL {a}1", "unlink {a}1", "HDEL {a}1 f", "SET c x", "MSET c x d y", "DELEX c"] {
            assert_eq!(late(line), Ok(()), "{line}");
        }
        for line in ["SET {a}1 x", "HSET {a}1 f v", "LMOVE c {a}1 LEFT LEFT", "FLUSHALL"] {
            assert!(late(line).is_err(), "{line}");
        }
    }

    #[test]
    fn messages_of_a_target_are_told_apart() {
        let messages = &mut TargetMessages::default();
        let text = |word: &str| request(&["CLUSTER", "SYNCSLOTS", word]);
        let applied = request(&["CLUSTER", "SYNCSLOTS", "APPLIED", "70000"]);
        let all = [text("ack"), text("REQUEST-PAUSE"), text("REQUEST-FAILOVER"), applied, text("CAPA")].concat();
        let (mut at, mut seen) = (0, Vec::new());
        while let Some((message, end)) = messages.next(&all[at..]).unwrap() {
            seen.push(message);
            at += end;
        }
        let expected = [
            TargetMessage::Ack,
            TargetMessage::RequestPause,
            TargetMessage::RequestFailover,
            TargetMessage::Applied(70000),
            TargetMessage::Other,
        ];
        assert_eq!((seen.as_slice(), at), (&expected[..], all.len()));
        assert_eq!(messages.next(&all[..10]), Ok(None));
        let impossible = request(&["CLUSTER", "SYNCSLOTS", "APPLIED", "-1"]);
        for bad in [&b"-ERR no\r\n"[..], &text("FINISH"), &text("APPLIED"), &impossible, b"*1\r\n:5\r\n"] {
            assert!(messages.next(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
