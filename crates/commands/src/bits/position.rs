//! BITPOS: the first bit with a given value.

use super::range::{BitRange, RelativeRange};
use crate::Call;
use crate::error::{Error, Outcome};
use crate::strings::text;

pub(super) fn bitpos(call: &mut Call<'_, '_, '_>) -> Outcome {
    let wanted = match call.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::fixed("ERR The bit argument must be 1 or 0.")),
    };
    let relative = RelativeRange::of_position(call, 3)?;
    let Some(view) = call.db.view(call.key(1)) else {
        // A missing key counts as endless zeros.
        call.reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = text(view)?;
    let found = match relative.within(&bytes) {
        None => None,
        // Zeros follow the string, unless the range has an end.
        Some(range) if !wanted && !relative.has_end() => find(&bytes, range, wanted).or(Some(bytes.len() as u64 * 8)),
        Some(range) => find(&bytes, range, wanted),
    };
    call.reply.int(found.map_or(-1, u64::cast_signed));
    Ok(())
}

/// Finds the first bit with this value in a range.
fn find(bytes: &[u8], range: BitRange, wanted: bool) -> Option<u64> {
    let (first, last) = range.bytes();
    let skipped = if wanted { 0 } else { 0xff };
    // Bits with the wanted value are set.
    let within = |at: usize| {
        let masks = [(first, range.first_mask()), (last, range.last_mask())];
        masks.iter().filter(|(edge, _)| *edge == at).fold(bytes[at] ^ skipped, |bits, (_, mask)| bits & mask)
    };
    let bit_of = |at: usize, bits: u8| (bits != 0).then(|| at as u64 * 8 + u64::from(bits.leading_zeros()));
    bit_of(first, within(first)).or_else(|| {
        let between = bytes.get(first + 1..last)?;
        match first_other(between, skipped) {
            Some(at) => bit_of(first + 1 + at, between[at] ^ skipped),
            None => bit_of(last, within(last)),
        }
    })
}

/// Finds the first byte that differs from `skipped`.
fn first_other(bytes: &[u8], skipped: u8) -> Option<usize> {
    /// Number of bytes that vector instructions compare at a time.
    const CHUNK: usize = 64;
    let (chunks, _) = bytes.as_chunks::<CHUNK>();
    let has_other = |chunk: &[u8; CHUNK]| chunk.iter().fold(0, |bits, byte| bits | (byte ^ skipped)) != 0;
    let start = CHUNK * chunks.iter().position(has_other).unwrap_or(chunks.len());
    bytes[start..].iter().position(|byte| *byte != skipped).map(|at| start + at)
}
