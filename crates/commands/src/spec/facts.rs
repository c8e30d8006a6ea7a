//! What the server must know of a command beyond what Redis's vocabulary says: declared in its entry, never derived from
//! its name, its group or its documentation. Every default is the safe one, so that an entry without facts runs slower at
//! worst.

use resp::request::Args;
use store::value::Type;

/// Yes-or-no facts of commands.
pub mod fact {
    /// The command's time depends on the length of its arguments alone, and it reads no command counters. The worker may
    /// run several such commands while it keeps the other threads out, and count them afterwards. LPOP's count and
    /// SETRANGE's offset are numbers that make a command long: such commands are not brief.
    pub const BRIEF: u32 = 1;
    /// Runs at once, though MULTI has begun a transaction.
    pub const AT_ONCE: u32 = 1 << 1;
    /// Allowed on a connection in RESP2 that has subscribed to something.
    pub const FOR_SUBSCRIBERS: u32 = 1 << 2;
    /// Runs the transaction that MULTI has begun: the engine takes the shards of all its commands.
    pub const RUNS_QUEUE: u32 = 1 << 3;
    /// Doesn't count for a pipeline token, not even when it is refused. Of a container, it holds for its subcommands.
    pub const UNCOUNTED: u32 = 1 << 4;
    /// Refused, as writes are, while changes can't be written to disk: what watches over the server goes by its answer.
    pub const TELLS_HEALTH: u32 = 1 << 5;
    /// Of a container: its subcommands leave what CLIENT CACHING has said to the command after them.
    pub const KEEPS_CACHING: u32 = 1 << 6;
    /// Subscribes to the channels that its arguments name.
    pub const SUBSCRIBES: u32 = 1 << 7;
    /// Subscribes to the patterns that its arguments are.
    pub const SUBSCRIBES_TO_PATTERNS: u32 = 1 << 8;
    /// Concerns all databases, whichever is selected.
    pub const ALL_DATABASES: u32 = 1 << 9;
    /// May read keys that its arguments don't name: those that SORT's patterns lead to. `Rules::denies_lookups` says
    /// whether it may.
    pub const LOOKS_UP: u32 = 1 << 10;
    /// Would be brief, were it not that it may free a large value: it is brief where that is done in the background (`Rules::lazy_free`).
    pub const BRIEF_IF_LAZY: u32 = 1 << 11;
    /// Selects the database that its first argument names, for the connection's commands after it.
    pub const SELECTS: u32 = 1 << 12;
    /// Changes how its connection goes on, or occupies it: not for a connection that requests of many share (HTTP). What waits, or
    /// may be run without authentication or within MULTI at once, is that without saying so.
    pub const HOLDS_CONNECTION: u32 = 1 << 20;
    /// Only tells of the server, though its flags say that it is for operators, or don't say that it only reads.
    pub const TELLS: u32 = 1 << 21;
    /// Waits only if an option of it (BLOCK) says so.
    pub const WAITS_BY_OPTION: u32 = 1 << 22;
}

/// What a command that finds nothing waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The type that a key must get. A key of another type leaves the command waiting.
    pub kind: Type,
    /// True if the wait ends when the key is gone, with the command's error for that.
    pub ends_without_key: bool,
}

/// The kind of channel that a command publishes on; the channel is its first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// Those of SUBSCRIBE, and of patterns.
    Plain,
    /// Those of SSUBSCRIBE.
    Sharded,
}

/// What the first argument of a command that runs a script is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// The script's text.
    Text,
    /// The digest of its text.
    Digest,
    /// The name of a library's function.
    Function,
}

/// True if the argument at an index must not be shown: a password, or a name that goes with one.
pub type IsSecret = fn(Args<'_>, usize) -> bool;

/// Visits the indexes of the arguments that name databases, other than the selected one.
pub type NamedDatabases = fn(Args<'_>, &mut dyn FnMut(usize));

/// The flags of a key, where they depend on the other arguments.
pub type FlagsOfKey = fn(Args<'_>) -> u32;
