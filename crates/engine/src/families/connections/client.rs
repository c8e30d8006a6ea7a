//! CLIENT: information about connections, and control over them.
//!
//! Client-side caching is in `client/tracking.rs`. Source of the semantics: Redis's command pages of the group
//! "connection", and the replies of a running server.

mod filter;
mod kill;
mod tracking;

use std::hint;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};
use resp::num;
use resp::reply::{Output, Proto, Reply};

use self::filter::{ClientFilter, Of};
use self::kill::kill;
use self::tracking::{caching, getredir, tracking, trackinginfo};
use crate::clients::blocking::Waiter;
use crate::clients::client::{Client, client_flag};
use crate::clients::line::{Own, line};
use crate::clients::session::ReplyMode;
use crate::families::connections::session::{bad_name, printable};
use crate::families::help::help;
use crate::inbox::Message;
use crate::pause::PausePurpose;
use crate::services::maintenance;
use crate::worker::turn::{Run, Turn};

/// Attempts to claim a waiter while another thread tries to serve it, which takes that thread as long as one command.
const CLAIM_ATTEMPTS: usize = 10_000;

/// The error of CLIENT UNBLOCK ERROR.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

const BASIC: u32 = NOSCRIPT | LOADING | STALE;
const OPERATOR: u32 = ADMIN | BASIC;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("client", -2, 0, Run::Session(client))
    .not_in_group_category()
    .facts(fact::KEEPS_CACHING)
    .subcommands(SUBCOMMANDS)
    .docs(Group::Connection, "2.4.0", "Depends on the subcommand", "Works on connections.", "")];

