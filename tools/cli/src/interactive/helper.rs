//! The line editor's helper: completion, hints, colours, and whether a line is complete.

use super::completion::{Names, complete, hint, names_fitting, typed_key};
use crate::docs::Manual;
use crate::session::CliSession;
use resp::splitargs::split_args;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

/// A line of more bytes has no hints, and isn't drawn anew for each character that is added to it: pasted text would
/// take the square of its length.
const DRAWN_BYTES_MAX: usize = 1000;

const GREY: &str = "\x1b[90m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// Knows the server's commands and asks it for keys.
pub struct Assistant<'s, 'a> {
    session: &'s RefCell<CliSession<'a>>,
    manual: Manual,
    /// Where the server is that the manual is of.
    manual_of: String,
    /// The names of the server's settings, once it was asked for them and told.
    settings: RefCell<Vec<String>>,
    /// Whether hints are shown.
    pub hints: bool,
    colours: bool,
    /// Whether the line that is being edited has any text.
    has_text: Cell<bool>,
}

impl<'s, 'a> Assistant<'s, 'a> {
    /// One that knows nothing yet.
    pub fn new(session: &'s RefCell<CliSession<'a>>) -> Self {
        Self {
            session,
            manual: Manual::default(),
            manual_of: String::new(),
            settings: RefCell::default(),
            hints: true,
            colours: session.borrow().options.style.colours,
            has_text: Cell::new(false),
        }
    }

    /// Whether the server's manual is still to be asked for.
    pub fn lacks_manual_of(&self, place: &str) -> bool {
        self.manual_of != place || self.manual.entries().is_empty()
    }

    /// Learns a server's commands.
    pub fn set_manual(&mut self, manual: Manual, place: String) {
        self.settings.take();
        self.manual = manual;
        self.manual_of = place;
    }

    /// Asks the server for names that begin so.
    fn ask(&self, names: Names, prefix: &str) -> Vec<Pair> {
        // The line editor asks while nothing else uses the session.
        let Ok(mut session) = self.session.try_borrow_mut() else { return Vec::new() };
        match names {
            Names::Keys => keys(&mut session, prefix),
            Names::Settings => {
                let mut settings = self.settings.borrow_mut();
                if settings.is_empty() {
                    *settings = session.setting_names();
                }
                names_fitting(&settings, prefix).into_iter().map(candidate).collect()
            }
        }
    }

    /// Whether the line had any text when it was seen last.
    pub fn saw_text(&self) -> bool {
        self.has_text.get()
    }
}

impl Completer for Assistant<'_, '_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let completion = complete(&self.manual, &line[..pos]);
        let mut candidates: Vec<Pair> = completion.words.into_iter().map(candidate).collect();
        if let Some((names, prefix)) = completion.asked {
            candidates.extend(self.ask(names, &prefix));
        }
        Ok((completion.start, candidates))
    }
}

fn candidate(word: String) -> Pair {
    Pair { display: word.clone(), replacement: word }
}

/// The names of keys that begin so. Where there are more than are known, what these have in common is not to be taken
/// for what all have: a last candidate, which the list shows as an ellipsis, has no more than the prefix.
fn keys(session: &mut CliSession<'_>, prefix: &str) -> Vec<Pair> {
    let found = session.keys_with_prefix(prefix.as_bytes());
    let mut candidates: Vec<Pair> = found.keys.iter().map(|key| candidate(typed_key(key))).collect();
    if !found.is_all && !candidates.is_empty() {
        candidates.push(Pair { display: "...".to_owned(), replacement: prefix.to_owned() });
    }
    candidates
}

/// A hint that is only to be looked at.
pub struct ArgumentHint(String);

impl Hint for ArgumentHint {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Assistant<'_, '_> {
    type Hint = ArgumentHint;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<ArgumentHint> {
        self.has_text.set(!line.is_empty());
        if !self.hints || pos < line.len() || line.len() > DRAWN_BYTES_MAX {
            return None;
        }
        hint(&self.manual, line).map(ArgumentHint)
    }
}

impl Highlighter for Assistant<'_, '_> {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        let trimmed = line.trim_start();
        let blanks = line.len() - trimmed.len();
        let words: Vec<String> = trimmed.split_whitespace().take(2).map(str::to_owned).collect();
        let Some((_, count)) = self.manual.find(&words).filter(|_| self.colours) else { return Cow::Borrowed(line) };
        let end = blanks + name_length(trimmed, count);
        Cow::Owned(format!("{}{BOLD}{}{RESET}{}", &line[..blanks], &line[blanks..end], &line[end..]))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.colours { Cow::Owned(format!("{GREY}{hint}{RESET}")) } else { Cow::Borrowed(hint) }
    }

    fn highlight_char(&self, line: &str, _: usize, _: CmdKind) -> bool {
        self.colours && line.len() <= DRAWN_BYTES_MAX
    }
}

/// How many bytes a line's first words take, with what separates them.
fn name_length(line: &str, words: usize) -> usize {
    let mut length = 0;
    for _ in 0..words {
        let rest = &line[length..];
        let word = rest.trim_start();
        let end = word.find(char::is_whitespace).unwrap_or(word.len());
        length += rest.len() - word.len() + end;
    }
    length
}

impl Validator for Assistant<'_, '_> {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let is_open = has_open_quote(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Whether a quote was opened that is to be closed on another line.
fn has_open_quote(line: &str) -> bool {
    let closes = |quote: &str| split_args(format!("{line}{quote}").as_bytes()).is_ok();
    split_args(line.as_bytes()).is_err() && (closes("\"") || closes("'"))
}

impl Helper for Assistant<'_, '_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_quotes_ask_for_another_line() {
        for line in ["set a \"b", "set a 'b", "set a \"b\n c", "\"", "set a \"b\\\""] {
            assert!(has_open_quote(line), "{line}");
        }
        for line in ["", "set a b", "set a \"b\"", "set a \"b\"c", "set a 'b'\"c\""] {
            assert!(!has_open_quote(line), "{line}");
        }
    }

    #[test]
    fn names_have_a_length() {
        assert_eq!(name_length("get a", 1), 3);
        assert_eq!(name_length("client  list x", 2), 12);
        assert_eq!(name_length("get", 1), 3);
    }
}
