//! DEBUG: the subcommands that clients' test suites use. Off unless enable-debug-command allows it.
//!
//! Source of the semantics: DEBUG HELP of a running server.

mod bus;
mod digest;
mod forms;
mod object;
mod reload;
mod switches;

use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::error::{Error, Outcome, SHOWN_BYTES, shown};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec};
use resp::num;
use resp::request::Args;
use store::db::{Db, Ttl};
use store::keyspace::Key;

use crate::families::help::help;
use crate::scripts::cache::digest_of_text;
use crate::services::users::lines_for_config;
use crate::worker::turn::{Run, Turn};
use config::{Access, LogLevel, rewrite_whole};

/// Maximum of SLEEP: longer than any test waits, and far below an overflow of the clock.
const SLEEP_MAX: Duration = Duration::from_secs(1_000_000);

/// Floating point reply of PROTOCOL.
#[expect(clippy::approx_constant, reason = "it is Redis's figure, not pi")]
const DOUBLE: f64 = 3.141;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("debug", -2, ADMIN | NOSCRIPT | LOADING | STALE, Run::Session(debug))
    .system()
    .scope(Scope::ByArgs(scope))
    .docs(
        Group::Server,
        "1.0.0",
        "Depends on subcommand.",
        "Functions for tests.",
        "subcommand [argument [argument ...]]",
    )];

/// Subcommands that read keys run alone, and so does SLEEP, which stops the whole server rather than one thread.
fn scope(args: Args<'_>) -> Scope {
    let is = |word: &str| args.len() > 1 && args.get(1).eq_ignore_ascii_case(word.as_bytes());
    let whole = [
        "DIGEST",
        "DIGEST-VALUE",
        "HTSTATS",
        "HTSTATS-KEY",
        "LISTPACK",
        "LOADAOF",
        "OBJECT",
        "POPULATE",
        "QUICKLIST",
        "CHANGE-REPL-ID",
        "RELOAD",
        "RESTART",
        "SDSLEN",
        "SLEEP",
    ];
    if whole.into_iter().any(is) { Scope::Whole } else { Scope::Keys }
}

