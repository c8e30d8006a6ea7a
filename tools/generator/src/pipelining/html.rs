//! The page of `--html`: charts and tables in one file without external resources.

use std::fmt::Write as _;

use super::results::{Cell, Depth, DepthCell, Experiment, Results, Row, Server, Sweep, TranscriptLine};
use super::svg::{self, Bar, Group, Series, escaped};
use super::table::{COUNTED, COUNTED_EXPERIMENT, UNCOUNTED, bytes, fewer, spread, times, whole};
use crate::report::grouped;

const STYLE: &str = include_str!("page.css");

/// Returns the whole page.
pub fn page(results: &Results) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    // Blocks scripts and external resources, even if a server's name contains HTML.
    page += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";
    page += "<title>What pipelining saves</title>\n<style>\n";
    page += STYLE;
    page += "</style>\n</head>\n<body>\n<main>\n";
    head(&mut page, results);
    for experiment in &results.experiments {
        section(&mut page, experiment, results);
    }
    if let Some(sweep) = &results.sweep {
        sweep_section(&mut page, sweep, results);
    }
    page + "</main>\n</body>\n</html>\n"
}

/// Formats seconds with a suitable unit.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

fn head(page: &mut String, results: &Results) {
    *page += "<h1>What pipelining saves</h1>\n";
    let when = date(results.unix_time);
    // Writing to a string can't fail, here and below.
    let _ = writeln!(
        page,
        "<p class=\"meta\">{} {}, {when}, on {}.",
        results.program,
        results.version,
        escaped(&results.machine)
    );
    if let Some(added) = results.added_rtt_ms {
        let _ = writeln!(page, "A proxy added a delay of {added} ms to every round trip.");
    }
    if let Some(text) = results.disturbance() {
        let _ = writeln!(page, "Note: {text}.");
    }
    *page += "</p>\n<ul class=\"servers\">\n";
    for (index, server) in results.servers.iter().enumerate() {
        let local = if server.is_local { ", a process of this machine" } else { "" };
        let _ = writeln!(
            page,
            "<li><span class=\"key k{index}\"></span>{}{} at {}, round trip {}{local}</li>",
            letter(index, &results.servers),
            escaped(&server.name),
            escaped(&server.address),
            time(server.rtt_ms / 1e3),
        );
    }
    *page += "</ul>\n";
}

/// Returns the Gregorian date (UTC) from days since 1970. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms".
fn date(unix_time: u64) -> String {
    let days = unix_time / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

fn letter(index: usize, servers: &[Server]) -> String {
    if servers.len() > 1 { format!("<b>{}</b> ", (b'A' + index as u8) as char) } else { String::new() }
}

fn section(page: &mut String, experiment: &Experiment, results: &Results) {
    let title = escaped(&experiment.title);
    let _ = writeln!(page, "<section id=\"{}\">\n<h2>{title}</h2>", experiment.id);
    let _ = writeln!(page, "<p>{}</p>", escaped(&experiment.note));
    if experiment.transcript.is_empty() {
        let groups: Vec<Group> = experiment.rows.iter().map(group).collect();
        let _ = writeln!(page, "<figure>{}</figure>", svg::bars(&experiment.title, &groups));
    } else {
        exchanges(page, &experiment.transcript, &results.servers);
    }
    times_table(page, experiment, results);
    if experiment.id == COUNTED_EXPERIMENT {
        counts_table(page, experiment, results);
    }
    if experiment.rows.iter().flat_map(|row| &row.servers).any(Cell::is_cut_off) {
        *page += "<p class=\"meta\">~ and faint bars: cut off; the total is estimated from the part that was \
                  done.</p>\n";
    }
    if experiment.is_rough() {
        *page += "<p class=\"meta\">! rough: the rounds differ too much.</p>\n";
    }
    *page += "</section>\n";
}

fn group(row: &Row) -> Group {
    let bar = |cell: &Cell| match &cell.impossible {
        Some(_) => Bar { value: None, text: "not possible here".to_owned(), faint: false },
        None => Bar {
            value: Some(cell.real_s),
            text: format!("{}{} · {:.1}×", mark(cell), time(cell.real_s), cell.times),
            faint: cell.is_cut_off(),
        },
    };
    Group { label: row.label.clone(), bars: row.servers.iter().map(bar).collect() }
}

fn mark(cell: &Cell) -> &'static str {
    if cell.is_cut_off() { "~" } else { "" }
}

