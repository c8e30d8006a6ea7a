//! Runs typed or piped lines: commands for the server, and commands that the program itself executes.

use crate::failure::Failure;
use crate::format::ReplyFormat;
use crate::help;
use crate::issue::{issue, never_ends};
use crate::output::complain;
use crate::preferences::Preferences;
use crate::session::CliSession;
use resp::splitargs::split_args;
use std::io::{self, BufRead};
use std::time::Instant;

/// Commands that take longer than this are followed by their duration, in seconds.
const SLOW_SECONDS: f64 = 0.5;

/// Clears a terminal and moves the cursor to the first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The next step after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read another line.
    Line,
    /// End the program.
    Quit,
}

/// A parsed line.
#[derive(Debug, PartialEq)]
enum Line {
    Blank,
    Unbalanced,
    WrongRepeat,
    Quit,
    Clear,
    Restart,
    Preference(Vec<Vec<u8>>),
    Connect(Vec<u8>, Vec<u8>),
    Help(Vec<Vec<u8>>),
    Command(Vec<Vec<u8>>, i64),
}

/// Runs the lines of standard input, which isn't a terminal.
///
/// # Errors
/// Returns errors of standard input and standard output, and failures that make the connection unusable, because no
/// user is there to react.
pub fn run_all(session: &mut CliSession<'_>) -> Result<(), Failure> {
    let mut preferences = Preferences::default();
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = input.read_until(b'\n', &mut line);
        if length.map_err(|error| Failure::Other(format!("Error reading from stdin: {error}")))? == 0 {
            return Ok(());
        }
        if run(session, line.trim_ascii_end(), &mut preferences)? == Next::Quit {
            return Ok(());
        }
        session.output.flush()?;
    }
}

/// Runs a line.
///
/// # Errors
/// Returns failures that make further lines pointless: standard output is closed, or the server violates the protocol.
pub fn run(session: &mut CliSession<'_>, line: &[u8], preferences: &mut Preferences) -> Result<Next, Failure> {
    match understand(line) {
        Line::Blank => {}
        Line::Unbalanced => session.output.print("Invalid argument(s)\n")?,
        Line::WrongRepeat => session.output.print("Invalid redis-cli repeat command option value.\n")?,
        Line::Quit => return Ok(Next::Quit),
        Line::Clear => session.output.print(CLEAR)?,
        Line::Restart => session.output.print("Use 'restart' only in Lua debugging mode.\n")?,
        Line::Preference(words) => session.output.print(preferences.set(&words))?,
        Line::Connect(host, port) => connect_to(session, &host, &port)?,
        Line::Help(topic) => {
            let printed = help::print(session, &topic);
            settle(session, printed)?;
        }
        Line::Command(request, repeat) => run_command(session, &request, repeat)?,
    }
    Ok(Next::Line)
}

fn understand(line: &[u8]) -> Line {
    let Ok(mut words) = split_args(line) else { return Line::Unbalanced };
    let Some(first) = words.first() else { return Line::Blank };
    let mut repeat = 1;
    if let Some(count) = repeat_count(first).filter(|_| words.len() > 1) {
        let Some(count) = count.filter(|count| *count > 0) else { return Line::WrongRepeat };
        repeat = count;
        words.remove(0);
    }
    let name = words[0].to_ascii_lowercase();
    match (name.as_slice(), words.len()) {
        (b"quit" | b"exit", _) => Line::Quit,
        (b"restart", _) => Line::Restart,
        (b"clear", 1) => Line::Clear,
        (b"connect", 3) => Line::Connect(words.swap_remove(1), words.swap_remove(1)),
        (b"help" | b"?", _) => Line::Help(words.split_off(1)),
        ([b':', ..], _) => Line::Preference(words),
        _ => Line::Command(words, repeat),
    }
}

