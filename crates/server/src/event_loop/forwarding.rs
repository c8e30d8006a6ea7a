//! Commands that other nodes run for this thread's clients (`cluster-forward`): sends them, and puts the replies into their places.

use engine::clients::progress::Progress;
use engine::families::connections::pipeline::end_resume;
use engine::slots::forward::{Forwarded, Target};
use engine::slow_path::AWAITED;
use journal::order::Position;
use resp::reply::Output;

use std::cmp::Reverse;
use std::os::fd::AsFd;
use std::time::Duration;

use super::EventLoop;
use crate::acceptor::LISTENERS;
use crate::forward::LINKS;
use crate::forward::link::{Broken, Outcome, Received, ReplyTo, ShareId, Unanswered};
use crate::log;
use crate::poller::{Poller, Ready};
use crate::splice::Splice;

/// Bytes of other nodes' replies that one client may wait for. A client with more of them is closed.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

impl EventLoop {
    /// Gives a connection the replies of its run, some of which other nodes will give, and queues the requests for these nodes.
    pub(super) fn take_spliced(
        &mut self,
        key: usize,
        forwarded: Forwarded,
        replies: &mut Output,
        durable_after: Position,
    ) {
        let now_ms = self.steady_ms();
        let engine = self.shared.engine;
        let Some(connection) = self.connections.get_mut(key) else { return replies.clear(0) };
        let client = connection.session.client.id;
        let is_counted = forwarded.is_counted();
        let mut splice = Splice::new(forwarded);
        // A counted command must not outlive the count of the commands before it.
        let wrote = if is_counted && engine.slow_path.has(AWAITED) { connection.session.wrote } else { 0 };
        let is_held = is_counted && durable_after.max(wrote) > engine.durability.safe();
        splice.set_held(is_held);
        let (chunk, until) = connection.take_spliced(replies, splice, durable_after.max(wrote), now_ms);
        self.deferred.push(Reverse((until, client)));
        if !is_held {
            self.send_chunk(key, client, chunk);
        }
    }

