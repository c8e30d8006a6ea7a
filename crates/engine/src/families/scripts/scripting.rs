//! EVAL, EVALSHA, their read-only variants, and SCRIPT.
//!
//! Source of the semantics: Redis's command pages of the group "scripting", and "Scripting with Lua".

use commands::error::{Error, Outcome};
use commands::spec::flag::{
    ALLOW_BUSY, LOADING, MAY_REPLICATE, MOVABLEKEYS, NO_MANDATORY_KEYS, NOSCRIPT, READONLY, SKIP_MONITOR, STALE,
};
use commands::spec::key_flag::{ACCESS, RO, RW, UPDATE};
use commands::spec::{self, Group, KeySpec, Scope, Spec, fact};

use crate::families::help::help;
use crate::script_calls::machines::with_machine;
use crate::script_calls::run::{Task, declared_keys, run, show};
use crate::scripts::ScriptMachine;
use crate::scripts::busy::Caller;
use crate::worker::turn::{Run, Turn};

const FLAGS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLEKEYS;
const UNKNOWN_USE: &str = "We cannot tell how the keys will be used so we assume the worst";
const COMPLEXITY: &str = "Depends on the script that is executed.";

const fn running(
    name: &'static str,
    flags: u32,
    script: spec::Script,
    run: fn(&mut Turn<'_, '_>) -> Outcome,
    keys: &'static [KeySpec],
) -> Spec<Run> {
    Spec::new(name, -3, FLAGS | flags, Run::Session(run)).script(script).keys(keys).scope(Scope::Script)
}

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    running(
        "eval",
        MAY_REPLICATE,
        spec::Script::Text,
        eval,
        &[KeySpec::counted(2, RW | ACCESS | UPDATE).notes(UNKNOWN_USE)],
    )
    .docs(
        Group::Scripting,
        "2.6.0",
        COMPLEXITY,
        "Runs a script.",
        "script numkeys:integer [key [key ...]] [arg [arg ...]]",
    ),
    running("eval_ro", READONLY, spec::Script::Text, eval, &[KeySpec::counted(2, RO | ACCESS).notes(UNKNOWN_USE)]).docs(
        Group::Scripting,
        "7.0.0",
        COMPLEXITY,
        "Runs a script that may only read.",
        "script numkeys:integer [key [key ...]] [arg [arg ...]]",
    ),
    running("evalsha", MAY_REPLICATE, spec::Script::Digest, evalsha, &[KeySpec::counted(2, RW | ACCESS | UPDATE)]).docs(
        Group::Scripting,
        "2.6.0",
        COMPLEXITY,
        "Runs a script that has been loaded.",
        "sha1 numkeys:integer [key [key ...]] [arg [arg ...]]",
    ),
    running("evalsha_ro", READONLY, spec::Script::Digest, evalsha, &[KeySpec::counted(2, RO | ACCESS)]).docs(
        Group::Scripting,
        "7.0.0",
        COMPLEXITY,
        "Runs a script that has been loaded and may only read.",
        "sha1 numkeys:integer [key [key ...]] [arg [arg ...]]",
    ),
    Spec::new("script", -2, 0, Run::Session(script_help))
        .not_in_group_category()
        .docs(Group::Scripting, "2.6.0", "Depends on subcommand.", "Keeps scripts.", "")
        .subcommands(&[
            Spec::new("debug", 3, NOSCRIPT, Run::Session(script_debug)).docs(
                Group::Scripting,
                "3.2.0",
                "O(1)",
                "Refused: there is no debugger.",
                "<YES | SYNC | NO>:mode",
            ),
            Spec::new("exists", -3, NOSCRIPT, Run::Session(script_exists)).facts(fact::TELLS)
                .docs(
                    Group::Scripting,
                    "2.6.0",
                    "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
                    "Checks which scripts are loaded.",
                    "sha1 [sha1 ...]",
                )
                .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
            Spec::new("flush", -2, NOSCRIPT, Run::Session(script_flush))
                .docs(
                    Group::Scripting,
                    "2.6.0",
                    "O(N) with N being the number of scripts in cache",
                    "Forgets all scripts.",
                    "[ASYNC | SYNC]:flush-type@6.2.0",
                ).history(&[("6.2.0", "`ASYNC` and `SYNC`.")])
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
            Spec::new("help", 2, LOADING | STALE, Run::Session(script_help)).docs(
                Group::Scripting,
                "5.0.0",
                "O(1)",
                "Describes the subcommands.",
                "",
            ),
            Spec::new("kill", 2, NOSCRIPT | ALLOW_BUSY, Run::Session(script_kill))
                .docs(Group::Scripting, "2.6.0", "O(1)", "Ends a script that takes too long and has not written.", "")
                .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            Spec::new("load", 3, NOSCRIPT | STALE, Run::Session(script_load))
                .docs(
                    Group::Scripting,
                    "2.6.0",
                    "O(N) with N being the length in bytes of the script body.",
                    "Loads a script, which stays until SCRIPT FLUSH.",
                    "script",
                )
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
            Spec::new("show", 3, NOSCRIPT | STALE, Run::Session(script_show)).docs(
                Group::Scripting,
                "8.0.0",
                "O(1)",
                "Answers the text of a script.",
                "sha1",
            ),
        ]),
];