/// Splits a line at the first `|` that is a word of its own outside quotes: into the server's command, and the shell's
/// command. Returns `None` if there is no such word, or a part is missing.
pub fn split_pipe(line: &str) -> Option<(&str, &str)> {
    let bytes = line.as_bytes();
    let is_blank = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_whitespace);
    let (mut quote, mut is_escaped) = (None, false);
    for (at, &byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            _ if is_escaped => is_escaped = false,
            (Some(b'"'), b'\\') => is_escaped = true,
            // Between single quotes, a backslash escapes only the quote.
            (Some(_), b'\\') => is_escaped = bytes.get(at + 1) == Some(&b'\''),
            (Some(open), _) if byte == open => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'|') if at > 0 && is_blank(at - 1) && is_blank(at + 1) => {
                let (command, shell) = (line[..at].trim(), line[at + 1..].trim());
                return (!command.is_empty() && !shell.is_empty()).then_some((command, shell));
            }
            _ => {}
        }
    }
    None
}

/// Parses a repeat count. Returns `None` if the word is no number, and `Some(None)` if the number is out of range.
fn repeat_count(word: &[u8]) -> Option<Option<i64>> {
    let text = std::str::from_utf8(word).ok()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    // redis-cli takes an empty word for a number.
    if text.is_empty() {
        return Some(None);
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().ok())
}

/// Returns true if a line contains a password and must not enter the history. Lines with errors are examined, too.
pub fn is_secret(line: &[u8]) -> bool {
    let words = split_args(line).unwrap_or_else(|_| split_loosely(line));
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    match words.as_slice() {
        [count, request @ ..] if repeat_count(count).is_some() => is_secret_request(request),
        request => is_secret_request(request),
    }
}

/// Splits a line with unbalanced quotes into words, ignoring the quotes.
fn split_loosely(line: &[u8]) -> Vec<Vec<u8>> {
    let words = line.split(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\''));
    words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

fn is_secret_request(words: &[&[u8]]) -> bool {
    let sets_secret = |pairs: &[&[u8]]| pairs.iter().step_by(2).any(|name| is_secret_setting(name));
    match words {
        [b"auth", _, ..] | [b"acl", b"setuser" | b"deluser" | b"getuser", ..] => true,
        [b"hello" | b"migrate", rest @ ..] => rest.iter().any(|word| matches!(*word, b"auth" | b"auth2")),
        [b"config", b"set", pairs @ ..]
        | [b"sentinel", b"config", b"set", pairs @ ..]
        | [b"sentinel", b"set", _, pairs @ ..] => sets_secret(pairs),
        _ => false,
    }
}

/// Returns true for settings of a server or Sentinel that are passwords, or names of users with passwords: the list is
/// valkey-cli's.
fn is_secret_setting(name: &[u8]) -> bool {
    matches!(
        name,
        b"requirepass"
            | b"masterauth"
            | b"masteruser"
            | b"primaryauth"
            | b"primaryuser"
            | b"tls-key-file-pass"
            | b"tls-client-key-file-pass"
            | b"auth-pass"
            | b"auth-user"
            | b"sentinel-pass"
            | b"sentinel-user"
    )
}

fn connect_to(session: &mut CliSession<'_>, host: &[u8], port: &[u8]) -> Result<(), Failure> {
    let host = String::from_utf8_lossy(host).into_owned();
    match std::str::from_utf8(port).ok().and_then(|port| port.parse().ok()) {
        Some(port) => {
            session.set_address(host, port);
            session.output.flush()?;
            // The error was printed.
            let _ = session.connect();
        }
        None => complain!("penstock cli: '{}' is not a port", String::from_utf8_lossy(port)),
    }
    Ok(())
}

