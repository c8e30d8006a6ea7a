//! The stream of commands, as a replica takes it: how much of what has arrived is to be applied, and where the primary asks how far
//! the replica is.

use resp::num::parse_i64;
use resp::request::{Batch, Framer, Input, Limits, ProtocolError, Stop};

/// Requests that are looked at together.
const WINDOW: usize = 64;
/// A primary's commands are of any size: it has accepted them already.
const LIMITS: Limits = Limits { bulk_bytes_max: i64::MAX, args_max: i32::MAX as i64, unauthenticated: false };

/// The beginning of what has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Bytes of whole commands and whole transactions that are to be applied.
    pub commands: usize,
    /// Bytes of a request behind them by which the primary asks for the offset (REPLCONF GETACK); 0 if it doesn't. The answer
    /// has the offset before that request.
    pub asks: usize,
    /// Where runs of commands end: before and behind each that is to be applied by itself.
    pub cuts: Vec<usize>,
}

/// Why the stream can't be applied any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The bytes are no commands.
    Protocol(ProtocolError),
    /// What follows is for a database that this server doesn't have. Applied to another one, it would be wrong there.
    Database,
}

/// Finds whole commands and transactions. A transaction is applied when all of it is there, so that a link that is cut within one goes
/// on before it.
#[derive(Debug)]
pub struct Splitter {
    /// How many databases the replica has.
    databases: usize,
    /// Whether a command of this name is to be applied by itself.
    is_single: fn(&[u8]) -> bool,
    /// Bytes of the beginning that were looked at, all of them of a transaction that has yet to end.
    looked_at: usize,
}

impl Splitter {
    /// For a replica with so many databases that applies some commands by themselves.
    #[must_use]
    pub fn new(databases: usize, is_single: fn(&[u8]) -> bool) -> Splitter {
        Splitter { databases, is_single, looked_at: 0 }
    }

    /// What the beginning of `bytes` is. The caller passes the bytes behind it, and what has arrived since, with the next call.
    ///
    /// # Errors
    /// Nothing more can be applied; all that is before has been returned by earlier calls.
    pub fn portion(&mut self, bytes: &[u8]) -> Result<Portion, Unusable> {
        let input = Input::from(bytes);
        let (mut framer, mut batch, mut portion) = (Framer::default(), Batch::default(), Portion::default());
        let mut at = std::mem::take(&mut self.looked_at);
        let mut is_within = at > 0;
        loop {
            batch.clear();
            let (_, stop) = framer.frame(input, at, &LIMITS, WINDOW, &mut batch);
            for request in batch.requests() {
                let args = batch.args(request, input);
                let is = |index: usize, word: &[u8]| args.get(index).eq_ignore_ascii_case(word);
                let end = request.end as usize;
                if !is_within && is(0, b"REPLCONF") && is(1, b"GETACK") {
                    portion.asks = end - portion.commands;
                    return Ok(portion);
                }
                if is(0, b"SELECT") && !self.has_database(args.get(1)) {
                    return if portion.commands == 0 { Err(Unusable::Database) } else { Ok(portion) };
                }
                // What a transaction queues runs with its EXEC.
                if (!is_within || is(0, b"EXEC")) && (self.is_single)(args.get(0)) {
                    portion.cuts.extend([at, end]);
                }
                is_within = is(0, b"MULTI") || is_within && !is(0, b"EXEC");
                at = end;
                if !is_within {
                    portion.commands = end;
                }
            }
            match stop {
                Stop::Full => {}
                Stop::Error(error) if portion.commands == 0 => return Err(Unusable::Protocol(error)),
                // What is no command is met again, and nothing is before it then.
                Stop::Incomplete | Stop::Error(_) => break,
            }
        }
        self.looked_at = at - portion.commands;
        Ok(portion)
    }

