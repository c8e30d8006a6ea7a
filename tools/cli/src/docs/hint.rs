//! Computes the remaining arguments of a command from the words already typed.

use super::{Argument, ArgumentKind, syntax};

/// The expected continuation of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The remaining arguments in the manual's notation; empty if the command is complete.
    pub text: String,
    /// Keywords that may come next.
    pub tokens: Vec<String>,
    /// True if a key may come next.
    pub key: bool,
}

/// Returns the arguments that remain after `words`, or `None` if the words don't match.
pub fn expected(arguments: &[Argument], words: &[String]) -> Option<Expected> {
    let mut rest = Rest { open: Vec::new(), waiting: arguments.iter().collect() };
    let mut words = words;
    while !words.is_empty() {
        words = rest.take(words)?;
    }
    Some(rest.expected())
}

/// The unread part of a list of arguments.
struct Rest<'a> {
    /// Pieces of arguments that have begun. They must come next, in this order.
    open: Vec<Piece<'a>>,
    /// Arguments that haven't begun.
    waiting: Vec<&'a Argument>,
}

/// A piece of an argument that has begun.
#[derive(Clone, Copy)]
enum Piece<'a> {
    /// A whole argument.
    Whole(&'a Argument),
    /// An argument's value, after its keyword.
    Value(&'a Argument),
    /// A repetition of an argument.
    Again(&'a Argument),
}

impl<'a> Rest<'a> {
    /// Consumes the first word and returns the others.
    fn take<'w>(&mut self, words: &'w [String]) -> Option<&'w [String]> {
        let (word, others) = words.split_first()?;
        self.take_open(word).or_else(|| self.take_waiting(word)).map(|()| others)
    }

    /// Consumes a word with the pieces that have begun.
    fn take_open(&mut self, word: &str) -> Option<()> {
        for index in 0..self.open.len() {
            let piece = self.open[index];
            // A repetition without keyword takes any word, except a keyword of a later argument.
            let can_wait =
                matches!(piece, Piece::Again(_)) || matches!(piece, Piece::Whole(argument) if argument.optional);
            let is_token_of_later = can_wait && piece.has_no_token() && self.is_token(word, index + 1);
            if let Some(pieces) = piece.begin(word).filter(|_| !is_token_of_later) {
                self.open.splice(..=index, pieces);
                return Some(());
            }
            if !can_wait {
                return None;
            }
        }
        self.open.clear();
        None
    }

    /// Returns true if the word is a keyword of a piece from `from` on, or of an argument that may follow.
    fn is_token(&self, word: &str, from: usize) -> bool {
        let later = self.open[from..].iter().any(|piece| piece.is_token(word));
        later || self.reachable().any(|argument| is_token(argument, word))
    }

    /// Returns the arguments that may begin next: the optional ones up to the first required one, inclusive.
    fn reachable(&self) -> impl Iterator<Item = &'a Argument> + '_ {
        let required = self.waiting.iter().position(|argument| !argument.optional);
        let end = required.map_or(self.waiting.len(), |index| index + 1);
        self.waiting[..end].iter().copied()
    }

    /// Consumes a word with the arguments that haven't begun. Keywords have priority over arguments that take any word.
    fn take_waiting(&mut self, word: &str) -> Option<()> {
        let reachable: Vec<&Argument> = self.reachable().collect();
        let by_token = reachable.iter().position(|argument| is_token(argument, word));
        let required = reachable.iter().position(|argument| !argument.optional);
        let index =
            by_token.or(required).or_else(|| reachable.iter().position(|argument| begin(argument, word).is_some()))?;
        let argument = self.waiting[index];
        self.open = begin(argument, word)?;
        if argument.optional {
            // Options come in any order.
            self.waiting.remove(index);
        } else {
            self.waiting.drain(..=index);
        }
        Some(())
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        let open = self.open.iter().map(|piece| piece.text());
        let waiting = self.waiting.iter().map(|argument| syntax::one(argument));
        expected.text = open.chain(waiting).collect::<Vec<_>>().join(" ");
        for piece in &self.open {
            match piece {
                Piece::Whole(argument) => collect(argument, &mut expected),
                Piece::Value(argument) => collect_value(argument, &mut expected),
                Piece::Again(argument) => collect(argument, &mut expected),
            }
            if !matches!(piece, Piece::Again(_)) && !matches!(piece, Piece::Whole(argument) if argument.optional) {
                return expected;
            }
        }
        self.reachable().for_each(|argument| collect(argument, &mut expected));
        expected
    }
}

