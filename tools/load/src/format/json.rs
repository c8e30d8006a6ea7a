//! JSON lines: an object a line, which becomes a command by a template.
//!
//! `{name}` is the object's member of that name, `{a.b}` a member of a member, `{tags.0}` an element of an array, and
//! `{.}` the whole line. Strings are taken as they read, without quotes and escapes; numbers, true and false as they
//! are written, so that no digit is lost; objects and arrays as JSON. A null counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Broken, Format, Found, LineFinder, too_long};
use crate::block::Block;
use crate::input::Input;
use crate::template::Template;

/// The name of the whole line.
const WHOLE: &str = ".";

/// Reads JSON lines.
pub struct JsonLines {
    template: Template,
    line_bytes_max: usize,
    lines: LineFinder,
}

impl JsonLines {
    /// A reader that makes commands of lines, which are at most so many bytes long.
    pub fn new(template: Template, line_bytes_max: usize) -> JsonLines {
        JsonLines { template, line_bytes_max, lines: LineFinder::default() }
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
                    if !line.text.trim_ascii().is_empty() {
                        take_object(&self.template, number, line.text, block);
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

fn take_object(template: &Template, number: u64, line: &[u8], block: &mut Block) {
    match fields(template.names(), line) {
        Ok(found) => {
            block.command(number, || line, |out| template.encode(|slot| found[slot].as_deref(), out));
        }
        Err(error) => block.reject(number, plain(&error), line),
    }
}

/// The parser's text without its own line number, which is always 1.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    if error.is_data() {
        format!("not an object: {reason}")
    } else {
        format!("not JSON: {reason}, at column {}", error.column())
    }
}

/// The contents of the fields with these names, in their order.
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

/// What a value stands for in a command.
fn content(raw: &RawValue) -> serde_json::Result<Option<Cow<'_, [u8]>>> {
    let text = raw.get();
    match text.as_bytes() {
        b"null" => Ok(None),
        [b'"', inside @ .., b'"'] if memchr::memchr(b'\\', inside).is_none() => Ok(Some(Cow::Borrowed(inside))),
        [b'"', ..] => serde_json::from_str::<String>(text).map(|text| Some(Cow::Owned(text.into_bytes()))),
        _ => Ok(Some(Cow::Borrowed(text.as_bytes()))),
    }
}

/// The value at the end of a path below `raw`.
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

/// A member that was found, and what is left of the name's path below it.
type Member<'n, 'l> = Option<(&'l RawValue, Option<&'n str>)>;

/// Picks the named members of an object or elements of an array, and builds nothing of the rest.
struct Pick<'n, 'f, 'l> {
    names: &'n [String],
    found: &'f mut [Member<'n, 'l>],
}

impl<'n, 'l> Pick<'n, '_, 'l> {
    /// Whether a member or the beginning of a path has this name.
    fn wants(&self, key: &str) -> bool {
        self.names.iter().any(|name| leads_to(name, key).is_some())
    }

    fn put(&mut self, key: &str, raw: &'l RawValue) {
        for (name, found) in self.names.iter().zip(&mut *self.found) {
            match leads_to(name, key) {
                // A member whose own name has dots goes before a path.
                Some(rest) if rest.is_none() || !matches!(found, Some((_, None))) => *found = Some((raw, rest)),
                _ => {}
            }
        }
    }
}

/// Whether `key` is `name`, or a step on the way to it: then what is left of the way.
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

/// A member's name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'l>(#[serde(borrow)] Cow<'l, str>);

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    fn json(template: &'static str) -> impl Fn() -> Box<dyn Format> {
        move || Box::new(JsonLines::new(Template::parse(template.as_bytes()).unwrap(), 200))
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
