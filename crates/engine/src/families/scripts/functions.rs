//! FCALL, FCALL_RO and FUNCTION.
//!
//! Source of the semantics: Redis's command pages of the group "scripting", and "Redis functions".

use commands::error::{Error, Outcome};
use commands::spec::flag::{
    ALLOW_BUSY, DENYOOM, LOADING, MAY_REPLICATE, MOVABLEKEYS, NO_MANDATORY_KEYS, NOSCRIPT, READONLY, SKIP_MONITOR,
    STALE, WRITE,
};
use commands::spec::key_flag::{ACCESS, RO, RW, UPDATE};
use commands::spec::{Group, KeySpec, Scope, Script, Spec, acl, fact};
use format::payload::{BadPayload, common_functions, read_functions, with_dumper};
use resp::num;
use store::glob;

use crate::families::help::help;
use crate::script_calls::machines::with_machine;
use crate::script_calls::run::{Task, declared_keys, run, show};
use crate::scripts::busy::Caller;
use crate::scripts::library::{Library, Policy, metadata};
use crate::worker::turn::{Run, Turn};

const FLAGS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLEKEYS;
const UNKNOWN_USE: &str = "We cannot tell how the keys will be used so we assume the worst";
const COMPLEXITY: &str = "Depends on the function that is executed.";
const ON_ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("fcall", -3, FLAGS | MAY_REPLICATE, Run::Session(fcall))
        .script(Script::Function)
        .keys(&[KeySpec::counted(2, RW | ACCESS | UPDATE).notes(UNKNOWN_USE)])
        .scope(Scope::Script)
        .docs(
            Group::Scripting,
            "7.0.0",
            COMPLEXITY,
            "Calls a function.",
            "function numkeys:integer [key [key ...]] [arg [arg ...]]",
        ),
    Spec::new("fcall_ro", -3, FLAGS | READONLY, Run::Session(fcall))
        .script(Script::Function)
        .keys(&[KeySpec::counted(2, RO | ACCESS).notes(UNKNOWN_USE)])
        .scope(Scope::Script)
        .docs(
            Group::Scripting,
            "7.0.0",
            COMPLEXITY,
            "Calls a function that only reads.",
            "function numkeys:integer [key [key ...]] [arg [arg ...]]",
        ),
    Spec::new("function", -2, 0, Run::Session(function_help))
        .not_in_group_category()
        .docs(Group::Scripting, "7.0.0", "Depends on subcommand.", "Manages libraries of functions.", "")
        .subcommands(&[
            Spec::new("delete", 3, WRITE | NOSCRIPT, Run::Session(delete))
                .categories(acl::WRITE)
                .docs(Group::Scripting, "7.0.0", "O(1)", "Removes a library.", "library-name")
                .tips(ON_ALL_SHARDS),
            Spec::new("dump", 2, NOSCRIPT, Run::Session(dump)).docs(
                Group::Scripting,
                "7.0.0",
                "O(N) where N is the number of functions",
                "Returns all libraries in the format of FUNCTION RESTORE.",
                "",
            ),
            Spec::new("flush", -2, WRITE | NOSCRIPT, Run::Session(flush))
                .categories(acl::WRITE)
                .docs(
                    Group::Scripting,
                    "7.0.0",
                    "O(N) where N is the number of functions deleted",
                    "Removes all libraries.",
                    "[ASYNC | SYNC]:flush-type",
                )
                .tips(ON_ALL_SHARDS),
            Spec::new("help", 2, LOADING | STALE, Run::Session(function_help)).docs(
                Group::Scripting,
                "7.0.0",
                "O(1)",
                "Describes the subcommands.",
                "",
            ),
            Spec::new("kill", 2, NOSCRIPT | ALLOW_BUSY, Run::Session(kill))
                .docs(Group::Scripting, "7.0.0", "O(1)", "Ends a function that takes too long and has not written.", "")
                .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            Spec::new("list", -2, NOSCRIPT, Run::Session(list))
                .facts(fact::TELLS)
                .docs(
                    Group::Scripting,
                    "7.0.0",
                    "O(N) where N is the number of functions",
                    "Lists the libraries and their functions.",
                    "[LIBRARYNAME library-name-pattern] [WITHCODE]",
                )
                .tips(&["nondeterministic_output_order"]),
            Spec::new("load", -3, WRITE | DENYOOM | NOSCRIPT, Run::Session(load))
                .categories(acl::WRITE)
                .docs(
                    Group::Scripting,
                    "7.0.0",
                    "O(1) (considering compilation time is redundant)",
                    "Loads a library.",
                    "[REPLACE] function-code",
                )
                .tips(ON_ALL_SHARDS),
            Spec::new("restore", -3, WRITE | DENYOOM | NOSCRIPT, Run::Session(restore))
                .categories(acl::WRITE)
                .docs(
                    Group::Scripting,
                    "7.0.0",
                    "O(N) where N is the number of functions on the payload",
                    "Loads the libraries of a DUMP.",
                    "serialized-value [FLUSH | APPEND | REPLACE]:policy",
                )
                .tips(ON_ALL_SHARDS),
            Spec::new("stats", 2, NOSCRIPT | ALLOW_BUSY, Run::Session(stats))
                .facts(fact::TELLS)
                .docs(
                    Group::Scripting,
                    "7.0.0",
                    "O(1)",
                    "Returns the running function, and the number of libraries.",
                    "",
                )
                .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
        ]),
];

