//! The tables as text: the columns of Ruby's benchmark (user, system, total, real), as in the documents, and some more.

use std::io::{self, Write};

use super::results::{Cell, DepthCell, Experiment, Results, Row, Server, Sweep};
use crate::report::grouped;

/// Width of the label column.
const LABEL_WIDTH: usize = 27;
/// Width of text.
const TEXT_WIDTH: usize = 110;
/// Kinds of commands in the table of server counts.
pub const COUNTED: [&str; 4] = ["zscore", "zadd", "hset", "evalsha"];
/// Text in place of this table.
pub const UNCOUNTED: &str = "no command counts: the server refuses INFO commandstats";
/// The experiment with a table of server counts.
pub const COUNTED_EXPERIMENT: &str = "movies";

/// Writes the measured servers with their round trip times.
pub fn write_head(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    for (index, server) in results.servers.iter().enumerate() {
        let letter = letter(index, &results.servers);
        write!(out, "{letter}{} at {}, round trip {:.3} ms", server.name, server.address, server.rtt_ms)?;
        match results.added_rtt_ms {
            Some(added) => {
                let measured = server.rtt_ms - server.direct_rtt_ms;
                writeln!(out, " ({measured:.3} ms of it added by a proxy; requested: {added} ms)")?;
            }
            None => writeln!(out)?,
        }
    }
    if let Some(text) = results.disturbance() {
        writeln!(out, "note: {text}")?;
    }
    out.flush()
}

/// Returns a server's letter in the tables, with a blank; empty if there is only one server.
fn letter(index: usize, servers: &[Server]) -> String {
    if servers.len() > 1 { format!("{} ", (b'A' + index as u8) as char) } else { String::new() }
}

/// Writes an experiment's table.
pub fn write_experiment(out: &mut dyn Write, experiment: &Experiment, servers: &[Server]) -> io::Result<()> {
    writeln!(out, "\n== {}", experiment.title)?;
    for line in wrapped(&experiment.note, TEXT_WIDTH) {
        writeln!(out, "   {line}")?;
    }
    let local = servers.iter().any(|server| server.is_local);
    write!(out, "{:LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>12}  {:>8}", "", "user", "system", "total", "real", "times")?;
    if local {
        write!(out, " {:>12}", "server/cmd")?;
    }
    write!(out, " {:>7}", "spread")?;
    writeln!(out, "{}", if experiment.has_document() { "     document" } else { "" })?;
    for row in &experiment.rows {
        write_row(out, row, servers, local)?;
    }
    if experiment.id == COUNTED_EXPERIMENT {
        write_counts(out, experiment, servers)?;
    }
    write_transcript(out, experiment, servers)?;
    if experiment.rows.iter().flat_map(|row| &row.servers).any(Cell::is_cut_off) {
        writeln!(out, "   ~ cut off by --limit; the total is estimated from the part that was done")?;
    }
    if experiment.is_rough() {
        writeln!(out, "   ! rough: the rounds differ too much; use more rounds (--rounds) or a quieter machine")?;
    }
    out.flush()
}

/// Writes the line below an incomplete table.
pub fn write_unfinished(out: &mut dyn Write, rows: usize, of: usize) -> io::Result<()> {
    writeln!(out, "   unfinished: only {rows} of {of} rows were measured")?;
    out.flush()
}

