//! BITFIELD: integers of any width at any bit offset, the highest bit first.

use std::ops::Range;

use resp::num;

use super::{check_offset, string_for_write};
use crate::Call;
use crate::effects::{Class, Concerns, MUCH_BYTES};
use crate::error::{Error, Outcome};
use crate::strings::text;

const BAD_TYPE: Error =
    Error::fixed("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");

/// Largest number of bytes that an integer touches: it may begin with the last bit of a byte.
const WINDOW_BYTES: usize = 9;

/// An integer within a string: signedness, width in bits, and offset of its first bit.
#[derive(Clone, Copy)]
struct Field {
    is_signed: bool,
    bits: u32,
    offset: u64,
}

/// Handling of a number that doesn't fit.
#[derive(Clone, Copy)]
enum Overflow {
    /// Drop its higher bits.
    Wrap,
    /// Use the nearest number that fits.
    Saturate,
    /// Write nothing.
    Fail,
}

/// Action on a field.
#[derive(Clone, Copy)]
enum FieldAction {
    Get,
    Set(i64),
    Add(i64),
}

/// An operation of BITFIELD.
#[derive(Clone, Copy)]
struct FieldOperation {
    field: Field,
    action: FieldAction,
    overflow: Overflow,
}

impl Field {
    /// Parses a type ("i16") and an offset in bits, or in multiples of the width after a "#".
    fn parse(kind: &[u8], offset: &[u8], bytes_max: usize) -> Result<Field, Error> {
        let (is_signed, bits_max, width) = match kind {
            [b'i', width @ ..] => (true, 64, width),
            [b'u', width @ ..] => (false, 63, width),
            _ => return Err(BAD_TYPE),
        };
        let bits = num::parse_i64(width).filter(|bits| (1..=bits_max).contains(bits)).ok_or(BAD_TYPE)?;
        let offset = match offset {
            [b'#', count @ ..] => num::parse_i64(count).and_then(|count| count.checked_mul(bits)),
            _ => num::parse_i64(offset),
        };
        Ok(Field { is_signed, bits: bits as u32, offset: check_offset(offset, bytes_max)? })
    }

    /// The byte in which the field begins.
    fn first_byte(self) -> usize {
        (self.offset / 8) as usize
    }

    /// The same field relative to a later start of the string. `byte` is at most the field's first byte.
    fn after(self, byte: usize) -> Field {
        Field { offset: self.offset - 8 * byte as u64, ..self }
    }

    /// Number of bytes that a string needs to contain the field.
    fn end(self) -> usize {
        (self.offset + u64::from(self.bits)).div_ceil(8) as usize
    }

    /// Returns the bytes that contain the field as one number, and the field's shift in it. Missing bytes count as
    /// zeros.
    fn window(self, bytes: &[u8]) -> (u128, u32) {
        let first = self.first_byte();
        let byte = |at: usize| bytes.get(first + at).copied().unwrap_or(0);
        let window = (0..WINDOW_BYTES).fold(0, |window, at| window << 8 | u128::from(byte(at)));
        (window, 8 * WINDOW_BYTES as u32 - (self.offset % 8) as u32 - self.bits)
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    fn read(self, bytes: &[u8]) -> i64 {
        let (window, shift) = self.window(bytes);
        self.wrap((window >> shift & self.mask()).cast_signed())
    }

    /// Writes the lowest bits of `value`. The field must be within the string.
    fn write(self, bytes: &mut [u8], value: i64) {
        let (window, shift) = self.window(bytes);
        let bits = i128::from(value).cast_unsigned() & self.mask();
        let changed = window & !(self.mask() << shift) | bits << shift;
        let changed = &changed.to_be_bytes()[size_of::<u128>() - WINDOW_BYTES..];
        bytes[self.first_byte()..].iter_mut().zip(changed).for_each(|(byte, changed)| *byte = *changed);
    }

    /// Interprets the lowest bits of `value` as a number of the field's type.
    fn wrap(self, value: i128) -> i64 {
        let unused = 64 - self.bits;
        let high = (value as u64) << unused;
        if self.is_signed { high.cast_signed() >> unused } else { (high >> unused).cast_signed() }
    }

    fn bounds(self) -> (i128, i128) {
        let numbers = 1i128 << self.bits;
        if self.is_signed { (-(numbers / 2), numbers / 2 - 1) } else { (0, numbers - 1) }
    }

    /// The value that Redis effectively compares with a signed field's bounds. Its distance from the field's maximum
    /// wraps around in 64 bits, so a number far below the minimum counts as too large.
    fn as_redis_compares(self, value: i64) -> i128 {
        let (_, max) = self.bounds();
        let value = i128::from(value);
        // Wrapping drops the higher bits anyway, so only saturation can show the difference.
        if self.bits < 64 && max - value > i128::from(i64::MAX) { value + (1 << 64) } else { value }
    }

    /// Returns the number to write for `value`; none, if it doesn't fit and nothing is written.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.bounds();
        match overflow {
            _ if (min..=max).contains(&value) => Some(value as i64),
            Overflow::Wrap => Some(self.wrap(value)),
            Overflow::Saturate => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }
}

impl FieldOperation {
    /// Parses all operations of a call.
    fn parse_all(call: &Call<'_, '_, '_>) -> Result<Vec<FieldOperation>, Error> {
        let (mut operations, mut overflow, mut index) = (Vec::new(), Overflow::Wrap, 2);
        while index < call.len() {
            let following = call.len() - index - 1;
            if call.is(index, "overflow") && following >= 1 {
                overflow = Overflow::parse(call, index + 1)?;
                index += 2;
                continue;
            }
            let with_value: Option<fn(i64) -> FieldAction> = match following {
                2.. if call.is(index, "get") => None,
                3.. if call.is(index, "set") => Some(FieldAction::Set),
                3.. if call.is(index, "incrby") => Some(FieldAction::Add),
                _ => return Err(Error::SYNTAX),
            };
            let field = Field::parse(call.arg(index + 1), call.arg(index + 2), call.rules.string_bytes_max)?;
            let action = with_value.map_or(Ok(FieldAction::Get), |action| call.int(index + 3).map(action))?;
            operations.push(FieldOperation { field, action, overflow });
            index += if with_value.is_some() { 4 } else { 3 };
        }
        Ok(operations)
    }