fn fcall(turn: &mut Turn<'_, '_>) -> Outcome {
    show(turn);
    with_machine(turn, |turn, machine| {
        let Some((vm, local)) = machine.function(&turn.engine().libraries, turn.arg(1))? else {
            return Err(Error::new("ERR Function not found"));
        };
        let function = local.function();
        if num::parse_i64(turn.arg(2)).is_none() {
            return Err(Error::new("ERR Bad number of keys provided"));
        }
        let keys = declared_keys(turn)?;
        let task = Task {
            loaded: local.loaded,
            name: std::str::from_utf8(&function.name).unwrap_or_default(),
            rights: function.rights,
            reads_only: turn.command.info.has(READONLY),
            keys,
            profile: &function.profile,
            is_function: true,
        };
        run(turn, vm, &task)
    })
}

fn load(turn: &mut Turn<'_, '_>) -> Outcome {
    let mut policy = Policy::Append;
    for option in turn.args.from(2).take(turn.len() - 3) {
        if !option.eq_ignore_ascii_case(b"replace") {
            return Err(Error::naming("ERR Unknown option given: ", option, ""));
        }
        policy = Policy::Replace;
    }
    let text = turn.arg(turn.len() - 1);
    let (name, _) = metadata(text)?;
    if policy == Policy::Append && turn.engine().libraries.has(&name) {
        return Err(Error::quoting([b"ERR Library '", &*name, b"' already exists"].concat()));
    }
    let library = read(turn, text)?;
    turn.engine().libraries.add(vec![library], policy)?;
    turn.worker.effects.count(1);
    turn.reply.bulk(name);
    Ok(())
}

/// Returns the library of a text, after a trial run in the thread's interpreter.
fn read(turn: &mut Turn<'_, '_>, text: &[u8]) -> Result<Library, Error> {
    let (name, code_at) = metadata(text)?;
    with_machine(turn, |turn, machine| {
        let registered = machine.try_library(&*turn.engine().host, &text[code_at..])?;
        Ok(Library::new(turn.engine().table, name, text, &registered))
    })
}

/// Adds or replaces the library of a text, during loading.
pub(crate) fn put_in(turn: &mut Turn<'_, '_>, text: &[u8]) -> Outcome {
    let library = read(turn, text)?;
    turn.engine().libraries.add(vec![library], Policy::Replace)?;
    turn.worker.unload_scripts();
    Ok(())
}

fn delete(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.engine().libraries.remove(turn.arg(2)) {
        return Err(Error::new("ERR Library not found"));
    }
    turn.worker.unload_scripts();
    turn.worker.effects.count(1);
    turn.reply.ok();
    Ok(())
}

