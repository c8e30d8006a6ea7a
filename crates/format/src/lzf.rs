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
/// Shortest copy, in bytes.
const COPY_MIN: usize = 3;
/// Bytes that LibLZF compares without a look at the bound, if the bound is beyond 16.
const UNBOUNDED_BYTES: usize = 19;
/// Bytes left of the input from which on the search needs no look at its end: the longest copy that is found by branches fits with room for
/// LibLZF's bound.
const NEAR_END_BYTES: usize = 24;
/// Literal runs up to this length are copied in one step, in bytes.
const SHORT_RUN_MAX: usize = 8;
/// Largest number of output bytes per input byte.
const EXPANSION_MAX: usize = COPY_MAX / 3;
/// Redis compresses only strings that are longer than this, in bytes.
pub const SHORTEST_BYTES: usize = 20;
/// Smallest saving, in bytes, for which Redis stores the compressed form.
const SAVED_BYTES_MIN: usize = 4;

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
    #[inline]
    pub fn compress(&mut self, input: &[u8]) -> Option<&[u8]> {
        if input.len() > SHORTEST_BYTES { self.compress_long(input) } else { None }
    }

    #[inline(never)]
    fn compress_long(&mut self, input: &[u8]) -> Option<&[u8]> {
        let out_max = input.len().checked_sub(SAVED_BYTES_MIN)?;
        let base = self.begin(u32::try_from(input.len()).ok()?);
        let Self { seen, out, .. } = self;
        if out.len() < out_max {
            out.resize(out_max, 0);
        }
        let seen = seen.get_or_insert_with(no_positions);
        let packed = pack(input, base, seen, &mut out[..out_max]);
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
fn pack(input: &[u8], base: u32, seen: &mut Positions, out: &mut [u8]) -> Option<usize> {
    let max = out.len();
    let (mut search, mut output) = (Search { input, base, seen, rest: input, run: 0 }, Output { to: out });
    search.run_while::<NEAR_END_BYTES>(&mut output, near_len)?;
    search.run_while::<COPY_MIN>(&mut output, len_near_end)?;
    output.finish(search.with_run(), search.run)?;
    Some(max - output.to.len())
}

/// A search for copies.
struct Search<'a> {
    input: &'a [u8],
    base: u32,
    seen: &'a mut Positions,
    /// The rest of the input.
    rest: &'a [u8],
    /// Number of literal bytes before the rest that are not yet written.
    run: usize,
}

impl<'a> Search<'a> {
    /// The rest with the literal run before it.
    fn with_run(&self) -> &'a [u8] {
        &self.input[self.input.len() - self.rest.len() - self.run..]
    }

    /// Writes copies and the runs between them while the rest has at least `LEFT` bytes; none if there is no room. `match_len` returns the
    /// length of a copy to the second string, if they have the first three bytes in common.
    #[inline(always)]
    fn run_while<const LEFT: usize>(
        &mut self,
        output: &mut Output<'_>,
        match_len: impl Fn(&[u8], &[u8]) -> Option<usize>,
    ) -> Option<()> {
        // Locals stay in registers.
        let Search { input, base, mut rest, mut run, .. } = *self;
        let seen = &mut *self.seen;
        let end = base + input.len() as u32;
        let mut two = u16::from_be_bytes(*rest.first_chunk()?);
        while rest.len() >= LEFT
            && let [_, _, third, ..] = *rest
        {
            let next = two << 8 | u16::from(third);
            let now = end - rest.len() as u32;
            let before = std::mem::replace(&mut seen[slot(two, next)], now);
            two = next;
            // Copies never begin at the first byte of the input. Positions up to there are those of earlier strings.
            if before > base
                && now - before <= OFFSET_MAX
                && let Some(len) = match_len(&input[(before - base) as usize..], rest)
            {
                if run > 0 {
                    output.run(&input[input.len() - rest.len() - run..], run)?;
                    run = 0;
                }
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
            run += 1;
            rest = &rest[1..];
        }
        (self.rest, self.run) = (rest, run);
        Some(())
    }
}

/// Returns the place of the hash of three bytes, given the first two and the last two.
#[inline(always)]
fn slot(two: u16, next: u16) -> usize {
    two.wrapping_sub(next.wrapping_mul(5)).into()
}

