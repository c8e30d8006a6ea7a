//! Bitmaps: strings as arrays of bits. Bit 0 is the highest bit of the first byte.
//!
//! Source of the semantics: Redis's command pages of the group "bitmap". BITOP's DIFF, DIFF1, ANDOR and ONE are from
//! Redis 8.2.

mod combine;
mod count;
mod field;
mod position;
mod range;
#[cfg(test)]
mod tests;

use resp::num;
use resp::request::Args;
use store::db::Ttl;
use store::entry::{Entry, View};
use store::keyspace::Key;
use store::value::{Type, Value};

use crate::effects::{Class, MUCH_BYTES};
use crate::error::{Error, Outcome};
use crate::spec::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, OW, RO, RW, UPDATE, VARIABLE_FLAGS};
use crate::spec::{Group, KeySpec, On, Spec};
use crate::strings::{len, text};
use crate::{Call, Handler};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::String).entries([
    Spec::new("bitcount", -2, READONLY, count::bitcount as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Bitmap,
            "2.6.0",
            "O(N) in the number of bytes of the range",
            "Counts the bits that are set in the string value of a key.",
            "key [start:integer end:integer [BYTE | BIT]:unit@7.0.0]:range",
        )
        .history(&[("7.0.0", "`BYTE` and `BIT`.")]),
    Spec::new("bitfield", -2, WRITE | DENYOOM, field::bitfield as Handler)
        .flags_of_key(flags_of_fields)
        .keys(&[KeySpec::at(1, RW | UPDATE | ACCESS | VARIABLE_FLAGS)
            .notes("This command allows both access and modification of the key")])
        .docs(
            Group::Bitmap,
            "3.2.0",
            "O(1) for each operation",
            "Reads, sets and increments integers of any width at any bit of the string value of a key.",
            "key [<GET:get-block encoding offset:integer | <[OVERFLOW:overflow-block <WRAP | SAT | FAIL>] \
             <SET:set-block encoding offset:integer value:integer | INCRBY:incrby-block encoding offset:integer \
             increment:integer>:write-operation>:write>:operation [<GET:get-block encoding offset:integer | \
             <[OVERFLOW:overflow-block <WRAP | SAT | FAIL>] <SET:set-block encoding offset:integer value:integer | \
             INCRBY:incrby-block encoding offset:integer increment:integer>:write-operation>:write>:operation ...]]",
        ),
    Spec::new("bitfield_ro", -2, READONLY | FAST, field::bitfield_ro as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Bitmap,
            "6.0.0",
            "O(1) for each operation",
            "Reads integers of any width at any bit of the string value of a key.",
            "key [GET:get-block encoding offset:integer [GET:get-block encoding offset:integer ...]]",
        ),
    Spec::new("bitop", -4, WRITE | DENYOOM, combine::bitop as Handler)
        .keys(&[KeySpec::at(2, OW | UPDATE), KeySpec::range(3, -1, 1, RO | ACCESS)])
        .docs(
            Group::Bitmap,
            "2.6.0",
            "O(N) in the total number of bytes",
            "Combines the bits of string values and stores the result in a key.",
            "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE>:operation destkey key [key ...]",
        ),
    Spec::new("bitpos", -3, READONLY, position::bitpos as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Bitmap,
            "2.8.7",
            "O(N) in the number of bytes of the range",
            "Finds the first set or clear bit in the string value of a key.",
            "key bit:integer [start:integer [end:integer [BYTE | BIT]:unit@7.0.0]:end-unit-block]:range",
        )
        .history(&[("7.0.0", "`BYTE` and `BIT`.")]),
    Spec::new("getbit", 3, READONLY | FAST, getbit as Handler).brief().keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::Bitmap,
        "2.2.0",
        "O(1)",
        "Returns a bit of the string value of a key.",
        "key offset:integer",
    ),
    Spec::new("setbit", 4, WRITE | DENYOOM, setbit as Handler).keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)]).docs(
        Group::Bitmap,
        "2.2.0",
        "O(1); O(N) in the number of bytes that the string grows by",
        "Sets or clears a bit of the string value of a key, which is created if it doesn't exist.",
        "key offset:integer value:integer",
    ),
]);

const BAD_OFFSET: Error = Error::fixed("ERR bit offset is not an integer or out of range");
const BAD_BIT: Error = Error::fixed("ERR bit is not an integer or out of range");