fn flush(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() > 3 {
        return Err(wrong_number(turn));
    }
    if turn.len() == 3 && !turn.is(2, "SYNC") && !turn.is(2, "ASYNC") {
        return Err(Error::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    turn.engine().libraries.flush();
    turn.worker.unload_scripts();
    turn.worker.effects.count(1);
    turn.reply.ok();
    Ok(())
}

/// Returns the error for a subcommand with too many arguments, which quotes it as given.
fn wrong_number(turn: &Turn<'_, '_>) -> Error {
    let start = b"ERR unknown subcommand or wrong number of arguments for '";
    Error::quoting([&start[..], turn.arg(1), b"'. Try FUNCTION HELP."].concat())
}

fn dump(turn: &mut Turn<'_, '_>) -> Outcome {
    let libraries = turn.engine().libraries.all();
    let texts = libraries.iter().map(|library| &*library.text);
    turn.reply.bulk(with_dumper(|dumper| dumper.functions(texts)));
    Ok(())
}

fn restore(turn: &mut Turn<'_, '_>) -> Outcome {
    let policy = match turn.len() {
        3 => Policy::Append,
        4 if turn.is(3, "APPEND") => Policy::Append,
        4 if turn.is(3, "REPLACE") => Policy::Replace,
        4 if turn.is(3, "FLUSH") => Policy::Flush,
        4 => {
            let text = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(Error::new(text));
        }
        _ => return Err(wrong_number(turn)),
    };
    let texts = read_functions(turn.arg(2)).map_err(|bad| match bad {
        BadPayload::Footer => Error::new("ERR DUMP payload version or checksum are wrong"),
        BadPayload::Contents(_) => Error::new("ERR given type is not a function"),
    })?;
    let libraries = texts.iter().map(|text| read(turn, text)).collect::<Result<Vec<_>, _>>()?;
    turn.engine().libraries.add(libraries, policy)?;
    turn.worker.effects.count(1);
    record_restore(turn);
    turn.reply.ok();
    Ok(())
}

/// Records the call with a payload that all replicas can read.
fn record_restore(turn: &mut Turn<'_, '_>) {
    let recording = turn.worker.effects.recording;
    if let Some(payload) = recording.then(|| common_functions(turn.arg(2))).flatten() {
        let mut words: Vec<&[u8]> = turn.args.from(0).collect();
        words[2] = &payload;
        turn.worker.effects.record_as(0, words.into_iter());
    }
}

fn kill(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().busy.kill(Caller::Function)?;
    turn.reply.ok();
    Ok(())
}

fn stats(turn: &mut Turn<'_, '_>) -> Outcome {
    let (libraries, functions, _) = turn.engine().libraries.figures();
    let running = turn.engine().busy.longest();
    let reply = &mut turn.reply;
    reply.map(2);
    reply.bulk("running_script");
    match running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk("name");
            reply.bulk(running.name);
            reply.bulk("command");
            reply.array(running.command.args().len());
            running.command.args().from(0).for_each(|arg| reply.bulk(arg));
            reply.bulk("duration_ms");
            reply.int(running.milliseconds);
        }
    }
    reply.bulk("engines");
    reply.map(1);
    reply.bulk("LUA");
    reply.map(2);
    reply.bulk("libraries_count");
    reply.count(libraries);
    reply.bulk("functions_count");
    reply.count(functions);
    Ok(())
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    let (mut pattern, mut with_code) = (None, false);
    let mut options = turn.args.from(2);
    while let Some(option) = options.next() {
        if !with_code && option.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && option.eq_ignore_ascii_case(b"libraryname") {
            let Some(given) = options.next() else {
                return Err(Error::new("ERR library name argument was not given"));
            };
            pattern = Some(given);
        } else {
            return Err(Error::naming("ERR Unknown argument ", option, ""));
        }
    }
    let mut libraries = turn.engine().libraries.all();
    libraries.retain(|library| pattern.is_none_or(|pattern| glob::matches(pattern, &library.name, true)));
    turn.reply.array(libraries.len());
    libraries.iter().for_each(|library| show_library(turn, library, with_code));
    Ok(())
}

