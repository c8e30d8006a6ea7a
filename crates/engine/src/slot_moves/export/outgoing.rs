//! Bytes on their way to the target: in memory, and on disk beyond a limit.

use std::io;

use replication::backlog::Backlog;

use crate::slot_moves::TargetLink;

/// Whole commands that are sent in order.
pub struct Outgoing {
    backlog: Backlog,
    /// The offset of the first byte that has not been sent.
    sent: u64,
    /// The name of the overflow file.
    purpose: &'static str,
    scratch: Vec<u8>,
}

impl Outgoing {
    pub fn new(purpose: &'static str) -> Outgoing {
        Outgoing { backlog: Backlog::begin(0), sent: 0, purpose, scratch: Vec::new() }
    }

    /// The number of bytes that have not been sent.
    pub fn unsent(&self) -> u64 {
        self.backlog.end() - self.sent
    }

    /// The number of bytes that have been sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The memory of the bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.backlog.memory_bytes()
    }

    /// Adds a message.
    pub fn push(&mut self, message: &[u8]) {
        self.backlog.append(message);
    }

    /// Adds whole commands, and moves the oldest bytes beyond `memory_max` to disk.
    ///
    /// # Errors
    /// The disk takes no more.
    pub fn append(&mut self, link: &dyn TargetLink, bytes: &[u8], memory_max: u64) -> io::Result<()> {
        self.backlog.append(bytes);
        self.backlog.spill(memory_max, || link.make_overflow(self.purpose))
    }

    /// Sends some bytes. Returns false if there are none, or the socket takes none now.
    ///
    /// # Errors
    /// The connection is broken, or the overflow can't be read.
    pub fn send(&mut self, link: &mut dyn TargetLink) -> io::Result<bool> {
        let sent = match self.backlog.piece(self.sent, &mut self.scratch)? {
            None | Some([]) => return Ok(false),
            Some(piece) => link.write(piece)?,
        };
        self.sent += sent as u64;
        self.backlog.trim(0, self.sent);
        Ok(sent > 0)
    }
}
