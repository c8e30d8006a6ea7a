//! Framing of requests: finds every complete request of a buffer without copying arguments.
//!
//! A request is an array of bulk strings or an inline command, as described on Redis's "protocol spec" page. The limits
//! and the texts of protocol errors are Redis's.

mod blocks;
mod short;

pub use self::blocks::{BLOCK_BYTES_MIN, Blocks, Input, Missing};
pub use self::short::likely_key;
use self::short::{Head, SHORT_ARGS_MAX, SHORT_BYTES_MAX, short_bulk, short_requests};
use crate::splitargs::split_args;

/// Longest line with a count or an inline command, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Largest number of arguments before authentication.
const ARGS_MAX_UNAUTHENTICATED: i64 = 10;
/// Largest argument before authentication, in bytes.
const BULK_BYTES_MAX_UNAUTHENTICATED: i64 = 16 * 1024;
/// Length of an incomplete request from which framing keeps its progress. A shorter request is framed again when more
/// data has arrived, which is cheaper.
const REMEMBER_BYTES_MIN: usize = 4096;

/// Number of arguments from which the length of the next one isn't reported unless it is large. Reserving memory for
/// each argument would take longer than reserving for more data.
const WANTED_ARGS_MAX: usize = 16;

/// Largest buffer that can be framed, in bytes, since offsets have 32 bits. A caller that keeps incomplete requests
/// must close the connection before its buffer is larger.
pub const BUFFER_BYTES_MAX: usize = u32::MAX as usize;

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest argument in bytes (proto-max-bulk-len).
    pub bulk_bytes_max: i64,
    /// Largest number of arguments, including the name.
    pub args_max: i64,
    /// True if the client has not authenticated and gets much lower limits.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bulk_bytes_max: 512 * 1024 * 1024, args_max: i32::MAX as i64, unauthenticated: false }
    }
}

impl Limits {
    /// For requests that another server or a file has accepted already.
    pub const UNLIMITED: Limits =
        Limits { bulk_bytes_max: i64::MAX, args_max: i32::MAX as i64, unauthenticated: false };

    /// True if the limits allow every request that [`short_requests`] frames.
    #[inline]
    fn allow_short(&self) -> bool {
        self.bulk_bytes_max >= SHORT_BYTES_MAX && self.args_max >= SHORT_ARGS_MAX
    }
}

/// End of a length line and of an argument.
const LINE_END: &[u8] = b"\r\n";

/// Number of bytes of the line with the length of an array or of a bulk string.
#[inline]
fn head_bytes(len: u32) -> usize {
    let digits = match len {
        0..10 => 1,
        10..100 => 2,
        _ => 1 + len.ilog10() as usize,
    };
    1 + digits + LINE_END.len()
}

/// The position of an argument: in the buffer, or in a separate block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    start: u32,
    len: u32,
}

impl Arg {
    /// Start of all arguments in blocks. No buffer extends beyond it, so looking it up in the buffer fails.
    const BLOCK_START: u32 = u32::MAX;

    /// The argument in the block at `index`.
    fn in_block(index: usize) -> Arg {
        Arg { start: Arg::BLOCK_START, len: 1 + index as u32 }
    }

    /// Index of the argument's block, if it is in a block.
    fn block(self) -> Option<usize> {
        (self.start == Arg::BLOCK_START).then(|| self.len.wrapping_sub(1) as usize)
    }

    /// The argument's bytes.
    #[inline]
    fn of<'a>(self, buffer: &'a [u8], blocks: &'a Blocks) -> &'a [u8] {
        match buffer.get(self.start as usize..self.start as usize + self.len as usize) {
            Some(bytes) => bytes,
            None => blocks.get(self),
        }
    }

    /// The same argument, relative to a buffer that begins `by` bytes later.
    fn before(self, by: usize) -> Arg {
        if self.block().is_some() { self } else { Arg { start: self.start - by as u32, ..self } }
    }

    /// The same argument, relative to a buffer that begins `by` bytes earlier.
    fn behind(self, by: usize) -> Arg {
        if self.block().is_some() { self } else { Arg { start: self.start + by as u32, ..self } }
    }
}

/// A request's arguments, borrowed from the input. The first is the command's name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    args: &'a [Arg],
    blocks: &'a Blocks,
}

