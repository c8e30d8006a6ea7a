//! The sparse form: runs of equal registers.
//!
//! ```text
//! ZERO   00xxxxxx            x + 1 registers are zero
//! XZERO  01xxxxxx xxxxxxxx   the same for more registers; the first byte has the high bits
//! VAL    1vvvvvxx            x + 1 registers have the value v + 1
//! ```
//!
//! The same elements produce the same bytes as in Redis. Raising a register changes its opcode and merges nearby
//! opcodes of equal values over the same distance as in Redis.

use std::ops::Range;

use super::dense::{Histogram, REGISTERS, Registers};
use super::hash::Mark;
use super::value::{HEADER_BYTES, SPARSE_BYTES_MAX};

const ZERO_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
/// Opcodes of one byte that are worth skipping at once. Fewer of them are skipped in pairs.
const SHORT_OPCODES_MIN: usize = 4;
/// Number of opcodes that are checked for merging after a change, beginning with the one before it.
const MERGED_OPCODES: usize = 5;

/// The opcodes don't add up to 16384 registers.
#[derive(Debug)]
pub(super) struct Corrupt;

/// A run of equal registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EqualRegisters {
    /// Value of each register: 0 or 1 to 32.
    pub(super) value: u8,
    /// Number of registers.
    pub(super) len: usize,
    /// Size of the opcode in bytes.
    pub(super) bytes: usize,
}

impl EqualRegisters {
    /// Decodes the opcode at the beginning of these bytes; none at their end, or if the opcode is incomplete.
    #[inline(always)]
    fn first(opcodes: &[u8]) -> Option<EqualRegisters> {
        let first = *opcodes.first()?;
        let six = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => EqualRegisters { value: 0, len: six + 1, bytes: 1 },
            1 => EqualRegisters { value: 0, len: (six << 8 | usize::from(*opcodes.get(1)?)) + 1, bytes: 2 },
            _ => EqualRegisters { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, bytes: 1 },
        })
    }
}

/// The runs of consecutive opcodes.
pub(super) fn runs(mut opcodes: &[u8]) -> impl Iterator<Item = Result<EqualRegisters, Corrupt>> {
    std::iter::from_fn(move || {
        if opcodes.is_empty() {
            return None;
        }
        let run = EqualRegisters::first(opcodes);
        opcodes = &opcodes[run.map_or(opcodes.len(), |run| run.bytes)..];
        Some(run.ok_or(Corrupt))
    })
}

