//! Connections: AUTH, ECHO, HELLO, PING, QUIT, RESET, SELECT.
//!
//! Source of the semantics: Redis's command pages of the group "connection", its "RESP3" page, and the replies of a
//! running server.

use commands::error::{Error, Outcome, shown};
use commands::spec::flag::{ALLOW_BUSY, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};
use resp::num;
use resp::reply::Proto;
use resp::request::Args;

use crate::clients::client::client_flag;
use crate::clients::progress::Progress;
use crate::clients::session::ReplyMode;
use crate::families::connections::pubsub::follow_proto;
use crate::machine::version::REDIS_VERSION;
use crate::services::publishing::catch_up;
use crate::services::{closing, users};
use crate::worker::turn::{Run, Turn};
use access::DEFAULT;

const ALWAYS: u32 = ALLOW_BUSY | FAST | LOADING | NOSCRIPT | NO_AUTH | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("auth", -2, ALWAYS, Run::Session(auth))
        .secret(is_secret_of_auth)
        .brief()
        .docs(
            Group::Connection,
            "1.0.0",
            "O(N) where N is the length of the password",
            "Authenticates the connection.",
            "[username@6.0.0] password",
        )
        .history(&[("6.0.0", "A user name may come before the password.")]),
    Spec::new("ping", -1, FAST, Run::Session(ping))
        .facts(fact::TELLS)
        .facts(fact::FOR_SUBSCRIBERS | fact::TELLS_HEALTH)
        .brief()
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Connection, "1.0.0", "O(1)", "Answers PONG, or the message it is given.", "[message]"),
    Spec::new("echo", 2, LOADING | STALE | FAST, Run::Session(echo)).facts(fact::TELLS).brief().docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers the message it is given.",
        "message",
    ),
    Spec::new("hello", -1, ALWAYS, Run::Session(hello))
        .secret(is_secret_of_hello)
        .brief()
        .docs(
            Group::Connection,
            "6.0.0",
            "O(1)",
            "Selects the protocol version, and describes the server.",
            "[protover:integer [AUTH username password] [SETNAME clientname]]:arguments",
        )
        .history(&[("6.2.0", "Without arguments, describes the connection.")]),
    Spec::new("reset", 1, ALWAYS, Run::Session(reset))
        .facts(fact::AT_ONCE | fact::FOR_SUBSCRIBERS | fact::RUNS_WHEN_STOPPED)
        .brief()
        .docs(
            Group::Connection,
            "6.2.0",
            "O(N) where N is the number of subscriptions and watched keys",
            "Resets the connection to its initial state.",
            "",
        ),
    Spec::new("select", 2, LOADING | STALE | FAST, Run::Session(select))
        .facts(fact::HOLDS_CONNECTION | fact::SELECTS)
        .brief()
        .databases(|_, visit| visit(1))
        .docs(Group::Connection, "1.0.0", "O(1)", "Selects the database of the connection.", "index:integer"),
    Spec::new("quit", -1, ALWAYS, Run::Session(quit))
        .facts(fact::AT_ONCE | fact::FOR_SUBSCRIBERS | fact::RUNS_WHEN_STOPPED)
        .brief()
        .docs(Group::Connection, "1.0.0", "O(1)", "Closes the connection.", "")
        .deprecated("7.2.0", "just closing the connection"),
];

/// With more arguments, which are an error, Redis can't tell the secret one.
fn is_secret_of_auth(args: Args<'_>, index: usize) -> bool {
    index > 0 && args.len() <= 3
}

fn is_secret_of_hello(args: Args<'_>, index: usize) -> bool {
    hello_credentials(args).is_some_and(|at| (at..at + 2).contains(&index))
}

/// Returns the index of HELLO's user name, which precedes the password.
fn hello_credentials(args: Args<'_>) -> Option<usize> {
    let mut at = 2;
    while at < args.len() {
        let option = args.get(at);
        if option.eq_ignore_ascii_case(b"auth") && at + 2 < args.len() {
            return Some(at + 1);
        }
        if !option.eq_ignore_ascii_case(b"setname") {
            return None;
        }
        at += 2;
    }
    None
}

fn ping(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() > 2 {
        return Err(Error::arity("ping"));
    }
    if turn.len() == 2 && turn.session.applies_stream() && turn.worker.apply_own(turn.arg(1)) {
        // A record of the primary about a token.
        turn.reply.pong();
    } else if turn.session.is_subscriber() {
        turn.reply.array(2);
        turn.reply.bulk("pong");
        turn.reply.bulk(turn.args.get(1));
    } else if turn.len() == 2 {
        turn.reply.bulk(turn.args.get(1));
    } else {
        turn.reply.pong();
    }
    Ok(())
}

