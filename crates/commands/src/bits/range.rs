//! Ranges of bits, given in bytes or in bits.

use crate::Call;
use crate::error::Error;

/// Unit of a range's ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeUnit {
    Byte,
    Bit,
}

impl RangeUnit {
    /// Parses the unit in the argument at `index`; bytes, if it is missing.
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

/// A range as given in the arguments, before the string's length is known. Both ends are included; a negative end
/// counts from the end of the string.
#[derive(Clone, Copy)]
pub(super) struct RelativeRange {
    start: i64,
    /// Last position; none means the string's end.
    end: Option<i64>,
    unit: RangeUnit,
}

impl RelativeRange {
    /// The whole string.
    pub(super) const WHOLE: RelativeRange = RelativeRange { start: 0, end: None, unit: RangeUnit::Byte };

    /// Parses BITCOUNT's range, from the argument at `index` on. Returns none if both ends are negative and the range
    /// is empty.
    pub(super) fn of_count(call: &Call<'_, '_, '_>, index: usize) -> Result<Option<RelativeRange>, Error> {
        match call.len() - index {
            0 => Ok(Some(RelativeRange::WHOLE)),
            2 | 3 => {
                let (start, end) = (call.int(index)?, call.int(index + 1)?);
                let unit = RangeUnit::parse(call, index + 2)?;
                let is_empty = start < 0 && end < 0 && start > end;
                Ok((!is_empty).then_some(RelativeRange { start, end: Some(end), unit }))
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// Parses BITPOS's range, from the argument at `index` on.
    pub(super) fn of_position(call: &Call<'_, '_, '_>, index: usize) -> Result<RelativeRange, Error> {
        match call.len() - index {
            0 => Ok(RelativeRange::WHOLE),
            1 => Ok(RelativeRange { start: call.int(index)?, ..RelativeRange::WHOLE }),
            2 | 3 => {
                let start = call.int(index)?;
                // An invalid unit is reported before an invalid end.
                let unit = RangeUnit::parse(call, index + 2)?;
                Ok(RelativeRange { start, end: Some(call.int(index + 1)?), unit })
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// True if the range has an explicit end.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the range of bits within this string; none if it is empty. Ends outside the string are clamped.
    pub(super) fn within(self, bytes: &[u8]) -> Option<BitRange> {
        let bits = self.unit.bits();
        let units = (bytes.len() as u64 * 8 / bits).cast_signed();
        let from_start = |index: i64| if index < 0 { (units + index).max(0) } else { index };
        let start = from_start(self.start);
        let end = from_start(self.end.unwrap_or(-1)).min(units - 1);
        // Both are non-negative if `start <= end`.
        let at = |index: i64| index.cast_unsigned() * bits;
        (start <= end).then(|| BitRange { first: at(start), last: at(end) + bits - 1 })
    }
}

/// A non-empty range of bits, both ends included.
#[derive(Clone, Copy)]
pub(super) struct BitRange {
    first: u64,
    last: u64,
}

impl BitRange {
    /// The first and the last byte of the range.
    pub(super) fn bytes(self) -> (usize, usize) {
        ((self.first / 8) as usize, (self.last / 8) as usize)
    }

    /// Mask of the range's bits in its first byte.
    pub(super) fn first_mask(self) -> u8 {
        0xff >> (self.first % 8)
    }

    /// Mask of the range's bits in its last byte.
    pub(super) fn last_mask(self) -> u8 {
        0xff << (7 - self.last % 8)
    }
}
