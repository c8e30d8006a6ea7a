//! Decides whether a history of concurrent commands is linearizable: Wing and Gong's search (Testing and Verifying
//! Concurrent Objects, 1993) with Lowe's cache of failed states (Testing for Linearizability, 2017). Commands of one
//! connection must take effect in the order of sending, even if they were pipelined and so overlap in time.

use std::collections::HashSet;
use std::hash::Hash;

/// A command as its client saw it. All times are from one clock.
#[derive(Clone, Debug)]
pub struct Event<Op> {
    /// The connection; its events are in the order of sending.
    pub connection: usize,
    /// Time before the command was sent.
    pub sent: u64,
    /// Time after the reply was received.
    pub answered: u64,
    /// The operation and its result.
    pub op: Op,
}

/// Returns true if there is an order of all events that explains every reply, and that respects real time: an event
/// that was answered before another was sent comes first. `apply` returns the state after an operation, or None if the
/// operation's result is impossible in this state.
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

/// `done` is the number of each connection's events that have taken effect. The order within connections is fixed, so
/// these numbers identify the events.
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
    // An event sent after this time must wait: a pending event had been answered by then.
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
        // A read after the write's reply must not see the old value.
        check(&[(0, 0, 1, Ok(1)), (1, 2, 3, Err(0))], false);
        // Reads that overlap the write may see either value, but not the new one and then the old one.
        check(&[(0, 0, 9, Ok(1)), (1, 2, 3, Err(1)), (1, 4, 5, Err(1))], true);
        check(&[(0, 0, 9, Ok(1)), (1, 2, 3, Err(1)), (1, 4, 5, Err(0))], false);
        // Pipelined: all overlap, but each connection's own order holds.
        check(&[(0, 0, 9, Ok(1)), (0, 0, 9, Ok(2)), (1, 0, 9, Err(2)), (1, 0, 9, Err(1))], false);
        check(&[(0, 0, 9, Ok(1)), (0, 0, 9, Ok(2)), (1, 0, 9, Err(1)), (1, 0, 9, Err(2))], true);
        check(&[(0, 0, 9, Ok(1)), (1, 0, 9, Ok(2)), (2, 0, 9, Err(2)), (2, 0, 9, Err(1))], true);
    }
}
