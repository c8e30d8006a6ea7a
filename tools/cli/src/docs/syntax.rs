//! Formats arguments in the manual's notation.

use super::{Argument, ArgumentKind};

/// Formats several arguments, separated by blanks.
pub(super) fn all<'a>(arguments: impl Iterator<Item = &'a Argument>) -> String {
    arguments.map(one).collect::<Vec<_>>().join(" ")
}

/// Formats one argument, in brackets if it is optional.
pub(super) fn one(argument: &Argument) -> String {
    let once = once(argument);
    if argument.optional { format!("[{once}]") } else { once }
}

/// Formats an argument without brackets: the keyword, and the value with its repetition.
fn once(argument: &Argument) -> String {
    let token = argument.token.as_deref().map(|token| if token.is_empty() { "\"\"" } else { token });
    let value = value(argument);
    let value = match (token, value.is_empty()) {
        (None, _) => value,
        (Some(token), true) => token.to_owned(),
        (Some(token), false) if argument.multiple && !argument.multiple_token => {
            return format!("{token} {value} [{value} ...]");
        }
        (Some(token), false) => format!("{token} {value}"),
    };
    if argument.multiple { format!("{value} [{value} ...]") } else { value }
}

/// Formats the value after the keyword.
pub(super) fn value(argument: &Argument) -> String {
    match argument.kind {
        ArgumentKind::Value | ArgumentKind::Key => argument.name.clone(),
        ArgumentKind::Token => String::new(),
        ArgumentKind::Choice => argument.parts.iter().map(one).collect::<Vec<_>>().join("|"),
        ArgumentKind::Block => all(argument.parts.iter()),
    }
}
