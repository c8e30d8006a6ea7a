//! What is passed in: a trip, as a server, a proxy or a log saw it.

use resp::request::Args;

/// A request that comes so soon after the reply was handed on was on its way before, in nanoseconds. A client on the same machine takes longer to
/// answer: two system calls and two wake-ups, which were never less than 6 µs.
pub const TURNAROUND_NS: u64 = 5_000;

/// A reply's beginning, as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Its first bytes in the protocol, from its type on; a few hundred are enough. Longer replies are known by these
    /// and by their length.
    pub start: &'a [u8],
    /// Bytes of the whole reply.
    pub len: u64,
}

impl<'a> Reply<'a> {
    /// A reply that is here as a whole.
    #[must_use]
    pub fn whole(bytes: &'a [u8]) -> Reply<'a> {
        Reply { start: bytes, len: bytes.len() as u64 }
    }
}

/// A batch, its replies, and when they were. Times are nanoseconds from any one point.
#[derive(Clone, Copy)]
pub struct Trip<'a> {
    /// The batch's first command. Of a batch of several, nothing else is looked at.
    pub command: Args<'a>,
    /// Index of the command's first key among its arguments, the name being 0; 0: it has none. None: the caller doesn't know, and
    /// the advisor goes by its own table.
    pub key: Option<u8>,
    /// Commands of the batch.
    pub depth: u32,
    /// True if the batch was sent before the replies to the one before: nothing was waited for.
    pub overlaps: bool,
    /// When the batch arrived.
    pub arrived_ns: u64,
    /// When its replies were sent. In a log that tells only when commands ran, the same as `arrived_ns`.
    pub replied_ns: u64,
    /// The reply to the first command, if it is known.
    pub reply: Option<Reply<'a>>,
}