impl<'a> Args<'a> {
    /// Number of arguments, including the name.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a request always has a name")]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// The argument at `index`; the name is at 0. An out-of-range index yields an empty argument.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> &'a [u8] {
        match self.args.get(index) {
            Some(arg) => arg.of(self.buffer, self.blocks),
            None => b"",
        }
    }

    /// The arguments from `first` on.
    pub fn from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone + use<'a> {
        let Args { buffer, blocks, .. } = *self;
        self.args.get(first..).unwrap_or(&[]).iter().map(move |arg| arg.of(buffer, blocks))
    }

    /// The large arguments in separate blocks.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> &'a Blocks {
        self.blocks
    }

    /// The request's bytes as they arrived, if they are the canonical encoding of the arguments: an array of bulk
    /// strings. None for inline commands, for lengths in other spellings, and for arguments in blocks.
    ///
    /// Only a length comes between two arguments of an array, and a length with as many bytes as its canonical spelling
    /// is canonical. There is no `$` between two words of an inline command. The bytes before the first argument are
    /// compared exactly, because they could otherwise belong to an argument of the previous request.
    #[must_use]
    pub fn canonical(&self) -> Option<&'a [u8]> {
        let (first, last) = (self.args.first()?, self.args.last()?);
        for pair in self.args.windows(2) {
            let (arg, next) = (pair[0], pair[1]);
            let after = arg.start as usize + arg.len as usize + LINE_END.len();
            // An argument in a block has a start that no buffer reaches.
            if next.start as usize != after + head_bytes(next.len) || self.buffer.get(after) != Some(&b'$') {
                return None;
            }
        }
        let head = head_bytes(self.args.len() as u32) + head_bytes(first.len);
        let start = (first.start as usize).checked_sub(head)?;
        let request = self.buffer.get(start..last.start as usize + last.len as usize + LINE_END.len())?;
        let is_head = match (self.args.len(), first.len) {
            (count @ 0..10, len @ 0..10) => {
                request.starts_with(&[b'*', b'0' + count as u8, b'\r', b'\n', b'$', b'0' + len as u8, b'\r', b'\n'])
            }
            (count, len) => request.starts_with(format!("*{count}\r\n${len}\r\n").as_bytes()),
        };
        (is_head && request.ends_with(LINE_END)).then_some(request)
    }

    /// Copies the arguments so that they outlive the input. Shares the blocks.
    #[must_use]
    pub fn to_owned(&self) -> OwnedArgs {
        let mut buffer = Vec::new();
        let copy = |arg: &Arg| match arg.block() {
            Some(_) => *arg,
            None => append(&mut buffer, arg.of(self.buffer, self.blocks)),
        };
        let args = self.args.iter().map(copy).collect();
        OwnedArgs { buffer: buffer.into(), args, blocks: self.blocks.clone() }
    }
}

/// Appends a copy of an argument to a buffer.
fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Arg {
    let start = buffer.len() as u32;
    buffer.extend_from_slice(bytes);
    Arg { start, len: bytes.len() as u32 }
}

/// A request outside its buffer: queued by MULTI, or kept by a blocked command.
#[derive(Clone, Debug)]
pub struct OwnedArgs {
    buffer: Box<[u8]>,
    args: Box<[Arg]>,
    blocks: Blocks,
}

impl OwnedArgs {
    /// Copies arguments. Their total must not exceed 4 GB, which the limits of a request ensure.
    pub fn new<'b>(from: impl Iterator<Item = &'b [u8]>) -> OwnedArgs {
        let mut buffer = Vec::new();
        let args = from.map(|bytes| append(&mut buffer, bytes)).collect();
        OwnedArgs { buffer: buffer.into(), args, blocks: Blocks::default() }
    }

    /// The arguments.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args { buffer: &self.buffer, args: &self.args, blocks: &self.blocks }
    }

    /// Bytes of memory of the arguments.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buffer.len() + self.args.len() * size_of::<Arg>() + self.blocks.memory_bytes()
    }
}

/// Arguments that are collected one by one in reused memory.
#[derive(Debug, Default)]
pub struct ArgsBuffer {
    buffer: Vec<u8>,
    args: Vec<Arg>,
}

impl ArgsBuffer {
    /// Bytes of memory that are kept for reuse; the rest is freed.
    const KEPT_BYTES_MAX: usize = 64 * 1024;

    /// Removes all arguments.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.args.clear();
        if self.buffer.capacity() > Self::KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
    }

    /// Appends a copy of an argument. Returns false, without a change, if the total would exceed 4 GB.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let (Ok(start), Ok(len)) = (u32::try_from(self.buffer.len()), u32::try_from(bytes.len())) else { return false };
        self.buffer.extend_from_slice(bytes);
        self.args.push(Arg { start, len });
        true
    }

    /// The arguments.
    #[inline]
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args { buffer: &self.buffer, args: &self.args, blocks: Blocks::NONE }
    }
}

/// A framed request: its arguments within the batch, and its end in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    first: u32,
    count: u32,
    /// Offset of the first byte after the request.
    pub end: u32,
    /// True if the previous request of the batch has the same number of arguments and the same name, byte for byte. May
    /// be false even then.
    pub repeats: bool,
}