    fn writes(&self) -> bool {
        !matches!(self.action, FieldAction::Get)
    }

    /// Returns the field's new value; none if it stays unchanged.
    fn new_value(&self, old: i64) -> Option<i64> {
        let value = match self.action {
            FieldAction::Get => return None,
            FieldAction::Add(increment) => i128::from(old) + i128::from(increment),
            FieldAction::Set(value) if self.field.is_signed => self.field.as_redis_compares(value),
            // A negative number stands for the large one with the same bits.
            FieldAction::Set(value) => i128::from(value.cast_unsigned()),
        };
        self.field.fit(value, self.overflow)
    }
}

impl Overflow {
    fn parse(call: &Call<'_, '_, '_>, index: usize) -> Result<Overflow, Error> {
        let words = [("wrap", Overflow::Wrap), ("sat", Overflow::Saturate), ("fail", Overflow::Fail)];
        let found = words.iter().find(|(word, _)| call.is(index, word));
        found.map(|(_, overflow)| *overflow).ok_or(Error::fixed("ERR Invalid OVERFLOW type specified"))
    }
}

pub(super) fn bitfield(call: &mut Call<'_, '_, '_>) -> Outcome {
    let operations = FieldOperation::parse_all(call)?;
    if operations.iter().any(FieldOperation::writes) { write(call, &operations) } else { read(call, &operations) }
}

pub(super) fn bitfield_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    let operations = FieldOperation::parse_all(call)?;
    if operations.iter().any(FieldOperation::writes) {
        return Err(Error::fixed("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(call, &operations)
}

fn read(call: &mut Call<'_, '_, '_>, operations: &[FieldOperation]) -> Outcome {
    let bytes = call.db.view(call.key(1)).map(text).transpose()?.unwrap_or_default();
    call.reply.array(operations.len());
    operations.iter().for_each(|operation| call.reply.int(operation.field.read(&bytes)));
    Ok(())
}

fn write(call: &mut Call<'_, '_, '_>, operations: &[FieldOperation]) -> Outcome {
    let key = call.key(1);
    let before = string_for_write(call, key)?;
    // The string grows even for operations that fail.
    let ends = operations.iter().filter(|operation| operation.writes()).map(|operation| operation.field.end());
    let total = ends.fold(before.unwrap_or(0), usize::max);
    let is_longer = before.is_none_or(|before| before < total);
    call.effects.took_much |= total - before.unwrap_or(0) > MUCH_BYTES;
    let Some(mut entry) = call.db.get_mut(key) else { return Ok(()) };
    let part = touched(operations, total);
    let bytes = entry.string_part_mut(total, part.clone()).ok_or(Error::WRONG_TYPE)?;
    let mut changes = 0;
    call.reply.array(operations.len());
    for operation in operations {
        let field = operation.field.after(part.start);
        let old = field.read(bytes);
        match (operation.action, operation.new_value(old)) {
            (FieldAction::Get, _) => call.reply.int(old),
            (_, None) => call.reply.null(),
            (action, Some(new)) => {
                field.write(bytes, new);
                changes += usize::from(is_longer || old != new);
                call.reply.int(if matches!(action, FieldAction::Set(_)) { old } else { new });
            }
        }
    }
    drop(entry);
    if changes > 0 {
        call.changed_by(changes, key, Class::String, "setbit");
    } else if is_longer {
        // If all operations fail, Redis counts no change although the string may have grown. The journal must still
        // reproduce the growth.
        call.event_for(Concerns::Neither, key, Class::Unpublished, "");
        let words: Vec<&[u8]> = call.args.from(0).collect();
        call.record_as(&words);
    }
    Ok(())
}

/// The part of a string of `total` bytes that contains all fields, as far as it exists.
fn touched(operations: &[FieldOperation], total: usize) -> Range<usize> {
    let fields = || operations.iter().map(|operation| operation.field);
    let start = fields().map(Field::first_byte).min().unwrap_or(0).min(total);
    start..fields().map(Field::end).max().unwrap_or(0).clamp(start, total)
}