fn exchanges(page: &mut String, transcript: &[TranscriptLine], servers: &[Server]) {
    let longest = transcript.iter().map(|line| line.at_ms).fold(0.0, f64::max);
    let mut rest = transcript;
    while let Some(first) = rest.first() {
        let is_same = |line: &&TranscriptLine| (line.server, &line.way) == (first.server, &first.way);
        let count = rest.iter().take_while(is_same).count();
        let lines: Vec<&TranscriptLine> = rest[..count].iter().collect();
        let title = if servers.len() > 1 {
            format!("{} {}", (b'A' + first.server as u8) as char, first.way)
        } else {
            first.way.clone()
        };
        let _ = writeln!(page, "<figure>{}</figure>", svg::exchange(&title, &lines, longest));
        rest = &rest[count..];
    }
}

fn times_table(page: &mut String, experiment: &Experiment, results: &Results) {
    let several = results.servers.len() > 1;
    let local = results.servers.iter().any(|server| server.is_local);
    *page += "<div class=\"wide\"><table>\n<tr><th></th>";
    if several {
        *page += "<th></th>";
    }
    *page += "<th>user</th><th>system</th><th>total</th><th>real</th><th>spread</th><th>times</th>";
    if local {
        *page += "<th>server's CPU<br>per command</th><th>server's<br>memory</th>";
    }
    *page += if several { "<th>B / A</th>" } else { "" };
    *page += if experiment.has_document() { "<th>in the<br>document</th></tr>\n" } else { "</tr>\n" };
    let shows = Shows { several, local, document: experiment.has_document() };
    for row in &experiment.rows {
        for (index, cell) in row.servers.iter().enumerate() {
            times_row(page, row, cell, index, &shows);
        }
    }
    *page += "</table></div>\n";
}

/// Optional columns of a table of times.
struct Shows {
    several: bool,
    local: bool,
    document: bool,
}

fn times_row(page: &mut String, row: &Row, cell: &Cell, index: usize, shows: &Shows) {
    let Shows { several, local, document } = *shows;
    let label = if index == 0 { escaped(&row.label) } else { String::new() };
    let _ = write!(page, "<tr><th scope=\"row\">{label}</th>");
    if several {
        let _ = write!(page, "<td><b>{}</b></td>", (b'A' + index as u8) as char);
    }
    match &cell.impossible {
        Some(why) => {
            let columns = if local { 8 } else { 6 };
            let _ = write!(page, "<td class=\"none\" colspan=\"{columns}\">{}</td>", escaped(why));
        }
        None => figures(page, cell, local),
    }
    if several {
        let ratio = row.ratio().filter(|_| index > 0).map(times).unwrap_or_default();
        let _ = write!(page, "<td>{ratio}</td>");
    }
    if document {
        let seconds = row.document_s.filter(|_| index == 0).map(time).unwrap_or_default();
        let _ = write!(page, "<td>{seconds}</td>");
    }
    *page += "</tr>\n";
}

fn figures(page: &mut String, cell: &Cell, local: bool) {
    let (user, system, real) = (cell.user_s, cell.system_s, cell.real_s);
    let _ = write!(page, "<td>{user:.6}</td><td>{system:.6}</td><td>{:.6}</td>", user + system);
    let _ = write!(page, "<td>{}{real:.6}</td><td>{}</td><td>{}</td>", mark(cell), spread(cell), times(cell.times));
    if local {
        let cpu = cell.server_ns_per_command.map(|ns| format!("{:.2} µs", ns / 1e3)).unwrap_or_default();
        let memory = cell.server_bytes.map(bytes).unwrap_or_default();
        let _ = write!(page, "<td>{cpu}</td><td>{memory}</td>");
    }
}

/// Writes the table of commands by kind, as counted by the servers.
fn counts_table(page: &mut String, experiment: &Experiment, results: &Results) {
    let (counted, silent): (Vec<usize>, Vec<usize>) =
        (0..results.servers.len()).partition(|index| experiment.is_counted(*index));
    if !counted.is_empty() {
        counts_table_of(page, experiment, results, &counted);
    }
    for index in silent {
        let _ = writeln!(page, "<p class=\"meta\">{}{UNCOUNTED}</p>", letter(index, &results.servers));
    }
}

fn counts_table_of(page: &mut String, experiment: &Experiment, results: &Results, counted: &[usize]) {
    *page += "<h3>Commands, as counted by the server</h3>\n<div class=\"wide\"><table>\n<tr><th></th>";
    COUNTED.iter().for_each(|kind| *page += &format!("<th>{kind}</th>"));
    *page += "<th>fewer ZSCOREs</th></tr>\n";
    for &index in counted {
        let first = experiment.rows.first().and_then(|row| row.servers.get(index));
        for row in &experiment.rows {
            let Some(cell) = row.servers.get(index).filter(|cell| cell.impossible.is_none()) else { continue };
            let letter = letter(index, &results.servers);
            let _ = write!(page, "<tr><th scope=\"row\">{letter}{}</th>", escaped(&row.label));
            COUNTED.iter().for_each(|kind| *page += &format!("<td>{}</td>", whole(cell, cell.count(kind))));
            let fewer = first.map(|first| fewer(cell, first)).unwrap_or_default();
            let _ = writeln!(page, "<td>{fewer}</td></tr>");
        }
    }
    *page += "</table></div>\n";
}