/// The requests framed so far. The memory is reused for later batches, so framing doesn't allocate.
#[derive(Default)]
pub struct Batch {
    args: Vec<Arg>,
    requests: Vec<Request>,
    /// The words of a quoted inline command, which is then the only request of the batch; otherwise empty.
    unquoted: Vec<u8>,
}

impl Batch {
    /// Number of arguments for which memory is kept for the next batch. A window of requests has far fewer, and a
    /// request of millions is rare.
    const KEPT_ARGS_MAX: usize = 64 * 1024;

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.args.clear();
        self.requests.clear();
        self.unquoted.clear();
    }

    /// Removes all requests and frees the memory of a request with very many arguments.
    pub fn shrink(&mut self) {
        self.clear();
        self.args.shrink_to(Self::KEPT_ARGS_MAX);
    }

    /// The requests.
    #[inline]
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The arguments of a request; `input` must be the framed input.
    #[inline]
    #[must_use]
    pub fn args<'a>(&'a self, request: &Request, input: Input<'a>) -> Args<'a> {
        let buffer = if self.unquoted.is_empty() { input.bytes } else { &self.unquoted };
        let args = &self.args[request.first as usize..][..request.count as usize];
        Args { buffer, args, blocks: input.blocks }
    }
}

/// Reason for the end of framing.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// All complete requests are framed; the remaining bytes, if any, are an incomplete request.
    Incomplete,
    /// The requested number of requests is framed; there may be more.
    Full,
    /// The next bytes are invalid. The connection must end after the earlier requests.
    Error(ProtocolError),
}

/// Kind of invalid bytes. Its text is Redis's, without the leading "-".
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum ProtocolError {
    /// An inline command longer than 64 KB.
    TooBigInline,
    /// An inline command whose quotes don't match.
    UnbalancedQuotes,
    /// A line with a number of arguments that is longer than 64 KB.
    TooBigCount,
    /// A number of arguments that is invalid or too large.
    InvalidCount,
    /// More arguments than allowed before authentication.
    UnauthenticatedCount,
    /// A length line longer than 64 KB.
    TooBigLength,
    /// An item other than a bulk string in a request.
    ExpectedBulk(u8),
    /// A length that is invalid, negative or too large.
    InvalidLength,
    /// A longer argument than allowed before authentication.
    UnauthenticatedLength,
}

impl ProtocolError {
    /// The error reply's text, without the leading "-".
    #[must_use]
    pub fn text(self) -> Vec<u8> {
        let text: &[u8] = match self {
            ProtocolError::TooBigInline => b"too big inline request",
            ProtocolError::UnbalancedQuotes => b"unbalanced quotes in request",
            ProtocolError::TooBigCount => b"too big mbulk count string",
            ProtocolError::InvalidCount => b"invalid multibulk length",
            ProtocolError::UnauthenticatedCount => b"unauthenticated multibulk length",
            ProtocolError::TooBigLength => b"too big bulk count string",
            ProtocolError::ExpectedBulk(got) => {
                return [b"ERR Protocol error: expected '$', got '", &[got][..], b"'"].concat();
            }
            ProtocolError::InvalidLength => b"invalid bulk length",
            ProtocolError::UnauthenticatedLength => b"unauthenticated bulk length",
        };
        [b"ERR Protocol error: ", text].concat()
    }
}

/// Progress of an incomplete request. A long request isn't framed again from its beginning after every read.
#[derive(Debug)]
pub struct Partial {
    /// Relative to the request's first byte.
    args: Vec<Arg>,
    left: usize,
    at: usize,
}

enum FramingStep {
    /// A request ends here. As in Redis, a request without arguments is skipped.
    Done(usize),
    /// A request ends here, and it must be alone in its batch.
    DoneAlone(usize),
    /// The request must be alone in its batch, but the batch has other requests.
    Wait,
    More,
}

/// Framing state of one connection: the progress of an incomplete request.
#[derive(Default, Debug)]
pub struct Framer {
    partial: Option<Box<Partial>>,
    missing: Option<Missing>,
}