const SUBCOMMANDS: &[Spec<Run>] = &[
    Spec::new("caching", 3, BASIC, Run::Session(caching)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "6.0.0",
        "O(1)",
        "Decides whether the keys of the next command are tracked.",
        "<YES | NO>:mode",
    ),
    Spec::new("capa", -3, BASIC, Run::Session(capa)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "8.0.0",
        "O(1)",
        "Sets the client's capabilities.",
        "capability:string [capability:string ...]",
    ),
    Spec::new("getname", 2, BASIC, Run::Session(getname)).facts(fact::TELLS).docs(
        Group::Connection,
        "2.6.9",
        "O(1)",
        "Answers the connection's name.",
        "",
    ),
    Spec::new("getredir", 2, BASIC, Run::Session(getredir)).docs(
        Group::Connection,
        "6.0.0",
        "O(1)",
        "Returns the connection that receives this one's invalidations.",
        "",
    ),
    Spec::new("help", 2, LOADING | STALE, Run::Session(client_help)).docs(
        Group::Connection,
        "5.0.0",
        "O(1)",
        "Explains the subcommands.",
        "",
    ),
    Spec::new("id", 2, BASIC, Run::Session(id)).facts(fact::TELLS).docs(
        Group::Connection,
        "5.0.0",
        "O(1)",
        "Answers the connection's number.",
        "",
    ),
    Spec::new("import-source", 3, BASIC, Run::Session(import_source)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "8.1.0",
        "O(1)",
        "Marks the connection as an importer of another server's data, which sees expired keys.",
        "<ON | OFF>:enabled",
    ),
    Spec::new("info", 2, BASIC, Run::Session(info)).facts(fact::TELLS).tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        "6.2.0",
        "O(1)",
        "Shows all figures of the connection.",
        "",
    ),
    Spec::new("kill", -3, OPERATOR, Run::Session(kill))
        .docs(
            Group::Connection,
            "2.4.0",
            "O(N) where N is the number of connections",
            "Closes connections.",
            // All except the first may be combined; the notation can't express that.
            "<ip:port:string@-2.8.12 | ID@2.8.12 client-id:integer | TYPE:client-type@2.8.12 <NORMAL | MASTER@3.2.0 \
             | PRIMARY@8.0.0 | SLAVE | REPLICA@5.0.0 | PUBSUB> | USER username | ADDR ip:port:string | LADDR@6.2.0 \
             ip:port:string | SKIPME <YES | NO> | MAXAGE@7.4.0 maxage:integer | IDLE@9.0.0 idle:integer | \
             FLAGS@9.0.0 flags | NAME@9.0.0 client-name | LIB-NAME@9.0.0 lib-name | LIB-VER@9.0.0 lib-version | \
             DB@9.0.0 db-id:integer | CAPA@9.0.0 capa | IP@9.0.0 ip | NOT-ID@9.0.0 client-id:integer | \
             NOT-TYPE:not-client-type@9.0.0 <NORMAL | MASTER | PRIMARY | SLAVE | REPLICA | PUBSUB> | NOT-USER@9.0.0 \
             username | NOT-ADDR@9.0.0 ip:port:string | NOT-LADDR@9.0.0 ip:port:string | NOT-FLAGS@9.0.0 flags | \
             NOT-NAME@9.0.0 client-name | NOT-LIB-NAME@9.0.0 lib-name | NOT-LIB-VER@9.0.0 lib-version | NOT-DB@9.0.0 \
             db-id:integer | NOT-CAPA@9.0.0 capa | NOT-IP@9.0.0 ip>:filter",
        )
        .history(&[
            ("2.8.12", "Options that choose connections, `ID` among them."),
            ("3.2.0", "`TYPE master`."),
            ("5.0.0", "`TYPE replica`, instead of `slave`."),
            ("6.2.0", "`LADDR`."),
            ("7.4.0", "`MAXAGE`."),
            ("8.0.0", "`TYPE primary`, in Valkey."),
            ("8.1.0", "Several `ID`s, in Valkey."),
            ("9.0.0", "`NAME`, `IDLE`, `FLAGS` and other options, and their negations, in Valkey."),
        ]),
    Spec::new("list", -2, OPERATOR, Run::Session(list))
        .facts(fact::TELLS)
        .tips(&["nondeterministic_output"])
        .docs(
            Group::Connection,
            "2.4.0",
            "O(N) where N is the number of connections",
            "Shows all figures of all connections.",
            "[TYPE:client-type@5.0.0 <NORMAL | MASTER | REPLICA | PUBSUB>] [ID@6.2.0 client-id:integer \
             [client-id:integer ...]] [USER@8.1.0 username] [ADDR@8.1.0 ip:port:string] [LADDR@8.1.0 ip:port:string] \
             [SKIPME@8.1.0 <YES | NO>] [MAXAGE@8.1.0 maxage:integer] [IDLE@9.0.0 idle:integer] [FLAGS@9.0.0 \
             flags:string] [NAME@9.0.0 client-name:string] [LIB-NAME@9.0.0 lib-name:string] [LIB-VER@9.0.0 \
             lib-version:string] [DB@9.0.0 db-id:integer] [CAPA@9.0.0 capa:string] [IP@9.0.0 ip:string] \
             [NOT-TYPE:not-client-type@9.0.0 <NORMAL | MASTER | REPLICA | PUBSUB>] [NOT-ID@9.0.0 client-id:integer \
             [client-id:integer ...]] [NOT-USER@9.0.0 username] [NOT-ADDR@9.0.0 ip:port:string] [NOT-LADDR@9.0.0 \
             ip:port:string] [NOT-FLAGS@9.0.0 flags:string] [NOT-NAME@9.0.0 client-name:string] [NOT-LIB-NAME@9.0.0 \
             lib-name:string] [NOT-LIB-VER@9.0.0 lib-version:string] [NOT-DB@9.0.0 db-id:integer] [NOT-CAPA@9.0.0 \
             capa:string] [NOT-IP@9.0.0 ip:string]",
        )
        .history(&[
            ("2.8.12", "The field `id`."),
            ("5.0.0", "`TYPE`."),
            ("6.0.0", "The field `user`."),
            ("6.2.0", "`ID`, and the fields `argv-mem`, `tot-mem`, `laddr` and `redir`."),
            ("7.0.0", "The fields `resp`, `multi-mem`, `rbs` and `rbp`."),
            ("7.0.3", "The field `ssub`."),
            ("7.2.0", "The fields `lib-name` and `lib-ver`."),
            ("7.4.0", "The field `watch`."),
            ("8.0.0", "`TYPE primary`, in Valkey."),
            ("8.1.0", "`USER`, `ADDR`, `LADDR`, `SKIPME` and `MAXAGE`, in Valkey."),
            ("9.0.0", "`NAME`, `IDLE`, `FLAGS` and other options, and their negations, in Valkey."),
        ]),
    Spec::new("maint_notifications", -3, BASIC, Run::Session(maint_notifications)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "8.4.0",
        "O(1)",
        "Decides whether the connection hears of maintenance, such as a move to another primary.",
        "<ON | OFF>:status [MOVING-ENDPOINT-TYPE:type <INTERNAL-IP | INTERNAL-FQDN | EXTERNAL-IP | EXTERNAL-FQDN | NONE>]",
    ),
    Spec::new("no-evict", 3, OPERATOR, Run::Session(no_evict)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "7.0.0",
        "O(1)",
        "Excludes the connection from eviction under `maxmemory-clients`.",
        "<ON | OFF>:enabled",
    ),
    Spec::new("no-touch", 3, BASIC, Run::Session(no_touch)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "7.2.0",
        "O(1)",
        "Decides whether the connection's accesses count for eviction.",
        "<ON | OFF>:enabled",
    ),
    Spec::new("pause", -3, OPERATOR, Run::Session(pause))
        .docs(
            Group::Connection,
            "3.0.0",
            "O(1)",
            "Pauses commands for a time.",
            "timeout:integer [WRITE | ALL]:mode@6.2.0",
        )
        .history(&[("6.2.0", "`WRITE` and `ALL`.")]),
    Spec::new("reply", 3, BASIC, Run::Session(reply)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "3.2.0",
        "O(1)",
        "Selects the replies that the connection receives.",
        "<ON | OFF | SKIP>:action",
    ),
    Spec::new("setinfo", 4, BASIC, Run::Session(setinfo))
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(
            Group::Connection,
            "7.2.0",
            "O(1)",
            "Sets the name or version of the client's library.",
            "<LIB-NAME libname | LIB-VER libver>:attr",
        ),
    Spec::new("setname", 3, BASIC, Run::Session(setname)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "2.6.9",
        "O(1)",
        "Names the connection.",
        "connection-name",
    ),
    Spec::new("tracking", -3, BASIC, Run::Session(tracking)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Connection,
        "6.0.0",
        "O(1). Some options may introduce additional complexity.",
        "Notifies the connection when keys that it has read change.",
        "<ON | OFF>:status [REDIRECT client-id:integer] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] \
         [NOLOOP]",
    ),
    Spec::new("trackinginfo", 2, BASIC, Run::Session(trackinginfo)).facts(fact::TELLS).docs(
        Group::Connection,
        "6.2.0",
        "O(1)",
        "Shows the state of the connection's client-side caching.",
        "",
    ),
    Spec::new("unblock", -3, OPERATOR, Run::Session(unblock)).docs(
        Group::Connection,
        "5.0.0",
        "O(log N) where N is the number of connections",
        "Ends the wait of a connection in a blocking command.",
        "client-id:integer [TIMEOUT | ERROR]:unblock-type",
    ),
    Spec::new("unpause", 2, OPERATOR, Run::Session(unpause)).docs(
        Group::Connection,
        "6.2.0",
        "O(N) where N is the number of commands held back",
        "Ends CLIENT PAUSE.",
        "",
    ),
];

