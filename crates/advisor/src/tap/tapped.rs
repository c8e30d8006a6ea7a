//! A connection that is watched between its client and its server: both directions' bytes go in, trips come out.

use crate::client::Client;
use crate::connection::Connection;
use crate::tap::Tap;
use crate::trip::Trip;

/// One connection, seen from between its client and its server.
pub struct Tapped {
    /// Tells connections apart; chosen by the caller.
    pub id: u64,
    /// What the client has said of itself so far.
    pub client: Client,
    /// What the advisor keeps of the connection.
    pub connection: Connection,
    tap: Tap,
}

impl Tapped {
    /// A connection that was opened at `now_ns`, and what looks at its bytes.
    #[must_use]
    pub fn opened(id: u64, client: Client, now_ns: u64, tap: Tap) -> Tapped {
        Tapped { id, connection: Connection::opened(id, client.clone(), now_ns), client, tap }
    }

    /// True if the client has the replies to all that it has sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tap.is_idle()
    }

    /// The client has sent bytes. True if it has said something of itself in them.
    pub fn request(&mut self, bytes: &[u8], now_ns: u64) -> bool {
        let Tapped { client, tap, .. } = self;
        let mut is_renamed = false;
        tap.request(bytes, now_ns, |args| is_renamed |= client.learn(args));
        if is_renamed {
            self.connection.set_client(self.client.clone());
        }
        is_renamed
    }

    /// The server has sent bytes. `seen` is shown each trip that they complete.
    pub fn reply(&mut self, bytes: &[u8], now_ns: u64, mut seen: impl FnMut(&mut Connection, &Trip<'_>)) {
        let Tapped { connection, tap, .. } = self;
        tap.reply(bytes, now_ns, |trip| seen(connection, trip));
    }
}
