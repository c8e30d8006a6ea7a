//! Ranges of bits, given in bytes or in bits.

use crate::Call;
use crate::error::Error;

/// What the ends of a range count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeUnit {
    Byte,
    Bit,
}

impl RangeUnit {
    /// The unit that the argument at `index` names; bytes, if there is none.
    fn parse(call: &Call<'_, '_, '_>, index: usize) -> Result<RangeUnit, Error> {
        if index >= call.len() || call.is(index, "byte") {
            Ok(RangeUnit::Byte)
        } else if call.is(index, "bit") {
            Ok(RangeUnit::Bit)
        } else {
            Err(Error::SYNTAX)
        }
    }

    fn bits(self) -> u64 {
        match self {
            RangeUnit::Byte => 8,
            RangeUnit::Bit => 1,
        }
    }
}

/// The range that a command's arguments ask for, before the string is known that it is of. Both ends are included, and a
/// negative one counts from the end of the string.
#[derive(Clone, Copy)]
pub(super) struct RelativeRange {
    start: i64,
    /// The string's end, if none.
    end: Option<i64>,
    unit: RangeUnit,
}

impl RelativeRange {
    /// The whole string.
    pub(super) const WHOLE: RelativeRange = RelativeRange { start: 0, end: None, unit: RangeUnit::Byte };

    /// BITCOUNT's range, from the argument at `index` on. None if the end is before the beginning, both counted from
    /// the string's end.
    pub(super) fn of_count(call: &Call<'_, '_, '_>, index: usize) -> Result<Option<RelativeRange>, Error> {
        match call.len() - index {
            0 => Ok(Some(RelativeRange::WHOLE)),
            2 | 3 => {
                let (start, end) = (call.int(index)?, call.int(index + 1)?);
                if start < 0 && end < 0 && start > end {
                    // As in Redis 7, a unit that there isn't goes unnoticed then.
                    return Ok(None);
                }
                Ok(Some(RelativeRange { start, end: Some(end), unit: RangeUnit::parse(call, index + 2)? }))
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// BITPOS's range, from the argument at `index` on.
    pub(super) fn of_position(call: &Call<'_, '_, '_>, index: usize) -> Result<RelativeRange, Error> {
        match call.len() - index {
            0 => Ok(RelativeRange::WHOLE),
            1 => Ok(RelativeRange { start: call.int(index)?, ..RelativeRange::WHOLE }),
            2 | 3 => {
                let start = call.int(index)?;
                // The unit is looked at before the end is.
                let unit = RangeUnit::parse(call, index + 2)?;
                Ok(RelativeRange { start, end: Some(call.int(index + 1)?), unit })
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// True if the range ends where it says, and not with the string.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// The bits of this string that are meant; none if the range is empty. Ends beyond the string are moved to its ends.
    pub(super) fn within(self, bytes: &[u8]) -> Option<BitRange> {
        let bits = self.unit.bits();
        let units = (bytes.len() as u64 * 8 / bits).cast_signed();
        let from_start = |index: i64| if index < 0 { (units + index).max(0) } else { index };
        let start = from_start(self.start);
        let end = from_start(self.end.unwrap_or(-1)).min(units - 1);
        // Neither is negative, if `end` isn't less.
        let at = |index: i64| index.cast_unsigned() * bits;
        (start <= end).then(|| BitRange { first: at(start), last: at(end) + bits - 1 })
    }
}

/// Bits from one to another, both included. There is at least one.
#[derive(Clone, Copy)]
pub(super) struct BitRange {
    first: u64,
    last: u64,
}

impl BitRange {
    /// The first and the last byte that have bits of the range.
    pub(super) fn bytes(self) -> (usize, usize) {
        ((self.first / 8) as usize, (self.last / 8) as usize)
    }

    /// The bits of the first byte that are not before the range.
    pub(super) fn first_mask(self) -> u8 {
        0xff >> (self.first % 8)
    }

    /// The bits of the last byte that are not behind the range.
    pub(super) fn last_mask(self) -> u8 {
        0xff << (7 - self.last % 8)
    }
}
