//! The manifest: the files of the append-only file, in their order.
//!
//! It has a line for each file, in the form of Redis 7 (`aof.c`, "Multi Part AOF"):
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b
//! file appendonly.aof.1.incr.aof seq 1 type i
//! ```
//!
//! Types are `b`, the base, at most one; `i`, an increment; `h`, a file about to be removed. Names with spaces or control
//! characters are quoted as in `redis.conf`. Lines that begin with `#` are comments.
//!
//! Penstock's manifests begin with a comment that has a checksum of the rest, which reveals lost and changed lines. Manifests of other
//! servers have none. For them, [`Manifest::contradiction`] finds lost lines that would leave data out.

use std::fmt;

use resp::splitargs::split_args;

use crate::block::FILE_START;

/// The beginning of the comment with the checksum.
const CHECKSUM_START: &str = "#penstock manifest ";

/// The role of a file in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A snapshot, or commands that make one.
    Base,
    /// Commands that follow it.
    Increment,
    /// A file from before a rewrite, about to be removed.
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
    /// Its number among the parts of its role.
    pub sequence: u64,
    /// Its role.
    pub role: Role,
}

/// The files of the append-only file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    /// The files in the order of reading: the base is the first.
    pub parts: Vec<Part>,
    /// True if the manifest was read with a checksum, so that no line has changed.
    is_verified: bool,
}

impl From<Vec<Part>> for Manifest {
    fn from(parts: Vec<Part>) -> Manifest {
        Manifest { parts, is_verified: false }
    }
}

/// An error in a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadManifest {
    /// The line, from 1.
    pub line: usize,
    /// The error in it.
    pub why: &'static str,
}

impl fmt::Display for BadManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// If the text is invalid. Nothing is guessed: a missing file would be missing data.
    pub fn parse(text: &[u8]) -> Result<Manifest, BadManifest> {
        let mut manifest = Manifest { is_verified: check_sum(text)?, ..Manifest::default() };
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
        let lines = self.lines();
        format!("{CHECKSUM_START}{:08x}\n{lines}", crc32fast::hash(lines.as_bytes()))
    }

    fn lines(&self) -> String {
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

    /// Returns the reason if the manifest seems to have lost a line: a file beside it belongs to the series, has data, and is not named.
    /// `there` has the files beside the manifest with their sizes. Their names begin with `name`.
    #[must_use]
    pub fn contradiction(&self, name: &str, there: &[(String, u64)]) -> Option<String> {
        let live =
            |role: Role, sequence: u64| self.parts.iter().any(|part| part.role == role && part.sequence == sequence);
        let last = self.last_increment().map_or(0, |part| part.sequence);
        // A rewrite while `appendonly` is off leaves no increment. In Redis it also turns the old base into history.
        let had_base =
            |part: &Part| part.role == Role::History && matches!(numbered(&part.name, name), Some((Role::Base, _)));
        let is_rewritten = last == 0 && (self.is_verified || self.parts.iter().any(had_base));
        let first = self.increments().next().map_or(0, |part| part.sequence);
        if let Some(part) = self.parts.iter().find(|part| misfits(part, name)) {
            return Some(format!("the line of {} has another type or number than its name", part.name));
        }
        for (file, bytes) in there {
            let Some((role, sequence)) = numbered(file, name) else { continue };
            // A server that ended between creating and naming an increment leaves only the first line in it.
            let has_data = *bytes > FILE_START.len() as u64;
            let is_history = self.parts.iter().any(|part| part.name == *file && part.role == Role::History);
            let is_lost = match role {
                Role::Increment => sequence > last && !(is_history && is_rewritten),
                // A base gets its name before its line. Without a base, more than one increment is normal: the first rewrite leaves two.
                _ => !self.is_verified && self.base().is_none() && self.increments().count() < 2 && !is_history,
            };
            if has_data && is_lost && !live(role, sequence) {
                return Some(format!("{file} has data, and the manifest leaves it out"));
            }
        }
        let is_first_missing = self.base().is_none() && first > 1;
        is_first_missing.then(|| "it names no base, though there must have been one".into())
    }

    /// The increment that is written to.
    #[must_use]
    pub fn last_increment(&self) -> Option<&Part> {
        self.increments().last()
    }

    /// The number of the next part of this role: one more than any so far. No name is used twice.
    #[must_use]
    pub fn next_sequence(&self, role: Role) -> u64 {
        // History has the numbers of both roles.
        let of_role = self.parts.iter().filter(|part| part.role == role || part.role == Role::History);
        of_role.map(|part| part.sequence).max().unwrap_or(0).saturating_add(1)
    }
}

