//! `cmsgpack`: converts values to and from MessagePack (msgpack.org), in the dialect of Redis's lua-cmsgpack 0.4.0,
//! which has no types "bin" and "ext".

use std::ffi::c_int;

use crate::libs::support::{
    NESTING_MAX, check_long, check_long_or, ensure_for, for_each_pair, to_int_directly, to_long,
};
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// Tables nested deeper than this are packed as nil, which also ends cycles.
const PACK_NESTING_MAX: usize = 16;
/// Most stack slots of one level of packing.
const PACK_SLOTS: c_int = 4;

/// Sets the global `cmsgpack`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 4] = [
        ("pack", native!(pack)),
        ("unpack", native!(unpack)),
        ("unpack_one", native!(unpack_one)),
        ("unpack_limit", native!(unpack_limit)),
    ];
    state.push_library(&functions)?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        state.push_short(text.as_bytes());
        state.raw_set_named(-2, name);
    }
    state.set_global("cmsgpack");
    Ok(())
}

// --- Packing.

fn pack(state: &mut LuaState) -> Result<c_int, Raise> {
    let arguments = state.top();
    if arguments == 0 {
        return Err(state.argument_error(0, "MessagePack pack needs input."));
    }
    let mut out = state.take_scratch();
    let packed = (1..=arguments)
        .try_for_each(|n| {
            state.push_copy(n);
            let packed = pack_value(state, &mut out, 0);
            state.pop(1);
            packed
        })
        .and_then(|()| state.push_bytes(&out));
    state.return_scratch(out);
    packed.map(|()| 1)
}

/// Packs the value on top of the stack and pops it. After an error more values may remain, which does no harm.
fn pack_value(state: &mut LuaState, out: &mut Vec<u8>, level: usize) -> Result<(), Raise> {
    state.room_for(out.len())?;
    match state.kind(-1) {
        LuaType::String => pack_string(out, state.bytes(-1).unwrap_or_default()),
        LuaType::Boolean => out.push(if state.boolean(-1) { 0xc3 } else { 0xc2 }),
        LuaType::Number => pack_number(out, state.number(-1).unwrap_or_default()),
        LuaType::Table if level < PACK_NESTING_MAX => return pack_table(state, out, level),
        _ => out.push(0xc0),
    }
    Ok(())
}

fn pack_string(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..0x100 => out.extend([0xd9, len as u8]),
        len => pack_length(out, len, 0xda, 0xdb),
    }
    out.extend_from_slice(text);
}

