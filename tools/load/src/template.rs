//! The template that converts a record to a command: `ZADD movies {year} {title}`.
//!
//! A template is split into arguments like a line of redis-cli. `{name}` within an argument is replaced by the record's
//! field of this name; `{name:-text}` gives a text for a missing, null or empty field; `{{` and `}}` are braces. A
//! field's contents never become more than one argument.

use resp::num::write_u64;
use resp::splitargs::split_args;

use crate::block::{Head, Reason};

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    args: Vec<Vec<Part>>,
    /// Names of the fields, without duplicates, in the order of their first use.
    names: Vec<String>,
    /// `*3\r\n`
    header: Vec<u8>,
}

/// The templates of an input: each makes a command of every record, in order.
#[derive(Debug)]
pub struct Templates {
    all: Vec<Template>,
    /// Number of the templates that the current record has passed. A block may end between two commands of a record.
    done: usize,
}

impl Templates {
    /// Parses templates.
    ///
    /// # Errors
    /// Returns a sentence that describes the problem.
    pub fn parse(texts: &[Vec<u8>]) -> Result<Templates, String> {
        let all = texts.iter().map(|text| Template::parse(text)).collect::<Result<_, _>>()?;
        Ok(Templates { all, done: 0 })
    }

    /// Returns all templates.
    pub fn all(&self) -> &[Template] {
        &self.all
    }

    /// Returns the index of the template that is due for the current record.
    pub fn current(&self) -> Option<usize> {
        (self.done < self.all.len()).then_some(self.done)
    }

    /// Returns true if the current record already has a command.
    pub fn has_begun(&self) -> bool {
        self.done > 0
    }

    /// Proceeds to the next template.
    pub fn advance(&mut self) {
        self.done += 1;
    }

    /// Proceeds to the next record.
    pub fn restart(&mut self) {
        self.done = 0;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// A field, given by its index among the names.
    Field {
        slot: usize,
        default: Option<Vec<u8>>,
    },
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns a sentence that describes the problem.
    pub fn parse(text: &[u8]) -> Result<Template, String> {
        let words = split_args(text).map_err(|_| "a quote in the template is not closed".to_owned())?;
        if words.is_empty() {
            return Err(
                "the template is empty: write a command with {fields}, for example 'SET {key} {value}'".to_owned()
            );
        }
        let mut names = Vec::new();
        let args = words.iter().map(|word| parse_argument(word, &mut names)).collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() {
            return Err("the template has no {field}: every record would give the same command".to_owned());
        }
        let header = format!("*{}\r\n", args.len()).into_bytes();
        Ok(Template { args, names, header })
    }

    /// Returns the names of the template's fields.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns true if the template has a default text for this field.
    pub fn has_default(&self, name: &str) -> bool {
        let slot_of_name = self.names.iter().position(|known| known == name);
        let mut parts = self.args.iter().flatten();
        parts.all(|part| !matches!(part, Part::Field { slot, default: None } if Some(*slot) == slot_of_name))
    }

    /// Appends the request of a record. `field` returns the contents of a field, given by its index among
    /// [`names`](Self::names), or `None` if it is missing or null.
    ///
    /// # Errors
    /// Returns a sentence that names the missing field.
    pub fn encode<'f>(&'f self, field: impl Fn(usize) -> Option<&'f [u8]>, out: &mut Vec<u8>) -> Result<Head, Reason> {
        let start = out.len();
        let mut head = Head::default();
        out.extend_from_slice(&self.header);
        for (index, parts) in self.args.iter().enumerate() {
            let written = self.encode_argument(parts, &field, out)?;
            let range = written.start - start..written.end - start;
            match index {
                0 => head.name = range,
                1 => head.argument = range,
                _ => {}
            }
        }
        Ok(head)
    }

    fn encode_argument<'f>(
        &self,
        parts: &'f [Part],
        field: &impl Fn(usize) -> Option<&'f [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<std::ops::Range<usize>, Reason> {
        let mut length = 0;
        for part in parts {
            length += self.content(part, field)?.len();
        }
        out.push(b'$');
        write_u64(out, length as u64);
        out.extend_from_slice(b"\r\n");
        let start = out.len();
        for part in parts {
            out.extend_from_slice(self.content(part, field)?);
        }
        out.extend_from_slice(b"\r\n");
        Ok(start..start + length)
    }

    fn content<'f>(&self, part: &'f Part, field: &impl Fn(usize) -> Option<&'f [u8]>) -> Result<&'f [u8], Reason> {
        match part {
            Part::Text(text) => Ok(text),
            Part::Field { slot, default: Some(text) } => {
                Ok(field(*slot).filter(|content| !content.is_empty()).unwrap_or(text))
            }
            Part::Field { slot, default: None } => {
                field(*slot).ok_or_else(|| format!("the record has no field '{}'", self.names[*slot]).into())
            }
        }
    }
}

