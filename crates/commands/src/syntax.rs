//! The arguments of a command as a tree, parsed from the notation of Redis's command pages. COMMAND DOCS prints the
//! tree, and the tools derive their hints from it.
//!
//! The notation of an entry's `syntax`:
//!
//! | written | means |
//! | --- | --- |
//! | `key`, `value` | an argument, in lower case: a string, or a key if a key specification finds it |
//! | `count:integer`, `destination:key` | an argument of another type |
//! | `NX`, `*` | a literal word: upper case or a sign |
//! | `*:auto-id` | a literal word with a name for documentation; the default name is the word in lower case |
//! | `""` | the empty string as a literal word |
//! | `EX seconds`, `LIMIT offset count` | a word and its arguments: everything up to the next bracket or bar around it |
//! | `[...]` | optional |
//! | `<NX \| XX>`, `[NX \| XX]` | one of the alternatives |
//! | `<GROUP group consumer> [NOACK]` | a group: the bracket ends the arguments of the word |
//! | `[NX \| XX]:condition` | a choice with a name; the default name joins the first two alternatives |
//! | `[start end]:range`, `<host port>:target` | a group with a name |
//! | `key [key ...]`, `field value [field value ...]` | once or more |
//! | `start end [start end ...]:range` | a repeated group with a name; the default name is `data` |
//! | `[GET pattern [GET pattern ...]]` | repetition including the word |
//! | `count:integer@6.2.0`, `CH@3.0.2`, `EX@2.6.12 seconds`, `[NX \| XX]:condition@7.0.0` | the version that added the argument, if later than the command |
//! | `name@-2.8.12`, `name@2.4.0-2.8.12` | the version that deprecated the argument, after a dash |
//!
//! Sources: the syntax lines of Redis's command pages and the page of COMMAND DOCS. This module knows no handler and
//! writes no reply.

#[cfg(test)]
mod tests;

use crate::spec::{Begin, Find, KeySpec, key_flag};

/// Type of an argument, in the vocabulary of COMMAND DOCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentType {
    /// Any bytes.
    String,
    /// A whole number.
    Integer,
    /// A floating point number.
    Double,
    /// The name of a key.
    Key,
    /// A glob-style pattern.
    Pattern,
    /// A Unix time.
    UnixTime,
    /// A literal word.
    PureToken,
    /// A choice of several arguments.
    OneOf,
    /// A group of several arguments.
    Block,
}

impl ArgumentType {
    /// The name in COMMAND DOCS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ArgumentType::String => "string",
            ArgumentType::Integer => "integer",
            ArgumentType::Double => "double",
            ArgumentType::Key => "key",
            ArgumentType::Pattern => "pattern",
            ArgumentType::UnixTime => "unix-time",
            ArgumentType::PureToken => "pure-token",
            ArgumentType::OneOf => "oneof",
            ArgumentType::Block => "block",
        }
    }

    fn named(name: &str) -> Option<ArgumentType> {
        let simple = [
            ArgumentType::String,
            ArgumentType::Integer,
            ArgumentType::Double,
            ArgumentType::Key,
            ArgumentType::Pattern,
            ArgumentType::UnixTime,
        ];
        simple.into_iter().find(|k| k.name() == name)
    }
}

/// An argument of a command, in the form of COMMAND DOCS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Its name; a choice or a block without a name gets one derived from its parts.
    pub name: String,
    /// Its type.
    pub kind: ArgumentType,
    /// The literal word before it; for a pure token, the word itself.
    pub token: Option<String>,
    /// True if it may be omitted.
    pub optional: bool,
    /// True if it may be given more than once.
    pub multiple: bool,
    /// True if its word is repeated, too.
    pub multiple_token: bool,
    /// Index of the key specification that finds it.
    pub key_spec_index: Option<usize>,
    /// Version that added it, if later than its command.
    pub since: Option<String>,
    /// Version that deprecated it.
    pub deprecated_since: Option<String>,
    /// The parts of a choice or a block.
    pub arguments: Vec<Argument>,
}

impl Argument {
    fn new(name: impl Into<String>, kind: ArgumentType) -> Argument {
        Argument {
            name: name.into(),
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec_index: None,
            since: None,
            deprecated_since: None,
            arguments: Vec::new(),
        }
    }