    fn has_database(&self, number: &[u8]) -> bool {
        parse_i64(number).and_then(|number| usize::try_from(number).ok()).is_some_and(|number| number < self.databases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::request;

    fn fresh_splitter() -> Splitter {
        Splitter::new(16, |_| false)
    }

    #[test]
    fn whole_commands_are_applied_and_questions_answered() {
        let set = request(&[b"SET", b"k", &[b'v'; 100]]);
        let ask = request(&[b"replconf", b"getack", b"*"]);
        let bytes = [&set[..], &set, &ask, &set].concat();
        for cut in 0..=bytes.len() {
            let found = fresh_splitter().portion(&bytes[..cut]).unwrap();
            let whole = (cut / set.len()).min(2) * set.len();
            let asks = if cut >= 2 * set.len() + ask.len() { ask.len() } else { 0 };
            assert_eq!(found, Portion { commands: whole, asks, cuts: Vec::new() }, "{cut}");
        }
    }

    #[test]
    fn many_commands_are_one_portion() {
        let bytes = request(&[b"INCR", b"k"]).repeat(1000);
        assert_eq!(fresh_splitter().portion(&bytes), Ok(Portion { commands: bytes.len(), asks: 0, cuts: Vec::new() }));
    }

    #[test]
    fn a_transaction_is_one() {
        let set = request(&[b"SET", b"k", b"v"]);
        let transaction = [&request(&[b"MULTI"])[..], &set.repeat(100), &request(&[b"exec"])].concat();
        let bytes = [&set[..], &transaction, &set].concat();
        for piece in [1, 7, 100, 5000] {
            let (mut splitter, mut buffer, mut portions) = (fresh_splitter(), Vec::new(), Vec::new());
            for piece in bytes.chunks(piece) {
                buffer.extend_from_slice(piece);
                let portion = splitter.portion(&buffer).unwrap();
                portions.extend((portion.commands > 0).then_some(portion.commands));
                buffer.drain(..portion.commands);
            }
            let all = vec![set.len(), transaction.len(), set.len()];
            let expected = if piece == 5000 { vec![bytes.len()] } else { all };
            assert!(portions == expected || piece == 100, "{piece}: {portions:?}");
            assert_eq!(portions.iter().sum::<usize>(), bytes.len(), "{piece}");
        }
    }

    /// Its commands must not be applied to the database that was selected before.
    #[test]
    fn a_database_that_is_not_there_ends_the_stream() {
        let set = request(&[b"SET", b"k", b"v"]);
        let select = |number: &[u8]| request(&[b"SELECT", number]);
        let known = [&select(b"15")[..], &set].concat();
        let bytes = [&known[..], &select(b"16"), &set].concat();
        let mut splitter = fresh_splitter();
        assert_eq!(splitter.portion(&bytes), Ok(Portion { commands: known.len(), asks: 0, cuts: Vec::new() }));
        assert_eq!(splitter.portion(&bytes[known.len()..]), Err(Unusable::Database));
        // Within a transaction, too.
        let bytes = [&request(&[b"MULTI"])[..], &set, &select(b"16"), &set, &request(&[b"EXEC"])].concat();
        assert_eq!(fresh_splitter().portion(&bytes), Err(Unusable::Database));
    }

    #[test]
    fn what_is_no_protocol_is_an_error_behind_the_commands() {
        let set = request(&[b"SET", b"k", b"v"]);
        let bytes = [&set[..], b"*x\r\n"].concat();
        let mut splitter = fresh_splitter();
        assert_eq!(splitter.portion(&bytes), Ok(Portion { commands: set.len(), asks: 0, cuts: Vec::new() }));
        assert!(splitter.portion(&bytes[set.len()..]).is_err());
    }

    #[test]
    fn some_commands_are_applied_by_themselves() {
        let set = request(&[b"SET", b"k", b"v"]);
        let transaction = [&request(&[b"MULTI"])[..], &set, &request(&[b"FLUSHALL"])].concat();
        let (exec, flush) = (request(&[b"EXEC"]), request(&[b"flushall"]));
        let bytes = [&set[..], &transaction, &exec, &set, &flush, &transaction].concat();
        let is_single = |name: &[u8]| name == b"EXEC" || name.eq_ignore_ascii_case(b"flushall");
        let portion = Splitter::new(16, is_single).portion(&bytes).unwrap();
        let exec_at = set.len() + transaction.len();
        let flush_at = exec_at + exec.len() + set.len();
        let cuts = vec![exec_at, exec_at + exec.len(), flush_at, flush_at + flush.len()];
        assert_eq!(portion, Portion { commands: flush_at + flush.len(), asks: 0, cuts });
    }
}