/// Length of a copy of the bytes of `from` to `rest`, which has at least [`NEAR_END_BYTES`]; none if the first three bytes differ.
#[inline(always)]
fn near_len(from: &[u8], rest: &[u8]) -> Option<usize> {
    let differing = word(from.first_chunk()?) ^ word(rest.first_chunk()?);
    if differing & 0xff_ffff != 0 {
        return None;
    }
    // Most copies are short. The processor predicts these branches and goes on, while a length that is computed from the bytes delays the
    // next search.
    if let Some(equal) = (COPY_MIN..8).find(|&place| differs_at(differing, place)) {
        return Some(equal);
    }
    let differing = word(from[8..].first_chunk()?) ^ word(rest[8..].first_chunk()?);
    if let Some(equal) = (0..8).find(|&place| differs_at(differing, place)) {
        return Some(8 + equal);
    }
    Some(long_match_len(from, rest))
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

#[inline(always)]
fn differs_at(differing: u64, place: usize) -> bool {
    differing & 0xff << (8 * place) != 0
}

/// Like [`near_len`], for a rest of any length.
fn len_near_end(from: &[u8], rest: &[u8]) -> Option<usize> {
    (from.get(..COPY_MIN)? == rest.get(..COPY_MIN)?).then(|| long_match_len(from, rest))
}

/// Like [`near_len`], for long copies and near the end of the input, if the first three bytes are equal. LibLZF checks its bound, which leaves
/// two bytes of the input, only after sixteen steps or in short inputs after the first one.
#[inline(never)]
fn long_match_len(from: &[u8], rest: &[u8]) -> usize {
    let left = rest.len();
    let bound = (left - 2).min(COPY_MAX);
    let most = bound.max(if bound > 16 { UNBOUNDED_BYTES } else { COPY_MIN }).min(left);
    equal_bytes(&from[..most], &rest[..most])
}

/// The compressed string.
struct Output<'a> {
    /// The place for the next bytes, up to the greatest length that is short enough.
    to: &'a mut [u8],
}

impl Output<'_> {
    /// Writes a copy; none if there is no room. LibLZF makes the same check, so it gives up on the same strings.
    #[inline(always)]
    fn copy(&mut self, len: usize, back: u32) -> Option<()> {
        let to = std::mem::take(&mut self.to);
        if to.len() <= 4 {
            return None;
        }
        let (code, [high, low]) = (len - 2, ((back - 1) as u16).to_be_bytes());
        if code < 7 {
            (to[0], to[1]) = ((code as u8) << 5 | high, low);
            self.to = &mut to[2..];
        } else {
            (to[0], to[1], to[2]) = (7 << 5 | high, (code - 7) as u8, low);
            self.to = &mut to[3..];
        }
        Some(())
    }

    /// Writes the first `run` bytes as literals, at least one; none if there is no room. LibLZF writes each byte at once, and gives up at the
    /// next copy or at the end of the input.
    #[inline(always)]
    fn run(&mut self, bytes: &[u8], run: usize) -> Option<()> {
        if run <= SHORT_RUN_MAX
            && self.to.len() > SHORT_RUN_MAX
            && let Some(chunk) = bytes.get(..SHORT_RUN_MAX)
        {
            // A copy of constant length is fast. The next steps overwrite the bytes behind the run.
            let to = std::mem::take(&mut self.to);
            to[0] = run as u8 - 1;
            to[1..=SHORT_RUN_MAX].copy_from_slice(chunk);
            self.to = &mut to[1 + run..];
            return Some(());
        }
        self.long_run(bytes.get(..run)?)
    }

    #[inline(never)]
    fn long_run(&mut self, bytes: &[u8]) -> Option<()> {
        for part in bytes.chunks(RUN_MAX) {
            let (head, to) = std::mem::take(&mut self.to).split_first_mut()?;
            *head = part.len() as u8 - 1;
            let (place, to) = to.split_at_mut_checked(part.len())?;
            place.copy_from_slice(part);
            self.to = to;
        }
        Some(())
    }

    /// Writes a run of `run` bytes and the last bytes of the input, up to two; none if LibLZF sees no room for them.
    fn finish(&mut self, bytes: &[u8], run: usize) -> Option<()> {
        // Full runs, and one that has its length already.
        let written = run / RUN_MAX * (RUN_MAX + 1) + run % RUN_MAX + 1;
        if self.to.len() < written + 3 {
            return None;
        }
        self.long_run(bytes)
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

/// Bytes that are decompressed at once. Wider loads often need bytes of two earlier stores, and would wait until these are in the cache.
const CHUNK_BYTES: usize = 8;

/// Number of written bytes, and the rest of the input.
type Step<'a> = Option<(usize, &'a [u8])>;

