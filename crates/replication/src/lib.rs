//! Redis's replication protocol as bytes: the messages between a replica and its primary.
//!
//! A replica introduces itself ([`handshake`]). It gets a snapshot unless it can continue from its offset ([`transfer`]), and then all
//! changes of the primary, as commands ([`stream`]). A *history* is the sequence of changes of one primary. It has a name ([`id`]), and
//! each byte of its stream has a number, the *offset*. A replica that knows name and offset can continue from there. A primary makes the
//! stream from the journal's units ([`feed`]), keeps its end ([`backlog`]), and reads its replicas' acknowledgements ([`answers`]).
//!
//! This crate knows no socket, no thread, no clock and no keyspace: bytes in, bytes out. Sources: Redis's documentation page "Redis
//! replication", and the behaviour of servers.

#![forbid(unsafe_code)]

pub mod answers;
pub mod backlog;
pub mod feed;
pub mod handshake;
pub mod id;
pub mod stream;
pub mod transfer;
