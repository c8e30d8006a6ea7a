//! What an input of commands looks like: CSV or JSON lines that were named without a template are told before each of
//! their lines is sent to a server that knows no such command.

use std::collections::BTreeSet;

/// So many lines are looked at.
const LINES_MAX: usize = 20;
/// With fewer lines, the first one must tell by itself.
const LINES_MIN: usize = 10;
/// What may separate fields, and how `--delimiter` takes it.
const DELIMITERS: [(u8, &str); 3] = [(b',', ","), (b';', ";"), (b'\t', "\\t")];

/// Whether a beginning has as many lines as the format can be told by.
pub fn has_lines(beginning: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', beginning).nth(LINES_MAX - 1).is_some()
}

/// Why the lines at the beginning of an input are no commands, and what to do instead; `None` if they may be some. The
/// last of them may be cut off, unless `is_whole` says otherwise.
pub fn refusal(beginning: &[u8], is_whole: bool) -> Option<String> {
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
        let text = "these are JSON lines and no commands: make commands of them by a template, as in --json-lines FILE \
                    'SET {id} {.}'";
        return Some(text.to_owned());
    }
    let (_, delimiter) = DELIMITERS.into_iter().find(|(delimiter, _)| is_csv(&lines, *delimiter))?;
    let option = if delimiter == "," { String::new() } else { format!("--delimiter '{delimiter}' ") };
    Some(format!(
        "these are records of CSV and no commands: make commands of them by a template, as in {option}--csv FILE '{}'",
        template(lines[0], delimiter)
    ))
}

/// Whether lines are records of CSV: most of them have as many fields as the first one. Commands may have that, too, but
/// no command's name has a delimiter in it, as a first line has that names columns, nor is each command of many another.
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

/// The fields of a record that is on one line.
fn fields(line: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let mut is_quoted = false;
    let separates = |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == delimiter && !is_quoted
    };
    line.split(separates).collect()
}

/// A template with the first two columns, by their names where these can stand in one.
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
