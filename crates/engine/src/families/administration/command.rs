//! COMMAND: describes all commands, from the one table.
//!
//! Source of the semantics: Redis's pages of COMMAND and its subcommands, and the page "Command key specifications".

mod docs;
#[cfg(test)]
mod expected;
mod info;
mod keys;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use commands::error::{Error, Outcome};
use commands::spec::flag::{LOADING, STALE};
use commands::spec::{Group, Spec, acl, fact, key_flag};
use resp::reply::{Output, Proto, Reply};
use store::glob;

use crate::families::help::help;
use crate::worker::turn::{Run, Turn};
use commands::table::{Command, Table};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[entry("command", -1, Run::Session(all))
    .docs(
        Group::Server,
        "2.8.13",
        "O(N) where N is the number of commands",
        "Returns what COMMAND INFO does, for all commands.",
        "",
    )
    .tips(UNORDERED)
    .subcommands(&[
        entry("count", 2, Run::Session(count)).docs(
            Group::Server,
            "2.8.13",
            "O(1)",
            "Returns the number of commands.",
            "",
        ),
        entry("docs", -2, Run::Session(docs))
            .docs(
                Group::Server,
                "7.0.0",
                "O(N) where N is the number of commands described",
                "Returns commands' documentation.",
                "[command-name [command-name ...]]",
            )
            .tips(UNORDERED),
        entry("getkeys", -3, Run::Session(get_keys)).docs(
            Group::Server,
            "2.8.13",
            "O(N) where N is the number of arguments",
            "Returns the keys that a request names.",
            "command [arg [arg ...]]",
        ),
        entry("getkeysandflags", -3, Run::Session(get_keys_and_flags)).docs(
            Group::Server,
            "7.0.0",
            "O(N) where N is the number of arguments",
            "Returns the keys that a request names, and what it would do with each.",
            "command [arg [arg ...]]",
        ),
        entry("help", 2, Run::Session(show_help)).docs(
            Group::Server,
            "5.0.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        entry("info", -2, Run::Session(info))
            .docs(
                Group::Server,
                "2.8.13",
                "O(N) where N is the number of commands described",
                "Returns commands' arity, flags, keys, access categories and subcommands.",
                "[command-name [command-name ...]]",
            )
            .history(&[("7.0.0", "Without arguments, tells of all commands.")])
            .tips(UNORDERED),
        entry("list", -2, Run::Session(list))
            .docs(
                Group::Server,
                "7.0.0",
                "O(N) where N is the number of commands",
                "Returns the names of commands.",
                "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern:pattern>]",
            )
            .tips(UNORDERED),
    ])];

/// The order of replies has no meaning.
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const fn entry(name: &'static str, arity: i32, run: Run) -> Spec<Run> {
    Spec::new(name, arity, LOADING | STALE, run).facts(fact::TELLS).categories(acl::CONNECTION)
}

/// Returns the commands without subcommands.
fn top(table: &Table) -> impl Iterator<Item = &Command> + Clone {
    table.callable().filter(|c| c.parent.is_none())
}

/// Returns a command's subcommands.
fn subcommands<'t>(table: &'t Table, command: &'t Command) -> impl ExactSizeIterator<Item = &'t Command> {
    command.subcommands.iter().map(|&id| &table.all()[id])
}

/// A reply that only depends on the table, which never changes: encoded at its first use, once for each version of the
/// protocol.
type EncodedReply = [OnceLock<Arc<Vec<u8>>>; 2];

/// Sends an encoded reply by reference. `write` writes it at its first use.
fn send_encoded(turn: &mut Turn<'_, '_>, encoded: &EncodedReply, write: fn(&mut Reply<'_>, &Table)) {
    let (table, proto) = (turn.engine().table, turn.reply.proto());
    let encoded = encoded[usize::from(turn.reply.is_resp3())].get_or_init(|| encode(table, proto, write));
    turn.reply.output().extend_shared(encoded.clone());
}

fn encode(table: &Table, proto: Proto, write: fn(&mut Reply<'_>, &Table)) -> Arc<Vec<u8>> {
    let mut output = Output::default();
    write(&mut Reply::new(&mut output, proto), table);
    Arc::new(output.joined().to_vec())
}

fn all(turn: &mut Turn<'_, '_>) -> Outcome {
    static ENCODED: EncodedReply = [const { OnceLock::new() }; 2];
    send_encoded(turn, &ENCODED, |reply, table| {
        reply.array(table.callable_count());
        top(table).for_each(|command| info::write(reply, table, command));
    });
    Ok(())
}

fn count(turn: &mut Turn<'_, '_>) -> Outcome {
    let count = turn.engine().table.callable_count();
    turn.reply.count(count);
    Ok(())
}

fn info(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() == 2 {
        return all(turn);
    }
    let table = turn.engine().table;
    turn.reply.array(turn.len() - 2);
    for name in turn.args.from(2) {
        match table.find_full(name) {
            Some(command) => info::write(&mut turn.reply, table, command),
            None => turn.reply.null(),
        }
    }
    Ok(())
}

fn docs(turn: &mut Turn<'_, '_>) -> Outcome {
    static ENCODED: EncodedReply = [const { OnceLock::new() }; 2];
    if turn.len() == 2 {
        send_encoded(turn, &ENCODED, |reply, table| {
            docs::write_all(reply, table, top(table).collect::<Vec<_>>().into_iter());
        });
        return Ok(());
    }
    let table = turn.engine().table;
    let asked: Vec<_> = turn.args.from(2).filter_map(|name| table.find_full(name)).collect();
    docs::write_all(&mut turn.reply, table, asked.into_iter());
    Ok(())
}

/// The filter of COMMAND LIST.
enum CommandFilter<'a> {
    All,
    /// Commands of a module: there are no modules.
    Module,
    /// Commands in an access category; `None` for an unknown category.
    Category(Option<u32>),
    /// Commands that match a pattern.
    Pattern(&'a [u8]),
}

impl CommandFilter<'_> {
    fn admits(&self, command: &Command) -> bool {
        match self {
            CommandFilter::All => true,
            CommandFilter::Module => false,
            CommandFilter::Category(category) => category.is_some_and(|c| command.info.all_categories() & c != 0),
            CommandFilter::Pattern(pattern) => glob::matches(pattern, command.name.as_bytes(), true),
        }
    }
}

/// Returns the access category with this name, in any case and without its "@".
fn category(name: &[u8]) -> Option<u32> {
    let is_named = |text: &str| text.as_bytes().get(1..).is_some_and(|text| text.eq_ignore_ascii_case(name));
    acl::NAMES.iter().find(|(_, text)| is_named(text)).map(|&(category, _)| category)
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    let filter = match turn.len() {
        2 => CommandFilter::All,
        5 if turn.is(2, "filterby") && turn.is(3, "module") => CommandFilter::Module,
        5 if turn.is(2, "filterby") && turn.is(3, "aclcat") => CommandFilter::Category(category(turn.arg(4))),
        5 if turn.is(2, "filterby") && turn.is(3, "pattern") => CommandFilter::Pattern(turn.arg(4)),
        _ => return Err(Error::SYNTAX),
    };
    let shown: Vec<_> = turn.engine().table.callable().filter(|c| filter.admits(c)).collect();
    turn.reply.array(shown.len());
    shown.into_iter().for_each(|command| turn.reply.bulk(&command.name));
    Ok(())
}

fn get_keys(turn: &mut Turn<'_, '_>) -> Outcome {
    let keys = keys::of(turn)?;
    turn.reply.array(keys.len());
    keys.iter().for_each(|key| turn.reply.bulk(key.name));
    Ok(())
}

fn get_keys_and_flags(turn: &mut Turn<'_, '_>) -> Outcome {
    let keys = keys::of(turn)?;
    turn.reply.array(keys.len());
    for key in keys {
        turn.reply.array(2);
        turn.reply.bulk(key.name);
        // The flag says that the entry doesn't declare all keys, which is irrelevant after they have been found.
        info::write_key_flags(&mut turn.reply, key.flags & !key_flag::INCOMPLETE);
    }
    Ok(())
}

fn show_help(turn: &mut Turn<'_, '_>) -> Outcome {
    let lines = [
        "(no subcommand)",
        "    Return details about all commands.",
        "COUNT",
        "    Return the total number of commands in this server.",
        "LIST [FILTERBY <MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>>]",
        "    Return the names of the commands in this server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple commands.",
        "    If no command names are given, details for all commands are returned.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "GETKEYS <full-command>",
        "    Return the keys from a full command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys and the access flags from a full command.",
    ];
    help(turn, &lines)
}
