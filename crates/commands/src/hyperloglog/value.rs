//! A HyperLogLog as a string: a header, and the registers in one of two forms.
//!
//! ```text
//! ┌────────┬──────────┬──────┬──────────────────┬─ ─ ─ ─ ─ ─ ┐
//! │ "HYLL" │ encoding │ zero │ cached estimate  │ registers   │
//! │ 4      │ 1        │ 3    │ 8, little-endian │             │
//! └────────┴──────────┴──────┴──────────────────┴─ ─ ─ ─ ─ ─ ┘
//! encoding: 0 dense, 1 sparse. The estimate's highest bit is set while it isn't known.
//! ```
//!
//! Source of the format: Redis's hyperloglog.c, and antirez, "Redis new data structure: the HyperLogLog" (2014).

use store::entry::View;
use store::value::Value;

use super::dense::{self, REGISTERS_BYTES, Registers};
use super::estimate::estimate;
use super::hash::Mark;
use super::sparse::{self, Corrupt, Finger, Opcodes, Raised};
use crate::error::Error;

const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
/// The byte of the estimate that has the bit which says that it isn't known, and that bit.
const UNKNOWN_AT: usize = 15;
const UNKNOWN: u8 = 0x80;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a dense HyperLogLog.
pub(super) const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS_BYTES;
/// Bytes of a sparse HyperLogLog at most: an opcode has two bytes at most, and stands for a register at least.
const SPARSE_BYTES_MAX: usize = HEADER_BYTES + 2 * dense::REGISTERS;

const NOT_A_HYPERLOGLOG: Error = Error::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");
/// The registers' form is broken.
pub(super) const CORRUPT: Error = Error::fixed("INVALIDOBJ Corrupted HLL object detected");

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Error {
        CORRUPT
    }
}

/// The registers of a HyperLogLog.
#[derive(Clone, Copy)]
pub(super) enum Encoding<'a> {
    Dense(&'a [u8; REGISTERS_BYTES]),
    Sparse(&'a [u8]),
}

/// A HyperLogLog that a key holds.
#[derive(Clone, Copy)]
pub(super) struct HyperLogLog<'a> {
    /// All of the string.
    pub(super) bytes: &'a [u8],
    pub(super) encoding: Encoding<'a>,
}

impl<'a> HyperLogLog<'a> {
    /// What a key holds as a HyperLogLog. That the sparse form is whole is found out when it is read.
    ///
    /// # Errors
    /// Another type, or a string that is none.
    #[inline]
    pub(super) fn of(view: View<'a>) -> Result<HyperLogLog<'a>, Error> {
        let bytes: &[u8] = match view {
            View::Bytes(bytes) => bytes,
            View::Int(_) => return Err(NOT_A_HYPERLOGLOG),
            View::Object(Value::Str(bytes)) => bytes,
            View::Object(_) => return Err(Error::WRONG_TYPE),
        };
        let (header, registers) = bytes.split_at_checked(HEADER_BYTES).ok_or(NOT_A_HYPERLOGLOG)?;
        let encoding = match header[ENCODING_AT] {
            _ if !header.starts_with(MAGIC) => return Err(NOT_A_HYPERLOGLOG),
            DENSE => Encoding::Dense(registers.try_into().map_err(|_| NOT_A_HYPERLOGLOG)?),
            SPARSE if bytes.len() > SPARSE_BYTES_MAX => return Err(CORRUPT),
            SPARSE => Encoding::Sparse(registers),
            _ => return Err(NOT_A_HYPERLOGLOG),
        };
        Ok(HyperLogLog { bytes, encoding })
    }

    /// The estimate that the header has, if it is known.
    #[inline]
    pub(super) fn cached(&self) -> Option<u64> {
        let estimate = self.bytes[ESTIMATE_AT..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        (self.bytes[UNKNOWN_AT] & UNKNOWN == 0).then_some(estimate)
    }

    /// The estimate, from the registers.
    pub(super) fn count(&self) -> Result<u64, Corrupt> {
        match self.encoding {
            Encoding::Dense(packed) => Ok(estimate(&dense::histogram(packed))),
            Encoding::Sparse(opcodes) => Ok(estimate(&sparse::histogram(opcodes)?)),
        }
    }

    /// Raises registers to those of this one.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        match self.encoding {
            Encoding::Dense(packed) => dense::merge(registers, packed),
            Encoding::Sparse(opcodes) => sparse::merge(registers, opcodes)?,
        }
        Ok(())
    }

    /// True if adding an element with this mark would change it.
    #[inline]
    pub(super) fn is_changed_by(&self, mark: Mark) -> Result<bool, Corrupt> {
        let value = match self.encoding {
            Encoding::Dense(packed) => dense::get(packed, mark.register),
            Encoding::Sparse(opcodes) => sparse::get(opcodes, mark.register)?,
        };
        Ok(value < mark.value)
    }
}

/// Writes the estimate into the header.
pub(super) fn set_cached(bytes: &mut [u8], estimate: u64) {
    bytes[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
}

/// Notes in the header that the estimate isn't known.
#[inline]
pub(super) fn forget_cached(bytes: &mut [u8]) {
    bytes[UNKNOWN_AT] |= UNKNOWN;
}

/// Writes these registers into a HyperLogLog of [`DENSE_BYTES`], which is dense from then on. The header is kept.
pub(super) fn set_registers(bytes: &mut [u8], registers: &Registers) {
    bytes[ENCODING_AT] = DENSE;
    dense::pack(registers, &mut bytes[HEADER_BYTES..]);
}

/// A HyperLogLog that is changed apart from the key that holds it.
pub(super) struct Draft {
    pub(super) bytes: Vec<u8>,
    /// Where the last register was raised, so that one after it is found soon.
    finger: Finger,
}

impl Draft {
    /// One without elements, in the sparse form.
    pub(super) fn empty() -> Draft {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        let mut opcodes = Opcodes::default();
        opcodes.push_zeros(dense::REGISTERS);
        bytes.extend_from_slice(opcodes.bytes());
        Draft::of(bytes)
    }

    /// One that is changed on.
    pub(super) fn of(bytes: Vec<u8>) -> Draft {
        Draft { bytes, finger: Finger::default() }
    }

    pub(super) fn is_dense(&self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    /// Raises a register to a value. Says whether it was below. What gets longer than `sparse_bytes_max` becomes dense.
    pub(super) fn raise(&mut self, mark: Mark, sparse_bytes_max: usize) -> Result<bool, Corrupt> {
        if self.is_dense() {
            return Ok(dense::raise(&mut self.bytes[HEADER_BYTES..], mark.register, mark.value));
        }
        match sparse::raise(&mut self.bytes, &mut self.finger, mark, sparse_bytes_max)? {
            Raised::No => Ok(false),
            Raised::Yes => Ok(true),
            Raised::MustBeDense => {
                self.make_dense()?;
                dense::set(&mut self.bytes[HEADER_BYTES..], mark.register, mark.value);
                Ok(true)
            }
        }
    }

    /// Changes it to the dense form, if it is sparse.
    ///
    /// # Errors
    /// The sparse form is corrupt.
    pub(super) fn make_dense(&mut self) -> Result<(), Corrupt> {
        if !self.is_dense() {
            let mut registers = [0; dense::REGISTERS];
            sparse::merge(&mut registers, &self.bytes[HEADER_BYTES..])?;
            self.bytes.resize(DENSE_BYTES, 0);
            set_registers(&mut self.bytes, &registers);
        }
        Ok(())
    }
}
