//! The advisor finds the round trips that a client could save, and shows the code to write instead.
//!
//! A *trip* is a batch of commands, its replies, and the time until the connection's next batch. Only a batch of one
//! command can waste a trip. [`Advisor::trip`] looks at each trip: it reduces the command to a *shape* (command and key
//! pattern, `pattern`), compares it with the connection's last ones ([`connection`]), and adds the waste to a bounded
//! table of [`findings`]. [`advice`] writes the better code and [`report`] the text of a report. [`monitor`] reads the
//! output of MONITOR as trips without replies; [`tap`] reads the bytes between a client and a server as trips with
//! replies.
//!
//! The crate knows no socket, no thread and no clock: callers pass in frames and times. It keeps no argument of a user,
//! only hashes, key patterns, and a few sample keys, which [`Config::samples`] turns off.
//!
//! # How time is counted
//!
//! The gap before a trip is the time from the previous reply to the request, as seen on this connection. The
//! network's part of it is measured, and the rest is the client's time (see `round_trip`). A gap with a short client time
//! looks like a round trip, and counts. A longer gap is a *pause*: the client did something else. A pause counts as no
//! lost time and ends the *unit of work*: loops and repeated reads are only looked for between two pauses. If even the lowest gap is long and
//! no other measurement exists ([`connection::Connection::set_round_trip`]), a slow network cannot be told from a
//! client that thinks before each command, and the confidence is low.
//!
//! # Certainty
//!
//! The confidence in a loop is high only if its commands cannot depend on its replies: see `evidence`.

#![forbid(unsafe_code)]

pub mod advice;
mod advisor;
mod batches;
mod binary;
mod catalogue;
pub mod client;
pub mod connection;
mod dates;
mod digest;
mod evidence;
pub mod findings;
mod hash;
mod loops;
pub mod machine_load;
pub mod monitor;
mod pattern;
mod polls;
mod reads;
mod recent;
pub mod report;
mod round_trip;
mod shapes;
mod shifts;
pub mod tap;
pub mod trip;
pub mod waits;

#[cfg(test)]
mod tests;

pub use advisor::{Advisor, Config};
pub use connection::Connection;
pub use trip::{Reply, TURNAROUND_NS, Trip};
