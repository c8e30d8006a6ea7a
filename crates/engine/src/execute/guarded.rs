//! What is looked at ahead for a session that may not do everything: the commands of a window are held against its user's
//! rules when they are planned, so that those which may run take the same ways as any others.

use commands::spec::fact;
use resp::request::{Args, Input, Limits, Stop};

use super::windows::{Stint, plan};
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::replies::UNAUTHENTICATED_BYTES_MAX;
use crate::worker::Worker;
use crate::worker::tables::{Planned, Tables};

impl Worker {
    /// Frames and plans the next window of a session that has yet to authenticate, or whose user isn't allowed everything.
    #[inline(never)]
    pub(super) fn frame_guarded(
        &self,
        session: &mut Session,
        stint: &mut Stint<'_>,
        tables: &mut Tables,
        window: usize,
    ) -> (usize, Stop) {
        session.begin_plan();
        // Authentication changes the limits of what follows, so what comes before it is framed one by one.
        let unauthenticated = self.engine.must_authenticate(session);
        let (window, bytes) =
            if unauthenticated { (1, UNAUTHENTICATED_BYTES_MAX) } else { (window, self.reply_bytes_max()) };
        stint.replies_end = stint.written + bytes;
        let limits = Limits { unauthenticated, ..self.limits };
        let framed = session.framer.frame(stint.input, stint.at, &limits, window, &mut tables.batch);
        plan(&tables.batch, stint.input, &mut tables.planned, &mut tables.keys);
        self.hold_against_rules(session, stint.input, tables);
        framed
    }

    /// Has the commands that may not run, and those that must be looked at when they do, be admitted with care.
    fn hold_against_rules(&self, session: &Session, input: Input<'_>, tables: &mut Tables) {
        let Some(permissions) = session.permissions() else { return };
        let Tables { batch, planned, keys } = tables;
        let mut sieve = permissions.sieve(session.database);
        for (request, plan) in batch.requests().iter().zip(planned.iter_mut()) {
            let Some(command) = plan.command else { continue };
            let args = || batch.args(request, input);
            let key = || keys.get(plan.keys_start as usize).map(|key| args().get(key.arg as usize));
            if !sieve.passes(command, key) && plan.fits {
                self.hold_one(session, plan, command, args());
            }
        }
    }

    /// The same of one command that doesn't pass for sure.
    #[inline(never)]
    fn hold_one(&self, session: &Session, plan: &mut Planned, command: &'static Command, args: Args<'_>) {
        let asked = self.asked(session.database, command, args);
        let is_denied = session.permissions().is_some_and(|permissions| permissions.check(asked).is_err());
        if is_denied || command.info.is(fact::LOOKS_UP) {
            (plan.fits, plan.quick, plan.is_keyless) = (false, None, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use resp::request::{Batch, Framer};

    use super::*;
    use crate::clients::session::Session;
    use crate::testing::{Bench, request};

    /// A bench with a session whose user has these rules, and a window of so many commands of it, planned.
    fn planned(rules: &str, command: &[&str], count: usize) -> (Bench, Session, Vec<u8>, Tables) {
        let mut bench = Bench::default();
        let (mut admin, mut session) = (bench.open(), bench.open());
        bench.check(&mut admin, &[(&format!("acl setuser al on nopass {rules}"), "+OK")]);
        bench.check(&mut session, &[("auth al x", "+OK")]);
        let bytes = request(command).repeat(count);
        let mut tables = Tables { batch: Batch::default(), planned: Vec::new(), keys: Vec::new() };
        let limits = bench.worker.limits;
        Framer::default().frame(bytes[..].into(), 0, &limits, count, &mut tables.batch);
        plan(&tables.batch, bytes[..].into(), &mut tables.planned, &mut tables.keys);
        (bench, session, bytes, tables)
    }

    #[test]
    fn what_may_run_takes_the_same_ways_as_any_other() {
        for (rules, command, is_quick) in [
            ("~k* +get", &["get", "k"][..], true),
            ("~k* +get", &["get", "l"], false),
            ("%W~k* +get", &["get", "k"], false),
            ("~k* -@all", &["get", "k"], false),
            ("(~k* +get) (~l* +set)", &["get", "k"], true),
            ("(~l* +set) (~k* +get)", &["get", "k"], true),
            ("(~l* +set) (~k* +get)", &["get", "l"], false),
            ("~k* +set (+@all ~j* ~k*)", &["get", "k"], true),
            ("(+@all ~* resetdbs) (+get ~*)", &["get", "k"], true),
            ("~k*[0-9] +get", &["get", "k7"], true),
            ("~k*[0-9] +get", &["get", "7"], false),
            ("~* +@all", &["get", "k"], true),
            ("~* +@all resetdbs", &["get", "k"], false),
            ("~* +@all db=0", &["get", "k"], true),
        ] {
            let (bench, session, bytes, mut tables) = planned(rules, command, 2);
            bench.worker.hold_against_rules(&session, bytes[..].into(), &mut tables);
            let found: Vec<_> = tables.planned.iter().map(|plan| (plan.quick.is_some(), plan.fits)).collect();
            assert_eq!(found, [(is_quick, is_quick); 2], "{rules} {command:?}");
        }
    }
}
