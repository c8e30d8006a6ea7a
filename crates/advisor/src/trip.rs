//! The input of the advisor: a trip, as seen by a server, a proxy or a log.

use resp::request::Args;

/// A request that follows the reply within this time was already on its way. A client on the same machine needs longer
/// to answer: two system calls and two wake-ups take at least 6 µs.
pub const TURNAROUND_NS: u64 = 5_000;

/// The beginning of a reply, in the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The first bytes, including the type; a few hundred are enough. Longer replies are compared by these bytes and
    /// their length.
    pub start: &'a [u8],
    /// Bytes of the whole reply.
    pub len: u64,
}

impl<'a> Reply<'a> {
    /// Returns a reply that is complete.
    #[must_use]
    pub fn whole(bytes: &'a [u8]) -> Reply<'a> {
        Reply { start: bytes, len: bytes.len() as u64 }
    }
}

/// A batch, its replies, and their times in nanoseconds since any fixed point.
#[derive(Clone, Copy)]
pub struct Trip<'a> {
    /// The batch's first command, or the command behind it if that is MULTI. The other commands are not examined.
    pub command: Args<'a>,
    /// Index of the command's first key among its arguments (0 is the name); 0 if it has none. None if the caller
    /// doesn't know: the advisor then uses its own table.
    pub key: Option<u8>,
    /// Number of commands in the batch.
    pub depth: u32,
    /// True if the client sent the batch before the previous replies: it did not wait.
    pub overlaps: bool,
    /// Time when the batch arrived.
    pub arrived_ns: u64,
    /// Time when its replies were sent. Equal to `arrived_ns` in a log that has only the times of commands.
    pub replied_ns: u64,
    /// The reply to the first command, if it is known.
    pub reply: Option<Reply<'a>>,
    /// Number of the batch's commands that the server redirected to another node of its cluster, because the node has their
    /// slot (MOVED).
    pub redirected: u32,
}

impl Reply<'_> {
    /// Returns the length of a text; 0 for other replies.
    pub(crate) fn text_len(&self) -> u64 {
        self.head(b'$').unwrap_or_default()
    }

    /// Returns the number of a reply that is one, unless it is negative.
    pub(crate) fn number(&self) -> Option<u64> {
        self.head(b':')
    }

    fn head(&self, kind: u8) -> Option<u64> {
        let rest = self.start.strip_prefix(&[kind])?;
        let end = rest.iter().position(|&byte| byte == b'\r')?;
        resp::num::parse_i64(&rest[..end])?.try_into().ok()
    }

    /// Returns 1 if this is the reply to a redirected command (MOVED), otherwise 0.
    #[must_use]
    pub fn redirected(&self) -> u32 {
        u32::from(self.start.starts_with(b"-MOVED "))
    }
}
