//! The stream of commands on a replica: splits the received bytes into commands to apply and the primary's questions for the offset.

use resp::num::parse_i64;
use resp::request::{Batch, Framer, Input, Limits, ProtocolError, Stop};

/// Requests framed together.
const WINDOW: usize = 64;

/// The beginning of the received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Bytes of whole commands and whole transactions to apply.
    pub commands: usize,
    /// Bytes of a following request for the offset (REPLCONF GETACK), or 0. The answer has the offset before that request.
    pub asks: usize,
    /// Ends of runs of commands: before and after each command that is applied by itself, and before a transaction.
    pub cuts: Vec<usize>,
}

/// The reason why the stream can't be applied any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The bytes are no commands.
    Protocol(ProtocolError),
    /// The next commands are for a database that this server lacks. They must not be applied to another one.
    Database,
}

/// Finds whole commands and transactions. A transaction is applied only when complete: after a cut within it, the link resumes before it.
#[derive(Debug)]
pub struct Splitter {
    /// The replica's number of databases.
    databases: usize,
    /// Returns true for the name of a command that is applied by itself.
    is_single: fn(&[u8]) -> bool,
    /// Bytes at the beginning that were already split, all of an incomplete transaction.
    looked_at: usize,
}

impl Splitter {
    /// A splitter for a replica with that many databases, which applies some commands by themselves.
    #[must_use]
    pub fn new(databases: usize, is_single: fn(&[u8]) -> bool) -> Splitter {
        Splitter { databases, is_single, looked_at: 0 }
    }

    /// Splits the beginning of `bytes`. The next call gets the bytes behind it, and newly received ones.
    ///
    /// # Errors
    /// Nothing more can be applied. Earlier calls have returned everything before.
    pub fn portion(&mut self, bytes: &[u8]) -> Result<Portion, Unusable> {
        let input = Input::from(bytes);
        let (mut framer, mut batch, mut portion) = (Framer::default(), Batch::default(), Portion::default());
        let mut at = std::mem::take(&mut self.looked_at);
        let mut is_within = at > 0;
        loop {
            batch.clear();
            let (_, stop) = framer.frame(input, at, &Limits::UNLIMITED, WINDOW, &mut batch);
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
                // Commands before a transaction that runs by itself are reported before the transaction is queued, when none of it has run.
                if !is_within && is(0, b"MULTI") && (self.is_single)(b"EXEC") && at > 0 {
                    portion.cuts.push(at);
                }
                // The commands queued by a transaction run with its EXEC.
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
                // The error is met again by the next call, with nothing before it then.
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

/// The next task for the received bytes of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamTask {
    /// Apply these whole commands and transactions.
    Apply {
        /// The commands.
        commands: Vec<u8>,
        /// See [`Portion::cuts`].
        cuts: Vec<usize>,
    },
    /// Answer the primary's question for the offset, before this question counts as applied.
    Answer {
        /// The question.
        question: Vec<u8>,
    },
}

/// Received bytes of a stream that have not been applied.
#[derive(Debug)]
pub struct ArrivedStream {
    splitter: Splitter,
    bytes: Vec<u8>,
    /// Bytes of a question at the beginning.
    asks: usize,
}

impl ArrivedStream {
    /// Returns a stream that begins with these bytes.
    #[must_use]
    pub fn begin(splitter: Splitter, bytes: Vec<u8>) -> ArrivedStream {
        ArrivedStream { splitter, bytes, asks: 0 }
    }

    /// The number of unapplied bytes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Adds received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next task, or `None` until more bytes are received.
    ///
    /// # Errors
    /// Nothing more can be applied. Earlier calls have returned everything before.
    pub fn next_task(&mut self) -> Result<Option<StreamTask>, Unusable> {
        if self.asks > 0 {
            let question = self.bytes.drain(..std::mem::take(&mut self.asks)).collect();
            return Ok(Some(StreamTask::Answer { question }));
        }
        let Portion { commands, asks, cuts } = self.splitter.portion(&self.bytes)?;
        self.asks = asks;
        if commands > 0 {
            let commands = self.bytes.drain(..commands).collect();
            return Ok(Some(StreamTask::Apply { commands, cuts }));
        }
        if asks > 0 { self.next_task() } else { Ok(None) }
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
    fn questions_are_answered_in_stream_order() {
        let set = request(&[b"SET", b"k", b"v"]);
        let ask = request(&[b"REPLCONF", b"GETACK", b"*"]);
        let bytes = [&ask[..], &set, &set, &ask, &ask, &set].concat();
        let apply = |times: usize| StreamTask::Apply { commands: set.repeat(times), cuts: Vec::new() };
        let answer = || StreamTask::Answer { question: ask.clone() };
        let mut arrived = ArrivedStream::begin(fresh_splitter(), bytes);
        let tasks: Vec<_> = std::iter::from_fn(|| arrived.next_task().unwrap()).collect();
        assert_eq!(tasks, [answer(), apply(2), answer(), answer(), apply(1)]);
        let (first, second) = ask.split_at(7);
        arrived.add(first);
        assert_eq!((arrived.next_task(), arrived.waiting()), (Ok(None), 7));
        arrived.add(second);
        assert_eq!((arrived.next_task(), arrived.waiting()), (Ok(Some(answer())), 0));
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

    /// The commands must not be applied to the previously selected database.
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
    fn invalid_bytes_are_an_error_after_the_commands() {
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
        let flush_end = flush_at + flush.len();
        // A run ends before a transaction, too: the commands before it count once they have run.
        let cuts = vec![set.len(), exec_at, exec_at + exec.len(), flush_at, flush_end, flush_end];
        assert_eq!(portion, Portion { commands: flush_end, asks: 0, cuts });
    }
}