impl Framer {
    /// Bytes of memory for the positions of an incomplete request's arguments.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.args.capacity() * size_of::<Arg>())
    }

    /// The incomplete large argument at which framing stopped, if there is one.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        self.missing.filter(|missing| missing.is_large())
    }

    /// Number of bytes of the incomplete request up to the end of its incomplete argument, if that is known and the
    /// argument isn't [`Framer::missing`].
    #[must_use]
    pub fn wanted(&self) -> Option<usize> {
        self.missing.filter(|missing| !missing.is_large()).map(|missing| missing.at + missing.bytes)
    }

    /// Stores the incomplete argument at which framing stops. `args` is the number of complete arguments before it.
    fn note_missing(&mut self, missing: Option<Missing>, args: usize) {
        self.missing = missing.filter(|missing| missing.is_large() || args < WANTED_ARGS_MAX);
    }

    /// Frames requests from `input.bytes[from..]` into `batch`, until it holds `requests_max`. Returns the position of
    /// the first byte that isn't part of a framed request. The caller keeps the bytes from there on, and passes them
    /// again at the beginning of a buffer when more data has arrived.
    // Not inlined, because sharing registers with the caller's loop would slow down both.
    #[inline(never)]
    pub fn frame(
        &mut self,
        input: Input<'_>,
        from: usize,
        limits: &Limits,
        requests_max: usize,
        batch: &mut Batch,
    ) -> (usize, Stop) {
        // The limit on query buffers is lower; this check is the last defence.
        let buffer = &input.bytes[..input.bytes.len().min(BUFFER_BYTES_MAX)];
        let input = Input { bytes: buffer, ..input };
        self.missing = None;
        let mut at = from;
        // Head of the last request.
        let mut head = Head::NONE;
        while batch.requests.len() < requests_max {
            if limits.allow_short() && self.partial.is_none() {
                at = short_requests(buffer, at, requests_max, &mut head, batch);
                if batch.requests.len() >= requests_max {
                    break;
                }
            }
            let Some(&first) = buffer.get(at) else { return (at, Stop::Incomplete) };
            let first_arg = batch.args.len();
            let step = if first == b'*' { self.array(input, at, limits, batch) } else { inline(buffer, at, batch) };
            let (next, alone) = match step {
                Ok(FramingStep::Done(next)) => (next, false),
                Ok(FramingStep::DoneAlone(next)) => (next, true),
                Ok(stopped) => {
                    batch.args.truncate(first_arg);
                    return (at, if matches!(stopped, FramingStep::Wait) { Stop::Full } else { Stop::Incomplete });
                }
                Err(error) => {
                    batch.args.truncate(first_arg);
                    return (at, Stop::Error(error));
                }
            };
            if let [name, more @ ..] = &batch.args[first_arg..] {
                let (count, repeats) = (1 + more.len() as u32, head.is_at(buffer, at));
                if !repeats {
                    head = if first == b'*' { Head::of(buffer, at, *name, count) } else { Head::NONE };
                }
                batch.requests.push(Request { first: first_arg as u32, count, end: next as u32, repeats });
            }
            at = next;
            if alone {
                break;
            }
        }
        (at, Stop::Full)
    }

    /// Drops the progress of an incomplete request, which will be framed from its beginning. Must be called before
    /// framing continues at another position.
    pub fn forget(&mut self) {
        self.partial = None;
    }

    /// Frames an array at `start`. It may be long, have long arguments, be incomplete or be invalid.
    fn array(
        &mut self,
        input: Input<'_>,
        start: usize,
        limits: &Limits,
        batch: &mut Batch,
    ) -> Result<FramingStep, ProtocolError> {
        if self.partial.is_some() {
            return self.resume(input, start, limits, batch);
        }
        let buffer = input.bytes;
        let args = &mut batch.args;
        let first = args.len();
        let Some((count, mut at)) = number(buffer, start + 1, ProtocolError::TooBigCount)? else {
            return Ok(FramingStep::More);
        };
        let mut left = check_count(count, limits)?;
        while left > 0 {
            if limits.allow_short()
                && let Some((arg, next)) = short_bulk(buffer, at)
            {
                args.push(arg);
                (at, left) = (next, left - 1);
                continue;
            }
            match bulk(input, at, limits)? {
                Bulk::Whole(arg, next) => {
                    args.push(arg);
                    (at, left) = (next, left - 1);
                }
                Bulk::Part(missing) => {
                    let whole = args.len() - first;
                    self.note_missing(missing.map(|missing| missing.behind(start)), whole);
                    let args = &batch.args;
                    if at - start >= REMEMBER_BYTES_MIN {
                        let args = args[first..].iter().map(|arg| arg.before(start)).collect();
                        self.partial = Some(Box::new(Partial { args, left, at: at - start }));
                    }
                    return Ok(FramingStep::More);
                }
            }
        }
        Ok(FramingStep::Done(at))
    }

    /// Continues an array that was partly framed earlier. Only new bytes are read: a client that sends a long request
    /// in small pieces must not cause work proportional to its length for each piece.
    #[cold]
    fn resume(
        &mut self,
        input: Input<'_>,
        start: usize,
        limits: &Limits,
        batch: &mut Batch,
    ) -> Result<FramingStep, ProtocolError> {
        let Some(mut partial) = self.partial.take() else { return Ok(FramingStep::More) };
        while partial.left > 0 {
            match bulk(input, start + partial.at, limits)? {
                Bulk::Whole(arg, next) => {
                    partial.args.push(arg.before(start));
                    (partial.at, partial.left) = (next - start, partial.left - 1);
                }
                Bulk::Part(missing) => {
                    self.note_missing(missing.map(|missing| missing.behind(start)), partial.args.len());
                    self.partial = Some(partial);
                    return Ok(FramingStep::More);
                }
            }
        }
        if start == 0 && batch.args.is_empty() {
            // Moved instead of copied, since there may be millions.
            batch.args = std::mem::take(&mut partial.args);
        } else {
            batch.args.extend(partial.args.iter().map(|arg| arg.behind(start)));
        }
        Ok(FramingStep::Done(start + partial.at))
    }
}

