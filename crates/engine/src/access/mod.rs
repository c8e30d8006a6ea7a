//! Which user may do what: users, their rules, and what has been denied.
//!
//! A rule's text is read once, when a user is changed (`rules.rs`), and compiled into `Permissions` (`permissions.rs`): a bit for each
//! command of the table, and a byte that says what else has to be looked at before it runs (`ways.rs`). A pattern is compiled to a word
//! and a mask for its first bytes, and to sets of bytes for what follows (`patterns.rs`). So a command of a user with rules costs one
//! look into a table, and one match if it has a key; a run of the same command costs the match alone (`check.rs`).
//!
//! A `User` is an identity: it stays the same while its permissions change. Sessions keep their user, and a copy of the
//! permissions, which they take anew when they are told to (`clients::summons`). Users change only behind the closed gate, so that
//! no command runs meanwhile, and none runs afterwards by what was allowed before.
//!
//! This room knows no sessions. It knows the commands by what their entries declare, and the configuration.
//!
//! Sources: Redis's "ACL" page, the pages of the ACL subcommands as of 7.2, and the replies of a running server; for databases,
//! the ACL page of Valkey 9.1.

mod check;
mod denials;
mod file;
mod foreign;
mod password;
mod patterns;
mod permissions;
mod rules;
mod users;
mod ways;

pub(crate) use self::check::{Asked, Denial, Denied, Sieve};
pub(crate) use self::denials::{Context, Entry, Reason};
pub(crate) use self::password::generate;
pub(crate) use self::permissions::{Permissions, Selector};
pub use self::rules::check_line;
pub(crate) use self::rules::has_spaces;
pub use self::users::Users;
pub(crate) use self::users::{Changes, DEFAULT, User};
pub(crate) use self::ways::{flags_of, has_counted_keys};
