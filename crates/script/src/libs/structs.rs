//! `struct`: converts values to and from the bytes of C structures, with the formats of Roberto Ierusalimschy's
//! library.
//!
//! ```text
//! > < =   byte order: big, little, native                   !n      alignment to at most n
//! b B     a byte                                           h H     two bytes
//! l L T   eight bytes                                      i I in  n bytes, 4 by default
//! f d     a float, a double                                x       a byte of padding
//! s       a string, ended by a zero byte                   cn      n bytes; c0: all, or as many as the value before
//! ```

use std::ffi::c_int;

use crate::libs::support::{check_long_or, ensure_for, to_unsigned_long};
use crate::native;
use crate::state::{CFunction, LuaState, Raise};

/// Largest size of an integer, in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// Alignment of "!" without a number, in bytes.
const ALIGNMENT_DEFAULT: i32 = 8;

/// Sets the global `struct`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 3] =
        [("pack", native!(pack)), ("unpack", native!(unpack)), ("size", native!(size))];
    state.push_library(&functions)?;
    state.set_global("struct");
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

/// One letter of a format with its size.
struct Item {
    letter: u8,
    bytes: usize,
    /// Number of zero bytes before the item.
    padding: usize,
}

/// A format that is being parsed.
struct Format<'f> {
    rest: &'f [u8],
    order: Order,
    alignment: usize,
}

impl<'f> Format<'f> {
    /// Returns a parser. A zero byte ends a format, as it ends C's strings.
    fn new(text: &'f [u8]) -> Format<'f> {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Format { rest: &text[..end], order: Order::Little, alignment: 1 }
    }

    /// Returns the next item, for a position `offset` bytes from the start.
    fn next(&mut self, state: &mut LuaState, offset: usize) -> Result<Option<Item>, Raise> {
        let Some((&letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let bytes = self.size_of(state, letter)?;
        Ok(Some(Item { letter, bytes, padding: self.padding(letter, bytes, offset) }))
    }

    fn size_of(&mut self, state: &mut LuaState, letter: u8) -> Result<usize, Raise> {
        Ok(match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(state, 1)? as usize,
            b'i' | b'I' => {
                let bytes = self.number(state, 4)? as usize;
                if bytes > INTEGER_BYTES_MAX {
                    let text = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(state.error(text));
                }
                bytes
            }
            _ => 0,
        })
    }

    /// Parses the number that follows a letter; it is never negative.
    fn number(&mut self, state: &mut LuaState, otherwise: i32) -> Result<i32, Raise> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(otherwise);
        }
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        text.iter()
            .try_fold(0i32, |number, digit| number.checked_mul(10)?.checked_add(i32::from(digit - b'0')))
            .ok_or_else(|| state.error("integral size overflow"))
    }

    fn padding(&self, letter: u8, bytes: usize, offset: usize) -> usize {
        if bytes == 0 || letter == b'c' {
            return 0;
        }
        let unit = bytes.min(self.alignment);
        unit.wrapping_sub(offset & (unit - 1)) & (unit - 1)
    }

