//! CONFIG: the configuration at run time. `crate::config` has the directives.
//!
//! Source of the semantics: Redis's pages of CONFIG GET, SET, REWRITE and RESETSTAT.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec, fact};
use resp::request::Args;

use crate::families::help::help;
use crate::services::users;
use crate::state::Engine;
use crate::worker::turn::{Run, Turn};
use config::{Apply, ConfigHost, Settings, get, is_sensitive, rewrite, set};

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("config", -2, 0, Run::Session(config_help))
    .docs(Group::Server, "2.0.0", "Depends on subcommand.", "Reads and changes the configuration.", "")
    .subcommands(&[
        Spec::new("get", -3, FLAGS, Run::Session(config_get))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "2.0.0",
                "O(N) when N is the number of configuration parameters provided",
                "Answers the directives that match patterns, with their values.",
                "parameter [parameter ...]",
            )
            .history(&[("7.0.0", "Several patterns at once.")]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(config_help)).docs(
            Group::Server,
            "5.0.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("resetstat", 2, FLAGS, Run::Session(reset_statistics)).docs(
            Group::Server,
            "2.0.0",
            "O(1)",
            "Resets the counters of INFO.",
            "",
        ),
        Spec::new("rewrite", 2, FLAGS, Run::Session(config_rewrite)).docs(
            Group::Server,
            "2.8.0",
            "O(1)",
            "Writes the present configuration into the file that the server was started with.",
            "",
        ),
        Spec::new("set", -4, FLAGS, Run::Session(config_set))
            .scope(Scope::ByArgs(scope_of_set))
            .secret(is_secret)
            .docs(
                Group::Server,
                "2.0.0",
                "O(N) when N is the number of configuration parameters provided",
                "Changes directives, all or none.",
                "parameter value [parameter value ...]",
            )
            .history(&[("7.0.0", "Several parameters at once.")])
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

fn config_get(turn: &mut Turn<'_, '_>) -> Outcome {
    let patterns: Vec<&[u8]> = turn.args.from(2).collect();
    let found = get(&turn.engine().settings, &patterns);
    turn.reply.map(found.len());
    for (name, value) in &found {
        turn.reply.bulk(name);
        turn.reply.bulk(value);
    }
    Ok(())
}

/// The server's side of CONFIG SET for one connection.
struct SettingsHost {
    engine: &'static Engine,
    is_local: bool,
}

impl ConfigHost for SettingsHost {
    fn apply(&self, what: Apply, settings: &Settings) -> Result<(), String> {
        self.engine.host.apply(what, settings)
    }

    fn caller_is_local(&self) -> bool {
        self.is_local
    }
}

/// Returns true if CONFIG SET's argument at `index` is a sensitive directive's value, for example a password.
fn is_secret(args: Args<'_>, index: usize) -> bool {
    index >= 3 && index % 2 == 1 && is_sensitive(args.get(index - 1))
}

/// The directive that makes replies wait for replicas.
const DURABILITY: &[u8] = b"durability-replicas";

fn sets_durability(args: Args<'_>) -> bool {
    args.from(2).step_by(2).any(|name| name.eq_ignore_ascii_case(DURABILITY))
}

/// Units must be recorded from the moment when replies begin to wait for replicas, so this change happens behind the
/// closed gate.
fn scope_of_set(args: Args<'_>) -> Scope {
    if sets_durability(args) { Scope::Whole } else { Scope::Keys }
}

fn config_set(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let words: Vec<&[u8]> = turn.args.from(2).collect();
    let pairs: Vec<(&[u8], &[u8])> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let engine = turn.engine();
    let caller = SettingsHost { engine, is_local: turn.session.client.is_local() };
    set(&engine.settings, &pairs, &caller).map_err(Error::new)?;
    engine.settings_changed();
    if turn.session.is_clustered() {
        // The plans of its following commands depend on `cluster-cross-slot`.
        turn.session.replan();
    }
    if sets_durability(*turn.args) {
        engine.follow_durability();
    }
    turn.reply.ok();
    Ok(())
}

fn config_rewrite(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let users = users::lines_for_config(engine);
    rewrite(&engine.settings, users, engine.config_file.as_deref()).map_err(|e| Error::new(e.to_string()))?;
    turn.reply.ok();
    Ok(())
}

fn reset_statistics(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().reset_statistics();
    turn.reply.ok();
    Ok(())
}

fn config_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_resp3};

    #[test]
    fn directives_are_read_and_set() {
        check(&[
            ("CONFIG GET port", "*2|$4|port|$4|6379"),
            ("CONFIG GET nosuch", "*0"),
            ("CONFIG SET hz 20 timeout 7", "+OK"),
            ("CONFIG GET hz timeout", "*4|$2|hz|$2|20|$7|timeout|$1|7"),
            ("CONFIG SET hz 20 timeout", "-ERR syntax error"),
            ("CONFIG SET hz", "-ERR wrong number of arguments for 'config|set' command"),
            ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
            ("CONFIG", "-ERR wrong number of arguments for 'config' command"),
            ("CONFIG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."),
        ]);
        check_resp3(&[("CONFIG GET port", "%1|$4|port|$4|6379")]);
    }

    #[test]
    fn config_set_takes_effect_at_once() {
        let refused = |name: &str| {
            format!(
                "-ERR CONFIG SET failed (possibly related to argument '{name}') - \
                 argument must be between 1048576 and 3221225472 inclusive"
            )
        };
        check(&[
            ("CONFIG SET client-query-buffer-limit 3gb", "+OK"),
            ("CONFIG SET client-query-buffer-limit 3221225473", &refused("client-query-buffer-limit")),
            ("CONFIG SET proto-max-bulk-len 3gb", "+OK"),
            ("CONFIG SET proto-max-bulk-len 4gb", &refused("proto-max-bulk-len")),
            ("CONFIG SET proto-max-bulk-len 1mb", "+OK"),
            ("SETRANGE k 1048576 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            ("CONFIG SET list-max-listpack-size 2", "+OK"),
            ("RPUSH l 1 2 3", ":3"),
        ]);
    }
}