fn parse_argument(word: &[u8], names: &mut Vec<String>) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail.first()) {
            (b'{', Some(b'{')) | (b'}', Some(b'}')) => {
                text.push(byte);
                rest = &tail[1..];
            }
            (b'{', _) => {
                let end =
                    memchr::memchr(b'}', tail).ok_or("a { in the template is not closed; write {{ for a brace")?;
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(parse_field(&tail[..end], names)?);
                rest = &tail[end + 1..];
            }
            (b'}', _) => return Err("a } in the template closes nothing; write }} for a brace".to_owned()),
            _ => {
                text.push(byte);
                rest = tail;
            }
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

fn parse_field(inside: &[u8], names: &mut Vec<String>) -> Result<Part, String> {
    let inside = std::str::from_utf8(inside).map_err(|_| "a field's name in the template is not UTF-8")?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default.as_bytes().to_vec())),
        None => (inside, None),
    };
    if name.is_empty() {
        return Err("{} in the template names no field; write {{}} for braces".to_owned());
    }
    let slot = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    Ok(Part::Field { slot, default })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, fields: &[Option<&str>]) -> Result<String, String> {
        let template = Template::parse(template.as_bytes())?;
        let mut out = Vec::new();
        let head = template.encode(|slot| fields[slot].map(str::as_bytes), &mut out)?;
        assert_eq!(out.get(head.name.clone()).map(<[u8]>::is_empty), Some(head.name.is_empty()));
        let args = crate::shown::arguments(&out);
        Ok(args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join("|"))
    }

    fn check(template: &str, fields: &[Option<&str>], expected: &str) {
        assert_eq!(filled(template, fields), Ok(expected.to_owned()), "{template}");
    }

    fn check_wrong(template: &str, expected: &str) {
        let wrong = Template::parse(template.as_bytes()).expect_err(template);
        assert!(wrong.contains(expected), "{template}: {wrong}");
    }

    #[test]
    fn fields_are_filled_in() {
        check(
            "ZADD movies {year} {title}",
            &[Some("2012"), Some("The Hobbit: \"1\"\r\n")],
            "ZADD|movies|2012|The Hobbit: \"1\"\r\n",
        );
        check("SET movie:{id}:x{id} '{na me}'", &[Some("7"), Some("")], "SET|movie:7:x7|");
        check("SET {{{id}}}.a \"b c\"", &[Some("7")], "SET|{7}.a|b c");
        check("SET k '' {v}", &[Some("1")], "SET|k||1");
    }

    #[test]
    fn missing_fields_need_a_default() {
        check("SET a {b:-none}", &[None], "SET|a|none");
        check("SET a {b:-none}", &[Some("")], "SET|a|none");
        check("SET a {b:-}", &[None], "SET|a|");
        check("SET a {b:-none}", &[Some("x")], "SET|a|x");
        assert_eq!(filled("SET {a} {b}", &[Some("1"), None]), Err("the record has no field 'b'".to_owned()));
        let template = Template::parse(b"SET {a} {b:-1} {c} {c:-1}").unwrap();
        let defaults: Vec<_> = ["a", "b", "c"].iter().map(|name| template.has_default(name)).collect();
        assert_eq!(defaults, [false, true, false]);
    }

    #[test]
    fn wrong_templates_are_explained() {
        check_wrong("", "is empty");
        check_wrong("SET a b", "has no {field}");
        check_wrong("SET {a", "not closed");
        check_wrong("SET a} {b}", "closes nothing");
        check_wrong("SET {} {b}", "names no field");
        check_wrong("SET \"{a}", "quote");
    }

    #[test]
    fn the_name_and_the_first_argument_are_found() {
        let template = Template::parse(b"{verb} {what} x").unwrap();
        let mut out = b"before".to_vec();
        let fields: [&[u8]; 2] = [b"SELECT", b"12"];
        let head = template.encode(|slot| Some(fields[slot]), &mut out).unwrap();
        let request = &out[6..];
        assert_eq!((&request[head.name], &request[head.argument]), (&b"SELECT"[..], &b"12"[..]));
    }
}