    /// Queues the requests that waited for the changes before them, if these are durable now.
    pub(super) fn send_held(&mut self, key: usize, safe: Position) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let client = connection.session.client.id;
        if let Some(chunk) = connection.deferred.as_mut().and_then(|deferred| deferred.take_held(safe)) {
            self.send_chunk(key, client, chunk);
        }
    }

    /// Queues the requests of a chunk.
    fn send_chunk(&mut self, key: usize, client: u64, chunk: u64) {
        let now_ms = self.steady_ms();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(deferred) = connection.deferred.as_mut() else { return };
        let Some(splice) = deferred.splice(chunk) else { return };
        let forwarded = splice.forwarded();
        let settings = &self.shared.engine.settings;
        let mut new = Vec::new();
        let mut failed = Vec::new();
        for (target, node) in forwarded.targets.iter().enumerate() {
            match self.links.to(node, client, settings, now_ms) {
                Ok((id, is_new)) => {
                    new.extend(is_new.then_some(id));
                    self.links.push_all(id, forwarded, ShareId { client, chunk, target }, now_ms);
                }
                Err(reason) => {
                    let error = unreachable(node, &reason);
                    let indexes = forwarded.indexes_of(target);
                    failed.extend(indexes.map(|index| (ReplyTo { client, chunk, index }, error.clone())));
                }
            }
        }
        for id in new {
            self.watch_link(id);
        }
        for (to, error) in failed {
            self.fill(to, error.as_bytes());
        }
    }

    /// Begins to watch a new link. Its socket is writable once it is connected.
    fn watch_link(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(id) else { return };
        let token = LINKS + id;
        let added = self.poller.add(link.as_fd(), token);
        if let Err(error) = added.and_then(|()| self.poller.watch(link.as_fd(), token, true, true)) {
            self.end_link(id, &Broken::new(error));
        }
    }

    /// Serves the links with events: connects, sends, and takes replies.
    pub(super) fn serve_links(&mut self) {
        if self.links.is_empty() {
            return;
        }
        for at in 0..self.ready.len() {
            let Some(&Ready { token, read, write }) = self.ready.get(at) else { return };
            if (LINKS..LISTENERS).contains(&token) {
                self.serve_link(token - LINKS, read, write);
            }
        }
    }

    fn serve_link(&mut self, id: u64, read: bool, write: bool) {
        let now_ms = self.steady_ms();
        let Some(link) = self.links.get_mut(id) else { return };
        let result = match link.connect() {
            Ok(true) if read => link.receive(now_ms),
            result => result.map(drop),
        };
        let received = link.take_received();
        self.deliver_forwarded(&received);
        if let Some(link) = self.links.get_mut(id) {
            link.give_back(received);
        }
        match result {
            Ok(()) if write => self.send_link(id),
            Ok(()) => {}
            Err(broken) => self.end_link(id, &broken),
        }
    }

    /// Sends the requests of this turn, unless the next turn may add more of them.
    pub(super) fn send_forwarded(&mut self) {
        if self.links.has_to_send() && !self.links.may_gather(self.turn_began_us) {
            self.send_gathered();
        }
    }

    fn send_gathered(&mut self) {
        for id in self.links.take_to_send() {
            self.send_link(id);
        }
    }

    /// Returns true if there is more input, which may add requests to those that have been gathered. Otherwise sends these.
    pub(super) fn has_more_input(&mut self) -> bool {
        self.poll(Some(Duration::ZERO));
        if self.ready.is_empty() {
            self.send_gathered();
            // A broken link has answered its commands with errors.
            self.write();
        }
        !self.ready.is_empty()
    }

    fn send_link(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(id) else { return };
        if !link.is_open() {
            return;
        }
        let result = link.send();
        let waits = link.has_output();
        if let Err(broken) = result {
            return self.end_link(id, &broken);
        }
        if std::mem::replace(&mut link.wants_write, waits) == waits {
            return;
        }
        if let Err(error) = self.poller.watch(link.as_fd(), LINKS + id, true, waits) {
            self.end_link(id, &Broken::new(error));
        }
    }

    /// Puts replies into their places, and sends redirected commands to the nodes that the redirects name.
    fn deliver_forwarded(&mut self, received: &Received) {
        for of_chunk in received.outcomes.chunk_by(|a, b| a.chunk() == b.chunk()) {
            self.fill_chunk(received, of_chunk);
        }
    }

    /// Puts replies for one chunk of one client into their places.
    fn fill_chunk(&mut self, received: &Received, outcomes: &[Outcome]) {
        let Some((client, chunk)) = outcomes.first().map(Outcome::chunk) else { return };
        let deferred = self.by_client.get(&client).and_then(|&key| self.connections.get_mut(key)?.deferred.as_mut());
        let Some(deferred) = deferred else { return };
        let mut redirected = Vec::new();
        deferred.fill(chunk, |splice| redirected = place(splice, received, outcomes));
        for (index, line) in redirected {
            let to = ReplyTo { client, chunk, index };
            if !self.send_again(to, line) {
                self.fill(to, &[b"-", line, b"\r\n"].concat());
            }
        }
        self.after_fill(client, chunk);
    }

    /// Sends a command to the node that a redirect names. Returns false if the client must be told the redirect instead.
    fn send_again(&mut self, to: ReplyTo, redirect: &[u8]) -> bool {
        let now_ms = self.steady_ms();
        let Some(connection) = self.by_client.get(&to.client).and_then(|&key| self.connections.get_mut(key)) else {
            return true;
        };
        let Some(splice) = connection.deferred.as_mut().and_then(|deferred| deferred.splice(to.chunk)) else {
            return true;
        };
        // Once another connection has resumed the token, nothing more may be sent for this one.
        if !splice.may_redirect(to.index) || connection.session.has_lost_token() {
            return false;
        }
        let forwarded = splice.forwarded();
        let from = forwarded.commands.get(to.index).and_then(|command| forwarded.targets.get(command.target));
        let Some((target, asks)) = from.and_then(|from| named_by(redirect, from)) else { return false };
        if target.counter.is_some() && !self.worker.knows_node(&target.host, target.port) {
            return false;
        }
        match self.links.to(&target, to.client, &self.shared.engine.settings, now_ms) {
            Ok((id, is_new)) => {
                self.links.push(id, forwarded, to.index, asks, to, now_ms);
                if is_new {
                    self.watch_link(id);
                }
            }
            Err(reason) => self.fill(to, unreachable(&target, &reason).as_bytes()),
        }
        true
    }

    /// Puts a reply into its place.
    fn fill(&mut self, to: ReplyTo, reply: &[u8]) {
        let deferred = self.by_client.get(&to.client).and_then(|&key| self.connections.get_mut(key)?.deferred.as_mut());
        if let Some(deferred) = deferred {
            deferred.fill(to.chunk, |splice| _ = splice.fill(to.index, reply));
            self.after_fill(to.client, to.chunk);
        }
    }

    /// Releases a client's replies once those of a chunk are all there, and limits the memory of the others.
    fn after_fill(&mut self, client: u64, chunk: u64) {
        let Some(&key) = self.by_client.get(&client) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(deferred) = connection.deferred.as_mut() else { return };
        let bytes = deferred.bytes();
        if bytes > HELD_BYTES_MAX {
            log::warning(format!("Closing client {client}: the replies of other nodes take {bytes} bytes."));
            return self.close(key);
        }
        if deferred.splice(chunk).is_none_or(|splice| splice.missing() > 0) {
            return;
        }
        let are_all_there = deferred.missing() == 0;
        self.end_counted(key, chunk);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if are_all_there {
            connection.session.end_forwarding();
        }
        self.release_connection(key, self.shared.engine.durability.safe());
        if are_all_there {
            self.go_on_reading(key, Progress::AwaitsNodes);
        }
    }

    /// Counts the command of a complete chunk for its pipeline, or ends PIPELINE RESUME.
    fn end_counted(&mut self, key: usize, chunk: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(deferred) = connection.deferred.as_mut() else { return };
        let Some(splice) = deferred.splice(chunk).filter(|splice| splice.forwarded().is_counted()) else { return };
        let commands = &splice.forwarded().commands;
        if commands.iter().any(|command| command.attaches) {
            let answers: Vec<&[u8]> = (0..commands.len()).map(|index| splice.reply(index)).collect();
            let reply = end_resume(&mut self.worker, &mut connection.session, &answers);
            return deferred.replace(chunk, &reply);
        }
        let (mut are_counted, mut until) = (true, 0);
        for (index, command) in commands.iter().enumerate() {
            if let Some(counted) = command.counted {
                match self.worker.count_answered(&mut connection.session, counted, splice.reply(index)) {
                    Some(position) => until = until.max(position),
                    None => are_counted = false,
                }
            }
        }
        if !are_counted {
            self.close(key);
        } else if until > self.shared.engine.durability.safe() {
            deferred.hold(chunk, until);
            self.deferred.push(Reverse((until, connection.session.client.id)));
        }
    }

    /// Ends the links of a client that has gone. Links that end a token end by themselves.
    pub(super) fn end_links_of(&mut self, client: u64) {
        for id in self.links.of_client(client) {
            if self.links.get_mut(id).is_some_and(|link| !link.is_ending())
                && let Some(link) = self.links.remove(id)
            {
                self.poller.remove(link.as_fd());
            }
        }
    }

    /// Has other nodes forget the token that the connection has ended.
    pub(super) fn end_tokens(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(name) = connection.session.forwarding.take_ended() else { return };
        let client = connection.session.client.id;
        let now_ms = self.steady_ms();
        self.links.end_tokens(client, &name, now_ms);
    }

    /// Closes a client whose pipeline can't be counted, because the outcome of a command is unknown. PIPELINE RESUME finds out.
    fn close_uncertain(&mut self, client: u64, target: &Target) {
        let Some(&key) = self.by_client.get(&client) else { return };
        let (host, port) = (&target.host, target.port);
        log::warning(format!(
            "Closing client {client}: the link to {host}:{port} broke while a command of its pipeline was on its way. PIPELINE RESUME \
             tells the client if the command has run."
        ));
        self.close(key);
    }

    /// Ends a link, and answers its commands with errors.
    fn end_link(&mut self, id: u64, broken: &Broken) {
        let Some(link) = self.links.remove(id) else { return };
        self.poller.remove(link.as_fd());
        if broken.is_wanted {
            return;
        }
        let target = link.target.clone();
        log::warning(format!(
            "The link for forwarded commands to {}:{} ended: {}.",
            target.host, target.port, broken.reason
        ));
        if !link.is_open() {
            self.links.note_failure(&target, &broken.reason, self.steady_ms());
        }
        for unanswered in link.end() {
            match unanswered {
                Unanswered::Command { to, is_unknown } => self.fail(to, is_unknown, &target, &broken.reason),
                Unanswered::Share { to, left, sent } => self.fail_share(to, (left, sent), &target, &broken.reason),
            }
        }
    }

    /// Answers a command whose link broke.
    fn fail(&mut self, to: ReplyTo, is_unknown: bool, target: &Target, reason: &str) {
        self.worker.stats().forwarding_failures.add(1);
        if is_unknown && target.counter.is_some() {
            return self.close_uncertain(to.client, target);
        }
        let error = if is_unknown { outcome_unknown(target, reason) } else { unreachable(target, reason) };
        self.fill(to, error.as_bytes());
    }

    /// Answers the last commands of a share whose link broke: their number, and the number of bytes of the share's requests that were sent.
    fn fail_share(&mut self, to: ShareId, (left, sent): (usize, usize), target: &Target, reason: &str) {
        let ShareId { client, chunk, target: of } = to;
        let deferred = self.by_client.get(&client).and_then(|&key| self.connections.get_mut(key)?.deferred.as_mut());
        let Some(splice) = deferred.and_then(|deferred| deferred.splice(chunk)) else {
            // The client has gone.
            return self.worker.stats().forwarding_failures.add(left as u64);
        };
        let forwarded = splice.forwarded();
        let may_change = |index: &usize| forwarded.commands.get(*index).is_some_and(|command| !command.only_reads);
        let is_unknown = |index: usize| may_change(&index) && forwarded.start_of(index) < sent;
        let all: Vec<(usize, bool)> = splice.unanswered(of).map(|index| (index, is_unknown(index))).collect();
        for (index, is_unknown) in all {
            self.fail(ReplyTo { client, chunk, index }, is_unknown, target, reason);
        }
    }

    /// Ends the links whose nodes don't answer.
    pub(super) fn end_late_links(&mut self) {
        if self.links.is_empty() {
            return;
        }
        let timeout_ms = self.shared.settings().cluster_node_timeout_ms.get().unsigned_abs();
        for id in self.links.late(self.steady_ms(), timeout_ms) {
            self.end_link(id, &Broken::new(format!("no reply within {timeout_ms} ms")));
        }
    }
}

