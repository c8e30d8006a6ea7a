//! The findings as a table: one line for each finding, for pipes and terminals.

use super::{count, duration, id};
use crate::advice::advice;
use crate::findings::{Finding, Group};

/// The heads of the columns. Columns of numbers are aligned to the right.
const COLUMNS: [(&str, bool); 8] = [
    ("id", false),
    ("kind", false),
    ("confidence", false),
    ("made", true),
    ("needed", true),
    ("lost", true),
    ("commands", false),
    ("remedy", false),
];
/// The space between two columns.
const SPACE: &str = "  ";

/// Returns a table with a line for each finding, and a line of heads.
#[must_use]
pub fn table(groups: &[Group]) -> String {
    let heads = COLUMNS.map(|(head, _)| head.to_owned());
    let rows: Vec<[String; 8]> = std::iter::once(heads).chain(groups.iter().map(|group| row(&group.total))).collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    rows.iter().map(|row| line(row, &widths) + "\n").collect()
}

fn row(finding: &Finding) -> [String; 8] {
    let steps: Vec<String> = finding.steps.iter().map(|step| printable(&step.to_string())).collect();
    let lost = if finding.kind.is_about_trips() { duration(finding.lost_ns()) } else { "-".to_owned() };
    [
        id(finding),
        finding.kind.name().to_owned(),
        finding.sums.confidence().name().to_owned(),
        count(finding.made()),
        count(finding.sums.needed),
        lost,
        steps.join(", "),
        printable(&advice(finding).remedy),
    ]
}

/// Returns a text on one line.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

fn line(row: &[String; 8], widths: &[usize]) -> String {
    let cells = row.iter().zip(COLUMNS).zip(widths).map(|((cell, (_, is_number)), width)| {
        let space = " ".repeat(width - cell.chars().count());
        if is_number { space + cell } else { cell.clone() + &space }
    });
    cells.collect::<Vec<_>>().join(SPACE).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::traffic::Traffic;

    #[test]
    fn each_finding_is_a_line() {
        let mut traffic = Traffic::logged_in();
        for number in 0..1000 {
            traffic.send(&format!("SET key:{number} v"), "OK");
        }
        for number in 0..100 {
            traffic.send(&format!("HGET users {number}"), &format!("user {number}"));
        }
        let table = table(&traffic.groups());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[0].starts_with("id        kind  confidence"), "{table}");
        assert!(lines[1].contains("  loop  high ") && lines[1].contains("SET key:<n>"), "{table}");
        assert!(lines[1].ends_with("  one MSET of all keys") && lines[2].contains("HMGET"), "{table}");
    }
}
