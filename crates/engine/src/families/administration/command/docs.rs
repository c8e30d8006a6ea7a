//! The format of COMMAND DOCS.

use commands::syntax::{self, Argument, ArgumentType};
use resp::reply::Reply;

use super::subcommands;
use commands::table::{Command, Table};

/// Writes the documentation of commands: a map from names to maps.
pub(super) fn write_all<'t>(
    reply: &mut Reply<'_>,
    table: &'t Table,
    commands: impl ExactSizeIterator<Item = &'t Command>,
) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(&command.name);
        write(reply, table, command);
    }
}

fn write<'t>(reply: &mut Reply<'_>, table: &'t Table, command: &'t Command) {
    let info = command.info;
    let arguments = arguments(command);
    let flags = [("deprecated", info.deprecated.is_some()), ("syscmd", info.is_system)];
    let flags: Vec<_> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let has = [!flags.is_empty(), !info.history.is_empty(), !arguments.is_empty(), !command.subcommands.is_empty()];
    let has = has.into_iter().filter(|has| *has).count();
    reply.map(4 + if info.deprecated.is_some() { 2 } else { 0 } + has);
    field(reply, "summary", info.summary);
    field(reply, "since", info.since);
    field(reply, "group", info.group.name());
    field(reply, "complexity", info.complexity);
    if !flags.is_empty() {
        reply.bulk("doc_flags");
        write_flags(reply, &flags);
    }
    if let Some(deprecated) = info.deprecated {
        field(reply, "deprecated_since", deprecated.since);
        field(reply, "replaced_by", deprecated.replaced_by);
    }
    if !info.history.is_empty() {
        reply.bulk("history");
        reply.set(info.history.len());
        for (version, change) in info.history {
            reply.array(2);
            reply.bulk(version);
            reply.bulk(change);
        }
    }
    if !arguments.is_empty() {
        reply.bulk("arguments");
        write_arguments(reply, &arguments);
    }
    if !command.subcommands.is_empty() {
        reply.bulk("subcommands");
        write_all(reply, table, subcommands(table, command));
    }
}

/// Returns a command's arguments; empty for a container, because its subcommands have them.
fn arguments(command: &Command) -> Vec<Argument> {
    if !command.subcommands.is_empty() {
        return Vec::new();
    }
    let first = if command.parent.is_some() { 2 } else { 1 };
    // The table's test checks that every entry's notation is valid.
    syntax::parse(command.info.syntax, command.info.keys, first).unwrap_or_default()
}

fn write_arguments(reply: &mut Reply<'_>, arguments: &[Argument]) {
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_argument(reply, argument));
}

fn write_argument(reply: &mut Reply<'_>, argument: &Argument) {
    let flags =
        [("optional", argument.optional), ("multiple", argument.multiple), ("multiple_token", argument.multiple_token)];
    let flags: Vec<_> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let optional_fields = [
        argument.key_spec_index.is_some(),
        argument.token.is_some(),
        argument.since.is_some(),
        argument.deprecated_since.is_some(),
        !flags.is_empty(),
    ];
    reply.map(3 + optional_fields.into_iter().filter(|has| *has).count());
    field(reply, "name", &argument.name);
    field(reply, "type", argument.kind.name());
    let is_compound = matches!(argument.kind, ArgumentType::OneOf | ArgumentType::Block);
    if !is_compound {
        field(reply, "display_text", &argument.name);
    }
    if let Some(index) = argument.key_spec_index {
        reply.bulk("key_spec_index");
        reply.count(index);
    }
    if let Some(token) = &argument.token {
        field(reply, "token", token);
    }
    if let Some(since) = &argument.since {
        field(reply, "since", since);
    }
    if let Some(deprecated) = &argument.deprecated_since {
        field(reply, "deprecated_since", deprecated);
    }
    if !flags.is_empty() {
        reply.bulk("flags");
        write_flags(reply, &flags);
    }
    if is_compound {
        reply.bulk("arguments");
        write_arguments(reply, &argument.arguments);
    }
}

fn write_flags(reply: &mut Reply<'_>, flags: &[&str]) {
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
}

fn field(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name);
    reply.bulk(value);
}