/// Puts replies for a chunk into their places. Returns the commands that are redirected, with the redirects.
fn place<'r>(splice: &mut Splice, received: &'r Received, outcomes: &'r [Outcome]) -> Vec<(usize, &'r [u8])> {
    let mut redirected = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Reply(to, place) => {
                splice.fill(to.index, received.bytes.get(place.clone()).unwrap_or_default());
            }
            Outcome::Redirect(to, line) => redirected.push((to.index, &line[..])),
            Outcome::Replies(of, place, lengths) => {
                let replies = received.bytes.get(place.clone()).unwrap_or_default();
                splice.fill_share(of.target, replies, received.lengths.get(lengths.clone()).unwrap_or_default());
            }
            Outcome::RedirectOfShare(of, line) => {
                redirected.extend(splice.skip_in_share(of.target).map(|index| (index, &line[..])));
            }
        }
    }
    redirected
}

/// Returns the node that a redirect names, and true if ASKING must precede the command. A redirect without a host names the node `from`.
fn named_by(redirect: &[u8], from: &Target) -> Option<(Target, bool)> {
    let text = std::str::from_utf8(redirect).ok()?;
    let mut words = text.split(' ');
    let (asks, endpoint) = (words.next()? == "ASK", words.nth(1)?);
    let (host, port) = endpoint.rsplit_once(':')?;
    let host = if host.is_empty() { &from.host } else { host };
    Some((Target { host: host.to_owned(), port: port.parse().ok()?, ..from.clone() }, asks))
}

