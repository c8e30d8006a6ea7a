//! Access control: users, their rules, and the record of denials.
//!
//! The text of a rule is read once, when a user changes (`rules.rs`), and compiled into `Permissions`
//! (`permissions.rs`): a bit for each command of the table, and a byte that lists the other checks before it runs
//! (`requirements.rs`). A pattern is compiled to a word and a mask for its first bytes, and to sets of bytes for the
//! rest (`patterns.rs`). A command of a user with rules therefore costs one table lookup, and one match if it has a
//! key; a run of the same command costs only the match (`check.rs`).
//!
//! A `User` is an identity: it remains while its permissions change. Sessions keep their user and a copy of the
//! permissions, and renew the copy after a signal (the engine's `clients::pending_signals`). Users change only behind the closed
//! gate, so that no command runs during the change, and none runs under the old rules afterwards.
//!
//! This crate knows no sessions. It knows the commands by their entries' declarations, and the configuration.
//!
//! Sources: Redis's "ACL" page, the pages of the ACL subcommands as of 7.2, and the replies of a running server; for
//! databases, the ACL page of Valkey 9.1.

#![forbid(unsafe_code)]

mod check;
mod denials;
mod file;
mod password;
mod patterns;
mod permissions;
mod requirements;
mod rules;
mod unknown_commands;
mod users;

pub use self::check::{Asked, BatchAclCheck, Denial, Denied};
pub use self::denials::{Context, Entry, Reason};
pub use self::password::generate;
pub use self::permissions::{Permissions, Selector};
pub use self::requirements::{flags_of, has_counted_keys};
pub use self::rules::check_line;
pub use self::rules::has_spaces;
pub use self::users::Users;
pub use self::users::{Changes, DEFAULT, User};
