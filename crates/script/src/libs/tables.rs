//! `table`: replaces the functions of Lua's library that could run without end, or that write to tables shared by all
//! scripts.

use std::ffi::c_int;

use crate::libs::base::refuse_guard;
use crate::libs::support::check_int;
use crate::libs::{raw, seal};
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// Replaces functions of the global `table`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 5] = [
        ("sort", native!(sort)),
        ("insert", native!(insert)),
        ("remove", native!(remove)),
        ("foreach", raw::foreach),
        ("maxn", native!(maxn)),
    ];
    state.push_globals();
    state.raw_get_named(-1, "table");
    for (name, entry) in functions {
        state.push_native(entry);
        state.raw_set_named(-2, name);
    }
    state.pop(2);
    Ok(())
}

/// `table.maxn` sees through guards, and polls.
fn maxn(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    state.set_top(1);
    seal::see_through(state, 1);
    let mut largest: f64 = 0.0;
    crate::libs::support::for_each_pair(state, |state| {
        if state.kind(-2) == LuaType::Number {
            largest = state.number(-2).filter(|&key| key > largest).unwrap_or(largest);
        }
        Ok(true)
    })?;
    state.push_number(largest);
    Ok(1)
}

/// `table.insert(table, [position,] value)`: elements from the position on move up, even if it is far below 1.
fn insert(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    let mut end = (state.raw_len(1) as c_int).wrapping_add(1);
    let position = match state.top() {
        2 => end,
        3 => {
            let position = check_int(state, 2)?;
            end = end.max(position);
            position
        }
        _ => return Err(state.error("wrong number of arguments to 'insert'")),
    };
    refuse_guard(state, 1)?;
    for item in (position.saturating_add(1)..=end).rev() {
        state.poll()?;
        state.raw_get_at(1, item - 1);
        state.raw_set_at(1, item);
    }
    state.raw_set_at(1, position);
    Ok(0)
}

/// `table.remove(table [, position])`: elements behind the position move down.
fn remove(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    let end = state.raw_len(1) as c_int;
    let position = match state.kind(2) {
        LuaType::None | LuaType::Nil => end,
        _ => check_int(state, 2)?,
    };
    if !(1..=end).contains(&position) {
        return Ok(0);
    }
    refuse_guard(state, 1)?;
    state.raw_get_at(1, position);
    for item in position..end {
        state.poll()?;
        state.raw_get_at(1, item + 1);
        state.raw_set_at(1, item);
    }
    state.push_nil();
    state.raw_set_at(1, end);
    Ok(1)
}

/// `table.sort(table [, less])`: Lua 5.1's quicksort, since scripts can observe the order of equal elements, and the
/// calls of an inconsistent order function.
fn sort(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    let len = state.raw_len(1) as c_int;
    if !matches!(state.kind(2), LuaType::None | LuaType::Nil) {
        state.check_kind(2, LuaType::Function)?;
    }
    state.set_top(2);
    state.ensure(8)?;
    state.poll()?;
    if state.kind(2) != LuaType::Function && sort_numbers(state, len) {
        return Ok(0);
    }
    // Keeps the larger part of each partition for later and sorts the smaller one first, so at most 32 parts are
    // pending.
    let mut waiting = vec![(1, len)];
    while let Some((low, high)) = waiting.pop() {
        if low < high
            && let Some((larger, smaller)) = partition(state, low, high)?
        {
            waiting.extend([larger, smaller]);
        }
    }
    Ok(0)
}

/// Largest number of elements that are sorted without polling: a fraction of a millisecond.
const SORTED_AT_ONCE_MAX: c_int = 4096;

