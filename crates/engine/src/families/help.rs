//! The reply to HELP of every command with subcommands.

use commands::error::Outcome;

use crate::worker::turn::Turn;

/// Replies with the lines about a container's subcommands, between a first and a last line that are the same for all.
/// By convention a line names a subcommand, and the following lines with four leading blanks explain it.
pub(crate) fn help(turn: &mut Turn<'_, '_>, lines: &[&str]) -> Outcome {
    let name = table_name(turn);
    turn.reply.array(lines.len() + 3);
    turn.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| turn.reply.simple(line));
    turn.reply.simple("HELP");
    turn.reply.simple("    Prints this help.");
    Ok(())
}

/// Returns the container's name in HELP's spelling.
fn table_name(turn: &Turn<'_, '_>) -> String {
    let name = turn.command.name.split('|').next().unwrap_or_default();
    name.to_ascii_uppercase()
}
