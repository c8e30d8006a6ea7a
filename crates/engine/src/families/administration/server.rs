//! The server as a whole: TIME, ROLE, LOLWUT, SHUTDOWN and SWAPDB.
//!
//! Source of the semantics: Redis's command pages of the group "server".

use std::cell::RefCell;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, ALLOW_BUSY, FAST, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE, WRITE};
use commands::spec::{Group, Scope, Spec, acl, fact};
use resp::num;
use resp::request::Args;
use store::db::Db;
use store::keyspace::Key;

use crate::clients::blocking::Awaited;
use crate::host::Shutdown;
use crate::machine::version::REDIS_VERSION;
use crate::services::saving;
use crate::state::{SHUTDOWN_FAILED, UNSAFE_SHUTDOWN};
use crate::worker::turn::{Run, Turn};
use config::LogLevel;

/// Default and maximum columns and rows of LOLWUT's picture: Redis's limits.
const PICTURE: (i64, i64) = (66, 8);
const PICTURE_MAX: (i64, i64) = (1000, 200);
/// Bytes of a wall, ╱ or ╲, in UTF-8. The last bit tells which it is.
const WALL_BYTES: usize = 3;
const WALL: [u8; WALL_BYTES] = *b"\xE2\x95\xB1";
const LAST_BYTES: [u8; 2] = [0xB1, 0xB2];
/// Walls that are drawn at once: those of a byte of random bits.
const GROUP: usize = 8;
/// The group of each byte, the lowest bit first.
static GROUPS: [[u8; GROUP * WALL_BYTES]; 256] = groups();
/// Room for the ends of lines and the text below the picture, in bytes.
const PICTURE_TEXT_BYTES: usize = 256;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("lolwut", -1, READONLY | FAST, Run::Session(lolwut)).brief().docs(
        Group::Server,
        "5.0.0",
        "O(N), where N is the size of the picture",
        "Draws a picture, and returns the version of Redis that the server implements.",
        "[VERSION version:integer] [columns:integer [rows:integer]]",
    ),
    Spec::new("shutdown", -1, ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY, Run::Session(shutdown))
        .scope(Scope::ByArgs(scope_of_shutdown))
        .docs(
            Group::Server,
            "1.0.0",
            "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
            "Saves a snapshot if there are save points, and ends the server.",
            "[NOSAVE | SAVE]:save-selector [NOW@7.0.0] [FORCE@7.0.0] [SAFE@9.0.0] [FAILOVER@9.0.0] [ABORT@7.0.0]",
        )
        .history(&[("7.0.0", "`NOW`, `FORCE` and `ABORT`."), ("9.0.0", "`SAFE` and `FAILOVER`, in Valkey.")]),
    Spec::new("swapdb", 3, WRITE | FAST, Run::Session(swapdb))
        .scope(Scope::Whole)
        .databases(|_, visit| (1..3).for_each(visit))
        .categories(acl::KEYSPACE | acl::DANGEROUS)
        .docs(
            Group::Server,
            "4.0.0",
            "O(N) where N is the count of clients watching or blocking on keys from both databases.",
            "Exchanges two databases.",
            "index1:integer index2:integer",
        ),
    Spec::new("time", 1, LOADING | STALE | FAST, Run::Session(time))
        .facts(fact::TELLS)
        .brief()
        .docs(Group::Server, "2.6.0", "O(1)", "Answers the time in seconds and microseconds of Unix time.", "")
        .tips(&["nondeterministic_output"]),
];

fn time(turn: &mut Turn<'_, '_>) -> Outcome {
    let now_us = turn.worker.clock.look(turn.session.in_exec);
    turn.reply.array(2);
    turn.reply.bulk_int((now_us / 1_000_000) as i64);
    turn.reply.bulk_int((now_us % 1_000_000) as i64);
    Ok(())
}

