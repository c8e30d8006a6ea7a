//! TLS, by rustls: its port, handshakes in threads of their own, and connections with an encrypting socket.
//!
//! ```text
//!   acceptor          handshakes                      event loop
//!   accepts  ──────▶ until both sides agree  ──────▶ reads and sends as ever, through a `TlsStream`
//!                    (bounded, with a time limit)
//! ```
//!
//! A worker never sees a handshake, whose signature alone takes as long as hundreds of commands. [`setup`] makes the shared state of all
//! connections from the configuration, anew after each change. Existing connections keep the state of their beginning. This module knows
//! neither commands nor sessions.

mod certificate;
pub mod handshakes;
pub mod outgoing;
mod sessions;
pub mod setup;
pub mod stream;
