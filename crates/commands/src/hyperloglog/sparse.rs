//! The sparse form: runs of registers that are equal.
//!
//! ```text
//! ZERO   00xxxxxx            x + 1 registers are zero
//! XZERO  01xxxxxx xxxxxxxx   the same for more registers; the first byte has the high bits
//! VAL    1vvvvvxx            x + 1 registers have the value v + 1
//! ```
//!
//! Bytes are equal to those of Redis after the same elements: a register is raised by changing the opcode that it is in,
//! and opcodes of equal values that are near are put together, as far as Redis looks.

use std::ops::Range;

use super::dense::{Histogram, REGISTERS, Registers};
use super::hash::Mark;
use super::value::HEADER_BYTES;

const ZERO_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
/// Opcodes that are looked at after a change, from the one before it on, to put equal values together.
const MERGED_OPCODES: usize = 5;

/// The opcodes don't stand for 16384 registers.
#[derive(Debug)]
pub(super) struct Corrupt;

/// Equal registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EqualRegisters {
    /// The value of each; 0 or 1 to 32.
    pub(super) value: u8,
    /// How many there are.
    pub(super) len: usize,
    /// Bytes of the opcode.
    pub(super) bytes: usize,
}

impl EqualRegisters {
    /// The run that the opcode at the beginning of these bytes stands for; none at their end, or if half of it is
    /// missing.
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

/// The runs of opcodes one after the other.
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

/// Calls `visit` with each run that isn't zero and its registers. Fails if there aren't 16384 registers.
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

/// What DECODE of PFDEBUG says of opcodes, whatever they are.
pub(super) fn decode(opcodes: &[u8]) -> String {
    let mut rest = opcodes;
    let mut words = Vec::new();
    while let Some(&first) = rest.first() {
        // An XZERO opcode without its second byte: Redis reads the zero byte that terminates its strings in its place.
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

/// How many registers have each value.
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

/// Raises registers to those of the opcodes.
pub(super) fn merge(registers: &mut Registers, opcodes: &[u8]) -> Result<(), Corrupt> {
    visit(opcodes, |run, value| registers[run].iter_mut().for_each(|register| *register = value.max(*register)))
}

/// The value of a register.
#[inline]
pub(super) fn get(opcodes: &[u8], register: usize) -> Result<u8, Corrupt> {
    let mut at = Finger { byte: 0, ..Finger::default() };
    Ok(at.seek(opcodes, register)?.value)
}

/// Opcodes that take the place of one.
#[derive(Default)]
pub(super) struct Opcodes {
    bytes: [u8; 5],
    len: usize,
}

impl Opcodes {
    fn push(&mut self, byte: u8) {
        // There is room for zeros, a value and zeros.
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Adds so many registers that are zero.
    pub(super) fn push_zeros(&mut self, len: usize) {
        if len > ZERO_MAX {
            self.push(0x40 | ((len - 1) >> 8) as u8);
            self.push((len - 1) as u8);
        } else if len > 0 {
            self.push((len - 1) as u8);
        }
    }

    /// Adds so many registers that have a value.
    fn push_values(&mut self, value: u8, len: usize) {
        if len > 0 {
            self.push(value_opcode(value, len));
        }
    }

    /// The opcodes that replace a run's opcode when the register of `mark` is raised. `first` is the run's first register.
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

/// An opcode, and the two before it.
#[derive(Clone, Copy)]
pub(super) struct Finger {
    /// Where it begins, and which register is its first.
    byte: usize,
    register: usize,
    /// Where the opcodes before it begin and their first registers, the nearest first.
    before: [Option<(usize, usize)>; 2],
}

impl Default for Finger {
    /// The first opcode of a HyperLogLog.
    fn default() -> Finger {
        Finger { byte: HEADER_BYTES, register: 0, before: [None; 2] }
    }
}

impl Finger {
    /// Goes on to the opcode that has a register, and gives its run.
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
        }
    }

    /// Goes back to the opcode before it, from which on opcodes change when they are put together.
    fn step_back(&mut self) {
        if let [Some((byte, register)), before] = self.before {
            *self = Finger { byte, register, before: [before, None] };
        }
    }
}

/// What became of a register.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// It had the value, or a higher one.
    No,
    /// It has been raised.
    Yes,
    /// It can't be raised in the sparse form, since the value is too high or the string would be too long.
    MustBeDense,
}

/// Raises a register of a sparse HyperLogLog of `bytes_max` bytes at most, its header included. `finger` is where it was
/// changed last.
pub(super) fn raise(bytes: &mut Vec<u8>, finger: &mut Finger, mark: Mark, bytes_max: usize) -> Result<Raised, Corrupt> {
    let Mark { register, value } = mark;
    if value > VALUE_MAX {
        return Ok(Raised::MustBeDense);
    }
    if register < finger.register {
        *finger = Finger::default();
    }
    let mut run = finger.seek(bytes, register)?;
    if finger.before[0].is_none() && finger.byte != HEADER_BYTES {
        // What is before it has to be known.
        *finger = Finger::default();
        run = finger.seek(bytes, register)?;
    }
    if run.value >= value {
        return Ok(Raised::No);
    }
    let new = Opcodes::split(run, finger.register, mark);
    let new = new.bytes();
    if new.len() > run.bytes && bytes.len() + new.len() - run.bytes > bytes_max {
        return Ok(Raised::MustBeDense);
    }
    bytes.splice(finger.byte..finger.byte + run.bytes, new.iter().copied());
    finger.step_back();
    put_together(bytes, finger.byte);
    Ok(Raised::Yes)
}

/// Puts opcodes of equal values together, from one opcode on, as far as Redis looks.
fn put_together(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..MERGED_OPCODES {
        let Some(run) = bytes.get(at..).and_then(EqualRegisters::first) else { return };
        let next = bytes.get(at + run.bytes..).and_then(EqualRegisters::first);
        match next {
            Some(next) if run.value != 0 && next.value == run.value && run.len + next.len <= VALUE_RUN_MAX => {
                bytes[at + 1] = value_opcode(run.value, run.len + next.len);
                bytes.remove(at);
            }
            _ => at += run.bytes,
        }
    }
}
