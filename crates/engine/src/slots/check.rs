//! The checks of a cluster's node before a command with keys runs. Their order is Redis's and Valkey's
//! (`getNodeByQuery`), because it decides which error a client sees.

use cluster::view::{ClientPath, NodeIndex, Open};
use cluster::{Slot, SlotView};
use commands::error::Error;
use store::hash::KeyHash;

/// Returns the slot of a key with this hash.
pub(crate) fn slot_of(hash: KeyHash) -> Slot {
    Slot::of_hash(hash.slot())
}

/// The slots of a command's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySlots {
    /// The command has no keys.
    None,
    /// All keys have this slot.
    One(Slot),
    /// The keys have several slots.
    Several,
}

impl KeySlots {
    /// Returns the slots of keys with these hashes.
    pub fn of(hashes: impl IntoIterator<Item = KeyHash>) -> KeySlots {
        let mut slots = hashes.into_iter().map(slot_of);
        match slots.next() {
            None => KeySlots::None,
            Some(first) if slots.all(|slot| slot == first) => KeySlots::One(first),
            Some(_) => KeySlots::Several,
        }
    }
}

/// Properties of a command or a transaction, and of its session, that decide the route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteQuery {
    /// The command or transaction may write.
    pub writes: bool,
    /// Its keys are shard channels.
    pub sharded: bool,
    /// The command is MIGRATE, which moves keys to another node.
    pub migrates: bool,
    /// The command uses a key in a database that is not selected.
    pub other_database: bool,
    /// The connection is in READONLY mode.
    pub reads_replica: bool,
    /// ASKING precedes the command, or the command implies ASKING.
    pub asking: bool,
}

/// The reason that a command does not run here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// Its keys are in several slots.
    CrossSlot,
    /// No node has the slot.
    Unbound,
    /// The cluster is down.
    Down,
    /// The cluster is down and serves reads only.
    DownToWrites,
    /// The slot is open, and the keys may be on two nodes.
    TryAgain,
    /// Another node has the slot.
    Moved(Slot, NodeIndex),
    /// The slot is moving to another node, which has the keys already.
    Ask(Slot, NodeIndex),
}

/// An open slot. The keys that exist here decide the route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenSlot {
    /// The slot is migrating to that node.
    Leaves(Slot, NodeIndex),
    /// The slot is being imported, and the command follows ASKING.
    Arrives,
}

/// The result of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// The command runs here.
    Here,
    /// The keys decide: see [`OpenSlot::settle`], which needs their shard locked.
    Open(OpenSlot),
}

/// Decides where a command runs.
///
/// # Errors
/// The reason that it does not run here.
pub(crate) fn route(view: &SlotView, slots: KeySlots, query: RouteQuery) -> Result<Route, Redirect> {
    let slot = match slots {
        KeySlots::None => return Ok(Route::Here),
        KeySlots::Several => return Err(Redirect::CrossSlot),
        KeySlots::One(slot) => slot,
    };
    let owner = view.owner(slot).ok_or(Redirect::Unbound)?;
    let is_mine = owner == view.me;
    let may_read = (query.reads_replica || query.sharded) && !query.writes;
    let is_read_here = may_read && view.my_primary() == Some(owner);
    // A replica knows the keys of its primary, so it also knows the keys that have left an open slot.
    let open = view.open(slot).filter(|open| is_mine || is_read_here || matches!(open, Open::Importing { .. }));
    if open.is_some() && query.other_database {
        return Err(Redirect::TryAgain);
    }
    check_state(view, query)?;
    match open {
        Some(_) if query.migrates && view.is_primary() => return Ok(Route::Here),
        Some(Open::Migrating { to }) if !query.sharded => return Ok(Route::Open(OpenSlot::Leaves(slot, to))),
        Some(Open::Importing { .. }) if query.asking && query.sharded => return Ok(Route::Here),
        Some(Open::Importing { .. }) if query.asking => return Ok(Route::Open(OpenSlot::Arrives)),
        _ => {}
    }
    match is_mine || is_read_here {
        true => Ok(Route::Here),
        false => Err(Redirect::Moved(slot, owner)),
    }
}

