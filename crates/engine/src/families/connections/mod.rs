//! Commands about the calling connection and about other connections.

pub mod client;
pub mod pipeline;
pub mod pubsub;
pub mod session;
pub mod transactions;
