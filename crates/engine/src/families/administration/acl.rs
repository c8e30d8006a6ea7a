//! ACL: users, their rules, and the log of denials.
//!
//! Source of the semantics: Redis's pages of the ACL subcommands as of 7.2, and the replies of a running server; the
//! databases in rules and replies are Valkey 9.1's.

use commands::error::{Error, Outcome, shown};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec, acl, fact};
use resp::request::{Args, OwnedArgs};

use crate::families::help::help;
use crate::services::users;
use crate::worker::turn::{Run, Turn};
use access::{Changes, Entry, Selector, generate, has_spaces};
use config::LogLevel;

const FLAGS: u32 = NOSCRIPT | LOADING | STALE;
const ADMIN_FLAGS: u32 = ADMIN | FLAGS;

/// Default and maximum of GENPASS's argument, in bits.
const GENPASS_BITS: i64 = 256;
const GENPASS_BITS_MAX: i64 = 4096;
/// Default number of entries of the log in a reply.
const LOG_ENTRIES: i64 = 10;
/// Maximum bytes of an unknown category in an error: Redis's figure.
const CATEGORY_BYTES_SHOWN: usize = 128;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("acl", -2, 0, Run::Session(acl_help))
    .docs(Group::Server, "6.0.0", "Depends on subcommand.", "Manages users and their permissions.", "")
    .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Spec<Run>] = &[
    Spec::new("cat", -2, FLAGS, Run::Session(cat)).facts(fact::TELLS).docs(
        Group::Server,
        "6.0.0",
        "O(1) since the categories and commands are a fixed set.",
        "Lists the categories of commands, or the commands of one.",
        "[category]",
    ),
    Spec::new("deluser", -3, ADMIN_FLAGS, Run::Session(deluser))
        .scope(Scope::Whole)
        .secret(is_secret)
        .docs(
            Group::Server,
            "6.0.0",
            "O(1) amortized time considering the typical user.",
            "Removes users, and closes their connections.",
            "username [username ...]",
        )
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Spec::new("dryrun", -4, ADMIN_FLAGS, Run::Session(dryrun)).facts(fact::TELLS).docs(
        Group::Server,
        "7.0.0",
        "O(1).",
        "Checks if a user may run a command, without running it.",
        "username command [arg [arg ...]]",
    ),
    Spec::new("genpass", -2, FLAGS, Run::Session(genpass)).docs(
        Group::Server,
        "6.0.0",
        "O(1)",
        "Generates a random password.",
        "[bits:integer]",
    ),
    Spec::new("getuser", 3, ADMIN_FLAGS, Run::Session(getuser))
        .facts(fact::TELLS)
        .secret(is_secret)
        .docs(
            Group::Server,
            "6.0.0",
            "O(N). Where N is the number of password, command and pattern rules that the user has.",
            "Shows the rules of a user.",
            "username",
        )
        .history(&[
            ("6.2.0", "Patterns of channels."),
            ("7.0.0", "Selectors, and patterns in the form of rules instead of a list."),
        ]),
    Spec::new("help", 2, LOADING | STALE, Run::Session(acl_help)).docs(
        Group::Server,
        "6.0.0",
        "O(1)",
        "Describes the subcommands.",
        "",
    ),
    Spec::new("list", 2, ADMIN_FLAGS, Run::Session(list)).facts(fact::TELLS).docs(
        Group::Server,
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Lists all users with their rules.",
        "",
    ),
    Spec::new("load", 2, ADMIN_FLAGS, Run::Session(load)).scope(Scope::Whole).docs(
        Group::Server,
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Replaces all users by those of the file of users.",
        "",
    ),
    Spec::new("log", -2, ADMIN_FLAGS, Run::Session(log))
        .docs(
            Group::Server,
            "6.0.0",
            "O(N) with N being the number of entries shown.",
            "Shows the latest denials.",
            "[<count:integer | RESET>:operation]",
        )
        .history(&[("7.2.0", "The entries' numbers, and the times of their creation and last change.")]),
    Spec::new("save", 2, ADMIN_FLAGS, Run::Session(save))
        .docs(
            Group::Server,
            "6.0.0",
            "O(N). Where N is the number of configured users.",
            "Writes all users into the file of users.",
            "",
        )
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Spec::new("setuser", -3, ADMIN_FLAGS, Run::Session(setuser))
        .scope(Scope::Whole)
        .secret(is_secret)
        .docs(
            Group::Server,
            "6.0.0",
            "O(N). Where N is the number of rules provided.",
            "Creates a user, or changes its rules.",
            "username [rule [rule ...]]",
        )
        .history(&[("6.2.0", "Patterns of channels."), ("7.0.0", "Selectors, and permissions on keys.")])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Spec::new("users", 2, ADMIN_FLAGS, Run::Session(users)).facts(fact::TELLS).docs(
        Group::Server,
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Lists the names of all users.",
        "",
    ),
    Spec::new("whoami", 2, FLAGS, Run::Session(whoami)).facts(fact::TELLS).docs(
        Group::Server,
        "6.0.0",
        "O(1)",
        "Returns the connection's user.",
        "",
    ),
];

