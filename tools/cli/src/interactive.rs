//! The interactive mode: reads lines from a terminal with editing, history, completion and hints.

mod completion;
mod helper;
mod history;

use crate::docs::Manual;
use crate::failure::Failure;
use crate::issue::never_ends;
use crate::lines::{self, Next};
use crate::output::complain;
use crate::preferences::Preferences;
use crate::session::CliSession;
use helper::Assistant;
use history::HistoryFile;
use resp::splitargs::split_args;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{CompletionType, Config, Editor};
use std::cell::RefCell;
use std::env;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Maximum number of lines in the history.
const HISTORY_LINES_MAX: usize = 1000;

/// Reads lines from the terminal and runs them until the user leaves.
///
/// # Errors
/// Returns errors of the terminal and of standard output.
pub fn run(session: CliSession<'_>) -> Result<(), Failure> {
    let session = RefCell::new(session);
    // If this fails, Ctrl-C ends the program. The program is usable all the same.
    let _ = session.borrow_mut().interrupt.watch();
    // The error was printed. Each command tries to connect again.
    let _ = session.borrow_mut().connect();
    let mut preferences = Preferences::load(&dotfile("REDISCLI_RCFILE", ".redisclirc").unwrap_or_default());
    let mut history = HistoryFile::new(dotfile("REDISCLI_HISTFILE", ".rediscli_history"));
    let mut editor = editor(&session, &mut history)?;
    loop {
        let prompt = prepare(&session, &mut editor, &preferences)?;
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) if editor.helper().is_some_and(Assistant::saw_text) => continue,
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::Other(format!("penstock cli: can't read from the terminal: {error}"))),
        };
        if line.trim().is_empty() {
            continue;
        }
        remember(&mut editor, &mut history, &line);
        if run_line(&mut session.borrow_mut(), &line, &mut preferences)? == Next::Quit {
            return Ok(());
        }
    }
}

type LineEditor<'s, 'a> = Editor<Assistant<'s, 'a>, MemHistory>;

fn editor<'s, 'a>(
    session: &'s RefCell<CliSession<'a>>,
    history: &mut HistoryFile,
) -> Result<LineEditor<'s, 'a>, Failure> {
    let no_terminal = |error| Failure::Other(format!("penstock cli: can't use the terminal: {error}"));
    let config = Config::builder()
        // Like in a shell, Tab completes the common prefix of all candidates, and another Tab lists them.
        .completion_type(CompletionType::List)
        // Pasted lines run one by one, like typed ones.
        .bracketed_paste(false)
        .max_history_size(HISTORY_LINES_MAX)
        .map_err(no_terminal)?
        .build();
    let past = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, past).map_err(no_terminal)?;
    editor.set_helper(Some(Assistant::new(session)));
    for line in history.load(HISTORY_LINES_MAX) {
        // A history error is no reason to stop.
        let _ = editor.add_history_entry(line);
    }
    Ok(editor)
}

/// Returns the path in an environment variable, or a file in the user's home directory. `/dev/null` stands for no file.
fn dotfile(variable: &str, name: &str) -> Option<PathBuf> {
    let path = match env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(name),
    };
    Some(path).filter(|path| path.as_os_str() != "/dev/null")
}

/// Prints pending push messages, updates the assistant's manual, and returns the prompt.
fn prepare(
    session: &RefCell<CliSession<'_>>,
    editor: &mut LineEditor<'_, '_>,
    preferences: &Preferences,
) -> Result<String, Failure> {
    let mut session = session.borrow_mut();
    session.show_late_pushes()?;
    session.output.flush()?;
    if let Some(assistant) = editor.helper_mut() {
        assistant.hints = preferences.hints;
        if assistant.lacks_manual_of(&session.place()) && session.is_connected() && !session.is_in_transaction() {
            let manual = Manual::load(&mut session).unwrap_or_default();
            assistant.set_manual(manual, session.place());
        }
    }
    Ok(session.prompt())
}

fn remember(editor: &mut LineEditor<'_, '_>, history: &mut HistoryFile, line: &str) {
    let _ = editor.add_history_entry(line);
    if !lines::is_secret(line.as_bytes()) {
        history.append(line);
    }
}

/// Runs a line. A broken connection or Ctrl-C ends only this line.
fn run_line(session: &mut CliSession<'_>, line: &str, preferences: &mut Preferences) -> Result<Next, Failure> {
    // Discards a Ctrl-C that was meant for the previous line.
    session.interrupt.take();
    let ran = match lines::split_pipe(line) {
        Some((command, shell)) => run_piped(session, command, shell, preferences),
        None => lines::run(session, line.as_bytes(), preferences),
    };
    match ran {
        Ok(next) => {
            session.output.flush()?;
            Ok(next)
        }
        Err(Failure::Output(error)) => Err(Failure::Output(error)),
        Err(Failure::Interrupted) => {
            session.output.print("\n")?;
            session.output.flush()?;
            replace_connection(session);
            Ok(Next::Line)
        }
        Err(failure) => {
            session.output.flush()?;
            let text = failure.to_string();
            if !text.is_empty() {
                complain!("{text}");
            }
            session.disconnect();
            Ok(Next::Line)
        }
    }
}

/// Runs a line with its output as the input of a shell command, and waits for both.
fn run_piped(
    session: &mut CliSession<'_>,
    command: &str,
    shell: &str,
    preferences: &mut Preferences,
) -> Result<Next, Failure> {
    session.output.flush()?;
    let mut child = match Command::new("sh").args(["-c", shell]).stdin(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            complain!("penstock cli: can't run the shell: {error}");
            return Ok(Next::Line);
        }
    };
    if let Some(input) = child.stdin.take() {
        session.output.begin_pipe(input);
    }
    let ran = lines::run(session, command.as_bytes(), preferences);
    session.output.end_pipe();
    // The shell command prints its errors itself.
    let _ = child.wait();
    match ran {
        // The shell command has read enough. Endless output can only end together with the connection.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
            if never_ends(&split_args(command.as_bytes()).unwrap_or_default()) {
                session.disconnect();
                replace_connection(session);
            }
            Ok(Next::Line)
        }
        ran => ran,
    }
}

/// Reconnects after Ctrl-C has ended a wait for a reply together with the connection. Prints the state that was lost.
fn replace_connection(session: &mut CliSession<'_>) {
    if session.is_connected() {
        return;
    }
    let loss = session.session_state().loss();
    // The error was printed. Each command tries to connect again.
    let _ = session.connect();
    if let Some(loss) = loss.filter(|_| session.is_connected()) {
        complain!("{loss}");
    }
}
