//! BITCOUNT.

use std::ops::Range;

use store::entry::View;
use store::popcount::count_ones;
use store::value::Value;

use super::range::{BitRange, RelativeRange};
use crate::Call;
use crate::error::Outcome;
use crate::strings::text;

pub(super) fn bitcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let relative = RelativeRange::of_count(call, 2)?;
    let Some(view) = call.db.view(call.key(1)) else {
        call.reply.int(0);
        return Ok(());
    };
    let long = if let View::Object(Value::Str(long)) = view { Some(&**long) } else { None };
    let bytes = text(view)?;
    let ones = |part| match long {
        Some(long) => long.count_ones(part),
        None => count_ones(&bytes[part]),
    };
    let range = relative.and_then(|relative| relative.within(&bytes));
    let count = range.map_or(0, |range| count_within(&bytes, range, ones));
    call.reply.int(count.cast_signed());
    Ok(())
}

/// Counts the set bits within a range of bits. `ones` counts the set bits of a range of bytes.
fn count_within(bytes: &[u8], range: BitRange, ones: impl FnOnce(Range<usize>) -> u64) -> u64 {
    let (first, last) = range.bytes();
    let outside = (bytes[first] & !range.first_mask()).count_ones() + (bytes[last] & !range.last_mask()).count_ones();
    ones(first..last + 1) - u64::from(outside)
}