/// Writes a length as 16 bits, or as 32 bits if it is larger.
fn pack_length(out: &mut Vec<u8>, len: usize, short: u8, long: u8) {
    match u16::try_from(len) {
        Ok(len) => put(out, short, len.to_be_bytes()),
        Err(_) => put(out, long, (len as u32).to_be_bytes()),
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, kind: u8, bytes: [u8; N]) {
    out.push(kind);
    out.extend(bytes);
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let long = to_long(number);
    if long as f64 == number && number.is_finite() {
        pack_integer(out, long);
    } else if f64::from(number as f32) == number {
        put(out, 0xca, (number as f32).to_be_bytes());
    } else {
        put(out, 0xcb, number.to_be_bytes());
    }
}

fn pack_integer(out: &mut Vec<u8>, integer: i64) {
    match integer {
        -32..=0x7f => out.push(integer as u8),
        0x80..=0xff => out.extend([0xcc, integer as u8]),
        0x100..=0xffff => put(out, 0xcd, (integer as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => put(out, 0xce, (integer as u32).to_be_bytes()),
        0x1_0000_0000.. => put(out, 0xcf, integer.to_be_bytes()),
        -0x80..-32 => out.extend([0xd0, integer as u8]),
        -0x8000..-0x80 => put(out, 0xd1, (integer as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => put(out, 0xd2, (integer as i32).to_be_bytes()),
        _ => put(out, 0xd3, integer.to_be_bytes()),
    }
}

fn pack_table(state: &mut LuaState, out: &mut Vec<u8>, level: usize) -> Result<(), Raise> {
    ensure_for(state, PACK_SLOTS, "in function mp_encode_lua_table")?;
    match sequence_length(state)? {
        Some(len) => pack_array(state, out, len, level),
        None => pack_map(state, out, level),
    }
}

/// Returns the number of elements of the table on top if its keys are exactly 1 to that number.
fn sequence_length(state: &mut LuaState) -> Result<Option<usize>, Raise> {
    let (mut count, mut largest) = (0, 0);
    let only_indexes = for_each_pair(state, |state| {
        let index = if state.kind(-2) == LuaType::Number { state.number(-2).unwrap_or_default() } else { 0.0 };
        count += 1;
        largest = largest.max(to_int_directly(index));
        Ok(index > 0.0 && f64::from(to_int_directly(index)) == index)
    })?;
    Ok((only_indexes && largest == count).then(|| state.raw_len(-1)))
}

fn pack_array(state: &mut LuaState, out: &mut Vec<u8>, len: usize, level: usize) -> Result<(), Raise> {
    if len < 16 {
        out.push(0x90 | len as u8);
    } else {
        pack_length(out, len, 0xdc, 0xdd);
    }
    for item in 1..=len {
        state.poll()?;
        state.raw_get_at(-1, item as c_int);
        pack_value(state, out, level + 1)?;
        state.pop(1);
    }
    Ok(())
}

fn pack_map(state: &mut LuaState, out: &mut Vec<u8>, level: usize) -> Result<(), Raise> {
    let mut len = 0;
    for_each_pair(state, |_| {
        len += 1;
        Ok(true)
    })?;
    if len < 16 {
        out.push(0x80 | len as u8);
    } else {
        pack_length(out, len, 0xde, 0xdf);
    }
    for_each_pair(state, |state| {
        state.push_copy(-2);
        pack_value(state, out, level + 1)?;
        state.pop(1);
        pack_value(state, out, level + 1)?;
        Ok(true)
    })?;
    Ok(())
}

// --- Unpacking.

/// The reason why bytes could not be unpacked.
enum UnpackFailure {
    Missing,
    BadFormat,
    /// An error is on the stack.
    Raised,
}

impl From<Raise> for UnpackFailure {
    fn from(_: Raise) -> UnpackFailure {
        UnpackFailure::Raised
    }
}

fn unpack(state: &mut LuaState) -> Result<c_int, Raise> {
    unpack_some(state, 0, 0)
}

fn unpack_one(state: &mut LuaState) -> Result<c_int, Raise> {
    let offset = check_long_or(state, 2, 0)? as c_int;
    state.set_top(1);
    unpack_some(state, 1, offset)
}

fn unpack_limit(state: &mut LuaState) -> Result<c_int, Raise> {
    let limit = check_long(state, 2)? as c_int;
    let offset = check_long_or(state, 3, 0)? as c_int;
    state.set_top(1);
    unpack_some(state, limit, offset)
}

/// Unpacks at most `limit` values from `offset`, and pushes the offset behind them first, or -1 at the end. If both are
/// 0, unpacks all values without an offset.
fn unpack_some(state: &mut LuaState, limit: c_int, offset: c_int) -> Result<c_int, Raise> {
    state.check_bytes(1)?;
    // SAFETY: the argument stays where it is.
    let input = unsafe { state.argument(1) };
    let (Ok(start), Ok(_)) = (usize::try_from(offset), usize::try_from(limit)) else {
        let len = input.len();
        return Err(state.error(format!("Invalid request to unpack with offset of {offset} and limit of {len}.")));
    };
    let Some(mut rest) = input.get(start..) else {
        let len = input.len();
        return Err(state.error(format!("Start offset {offset} greater than input length {len}.")));
    };
    let all = limit == 0 && offset == 0;
    let first = state.top() + 1;
    let mut count = 0;
    while !rest.is_empty() && (all || count < limit) {
        unpack_value(state, &mut rest, 0).map_err(|failure| match failure {
            UnpackFailure::Missing => state.error("Missing bytes in input."),
            UnpackFailure::BadFormat => state.error("Bad data format in input."),
            UnpackFailure::Raised => Raise,
        })?;
        count += 1;
    }
    if all {
        return Ok(count);
    }
    ensure_for(state, 1, "in function mp_unpack_full")?;
    state.push_number(if rest.is_empty() { -1.0 } else { (input.len() - rest.len()) as f64 });
    if count > 0 {
        state.insert(first);
    }
    Ok(count + 1)
}

fn unpack_value(state: &mut LuaState, rest: &mut &[u8], level: c_int) -> Result<(), UnpackFailure> {
    const TOO_MANY: &str = "too many return values at once; use unpack_one or unpack_limit instead.";
    state.poll()?;
    if level > NESTING_MAX {
        return Err(state.error(format!("stack overflow ({TOO_MANY})")).into());
    }
    ensure_for(state, 1, TOO_MANY)?;
    let [kind] = take::<1>(rest)?;
    match kind {
        0x00..=0x7f | 0xe0.. => state.push_number(f64::from(kind as i8)),
        0x80..=0x8f => unpack_map(state, rest, usize::from(kind & 0x0f), level + 1)?,
        0x90..=0x9f => unpack_array(state, rest, usize::from(kind & 0x0f), level + 1)?,
        0xa0..=0xbf => unpack_string(state, rest, usize::from(kind & 0x1f))?,
        0xc0 => state.push_nil(),
        0xc2 | 0xc3 => state.push_boolean(kind == 0xc3),
        0xca => state.push_number(f64::from(f32::from_be_bytes(take(rest)?))),
        0xcb => state.push_number(f64::from_be_bytes(take(rest)?)),
        0xcc => state.push_number(f64::from(u8::from_be_bytes(take(rest)?))),
        0xcd => state.push_number(f64::from(u16::from_be_bytes(take(rest)?))),
        0xce => state.push_number(f64::from(u32::from_be_bytes(take(rest)?))),
        // Like the original library, reads an unsigned integer as a signed one.
        0xcf | 0xd3 => state.push_number(i64::from_be_bytes(take(rest)?) as f64),
        0xd0 => state.push_number(f64::from(i8::from_be_bytes(take(rest)?))),
        0xd1 => state.push_number(f64::from(i16::from_be_bytes(take(rest)?))),
        0xd2 => state.push_number(f64::from(i32::from_be_bytes(take(rest)?))),
        0xd9 => {
            let [len] = take(rest)?;
            unpack_string(state, rest, usize::from(len))?;
        }
        0xda..=0xdf => {
            let len = if kind & 1 == 0 {
                usize::from(u16::from_be_bytes(take(rest)?))
            } else {
                u32::from_be_bytes(take(rest)?) as usize
            };
            match kind {
                0xda | 0xdb => unpack_string(state, rest, len)?,
                0xdc | 0xdd => unpack_array(state, rest, len, level + 1)?,
                _ => unpack_map(state, rest, len, level + 1)?,
            }
        }
        0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(UnpackFailure::BadFormat),
    }
    Ok(())
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], UnpackFailure> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or(UnpackFailure::Missing)?;
    *rest = after;
    Ok(*taken)
}

fn unpack_string(state: &mut LuaState, rest: &mut &[u8], len: usize) -> Result<(), UnpackFailure> {
    let (text, after) = rest.split_at_checked(len).ok_or(UnpackFailure::Missing)?;
    *rest = after;
    Ok(state.push_bytes(text)?)
}

fn unpack_array(state: &mut LuaState, rest: &mut &[u8], len: usize, level: c_int) -> Result<(), UnpackFailure> {
    // The announced length may be wrong, so no memory is reserved for it.
    state.push_table(0, 0)?;
    ensure_for(state, 1, "in function mp_decode_to_lua_array")?;
    for item in 1..=len {
        // A slot for the index, which a level of the original library takes, too.
        state.push_number(item as f64);
        unpack_value(state, rest, level)?;
        state.raw_set(-3)?;
    }
    Ok(())
}

fn unpack_map(state: &mut LuaState, rest: &mut &[u8], len: usize, level: c_int) -> Result<(), UnpackFailure> {
    state.push_table(0, 0)?;
    for _ in 0..len {
        unpack_value(state, rest, level)?;
        unpack_value(state, rest, level)?;
        state.raw_set(-3)?;
    }
    Ok(())
}