/// Runs without a subcommand, which is an error.
fn client(_: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::arity("client"))
}

/// Returns Redis's error for surplus arguments that the entry's arity can't refuse.
fn bad_subcommand(turn: &Turn<'_, '_>) -> Error {
    let given = String::from_utf8_lossy(turn.arg(1)).into_owned();
    Error::new(format!("ERR unknown subcommand or wrong number of arguments for '{given}'. Try CLIENT HELP."))
}

fn id(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.int(turn.session.client.id as i64);
    Ok(())
}

fn getname(turn: &mut Turn<'_, '_>) -> Outcome {
    let name = turn.session.client.names().name.clone();
    turn.reply.bulk_or_null((!name.is_empty()).then_some(name));
    Ok(())
}

fn setname(turn: &mut Turn<'_, '_>) -> Outcome {
    let name = printable(turn.arg(2)).ok_or_else(bad_name)?;
    turn.session.client.rename(|names| names.name = name);
    turn.reply.ok();
    Ok(())
}

fn setinfo(turn: &mut Turn<'_, '_>) -> Outcome {
    let option = String::from_utf8_lossy(turn.arg(2)).into_owned();
    let is_name = turn.is(2, "lib-name");
    if !is_name && !turn.is(2, "lib-ver") {
        return Err(Error::naming("ERR Unrecognized option '", turn.arg(2), "'"));
    }
    let value = printable(turn.arg(3))
        .ok_or_else(|| Error::new(format!("ERR {option} cannot contain spaces, newlines or special characters.")))?;
    turn.session.client.rename(|names| *(if is_name { &mut names.lib_name } else { &mut names.lib_ver }) = value);
    turn.reply.ok();
    Ok(())
}

