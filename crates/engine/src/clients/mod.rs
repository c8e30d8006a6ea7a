//! What a connection is: what all threads see of it (`client.rs`) and its line in CLIENT LIST (`line.rs`), its state
//! that only its own thread has (`session.rs`), what tells its round trips (`trips.rs`), what its commands leave its batch with (`step.rs`), what other threads tell it (`summons.rs`), the blocking
//! command that it waits in (`blocking.rs`), what it counts under a pipeline token (`counting.rs`), and what it takes
//! of memory (`client_memory.rs`).
//!
//! The room knows no threads and no keyspace: sessions are data, and the rooms above decide what becomes of them.

pub mod blocking;
pub mod client;
pub mod client_memory;
mod counting;
pub(crate) mod line;
pub mod session;
pub(crate) mod step;
pub mod summons;
pub(crate) mod transaction;
pub mod trips;
