//! The two streams of a Redis source: the snapshot of the slots, and the changes since.
//!
//! Reading is pure: bytes in, commands of Valkey's dialect out.

use format::crc64::crc64;
use resp::request::{Args, Batch, Framer, Input, Limits, Stop};

/// The number of requests that are framed together.
const WINDOW: usize = 64;
/// The bytes of a payload's version and checksum.
const FOOTER_BYTES: usize = 10;
/// The bytes of a payload's checksum.
const CHECKSUM_BYTES: usize = 8;

/// The use of a command.
enum Disposition {
    Keep,
    Skip,
    /// The command ends the stream.
    Last,
}

/// Splits a stream into commands.
struct Commands {
    limits: Limits,
    batch: Batch,
}

impl Commands {
    fn new(bulk_bytes_max: u64) -> Commands {
        let bulk_bytes_max = i64::try_from(bulk_bytes_max).unwrap_or(i64::MAX);
        Commands { limits: Limits { bulk_bytes_max, ..Limits::default() }, batch: Batch::default() }
    }

    /// Removes whole commands from `input`, and appends those that are kept to `out`. Returns true once a command has ended the stream.
    ///
    /// A source sends empty lines as signs of life between commands.
    fn take(
        &mut self,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
        mut disposition: impl FnMut(&Args<'_>, &mut [u8]) -> Disposition,
    ) -> Result<bool, String> {
        let (mut at, mut is_over) = (0, false);
        while !is_over {
            at += empty_lines(input.get(at..).unwrap_or_default());
            match input.get(at) {
                Some(b'*') | None => {}
                Some(_) => return Err(unexpected(input.get(at..).unwrap_or_default())),
            }
            self.batch.clear();
            let from = Input::from(input.as_slice());
            let (_, stop) = Framer::default().frame(from, at, &self.limits, WINDOW, &mut self.batch);
            for request in self.batch.requests() {
                let end = request.end as usize;
                let rest = input.get(at..end).unwrap_or_default();
                let command = rest.get(empty_lines(rest)..).unwrap_or_default();
                if command.first() != Some(&b'*') {
                    return Err(unexpected(command));
                }
                at = end;
                let before = out.len();
                out.extend_from_slice(command);
                let disposition =
                    disposition(&self.batch.args(request, from), out.get_mut(before..).unwrap_or_default());
                if !matches!(disposition, Disposition::Keep) {
                    out.truncate(before);
                }
                is_over = matches!(disposition, Disposition::Last);
                if is_over {
                    break;
                }
            }
            if self.batch.requests().len() < WINDOW && !is_over {
                if matches!(stop, Stop::Error(_)) {
                    return Err("Protocol error in the stream of the source".into());
                }
                break;
            }
        }
        input.drain(..at);
        Ok(is_over)
    }
}

/// Returns the number of bytes of empty lines at the beginning.
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// The error for bytes that are no command: an error reply, for example.
fn unexpected(bytes: &[u8]) -> String {
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    format!("Unexpected reply of the source: {}", line.get(..line.len().min(200)).unwrap_or_default().escape_ascii())
}

fn is(args: &Args<'_>, at: usize, word: &str) -> bool {
    args.len() > at && args.get(at).eq_ignore_ascii_case(word.as_bytes())
}

/// Returns the word of a message between the nodes.
fn message<'a>(args: &Args<'a>) -> Option<&'a [u8]> {
    (is(args, 0, "cluster") && is(args, 1, "syncslots") && args.len() > 2).then(|| args.get(2))
}

/// Reads the snapshot.
pub(super) struct Snapshot {
    commands: Commands,
    /// True if the source has sent libraries of functions. They are left out: this node's functions are its own.
    pub(super) has_functions: bool,
}

impl Snapshot {
    pub(super) fn new(bulk_bytes_max: u64) -> Snapshot {
        Snapshot { commands: Commands::new(bulk_bytes_max), has_functions: false }
    }

    /// Removes whole commands from `input`, and appends those that fill the slots. Returns true once the snapshot is complete.
    ///
    /// # Errors
    /// The bytes are no commands.
    pub(super) fn take(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<bool, String> {
        let has_functions = &mut self.has_functions;
        self.commands.take(input, out, |args, kept| {
            if is(args, 0, "function") {
                *has_functions |= args.get(2).len() > FOOTER_BYTES;
                return Disposition::Skip;
            }
            if is(args, 0, "restore") && args.len() > 3 {
                set_checksum(args, kept);
            }
            match message(args) {
                Some(word) if word.eq_ignore_ascii_case(b"snapshot-eof") => Disposition::Last,
                // The number of keys of a slot, for example.
                Some(_) => Disposition::Skip,
                None => Disposition::Keep,
            }
        })
    }
}

/// Sets the checksum of a RESTORE's payload, which the source leaves out.
fn set_checksum(args: &Args<'_>, command: &mut [u8]) {
    let payload = args.get(3);
    if payload.len() < FOOTER_BYTES {
        return;
    }
    let (summed, sum) = payload.split_at(payload.len() - CHECKSUM_BYTES);
    if sum.iter().any(|byte| *byte != 0) {
        return;
    }
    // Behind the payload: the end of its line, and the other arguments with their lengths.
    let behind: usize = (4..args.len()).map(|at| bulk_bytes(args.get(at).len())).sum();
    let end = command.len().saturating_sub(behind + 2);
    if let Some(place) = command.get_mut(end.saturating_sub(CHECKSUM_BYTES)..end).filter(|place| place == &sum) {
        place.copy_from_slice(&crc64(summed).to_le_bytes());
    }
}

/// The bytes of an argument of this length in a request.
fn bulk_bytes(len: usize) -> usize {
    let digits = len.checked_ilog10().unwrap_or_default() as usize + 1;
    1 + digits + 2 + len + 2
}

/// Reads the changes.
pub(super) struct Changes(Commands);

impl Changes {
    pub(super) fn new(bulk_bytes_max: u64) -> Changes {
        Changes(Commands::new(bulk_bytes_max))
    }