#[inline(always)]
fn run<'a>(control: u8, rest: &'a [u8], out: &mut [u8]) -> Step<'a> {
    let count = usize::from(control) + 1;
    if let (Some(from), Some(to)) = (rest.first_chunk::<RUN_MAX>(), out.first_chunk_mut::<RUN_MAX>()) {
        // Copies of constant length are fast. The next steps overwrite the bytes behind the run.
        to[..CHUNK_BYTES].copy_from_slice(&from[..CHUNK_BYTES]);
        if count > CHUNK_BYTES {
            to[CHUNK_BYTES..].copy_from_slice(&from[CHUNK_BYTES..]);
        }
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
    if back >= CHUNK_BYTES && bytes.len() >= back + count + CHUNK_BYTES {
        // Copies of constant length are fast. The next steps overwrite the bytes behind the copy.
        let (from, to) = bytes.split_at_mut(back);
        *to.first_chunk_mut()? = *from.first_chunk::<CHUNK_BYTES>()?;
        let mut at = CHUNK_BYTES;
        while at < count {
            let chunk = *bytes[at..].first_chunk::<CHUNK_BYTES>()?;
            *bytes[back + at..].first_chunk_mut()? = chunk;
            at += CHUNK_BYTES;
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

    /// LibLZF's `lzf_compress`, step by step, with Redis's settings.
    fn compressed_by_liblzf(input: &[u8]) -> Option<Vec<u8>> {
        let max = input.len() - SAVED_BYTES_MIN;
        let (mut seen, mut out, mut run, mut at) = (vec![None; 1 << HASH_BITS], vec![0], 0, 0);
        let hash = |at: usize| {
            let [one, other] = [at, at + 1].map(|at| u16::from_be_bytes([input[at], input[at + 1]]));
            usize::from(one.wrapping_sub(other.wrapping_mul(5)))
        };
        fn literal(out: &mut Vec<u8>, run: &mut usize, byte: u8) {
            out.push(byte);
            *run += 1;
            if *run == RUN_MAX {
                close(out, run);
            }
        }
        fn close(out: &mut Vec<u8>, run: &mut usize) {
            let place = out.len() - *run - 1;
            out[place] = (*run as u8).wrapping_sub(1);
            out.truncate(place + if *run == 0 { 0 } else { *run + 1 });
            out.push(0);
            *run = 0;
        }
        while at + 2 < input.len() {
            let before: Option<usize> = seen[hash(at)].replace(at);
            match before {
                Some(from) if from > 0 && at - from <= 1 << 13 && input[from..from + 3] == input[at..at + 3] => {
                    let most = (input.len() - at - 2).min(COPY_MAX);
                    if out.len() + 4 >= max && out.len() + 4 - usize::from(run == 0) >= max {
                        return None;
                    }
                    close(&mut out, &mut run);
                    out.pop();
                    let mut len = 2;
                    while len == 2 || input[from + len] == input[at + len] {
                        len += 1;
                        // Sixteen steps are free, and the rest has a bound.
                        if (most <= 16 || len >= 19) && len >= most || at + len == input.len() {
                            break;
                        }
                    }
                    let (code, [high, low]) = (len - 2, ((at - from - 1) as u16).to_be_bytes());
                    if code < 7 {
                        out.extend([(code as u8) << 5 | high, low]);
                    } else {
                        out.extend([7 << 5 | high, (code - 7) as u8, low]);
                    }
                    out.push(0);
                    at += len;
                    if at + 2 < input.len() {
                        seen[hash(at - 2)] = Some(at - 2);
                        seen[hash(at - 1)] = Some(at - 1);
                    }
                }
                _ if out.len() >= max => return None,
                _ => {
                    literal(&mut out, &mut run, input[at]);
                    at += 1;
                }
            }
        }
        if out.len() + 3 > max {
            return None;
        }
        input[at..].iter().for_each(|&byte| literal(&mut out, &mut run, byte));
        close(&mut out, &mut run);
        out.pop();
        Some(out)
    }

    #[test]
    fn the_output_is_that_of_liblzf() {
        let (mut compressor, mut out, random) = (Compressor::new(), Vec::new(), &mut Random::new(3));
        let (mut compressed, mut refused) = (0, 0);
        for round in 0..20_000 {
            let letters = 1 + random.below(1 + [2, 5, 30, 256][round % 4]);
            let mut input: Vec<u8> = Vec::new();
            let len = SHORTEST_BYTES + 1 + random.below([12, 40, 300, 2000][round / 4 % 4]);
            while input.len() < len {
                // Bytes from before, or new ones.
                let back = random.below(input.len().min(9000) + 1);
                let from = input.len() - back;
                let part = if round % 3 > 0 { random.below(40).min(back) } else { 0 };
                input.extend_from_within(from..from + part);
                input.extend((0..random.below(40)).map(|_| random.below(letters) as u8));
            }
            input.truncate(len);
            let expected = compressed_by_liblzf(&input);
            assert_eq!(compressor.compress(&input), expected.as_deref(), "{input:?}");
            match expected {
                None => refused += 1,
                Some(packed) => {
                    compressed += 1;
                    assert!(decompress(&packed, len, &mut out) && out == input, "{input:?}");
                }
            }
        }
        assert!(compressed > 5000 && refused > 1000, "{compressed} {refused}");
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