fn check_count(count: Option<i64>, limits: &Limits) -> Result<usize, ProtocolError> {
    let count = count.filter(|&c| c <= limits.args_max).ok_or(ProtocolError::InvalidCount)?;
    if limits.unauthenticated && count > ARGS_MAX_UNAUTHENTICATED {
        return Err(ProtocolError::UnauthenticatedCount);
    }
    Ok(count.max(0) as usize)
}

/// Result of framing one argument.
enum Bulk {
    /// The complete argument, and its end.
    Whole(Arg, usize),
    /// An incomplete argument, with the missing part if its length is known.
    Part(Option<Missing>),
}

/// Frames one argument at `at`.
fn bulk(input: Input<'_>, at: usize, limits: &Limits) -> Result<Bulk, ProtocolError> {
    let buffer = input.bytes;
    let Some(&kind) = buffer.get(at) else { return Ok(Bulk::Part(None)) };
    if kind != b'$' {
        // Redis checks the type only after the line is complete.
        return match number(buffer, at, ProtocolError::TooBigLength)? {
            Some(_) => Err(ProtocolError::ExpectedBulk(kind)),
            None => Ok(Bulk::Part(None)),
        };
    }
    let Some((len, start)) = number(buffer, at + 1, ProtocolError::TooBigLength)? else { return Ok(Bulk::Part(None)) };
    let len = len.filter(|l| (0..=limits.bulk_bytes_max).contains(l)).ok_or(ProtocolError::InvalidLength)?;
    if limits.unauthenticated && len > BULK_BYTES_MAX_UNAUTHENTICATED {
        return Err(ProtocolError::UnauthenticatedLength);
    }
    let bytes = len as usize + b"\r\n".len();
    if len as usize >= BLOCK_BYTES_MIN
        && let Some(arg) = input.blocks.find(start)
    {
        return Ok(Bulk::Whole(arg, start));
    }
    let next = start + bytes;
    if next > buffer.len() {
        return Ok(Bulk::Part(Some(Missing { at: start, bytes })));
    }
    Ok(Bulk::Whole(Arg { start: start as u32, len: len as u32 }, next))
}

/// Parses the number on the line at `at`. Returns the number, or none if it is invalid, with the start of the next
/// line; none if the line is incomplete.
#[inline]
fn number(buffer: &[u8], at: usize, too_long: ProtocolError) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    // Nearly all numbers have a few digits.
    let mut value = 0;
    for (i, &byte) in buffer[at.min(buffer.len())..].iter().take(9).enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + i64::from(byte - b'0'),
            b'\r' if i > 0 && (buffer[at] != b'0' || i == 1) => {
                return Ok(if at + i + 1 < buffer.len() { Some((Some(value), at + i + 2)) } else { None });
            }
            _ => break,
        }
    }
    any_number(buffer, at, too_long)
}

#[cold]
fn any_number(
    buffer: &[u8],
    at: usize,
    too_long: ProtocolError,
) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let line = &buffer[at.min(buffer.len())..];
    let Some(len) = line_len(line, b'\r') else {
        return if line.len() > LINE_BYTES_MAX { Err(too_long) } else { Ok(None) };
    };
    if len + 1 >= line.len() {
        return Ok(None);
    }
    Ok(Some((crate::num::parse_i64(&line[..len]), at + len + 2)))
}

/// Number of bytes of a line before its `end`. The search stops at the limit, so that an overlong line is detected for
/// pieces of any size.
fn line_len(line: &[u8], end: u8) -> Option<usize> {
    line.iter().take(LINE_BYTES_MAX + 1).position(|&b| b == end)
}

