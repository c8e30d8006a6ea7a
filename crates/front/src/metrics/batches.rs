//! The metrics of batches' times, from the replies to LATENCY BATCHES and BATCHLOG LEN.

use resp::parse::Value;

use super::families::Families;
use super::families::Kind::{Gauge, Histogram};

/// Whole times, and the parts that they consist of: two metrics, because a sum over parts must not include the whole.
const WHOLE: &str = "penstock_batch_duration_seconds";
const WHOLE_HELP: &str = "Time of batches from the arrival to the first reply, by number of commands.";
const PARTS: &str = "penstock_batch_part_seconds";
const PARTS_HELP: &str = "Parts of the time of batches, by number of commands.";
const TOTAL: &[u8] = b"total";
/// Number of buckets. Each bound is twice the one before, from 1 microsecond to 33 seconds, and is always present: heat
/// maps and rates need the same buckets at all times.
const BUCKETS: u32 = 26;

/// Adds the histograms, and the length of the log of slow batches.
pub(super) fn batches(classes: Option<&Value>, log_length: Option<&Value>, families: &mut Families) {
    if let Some(Value::Int(length)) = log_length {
        families.add("penstock_batchlog_length", Gauge, "Entries of the log of slow batches.", &[], length);
    }
    for (depth, class) in pairs(classes) {
        let depth = String::from_utf8_lossy(depth);
        let count = pairs(Some(class)).find(|(name, _)| *name == b"batches").map_or(0, |(_, count)| int(count));
        for (name, part) in pairs(Some(class)).filter(|(_, part)| matches!(part, Value::Array(_))) {
            let name_text = String::from_utf8_lossy(name);
            if name == TOTAL {
                histogram(WHOLE, WHOLE_HELP, &[("depth", &depth)], count, part, families);
            } else {
                histogram(PARTS, PARTS_HELP, &[("depth", &depth), ("part", &name_text)], count, part, families);
            }
        }
    }
}

/// Returns the fields of a map in its RESP2 form.
fn pairs(map: Option<&Value>) -> impl Iterator<Item = (&[u8], &Value)> {
    let items = match map {
        Some(Value::Array(items)) => &items[..],
        _ => &[],
    };
    items.chunks_exact(2).filter_map(|pair| match pair {
        [name, value] => Some((name.bytes()?, value)),
        _ => None,
    })
}

fn int(value: &Value) -> i64 {
    if let Value::Int(value) = value { *value } else { 0 }
}

/// Adds one distribution. Its steps are powers of two in microseconds, with cumulative counts; steps without growth are
/// absent.
fn histogram(name: &str, help: &str, labels: &[(&str, &str)], count: i64, part: &Value, families: &mut Families) {
    let field = |wanted: &[u8]| pairs(Some(part)).find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let steps = match field(b"histogram_usec") {
        Some(Value::Array(steps)) => &steps[..],
        _ => &[],
    };
    for bound_us in (0..BUCKETS).map(|doubling| 1_i64 << doubling) {
        let up_to = steps.chunks_exact(2).take_while(|step| int(&step[0]) <= bound_us).last();
        let bound = (bound_us as f64 / 1e6).to_string();
        let labels = [labels, &[("le", &bound)]].concat();
        families.add_part(name, "_bucket", Histogram, help, &labels, up_to.map_or(0, |step| int(&step[1])));
    }
    families.add_part(name, "_bucket", Histogram, help, &[labels, &[("le", "+Inf")]].concat(), count);
    families.add_part(name, "_sum", Histogram, help, labels, field(b"usec").map_or(0, int) as f64 / 1e6);
    families.add_part(name, "_count", Histogram, help, labels, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: Vec<(&str, Value)>) -> Value {
        Value::Array(fields.into_iter().flat_map(|(name, value)| [Value::Bulk(name.into()), value]).collect())
    }

    #[test]
    fn histograms_have_all_bounds() {
        let steps = Value::Array([4, 1, 1024, 3].map(Value::Int).to_vec());
        let part = || {
            map(vec![("usec", Value::Int(1500)), ("p50", Value::Bulk("1".into())), ("histogram_usec", steps.clone())])
        };
        let class = map(vec![("batches", Value::Int(4)), ("total", part()), ("disk", part())]);
        let mut families = Families::default();
        batches(Some(&map(vec![("2-15", class)])), Some(&Value::Int(7)), &mut families);
        let text = families.text();
        for line in [
            "penstock_batchlog_length 7",
            "penstock_batch_duration_seconds_bucket{depth=\"2-15\",le=\"0.000001\"} 0",
            "penstock_batch_duration_seconds_bucket{depth=\"2-15\",le=\"0.000512\"} 1",
            "penstock_batch_duration_seconds_bucket{depth=\"2-15\",le=\"0.001024\"} 3",
            "penstock_batch_duration_seconds_bucket{depth=\"2-15\",le=\"33.554432\"} 3",
            "penstock_batch_duration_seconds_bucket{depth=\"2-15\",le=\"+Inf\"} 4",
            "penstock_batch_part_seconds_bucket{depth=\"2-15\",part=\"disk\",le=\"0.000004\"} 1",
            "penstock_batch_part_seconds_sum{depth=\"2-15\",part=\"disk\"} 0.0015",
            "penstock_batch_part_seconds_count{depth=\"2-15\",part=\"disk\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let mut families = Families::default();
        batches(Some(&Value::Error(b"NOPERM no".to_vec())), None, &mut families);
        assert_eq!(families.text(), "");
    }
}
