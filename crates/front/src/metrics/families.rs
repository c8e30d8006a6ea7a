//! Prometheus's text format: metrics with their samples grouped together.

use std::collections::HashMap;
use std::fmt::{Display, Write};

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Increases until the server restarts or its statistics are reset.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts per upper bound.
    Histogram,
    /// Values at quantiles.
    Summary,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Families {
    /// The metrics, each with the lines of its samples.
    all: Vec<String>,
    by_name: HashMap<String, usize>,
}

impl Families {
    /// Returns the lines of a metric; creates it if it is new.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut String {
        let next = self.all.len();
        let at = *self.by_name.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.all.push(format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.word()));
        }
        &mut self.all[at]
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, name: &str, kind: Kind, help: &str, labels: &[(&str, &str)], value: impl Display) {
        self.add_part(name, "", kind, help, labels, value);
    }

    /// Adds a sample of a histogram or a summary with this suffix after the metric's name.
    pub(super) fn add_part(
        &mut self,
        name: &str,
        behind: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let family = self.family(name, kind, help);
        family.push_str(name);
        family.push_str(behind);
        for (index, (label, text)) in labels.iter().enumerate() {
            family.push(if index == 0 { '{' } else { ',' });
            family.push_str(label);
            family.push_str("=\"");
            escape(text, family);
            family.push('"');
        }
        if !labels.is_empty() {
            family.push('}');
        }
        // Writing to a string can't fail.
        let _ = writeln!(family, " {value}");
    }

    /// The complete text.
    pub(super) fn text(self) -> String {
        self.all.concat()
    }
}

/// Appends a label's value with escapes.
fn escape(text: &str, out: &mut String) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_together() {
        let mut families = Families::default();
        families.add("a", Kind::Gauge, "A.", &[("l", "x\"\\\n")], 1);
        families.add("b_total", Kind::Counter, "B.", &[], "2.5");
        families.add("a", Kind::Gauge, "A.", &[("l", "y"), ("m", "")], 3);
        let expected = "# HELP a A.\n# TYPE a gauge\na{l=\"x\\\"\\\\\\n\"} 1\na{l=\"y\",m=\"\"} 3\n\
            # HELP b_total B.\n# TYPE b_total counter\nb_total 2.5\n";
        assert_eq!(families.text(), expected);
    }
}
