//! Saving of data: SAVE, BGSAVE, BGREWRITEAOF and LASTSAVE.
//!
//! Source of the semantics: Redis's pages of these commands, and a running server's replies; BGSAVE CANCEL is Valkey's.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE};
use commands::spec::{Group, Scope, Spec, acl, fact};

use crate::services::saving;
use crate::snapshots::Purpose;
use crate::worker::turn::{Run, Turn};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("bgrewriteaof", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, Run::Session(bgrewriteaof))
        .scope(Scope::Whole)
        .docs(
            Group::Server,
            "1.0.0",
            "O(1)",
            "Begins to rewrite the append-only file from the present data, in the background.",
            "",
        ),
    Spec::new("bgsave", -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, Run::Session(bgsave))
        .scope(Scope::Whole)
        .docs(
            Group::Server,
            "1.0.0",
            "O(1)",
            "Begins to save a snapshot of this moment, in the background.",
            "[SCHEDULE@3.2.2 | CANCEL@8.1.0]:operation",
        )
        .history(&[("3.2.2", "`SCHEDULE`."), ("8.1.0", "`CANCEL`, in Valkey.")]),
    Spec::new("lastsave", 1, LOADING | STALE | FAST, Run::Session(lastsave))
        .facts(fact::TELLS)
        .brief()
        .categories(acl::ADMIN | acl::DANGEROUS)
        .docs(
            Group::Server,
            "1.0.0",
            "O(1)",
            "Returns the time of the last snapshot; without one, of the server's start.",
            "",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("save", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, Run::Session(save)).scope(Scope::Whole).docs(
        Group::Server,
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "Saves a snapshot while everything else waits.",
        "",
    ),
];

fn save(turn: &mut Turn<'_, '_>) -> Outcome {
    saving::save_now(turn.engine(), turn.locked, &turn.worker.clock)?;
    turn.reply.ok();
    Ok(())
}

fn bgsave(turn: &mut Turn<'_, '_>) -> Outcome {
    let is_scheduled = match turn.len() {
        1 => false,
        2 if turn.is(1, "SCHEDULE") => true,
        2 if turn.is(1, "CANCEL") => return cancel(turn),
        _ => return Err(Error::SYNTAX),
    };
    let snapshots = &turn.engine().snapshots;
    match snapshots.purpose() {
        Some(Purpose::File) => Err(Error::new("ERR Background save already in progress")),
        Some(Purpose::Base | Purpose::Replicas | Purpose::Slots) if is_scheduled => {
            snapshots.want(Purpose::File);
            turn.reply.simple("Background saving scheduled");
            Ok(())
        }
        Some(Purpose::Base | Purpose::Replicas | Purpose::Slots) => Err(Error::new(saving::ANOTHER_RUNS)),
        None => {
            begin(turn, Purpose::File)?;
            turn.reply.simple("Background saving started");
            Ok(())
        }
    }
}

/// Begins a snapshot now, or after the present transaction, whose changes are not a complete unit yet.
fn begin(turn: &mut Turn<'_, '_>, purpose: Purpose) -> Outcome {
    if turn.session.in_exec {
        turn.engine().snapshots.want(purpose);
        return Ok(());
    }
    saving::begin(turn.engine(), turn.locked, &turn.worker.clock, purpose)
}

fn cancel(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let is_file = engine.snapshots.purpose() == Some(Purpose::File);
    if is_file && saving::cancel(engine, turn.locked) {
        turn.reply.simple("Background saving cancelled");
    } else if engine.snapshots.is_wanted_for(Purpose::File) {
        engine.snapshots.forget_wanted(Purpose::File);
        turn.reply.simple("Scheduled background saving cancelled");
    } else {
        return Err(Error::new("ERR Background saving is currently not in progress or scheduled"));
    }
    Ok(())
}

fn bgrewriteaof(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    match engine.snapshots.purpose() {
        Some(Purpose::Base) => {
            return Err(Error::new("ERR Background append only file rewriting already in progress"));
        }
        Some(Purpose::File | Purpose::Replicas | Purpose::Slots) => {
            engine.snapshots.want(Purpose::Base);
            turn.reply.simple("Background append only file rewriting scheduled");
        }
        None => {
            begin(turn, Purpose::Base)?;
            turn.reply.simple("Background append only file rewriting started");
        }
    }
    Ok(())
}

fn lastsave(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.int(turn.engine().snapshots.figures().saved_s as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::snapshots::Purpose;
    use crate::testing::Bench;

    #[test]
    fn a_snapshot_that_is_due_and_cannot_be_begun_counts_as_failed() {
        // The server of these tests can't write snapshots.
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        engine.snapshots.want(Purpose::File);
        bench.worker.begin_wanted_snapshot();
        assert!(engine.snapshots.figures().has_failed && engine.snapshots.wanted().is_none());
        assert!(bench.line(&mut session, "SET k v").starts_with("-MISCONF Redis is configured to save RDB snapshots"));
        bench.line(&mut session, "CONFIG SET stop-writes-on-bgsave-error no");
        assert_eq!(bench.line(&mut session, "SET k v"), "+OK");
    }
}
