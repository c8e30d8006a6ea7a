//! Moves of whole slots between nodes: the source's side ([`Export`]), the target's side ([`Import`]), and the end of imports that this node
//! only followed ([`FollowedEnds`]). A source that is Redis speaks another dialect, which [`RedisSource`] translates for the import.
//!
//! Each is a machine without a clock, a connection and threads. The caller passes these to `step`, and calls it again once the condition
//! that it has returned ([`MoveWait`]) holds. Workers and the cluster's bus do a part of the work. `block` waits for their results.
//!
//! `slots::jobs` has the jobs. The order of the messages is in docs/cluster.md.

mod awaited;
mod ending;
mod export;
mod import;
mod records;
mod redis;

use std::io;
use std::time::Duration;

use cluster::view::NodeView;
use replication::backlog::Overflow;

pub use self::ending::{CleanUp, FollowedEnds, forget_followed};
pub use self::export::{Export, SlotWalk};
pub use self::import::{Import, LOST_SOURCE};
pub use self::redis::{Channel, Nodes as RedisNodes, RedisLink, RedisSource};

/// The condition for the next step of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveWait {
    /// None.
    Nothing,
    /// Bytes have arrived on the connection, or this time is over.
    Bytes(Duration),
    /// Bytes have arrived or can be sent, or this time is over.
    Room(Duration),
    /// This time is over.
    Time(Duration),
    /// The result of another thread is there: see `block`. The step may also come earlier.
    Thread,
    /// The machine has ended.
    Over,
}

/// The clocks of a machine.
pub trait MoveClock {
    /// The time since any fixed moment.
    fn now(&self) -> Duration;

    /// Unix time, in microseconds.
    fn unix_us(&self) -> u64;

    /// Unix time, in seconds.
    fn unix_s(&self) -> u64 {
        self.unix_us() / 1_000_000
    }
}

/// The surroundings of an export: the connection to the target, the disk, and the clocks. No call waits.
pub trait TargetLink: MoveClock {
    /// Begins to connect to a node.
    ///
    /// # Errors
    /// The address or the configuration is unusable.
    fn open(&mut self, node: &NodeView) -> Result<(), String>;

    /// Continues to connect. Returns true once the connection stands.
    ///
    /// # Errors
    /// There is no connection.
    fn connect(&mut self) -> io::Result<bool>;

    /// Appends the available bytes. Returns false if there are none.
    ///
    /// # Errors
    /// The connection is broken or closed.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool>;

    /// Writes as many bytes as the connection takes, and returns their number.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends bytes that were taken before, and that the connection still has.
    ///
    /// # Errors
    /// The connection is broken.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns the sent bytes that have not reached the target's system, as far as they are known.
    fn bytes_on_way(&self) -> u64;

    /// Closes the connection.
    fn close(&mut self);

    /// Creates a file for bytes that have not been sent. One export at a time uses a purpose.
    ///
    /// # Errors
    /// The file can't be created.
    fn make_overflow(&self, purpose: &str) -> io::Result<Box<dyn Overflow>>;
}

/// The surroundings of an import: the connection of the source, and the clocks. No call waits.
pub trait SourceLink: MoveClock {
    /// Appends the available bytes. Returns false if there are none.
    ///
    /// # Errors
    /// The connection is broken or closed.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool>;

    /// Writes as many bytes as the connection takes, and returns their number.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Closes the connection.
    fn close(&mut self);
}

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
