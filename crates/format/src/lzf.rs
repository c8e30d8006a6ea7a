//! LZF, the compression of strings in Redis's snapshots: byte-wise, fast, with a window of 8 KB.
//!
//! ```text
//! 000LLLLL  bytes (L + 1)              a run of 1 to 32 literal bytes
//! LLLooooo oooooooo                    L from 1 to 6: copies L + 2 bytes from o + 1 bytes before
//! 111ooooo LLLLLLLL oooooooo           copies L + 9 bytes, up to 264
//! ```
//!
//! A copy may overlap its own output. The format comes from Marc Lehmann's LibLZF. The compressor finds the same
//! matches as LibLZF with Redis's settings (a table of 2^16 hashes of three bytes, two positions stored after each
//! match), so payloads are equal to the byte.

/// Longest literal run, in bytes.
const RUN_MAX: usize = 32;
/// Largest distance of a copy, in bytes.
const OFFSET_MAX: u32 = 1 << 13;
/// Longest copy, in bytes.
const COPY_MAX: usize = 264;
/// Bytes of a copy that are compared one at a time.
const NEAR_BYTES: usize = 19;
/// Largest number of output bytes per input byte.
const EXPANSION_MAX: usize = COPY_MAX / 3;
/// Redis compresses only strings that are longer than this, in bytes.
pub const SHORTEST_BYTES: usize = 20;
/// Smallest saving, in bytes, for which Redis stores the compressed form.
const SAVED_BYTES_MIN: usize = 4;

/// Most bytes of output between two checks of its length: a copy, and the length of the next run.
const STEP_BYTES_MAX: usize = 8;

const HASH_BITS: u32 = 16;

/// The last position of each hash of three bytes.
type Positions = [u32; 1 << HASH_BITS];

/// Compresses strings one after another. Its table is created by the first string and takes 256 KB.
#[derive(Default)]
pub struct Compressor {
    /// Positions count through all strings so far, so the table needs no clearing between strings.
    seen: Option<Box<Positions>>,
    /// Position of the next string's first byte. It is never 0 then, because 0 means no position.
    base: u32,
    out: Vec<u8>,
}

impl Compressor {
    /// Creates a compressor without a table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the compressed string, if the string is longer than [`SHORTEST_BYTES`] and becomes at least four bytes
    /// shorter.
    pub fn compress(&mut self, input: &[u8]) -> Option<&[u8]> {
        let out_max = input.len().checked_sub(SAVED_BYTES_MIN)?;
        let bytes = u32::try_from(input.len()).ok().filter(|_| input.len() > SHORTEST_BYTES)?;
        let base = self.begin(bytes);
        let Self { seen, out, .. } = self;
        if out.len() < out_max + STEP_BYTES_MAX {
            out.resize(out_max + STEP_BYTES_MAX, 0);
        }
        let seen = seen.get_or_insert_with(no_positions);
        let packed = pack(input, base, seen, &mut Output::new(out, out_max));
        packed.map(|len| &out[..len])
    }

    /// Returns the position of the first of the next `len` bytes. Clears the table before positions would exceed 32 bits.
    fn begin(&mut self, len: u32) -> u32 {
        if self.seen.is_none() || self.base.checked_add(len).is_none() {
            self.seen = None;
            self.base = 1;
        }
        let base = self.base;
        self.base += len;
        base
    }
}

/// Makes an empty table, which is too large for the stack.
fn no_positions() -> Box<Positions> {
    vec![0; 1 << HASH_BITS].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; 1 << HASH_BITS]))
}

/// Compresses a string whose first byte has the position `base`. Returns the length of the output; none if it doesn't become short enough.
fn pack(input: &[u8], base: u32, seen: &mut Positions, output: &mut Output<'_>) -> Option<usize> {
    let end = base + input.len() as u32;
    let (mut rest, mut two) = (input, u16::from_be_bytes(*input.first_chunk()?));
    while let [first, _, third, ..] = *rest {
        let next = two << 8 | u16::from(third);
        let now = end - rest.len() as u32;
        // Copies never begin at the first byte of the input. Positions up to there are those of earlier strings.
        let before = std::mem::replace(&mut seen[slot(two, next)], now);
        two = next;
        if before > base && now - before <= OFFSET_MAX {
            let from = &input[(before - base) as usize..];
            if three(from) == three(rest) {
                let len = match_len(from, rest);
                output.copy(len, now - before)?;
                // The search goes on behind the copy. The positions of its last two bytes are noted.
                let last = &rest[len - 2..];
                rest = &last[2..];
                if let Some((four, [_, ..])) = last.split_first_chunk() {
                    let four = u32::from_be_bytes(*four);
                    let noted = end - last.len() as u32;
                    let [one, other] = [(four >> 16) as u16, (four >> 8) as u16];
                    two = four as u16;
                    seen[slot(one, other)] = noted;
                    seen[slot(other, two)] = noted + 1;
                }
                continue;
            }
        }
        output.checked_literal(first)?;
        rest = &rest[1..];
    }
    output.finish(rest)
}

