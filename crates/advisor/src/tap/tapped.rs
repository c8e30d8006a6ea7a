//! A watched connection between a client and its server: takes the bytes of both directions, and returns trips.

use crate::client::Client;
use crate::connection::Connection;
use crate::tap::Tap;
use crate::trip::Trip;

/// A connection, watched between its client and its server.
pub struct Tapped {
    /// Identifies the connection; chosen by the caller.
    pub id: u64,
    /// The attributes that the client has sent so far.
    pub client: Client,
    /// The advisor's state of the connection.
    pub connection: Connection,
    tap: Tap,
}

impl Tapped {
    /// Returns a connection that was opened at `now_ns`, with the tap that reads its bytes.
    #[must_use]
    pub fn opened(id: u64, client: Client, now_ns: u64, tap: Tap) -> Tapped {
        Tapped { id, connection: Connection::opened(id, client.clone(), now_ns), client, tap }
    }

    /// True if no reply is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tap.is_idle()
    }

    /// Takes bytes from the client. Returns true if they change the client's attributes.
    pub fn request(&mut self, bytes: &[u8], now_ns: u64) -> bool {
        let Tapped { client, tap, .. } = self;
        let mut is_renamed = false;
        tap.request(bytes, now_ns, |args| is_renamed |= client.learn(args));
        if is_renamed {
            self.connection.set_client(self.client.clone());
        }
        is_renamed
    }

    /// Takes bytes from the server. Calls `seen` with each trip that they complete.
    pub fn reply(&mut self, bytes: &[u8], now_ns: u64, mut seen: impl FnMut(&mut Connection, &Trip<'_>)) {
        let Tapped { connection, tap, .. } = self;
        tap.reply(bytes, now_ns, |trip| seen(connection, trip));
    }
}
