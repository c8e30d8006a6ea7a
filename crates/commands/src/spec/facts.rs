//! Facts about commands beyond Redis's vocabulary. An entry declares them; the server never derives them from a name, a
//! group or documentation. Every default is the safe choice: an entry without facts may run slower but is correct.

use resp::request::Args;
use store::value::Type;

/// Yes-or-no facts of commands.
pub mod fact {
    /// The command's time depends only on the length of its arguments, and it reads no command counters. The worker may
    /// run several such commands while it keeps the other threads out, and count them afterwards. LPOP's count and
    /// SETRANGE's offset are numbers that make a command slow, so these commands are not brief.
    pub const BRIEF: u32 = 1;
    /// Runs at once even inside MULTI.
    pub const AT_ONCE: u32 = 1 << 1;
    /// Allowed on a RESP2 connection that has subscriptions.
    pub const FOR_SUBSCRIBERS: u32 = 1 << 2;
    /// Runs the queued transaction: the engine locks the shards of all queued commands.
    pub const RUNS_QUEUE: u32 = 1 << 3;
    /// Excluded from a pipeline token's count, even when it is refused. On a container, it applies to the subcommands.
    pub const UNCOUNTED: u32 = 1 << 4;
    /// Refused like a write while changes can't be written to disk, because monitoring tools judge the server's health
    /// by its reply.
    pub const TELLS_HEALTH: u32 = 1 << 5;
    /// On a container: its subcommands keep the effect of CLIENT CACHING for the next command.
    pub const KEEPS_CACHING: u32 = 1 << 6;
    /// Subscribes to the channels named by its arguments.
    pub const SUBSCRIBES: u32 = 1 << 7;
    /// Subscribes to the patterns given as its arguments.
    pub const SUBSCRIBES_TO_PATTERNS: u32 = 1 << 8;
    /// Concerns all databases, not only the selected one.
    pub const ALL_DATABASES: u32 = 1 << 9;
    /// May read keys that its arguments don't name, through SORT's patterns. `Rules::denies_lookups` forbids that.
    pub const LOOKS_UP: u32 = 1 << 10;
    /// Brief, if large values are freed in the background (`Rules::lazy_free`).
    pub const BRIEF_IF_LAZY: u32 = 1 << 11;
    /// Selects the database given as its first argument, for later commands of the connection.
    pub const SELECTS: u32 = 1 << 12;
    /// Moves its keys to another server. A cluster's node serves it while the slot of the keys is open.
    pub const MIGRATES: u32 = 1 << 13;
    /// Runs although a failure has stopped the pipeline (PIPELINE ABORT), because it ends the connection or its state.
    pub const RUNS_WHEN_STOPPED: u32 = 1 << 14;
    /// Changes the connection's state or occupies it, so it is refused on connections that requests of many clients
    /// share (HTTP). Blocking commands, and commands that run before authentication or at once inside MULTI, are
    /// refused there without this fact.
    pub const HOLDS_CONNECTION: u32 = 1 << 20;
    /// Only reports on the server, although its flags include ADMIN or lack READONLY.
    pub const TELLS: u32 = 1 << 21;
    /// Blocks only with an option (BLOCK).
    pub const WAITS_BY_OPTION: u32 = 1 << 22;
    /// Accepts fewer arguments than its notation needs, as in Valkey, and refuses them with texts of its own.
    pub const REFUSES_SHORT: u32 = 1 << 23;
}

/// Event that ends the wait of a blocked command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The type that a key must get. A key of another type doesn't end the wait.
    pub kind: Type,
    /// True if the deletion of the key ends the wait, with the command's error for a missing key.
    pub ends_without_key: bool,
}

/// Kind of channel that a command publishes on; the channel is its first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// Channels of SUBSCRIBE and PSUBSCRIBE.
    Plain,
    /// Channels of SSUBSCRIBE.
    Sharded,
}

/// Meaning of the first argument of a command that runs a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// The script's text.
    Text,
    /// The digest of the script's text.
    Digest,
    /// The name of a library's function.
    Function,
}

/// True if the argument at an index must not be shown: a password, or a name that goes with one.
pub type IsSecret = fn(Args<'_>, usize) -> bool;

/// Visits the indexes of arguments that name databases other than the selected one.
pub type NamedDatabases = fn(Args<'_>, &mut dyn FnMut(usize));

/// The flags of a key, if they depend on the other arguments.
pub type FlagsOfKey = fn(Args<'_>) -> u32;