    /// Removes whole commands from `input`, and appends the changes. Returns true once the source holds writes, and all changes have come.
    ///
    /// # Errors
    /// The bytes are no commands.
    pub(super) fn take(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<bool, String> {
        self.0.take(input, out, |args, _| match message(args) {
            Some(word) if word.eq_ignore_ascii_case(b"stream-eof") => Disposition::Last,
            Some(_) => Disposition::Skip,
            None => Disposition::Keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use format::payload::with_dumper;

    use super::*;
    use crate::testing::request;

    fn snapshot(bytes: &[u8], part: usize) -> (Result<bool, String>, Vec<u8>, bool) {
        let (mut reader, mut input, mut out, mut ended) = (Snapshot::new(1 << 20), Vec::new(), Vec::new(), Ok(false));
        for part in bytes.chunks(part) {
            input.extend_from_slice(part);
            ended = reader.take(&mut input, &mut out);
            if ended != Ok(false) {
                break;
            }
        }
        (ended, out, reader.has_functions)
    }

    #[test]
    fn a_snapshot_has_the_commands_that_fill_the_slots() {
        let kept =
            [request(&["SELECT", "0"]), request(&["SET", "k", "\r\n*1\r\n"]), request(&["RPUSH", "l", "1", "2"])];
        let all = [
            request(&["FUNCTION", "RESTORE", "more than a footer", "REPLACE"]),
            kept[0].clone(),
            request(&["CLUSTER", "SYNCSLOTS", "CONF", "SLOT-INFO", "5:2:0"]),
            kept[1].clone(),
            b"\n\n".to_vec(),
            kept[2].clone(),
            request(&["CLUSTER", "SYNCSLOTS", "SNAPSHOT-EOF"]),
            request(&["SET", "behind", "the end"]),
        ];
        for part in [1, 2, 7, 1000] {
            assert_eq!(snapshot(&all.concat(), part), (Ok(true), kept.concat(), true), "{part}");
        }
        let none = request(&["FUNCTION", "RESTORE", "ten bytes.", "REPLACE"]);
        assert_eq!(snapshot(&none, 1000), (Ok(false), Vec::new(), false));
    }

    #[test]
    fn payloads_get_their_checksum() {
        let mut bench = crate::testing::Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("rpush l a b c", ":3")]);
        let sealed = with_dumper(|dumper| dumper.functions([b"text".as_slice()].into_iter()));
        let mut unsealed = sealed.clone();
        unsealed[sealed.len() - 8..].fill(0);
        let words = |payload: &[u8]| {
            let words: [&[u8]; 5] = [b"RESTORE", b"key", b"0", payload, b"ABSTTL"];
            let mut out = Vec::new();
            resp::parse::encode_request(&words, &mut out);
            out
        };
        assert_eq!(snapshot(&words(&unsealed), 1000).1, words(&sealed));
        assert_eq!(snapshot(&words(&sealed), 1000).1, words(&sealed), "a checksum that is there stays");
        let mut wrong = sealed.clone();
        wrong[0] ^= 1;
        assert_eq!(snapshot(&words(&wrong), 1000).1, words(&wrong), "a wrong checksum stays");
        for short in [&b""[..], &[0; 9]] {
            assert_eq!(snapshot(&words(short), 1000).1, words(short));
        }
    }

    #[test]
    fn an_error_ends_a_stream() {
        let refused = snapshot(b"-ERR No slot migration task in progress\r\n", 1000).0;
        assert_eq!(refused, Err("Unexpected reply of the source: -ERR No slot migration task in progress".into()));
        let behind = [request(&["SET", "k", "v"]), b"-ERR x\r\n".to_vec()].concat();
        assert_eq!(snapshot(&behind, 1000).0, Err("Unexpected reply of the source: -ERR x".into()));
        assert!(snapshot(b"*1\r\n$x\r\n", 1000).0.is_err());
    }

    #[test]
    fn changes_end_with_the_hold() {
        let kept = [
            request(&["SET", "k", "*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n$10\r\nSTREAM-EOF\r\n"]),
            request(&["DEL", "l"]),
        ];
        let all = [
            kept[0].clone(),
            b"\n".to_vec(),
            request(&["CLUSTER", "SYNCSLOTS", "CONF", "CAPA", "x"]),
            kept[1].clone(),
            request(&["CLUSTER", "SYNCSLOTS", "STREAM-EOF"]),
        ]
        .concat();
        let (mut reader, mut input, mut out) = (Changes::new(1 << 20), Vec::new(), Vec::new());
        for (at, byte) in all.iter().enumerate() {
            input.push(*byte);
            assert_eq!(reader.take(&mut input, &mut out), Ok(at + 1 == all.len()));
        }
        assert_eq!(out, kept.concat());
    }
}
