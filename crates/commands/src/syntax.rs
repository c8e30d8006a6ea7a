//! The arguments of a command as a tree, read from the notation of Redis's command pages; COMMAND DOCS prints it, and
//! the tools' hints are made from it.
//!
//! The notation, which an entry's `syntax` is written in:
//!
//! | written | means |
//! | --- | --- |
//! | `key`, `value` | an argument, in lower case: a string, or a key where the key specifications find it |
//! | `count:integer`, `destination:key` | an argument of another type |
//! | `NX`, `*` | a word that is typed as it stands: upper case or a sign |
//! | `*:auto-id` | the same with a name for documentation; without it, that is the word in lower case |
//! | `""` | the empty string as such a word |
//! | `EX seconds`, `LIMIT offset count` | a word and what belongs to it: all that follows, up to a bracket or bar around it |
//! | `[...]` | may be left out |
//! | `<NX \| XX>`, `[NX \| XX]` | one of these |
//! | `<GROUP group consumer> [NOACK]` | several that go together: what belongs to the word ends with the bracket |
//! | `[NX \| XX]:condition` | the choice with a name; without it, that is made up from the first two |
//! | `[start end]:range`, `<host port>:target` | the same of several that go together |
//! | `key [key ...]`, `field value [field value ...]` | once or more |
//! | `start end [start end ...]:range` | the same with a name for what is repeated; without it, that is `data` |
//! | `[GET pattern [GET pattern ...]]` | the same with its word each time |
//! | `count:integer@6.2.0`, `CH@3.0.2`, `EX@2.6.12 seconds`, `[NX \| XX]:condition@7.0.0` | the version since which it exists, if it came later than the command |
//! | `name@-2.8.12`, `name@2.4.0-2.8.12` | the version since which it is deprecated, behind a dash |
//!
//! Sources: the syntax lines of Redis's command pages and the page of COMMAND DOCS. This module knows no handler and
//! writes no reply.

#[cfg(test)]
mod tests;

use crate::spec::{Begin, Find, KeySpec, key_flag};

/// What an argument is, in the vocabulary of COMMAND DOCS.
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
    /// A word that is typed as it stands.
    PureToken,
    /// One of several arguments.
    OneOf,
    /// Several arguments that go together.
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
    /// Its name: for a choice or a block, one made up from what it holds.
    pub name: String,
    /// What it is.
    pub kind: ArgumentType,
    /// The word before it; of a pure token, the word that it is.
    pub token: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be given more than once.
    pub multiple: bool,
    /// Whether its word is then repeated too.
    pub multiple_token: bool,
    /// Which of the command's key specifications finds it.
    pub key_spec_index: Option<usize>,
    /// The version that brought it, if that is later than its command.
    pub since: Option<String>,
    /// The version that deprecated it.
    pub deprecated_since: Option<String>,
    /// What a choice or a block consists of.
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

    /// The same with the versions that the notation gives it.
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

    /// Several arguments as one.
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

    /// One of several; `name`: what the notation calls the choice.
    fn one_of(name: Option<&str>, alternatives: Vec<Vec<Argument>>) -> Argument {
        let arguments: Vec<_> = alternatives.into_iter().map(|a| Argument::group("options", a)).collect();
        let made_up = || arguments.iter().take(2).map(|a| &*a.name).collect::<Vec<_>>().join("-or-");
        let name = name.map_or_else(made_up, Into::into);
        Argument { arguments, ..Argument::new(name, ArgumentType::OneOf) }
    }

    /// The fewest arguments of a request that it takes.
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

    /// How many arguments of a request it takes, if that is always the same.
    fn width(&self) -> Option<usize> {
        let inner = &self.arguments;
        let is_fixed = !self.optional
            && !self.multiple
            && inner.iter().all(|a| a.width().is_some())
            && (self.kind != ArgumentType::OneOf || inner.windows(2).all(|w| w[0].width() == w[1].width()));
        is_fixed.then(|| self.least())
    }
}

/// The fewest arguments of a request that these take, the command's name not counted.
#[must_use]
pub fn least(arguments: &[Argument]) -> usize {
    arguments.iter().map(Argument::least).sum()
}

/// A notation without what only documentation needs: types, names, versions and angle brackets around no choice. So
/// pages show it.
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

/// True if what follows an opening bracket has a bar before its closing one.
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

/// A word that is typed as it stands.
#[derive(Clone, Copy)]
struct Word<'a> {
    typed: &'a str,
    /// What documentation calls it, if not by the word itself.
    name: Option<&'a str>,
}

impl<'a> Word<'a> {
    /// The word, if it is one that is typed as it stands.
    fn of(word: &'a str) -> Option<Word<'a>> {
        let (typed, name) = word.split_once(':').map_or((word, None), |(typed, name)| (typed, Some(name)));
        let is_typed = !typed.contains(|c: char| c.is_ascii_lowercase());
        is_typed.then_some(Word { typed, name })
    }

    fn name(self) -> String {
        self.name.map_or_else(|| self.typed.to_ascii_lowercase(), Into::into)
    }
}

/// The versions behind a word or a bracket.
#[derive(Clone, Copy, Default)]
struct Versions<'a> {
    since: Option<&'a str>,
    deprecated_since: Option<&'a str>,
}

