//! Moves slots with their keys between nodes.
//!
//! Source of the order of the steps: the "Redis cluster specification", and the comments on Redis issues 7116 and 9223.

use super::node::{number_of, text_of};
use super::{Manager, Outcome, Stop};
use client::Value;
use client::cluster::Slot;

/// A source that has lost its last slot is a replica already when it is told the slot's new owner.
const NO_MASTER_ANY_MORE: &str = "ERR Please use SETSLOT only with masters.";

/// The code of the error of a primary whose replicas have not acknowledged a change of a slot in time. The slot is unchanged there.
const NOT_ACKNOWLEDGED: &str = "NOREPLICAS";

/// Limit of the attempts to change a slot at a primary with slow replicas. Each waits for two seconds at the primary.
const SET_SLOT_ATTEMPTS_MAX: usize = 10;

/// Options of a move.
#[derive(Clone, Copy, Debug, Default)]
pub struct MoveOptions {
    /// Prints no text but dots.
    pub is_quiet: bool,
    /// Prints a dot for each key.
    pub prints_dots: bool,
    /// Moves only the keys, without opening the slot or telling its owner.
    pub is_cold: bool,
    /// Updates the slots of the nodes in memory.
    pub updates_nodes: bool,
}

impl Manager<'_> {
    /// Moves a slot.
    pub(super) fn move_slot(&mut self, source: usize, target: usize, slot: Slot, options: MoveOptions) -> Outcome {
        if !options.is_quiet {
            let (from, to) = (self.nodes[source].place(), self.nodes[target].place());
            self.say(format!("Moving slot {slot} from {from} to {to}: "))?;
            self.output.flush()?;
        }
        if !options.is_cold {
            // If the source came first, its redirections would lead to a node that refuses them.
            self.set_slot(target, slot, "importing", source)?;
            self.set_slot(source, slot, "migrating", target)?;
        }
        let moved = self.move_keys(source, target, slot, options.prints_dots);
        if !options.is_quiet {
            self.say("\n")?;
        }
        moved?;
        if !options.is_cold {
            self.announce_owner(source, target, slot)?;
        }
        if options.updates_nodes {
            self.nodes[source].slots.remove(slot);
            self.nodes[target].slots.insert(slot);
        }
        Ok(())
    }

    /// Tells all primaries the new owner of a slot.
    fn announce_owner(&mut self, source: usize, target: usize, slot: Slot) -> Outcome {
        // The target is the first, because it spreads the news itself. If it crashed after the source has given the
        // slot up, the slot would have no owner.
        self.set_slot(target, slot, "node", target)?;
        // The others save the slot's owner at the same time, because each save waits for a disk.
        let id = self.nodes[target].id.clone();
        let number = slot.to_string();
        let request = ["CLUSTER", "SETSLOT", &number, "node", &id];
        let others = self.masters().into_iter().filter(|other| *other != source && *other != target);
        let told: Vec<usize> = [source].into_iter().chain(others).collect();
        let begun: Vec<_> = told.iter().map(|&node| self.nodes[node].begin(&request)).collect();
        let replies: Vec<_> = told
            .iter()
            .zip(begun)
            .map(|(&node, begun)| {
                let reply = begun.and_then(|()| self.nodes[node].finish());
                (node, self.repeat_until_acknowledged(node, &request, reply))
            })
            .collect();
        let is_failure = |node: usize, error: &str| node != source || !error.starts_with(NO_MASTER_ANY_MORE);
        let errors = replies.into_iter().filter_map(|(node, reply)| Some((node, reply.err()?)));
        match errors.into_iter().find(|(node, error)| is_failure(*node, error)) {
            Some((node, error)) => {
                self.report_reply_error(node, &error)?;
                Err(Stop::Reported)
            }
            None => Ok(()),
        }
    }

    // --- states of slots ---

    fn try_set_slot(&mut self, node: usize, slot: Slot, state: &str, other: usize) -> Result<Value, String> {
        let id = self.nodes[other].id.clone();
        self.request_set_slot(node, &["CLUSTER", "SETSLOT", &slot.to_string(), state, &id])
    }

    /// Sends a SETSLOT request. Repeats it while the node's replicas are slow: a move that stops here would leave the slot open.
    fn request_set_slot(&mut self, node: usize, request: &[&str]) -> Result<Value, String> {
        let reply = self.request(node, request);
        self.repeat_until_acknowledged(node, request, reply)
    }

    /// Repeats a SETSLOT request, whose first reply is given, while the node's replicas are slow. Returns the last reply.
    fn repeat_until_acknowledged(
        &mut self,
        node: usize,
        request: &[&str],
        mut reply: Result<Value, String>,
    ) -> Result<Value, String> {
        for _ in 1..SET_SLOT_ATTEMPTS_MAX {
            match &reply {
                Err(error) if error.starts_with(NOT_ACKNOWLEDGED) => reply = self.request(node, request),
                _ => break,
            }
        }
        reply
    }

    pub(super) fn set_slot(&mut self, node: usize, slot: Slot, state: &str, other: usize) -> Outcome {
        let reply = self.try_set_slot(node, slot, state, other);
        self.reported(node, reply).map(drop)
    }

    /// Ends the move of a slot at a node.
    pub(super) fn close_slot(&mut self, node: usize, slot: Slot) -> Outcome {
        let reply = self.request_set_slot(node, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
        self.reported(node, reply).map(drop)
    }

    /// Makes a node forget the owner of a slot, if it knows one.
    pub(super) fn delete_slot(&mut self, node: usize, slot: Slot) -> Outcome {
        let Err(error) = self.request(node, &["CLUSTER", "DELSLOTS", &slot.to_string()]) else { return Ok(()) };
        if matches!(self.has_owner(node, slot), Ok(false)) {
            return Ok(());
        }
        self.report_reply_error(node, &error)?;
        Err(Stop::Reported)
    }

    /// Returns true if a slot has an owner, as a node sees it.
    fn has_owner(&mut self, node: usize, slot: Slot) -> Result<bool, String> {
        let Value::Array(ranges) = self.request(node, &["CLUSTER", "SLOTS"])? else { return Ok(false) };
        let number = i64::from(slot.number());
        let contains = |range: &Value| match range {
            Value::Array(parts) => match parts.as_slice() {
                [Value::Int(first), Value::Int(last), ..] => (*first..=*last).contains(&number),
                _ => false,
            },
            _ => false,
        };
        Ok(ranges.iter().any(contains))
    }

    /// Makes a node the owner of a slot, in a transaction. Only ADDSLOTS must succeed: the slot may be unassigned and
    /// closed already, and the epoch may be the greatest.
    pub(super) fn take_slot(&mut self, node: usize, slot: Slot, closes: bool) -> Outcome {
        let number = slot.to_string();
        self.must(node, &["MULTI"])?;
        self.must(node, &["CLUSTER", "DELSLOTS", &number])?;
        self.must(node, &["CLUSTER", "ADDSLOTS", &number])?;
        if closes {
            self.must(node, &["CLUSTER", "SETSLOT", &number, "STABLE"])?;
        }
        self.must(node, &["CLUSTER", "BUMPEPOCH"])?;
        let reply = self.must(node, &["EXEC"])?;
        let added = match &reply {
            Value::Array(replies) => replies.get(1),
            _ => None,
        };
        match added.map(Value::error) {
            Some(None) => {
                self.nodes[node].slots.insert(slot);
                Ok(())
            }
            Some(Some(error)) => {
                let text = String::from_utf8_lossy(error).into_owned();
                self.report_reply_error(node, &text)?;
                Err(Stop::Reported)
            }
            None => Err(Stop::Reported),
        }
    }

    pub(super) fn count_keys(&mut self, node: usize, slot: Slot) -> Outcome<i64> {
        let reply = self.must(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])?;
        Ok(number_of(&reply).unwrap_or(0))
    }

    pub(super) fn keys_in_slot(&mut self, node: usize, slot: Slot, count: u64) -> Outcome<Vec<Vec<u8>>> {
        let reply = self.must(node, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &count.to_string()])?;
        let Value::Array(keys) = reply else { return Ok(Vec::new()) };
        Ok(keys.iter().filter_map(Value::bytes).map(<[u8]>::to_vec).collect())
    }

    /// Returns the primary with the most keys of a slot.
    pub(super) fn richest(&mut self, nodes: &[usize], slot: Slot) -> Outcome<Option<usize>> {
        let mut best: Option<(usize, i64)> = None;
        for &node in nodes {
            let count = self.count_keys(node, slot)?;
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((node, count));
            }
        }
        Ok(best.map(|(node, _)| node))
    }

    // --- keys ---

    /// Moves all keys of a slot.
    fn move_keys(&mut self, source: usize, target: usize, slot: Slot, prints_dots: bool) -> Outcome {
        loop {
            let keys = self.keys_in_slot(source, slot, self.choices.pipeline)?;
            if keys.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.migrate(source, target, &keys, false) {
                self.migrate_again(source, target, slot, &keys, &error)?;
            }
            if prints_dots {
                self.say(".".repeat(keys.len()))?;
                self.output.flush()?;
            }
        }
    }

    fn migrate(&mut self, source: usize, target: usize, keys: &[Vec<u8>], replaces: bool) -> Result<Value, String> {
        let (host, port) = (&self.nodes[target].host, self.nodes[target].port);
        let mut request: Vec<Vec<u8>> =
            ["MIGRATE", host.as_str(), &port.to_string(), "", "0", &self.choices.timeout_ms.to_string()]
                .map(|word| word.as_bytes().to_vec())
                .into();
        if replaces {
            request.push(b"REPLACE".to_vec());
        }
        request.extend(self.migrate_login());
        request.push(b"KEYS".to_vec());
        request.extend_from_slice(keys);
        self.request(source, &request)
    }

    /// Returns the words with which MIGRATE logs in at the target.
    pub(super) fn migrate_login(&self) -> Vec<Vec<u8>> {
        match (&self.options.user, self.password.clone()) {
            (_, None) => Vec::new(),
            (None, Some(password)) => vec![b"AUTH".to_vec(), password],
            (Some(user), Some(password)) => vec![b"AUTH2".to_vec(), user.clone(), password],
        }
    }

    /// Migrates keys again after an error. Keys that exist at the target are replaced if they are equal, or with
    /// `--cluster-replace`.
    fn migrate_again(&mut self, source: usize, target: usize, slot: Slot, keys: &[Vec<u8>], error: &str) -> Outcome {
        let is_busy = error.contains("BUSYKEY");
        let is_unserved = !is_busy && matches!(self.has_owner(source, slot), Ok(false));
        if !is_busy && !is_unserved {
            self.say("\n")?;
            self.report_reply_error(source, error)?;
            return Err(Stop::Reported);
        }
        if self.fixes && is_unserved {
            let place = self.nodes[target].place();
            self.warn(format!("*** Slot was not served, setting owner to node {place}.\n"))?;
            // The next attempt shows its effect.
            let _ = self.try_set_slot(source, slot, "node", target);
        }
        if is_busy {
            self.warn("\n*** Target key exists\n")?;
            if !self.choices.replaces {
                self.compare_values(source, target, keys)?;
            }
            self.warn("*** Replacing target keys...\n")?;
        }
        match self.migrate(source, target, keys, is_busy) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.say("\n")?;
                self.report_reply_error(source, &error)?;
                Err(Stop::Reported)
            }
        }
    }

    /// Stops if keys have different values in two nodes.
    fn compare_values(&mut self, source: usize, target: usize, keys: &[Vec<u8>]) -> Outcome {
        self.warn("*** Checking key values on both nodes...\n")?;
        let request: Vec<Vec<u8>> =
            [b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec()].into_iter().chain(keys.iter().cloned()).collect();
        let digests = self.must(source, &request).and_then(|one| Ok((one, self.must(target, &request)?)));
        let (ours, theirs) = match digests {
            Ok((Value::Array(ours), Value::Array(theirs))) => (ours, theirs),
            Ok(_) | Err(Stop::Reported) => return self.stop("*** Value check failed!\n"),
            Err(stop) => return Err(stop),
        };
        // A missing key has a digest of zeroes.
        let exists = |digest: &str| digest.bytes().any(|digit| digit != b'0');
        let differs = |(one, other): (&Value, &Value)| {
            let (one, other) = (text_of(one), text_of(other));
            one != other && exists(&one) && exists(&other)
        };
        let pairs = ours.iter().zip(&theirs);
        let different: Vec<&Vec<u8>> =
            keys.iter().zip(pairs).filter(|(_, pair)| differs(*pair)).map(|(key, _)| key).collect();
        if different.is_empty() {
            return Ok(());
        }
        self.report_different(source, target, &different)
    }

    fn report_different(&mut self, source: usize, target: usize, keys: &[&Vec<u8>]) -> Outcome {
        let (from, to) = (self.nodes[source].place(), self.nodes[target].place());
        self.error(format!(
            "*** Found {} key(s) in both source node and target node having different values.\n    Source node: {from}\n    \
             Target node: {to}\n    Keys(s):\n",
            keys.len()
        ))?;
        for key in keys {
            self.error(format!("    - {}\n", String::from_utf8_lossy(key)))?;
        }
        self.stop(
            "Please fix the above key(s) manually and try again or relaunch the command \nwith --cluster-replace option \
             to force key overriding.\n",
        )
    }
}