/// Returns the place of the hash of three bytes, given the first two and the last two.
#[inline(always)]
fn slot(two: u16, next: u16) -> usize {
    two.wrapping_sub(next.wrapping_mul(5)).into()
}

/// Returns the first three bytes as a number, from four bytes if possible: one access is faster than two.
#[inline(always)]
fn three(bytes: &[u8]) -> Option<u32> {
    match bytes.first_chunk() {
        Some(four) => Some(u32::from_le_bytes(*four) << 8),
        None => bytes.first_chunk().map(|&[one, two, three]| u32::from_le_bytes([0, one, two, three])),
    }
}

/// Length of a copy of the bytes of `from` to `rest`, which have equal first three bytes.
#[inline(always)]
fn match_len(from: &[u8], rest: &[u8]) -> usize {
    // Most copies are short. The processor predicts these branches and goes on, while a length that is computed from the bytes delays the
    // next search.
    if let (Some(one), Some(other)) = (from.first_chunk::<NEAR_BYTES>(), rest.first_chunk::<NEAR_BYTES>())
        && let Some(equal) = (3..NEAR_BYTES).find(|&place| one[place] != other[place])
    {
        return equal;
    }
    long_match_len(from, rest)
}

/// Like [`match_len`], for long copies and near the end of the input. LibLZF checks its bound, which leaves two bytes of the input, only after
/// sixteen steps or in short inputs after the first one.
#[inline(never)]
fn long_match_len(from: &[u8], rest: &[u8]) -> usize {
    let left = rest.len();
    let bound = (left - 2).min(COPY_MAX);
    let most = bound.max(if bound > 16 { NEAR_BYTES } else { 3 }).min(left);
    equal_bytes(&from[..most], &rest[..most])
}

/// The compressed string.
struct Output<'a> {
    /// A buffer for `max` bytes and one more step.
    out: &'a mut [u8],
    max: usize,
    /// Length so far.
    len: usize,
    /// Length of the literal run that is being written; the byte with its length precedes it.
    run: usize,
}

impl<'a> Output<'a> {
    /// Begins with an empty run.
    fn new(out: &'a mut [u8], max: usize) -> Self {
        Output { out, max, len: 1, run: 0 }
    }

    /// Writes a copy; none if there is no room. LibLZF makes the same checks, so it gives up on the same strings.
    #[inline(always)]
    fn copy(&mut self, len: usize, back: u32) -> Option<()> {
        if self.len + 4 >= self.max && self.len + 4 - usize::from(self.run == 0) >= self.max {
            return None;
        }
        self.close_run();
        let (code, [high, low]) = (len - 2, ((back - 1) as u16).to_be_bytes());
        let place = self.out[self.len..].first_chunk_mut::<3>()?;
        if code < 7 {
            (place[0], place[1]) = ((code as u8) << 5 | high, low);
            self.len += 2;
        } else {
            *place = [7 << 5 | high, (code - 7) as u8, low];
            self.len += 3;
        }
        self.open_run();
        Some(())
    }

    #[inline(always)]
    fn open_run(&mut self) {
        self.run = 0;
        // The place of the length.
        self.len += 1;
    }

    /// Writes the length of the run. The place of the length of an empty run is free again.
    #[inline(always)]
    fn close_run(&mut self) {
        self.out[self.len - self.run - 1] = (self.run as u8).wrapping_sub(1);
        self.len -= usize::from(self.run == 0);
    }

    /// Writes a literal byte; none if there is no room.
    #[inline(always)]
    fn checked_literal(&mut self, byte: u8) -> Option<()> {
        if self.len >= self.max {
            return None;
        }
        self.literal(byte);
        Some(())
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        self.out[self.len] = byte;
        self.len += 1;
        self.run += 1;
        if self.run == RUN_MAX {
            self.close_run();
            self.open_run();
        }
    }

    /// Writes the last bytes, up to two, and returns the whole length; none if there is no room.
    fn finish(&mut self, rest: &[u8]) -> Option<usize> {
        if self.len + 3 > self.max {
            return None;
        }
        rest.iter().for_each(|&byte| self.literal(byte));
        self.close_run();
        Some(self.len)
    }
}

/// Number of equal bytes at the beginning of two strings of one length.
#[inline(always)]
fn equal_bytes(first: &[u8], second: &[u8]) -> usize {
    let mut equal = 0;
    while let (Some(one), Some(other)) = (first[equal..].first_chunk::<8>(), second[equal..].first_chunk::<8>()) {
        let differing = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return equal + differing.trailing_zeros() as usize / 8;
        }
        equal += 8;
    }
    equal + first[equal..].iter().zip(&second[equal..]).take_while(|(one, other)| one == other).count()
}

/// Decompresses into `out`, after clearing it. Returns false if the input isn't exactly `len` compressed bytes.
/// Allocates only memory that the input can fill.
pub fn decompress(mut packed: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    out.clear();
    if len / EXPANSION_MAX > packed.len() {
        return false;
    }
    out.resize(len, 0);
    let mut at = 0;
    while let Some((&control, rest)) = packed.split_first() {
        let step = if usize::from(control) < RUN_MAX {
            run(control, rest, &mut out[at..])
        } else {
            copy(control, rest, out, at)
        };
        let Some((count, rest)) = step else { return false };
        at += count;
        packed = rest;
    }
    at == len
}

