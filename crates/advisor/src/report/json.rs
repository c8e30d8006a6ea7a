//! The report as JSON. The few fields need no library.

use std::fmt::Write;

use super::id;
use crate::advice;
use crate::findings::{FindingStep, Findings, Group};

/// Returns all findings, the largest loss of time first, with their code in all languages. Times are nanoseconds. Bytes
/// that are not UTF-8 are escaped, for example `\xff`.
#[must_use]
pub fn json(findings: &Findings) -> String {
    let groups: Vec<String> = findings.groups().iter().map(group).collect();
    format!("{{\"dropped\":{},\"findings\":[{}]}}\n", findings.dropped(), groups.join(","))
}

fn group(group: &Group) -> String {
    let finding = &group.total;
    let (sums, client, advised) = (&finding.sums, &finding.client, advice::advice(finding));
    let mut object = Object::default();
    object.text("id", &id(finding));
    object.text("kind", finding.kind.name());
    object.text("confidence", sums.confidence().name());
    object.raw("steps", &array(finding.steps.iter().map(step)));
    if let Some(after) = finding.after.as_ref().filter(|_| finding.is_followed()) {
        object.raw("after", &step(after));
    }
    object.number("count", sums.count);
    object.number("trips_made", finding.made());
    object.number("trips_needed", sums.needed);
    object.number("lost_ns", finding.lost_ns());
    object.number("bytes", sums.bytes);
    object.number("busy_ns", sums.busy_ns);
    object.number("since_ns", sums.since_ns);
    object.number("last_ns", sums.last_ns);
    object.number("without_replies", sums.without_replies);
    object.number("clients", group.clients);
    object.raw("several_connections", if sums.several_connections { "true" } else { "false" });
    let mut worst = Object::default();
    worst.text("name", &client.name);
    worst.text("library", &client.library);
    worst.text("user", &client.user);
    worst.text("address", &client.address);
    object.raw("client", &worst.end());
    object.raw("samples", &array(finding.samples.iter().map(|sample| string(&super::shown(sample)))));
    object.text("seen", &advised.seen);
    object.text("remedy", &advised.remedy);
    let mut code = Object::default();
    for (language, text) in advice::all_code(finding) {
        code.text(language, &text);
    }
    object.raw("code", &code.end());
    object.end()
}

fn step(step: &FindingStep) -> String {
    let mut object = Object::default();
    object.text("command", &step.command);
    object.text("pattern", &step.pattern);
    object.raw("one_key", if step.one_key { "true" } else { "false" });
    object.end()
}

fn array(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

/// An object that is being written.
#[derive(Default)]
struct Object(String);

impl Object {
    fn raw(&mut self, name: &str, value: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}\"{name}\":{value}");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &string(value));
    }

    fn number(&mut self, name: &str, value: u64) {
        self.raw(name, &value.to_string());
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// A string of JSON.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '\n' => quoted += "\\n",
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("a\"b\\c\nd\u{1}ü"), "\"a\\\"b\\\\c\\nd\\u0001ü\"");
    }
}
