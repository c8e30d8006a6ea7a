//! Planning with guards: for sessions with limited permissions, and for all sessions of a cluster's node. The commands of
//! a window are checked when they are planned, against the user's rules and against the slots that the node serves, so
//! that permitted commands take the fast path.

use commands::call::KeyRef;
use commands::spec::{fact, flag};
use resp::request::{Args, Batch, Input, Limits, Stop};
use store::keyspace::{Key, ShardHints};

use super::windows::{BatchRun, Guard, plan, plan_each};
use crate::clients::session::Session;
use crate::replies::UNAUTHENTICATED_BYTES_MAX;
use crate::services::routing::is_sharded;
use crate::slots::SlotView;
use crate::slots::check::{moved_to, slot_of};
use crate::slots::guard::SlotGuard;
use crate::worker::Worker;
use crate::worker::tables::{Planned, Tables};
use access::{BatchAclCheck, Permissions};

impl Worker {
    /// Frames and plans the next window of a session that is unauthenticated, has a user with limited permissions, or
    /// belongs to a node of a cluster.
    #[inline(never)]
    pub(super) fn frame_guarded(
        &self,
        session: &mut Session,
        batch_run: &mut BatchRun<'_>,
        tables: &mut Tables,
        window: usize,
    ) -> (usize, Stop) {
        session.begin_plan();
        // Authentication changes the limits of later requests, so requests before it are framed one by one.
        let unauthenticated = self.engine.must_authenticate(session);
        let (window, bytes) =
            if unauthenticated { (1, UNAUTHENTICATED_BYTES_MAX) } else { (window, self.reply_bytes_max()) };
        batch_run.replies_end = batch_run.written + bytes;
        let limits = Limits { unauthenticated, ..*self.framing_limits() };
        let framed = session.framer.frame(batch_run.input, batch_run.at, &limits, window, &mut tables.batch);
        self.plan_by_rules(session, batch_run.input, tables);
        framed
    }

    /// Plans a window. Commands that the user's rules forbid, commands with keys of foreign slots, and commands that
    /// need checks when they run, take the slow path.
    // Each variant has a function of its own, to save registers, like `plan`.
    #[inline(never)]
    fn plan_by_rules(&self, session: &Session, input: Input<'_>, tables: &mut Tables) {
        let Tables { batch, planned, keys } = tables;
        let database = session.database;
        let rules = session.permissions().map(|permissions| {
            let acl_check = permissions.acl_check(database);
            Rules { acl_check, worker: self, permissions, database }
        });
        let crosses = self.engine.crosses_slots();
        let forwards = self.forwards_directly(session);
        let slots = self.view_for(session).map(|view| Slots {
            guard: SlotGuard::new(view, session.reads_replica(), crosses),
            hints: self.engine.keyspace.shard_hints(database),
            others: forwards.then_some(view),
        });
        match (rules, slots) {
            (None, None) => plan(batch, input, planned, keys),
            (None, Some(mut slots)) => plan_by_slots(batch, input, planned, keys, &mut slots),
            (Some(mut rules), None) => plan_each(batch, input, planned, keys, &mut rules),
            (Some(rules), Some(slots)) => plan_each(batch, input, planned, keys, &mut Both { rules, slots }),
        }
    }

    /// Adopts changes that happened while the thread was outside the gate: the session's user, and the cluster's slots.
    #[inline]
    pub(crate) fn follow_changes(&mut self, session: &mut Session) {
        session.handle_signals();
        if session.is_clustered() && self.slots.follow(&self.engine.slots, self.clock.now_ms) {
            session.replan();
        }
    }
}

/// Plans a window of an unrestricted session on a node of a cluster.
#[inline(never)]
fn plan_by_slots(
    batch: &Batch,
    input: Input<'_>,
    planned: &mut Vec<Planned>,
    keys: &mut Vec<KeyRef>,
    slots: &mut Slots<'_>,
) {
    plan_each(batch, input, planned, keys, slots);
}

/// Sends a command along the slow path, which checks it in full.
fn take_slow_path(plan: &mut Planned) {
    (plan.fits, plan.one_key, plan.is_keyless) = (false, None, false);
}

/// The guard of an unrestricted user on a node of a cluster. Also prefetches the shards of the keys, because their number is known here first.
struct Slots<'a> {
    guard: SlotGuard<'a>,
    hints: ShardHints<'a>,
    /// The view, if commands may be forwarded to the nodes that serve their keys.
    others: Option<&'a SlotView>,
}

impl Slots<'_> {
    /// Plans that another node runs a command, if the command only sees its only key, and that node serves the key.
    #[inline(always)]
    fn forward(&self, plan: &mut Planned, only: Option<Key<'_>>, keys: &mut Vec<KeyRef>, from: usize) {
        if let (Some(view), Some(key), true) = (self.others, only, plan.one_key.is_some()) {
            plan.forwards_to = moved_to(view, slot_of(key.hash));
            if plan.forwards_to.is_some() {
                keys.truncate(from);
                plan.keys_end = plan.keys_start;
            }
        }
    }
}

