//! Metrics for Prometheus, from the replies to INFO, SLOWLOG, LATENCY, BATCHLOG and CLUSTER.

mod batches;
mod families;
mod names;

use std::collections::HashMap;

use resp::parse::Value;

use self::families::Families;
use self::families::Kind::{Counter, Gauge, Histogram, Summary};
use self::names::{CLUSTER, METRICS, Metric};
use crate::commands::Words;

/// Content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Fields of INFO with text values, which become labels of `redis_instance_info`.
const INSTANCE: &[&str] = &[
    "role",
    "redis_version",
    "redis_build_id",
    "redis_mode",
    "os",
    "maxmemory_policy",
    "tcp_port",
    "run_id",
    "process_id",
    "master_replid",
    "penstock_version",
];
const PERCENTILES: &str = "redis_latency_percentiles_usec";
const LATENCIES: &str = "redis_commands_latencies_usec";

/// Commands that the metrics are read with.
pub(crate) fn questions() -> Vec<Words> {
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let lines = [
        "INFO everything",
        "SLOWLOG LEN",
        "SLOWLOG GET 1",
        "LATENCY LATEST",
        "LATENCY HISTOGRAM",
        "LATENCY BATCHES",
        "BATCHLOG LEN",
    ];
    lines.map(words).to_vec()
}

/// Further commands for a node of a cluster. A server without cluster mode would count them as errors.
pub(crate) fn cluster_questions(replies: &[Value]) -> Vec<Words> {
    let info = replies.first().and_then(Value::bytes).unwrap_or_default();
    if !String::from_utf8_lossy(info).lines().any(|line| line == "cluster_enabled:1") {
        return Vec::new();
    }
    ["INFO", "LINKS"].map(|word| vec![b"CLUSTER".to_vec(), word.as_bytes().to_vec()]).to_vec()
}

/// Creates the metrics from the replies to these commands. Commands that the user may not run are skipped, except for
/// INFO.
///
/// # Errors
/// Returns the server's error text.
pub fn text(replies: &[Value]) -> Result<String, String> {
    let info = replies.first().ok_or_else(|| "ERR no reply".to_owned())?;
    if let Some(error) = info.error() {
        return Err(String::from_utf8_lossy(error).into_owned());
    }
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default());
    let fields: Vec<(&str, &str)> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let mut families = Families::default();
    families.add("redis_up", Gauge, "1 if the server replies, 0 otherwise.", &[], 1);
    families.add("redis_exporter_last_scrape_error", Gauge, SCRAPE_ERROR, &[("err", "")], 0);
    plain(&fields, &mut families);
    instance(&fields, &mut families);
    for &(field, value) in &fields {
        labelled(field, value, &mut families);
    }
    latencies(&fields, replies.get(4), &mut families);
    slow_log(replies.get(1), replies.get(2), &mut families);
    spikes(replies.get(3), &mut families);
    batches::batches(replies.get(5), replies.get(6), &mut families);
    cluster(replies.get(7), replies.get(8), &mut families);
    Ok(families.text())
}

/// Metrics for a server that doesn't reply.
pub(crate) fn down(why: &str) -> String {
    let mut families = Families::default();
    families.add("redis_up", Gauge, "1 if the server replies, 0 otherwise.", &[], 0);
    families.add("redis_exporter_last_scrape_error", Gauge, SCRAPE_ERROR, &[("err", why)], 1);
    families.text()
}

const SCRAPE_ERROR: &str = "1 if the metrics could not be read, with the error as a label.";

/// Adds the fields with one number each.
fn plain(fields: &[(&str, &str)], families: &mut Families) {
    let mut by_field: HashMap<&str, Vec<&Metric>> = HashMap::new();
    METRICS.iter().for_each(|metric| by_field.entry(metric.field).or_default().push(metric));
    for (field, value) in fields {
        let Some(value) = number(value) else { continue };
        for metric in by_field.remove(field).unwrap_or_default() {
            let help = format!("The field {field} of INFO.");
            match metric.scale {
                None => families.add(metric.name, metric.kind, &help, &[], value),
                Some(scale) => {
                    let seconds = value.parse::<f64>().unwrap_or_default() * scale;
                    families.add(
                        metric.name,
                        metric.kind,
                        &format!("The field {field} of INFO, in seconds."),
                        &[],
                        seconds,
                    );
                }
            }
        }
    }
}

/// Converts a field's value to a number, as written.
fn number(value: &str) -> Option<&str> {
    match value {
        "ok" | "up" => Some("1"),
        "err" | "down" => Some("0"),
        text => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|_| text),
    }
}