/// Returns the other node to which [`route`] redirects commands with keys in this slot, if that needs no closer look.
#[inline]
pub(crate) fn moved_to(view: &SlotView, slot: Slot) -> Option<NodeIndex> {
    let owner = view.owner(slot).filter(|owner| *owner != view.me)?;
    (view.is_up() && view.open(slot).is_none()).then_some(owner)
}

/// Checks that this node serves all slots of a command with keys in several slots, and that all are stable
/// (`cluster-cross-slot local`).
///
/// # Errors
/// The reason that the command does not run here. A slot of another node comes first, because a repetition would not help.
pub(crate) fn route_across(
    view: &SlotView,
    mut slots: impl Iterator<Item = Slot> + Clone,
    query: RouteQuery,
) -> Result<(), Redirect> {
    let may_read = query.reads_replica && !query.writes;
    let server = view.my_primary().filter(|_| may_read).unwrap_or(view.me);
    let imports = may_read || view.is_primary();
    let is_here = |slot| view.owner(slot) == Some(server) || imports && is_importing(view, slot);
    // A client finds the node of its shard channels by their common slot.
    if query.sharded || !slots.clone().all(is_here) {
        return Err(Redirect::CrossSlot);
    }
    check_state(view, query)?;
    // The keys of an open slot may be on two nodes. No node can run the command until they are on one.
    match slots.any(|slot| view.open(slot).is_some()) {
        true => Err(Redirect::TryAgain),
        false => Ok(()),
    }
}

/// Checks that a command with keys may run in the present state of the cluster.
fn check_state(view: &SlotView, query: RouteQuery) -> Result<(), Redirect> {
    let is_served = if query.sharded { view.pubsubshard_when_down } else { view.reads_when_down };
    match () {
        () if view.is_up() => Ok(()),
        () if !is_served => Err(Redirect::Down),
        () if query.writes && !query.sharded => Err(Redirect::DownToWrites),
        () => Ok(()),
    }
}

/// Returns the reason that a blocked client can't go on waiting here. `slots`: the slots of all keys of its command.
/// `reads_replica`: its command only reads, and its connection is in READONLY mode.
pub(crate) fn ends_wait(
    view: &SlotView,
    slots: impl Iterator<Item = Slot> + Clone,
    reads_replica: bool,
) -> Option<Redirect> {
    let ended = slots.clone().find_map(|slot| ends_wait_for(view, slot, reads_replica));
    ended.or_else(|| is_partly_open(view, slots).then_some(Redirect::TryAgain))
}

/// Returns true if keys are in several slots and one of these is open. The key that would be changed may be on another node.
fn is_partly_open(view: &SlotView, mut slots: impl Iterator<Item = Slot> + Clone) -> bool {
    let mut others = slots.clone();
    let first = others.next();
    others.any(|slot| Some(slot) != first) && slots.any(|slot| view.open(slot).is_some())
}

/// Like [`ends_wait`], for one slot.
fn ends_wait_for(view: &SlotView, slot: Slot, reads_replica: bool) -> Option<Redirect> {
    if !view.is_up() {
        return Some(Redirect::Down);
    }
    let Some(owner) = view.owner(slot) else {
        return Some(Redirect::Unbound).filter(|_| !is_importing(view, slot));
    };
    let is_here = owner == view.me || reads_replica && view.my_primary() == Some(owner) || is_importing(view, slot);
    (!is_here).then_some(Redirect::Moved(slot, owner))
}

/// Returns true if messages of a slot's channels arrive here.
pub(crate) fn serves_channels(view: &SlotView, slot: Slot) -> bool {
    let owner = view.owner(slot);
    owner.is_some_and(|owner| owner == view.me || view.my_primary() == Some(owner)) || is_importing(view, slot)
}

