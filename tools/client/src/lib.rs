//! A client for Redis, Valkey and Penstock that pipelines. Blocking calls, no asynchronous runtime, no `unsafe`.
//!
//! - [`Client`]: for many threads at once; pipelines by itself, reconnects, never runs a command twice.
//! - [`Connection`]: one connection; commands one by one, or sent and read separately.
//! - [`Pipeline`] and [`Window`]: many commands without waiting in between, with bounded memory on both sides. Replies
//!   are read while requests are written, so that no server's habits can make the two wait for each other.
//! - [`Script`], [`Transaction`], [`PubSub`]: scripts by hash, MULTI/EXEC with and without WATCH, published messages.
//! - [`Config`]: where and how to connect; [`Config::parse`] reads URLs, [`Url`] what one says and no more.
//! - [`Advice`]: which round trips this process wastes, and the code to write instead.
//! - [`Error::fate`]: what is known about a command that failed.
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
//! This room knows `resp` for the bytes, `advisor` for the report, and no server's inside.

#![forbid(unsafe_code)]

#[cfg(feature = "advice")]
mod advice;
mod buffer;
mod client;
mod command;
mod config;
mod connection;
mod error;
mod handshake;
mod pipeline;
mod pubsub;
mod script;
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
pub use stream::{Connector, Stream, open_stream};
#[cfg(feature = "tls")]
pub use tls::{Acceptance, Encryption};
pub use transaction::Transaction;
pub use url::Url;
pub use window::{Conversation, Next, Window};

/// The examples of the users' page compile, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct UsersPage;
