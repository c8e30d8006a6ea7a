//! Commands on keys: names, arguments, handlers. Each family is a module that holds its commands' entries, handlers,
//! documentation and tests.
//!
//! A handler gets its arguments, one database, a reply writer and a journal of effects. This crate knows no session, no
//! thread and no socket: the engine handles transactions, blocking and everything else that concerns connections.

#![forbid(unsafe_code)]

pub mod bits;
pub mod call;
pub mod effects;
pub mod error;
pub mod geo;
pub mod hashes;
pub mod hyperloglog;
pub mod items;
pub mod keys;
pub mod lists;
pub mod sample;
pub mod scan_options;
pub mod sets;
pub mod spec;
pub mod streams;
pub mod strings;
pub mod suggestions;
pub mod syntax;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeout;
pub mod zsets;

pub use call::Call;
pub use error::{Error, Outcome};
pub use spec::Spec;

/// A handler of a command on keys.
pub type Handler = fn(&mut Call<'_, '_, '_>) -> Outcome;

/// All commands of this crate, by family. A new family adds one line here.
pub const FAMILIES: &[&[Spec<Handler>]] = &[
    strings::COMMANDS,
    keys::COMMANDS,
    lists::COMMANDS,
    hashes::COMMANDS,
    sets::COMMANDS,
    zsets::COMMANDS,
    streams::COMMANDS,
    bits::COMMANDS,
    hyperloglog::COMMANDS,
    geo::COMMANDS,
    suggestions::COMMANDS,
];