impl<'a> Piece<'a> {
    /// Returns the pieces that remain after a word, or `None` if the word doesn't fit.
    fn begin(self, word: &str) -> Option<Vec<Piece<'a>>> {
        match self {
            Self::Whole(argument) => begin(argument, word),
            Self::Value(argument) => begin_value(argument, word),
            Self::Again(argument) if argument.multiple_token => begin(argument, word),
            Self::Again(argument) => begin_value(argument, word).map(|pieces| again(argument, pieces)),
        }
    }

    fn is_token(self, word: &str) -> bool {
        match self {
            Self::Whole(argument) => is_token(argument, word),
            Self::Value(argument) => argument.parts.iter().any(|part| is_token(part, word)),
            Self::Again(argument) => argument.multiple_token && is_token(argument, word),
        }
    }

    fn has_no_token(self) -> bool {
        match self {
            Self::Whole(argument) => argument.token.is_none(),
            Self::Value(_) => true,
            Self::Again(argument) => !argument.multiple_token,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Whole(argument) => syntax::one(argument),
            Self::Value(argument) => syntax::value(argument),
            Self::Again(argument) => {
                let token = argument.token.as_deref().filter(|_| argument.multiple_token);
                let token = token.map(|token| format!("{token} ")).unwrap_or_default();
                format!("[{token}{} ...]", syntax::value(argument))
            }
        }
    }
}

fn again<'a>(argument: &'a Argument, mut pieces: Vec<Piece<'a>>) -> Vec<Piece<'a>> {
    if argument.multiple {
        pieces.push(Piece::Again(argument));
    }
    pieces
}

/// Returns the pieces of an argument that remain after its first word, or `None` if the word doesn't fit.
fn begin<'a>(argument: &'a Argument, word: &str) -> Option<Vec<Piece<'a>>> {
    match &argument.token {
        Some(token) if !token.eq_ignore_ascii_case(word) => None,
        Some(_) if argument.kind == ArgumentKind::Token => Some(again(argument, Vec::new())),
        Some(_) => Some(again(argument, vec![Piece::Value(argument)])),
        None => begin_value(argument, word).map(|pieces| again(argument, pieces)),
    }
}

/// Like `begin`, for the value after the keyword.
fn begin_value<'a>(argument: &'a Argument, word: &str) -> Option<Vec<Piece<'a>>> {
    match argument.kind {
        ArgumentKind::Value | ArgumentKind::Key => Some(Vec::new()),
        ArgumentKind::Token => None,
        ArgumentKind::Choice => {
            let by_token = argument.parts.iter().find(|part| is_token(part, word));
            by_token
                .and_then(|part| begin(part, word))
                .or_else(|| argument.parts.iter().find_map(|part| begin(part, word)))
        }
        ArgumentKind::Block => begin_block(&argument.parts, word),
    }
}

/// Like `begin`, for a sequence. Optional parts may be missing.
fn begin_block<'a>(parts: &'a [Argument], word: &str) -> Option<Vec<Piece<'a>>> {
    for (index, part) in parts.iter().enumerate() {
        if let Some(mut pieces) = begin(part, word) {
            pieces.extend(parts[index + 1..].iter().map(Piece::Whole));
            return Some(pieces);
        }
        if !part.optional {
            return None;
        }
    }
    None
}

/// Returns true if the word is a keyword that can begin the argument.
fn is_token(argument: &Argument, word: &str) -> bool {
    match (&argument.token, argument.kind) {
        (Some(token), _) => token.eq_ignore_ascii_case(word),
        (None, ArgumentKind::Choice) => argument.parts.iter().any(|part| is_token(part, word)),
        (None, ArgumentKind::Block) => argument.parts.first().is_some_and(|part| is_token(part, word)),
        (None, _) => false,
    }
}

/// Collects the possible beginnings of an argument.
fn collect(argument: &Argument, expected: &mut Expected) {
    match &argument.token {
        Some(token) => expected.tokens.push(token.clone()),
        None => collect_value(argument, expected),
    }
}

fn collect_value(argument: &Argument, expected: &mut Expected) {
    match argument.kind {
        ArgumentKind::Key => expected.key = true,
        ArgumentKind::Value | ArgumentKind::Token => {}
        ArgumentKind::Choice => argument.parts.iter().for_each(|part| collect(part, expected)),
        ArgumentKind::Block => {
            for part in &argument.parts {
                collect(part, expected);
                if !part.optional {
                    return;
                }
            }
        }
    }
}
