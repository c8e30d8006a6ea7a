//! `penstock cli`: a client with redis-cli's flags, behaviour and output, for any Redis server.
//!
//! This crate uses the client library and has no access to a server's internals. Names and arguments of commands come
//! from the server. [`options`] parses the command line, [`session`] owns the connection, [`mod@issue`] runs one
//! command, [`lines`] runs a typed or piped line, [`interactive`] reads lines from a terminal, and
//! [`format`](mod@format) formats replies.

#![forbid(unsafe_code)]

pub mod docs;
pub mod failure;
pub mod flags;
pub mod format;
pub mod help;
pub mod interactive;
pub mod interrupt;
pub mod issue;
pub mod lines;
pub mod manager;
pub mod modes;
pub mod options;
pub mod output;
pub mod password;
pub mod preferences;
pub mod quote;
mod replica_stream;
pub mod session;
mod session_state;

pub use flags::command;

use crate::failure::Failure;
use crate::issue::{CommandOutcome, issue};
use crate::manager::ClusterOptions;
use crate::modes::keys::Measure;
use crate::options::{CliOptions, Exit, Mode, Surroundings};
use crate::output::complain;
use crate::session::CliSession;
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

/// Runs the tool. `args` are the arguments after `penstock cli`.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let surroundings = Surroundings {
        // redis-cli's own variable for tests. Scripts use it.
        stdout_is_terminal: io::stdout().is_terminal() || env::var_os("FAKETTY").is_some(),
        auth: env::var_os("REDISCLI_AUTH"),
        shows_colours: io::stdout().is_terminal() && output::may_colour(),
    };
    match options::read(&args, &surroundings) {
        Ok(options) => run_options(&options),
        Err(Exit::Answer(text)) => answer(&text),
        Err(Exit::Wrong(text)) => {
            complain!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help or the version. `head` and others may close the pipe early, which is no failure.
fn answer(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain!("{}", Failure::Output(error));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run_options(options: &CliOptions) -> ExitCode {
    if options.password_is_exposed {
        complain!("Warning: Using a password with '-a' or '-u' option on the command line interface may not be safe.");
    }
    let done = match &options.mode {
        Mode::Cluster(choices) => run_manager(options, choices),
        _ => run_session(CliSession::new(options)),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                complain!("{text}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}

/// Runs a subcommand of `--cluster`, with the argument from standard input.
fn run_manager(options: &CliOptions, choices: &ClusterOptions) -> Result<ExitCode, Failure> {
    let password = if options.ask_password { Some(password::ask()?) } else { options.password.clone() };
    let mut choices = choices.clone();
    add_stdin(options, &mut choices.args)?;
    match manager::run(options, &choices, password)? {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

fn run_session(mut session: CliSession<'_>) -> Result<ExitCode, Failure> {
    if session.options.ask_password {
        session.set_password(password::ask()?);
    }
    if session.options.reads_lines() && io::stdin().is_terminal() {
        return interactive::run(session).map(|()| ExitCode::SUCCESS);
    }
    let done = run_mode(&mut session);
    let flushed = session.output.flush().map_err(Failure::from);
    done.and_then(|code| flushed.map(|()| code))
}

fn run_mode(session: &mut CliSession<'_>) -> Result<ExitCode, Failure> {
    match &session.options.mode {
        Mode::Commands if session.options.reads_lines() => {
            // The error was printed. Each command tries to connect again.
            let _ = session.connect();
            lines::run_all(session)?;
        }
        Mode::Commands => return run_command(session),
        Mode::Eval(file) => return modes::eval::run(session, file).map(status),
        Mode::Pipe { timeout } => return modes::pipe::run(session, *timeout),
        Mode::Stat => modes::stat::run(session)?,
        Mode::Batches => modes::batches::run(session)?,
        Mode::Latency => modes::latency::run(session, false)?,
        Mode::LatencyHistory => modes::latency::run(session, true)?,
        Mode::LatencyDist => modes::spectrum::run(session)?,
        Mode::IntrinsicLatency(time) => modes::intrinsic::run(session, *time)?,
        Mode::BigKeys => modes::keys::find_big(session, Measure::Elements)?,
        Mode::MemKeys(samples) => modes::keys::find_big(session, Measure::Memory(*samples))?,
        Mode::HotKeys => modes::keys::find_hot(session)?,
        Mode::Scan => modes::scan::run(session)?,
        Mode::Rdb(path) => modes::replica::save(session, path)?,
        Mode::Replica => modes::replica::show(session)?,
        Mode::Cluster(choices) => return run_manager(session.options, choices),
    }
    Ok(ExitCode::SUCCESS)
}

fn status(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        CommandOutcome::Answered => ExitCode::SUCCESS,
        CommandOutcome::Refused => ExitCode::FAILURE,
    }
}

/// Runs the command of the command line.
fn run_command(session: &mut CliSession<'_>) -> Result<ExitCode, Failure> {
    let Some(request) = request(session.options)? else {
        session.output.print("Invalid quoted string\n")?;
        return Ok(ExitCode::FAILURE);
    };
    let is_help = matches!(request.first().map(|name| name.to_ascii_lowercase()).as_deref(), Some(b"help" | b"?"));
    if is_help {
        help::print(session, &request[1..])?;
        return Ok(ExitCode::SUCCESS);
    }
    session.ensure_connected()?;
    issue(session, &request, session.options.repeat.unwrap_or(1)).map(status)
}

/// Returns the command's words, unquoted if `--quoted-input` is set, with the argument from standard input. Returns
/// `None` if quotes don't balance.
fn request(options: &CliOptions) -> Result<Option<Vec<Vec<u8>>>, Failure> {
    let mut request = options.command.clone();
    if options.quoted_input {
        let unquoted: Option<Vec<Vec<u8>>> = request.iter().map(|word| quote::unquote(word)).collect();
        match unquoted {
            Some(unquoted) => request = unquoted,
            None => return Ok(None),
        }
    }
    add_stdin(options, &mut request)?;
    Ok(Some(request))
}

/// Adds the argument from standard input, if there is one.
fn add_stdin(options: &CliOptions, words: &mut Vec<Vec<u8>>) -> Result<(), Failure> {
    if let Some(tag) = &options.stdin_tag {
        let place = words.iter_mut().find(|word| *word == tag);
        let place = place.ok_or_else(|| Failure::Other("Using -X option but stdin tag not match.".to_owned()))?;
        *place = read_stdin()?;
    } else if options.stdin_last {
        words.push(read_stdin()?);
    }
    Ok(())
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::Other(format!("Error reading from stdin: {error}")))?;
    Ok(bytes)
}
