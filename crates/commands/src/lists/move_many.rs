//! Moves of several elements at once: LMOVEM and BLMOVEM, as in Redis 8.10.
//!
//! All elements are popped before the first is pushed, so OBO on a single list differs from repeated LMOVEs. The
//! journal records pushes, pops and LSETs, which older versions understand.

use resp::num::IntText;
use store::types::list::{End, List};

use super::change::{push_event, taken};
use super::end_at;
use super::pop::{pop_event, positive};
use crate::Call;
use crate::call::TimeoutReply;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::timeout::timeout_ms;

/// Options of a move.
#[derive(Clone, Copy)]
struct Moves {
    from: End,
    to: End,
    count: usize,
    /// EXACTLY: all of them or nothing.
    is_exact: bool,
    /// OBO: the elements are pushed one after another. Moving between equal ends therefore reverses their order.
    is_one_by_one: bool,
}

/// Parses the arguments: both ends, and the options from `options` on.
fn moves(call: &Call<'_, '_, '_>, options: usize) -> Result<Moves, Error> {
    let (from, to) = (end_at(call, 3)?, end_at(call, 4)?);
    let mut moves = Moves { from, to, count: 1, is_exact: false, is_one_by_one: true };
    match call.len() - options {
        0 => return Ok(moves),
        3 if call.is(options, "exactly") => moves.is_exact = true,
        3 if call.is(options, "count") => {}
        _ => return Err(Error::SYNTAX),
    }
    moves.count = positive(call, options + 1).ok_or(Error::fixed("ERR count should be greater than 0"))?;
    moves.is_one_by_one = call.is(options + 2, "obo");
    if moves.is_one_by_one || call.is(options + 2, "bulk") { Ok(moves) } else { Err(Error::SYNTAX) }
}

pub(super) fn lmovem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let moves = moves(call, 5)?;
    if !move_elements(call, moves)? {
        call.reply.null_array();
    }
    Ok(())
}

pub(super) fn blmovem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let moves = moves(call, 6)?;
    let timeout_ms = timeout_ms(call.arg(5), call.db.now_ms())?;
    if !move_elements(call, moves)? {
        call.wait(timeout_ms, TimeoutReply::NullArray);
    }
    Ok(())
}

/// Moves elements from the list at the first key to the list at the second, and replies with them in their order in the
/// destination. Returns false, without a reply, if there were not enough.
fn move_elements(call: &mut Call<'_, '_, '_>, moves: Moves) -> Result<bool, Error> {
    let (source, destination, limits) = (call.key(1), call.key(2), call.rules.list);
    let destination_type = call.db.peek_object::<List>(destination).map(|_| ());
    let least = if moves.is_exact { moves.count } else { 1 };
    let Some(list) = call.db.object_mut::<List>(source)?.filter(|list| list.len() >= least) else { return Ok(false) };
    destination_type?;
    let count = moves.count.min(list.len());
    let mut block: Vec<_> = (0..count).filter_map(|_| list.pop(moves.from, limits)).collect();
    let turned = if moves.is_one_by_one { moves.to } else { opposite(moves.from) };
    if turned == End::Left {
        block.reverse();
    }
    let is_same = source.bytes == destination.bytes;
    let is_empty = list.is_empty() && !is_same;
    let target = if is_same { list } else { call.db.object_or_new::<List>(destination)? };
    match moves.to {
        End::Left => block.iter().rev().for_each(|element| target.push(End::Left, element, limits)),
        End::Right => block.iter().for_each(|element| target.push(End::Right, element, limits)),
    }
    let len = target.len();
    call.reply.array(count);
    block.iter().for_each(|element| call.reply.bulk(element));
    if call.is_recorded() {
        record(call, moves, is_same.then_some(len), &block);
    }
    call.event(destination, Class::List, push_event(moves.to));
    taken(call, source, pop_event(moves.from), count, is_empty);
    Ok(true)
}

fn opposite(end: End) -> End {
    match end {
        End::Left => End::Right,
        End::Right => End::Left,
    }
}

/// Records the move. `same_len` is the list's length if both keys are the same.
fn record(call: &mut Call<'_, '_, '_>, moves: Moves, same_len: Option<usize>, block: &[impl AsRef<[u8]>]) {
    let (source, destination) = (call.key(1), call.key(2));
    if let Some(len) = same_len.filter(|_| moves.from == moves.to) {
        let first = if moves.to == End::Left { 0 } else { len - block.len() };
        for (at, element) in block.iter().enumerate() {
            let mut index = IntText::new();
            call.record_as(&[b"LSET", destination.bytes, index.u64((first + at) as u64), element.as_ref()]);
        }
        return;
    }
    let (push, pop): (&[u8], &[u8]) = match (moves.to, moves.from) {
        (End::Left, End::Left) => (b"LPUSH", b"LPOP"),
        (End::Left, End::Right) => (b"LPUSH", b"RPOP"),
        (End::Right, End::Left) => (b"RPUSH", b"LPOP"),
        (End::Right, End::Right) => (b"RPUSH", b"RPOP"),
    };
    // The push comes first: if the keys are the same, popping all elements first would delete the key and its expiry.
    let mut words = vec![push, destination.bytes];
    words.extend(block.iter().map(AsRef::as_ref));
    if moves.to == End::Left {
        words[2..].reverse();
    }
    call.record_as(&words);
    let mut count = IntText::new();
    call.record_as(&[pop, source.bytes, count.u64(block.len() as u64)]);
}
