//! Sends a command, with repetitions and redirections, and prints its replies or its endless output.

use crate::failure::Failure;
use crate::format::ReplyFormat;
use crate::output::complain;
use crate::session::CliSession;
use client::Value;
use client::cluster::Redirection;
use std::time::Duration;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command was answered.
    Answered,
    /// The command got an error reply that sets the exit status, or wasn't sent.
    Refused,
}

/// Maximum number of redirections of a command. Nodes that disagree could redirect it forever.
const REDIRECTIONS_MAX: u32 = 16;

/// Outcome of sending a command once.
enum Answer {
    Is(CommandOutcome),
    Elsewhere(Redirection),
}

/// Output that follows a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterCommand {
    /// One reply.
    Plain,
    /// Endless lines.
    Monitor,
    /// Endless messages.
    Subscribe,
    /// The end of the connection.
    Shutdown,
    /// The replication stream. It isn't a reply.
    Replication,
}

/// Sends a command `repeat` times (forever if negative) and prints the replies.
///
/// # Errors
/// Returns [`Failure`] if a reply is missing.
pub fn issue(session: &mut CliSession<'_>, request: &[Vec<u8>], repeat: i64) -> Result<CommandOutcome, Failure> {
    let kind = kind_of(request);
    if kind == AfterCommand::Replication {
        session.output.flush()?;
        let name = String::from_utf8_lossy(&request[0]);
        complain!("penstock cli: '{name}' is not supported: use --replica or --rdb");
        return Ok(CommandOutcome::Refused);
    }
    let mut announces = kind == AfterCommand::Subscribe && session.options.style.form != ReplyFormat::Raw;
    let mut left = repeat;
    while left != 0 {
        left -= i64::from(left > 0);
        let outcome = issue_once(session, request, kind, announces)?;
        announces = false;
        if outcome == CommandOutcome::Refused || kind == AfterCommand::Monitor {
            return Ok(outcome);
        }
        if let Some(interval) = session.options.interval {
            session.output.flush()?;
            // No reply is pending, so the connection stays open.
            if session.interrupt.sleep(interval) {
                return Err(Failure::Interrupted);
            }
        }
    }
    Ok(CommandOutcome::Answered)
}

/// Sends a command, follows redirections if `-c` is set, and prints the output. With `announces`, it first prints a
/// notice on how to end an endless output.
fn issue_once(
    session: &mut CliSession<'_>,
    request: &[Vec<u8>],
    kind: AfterCommand,
    announces: bool,
) -> Result<CommandOutcome, Failure> {
    let mut redirections_left = if session.options.follow_redirections { REDIRECTIONS_MAX } else { 0 };
    loop {
        session.send(request)?;
        let follow = redirections_left > 0;
        let answer = match kind {
            AfterCommand::Monitor | AfterCommand::Subscribe => stream(session, announces, follow)?,
            AfterCommand::Plain | AfterCommand::Shutdown | AfterCommand::Replication => {
                answer(session, request, kind, follow)?
            }
        };
        match answer {
            Answer::Is(outcome) => return Ok(outcome),
            Answer::Elsewhere(redirection) => session.follow(&redirection)?,
        }
        redirections_left -= 1;
    }
}

fn kind_of(request: &[Vec<u8>]) -> AfterCommand {
    match request.first().map(|name| name.to_ascii_lowercase()).as_deref() {
        Some(b"monitor") => AfterCommand::Monitor,
        Some(b"subscribe" | b"psubscribe" | b"ssubscribe") => AfterCommand::Subscribe,
        Some(b"shutdown") => AfterCommand::Shutdown,
        Some(b"sync" | b"psync") => AfterCommand::Replication,
        _ => AfterCommand::Plain,
    }
}

/// Returns true if the command's output goes on until the connection ends.
pub fn never_ends(request: &[Vec<u8>]) -> bool {
    matches!(kind_of(request), AfterCommand::Monitor | AfterCommand::Subscribe)
}

/// Returns true if the reply is a report for people, which is printed verbatim.
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
fn answer(
    session: &mut CliSession<'_>,
    request: &[Vec<u8>],
    kind: AfterCommand,
    follow: bool,
) -> Result<Answer, Failure> {
    let reply = match session.next_reply() {
        Ok(reply) => reply,
        // The server closes the connection instead of replying.
        Err(Failure::Lost(_)) if kind == AfterCommand::Shutdown => {
            session.disconnect();
            return Ok(Answer::Is(CommandOutcome::Answered));
        }
        Err(failure) => return Err(failure),
    };
    if follow && let Some(redirection) = Redirection::of(&reply) {
        return Ok(Answer::Elsewhere(redirection));
    }
    let outcome = print(session, &reply, is_report(request))?;
    session.note(request, &reply)?;
    Ok(Answer::Is(outcome))
}

/// Prints a reply, or an error according to `-e`.
fn print(session: &mut CliSession<'_>, reply: &Value, report: bool) -> Result<CommandOutcome, Failure> {
    if session.options.exit_error
        && !session.options.reads_lines()
        && let Some(text) = reply.error()
    {
        session.output.flush()?;
        complain!("{}", String::from_utf8_lossy(text));
        return Ok(CommandOutcome::Refused);
    }
    let style = &session.options.style;
    let piped = session.output.is_piped().then(|| style.for_programs());
    let style = piped.as_ref().unwrap_or(style);
    session.output.print_with(|out| style.push_reply(reply, report, out))?;
    Ok(CommandOutcome::Answered)
}

/// Prints all messages until the connection ends or the user presses Ctrl-C.
fn stream(session: &mut CliSession<'_>, announces: bool, follow: bool) -> Result<Answer, Failure> {
    if announces {
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
        if follow && let Some(redirection) = Redirection::of(&message) {
            return Ok(Answer::Elsewhere(redirection));
        }
        let is_error = message.error().is_some();
        let outcome = print(session, &message, false)?;
        if is_error {
            return Ok(Answer::Is(outcome));
        }
    }
}