const NOSCRIPT_ERROR: Error = Error::fixed("NOSCRIPT No matching script. Please use EVAL.");

fn eval(turn: &mut Turn<'_, '_>) -> Outcome {
    show(turn);
    let keys = declared_keys(turn)?;
    with_machine(turn, |turn, machine| {
        let now_ticks = turn.worker.ticks.raw();
        let digest = machine.by_text(&turn.engine().scripts, turn.arg(1), false, now_ticks)?;
        run_digest(turn, machine, &digest, keys)
    })
}

fn evalsha(turn: &mut Turn<'_, '_>) -> Outcome {
    show(turn);
    if turn.arg(1).len() != size_of::<crate::scripts::cache::ScriptDigest>() {
        return Err(NOSCRIPT_ERROR);
    }
    let keys = declared_keys(turn)?;
    with_machine(turn, |turn, machine| {
        let Some(digest) = machine.by_name(&turn.engine().scripts, turn.arg(1))? else { return Err(NOSCRIPT_ERROR) };
        run_digest(turn, machine, &digest, keys)
    })
}

fn run_digest(
    turn: &mut Turn<'_, '_>,
    machine: &mut ScriptMachine,
    digest: &crate::scripts::cache::ScriptDigest,
    keys: usize,
) -> Outcome {
    let Some((vm, script, loaded)) = machine.get(digest) else { return Err(NOSCRIPT_ERROR) };
    script.used(turn.worker.ticks.raw());
    let task = Task {
        loaded,
        name: std::str::from_utf8(&script.digest).unwrap_or_default(),
        rights: script.rights,
        reads_only: turn.command.info.has(READONLY),
        keys,
        profile: &script.profile,
        is_function: false,
    };
    run(turn, vm, &task)
}

fn script_load(turn: &mut Turn<'_, '_>) -> Outcome {
    let digest = with_machine(turn, |turn, machine| {
        machine.by_text(&turn.engine().scripts, turn.arg(2), true, turn.worker.ticks.raw())
    })?;
    turn.worker.effects.record_as(turn.session.database, turn.args.from(0));
    turn.reply.bulk(digest);
    Ok(())
}

/// Loads a script during the loading of data.
pub(crate) fn put_in(turn: &mut Turn<'_, '_>, text: &[u8]) -> Outcome {
    with_machine(turn, |turn, machine| machine.by_text(&turn.engine().scripts, text, true, turn.worker.ticks.raw()))?;
    Ok(())
}

fn script_exists(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.array(turn.len() - 2);
    for name in turn.args.from(2) {
        let exists = turn.engine().scripts.exists(name);
        turn.reply.int(i64::from(exists));
    }
    Ok(())
}