/// Draws all groups.
const fn groups() -> [[u8; GROUP * WALL_BYTES]; 256] {
    let mut groups = [[0; GROUP * WALL_BYTES]; 256];
    let mut at = 0;
    while at < 256 * GROUP {
        let (byte, bit) = (at / GROUP, at % GROUP);
        let wall = &mut groups[byte];
        (wall[bit * WALL_BYTES], wall[bit * WALL_BYTES + 1]) = (WALL[0], WALL[1]);
        wall[bit * WALL_BYTES + 2] = LAST_BYTES[byte >> bit & 1];
        at += 1;
    }
    groups
}

/// Draws a maze with this number of columns and rows, from one random bit for each place.
fn lolwut(turn: &mut Turn<'_, '_>) -> Outcome {
    let mut numbers = if turn.len() > 2 && turn.is(1, "VERSION") {
        turn.int(2)?;
        turn.args.from(3)
    } else {
        turn.args.from(1)
    };
    // As in Redis, an invalid number is ignored.
    let mut number = |default: i64, max: i64| numbers.next().and_then(num::parse_i64).unwrap_or(default).clamp(1, max);
    let (columns, rows) = (number(PICTURE.0, PICTURE_MAX.0), number(PICTURE.1, PICTURE_MAX.1));
    let mut picture = Vec::with_capacity(rows as usize * (columns as usize * WALL_BYTES + 1) + PICTURE_TEXT_BYTES);
    for _ in 0..rows {
        let end = picture.len() + columns as usize * WALL_BYTES;
        while picture.len() < end {
            // A random number is enough for eight groups.
            for byte in turn.worker.random.next().to_le_bytes() {
                if picture.len() < end {
                    picture.extend_from_slice(&GROUPS[usize::from(byte)]);
                }
            }
        }
        picture.truncate(end);
        picture.push(b'\n');
    }
    let text = ["\nA way through for every command. Redis ver. ", REDIS_VERSION, "\n"];
    text.iter().for_each(|part| picture.extend_from_slice(part.as_bytes()));
    turn.reply.verbatim("txt", picture);
    Ok(())
}

/// Runs alone, if it may save.
fn scope_of_shutdown(args: Args<'_>) -> Scope {
    let saves_not = args.from(1).any(|arg| arg.eq_ignore_ascii_case(b"NOSAVE") || arg.eq_ignore_ascii_case(b"ABORT"));
    if saves_not { Scope::Keys } else { Scope::Whole }
}

