//! What is looked at ahead for a session that may not do everything: the commands of a window are held against its user's
//! rules when they are planned, so that those which may run take the same ways as any others.

use commands::spec::fact;
use resp::request::{Args, Input, Limits, Stop};

use super::windows::{Guard, Stint, plan, plan_each};
use crate::access::{Permissions, Sieve};
use crate::clients::session::Session;
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
        self.plan_by_rules(session, stint.input, tables);
        framed
    }

    /// Plans a window. The commands that may not run by the user's rules, and those that must be looked at when they do, are
    /// admitted with care.
    // On its own for the registers' sake, as `plan` is.
    #[inline(never)]
    fn plan_by_rules(&self, session: &Session, input: Input<'_>, tables: &mut Tables) {
        let Tables { batch, planned, keys } = tables;
        let Some(permissions) = session.permissions() else { return plan(batch, input, planned, keys) };
        let (sieve, database) = (permissions.sieve(session.database), session.database);
        plan_each(batch, input, planned, keys, &mut Rules { sieve, worker: self, permissions, database });
    }
}

/// A user's rules, which commands are held against as they are planned.
struct Rules<'a> {
    sieve: Sieve<'a>,
    worker: &'a Worker,
    permissions: &'a Permissions,
    database: usize,
}

impl Guard for Rules<'_> {
    #[inline(always)]
    fn turn_to(&mut self, plan: &Planned) {
        self.sieve.turn_to(plan.command.filter(|_| plan.fits));
    }

    #[inline(always)]
    fn passes(&self, key: &[u8]) -> bool {
        self.sieve.passes(key)
    }

    #[inline(never)]
    fn look_again(&mut self, plan: &mut Planned, args: Args<'_>, key: &[u8]) {
        let Some(command) = plan.command.filter(|_| !self.sieve.passes_otherwise(key)) else { return };
        let asked = self.worker.asked(self.database, command, args);
        if self.permissions.check(asked).is_err() || command.info.is(fact::LOOKS_UP) {
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

    /// A bench with a session of a user with these rules, and a window of its commands, framed.
    fn framed(rules: &str, bytes: &[u8], count: usize) -> (Bench, Session, Tables) {
        let mut bench = Bench::default();
        let (mut admin, mut session) = (bench.open(), bench.open());
        bench.check(&mut admin, &[(&format!("acl setuser al on nopass {rules}"), "+OK")]);
        bench.check(&mut session, &[("auth al x", "+OK")]);
        let mut tables = Tables { batch: Batch::default(), planned: Vec::new(), keys: Vec::new() };
        let limits = bench.worker.limits;
        Framer::default().frame(bytes.into(), 0, &limits, count, &mut tables.batch);
        (bench, session, tables)
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
            let bytes = request(command).repeat(2);
            let (bench, session, mut tables) = framed(rules, &bytes, 2);
            bench.worker.plan_by_rules(&session, bytes[..].into(), &mut tables);
            let found: Vec<_> = tables.planned.iter().map(|plan| (plan.quick.is_some(), plan.fits)).collect();
            assert_eq!(found, [(is_quick, is_quick); 2], "{rules} {command:?}");
        }
    }

    #[test]
    fn each_command_of_a_mixed_window_is_held_against_the_rules() {
        let lines = [
            "get k1",
            "get k2",
            "get l1",
            "get k1",
            "set k1 v",
            "set l1 v",
            "mget k1 k2",
            "mget k1 l1",
            "get l7",
            "get",
            "ping",
            "nonsense x",
            "config get port",
            "object encoding k1",
            "object encoding l1",
            "get k",
            "get key:of:more:bytes",
            "touch k1",
            "copy k1 l1",
            "publish a b",
            "strlen l1",
            "getdel k1",
            "getdel l1",
            "get l1",
        ];
        let bytes: Vec<u8> = lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
        for rules in [
            "~k* +@all",
            "~l* ~k* +@all",
            "%R~k* %W~l* +@all",
            "%R~l* ~k* %R~k? -@all +get +set",
            "~k? +@all -ping &a",
            "~[kl]1 +get +object|encoding",
            "~k*[0-9] +@read",
            "(~l* +get) (~k* +set) (%R~k* +@read)",
            "~k1 -@all +set (~* +getdel)",
            "~* +@all -get",
            "~* +@all resetdbs (~l* +get)",
            "-@all",
        ] {
            let (bench, session, mut tables) = framed(rules, &bytes, lines.len());
            bench.worker.plan_by_rules(&session, bytes[..].into(), &mut tables);
            let found: Vec<bool> = tables.planned.iter().map(|plan| plan.fits).collect();
            plan(&tables.batch, bytes[..].into(), &mut tables.planned, &mut tables.keys);
            let may_run = |(request, plan): (_, &Planned)| {
                let args = tables.batch.args(request, bytes[..].into());
                let asked = |command| bench.worker.asked(0, command, args);
                plan.fits && plan.command.is_some_and(|c| session.permissions().unwrap().check(asked(c)).is_ok())
            };
            let expected: Vec<bool> = tables.batch.requests().iter().zip(&tables.planned).map(may_run).collect();
            assert_eq!(found, expected, "{rules}");
        }
    }
}
