//! The commands on keys: what each is called, takes and does. A family is a file; it holds its commands' entries,
//! handlers, documentation and tests.
//!
//! A handler sees its arguments, one database, a reply writer and a journal of effects. This room knows no session, no
//! thread and no socket: transactions, blocking and whatever concerns connections are the engine's.

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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeout;
pub mod zsets;

pub use call::Call;
pub use error::{Error, Outcome};
pub use spec::Spec;

/// A command that works on keys.
pub type Handler = fn(&mut Call<'_, '_, '_>) -> Outcome;

/// Every command of this room, by family. A new family is a line here.
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
