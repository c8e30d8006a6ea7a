//! Input read from a connection that has not run.

use std::ops::Range;

use engine::execute::lookahead::PrefetchedKey;

use crate::connection::Connection;

/// A connection's unrun input.
pub struct PendingInput {
    /// The connection's key.
    pub key: usize,
    /// The client's id. The connection may be closed meanwhile, and its key reused.
    pub client: u64,
    /// Its range in the thread's buffer, including the rest from before. `None` if it is in the connection's own input.
    pub part: Option<Range<usize>>,
    /// The result of prefetching its first key.
    pub prefetched: Option<PrefetchedKey>,
}

impl PendingInput {
    /// Returns true if the input belongs to this connection.
    pub fn is_of(&self, connection: &Connection) -> bool {
        connection.session.client.id == self.client
    }
}