fn debug(turn: &mut Turn<'_, '_>) -> Outcome {
    let allowed = match turn.engine().settings.enable_debug_command.get() {
        Access::Yes => true,
        Access::Local => turn.session.client.is_local(),
        Access::No => false,
    };
    // The file has this command, and so has the stream of an older primary. It was allowed where it ran first.
    let is_replayed = turn.worker.clock.replays && turn.is(1, "POPULATE");
    if !allowed && !is_replayed {
        return Err(Error::new(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from \
             a local connection, otherwise you need to set this option in the configuration file, and then restart the \
             server.",
        ));
    }
    let subcommand = turn.arg(1).to_ascii_uppercase();
    match (&*subcommand, turn.len()) {
        (b"ASSERT" | b"OOM" | b"PANIC" | b"SEGFAULT", 2) => switches::crash(turn),
        (b"CHANGE-REPL-ID", 2) => change_history(turn),
        (
            b"CLIENT-ENFORCE-REPLY-LIST" | b"DICT-RESIZING" | b"HASHTABLE-CAN-ABORT-SHRINK" | b"REPLY-COPY-AVOIDANCE",
            3,
        ) => switches::nothing(turn),
        (b"CLOSE-CLUSTER-LINK-ON-PACKET-DROP", 3) => bus::close_on_drop(turn),
        (b"CLUSTERLINK", 5) if turn.is(2, "KILL") => bus::kill_link(turn),
        (b"CONFIG-REWRITE-FORCE-ALL", 2) => rewrite_all(turn),
        (b"CRASH-AND-RECOVER", 2..=3) => reload::restart(turn, false),
        (b"DIGEST", 2) => digest::digest(turn),
        (b"DIGEST-VALUE", 3..) => digest::digest_value(turn),
        (b"DISABLE-CLUSTER-RANDOM-PING", 3) => bus::no_random_ping(turn),
        (b"DISABLE-CLUSTER-RECONNECTION", 3) => bus::no_reconnection(turn),
        (b"DROP-CLUSTER-PACKET-FILTER", 3) => bus::drop_kind(turn),
        (b"ERROR", 3) => error(turn),
        (b"HELP", 2) => debug_help(turn),
        (b"HTSTATS", 3..=4) => forms::table(turn),
        (b"HTSTATS-KEY", 3..=4) => forms::table_of_key(turn),
        (b"LEAK", 3) => switches::leak(turn),
        (b"LISTPACK", 3) => forms::packed(turn),
        (b"LOADAOF", 2) => reload::load_append_only_file(turn),
        (b"LOG", 3) => log(turn),
        (b"OBJECT", 3..) => object::object(turn),
        (b"PAUSE-CRON", 3) => pause_cron(turn),
        (b"POPULATE", 3..=5) => populate(turn),
        (b"PROTOCOL", 3) => protocol(turn),
        (b"QUICKLIST", 3..=4) => forms::quicklist(turn),
        (b"QUICKLIST-PACKED-THRESHOLD", 3) => switches::packed_threshold(turn),
        (b"REPLYBUFFER", 4) => switches::reply_buffer(turn),
        (b"RELOAD", _) => reload::reload(turn),
        (b"REPLICATE", 3..) => replicate(turn),
        (b"RESTART", 2..=3) => reload::restart(turn, true),
        (b"SCRIPT", 3) => script(turn),
        (b"SDSLEN", 3) => forms::string_lengths(turn),
        (b"SET-ACTIVE-EXPIRE", 3) => set_active_expire(turn),
        (b"SET-SKIP-CHECKSUM-VALIDATION", 3) => set_skip_checksums(turn),
        (b"SLEEP", 3) => sleep(turn),
        (b"SLOTMIGRATION", 4) if turn.is(2, "PREVENT-PAUSE") || turn.is(2, "PREVENT-FAILOVER") => {
            switches::slot_migration(turn)
        }
        _ => {
            let given = shown(turn.arg(1), SHOWN_BYTES);
            let before = "ERR unknown subcommand or wrong number of arguments for '";
            Err(Error::naming(before, given, "'. Try DEBUG HELP."))
        }
    }
}

fn error(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.error(turn.args.get(2));
    Ok(())
}

fn log(turn: &mut Turn<'_, '_>) -> Outcome {
    let message = String::from_utf8_lossy(turn.arg(2)).replace(char::is_control, " ");
    turn.engine().host.log(LogLevel::Warning, &format!("DEBUG LOG: {message}"));
    turn.reply.ok();
    Ok(())
}

/// Gives the history of this server's data a new name. Returning replicas then need a snapshot.
fn change_history(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().replication.rename_history();
    turn.engine().host.log(LogLevel::Notice, "DEBUG CHANGE-REPL-ID: the replication ID has changed");
    turn.reply.ok();
    Ok(())
}

/// CONFIG REWRITE, including directives with their default values.
fn rewrite_all(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let users = lines_for_config(engine);
    let written = rewrite_whole(&engine.settings, users, engine.config_file.as_deref());
    written.map_err(|error| Error::new(error.to_string()))?;
    turn.reply.ok();
    Ok(())
}

/// `SCRIPT LIST` or `SCRIPT sha`: the texts of the loaded scripts.
fn script(turn: &mut Turn<'_, '_>) -> Outcome {
    let scripts = &turn.engine().scripts;
    if !turn.is(2, "LIST") {
        let text = scripts.text(turn.arg(2)).ok_or(Error::fixed("NOSCRIPT No matching script. Please use EVAL."))?;
        turn.reply.bulk(&*text);
        return Ok(());
    }
    let all = scripts.loaded();
    turn.reply.array(all.len());
    for text in all {
        turn.reply.array(2);
        turn.reply.bulk(digest_of_text(&text));
        turn.reply.bulk(&*text);
    }
    Ok(())
}

