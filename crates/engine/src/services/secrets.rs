//! Which of a command's arguments are secrets: they are never shown.

use resp::request::Args;

use crate::command_table::Command;

/// What is shown instead of a password.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Whether an argument is a password, or a name that goes with one, and must never be shown.
pub(crate) fn is_secret(command: &Command, args: Args<'_>, index: usize) -> bool {
    command.info.is_secret.is_some_and(|is_secret| is_secret(args, index))
}
