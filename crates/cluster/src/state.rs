//! The cluster's state as this node sees it, and the map of slots for the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::{Action, Level};
use crate::machine::{Machine, OpenSlot};
use crate::node::{NodeKey, PeerRole};
use crate::saves::Waiting;
use crate::slots::{Slot, SlotSet};
use crate::view::{ClusterState, DownReason, NodeIndex, NodeView, Open, Role, SlotView, ViewParts};

/// The time from a primary's start until it serves and votes. Another node may have replaced it while it was down.
const START_DELAY_MS: u64 = 2000;

/// Bounds of the time that a primary waits when it reaches the majority again.
const REJOIN_DELAY_MIN_MS: u64 = 500;
const REJOIN_DELAY_MAX_MS: u64 = 5000;

/// Times that the state depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StateClock {
    /// When the state was first evaluated.
    started_ms: Option<u64>,
    /// When this node last was in a minority.
    minority_ms: Option<u64>,
    /// The time at which this process continued after it had been stopped; `None` once a majority has answered since.
    woke_ms: Option<u64>,
}

impl Machine {
    /// True if the node has started long enough ago to serve and to vote.
    pub(crate) fn is_safe_to_join(&self) -> bool {
        self.clock.started_ms.is_some_and(|started_ms| self.now.ms >= started_ms + START_DELAY_MS)
    }

    /// Evaluates the state.
    pub(crate) fn evaluate_state(&mut self) {
        let now_ms = self.now.ms;
        self.clock.started_ms.get_or_insert(now_ms);
        let size = self.table.size();
        let needed = size / 2 + 1;
        let is_reachable = |key: &NodeKey| self.table[*key].is_voting() && !self.is_unwell(*key);
        let reachable = self.table.keys().filter(is_reachable).count();
        let minority = (reachable < needed).then_some(DownReason::Minority { reachable, needed });
        if minority.is_some() {
            self.clock.minority_ms = Some(now_ms);
        }
        let asleep = self.may_have_been_replaced(needed).then_some(DownReason::Rejoining);
        let down = minority.or(asleep).or_else(|| self.uncovered()).or_else(|| self.waits_to_serve());
        self.set_state(down.map_or(ClusterState::Ok, ClusterState::Down));
    }

    /// Returns true if this node may have been without the majority since a time, or was stopped and has not found the majority yet.
    pub(crate) fn was_cut_off_since(&self, since_ms: u64) -> bool {
        let was_in_minority = self.clock.minority_ms.is_some_and(|minority_ms| minority_ms >= since_ms);
        let timeout_ms = self.config.node_timeout_ms;
        let has_ticked = self.last_tick_ms.is_some_and(|tick_ms| self.now.ms <= tick_ms + timeout_ms / 2);
        was_in_minority || self.clock.woke_ms.is_some() || !has_ticked
    }

    /// Notes that this process was stopped for long enough to be replaced.
    pub(crate) fn wake(&mut self) {
        self.clock.woke_ms = Some(self.now.ms);
        self.todo.state = true;
    }

    /// Returns true for a primary that was stopped until a majority of the primaries has answered it on new links. A replica may have
    /// replaced it.
    fn may_have_been_replaced(&mut self, needed: usize) -> bool {
        let Some(woke_ms) = self.clock.woke_ms else { return false };
        if !self.table.myself().is_primary() {
            self.clock.woke_ms = None;
            return false;
        }
        let has_answered = |key: &NodeKey| {
            let link = self.table[*key].outbound.and_then(|id| self.links.get(id));
            *key == self.me() || link.is_some_and(|link| link.has_ponged && link.created_ms >= woke_ms)
        };
        let voting = self.table.keys().filter(|key| self.table[*key].is_voting());
        let is_over = voting.filter(has_answered).count() >= needed && self.now.ms >= woke_ms + REJOIN_DELAY_MIN_MS;
        if is_over {
            self.clock.woke_ms = None;
        }
        !is_over
    }

    /// Returns the first slot without a serving node, if all slots must be served.
    fn uncovered(&self) -> Option<DownReason> {
        if !self.config.require_full_coverage {
            return None;
        }
        Slot::all().find_map(|slot| match self.table.owner(slot) {
            None => Some(DownReason::Unbound(slot)),
            Some(owner) if self.table[owner].has_failed() => Some(DownReason::OwnerFailed(slot)),
            Some(_) => None,
        })
    }

