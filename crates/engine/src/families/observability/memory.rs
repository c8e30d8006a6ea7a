//! MEMORY: the use of memory.
//!
//! Source of the semantics: Redis's pages of MEMORY USAGE, STATS, DOCTOR, PURGE and MALLOC-STATS. The texts for people
//! are Penstock's own.

use std::borrow::Cow;

use commands::error::{Error, Outcome};
use commands::spec::flag::{LOADING, READONLY, STALE};
use commands::spec::key_flag::RO;
use commands::spec::{Group, KeySpec, Scope, Spec, fact};
use store::db::Survey;

use crate::families::help::help;
use crate::families::observability::info::{clients_bytes, surveys};
use crate::state::Engine;
use crate::worker::turn::{Run, Turn};

/// Size of a key's slot in the table.
const SLOT_BYTES: usize = size_of::<usize>();
const LOOK_TIPS: &[&str] = &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("memory", -2, 0, Run::Session(memory_help))
    .docs(Group::Server, "4.0.0", "Depends on subcommand.", "Shows the use of memory.", "")
    .subcommands(&[
        Spec::new("doctor", 2, 0, Run::Session(doctor))
            .facts(fact::TELLS)
            .docs(Group::Server, "4.0.0", "O(1)", "Answers a report on the memory in use, for people.", "")
            .tips(LOOK_TIPS),
        Spec::new("help", 2, LOADING | STALE, Run::Session(memory_help)).docs(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("malloc-stats", 2, 0, Run::Session(malloc_stats))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "4.0.0",
                "Depends on how much memory is allocated, could be slow",
                "Answers the memory allocator's own figures, if it has any.",
                "",
            )
            .tips(LOOK_TIPS),
        Spec::new("purge", 2, 0, Run::Session(purge))
            .docs(
                Group::Server,
                "4.0.0",
                "Depends on how much memory is allocated, could be slow",
                "Gives unused memory back to the system; the memory allocator does so by itself.",
                "",
            )
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
        Spec::new("stats", 2, 0, Run::Session(stats))
            .facts(fact::TELLS)
            .scope(Scope::Each)
            .docs(Group::Server, "4.0.0", "O(1)", "Answers figures of the memory in use.", "")
            .tips(LOOK_TIPS),
        Spec::new("usage", -3, READONLY, Run::Session(usage)).keys(&[KeySpec::at(2, RO)]).docs(
            Group::Server,
            "4.0.0",
            "O(N) where N is the number of samples.",
            "Answers the bytes that a key and its value take.",
            "key [SAMPLES count:integer]",
        ),
    ])];

fn usage(turn: &mut Turn<'_, '_>) -> Outcome {
    let mut index = 3;
    while index < turn.len() {
        if !turn.is(index, "SAMPLES") || index + 1 >= turn.len() {
            return Err(Error::SYNTAX);
        }
        // The number of elements to sample; values know their size without samples.
        if turn.int(index + 1)? < 0 {
            return Err(Error::SYNTAX);
        }
        index += 2;
    }
    let Some(key) = turn.each_key().next() else { return Err(Error::SYNTAX) };
    let bytes = turn.db().peek(key).map(|entry| entry.memory_bytes() + SLOT_BYTES);
    match bytes {
        Some(bytes) => turn.reply.count(bytes),
        None => turn.reply.null(),
    }
    Ok(())
}

/// Figures of the memory in use, in bytes.
struct MemoryFigures {
    used: u64,
    peak: u64,
    start: u64,
    resident: u64,
    clients: u64,
    tables: u64,
    /// Texts of scripts and of libraries: INFO's `used_memory_scripts_eval` and `used_memory_functions`.
    scripts: u64,
    functions: u64,
    /// The constant part of the stream's backlog for replicas.
    backlog: u64,
    /// The append-only file's bytes that are not synced: INFO's `mem_aof_buffer`.
    file: u64,
    keys: usize,
}

impl MemoryFigures {
    fn gather(engine: &Engine, surveys: &[Survey], now_ms: u64) -> MemoryFigures {
        let used = engine.host.used_memory();
        engine.memory.note(used, now_ms / 1000);
        MemoryFigures {
            used,
            peak: engine.memory.peak(),
            start: engine.memory.start(),
            resident: engine.host.resident_memory(),
            clients: clients_bytes(engine),
            tables: surveys.iter().map(|s| s.overhead_bytes as u64).sum(),
            scripts: engine.scripts.figures().memory_bytes as u64,
            functions: engine.libraries.figures().2 as u64,
            backlog: engine.replication.backlog_memory(engine.settings.repl_backlog_size.get()),
            file: engine.durability.file_memory(),
            keys: surveys.iter().map(|s| s.keys).sum(),
        }
    }

