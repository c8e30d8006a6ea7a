//! The manifest: which files make up the append-only file, in which order.
//!
//! A line for each file, as Redis 7 writes it (`aof.c`, "Multi Part AOF"):
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b
//! file appendonly.aof.1.incr.aof seq 1 type i
//! ```
//!
//! Types are `b`, the base, of which there is one at most; `i`, an increment; `h`, a file that is to be removed. Names with
//! spaces are quoted. Lines that begin with `#` are comments.

use std::fmt;

/// What a file of the manifest is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A snapshot, or commands that make one.
    Base,
    /// Commands that came after it.
    Increment,
    /// What the files of before a rewrite were; it is only still to be removed.
    History,
}

impl Role {
    fn letter(self) -> char {
        match self {
            Role::Base => 'b',
            Role::Increment => 'i',
            Role::History => 'h',
        }
    }
}

/// A file of the append-only file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its number among those of its role.
    pub sequence: u64,
    /// What it is.
    pub role: Role,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    /// The files in the order in which they are read: the base is the first.
    pub parts: Vec<Part>,
}

/// What is wrong with a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadManifest {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: &'static str,
}

impl fmt::Display for BadManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// If it is none. Nothing is guessed: a file that is left out would be data that is left out.
    pub fn parse(text: &[u8]) -> Result<Manifest, BadManifest> {
        let mut manifest = Manifest::default();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let bad = |why| BadManifest { line: index + 1, why };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let part = parse_part(line).map_err(bad)?;
            match part.role {
                Role::Base if manifest.base().is_some() => return Err(bad("a second base file")),
                Role::Base => manifest.parts.insert(0, part),
                Role::Increment if manifest.last_increment().is_some_and(|last| last.sequence >= part.sequence) => {
                    return Err(bad("the increments are not in the order of their numbers"));
                }
                Role::Increment | Role::History => manifest.parts.push(part),
            }
        }
        Ok(manifest)
    }

    /// The manifest's text.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.parts.iter().map(|part| {
            let Part { name, sequence, role } = part;
            format!("file {} seq {sequence} type {}\n", quoted(name), role.letter())
        });
        lines.collect()
    }

    /// The base, if there is one.
    #[must_use]
    pub fn base(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.role == Role::Base)
    }

    /// The increments in order.
    pub fn increments(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.role == Role::Increment)
    }

    /// The one that is written to.
    #[must_use]
    pub fn last_increment(&self) -> Option<&Part> {
        self.increments().last()
    }

    /// The number that the next part of this role gets: one more than any so far, so that no name is used twice.
    #[must_use]
    pub fn next_sequence(&self, role: Role) -> u64 {
        // History has the numbers of both roles.
        let of_role = self.parts.iter().filter(|part| part.role == role || part.role == Role::History);
        of_role.map(|part| part.sequence).max().unwrap_or(0).saturating_add(1)
    }
}

fn parse_part(line: &[u8]) -> Result<Part, &'static str> {
    let words = words(line)?;
    let mut part = Part { name: String::new(), sequence: 0, role: Role::History };
    let mut found = [false; 3];
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a word without its value");
    }
    for [key, value] in pairs {
        match &**key {
            "file" => {
                if value.is_empty() || value.contains('/') {
                    return Err("a file's name is empty or has a slash in it");
                }
                part.name.clone_from(value);
                found[0] = true;
            }
            "seq" => {
                part.sequence = value.parse().map_err(|_| "a sequence that is no number")?;
                found[1] = true;
            }
            "type" => {
                part.role = match &**value {
                    "b" => Role::Base,
                    "i" => Role::Increment,
                    "h" => Role::History,
                    _ => return Err("a type that is none of b, i and h"),
                };
                found[2] = true;
            }
            // Redis allows for more to come.
            _ => {}
        }
    }
    if found == [true; 3] { Ok(part) } else { Err("a line without file, seq or type") }
}

/// A line's words. One in double quotes may have spaces, and a backslash before a quote or a backslash.
fn words(line: &[u8]) -> Result<Vec<String>, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "a name that is not UTF-8")?;
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let mut word = String::new();
        if let Some(inner) = rest.strip_prefix('"') {
            let mut chars = inner.char_indices();
            let end = loop {
                match chars.next() {
                    None => return Err("a quote without its end"),
                    Some((at, '"')) => break at + 1,
                    Some((_, '\\')) => word.extend(chars.next().map(|(_, escaped)| escaped)),
                    Some((_, other)) => word.push(other),
                }
            };
            rest = &inner[end..];
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            word.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

fn quoted(name: &str) -> String {
    if name.chars().any(|c| c.is_whitespace() || matches!(c, '"' | '\\' | '\'')) {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    } else {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.1.incr.aof seq 1 type h\n\
                         file appendonly.aof.3.incr.aof seq 3 type i\nfile appendonly.aof.4.incr.aof seq 4 type i\n";

    #[test]
    fn what_redis_writes_is_read_and_written_again() {
        let manifest = Manifest::parse(REDIS.as_bytes()).unwrap();
        assert_eq!(manifest.text(), REDIS);
        assert_eq!(manifest.base().unwrap().name, "appendonly.aof.2.base.rdb");
        assert_eq!(manifest.last_increment().unwrap().sequence, 4);
        assert_eq!((manifest.next_sequence(Role::Base), manifest.next_sequence(Role::Increment)), (3, 5));
        assert_eq!(Manifest::parse(b"# nothing\n\n"), Ok(Manifest::default()));
    }

    #[test]
    fn names_with_spaces_and_quotes_survive() {
        let part = Part { name: "my \"own\" \\ file".into(), sequence: 7, role: Role::Increment };
        let manifest = Manifest { parts: vec![part] };
        assert_eq!(Manifest::parse(manifest.text().as_bytes()), Ok(manifest));
    }

    #[test]
    fn what_is_damaged_is_refused_with_its_line() {
        for (text, line) in [
            ("file a seq 1 type x\n", 1),
            ("file a seq one type b\n", 1),
            ("file a seq 1\n", 1),
            ("file a seq 1 type b\nfile b seq 2 type b\n", 2),
            ("file a seq 2 type i\nfile b seq 1 type i\n", 2),
            ("file ../a seq 1 type b\n", 1),
            ("file \"a seq 1 type b\n", 1),
            ("file a seq 1 type\n", 1),
        ] {
            assert_eq!(Manifest::parse(text.as_bytes()).unwrap_err().line, line, "{text}");
        }
    }
}
