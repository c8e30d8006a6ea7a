//! INFO: the server's figures, as text in sections.
//!
//! The sections' names, their fields and their order are those of Redis 7.2, because many tools parse them. Fields
//! about missing features (snapshots by fork, modules, cluster mode) have the value of a server that doesn't use them.
//! Source: Redis's page of INFO, and the replies of a running server.

mod batches;
mod by_command;
mod persistence;
mod replies;
mod sections;
mod text;

pub(crate) use sections::clients_bytes;

use std::sync::Arc;

use commands::error::Outcome;
use commands::spec::flag::{LOADING, STALE};
use commands::spec::{Group, Scope, Spec, acl, fact};
use store::db::{Db, Survey};

use crate::clients::client::Client;
use crate::worker::turn::{Run, Turn};
use text::{InfoText, Microseconds, percent};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("info", -1, LOADING | STALE, Run::Session(info))
    .facts(fact::TELLS)
    .categories(acl::DANGEROUS)
    .scope(Scope::Each)
    .docs(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Answers figures about the server, all or those of some sections.",
        "[section [section ...]]",
    )
    .history(&[("7.0.0", "Several sections.")])
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])];

/// A section of INFO's text.
struct InfoSection {
    /// The name in requests, in lower case.
    name: &'static str,
    /// The name in its header.
    title: &'static str,
    /// True if it is shown without arguments.
    by_default: bool,
    write: fn(&mut Gathered<'_, '_, '_>, &mut InfoText),
}

/// The section that is shown only by name.
const DEBUG: &str = "debug";

/// All sections, in order.
const SECTIONS: &[InfoSection] = &[
    InfoSection { name: "server", title: "Server", by_default: true, write: sections::server },
    InfoSection { name: "tls", title: "TLS", by_default: true, write: sections::tls },
    InfoSection { name: "clients", title: "Clients", by_default: true, write: sections::clients },
    InfoSection { name: "replies", title: "Replies", by_default: true, write: replies::replies },
    InfoSection { name: "advisor", title: "Advisor", by_default: true, write: sections::advisor },
    InfoSection { name: "memory", title: "Memory", by_default: true, write: sections::memory },
    InfoSection { name: "persistence", title: "Persistence", by_default: true, write: sections::persistence },
    InfoSection { name: "stats", title: "Stats", by_default: true, write: sections::stats },
    InfoSection { name: "replication", title: "Replication", by_default: true, write: sections::replication },
    InfoSection { name: "cpu", title: "CPU", by_default: true, write: sections::cpu },
    InfoSection { name: "batches", title: "Batches", by_default: true, write: batches::batches },
    InfoSection { name: "hotkeys", title: "Hotkeys", by_default: true, write: sections::hot_keys },
    InfoSection { name: "modules", title: "Modules", by_default: true, write: |_, _| {} },
    InfoSection { name: "commandstats", title: "Commandstats", by_default: false, write: by_command::calls },
    InfoSection { name: "errorstats", title: "Errorstats", by_default: true, write: by_command::errors },
    InfoSection { name: "latencystats", title: "Latencystats", by_default: false, write: by_command::latencies },
    InfoSection { name: "cluster", title: "Cluster", by_default: true, write: sections::cluster },
    InfoSection {
        name: "scriptingengines",
        title: "Scripting Engines",
        by_default: false,
        write: sections::script_engines,
    },
    InfoSection { name: "keyspace", title: "Keyspace", by_default: true, write: sections::keyspace },
    InfoSection { name: DEBUG, title: "Debug", by_default: false, write: sections::debug },
];

/// The data that the sections are written from.
struct Gathered<'g, 't, 'k> {
    turn: &'g mut Turn<'t, 'k>,
    /// Figures of every database, gathered for the first section that needs them.
    surveys: Option<Vec<Survey>>,
    /// All connections, likewise.
    clients: Option<Vec<Arc<Client>>>,
}

impl Gathered<'_, '_, '_> {
    /// Returns the figures of every database.
    fn surveys(&mut self) -> &[Survey] {
        let turn = &mut *self.turn;
        self.surveys.get_or_insert_with(|| surveys(turn))
    }

    /// Returns all connections.
    fn clients(&mut self) -> &[Arc<Client>] {
        let engine = self.turn.engine();
        self.clients.get_or_insert_with(|| engine.clients.all())
    }
}

