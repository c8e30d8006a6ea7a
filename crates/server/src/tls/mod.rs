//! TLS, by rustls: the port for it, handshakes on threads of their own, and connections whose socket encrypts.
//!
//! ```text
//!   doorway          handshakes                      event loop
//!   accepts  ──────▶ until both sides agree  ──────▶ reads and sends as ever, through a `TlsStream`
//!                    (bounded, with a time limit)
//! ```
//!
//! A worker never sees a handshake, whose signature alone takes as long as hundreds of commands. [`setup`] makes what all
//! connections share from the configuration, again whenever that changes; connections that are there keep what they began with.
//! This room knows neither commands nor sessions.

mod certificate;
pub mod handshakes;
pub mod outgoing;
mod sessions;
pub mod setup;
pub mod stream;
