//! A thread's links to other nodes of the cluster, for the commands that these run for its clients (`cluster-forward`).
//!
//! There is one link for each node and version of the protocol, because replies differ between versions. A client with a pipeline token has
//! its own links: the nodes count its commands, and refuse them once the client has lost the token.

pub mod link;

use std::collections::HashMap;

use config::Settings;
use engine::slots::forward::{Forwarded, Target};

use self::link::{Link, Login, ReplyTo, ShareId};

/// The first token of a link in the poller. Tokens of client connections are lower, and tokens of listening sockets are higher.
pub const LINKS: u64 = 1 << 61;

/// Time after a failed connection before the next attempt, in milliseconds. Commands are refused meanwhile.
const RETRY_MS: u64 = 500;

/// Time for which a thread gathers requests in further turns while more connections are ready, in microseconds. A call of the system and
/// a wake-up of the other node then serve several clients.
const GATHER_US: u64 = 100;
/// Bytes of a link's requests that are sent without further gathering.
const GATHERED_BYTES_MAX: usize = 32 * 1024;

/// The links of a thread.
#[derive(Default)]
pub struct Links {
    by_id: HashMap<u64, Link>,
    by_target: HashMap<Target, u64>,
    /// The clients' own links.
    by_client: HashMap<u64, Vec<u64>>,
    next_id: u64,
    /// Links with requests to send at the end of the turn.
    to_send: Vec<u64>,
    /// The beginning of the first turn with requests in `to_send`, in microseconds of Unix time.
    gathering_since_us: Option<u64>,
    /// Nodes that could not be reached, with the time and the reason.
    failed: HashMap<Target, (u64, String)>,
}

impl Links {
    /// Returns true if there are no links.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns a link.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Link> {
        self.by_id.get_mut(&id)
    }

    /// Returns the ids of a client's own links.
    pub fn of_client(&self, client: u64) -> Vec<u64> {
        self.by_client.get(&client).cloned().unwrap_or_default()
    }

    /// Returns the id of the link to a node for a client, and true if it is new.
    ///
    /// # Errors
    /// The reason why there is no link.
    pub fn to(
        &mut self,
        target: &Target,
        client: u64,
        settings: &Settings,
        now_ms: u64,
    ) -> Result<(u64, bool), String> {
        if let Some(&id) = self.by_target.get(target) {
            return Ok((id, false));
        }
        self.failed.retain(|_, (since_ms, _)| now_ms.saturating_sub(*since_ms) < RETRY_MS);
        if let Some((_, reason)) = self.failed.get(target) {
            return Err(reason.clone());
        }
        let socket = link::open(target, settings).inspect_err(|reason| self.note_failure(target, reason, now_ms))?;
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, Link::new(target.clone(), socket, login(settings), now_ms));
        self.by_target.insert(target.clone(), id);
        if target.counter.is_some() {
            self.by_client.entry(client).or_default().push(id);
        }
        Ok((id, true))
    }

    /// Notes that a node can't be reached.
    pub fn note_failure(&mut self, target: &Target, reason: &str, now_ms: u64) {
        self.failed.insert(target.clone(), (now_ms, reason.to_owned()));
    }

    /// Appends a command to a link, to be sent at the end of the turn.
    pub fn push(&mut self, id: u64, forwarded: &Forwarded, index: usize, asks: bool, to: ReplyTo, now_ms: u64) {
        let (Some(link), Some(command)) = (self.by_id.get_mut(&id), forwarded.commands.get(index)) else { return };
        if !link.has_output() {
            self.to_send.push(id);
        }
        link.push(command, asks, forwarded.requests_of(index), to, now_ms);
    }

    /// Appends a node's share of the commands to its link.
    pub fn push_all(&mut self, id: u64, forwarded: &Forwarded, to: ShareId, now_ms: u64) {
        let ShareId { client, chunk, target } = to;
        let (Some(link), Some(share)) = (self.by_id.get_mut(&id), forwarded.shares.get(target)) else { return };
        if !link.has_output() {
            self.to_send.push(id);
        }
        if share.is_plain && link.target.counter.is_none() {
            return link.push_share(share, to, now_ms);
        }
        for index in forwarded.indexes_of(target) {
            if let Some(command) = forwarded.commands.get(index) {
                let to = ReplyTo { client, chunk, index };
                link.push(command, command.asks, forwarded.requests_of(index), to, now_ms);
            }
        }
    }

    /// Ends the tokens of other nodes that counted for a client under this name. The links end then.
    pub fn end_tokens(&mut self, client: u64, name: &[u8], now_ms: u64) {
        for id in self.of_client(client) {
            let Some(link) = self.by_id.get_mut(&id) else { continue };
            if link.target.counter.as_ref().is_some_and(|counter| *counter.name == *name) {
                link.end_token(now_ms);
                self.to_send.push(id);
            }
        }
    }

    /// Returns true if there are requests to send.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Returns true if the requests should wait for the next turn, because it may add more of them.
    pub fn may_gather(&mut self, turn_began_us: u64) -> bool {
        let since_us = *self.gathering_since_us.get_or_insert(turn_began_us);
        let is_much = |id: &u64| self.by_id.get(id).is_some_and(|link| link.unsent_bytes() > GATHERED_BYTES_MAX);
        turn_began_us.saturating_sub(since_us) < GATHER_US && !self.to_send.iter().any(is_much)
    }

    /// Takes the links with requests to send.
    pub fn take_to_send(&mut self) -> Vec<u64> {
        self.gathering_since_us = None;
        std::mem::take(&mut self.to_send)
    }

    /// Removes a link.
    pub fn remove(&mut self, id: u64) -> Option<Link> {
        let link = self.by_id.remove(&id)?;
        if self.by_target.get(&link.target) == Some(&id) {
            self.by_target.remove(&link.target);
        }
        if link.target.counter.is_some() {
            self.by_client.retain(|_, links| {
                links.retain(|of| *of != id);
                !links.is_empty()
            });
        }
        Some(link)
    }

    /// Returns the links whose nodes have not answered for this time.
    pub fn late(&self, now_ms: u64, timeout_ms: u64) -> Vec<u64> {
        self.by_id.iter().filter(|(_, link)| link.is_late(now_ms, timeout_ms)).map(|(id, _)| *id).collect()
    }
}

/// Returns the credentials for other nodes.
fn login(settings: &Settings) -> Login {
    let [user, password] = [settings.cluster_forward_user.get(), settings.cluster_forward_password.get()];
    let login = if user.is_empty() { (settings.masteruser.get(), settings.masterauth.get()) } else { (user, password) };
    (!login.1.is_empty()).then(|| (login.0.to_string(), login.1.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_gathered_for_a_limited_time() {
        let mut links = Links { to_send: vec![1], ..Links::default() };
        assert!(links.has_to_send() && links.may_gather(1000) && links.may_gather(1000 + GATHER_US - 1));
        assert!(!links.may_gather(1000 + GATHER_US));
        assert_eq!(links.take_to_send(), [1]);
        assert!(!links.has_to_send());
        links.to_send.push(1);
        assert!(links.may_gather(1000 + GATHER_US));
    }
}