fn run_command(session: &mut CliSession<'_>, request: &[Vec<u8>], repeat: i64) -> Result<(), Failure> {
    let start = Instant::now();
    session.output.flush()?;
    let answered = session.ensure_connected().and_then(|()| issue(session, request, repeat));
    match answered {
        // An endless command whose connection breaks ends the program. The following lines must not run.
        Err(Failure::Lost(error)) if never_ends(request) => return Err(Failure::Lost(error)),
        answered => settle(session, answered)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    let is_for_people = session.options.style.form == ReplyFormat::Standard && !session.output.is_piped();
    if seconds >= SLOW_SECONDS && is_for_people {
        session.output.print(format!("({seconds:.2}s)\n"))?;
    }
    Ok(())
}

/// Prints that the connection is lost. The next command reconnects.
fn settle<T>(session: &mut CliSession<'_>, done: Result<T, Failure>) -> Result<(), Failure> {
    match done {
        Ok(_) | Err(Failure::NotConnected) => Ok(()),
        Err(failure) if failure.is_broken_connection() => {
            session.disconnect();
            session.output.flush()?;
            complain!("{failure}");
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn lines_are_understood() {
        let check = |line: &str, expected: Line| assert_eq!(understand(line.as_bytes()), expected, "{line}");
        check("", Line::Blank);
        check(" \t", Line::Blank);
        check("get \"a", Line::Unbalanced);
        check("GET a", Line::Command(words("GET a"), 1));
        check("5 incr a", Line::Command(words("incr a"), 5));
        check("5", Line::Command(words("5"), 1));
        check("0 ping", Line::WrongRepeat);
        check("-1 ping", Line::WrongRepeat);
        check("99999999999999999999 ping", Line::WrongRepeat);
        check("\"\" ping", Line::WrongRepeat);
        check("\"\"", Line::Command(vec![vec![]], 1));
        check("+2 ping", Line::Command(words("ping"), 2));
        check("+-2 ping", Line::Command(words("+-2 ping"), 1));
        check("5x ping", Line::Command(words("5x ping"), 1));
        check("QUIT", Line::Quit);
        check("exit now", Line::Quit);
        check("clear", Line::Clear);
        check("connect h 1", Line::Connect(b"h".to_vec(), b"1".to_vec()));
        check("connect h", Line::Command(words("connect h"), 1));
        check("help @list", Line::Help(words("@list")));
        check("?", Line::Help(vec![]));
        check(":set hints", Line::Preference(words(":set hints")));
    }

    #[test]
    fn a_word_of_its_own_is_a_pipe() {
        assert_eq!(split_pipe("get a | wc -l"), Some(("get a", "wc -l")));
        assert_eq!(split_pipe("get a | grep '|' | wc"), Some(("get a", "grep '|' | wc")));
        assert_eq!(split_pipe(r#"set a "\" | " | cat"#), Some((r#"set a "\" | ""#, "cat")));
        assert_eq!(split_pipe(r"set a '\' | x' | cat"), Some((r"set a '\' | x'", "cat")));
        for line in ["", "|", "get a|wc", "get a |wc", "get a |", "get a | ", " | wc", "set a \" | \"", "set a ' | wc"]
        {
            assert_eq!(split_pipe(line), None, "{line}");
        }
    }

    #[test]
    fn passwords_are_secret() {
        for line in [
            "auth x",
            "3 AUTH u x",
            "acl setuser u >x",
            "hello 3 auth u x",
            "config set maxmemory 1 requirepass x",
            "migrate h 1 k 0 1 AUTH2 u p",
            "config set primaryauth x",
            "config set PrimaryUser x",
            "sentinel set m auth-pass x",
            "sentinel SET m quorum 2 auth-user x",
            "sentinel config set sentinel-pass x",
            "sentinel config set resolve-hostnames yes sentinel-user x",
            // These lines are invalid, but contain a password.
            "auth \"x\"y",
            "auth u \"x",
            "0 auth x",
            "config set requirepass 'x'y",
        ] {
            assert!(is_secret(line.as_bytes()), "{line}");
        }
        for line in [
            "get auth",
            "acl whoami",
            "hello 3",
            "config set maxmemory 1",
            "config get requirepass",
            "sentinel set auth-pass quorum 2",
            "sentinel get-master-addr-by-name m",
            "get \"a\"b",
            "auth",
            "",
        ] {
            assert!(!is_secret(line.as_bytes()), "{line}");
        }
    }
}