fn echo(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.bulk(turn.args.get(1));
    Ok(())
}

fn select(turn: &mut Turn<'_, '_>) -> Outcome {
    let index = i32::try_from(turn.int(1)?).map_err(|_| Error::NOT_32_BITS)?;
    let databases = turn.engine().keyspace.databases();
    let index = usize::try_from(index).ok().filter(|&i| i < databases).ok_or(Error::DB_OUT_OF_RANGE)?;
    turn.session.select(index);
    turn.reply.ok();
    Ok(())
}

fn quit(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.closing = true;
    turn.reply.ok();
    Ok(())
}

fn auth(turn: &mut Turn<'_, '_>) -> Outcome {
    match turn.len() {
        2 if turn.engine().users.default_needs_no_password() => Err(Error::new(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        )),
        2 => authenticate(turn, DEFAULT.as_bytes(), turn.arg(1)),
        3 => authenticate(turn, turn.arg(1), turn.arg(2)),
        _ => Err(Error::SYNTAX),
    }?;
    turn.reply.ok();
    Ok(())
}

/// Makes the client a user, if the password is right.
fn authenticate(turn: &mut Turn<'_, '_>, name: &[u8], password: &[u8]) -> Outcome {
    let Some(user) = turn.engine().users.with_password(name, password) else {
        turn.worker.note_wrong_password(turn.session, turn.command, *turn.args, name);
        return Err(Error::new("WRONGPASS invalid username-password pair or user is disabled."));
    };
    users::become_user(turn.session, user);
    Ok(())
}

/// The arguments of HELLO.
#[derive(Default)]
struct Hello<'t> {
    proto: Option<Proto>,
    credentials: Option<(&'t [u8], &'t [u8])>,
    name: Option<String>,
}

fn parse_hello<'t>(turn: &Turn<'t, '_>) -> Result<Hello<'t>, Error> {
    let mut asked = Hello::default();
    if turn.len() > 1 {
        let version = num::parse_i64(turn.arg(1))
            .ok_or_else(|| Error::new("ERR Protocol version is not an integer or out of range"))?;
        asked.proto = Some(match version {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => return Err(Error::new("NOPROTO unsupported protocol version")),
        });
    }
    let mut at = 2;
    while at < turn.len() {
        if turn.is(at, "auth") && at + 2 < turn.len() {
            asked.credentials = Some((turn.arg(at + 1), turn.arg(at + 2)));
            at += 3;
        } else if turn.is(at, "setname") && at + 1 < turn.len() {
            asked.name = Some(printable(turn.arg(at + 1)).ok_or_else(bad_name)?);
            at += 2;
        } else {
            let option = shown(turn.arg(at), usize::MAX);
            return Err(Error::quoting([b"ERR Syntax error in HELLO option '", option, b"'"].concat()));
        }
    }
    Ok(asked)
}

/// Returns a client's name, if it has only printable characters and no blanks, which would break the lines of CLIENT
/// LIST.
pub(crate) fn printable(name: &[u8]) -> Option<String> {
    let printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    printable.then(|| String::from_utf8_lossy(name).into_owned())
}

pub(crate) fn bad_name() -> Error {
    Error::new("ERR Client names cannot contain spaces, newlines or special characters.")
}

fn hello(turn: &mut Turn<'_, '_>) -> Outcome {
    let asked = parse_hello(turn)?;
    if let Some((user, password)) = asked.credentials {
        authenticate(turn, user, password)?;
    }
    if turn.engine().must_authenticate(turn.session) {
        return Err(Error::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time",
        ));
    }
    if let Some(name) = asked.name {
        turn.session.client.rename(|names| names.name = name);
    }
    if let Some(proto) = asked.proto {
        set_proto(turn, proto);
    }
    write_hello(turn);
    Ok(())
}

fn set_proto(turn: &mut Turn<'_, '_>, proto: Proto) {
    if proto == turn.session.proto {
        return;
    }
    if !turn.session.subscriptions.is_empty() {
        // Messages in the old protocol version must precede the first reply in the new one.
        follow_proto(turn, proto);
        catch_up(turn);
    }
    turn.session.set_proto(proto);
    turn.reply.set_proto(proto);
}

