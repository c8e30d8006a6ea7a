//! MODULE, for a server without modules.
//!
//! Source of the semantics: Redis's pages of MODULE, and the replies of a running server.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NO_ASYNC_LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};

use crate::families::help::help;
use crate::worker::turn::{Run, Turn};

const CHANGE: u32 = ADMIN | NOSCRIPT | NO_ASYNC_LOADING;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("module", -2, 0, Run::Session(module_help))
    .docs(Group::Server, "4.0.0", "Depends on subcommand.", "Shows modules; there are none.", "")
    .subcommands(&[
        Spec::new("help", 2, LOADING | STALE, Run::Session(module_help)).docs(
            Group::Server,
            "5.0.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("list", 2, ADMIN | NOSCRIPT, Run::Session(list))
            .facts(fact::TELLS)
            .docs(Group::Server, "4.0.0", "O(N) where N is the number of loaded modules.", "Lists modules: none.", "")
            .tips(&["nondeterministic_output_order"]),
        Spec::new("load", -3, CHANGE, Run::Session(refuse)).docs(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Refused: there are no modules.",
            "path:string [arg:string [arg:string ...]]",
        ),
        Spec::new("loadex", -3, CHANGE, Run::Session(refuse)).docs(
            Group::Server,
            "7.0.0",
            "O(1)",
            "Refused: there are no modules.",
            "path:string [CONFIG:configs name:string value:string [CONFIG:configs name:string value:string ...]] \
             [ARGS arg:string [arg:string ...]]",
        ),
        Spec::new("unload", 3, CHANGE, Run::Session(refuse)).docs(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Refused: there are no modules.",
            "name:string",
        ),
    ])];

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.array(0);
    Ok(())
}

/// The error begins like Redis's when `enable-module-command` forbids MODULE LOAD, but doesn't advise changing that
/// directive, which would not help.
fn refuse(_: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::fixed(
        "ERR MODULE command not allowed. This server has no modules, whatever enable-module-command says.",
    ))
}

fn module_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "LIST",
        "    Answer the modules that are loaded: none.",
        "LOAD <path> [<arg> ...], LOADEX <path> [[CONFIG NAME VALUE]...] [ARGS ...], UNLOAD <name>",
        "    Are refused.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn there_are_no_modules() {
        let refused =
            "-ERR MODULE command not allowed. This server has no modules, whatever enable-module-command says.";
        check(&[
            ("module list", "*0"),
            ("module load x", refused),
            ("module unload x", refused),
            ("module bogus", "-ERR unknown subcommand 'bogus'. Try MODULE HELP."),
        ]);
    }
}
