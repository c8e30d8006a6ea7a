//! Secret arguments of commands, which are never shown.

use resp::request::Args;

use commands::table::Command;

/// Shown instead of a password.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Returns true if an argument is a password or its user's name, and must never be shown.
pub(crate) fn is_secret(command: &Command, args: Args<'_>, index: usize) -> bool {
    command.info.is_secret.is_some_and(|is_secret| is_secret(args, index))
}