fn set_active_expire(turn: &mut Turn<'_, '_>) -> Outcome {
    // As in Redis, an invalid number counts as 0.
    let on = num::parse_i64(turn.arg(2)).unwrap_or(0) != 0;
    turn.engine().active_expire.store(on, Ordering::Relaxed);
    turn.reply.ok();
    Ok(())
}

fn set_skip_checksums(turn: &mut Turn<'_, '_>) -> Outcome {
    let skips = num::parse_i64(turn.arg(2)).unwrap_or(0) != 0;
    turn.engine().skips_checksums.store(skips, Ordering::Relaxed);
    turn.engine().settings_changed();
    turn.reply.ok();
    Ok(())
}

/// `REPLICATE command [argument ...]`: sends a command to the replicas without running it.
fn replicate(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.engine().replication.stream.is_own() {
        let args = turn.args;
        turn.worker.effects.record_message(args.from(2));
    }
    turn.reply.ok();
    Ok(())
}

/// Redis pauses more periodic work, which continues here: test suites wait for expiry, or want to prevent it.
fn pause_cron(turn: &mut Turn<'_, '_>) -> Outcome {
    let is_paused = num::parse_i64(turn.arg(2)).unwrap_or(0) != 0;
    turn.engine().active_expire.store(!is_paused, Ordering::Relaxed);
    turn.reply.ok();
    Ok(())
}

fn sleep(turn: &mut Turn<'_, '_>) -> Outcome {
    let seconds = num::parse_f64(turn.arg(2)).unwrap_or(0.0).max(0.0);
    let sleeps = &turn.engine().sleeps;
    sleeps.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(SLEEP_MAX).min(SLEEP_MAX));
    sleeps.store(false, Ordering::Relaxed);
    turn.reply.ok();
    Ok(())
}

/// `POPULATE count [prefix] [size]`: creates missing keys `prefix:0` and so on, with values of this size.
fn populate(turn: &mut Turn<'_, '_>) -> Outcome {
    let natural = |index: usize| match turn.int(index) {
        Ok(n) => usize::try_from(n).map_err(|_| Error::NOT_POSITIVE),
        Err(_) => Err(Error::NOT_POSITIVE),
    };
    let count = natural(2)?;
    let size = if turn.len() == 5 { natural(4)?.min(turn.worker.rules.string_bytes_max) } else { 0 };
    let prefix = if turn.len() > 3 { turn.arg(3) } else { b"key" };
    let (clock, database) = (*turn.worker.clock, turn.session.database);
    let mut db = Db::new(turn.locked, database, &clock, &mut turn.worker.observed);
    for i in 0..count {
        let name = [prefix, b":", i.to_string().as_bytes()].concat();
        let key = Key::new(&name);
        if db.peek(key).is_none() {
            let mut value = format!("value:{i}").into_bytes();
            if size > 0 {
                value.resize(size, 0);
            }
            db.set_string(key, &value, Ttl::Clear);
        }
    }
    // The file gets the command itself, from which a later start creates the same keys. Replicas get nothing, as in Redis and Valkey: one of
    // these would refuse the command.
    turn.worker.effects.dirty += count as u64;
    let args = turn.args;
    turn.worker.effects.record_for_file(database, args.from(0));
    turn.reply.ok();
    Ok(())
}