/// Flags of BITFIELD's key: it is read-only if all operations are GET.
fn flags_of_fields(args: Args<'_>) -> u32 {
    let mut index = 2;
    while index < args.len() {
        let is = |word: &str| args.get(index).eq_ignore_ascii_case(word.as_bytes());
        index += match args.len() - index - 1 {
            2.. if is("get") => 3,
            1.. if is("overflow") => 2,
            _ => return RW | ACCESS | UPDATE,
        };
    }
    RO | ACCESS
}

/// Position of a bit within a string.
#[derive(Clone, Copy)]
struct BitPlace {
    byte: usize,
    mask: u8,
}

impl BitPlace {
    /// Parses the offset of a bit; it must be within the largest possible string.
    fn parse(text: &[u8], bytes_max: usize) -> Result<BitPlace, Error> {
        let offset = check_offset(num::parse_i64(text), bytes_max)?;
        Ok(BitPlace { byte: (offset / 8) as usize, mask: 0x80 >> (offset % 8) })
    }
}

/// Result of SETBIT on a string.
struct Changed {
    /// The old bit, at its position in the byte.
    old: u8,
    /// Number of bytes that were added.
    grown_by: usize,
}

impl BitPlace {
    /// Sets this bit of an entry's string. `bit` has the new value at this bit and zeros elsewhere. Extends the string
    /// if necessary.
    fn put(self, entry: &mut Entry, bit: u8) -> Result<Changed, Error> {
        let view = entry.view();
        // Changing a string that a reply is sending copies it first; skip the copy if the bit stays the same.
        if let View::Object(Value::Str(bytes)) = &view
            && bytes.get(self.byte).is_some_and(|byte| byte & self.mask == bit)
        {
            return Ok(Changed { old: bit, grown_by: 0 });
        }
        let before = len(&view)?;
        let total = before.max(self.byte + 1);
        let place = entry.string_part_mut(total, self.byte..self.byte + 1);
        let byte = place.and_then(|bytes| bytes.first_mut()).ok_or(Error::WRONG_TYPE)?;
        let old = *byte & self.mask;
        *byte ^= old ^ bit;
        Ok(Changed { old, grown_by: total - before })
    }
}

/// Checks a bit's offset against a string of `bytes_max` bytes; an error if it is missing or too large.
fn check_offset(offset: Option<i64>, bytes_max: usize) -> Result<u64, Error> {
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < bytes_max as u64).ok_or(BAD_OFFSET)
}

fn getbit(call: &mut Call<'_, '_, '_>) -> Outcome {
    let place = BitPlace::parse(call.arg(2), call.rules.string_bytes_max)?;
    let byte = match call.db.view(call.key(1)) {
        None => 0,
        Some(view) => text(view)?.get(place.byte).copied().unwrap_or(0),
    };
    call.reply.int(i64::from(byte & place.mask != 0));
    Ok(())
}

fn setbit(call: &mut Call<'_, '_, '_>) -> Outcome {
    let place = BitPlace::parse(call.arg(2), call.rules.string_bytes_max)?;
    let bit = match num::parse_i64(call.arg(3)) {
        Some(0) => 0,
        Some(1) => place.mask,
        _ => return Err(BAD_BIT),
    };
    let key = call.key(1);
    let changed = call.db.get_mut(key).map(|mut entry| place.put(&mut entry, bit));
    let is_new = changed.is_none();
    let changed = match changed {
        Some(changed) => changed,
        None => {
            call.db.set_string(key, b"", Ttl::Clear);
            call.db.get_mut(key).map_or(Err(Error::WRONG_TYPE), |mut entry| place.put(&mut entry, bit))
        }
    };
    let Changed { old, grown_by } = changed?;
    call.effects.took_much |= grown_by > MUCH_BYTES;
    if is_new || grown_by > 0 || old != bit {
        call.changed(key, Class::String, "setbit");
    }
    call.reply.int(i64::from(old != 0));
    Ok(())
}

/// Prepares a key's string for writing and returns its length. A missing key is created with an empty string and yields
/// none. An error for other types.
fn string_for_write(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Result<Option<usize>, Error> {
    let before = call.db.get_mut(key).map(|entry| len(&entry.view())).transpose()?;
    if before.is_none() {
        call.db.set_string(key, b"", Ttl::Clear);
    }
    Ok(before)
}