/// Adds the metrics of a node of a cluster.
fn cluster(info: Option<&Value>, links: Option<&Value>, families: &mut Families) {
    let Some(info) = info.and_then(Value::bytes) else { return };
    for (field, value) in String::from_utf8_lossy(info).lines().filter_map(|line| line.split_once(':')) {
        let Some(metric) = CLUSTER.iter().find(|metric| metric.field == field) else { continue };
        // The state is `ok` or `fail`.
        let value = if value == "fail" { "0" } else { value };
        if let Some(value) = number(value) {
            families.add(metric.name, metric.kind, &format!("The field {field} of CLUSTER INFO."), &[], value);
        }
    }
    if let Some(Value::Array(links)) = links {
        families.add("penstock_cluster_links", Gauge, "Connections of the cluster bus.", &[], links.len());
    }
}

fn instance(fields: &[(&str, &str)], families: &mut Families) {
    let find = |name: &str| fields.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| *value);
    let labels: Vec<_> = INSTANCE.iter().map(|&name| (name, find(name))).collect();
    families.add("redis_instance_info", Gauge, "Properties of the server as labels.", &labels, 1);
    if let (Ok(now_us), Ok(uptime_s)) =
        (find("server_time_usec").parse::<u64>(), find("uptime_in_seconds").parse::<u64>())
    {
        let start_s = (now_us / 1_000_000).saturating_sub(uptime_s);
        families.add(
            "redis_start_time_seconds",
            Gauge,
            "Start time of the server, in seconds of Unix time.",
            &[],
            start_s,
        );
    }
    let (host, port) = (find("master_host"), find("master_port"));
    if host.is_empty() {
        return;
    }
    let labels = [("master_host", host), ("master_port", port)];
    for (field, name) in [
        ("master_link_status", "redis_master_link_up"),
        ("master_last_io_seconds_ago", "redis_master_last_io_seconds_ago"),
        ("master_sync_in_progress", "redis_master_sync_in_progress"),
        ("slave_repl_offset", "redis_slave_repl_offset"),
    ] {
        if let Some(value) = number(find(field)) {
            families.add(name, Gauge, &format!("The field {field} of INFO."), &labels, value);
        }
    }
    let labels = [labels[0], labels[1], ("read_only", find("slave_read_only"))];
    families.add("redis_slave_info", Gauge, "The primary of this replica as labels.", &labels, 1);
}

/// Returns one part of a value like `keys=1,expires=0`.
fn part<'v>(value: &'v str, name: &str) -> Option<&'v str> {
    value.split(',').filter_map(|part| part.split_once('=')).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Adds a field that exists once per command, database, kind of error or replica.
