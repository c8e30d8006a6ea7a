//! Connections: PING, ECHO, SELECT, QUIT.
//!
//! Source of the semantics: Redis's command pages of the group "connection".

use commands::error::{Error, Outcome};
use commands::spec::flag::{ALLOW_BUSY, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE};
use commands::spec::{Group, Spec};

use crate::command_table::Run;
use crate::turn::Turn;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("ping", -1, FAST, Run::Session(ping)).docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers PONG, or the message it is given.",
        "[message]",
    ),
    Spec::new("echo", 2, LOADING | STALE | FAST, Run::Session(echo)).docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers the message it is given.",
        "message",
    ),
    Spec::new("select", 2, LOADING | STALE | FAST, Run::Session(select)).docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Selects the database of the connection.",
        "index",
    ),
    Spec::new("quit", -1, ALLOW_BUSY | FAST | LOADING | NOSCRIPT | NO_AUTH | STALE, Run::Session(quit)).docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Closes the connection.",
        "",
    ),
];

fn ping(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() > 2 {
        return Err(Error::arity("ping"));
    }
    if turn.session.is_subscriber() {
        turn.reply.array(2);
        turn.reply.bulk("pong");
        turn.reply.bulk(turn.args.get(1));
    } else if turn.len() == 2 {
        turn.reply.bulk(turn.args.get(1));
    } else {
        turn.reply.simple("PONG");
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