fn shutdown(turn: &mut Turn<'_, '_>) -> Outcome {
    let given = |word: &str| turn.args.from(1).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let [nosave, save, now, force, abort] = ["NOSAVE", "SAVE", "NOW", "FORCE", "ABORT"].map(given);
    // They concern a node of a cluster.
    let [safe, failover] = ["SAFE", "FAILOVER"].map(given);
    let known = [nosave, save, now, force, abort, safe, failover].iter().filter(|&&given| given).count();
    if known < turn.len() - 1 || (nosave && save) || (abort && turn.len() > 2) {
        return Err(Error::SYNTAX);
    }
    if failover && !turn.engine().slots.are_on() {
        return Err(Error::fixed("ERR SHUTDOWN FAILOVER is only supported in cluster mode."));
    }
    if abort {
        if !turn.engine().host.abort_shut_down() {
            return Err(Error::new("ERR No shutdown in progress."));
        }
        turn.reply.ok();
        return Ok(());
    }
    if !now && turn.engine().is_shutting_down() {
        turn.session.awaited = Some(Awaited::Shutdown);
        return Ok(());
    }
    if !force {
        check_append_only_file(turn)?;
    }
    if safe && !force && turn.engine().slots.are_mine() {
        turn.engine().host.log(LogLevel::Warning, UNSAFE_SHUTDOWN);
        return Err(Error::new("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    let saves = save || (!nosave && !turn.engine().settings.save.is_empty());
    if turn.locked.holds_all() {
        let mut saved = saving::save_last(turn.engine(), turn.locked, &turn.worker.clock, saves);
        if saved.is_err() && force {
            saved = saving::save_last(turn.engine(), turn.locked, &turn.worker.clock, false);
        }
        if saved.is_err() {
            return Err(Error::fixed(SHUTDOWN_FAILED));
        }
    }
    end(turn, Shutdown { at_once: now, fails_over: failover });
    Ok(())
}

/// Fails if the end of the server would lose acknowledged writes.
fn check_append_only_file(turn: &Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let why = match engine.durability.disk_error() {
        Some(error) => format!("Can't write the append-only file, can't exit: {error}"),
        None if engine.lacks_first_base() => "Writing initial AOF, can't exit".into(),
        None => return Ok(()),
    };
    engine.host.log(LogLevel::Warning, &why);
    Err(Error::fixed(SHUTDOWN_FAILED))
}

/// Ends the server. As in Redis, the client gets no reply except the end of its connection. If replicas may delay the end, the client waits
/// and gets an error after SHUTDOWN ABORT.
fn end(turn: &mut Turn<'_, '_>, shutdown: Shutdown) {
    let engine = turn.engine();
    let has_replicas = engine.replication.stream.is_own() && !engine.replication.replicas.all().is_empty();
    if has_replicas && !shutdown.at_once {
        turn.session.awaited = Some(Awaited::Shutdown);
    } else {
        turn.session.closing = true;
    }
    engine.begin_shutdown(turn.now_ms());
    engine.host.shut_down(shutdown);
}

fn swapdb(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.engine().slots.are_on() {
        return Err(Error::fixed("ERR SWAPDB is not allowed in cluster mode"));
    }
    let index = |arg: usize, which: &'static str| {
        let index = turn.int(arg).ok().filter(|&i| i32::try_from(i).is_ok());
        index.ok_or(Error::new(format!("ERR invalid {which} DB index")))
    };
    let (a, b) = (index(1, "first")?, index(2, "second")?);
    let databases = turn.engine().keyspace.databases();
    let existing = |i: i64| usize::try_from(i).ok().filter(|&i| i < databases).ok_or(Error::DB_OUT_OF_RANGE);
    let (a, b) = (existing(a)?, existing(b)?);
    if a != b {
        swap(turn, a, b);
    }
    turn.worker.effects.count(1);
    turn.reply.ok();
    Ok(())
}

fn swap(turn: &mut Turn<'_, '_>, a: usize, b: usize) {
    let engine = turn.engine();
    let clock = *turn.worker.clock;
    {
        // A key that is missing in both databases has not changed for its watchers.
        let db = RefCell::new(Db::new(turn.locked, a, &clock, &mut turn.worker.observed));
        let exists = |key: &[u8]| {
            let mut db = db.borrow_mut();
            [a, b].into_iter().any(|i| db.other(i).peek(Key::new(key)).is_some())
        };
        engine.watchers.touch_where(|database, key| (database == a || database == b) && exists(key));
    }
    turn.locked.swap(a, b);
    // The other database may have brought the keys that waiters need.
    turn.worker.ready.extend(engine.waiters.keys(a).into_iter().chain(engine.waiters.keys(b)));
}

#[cfg(test)]
mod tests {
    use resp::reply::Output;

    use crate::clients::progress::Progress;
    use crate::inbox::Message;
    use crate::testing::{Bench, check, check_resp3, request};

    #[test]
    fn simple_commands_reply() {
        check(&[
            ("ROLE", "*3|$6|master|:0|*0"),
            ("LASTSAVE", ":1700000000"),
            ("TIME x", "-ERR wrong number of arguments for 'time' command"),
            ("LOLWUT VERSION x", "-ERR value is not an integer or out of range"),
        ]);
        let mut bench = Bench::default();
        let mut session = bench.open();
        assert!(bench.line(&mut session, "TIME").starts_with("*2|$10|1700000000|$"));
        let picture = bench.line(&mut session, "LOLWUT VERSION 5 7 3");
        assert_eq!(picture.lines().take(3).map(|l| l.replace(['╱', '╲'], "")).collect::<String>(), "$117|");
        assert!(picture.ends_with("Redis ver. 7.4.0\n"), "{picture}");
        // Columns on both sides of a group of walls, and of a random number's.
        for columns in [7, 8, 9, 63, 64, 65, 66, 200] {
            let picture = bench.line(&mut session, &format!("LOLWUT {columns} 2"));
            let walls = |line: &str| line.chars().filter(|place| ['╱', '╲'].contains(place)).count();
            assert_eq!(picture.lines().take(3).map(walls).collect::<Vec<_>>(), [columns, columns, 0]);
        }
        check_resp3(&[("LOLWUT 0 0 1 2 3", "=59|txt:╱\n\nA way through for every command. Redis ver. 7.4.0\n")]);
    }

    #[test]
    fn shutdown_checks_its_words() {
        check(&[
            ("SHUTDOWN nosuch", "-ERR syntax error"),
            ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
            ("SHUTDOWN NOW ABORT", "-ERR syntax error"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("SHUTDOWN FAILOVER", "-ERR SHUTDOWN FAILOVER is only supported in cluster mode."),
            ("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs."),
        ]);
        let mut bench = Bench::default();
        let mut session = bench.open();
        assert_eq!(bench.run(&mut session, &request(&["SHUTDOWN", "nosave", "NOW"])), (vec![], Progress::Closing));
        // A second SHUTDOWN of the same server would wait for the end.
        let mut bench = Bench::default();
        let mut session = bench.open();
        let cluster_words = request(&["SHUTDOWN", "safe", "nosave"]);
        assert_eq!(bench.run(&mut session, &cluster_words), (vec![], Progress::Closing));
    }

    #[test]
    fn swapdb_exchanges_databases() {
        check(&[
            ("SET k zero", "+OK"),
            ("SWAPDB 0 1", "+OK"),
            ("GET k", "$-1"),
            ("SELECT 1", "+OK"),
            ("GET k", "$4|zero"),
            ("SWAPDB 1 1", "+OK"),
            ("SWAPDB a 1", "-ERR invalid first DB index"),
            ("SWAPDB 0 99999999999", "-ERR invalid second DB index"),
            ("SWAPDB 0 -1", "-ERR DB index is out of range"),
            ("SWAPDB 0 16", "-ERR DB index is out of range"),
        ]);
    }

    #[test]
    fn swapdb_is_a_change_for_watchers_and_waiters() {
        let mut bench = Bench::default();
        let (mut watcher, mut waiter, mut other) = (bench.open(), bench.open(), bench.open());
        for (key, executes) in [("in0", "*-1"), ("in1", "*-1"), ("none", "*0")] {
            bench.check(&mut other, &[("SET in0 x", "+OK"), ("SELECT 1", "+OK"), ("SET in1 x", "+OK")]);
            bench.check(&mut watcher, &[(&format!("WATCH {key}"), "+OK"), ("MULTI", "+OK")]);
            bench.check(&mut other, &[("SWAPDB 0 1", "+OK")]);
            bench.check(&mut watcher, &[("EXEC", executes)]);
            bench.check(&mut other, &[("FLUSHALL", "+OK"), ("SELECT 0", "+OK")]);
        }
        assert_eq!(bench.run(&mut waiter, &request(&["BLPOP", "l", "0"])).1, Progress::Parked);
        bench.check(&mut other, &[("SELECT 1", "+OK"), ("RPUSH l a", ":1"), ("SWAPDB 0 1", "+OK")]);
        let message = bench.worker.engine.inboxes[0].take().pop_front();
        let Some(Message::Unpark { client, output, .. }) = message else { panic!("no waiter was served: {message:?}") };
        assert_eq!(client, waiter.client.id);
        let text = |output: &Output| output.slices().collect::<Vec<_>>().concat();
        assert_eq!(text(&output), b"*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    }
}
