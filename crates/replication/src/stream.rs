//! The stream of commands, as a replica takes it: how much of what has arrived is to be applied, and where the primary asks how far
//! the replica is.

use resp::request::{Batch, Framer, Input, Limits, ProtocolError, Stop};

/// Requests that are looked at together.
const WINDOW: usize = 64;
/// A primary's commands are of any size: it has accepted them already.
const LIMITS: Limits = Limits { bulk_bytes_max: i64::MAX, args_max: i32::MAX as i64, unauthenticated: false };

/// The beginning of what has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Bytes of whole commands and whole transactions that are to be applied.
    pub commands: usize,
    /// Bytes of a request behind them by which the primary asks for the offset (REPLCONF GETACK); 0 if it doesn't. The answer
    /// has the offset before that request.
    pub asks: usize,
}

/// Finds whole commands and transactions. A transaction is applied when all of it is there, so that a link that is cut within one goes
/// on before it.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Bytes of the beginning that were looked at, all of them of a transaction that has yet to end.
    looked_at: usize,
}

impl Splitter {
    /// What the beginning of `bytes` is. The caller passes the bytes behind it, and what has arrived since, with the next call.
    ///
    /// # Errors
    /// The bytes are no commands.
    pub fn portion(&mut self, bytes: &[u8]) -> Result<Portion, ProtocolError> {
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
                    return Ok(Portion { asks: end - portion.commands, ..portion });
                }
                is_within = is(0, b"MULTI") || is_within && !is(0, b"EXEC");
                at = end;
                if !is_within {
                    portion.commands = end;
                }
            }
            match stop {
                Stop::Full => {}
                Stop::Error(error) if portion.commands == 0 => return Err(error),
                // What is no command is met again, and nothing is before it then.
                Stop::Incomplete | Stop::Error(_) => break,
            }
        }
        self.looked_at = at - portion.commands;
        Ok(portion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::request;

    #[test]
    fn whole_commands_are_applied_and_questions_answered() {
        let set = request(&[b"SET", b"k", &[b'v'; 100]]);
        let ask = request(&[b"replconf", b"getack", b"*"]);
        let bytes = [&set[..], &set, &ask, &set].concat();
        for cut in 0..=bytes.len() {
            let found = Splitter::default().portion(&bytes[..cut]).unwrap();
            let whole = (cut / set.len()).min(2) * set.len();
            let asks = if cut >= 2 * set.len() + ask.len() { ask.len() } else { 0 };
            assert_eq!(found, Portion { commands: whole, asks }, "{cut}");
        }
    }

    #[test]
    fn many_commands_are_one_portion() {
        let bytes = request(&[b"INCR", b"k"]).repeat(1000);
        assert_eq!(Splitter::default().portion(&bytes), Ok(Portion { commands: bytes.len(), asks: 0 }));
    }

    #[test]
    fn a_transaction_is_one() {
        let set = request(&[b"SET", b"k", b"v"]);
        let transaction = [&request(&[b"MULTI"])[..], &set.repeat(100), &request(&[b"exec"])].concat();
        let bytes = [&set[..], &transaction, &set].concat();
        for piece in [1, 7, 100, 5000] {
            let (mut splitter, mut buffer, mut portions) = (Splitter::default(), Vec::new(), Vec::new());
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

    #[test]
    fn what_is_no_protocol_is_an_error_behind_the_commands() {
        let set = request(&[b"SET", b"k", b"v"]);
        let bytes = [&set[..], b"*x\r\n"].concat();
        let mut splitter = Splitter::default();
        assert_eq!(splitter.portion(&bytes), Ok(Portion { commands: set.len(), asks: 0 }));
        assert!(splitter.portion(&bytes[set.len()..]).is_err());
    }
}