/// Number of written bytes, and the rest of the input.
type Step<'a> = Option<(usize, &'a [u8])>;

#[inline(always)]
fn run<'a>(control: u8, rest: &'a [u8], out: &mut [u8]) -> Step<'a> {
    let count = usize::from(control) + 1;
    if let (Some(from), Some(to)) = (rest.first_chunk::<RUN_MAX>(), out.first_chunk_mut::<RUN_MAX>()) {
        // A copy of constant length is fast. The next steps overwrite the bytes behind the run.
        *to = *from;
    } else {
        out.get_mut(..count)?.copy_from_slice(rest.get(..count)?);
    }
    Some((count, &rest[count..]))
}

#[inline(always)]
fn copy<'a>(control: u8, rest: &'a [u8], out: &mut [u8], at: usize) -> Step<'a> {
    let mut count = usize::from(control >> 5) + 2;
    let mut rest = rest;
    if count == 9 {
        let (&more, after) = rest.split_first()?;
        count += usize::from(more);
        rest = after;
    }
    let (&low, rest) = rest.split_first()?;
    let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
    let from = at.checked_sub(back)?;
    repeat(out.get_mut(from..)?, back, count)?;
    Some((count, rest))
}

/// Copies `count` bytes to the place `back` bytes after the first one, in ascending order: the copy may overlap its own output.
#[inline(always)]
fn repeat(bytes: &mut [u8], back: usize, count: usize) -> Option<()> {
    const CHUNK_BYTES: usize = 16;
    if back >= CHUNK_BYTES && bytes.len() >= back + count + CHUNK_BYTES {
        // Copies of constant length are fast. The next steps overwrite the bytes behind the copy.
        for at in (0..count).step_by(CHUNK_BYTES) {
            let chunk = *bytes[at..].first_chunk::<CHUNK_BYTES>()?;
            *bytes[back + at..].first_chunk_mut()? = chunk;
        }
        return Some(());
    }
    let bytes = bytes.get_mut(..back + count)?;
    for at in back..bytes.len() {
        bytes[at] = bytes[at - back];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use store::random::Random;

    use super::*;

    #[test]
    fn compressed_strings_are_decompressed() {
        let (mut compressor, mut out, random) = (Compressor::new(), Vec::new(), &mut Random::new(1));
        let mut compressed = 0;
        for round in 0..3000 {
            let letters = 1 + random.below(1 + round % 60);
            let input: Vec<u8> = (0..random.below(600)).map(|_| random.below(letters) as u8).collect();
            if let Some(packed) = compressor.compress(&input) {
                assert!(packed.len() <= input.len() - 4);
                assert!(decompress(packed, input.len(), &mut out), "{input:?}");
                assert_eq!(out, input);
                compressed += 1;
                assert!(!decompress(packed, input.len() + 1, &mut out));
                assert!(!decompress(packed, input.len() - 1, &mut out));
                assert!(!decompress(&packed[..packed.len() - 1], input.len(), &mut out));
            }
        }
        assert!(compressed > 500, "{compressed}");
    }

    #[test]
    fn compression_is_independent_of_earlier_strings() {
        let (mut used, input) = (Compressor::new(), b"abcabcabcabcabcabcabcabcabcabcabc".repeat(3));
        let first = Compressor::new().compress(&input).unwrap().to_vec();
        for other in [&b"xyzabc".repeat(50)[..], &input, b"q"] {
            used.compress(other);
            assert_eq!(used.compress(&input).unwrap(), first);
        }
        used.base = u32::MAX - 50;
        assert_eq!(used.compress(&input).unwrap(), first);
    }

    #[test]
    fn short_or_random_strings_stay_uncompressed() {
        let mut compressor = Compressor::new();
        assert_eq!(compressor.compress(&[b'x'; 20]), None);
        assert!(compressor.compress(&[b'x'; 21]).is_some());
        let random = &mut Random::new(2);
        let noise: Vec<u8> = (0..1000).map(|_| random.next() as u8).collect();
        assert_eq!(compressor.compress(&noise), None);
    }

    #[test]
    fn bad_input_is_refused_and_claimed_lengths_allocate_nothing() {
        let mut out = Vec::new();
        for (packed, len) in [(&b"\x20\x00"[..], 3), (b"\x00", 1), (b"\xe0", 9), (b"\x01a", 2), (b"\x00a\x20\x05", 4)] {
            assert!(!decompress(packed, len, &mut out), "{packed:?}");
        }
        assert!(!decompress(b"\x00a", usize::MAX, &mut out));
        assert!(out.capacity() < 1000);
        // Ten times "ab": two literal bytes, and a copy of eighteen bytes from a distance of two.
        assert!(decompress(b"\x01ab\xe0\x09\x01", 20, &mut out));
        assert_eq!(out, b"ab".repeat(10));
    }
}
