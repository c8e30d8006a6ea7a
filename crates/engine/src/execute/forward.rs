//! Commands that another node of the cluster runs in the client's place (`cluster-forward`).
//!
//! A redirect becomes an entry of [`Forwarded`] instead of an error, if the connection is one of a client that knows no clusters and the
//! command depends on nothing but its keys. The server sends the entries after the run and puts the replies into their places.

use std::sync::atomic::Ordering;

use commands::spec::{acl, fact, flag, key_flag};
use resp::reply::{Output, Proto};

use super::Invocation;
use crate::clients::client::client_flag;
use crate::clients::progress::Progress;
use crate::clients::session::{Multi, ReplyMode, Session};
use crate::clients::transaction::is_exec;
use crate::services::routing::is_sharded;
use crate::slots::check::Redirect;
use crate::slots::forward::{Counted, Forwarded, ForwardedCommand, push_request};
use crate::worker::tables::Planned;
use crate::worker::{GateGuard, Worker, hash_keys};
use cluster::view::{NodeIndex, NodeView};
use commands::table::Command;
use config::ClusterForward;
use journal::order::Position;
use resp::request::Args;

/// A node that runs a command, and true if ASKING must precede the command.
pub(super) type Destination = (NodeIndex, bool);

impl Worker {
    /// Returns the node to forward a redirected command to. None if the client gets the redirect.
    pub(super) fn destination(
        &self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
        redirect: Redirect,
    ) -> Option<Destination> {
        let destination = match redirect {
            Redirect::Moved(_, node) => (node, false),
            Redirect::Ask(_, node) => (node, true),
            _ => return None,
        };
        let is_open = session.forwarding.is_open() && !self.scripts.busy_turn && !depends_on_connection(session);
        let is_free = match &session.multi {
            Some(multi) if is_exec(command) => {
                multi.queue.iter().all(|queued| depends_on_keys_only(queued.command, &queued.args.args()))
            }
            _ => depends_on_keys_only(command, args),
        };
        (is_open && is_free).then_some(destination)
    }

    /// Returns true if commands of a session may be planned as those of other nodes. They must not wait for each other.
    pub(super) fn forwards_directly(&self, session: &Session) -> bool {
        session.forwarding.is_open() && self.engine.settings.cluster_forward.get() == ClusterForward::Yes
    }

    /// Runs a command whose plan names another node. `is_fast`: the session and this node need no checks. The command takes the path of all
    /// others if they do, or if its result depends on the connection since an earlier command of the batch.
    pub(super) fn dispatch_foreign(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        (node, is_fast): (NodeIndex, bool),
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let Some(command) = plan.command else { return self.dispatch(session, plan, args, &[], out, inside) };
        let is_open = is_fast && session.forwarding.is_open() && !self.may_hold_back(self.slow_path());
        if !is_open || session.tally().is_some() || depends_on_connection(session) {
            let mut keys = Vec::new();
            hash_keys(command, *args, &mut keys);
            return self.dispatch(session, plan, args, &keys, out, inside);
        }
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        let only_reads = command.info.has(flag::READONLY);
        self.push_forwarded(session, (node, false), None, (only_reads, 0), out, |requests| {
            push_request(args, requests)
        });
        Progress::Ready
    }

    /// Forwards a command, or the transaction that EXEC ends.
    pub(super) fn forward(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        destination: Destination,
        out: &Output,
    ) {
        let transaction = if is_exec(invoked.command) { session.multi.take() } else { None };
        // Once its reply has arrived, `count_answered` counts the command.
        let counted = session.defer_count().map(|(counter, counted)| {
            self.forwarded.counter = Some(counter);
            counted
        });
        if let Some(multi) = transaction {
            session.set_multi(None);
            let only_reads = multi.queue.iter().all(|queued| self.only_reads(queued.command, &queued.args.args()));
            let facts = (only_reads, multi.queue.len() + 1);
            self.push_forwarded(session, destination, counted, facts, out, |requests| {
                push_transaction(requests, &multi, invoked.args);
            });
        } else {
            let only_reads = self.only_reads(invoked.command, invoked.args);
            self.push_forwarded(session, destination, counted, (only_reads, 0), out, |requests| {
                push_request(invoked.args, requests);
            });
        }
        if self.engine.settings.cluster_forward.get() == ClusterForward::Strict {
            session.set_awaits_node(true);
        }
    }

    /// Appends the requests that `push` writes to those for a node. `only_reads`: they change nothing. `skipped`: the number of replies
    /// before the one that the client gets.
    #[inline]
    fn push_forwarded(
        &mut self,
        session: &mut Session,
        (index, asks): Destination,
        counted: Option<Counted>,
        (only_reads, skipped): (bool, usize),
        out: &Output,
        push: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(view) = self.slots.view() else { return };
        let Some(node) = view.nodes.get(index.place()) else { return };
        session.forwarding.note(view.edition, node.id);
        let uses_tls = || self.engine.settings.tls_cluster.get();
        let address = || (node.endpoints.ip.as_str(), node.endpoints.ports.of(uses_tls()));
        let target = self.forwarded.target((view.edition, index), address, session.proto == Proto::Resp3);
        let (at, attaches, end) = (out.len(), false, 0);
        let command = ForwardedCommand { at, target, asks, only_reads, counted, attaches, skipped, end };
        self.forwarded.push(command, push);
        self.stats().forwarded_commands.add(1);
    }

