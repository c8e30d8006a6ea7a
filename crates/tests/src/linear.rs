//! Decides whether a history of concurrent commands could have happened one at a time: Wing and Gong's search (Testing
//! and Verifying Concurrent Objects, 1993) with Lowe's memory of the states that led nowhere (Testing for
//! Linearizability, 2017). Commands of one connection must take effect in the order in which they were sent, also where
//! they were pipelined and so overlap in time.

use std::collections::HashSet;
use std::hash::Hash;

/// One command as its client saw it. Times are of any clock that all clients share.
#[derive(Clone, Debug)]
pub struct Event<Op> {
    /// Which connection sent it; its events are in the order of sending.
    pub connection: usize,
    /// Before this it had not been sent.
    pub sent: u64,
    /// After this it had been answered.
    pub answered: u64,
    /// What was asked and what the answer was.
    pub op: Op,
}

/// True when some order of all events, in which no event comes before one that had been answered when it was sent,
/// explains every answer. `apply` returns the state after an operation, or nothing when the operation's answer is
/// impossible in that state.
pub fn is_linearizable<S, Op>(start: &S, events: &[Event<Op>], apply: impl Fn(&S, &Op) -> Option<S>) -> bool
where
    S: Clone + Eq + Hash,
{
    let connections = events.iter().map(|event| event.connection + 1).max().unwrap_or(0);
    let lanes: Vec<Vec<&Event<Op>>> =
        (0..connections).map(|lane| events.iter().filter(|event| event.connection == lane).collect()).collect();
    let mut hopeless = HashSet::new();
    search(start, &mut vec![0; connections], &lanes, &apply, &mut hopeless)
}

/// `done` counts the events of each connection that have taken effect: with the order within connections fixed, that
/// says which events have.
fn search<S, Op>(
    state: &S,
    done: &mut Vec<usize>,
    lanes: &[Vec<&Event<Op>>],
    apply: &impl Fn(&S, &Op) -> Option<S>,
    hopeless: &mut HashSet<(S, Vec<usize>)>,
) -> bool
where
    S: Clone + Eq + Hash,
{
    let next = |lane: usize, done: &[usize]| lanes[lane].get(done[lane]).copied();
    let pending: Vec<&Event<Op>> = (0..lanes.len()).filter_map(|lane| next(lane, done)).collect();
    // An event sent after this must wait: something pending had been answered by then.
    let Some(first_answer) = pending.iter().map(|event| event.answered).min() else { return true };
    if !hopeless.insert((state.clone(), done.clone())) {
        return false;
    }
    for event in pending {
        if event.sent > first_answer {
            continue;
        }
        if let Some(after) = apply(state, &event.op) {
            done[event.connection] += 1;
            if search(&after, done, lanes, apply, hopeless) {
                return true;
            }
            done[event.connection] -= 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: `Ok(v)` writes, `Err(v)` reads.
    fn check(events: &[(usize, u64, u64, Result<u8, u8>)], expected: bool) {
        let events: Vec<_> =
            events.iter().map(|&(connection, sent, answered, op)| Event { connection, sent, answered, op }).collect();
        let apply = |state: &u8, op: &Result<u8, u8>| match op {
            Ok(value) => Some(*value),
            Err(value) => (state == value).then_some(*state),
        };
        assert_eq!(is_linearizable(&0, &events, apply), expected, "{events:?}");
    }

    #[test]
    fn histories() {
        check(&[], true);
        check(&[(0, 0, 1, Ok(1)), (1, 2, 3, Err(1))], true);
        // A read after the write's answer must not see what was before.
        check(&[(0, 0, 1, Ok(1)), (1, 2, 3, Err(0))], false);
        // While they overlap, either is right, but not the new and then the old.
        check(&[(0, 0, 9, Ok(1)), (1, 2, 3, Err(1)), (1, 4, 5, Err(1))], true);
        check(&[(0, 0, 9, Ok(1)), (1, 2, 3, Err(1)), (1, 4, 5, Err(0))], false);
        // Pipelined: all overlap, but a connection's own order holds.
        check(&[(0, 0, 9, Ok(1)), (0, 0, 9, Ok(2)), (1, 0, 9, Err(2)), (1, 0, 9, Err(1))], false);
        check(&[(0, 0, 9, Ok(1)), (0, 0, 9, Ok(2)), (1, 0, 9, Err(1)), (1, 0, 9, Err(2))], true);
        check(&[(0, 0, 9, Ok(1)), (1, 0, 9, Ok(2)), (2, 0, 9, Err(2)), (2, 0, 9, Err(1))], true);
    }
}
