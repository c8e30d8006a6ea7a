//! The time that a client with several connections has lost.
//!
//! Threads that wait at the same time wait once: an application's lost time is time by the clock on the wall. Sightings
//! of one connection follow each other, so they add up. A sighting of another connection counts only from the end of the
//! time that is already counted.

/// The end of the counted time of a client's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// The connection that was counted last, and the end of its time.
    connection: u64,
    until_ns: u64,
    /// The end of the time of all other connections.
    others_until_ns: u64,
}

impl Waits {
    /// Counts the time that a connection lost before `now_ns`. Returns the part in which no other connection lost time.
    pub fn add(&mut self, connection: u64, lost_ns: u64, now_ns: u64) -> u64 {
        if connection != self.connection {
            self.others_until_ns = self.others_until_ns.max(self.until_ns);
            (self.connection, self.until_ns) = (connection, 0);
        }
        self.until_ns = self.until_ns.max(now_ns);
        lost_ns.min(now_ns.saturating_sub(self.others_until_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time counted for sightings given as (connection, time lost, end of that time).
    fn counted(sightings: &[(u64, u64, u64)]) -> u64 {
        let mut waits = Waits::default();
        sightings.iter().map(|&(connection, lost_ns, now_ns)| waits.add(connection, lost_ns, now_ns)).sum()
    }

    #[test]
    fn a_connection_adds_up() {
        assert_eq!(counted(&[(1, 100, 100), (1, 50, 100), (1, 100, 300)]), 250);
    }

    #[test]
    fn connections_that_wait_at_the_same_time_count_once() {
        assert_eq!(counted(&[(1, 100, 100), (2, 100, 105), (3, 100, 110)]), 110);
        assert_eq!(counted(&[(1, 100, 100), (2, 100, 105), (1, 100, 200), (2, 100, 205)]), 205);
        assert_eq!(counted(&[(1, 100, 100), (2, 60, 100), (2, 40, 100)]), 100);
    }

    #[test]
    fn connections_one_after_the_other_add_up() {
        assert_eq!(counted(&[(1, 100, 100), (2, 100, 200), (3, 100, 300)]), 300);
    }
}
