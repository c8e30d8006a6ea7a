//! The stream of the source of moving slots: changes of keys in these slots, and messages of the source between them.
//!
//! The target trusts the source with its own slots only. Any other command ends the move.
//!
//! Splitting is pure: bytes in, steps out.

use cluster::{Slot, SlotSet};
use commands::spec::flag;
use resp::request::{Args, Batch, Framer, Input, Limits, Stop};
use store::hash;

use crate::registry::table;
use crate::worker::is_whole;

/// The number of requests that are framed together. The next step frames those beyond the end of a step again, so a large number costs much:
/// a source of Penstock sends requests of some kilobytes.
const WINDOW: usize = 8;
/// The greatest number of bytes of a step, unless a single command is larger. A worker applies them in less than a millisecond.
const STEP_BYTES_MAX: usize = 64 << 10;

/// A message of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceMessage {
    /// A sign of life.
    Ack,
    /// The snapshot is complete.
    SnapshotEof,
    /// Writes to the slots are held, and all changes have been sent.
    Paused,
    /// The target may claim the slots.
    FailoverGranted,
    /// The source's abilities, or a message for others.
    Other,
}

/// The next part of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportStep {
    /// The bytes before `end` are changes.
    Changes {
        /// The end.
        end: usize,
    },
    /// The bytes before `end` are a message.
    Message {
        /// The end.
        end: usize,
        /// The message.
        message: SourceMessage,
    },
    /// The first command is incomplete.
    NeedsMore,
}

/// Splits the stream.
pub struct ImportSplitter {
    slots: SlotSet,
    limits: Limits,
    batch: Batch,
}

/// The kind of a command.
enum Request {
    Change,
    Message(SourceMessage),
}

impl ImportSplitter {
    /// Begins to split the stream for these slots. `bulk_bytes_max` limits an argument's length.
    #[must_use]
    pub fn new(slots: SlotSet, bulk_bytes_max: u64) -> ImportSplitter {
        let bulk_bytes_max = i64::try_from(bulk_bytes_max).unwrap_or(i64::MAX);
        ImportSplitter { slots, limits: Limits { bulk_bytes_max, ..Limits::default() }, batch: Batch::default() }
    }

    /// Returns the first step of `bytes`.
    ///
    /// # Errors
    /// The reason that the stream can't go on: bytes that are no command, or a command that a source must not send.
    pub fn next_step(&mut self, bytes: &[u8]) -> Result<ImportStep, String> {
        let mut end = 0;
        while end < STEP_BYTES_MAX {
            self.batch.clear();
            let input = Input::from(bytes);
            let (_, stop) = Framer::default().frame(input, end, &self.limits, WINDOW, &mut self.batch);
            for request in self.batch.requests() {
                match self.kind_of(self.batch.args(request, input))? {
                    Request::Message(message) if end == 0 => {
                        return Ok(ImportStep::Message { end: request.end as usize, message });
                    }
                    Request::Message(_) => return Ok(ImportStep::Changes { end }),
                    Request::Change => end = request.end as usize,
                }
                if end >= STEP_BYTES_MAX {
                    break;
                }
            }
            if self.batch.requests().len() < WINDOW {
                if end == 0 && matches!(stop, Stop::Error(_)) {
                    return Err("Protocol error in the stream of the source".into());
                }
                break;
            }
        }
        Ok(if end > 0 { ImportStep::Changes { end } } else { ImportStep::NeedsMore })
    }

    fn kind_of(&self, args: Args<'_>) -> Result<Request, String> {
        let is = |at: usize, word: &[u8]| args.len() > at && args.get(at).eq_ignore_ascii_case(word);
        if is(0, b"CLUSTER") && is(1, b"SYNCSLOTS") && args.len() > 2 {
            return message_of(args.get(2)).map(Request::Message);
        }
        if is(0, b"SELECT") && args.len() == 2 {
            return Ok(Request::Change);
        }
        match self.changes_own_slots(args) {
            true => Ok(Request::Change),
            false => Err(format!(
                "The source has sent a command that does not belong to its slots: {}",
                args.get(0).escape_ascii()
            )),
        }
    }