/// Returns the line of the calling connection. Within a transaction, its running command is EXEC.
fn own_line(turn: &Turn<'_, '_>) -> String {
    let command = if turn.session.in_exec { "exec" } else { &turn.command.name };
    let own = Own { command, arrived_bytes: turn.worker.arrived_bytes() };
    line(turn.engine().table, &turn.session.client, turn.now_ms(), Some(own))
}

fn info(turn: &mut Turn<'_, '_>) -> Outcome {
    let text = own_line(turn) + "\n";
    turn.reply.verbatim("txt", text);
    Ok(())
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    let filter = ClientFilter::parse(turn, Of::List)?;
    let (now_ms, me) = (turn.now_ms(), turn.session.client.id);
    let is_skipped = |client: &Client| client.id == me && filter.skip_me == Some(true);
    let candidates = filter.candidates(&turn.engine().clients).into_iter();
    let chosen = candidates.filter(|client| filter.passes(client, now_ms) && !is_skipped(client));
    let mut text = String::new();
    for client in chosen {
        let is_own = client.id == turn.session.client.id;
        text += &if is_own { own_line(turn) } else { line(turn.engine().table, &client, turn.now_ms(), None) };
        text.push('\n');
    }
    turn.reply.verbatim("txt", text);
    Ok(())
}

fn reply(turn: &mut Turn<'_, '_>) -> Outcome {
    let session = &mut *turn.session;
    if turn.args.get(2).eq_ignore_ascii_case(b"on") {
        session.set_reply_mode(ReplyMode::On);
        turn.reply.ok();
    } else if turn.args.get(2).eq_ignore_ascii_case(b"off") {
        session.set_reply_mode(ReplyMode::Off);
    } else if turn.args.get(2).eq_ignore_ascii_case(b"skip") {
        if session.reply_mode() != ReplyMode::Off {
            session.set_reply_mode(ReplyMode::SkipNext);
        }
    } else {
        return Err(Error::SYNTAX);
    }
    Ok(())
}

