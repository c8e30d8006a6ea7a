//! Connections of one client that take turns. Its threads take them from a pool, or its library spreads the commands of one thread over some
//! connections, as rueidis does.

use crate::connection::Connection;
use crate::round_trip::Gap;
use crate::trip::Trip;

/// Clients whose last connection is remembered.
const CLIENTS: usize = 64;
/// Number of a client's last commands, over all of its connections, that show one thread: each came a round trip after the reply to the one
/// before. The requests of several threads come at any time.
const ALONE_MIN: u32 = 12;
/// A shorter round trip cannot be told from the chance distance of two threads' requests.
const FAR_NS: u64 = 200_000;

/// The last command of a client.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    client: u64,
    connection: u64,
    replied_ns: u64,
    /// Number of commands in a row that came a round trip after the reply to the one before.
    alone: u32,
}

/// For each client, by its hash, its last command.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    last: [Turn; CLIENTS],
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { last: [Turn::default(); CLIENTS] }
    }
}

impl Turns {
    /// Notes a trip. Returns true if another connection of the same client has sent commands since the last one, and the gap: a pause of this
    /// connection is a round trip if one thread of the client used another connection meanwhile.
    #[inline]
    pub(super) fn take(&mut self, connection: &Connection, trip: &Trip<'_>, gap: Gap) -> (bool, Gap) {
        let last = &mut self.last[connection.client_hash as usize % CLIENTS];
        let is_known = last.client == connection.client_hash;
        let takes_turns = is_known && last.connection != connection.id;
        let since_ns = trip.arrived_ns.checked_sub(last.replied_ns).filter(|_| is_known && !trip.overlaps);
        let trip_ns = since_ns.filter(|since_ns| connection.round_trip.is_far_trip(*since_ns, FAR_NS));
        let alone = if trip_ns.is_some() { last.alone.saturating_add(1) } else { 0 };
        let (client, connection) = (connection.client_hash, connection.id);
        *last = Turn { client, connection, replied_ns: trip.replied_ns, alone };
        match trip_ns.filter(|_| takes_turns && alone >= ALONE_MIN) {
            Some(trip_ns) if matches!(gap, Gap::Pause(_)) => (takes_turns, Gap::RoundTrip(trip_ns)),
            _ => (takes_turns, gap),
        }
    }
}
