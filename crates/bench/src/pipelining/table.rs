//! The tables as text: Ruby's columns (user, system, total, real), as the documents have them, and some more.

use std::io::{self, Write};

use super::experiments::grouped;
use super::results::{Cell, DepthCell, Experiment, Results, Row, Server, Sweep};

/// Columns of a label.
const LABEL_WIDTH: usize = 27;
/// Commands of these kinds are shown as the server counted them.
pub const COUNTED: [&str; 4] = ["zscore", "zadd", "hset", "evalsha"];
/// In the place of that.
pub const UNCOUNTED: &str = "no commands by their kinds: the server doesn't answer INFO commandstats";
/// The experiment whose commands are shown by their kinds.
pub const COUNTED_EXPERIMENT: &str = "movies";

/// Who is measured, and how far away.
pub fn write_head(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    for (index, server) in results.servers.iter().enumerate() {
        let letter = letter(index, &results.servers);
        write!(out, "{letter}{} at {}, round trip {:.3} ms", server.name, server.address, server.rtt_ms)?;
        match results.added_rtt_ms {
            Some(added) => {
                let measured = server.rtt_ms - server.direct_rtt_ms;
                writeln!(out, " ({measured:.3} ms of it by a proxy that was asked for {added} ms)")?;
            }
            None => writeln!(out)?,
        }
    }
    out.flush()
}

/// How a server is called in the tables, with a blank; empty where there is only one.
fn letter(index: usize, servers: &[Server]) -> String {
    if servers.len() > 1 { format!("{} ", (b'A' + index as u8) as char) } else { String::new() }
}

/// One experiment's table.
pub fn write_experiment(out: &mut dyn Write, experiment: &Experiment, servers: &[Server]) -> io::Result<()> {
    writeln!(out, "\n== {}", experiment.title)?;
    for line in wrapped(&experiment.note, 110) {
        writeln!(out, "   {line}")?;
    }
    let local = servers.iter().any(|server| server.is_local);
    write!(out, "{:LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>12}  {:>8}", "", "user", "system", "total", "real", "times")?;
    if local {
        write!(out, " {:>12}", "server/cmd")?;
    }
    writeln!(out, " {:>12}", "document")?;
    for row in &experiment.rows {
        write_row(out, row, servers, local)?;
    }
    if experiment.id == COUNTED_EXPERIMENT {
        write_counts(out, experiment, servers)?;
    }
    write_transcript(out, experiment)?;
    if experiment.rows.iter().flat_map(|row| &row.servers).any(Cell::is_cut_off) {
        writeln!(out, "   ~ cut off: the time of the whole is estimated from the part that was done (--limit)")?;
    }
    out.flush()
}

/// Below a table whose measuring was ended before its time.
pub fn write_unfinished(out: &mut dyn Write, rows: usize, of: usize) -> io::Result<()> {
    writeln!(out, "   unfinished: only {rows} of {of} rows were measured")?;
    out.flush()
}

fn write_row(out: &mut dyn Write, row: &Row, servers: &[Server], local: bool) -> io::Result<()> {
    if servers.len() > 1 {
        write!(out, "{}", row.label)?;
        match row.ratio() {
            Some(ratio) => writeln!(out, ": B takes {ratio:.2} times as long as A")?,
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
    write!(out, "{user:10.6} {system:10.6} {:10.6} ({mark}{:>10.6}) {:>8.2}", user + system, cell.real_s, cell.times)?;
    match cell.server_ns_per_command {
        Some(ns) => write!(out, " {:>9.2} µs", ns / 1e3),
        // Only of a process on this machine is its memory known.
        None if local => write!(out, " {:>12}", cell.server_bytes.map_or("", |_| "?")),
        None => Ok(()),
    }
}

/// Commands of each kind as the servers counted them, and how many ZSCOREs fewer than in the first way.
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
            COUNTED.iter().try_for_each(|kind| write!(out, "{:>10} ", grouped(cell.count(kind))))?;
            writeln!(out, "{:>14}", first.and_then(|first| cell.fewer(first)).map(grouped).unwrap_or_default())?;
        }
    }
    Ok(())
}

fn write_transcript(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let mut way = "";
    for line in &experiment.transcript {
        if line.way != way {
            way = &line.way;
            writeln!(out, "\n   {way}:")?;
        }
        writeln!(out, "   {:>10.3} ms  {}: {}", line.at_ms, line.who, line.text)?;
    }
    Ok(())
}

/// The table of depths.
pub fn write_sweep(out: &mut dyn Write, sweep: &Sweep, servers: &[Server]) -> io::Result<()> {
    writeln!(out, "\n== Depth of a pipeline: GET of {} bytes over one connection", sweep.value_bytes)?;
    for line in wrapped(super::SWEEP_NOTE, 110) {
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
            writeln!(out, "{:>10} {ratio:>14.2}", "B/A")?;
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

/// A number of bytes for people.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / f64::from(1 << 20)),
    }
}

/// Lines of at most `width` characters.
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
    use super::*;

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