fn show_library(turn: &mut Turn<'_, '_>, library: &Library, with_code: bool) {
    let reply = &mut turn.reply;
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk("library_name");
    reply.bulk(&library.name);
    reply.bulk("engine");
    reply.bulk("LUA");
    reply.bulk("functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk("name");
        reply.bulk(&function.name);
        reply.bulk("description");
        reply.bulk_or_null(function.description.as_ref());
        reply.bulk("flags");
        let flags: Vec<&str> = function.rights.names().collect();
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    if with_code {
        reply.bulk("library_code");
        reply.bulk(&library.text);
    }
}

fn function_help(turn: &mut Turn<'_, '_>) -> Outcome {
    help(
        turn,
        &[
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Create a new library with the given library name and code.",
            "DELETE <LIBRARY NAME>",
            "    Delete the given library.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    Return the libraries with their functions, and their code if asked for.",
            "STATS",
            "    Return the function that runs too long, if any, and how many libraries and functions there are.",
            "KILL",
            "    End the function that runs too long, if it has not written.",
            "FLUSH [ASYNC|SYNC]",
            "    Delete all the libraries.",
            "DUMP",
            "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Restore the libraries represented by the given payload. The policy decides about existing libraries:",
            "    * FLUSH: delete all existing libraries.",
            "    * APPEND: keep them; abort on collision. This is the default.",
            "    * REPLACE: keep them, but for those that collide.",
        ],
    )
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use config::{Loader, Settings};

    fn bench(memory: &str) -> Bench {
        let settings = Settings::new();
        Loader::new(&settings).directive(&["lua-memory-limit", memory].map(|word| word.as_bytes().to_vec())).unwrap();
        Bench::with(settings)
    }

    fn large(name: &str) -> String {
        format!(
            "FUNCTION LOAD \"#!lua name={name}\\nlocal s = ('x'):rep(5000000)\\n\
             redis.register_function('{name}', function() return #s end)\""
        )
    }

    #[test]
    fn a_deleted_library_frees_its_memory() {
        let mut bench = bench("8mb");
        let mut session = bench.open();
        let wants = "EVAL \"return #('x'):rep(5000000)\" 0";
        // The last two are done like by another thread.
        for by in ["FUNCTION DELETE large", "FUNCTION FLUSH", "remove", "flush"] {
            bench.check(&mut session, &[(&large("large"), "$5|large"), ("FCALL large 0", ":5000000")]);
            let refused = bench.line(&mut session, wants);
            assert!(refused.contains("not enough memory"), "{refused}");
            match by {
                "remove" => assert!(bench.worker.engine.libraries.remove(b"large")),
                "flush" => bench.worker.engine.libraries.flush(),
                command => bench.check(&mut session, &[(command, "+OK")]),
            }
            bench.check(&mut session, &[(wants, ":5000000")]);
        }
    }

    #[test]
    fn a_trial_run_of_a_library_frees_its_memory() {
        let mut bench = bench("8mb");
        let mut session = bench.open();
        for name in ["a", "b", "c"] {
            bench.check(&mut session, &[(&large(name), &format!("$1|{name}"))]);
        }
        bench
            .check(&mut session, &[("FCALL a 0", ":5000000"), ("FUNCTION DELETE a", "+OK"), ("FCALL b 0", ":5000000")]);
    }

    /// With several threads, a text is compiled before the gate is closed; other threads must not see that.
    #[test]
    fn a_text_compiled_ahead_is_invisible_until_it_runs() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        let mut session = bench.open();
        let learnt = "redis.call('SET', 'k', 'v') return 1";
        let count = |bench: &Bench| bench.worker.engine.scripts.figures().count;
        for (line, reply, known) in [
            (format!("EVAL \"{learnt}\" x"), "-ERR value is not an integer or out of range", 0),
            (format!("EVAL \"{learnt}\" 1"), "-ERR Number of keys can't be greater than number of args", 0),
            (
                "EVAL 'return x x' 0".into(),
                "-ERR Error compiling script (new function): user_script:1: '<eof>' expected near 'x'",
                0,
            ),
            ("EVAL '#!nosuch\\nreturn 1' 0".into(), "-ERR Unexpected engine in script shebang: #!nosuch\\nreturn", 0),
            (
                "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0".into(),
                "-NOSCRIPT No matching script. Please use EVAL.",
                0,
            ),
            (format!("EVAL \"{learnt}\" 0"), ":1", 1),
            (format!("EVAL \"{learnt}\" 0"), ":1", 1),
            ("FCALL nosuch 0".into(), "-ERR Function not found", 1),
        ] {
            let answer = bench.line(&mut session, &line);
            let is_it = answer == reply || (reply.contains("shebang") && answer.starts_with('-'));
            assert!(is_it, "{line}: {answer}");
            assert_eq!(count(&bench), known, "{line}");
        }
    }

    #[test]
    fn function_names_differ_in_case_only_within_a_library() {
        let mut bench = bench("8mb");
        let mut session = bench.open();
        let one = |name: &str| format!("redis.register_function('{name}', function() return '{name}' end)");
        let load = |library: &str, code: String| format!("FUNCTION LOAD \"#!lua name={library}\\n{code}\"");
        bench.check(
            &mut session,
            &[
                (&load("a", one("f") + &one("F")), "$1|a"),
                ("FCALL f 0", "$1|f"),
                ("FCALL F 0", "$1|f"),
                (&load("b", one("F")), "-ERR Function F already exists"),
                ("FUNCTION DELETE a", "+OK"),
                ("FCALL F 0", "-ERR Function not found"),
                (&load("b", one("F")), "$1|b"),
                ("FCALL f 0", "$1|F"),
            ],
        );
    }
}
