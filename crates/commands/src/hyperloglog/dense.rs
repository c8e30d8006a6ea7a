//! The dense form: 16384 registers of six bits.
//!
//! ```text
//!   byte 0     byte 1     byte 2     byte 3
//! ┌──────────┬──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │ 55444444 │ ...   a digit is the register that the bit belongs to
//! └──────────┴──────────┴──────────┴──────────┘
//! ```
//!
//! Each register's lowest bit comes first. Eight registers are six bytes, of which a little-endian word is made: register
//! `i` of the eight is its bits from `6 * i` on.

use store::wide::with_wide_vectors;

/// Bits of a hash that say which register an element is counted in.
pub(super) const INDEX_BITS: u32 = 14;
/// Registers of a HyperLogLog.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a register.
const REGISTER_BITS: usize = 6;
/// The greatest value of a register of the dense form.
const VALUE_MAX: usize = (1 << REGISTER_BITS) - 1;
/// Bytes of all registers.
pub(super) const REGISTERS_BYTES: usize = REGISTERS * REGISTER_BITS / 8;

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

/// Eight registers of six bytes, which are the lower ones of a little-endian word, a byte each.
#[inline(always)]
fn spread(six: u64) -> u64 {
    let halves = six & 0xff_ffff | (six & 0xffff_ff00_0000) << 8;
    let quarters = halves & 0x0000_0fff_0000_0fff | (halves & 0x00ff_f000_00ff_f000) << 4;
    quarters & 0x003f_003f_003f_003f | (quarters & 0x0fc0_0fc0_0fc0_0fc0) << 2
}

/// Registers that are unpacked and packed at a time: four words that take three.
const LANES: usize = 4;

/// Four times eight registers of three words.
#[inline(always)]
fn spread_words([a, b, c]: [u64; 3]) -> [u64; LANES] {
    let mut eights = [a, a >> 48 | b << 16, b >> 32 | c << 32, c >> 16];
    for eight in &mut eights {
        *eight = spread(*eight);
    }
    eights
}

/// The three words of four times eight registers.
#[inline(always)]
fn pack_words(mut eights: [u64; LANES]) -> [u64; 3] {
    for eight in &mut eights {
        let twelve = *eight & 0x003f_003f_003f_003f | (*eight & 0x3f00_3f00_3f00_3f00) >> 2;
        let twenty_four = twelve & 0x0fff_0000_0fff | (twelve & 0x0fff_0000_0fff_0000) >> 4;
        *eight = twenty_four & 0xff_ffff | (twenty_four & 0x00ff_ffff_0000_0000) >> 8;
    }
    let [a, b, c, d] = eights;
    [a | b << 48, b >> 16 | c << 32, c >> 32 | d << 16]
}

/// Visits each four times eight registers, and the bytes that they are packed in.
#[inline(always)]
fn each_quarter(
    registers: &mut Registers,
    packed: &[u8; REGISTERS_BYTES],
    mut visit: impl FnMut(&mut [u8; 32], [u64; LANES]),
) {
    let (quarters, _) = registers.as_chunks_mut::<32>();
    let (words, _) = packed.as_chunks::<24>();
    for (quarter, words) in quarters.iter_mut().zip(words) {
        let (words, _) = words.as_chunks::<8>();
        visit(quarter, spread_words([0, 1, 2].map(|at: usize| u64::from_le_bytes(words[at]))));
    }
}

/// The registers of a dense HyperLogLog, a byte each.
fn unpack(packed: &[u8; REGISTERS_BYTES]) -> Registers {
    let mut registers = [0; REGISTERS];
    with_wide_vectors(|| each_quarter(&mut registers, packed, |quarter, words| *quarter = bytes_of(words)));
    registers
}

#[inline(always)]
fn bytes_of(words: [u64; LANES]) -> [u8; 32] {
    let mut bytes = [0; 32];
    let (eights, _) = bytes.as_chunks_mut::<8>();
    for (eight, word) in eights.iter_mut().zip(words) {
        *eight = word.to_le_bytes();
    }
    bytes
}

/// Raises registers to those of a dense HyperLogLog.
pub(super) fn merge(registers: &mut Registers, packed: &[u8; REGISTERS_BYTES]) {
    with_wide_vectors(|| {
        each_quarter(registers, packed, |quarter, words| {
            let others = bytes_of(words);
            for (register, other) in quarter.iter_mut().zip(others) {
                *register = (*register).max(other);
            }
        });
    });
}

/// Writes registers in the dense form.
pub(super) fn pack(registers: &Registers, packed: &mut [u8]) {
    with_wide_vectors(|| {
        let (quarters, _) = registers.as_chunks::<32>();
        let (threes, _) = packed.as_chunks_mut::<24>();
        for (three, quarter) in threes.iter_mut().zip(quarters) {
            let (eights, _) = quarter.as_chunks::<8>();
            let words = pack_words([0, 1, 2, 3].map(|at: usize| u64::from_le_bytes(eights[at])));
            let (to, _) = three.as_chunks_mut::<8>();
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
    });
}

/// Tables that registers are counted in, which are added up in the end: registers that follow each other are often equal,
/// and counting in one table would wait for the count before.
const TABLES: usize = 8;

/// How many registers have each value. Values are 63 at most.
pub(super) fn histogram_of(registers: &Registers) -> Histogram {
    let mut tables = [[0; VALUE_MAX + 1]; TABLES];
    let (rows, _) = registers.as_chunks::<TABLES>();
    for row in rows {
        for (table, value) in tables.iter_mut().zip(row) {
            table[usize::from(*value) % (VALUE_MAX + 1)] += 1;
        }
    }
    let mut histogram = [0; VALUE_MAX + 1];
    for table in &tables {
        histogram.iter_mut().zip(table).for_each(|(sum, count)| *sum += count);
    }
    histogram
}

/// How many registers of a dense HyperLogLog have each value.
pub(super) fn histogram(packed: &[u8; REGISTERS_BYTES]) -> Histogram {
    histogram_of(&unpack(packed))
}