    /// Handles letters that are no values: byte order, alignment, space.
    fn control(&mut self, state: &mut LuaState, letter: u8) -> Result<(), Raise> {
        match letter {
            b' ' => {}
            b'>' => self.order = Order::Big,
            b'<' => self.order = Order::Little,
            b'!' => {
                let alignment = self.number(state, ALIGNMENT_DEFAULT)?;
                if alignment <= 0 || alignment & (alignment - 1) != 0 {
                    return Err(state.error(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment as usize;
            }
            _ => return Err(state.argument_error(1, [b"invalid format option '", &[letter][..], b"'"].concat())),
        }
        Ok(())
    }
}

fn pack(state: &mut LuaState) -> Result<c_int, Raise> {
    let mut out = state.take_scratch();
    let packed = pack_into(state, &mut out).and_then(|()| state.push_bytes(&out));
    state.return_scratch(out);
    packed.map(|()| 1)
}

fn pack_into(state: &mut LuaState, out: &mut Vec<u8>) -> Result<(), Raise> {
    state.check_bytes(1)?;
    // SAFETY: the arguments stay in their places.
    let mut format = Format::new(unsafe { state.argument(1) });
    // A missing argument counts as nil, which shows in error texts.
    state.push_nil();
    let mut arg = 2;
    while let Some(item) = format.next(state, out.len())? {
        state.poll()?;
        state.room_for(out.len().saturating_add(item.bytes))?;
        out.resize(out.len() + item.padding, 0);
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = to_unsigned_long(state.check_number(arg)?);
                put_integer(out, value, item.bytes, format.order);
            }
            b'f' => {
                let float = state.check_number(arg)? as f32;
                put_ordered(out, float.to_le_bytes(), format.order);
            }
            b'd' => {
                let double = state.check_number(arg)?;
                put_ordered(out, double.to_le_bytes(), format.order);
            }
            b'x' => out.push(0),
            b'c' | b's' => put_string(state, out, arg, &item)?,
            letter => {
                format.control(state, letter)?;
                continue;
            }
        }
        arg += c_int::from(item.letter != b'x');
    }
    Ok(())
}

fn put_integer(out: &mut Vec<u8>, value: u64, bytes: usize, order: Order) {
    let at = out.len();
    let low = value.to_le_bytes();
    out.extend((0..bytes).map(|i| low.get(i).copied().unwrap_or(0)));
    if order == Order::Big {
        out[at..].reverse();
    }
}

fn put_ordered<const N: usize>(out: &mut Vec<u8>, mut little: [u8; N], order: Order) {
    if order == Order::Big {
        little.reverse();
    }
    out.extend_from_slice(&little);
}

fn put_string(state: &mut LuaState, out: &mut Vec<u8>, arg: c_int, item: &Item) -> Result<(), Raise> {
    let text = state.check_bytes(arg)?;
    let taken = if item.bytes == 0 { text.len() } else { item.bytes };
    let Some(taken) = text.get(..taken) else { return Err(state.argument_error(arg + 1, "string too short")) };
    out.extend_from_slice(taken);
    if item.letter == b's' {
        out.push(0);
    }
    Ok(())
}

fn unpack(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_bytes(1)?;
    state.check_bytes(2)?;
    // SAFETY: the arguments stay in their places.
    let (mut format, data) = unsafe { (Format::new(state.argument(1)), state.argument(2)) };
    let start = check_long_or(state, 3, 1)?;
    if start == 0 {
        return Err(state.argument_error(3, "offset must be 1 or greater"));
    }
    // A negative start becomes an offset far behind the end.
    let mut offset = (start as usize).wrapping_sub(1);
    let mut results = 0;
    while let Some(item) = format.next(state, offset)? {
        state.poll()?;
        offset = offset.saturating_add(item.padding);
        let Some(rest) = data.get(offset..).filter(|rest| rest.len() >= item.bytes) else {
            return Err(state.argument_error(2, "data string too short"));
        };
        ensure_for(state, 2, "too many results")?;
        offset += match item.letter {
            b'c' | b's' => {
                let (text, taken, popped) = take_string(state, rest, &item, results)?;
                results -= popped;
                state.push_bytes(text)?;
                taken
            }
            b'x' => {
                offset += 1;
                continue;
            }
            letter => match take_number(&rest[..item.bytes], letter, format.order) {
                Some(number) => {
                    state.push_number(number);
                    item.bytes
                }
                None => {
                    format.control(state, letter)?;
                    continue;
                }
            },
        };
        results += 1;
    }
    state.push_number(offset.wrapping_add(1) as i64 as f64);
    Ok(results + 1)
}

/// Returns a string's bytes, the number of input bytes that it takes, and the number of earlier results that it
/// replaces.
fn take_string<'d>(
    state: &mut LuaState,
    rest: &'d [u8],
    item: &Item,
    results: c_int,
) -> Result<(&'d [u8], usize, c_int), Raise> {
    if item.letter == b's' {
        let end = memchr::memchr(0, rest);
        state.poll_for(end.unwrap_or(rest.len()))?;
        return match end {
            Some(end) => Ok((&rest[..end], end + 1, 0)),
            None => Err(state.error("unfinished string in data")),
        };
    }
    if item.bytes > 0 {
        return Ok((&rest[..item.bytes], item.bytes, 0));
    }
    let Some(length) = state.number(-1).filter(|_| results > 0) else {
        return Err(state.error("format 'c0' needs a previous size"));
    };
    state.pop(1);
    match rest.get(..to_unsigned_long(length) as usize) {
        Some(text) => Ok((text, text.len(), 1)),
        None => Err(state.argument_error(2, "data string too short")),
    }
}

/// Decodes the number of a letter from exactly its bytes; None if the letter is not numeric.
fn take_number(bytes: &[u8], letter: u8, order: Order) -> Option<f64> {
    Some(match letter {
        b'f' => f64::from(f32::from_le_bytes(ordered(bytes, order)?)),
        b'd' => f64::from_le_bytes(ordered(bytes, order)?),
        b'B' | b'H' | b'L' | b'T' | b'I' => take_unsigned(bytes, order) as f64,
        b'b' | b'h' | b'l' | b'i' => sign_extended(take_unsigned(bytes, order), bytes.len()) as f64,
        _ => return None,
    })
}

fn ordered<const N: usize>(bytes: &[u8], order: Order) -> Option<[u8; N]> {
    let mut little: [u8; N] = bytes.try_into().ok()?;
    if order == Order::Big {
        little.reverse();
    }
    Some(little)
}

/// Decodes an unsigned integer. Bytes beyond the lowest eight are discarded.
fn take_unsigned(bytes: &[u8], order: Order) -> u64 {
    let shift_in = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    match order {
        Order::Big => bytes.iter().fold(0, shift_in),
        Order::Little => bytes.iter().rev().fold(0, shift_in),
    }
}

/// Extends the sign. The shift wraps at 64 bits, as on the machine, if the integer has more than eight bytes.
fn sign_extended(value: u64, bytes: usize) -> i64 {
    let mask = u64::MAX.wrapping_shl((bytes as u32).wrapping_mul(8).wrapping_sub(1));
    (if value & mask != 0 { value | mask } else { value }) as i64
}

fn size(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_bytes(1)?;
    // SAFETY: the argument stays in its place.
    let mut format = Format::new(unsafe { state.argument(1) });
    let mut offset = 0usize;
    while let Some(item) = format.next(state, offset)? {
        state.poll()?;
        match (item.letter, item.bytes) {
            (b's', _) => return Err(state.argument_error(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(state.argument_error(1, "option 'c0' has no fixed size")),
            (letter, _) if !letter.is_ascii_alphanumeric() => format.control(state, letter)?,
            _ => {}
        }
        offset = offset.saturating_add(item.padding).saturating_add(item.bytes);
    }
    state.push_number(offset as f64);
    Ok(1)
}
