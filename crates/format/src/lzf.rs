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
const OFFSET_MAX: usize = 1 << 13;
/// Longest copy, in bytes.
const COPY_MAX: usize = 264;
/// Bytes of a copy that are compared one at a time.
const NEAR_BYTES: usize = 16;
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
        let packed = Pass { input, base, seen, out: &mut *out, out_max, at: 0, len: 0, run: 0 }.compress();
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

/// Compression of one string.
struct Pass<'a> {
    input: &'a [u8],
    base: u32,
    seen: &'a mut Positions,
    /// A buffer for `out_max` bytes and one more step.
    out: &'a mut [u8],
    out_max: usize,
    /// The next byte of the input.
    at: usize,
    /// Length of the output.
    len: usize,
    /// Length of the literal run that is being written; the byte with its length precedes it.
    run: usize,
}

impl Pass<'_> {
    /// Returns the length of the output; none if it doesn't become short enough.
    fn compress(mut self) -> Option<usize> {
        self.open_run();
        while self.at + 2 < self.input.len() {
            match self.match_here() {
                Some(from) => {
                    // LibLZF makes this check before it writes a copy; the same check gives up on the same strings.
                    let pending = usize::from(self.run == 0);
                    if self.len + 4 - pending >= self.out_max {
                        return None;
                    }
                    self.copy(from);
                }
                None => {
                    if self.len >= self.out_max {
                        return None;
                    }
                    self.literal();
                }
            }
        }
        if self.len + 3 > self.out_max {
            return None;
        }
        while self.at < self.input.len() {
            self.literal();
        }
        self.close_run();
        Some(self.len)
    }

    #[inline(always)]
    fn put(&mut self, byte: u8) {
        self.out[self.len] = byte;
        self.len += 1;
    }

    #[inline(always)]
    fn open_run(&mut self) {
        self.run = 0;
        // The place of the length.
        self.len += 1;
    }

    #[inline(always)]
    fn close_run(&mut self) {
        self.len -= usize::from(self.run == 0);
        if let Some(length) = self.run.checked_sub(1) {
            self.out[self.len - self.run - 1] = length as u8;
        }
    }

    #[inline(always)]
    fn literal(&mut self) {
        self.put(self.input[self.at]);
        self.at += 1;
        self.run += 1;
        if self.run == RUN_MAX {
            self.close_run();
            self.open_run();
        }
    }

    /// Stores the three bytes' position, and returns the last stored position for their hash.
    #[inline(always)]
    fn note(&mut self, at: usize) -> u32 {
        let bytes = &self.input[at..at + 3];
        let three = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
        let slot = (three >> (24 - HASH_BITS)).wrapping_sub(three.wrapping_mul(5)) & ((1 << HASH_BITS) - 1);
        std::mem::replace(&mut self.seen[slot as usize], self.base + at as u32)
    }

    /// Returns the previous position of the next three bytes, if it is within reach. Copies never begin at the first
    /// byte of the input.
    #[inline(always)]
    fn match_here(&mut self) -> Option<usize> {
        let seen = self.note(self.at);
        let from = seen.checked_sub(self.base)? as usize;
        let within_reach = from > 0 && from < self.at && self.at - from <= OFFSET_MAX;
        (within_reach && self.input[from..from + 3] == self.input[self.at..self.at + 3]).then_some(from)
    }

    /// Length of a copy from `from`; the first three bytes are known to be equal. LibLZF checks its bound, which leaves two bytes of the input, only
    /// after sixteen steps or in short inputs after the first one.
    #[inline(always)]
    fn match_len(&self, from: usize) -> usize {
        let left = self.input.len() - self.at;
        let bound = (left - 2).min(COPY_MAX);
        let most = bound.max(if bound > 16 { 19 } else { 3 }).min(left);
        let (first, second) = (&self.input[from..from + most], &self.input[self.at..self.at + most]);
        // Most copies are short. The processor predicts these branches and goes on, while a length that is computed from
        // the bytes delays the next search.
        if let (Some(one), Some(other)) = (first.first_chunk::<NEAR_BYTES>(), second.first_chunk::<NEAR_BYTES>()) {
            return match (3..NEAR_BYTES).find(|&place| one[place] != other[place]) {
                Some(equal) => equal,
                None => NEAR_BYTES + equal_bytes(&first[NEAR_BYTES..], &second[NEAR_BYTES..]),
            };
        }
        equal_bytes(first, second)
    }

    #[inline(always)]
    fn copy(&mut self, from: usize) {
        let len = self.match_len(from);
        let offset = self.at - from - 1;
        self.close_run();
        let (code, high) = (len - 2, (offset >> 8) as u8);
        if code < 7 {
            self.put((code as u8) << 5 | high);
        } else {
            self.put(7 << 5 | high);
            self.put((code - 7) as u8);
        }
        self.put(offset as u8);
        self.open_run();
        self.at += len;
        if self.at + 2 < self.input.len() {
            self.note(self.at - 2);
            self.note(self.at - 1);
        }
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