    /// Adds the versions that the notation declares.
    fn with(mut self, versions: Versions<'_>) -> Argument {
        let or = |given: Option<&str>, before| given.map(Into::into).or(before);
        self.since = or(versions.since, self.since);
        self.deprecated_since = or(versions.deprecated_since, self.deprecated_since);
        self
    }

    fn pure_token(word: Word<'_>) -> Argument {
        let typed = if word.typed == "\"\"" { "" } else { word.typed };
        Argument { token: Some(typed.into()), ..Argument::new(word.name(), ArgumentType::PureToken) }
    }

    fn block(name: &str, arguments: Vec<Argument>) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentType::Block) }
    }

    /// Combines several arguments into one.
    fn group(name: &str, mut arguments: Vec<Argument>) -> Argument {
        match arguments.pop() {
            Some(only) if arguments.is_empty() => only,
            Some(last) => {
                arguments.push(last);
                Argument::block(name, arguments)
            }
            None => Argument::block(name, arguments),
        }
    }

    /// Creates a choice of alternatives; `name` is its name in the notation, if any.
    fn one_of(name: Option<&str>, alternatives: Vec<Vec<Argument>>) -> Argument {
        let arguments: Vec<_> = alternatives.into_iter().map(|a| Argument::group("options", a)).collect();
        let made_up = || arguments.iter().take(2).map(|a| &*a.name).collect::<Vec<_>>().join("-or-");
        let name = name.map_or_else(made_up, Into::into);
        Argument { arguments, ..Argument::new(name, ArgumentType::OneOf) }
    }

    /// Smallest number of request arguments that it takes.
    fn least(&self) -> usize {
        if self.optional {
            return 0;
        }
        let token = usize::from(self.token.is_some());
        match self.kind {
            ArgumentType::PureToken => 1,
            ArgumentType::OneOf => token + self.arguments.iter().map(Argument::least).min().unwrap_or(0),
            ArgumentType::Block => token + least(&self.arguments),
            _ => token + 1,
        }
    }

    /// Number of request arguments that it takes, if fixed.
    fn width(&self) -> Option<usize> {
        let inner = &self.arguments;
        let is_fixed = !self.optional
            && !self.multiple
            && inner.iter().all(|a| a.width().is_some())
            && (self.kind != ArgumentType::OneOf || inner.windows(2).all(|w| w[0].width() == w[1].width()));
        is_fixed.then(|| self.least())
    }
}

/// Smallest number of request arguments that these take, without the command's name.
#[must_use]
pub fn least(arguments: &[Argument]) -> usize {
    arguments.iter().map(Argument::least).sum()
}

/// Removes the parts of a notation that only COMMAND DOCS needs: types, names, versions, and angle brackets without a
/// choice. Pages show the result.
#[must_use]
pub fn shown(syntax: &str) -> String {
    let mut shown = String::with_capacity(syntax.len());
    let mut parser = Parser { text: syntax, at: 0 };
    let mut angles_are_choices = Vec::new();
    loop {
        let before = parser.at;
        let word = parser.peek();
        shown.push_str(&syntax[before..parser.at]);
        if word.is_empty() {
            return shown;
        }
        parser.next();
        if matches!(word, "]" | ">") {
            parser.suffix();
        }
        let is_shown = match word {
            "<" => {
                angles_are_choices.push(begins_choice(&syntax[parser.at..]));
                angles_are_choices.last() == Some(&true)
            }
            ">" => angles_are_choices.pop() == Some(true),
            _ => true,
        };
        if !is_shown {
            continue;
        }
        let word = word.split_once('@').map_or(word, |(word, _)| word);
        let typed = Word::of(word).map(|word| word.typed);
        shown.push_str(typed.unwrap_or_else(|| word.rsplit_once(':').map_or(word, |(name, _)| name)));
    }
}

/// True if a bar comes before the closing bracket in the text after an opening bracket.
fn begins_choice(text: &str) -> bool {
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '|' if depth == 0 => return true,
            ']' | '>' if depth == 0 => return false,
            '[' | '<' => depth += 1,
            ']' | '>' => depth -= 1,
            _ => {}
        }
    }
    false
}

/// A literal word.
#[derive(Clone, Copy)]
struct Word<'a> {
    typed: &'a str,
    /// Its name in the documentation, if it differs from the word.
    name: Option<&'a str>,
}