impl<'a> Versions<'a> {
    /// Reads `6.2.0`, `-2.8.12` or `2.4.0-2.8.12`.
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

/// A notation that can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Where, in bytes from the beginning.
    pub offset: usize,
    /// Why.
    pub reason: &'static str,
}

/// Reads a command's notation. `keys` are its key specifications, and `first` is the place in a request of its first
/// argument: 1, or 2 for a subcommand.
///
/// # Errors
/// A notation with unbalanced brackets, alternatives outside of brackets, or a repetition of something else than what
/// is before it.
pub fn parse(syntax: &str, keys: &[KeySpec], first: usize) -> Result<Vec<Argument>, Malformed> {
    let mut parser = Parser { text: syntax, at: 0 };
    let mut arguments = parser.sequence(None)?.arguments;
    if parser.at < syntax.len() {
        return Err(parser.error("a bracket or a bar without an opening bracket"));
    }
    KeyFinder { keys, found: vec![false; keys.len()] }.visit_all(&mut arguments, Some(first));
    Ok(arguments)
}

/// Arguments one after the other.
#[derive(Default)]
struct Sequence {
    arguments: Vec<Argument>,
    /// "..." is at its end.
    repeats: bool,
    /// It follows a word, and that is repeated with it.
    repeats_token: bool,
}

const NAMES_ONE: &str = "a name for what is only one argument";

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, reason: &'static str) -> Malformed {
        Malformed { offset: self.at, reason }
    }

    /// The next word or sign, without taking it; empty at the end.
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

    /// A word without the versions behind it, and those.
    fn versions(&self, word: &'a str) -> Result<(&'a str, Versions<'a>), Malformed> {
        let Some((word, versions)) = word.split_once('@') else { return Ok((word, Versions::default())) };
        let versions = Versions::of(versions).ok_or_else(|| self.error("a version that is none"))?;
        Ok((word, versions))
    }

    /// An argument: its name, with its type unless that is a string.
    fn argument(&self, word: &str) -> Result<Argument, Malformed> {
        let Some((name, kind)) = word.rsplit_once(':') else { return Ok(Argument::new(word, ArgumentType::String)) };
        let kind = ArgumentType::named(kind).ok_or_else(|| self.error("a type that there isn't"))?;
        Ok(Argument::new(name, kind))
    }

    /// What is written right behind a closing bracket; empty, if nothing is.
    fn suffix(&mut self) -> &'a str {
        if self.text[self.at..].starts_with([':', '@']) { self.next() } else { "" }
    }

    /// The name and the versions that a choice has behind its closing bracket.
    fn choice_name(&mut self) -> Result<(Option<&'a str>, Versions<'a>), Malformed> {
        let suffix = self.suffix();
        let (name, versions) = self.versions(suffix)?;
        Ok((name.strip_prefix(':'), versions))
    }

    /// What is between brackets as one argument, with the name behind them.
    fn choice(&self, name: Option<&str>, alternatives: Vec<Sequence>) -> Result<Argument, Malformed> {
        let mut alternatives: Vec<_> = alternatives.into_iter().map(|s| s.arguments).collect();
        if alternatives.len() > 1 {
            return Ok(Argument::one_of(name, alternatives));
        }
        let only = alternatives.pop().unwrap_or_default();
        // It would be lost: an argument has its name before its bracket.
        if name.is_some() && only.len() < 2 {
            return Err(self.error(NAMES_ONE));
        }
        Ok(Argument::group(name.unwrap_or("options"), only))
    }

    /// Arguments up to a closing bracket, a bar or the end; `token` is the word that they belong to.
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

    /// What is in square brackets: something that may be left out, or the repetition of what is before it.
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
            .ok_or_else(|| self.error("a repetition of something else than what is before it"))
    }

    fn alternatives(&mut self, close: &str) -> Result<Vec<Sequence>, Malformed> {
        self.next();
        let mut alternatives = Vec::new();
        loop {
            let sequence = self.sequence(None)?;
            if sequence.arguments.is_empty() {
                return Err(self.error("nothing where an argument should be"));
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

/// A word and the arguments that belong to it, as one argument.
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

/// Marks what `inner` repeats, which must be at the end of what is before it; none if it isn't.
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

/// Finds the arguments that are keys by what the key specifications say.
struct KeyFinder<'k> {
    keys: &'k [KeySpec],
    found: Vec<bool>,
}

impl KeyFinder<'_> {
    /// Visits arguments, the first of which is at `place` of a request, and returns the place after the last; a place
    /// is unknown after something that may be left out or repeated.
    fn visit_all(&mut self, arguments: &mut [Argument], place: Option<usize>) -> Option<usize> {
        arguments.iter_mut().fold(place, |place, argument| {
            self.visit(argument, place, None);
            place.zip(argument.width()).map(|(place, width)| place + width)
        })
    }

    /// `word`: the word right before the argument, if a specification looks for it.
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
            // Nothing tells but that the entry calls the argument a key.
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