/// Sorts a table of numbers outside of Lua. Scripts cannot tell equal numbers apart, so the algorithm is free. Returns false,
/// and changes nothing, if the table has other elements, is long, or if it contains NaN, which has no order, or a negative
/// zero, which scripts can tell from zero.
fn sort_numbers(state: &mut LuaState, len: c_int) -> bool {
    if len > SORTED_AT_ONCE_MAX {
        return false;
    }
    let mut numbers = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // The place of each element. A place from the top down would have to be counted for each access.
    let place = state.top() + 1;
    for item in 1..=len {
        state.raw_get_at(1, item);
        let number = if state.kind(place) == LuaType::Number { state.number(place) } else { None };
        state.pop(1);
        match number {
            Some(number) if !number.is_nan() && (number != 0.0 || number.is_sign_positive()) => numbers.push(number),
            _ => return false,
        }
    }
    numbers.sort_unstable_by(f64::total_cmp);
    for (item, &number) in (1..).zip(&numbers) {
        state.push_number(number);
        state.raw_set_at(1, item);
    }
    true
}

type Bounds = (c_int, c_int);

/// Sorts the first, the middle and the last element, and partitions the others by the middle one. Returns the larger
/// part and the smaller one, or None if there are no others.
fn partition(state: &mut LuaState, low: c_int, high: c_int) -> Result<Option<(Bounds, Bounds)>, Raise> {
    order(state, low, high)?;
    if high - low == 1 {
        return Ok(None);
    }
    let middle = low + (high - low) / 2;
    if !order(state, low, middle)? {
        order(state, middle, high)?;
    }
    if high - low == 2 {
        return Ok(None);
    }
    // The pivot stays on the stack; its element is moved out of the way.
    state.raw_get_at(1, middle);
    state.push_copy(-1);
    state.raw_get_at(1, high - 1);
    set_pair(state, middle, high - 1);
    let boundary = split(state, low, high)?;
    state.pop(1);
    state.raw_get_at(1, high - 1);
    state.raw_get_at(1, boundary);
    set_pair(state, high - 1, boundary);
    let (below, above) = ((low, boundary - 1), (boundary + 1, high));
    Ok(Some(if boundary - low < high - boundary { (above, below) } else { (below, above) }))
}

/// Moves elements below the pivot on top of the stack down and elements above it up. Returns the border.
fn split(state: &mut LuaState, low: c_int, high: c_int) -> Result<c_int, Raise> {
    const NO_ORDER: &str = "invalid order function for sorting";
    let (mut up, mut down) = (low, high - 1);
    loop {
        loop {
            up += 1;
            state.raw_get_at(1, up);
            if !less(state, -1, -2)? {
                break;
            }
            if up > high {
                return Err(state.error(NO_ORDER));
            }
            state.pop(1);
        }
        loop {
            down -= 1;
            state.raw_get_at(1, down);
            if !less(state, -3, -1)? {
                break;
            }
            if down < low {
                return Err(state.error(NO_ORDER));
            }
            state.pop(1);
        }
        if down < up {
            state.pop(2);
            return Ok(up);
        }
        set_pair(state, up, down);
    }
}

/// Exchanges two elements if the second is less than the first. Returns true if it exchanged them.
fn order(state: &mut LuaState, first: c_int, second: c_int) -> Result<bool, Raise> {
    state.raw_get_at(1, first);
    state.raw_get_at(1, second);
    let exchange = less(state, -1, -2)?;
    if exchange {
        set_pair(state, first, second);
    } else {
        state.pop(2);
    }
    Ok(exchange)
}

/// Pops two values: the topmost becomes the first element, the one below it the second.
fn set_pair(state: &mut LuaState, first: c_int, second: c_int) {
    state.raw_set_at(1, first);
    state.raw_set_at(1, second);
}

fn less(state: &mut LuaState, a: c_int, b: c_int) -> Result<bool, Raise> {
    state.poll()?;
    let (a, b) = (state.top() + a + 1, state.top() + b + 1);
    match (state.kind(2), state.kind(a), state.kind(b)) {
        (LuaType::Function, ..) => state.push_copy(2),
        (_, LuaType::Number, LuaType::Number) => return Ok(state.number(a) < state.number(b)),
        (_, LuaType::String, LuaType::String) => return Ok(state.bytes(a) < state.bytes(b)),
        _ => state.push_native(raw::less),
    }
    state.push_copy(a);
    state.push_copy(b);
    state.call(2, 1)?;
    let less = state.boolean(-1);
    state.pop(1);
    Ok(less)
}
