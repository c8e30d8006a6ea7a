//! Blocking commands: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH.
//!
//! Each makes an attempt, and asks to be run again if there was no element. The engine decides the order of waiters.

use store::types::list::End;

use super::end_at;
use super::pop::{MultiPop, move_element, multi_pop, pop_from_first};
use crate::Call;
use crate::call::TimeoutReply;
use crate::error::{Error, Outcome};
use crate::timeout::timeout_ms;

/// Parses the argument at `index` as a timeout and returns milliseconds.
fn timeout_at(call: &Call<'_, '_, '_>, index: usize) -> Result<Option<u64>, Error> {
    timeout_ms(call.arg(index), call.db.now_ms())
}

pub(super) fn blpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_wait(call, End::Left)
}

pub(super) fn brpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_wait(call, End::Right)
}

fn pop_or_wait(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let timeout = call.len() - 1;
    let timeout_ms = timeout_at(call, timeout)?;
    if !pop_from_first(call, 1..timeout, end, None)? {
        call.wait(timeout_ms, TimeoutReply::NullArray);
    }
    Ok(())
}

pub(super) fn blmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let MultiPop { keys, end, count } = multi_pop(call, 2)?;
    let timeout_ms = timeout_at(call, 1)?;
    if !pop_from_first(call, keys, end, Some(count))? {
        call.wait(timeout_ms, TimeoutReply::NullArray);
    }
    Ok(())
}

pub(super) fn blmove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (from, to) = (end_at(call, 3)?, end_at(call, 4)?);
    if move_or_wait(call, from, to, 5)? {
        let side = |end: End| if matches!(end, End::Left) { &b"LEFT"[..] } else { b"RIGHT" };
        call.record_as(&[b"LMOVE", call.arg(1), call.arg(2), side(from), side(to)]);
    }
    Ok(())
}

pub(super) fn brpoplpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    if move_or_wait(call, End::Right, End::Left, 3)? {
        call.record_as(&[b"RPOPLPUSH", call.arg(1), call.arg(2)]);
    }
    Ok(())
}

/// Moves an element, or waits for one. Returns true if an element was moved.
fn move_or_wait(call: &mut Call<'_, '_, '_>, from: End, to: End, timeout: usize) -> Result<bool, Error> {
    let timeout_ms = timeout_at(call, timeout)?;
    let is_moved = move_element(call, from, to)?;
    if !is_moved {
        call.wait(timeout_ms, TimeoutReply::Null);
    }
    Ok(is_moved)
}
