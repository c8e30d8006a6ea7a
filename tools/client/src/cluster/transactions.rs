//! Transactions within one slot.

use cluster::Slot;
use resp::parse::Value;

use crate::command::Request;

/// Commands of one slot that run together, between MULTI and EXEC.
#[derive(Clone, Debug)]
pub struct SlotTransaction {
    pub(super) slot: Slot,
    bytes: Vec<u8>,
    commands: usize,
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Transacted {
    /// All commands ran; the reply of each.
    Executed(Vec<Value>),
    /// No command ran, because the server refused these commands: the index and the error reply of each.
    Refused(Vec<(usize, Value)>),
    /// No command ran: the reply to EXEC.
    Aborted(Value),
}

impl SlotTransaction {
    /// Returns a transaction without commands.
    #[must_use]
    pub fn new(slot: Slot) -> Self {
        Self { slot, bytes: Vec::new(), commands: 0 }
    }

    /// Adds a command. All its keys must be of the slot, and it must have exactly one reply.
    pub fn add(&mut self, request: &(impl Request + ?Sized)) -> &mut Self {
        request.pack(&mut self.bytes);
        self.commands += 1;
        self
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands
    }

    /// Returns true if the transaction has no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Returns all requests, with MULTI and EXEC.
    pub(super) fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.bytes.len() + 64);
        ["MULTI"].pack(&mut packed);
        packed.extend_from_slice(&self.bytes);
        ["EXEC"].pack(&mut packed);
        packed
    }
}

impl Transacted {
    /// Sorts the replies of MULTI, the commands, and EXEC.
    pub(super) fn of(replies: Value) -> Self {
        let Value::Array(mut replies) = replies else { return Self::Aborted(replies) };
        let executed = replies.pop().unwrap_or(Value::Null);
        let refused: Vec<(usize, Value)> =
            replies.into_iter().skip(1).enumerate().filter(|(_, reply)| reply.error().is_some()).collect();
        match executed {
            Value::Array(results) => Self::Executed(results),
            other if refused.is_empty() => Self::Aborted(other),
            _ => Self::Refused(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_sorted() {
        let (ok, queued) = (Value::Simple(b"OK".to_vec()), Value::Simple(b"QUEUED".to_vec()));
        let error = |text: &str| Value::Error(text.as_bytes().to_vec());
        let of =
            |replies: &[&Value]| Transacted::of(Value::Array(replies.iter().map(|reply| (*reply).clone()).collect()));
        let results = Value::Array(vec![Value::Int(1), error("WRONGTYPE x")]);
        assert_eq!(
            of(&[&ok, &queued, &queued, &results]),
            Transacted::Executed(vec![Value::Int(1), error("WRONGTYPE x")])
        );
        let (refusal, abort) = (error("ERR unknown command"), error("EXECABORT x"));
        assert_eq!(of(&[&ok, &queued, &refusal, &abort]), Transacted::Refused(vec![(1, refusal.clone())]));
        assert_eq!(of(&[&ok, &queued, &Value::NullArray]), Transacted::Aborted(Value::NullArray));
    }

    #[test]
    fn requests_are_between_multi_and_exec() {
        let mut transaction = SlotTransaction::new(Slot::of_hash(1));
        assert!(transaction.is_empty());
        transaction.add(&["GET", "a"]).add(&["GET", "b"]);
        let expected = [&["MULTI"][..], &["GET", "a"], &["GET", "b"], &["EXEC"]];
        let mut packed = Vec::new();
        expected.iter().for_each(|words| words.pack(&mut packed));
        assert_eq!((transaction.pack(), transaction.len()), (packed, 2));
    }
}
