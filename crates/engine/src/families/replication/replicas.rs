//! This server's replicas: their requests (REPLCONF, PSYNC, SYNC), and waiting for them (WAIT, WAITAOF).
//!
//! Source of the semantics: Redis's pages of these commands, and the traffic between servers.

use cluster::id::NodeId;
use commands::error::{Error, Outcome, shown};
use commands::spec::flag::{ADMIN, ALLOW_BUSY, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec, acl, fact};
use replication::id::HistoryId;
use resp::num::parse_i64;
use resp::request::Args;

use crate::clients::blocking::Awaited;
use crate::replication::LinkState;
use crate::replication::replicas::{Acknowledgement, Wanted};
use crate::worker::turn::{Run, Turn};
use config::LogLevel;

/// Maximum length of an address from a replica: Redis's limit.
const ADDRESS_BYTES_MAX: usize = 46;
/// Errors on a replica, which doesn't propagate its clients' writes.
const NO_WAIT: Error = Error::fixed(
    "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable \
     (which is not the default) writes to replicas are just local and are not propagated.",
);
const NO_WAITAOF: Error = Error::fixed(
    "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated.",
);

/// Flags of commands that begin a link.
const SYNCS: u32 = ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("psync", -3, SYNCS, Run::Session(psync))
        .facts(fact::HOLDS_CONNECTION)
        .scope(Scope::ByArgs(scope_of_psync))
        .docs(
            Group::Server,
            "2.8.0",
            "O(1)",
            "Makes the connection a replica's, which receives all changes from its offset on, or after a snapshot.",
            "replicationid offset:integer",
        ),
    Spec::new("replconf", -1, ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY, Run::Session(replconf))
        .system()
        .facts(fact::HOLDS_CONNECTION)
        .docs(Group::Server, "3.0.0", "O(1)", "Reports a replica's state to its primary.", ""),
    Spec::new("sync", 1, SYNCS, Run::Session(sync)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Server,
        "1.0.0",
        "O(1)",
        "The older form of PSYNC, which always sends a snapshot.",
        "",
    ),
    Spec::new("wait", 3, 0, Run::Session(wait))
        .facts(fact::HOLDS_CONNECTION)
        .not_in_group_category()
        .categories(acl::CONNECTION)
        .docs(
            Group::Generic,
            "3.0.0",
            "O(1)",
            "Waits until this many replicas have this connection's writes, and returns their number.",
            "numreplicas:integer timeout:integer",
        )
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    Spec::new("waitaof", 4, 0, Run::Session(waitaof))
        .facts(fact::HOLDS_CONNECTION)
        .not_in_group_category()
        .categories(acl::CONNECTION)
        .docs(
            Group::Generic,
            "7.2.0",
            "O(1)",
            "Waits until this connection's writes are on the disks of this server and of its replicas.",
            "numlocal:integer numreplicas:integer timeout:integer",
        )
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
];

fn replconf(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    // An established replica's messages come another way.
    let mut known = turn.session.replica.take().unwrap_or_default();
    for index in (1..turn.len()).step_by(2) {
        let value = turn.arg(index + 1);
        let text = || String::from_utf8_lossy(value).into_owned();
        let name = turn.arg(index).to_ascii_lowercase();
        match &name[..] {
            b"listening-port" => {
                let port = parse_i64(value).and_then(|port| u16::try_from(port).ok());
                known.port = port.ok_or(Error::NOT_INTEGER)?;
            }
            b"ip-address" if value.len() > ADDRESS_BYTES_MAX => {
                return Err(Error::new(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                )));
            }
            b"ip-address" => known.address = (!value.is_empty()).then(text),
            b"capa" => {
                known.takes_marked |= value.eq_ignore_ascii_case(b"eof");
                known.follows_names |= value.eq_ignore_ascii_case(b"psync2");
                known.reads_all_forms |= value.eq_ignore_ascii_case(b"penstock");
            }
            b"version" => known.version = text(),
            // The name of a replica in the cluster, for a primary that hands over when it ends.
            b"set-cluster-node-id" if turn.engine().slots.are_on() => {
                let unknown = || Error::quoting([b"ERR Unknown node ", value].concat());
                known.node = Some(NodeId::new(value).ok_or_else(unknown)?);
            }
            // They get no reply.
            b"ack" | b"fack" => return Ok(()),
            b"getack" => return Ok(()),
            b"rdb-only" | b"rdb-filter-only" if value == b"0" || value.is_empty() => {}
            _ => {
                return Err(Error::quoting(
                    [b"ERR Unrecognized REPLCONF option: ", shown(turn.arg(index), usize::MAX)].concat(),
                ));
            }
        }
    }
    turn.session.replica = Some(known);
    turn.reply.ok();
    Ok(())
}

fn psync(turn: &mut Turn<'_, '_>) -> Outcome {
    let offset = parse_i64(turn.arg(2)).ok_or(Error::NOT_INTEGER)?;
    let behind = u64::try_from(offset).ok().and_then(|next| next.checked_sub(1));
    let wanted = HistoryId::parse(turn.arg(1)).zip(behind);
    if turn.len() > 3 && turn.is(3, "failover") {
        take_over(turn)?;
    }
    depart(turn, wanted.map_or(Wanted::All, |(history, behind)| Wanted::Behind(history, behind)))
}

