//! The report: for a terminal, as a table, as JSON, and as a page of HTML.

use std::fmt::Write;

use crate::advice::{self, Language};
use crate::findings::{Finding, Findings, Group};

mod html;
mod json;
mod table;

pub use html::html;
pub use json::json;
pub use table::table;

/// The style of a report for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// True to use escape sequences for colours.
    pub colour: bool,
    /// Number of findings to show.
    pub findings_max: usize,
    /// The language of the code below each finding. None: the language of the client's library; no code if the library
    /// is unknown.
    pub language: Option<Language>,
    /// Longest line; longer ones are wrapped, except for code.
    pub columns: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, findings_max: 5, language: None, columns: 120 }
    }
}

/// Formats a time in two or three digits with its unit.
#[must_use]
pub fn duration(ns: u64) -> String {
    let in_units = |unit: u64, name: &str| {
        let value = ns as f64 / unit as f64;
        let digits = if value < 10.0 { 1 } else { 0 };
        format!("{value:.digits$} {name}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => in_units(1_000, "µs"),
        1_000_000..1_000_000_000 => in_units(1_000_000, "ms"),
        1_000_000_000..120_000_000_000 => in_units(1_000_000_000, "s"),
        120_000_000_000..7_200_000_000_000 => in_units(60_000_000_000, "minutes"),
        _ => in_units(3_600_000_000_000, "hours"),
    }
}

/// Formats a number with commas between thousands.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of bytes with its unit.
#[must_use]
pub fn bytes(number: u64) -> String {
    match number {
        0..10_000 => format!("{} bytes", count(number)),
        10_000..10_000_000 => format!("{} KB", count(number / 1_000)),
        10_000_000..10_000_000_000 => format!("{} MB", count(number / 1_000_000)),
        _ => format!("{} GB", count(number / 1_000_000_000)),
    }
}

/// Returns a finding's identifier in reports and commands: eight hexadecimal digits.
#[must_use]
pub fn id(finding: &Finding) -> String {
    format!("{:08x}", finding.id >> 32)
}

/// Returns the report for a terminal: the largest loss of time first.
#[must_use]
pub fn text(findings: &Findings, style: &Style) -> String {
    let groups = findings.groups();
    let mut report = head(&groups, findings.dropped());
    for (index, group) in groups.iter().take(style.findings_max).enumerate() {
        report.push('\n');
        report += &entry(index + 1, group, style);
    }
    if let Some(more) = groups.len().checked_sub(style.findings_max).filter(|more| *more > 0) {
        let _ = writeln!(report, "\n{} more", count(more as u64));
    }
    report
}

/// Returns the sums of all findings.
fn head(groups: &[Group], dropped: u64) -> String {
    let trips: u64 =
        groups.iter().map(|group| group.total.made() - group.total.sums.needed.min(group.total.made())).sum();
    let lost_ns: u64 = groups.iter().map(|group| group.total.lost_ns()).sum();
    let mut head = match groups.len() {
        0 => "No wasted round trips were found.\n".to_owned(),
        1 => format!("1 finding: {} round trips could be saved, {}\n", count(trips), duration(lost_ns)),
        all => format!("{all} findings: {} round trips could be saved, {}\n", count(trips), duration(lost_ns)),
    };
    if dropped > 0 {
        let _ = writeln!(head, "The table was full: {} lesser findings are missing.", count(dropped));
    }
    head
}

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// The beginning of a finding's lines.
const INDENT: &str = "    ";

/// One finding.
fn entry(number: usize, group: &Group, style: &Style) -> String {
    let finding = &group.total;
    let advised = advice::advice(finding);
    let paint = |colour: &str, text: &str| {
        if style.colour && !colour.is_empty() { format!("{colour}{text}{RESET}") } else { text.to_owned() }
    };
    let mut entry = String::new();
    let lost = if finding.kind.is_about_trips() { duration(finding.lost_ns()) } else { String::new() };
    let title = format!("{number:>2}. {}  {lost}", finding.kind.name());
    let details = format!("  {} confidence, id {}", finding.sums.confidence().name(), id(finding));
    let _ = writeln!(entry, "{}{}", paint(BOLD, title.trim_end()), paint(DIM, &details));
    for (colour, mark, text) in [("", "", &advised.seen), (GREEN, "-> ", &advised.remedy), (DIM, "", &origin(group))] {
        for line in wrapped(&format!("{mark}{text}"), style.columns.saturating_sub(INDENT.len())) {
            let _ = writeln!(entry, "{INDENT}{}", paint(colour, &line));
        }
    }
    let language = style.language.or_else(|| Language::of_library(&finding.client.library));
    let code = match language {
        Some(language) => advice::code(finding, language),
        None if advice::has_other_library(finding) => {
            let library = shown(finding.client.library.as_bytes());
            format!(
                "# there is no code for {library}; the commands, as in {}:\n{}",
                advice::PLAIN,
                advice::plain(finding)
            )
        }
        None => String::new(),
    };
    for code_line in code.lines() {
        let _ = writeln!(entry, "       {code_line}");
    }
    entry
}

/// Returns the client, the number of other clients, and a sample key.
fn origin(group: &Group) -> String {
    let finding = &group.total;
    let mut origin = finding.client.to_string();
    if group.clients > 1 {
        let _ = write!(origin, " and {} more", count(group.clients - 1));
    }
    if finding.sums.several_connections {
        origin += ", several connections";
    }
    if let Some(sample) = finding.samples.first() {
        let _ = write!(origin, "; for example {}", shown(sample));
    }
    origin
}

/// Returns a key as text.
fn shown(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => key.escape_ascii().to_string(),
    }
}

/// Breaks a text into lines of at most `columns` characters; a longer word gets a line of its own.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut line, mut width) = (Vec::new(), String::new(), 0);
    for word in text.split(' ') {
        let word_width = word.chars().count();
        if width > 0 && width + 1 + word_width > columns {
            lines.push(std::mem::take(&mut line));
            width = 0;
        }
        if width > 0 {
            line.push(' ');
            width += 1;
        }
        line += word;
        width += word_width;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 98_840, 1_234_567].map(count), ["0", "999", "1,000", "98,840", "1,234,567"]);
        let times = [5, 1_500, 15_000_000, 5_933_640_000, 600_000_000_000, 36_000_000_000_000];
        assert_eq!(times.map(duration), ["5 ns", "1.5 µs", "15 ms", "5.9 s", "10 minutes", "10 hours"]);
        assert_eq!([5, 65_536, 500 << 20].map(bytes), ["5 bytes", "65 KB", "524 MB"]);
    }

    #[test]
    fn long_lines_are_wrapped() {
        assert_eq!(wrapped("über alle Maßen lang", 9), ["über alle", "Maßen", "lang"]);
        assert_eq!(wrapped("Donaudampfschiff a b", 5), ["Donaudampfschiff", "a b"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