fn write_row(out: &mut dyn Write, row: &Row, servers: &[Server], local: bool) -> io::Result<()> {
    if servers.len() > 1 {
        write!(out, "{}", row.label)?;
        match row.ratio() {
            Some(ratio) => writeln!(out, ": B takes {} times as long as A{}", times(ratio), range(row))?,
            None => writeln!(out)?,
        }
    }
    for (index, cell) in row.servers.iter().enumerate() {
        let label = if servers.len() > 1 { format!("  {}", letter(index, servers)) } else { row.label.clone() };
        write!(out, "{label:LABEL_WIDTH$} ")?;
        write_cell(out, cell, local)?;
        match row.document_s.filter(|_| index == 0) {
            Some(seconds) => writeln!(out, " {seconds:>12.6}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn write_cell(out: &mut dyn Write, cell: &Cell, local: bool) -> io::Result<()> {
    if let Some(why) = &cell.impossible {
        return write!(out, "{why}");
    }
    let (user, system) = (cell.user_s, cell.system_s);
    let mark = if cell.is_cut_off() { '~' } else { ' ' };
    let (total, real, faster) = (user + system, cell.real_s, times(cell.times));
    write!(out, "{user:10.6} {system:10.6} {total:10.6} ({mark}{real:>10.6}) {faster:>8}")?;
    match cell.server_ns_per_command {
        Some(ns) => write!(out, " {:>9.2} µs", ns / 1e3)?,
        // The memory is only known for a process on this machine.
        None if local => write!(out, " {:>12}", cell.server_bytes.map_or("", |_| "?"))?,
        None => {}
    }
    write!(out, " {:>7}", spread(cell))
}

/// Formats the spread of the measurements: `±3 %`, with `!` if the figures are only rough.
pub fn spread(cell: &Cell) -> String {
    let mark = if cell.is_rough() { "!" } else { "" };
    cell.spread().map_or(String::new(), |spread| match spread * 100.0 {
        percent if percent > 100.0 => format!(">100 %{mark}"),
        percent => format!("±{percent:.0} %{mark}"),
    })
}

/// Formats a ratio with two decimal places, or with two significant digits if it is small.
pub fn times(ratio: f64) -> String {
    if ratio >= 0.1 || ratio <= 0.0 {
        return format!("{ratio:.2}");
    }
    let places = (1.0 - ratio.log10().floor()) as usize;
    format!("{ratio:.places$}")
}

/// Formats the range of ratios between single measurements.
fn range(row: &Row) -> String {
    let Some((least, most)) = row.ratio_range() else { return String::new() };
    let rough = if row.servers.iter().any(Cell::is_rough) { ", rough" } else { "" };
    format!(" ({} to {}{rough})", times(least), times(most))
}

/// Writes commands by kind, as counted by the servers, and the number of ZSCOREs saved compared with the first variant.
fn write_counts(out: &mut dyn Write, experiment: &Experiment, servers: &[Server]) -> io::Result<()> {
    let (counted, silent): (Vec<usize>, Vec<usize>) =
        (0..servers.len()).partition(|index| experiment.is_counted(*index));
    if !counted.is_empty() {
        write_counts_of(out, experiment, servers, &counted)?;
    }
    silent.iter().try_for_each(|index| writeln!(out, "\n   {}{UNCOUNTED}", letter(*index, servers)))
}

fn write_counts_of(
    out: &mut dyn Write,
    experiment: &Experiment,
    servers: &[Server],
    counted: &[usize],
) -> io::Result<()> {
    writeln!(out, "\n   commands, as counted by the server (INFO commandstats)")?;
    write!(out, "{:LABEL_WIDTH$} ", "")?;
    COUNTED.iter().try_for_each(|kind| write!(out, "{kind:>10} "))?;
    writeln!(out, "{:>14}", "fewer zscores")?;
    for &index in counted {
        let first = experiment.rows.first().and_then(|row| row.servers.get(index));
        for row in &experiment.rows {
            let Some(cell) = row.servers.get(index).filter(|cell| cell.impossible.is_none()) else { continue };
            write!(out, "{:LABEL_WIDTH$} ", format!("{}{}", letter(index, servers), row.label))?;
            COUNTED.iter().try_for_each(|kind| write!(out, "{:>10} ", whole(cell, cell.count(kind))))?;
            writeln!(out, "{:>14}", first.map(|first| fewer(cell, first)).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Formats a count, marked if it is estimated from a part.
pub fn whole(cell: &Cell, count: u64) -> String {
    format!("{}{}", if cell.is_cut_off() { "~" } else { "" }, grouped(count))
}

/// Formats the number of ZSCOREs saved compared with the first variant, marked if it is an estimate; empty if there are
/// none.
pub fn fewer(cell: &Cell, first: &Cell) -> String {
    let estimated = if first.is_cut_off() { first } else { cell };
    cell.fewer(first).map(|fewer| whole(estimated, fewer)).unwrap_or_default()
}

fn write_transcript(out: &mut dyn Write, experiment: &Experiment, servers: &[Server]) -> io::Result<()> {
    let mut heading = None;
    for line in &experiment.transcript {
        if heading != Some((line.server, &line.way)) {
            heading = Some((line.server, &line.way));
            writeln!(out, "\n   {}{}:", letter(line.server, servers), line.way)?;
        }
        writeln!(out, "   {:>10.3} ms  {}: {}", line.at_ms, line.speaker, line.text)?;
    }
    Ok(())
}

/// Writes the table of depths.
pub fn write_sweep(out: &mut dyn Write, sweep: &Sweep, servers: &[Server]) -> io::Result<()> {
    writeln!(out, "\n== Depth of a pipeline: GET of {} bytes over one connection", sweep.value_bytes)?;
    for line in wrapped(super::SWEEP_NOTE, TEXT_WIDTH) {
        writeln!(out, "   {line}")?;
    }
    writeln!(
        out,
        "{:>10} {:>14} {:>8} {:>12} {:>14} {:>14} {:>14}",
        "depth", "commands/s", "times", "server/cmd", "replies", "queued", "memory"
    )?;
    for row in &sweep.rows {
        for (index, cell) in row.servers.iter().enumerate() {
            let depth = format!("{}{}", letter(index, servers), grouped(row.depth));
            write!(out, "{depth:>10} ")?;
            write_depth(out, cell)?;
        }
        if let Some(ratio) = row.ratio() {
            writeln!(out, "{:>10} {:>14}", "B/A", times(ratio))?;
        }
    }
    out.flush()
}

fn write_depth(out: &mut dyn Write, cell: &DepthCell) -> io::Result<()> {
    let unknown = || "?".to_owned();
    let server = cell.server_ns_per_command.map_or_else(unknown, |ns| format!("{:.2} µs", ns / 1e3));
    let queued = cell.queued_bytes.map_or_else(unknown, bytes);
    let memory = cell.memory_growth_bytes.map_or_else(unknown, bytes);
    let (rate, times, replies) = (grouped(cell.per_second as u64), cell.times, bytes(cell.reply_bytes));
    write!(out, "{rate:>14} {times:>8.2} {server:>12} {replies:>14} {queued:>14} {memory:>14}")?;
    match &cell.remark {
        Some(remark) => writeln!(out, "  {remark}"),
        None => writeln!(out),
    }
}

/// Writes the result of the run in one sentence: the fastest way of each experiment on the first server.
pub fn write_result(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    let of_experiment = |experiment: &Experiment| {
        let cells = experiment.rows.iter().filter_map(|row| Some((row, row.servers.first()?)));
        let done = cells.filter(|(_, cell)| cell.impossible.is_none() && cell.times > 1.0);
        let (row, cell) = done.max_by(|(_, a), (_, b)| a.times.total_cmp(&b.times))?;
        Some(format!("{} {} times ({})", experiment.title, times(cell.times), row.label))
    };
    let of_sweep = |sweep: &Sweep| {
        let cells = sweep.rows.iter().filter_map(|row| Some((row.depth, row.servers.first()?.times)));
        let (depth, faster) = cells.max_by(|(_, a), (_, b)| a.total_cmp(b)).filter(|(_, times)| *times > 1.0)?;
        Some(format!("GET {} times (in pipelines of {})", times(faster), grouped(depth)))
    };
    let mut parts: Vec<String> = results.experiments.iter().filter_map(of_experiment).collect();
    parts.extend(results.sweep.as_ref().and_then(of_sweep));
    if !parts.is_empty() {
        writeln!(out)?;
        for line in wrapped(&format!("Fewer round trips made these faster: {}.", parts.join("; ")), TEXT_WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

/// Formats a number of bytes for people.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / f64::from(1 << 20)),
    }
}

/// Wraps text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::results::TranscriptLine;
    use super::*;

    #[test]
    fn small_ratios_have_digits() {
        assert_eq!((times(1.0), times(0.1), times(12.345)), ("1.00".into(), "0.10".into(), "12.35".into()));
        assert_eq!((times(0.095), times(0.0043), times(0.0)), ("0.095".into(), "0.0043".into(), "0.00".into()));
    }

    fn cell(real_s: f64, min: f64, max: f64) -> Cell {
        Cell { real_s, rounds: 3, real_min_s: min, real_max_s: max, done: 1, of: 1, times: 1.0, ..Cell::default() }
    }

    fn server() -> Server {
        let (name, address) = ("S".to_owned(), "a".to_owned());
        Server { name, address, rtt_ms: 1.0, direct_rtt_ms: 1.0, is_local: false }
    }

    fn table(experiment: &Experiment, servers: &[Server]) -> String {
        let mut out = Vec::new();
        write_experiment(&mut out, experiment, servers).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn experiment(id: &'static str, servers: Vec<Cell>) -> Experiment {
        let row = Row { label: "way".to_owned(), does: "", document_s: None, servers };
        Experiment { id, title: "t".to_owned(), note: String::new(), rows: vec![row], transcript: Vec::new() }
    }

    #[test]
    fn differing_rounds_are_shown() {
        let text = table(&experiment("x", vec![cell(2.0, 1.0, 4.0), cell(0.01, 0.001, 4.0)]), &[server(), server()]);
        assert!(text.contains("way: B takes 0.0050 times as long as A (0.00025 to 4.00, rough)\n"), "{text}");
        assert!(text.contains(" ±75 %!") && text.contains(" >100 %!") && text.contains("\n   ! rough: "), "{text}");
        let text = table(&experiment("x", vec![cell(2.0, 1.9, 2.1)]), &[server()]);
        assert!(text.contains(" ±5 %\n") || text.contains(" ±5 % "), "{text}");
        assert!(!text.contains("rough") && !text.contains("document"), "{text}");
    }

    #[test]
    fn counts_of_rows_that_were_cut_off_are_marked() {
        let counted = |zscores| super::super::results::Counts::from([("zscore".to_owned(), zscores)]);
        let mut movies =
            experiment(COUNTED_EXPERIMENT, vec![Cell { of: 100, counted: counted(11), ..cell(1.0, 1.0, 1.0) }]);
        let whole = Cell { done: 100, of: 100, counted: counted(100), ..cell(1.0, 1.0, 1.0) };
        movies.rows.push(Row { label: "second".to_owned(), does: "", document_s: None, servers: vec![whole] });
        let text = table(&movies, &[server()]);
        let counts: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(counts.contains(&vec!["way", "~1,100", "~0", "~0", "~0"]), "{text}");
        assert!(counts.contains(&vec!["second", "100", "0", "0", "0", "~1,000"]), "{text}");
    }

    #[test]
    fn each_servers_conversation_is_shown() {
        let mut incr = experiment("incr", vec![cell(1.0, 1.0, 1.0), cell(1.0, 1.0, 1.0)]);
        let line = |server| TranscriptLine {
            server,
            at_ms: 1.0,
            way: "one by one".to_owned(),
            speaker: "Client",
            text: "INCR X".to_owned(),
        };
        incr.transcript = vec![line(0), line(1)];
        let text = table(&incr, &[server(), server()]);
        assert!(text.contains("\n   A one by one:\n") && text.contains("\n   B one by one:\n"), "{text}");
    }

    #[test]
    fn the_result_is_one_sentence() {
        let rows = [("one by one", 1.0), ("in a pipeline", 12.5), ("by hand", 3.0)].map(|(label, times)| Row {
            label: label.to_owned(),
            does: "",
            document_s: None,
            servers: vec![Cell { times, ..cell(1.0, 1.0, 1.0) }],
        });
        let pings = Experiment {
            id: "pings",
            title: "10 PINGs".to_owned(),
            note: String::new(),
            rows: rows.into(),
            transcript: Vec::new(),
        };
        let mut results = Results {
            program: "",
            version: "",
            unix_time: 0,
            machine: String::new(),
            load_average: None,
            cores: 1,
            added_rtt_ms: None,
            servers: vec![server()],
            experiments: vec![experiment("x", vec![cell(1.0, 1.0, 1.0)]), pings],
            sweep: None,
        };
        let result = |results: &Results| {
            let mut out = Vec::new();
            write_result(&mut out, results).unwrap();
            String::from_utf8(out).unwrap()
        };
        let expected = "\nFewer round trips made these faster: 10 PINGs 12.50 times (in a pipeline).\n";
        assert_eq!(result(&results), expected);
        "many words ".repeat(20).trim().clone_into(&mut results.experiments[1].title);
        let text = result(&results);
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= TEXT_WIDTH), "{text}");
        results.experiments.pop();
        assert_eq!(result(&results), "");
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!((bytes(5), bytes(1536), bytes(3 << 20)), ("5 B".into(), "1.5 KiB".into(), "3.0 MiB".into()));
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrapped("toolong b", 3), ["toolong", "b"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
