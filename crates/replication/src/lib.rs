//! Redis's replication protocol, as far as it is bytes: what a replica and its primary say to each other.
//!
//! A replica introduces itself ([`handshake`]), gets a snapshot unless it can go on where it was ([`transfer`]), and then all that
//! the primary changes, as commands ([`stream`]). A *history* is what one primary has changed, in one order; it has a name
//! ([`id`]), and each byte of its stream a number, the *offset*. A replica that knows name and offset can go on from there.
//! A primary makes the stream of the journal's units ([`feed`]), keeps its end ([`backlog`]), and hears from its replicas how far
//! they are ([`answers`]).
//!
//! This room knows no socket, no thread, no clock and no keyspace: bytes in, bytes out. Sources: Redis's documentation page
//! "Redis replication", and what servers send.

#![forbid(unsafe_code)]

pub mod answers;
pub mod backlog;
pub mod feed;
pub mod handshake;
pub mod id;
pub mod stream;
pub mod transfer;