impl<'a> Word<'a> {
    /// Parses a literal word; none, if the word is an argument's name.
    fn of(word: &'a str) -> Option<Word<'a>> {
        let (typed, name) = word.split_once(':').map_or((word, None), |(typed, name)| (typed, Some(name)));
        let is_typed = !typed.contains(|c: char| c.is_ascii_lowercase());
        is_typed.then_some(Word { typed, name })
    }

    fn name(self) -> String {
        self.name.map_or_else(|| self.typed.to_ascii_lowercase(), Into::into)
    }
}

/// The versions after a word or a bracket.
#[derive(Clone, Copy, Default)]
struct Versions<'a> {
    since: Option<&'a str>,
    deprecated_since: Option<&'a str>,
}

impl<'a> Versions<'a> {
    /// Parses `6.2.0`, `-2.8.12` or `2.4.0-2.8.12`.
    fn of(text: &'a str) -> Option<Versions<'a>> {
        let is_version = |version: &str| {
            version.split('.').count() == 3 && version.split('.').all(|number| number.parse::<u32>().is_ok())
        };
        let (since, deprecated) = text.split_once('-').map_or((text, None), |(since, then)| (since, Some(then)));
        let since = (!since.is_empty() || deprecated.is_none()).then_some(since);
        let are_versions = since.into_iter().chain(deprecated).all(is_version);
        are_versions.then_some(Versions { since, deprecated_since: deprecated })
    }
}

/// A syntax error in a notation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Position of the error, in bytes from the beginning.
    pub offset: usize,
    /// Description of the error.
    pub reason: &'static str,
}

/// Parses a command's notation. `keys` are its key specifications. `first` is the position of the first argument in a
/// request: 1, or 2 for a subcommand.
///
/// # Errors
/// Returns an error for unbalanced brackets, alternatives outside brackets, or a repetition that differs from the
/// arguments before it.
pub fn parse(syntax: &str, keys: &[KeySpec], first: usize) -> Result<Vec<Argument>, Malformed> {
    let mut parser = Parser { text: syntax, at: 0 };
    let mut arguments = parser.sequence(None)?.arguments;
    if parser.at < syntax.len() {
        return Err(parser.error("a bracket or a bar without an opening bracket"));
    }
    KeyFinder { keys, found: vec![false; keys.len()] }.visit_all(&mut arguments, Some(first));
    Ok(arguments)
}

/// Consecutive arguments.
#[derive(Default)]
struct Sequence {
    arguments: Vec<Argument>,
    /// True if "..." is at its end.
    repeats: bool,
    /// True if a word precedes it and is repeated with it.
    repeats_token: bool,
}