/// The error for a command that has not run, or that only reads.
fn unreachable(target: &Target, reason: &str) -> String {
    format!(
        "-CLUSTERDOWN The node {}:{} that serves the slot can't be reached: {}\r\n",
        target.host,
        target.port,
        one_line(reason)
    )
}

/// The error for a command that may have run.
fn outcome_unknown(target: &Target, reason: &str) -> String {
    format!(
        "-ERR The connection to the node {}:{} that serves the slot broke: {}. It is unknown whether the command has run: look \
         before you repeat it.\r\n",
        target.host,
        target.port,
        one_line(reason)
    )
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_name_nodes() {
        let from = Target { host: "10.0.0.1".into(), port: 7000, resp3: false, counter: None };
        let named =
            |line: &str| named_by(line.as_bytes(), &from).map(|(it, asks)| (format!("{}:{}", it.host, it.port), asks));
        assert_eq!(named("MOVED 1 10.0.0.2:7001"), Some(("10.0.0.2:7001".into(), false)));
        assert_eq!(named("ASK 1 ::1:7002"), Some(("::1:7002".into(), true)));
        assert_eq!(named("MOVED 1 :7003"), Some(("10.0.0.1:7003".into(), false)));
        assert_eq!(named("MOVED 1"), None);
        assert_eq!(named("MOVED 1 a:b"), None);
    }
}
