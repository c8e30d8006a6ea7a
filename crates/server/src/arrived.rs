//! What has been read from a connection and is still to be run.

use std::ops::Range;

use engine::execute::lookahead::Foreseen;

use crate::connection::Connection;

/// What a connection has sent. See the module's documentation.
pub struct Arrived {
    /// The connection's number.
    pub key: usize,
    /// The client's, since the connection may be closed meanwhile, and its number another's.
    pub client: u64,
    /// Where it is in the thread's buffer, with what was left before; else it is with the connection.
    pub part: Option<Range<usize>>,
    /// What has been asked for of its first key.
    pub foreseen: Option<Foreseen>,
}

impl Arrived {
    /// Whether it is this connection's.
    pub fn is_of(&self, connection: &Connection) -> bool {
        connection.session.client.id == self.client
    }
}