/// Calls `visit` with each non-zero run and its registers. Fails unless there are exactly 16384 registers.
fn visit(opcodes: &[u8], mut visit: impl FnMut(Range<usize>, u8)) -> Result<(), Corrupt> {
    let mut at = 0;
    for run in runs(opcodes) {
        let run = run?;
        let end = at + run.len;
        if end > REGISTERS {
            return Err(Corrupt);
        }
        if run.value != 0 {
            visit(at..end, run.value);
        }
        at = end;
    }
    if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Returns the reply of PFDEBUG DECODE, even for invalid opcodes.
pub(super) fn decode(opcodes: &[u8]) -> String {
    let mut rest = opcodes;
    let mut words = Vec::new();
    while let Some(&first) = rest.first() {
        // An XZERO opcode without its second byte: Redis reads its string's terminating zero byte instead.
        let run = EqualRegisters::first(rest).or_else(|| EqualRegisters::first(&[first, 0]));
        let Some(run) = run else { break };
        words.push(match run {
            EqualRegisters { value: 0, len, bytes: 1 } => format!("z:{len}"),
            EqualRegisters { value: 0, len, .. } => format!("Z:{len}"),
            EqualRegisters { value, len, .. } => format!("v:{value},{len}"),
        });
        rest = rest.get(run.bytes..).unwrap_or_default();
    }
    words.join(" ")
}

/// Number of registers that have each value.
pub(super) fn histogram(opcodes: &[u8]) -> Result<Histogram, Corrupt> {
    let mut histogram = [0; _];
    let mut zeros = REGISTERS as u32;
    visit(opcodes, |registers, value| {
        histogram[usize::from(value)] += registers.len() as u32;
        zeros -= registers.len() as u32;
    })?;
    histogram[0] = zeros;
    Ok(histogram)
}

/// Raises registers to the registers of the opcodes.
pub(super) fn merge(registers: &mut Registers, opcodes: &[u8]) -> Result<(), Corrupt> {
    visit(opcodes, |run, value| registers[run].iter_mut().for_each(|register| *register = value.max(*register)))
}

/// Returns the value of a register of a sparse HyperLogLog, given with its header, and the position of the register's opcode.
#[inline]
pub(super) fn find(bytes: &[u8], register: usize) -> Result<(u8, Finger), Corrupt> {
    let mut finger = Finger::default();
    let value = finger.seek(bytes, register)?.value;
    Ok((value, finger))
}

/// Opcodes that replace one opcode.
#[derive(Default)]
pub(super) struct Opcodes {
    bytes: [u8; 5],
    len: usize,
}

impl Opcodes {
    fn push(&mut self, byte: u8) {
        // Large enough for zeros, a value and zeros.
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends `len` registers that are zero.
    pub(super) fn push_zeros(&mut self, len: usize) {
        if len > ZERO_MAX {
            self.push(0x40 | ((len - 1) >> 8) as u8);
            self.push((len - 1) as u8);
        } else if len > 0 {
            self.push((len - 1) as u8);
        }
    }

    /// Appends `len` registers with a value.
    fn push_values(&mut self, value: u8, len: usize) {
        if len > 0 {
            self.push(value_opcode(value, len));
        }
    }

    /// Returns the opcodes that replace a run's opcode when the register of `mark` is raised. `first` is the run's
    /// first register.
    fn split(run: EqualRegisters, first: usize, mark: Mark) -> Opcodes {
        let mut new = Opcodes::default();
        let (before, after) = (mark.register - first, first + run.len - 1 - mark.register);
        let push = |new: &mut Opcodes, len: usize| match run.value {
            0 => new.push_zeros(len),
            value => new.push_values(value, len),
        };
        push(&mut new, before);
        new.push_values(mark.value, 1);
        push(&mut new, after);
        new
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn value_opcode(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

/// Number of registers of an opcode of one byte.
fn short_len(opcode: u8) -> usize {
    usize::from(if opcode & 0x80 == 0 { opcode & 0x3f } else { opcode & 3 }) + 1
}

/// Returns how many of eight bytes, beginning with the first, are opcodes of one byte, and the number of their registers. The first byte
/// in memory is the lowest byte of the word.
#[inline]
fn short_opcodes(word: u64) -> (usize, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Bit 6 without bit 7 marks the first byte of an XZERO. The bytes behind it may be anything.
    let long = word & !(word >> 1) & (EACH << 6);
    let count = (long.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    let taken = u64::MAX >> (64 - 8 * count);
    // A VAL opcode has its length in two bits, a ZERO opcode in six.
    let is_value = word >> 7 & EACH;
    let lens = ((word & (0x3f * EACH) & !(is_value * 0x3c)) + EACH) & taken;
    // Eight times 64 exceeds a byte, so pairs are added first.
    let pairs = (lens & 0x00ff_00ff_00ff_00ff) + (lens >> 8 & 0x00ff_00ff_00ff_00ff);
    (count, (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize)
}

/// A position in the opcodes that also remembers the two opcodes before it.
#[derive(Clone, Copy)]
pub(super) struct Finger {
    /// Its byte offset and its first register.
    byte: usize,
    register: usize,
    /// Byte offsets and first registers of the opcodes before it, the nearest first.
    before: [Option<(usize, usize)>; 2],
}

impl Default for Finger {
    /// The first opcode of a HyperLogLog.
    fn default() -> Finger {
        Finger { byte: HEADER_BYTES, register: 0, before: [None; 2] }
    }
}

impl Finger {
    /// Advances to the opcode that contains a register, and returns its run.
    #[inline]
    fn seek(&mut self, bytes: &[u8], register: usize) -> Result<EqualRegisters, Corrupt> {
        loop {
            let run = bytes.get(self.byte..).and_then(EqualRegisters::first).ok_or(Corrupt)?;
            if register < self.register + run.len {
                return Ok(run);
            }
            self.before = [Some((self.byte, self.register)), self.before[0]];
            self.byte += run.bytes;
            self.register += run.len;
            // After the first opcode, because most small HyperLogLogs begin with a long one.
            self.skip_opcodes(bytes, register);
        }
    }

    /// Skips several opcodes at a time, as long as all of them lie before a register: up to eight of one byte, or a run of zeros with the
    /// value behind it. A HyperLogLog of some ten to hundred elements consists of such pairs.
    #[inline]
    fn skip_opcodes(&mut self, bytes: &[u8], register: usize) {
        while let Some(opcodes) = bytes.get(self.byte..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*opcodes);
            let (count, registers) = short_opcodes(word);
            if count < SHORT_OPCODES_MIN || self.register + registers > register {
                if !self.skip_pair(word, register) {
                    return;
                }
                continue;
            }
            self.byte += count;
            self.register += registers;
            // The opcodes before the position have one byte each, too.
            let last = short_len(opcodes[count - 1]);
            let before = Some((self.byte - 1, self.register - last));
            self.before = match count {
                1 => [before, self.before[0]],
                _ => [before, Some((self.byte - 2, self.register - last - short_len(opcodes[count - 2])))],
            };
        }
    }

    /// Skips a run of zeros and the opcode of a value behind it, if a word begins with them and both lie before a register. Returns
    /// whether it did.
    #[inline]
    fn skip_pair(&mut self, word: u64, register: usize) -> bool {
        let (first, second) = (word as usize & 0xff, word as usize >> 8 & 0xff);
        // An XZERO has a second byte. Its length is computed without a branch, because long and short runs alternate at random.
        let is_long = first >> 6 & 1;
        let zeros = if is_long == 1 { (first & 0x3f) << 8 | second } else { first } + 1;
        let value = (word >> (8 + 8 * is_long)) as usize & 0xff;
        let (middle, end) = (self.register + zeros, self.register + zeros + (value & 3) + 1);
        if first & 0x80 != 0 || value & 0x80 == 0 || end > register {
            return false;
        }
        self.before = [Some((self.byte + 1 + is_long, middle)), Some((self.byte, self.register))];
        self.byte += 2 + is_long;
        self.register = end;
        true
    }

    /// Steps back to the opcode before it, from which merging starts.
    fn step_back(&mut self) {
        if let [Some((byte, register)), before] = self.before {
            *self = Finger { byte, register, before: [before, None] };
        }
    }
}

/// Result of raising a register.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// It already had the value or a higher one.
    No,
    /// It has been raised.
    Yes,
    /// Impossible in the sparse form: the value is too high, or the string would be too long.
    MustBeDense,
}

/// Registers of a block, and number of blocks.
const BLOCK_REGISTERS: usize = 256;
const BLOCKS: usize = REGISTERS / BLOCK_REGISTERS;

/// Known opcodes, at most one that begins in each block of registers, from which the way to a register is short.
pub(super) struct Landmarks {
    /// A bit for each block with a known opcode, the lowest for the first block.
    known: u64,
    /// Byte offset and first register of each known opcode.
    places: [(u16, u16); BLOCKS],
}

const _: () = assert!(BLOCKS == u64::BITS as usize && SPARSE_BYTES_MAX <= u16::MAX as usize);

impl Landmarks {
    /// No known opcodes.
    pub(super) fn none() -> Landmarks {
        Landmarks { known: 0, places: [(0, 0); BLOCKS] }
    }

    /// Returns the position of the opcode that contains a register, and its run. The opcode before it is known, unless it is the first.
    fn seek(&self, bytes: &[u8], register: usize) -> Result<(Finger, EqualRegisters), Corrupt> {
        let mut known = self.known & u64::MAX >> (BLOCKS - 1 - register / BLOCK_REGISTERS);
        loop {
            let mut finger = Finger::default();
            if let Some(block) = known.checked_ilog2() {
                known &= !(1 << block);
                let (byte, first) = self.places[block as usize];
                finger = Finger { byte: byte.into(), register: first.into(), before: [None; 2] };
                if finger.register >= register {
                    continue;
                }
            }
            let run = finger.seek(bytes, register)?;
            if finger.before[0].is_some() || finger.byte == HEADER_BYTES {
                return Ok((finger, run));
            }
        }
    }

    fn note(&mut self, finger: &Finger) {
        let block = finger.register / BLOCK_REGISTERS;
        self.known |= 1 << block;
        self.places[block] = (finger.byte as u16, finger.register as u16);
    }

    /// Adapts to a change behind the opcode at `finger`: opcodes that begin behind byte `end` have moved by `growth` bytes, and the
    /// ones between are new.
    fn shift(&mut self, finger: &Finger, end: usize, growth: isize) {
        let mut later = self.known & u64::MAX << (finger.register / BLOCK_REGISTERS);
        while later != 0 {
            let block = later.trailing_zeros() as usize;
            later &= later - 1;
            let byte = usize::from(self.places[block].0);
            if byte <= finger.byte {
                continue;
            }
            let moved = byte.saturating_add_signed(growth);
            self.places[block].0 = moved as u16;
            // The opcode at `end` may have been merged with the one before.
            if moved <= end {
                self.known &= !(1 << block);
            }
        }
    }
}

/// Raises a register of a sparse HyperLogLog that must not exceed `bytes_max` bytes, including its header. `hint` is the position of the
/// register's opcode, if it is known.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    landmarks: &mut Landmarks,
    hint: Option<Finger>,
    mark: Mark,
    bytes_max: usize,
) -> Result<Raised, Corrupt> {
    let Mark { register, value } = mark;
    if value > VALUE_MAX {
        return Ok(Raised::MustBeDense);
    }
    let (mut finger, run) = match hint.filter(|finger| finger.before[0].is_some() && finger.register <= register) {
        Some(mut finger) => finger.seek(bytes, register).map(|run| (finger, run))?,
        None => landmarks.seek(bytes, register)?,
    };
    if run.value >= value {
        landmarks.note(&finger);
        return Ok(Raised::No);
    }
    let new = Opcodes::split(run, finger.register, mark);
    let new = new.bytes();
    if new.len() > run.bytes && bytes.len() + new.len() - run.bytes > bytes_max {
        return Ok(Raised::MustBeDense);
    }
    let bytes_before = bytes.len();
    bytes.splice(finger.byte..finger.byte + run.bytes, new.iter().copied());
    finger.step_back();
    let end = put_together(bytes, finger.byte);
    landmarks.shift(&finger, end, bytes.len().cast_signed() - bytes_before.cast_signed());
    landmarks.note(&finger);
    Ok(Raised::Yes)
}

/// Merges opcodes of equal values, beginning at one opcode, over the same distance as in Redis. Returns the end of the examined opcodes.
fn put_together(bytes: &mut Vec<u8>, mut at: usize) -> usize {
    for _ in 0..MERGED_OPCODES {
        let Some(run) = bytes.get(at..).and_then(EqualRegisters::first) else { break };
        let next = bytes.get(at + run.bytes..).and_then(EqualRegisters::first);
        match next {
            Some(next) if run.value != 0 && next.value == run.value && run.len + next.len <= VALUE_RUN_MAX => {
                bytes[at + 1] = value_opcode(run.value, run.len + next.len);
                bytes.remove(at);
            }
            _ => at += run.bytes,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_opcodes_are_counted_as_one_by_one() {
        let mut state = 1_u64;
        for round in 0..200_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Every other word has no XZERO.
            let word = state ^ state >> 29;
            let word = if round % 2 == 0 { word } else { word & !(0x40 * 0x0101_0101_0101_0101) };
            let short = word.to_le_bytes().into_iter().take_while(|opcode| opcode >> 6 != 1);
            let expected = short.fold((0, 0), |(count, registers), opcode| (count + 1, registers + short_len(opcode)));
            assert_eq!(short_opcodes(word), expected, "{word:x}");
        }
    }

    #[test]
    fn a_position_knows_the_opcodes_before_it() {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend([0x43, 0xff, 0x80, 0x00, 0x85, 0x01, 0x80, 0x81, 0x02, 0x84, 0x40, 0x7f, 0x80, 0x03]);
        for register in 0..1100 {
            let (mut at, mut slow) = (Finger::default(), Finger::default());
            let found = at.seek(&bytes, register).ok();
            let mut run = bytes.get(slow.byte..).and_then(EqualRegisters::first);
            while let Some(now) = run.filter(|now| register >= slow.register + now.len) {
                slow.before = [Some((slow.byte, slow.register)), slow.before[0]];
                slow.byte += now.bytes;
                slow.register += now.len;
                run = bytes.get(slow.byte..).and_then(EqualRegisters::first);
            }
            assert_eq!(
                (found, at.byte, at.register, at.before),
                (run, slow.byte, slow.register, slow.before),
                "{register}"
            );
        }
    }

    #[test]
    fn positions_are_found_among_opcodes_of_all_kinds() {
        let mut state = 3_u64;
        for round in 0..2000_u64 {
            let mut bytes = vec![0; HEADER_BYTES];
            let mut all = Vec::new();
            let mut register = 0;
            while bytes.len() < HEADER_BYTES + 60 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let [kind, low, ..] = (state >> 33).to_le_bytes();
                all.push((bytes.len(), register));
                // Few long runs, many, or hardly any values.
                match (kind % 8, round % 3) {
                    (0..4, 0) | (0..2, 1) | (0..6, 2) => bytes.extend([0x40 | kind >> 6, low]),
                    (4..6, _) => bytes.push(low & 0x3f),
                    _ => bytes.push(low | 0x80),
                }
                let (at, first) = all[all.len() - 1];
                register = first + EqualRegisters::first(&bytes[at..]).unwrap().len;
            }
            for (index, &(byte, first)) in all.iter().enumerate() {
                let mut finger = Finger::default();
                finger.seek(&bytes, first).unwrap();
                let before = [1, 2].map(|back| index.checked_sub(back).map(|index| all[index]));
                assert_eq!((finger.byte, finger.register, finger.before), (byte, first, before), "{round}");
            }
        }
    }

    /// Returns byte offset and first register of each opcode.
    fn places(bytes: &[u8]) -> Vec<(u16, u16)> {
        let (mut byte, mut register) = (HEADER_BYTES, 0);
        let place = |run: Result<EqualRegisters, Corrupt>| {
            let run = run.unwrap();
            let place = (byte as u16, register as u16);
            (byte, register) = (byte + run.bytes, register + run.len);
            place
        };
        runs(&bytes[HEADER_BYTES..]).map(place).collect()
    }

    #[test]
    fn known_opcodes_exist_and_shorten_the_way() {
        let mut state = 7_u64;
        let (mut all, mut merged) = (0, 0);
        for round in 0..40 {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes.extend([0x7f, 0xff]);
            let (mut alone, mut landmarks) = (bytes.clone(), Landmarks::none());
            for _ in 0..600 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Equal values close together are merged.
                let register = (state >> 33) as usize % if round % 2 == 0 { REGISTERS } else { 700 };
                let mark = Mark { register, value: 1 + (state >> 60) as u8 % 3 };
                let size = bytes.len();
                let raised = raise(&mut bytes, &mut landmarks, None, mark, SPARSE_BYTES_MAX).unwrap();
                assert_eq!(raise(&mut alone, &mut Landmarks::none(), None, mark, SPARSE_BYTES_MAX).unwrap(), raised);
                assert_eq!(bytes, alone);
                merged += usize::from(bytes.len() < size);
                let places = places(&bytes);
                for block in (0..BLOCKS).filter(|block| landmarks.known >> block & 1 == 1) {
                    assert!(places.contains(&landmarks.places[block]), "{round} {block}");
                    all += 1;
                }
            }
        }
        assert!(all > 100_000 && merged > 500, "{all} {merged}");
    }
}
