//! The dense form: 16384 registers of six bits.
//!
//! ```text
//!   byte 0     byte 1     byte 2     byte 3
//! ┌──────────┬──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │ 55444444 │ ...   a digit is the register that the bit belongs to
//! └──────────┴──────────┴──────────┴──────────┘
//! ```
//!
//! Each register's lowest bit comes first.

use store::six_bits;
use store::wide::{WideWork, with_wide_vectors};

/// Bits of a hash that say which register an element is counted in.
pub(super) const INDEX_BITS: u32 = 14;
/// Registers of a HyperLogLog.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a register.
const REGISTER_BITS: usize = 6;
/// The greatest value of a register of the dense form.
const VALUE_MAX: usize = (1 << REGISTER_BITS) - 1;
/// Bytes of all registers.
pub(super) const REGISTERS_BYTES: usize = six_bits::packed_bytes(REGISTERS);

/// Registers with a byte each, as they are merged and counted.
pub(super) type Registers = [u8; REGISTERS];

/// How many registers have each value.
pub(super) type Histogram = [u32; VALUE_MAX + 1];

/// The two bytes that a register is in, of which the second may be missing, and its lowest bit.
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

/// Sets a register to a value that is 63 at most.
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

/// Raises a register to a value. Says whether it was below.
#[inline]
pub(super) fn raise(packed: &mut [u8], register: usize, value: u8) -> bool {
    let is_below = get(packed, register) < value;
    if is_below {
        set(packed, register, value);
    }
    is_below
}

/// Raises registers to those of a dense HyperLogLog.
pub(super) fn merge(registers: &mut Registers, packed: &[u8; REGISTERS_BYTES]) {
    six_bits::raise(registers, packed);
}

/// Writes registers in the dense form.
pub(super) fn pack(registers: &Registers, packed: &mut [u8]) {
    six_bits::pack(registers, packed);
}

/// Registers that are compared at a time: the count of those that are equal fits in a byte, and vectors of bytes count them.
const PART: usize = 128;

/// Counts how many registers have each value: each value is compared with all registers, which takes half as long with wide vectors as to
/// count the registers one by one. Values beyond the greatest aren't looked for.
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

/// How many registers have each value. Values are 63 at most.
pub(super) fn histogram_of(registers: &Registers) -> Histogram {
    with_wide_vectors(Count(registers))
}

/// How many registers of a dense HyperLogLog have each value.
pub(super) fn histogram(packed: &[u8; REGISTERS_BYTES]) -> Histogram {
    let mut registers = [0; REGISTERS];
    merge(&mut registers, packed);
    histogram_of(&registers)
}
