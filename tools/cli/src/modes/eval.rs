//! `--eval`: a script from a file.

use crate::failure::Failure;
use crate::issue::{CommandOutcome, issue};
use crate::session::CliSession;
use client::system_text;
use std::fs;
use std::path::Path;

/// Runs the script with keys and arguments from the command line. A comma separates them.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>, file: &Path) -> Result<CommandOutcome, Failure> {
    // If connecting fails, the script must not run in another database or as another user.
    session.connect()?;
    let script = fs::read(file)
        .map_err(|error| Failure::Other(format!("Can't open file '{}': {}", file.display(), system_text(&error))))?;
    let request = request(script, &session.options.command);
    issue(session, &request, session.options.repeat.unwrap_or(1))
}

fn request(script: Vec<u8>, words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let comma = words.iter().position(|word| word == b",");
    let keys = &words[..comma.unwrap_or(words.len())];
    let args = comma.map_or(&[][..], |comma| &words[comma + 1..]);
    let count = keys.len().to_string().into_bytes();
    [b"EVAL".to_vec(), script, count].into_iter().chain(keys.iter().chain(args).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_separates_keys_from_arguments() {
        let check = |words: &str, expected: &str| {
            let words: Vec<Vec<u8>> = words.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(request(b"s".to_vec(), &words).join(&b' '), expected.as_bytes());
        };
        check("a b , c", "EVAL s 2 a b c");
        check("a b", "EVAL s 2 a b");
        check(", c", "EVAL s 0 c");
        check("a , b , c", "EVAL s 1 a b , c");
        check("", "EVAL s 0");
    }
}
