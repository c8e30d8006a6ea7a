//! Scripts: which there are (`cache.rs`), which take too long (`busy.rs`), which
//! libraries of functions there are (`library.rs`), a thread's machine for them (`machine.rs`), what they
//! may do (`rights.rs`), what one takes back when it starts over (`tentative.rs`), and what its text tells before it
//! has run (`foretell.rs`, `keeping.rs`, `tokens.rs`). How one runs among other commands, and what it sees of the
//! server, is `script_calls`; the Lua of it is the crate `script`; the commands are `families::scripting`.
//!
//! # Atomicity
//!
//! A script is atomic: nothing else sees the middle of it, and it sees the middle of nothing else. With one thread that
//! is so by itself. With several, a script runs in one of two ways.
//!
//! *Among others.* It takes the shards of the keys that it declares, in ascending order, as every command does, and
//! keeps them until it has ended. When it reaches for a key in another shard, it takes that too, and keeps it as well
//! ([`Locked::extend`]). Since it gives nothing back before its end, it is serializable: its place in the order is the
//! moment at which it took its last shard. All that it has seen before lies in shards that it already held and nothing
//! else could have changed since; all that it sees later, it holds.
//!
//! There is no deadlock: a thread that waits for a shard without a limit of time waits for one above all that it holds.
//! In a circle of waits, one thread waits for a lower one than it holds; that can only be a script, and it gives up
//! after a while (`Patience`). If it has changed nothing yet, it gives all its shards back and starts over, alone. If
//! it has, the command is refused with an error. This takes a script that reaches beyond what it declares for the first
//! time, since from then on it runs in the other way, and another thread that has what it reaches for and waits for
//! what it has. A command that concerns the whole keyspace can't run alone then, so the scripts that name one run in
//! the other way from the start.
//!
//! *Alone, behind the gate.* Everything is in reach, and nothing else runs. So run scripts that are known to reach
//! beyond what they declare, those with a text that names a command which concerns the whole keyspace (KEYS, SCAN,
//! FLUSHALL), transactions with scripts in them, and what is to be learnt of new scripts: a script's first run is made
//! alone, so that its second is made in the right way, unless its text shows that it keeps to its keys
//! (`keeping::keeps_to_its_keys`). Learning has a budget (`cache::Scripts::may_learn`): an application that
//! makes a new text for every call doesn't close the gate each time. What is to run alone is compiled before the gate
//! is closed (`script_calls::machines::compile_ahead`).

pub mod busy;
pub mod cache;
mod foretell;
pub(crate) mod keeping;
pub mod library;
mod machine;
pub(crate) mod rights;
mod tentative;
mod tokens;

use script::LogLevel;

use crate::config;
use crate::host::Host;

pub(crate) use machine::{LocalScripts, ScriptMachine};
pub(crate) use tentative::MonitorLine;

#[cfg(doc)]
use store::keyspace::Locked;

/// Writes what a script says into the server's log.
pub(crate) fn write_log(server: &dyn Host, level: LogLevel, message: &[u8]) {
    let level = match level {
        LogLevel::Debug => config::LogLevel::Debug,
        LogLevel::Verbose => config::LogLevel::Verbose,
        LogLevel::Notice => config::LogLevel::Notice,
        LogLevel::Warning => config::LogLevel::Warning,
    };
    server.log(level, &String::from_utf8_lossy(message));
}