const NAMES_ONE: &str = "a name after brackets around a single argument";

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, reason: &'static str) -> Malformed {
        Malformed { offset: self.at, reason }
    }

    /// Returns the next word or sign without consuming it; empty at the end.
    fn peek(&mut self) -> &'a str {
        let is_sign = |c: char| matches!(c, '[' | ']' | '<' | '>' | '|');
        let rest = self.text[self.at..].trim_start_matches(' ');
        self.at = self.text.len() - rest.len();
        let len = match rest.find(|c| c == ' ' || is_sign(c)) {
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        &rest[..len]
    }

    fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.at += word.len();
        word
    }

    /// Splits a word from the versions after it.
    fn versions(&self, word: &'a str) -> Result<(&'a str, Versions<'a>), Malformed> {
        let Some((word, versions)) = word.split_once('@') else { return Ok((word, Versions::default())) };
        let versions = Versions::of(versions).ok_or_else(|| self.error("an invalid version"))?;
        Ok((word, versions))
    }

    /// Parses an argument: its name, and its type unless that is a string.
    fn argument(&self, word: &str) -> Result<Argument, Malformed> {
        let Some((name, kind)) = word.rsplit_once(':') else { return Ok(Argument::new(word, ArgumentType::String)) };
        let kind = ArgumentType::named(kind).ok_or_else(|| self.error("an unknown type"))?;
        Ok(Argument::new(name, kind))
    }

    /// Consumes the text directly after a closing bracket; empty, if there is none.
    fn suffix(&mut self) -> &'a str {
        if self.text[self.at..].starts_with([':', '@']) { self.next() } else { "" }
    }

    /// Parses the name and the versions after a choice's closing bracket.
    fn choice_name(&mut self) -> Result<(Option<&'a str>, Versions<'a>), Malformed> {
        let suffix = self.suffix();
        let (name, versions) = self.versions(suffix)?;
        Ok((name.strip_prefix(':'), versions))
    }

    /// Converts the contents of brackets into one argument, with the name after them.
    fn choice(&self, name: Option<&str>, alternatives: Vec<Sequence>) -> Result<Argument, Malformed> {
        let mut alternatives: Vec<_> = alternatives.into_iter().map(|s| s.arguments).collect();
        if alternatives.len() > 1 {
            return Ok(Argument::one_of(name, alternatives));
        }
        let only = alternatives.pop().unwrap_or_default();
        // The name would be lost: a single argument has its name before its bracket.
        if name.is_some() && only.len() < 2 {
            return Err(self.error(NAMES_ONE));
        }
        Ok(Argument::group(name.unwrap_or("options"), only))
    }

    /// Parses arguments up to a closing bracket, a bar or the end; `token` is the word before them.
    fn sequence(&mut self, token: Option<Word<'_>>) -> Result<Sequence, Malformed> {
        let mut sequence = Sequence::default();
        loop {
            match self.peek() {
                "" | "]" | ">" | "|" => return Ok(sequence),
                "..." if sequence.arguments.is_empty() => return Err(self.error("a repetition of nothing")),
                "..." => {
                    self.next();
                    sequence.repeats = true;
                    return Ok(sequence);
                }
                "[" => self.optional(token, &mut sequence)?,
                "<" => {
                    let alternatives = self.alternatives(">")?;
                    let (name, versions) = self.choice_name()?;
                    let argument = self.choice(name, alternatives)?;
                    sequence.arguments.push(argument.with(versions));
                }
                _ => {
                    let word = self.next();
                    let (word, versions) = self.versions(word)?;
                    let Some(token) = Word::of(word) else {
                        sequence.arguments.push(self.argument(word)?.with(versions));
                        continue;
                    };
                    let rest = self.sequence(Some(token))?;
                    sequence.repeats = rest.repeats;
                    sequence.arguments.push(with_token(token, rest).with(versions));
                    return Ok(sequence);
                }
            }
        }
    }

    /// Parses square brackets: an optional argument, or a repetition of the arguments before it.
    fn optional(&mut self, token: Option<Word<'_>>, before: &mut Sequence) -> Result<(), Malformed> {
        let mut alternatives = self.alternatives("]")?;
        let (name, versions) = self.choice_name()?;
        let repeats = alternatives.iter().any(|s| s.repeats);
        if !repeats {
            let mut argument = self.choice(name, alternatives)?;
            argument.optional = true;
            before.arguments.push(argument.with(versions));
            return Ok(());
        }
        if versions.since.or(versions.deprecated_since).is_some() {
            return Err(self.error("a version of a repetition"));
        }
        let inner = match alternatives.pop() {
            Some(inner) if alternatives.is_empty() => inner.arguments,
            _ => return Err(self.error("a repetition of alternatives")),
        };
        if name.is_some() && inner.len() < 2 {
            return Err(self.error(NAMES_ONE));
        }
        repeat(token, before, inner, name)
            .ok_or_else(|| self.error("a repetition that differs from the arguments before it"))
    }

    fn alternatives(&mut self, close: &str) -> Result<Vec<Sequence>, Malformed> {
        self.next();
        let mut alternatives = Vec::new();
        loop {
            let sequence = self.sequence(None)?;
            if sequence.arguments.is_empty() {
                return Err(self.error("a missing argument"));
            }
            alternatives.push(sequence);
            match self.next() {
                "|" => {}
                sign if sign == close => return Ok(alternatives),
                _ => return Err(self.error("a bracket that is not closed")),
            }
        }
    }
}

/// Combines a word and its arguments into one argument.
fn with_token(word: Word<'_>, rest: Sequence) -> Argument {
    let mut argument = match &*rest.arguments {
        [] => return Argument::pure_token(word),
        [only] if only.token.is_none() && !only.optional => Argument::group("", rest.arguments),
        _ => Argument::block(&word.name(), rest.arguments),
    };
    if argument.kind == ArgumentType::OneOf {
        argument.name = word.name();
    }
    argument.token = Some(word.typed.into());
    argument.multiple_token = rest.repeats_token;
    argument.multiple |= rest.repeats_token;
    argument
}

