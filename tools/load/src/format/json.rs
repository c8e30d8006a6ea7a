//! JSON lines: a template converts an object on each line to a command.
//!
//! `{name}` is the object's member of this name, `{a.b}` a member of a member, `{tags.0}` an element of an array, and
//! `{.}` the whole line. Strings are decoded. Numbers, true and false are copied literally, so that no digit is lost.
//! Objects and arrays are copied as JSON. A null counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Broken, Format, Found, LineFinder, too_long};
use crate::block::Block;
use crate::exit::Exit;
use crate::input::Input;
use crate::template::Templates;

/// Name of the whole line.
const WHOLE: &str = ".";

/// Reads JSON lines.
pub struct JsonLines {
    templates: Templates,
    line_bytes_max: usize,
    lines: LineFinder,
}

impl JsonLines {
    /// Returns a reader that converts lines of at most `line_bytes_max` bytes to commands.
    pub fn new(templates: Templates, line_bytes_max: usize) -> JsonLines {
        JsonLines { templates, line_bytes_max, lines: LineFinder::default() }
    }
}

impl Format for JsonLines {
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken> {
        while !block.is_full() {
            let number = input.line();
            let bytes = match self.lines.next(input, self.line_bytes_max) {
                Found::Nothing => break,
                Found::Skipped => continue,
                Found::TooLong(beginning) => {
                    block.reject(number, too_long("line", self.line_bytes_max), beginning);
                    self.lines.skip(input);
                    continue;
                }
                Found::Line(line) => {
                    let text = line.text.trim_ascii();
                    // No JSON text on a line of its own is a single bracket.
                    if text == b"[" {
                        return Err(wrong_option(number));
                    }
                    if !text.is_empty() && !take_object(&mut self.templates, number, line.text, block) {
                        return Ok(());
                    }
                    line.bytes
                }
            };
            let lines = u64::from(input.unread().get(bytes - 1) == Some(&b'\n'));
            input.take(bytes, lines);
        }
        Ok(())
    }
}

fn wrong_option(line: u64) -> Broken {
    let reason = "a JSON array begins here: use --json instead of --json-lines".to_owned();
    Broken { line: Some(line), reason, exit: Exit::Usage }
}

/// Makes the commands of an object, or of the rest of its templates. Returns false if the block is full before the
/// last one; the next call for this object proceeds with the others.
pub(super) fn take_object(templates: &mut Templates, number: u64, text: &[u8], block: &mut Block) -> bool {
    while let Some(index) = templates.current() {
        if templates.has_begun() && block.is_full() {
            return false;
        }
        let template = &templates.all()[index];
        match fields(template.names(), text) {
            Ok(found) => block.command(number, || text, |out| template.encode(|slot| found[slot].as_deref(), out)),
            Err(error) => {
                block.reject(number, plain(&error), text);
                break;
            }
        }
        templates.advance();
    }
    templates.restart();
    true
}

/// Returns the parser's message, with the line only if it isn't the first one.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    match error.line() {
        _ if error.is_data() => format!("not an object: {reason}"),
        0 | 1 => format!("not JSON: {reason}, at column {}", error.column()),
        line => format!("not JSON: {reason}, at column {} of its line {line}", error.column()),
    }
}

/// Returns the contents of the fields with these names, in order.
fn fields<'l>(names: &[String], line: &'l [u8]) -> serde_json::Result<Vec<Option<Cow<'l, [u8]>>>> {
    let mut found = vec![None; names.len()];
    let mut parser = serde_json::Deserializer::from_slice(line);
    Pick { names, found: &mut found }.deserialize(&mut parser)?;
    parser.end()?;
    let contents = names.iter().zip(found).map(|(name, found)| match found {
        None if name == WHOLE => Ok(Some(Cow::Borrowed(line.trim_ascii()))),
        None => Ok(None),
        Some((raw, rest)) => descend(raw, rest).and_then(|raw| raw.map_or(Ok(None), content)),
    });
    contents.collect()
}

/// Returns the text of a value in a command.
fn content(raw: &RawValue) -> serde_json::Result<Option<Cow<'_, [u8]>>> {
    let text = raw.get();
    match text.as_bytes() {
        b"null" => Ok(None),
        [b'"', inside @ .., b'"'] if memchr::memchr(b'\\', inside).is_none() => Ok(Some(Cow::Borrowed(inside))),
        [b'"', ..] => serde_json::from_str::<String>(text).map(|text| Some(Cow::Owned(text.into_bytes()))),
        _ => Ok(Some(Cow::Borrowed(text.as_bytes()))),
    }
}

/// Returns the value at the end of a path below `raw`.
fn descend<'l>(raw: &'l RawValue, path: Option<&str>) -> serde_json::Result<Option<&'l RawValue>> {
    let Some(path) = path else { return Ok(Some(raw)) };
    if !raw.get().starts_with(['{', '[']) {
        return Ok(None);
    }
    let names = [path.to_owned()];
    let mut found = [None];
    Pick { names: &names, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_str(raw.get()))?;
    found[0].map_or(Ok(None), |(raw, rest)| descend(raw, rest))
}

/// A member that was found, and the rest of the name's path below it.
type Member<'n, 'l> = Option<(&'l RawValue, Option<&'n str>)>;