/// Takes over from the primary, which requests it.
fn take_over(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    if engine.replication.primary().0.is_none() {
        return Err(Error::fixed("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if engine.replication.history().id.as_str().as_bytes() != turn.arg(1) {
        return Err(Error::fixed("ERR PSYNC FAILOVER replid must match my replid."));
    }
    engine.host.log(LogLevel::Notice, "The primary hands over: this server takes its place");
    engine.follow(None, turn.now_ms());
    Ok(())
}

/// With FAILOVER, the server changes its role, which it does alone.
fn scope_of_psync(args: Args<'_>) -> Scope {
    if args.len() > 3 { Scope::Whole } else { Scope::Keys }
}

fn sync(turn: &mut Turn<'_, '_>) -> Outcome {
    depart(turn, Wanted::AllUnannounced)
}

/// Moves the connection to the thread that serves replicas.
fn depart(turn: &mut Turn<'_, '_>, wanted: Wanted) -> Outcome {
    let replication = &turn.engine().replication;
    if replication.primary().0.is_some() && replication.link().state != LinkState::Up {
        return Err(Error::new("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    (turn.session.departs, turn.session.closing) = (Some(wanted), true);
    Ok(())
}

fn wait(turn: &mut Turn<'_, '_>) -> Outcome {
    // Unlike WAITAOF, WAIT reports a replica before invalid arguments.
    refuse_on_replica(turn, NO_WAIT)?;
    // Redis accepts a negative number, and doesn't wait then.
    let replicas = turn.int(1)?.max(0).unsigned_abs();
    let timeout_ms = timeout(turn, 2)?;
    acknowledged(turn, Acknowledgement { position: turn.session.wrote, replicas, on_disk: None, timeout_ms })
}

fn waitaof(turn: &mut Turn<'_, '_>) -> Outcome {
    let local = turn.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::fixed("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas =
        parse_i64(turn.arg(2)).and_then(|replicas| u64::try_from(replicas).ok()).ok_or(Error::NOT_POSITIVE)?;
    let timeout_ms = timeout(turn, 3)?;
    refuse_on_replica(turn, NO_WAITAOF)?;
    let awaited = Acknowledgement { position: turn.session.wrote, replicas, on_disk: Some(local == 1), timeout_ms };
    acknowledged(turn, awaited)
}

fn timeout(turn: &Turn<'_, '_>, index: usize) -> Result<Option<u64>, Error> {
    let timeout = parse_i64(turn.arg(index)).ok_or(Error::new("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(timeout) {
        Ok(0) => Ok(None),
        // Redis's times are signed.
        Ok(timeout_ms) if timeout_ms > (i64::MAX as u64).saturating_sub(turn.now_ms()) => {
            Err(Error::TIMEOUT_OUT_OF_RANGE)
        }
        Ok(timeout_ms) => Ok(Some(timeout_ms)),
        Err(_) => Err(Error::TIMEOUT_NEGATIVE),
    }
}

fn refuse_on_replica(turn: &Turn<'_, '_>, error: Error) -> Outcome {
    if turn.engine().replication.primary().0.is_some() { Err(error) } else { Ok(()) }
}

/// Replies at once if enough replicas have the position; waits otherwise.
fn acknowledged(turn: &mut Turn<'_, '_>, mut awaited: Acknowledgement) -> Outcome {
    let engine = turn.engine();
    // The writes of this batch, which the session doesn't include yet.
    awaited.position = awaited.position.max(turn.worker.wrote);
    if engine.has_acknowledged(&awaited) {
        engine.write_acknowledged(&awaited, &mut turn.reply);
    } else {
        engine.replication.request_answers();
        turn.session.awaited = Some(Awaited::Acknowledgement(awaited));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, check};

    #[test]
    fn waiting_checks_its_arguments() {
        const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
        const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";
        check(&[
            ("wait x 0", NOT_INTEGER),
            ("wait 0 x", "-ERR timeout is not an integer or out of range"),
            ("waitaof x x x", NOT_INTEGER),
            ("waitaof 99999999999999999999 0 0", NOT_INTEGER),
            ("waitaof 2 x x", "-ERR value is out of range, value must between 0 and 1"),
            ("waitaof 0 x x", NOT_POSITIVE),
            ("waitaof 0 -1 x", NOT_POSITIVE),
            ("waitaof 0 0 x", "-ERR timeout is not an integer or out of range"),
            ("replconf \"a\\x00b\" 1", "-ERR Unrecognized REPLCONF option: a"),
        ]);
    }

    #[test]
    fn a_replica_refuses_to_wait() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let wait = "-ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
                    configured to be writable (which is not the default) writes to replicas are just local and are not \
                    propagated.";
        let waitaof = "-ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just \
                       local and are not propagated.";
        let script = [
            ("replicaof 127.0.0.1 1", "+OK"),
            ("wait 1 0", wait),
            ("wait x y", wait),
            ("waitaof 1 0 0", waitaof),
            ("waitaof x 0 0", "-ERR value is not an integer or out of range"),
        ];
        bench.check(&mut session, &script);
    }
}
