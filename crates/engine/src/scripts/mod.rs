//! Scripts and functions:
//!
//! - `cache.rs`: the cache of scripts
//! - `busy.rs`: scripts that take too long
//! - `library.rs`: libraries of functions
//! - `removals.rs`: removed scripts and libraries
//! - `machine.rs`: a thread's machine for scripts
//! - `rights.rs`: the rights of scripts
//! - `tentative.rs`: the effects that a script revokes when it starts over
//! - `whole_keyspace.rs`, `static_check.rs`, `tokens.rs`: facts from a script's text before its first run
//!
//! `script_calls` runs a script among other commands and is its view of the server. The crate `script` has the Lua. The
//! commands are in `families::scripts::scripting`.
//!
//! # Atomicity
//!
//! A script is atomic: no other command sees its intermediate states, and it sees no intermediate state of another
//! command. A single thread ensures this trivially. With several threads, a script runs in one of two ways.
//!
//! *Among others.* The script locks the shards of its declared keys in ascending order, like every command, and keeps
//! them until its end. When it accesses a key in another shard, it locks that shard and keeps it, too
//! ([`Locked::extend`]). This is two-phase locking, so scripts are serializable: a script's place in the order is the
//! moment at which it locked its last shard. Everything that it saw earlier lies in shards that it already held, so
//! nothing else could have changed it since. Everything that it sees later, it holds.
//!
//! There is no deadlock: a thread that waits without a time limit waits for a shard above all that it holds. In a
//! circle of waits, at least one thread waits for a shard below one that it holds. Only a script does that, and it
//! gives up after a while (`WaitMax`). If it has changed nothing yet, it releases all its shards and starts over,
//! alone. Otherwise its command fails with an error. Two conditions must meet for this error. The script accesses an
//! undeclared key for the first time, because later runs are made alone. Another thread holds this key's shard and
//! waits for one of the script's shards. A command on the whole keyspace can't get all shards in this way, so scripts
//! that name one run alone from the start.
//!
//! *Alone, behind the gate.* Everything is in reach, and nothing else runs. The following run in this way: scripts that
//! are known to access undeclared keys; scripts with a text that names a command on the whole keyspace (KEYS, SCAN,
//! FLUSHALL); transactions with scripts; and first runs of new scripts. A first run is made alone to learn the script's
//! behavior, unless its text shows that it uses declared keys only (`static_check::uses_declared_keys_only`). Learning
//! has a budget (`cache::Scripts::may_learn`), so an application with a new text for every call doesn't close the gate
//! each time. Scripts that run alone are compiled before the gate is closed (`script_calls::machines::compile_ahead`).

pub mod busy;
pub mod cache;
pub mod library;
mod machine;
mod removals;
pub(crate) mod rights;
pub(crate) mod static_check;
mod tentative;
mod tokens;
mod whole_keyspace;

use script::LogLevel;

use crate::host::Host;

pub(crate) use machine::{LocalScripts, ScriptMachine};
pub(crate) use tentative::MonitorLine;

#[cfg(doc)]
use store::keyspace::Locked;

/// Writes a script's message into the server's log.
pub(crate) fn write_log(server: &dyn Host, level: LogLevel, message: &[u8]) {
    let level = match level {
        LogLevel::Debug => config::LogLevel::Debug,
        LogLevel::Verbose => config::LogLevel::Verbose,
        LogLevel::Notice => config::LogLevel::Notice,
        LogLevel::Warning => config::LogLevel::Warning,
    };
    server.log(level, &String::from_utf8_lossy(message));
}