/// Marks the arguments that `inner` repeats, which must be at the end of `before`; none if they aren't.
fn repeat(token: Option<Word<'_>>, before: &mut Sequence, inner: Vec<Argument>, name: Option<&str>) -> Option<()> {
    if let (Some(word), [only]) = (token, &*inner)
        && only.token.as_deref() == Some(word.typed)
    {
        let whole = with_token(word, Sequence { arguments: before.arguments.clone(), ..Sequence::default() });
        before.repeats_token = whole == *only;
        return before.repeats_token.then_some(());
    }
    let start = before.arguments.len().checked_sub(inner.len())?;
    if before.arguments[start..] != *inner {
        return None;
    }
    before.arguments.truncate(start);
    let argument = Argument::group(name.unwrap_or("data"), inner);
    before.arguments.push(Argument { multiple: true, ..argument });
    Some(())
}

/// True if a key specification looks for this word.
fn begins_with(spec: &KeySpec, word: &str) -> bool {
    match spec.begin {
        Begin::Keyword(begin, _) | Begin::Option(begin, ..) => begin.eq_ignore_ascii_case(word),
        Begin::Index(_) | Begin::UnlessEmpty(_) | Begin::Unknown(_) => false,
    }
}

/// Marks the arguments that are keys according to the key specifications.
struct KeyFinder<'k> {
    keys: &'k [KeySpec],
    found: Vec<bool>,
}

impl KeyFinder<'_> {
    /// Visits arguments, beginning at position `place` of a request, and returns the position after the last. A
    /// position is unknown after an optional or repeated argument.
    fn visit_all(&mut self, arguments: &mut [Argument], place: Option<usize>) -> Option<usize> {
        arguments.iter_mut().fold(place, |place, argument| {
            self.visit(argument, place, None);
            place.zip(argument.width()).map(|(place, width)| place + width)
        })
    }

    /// Visits one argument. `word` is the word before it, if a key specification looks for that word.
    fn visit(&mut self, argument: &mut Argument, place: Option<usize>, word: Option<&str>) {
        let token = argument.token.clone();
        let sought = token.as_deref().filter(|token| self.keys.iter().any(|spec| begins_with(spec, token)));
        let word = sought.or(word);
        let place = place.map(|p| p + usize::from(argument.token.is_some()));
        match argument.kind {
            ArgumentType::OneOf => argument.arguments.iter_mut().for_each(|a| self.visit(a, place, word)),
            ArgumentType::Block => {
                if let Some((first, rest)) = argument.arguments.split_first_mut() {
                    self.visit(first, place, word);
                    let next = place.zip(first.width()).map(|(place, width)| place + width);
                    self.visit_all(rest, next);
                }
            }
            ArgumentType::PureToken => {}
            _ => self.settle(argument, place, word),
        }
    }

    fn settle(&mut self, argument: &mut Argument, place: Option<usize>, word: Option<&str>) {
        let is_here = |spec: &KeySpec, found: bool| match (spec.begin, spec.find) {
            (Begin::Index(begin) | Begin::UnlessEmpty(begin), Find::Range { last, .. }) => {
                place.is_some_and(|place| (begin..=begin + last.max(0) as usize).contains(&place))
            }
            (Begin::Index(begin) | Begin::UnlessEmpty(begin), Find::Count { first, .. }) => {
                place == Some(begin + first)
            }
            (Begin::Keyword(..) | Begin::Option(..), _) => word.is_some_and(|word| begins_with(spec, word)),
            // Only the declared type marks this argument as a key.
            (Begin::Unknown(_), _) => argument.kind == ArgumentType::Key && !found,
        };
        let is_key = |spec: &KeySpec, found: bool| spec.flags & key_flag::NOT_KEY == 0 && is_here(spec, found);
        if let Some(index) = (0..self.keys.len()).rev().find(|&i| is_key(&self.keys[i], self.found[i])) {
            argument.kind = ArgumentType::Key;
            argument.key_spec_index = Some(index);
            self.found[index] = true;
        }
    }
}