/// Returns the figures of every database.
pub(crate) fn surveys(turn: &mut Turn<'_, '_>) -> Vec<Survey> {
    let clock = *turn.worker.clock;
    let databases = turn.engine().keyspace.databases();
    let survey = |database| Db::new(turn.locked, database, &clock, &mut turn.worker.observed).survey();
    (0..databases).map(survey).collect()
}

/// A bit for each section, by its index in [`SECTIONS`].
type SectionBits = u32;

const _: () = assert!(SECTIONS.len() <= SectionBits::BITS as usize);

/// Returns the sections that `wanted` selects.
fn sections(wanted: impl Fn(&InfoSection) -> bool) -> SectionBits {
    SECTIONS.iter().enumerate().fold(0, |bits, (index, section)| bits | SectionBits::from(wanted(section)) << index)
}

/// Returns the sections that an argument names.
fn named(arg: &[u8]) -> SectionBits {
    match &*arg.to_ascii_lowercase() {
        b"all" | b"everything" => sections(|section| section.name != DEBUG),
        b"default" => sections(|section| section.by_default),
        name => sections(|section| section.name.as_bytes() == name),
    }
}

fn info(turn: &mut Turn<'_, '_>) -> Outcome {
    let asked = if turn.is_empty() {
        sections(|section| section.by_default)
    } else {
        turn.args.from(1).fold(0, |bits, arg| bits | named(arg))
    };
    let mut gathered = Gathered { turn, surveys: None, clients: None };
    let mut text = InfoText::new();
    for (_, section) in SECTIONS.iter().enumerate().filter(|(index, _)| asked >> index & 1 != 0) {
        text.begin_section(section.title);
        (section.write)(&mut gathered, &mut text);
    }
    turn.reply.verbatim("txt", text.into_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use crate::machine::Machine;
    use crate::replies::NoRoom;
    use crate::testing::Bench;

    /// Returns the titles of the sections in a command's reply.
    fn titles(bench: &mut Bench, command: &str) -> String {
        let mut session = bench.open();
        let reply = bench.line(&mut session, command);
        reply.split('|').filter_map(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sections_come_once_and_in_order() {
        let mut bench = Bench::default();
        let all = "Server TLS Clients Replies Advisor Memory Persistence Stats Replication CPU Batches Hotkeys Modules \
                   Commandstats Errorstats Latencystats Cluster Scripting Engines Keyspace";
        let default = all.replace("Commandstats ", "").replace("Latencystats ", "").replace("Scripting Engines ", "");
        for (command, expected) in [
            ("INFO", &*default),
            ("INFO default nosuch", &*default),
            ("INFO all", all),
            ("info EVERYTHING server", all),
            ("INFO keyspace Server SERVER", "Server Keyspace"),
            ("INFO nosuch", ""),
        ] {
            assert_eq!(titles(&mut bench, command), expected, "{command}");
        }
    }

    #[test]
    fn info_is_verbatim_text_in_resp3() {
        crate::testing::check(&[
            ("INFO cluster", "$30|# Cluster|cluster_enabled:0|"),
            ("INFO cluster modules", "$43|# Modules||# Cluster|cluster_enabled:0|"),
            ("INFO nosuch", "$0|"),
        ]);
        crate::testing::check_resp3(&[("INFO modules", "=15|txt:# Modules|")]);
    }

    /// A host in a control group of 256 MB.
    struct Contained;

    impl config::ConfigHost for Contained {
        fn apply(&self, _: config::Apply, _: &config::Settings) -> Result<(), String> {
            Ok(())
        }
    }

    impl crate::host::Host for Contained {
        fn shut_down(&self, _: crate::host::Shutdown) {}

        fn machine(&self) -> Machine {
            Machine { memory_limit_bytes: Some(256 << 20), ..Machine::default() }
        }
    }

    #[test]
    fn the_limit_of_the_control_group_suggests_a_maxmemory() {
        let shown = |mut bench: Bench| {
            let mut session = bench.open();
            let reply = bench.line(&mut session, "INFO memory");
            let field =
                |name: &str| reply.split('|').find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
            ["cgroup_memory_limit:", "maxmemory_suggested:", "maxmemory_suggested_human:"].map(field)
        };
        assert_eq!(shown(Bench::default()), ["0", "0", "0B"]);
        let contained = Bench::with_host(config::Settings::new(), 1, Box::new(Contained), 0, 1);
        assert_eq!(shown(contained), ["268435456", "201326592", "192.00M"]);
    }

    #[test]
    fn gauges_survive_a_reset_of_the_counters() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let figures = &bench.worker.engine.replies;
        for figure in
            [&figures.waiting, &figures.memory, &figures.holds, &figures.stall_closes[NoRoom::SpillLimit as usize]]
        {
            figure.add(512);
        }
        let shown = |bench: &mut Bench, session: &mut _| {
            let reply = bench.line(session, "INFO replies");
            let wanted = ["reply_waiting_clients", "reply_memory_human", "reply_memory_share", "reply_holds"];
            let wanted = wanted.iter().chain(&["reply_stall_closes_spill_limit"]);
            let value = |name: &&str| reply.split('|').find_map(|line| line.strip_prefix(&format!("{name}:")));
            wanted.map(|name| value(name).unwrap_or_default().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&mut bench, &mut session), "512 512B 524288 512 512");
        bench.check(&mut session, &[("CONFIG RESETSTAT", "+OK")]);
        assert_eq!(shown(&mut bench, &mut session), "512 512B 524288 0 0");
    }

    #[test]
    fn awaited_keys_are_counted() {
        let mut bench = Bench::default();
        let (mut popping, mut reading, mut asking) = (bench.open(), bench.open(), bench.open());
        for line in ["XGROUP CREATE s g $ MKSTREAM", "XGROUP CREATE t g $ MKSTREAM"] {
            assert_eq!(bench.line(&mut asking, line), "+OK");
        }
        bench.line(&mut popping, "BLPOP l 0");
        bench.line(&mut reading, "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >");
        let info = bench.line(&mut asking, "INFO clients");
        assert!(info.contains("|total_blocking_keys:3|total_blocking_keys_on_nokey:2|"), "{info}");
    }

    #[test]
    fn spop_is_a_hit_only_where_redis_reads_the_set_for_it() {
        for (line, hits) in [("SPOP s", "0"), ("SPOP s 2", "0"), ("SPOP s 3", "1"), ("SPOP s 9", "1")] {
            let mut bench = Bench::default();
            let mut session = bench.open();
            bench.check(&mut session, &[("SADD s a b c", ":3")]);
            bench.line(&mut session, line);
            let info = bench.line(&mut session, "INFO stats");
            assert!(info.contains(&format!("|keyspace_hits:{hits}|")), "{line}");
        }
    }

    #[test]
    fn figures_are_correct_and_can_be_reset() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let mut field = |bench: &mut Bench, name: &str| {
            let reply = bench.line(&mut session, "INFO everything");
            let value = reply.split('|').find_map(|line| line.strip_prefix(&format!("{name}:")));
            value.map(str::to_owned)
        };
        let mut other = bench.open();
        let script = ["SET k v", "PEXPIRE k 5000", "GET k", "GET none", "GET", "LPUSH k x", "SET k2 v", "NOSUCH"];
        script.iter().for_each(|line| drop(bench.line(&mut other, line)));
        for (name, value) in [
            ("connected_clients", "2"),
            ("keyspace_hits", "1"),
            ("keyspace_misses", "1"),
            ("total_error_replies", "3"),
            ("errorstat_ERR", "count=2"),
            ("errorstat_WRONGTYPE", "count=1"),
            ("db0", "keys=2,expires=1,avg_ttl=5000,subexpiry=0"),
            ("rdb_changes_since_last_save", "3"),
            ("total_connections_received", "2"),
        ] {
            assert_eq!(field(&mut bench, name).as_deref(), Some(value), "{name}");
        }
        let get = field(&mut bench, "cmdstat_get").unwrap();
        assert!(get.starts_with("calls=2,usec=") && get.ends_with("rejected_calls=1,failed_calls=0"), "{get}");
        assert!(field(&mut bench, "cmdstat_lpush").unwrap().ends_with("failed_calls=1"));
        assert_eq!(bench.line(&mut other, "CONFIG RESETSTAT"), "+OK");
        for (name, value) in
            [("keyspace_hits", "0"), ("total_error_replies", "0"), ("rdb_changes_since_last_save", "3")]
        {
            assert_eq!(field(&mut bench, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(field(&mut bench, "cmdstat_get"), None);
    }

    #[test]
    fn turns_of_the_loop_and_their_time_are_counted() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let shown = |bench: &mut Bench, session: &mut _| {
            let names = ["eventloop_cycles", "eventloop_duration_sum", "eventloop_duration_cmd_sum"];
            let names = names.iter().chain(&["instantaneous_eventloop_cycles_per_sec"]);
            let names = names.chain(&["instantaneous_eventloop_duration_usec"]);
            let reply = bench.line(session, "INFO stats");
            let value = |name: &&str| reply.split('|').find_map(|line| line.strip_prefix(&format!("{name}:")));
            names.map(|name| value(name).and_then(|value| value.parse().ok()).unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(shown(&mut bench, &mut session)[..2], [0, 0]);
        // The time of INFO belongs to the turn, too.
        bench.worker.end_turn();
        bench.line(&mut session, "EVAL 'for i = 1, 100000 do redis.call(\"PING\") end' 0");
        bench.worker.end_turn();
        let after = shown(&mut bench, &mut session);
        assert!(after[0] == 2 && after[1] >= after[2] && after[2] > 0, "{after:?}");
        bench.line(&mut session, "CONFIG RESETSTAT");
        assert_eq!(shown(&mut bench, &mut session)[..2], [0, 0]);
    }

    #[test]
    fn background_work_is_counted_since_a_reset() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        let (compaction, reaper) = (&engine.compaction, engine.keyspace.reaper());
        for count in [&compaction.moved, &compaction.stayed, &compaction.spent_us] {
            count.store(5000, Ordering::Relaxed);
        }
        bench.line(&mut session, &format!("RPUSH l {}", "x".repeat(100_000)));
        bench.check(&mut session, &[("UNLINK l", ":1")]);
        while reaper.freed() == 0 {
            std::thread::yield_now();
        }
        // More scripts than the cache keeps without SCRIPT LOAD.
        for i in 0..1000 {
            bench.line(&mut session, &format!("EVAL return({i}) 0"));
        }
        let mut shown = |bench: &mut Bench| {
            let names = ["active_defrag_hits", "active_defrag_misses", "total_active_defrag_time"];
            let names = names.iter().chain(&["lazyfreed_objects", "evicted_scripts"]);
            let reply = bench.line(&mut session, "INFO everything");
            let value = |name: &&str| reply.split('|').find_map(|line| line.strip_prefix(&format!("{name}:")));
            let shown = names.map(|name| value(name).unwrap_or_default().to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(bench.line(&mut session, "CONFIG RESETSTAT"), "+OK");
            shown
        };
        assert_eq!(shown(&mut bench), "5000 5000 5 1 500");
        assert_eq!(shown(&mut bench), "0 0 0 0 0");
    }

    #[test]
    fn info_shows_the_remaining_time_of_pauses() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let mut paused = |bench: &mut Bench| {
            let reply = bench.line(&mut session, "info clients");
            let lines: Vec<_> = reply.split('|').filter_map(|line| line.strip_prefix("paused_")).collect();
            lines.join(" ")
        };
        assert_eq!(paused(&mut bench), "reason:none actions:none timeout_milliseconds:0");
        let mut other = bench.open();
        bench.line(&mut other, "client pause 500 write");
        bench.now_us += 100_000;
        let shown = paused(&mut bench);
        let (what, left_ms) = shown.rsplit_once(':').unwrap();
        assert_eq!(what, "reason:client_pause actions:write timeout_milliseconds");
        // A started millisecond counts completely.
        assert!(["400", "401"].contains(&left_ms), "{shown}");
        bench.now_us += 500_000;
        assert_eq!(paused(&mut bench), "reason:none actions:none timeout_milliseconds:0");
    }

    #[test]
    fn searched_keys_are_counted_separately() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for line in ["set met 1 px 10", "set found 1 px 10", "hset h f 1 g 2", "hpexpire h 10 fields 1 f"] {
            bench.line(&mut session, line);
        }
        bench.now_us += 20_000;
        bench.line(&mut session, "get met");
        bench.worker.look_for_expired(std::time::Duration::from_millis(100));
        let reply = bench.line(&mut session, "info stats");
        for line in ["expired_keys:2", "expired_keys_active:1", "expired_subkeys:1", "expired_subkeys_active:1"] {
            assert!(reply.split('|').any(|found| found == line), "{line} {reply}");
        }
    }
}