/// Frames an inline command at `start`. Quoted words can't be borrowed from the buffer, so such a command is alone in
/// its batch, which stores the words.
fn inline(buffer: &[u8], start: usize, batch: &mut Batch) -> Result<FramingStep, ProtocolError> {
    let Some(len) = inline_len(&buffer[start..]) else {
        let too_long = buffer.len() - start > LINE_BYTES_MAX;
        return if too_long { Err(ProtocolError::TooBigInline) } else { Ok(FramingStep::More) };
    };
    let line = &buffer[start..start + len];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let next = start + len + 1;
    if !line.iter().any(|b| matches!(b, b'"' | b'\'')) {
        let base = line.as_ptr().addr();
        let words = line.split(|b| is_space(*b)).filter(|w| !w.is_empty());
        batch.args.extend(words.map(|w| Arg { start: (start + w.as_ptr().addr() - base) as u32, len: w.len() as u32 }));
        return Ok(FramingStep::Done(next));
    }
    if !batch.requests.is_empty() {
        return Ok(FramingStep::Wait);
    }
    for word in split_args(line).map_err(|_| ProtocolError::UnbalancedQuotes)? {
        batch.args.push(Arg { start: batch.unquoted.len() as u32, len: word.len() as u32 });
        batch.unquoted.extend_from_slice(&word);
    }
    Ok(FramingStep::DoneAlone(next))
}

/// Bytes of an inline command before its line's end. A line with a NUL has none, as in Redis, which looks for it with
/// `strchr`: the request stays incomplete until it is too long.
fn inline_len(line: &[u8]) -> Option<usize> {
    line_len(line, b'\n').filter(|&len| !line[..len].contains(&0))
}

