//! Buffered input, and the elements of the format: lengths, integers and strings.

use std::io::{self, Read};

use store::types::packed::Item;

use super::error::{Error, Flaw};
use crate::crc64::Crc64;
use crate::lzf;
use crate::rdb::head;

/// Number of bytes that are read at a time. Longer owned strings are read directly into their destination.
const PIECE_BYTES: usize = 64 * 1024;

/// A source with its buffer.
///
/// ```text
/// 0          summed        at             end          buffer.len()
/// +------------+------------+--------------+---------------+
/// | counted in | consumed   | unread       | free          |
/// | the sum    |            |              |               |
/// +------------+------------+--------------+---------------+
/// ```
pub(crate) struct Source<R> {
    bytes: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    summed: usize,
    sum: Crc64,
    /// Number of bytes that have left the buffer.
    passed: u64,
    /// Offset of the current element.
    mark: u64,
    /// The last decompressed string.
    unpacked: Vec<u8>,
    /// Length of the source in bytes, as far as known.
    len: u64,
}

/// Smallest size of an element, in bytes, for trusting a claimed number of elements. Each element's reserved memory is
/// smaller.
const CREDIBLE_BYTES: u64 = 16;

/// A string from the source, or a decompressed one.
pub(crate) type Text<'s> = Item<'s>;

impl Source<io::Empty> {
    /// Creates a source of in-memory bytes.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        let mut source = Source::new(io::empty());
        source.buffer = bytes.to_vec();
        source.end = bytes.len();
        source
    }
}

impl<R> Source<R> {
    pub(crate) fn new(bytes: R) -> Self {
        Source {
            bytes,
            buffer: Vec::new(),
            at: 0,
            end: 0,
            summed: 0,
            sum: Crc64::new(),
            passed: 0,
            mark: 0,
            unpacked: Vec::new(),
            len: 0,
        }
    }

    /// Sets the source's length in bytes.
    pub(crate) fn set_len(&mut self, len: u64) {
        self.len = len;
    }

    /// Limits a claimed number of elements or keys to the number that the rest of the source can contain; 0 if its
    /// length is unknown.
    pub(crate) fn credible(&self, count: u64) -> usize {
        let left = self.len.saturating_sub(self.offset());
        usize::try_from(count.min(left / CREDIBLE_BYTES)).unwrap_or(0)
    }

    /// Number of consumed bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Begins a new element; errors refer to its offset.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.mark = self.offset();
    }

    /// Offset of the current element.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Creates an error about the current element.
    #[cold]
    pub(crate) fn flaw(&self, flaw: Flaw) -> Error {
        Error { offset: self.mark, flaw }
    }

    /// Creates the error that the current element is damaged.
    #[cold]
    pub(crate) fn damaged(&self, what: &'static str) -> Error {
        self.flaw(Flaw::Damaged(what))
    }

    /// True if all received bytes are consumed.
    pub(crate) fn is_drained(&self) -> bool {
        self.at == self.end
    }

    pub(crate) fn into_rest(mut self) -> (Vec<u8>, R) {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.at);
        (self.buffer, self.bytes)
    }

    /// Checksum of all consumed bytes.
    pub(crate) fn checksum(&mut self) -> u64 {
        self.count();
        self.sum.value()
    }

    fn count(&mut self) {
        self.sum.update(&self.buffer[self.summed..self.at]);
        self.summed = self.at;
    }
}

impl<R: Read> Source<R> {
    /// Ensures that `count` bytes are in the buffer.
    #[inline]
    fn need(&mut self, count: usize) -> Result<(), Error> {
        if self.end - self.at >= count { Ok(()) } else { self.fill(count) }
    }