/// Names of users and their rules are never shown.
fn is_secret(_: Args<'_>, index: usize) -> bool {
    index >= 2
}

fn cat(turn: &mut Turn<'_, '_>) -> Outcome {
    match turn.len() {
        2 => {
            turn.reply.array(acl::NAMES.len());
            acl::NAMES.iter().for_each(|(_, name)| turn.reply.bulk(name.trim_start_matches('@')));
            Ok(())
        }
        3 => cat_one(turn),
        _ => Err(bad_arguments(turn)),
    }
}

fn cat_one(turn: &mut Turn<'_, '_>) -> Outcome {
    let wanted = turn.arg(2);
    let is_wanted = |name: &str| name.as_bytes()[1..].eq_ignore_ascii_case(wanted);
    let Some(&(bit, _)) = acl::NAMES.iter().find(|(_, name)| is_wanted(name)) else {
        let shown = shown(wanted, CATEGORY_BYTES_SHOWN);
        return Err(Error::quoting([b"ERR Unknown category '", shown, b"'"].concat()));
    };
    let all = turn.engine().table.all().iter().filter(|command| command.info.all_categories() & bit != 0);
    turn.reply.array(all.clone().count());
    all.for_each(|command| turn.reply.bulk(&command.name));
    Ok(())
}

/// Returns Redis's error for surplus arguments that the entry's arity can't refuse.
fn bad_arguments(turn: &Turn<'_, '_>) -> Error {
    let given = shown(turn.arg(1), CATEGORY_BYTES_SHOWN);
    let text: [&[u8]; 3] = [b"ERR unknown subcommand or wrong number of arguments for '", given, b"'. Try ACL HELP."];
    Error::quoting(text.concat())
}

fn deluser(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.args.from(2).any(|name| name == b"default") {
        return Err(Error::new("ERR The 'default' user cannot be removed"));
    }
    let users = &turn.engine().users;
    let removed: Vec<_> = turn.args.from(2).filter_map(|name| users.remove(name)).collect();
    turn.reply.count(removed.len());
    users::follow(turn.worker, turn.session, &Changes { removed, ..Changes::default() });
    Ok(())
}

fn dryrun(turn: &mut Turn<'_, '_>) -> Outcome {
    let quoted = |before: &str, name: &[u8], after: &str| {
        Error::quoting([before.as_bytes(), shown(name, usize::MAX), after.as_bytes()].concat())
    };
    let (name, engine) = (turn.arg(2), turn.engine());
    let user = engine.users.get(name).ok_or_else(|| quoted("ERR User '", name, "' not found"))?;
    let request = OwnedArgs::new(turn.args.from(3));
    let args = request.args();
    let command = engine.table.find(args.get(0)).and_then(|command| engine.table.resolve(command, args));
    let command = command.ok_or_else(|| quoted("ERR Command '", args.get(0), "' not found"))?;
    if !command.info.accepts(args.len()) {
        return Err(Error::arity(&command.name));
    }
    match user.permissions().check(turn.worker.asked(turn.session.database, command, args)) {
        Ok(()) => turn.reply.ok(),
        Err(denial) => turn.reply.bulk(denial.long_text(user.shown(), command, args)),
    }
    Ok(())
}

fn genpass(turn: &mut Turn<'_, '_>) -> Outcome {
    let bits = match turn.len() {
        2 => GENPASS_BITS,
        3 => turn.int(2)?,
        _ => return Err(bad_arguments(turn)),
    };
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return Err(Error::new(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {GENPASS_BITS_MAX}"
        )));
    }
    let made = generate(bits.unsigned_abs().div_ceil(4) as usize);
    turn.reply.bulk(made.map_err(|why| Error::new(format!("ERR the system gives no random bytes: {why}")))?);
    Ok(())
}

fn getuser(turn: &mut Turn<'_, '_>) -> Outcome {
    let Some(user) = turn.engine().users.get(turn.arg(2)) else {
        turn.reply.null();
        return Ok(());
    };
    let permissions = user.permissions();
    let (root, others) = permissions.selectors();
    turn.reply.map(3 + SELECTOR_FIELDS);
    let flags = permissions.flags();
    turn.reply.bulk("flags");
    turn.reply.set(flags.len());
    flags.iter().for_each(|flag| turn.reply.bulk(flag));
    turn.reply.bulk("passwords");
    turn.reply.array(permissions.passwords().len());
    permissions.passwords().for_each(|password| turn.reply.bulk(password));
    write_selector(turn, root);
    turn.reply.bulk("selectors");
    turn.reply.array(others.len());
    for selector in others {
        turn.reply.map(SELECTOR_FIELDS);
        write_selector(turn, selector);
    }
    Ok(())
}

/// Number of fields of a selector.
const SELECTOR_FIELDS: usize = 4;

