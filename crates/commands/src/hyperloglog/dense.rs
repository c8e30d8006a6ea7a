//! The dense form: 16384 registers of six bits.
//!
//! ```text
//!   byte 0     byte 1     byte 2     byte 3
//! ┌──────────┬──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │ 55444444 │ ...   a digit is the bit's register
//! └──────────┴──────────┴──────────┴──────────┘
//! ```
//!
//! Each register's lowest bit comes first.

use store::simd::{WideWork, with_wide_vectors};
use store::six_bits;

/// Number of hash bits that select an element's register.
pub(super) const INDEX_BITS: u32 = 14;
/// Number of registers of a HyperLogLog.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Number of bits of a register.
const REGISTER_BITS: usize = 6;
/// Largest value of a register in the dense form.
const VALUE_MAX: usize = (1 << REGISTER_BITS) - 1;
/// Number of bytes of all registers.
pub(super) const REGISTERS_BYTES: usize = six_bits::packed_bytes(REGISTERS);

/// Registers with one byte each, for merging and counting.
pub(super) type Registers = [u8; REGISTERS];

/// Number of registers that have each value.
pub(super) type Histogram = [u32; VALUE_MAX + 1];

/// Returns the first byte that contains the register, and its lowest bit there. The register may extend into the next
/// byte.
#[inline]
fn place(register: usize) -> (usize, usize) {
    (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8)
}

/// The value of a register.
#[inline]
pub(super) fn get(packed: &[u8], register: usize) -> u8 {
    let (byte, bit) = place(register);
    let at = |byte: usize| u16::from(packed.get(byte).copied().unwrap_or(0));
    ((at(byte) | at(byte + 1) << 8) >> bit) as u8 & VALUE_MAX as u8
}

/// Sets a register to a value of at most 63.
#[inline]
pub(super) fn set(packed: &mut [u8], register: usize, value: u8) {
    let (byte, bit) = place(register);
    let (clear, set) = (!((VALUE_MAX as u16) << bit), u16::from(value) << bit);
    let changed = |old: u8, shift: u32| old & (clear >> shift) as u8 | (set >> shift) as u8;
    if let Some(low) = packed.get_mut(byte) {
        *low = changed(*low, 0);
    }
    // The last register ends with the last byte.
    if let Some(high) = packed.get_mut(byte + 1) {
        *high = changed(*high, 8);
    }
}

/// Raises a register to a value. Returns true if it was below.
#[inline]
pub(super) fn raise(packed: &mut [u8], register: usize, value: u8) -> bool {
    let is_below = get(packed, register) < value;
    if is_below {
        set(packed, register, value);
    }
    is_below
}

/// Raises registers to the registers of a dense HyperLogLog.
pub(super) fn merge(registers: &mut Registers, packed: &[u8; REGISTERS_BYTES]) {
    six_bits::raise(registers, packed);
}

/// Writes registers in the dense form.
pub(super) fn pack(registers: &Registers, packed: &mut [u8]) {
    six_bits::pack(registers, packed);
}

/// Number of registers that are compared at a time. A count of equal registers fits in a byte, so vectors of bytes can
/// count them.
const PART: usize = 128;

/// Counts the registers with each value by comparing each value with all registers. Wide vectors make that twice as
/// fast as counting the registers one by one. Values beyond the maximum are ignored.
struct Count<'r>(&'r Registers);

impl WideWork for Count<'_> {
    type Output = Histogram;

    #[inline(always)]
    fn run(self) -> Histogram {
        let mut greatest = 0u8;
        for register in self.0 {
            greatest = greatest.max(*register);
        }
        let mut histogram = [0; VALUE_MAX + 1];
        for (value, count) in histogram.iter_mut().enumerate().take(usize::from(greatest) + 1) {
            for part in self.0.chunks(PART) {
                let mut equal = 0u8;
                for register in part {
                    equal = equal.wrapping_add(u8::from(*register == value as u8));
                }
                *count += u32::from(equal);
            }
        }
        histogram
    }
}

/// Number of registers that have each value. Values are at most 63.
pub(super) fn histogram_of(registers: &Registers) -> Histogram {
    with_wide_vectors(Count(registers))
}

/// Number of registers of a dense HyperLogLog that have each value.
pub(super) fn histogram(packed: &[u8; REGISTERS_BYTES]) -> Histogram {
    let mut registers = [0; REGISTERS];
    merge(&mut registers, packed);
    histogram_of(&registers)
}