    /// Reads more bytes. The buffer grows with the received bytes, not with the requested number.
    #[cold]
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        self.drop_taken();
        while self.end < count {
            if self.buffer.len() == self.end {
                let more = self.end.clamp(PIECE_BYTES, count.max(PIECE_BYTES));
                self.buffer.resize(self.end + more, 0);
            }
            self.end += read_some(&mut self.bytes, &mut self.buffer[self.end..])
                .map_err(|flaw| Error { offset: self.passed + self.end as u64, flaw })?;
        }
        Ok(())
    }

    /// Moves the unread bytes to the front, and frees a buffer that grew for one large string.
    fn drop_taken(&mut self) {
        self.count();
        self.buffer.copy_within(self.at..self.end, 0);
        self.passed += self.at as u64;
        (self.end, self.at, self.summed) = (self.end - self.at, 0, 0);
        if self.buffer.len() > 4 * PIECE_BYTES && self.end <= PIECE_BYTES {
            self.buffer.truncate(PIECE_BYTES);
            self.buffer.shrink_to_fit();
        }
    }

    /// Consumes `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        self.need(count)?;
        let start = self.at;
        self.at += count;
        Ok(&self.buffer[start..start + count])
    }

    /// Consumes `count` bytes as an owned vector; long ones are read directly into it.
    fn take_owned(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        if count <= PIECE_BYTES {
            return self.take(count).map(<[u8]>::to_vec);
        }
        let there = count.min(self.end - self.at);
        let mut owned = self.take(there)?.to_vec();
        self.drop_taken();
        while owned.len() < count {
            let start = owned.len();
            owned.resize(count.min(start + start.max(PIECE_BYTES)), 0);
            let mut filled = start;
            while filled < owned.len() {
                filled += read_some(&mut self.bytes, &mut owned[filled..])
                    .map_err(|flaw| Error { offset: self.passed + (filled - start) as u64, flaw })?;
            }
            self.sum.update(&owned[start..]);
            self.passed += (owned.len() - start) as u64;
        }
        Ok(owned)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        self.need(1)?;
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// Reads the byte with the type of the next part. Errors refer to it until a string or length begins.
    #[inline]
    pub(crate) fn opcode(&mut self) -> Result<u8, Error> {
        self.begin();
        self.byte()
    }

    #[inline]
    pub(crate) fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Error> {
        let mut array = [0; BYTES];
        array.copy_from_slice(self.take(BYTES)?);
        Ok(array)
    }

    /// Reads a length, or another number that is usually small.
    pub(crate) fn length(&mut self) -> Result<u64, Error> {
        self.begin();
        let first = self.byte()?;
        self.length_after(first)
    }

    /// Reads the rest of a length that begins with this byte.
    #[inline]
    fn length_after(&mut self, first: u8) -> Result<u64, Error> {
        match first {
            0..head::LENGTH_14 => Ok(first.into()),
            head::LENGTH_14..head::LENGTH_32 => Ok(u64::from(first & 0x3F) << 8 | u64::from(self.byte()?)),
            head::LENGTH_32 => Ok(u32::from_be_bytes(self.array()?).into()),
            head::LENGTH_64 => Ok(u64::from_be_bytes(self.array()?)),
            _ => Err(self.damaged("a length")),
        }
    }

    /// Reads the rest of a number of bytes or elements that begins with this byte.
    fn size_after(&mut self, first: u8) -> Result<usize, Error> {
        let size = self.length_after(first)?;
        usize::try_from(size).ok().filter(|&size| size <= isize::MAX as usize).ok_or_else(|| self.damaged("a length"))
    }

    /// Reads a string.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Text<'_>, Error> {
        self.begin();
        let first = self.byte()?;
        match first {
            0..head::INT_8 => {
                let len = self.size_after(first)?;
                self.take(len).map(Item::Str)
            }
            head::LZF => self.unpack().map(Item::Str),
            _ => self.int(first).map(Item::Int),
        }
    }

    fn int(&mut self, first: u8) -> Result<i64, Error> {
        match first {
            head::INT_8 => Ok(i8::from_le_bytes(self.array()?).into()),
            head::INT_16 => Ok(i16::from_le_bytes(self.array()?).into()),
            head::INT_32 => Ok(i32::from_le_bytes(self.array()?).into()),
            _ => Err(self.damaged("a string")),
        }
    }

    fn unpack(&mut self) -> Result<&[u8], Error> {
        let mut unpacked = std::mem::take(&mut self.unpacked);
        // Frees memory that one large string used.
        if unpacked.capacity() > 4 * PIECE_BYTES {
            unpacked = Vec::new();
        }
        let mut size = || {
            let first = self.byte()?;
            self.size_after(first)
        };
        let (packed_len, len) = (size()?, size()?);
        let packed = self.take(packed_len)?;
        let whole = lzf::decompress(packed, len, &mut unpacked);
        self.unpacked = unpacked;
        if whole { Ok(&self.unpacked) } else { Err(self.damaged("a compressed string")) }
    }

    /// Reads a string into `buffer`, replacing its contents.
    #[inline]
    pub(crate) fn string_into(&mut self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        buffer.clear();
        self.string()?.write_to(buffer);
        Ok(())
    }

    /// Reads an owned string.
    pub(crate) fn string_owned(&mut self) -> Result<Vec<u8>, Error> {
        self.begin();
        let first = self.byte()?;
        match first {
            0..head::INT_8 => {
                let len = self.size_after(first)?;
                self.take_owned(len)
            }
            head::LZF => {
                self.unpack()?;
                Ok(std::mem::take(&mut self.unpacked))
            }
            _ => self.int(first).map(|int| Item::Int(int).to_vec()),
        }
    }

    /// True if the next string is long enough to be read directly into its destination.
    pub(crate) fn string_is_long(&mut self) -> Result<bool, Error> {
        self.need(1)?;
        Ok(matches!(self.buffer[self.at], head::LENGTH_32 | head::LENGTH_64))
    }
}

/// Reads at least one byte.
fn read_some(bytes: &mut impl Read, room: &mut [u8]) -> Result<usize, Flaw> {
    loop {
        match bytes.read(room) {
            Ok(0) => return Err(Flaw::Cut),
            Ok(count) => return Ok(count.min(room.len())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Flaw::Source(error)),
        }
    }
}
