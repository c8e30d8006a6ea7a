//! A HyperLogLog as a string: a header, and the registers in one of two forms.
//!
//! ```text
//! ┌────────┬──────────┬──────┬──────────────────┬─ ─ ─ ─ ─ ─ ┐
//! │ "HYLL" │ encoding │ zero │ cached estimate  │ registers   │
//! │ 4      │ 1        │ 3    │ 8, little-endian │             │
//! └────────┴──────────┴──────┴──────────────────┴─ ─ ─ ─ ─ ─ ┘
//! encoding: 0 dense, 1 sparse. The estimate's highest bit is set if it is invalid.
//! ```
//!
//! Source of the format: Redis's hyperloglog.c, and antirez, "Redis new data structure: the HyperLogLog" (2014).

use store::entry::View;
use store::value::Value;

use super::dense::{self, REGISTERS_BYTES, Registers};
use super::estimate::estimate;
use super::hash::Mark;
use super::sparse::{self, Corrupt, Finger, Landmarks, Opcodes, Raised};
use crate::error::Error;

const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
/// Byte and bit of the cached estimate that mark it as invalid.
const UNKNOWN_AT: usize = 15;
const UNKNOWN: u8 = 0x80;
/// Size of the header in bytes.
pub(super) const HEADER_BYTES: usize = 16;
/// Size of a dense HyperLogLog in bytes.
pub(super) const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS_BYTES;
/// Largest size of a sparse HyperLogLog: an opcode has at most two bytes and covers at least one register.
pub(super) const SPARSE_BYTES_MAX: usize = HEADER_BYTES + 2 * dense::REGISTERS;

const NOT_A_HYPERLOGLOG: Error = Error::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");
/// The registers' encoding is corrupt.
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

/// A HyperLogLog stored at a key.
#[derive(Clone, Copy)]
pub(super) struct HyperLogLog<'a> {
    /// The whole string.
    pub(super) bytes: &'a [u8],
    pub(super) encoding: Encoding<'a>,
}

impl<'a> HyperLogLog<'a> {
    /// Interprets a key's value as a HyperLogLog. Corruption of the sparse form is detected later, while it is read.
    ///
    /// # Errors
    /// The value has another type, or the string is not a HyperLogLog.
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

    /// The cached estimate, if it is valid.
    #[inline]
    pub(super) fn cached(&self) -> Option<u64> {
        let estimate = self.bytes[ESTIMATE_AT..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        (self.bytes[UNKNOWN_AT] & UNKNOWN == 0).then_some(estimate)
    }

    /// Computes the estimate from the registers.
    pub(super) fn count(&self) -> Result<u64, Corrupt> {
        match self.encoding {
            Encoding::Dense(packed) => Ok(estimate(&dense::histogram(packed))),
            Encoding::Sparse(opcodes) => Ok(estimate(&sparse::histogram(opcodes)?)),
        }
    }

    /// Raises registers to the registers of this HyperLogLog.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        match self.encoding {
            Encoding::Dense(packed) => dense::merge(registers, packed),
            Encoding::Sparse(opcodes) => sparse::merge(registers, opcodes)?,
        }
        Ok(())
    }

    /// Returns a position for [`Draft::at`] if adding an element with this mark would change this sparse HyperLogLog.
    pub(super) fn changed_by(&self, mark: Mark) -> Result<Option<Finger>, Corrupt> {
        let (value, finger) = sparse::find(self.bytes, mark.register)?;
        Ok((value < mark.value).then_some(finger))
    }
}

/// Caches the estimate in the header.
pub(super) fn set_cached(bytes: &mut [u8], estimate: u64) {
    bytes[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
}

/// Marks the cached estimate as invalid.
#[inline]
pub(super) fn forget_cached(bytes: &mut [u8]) {
    bytes[UNKNOWN_AT] |= UNKNOWN;
}

/// Writes these registers into a HyperLogLog of [`DENSE_BYTES`] and makes it dense. Keeps the header.
pub(super) fn set_registers(bytes: &mut [u8], registers: &Registers) {
    bytes[ENCODING_AT] = DENSE;
    dense::pack(registers, &mut bytes[HEADER_BYTES..]);
}

/// A copy of a HyperLogLog for changes outside its key.
pub(super) struct Draft {
    pub(super) bytes: Vec<u8>,
    /// Known positions in the sparse form.
    landmarks: Landmarks,
    /// The position of the first register to be raised, if it is known.
    hint: Option<Finger>,
}

impl Draft {
    /// Creates an empty HyperLogLog in the sparse form.
    pub(super) fn empty() -> Draft {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        let mut opcodes = Opcodes::default();
        opcodes.push_zeros(dense::REGISTERS);
        bytes.extend_from_slice(opcodes.bytes());
        Draft::of(bytes)
    }

    /// Creates a draft from existing bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Draft {
        Draft { bytes, landmarks: Landmarks::none(), hint: None }
    }

    /// Creates a draft from existing bytes. `finger` is the position of the register that is raised first.
    pub(super) fn at(bytes: Vec<u8>, finger: Finger) -> Draft {
        Draft { hint: Some(finger), ..Draft::of(bytes) }
    }

    pub(super) fn is_dense(&self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    /// Raises a register to a value. Returns true if it was below. Converts to the dense form if it would exceed
    /// `sparse_bytes_max`.
    pub(super) fn raise(&mut self, mark: Mark, sparse_bytes_max: usize) -> Result<bool, Corrupt> {
        if self.is_dense() {
            return Ok(dense::raise(&mut self.bytes[HEADER_BYTES..], mark.register, mark.value));
        }
        match sparse::raise(&mut self.bytes, &mut self.landmarks, self.hint.take(), mark, sparse_bytes_max)? {
            Raised::No => Ok(false),
            Raised::Yes => Ok(true),
            Raised::MustBeDense => {
                self.make_dense()?;
                dense::set(&mut self.bytes[HEADER_BYTES..], mark.register, mark.value);
                Ok(true)
            }
        }
    }

    /// Converts a sparse HyperLogLog to the dense form.
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