    /// Returns the memory outside of keys and values.
    fn overhead(&self) -> u64 {
        self.start + self.clients + self.tables + self.scripts + self.functions + self.backlog + self.file
    }

    fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead())
    }

    /// Returns the resident memory for each byte in use.
    fn fragmentation(&self) -> f64 {
        ratio(self.resident, self.used)
    }
}

/// Returns a ratio; 0 if the whole is 0.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A figure of STATS.
enum Stat {
    Int(i64),
    Ratio(f64),
    /// Size of a database's tables, including its expiry queue.
    Tables(usize),
}

fn stats(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let surveys = surveys(turn);
    let figures = MemoryFigures::gather(engine, &surveys, turn.now_ms());
    let rows = rows(&figures, &surveys);
    turn.reply.map(rows.len());
    for (name, stat) in rows {
        turn.reply.bulk(&*name);
        match stat {
            Stat::Int(value) => turn.reply.int(value),
            Stat::Ratio(value) => turn.reply.double(value),
            Stat::Tables(bytes) => {
                turn.reply.map(2);
                turn.reply.bulk("overhead.hashtable.main");
                turn.reply.count(bytes);
                turn.reply.bulk("overhead.hashtable.expires");
                turn.reply.int(0);
            }
        }
    }
    Ok(())
}

fn rows(figures: &MemoryFigures, surveys: &[Survey]) -> Vec<(Cow<'static, str>, Stat)> {
    let int = |name: &'static str, value: u64| (Cow::Borrowed(name), Stat::Int(value as i64));
    let exact = |name: &'static str, value: f64| (Cow::Borrowed(name), Stat::Ratio(value));
    let beyond = |name: &'static str| (Cow::Borrowed(name), Stat::Int(figures.resident as i64 - figures.used as i64));
    let mut rows = vec![
        int("peak.allocated", figures.peak),
        int("total.allocated", figures.used),
        int("startup.allocated", figures.start),
        int("replication.backlog", figures.backlog),
        int("clients.slaves", 0),
        int("clients.normal", figures.clients),
        int("cluster.links", 0),
        int("aof.buffer", figures.file),
        int("lua.caches", figures.scripts),
        int("functions.caches", figures.functions),
    ];
    let filled = surveys.iter().enumerate().filter(|(_, s)| s.keys > 0);
    rows.extend(filled.map(|(i, s)| (Cow::Owned(format!("db.{i}")), Stat::Tables(s.overhead_bytes))));
    let beside_start = figures.used.saturating_sub(figures.start);
    rows.extend([
        int("overhead.total", figures.overhead()),
        int("keys.count", figures.keys as u64),
        int("keys.bytes-per-key", beside_start.checked_div(figures.keys as u64).unwrap_or(0)),
        int("dataset.bytes", figures.dataset()),
        exact("dataset.percentage", ratio(figures.dataset() * 100, beside_start)),
        exact("peak.percentage", ratio(figures.used * 100, figures.peak)),
        int("allocator.allocated", figures.used),
        int("allocator.active", figures.resident),
        int("allocator.resident", figures.resident),
        exact("allocator-fragmentation.ratio", figures.fragmentation()),
        beyond("allocator-fragmentation.bytes"),
        exact("allocator-rss.ratio", 1.0),
        int("allocator-rss.bytes", 0),
        exact("rss-overhead.ratio", 1.0),
        int("rss-overhead.bytes", 0),
        exact("fragmentation", figures.fragmentation()),
        beyond("fragmentation.bytes"),
    ]);
    rows
}

fn doctor(turn: &mut Turn<'_, '_>) -> Outcome {
    let figures = MemoryFigures::gather(turn.engine(), &[], turn.now_ms());
    turn.reply.verbatim("txt", report(&figures, turn.engine().clients.len()));
    Ok(())
}

/// Returns the text of MEMORY DOCTOR.
fn report(figures: &MemoryFigures, clients: usize) -> String {
    /// Below this many bytes in use, ratios are meaningless.
    const LITTLE_BYTES: u64 = 5 * 1024 * 1024;
    /// Average buffer size of connections, in bytes, from which they are reported.
    const LARGE_BUFFERS_BYTES: u64 = 200 * 1024;
    if figures.used < LITTLE_BYTES {
        return "There is hardly any data, so there is nothing to say about the memory that it takes.\n".into();
    }
    let mut findings = Vec::new();
    if ratio(figures.peak, figures.used) > 1.5 {
        findings.push(
            "- Peak: in the past much more memory was in use than now. What the system still counts as resident may be \
             left over from then.",
        );
    }
    if figures.fragmentation() > 1.4 && figures.resident - figures.used > 2 * LITTLE_BYTES {
        findings.push(
            "- Fragmentation: the process takes far more of the machine's memory than is in use. It falls as keys are \
             written and removed; a restart removes it at once.",
        );
    }
    if figures.clients / (clients as u64).max(1) > LARGE_BUFFERS_BYTES {
        findings.push("- Buffers: connections have large requests or unread replies waiting. CLIENT LIST shows whose.");
    }
    match findings.is_empty() {
        true => "Nothing unusual about the memory in use.\n".into(),
        false => format!("Worth a look:\n\n{}\n", findings.join("\n")),
    }
}