impl Guard for Slots<'_> {
    #[inline(always)]
    fn turn_to(&mut self, plan: &Planned) {
        self.guard.turn_to(plan.command.is_some_and(|command| command.info.has(flag::READONLY)));
    }

    #[inline(always)]
    fn passes(&self, only: Option<Key<'_>>, keys: &[KeyRef], from: usize) -> bool {
        if let Some(key) = only {
            let is_here = self.guard.serves(key.hash);
            if is_here {
                self.hints.shard(key.hash);
            }
            return is_here;
        }
        keys[from..].iter().for_each(|key| self.hints.shard(key.hash));
        self.guard.passes(keys[from..].iter().map(|key| key.hash))
    }

    #[inline(never)]
    fn look_again(
        &mut self,
        plan: &mut Planned,
        _: Args<'_>,
        only: Option<Key<'_>>,
        keys: &mut Vec<KeyRef>,
        from: usize,
    ) {
        if !is_across(&self.guard, plan, &keys[from..]) {
            self.forward(plan, only, keys, from);
            take_slow_path(plan);
        }
    }
}

/// Returns true if a command has keys in several slots and may run here. Shard channels have one slot.
fn is_across(slots: &SlotGuard<'_>, plan: &Planned, keys: &[KeyRef]) -> bool {
    slots.passes_across(keys.iter().map(|key| key.hash)) && !plan.command.is_some_and(is_sharded)
}

/// The guard of a restricted user on a node of a cluster.
struct Both<'a> {
    rules: Rules<'a>,
    slots: Slots<'a>,
}

impl Guard for Both<'_> {
    #[inline(always)]
    fn turn_to(&mut self, plan: &Planned) {
        self.rules.turn_to(plan);
        Guard::turn_to(&mut self.slots, plan);
    }

    #[inline(always)]
    fn passes(&self, only: Option<Key<'_>>, keys: &[KeyRef], from: usize) -> bool {
        Guard::passes(&self.slots, only, keys, from) && self.rules.passes(only, keys, from)
    }

    #[inline(never)]
    fn look_again(
        &mut self,
        plan: &mut Planned,
        args: Args<'_>,
        only: Option<Key<'_>>,
        keys: &mut Vec<KeyRef>,
        from: usize,
    ) {
        match Guard::passes(&self.slots, only, keys, from) || is_across(&self.slots.guard, plan, &keys[from..]) {
            true => self.rules.look_again(plan, args, only, keys, from),
            false => take_slow_path(plan),
        }
    }
}

/// Returns the bytes of a command's only key. Rules take an empty one for several keys or none.
#[inline(always)]
fn bytes_of<'k>(only: Option<Key<'k>>) -> &'k [u8] {
    only.map_or(b"", |key| key.bytes)
}

/// A user's rules, which commands are checked against while they are planned.
struct Rules<'a> {
    acl_check: BatchAclCheck<'a>,
    worker: &'a Worker,
    permissions: &'a Permissions,
    database: usize,
}

impl Guard for Rules<'_> {
    #[inline(always)]
    fn turn_to(&mut self, plan: &Planned) {
        self.acl_check.turn_to(plan.command.filter(|_| plan.fits));
    }

    #[inline(always)]
    fn passes(&self, only: Option<Key<'_>>, _: &[KeyRef], _: usize) -> bool {
        self.acl_check.passes(bytes_of(only))
    }

    #[inline(never)]
    fn look_again(&mut self, plan: &mut Planned, args: Args<'_>, only: Option<Key<'_>>, _: &mut Vec<KeyRef>, _: usize) {
        let Some(command) = plan.command.filter(|_| !self.acl_check.passes_otherwise(bytes_of(only))) else { return };
        let asked = self.worker.asked(self.database, command, args);
        if self.permissions.check(asked).is_err() || command.info.is(fact::LOOKS_UP) {
            take_slow_path(plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use resp::request::Framer;

    use super::*;
    use crate::clients::session::Session;
    use crate::testing::{Bench, request};

    /// Returns a bench with a session of a user with these rules, and a framed window of its commands.
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
    fn permitted_commands_take_the_fast_path() {
        for (rules, command, is_fast) in [
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
            let found: Vec<_> = tables.planned.iter().map(|plan| (plan.one_key.is_some(), plan.fits)).collect();
            assert_eq!(found, [(is_fast, is_fast); 2], "{rules} {command:?}");
        }
    }

    #[test]
    fn each_command_of_a_mixed_window_is_checked_against_the_rules() {
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
