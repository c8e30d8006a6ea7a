//! One command from the user: sent, repeated, its replies printed; and those that never end.

use crate::failure::Failure;
use crate::format::Form;
use crate::session::Session;
use client::Value;
use std::thread;
use std::time::Duration;

/// How a command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered,
    /// It was answered with an error, and such are to be the exit status.
    Refused,
}

/// What follows a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One reply.
    Plain,
    /// Lines without end.
    Monitor,
    /// Messages without end.
    Subscribe,
    /// The end of the connection.
    Shutdown,
}

/// Sends a command `repeat` times (for ever if negative) and prints the replies.
///
/// # Errors
/// [`Failure`] where there is no reply.
pub fn issue(session: &mut Session<'_>, request: &[Vec<u8>], repeat: i64) -> Result<Outcome, Failure> {
    let kind = kind_of(request);
    let mut left = repeat;
    while left != 0 {
        left -= i64::from(left > 0);
        session.send(request)?;
        let outcome = match kind {
            Kind::Monitor | Kind::Subscribe => return stream(session, kind),
            Kind::Plain | Kind::Shutdown => answer(session, request, kind)?,
        };
        if outcome == Outcome::Refused {
            return Ok(outcome);
        }
        if let Some(interval) = session.options.interval {
            session.output.flush()?;
            thread::sleep(interval);
        }
    }
    Ok(Outcome::Answered)
}

fn kind_of(request: &[Vec<u8>]) -> Kind {
    match request.first().map(|name| name.to_ascii_lowercase()).as_deref() {
        Some(b"monitor") => Kind::Monitor,
        Some(b"subscribe" | b"psubscribe" | b"ssubscribe") => Kind::Subscribe,
        Some(b"shutdown") => Kind::Shutdown,
        _ => Kind::Plain,
    }
}

/// Whether the reply is a report for people, which is printed as it is.
fn is_report(request: &[Vec<u8>]) -> bool {
    let words: Vec<Vec<u8>> = request.iter().map(|word| word.to_ascii_lowercase()).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    matches!(
        words.as_slice(),
        [b"info" | b"lolwut", ..]
            | [b"debug", b"htstats" | b"htstats-key", ..]
            | [b"memory", b"malloc-stats" | b"doctor", ..]
            | [b"cluster", b"nodes" | b"info"]
            | [b"client", b"list" | b"info", ..]
            | [b"latency", b"graph", _]
            | [b"latency", b"doctor"]
            | [b"proxy", b"info", ..]
    )
}

/// Reads the reply to one command and prints it.
fn answer(session: &mut Session<'_>, request: &[Vec<u8>], kind: Kind) -> Result<Outcome, Failure> {
    let reply = match session.next_reply() {
        Ok(reply) => reply,
        // The server's last word is that it closes.
        Err(Failure::Lost(_)) if kind == Kind::Shutdown => {
            session.disconnect();
            return Ok(Outcome::Answered);
        }
        Err(failure) => return Err(failure),
    };
    let outcome = print(session, &reply, is_report(request))?;
    session.note(request, &reply)?;
    Ok(outcome)
}

/// Prints a reply, or an error where the user wants it.
fn print(session: &mut Session<'_>, reply: &Value, report: bool) -> Result<Outcome, Failure> {
    if session.options.exit_error
        && !session.options.reads_lines()
        && let Some(text) = reply.error()
    {
        session.output.flush()?;
        eprintln!("{}", String::from_utf8_lossy(text));
        return Ok(Outcome::Refused);
    }
    let style = &session.options.style;
    session.output.print_with(|out| style.push_reply(reply, report, out))?;
    Ok(Outcome::Answered)
}

/// Prints whatever comes until the connection ends or Ctrl-C is pressed.
fn stream(session: &mut Session<'_>, kind: Kind) -> Result<Outcome, Failure> {
    if kind == Kind::Subscribe && session.options.style.form != Form::Raw {
        session.output.print("Reading messages... (press Ctrl-C to quit)\n")?;
    }
    loop {
        let message = match session.poll_value(Duration::ZERO)? {
            Some(message) => message,
            None => {
                session.output.flush()?;
                session.next_value()?
            }
        };
        let is_error = message.error().is_some();
        let outcome = print(session, &message, false)?;
        if is_error {
            return Ok(outcome);
        }
    }
}