fn malloc_stats(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let figures = MemoryFigures::gather(engine, &[], turn.now_ms());
    let Some(own) = engine.host.allocator_statistics() else {
        turn.reply.bulk("Stats not supported for the current allocator");
        return Ok(());
    };
    let MemoryFigures { used, peak, resident, .. } = figures;
    let text = format!(
        "Counted by the server: {used} bytes in use, {peak} at the most; the process holds {resident}, {:.2} for each in use.\n\n{own}",
        figures.fragmentation()
    );
    turn.reply.verbatim("txt", text);
    Ok(())
}

fn purge(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.ok();
    Ok(())
}

fn memory_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Attempt to purge dirty pages for reclamation by the allocator.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value. Nested values are",
        "    sampled up to <count> times (default: 5, 0 means sample all).",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, check, check_resp3};

    #[test]
    fn a_keys_usage_is_known() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let size = |bench: &mut Bench, session: &mut _, line: &str| -> usize {
            bench.line(session, line).trim_start_matches(':').parse().unwrap()
        };
        bench.check(
            &mut session,
            &[
                ("SET s 12345678901234567890abc", "+OK"),
                ("MEMORY USAGE nosuch", "$-1"),
                ("MEMORY USAGE s SAMPLES", "-ERR syntax error"),
                ("MEMORY USAGE s SAMPLES -1", "-ERR syntax error"),
                ("MEMORY USAGE s SAMPLES x", "-ERR value is not an integer or out of range"),
                ("MEMORY USAGE s COUNT 1", "-ERR syntax error"),
                ("DEBUG", "-ERR wrong number of arguments for 'debug' command"),
            ],
        );
        assert!((32..64).contains(&size(&mut bench, &mut session, "MEMORY USAGE s")));
        for i in 0..200 {
            bench.line(&mut session, &format!("RPUSH l {i:01000}"));
        }
        let list = size(&mut bench, &mut session, "MEMORY USAGE l SAMPLES 0");
        assert!((200_000..300_000).contains(&list), "{list}");
    }

    #[test]
    fn stats_has_the_documented_form() {
        check(&[("MEMORY PURGE", "+OK"), ("MEMORY MALLOC-STATS", "$45|Stats not supported for the current allocator")]);
        check_resp3(&[("SET k v", "+OK")]);
        let mut bench = Bench::default();
        let mut session = bench.open_with(resp::reply::Proto::Resp3);
        bench.line(&mut session, "SET k v");
        let reply = bench.line(&mut session, "MEMORY STATS");
        assert!(reply.starts_with("%28|$14|peak.allocated|:"), "{reply}");
        assert!(reply.contains("|$4|db.0|%2|$23|overhead.hashtable.main|:"), "{reply}");
        assert!(reply.contains("|$10|keys.count|:1|"), "{reply}");
    }

    #[test]
    fn scripts_and_libraries_count_as_in_info() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let sha = bench.line(&mut session, "SCRIPT LOAD return(1)");
        assert!(sha.starts_with("$40|"), "{sha}");
        let info = bench.line(&mut session, "INFO memory");
        let bytes = info.split("used_memory_scripts_eval:").nth(1).unwrap().split(['\\', '\r', '|']).next().unwrap();
        assert!(bytes.parse::<u64>().unwrap() > 0, "{info}");
        let stats = bench.line(&mut session, "MEMORY STATS");
        assert!(stats.contains(&format!("|$10|lua.caches|:{bytes}|")), "{bytes} {stats}");
    }

    #[test]
    fn the_doctor_reports_problems() {
        let megabytes = |n: u64| n << 20;
        let healthy = MemoryFigures {
            used: megabytes(100),
            peak: megabytes(110),
            start: 0,
            resident: megabytes(110),
            clients: 1000,
            tables: 0,
            scripts: 0,
            functions: 0,
            backlog: 0,
            file: 0,
            keys: 1,
        };
        assert!(report(&healthy, 1).contains("Nothing unusual"));
        assert!(report(&MemoryFigures { used: 1000, ..healthy }, 1).contains("hardly any"));
        let sick = MemoryFigures { used: megabytes(50), clients: megabytes(1), ..healthy };
        for word in ["Peak", "Fragmentation", "Buffers"] {
            assert!(report(&sick, 2).contains(word), "{word}");
        }
    }
}
