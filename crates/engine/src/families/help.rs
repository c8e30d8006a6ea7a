//! The answer to HELP, which every command with subcommands has.

use commands::error::Outcome;

use crate::worker::turn::Turn;

/// Answers the lines about a container's subcommands, between the first and the last line that all of them have. By
/// convention a line names a subcommand, and those below it that begin with four blanks explain it.
pub(crate) fn help(turn: &mut Turn<'_, '_>, lines: &[&str]) -> Outcome {
    let name = table_name(turn);
    turn.reply.array(lines.len() + 3);
    turn.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| turn.reply.simple(line));
    turn.reply.simple("HELP");
    turn.reply.simple("    Prints this help.");
    Ok(())
}

/// The container's name as HELP spells it.
fn table_name(turn: &Turn<'_, '_>) -> String {
    let name = turn.command.name.split('|').next().unwrap_or_default();
    name.to_ascii_uppercase()
}