fn script_flush(turn: &mut Turn<'_, '_>) -> Outcome {
    let is_known = turn.len() == 2 || (turn.len() == 3 && (turn.is(2, "SYNC") || turn.is(2, "ASYNC")));
    if !is_known {
        return Err(Error::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    turn.engine().scripts.flush();
    turn.worker.effects.record_as(turn.session.database, turn.args.from(0));
    turn.worker.unload_scripts();
    turn.reply.ok();
    Ok(())
}

fn script_show(turn: &mut Turn<'_, '_>) -> Outcome {
    let text = turn.engine().scripts.text(turn.arg(2)).ok_or(NOSCRIPT_ERROR)?;
    turn.reply.bulk(text);
    Ok(())
}

fn script_debug(turn: &mut Turn<'_, '_>) -> Outcome {
    match turn.arg(2).to_ascii_lowercase().as_slice() {
        b"no" => {
            turn.reply.ok();
            Ok(())
        }
        b"yes" | b"sync" => Err(Error::new(
            "ERR Penstock has no debugger for scripts: use redis.log, or run the script elsewhere with redis-cli --ldb",
        )),
        _ => Err(Error::new("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

fn script_kill(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().busy.kill(Caller::Eval)?;
    turn.reply.ok();
    Ok(())
}

fn script_help(turn: &mut Turn<'_, '_>) -> Outcome {
    help(
        turn,
        &[
            "DEBUG (YES|SYNC|NO)",
            "    Refused: there is no debugger for scripts.",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return information about the existence of the scripts in the script cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Flush the Lua scripts cache. Very dangerous on replicas.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the scripts cache.",
            "    * SYNC: Synchronously flush the scripts cache.",
            "KILL",
            "    Kill the currently executing Lua script.",
            "LOAD <script>",
            "    Load a script into the scripts cache without executing it.",
            "SHOW <sha1>",
            "    Show a script from the scripts cache.",
        ],
    )
}

#[cfg(test)]
mod tests {
    use resp::reply::Proto;

    use crate::testing::{Bench, check, check_resp3};
    use config::{Loader, Settings};

    #[test]
    fn scripts_run_and_fail_with_redis_s_texts() {
        check(&[
            ("EVAL 'return {KEYS[1], ARGV[1], #ARGV}' 1 k a b", "*3|$1|k|$1|a|:2"),
            ("EVAL 'return 1' x", "-ERR value is not an integer or out of range"),
            ("EVAL 'return 1' -1", "-ERR Number of keys can't be negative"),
            ("EVAL 'return 1' 1", "-ERR Number of keys can't be greater than number of args"),
            (
                "EVAL 'return x x' 0",
                "-ERR Error compiling script (new function): user_script:1: '<eof>' expected near 'x'",
            ),
            ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "-NOSCRIPT No matching script. Please use EVAL."),
            ("EVALSHA short x", "-NOSCRIPT No matching script. Please use EVAL."),
            ("SCRIPT LOAD 'return 1'", "$40|e0e1f9fabfc9d4800c877a703b823ac0578ff8db"),
            ("EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0", ":1"),
            ("SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "$8|return 1"),
            ("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db x", "*2|:1|:0"),
            ("SCRIPT FLUSH nosuch", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            ("SCRIPT FLUSH ASYNC", "+OK"),
            ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "-NOSCRIPT No matching script. Please use EVAL."),
            ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
            ("SCRIPT DEBUG no", "+OK"),
        ]);
        let sha = "206396248e12c6e742fd7296250433c8d7343b74";
        let unknown = format!("-ERR Unknown Redis command called from script script: {sha}, on @user_script:1.");
        check(&[("EVAL \"return redis.call('nosuch')\" 0", &unknown)]);
        check_resp3(&[("EVAL 'redis.setresp(3) return {true, {double=1.5}}' 0", "*2|#t|,1.5")]);
    }

    #[test]
    fn listeners_of_undeclared_keys_are_notified_at_once() {
        for declared in ["0", "1 other", "2 other one"] {
            let mut bench = Bench::default();
            let mut caching = bench.open_with(Proto::Resp3);
            bench.check(&mut caching, &[("CLIENT TRACKING ON", "+OK")]);
            let script = "redis.call('get', 'k') return redis.call('set', 'k', 1)";
            let told = "+OK|>2|$10|invalidate|*1|$1|k";
            bench.check(&mut caching, &[(&format!("EVAL \"{script}\" {declared}"), told)]);

            let (mut waiting, mut other) = (bench.open(), bench.open());
            assert_eq!(bench.line(&mut waiting, "BLPOP q 0"), "");
            let script = format!("EVAL \"return redis.call('rpush', 'q', 1)\" {declared}");
            bench.check(&mut other, &[(&script, ":1")]);
            assert!(!bench.worker.engine.inboxes[0].take().is_empty(), "BLPOP is served: {declared}");
        }
    }

    #[test]
    fn a_script_has_its_own_database_and_protocol() {
        check(&[
            ("EVAL \"redis.call('select', 3) redis.call('set', 'k', 'three') return 1\" 0", ":1"),
            ("GET k", "$-1"),
            ("SELECT 3", "+OK"),
            ("GET k", "$5|three"),
            ("MULTI", "+OK"),
            ("EVAL \"return redis.call('incr', 'n')\" 0", "+QUEUED"),
            ("EVAL \"return redis.pcall('lpop', 'k').err\" 0", "+QUEUED"),
            ("EXEC", "*2|:1|$65|WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn a_pause_of_writes_holds_up_scripts_that_may_write() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let reads = "#!lua flags=no-writes\\nreturn 1";
        let sha = bench.line(&mut session, &format!("SCRIPT LOAD \"{reads}\""));
        let sha = sha.rsplit('|').next().unwrap();
        let library = "#!lua name=l\\nlocal one = function() return 1 end\\n\
                       redis.register_function('writes', one)\\n\
                       redis.register_function{function_name='reads', callback=one, flags={'no-writes'}}";
        bench.check(
            &mut session,
            &[(&format!("FUNCTION LOAD \"{library}\""), "$1|l"), ("CLIENT PAUSE 100000 WRITE", "+OK")],
        );
        let reading = [
            format!("EVAL \"{reads}\" 0"),
            format!("EVALSHA {sha} 0"),
            "FCALL reads 0".to_owned(),
            "FCALL_RO reads 0".to_owned(),
            "EVAL_RO \"return 1\" 0".to_owned(),
        ];
        reading.iter().for_each(|line| assert_eq!(bench.line(&mut session, line), ":1", "{line}"));
        for line in [
            "EVAL \"return 1\" 0",
            "EVAL \"#!lua\\nreturn 1\" 0",
            "EVAL_RO \"#!lua\\nreturn 1\" 0",
            "EVAL \"#!lua flags=nosuch\\nreturn 1\" 0",
            "EVALSHA 1111111111111111111111111111111111111111 0",
            "FCALL writes 0",
            "FCALL nosuch 0",
        ] {
            assert_eq!(bench.line(&mut session, line), "", "{line}");
        }
    }

    #[test]
    fn the_first_line_of_a_script_sets_its_flags() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"maxmemory".to_vec(), b"1".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        let mut session = bench.open();
        let script = |first: &str, rest: &str| format!("EVAL \"{first}{rest}\" 0");
        let set = "return redis.call('set', 'k', 'v')";
        bench.check(
            &mut session,
            &[
                (&script("#!lua flags=nosuch\\n", set), "-ERR Unexpected flag in script shebang: nosuch"),
                (&script("#!lua flags=no-writes,\\n", "return 1"), "-ERR Unexpected flag in script shebang: "),
                (&script("#!lua flags=,no-writes\\n", "return 1"), "-ERR Unexpected flag in script shebang: "),
                (&script("#!lua flags=\\n", "return 1"), ":1"),
                (&script("#!js\\n", set), "-ERR Unexpected engine in script shebang: #!js"),
                (
                    &script("#!lua\\n", set).replace("EVAL", "EVAL_RO"),
                    "-ERR Can not execute a script with write flag using *_ro command.",
                ),
            ],
        );
        let refused = bench.line(&mut session, &script("#!lua flags=no-writes\\n", set));
        assert!(
            refused.starts_with("-ERR Write commands are not allowed from read-only scripts. script: "),
            "{refused}"
        );
        bench.used_memory.store(2, std::sync::atomic::Ordering::Relaxed);
        bench.now_us += 1_000_000;
        for (first, expected) in [("#!lua\\n", "-OOM "), ("", "-OOM "), ("#!lua flags=allow-oom\\n", "+OK")] {
            let reply = bench.line(&mut session, &script(first, set));
            assert!(reply.starts_with(expected), "{first:?}: {reply}");
        }
    }

    /// Returns a bench with a second thread, and little memory for each thread's scripts.
    fn bench_with_little_memory() -> (Bench, crate::worker::Worker) {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"lua-memory-limit".to_vec(), b"2mb".to_vec()]).unwrap();
        let bench = Bench::with_threads(settings, 2);
        let other = bench.another_worker(1, 2);
        (bench, other)
    }

    /// Returns the memory of a thread's interpreter in bytes.
    fn machine_bytes(worker: &crate::worker::Worker) -> usize {
        worker.scripts.machine.as_ref().map_or(0, |machine| machine.used_bytes())
    }

    #[test]
    fn the_memory_of_scripts_is_bounded() {
        type Round = fn(usize) -> Vec<String>;
        let rounds: [Round; 7] = [
            |i| vec![format!("EVAL \"return {i}\" 0")],
            |i| vec![format!("EVAL_RO \"return {i}\" 0")],
            |i| vec![format!("EVAL \"local s = '{}' return {i}\" 0", "x".repeat(4000))],
            |i| vec![format!("EVAL \"return return {i}\" 0")],
            |i| {
                vec![format!("SCRIPT LOAD \"return {i}\""), format!("EVAL \"return {i}\" 0"), "SCRIPT FLUSH".to_owned()]
            },
            |i| {
                let code = format!("#!lua name=l\\nredis.register_function('f', function() return {i} end)");
                vec![format!("FUNCTION LOAD REPLACE \"{code}\""), "FCALL f 0".to_owned()]
            },
            |i| {
                let code = format!("#!lua name=l\\nredis.register_function('f', function() return {i} end)");
                vec![format!("FUNCTION LOAD \"{code}\""), "FCALL f 0".to_owned(), "FUNCTION DELETE l".to_owned()]
            },
        ];
        for (n, round) in rounds.iter().enumerate() {
            let (mut bench, mut other) = bench_with_little_memory();
            let mut session = bench.open();
            // The other thread has loaded the scripts that the first one drops.
            for i in 0..6000 {
                for line in round(i) {
                    let reply = bench.line(&mut session, &line);
                    assert!(!reply.contains("memory"), "{n} {i}: {reply}");
                }
                if i < 300 {
                    std::mem::swap(&mut bench.worker, &mut other);
                }
                if i == 1000 {
                    other.unload_scripts();
                }
            }
            bench.worker.unload_scripts();
            other.unload_scripts();
            for (thread, worker) in [&bench.worker, &other].into_iter().enumerate() {
                assert!(machine_bytes(worker) < 1_100_000, "{n}, thread {thread}: {}", machine_bytes(worker));
            }
            let machines = [bench.worker.scripts.machine.as_ref(), other.scripts.machine.as_ref()];
            let known = bench.worker.engine.scripts.figures().count;
            assert!(machines.iter().flatten().all(|machine| machine.script_count() <= known), "{n}");
        }
    }

    #[test]
    fn running_scripts_evict_compiled_ones() {
        let (mut bench, _) = bench_with_little_memory();
        let mut session = bench.open();
        let text = |i: usize| format!("local s = '{}' return {i}", "x".repeat(40_000));
        for i in 0..200 {
            let reply = bench.line(&mut session, &format!("SCRIPT LOAD \"{}\"", text(i)));
            assert!(reply.starts_with("$40|"), "{i}: {reply}");
        }
        for i in 0..200 {
            assert_eq!(bench.line(&mut session, &format!("EVAL \"{}\" 0", text(i))), format!(":{i}"));
            let half = "EVAL \"return #string.rep('x', 500000)\" 0";
            assert_eq!(bench.line(&mut session, half), ":500000");
        }
    }

    /// Makes the bench's server a replica that has lost its primary, with or without serving stale data.
    fn follow_nobody(bench: &Bench, serves_stale: bool) {
        let slow_path = &bench.worker.engine.slow_path;
        slow_path.set(crate::slow_path::REPLICA, true);
        slow_path.set(crate::slow_path::CUT_OFF, !serves_stale);
    }

    const LIBRARY: &str = "FUNCTION LOAD \"#!lua name=l\\n\
        redis.register_function('writes', function() return 1 end)\\n\
        redis.register_function{function_name='reads', callback=function() return 1 end, flags={'no-writes'}}\\n\
        redis.register_function{function_name='stale', callback=function(k, a) return redis.pcall(unpack(a)) end, \
        flags={'no-writes', 'allow-stale'}}\"";

    #[test]
    fn a_stale_replica_runs_scripts_that_allow_stale_data() {
        let mut bench = Bench::default();
        let (mut session, mut early, mut late) = (bench.open(), bench.open(), bench.open());
        bench.check(&mut session, &[(LIBRARY, "$1|l"), ("SET k v", "+OK")]);
        bench.check(&mut early, &[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("FCALL stale 0 info x", "+QUEUED")]);
        let queued = [("MULTI", "+OK"), ("EVAL 'return 1' 0", "+QUEUED"), ("FCALL stale 0 get k", "+QUEUED")];
        bench.check(&mut late, &queued);
        follow_nobody(&bench, false);
        let down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
        let stale = "ERR Can not execute the command on a stale replica";
        let read_only = "-READONLY You can't write against a read only replica.";
        bench.check(&mut early, &[("EXEC", &format!("-EXECABORT Transaction discarded because of: {down}"))]);
        bench.check(&mut late, &[("EXEC", &format!("*2|-{down}|-{stale}"))]);
        let reads = "EVAL \"#!lua flags=no-writes,allow-stale\\nreturn redis.pcall('get', 'k').err\" 0";
        bench.check(
            &mut session,
            &[
                ("EVAL 'return 1' 0", &format!("-{down}")),
                ("EVAL_RO 'return 1' 0", &format!("-{down}")),
                ("EVAL \"#!lua flags=no-writes\\nreturn 1\" 0", &format!("-{down}")),
                ("EVAL \"#!lua\\nreturn 1\" 0", read_only),
                (reads, &format!("${}|{stale}", stale.len())),
                ("FCALL writes 0", read_only),
                ("FCALL reads 0", &format!("-{down}")),
                ("FCALL_RO reads 0", &format!("-{down}")),
                ("FCALL stale 0 get k", &format!("-{stale}")),
                ("FCALL stale 0 set k w", &format!("-{stale}")),
                ("FCALL stale 0 info x", "$0|"),
                ("FCALL nosuch 0", "-ERR Function not found"),
            ],
        );
    }

    #[test]
    fn a_read_only_replica_runs_no_script_that_may_write() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[(LIBRARY, "$1|l")]);
        follow_nobody(&bench, true);
        let read_only = "-READONLY You can't write against a read only replica.";
        bench.check(
            &mut session,
            &[
                ("FCALL writes 0", read_only),
                ("FCALL_RO writes 0", read_only),
                ("EVAL \"#!lua\\nreturn 1\" 0", read_only),
                ("EVAL_RO \"#!lua\\nreturn 1\" 0", read_only),
                ("FCALL reads 0", ":1"),
                ("EVAL 'return 1' 0", ":1"),
                ("MULTI", "+OK"),
                ("FCALL writes 0", read_only),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ],
        );
        bench.worker.engine.slow_path.set(crate::slow_path::REPLICA, false);
        bench.worker.engine.slow_path.set(crate::slow_path::FEW_REPLICAS, true);
        let few = "-NOREPLICAS Not enough good replicas to write.";
        bench.check(
            &mut session,
            &[
                ("FCALL writes 0", few),
                ("FCALL reads 0", ":1"),
                ("EVAL \"return redis.pcall('set', 'k', 'v').err\" 0", &format!("${}|{}", few.len() - 1, &few[1..])),
            ],
        );
    }

    #[test]
    fn waits_for_replicas_end_at_once_in_scripts() {
        check(&[
            ("EVAL \"return redis.call('wait', '1', '0')\" 0", ":0"),
            ("EVAL \"return redis.call('waitaof', '0', '1', '0')\" 0", "*2|:0|:0"),
            ("WAIT 1 9223372036854775807", "-ERR timeout is out of range"),
            ("WAITAOF 0 1 9223372036854775807", "-ERR timeout is out of range"),
        ]);
    }

    #[test]
    fn a_script_selects_the_receivers_of_its_changes() {
        use journal::lane::Audience;
        use journal::record::Kind::{Command, FileCommand, ReplicaCommand};

        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        let mut reader = engine.journal.read(&engine.keyspace, Audience::File).unwrap();
        let text = "redis.call('set', 'a', 1) redis.set_repl(redis.REPL_NONE) redis.call('set', 'b', 1) \
            redis.call('publish', 'c', 'm') redis.set_repl(redis.REPL_AOF) redis.call('set', 'd', 1) \
            redis.call('setex', 'e', 10, 1) redis.call('publish', 'c', 'm') redis.set_repl(redis.REPL_REPLICA) \
            redis.call('set', 'f', 1) redis.call('publish', 'c', 'm') redis.set_repl(redis.REPL_ALL) \
            redis.call('set', 'g', 1) redis.set_repl(redis.REPL_NONE)";
        bench.check(&mut session, &[(&format!("EVAL \"{text}\" 0"), "$-1"), ("SET h 1", "+OK")]);
        let mut recorded = Vec::new();
        while let Some(unit) = reader.next_unit() {
            for entry in unit.entries() {
                let command = String::from_utf8_lossy(entry.command).to_lowercase();
                let words = command.split("\r\n").filter(|word| !word.is_empty() && !word.starts_with(['*', '$']));
                recorded.push((entry.kind, words.take(2).collect::<Vec<_>>().join(" ")));
            }
        }
        let expected = [
            (Command, "set a"),
            (FileCommand, "set d"),
            (FileCommand, "set e"),
            (ReplicaCommand, "set f"),
            (Command, "set g"),
            (Command, "set h"),
        ];
        assert_eq!(recorded, expected.map(|(kind, words)| (kind, words.to_owned())));
    }
}