fn write_selector(turn: &mut Turn<'_, '_>, selector: &Selector) {
    let reply = &mut turn.reply;
    reply.bulk("commands");
    reply.bulk(selector.commands_text());
    reply.bulk("keys");
    reply.bulk(selector.keys_text());
    reply.bulk("channels");
    reply.bulk(selector.channels_text());
    reply.bulk("databases");
    reply.bulk(selector.databases_text());
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    let all = turn.engine().users.all();
    turn.reply.array(all.len());
    all.iter().for_each(|user| turn.reply.bulk(user.line()));
    Ok(())
}

fn users(turn: &mut Turn<'_, '_>) -> Outcome {
    let all = turn.engine().users.all();
    turn.reply.array(all.len());
    all.iter().for_each(|user| turn.reply.bulk(user.name()));
    Ok(())
}

fn whoami(turn: &mut Turn<'_, '_>) -> Outcome {
    match turn.session.user() {
        Some(user) => turn.reply.bulk(user.name()),
        None => turn.reply.null(),
    }
    Ok(())
}

/// Fails if there is no file of users.
fn demand_file(turn: &Turn<'_, '_>) -> Outcome {
    if turn.engine().settings.aclfile.is_empty() {
        return Err(Error::new(
            "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
             SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order \
             to store users in the Redis configuration.",
        ));
    }
    Ok(())
}

fn load(turn: &mut Turn<'_, '_>) -> Outcome {
    demand_file(turn)?;
    let changes = users::load_file(turn.engine()).map_err(|why| Error::quoting([b"ERR ", why.as_slice()].concat()))?;
    users::follow(turn.worker, turn.session, &changes);
    turn.reply.ok();
    Ok(())
}

fn save(turn: &mut Turn<'_, '_>) -> Outcome {
    demand_file(turn)?;
    users::save_file(turn.engine()).map_err(|why| {
        turn.engine().host.log(LogLevel::Warning, &format!("Writing ACL file for ACL SAVE: {why}"));
        Error::new("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
    })?;
    turn.reply.ok();
    Ok(())
}

fn setuser(turn: &mut Turn<'_, '_>) -> Outcome {
    let name = turn.arg(2);
    if has_spaces(name) {
        return Err(Error::new("ERR Usernames can't contain spaces or null characters"));
    }
    let (engine, rules): (_, Vec<&[u8]>) = (turn.engine(), turn.args.from(3).collect());
    let all_channels = engine.settings.new_users_have_all_channels();
    let changes = engine.users.set(name, &rules, all_channels);
    let changes = changes.map_err(|why| Error::quoting([b"ERR ", why.as_slice()].concat()))?;
    users::tell_of_foreign(engine, Some(name));
    users::follow(turn.worker, turn.session, &changes);
    turn.reply.ok();
    Ok(())
}

fn log(turn: &mut Turn<'_, '_>) -> Outcome {
    let denials = &turn.engine().users.denials;
    let count = match turn.len() {
        2 => LOG_ENTRIES,
        3 if turn.is(2, "reset") => {
            denials.clear();
            turn.reply.ok();
            return Ok(());
        }
        3 => turn.int(2)?,
        _ => return Err(bad_arguments(turn)),
    };
    let entries = denials.latest(usize::try_from(count).unwrap_or(0));
    turn.reply.array(entries.len());
    entries.iter().for_each(|entry| write_entry(turn, entry));
    Ok(())
}

fn write_entry(turn: &mut Turn<'_, '_>, entry: &Entry) {
    let age_s = turn.now_ms().saturating_sub(entry.updated_ms) as f64 / 1000.0;
    let reply = &mut turn.reply;
    reply.map(10);
    reply.bulk("count");
    reply.int(entry.count as i64);
    reply.bulk("reason");
    reply.bulk(entry.reason.name());
    reply.bulk("context");
    reply.bulk(entry.context.name());
    reply.bulk("object");
    reply.bulk(&entry.object);
    reply.bulk("username");
    reply.bulk(&entry.user);
    reply.bulk("age-seconds");
    reply.double(age_s);
    reply.bulk("client-info");
    reply.bulk(&entry.client);
    for (field, value) in
        [("entry-id", entry.id), ("timestamp-created", entry.created_ms), ("timestamp-last-updated", entry.updated_ms)]
    {
        reply.bulk(field);
        reply.int(value as i64);
    }
}

fn acl_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "CAT [<category>]",
        "    List all commands that belong to <category>, or all command categories",
        "    when no category is specified.",
        "DELUSER <username> [<username> ...]",
        "    Delete a list of users.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Returns whether the user can execute the given command without executing the command.",
        "GETUSER <username>",
        "    Get the user's details.",
        "GENPASS [<bits>]",
        "    Generate a secure 256-bit user password. The optional `bits` argument can",
        "    be used to specify a different size.",
        "LIST",
        "    Show users details in config file format.",
        "LOAD",
        "    Reload users from the ACL file.",
        "LOG [<count> | RESET]",
        "    Show the ACL log entries.",
        "SAVE",
        "    Save the current config to the ACL file.",
        "SETUSER <username> <attribute> [<attribute> ...]",
        "    Create or modify a user with the specified attributes.",
        "USERS",
        "    List all the registered usernames.",
        "WHOAMI",
        "    Return the current connection username.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests;
