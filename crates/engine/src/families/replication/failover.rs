//! FAILOVER: makes a replica take this server's place without losses.
//!
//! Source of the semantics: Redis's page of FAILOVER, and the replies of a running server.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec};

use crate::replication::Primary;
use crate::replication::replicas::{ReplicaFigures, ReplicaStage};
use crate::worker::turn::{Run, Turn};
use config::LogLevel;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] =
    &[Spec::new("failover", -1, ADMIN | NOSCRIPT | STALE, Run::Session(failover)).scope(Scope::Whole).docs(
        Group::Server,
        "6.2.0",
        "O(1)",
        "Makes a replica take the server's place once it has all data; writes wait until then.",
        "[TO:target host:string port:integer [FORCE]] [ABORT] [TIMEOUT milliseconds:integer]",
    )];

#[derive(Default)]
struct Wish {
    target: Option<Primary>,
    timeout_ms: Option<u64>,
    is_forced: bool,
    is_abort: bool,
}

fn parse(turn: &Turn<'_, '_>) -> Result<Wish, Error> {
    let mut wish = Wish::default();
    let mut at = 1;
    while at < turn.len() {
        if turn.is(at, "timeout") && at + 1 < turn.len() && wish.timeout_ms.is_none() {
            let timeout_ms = u64::try_from(turn.int(at + 1)?).ok().filter(|&timeout_ms| timeout_ms > 0);
            wish.timeout_ms = Some(timeout_ms.ok_or(Error::fixed("ERR FAILOVER timeout must be greater than 0"))?);
            at += 2;
        } else if turn.is(at, "abort") && turn.len() == 2 {
            wish.is_abort = true;
            at += 1;
        } else if turn.is(at, "to") && at + 2 < turn.len() && wish.target.is_none() {
            let host = String::from_utf8_lossy(turn.arg(at + 1)).into_owned();
            // An invalid port matches no replica.
            let port = u16::try_from(turn.int(at + 2)?).unwrap_or_default();
            wish.target = Some(Primary { host, port });
            at += 3;
        } else if turn.is(at, "force") && !wish.is_forced {
            wish.is_forced = true;
            at += 1;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(wish)
}

fn failover(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.engine().slots.are_on() {
        let error = "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.";
        return Err(Error::fixed(error));
    }
    let wish = parse(turn)?;
    let engine = turn.engine();
    if wish.is_abort {
        if !engine.abort_failover(turn.now_ms()) {
            return Err(Error::fixed("ERR No failover in progress."));
        }
        engine.host.log(LogLevel::Notice, "The failover was aborted.");
        turn.reply.ok();
        return Ok(());
    }
    check(turn, &wish)?;
    let now_ms = turn.now_ms();
    let deadline_ms = wish.timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
    engine.begin_failover(wish.target, deadline_ms, wish.is_forced, now_ms);
    turn.reply.ok();
    Ok(())
}

/// Checks that a failover is possible now, with Redis's errors.
fn check(turn: &Turn<'_, '_>, wish: &Wish) -> Outcome {
    let replication = &turn.engine().replication;
    let refuse = |text: &'static str| Err(Error::fixed(text));
    if replication.primary().0.is_some() {
        return refuse("ERR FAILOVER is not valid when server is a replica.");
    }
    let replicas = replication.replicas.all();
    if replicas.is_empty() {
        return refuse("ERR FAILOVER requires connected replicas.");
    }
    if replication.failover().is_some() {
        return refuse("ERR FAILOVER already in progress.");
    }
    if wish.is_forced && (wish.target.is_none() || wish.timeout_ms.is_none()) {
        return refuse("ERR FAILOVER with force option requires both a timeout and target HOST and IP to be set.");
    }
    let Some(target) = &wish.target else { return Ok(()) };
    match replicas.iter().find(|replica| is_at(replica, target)) {
        None => refuse("ERR FAILOVER target HOST and PORT is not a replica."),
        Some(replica) if replica.stage != ReplicaStage::Online => refuse("ERR FAILOVER target replica is not online."),
        Some(_) => Ok(()),
    }
}

fn is_at(replica: &ReplicaFigures, target: &Primary) -> bool {
    replica.address.eq_ignore_ascii_case(&target.host) && replica.port == target.port
}

#[cfg(test)]
mod tests {
    use crate::clients::progress::Progress;
    use crate::pause::PausePurpose;
    use crate::replication::failover::{Failover, FailoverStage};
    use crate::testing::{Bench, check};

    fn failover() -> Failover {
        Failover {
            target: None,
            deadline_ms: None,
            is_forced: false,
            has_asked_for_hold: false,
            stage: FailoverStage::AwaitsReplica,
        }
    }

    /// A token's count is a unit of the stream, too: replicas would never be in sync otherwise.
    #[test]
    fn counted_commands_wait_like_writes() {
        let mut bench = Bench::default();
        let (mut counts, mut other) = (bench.open(), bench.open());
        let engine = bench.worker.engine;
        bench.check(&mut counts, &[("pipeline start t", "+OK"), ("get k", "$-1")]);
        engine.pause.begin(PausePurpose::Failover, false, bench.now_us / 1000, u64::MAX);
        // CLIENT PAUSE doesn't hold it back.
        bench.check(&mut counts, &[("get k", "$-1")]);
        engine.replication.begin_failover(failover());
        bench.check(&mut other, &[("get k", "$-1")]);
        assert_eq!(bench.run(&mut counts, b"GET k\r\n"), (Vec::new(), Progress::Paused));
        bench.check(&mut other, &[("failover abort", "+OK")]);
        assert_eq!(bench.run(&mut counts, b"GET k\r\n"), (b"$-1\r\n".to_vec(), Progress::Ready));
    }

    /// Writes between the moment when a replica has all data and its promotion would be lost otherwise.
    #[test]
    fn the_end_of_a_client_pause_does_not_let_writes_through() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        engine.pause.begin(PausePurpose::Failover, false, bench.now_us / 1000, u64::MAX);
        engine.replication.begin_failover(failover());
        bench.check(&mut session, &[("client pause 1000 write", "+OK"), ("client unpause", "+OK")]);
        assert_eq!(bench.run(&mut session, b"SET k v\r\n"), (Vec::new(), Progress::Paused));
        let mut other = bench.open();
        bench.check(&mut other, &[("failover abort", "+OK")]);
        assert_eq!(bench.run(&mut session, b"SET k v\r\n"), (b"+OK\r\n".to_vec(), Progress::Ready));
    }

    /// Clients would wait for an endless failover otherwise.
    #[test]
    fn no_primary_is_chosen_while_a_replica_is_to_take_over() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.worker.engine.replication.begin_failover(failover());
        const NOT_NOW: &str = "-ERR REPLICAOF not allowed while failing over.";
        let script = [
            ("replicaof no one", NOT_NOW),
            ("slaveof 127.0.0.1 1", NOT_NOW),
            ("failover abort", "+OK"),
            ("replicaof no one", "+OK"),
        ];
        bench.check(&mut session, &script);
    }

    #[test]
    fn failover_needs_replicas() {
        const NO_REPLICAS: &str = "-ERR FAILOVER requires connected replicas.";
        check(&[
            ("failover", NO_REPLICAS),
            ("failover to 1.2.3.4 99 force timeout 5", NO_REPLICAS),
            ("failover abort", "-ERR No failover in progress."),
            ("failover abort timeout 1", "-ERR syntax error"),
            ("failover timeout 0", "-ERR FAILOVER timeout must be greater than 0"),
            ("failover timeout x", "-ERR value is not an integer or out of range"),
            ("failover to 1.2.3.4 x", "-ERR value is not an integer or out of range"),
            ("failover to x", "-ERR syntax error"),
            ("failover bogus", "-ERR syntax error"),
        ]);
    }
}