fn sweep_section(page: &mut String, sweep: &Sweep, results: &Results) {
    let _ = writeln!(
        page,
        "<section id=\"depths\">\n<h2>Depth of a pipeline: GET of {} bytes over one connection</h2>\n<p>{}</p>",
        sweep.value_bytes,
        escaped(super::SWEEP_NOTE)
    );
    let rates = series(sweep, results, |cell| Some(cell.per_second));
    let _ = writeln!(
        page,
        "<h3>Commands a second</h3>\n<figure>{}</figure>",
        svg::lines("commands a second by depth", "depth of the pipeline", &rates, |rate| grouped(rate as u64),)
    );
    let queued = series(sweep, results, |cell| cell.queued_bytes.map(|bytes| bytes as f64));
    if queued.iter().any(|line| !line.points.is_empty()) {
        let _ = writeln!(
            page,
            "<h3>Bytes of unread replies that the server keeps</h3>\n<figure>{}</figure>",
            svg::lines("queued bytes by depth", "depth of the pipeline", &queued, decimal_bytes,)
        );
    }
    sweep_table(page, sweep, results);
    *page += "</section>\n";
}

/// Formats bytes with decimal units, for powers of ten.
fn decimal_bytes(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{} GB", n / 1e9),
        n if n >= 1e6 => format!("{} MB", n / 1e6),
        n if n >= 1e3 => format!("{} kB", n / 1e3),
        n => format!("{n} B"),
    }
}

/// Returns a line for each server. Zeros are omitted, because the axes are logarithmic.
fn series(sweep: &Sweep, results: &Results, figure: impl Fn(&DepthCell) -> Option<f64>) -> Vec<Series> {
    let point = |row: &Depth, index: usize| Some((row.depth as f64, figure(row.servers.get(index)?)?));
    let line = |index: usize| {
        let points = sweep.rows.iter().filter_map(|row| point(row, index)).filter(|&(_, y)| y > 0.0).collect();
        Series { points }
    };
    (0..results.servers.len()).map(line).collect()
}

fn sweep_table(page: &mut String, sweep: &Sweep, results: &Results) {
    let ratio_head = if results.servers.len() > 1 { "<th>B / A</th>" } else { "" };
    let _ = writeln!(
        page,
        "<div class=\"wide\"><table>\n<tr><th>depth</th><th>commands/s</th><th>times</th>{ratio_head}<th>server's CPU<br>per \
         command</th><th>replies</th><th>queued</th><th>memory</th><th></th></tr>"
    );
    for row in &sweep.rows {
        for (index, cell) in row.servers.iter().enumerate() {
            let depth = format!("{}{}", letter(index, &results.servers), grouped(row.depth));
            let _ = write!(page, "<tr><th scope=\"row\">{depth}</th><td>{}</td>", grouped(cell.per_second as u64));
            let _ = write!(page, "<td>{:.2}</td>", cell.times);
            if results.servers.len() > 1 {
                let ratio = row.ratio().filter(|_| index > 0).map(times);
                let _ = write!(page, "<td>{}</td>", ratio.unwrap_or_default());
            }
            depth_figures(page, cell);
        }
    }
    *page += "</table></div>\n";
}

fn depth_figures(page: &mut String, cell: &DepthCell) {
    let cpu = cell.server_ns_per_command.map(|ns| format!("{:.2} µs", ns / 1e3)).unwrap_or_default();
    let (queued, memory) = (cell.queued_bytes.map(bytes), cell.memory_growth_bytes.map(bytes));
    let _ = writeln!(
        page,
        "<td>{cpu}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        bytes(cell.reply_bytes),
        queued.unwrap_or_default(),
        memory.unwrap_or_default(),
        escaped(cell.remark.as_deref().unwrap_or_default()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let check = |unix_time, text| assert_eq!(date(unix_time), text);
        check(0, "1970-01-01");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_795_258_596, "2026-11-21");
    }

    #[test]
    fn times_have_a_suitable_unit() {
        let texts = [0.000_044, 0.25, 1.185_238, 2500.0].map(time);
        assert_eq!(texts, ["44 µs", "250.00 ms", "1.19 s", "2500 s"]);
    }
}