/// True for the bytes that C's isspace accepts.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(input: &[u8], limits: &Limits) -> (Vec<Vec<String>>, usize, Stop) {
        let (mut all, mut at) = (Vec::new(), 0);
        let mut framer = Framer::default();
        loop {
            let mut batch = Batch::default();
            let (next, stop) = framer.frame(input.into(), at, limits, 3, &mut batch);
            for request in batch.requests() {
                let args = batch.args(request, input.into());
                all.push(args.from(0).map(|a| String::from_utf8_lossy(a).into_owned()).collect());
            }
            if stop != Stop::Full {
                return (all, next, stop);
            }
            at = next;
        }
    }

    fn check(input: &str, requests: &[&[&str]], rest: &str, stop: Stop) {
        let (all, at, got) = frame(input.as_bytes(), &Limits::default());
        assert_eq!(all, requests, "{input:?}");
        assert_eq!((&input[at..], got), (rest, stop), "{input:?}");
    }

    /// Returns the bytes of each canonical request, with `|` in place of each line end.
    fn canonical(input: &[u8]) -> Vec<Option<String>> {
        let mut batch = Batch::default();
        Framer::default().frame(input.into(), 0, &Limits::default(), 10, &mut batch);
        let written = batch.requests().iter().map(|request| batch.args(request, input.into()).canonical());
        written.map(|bytes| bytes.map(|bytes| String::from_utf8_lossy(bytes).replace("\r\n", "|"))).collect()
    }

    #[test]
    fn only_canonical_requests_are_returned_as_they_arrived() {
        let set = "*3|$3|SET|$12|abcdefghijkl|$0||".to_owned();
        let twice = set.replace('|', "\r\n").repeat(2);
        assert_eq!(canonical(twice.as_bytes()), [Some(set.clone()), Some(set)]);
        assert_eq!(canonical(b"SET a b\r\n"), [None]);
        assert_eq!(canonical(b"*2\r\n$3\r\nGET\r\n$+3\r\nabc\r\n"), []);
        // An inline command after an argument that looks like a request's beginning.
        let forged = b"*2\r\n$4\r\nECHO\r\n$7\r\nx*3\r\n$3\r\nSET      a      b\r\n";
        assert_eq!(canonical(forged), [Some("*2|$4|ECHO|$7|x*3|$3|".to_owned()), None]);
        let many = format!("*12\r\n{}", "$1\r\nx\r\n".repeat(12));
        assert_eq!(canonical(many.as_bytes()), [Some(many.replace("\r\n", "|"))]);
    }

    #[test]
    fn frames_complete_requests() {
        check("", &[], "", Stop::Incomplete);
        check("*1\r\n$4\r\nPING\r\n", &[&["PING"]], "", Stop::Incomplete);
        check("*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPI", &[&["GET", ""]], "*1\r\n$4\r\nPI", Stop::Incomplete);
        check("*0\r\n*-1\r\n\r\nPING\r\n", &[&["PING"]], "", Stop::Incomplete);
        check("PING\r\nPING\nset a  b\r\nGET", &[&["PING"], &["PING"], &["set", "a", "b"]], "GET", Stop::Incomplete);
        check("set a \"b c\"\r\nget 'a'\r\n", &[&["set", "a", "b c"], &["get", "a"]], "", Stop::Incomplete);
        check("*1\r\n$04\r\nPING\r\n", &[], "*1\r\n$04\r\nPING\r\n", Stop::Error(ProtocolError::InvalidLength));
    }

    #[test]
    fn a_line_with_a_nul_has_no_end() {
        for line in ["SET a b\0c\r\nGET a\r\n", "\0PING\r\n", "GET \"a\0b\"\r\nPING\r\n", "PING\0\n"] {
            check(line, &[], line, Stop::Incomplete);
            check(&format!("PING\r\n{line}"), &[&["PING"]], line, Stop::Incomplete);
        }
        let long = format!("PING\0\r\n{}", "x".repeat(LINE_BYTES_MAX));
        check(&long, &[], &long, Stop::Error(ProtocolError::TooBigInline));
    }

    #[test]
    fn refuses_invalid_bytes() {
        for (input, error) in [
            ("*2147483648\r\n", ProtocolError::InvalidCount),
            ("*x\r\n", ProtocolError::InvalidCount),
            ("*1\r\n:1\r\n", ProtocolError::ExpectedBulk(b':')),
            ("*1\r\n$-2\r\n", ProtocolError::InvalidLength),
            ("*1\r\n$536870913\r\n", ProtocolError::InvalidLength),
            ("get \"a\r\n", ProtocolError::UnbalancedQuotes),
        ] {
            check(input, &[], input, Stop::Error(error));
        }
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        for end in ["", "\r\n"] {
            let long = format!("{long}{end}");
            check(&long, &[], &long, Stop::Error(ProtocolError::TooBigInline));
            let long = format!("*{long}");
            check(&long, &[], &long, Stop::Error(ProtocolError::TooBigCount));
        }
    }

    #[test]
    fn allows_little_before_authentication() {
        let limits = Limits { unauthenticated: true, ..Limits::default() };
        for (input, error) in [
            ("*11\r\n", ProtocolError::UnauthenticatedCount),
            ("*1\r\n$16385\r\n", ProtocolError::UnauthenticatedLength),
        ] {
            assert_eq!(frame(input.as_bytes(), &limits).2, Stop::Error(error));
        }
    }

    #[test]
    fn an_incomplete_request_is_not_framed_again() {
        let mut input = b"*1000\r\n".to_vec();
        (0..900).for_each(|_| input.extend(b"$1\r\nx\r\n"));
        let mut framer = Framer::default();
        framer.frame(input[..].into(), 0, &Limits::default(), 10, &mut Batch::default());
        for known in 900..903 {
            let mut batch = Batch::default();
            framer.frame(input[..].into(), 0, &Limits::default(), 10, &mut batch);
            // The progress stays in place: moving it out and back would cost its length each time.
            assert_eq!(batch.args.capacity(), 0);
            assert_eq!(framer.partial.as_ref().map(|p| p.args.len()), Some(known));
            input.extend(b"$1\r\nx\r\n");
        }
    }

    #[test]
    fn an_incomplete_large_argument_is_reported_with_position_and_length() {
        let limits = Limits { bulk_bytes_max: 100_000, ..Limits::default() };
        for (begin, missing) in [
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n", Some((29, 100_002))),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32768\r\nabc", Some((28, 32770))),
            ("PING\r\n*2\r\n$3\r\nGET\r\n$32768\r\nabc", Some((21, 32770))),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32767\r\n", None),
            ("*3\r\n$3\r\nSET\r\n$10", None),
            ("*3\r\n$3\r\nSET\r\n", None),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100001\r\n", None),
            ("*1\r\n$4\r\nPING\r\n", None),
            ("", None),
        ] {
            let mut framer = Framer::default();
            framer.frame(begin.as_bytes().into(), 0, &limits, 10, &mut Batch::default());
            assert_eq!(framer.missing().map(|missing| (missing.at, missing.bytes)), missing, "{begin}");
        }
    }

    #[test]
    fn an_incomplete_request_reports_its_minimum_length() {
        let small = "$1\r\nx\r\n";
        for (begin, wanted) in [
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n".to_owned(), Some(1029)),
            ("PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\nabc".to_owned(), Some(1029)),
            ("*3\r\n$3\r\nSET\r\n$10".to_owned(), None),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32768\r\n".to_owned(), None),
            (format!("*30\r\n{}$1000\r\n", small.repeat(15)), Some(5 + 15 * 7 + 7 + 1002)),
            (format!("*30\r\n{}$1000\r\n", small.repeat(16)), None),
        ] {
            let mut framer = Framer::default();
            framer.frame(begin.as_bytes().into(), 0, &Limits::default(), 10, &mut Batch::default());
            assert_eq!(framer.wanted(), wanted, "{begin}");
        }
    }

    /// Frames a request that arrives in pieces of this size, cutting out its large arguments.
    fn frame_apart(args: &[Vec<u8>], piece_bytes: usize) -> (OwnedArgs, Vec<u8>) {
        let bulks = args.iter().map(|arg| [format!("${}\r\n", arg.len()).as_bytes(), arg, b"\r\n"].concat());
        let stream = [format!("*{}\r\n", args.len()).into_bytes(), bulks.collect::<Vec<_>>().concat()].concat();
        let (mut framer, mut bytes, mut blocks) = (Framer::default(), Vec::new(), Blocks::default());
        let (mut batch, mut left) = (Batch::default(), &stream[..]);
        loop {
            batch.clear();
            let input = Input { bytes: &bytes, blocks: &blocks };
            if framer.frame(input, 0, &Limits::default(), 10, &mut batch) == (bytes.len(), Stop::Incomplete)
                && left.is_empty()
            {
                return (batch.args(&batch.requests()[0], input).to_owned(), bytes);
            }
            if let Some(missing) = framer.missing() {
                let mut block = bytes.split_off(missing.at);
                let (more, rest) = left.split_at(missing.bytes - block.len());
                block.extend_from_slice(more);
                blocks.push(missing.at, block);
                left = rest;
            }
            let (more, rest) = left.split_at(piece_bytes.min(left.len()));
            bytes.extend_from_slice(more);
            left = rest;
        }
    }

    #[test]
    fn large_arguments_are_the_same_in_separate_blocks() {
        let large = |byte: u8, more: usize| vec![byte; BLOCK_BYTES_MIN + more];
        for args in [
            vec![b"SET".to_vec(), b"k".to_vec(), large(b'x', 0)],
            vec![
                b"MSET".to_vec(),
                b"k".to_vec(),
                large(b'x', 7),
                b"l".to_vec(),
                large(b'y', 7),
                b"m".to_vec(),
                large(b'x', 9),
            ],
            vec![large(b'x', 0), large(b'y', 0), b"end".to_vec()],
            // So many that framing must be resumed.
            [vec![b"DEL".to_vec(); 2000], vec![large(b'x', 1)], vec![b"k".to_vec(); 2000], vec![large(b'y', 1)]]
                .concat(),
        ] {
            for piece_bytes in [1, 7, 1000, 40_000] {
                if args.len() > 100 && piece_bytes < 1000 {
                    continue;
                }
                let (owned, bytes) = frame_apart(&args, piece_bytes);
                let got: Vec<_> = owned.args().from(0).map(<[u8]>::to_vec).collect();
                assert!(got == args, "{piece_bytes}");
                assert!((0..args.len()).all(|i| owned.args().get(i) == args[i]));
                // In pieces of at least that size, an argument may arrive whole.
                assert!(piece_bytes > 1000 || (bytes.len() < 50_000 && owned.buffer.len() < 50_000));
                assert!(owned.memory_bytes() > args.iter().map(Vec::len).sum());
            }
        }
    }

    #[test]
    fn blocks_belong_only_to_the_first_request() {
        let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32768\r\n";
        let mut blocks = Blocks::default();
        blocks.push(head.len(), vec![b'x'; BLOCK_BYTES_MIN + 2]);
        let bytes = [&head[..], head, &vec![b'y'; BLOCK_BYTES_MIN], b"\r\nPING\r\n"].concat();
        let input = Input { bytes: &bytes, blocks: &blocks };
        let mut batch = Batch::default();
        Framer::default().frame(input, 0, &Limits::default(), 10, &mut batch);
        let ends: Vec<_> = batch.requests().iter().map(|request| request.end as usize).collect();
        assert_eq!(ends, [head.len(), bytes.len() - 6, bytes.len()]);
        for (request, byte) in batch.requests().iter().zip(*b"xy") {
            assert!(batch.args(request, input).get(2) == vec![byte; BLOCK_BYTES_MIN]);
        }
    }

    #[test]
    fn a_long_request_is_resumed_after_pieces_of_any_size() {
        let mut input = b"*400\r\n".to_vec();
        (0..400).for_each(|i| input.extend(format!("$12\r\nargument{i:04}\r\n").bytes()));
        let mut framer = Framer::default();
        let mut batch = Batch::default();
        for end in (0..input.len()).step_by(7) {
            let (at, stop) = framer.frame(input[..end].into(), 0, &Limits::default(), 10, &mut batch);
            assert_eq!((at, stop, batch.requests().len()), (0, Stop::Incomplete, 0));
        }
        let (at, _) = framer.frame(input[..].into(), 0, &Limits::default(), 10, &mut batch);
        assert_eq!(at, input.len());
        let args = batch.args(&batch.requests()[0], input[..].into());
        assert!(args.from(0).enumerate().all(|(i, a)| a == format!("argument{i:04}").as_bytes()));
    }
}