/// Writes a reply of the requested type.
fn protocol(turn: &mut Turn<'_, '_>) -> Outcome {
    let kind = turn.arg(2).to_ascii_lowercase();
    let reply = &mut turn.reply;
    match &*kind {
        b"string" => reply.bulk("Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(DOUBLE),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|i| reply.int(i));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|i| reply.int(i));
        }
        b"map" => {
            reply.map(3);
            for i in 0..3 {
                reply.int(i);
                reply.boolean(i == 1);
            }
        }
        b"attrib" => {
            if reply.is_resp3() {
                reply.attribute(1);
                reply.bulk("key-popularity");
                reply.array(2);
                reply.bulk("key:123");
                reply.int(90);
            }
            reply.bulk("Some real reply following the attribute");
        }
        b"push" if !reply.is_resp3() => return Err(Error::new("ERR RESP2 is not supported by this command")),
        b"push" => {
            reply.push(2);
            reply.bulk("server-cpu-usage");
            reply.int(42);
            reply.bulk("Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("txt", "This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        _ => {
            return Err(Error::new(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn debug_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "ASSERT, OOM, PANIC, SEGFAULT",
        "    End the server at once, as in a crash.",
        "CHANGE-REPL-ID",
        "    Change the replication IDs of the instance.",
        "CLIENT-ENFORCE-REPLY-LIST <0|1>, DICT-RESIZING <0|1>, HASHTABLE-CAN-ABORT-SHRINK <0|1>,",
        "QUICKLIST-PACKED-THRESHOLD <size>, REPLYBUFFER PEAK-RESET-TIME <time>,",
        "REPLYBUFFER RESIZING <0|1>, REPLY-COPY-AVOIDANCE <0|1>",
        "    Accepted without effect: they concern Redis's own structures.",
        "CLOSE-CLUSTER-LINK-ON-PACKET-DROP <0|1>",
        "    Close the link on which DROP-CLUSTER-PACKET-FILTER drops a message.",
        "CLUSTERLINK KILL <to|from|all> <node-id>",
        "    Close the links to a node, from it, or both.",
        "CONFIG-REWRITE-FORCE-ALL",
        "    Like CONFIG REWRITE but writes all configuration options, including",
        "    keywords not listed in original configuration file or default values.",
        "CRASH-AND-RECOVER [<milliseconds>]",
        "    Hard crash and restart after a <milliseconds> delay (default 0).",
        "DIGEST",
        "    Answer a hash of all data, the same as on any server with the same data.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Answer a hash of each key's value.",
        "DISABLE-CLUSTER-RANDOM-PING <0|1>",
        "    Send no PING to random nodes of the cluster.",
        "DISABLE-CLUSTER-RECONNECTION <0|1>",
        "    Make no links to nodes of the cluster.",
        "DROP-CLUSTER-PACKET-FILTER <packet-type>",
        "    Drop received messages of the bus by the number of their type; -2: all, -1: none.",
        "ERROR <string>",
        "    Return a Redis protocol error with <string> as message. Useful for clients",
        "    unit tests to simulate Redis errors.",
        "HTSTATS <dbid> [full]",
        "    Answer how many keys a database has, and how many of them expire.",
        "HTSTATS-KEY <key> [full], LISTPACK <key>, QUICKLIST <key> [<0|1>]",
        "    Answer an error if the value isn't kept in this form.",
        "LEAK <string>",
        "    Create a memory leak of the input string.",
        "LOADAOF",
        "    Flush the AOF buffers on disk and reload the AOF in memory.",
        "LOG <message>",
        "    Write <message> to the server log.",
        "OBJECT <key>",
        "    Show low level info about `key` and associated value.",
        "PAUSE-CRON <0|1>",
        "    Disable expiring keys in background, as SET-ACTIVE-EXPIRE; all else goes on.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Create <count> string keys named key:<num>. If <prefix> is specified then",
        "    it is used instead of the 'key' prefix.",
        "PROTOCOL <type>",
        "    Reply with a test value of the specified type. <type> can be: string,",
        "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
        "    true, false.",
        "RELOAD [option ...]",
        "    Save the RDB on disk and reload it back to memory. Valid <option> values:",
        "    * MERGE: conflicting keys will be loaded from RDB.",
        "    * NOFLUSH: the existing database will not be removed before load, but",
        "      conflicting keys will generate an exception and kill the server.",
        "    * NOSAVE: the database will be loaded from an existing RDB file.",
        "REPLICATE <command> [<argument> ...]",
        "    Send a command to the replicas, without running it here.",
        "RESTART [<milliseconds>]",
        "    Graceful restart: save config, db, restart after a <milliseconds> delay (default 0).",
        "SCRIPT <LIST|<sha>>",
        "    Output SHA and content of all scripts or of a specific script with its SHA.",
        "SDSLEN <key>",
        "    Show how many bytes a key and its string have.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys in background when they are not",
        "    accessed (otherwise the Redis behavior). Setting it to 1 reenables back the",
        "    default.",
        "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
        "    Accept payloads of RESTORE with a wrong checksum.",
        "SLEEP <seconds>",
        "    Stop the server for <seconds>. Decimals allowed.",
        "SLOTMIGRATION PREVENT-FAILOVER <0|1>",
        "    Setting it to 1 keeps this node from claiming slots that it was granted.",
        "SLOTMIGRATION PREVENT-PAUSE <0|1>",
        "    Setting it to 1 keeps moves of whole slots away from this node from ending.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use resp::reply::Proto;

    use crate::testing::{Bench, check as check_off};
    use config::{Loader, Settings};

    fn bench() -> Bench {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        Bench::with(settings)
    }

    fn check(proto: Proto, script: &[(&str, &str)]) {
        let mut bench = bench();
        let mut session = bench.open_with(proto);
        bench.check(&mut session, script);
    }

    #[test]
    fn it_is_off_by_default() {
        let off = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
                   it from a local connection, otherwise you need to set this option in the configuration file, and \
                   then restart the server.";
        check_off(&[("DEBUG SLEEP 0", off), ("DEBUG HELP", off)]);
    }

    #[test]
    fn encodings_are_shown_in_redis_form() {
        let table = "[Dictionary HT]\nHash table 0 stats (main hash table):\n table size: 4\n number of elements: 3\n[Expires HT]\n\
                     No stats available for empty dictionaries\n";
        let in_table = "-ERR The value stored at the specified key is not represented using an hash table";
        let long: String = (0..600).map(|i| format!(" {i}")).collect();
        check(
            Proto::Resp2,
            &[
                ("SET k hello", "+OK"),
                ("SET n 12", "+OK"),
                ("RPUSH l a b", ":2"),
                ("DEBUG HTSTATS 0", &format!("${}|{table}", table.len())),
                ("DEBUG HTSTATS 99 full", "-ERR Out of range database"),
                ("DEBUG HTSTATS x", "-ERR value is not an integer or out of range"),
                ("DEBUG HTSTATS-KEY l", in_table),
                ("DEBUG HTSTATS-KEY no", "-ERR no such key"),
                (&format!("SADD s a{long}"), ":601"),
                ("DEBUG HTSTATS-KEY s", "$38|Hash table 0 stats (main hash table):\n"),
                ("DEBUG LISTPACK l", "+Listpack structure printed on stdout"),
                ("DEBUG LISTPACK k", "-ERR Not a listpack encoded object."),
                ("DEBUG QUICKLIST l", "-ERR Not a quicklist encoded object."),
                (&format!("RPUSH l{}", " 0123456789abcdef".repeat(2000)), ":2002"),
                ("DEBUG QUICKLIST l 1", "+Quicklist structure printed on stdout"),
                (
                    "DEBUG SDSLEN k",
                    "+key_sds_len:1, key_sds_avail:0, key_zmalloc: 1, val_sds_len:5, val_sds_avail:0, val_zmalloc: 5",
                ),
                ("DEBUG SDSLEN n", "-ERR Not an sds encoded string."),
                ("DEBUG SDSLEN l", "-ERR Not an sds encoded string."),
                ("DEBUG PAUSE-CRON 1", "+OK"),
                ("DEBUG PAUSE-CRON 0", "+OK"),
            ],
        );
    }

    #[test]
    fn subcommands_answer() {
        check(
            Proto::Resp2,
            &[
                ("DEBUG ERROR \"FOO bar\"", "-FOO bar"),
                ("DEBUG ERROR FOO", "-FOO"),
                ("DEBUG LOG hi", "+OK"),
                ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
                ("DEBUG REPLICATE PING", "+OK"),
                (
                    "DEBUG REPLICATE",
                    "-ERR unknown subcommand or wrong number of arguments for 'REPLICATE'. Try DEBUG HELP.",
                ),
                ("RESTORE r 0 \"\\x00\\x01a\\x0b\\x00........\"", "-ERR DUMP payload version or checksum are wrong"),
                ("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1", "+OK"),
                ("RESTORE r 0 \"\\x00\\x01a\\x0b\\x00........\"", "+OK"),
                ("GET r", "$1|a"),
                ("RESTORE s 0 \"\\x00\\x01a\\xff\\xff........\"", "-ERR DUMP payload version or checksum are wrong"),
                ("RESTORE s 0 short", "-ERR DUMP payload version or checksum are wrong"),
                ("RESTORE s 0 \"\\x00\\x09a\\x0b\\x00........\"", "-ERR Bad data format"),
                ("DEBUG SET-SKIP-CHECKSUM-VALIDATION 0", "+OK"),
                ("RESTORE s 0 \"\\x00\\x01a\\x0b\\x00........\"", "-ERR DUMP payload version or checksum are wrong"),
                ("DEBUG SLEEP 0.001", "+OK"),
                ("DEBUG SLEEP x", "+OK"),
                ("DEBUG \"x\\x00y\"", "-ERR unknown subcommand or wrong number of arguments for 'x'. Try DEBUG HELP."),
                ("DEBUG jmap", "-ERR unknown subcommand or wrong number of arguments for 'jmap'. Try DEBUG HELP."),
                ("SET p:1 x", "+OK"),
                ("DEBUG POPULATE 3 p 10", "+OK"),
                ("MGET p:0 p:1 p:2", "*3|$10|value:0\0\0\0|$1|x|$10|value:2\0\0\0"),
                ("DEBUG POPULATE 2", "+OK"),
                ("GET key:1", "$7|value:1"),
                ("DEBUG POPULATE x", "-ERR value is out of range, must be positive"),
                ("DEBUG LEAK x", "+OK"),
                ("DEBUG DICT-RESIZING 0", "+OK"),
                ("DEBUG REPLYBUFFER RESIZING 0", "+OK"),
                ("DEBUG REPLYBUFFER bogus 0", "-ERR syntax error"),
                ("DEBUG QUICKLIST-PACKED-THRESHOLD 100b", "+OK"),
                (
                    "DEBUG QUICKLIST-PACKED-THRESHOLD 4gb",
                    "-ERR argument must be a memory value bigger than 1 and smaller than 4gb",
                ),
                ("DEBUG OBJECT nosuch", "-ERR no such key"),
            ],
        );
    }

    #[test]
    fn the_bus_is_disturbed_in_a_cluster_only() {
        let disabled = "-ERR Debug option only available for cluster mode enabled setup!";
        check(
            Proto::Resp2,
            &[
                ("DEBUG DISABLE-CLUSTER-RECONNECTION 1", "+OK"),
                ("DEBUG DISABLE-CLUSTER-RANDOM-PING 1", "+OK"),
                ("DEBUG CLOSE-CLUSTER-LINK-ON-PACKET-DROP 1", "+OK"),
                ("DEBUG DROP-CLUSTER-PACKET-FILTER -1", "+OK"),
                ("DEBUG DROP-CLUSTER-PACKET-FILTER x", "-ERR value is not an integer or out of range"),
                ("DEBUG CLUSTERLINK KILL ALL 0123", disabled),
            ],
        );
    }

    #[test]
    fn protocol_writes_every_type_of_reply() {
        let resp2 = [
            ("string", "$11|Hello World"),
            ("integer", ":12345"),
            ("double", "$5|3.141"),
            ("bignum", "$37|1234567999999999999999999999999999999"),
            ("null", "$-1"),
            ("array", "*3|:0|:1|:2"),
            ("set", "*3|:0|:1|:2"),
            ("map", "*6|:0|:0|:1|:1|:2|:0"),
            ("attrib", "$39|Some real reply following the attribute"),
            ("push", "-ERR RESP2 is not supported by this command"),
            ("verbatim", "$25|This is a verbatim\nstring"),
            ("TRUE", ":1"),
            ("false", ":0"),
        ];
        let resp3 = [
            ("double", ",3.141"),
            ("bignum", "(1234567999999999999999999999999999999"),
            ("null", "_"),
            ("set", "~3|:0|:1|:2"),
            ("map", "%3|:0|#f|:1|#t|:2|#f"),
            ("attrib", "|1|$14|key-popularity|*2|$7|key:123|:90|$39|Some real reply following the attribute"),
            ("push", ">2|$16|server-cpu-usage|:42|$40|Some real reply following the push reply"),
            ("verbatim", "=29|txt:This is a verbatim\nstring"),
            ("true", "#t"),
        ];
        let lines = |all: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            all.iter().map(|(kind, reply)| (format!("DEBUG PROTOCOL {kind}"), *reply)).collect()
        };
        for (proto, all) in [(Proto::Resp2, lines(&resp2)), (Proto::Resp3, lines(&resp3))] {
            let script: Vec<(&str, &str)> = all.iter().map(|(line, reply)| (&**line, *reply)).collect();
            check(proto, &script);
        }
    }

    #[test]
    fn an_object_is_described() {
        let mut bench = bench();
        let mut session = bench.open();
        for line in ["SET s abc", "SET n 123", "RPUSH l a b c", "SADD set 1 2 3"] {
            bench.line(&mut session, line);
        }
        for (key, expected) in [
            ("s", "encoding:embstr serializedlength:4 lru:"),
            ("n", "encoding:int serializedlength:2 lru:"),
            ("l", "encoding:listpack serializedlength:"),
            ("set", "encoding:intset serializedlength:"),
        ] {
            let line = bench.line(&mut session, &format!("DEBUG OBJECT {key}"));
            assert!(line.starts_with("+Value at:0x") && line.contains(expected), "{line}");
            assert!(line.contains(" refcount:1 ") && line.contains(" lru_seconds_idle:0"), "{line}");
        }
    }

    #[test]
    fn histories_are_renamed_and_scripts_shown() {
        let mut bench = bench();
        let mut session = bench.open();
        let id = |bench: &mut Bench, session: &mut _| {
            let reply = bench.line(session, "info replication");
            reply.split('|').find_map(|line| line.strip_prefix("master_replid:")).map(str::to_owned)
        };
        let before = id(&mut bench, &mut session);
        bench.check(&mut session, &[("debug change-repl-id", "+OK")]);
        assert!(before.is_some() && id(&mut bench, &mut session) != before);
        const DIGEST: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        bench.check(
            &mut session,
            &[
                ("debug script list", "*0"),
                ("script load 'return 1'", &format!("$40|{DIGEST}")),
                ("debug script list", &format!("*1|*2|$40|{DIGEST}|$8|return 1")),
                (&format!("debug script {DIGEST}"), "$8|return 1"),
                ("debug script nosuch", "-NOSCRIPT No matching script. Please use EVAL."),
                ("debug config-rewrite-force-all", "-ERR The server is running without a config file"),
                ("debug crash-and-recover x", "-ERR value is not an integer or out of range"),
                ("debug restart", "-ERR snapshots can't be written here"),
                ("config set save ''", "+OK"),
                ("debug restart 5", "-ERR the server can't start itself anew here"),
            ],
        );
    }
}