/// Returns true if a manifest has a checksum. The error reports a wrong checksum.
fn check_sum(text: &[u8]) -> Result<bool, BadManifest> {
    let Some(rest) = text.strip_prefix(CHECKSUM_START.as_bytes()) else { return Ok(false) };
    let sum = rest.get(..8).and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
    let lines = rest.get(8..).and_then(|rest| rest.strip_prefix(b"\n"));
    match lines.map(crc32fast::hash) {
        Some(is) if Some(is) == sum => Ok(true),
        _ => Err(BadManifest { line: 1, why: "its checksum is wrong; a manifest that is written by hand has none" }),
    }
}

/// Returns the role and the number in a file's name, if the name has the form of a part.
fn numbered(file: &str, name: &str) -> Option<(Role, u64)> {
    let (number, kind) = file.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
    let role = match kind {
        "incr.aof" => Role::Increment,
        "base.rdb" | "base.aof" => Role::Base,
        _ => return None,
    };
    Some((role, number.parse().ok()?))
}

/// Returns true if a part's line differs from its name.
fn misfits(part: &Part, name: &str) -> bool {
    numbered(&part.name, name)
        .is_some_and(|(role, sequence)| sequence != part.sequence || part.role != Role::History && part.role != role)
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
            // Redis permits further fields.
            _ => {}
        }
    }
    if found == [true; 3] { Ok(part) } else { Err("a line without file, seq or type") }
}

/// Returns a line's words, unquoted.
fn words(line: &[u8]) -> Result<Vec<String>, &'static str> {
    let words = split_args(line).map_err(|_| "a quote without its end")?;
    words.into_iter().map(|word| String::from_utf8(word).map_err(|_| "a name that is not UTF-8")).collect()
}