/// Parses an on/off argument.
fn switch(turn: &Turn<'_, '_>) -> Result<bool, Error> {
    match turn.arg(2).to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

/// Capabilities that are unknown here are ignored.
fn capa(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.args.from(2).any(|capability| capability.eq_ignore_ascii_case(b"redirect")) {
        turn.session.client.set(client_flag::CAN_REDIRECT, true);
    }
    turn.reply.ok();
    Ok(())
}

/// Replies like a Valkey server outside of import mode.
fn import_source(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.is(2, "off") && !turn.engine().settings.import_mode.get() {
        return Err(Error::fixed("ERR Server is not in import mode"));
    }
    let on = switch(turn)?;
    turn.session.client.set(client_flag::IMPORT_SOURCE, on);
    turn.reply.ok();
    Ok(())
}

/// The forms of addresses that a client may want. All but the last get the address that the replica is known by.
const ENDPOINT_TYPES: [&str; 5] = ["internal-ip", "internal-fqdn", "external-ip", "external-fqdn", "none"];

fn maint_notifications(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = switch(turn)?;
    let endpoint_type = match turn.len() {
        3 => ENDPOINT_TYPES[0],
        5 if turn.is(3, "moving-endpoint-type") => {
            let known = ENDPOINT_TYPES.into_iter().find(|known| turn.is(4, known));
            known.ok_or(Error::SYNTAX)?
        }
        _ => return Err(Error::SYNTAX),
    };
    if !on {
        maintenance::stop(turn.worker, turn.session);
    } else if turn.session.proto == Proto::Resp3 {
        maintenance::start(turn.worker, turn.session, endpoint_type != "none");
    } else {
        return Err(Error::fixed("ERR CLIENT MAINT_NOTIFICATIONS needs RESP3. Send HELLO 3 before it."));
    }
    turn.reply.ok();
    Ok(())
}

fn no_evict(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = switch(turn)?;
    turn.session.client.set(client_flag::NO_EVICT, on);
    turn.reply.ok();
    Ok(())
}

fn no_touch(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = switch(turn)?;
    turn.session.no_touch = on;
    turn.session.client.set(client_flag::NO_TOUCH, on);
    turn.reply.ok();
    Ok(())
}

fn pause(turn: &mut Turn<'_, '_>) -> Outcome {
    let all = match turn.len() {
        3 => true,
        4 if turn.is(3, "all") => true,
        4 if turn.is(3, "write") => false,
        4 => return Err(Error::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(bad_subcommand(turn)),
    };
    let timeout_ms =
        num::parse_i64(turn.arg(2)).ok_or_else(|| Error::new("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    // Rounded up and from the present moment, so that the pause isn't shorter than requested.
    let from_ms = turn.worker.clock.present_us().div_ceil(1000);
    let until_ms = from_ms.checked_add(timeout_ms).filter(|&ms| i64::try_from(ms).is_ok());
    let until_ms = until_ms.ok_or(Error::TIMEOUT_OUT_OF_RANGE)?;
    let engine = turn.engine();
    engine.pause.begin(PausePurpose::Client, all, turn.now_ms(), if timeout_ms > 0 { until_ms } else { 0 });
    follow_pause(turn);
    turn.reply.ok();
    Ok(())
}

fn unpause(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    engine.pause.end(PausePurpose::Client);
    engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
    follow_pause(turn);
    turn.reply.ok();
    Ok(())
}

/// Applies a pause that began or ended within a transaction to the visibility of keys in its rest.
fn follow_pause(turn: &mut Turn<'_, '_>) {
    if turn.session.in_exec {
        turn.worker.clock.keeps_due = turn.engine().keeps_due_keys(turn.now_ms());
    }
}

fn unblock(turn: &mut Turn<'_, '_>) -> Outcome {
    let with_error = match turn.len() {
        3 => false,
        4 if turn.is(3, "timeout") => false,
        4 if turn.is(3, "error") => true,
        4 => return Err(Error::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(bad_subcommand(turn)),
    };
    let id = turn.int(2)?;
    let engine = turn.engine();
    let target = u64::try_from(id).ok().and_then(|id| engine.clients.get(id));
    let waiter = target.as_ref().and_then(|client| client.waiter());
    let Some(waiter) = waiter.filter(|waiter| !waiter.awaits_server() && claim(waiter)) else {
        turn.reply.int(0);
        return Ok(());
    };
    engine.waiters.remove(&waiter);
    let mut output = Output::default();
    if with_error {
        Reply::new(&mut output, waiter.proto).error(UNBLOCKED);
        turn.worker.count_failed(&waiter, UNBLOCKED.as_bytes());
    } else {
        output = engine.timeout_reply(&waiter);
        turn.worker.count_ended(&waiter);
    }
    target.inspect(|client| client.note_answer(&waiter));
    engine.inboxes[waiter.worker].unpark(waiter.client, output, 0);
    turn.reply.int(1);
    Ok(())
}

/// Takes the right to answer a waiter. Another thread may have it for a moment, during a failed attempt to serve the
/// waiter.
fn claim(waiter: &Waiter) -> bool {
    (0..CLAIM_ATTEMPTS).any(|_| {
        hint::spin_loop();
        waiter.claim()
    })
}

fn client_help(turn: &mut Turn<'_, '_>) -> Outcome {
    help(
        turn,
        &[
            "CACHING (YES|NO)",
            "    Track the keys of the next command, or not, in the modes OPTIN and OPTOUT.",
            "CAPA <option> [<option> ...]",
            "    Set the client's capabilities: REDIRECT.",
            "GETNAME",
            "    Answer the name of the connection.",
            "GETREDIR",
            "    Return the connection that receives this one's invalidations; 0 is itself.",
            "ID",
            "    Answer the number of the connection.",
            "IMPORT-SOURCE (ON|OFF)",
            "    Mark the connection as an importer of another server's data, while `import-mode` is on.",
            "INFO",
            "    Show all figures of the connection.",
            "KILL <ip:port>",
            "    Close the connection from this address.",
            "KILL <option> <value> [<option> <value> [...]]",
            "    Close the connections for which all options hold:",
            "    * ADDR (<ip:port>|<unixsocket>:0), LADDR (<ip:port>|<unixsocket>:0)",
            "      The client's address, or the server's.",
            "    * ID <client-id>, TYPE (NORMAL|MASTER|REPLICA|PUBSUB), USER <username>",
            "      Their number, kind, or user.",
            "    * IP <ip>, NAME <client-name>, LIB-NAME <lib-name>, LIB-VER <lib-version>, DB <db-id>",
            "      The address without the port, the client's own names, the selected database.",
            "    * FLAGS <flags>, CAPA <capa>",
            "      All of these letters appear in CLIENT LIST.",
            "    * MAXAGE <seconds>, IDLE <seconds>",
            "      The minimum age or idle time.",
            "    * NOT-ID, NOT-TYPE, NOT-USER, NOT-ADDR, NOT-LADDR, NOT-IP, NOT-NAME, NOT-LIB-NAME,",
            "      NOT-LIB-VER, NOT-DB, NOT-FLAGS, NOT-CAPA",
            "      The negated condition.",
            "    * SKIPME (YES|NO)",
            "      Exclude the calling connection (default: yes).",
            "LIST [options ...]",
            "    Show all figures of all connections, or of some: the options are those of KILL.",
            "NO-EVICT (ON|OFF)",
            "    Exclude the connection from eviction under maxmemory-clients.",
            "NO-TOUCH (ON|OFF)",
            "    Leave the idle times of keys alone.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Pause all commands, or those that write, for this many milliseconds.",
            "REPLY (ON|OFF|SKIP)",
            "    Select the replies that the connection receives.",
            "SETINFO (LIB-NAME <libname>|LIB-VER <libver>)",
            "    Set the name or version of the client's library.",
            "SETNAME <name>",
            "    Name the connection.",
            "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
            "         [OPTIN] [OPTOUT] [NOLOOP]",
            "    Notify the connection when keys that it has read change.",
            "TRACKINGINFO",
            "    Show the state of the connection's client-side caching.",
            "UNBLOCK <clientid> [TIMEOUT|ERROR]",
            "    End the wait of a connection as if its time were up, or with an error.",
            "UNPAUSE",
            "    End CLIENT PAUSE.",
        ],
    )
}

#[cfg(test)]
mod tests;