    fn only_reads(&self, command: &Command, args: &Args<'_>) -> bool {
        self.engine.flags_of(command, args) & flag::READONLY != 0
    }

    /// Returns true if a connection's commands must wait for the replies of other nodes, because the map of the slots has changed since.
    #[inline]
    pub(super) fn must_await_nodes(&self, session: &Session) -> bool {
        self.slots.view().is_some_and(|view| !session.forwarding.allows(view.edition))
    }

    /// Returns true if a command must run after commands that another node runs (`cluster-forward strict`). `redirect`: the redirect of
    /// this command, if it has one.
    pub(super) fn follows_strictly(&self, session: &Session, redirect: Option<Redirect>) -> bool {
        let Some(view) = self.slots.view() else { return false };
        match redirect {
            Some(Redirect::Moved(_, node)) => {
                !view.nodes.get(node.place()).is_some_and(|node| session.forwarding.is_at(&node.id))
            }
            _ => true,
        }
    }

    /// Counts a command that another node has answered, for the session's pipeline, and records the count. `counted` has its positions.
    /// Returns the position of the log that the reply must wait for: that of the record of a failure, which this node alone may have
    /// counted. Returns `None` during a failover: the replica that takes this server's place would miss the record, so that the caller
    /// closes the connection. RESUME asks the other node then.
    #[must_use]
    pub fn count_answered(&mut self, session: &mut Session, counted: Counted, reply: &[u8]) -> Option<Position> {
        // Behind the gate, because a failover begins with a pause, and closes the gate before it takes the replica's offset.
        let inside = self.enter_gate();
        if self.engine.fails_over(self.clock.now_ms) {
            return None;
        }
        let has_failed = session.count_answered(&self.engine.pipelines, counted, reply);
        let mut until = 0;
        if inside.is_some() {
            // The next unit's reply must not wait for this record. The session's next forwarded command does.
            let durable_after = self.durable_after;
            self.commit_count(session);
            let recorded = std::mem::replace(&mut self.durable_after, durable_after);
            until = if has_failed { recorded } else { 0 };
            if self.wrote > 0 {
                session.wrote = std::mem::take(&mut self.wrote);
            }
        }
        Some(until)
    }

    /// Returns true if this node knows the node at this address. Only known nodes may run commands of a pipeline with a token, because
    /// RESUME asks these.
    #[must_use]
    pub fn knows_node(&self, host: &str, port: u16) -> bool {
        let tls = self.engine.settings.tls_cluster.get();
        let is_there = |node: &NodeView| node.endpoints.are_at(host, port, tls);
        self.slots.view().is_some_and(|view| view.nodes.iter().any(is_there))
    }

    /// Takes the forwarded commands of the run that has ended. None if there are none.
    #[inline]
    pub fn take_forwarded(&mut self) -> Option<Forwarded> {
        (!self.forwarded.is_empty()).then(|| std::mem::take(&mut self.forwarded))
    }
}

/// Appends the requests of a transaction.
fn push_transaction(requests: &mut Vec<u8>, multi: &Multi, exec: &Args<'_>) {
    requests.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
    for queued in &multi.queue {
        push_request(&queued.args.args(), requests);
    }
    push_request(exec, requests);
}

/// Returns true if the results of a session's commands depend on its connection to this node.
fn depends_on_connection(session: &Session) -> bool {
    // The links to other nodes stay in database 0.
    session.database_ahead() != 0
        || session.tally().is_some_and(|tally| !tally.pipeline().is_of_home())
        || session.reply_mode() != ReplyMode::On
        || session.caches()
        || session.reads_replica()
        || session.is_asking()
        || session.is_subscriber()
        || session.is_monitoring()
        || session.client.has(client_flag::IMPORT_SOURCE)
        || !session.watched.is_empty()
}

/// Returns true if a command's result depends on its keys and arguments only, so that it may run at another node for another connection.
fn depends_on_keys_only(command: &Command, args: &Args<'_>) -> bool {
    let info = &command.info;
    let is_shard_message = info.publishes.is_some() && is_sharded(command);
    let has_keys = info.keys.iter().any(|keys| keys.flags & key_flag::NOT_KEY == 0);
    let watches = info.all_categories() & acl::TRANSACTION != 0;
    (has_keys || is_shard_message) && !watches && !info.is(fact::MIGRATES) && !info.may_block(args.from(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;
    use commands::table::KeysAt;

    /// The plan forwards commands without the checks of their arguments.
    #[test]
    fn commands_that_only_see_one_key_depend_on_their_arguments_alone() {
        let see_one = |command: &&Command| command.keys_handler.is_some() && matches!(command.keys, KeysAt::Only(_));
        let all: Vec<_> = table().all().iter().filter(see_one).collect();
        assert!(all.len() > 100);
        for command in all {
            let info = &command.info;
            assert!(info.keys.iter().any(|keys| keys.flags & key_flag::NOT_KEY == 0), "{}", command.name);
            assert!(info.script.is_none() && info.publishes.is_none() && !info.has(flag::BLOCKING), "{}", command.name);
            assert!(info.all_categories() & acl::TRANSACTION == 0 && !info.is(fact::MIGRATES), "{}", command.name);
        }
    }
}