    /// Returns the reason why a primary does not serve yet, although the cluster is complete again.
    fn waits_to_serve(&self) -> Option<DownReason> {
        if self.state == ClusterState::Ok || !self.table.myself().is_primary() {
            return None;
        }
        if !self.is_safe_to_join() {
            return Some(DownReason::Starting);
        }
        let delay_ms = self.config.node_timeout_ms.clamp(REJOIN_DELAY_MIN_MS, REJOIN_DELAY_MAX_MS);
        let minority_ms = self.clock.minority_ms?;
        (self.now.ms < minority_ms + delay_ms).then_some(DownReason::Rejoining)
    }

    fn set_state(&mut self, state: ClusterState) {
        if state == self.state {
            return;
        }
        let before = std::mem::replace(&mut self.state, state);
        self.todo.view = true;
        match (before, state) {
            (_, ClusterState::Ok) => self.log(Level::Notice, "Cluster state changed: ok".into()),
            (ClusterState::Ok, ClusterState::Down(reason)) => {
                self.log(Level::Warning, format!("Cluster state changed: fail ({reason})"));
                self.log_down(reason);
            }
            (ClusterState::Down(DownReason::Starting), _) => {}
            (ClusterState::Down(before), ClusterState::Down(reason)) => {
                if std::mem::discriminant(&before) != std::mem::discriminant(&reason) {
                    self.log_down(reason);
                }
            }
        }
    }

    fn log_down(&mut self, reason: DownReason) {
        let text = match reason {
            DownReason::Unbound(_) | DownReason::OwnerFailed(_) => {
                "At least one hash slot is not served by any available node. \
                 Please check the 'cluster-require-full-coverage' configuration."
            }
            DownReason::Minority { .. } => "I am part of a minority partition.",
            DownReason::Starting | DownReason::Rejoining => return,
        };
        self.log(Level::Warning, format!("Cluster is currently down: {text}"));
    }

    /// Shows the map to the workers. A gained slot is shown once the claim is on disk, and a lost slot disappears at once.
    pub(crate) fn show_view(&mut self) {
        let shown = if self.table.myself().is_primary() { self.shown_slots() } else { SlotSet::EMPTY };
        let mine = if self.table.myself().is_primary() { (*self.table.myself().slots).clone() } else { SlotSet::EMPTY };
        let mut gained = mine.clone();
        gained.subtract(&shown);
        if !gained.is_empty() {
            if !self.awaits_view() {
                self.after_save(Waiting::View);
            }
            let mut lost = self.viewed.clone();
            lost.subtract(&mine);
            if lost.is_empty() {
                return;
            }
        }
        self.viewed = shown;
        self.edition += 1;
        let view = self.view_without(&gained);
        self.actions.push(Action::View(Arc::new(view)));
    }

    /// Returns the map, with some of this node's slots hidden.
    fn view_without(&self, hidden: &SlotSet) -> SlotView {
        let keys: Vec<NodeKey> = self.table.keys().filter(|key| !self.table[*key].in_handshake()).collect();
        let places: BTreeMap<NodeKey, NodeIndex> =
            keys.iter().enumerate().map(|(place, key)| (*key, NodeIndex::new(place as u16))).collect();
        let place = |key: NodeKey| places.get(&key).copied();
        let bound = keys.iter().filter_map(|key| {
            let mut slots = (*self.table[*key].slots).clone();
            if *key == self.me() {
                slots.subtract(hidden);
            }
            (!slots.is_empty()).then_some((place(*key)?, slots))
        });
        SlotView::new(ViewParts {
            edition: self.edition,
            state: self.state,
            nodes: keys.iter().map(|key| self.node_view(*key, place)).collect(),
            me: place(self.me()).unwrap_or(NodeIndex::new(0)),
            bound: bound.collect(),
            open: self.open.iter().filter_map(|(slot, open)| Some((*slot, open_view(*open, place)?))).collect(),
            endpoint_kind: self.config.endpoint_kind,
            reads_when_down: self.config.reads_when_down,
            pubsubshard_when_down: self.config.pubsubshard_when_down,
        })
    }

    fn node_view(&self, key: NodeKey, place: impl Fn(NodeKey) -> Option<NodeIndex>) -> NodeView {
        let node = &self.table[key];
        let role = match node.role {
            PeerRole::Primary => Role::Primary,
            PeerRole::Replica(primary) => Role::Replica(primary.and_then(place)),
        };
        let endpoints = node.endpoints.clone();
        NodeView { id: node.id, shard: node.shard, role, endpoints, failed: node.has_failed(), secret: node.secret }
    }
}

fn open_view(open: OpenSlot, place: impl Fn(NodeKey) -> Option<NodeIndex>) -> Option<Open> {
    Some(match open {
        OpenSlot::Migrating(to) => Open::Migrating { to: place(to)? },
        OpenSlot::Importing(from) => Open::Importing { from: place(from)? },
    })
}