fn write_hello(turn: &mut Turn<'_, '_>) {
    let id = turn.session.client.id as i64;
    let version = if turn.session.proto == Proto::Resp3 { 3 } else { 2 };
    let follows = turn.engine().replication.primary().0.is_some();
    let role = if follows { "replica" } else { "master" };
    let mode = if turn.engine().slots.are_on() { "cluster" } else { "standalone" };
    let reply = &mut turn.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field);
        reply.bulk(value);
    }
    for (field, value) in [("proto", version), ("id", id)] {
        reply.bulk(field);
        reply.int(value);
    }
    for (field, value) in [("mode", mode), ("role", role)] {
        reply.bulk(field);
        reply.bulk(value);
    }
    reply.bulk("modules");
    reply.array(0);
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    let gets_pushes = !turn.session.subscriptions.is_empty() || turn.session.is_monitoring();
    turn.session.set_multi(None);
    turn.session.select(0);
    // The connection's count ends with this command.
    turn.session.abort_off();
    turn.session.count(Progress::Ready, &turn.worker.engine.watchers);
    closing::leave(turn.worker, turn.session);
    if gets_pushes {
        // Earlier messages are delivered before the client reads that there will be no more.
        catch_up(turn);
    }
    let session = &mut *turn.session;
    session.set_proto(Proto::Resp2);
    turn.reply.set_proto(Proto::Resp2);
    users::become_default(turn.worker.engine, session);
    session.client.rename(|names| names.name.clear());
    session.no_touch = false;
    if session.is_clustered() {
        session.set_reads_replica(false);
        session.set_asking(false);
    }
    session.client.set(
        client_flag::NO_EVICT | client_flag::NO_TOUCH | client_flag::REPLY_OFF | client_flag::IMPORT_SOURCE,
        false,
    );
    // A pending skip still applies to this reply.
    if session.reply_mode() != ReplyMode::Skip {
        session.set_reply_mode(ReplyMode::On);
    }
    turn.reply.simple("RESET");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, check};

    const NO_PASSWORD: &str = "-ERR AUTH <password> called without any password configured for the default user. Are \
                               you sure your configuration is correct?";
    const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
    const NEEDED: &str = "-NOAUTH Authentication required.";

    #[test]
    fn without_a_password_the_default_user_may_have_any() {
        check(&[
            ("auth x", NO_PASSWORD),
            ("auth default x", "+OK"),
            ("auth other x", WRONG),
            ("auth a b c", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn with_a_password_clients_must_authenticate() {
        let mut bench = Bench::default();
        let (mut old, mut new) = (bench.open(), bench.open());
        new.set_authenticated(false);
        bench.check(&mut old, &[("config set requirepass secret", "+OK"), ("get k", "$-1")]);
        bench.check(
            &mut new,
            &[
                ("get k", NEEDED),
                ("nosuch", NEEDED),
                ("get", NEEDED),
                ("client nosuch", NEEDED),
                ("auth", "-ERR wrong number of arguments for 'auth' command"),
                ("auth secre", WRONG),
                ("auth secretsecret", WRONG),
                ("auth \"\"", WRONG),
                ("auth secret", "+OK"),
                ("get k", "$-1"),
                ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
                ("reset", "+RESET"),
                ("multi", NEEDED),
                ("auth default secret", "+OK"),
                ("auth nobody secret", WRONG),
                ("get k", "$-1"),
                ("reset", "+RESET"),
            ],
        );
        bench.check(&mut old, &[("config set requirepass \"\"", "+OK")]);
        bench.check(&mut new, &[("get k", "$-1")]);
    }

    #[test]
    fn hello_selects_the_protocol_and_describes_the_server() {
        let fields = |start: &str, version: u8| {
            format!(
                "{start}|$6|server|$5|redis|$7|version|$5|7.4.0|$5|proto|:{version}|$2|id|:1|$4|mode|$10|standalone|\
                 $4|role|$6|master|$7|modules|*0"
            )
        };
        check(&[
            ("hello", &fields("*14", 2)),
            ("hello 3", &fields("%7", 3)),
            ("hello", &fields("%7", 3)),
            ("hello 4", "-NOPROTO unsupported protocol version"),
            ("hello x", "-ERR Protocol version is not an integer or out of range"),
            ("hello 2 auth default x setname me", &fields("*14", 2)),
            ("client getname", "$2|me"),
            ("hello 3 auth nobody x", WRONG),
            ("hello 3 setname \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters."),
            ("hello 3 nosuch", "-ERR Syntax error in HELLO option 'nosuch'"),
            ("hello 3 auth x", "-ERR Syntax error in HELLO option 'auth'"),
            ("get k", "$-1"),
        ]);
    }

    #[test]
    fn reset_leaves_nothing_of_the_session() {
        check(&[
            ("client setname me", "+OK"),
            ("select 3", "+OK"),
            ("watch k", "+OK"),
            ("multi", "+OK"),
            ("set k 1", "+QUEUED"),
            ("reset", "+RESET"),
            ("exec", "-ERR EXEC without MULTI"),
            ("client getname", "$-1"),
            ("set k 0", "+OK"),
            ("select 3", "+OK"),
            ("get k", "$-1"),
            ("client reply off", ""),
            ("ping", ""),
            ("reset", "+RESET"),
            ("ping", "+PONG"),
        ]);
    }
}
