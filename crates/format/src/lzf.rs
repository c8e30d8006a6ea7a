//! LZF, the compression of strings in Redis's snapshots: byte-wise, fast, with a window of 8 KB.
//!
//! ```text
//! 000LLLLL  bytes (L + 1)              a run of 1 to 32 bytes as they are
//! LLLooooo oooooooo                    L from 1 to 6: copies L + 2 bytes from o + 1 bytes before
//! 111ooooo LLLLLLLL oooooooo           copies L + 9 bytes, up to 264
//! ```
//!
//! A copy may reach into itself. Source: Marc Lehmann's LibLZF, whose format this is. The compressor finds the matches that LibLZF
//! finds with Redis's settings (a table of 2^16 hashes of three bytes, two positions noted after each match), so that payloads
//! are the same to the byte.

/// The longest run, in bytes.
const RUN_MAX: usize = 32;
/// How far back a copy may reach, in bytes.
const OFFSET_MAX: usize = 1 << 13;
/// The longest copy, in bytes.
const COPY_MAX: usize = 264;
/// Bytes of the longest copy for each byte that describes it.
const EXPANSION_MAX: usize = COPY_MAX / 3;
/// The shortest string that Redis compresses has one more.
pub const SHORTEST_BYTES: usize = 20;
/// Redis keeps a string as it is unless it becomes shorter by so many bytes.
const SAVED_BYTES_MIN: usize = 4;

const HASH_BITS: u32 = 16;

/// Compresses one string after another. Its table takes 256 KB from the first one on.
#[derive(Default)]
pub struct Compressor {
    /// Where each hash of three bytes was last seen: positions of all strings so far, one behind the other, so that the table needs
    /// no clearing between two strings.
    seen: Vec<u32>,
    /// The position of the next string's first byte; never 0 then, which is that of nothing.
    base: u32,
    out: Vec<u8>,
}

impl Compressor {
    /// A compressor that has no table yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The string compressed, if it is longer than [`SHORTEST_BYTES`] and becomes shorter by at least four bytes.
    pub fn compress(&mut self, input: &[u8]) -> Option<&[u8]> {
        let out_max = input.len().checked_sub(SAVED_BYTES_MIN)?;
        if input.len() <= SHORTEST_BYTES || u32::try_from(input.len()).is_err() {
            return None;
        }
        self.begin(input.len() as u32);
        let Self { seen, base, out } = self;
        let whole = Pass { input, base: *base, seen, out, out_max, at: 0, run: 0 }.compress();
        *base += input.len() as u32;
        whole.then_some(&self.out)
    }

    /// Clears the table where positions would exceed 32 bits, and at first.
    fn begin(&mut self, len: u32) {
        self.out.clear();
        if self.seen.is_empty() || self.base.checked_add(len).is_none() {
            self.seen.clear();
            self.seen.resize(1 << HASH_BITS, 0);
            self.base = 1;
        }
    }
}

/// One string on its way.
struct Pass<'a> {
    input: &'a [u8],
    base: u32,
    seen: &'a mut [u32],
    out: &'a mut Vec<u8>,
    out_max: usize,
    /// The next byte of the input.
    at: usize,
    /// Bytes of the run that is being written; the byte for its length precedes them.
    run: usize,
}

