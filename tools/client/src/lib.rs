//! A pipelining client for Redis, Valkey and Penstock, with blocking calls, without asynchronous runtime or `unsafe`.
//!
//! - [`Client`]: for many threads; pipelines automatically, reconnects, never runs a command twice.
//! - [`Connection`]: one connection; commands one by one, or sent and read separately.
//! - [`Pipeline`] and [`Window`]: many commands without waiting in between, with bounded memory on both sides. Replies
//!   are read while requests are written, so that client and server can't deadlock.
//! - [`Script`], [`Transaction`], [`PubSub`]: scripts by hash, MULTI/EXEC with and without WATCH, published messages.
//! - [`cluster::Cluster`]: the nodes of a cluster, with commands and pipelines that go to the node with their slot.
//! - [`Config`]: address and settings; [`Config::parse`] parses a URL, and [`Url`] holds only the parts that a URL
//!   contains.
//! - [`Advice`]: the round trips that this process wastes, with replacement code.
//! - [`Error::fate`]: the fate of a failed command.
//!
//! ```no_run
//! use client::{Command, Config, Connection, Pipeline};
//!
//! let mut connection = Connection::connect(&Config::parse("redis://localhost:6379/0")?)?;
//! connection.command(&["SET", "greeting", "hello"])?;
//!
//! let mut pipeline = Pipeline::new();
//! for i in 0..10_000 {
//!     pipeline.add(&Command::new("SET").arg("key").arg(i));
//! }
//! let replies = pipeline.run(&mut connection)?;
//! assert_eq!(replies.len(), 10_000);
//! # Ok::<(), client::Error>(())
//! ```
//!
//! Threads that share a [`Client`] share its connection, and their commands leave together:
//!
//! ```no_run
//! use client::{Client, Config};
//!
//! let client = Client::connect(&Config::parse("redis://localhost")?)?;
//! std::thread::scope(|scope| {
//!     for _ in 0..32 {
//!         scope.spawn(|| client.command(&["INCR", "visits"]));
//!     }
//! });
//! # Ok::<(), client::Error>(())
//! ```
//!
//! This crate uses `resp` for the wire format, `cluster` for the slots of keys and `advisor` for the report, and has no access to a server's internals.

#![forbid(unsafe_code)]

#[cfg(feature = "advice")]
mod advice;
mod buffer;
mod client;
pub mod cluster;
mod command;
mod config;
mod connection;
mod error;
mod handshake;
mod pipeline;
mod pubsub;
mod script;
mod stopping;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transaction;
mod unshareable;
mod url;
mod window;

#[cfg(feature = "advice")]
pub use advice::Advice;
pub use client::{Client, ClientOptions, Dedicated, Ticket};
pub use command::{Argument, Command, Request};
pub use config::{Address, Config, TlsOptions};
pub use connection::Connection;
pub use error::{Error, Fate, Interrupted, Lost, ServerError, system_text};
pub use pipeline::Pipeline;
pub use pubsub::{Message, PubSub};
pub use resp::parse::{Double, ReplyLimits, Value};
pub use resp::reply::Proto;
pub use script::Script;
pub use stopping::{StopAt, StopOutcome};
pub use stream::{Connector, Stream, open_stream};
#[cfg(feature = "tls")]
pub use tls::{Acceptance, Encryption};
pub use transaction::Transaction;
pub use url::Url;
pub use window::{Conversation, Next, Window};

/// Compiles the examples of the users' page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct UsersPage;
