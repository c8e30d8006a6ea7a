//! The line editor's helper: completion, hints, colours, and the test for incomplete lines.

use super::completion::{Names, complete, hint, names_fitting, typed_key};
use crate::docs::{Entry, Manual};
use crate::lines::split_pipe;
use crate::session::CliSession;
use resp::splitargs::split_args;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

/// Maximum length of a line with hints and redrawing, in bytes. Redrawing a pasted line for each character would take
/// quadratic time.
const DRAWN_BYTES_MAX: usize = 1000;

const GREY: &str = "\x1b[90m";
const BOLD: &str = "\x1b[1m";
// The colours of strings, numbers and errors in replies.
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";

/// Holds the server's manual and asks the server for names.
pub struct Assistant<'s, 'a> {
    session: &'s RefCell<CliSession<'a>>,
    manual: Manual,
    /// Address of the server that the manual comes from.
    manual_of: String,
    /// Names of the server's settings. They are requested once.
    settings: RefCell<Vec<String>>,
    /// True if hints are shown.
    pub hints: bool,
    colours: bool,
    /// True if the edited line has any text.
    has_text: Cell<bool>,
}

impl<'s, 'a> Assistant<'s, 'a> {
    /// Returns an assistant without a manual.
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

    /// Returns true if the manual of the server at `place` is missing.
    pub fn lacks_manual_of(&self, place: &str) -> bool {
        self.manual_of != place || self.manual.entries().is_empty()
    }

    /// Replaces the manual.
    pub fn set_manual(&mut self, manual: Manual, place: String) {
        self.settings.take();
        self.manual = manual;
        self.manual_of = place;
    }

    /// Asks the server for names with this prefix.
    fn ask(&self, names: Names, prefix: &str) -> Vec<Pair> {
        // The session isn't borrowed while the line editor calls its helper.
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

    /// Returns true if the line had text at the last call of the editor.
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

/// Returns keys with this prefix. If there are more keys than were found, an extra candidate is appended: its
/// replacement is the prefix itself, so that Tab completes no further. The list shows it as an ellipsis.
fn keys(session: &mut CliSession<'_>, prefix: &str) -> Vec<Pair> {
    let found = session.keys_with_prefix(prefix.as_bytes());
    let mut candidates: Vec<Pair> = found.keys.iter().map(|key| candidate(typed_key(key))).collect();
    if !found.is_all && !candidates.is_empty() {
        candidates.push(Pair { display: "...".to_owned(), replacement: prefix.to_owned() });
    }
    candidates
}

/// A hint that can't be accepted with a key.
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
        if !self.colours || line.len() > DRAWN_BYTES_MAX {
            return Cow::Borrowed(line);
        }
        let Some((_, count)) = self.manual.find(&words) else { return self.highlight_unknown(line, trimmed) };
        let end = blanks + name_length(trimmed, count);
        let (name, arguments) = (&line[blanks..end], painted(&line[end..]));
        Cow::Owned(format!("{}{BOLD}{name}{RESET}{arguments}", &line[..blanks]))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.colours { Cow::Owned(format!("{GREY}{hint}{RESET}")) } else { Cow::Borrowed(hint) }
    }

    fn highlight_char(&self, line: &str, _: usize, _: CmdKind) -> bool {
        self.colours && line.len() <= DRAWN_BYTES_MAX
    }
}

impl Assistant<'_, '_> {
    /// Marks the first word of a line as an error, once it is complete, if it looks like the name of a command.
    fn highlight_unknown<'l>(&self, line: &'l str, trimmed: &'l str) -> Cow<'l, str> {
        const LOCAL: [&str; 6] = ["quit", "exit", "help", "clear", "connect", "restart"];
        let Some(end) = trimmed.find(char::is_whitespace) else { return Cow::Borrowed(line) };
        let name = trimmed[..end].to_ascii_lowercase();
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic()) && !LOCAL.contains(&name.as_str());
        let is_container = |entry: &Entry| entry.words().next() == Some(name.as_str());
        if !is_name || self.manual.entries().is_empty() || self.manual.entries().iter().any(is_container) {
            return Cow::Borrowed(line);
        }
        let blanks = &line[..line.len() - trimmed.len()];
        Cow::Owned(format!("{blanks}{RED}{}{RESET}{}", &trimmed[..end], &trimmed[end..]))
    }
}

/// Colours the arguments of a command: quoted strings, numbers, and a shell command.
fn painted(arguments: &str) -> String {
    // The command's name before the arguments doesn't matter for the split.
    let line = format!("x{arguments}");
    let command = split_pipe(&line).map_or(arguments.len(), |(command, _)| command.len() - 1);
    let (arguments, shell) = arguments.split_at(command);
    let mut text = String::new();
    let mut rest = arguments;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        let (before, word) = rest.split_at(blanks);
        let end = word_length(word);
        let (word, after) = word.split_at(end);
        let colour = match word.as_bytes() {
            [b'"' | b'\'', ..] => GREEN,
            _ if word.parse::<f64>().is_ok_and(f64::is_finite) => CYAN,
            _ => "",
        };
        text += before;
        text += &if colour.is_empty() { word.to_owned() } else { format!("{colour}{word}{RESET}") };
        rest = after;
    }
    if shell.is_empty() { text } else { format!("{text}{GREY}{shell}{RESET}") }
}

/// Returns the length of a line's first `words` words, including the blanks between them.
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

/// Returns the length of the word at the start of a text: up to a blank outside quotes.
fn word_length(text: &str) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    let ends = |(_, char): &(usize, char)| {
        match (quote, *char) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), char) if char == open => quote = None,
            (None, '"' | '\'') => quote = Some(*char),
            (None, char) => return char.is_whitespace(),
            _ => {}
        }
        false
    };
    text.char_indices().find(ends).map_or(text.len(), |(at, _)| at)
}

impl Validator for Assistant<'_, '_> {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let line = context.input();
        // The shell reports its own quotes.
        let is_open = has_open_quote(split_pipe(line).map_or(line, |(command, _)| command));
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Returns true if a quote is open at the end of the line.
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
    fn arguments_are_coloured_by_their_kind() {
        let check = |text: &str, expected: &str| {
            let shown =
                painted(text).replace(GREEN, "<s:").replace(CYAN, "<n:").replace(GREY, "<p:").replace(RESET, ">");
            assert_eq!(shown, expected, "{text}");
        };
        check("", "");
        check(" k v ", " k v ");
        check(" k \"a 1\" 12 -1.5 x1 inf", " k <s:\"a 1\"> <n:12> <n:-1.5> x1 inf");
        check(" k 'open 5", " k <s:'open 5>");
        check(" k \"a\\\" 5\" 6", " k <s:\"a\\\" 5\"> <n:6>");
        check(" k 1 | wc -l", " k <n:1><p: | wc -l>");
        check(" é 1", " é <n:1>");
    }

    #[test]
    fn names_have_a_length() {
        assert_eq!(name_length("get a", 1), 3);
        assert_eq!(name_length("client  list x", 2), 12);
        assert_eq!(name_length("get", 1), 3);
    }
}
