//! Connections of one client that take turns: its threads take them from a pool.

/// Clients whose last connection is remembered.
const CLIENTS: usize = 64;

/// For each client, by its hash, the connection of its last command.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    last: [(u64, u64); CLIENTS],
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { last: [(0, 0); CLIENTS] }
    }
}

impl Turns {
    /// Notes a command. Returns true if another connection of the same client has sent commands since the last one.
    #[inline]
    pub(super) fn take(&mut self, client: u64, connection: u64) -> bool {
        let last = std::mem::replace(&mut self.last[client as usize % CLIENTS], (client, connection));
        last.0 == client && last.1 != connection
    }
}
