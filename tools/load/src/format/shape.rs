//! Detects CSV, JSON lines and JSON arrays that were given without a template, before their lines are sent as commands that no
//! server knows.

use std::collections::BTreeSet;

/// Maximum number of examined lines.
const LINES_MAX: usize = 20;
/// With fewer lines, the first one must be conclusive by itself.
const LINES_MIN: usize = 10;
/// Possible field separators, with their notation for `--delimiter`.
const DELIMITERS: [(u8, &str); 3] = [(b',', ","), (b';', ";"), (b'\t', "\\t")];

/// Returns true if the beginning has enough lines for the detection.
pub fn has_lines(beginning: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', beginning).nth(LINES_MAX - 1).is_some()
}

/// Returns a message if the lines at the beginning of an input aren't commands, with the options to use instead, or
/// `None`. The last line may be cut off, unless `is_whole` is true.
pub fn refusal(beginning: &[u8], is_whole: bool) -> Option<String> {
    // No command's name begins with a bracket.
    let array = beginning.trim_ascii_start().strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    if array.is_some_and(|rest| rest.starts_with(b"{") || rest.starts_with(b"[")) {
        let text = "this is a JSON array, not commands; use a template, for example --json FILE \
                    'SET {id} {.}'";
        return Some(text.to_owned());
    }
    let mut lines: Vec<&[u8]> = beginning.split(|byte| *byte == b'\n').take(LINES_MAX + 1).collect();
    if lines.len() > LINES_MAX || !is_whole {
        lines.pop();
    }
    let mut lines: Vec<&[u8]> = lines.into_iter().map(<[u8]>::trim_ascii_end).collect();
    lines.retain(|line| !line.is_empty());
    if lines.len() < 2 {
        return None;
    }
    if lines.iter().all(|line| line.starts_with(b"{") && line.ends_with(b"}")) {
        let text = "these are JSON lines, not commands; use a template, for example --json-lines FILE \
                    'SET {id} {.}'";
        return Some(text.to_owned());
    }
    let (_, delimiter) = DELIMITERS.into_iter().find(|(delimiter, _)| is_csv(&lines, *delimiter))?;
    let option = if delimiter == "," { String::new() } else { format!("--delimiter '{delimiter}' ") };
    Some(format!(
        "these are CSV records, not commands; use a template, for example {option}--csv FILE '{}'",
        template(lines[0], delimiter)
    ))
}

/// Returns true if the lines are CSV records: most of them have the same number of fields as the first one. This can
/// also be true of commands. But no command's name contains a separator, unlike a header line, and many different names
/// in a row are no commands.
fn is_csv(lines: &[&[u8]], delimiter: u8) -> bool {
    let fields = |line: &[u8]| fields(line, delimiter).len();
    let columns = fields(lines[0]);
    let regular = lines.iter().filter(|line| fields(line) == columns).count();
    if columns < 2 || regular * 4 < lines.len() * 3 {
        return false;
    }
    let names: BTreeSet<Vec<u8>> = lines.iter().map(|line| first_word(line).to_ascii_lowercase()).collect();
    let names_columns = first_word(lines[0]).contains(&delimiter);
    names_columns || lines.len() >= LINES_MIN && names.len() * 4 >= lines.len() * 3
}

fn first_word(line: &[u8]) -> &[u8] {
    line.split(u8::is_ascii_whitespace).next().unwrap_or_default()
}

/// Splits a record on one line into its fields.
fn fields(line: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let mut is_quoted = false;
    let separates = |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == delimiter && !is_quoted
    };
    line.split(separates).collect()
}

/// Returns a template with the first two columns, by name if the names are valid in a template.
fn template(header: &[u8], delimiter: &str) -> String {
    let delimiter = DELIMITERS.iter().find(|(_, text)| *text == delimiter).map_or(b',', |(byte, _)| *byte);
    let is_name =
        |field: &[u8]| !field.is_empty() && field.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let name = |number: usize, field: &[u8]| match is_name(field) && !field.iter().all(u8::is_ascii_digit) {
        true => String::from_utf8_lossy(field).into_owned(),
        false => (number + 1).to_string(),
    };
    let names: Vec<String> =
        fields(header, delimiter).iter().take(2).enumerate().map(|(number, field)| name(number, field)).collect();
    format!("SET {{{}}} {{{}}}", names[0], names.get(1).map_or("2", String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let refusal = refusal(text.as_bytes(), true);
        match expected {
            Some(part) => assert!(refusal.as_deref().is_some_and(|text| text.ends_with(part)), "{text:?}: {refusal:?}"),
            None => assert_eq!(refusal, None, "{text:?}"),
        }
    }

    #[test]
    fn csv_is_told_by_its_header_or_by_many_records() {
        check("title,year\nAlien,1979\n\"Heat, 2\",1995\n", Some("--csv FILE 'SET {title} {year}'"));
        check("id;name\r\n1;a\r\n", Some("--delimiter ';' --csv FILE 'SET {id} {name}'"));
        check("a-b,c\n1,2\n", Some("--csv FILE 'SET {1} {c}'"));
        let titles: String = (0..12).map(|n| format!("The{n} Film,{n}\n")).collect();
        check(&format!("movie title,year\n{titles}"), Some("--csv FILE 'SET {1} {year}'"));
        let columns: String = (0..12).map(|n| format!("{n}\tname {n}\n")).collect();
        check(&columns, Some("--delimiter '\\t' --csv FILE 'SET {1} {2}'"));
    }

    #[test]
    fn json_lines_are_told_by_their_braces() {
        check("{\"a\":1}\n{\"b\":2}\n", Some("--json-lines FILE 'SET {id} {.}'"));
        check("{\"a\":1}\nSET a {}\n", None);
    }

    #[test]
    fn a_json_array_is_told_by_its_bracket() {
        check("[{\"a\":1}]", Some("--json FILE 'SET {id} {.}'"));
        check("\n[\n  {\n    \"a\": 1\n", Some("--json FILE 'SET {id} {.}'"));
        check("[x] 1\n", None);
    }

    #[test]
    fn commands_are_none_of_that() {
        check("SET a,b 1\nSET c,d 2\n", None);
        check("SET a,b\nGET c,d\n", None);
        check("# title,year\nPING\n", None);
        check("PING\n", None);
        check("title,year", None);
        check("", None);
        let sets: String = (0..30).map(|n| format!("SET\tkey:{n}\ta,b\n")).collect();
        check(&sets, None);
        let geo: String = (0..30).map(|n| format!("GEOADD k{n},x 1 2 m\nSADD s{n},y a\nincr n,{n}\n")).collect();
        check(&geo, None);
    }

    #[test]
    fn the_last_line_may_be_cut_off() {
        assert!(refusal(b"a,b\n1,2\n3", false).is_some());
        assert!(refusal(b"a,b\n1", false).is_none());
        assert!(refusal(b"{\"a\":1}\n{\"b\":2}\n{\"c", false).is_some());
    }
}