fn labelled(field: &str, value: &str, families: &mut Families) {
    if let Some(cmd) = field.strip_prefix("cmdstat_") {
        return command(cmd, value, families);
    }
    if let Some(cause) = field.strip_prefix("reply_stall_closes_") {
        let help = "Connections closed because their replies exceeded the limits.";
        return families.add("penstock_reply_stall_closes_total", Counter, help, &[("cause", cause)], value);
    }
    if let Some(err) = field.strip_prefix("errorstat_") {
        let count = part(value, "count").unwrap_or("0");
        return families.add(
            "redis_errors_total",
            Counter,
            "Error replies by their first word.",
            &[("err", err)],
            count,
        );
    }
    let is_numbered = |prefix: &str| {
        let rest = field.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if is_numbered("db") {
        database(field, value, families);
    } else if is_numbered("slave") {
        replica(value, families);
    }
}

fn command(cmd: &str, value: &str, families: &mut Families) {
    let labels = [("cmd", cmd)];
    let figure = |name| part(value, name).unwrap_or("0");
    families.add("redis_commands_total", Counter, "Calls of each command.", &labels, figure("calls"));
    let seconds = figure("usec").parse::<f64>().unwrap_or_default() / 1e6;
    families.add("redis_commands_duration_seconds_total", Counter, "Total run time of each command.", &labels, seconds);
    let help = "Calls of each command that were rejected before running.";
    families.add("redis_commands_rejected_calls_total", Counter, help, &labels, figure("rejected_calls"));
    let help = "Calls of each command that ended in an error.";
    families.add("redis_commands_failed_calls_total", Counter, help, &labels, figure("failed_calls"));
}

fn database(name: &str, value: &str, families: &mut Families) {
    let labels = [("db", name)];
    let figure = |name| part(value, name).unwrap_or("0");
    families.add("redis_db_keys", Gauge, "Keys of each database.", &labels, figure("keys"));
    families.add("redis_db_keys_expiring", Gauge, "Keys with an expiry of each database.", &labels, figure("expires"));
    let seconds = figure("avg_ttl").parse::<f64>().unwrap_or_default() / 1e3;
    families.add("redis_db_avg_ttl_seconds", Gauge, "Mean time to live of the keys with an expiry.", &labels, seconds);
}

fn replica(value: &str, families: &mut Families) {
    let figure = |name| part(value, name).unwrap_or("");
    let labels = [("slave_ip", figure("ip")), ("slave_port", figure("port")), ("slave_state", figure("state"))];
    if let Some(offset) = number(figure("offset")) {
        families.add("redis_connected_slave_offset_bytes", Gauge, "Replication offset of a replica.", &labels, offset);
    }
    if let Some(lag) = number(figure("lag")) {
        families.add(
            "redis_connected_slave_lag_seconds",
            Gauge,
            "Seconds since the last message of a replica.",
            &labels,
            lag,
        );
    }
}

/// Adds durations of commands: percentiles from INFO, and counts per bound from LATENCY HISTOGRAM.
fn latencies(fields: &[(&str, &str)], histograms: Option<&Value>, families: &mut Families) {
    let totals: HashMap<&str, &str> =
        fields.iter().filter_map(|(field, value)| Some((field.strip_prefix("cmdstat_")?, *value))).collect();
    let total = |cmd: &str, name| totals.get(cmd).and_then(|value| part(value, name)).unwrap_or("0");
    for (field, value) in fields {
        let Some(cmd) = field.strip_prefix("latency_percentiles_usec_") else { continue };
        const HELP: &str = "Percentiles of each command's run time, in microseconds.";
        for (percentile, duration) in value.split(',').filter_map(|part| part.split_once('=')) {
            let labels = [("cmd", cmd), ("quantile", percentile.trim_start_matches('p'))];
            families.add(PERCENTILES, Summary, HELP, &labels, duration);
        }
        families.add_part(PERCENTILES, "_sum", Summary, HELP, &[("cmd", cmd)], total(cmd, "usec"));
        families.add_part(PERCENTILES, "_count", Summary, HELP, &[("cmd", cmd)], total(cmd, "calls"));
    }
    let Some(Value::Array(histograms)) = histograms else { return };
    for pair in histograms.chunks_exact(2) {
        if let [name, Value::Array(figures)] = pair {
            let cmd = String::from_utf8_lossy(name.bytes().unwrap_or_default());
            histogram(&cmd, figures, total(&cmd, "usec"), families);
        }
    }
}

/// Adds one command's part of LATENCY HISTOGRAM: `calls` and their number, `histogram_usec` and upper bounds with
/// cumulative counts.
fn histogram(cmd: &str, figures: &[Value], sum_us: &str, families: &mut Families) {
    const HELP: &str = "Calls of each command by run time, in microseconds.";
    let [_, Value::Int(calls), _, Value::Array(bounds)] = figures else { return };
    for pair in bounds.chunks_exact(2) {
        if let [Value::Int(bound), Value::Int(count)] = pair {
            let labels = [("cmd", cmd), ("le", &bound.to_string())];
            families.add_part(LATENCIES, "_bucket", Histogram, HELP, &labels, count);
        }
    }
    families.add_part(LATENCIES, "_bucket", Histogram, HELP, &[("cmd", cmd), ("le", "+Inf")], calls);
    families.add_part(LATENCIES, "_sum", Histogram, HELP, &[("cmd", cmd)], sum_us);
    families.add_part(LATENCIES, "_count", Histogram, HELP, &[("cmd", cmd)], calls);
}

fn slow_log(length: Option<&Value>, last: Option<&Value>, families: &mut Families) {
    if let Some(Value::Int(length)) = length {
        families.add("redis_slowlog_length", Gauge, "Entries of the slow log.", &[], length);
    }
    let Some(Value::Array(entries)) = last else { return };
    let (mut id, mut duration_us) = (0, 0);
    if let Some(Value::Array(entry)) = entries.first()
        && let [Value::Int(last_id), _, Value::Int(took_us), ..] = &entry[..]
    {
        (id, duration_us) = (*last_id, *took_us);
    }
    families.add("redis_slowlog_last_id", Gauge, "ID of the slow log's last entry.", &[], id);
    let help = "Run time of the slow log's last entry.";
    families.add("redis_last_slow_execution_duration_seconds", Gauge, help, &[], duration_us as f64 / 1e6);
}

/// Adds LATENCY LATEST: event, time and duration of its last occurrence, and its maximum.
fn spikes(latest: Option<&Value>, families: &mut Families) {
    let Some(Value::Array(events)) = latest else { return };
    for event in events {
        if let Value::Array(event) = event
            && let [name, Value::Int(at_s), Value::Int(took_ms), ..] = &event[..]
        {
            let name = String::from_utf8_lossy(name.bytes().unwrap_or_default());
            let labels = [("event_name", &*name)];
            let help = "Time of the last occurrence of a latency event, in seconds of Unix time.";
            families.add("redis_latency_spike_last", Gauge, help, &labels, at_s);
            let help = "Duration of the last occurrence of a latency event.";
            families.add("redis_latency_spike_duration_seconds", Gauge, help, &labels, *took_ms as f64 / 1e3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn metrics_have_redis_exporters_names() {
        let info = "# Server\r\nredis_version:7.4.0\r\nuptime_in_seconds:5\r\nserver_time_usec:100000000\r\n\
            used_memory:10\r\nrdb_last_bgsave_status:ok\r\nadvisor_time_lost_usec:1500000\r\n\
            cmdstat_get:calls=2,usec=3,usec_per_call=1.50,rejected_calls=4,failed_calls=5\r\n\
            latency_percentiles_usec_get:p50=1.003,p99.9=2.007\r\nerrorstat_ERR:count=6\r\n\
            db0:keys=7,expires=8,avg_ttl=9000,subexpiry=0\r\nslave0:ip=::1,port=1,state=online,offset=2,lag=0\r\n\
            reply_stall_closes_memory:1\r\n";
        let slow = Value::Array(vec![Value::Array(vec![Value::Int(3), Value::Int(1), Value::Int(2_000_000)])]);
        let spikes =
            Value::Array(vec![Value::Array(vec![bulk("command"), Value::Int(9), Value::Int(250), Value::Int(300)])]);
        let bounds = Value::Array(vec![Value::Int(1), Value::Int(1), Value::Int(2), Value::Int(2)]);
        let get = Value::Array(vec![bulk("calls"), Value::Int(2), bulk("histogram_usec"), bounds]);
        let histograms = Value::Array(vec![bulk("get"), get]);
        let text = text(&[bulk(info), Value::Int(1), slow, spikes, histograms]).unwrap();
        for line in [
            "redis_up 1",
            "redis_memory_used_bytes 10",
            "redis_rdb_last_bgsave_status 1",
            "redis_start_time_seconds 95",
            "penstock_advisor_lost_seconds_total 1.5",
            "redis_commands_total{cmd=\"get\"} 2",
            "redis_commands_duration_seconds_total{cmd=\"get\"} 0.000003",
            "redis_commands_failed_calls_total{cmd=\"get\"} 5",
            "redis_latency_percentiles_usec{cmd=\"get\",quantile=\"99.9\"} 2.007",
            "redis_commands_latencies_usec_bucket{cmd=\"get\",le=\"+Inf\"} 2",
            "redis_commands_latencies_usec_sum{cmd=\"get\"} 3",
            "redis_errors_total{err=\"ERR\"} 6",
            "redis_db_keys{db=\"db0\"} 7",
            "redis_db_avg_ttl_seconds{db=\"db0\"} 9",
            "redis_connected_slave_lag_seconds{slave_ip=\"::1\",slave_port=\"1\",slave_state=\"online\"} 0",
            "penstock_reply_stall_closes_total{cause=\"memory\"} 1",
            "redis_slowlog_last_id 3",
            "redis_last_slow_execution_duration_seconds 2",
            "redis_latency_spike_duration_seconds{event_name=\"command\"} 0.25",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_has_more_metrics() {
        assert!(cluster_questions(&[bulk("used_memory:1\r\ncluster_enabled:0\r\n")]).is_empty());
        assert!(cluster_questions(&[]).is_empty());
        let mut replies = vec![Value::Null; questions().len()];
        replies[0] = bulk("cluster_enabled:1\r\n");
        let asked = cluster_questions(&replies).iter().map(|words| words.join(&b' ')).collect::<Vec<_>>();
        assert_eq!(asked, [b"CLUSTER INFO".to_vec(), b"CLUSTER LINKS".to_vec()]);
        replies.push(bulk("cluster_state:fail\r\ncluster_slots_ok:16000\r\ncluster_stats_messages_sent:5\r\n"));
        replies.push(Value::Array(vec![Value::Null, Value::Null]));
        let text = text(&replies).unwrap();
        for line in [
            "redis_cluster_state 0",
            "redis_cluster_slots_ok 16000",
            "redis_cluster_messages_sent_total 5",
            "penstock_cluster_links 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn forbidden_commands_are_skipped() {
        let denied = Value::Error(b"NOPERM no".to_vec());
        let all = [bulk("used_memory:1\r\n"), denied.clone(), denied.clone(), denied.clone(), denied.clone()];
        assert!(text(&all).unwrap().contains("redis_memory_used_bytes 1\n"));
        assert_eq!(text(&[denied]), Err("NOPERM no".into()));
        assert!(down("a \"b\"").contains("redis_exporter_last_scrape_error{err=\"a \\\"b\\\"\"} 1\n"));
    }

    #[test]
    fn no_metric_has_two_fields() {
        let all = || METRICS.iter().chain(CLUSTER);
        let mut names: Vec<_> = all().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        for metric in all() {
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Counter, "{}", metric.name);
        }
    }
}