fn is_importing(view: &SlotView, slot: Slot) -> bool {
    matches!(view.open(slot), Some(Open::Importing { .. }))
}

/// The keys of a command that exist here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Presence {
    /// At least one key exists.
    pub some: bool,
    /// At least one key is missing.
    pub lacks: bool,
    /// The command names at least two different keys.
    pub is_several: bool,
}

impl Presence {
    /// Looks up these keys with `is_there`.
    pub fn of<K: Copy + PartialEq>(keys: impl IntoIterator<Item = K>, mut is_there: impl FnMut(K) -> bool) -> Presence {
        let (mut presence, mut first) = (Presence::default(), None);
        for key in keys {
            presence.is_several |= *first.get_or_insert(key) != key;
            match is_there(key) {
                true => presence.some = true,
                false => presence.lacks = true,
            }
        }
        presence
    }
}

impl OpenSlot {
    /// Decides by the keys that exist here.
    ///
    /// # Errors
    /// The reason that the command does not run here.
    pub fn settle(self, presence: Presence) -> Result<(), Redirect> {
        match self {
            _ if !presence.lacks => Ok(()),
            OpenSlot::Leaves(..) if presence.some => Err(Redirect::TryAgain),
            OpenSlot::Leaves(slot, to) => Err(Redirect::Ask(slot, to)),
            OpenSlot::Arrives if presence.is_several => Err(Redirect::TryAgain),
            OpenSlot::Arrives => Ok(()),
        }
    }
}

impl Redirect {
    /// Returns the error for a client with this connection.
    pub fn error(self, view: &SlotView, path: ClientPath) -> Error {
        let at = |word: &str, slot: Slot, node| {
            let endpoint = view.endpoint(node, path);
            Error::new(format!("{word} {slot} {}:{}", endpoint.host, endpoint.port))
        };
        match self {
            Redirect::CrossSlot => Error::fixed("CROSSSLOT Keys in request don't hash to the same slot"),
            Redirect::Unbound => Error::fixed("CLUSTERDOWN Hash slot not served"),
            Redirect::Down => Error::fixed("CLUSTERDOWN The cluster is down"),
            Redirect::DownToWrites => Error::fixed("CLUSTERDOWN The cluster is down and only accepts read commands"),
            Redirect::TryAgain => Error::fixed("TRYAGAIN Multiple keys request during rehashing of slot"),
            Redirect::Moved(slot, node) => at("MOVED", slot, node),
            Redirect::Ask(slot, node) => at("ASK", slot, node),
        }
    }

    /// Returns the error for a script that calls this command.
    pub fn script_error(self, command: &str) -> Error {
        match self {
            Redirect::CrossSlot => Error::new(format!(
                "ERR Command '{command}' in script attempted to access keys that don't hash to the same slot"
            )),
            Redirect::Unbound => Error::fixed("ERR Script attempted to access a slot not served"),
            Redirect::Down => Error::fixed("ERR Script attempted to execute a command while the cluster is down"),
            Redirect::DownToWrites => {
                Error::fixed("ERR Script attempted to execute a write command while the cluster is down and readonly")
            }
            Redirect::TryAgain => Error::new(format!(
                "ERR Unable to execute command '{command}' in script because undeclared keys were accessed during rehashing of \
                 the slot"
            )),
            Redirect::Moved(..) | Redirect::Ask(..) => NOT_LOCAL,
        }
    }
}

/// The error for a script that uses a key of another node.
const NOT_LOCAL: Error = Error::fixed("ERR Script attempted to access a non local key in a cluster node");
/// The error for a script that uses several slots without the flag `allow-cross-slot-keys`.
pub(crate) const NOT_SAME_SLOT: Error =
    Error::fixed("ERR Script attempted to access keys that do not hash to the same slot");