impl Pass<'_> {
    /// False if the output is no shorter than it must be.
    fn compress(mut self) -> bool {
        self.open_run();
        while self.at + 2 < self.input.len() {
            match self.match_here() {
                Some(from) => {
                    // What LibLZF asks before it writes a copy, so that the same strings are given up.
                    let pending = usize::from(self.run == 0);
                    if self.out.len() + 4 >= self.out_max && self.out.len() + 4 - pending >= self.out_max {
                        return false;
                    }
                    self.copy(from);
                }
                None => {
                    if self.out.len() >= self.out_max {
                        return false;
                    }
                    self.literal();
                }
            }
        }
        if self.out.len() + 3 > self.out_max {
            return false;
        }
        while self.at < self.input.len() {
            self.literal();
        }
        self.close_run();
        true
    }

    fn open_run(&mut self) {
        self.run = 0;
        self.out.push(0);
    }

    fn close_run(&mut self) {
        match self.run.checked_sub(1) {
            Some(length) => {
                let head = self.out.len() - self.run - 1;
                self.out[head] = length as u8;
            }
            None => _ = self.out.pop(),
        }
    }

    fn literal(&mut self) {
        self.out.push(self.input[self.at]);
        self.at += 1;
        self.run += 1;
        if self.run == RUN_MAX {
            self.close_run();
            self.open_run();
        }
    }

    /// Notes the three bytes at this position, and gives where they, or others of this hash, were noted before.
    fn note(&mut self, at: usize) -> u32 {
        let bytes = &self.input[at..at + 3];
        let three = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
        let slot = (three >> (24 - HASH_BITS)).wrapping_sub(three.wrapping_mul(5)) & ((1 << HASH_BITS) - 1);
        std::mem::replace(&mut self.seen[slot as usize], self.base + at as u32)
    }

    /// Where the next three bytes were before, within reach. The first byte of the input is never referred to.
    fn match_here(&mut self) -> Option<usize> {
        let seen = self.note(self.at);
        let from = seen.checked_sub(self.base)? as usize;
        let within_reach = from > 0 && from < self.at && self.at - from <= OFFSET_MAX;
        (within_reach && self.input[from..from + 3] == self.input[self.at..self.at + 3]).then_some(from)
    }

    /// How many bytes are alike, three of which are known to be.
    fn match_len(&self, from: usize) -> usize {
        let left = self.input.len() - self.at;
        let bound = (left - 2).min(COPY_MAX);
        // LibLZF doesn't ask for the bound in the first sixteen steps, if it is beyond them.
        let steps = if bound > 16 { 16 } else { 1 };
        let mut len = 2;
        for _ in 0..steps {
            len += 1;
            if self.at + len >= self.input.len() || self.input[from + len] != self.input[self.at + len] {
                return len;
            }
        }
        if steps == 1 && len >= bound {
            return len;
        }
        loop {
            len += 1;
            if len >= bound || self.input[from + len] != self.input[self.at + len] {
                return len;
            }
        }
    }

    fn copy(&mut self, from: usize) {
        let len = self.match_len(from);
        let offset = self.at - from - 1;
        self.close_run();
        let (code, high) = (len - 2, (offset >> 8) as u8);
        if code < 7 {
            self.out.push((code as u8) << 5 | high);
        } else {
            self.out.extend_from_slice(&[7 << 5 | high, (code - 7) as u8]);
        }
        self.out.push(offset as u8);
        self.open_run();
        self.at += len;
        if self.at + 2 < self.input.len() {
            self.note(self.at - 2);
            self.note(self.at - 1);
        }
    }
}

/// Decompresses into `out`, which it clears. False if these are no `len` bytes compressed. Nothing is allocated that the input
/// couldn't fill.
pub fn decompress(mut packed: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    out.clear();
    if len / EXPANSION_MAX > packed.len() {
        return false;
    }
    out.reserve(len);
    while let Some((&control, rest)) = packed.split_first() {
        let step = if usize::from(control) < RUN_MAX { run(control, rest, out) } else { copy(control, rest, len, out) };
        match step {
            Some(rest) if out.len() <= len => packed = rest,
            _ => return false,
        }
    }
    out.len() == len
}

fn run<'a>(control: u8, rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (run, rest) = rest.split_at_checked(usize::from(control) + 1)?;
    out.extend_from_slice(run);
    Some(rest)
}

fn copy<'a>(control: u8, rest: &'a [u8], len: usize, out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut count = usize::from(control >> 5) + 2;
    let mut rest = rest;
    if count == 9 {
        let (&more, after) = rest.split_first()?;
        count += usize::from(more);
        rest = after;
    }
    let (&low, rest) = rest.split_first()?;
    let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
    let from = out.len().checked_sub(back)?;
    if out.len() + count > len {
        return None;
    }
    if back >= count {
        out.extend_from_within(from..from + count);
    } else {
        // The copy reaches into itself.
        (from..from + count).for_each(|at| out.push(out[at]));
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use store::random::Random;

    use super::*;

    #[test]
    fn what_is_compressed_is_decompressed() {
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
    fn the_same_string_is_compressed_the_same_way_whatever_came_before() {
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
    fn strings_that_are_short_or_random_stay() {
        let mut compressor = Compressor::new();
        assert_eq!(compressor.compress(&[b'x'; 20]), None);
        assert!(compressor.compress(&[b'x'; 21]).is_some());
        let random = &mut Random::new(2);
        let noise: Vec<u8> = (0..1000).map(|_| random.next() as u8).collect();
        assert_eq!(compressor.compress(&noise), None);
    }

    #[test]
    fn bad_input_is_refused_and_claims_allocate_nothing() {
        let mut out = Vec::new();
        for (packed, len) in [(&b"\x20\x00"[..], 3), (b"\x00", 1), (b"\xe0", 9), (b"\x01a", 2), (b"\x00a\x20\x05", 4)] {
            assert!(!decompress(packed, len, &mut out), "{packed:?}");
        }
        assert!(!decompress(b"\x00a", usize::MAX, &mut out));
        assert!(out.capacity() < 1000);
        // Ten times "ab": two bytes as they are, and a copy of eighteen from two before.
        assert!(decompress(b"\x01ab\xe0\x09\x01", 20, &mut out));
        assert_eq!(out, b"ab".repeat(10));
    }
}