/// Picks the named members of an object or elements of an array, and builds no other values.
struct Pick<'n, 'f, 'l> {
    names: &'n [String],
    found: &'f mut [Member<'n, 'l>],
}

impl<'n, 'l> Pick<'n, '_, 'l> {
    /// Returns true if a member or the first step of a path has this name.
    fn wants(&self, key: &str) -> bool {
        self.names.iter().any(|name| leads_to(name, key).is_some())
    }

    fn put(&mut self, key: &str, raw: &'l RawValue) {
        for (name, found) in self.names.iter().zip(&mut *self.found) {
            match leads_to(name, key) {
                // A member with dots in its own name takes precedence over a path.
                Some(rest) if rest.is_none() || !matches!(found, Some((_, None))) => *found = Some((raw, rest)),
                _ => {}
            }
        }
    }
}

/// If `key` is `name` or a step on its path, returns the rest of the path.
fn leads_to<'n>(name: &'n str, key: &str) -> Option<Option<&'n str>> {
    let rest = name.strip_prefix(key)?;
    if rest.is_empty() { Some(None) } else { rest.strip_prefix('.').filter(|rest| !rest.is_empty()).map(Some) }
}

impl<'l> DeserializeSeed<'l> for Pick<'_, '_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Pick<'_, '_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'l>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'l>>()? {
            if self.wants(&key.0) {
                self.put(&key.0, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'l>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0u64;
        while let Some(raw) = seq.next_element::<&RawValue>()? {
            self.put(resp_text(&mut resp::num::IntText::new(), index), raw);
            index += 1;
        }
        Ok(())
    }
}

fn resp_text(text: &mut resp::num::IntText, index: u64) -> &str {
    std::str::from_utf8(text.u64(index)).unwrap_or_default()
}

/// A member's name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'l>(#[serde(borrow)] Cow<'l, str>);

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    fn json(template: &'static str) -> impl Fn() -> Box<dyn Format> {
        move || Box::new(JsonLines::new(Templates::parse(&[template.as_bytes().to_vec()]).unwrap(), 200))
    }

    fn check_movies(text: &str, expected: &[&str]) {
        check(json("ZADD movies {year} {title}"), text, expected);
    }

    #[test]
    fn objects_become_commands() {
        check_movies("", &[]);
        check_movies(
            "{\"title\":\"Alien\",\"x\":[1,{}],\"year\":1979}\n\n {\"year\":\"1\",\"title\":\"A\\\"\\u00e9\\n\"}\r\n",
            &["1: ZADD movies 1979 Alien", "3: ZADD movies 1 \"A\\\"\\xc3\\xa9\\n\""],
        );
    }

    #[test]
    fn values_keep_their_text() {
        let line = r#"{"a":1.10,"b":12345678901234567890123,"c":true,"d":{"e": [1, 2]},"f":"","g":-0.0e5}"#;
        check(
            json("X {a} {b} {c} {d} {f} {g}"),
            line,
            &[r#"1: X 1.10 12345678901234567890123 true "{\"e\": [1, 2]}" "" -0.0e5"#],
        );
        check(
            json("X {d.e} {d.e.1} {d.x:-none} {d.e.7:-none} {a.b:-none}"),
            line,
            &[r#"1: X "[1, 2]" 2 none none none"#],
        );
        check(json("SET k {.}"), " {\"a\": 1} \n[2]", &[r#"1: SET k "{\"a\": 1}""#, "2: SET k [2]"]);
        check(json("X {a.b} {a.c}"), r#"{"a.b":1,"a":{"b":2,"c":3}}"#, &["1: X 1 3"]);
        check(json("X {a.b} {a.c}"), r#"{"a":{"b":2,"c":3},"a.b":1}"#, &["1: X 1 3"]);
        check(json("X {0} {1.a}"), r#"["x",{"a":7}]"#, &["1: X x 7"]);
        check(json("X {a}"), r#"{"a":1,"\u0061":2}"#, &["1: X 2"]);
    }

    #[test]
    fn an_array_over_several_lines_is_refused() {
        let refusal = "1!! a JSON array begins here: use --json instead of --json-lines";
        check_movies("[\n{\"title\":\"A\",\"year\":1}\n]\n", &[refusal]);
    }

    #[test]
    fn broken_lines_are_rejected_and_the_next_ones_taken() {
        check_movies(
            "{\"title\":\"A\"\n{\"year\":1,\"title\":\"B\"}\nnull\n\"x\"\n{\"year\":null,\"title\":\"C\"}\n{}x",
            &[
                "1! not JSON: EOF while parsing an object, at column 12",
                "2: ZADD movies 1 B",
                "3! not an object: invalid type: null, expected an object or an array",
                "4! not an object: invalid type: string \"x\", expected an object or an array",
                "5! the record has no field 'year'",
                "6! not JSON: trailing characters, at column 3",
            ],
        );
        let long = format!("{{\"title\":\"{}\",\"year\":1}}\n{{\"year\":1,\"title\":\"B\"}}", "x".repeat(300));
        check_movies(
            &long,
            &["1! the line is longer than 200 bytes; --max-command raises the limit", "2: ZADD movies 1 B"],
        );
    }
}
