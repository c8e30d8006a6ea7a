//! Following another server: REPLICAOF, SLAVEOF and ROLE.
//!
//! Source of the semantics: Redis's pages of these commands, and a running server's replies.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec, acl, fact};
use resp::num::parse_i64;

use crate::replication::Primary;
use crate::replication::replicas::{ReplicaFigures, ReplicaStage};
use crate::worker::turn::{Run, Turn};
use config::LogLevel;

/// Flags of commands that change the primary.
const FOLLOWS: u32 = ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING;
const ARGUMENTS: &str = "<<host port:integer>:host-port | NO:no-one ONE>:args";

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("replicaof", 3, FOLLOWS, Run::Session(replicaof)).scope(Scope::Whole).docs(
        Group::Server,
        "5.0.0",
        "O(1)",
        "Replaces this server's data by another server's, and follows its changes. NO ONE ends that, and keeps the \
         data.",
        ARGUMENTS,
    ),
    Spec::new("role", 1, NOSCRIPT | LOADING | STALE | FAST, Run::Session(role))
        .facts(fact::TELLS)
        .brief()
        .categories(acl::ADMIN | acl::DANGEROUS)
        .docs(Group::Server, "2.8.12", "O(1)", "Returns the server's replication role, and its progress.", ""),
    Spec::new("slaveof", 3, FOLLOWS, Run::Session(replicaof))
        .scope(Scope::Whole)
        .docs(Group::Server, "1.0.0", "O(1)", "The older name of REPLICAOF.", ARGUMENTS)
        .deprecated("5.0.0", "`REPLICAOF`"),
];

fn replicaof(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.engine().slots.are_on() {
        return Err(Error::fixed("ERR REPLICAOF not allowed in cluster mode."));
    }
    if turn.engine().replication.is_failing_over() {
        return Err(Error::fixed("ERR REPLICAOF not allowed while failing over."));
    }
    let primary = if turn.is(1, "no") && turn.is(2, "one") { None } else { Some(named_primary(turn)?) };
    let is_none = primary.is_none();
    if follow(turn, primary) || is_none {
        turn.reply.ok();
    } else {
        turn.reply.simple("OK Already connected to specified master");
    }
    Ok(())
}

/// Returns the primary in the arguments.
fn named_primary(turn: &Turn<'_, '_>) -> Result<Primary, Error> {
    let port = parse_i64(turn.arg(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::new("ERR Invalid master port"))?;
    Ok(Primary { host: String::from_utf8_lossy(turn.arg(1)).into_owned(), port })
}

/// Follows a primary, or none. Returns false if nothing changes. The caller is alone behind the gate.
fn follow(turn: &Turn<'_, '_>, primary: Option<Primary>) -> bool {
    let engine = turn.engine();
    let text = match &primary {
        None => "MASTER MODE enabled: this server follows no primary any more".to_owned(),
        Some(Primary { host, port }) => {
            format!("REPLICAOF {host}:{port} enabled: this server's data become that server's")
        }
    };
    let is_new = engine.follow(primary, turn.now_ms());
    if is_new {
        engine.host.log(LogLevel::Notice, &text);
    }
    is_new
}

fn role(turn: &mut Turn<'_, '_>) -> Outcome {
    let replication = &turn.engine().replication;
    let (primary, link) = (replication.primary().0, replication.link());
    match primary {
        None => {
            let offset = turn.engine().replicated_offset();
            let online = |replica: &ReplicaFigures| replica.stage == ReplicaStage::Online;
            let replicas: Vec<ReplicaFigures> = replication.replicas.all().into_iter().filter(online).collect();
            turn.reply.array(3);
            turn.reply.bulk(b"master");
            turn.reply.int(offset as i64);
            turn.reply.array(replicas.len());
            for replica in replicas {
                turn.reply.array(3);
                turn.reply.bulk(replica.address.as_bytes());
                turn.reply.bulk(replica.port.to_string().as_bytes());
                turn.reply.bulk(replica.offset.to_string().as_bytes());
            }
        }
        Some(primary) => {
            turn.reply.array(5);
            turn.reply.bulk(b"slave");
            turn.reply.bulk(primary.host.as_bytes());
            turn.reply.int(i64::from(primary.port));
            turn.reply.bulk(link.state.name().as_bytes());
            turn.reply.int(if link.applied == 0 { -1 } else { link.applied as i64 });
        }
    }
    Ok(())
}
