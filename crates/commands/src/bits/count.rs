//! BITCOUNT.

use store::population::count_ones;

use super::range::{BitRange, RelativeRange};
use crate::Call;
use crate::error::Outcome;
use crate::strings::text;

pub(super) fn bitcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let relative = RelativeRange::of_count(call, 2);
    let Some(view) = call.db.view(call.key(1)) else {
        // As in Redis 7, whatever the other arguments are.
        call.reply.int(0);
        return Ok(());
    };
    let bytes = text(view)?;
    let range = relative?.and_then(|relative| relative.within(&bytes));
    let count = range.map_or(0, |range| count_within(&bytes, range));
    call.reply.int(count.cast_signed());
    Ok(())
}

fn count_within(bytes: &[u8], range: BitRange) -> u64 {
    let (first, last) = range.bytes();
    let outside = (bytes[first] & !range.first_mask()).count_ones() + (bytes[last] & !range.last_mask()).count_ones();
    count_ones(&bytes[first..=last]) - u64::from(outside)
}
