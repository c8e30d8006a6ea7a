//! `--askpass`: a password that nobody sees.

use crate::failure::Failure;
use rustix::termios::{LocalModes, OptionalActions, isatty, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Write};

/// Asks for the password and reads a line of standard input, which a terminal doesn't show.
///
/// # Errors
/// Standard input's.
pub fn ask() -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    let on_terminal = isatty(&stdin);
    if on_terminal {
        print!("Please input password: ");
        io::stdout().flush()?;
    }
    let before = tcgetattr(&stdin).ok().filter(|_| on_terminal);
    if let Some(before) = &before {
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        let _ = tcsetattr(&stdin, OptionalActions::Flush, &silent);
    }
    let mut line = Vec::new();
    let read = stdin.lock().read_until(b'\n', &mut line);
    if let Some(before) = &before {
        let _ = tcsetattr(&stdin, OptionalActions::Flush, before);
        println!();
    }
    read.map_err(|error| Failure::Other(format!("Error reading from stdin: {error}")))?;
    Ok(line.trim_ascii_end().to_vec())
}
