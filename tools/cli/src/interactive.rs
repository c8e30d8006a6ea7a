//! The interactive mode: lines that are edited on a terminal, with history, completion and hints.

mod completion;
mod helper;
mod history;

use crate::docs::Manual;
use crate::failure::Failure;
use crate::lines::{self, Next};
use crate::output::complain;
use crate::preferences::Preferences;
use crate::session::CliSession;
use helper::Assistant;
use history::HistoryFile;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{CompletionType, Config, Editor};
use std::cell::RefCell;
use std::env;
use std::path::PathBuf;

/// Lines that are remembered.
const HISTORY_LINES_MAX: usize = 1000;

/// Reads lines from the terminal and runs them until the user leaves.
///
/// # Errors
/// The terminal's, or standard output's.
pub fn run(session: CliSession<'_>) -> Result<(), Failure> {
    let session = RefCell::new(session);
    // Without it Ctrl-C ends the program, which is no reason not to start.
    let _ = session.borrow_mut().interrupt.watch();
    // What fails was said, and each command tries again.
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
        // As in a shell: Tab completes what all candidates have in common, another Tab lists them.
        .completion_type(CompletionType::List)
        // Pasted lines are run one by one, as if they were typed.
        .bracketed_paste(false)
        .max_history_size(HISTORY_LINES_MAX)
        .map_err(no_terminal)?
        .build();
    let past = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, past).map_err(no_terminal)?;
    editor.set_helper(Some(Assistant::new(session)));
    for line in history.load(HISTORY_LINES_MAX) {
        // A line that isn't remembered is no reason to stop.
        let _ = editor.add_history_entry(line);
    }
    Ok(editor)
}

/// A file that the environment names, or one in the user's home. `/dev/null` means none.
fn dotfile(variable: &str, name: &str) -> Option<PathBuf> {
    let path = match env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(name),
    };
    Some(path).filter(|path| path.as_os_str() != "/dev/null")
}

/// Shows what came unasked, sees to it that the assistant knows the server's commands; gives the prompt.
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

/// Runs a line; what breaks the connection or Ctrl-C ends no more than that.
fn run_line(session: &mut CliSession<'_>, line: &str, preferences: &mut Preferences) -> Result<Next, Failure> {
    // An earlier one was for the line before.
    session.interrupt.take();
    match lines::run(session, line.as_bytes(), preferences) {
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

/// Connects anew if Ctrl-C has ended a wait for a reply, and with it the connection, and says what the new one lacks.
fn replace_connection(session: &mut CliSession<'_>) {
    if session.is_connected() {
        return;
    }
    let loss = session.ties().loss();
    // What fails was said, and each command tries again.
    let _ = session.connect();
    if let Some(loss) = loss.filter(|_| session.is_connected()) {
        complain!("{loss}");
    }
}
