//! `--askpass`: reads a password without showing it.

use crate::failure::Failure;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Read as _, Write};

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_U: u8 = 0x15;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// Asks for the password: on a terminal, which shows a star for each byte, or as a line of standard input.
///
/// # Errors
/// Returns errors of standard input, and [`Failure::Interrupted`].
pub fn ask() -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    let typed = match tcgetattr(&stdin) {
        Ok(before) if isatty(&stdin) => {
            let mut stdout = io::stdout();
            stdout.write_all(b"Please input password: ")?;
            stdout.flush()?;
            let typed = type_unseen(&before);
            stdout.write_all(b"\n")?;
            typed
        }
        _ => {
            let mut line = Vec::new();
            stdin.lock().read_until(b'\n', &mut line).map(|_| Some(line))
        }
    };
    let line = typed.map_err(|error| Failure::Other(format!("Error reading from stdin: {error}")))?;
    line.map(|line| line.trim_ascii_end().to_vec()).ok_or(Failure::Interrupted)
}

/// Reads a line from a terminal in the state `before`, and restores the state. Returns `None` after Ctrl-C.
fn type_unseen(before: &Termios) -> io::Result<Option<Vec<u8>>> {
    let stdin = io::stdin();
    let mut unseen = before.clone();
    // Signals are off as well: one would end the program before the state is restored.
    unseen.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    let set = |state: &Termios| tcsetattr(&stdin, OptionalActions::Drain, state).map_err(io::Error::from);
    let typed = set(&unseen).and_then(|()| read_keys(&mut stdin.lock(), &mut io::stdout()));
    let restored = set(before);
    restored.and(typed)
}

/// Returns the characters typed until Enter, or `None` after Ctrl-C.
fn read_keys(keys: &mut impl BufRead, echo: &mut impl Write) -> io::Result<Option<Vec<u8>>> {
    let mut typed = Vec::new();
    for key in keys.bytes() {
        match key? {
            b'\n' | b'\r' | CTRL_D => break,
            CTRL_C => return Ok(None),
            CTRL_U => {
                write!(echo, "{}", "\x08 \x08".repeat(typed.len()))?;
                typed.clear();
            }
            BACKSPACE | DELETE => {
                if typed.pop().is_some() {
                    write!(echo, "\x08 \x08")?;
                }
            }
            byte => {
                typed.push(byte);
                write!(echo, "*")?;
            }
        }
        echo.flush()?;
    }
    Ok(Some(typed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_a_password() {
        let check = |keys: &[u8], expected: Option<&[u8]>, shown: &str| {
            let mut echo = Vec::new();
            assert_eq!(read_keys(&mut &keys[..], &mut echo).unwrap().as_deref(), expected);
            assert_eq!(String::from_utf8(echo).unwrap(), shown);
        };
        check(b"ab\nc", Some(b"ab"), "**");
        check(b"ax\x7fb\r", Some(b"ab"), "**\x08 \x08*");
        check(b"\x7fa\x04", Some(b"a"), "*");
        check(b"xy\x15a\n", Some(b"a"), "**\x08 \x08\x08 \x08*");
        check(b"a\x03", None, "*");
        check(b"", Some(b""), "");
    }
}
