//! The requirements for each source of commands: tests of the table in `worker::requirements`, row by row.

use resp::splitargs::split_args;

use super::Replay;
use crate::clients::session::Session;
use crate::slow_path::{CUT_OFF, FEW_REPLICAS, LOADING, REPLICA, UNSAVED};
use crate::testing::{Bench, request};
use crate::worker::requirements::{BINDINGS, Binding, Requirement};
use config::{Loader, Settings};

/// The least value of `proto-max-bulk-len`.
const LEAST_BYTES: usize = 1 << 20;

/// Returns a bench with clients that don't meet a requirement, and one of them.
fn unmet(requirement: Requirement) -> (Bench, Session) {
    let settings = Settings::new();
    let set = |name: &str, value: &str| Loader::new(&settings).directive(&[name.into(), value.into()]).unwrap();
    match requirement {
        Requirement::Memory => set("maxmemory", "1"),
        Requirement::StringBytes => set("proto-max-bulk-len", &LEAST_BYTES.to_string()),
        _ => {}
    }
    let mut bench = Bench::with(settings);
    let mut session = bench.open();
    let slow_path = &bench.worker.engine.slow_path;
    match requirement {
        Requirement::Memory => bench.used_memory.store(2, std::sync::atomic::Ordering::Relaxed),
        Requirement::Disk => slow_path.set(UNSAVED, true),
        Requirement::Replicas => slow_path.set(FEW_REPLICAS, true),
        Requirement::Writable => slow_path.set(REPLICA, true),
        Requirement::Fresh => slow_path.set(CUT_OFF, true),
        Requirement::Loaded => slow_path.set(LOADING, true),
        Requirement::Permission => {
            assert_eq!(bench.line(&mut session, "ACL SETUSER default -@write"), "+OK");
        }
        Requirement::Running => assert_eq!(bench.line(&mut session, "CLIENT PAUSE 100000"), "+OK"),
        Requirement::Authentication => {
            assert_eq!(bench.line(&mut session, "CONFIG SET requirepass secret"), "+OK");
            session = bench.worker.open("127.0.0.1:1".into(), "127.0.0.1:6379".into(), 8, 0, false);
        }
        Requirement::StringBytes => {}
    }
    bench.now_us += 1_000_000;
    (bench, session)
}

/// Returns commands that a requirement refuses to a client, and the start of their errors. A client that has to wait
/// gets no reply.
fn refused(requirement: Requirement) -> (&'static [&'static str], &'static str) {
    const WRITES: &[&str] =
        &["SET k v", "EVAL 'return redis.call(\"set\", KEYS[1], \"v\")' 1 k", "EVAL \"#!lua\\nreturn 1\" 0"];
    match requirement {
        Requirement::Authentication => (WRITES, "-NOAUTH"),
        Requirement::Permission => (&["SET k v"], "-NOPERM"),
        Requirement::Memory => (&WRITES[..2], "-OOM"),
        Requirement::Disk => (WRITES, "-MISCONF"),
        Requirement::Replicas => (WRITES, "-NOREPLICAS"),
        Requirement::Writable => (WRITES, "-READONLY"),
        Requirement::Fresh => (WRITES, "-MASTERDOWN"),
        Requirement::Loaded => (WRITES, "-LOADING"),
        Requirement::Running => (WRITES, ""),
        Requirement::StringBytes => (
            &[
                "SETRANGE k 1048576 x",
                "SETBIT k 8388608 1",
                "BITFIELD k SET u8 8388608 1",
                "MULTI ; SETRANGE k 1048570 x ; APPEND k yyyyyyyyyy ; EXEC",
            ],
            "-ERR",
        ),
    }
}

/// Returns the requests of lines that are separated by `;`.
fn requests(lines: &str) -> Vec<u8> {
    lines.split(" ; ").flat_map(|line| request(&split_args(line.as_bytes()).unwrap())).collect()
}

fn from_client(requirement: Requirement, lines: &str) -> String {
    let (mut bench, mut session) = unmet(requirement);
    let (reply, _) = bench.run(&mut session, &requests(lines));
    let reply = String::from_utf8_lossy(&reply).into_owned();
    // The last error of a transaction counts.
    reply.rfind("\r\n-").map(|at| reply[at + 2..].to_owned()).unwrap_or(reply)
}

fn from_file(requirement: Requirement, lines: &str) -> Option<String> {
    let (mut bench, _) = unmet(requirement);
    let now_us = bench.now_us;
    let failed = Replay::begin(&mut bench.worker, now_us).commands(&requests(lines));
    failed.err().map(|(_, why)| why)
}

fn from_stream(requirement: Requirement, lines: &str) -> Option<String> {
    let (mut bench, _) = unmet(requirement);
    bench.worker.begin_turn(bench.now_us);
    let (commands, version) = (requests(lines), bench.worker.engine.replication.version());
    let applied = bench.worker.apply_stream(1, version, &commands, &[commands.len()]);
    applied.failure.or_else(|| (applied.taken < commands.len()).then(|| "not taken".to_owned()))
}

#[test]
fn requirements_bind_the_sources_that_the_table_names() {
    for &Binding { requirement, file, stream, .. } in BINDINGS {
        let (commands, error) = refused(requirement);
        for lines in commands {
            let reply = from_client(requirement, lines);
            let told = if error.is_empty() { reply.is_empty() } else { reply.starts_with(error) };
            assert!(told, "{requirement:?}: a client gives {lines:?}: {reply}");
            for (source, binds, refusal) in
                [("a file", file, from_file(requirement, lines)), ("a stream", stream, from_stream(requirement, lines))]
            {
                assert_eq!(refusal.is_some(), binds, "{requirement:?}: {source} has {lines:?}: {refusal:?}");
            }
        }
    }
}

#[test]
fn the_string_limit_binds_payloads_as_the_table_says() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    bench.check(&mut session, &[("SETRANGE k 2000000 x", ":2000001"), ("CONFIG SET rdbcompression yes", "+OK")]);
    let (payload, _) = bench.run(&mut session, &request(&["DUMP", "k"]));
    let start = payload.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let payload = &payload[start..payload.len() - 2];
    assert!(payload.len() < LEAST_BYTES, "compressed");
    let (mut bench, mut session) = unmet(Requirement::StringBytes);
    let (reply, _) = bench.run(&mut session, &request(&[&b"RESTORE"[..], b"k", b"0", payload]));
    let row = BINDINGS.iter().find(|binding| binding.requirement == Requirement::StringBytes).unwrap();
    assert_eq!(reply.starts_with(b"-"), row.payload, "{}", reply.escape_ascii());
}
