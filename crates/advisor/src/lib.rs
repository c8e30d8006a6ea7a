//! The advisor: finds the round trips that a client makes and wouldn't have to, and says what to write instead.
//!
//! A *trip* is a batch of commands, its replies, and the time until the connection's next batch. A batch of one is where a
//! trip may be wasted. [`Advisor::trip`] looks at each: it reduces the command to a *shape* (command and key pattern,
//! `pattern`), compares it with the connection's last ones ([`connection`]), and adds what is wasted to a bounded table of
//! [`findings`]. [`advice`] is the code to write instead, [`report`] the text of a report, [`monitor`] reads the
//! output of MONITOR as trips without replies, and [`tap`] the bytes that pass between a client and a server as trips with them.
//!
//! This room knows no socket, no thread and no clock: frames and times are passed in. It keeps no argument of a user,
//! only hashes, key patterns, and a few sample keys, which [`Config::samples`] turns off.
//!
//! # How time is counted
//!
//! The gap before a trip is the time from the reply before it to its request, as this connection had it. The lowest gaps
//! of a connection are taken for its round trip; a gap of up to four times that looks like a round trip, and counts. A longer one is a
//! *pause*: the client did something else. A pause counts as no lost time and ends the *unit of work*: loops and
//! repeated reads are only looked for between two pauses. Where the lowest gap is itself long and nothing else tells what a round trip
//! takes ([`connection::Connection::set_round_trip`]), a slow network and a client that thinks before each command look
//! the same, and the confidence is low.

#![forbid(unsafe_code)]

pub mod advice;
mod advisor;
mod catalogue;
pub mod client;
pub mod connection;
pub mod findings;
mod hash;
mod loops;
pub mod monitor;
mod pattern;
mod polls;
mod reads;
mod recent;
pub mod report;
mod round_trip;
mod shapes;
pub mod tap;
pub mod trip;

#[cfg(test)]
mod tests;

pub use advisor::{Advisor, Config};
pub use connection::Connection;
pub use trip::{Reply, TURNAROUND_NS, Trip};