/// Returns a name in the form of [`split_args`], quoted if it needs quotes. A line break is escaped, because each file has one line.
fn quoted(name: &str) -> String {
    if !name.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\' | '\'')) {
        return name.to_string();
    }
    let escaped = name.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.into(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.1.incr.aof seq 1 type h\n\
                         file appendonly.aof.3.incr.aof seq 3 type i\nfile appendonly.aof.4.incr.aof seq 4 type i\n";

    #[test]
    fn what_redis_writes_is_read_and_written_again() {
        let manifest = Manifest::parse(REDIS.as_bytes()).unwrap();
        assert_eq!(manifest.lines(), REDIS);
        assert_eq!(Manifest::parse(manifest.text().as_bytes()).unwrap().parts, manifest.parts);
        assert_eq!(manifest.base().unwrap().name, "appendonly.aof.2.base.rdb");
        assert_eq!(manifest.last_increment().unwrap().sequence, 4);
        assert_eq!((manifest.next_sequence(Role::Base), manifest.next_sequence(Role::Increment)), (3, 5));
        assert_eq!(Manifest::parse(b"# nothing\n\n"), Ok(Manifest::default()));
    }

    #[test]
    fn names_with_spaces_and_quotes_survive() {
        for name in ["my \"own\" \\ file", " two\n\r\tlines .aof ", "it's", "\x07\x7f\x0b", "d\u{e9}j\u{e0}\u{a0}vu"] {
            let part = Part { name: name.into(), sequence: 7, role: Role::Increment };
            let manifest = Manifest::from(vec![part]);
            assert_eq!(manifest.text().lines().count(), 2, "{name:?}");
            let read = Manifest::parse(manifest.text().as_bytes()).unwrap();
            assert_eq!(read.parts, manifest.parts);
        }
    }

    #[test]
    fn names_are_read_in_the_escapes_of_redis() {
        let line = b"file \" file seq \\n\\n\\x41\\xc3\\xa9.aof \" seq 1 type b\n";
        let manifest = Manifest::parse(line).unwrap();
        assert_eq!(manifest.base().unwrap().name, " file seq \n\nA\u{e9}.aof ");
    }

    #[test]
    fn a_line_that_is_lost_or_changed_is_noticed() {
        let text = Manifest::parse(REDIS.as_bytes()).unwrap().text();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for lost in 1..lines.len() {
            let rest = [&lines[..lost], &lines[lost + 1..]].concat().concat();
            assert!(Manifest::parse(rest.as_bytes()).is_err(), "{rest}");
        }
        for at in CHECKSUM_START.len()..text.len() {
            for bit in 0..8 {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= 1 << bit;
                let is_other_case = changed.eq_ignore_ascii_case(text.as_bytes()) && at < lines[0].len();
                assert!(is_other_case || Manifest::parse(&changed).is_err(), "{at}, {bit}");
            }
        }
    }

    /// The manifests here have no checksum, like those that Redis writes.
    #[test]
    fn data_that_a_manifest_leaves_out_is_noticed() {
        let sized = |names: &[&str]| names.iter().map(|name| ((*name).to_string(), 100)).collect::<Vec<_>>();
        let all = sized(&["a.2.base.rdb", "a.3.incr.aof", "a.4.incr.aof", "a.manifest", "temp-a.5.incr.aof"]);
        let whole = "file a.2.base.rdb seq 2 type b\nfile a.3.incr.aof seq 3 type i\nfile a.4.incr.aof seq 4 type i\n";
        let told = |text: &str, there: &[(String, u64)]| {
            Manifest::parse(text.as_bytes()).ok().and_then(|manifest| manifest.contradiction("a", there))
        };
        assert_eq!(told(whole, &all), None);
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        assert!(told(&lines[..2].concat(), &all).unwrap().contains("a.4.incr.aof"));
        assert!(told(&lines[..1].concat(), &all).is_some());
        assert!(told(&lines[1..].concat(), &all).unwrap().contains("no base"));
        assert!(told(&whole.replace("seq 4 type i", "seq 4 type h"), &all).unwrap().contains("a.4.incr.aof"));
        let single = "file a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type h\n";
        assert!(told(single, &sized(&["a.1.base.rdb", "a.1.incr.aof"])).is_some());
        let verified = Manifest::parse(Manifest::parse(single.as_bytes()).unwrap().text().as_bytes()).unwrap();
        assert_eq!(verified.contradiction("a", &sized(&["a.1.base.rdb", "a.1.incr.aof"])), None);
        assert!(told(&whole.replace("seq 4", "seq 5"), &all).is_some());
        assert!(told(&whole.replace("seq 2 type b", "seq 2 type i"), &all).is_some());
        // A rewrite while `appendonly` is off leaves increments that will be removed later.
        let rewritten =
            "file a.3.base.rdb seq 3 type b\nfile a.2.base.rdb seq 2 type h\nfile a.3.incr.aof seq 3 type h\n";
        assert_eq!(told(rewritten, &sized(&["a.3.base.rdb", "a.2.base.rdb", "a.3.incr.aof"])), None);
        // An increment of a server that ended before naming it in the manifest.
        assert_eq!(told(&lines[..2].concat(), &[("a.4.incr.aof".into(), 13)]), None);
        let first = "file a.1.incr.aof seq 1 type i\n";
        assert!(told(first, &sized(&["a.1.base.rdb", "a.1.incr.aof"])).is_some());
        assert_eq!(told(first, &sized(&["a.1.incr.aof"])), None);
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