    /// Returns true for a command that writes, with keys in the job's slots only.
    fn changes_own_slots(&self, args: Args<'_>) -> bool {
        let found = table().find(args.get(0)).and_then(|command| table().resolve(command, args));
        let Some(command) = found.filter(|command| command.info.accepts(args.len())) else { return false };
        let (mut keys, mut foreign) = (0, 0);
        command.info.visit_keys(args, |at| {
            keys += 1;
            foreign += usize::from(!self.slots.contains(Slot::of_hash(hash::slot_of(args.get(at)))));
        });
        command.info.has(flag::WRITE) && !is_whole(command, args) && keys > 0 && foreign == 0
    }
}

fn message_of(word: &[u8]) -> Result<SourceMessage, String> {
    let words = [
        ("ack", SourceMessage::Ack),
        ("snapshot-eof", SourceMessage::SnapshotEof),
        ("paused", SourceMessage::Paused),
        ("failover-granted", SourceMessage::FailoverGranted),
        ("capa", SourceMessage::Other),
    ];
    let found = words.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, message)| message).ok_or_else(|| "Unknown SYNCSLOTS subcommand used".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    fn bytes(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect()
    }

    /// Returns the steps as commands' numbers and messages. The slots are those of the tags `a` and `b`.
    fn steps(bytes: &[u8]) -> Result<Vec<ImportStep>, String> {
        let slots = ["a", "b"].iter().map(|tag| Slot::of_hash(hash::slot_of(tag.as_bytes()))).collect();
        let mut splitter = ImportSplitter::new(slots, 1 << 20);
        let (mut at, mut steps) = (0, Vec::new());
        loop {
            let step = splitter.next_step(&bytes[at..])?;
            steps.push(step);
            at += match step {
                ImportStep::Changes { end } | ImportStep::Message { end, .. } => end,
                ImportStep::NeedsMore => return Ok(steps),
            };
        }
    }

    #[test]
    fn messages_split_changes_and_keep_their_place() {
        let first = bytes(&["SELECT 0", "SET {a}1 x", "XGROUP CREATE {b}s g 0 MKSTREAM"]);
        let eof = bytes(&["CLUSTER SYNCSLOTS SNAPSHOT-EOF"]);
        let last = bytes(&["RENAME {a}1 {a}2"]);
        let all = [first.clone(), eof.clone(), last.clone(), b"*2\r\n$3\r\nDEL\r\n$1".to_vec()].concat();
        let expected = [
            ImportStep::Changes { end: first.len() },
            ImportStep::Message { end: eof.len(), message: SourceMessage::SnapshotEof },
            ImportStep::Changes { end: last.len() },
            ImportStep::NeedsMore,
        ];
        assert_eq!(steps(&all).unwrap(), expected);
    }

    #[test]
    fn a_source_changes_only_keys_of_its_slots() {
        let foreign =
            ["SET c 1", "MSET {a}1 x c y", "FLUSHALL", "GET {a}1", "EVAL x 1 {a}1", "MULTI", "bogus", "SET {a}1"];
        for line in foreign {
            assert!(steps(&bytes(&[line])).is_err(), "{line}");
        }
        assert!(steps(b"bogus").is_ok() && steps(&bytes(&["CLUSTER SYNCSLOTS BOGUS"])).is_err());
        assert!(steps(b"*1\r\n:5\r\n").is_err());
    }

    #[test]
    fn a_long_stream_comes_in_short_steps() {
        let all = bytes(&["SET {a}1 0123456789"].repeat(10_000));
        let steps = steps(&all).unwrap();
        let ends =
            steps.iter().filter_map(|step| if let ImportStep::Changes { end } = step { Some(*end) } else { None });
        assert!(ends.clone().all(|end| end < STEP_BYTES_MAX + 1000));
        assert_eq!(ends.sum::<usize>(), all.len());
    }
}
