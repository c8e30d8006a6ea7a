//! Scripts: which there are (`cache.rs`), which take too long (`busy.rs`), which
//! libraries of functions there are (`library.rs`, `payload.rs`), a thread's machine for them (`machine.rs`), how one
//! runs among other commands (`run.rs`), what it takes back when it starts over (`tentative.rs`), what it sees of the
//! server (`world.rs`), and what its text tells before it has run (`foretell.rs`, `keeping.rs`, `tokens.rs`). The Lua of it is the crate `script`;
//! the commands are `families::scripting`.
//!
//! # Atomicity
//!
//! A script is atomic: nobody sees the middle of it, and it sees nobody's. With one thread that is so by itself. With
//! several, a script runs in one of two ways.
//!
//! *Among others.* It takes the shards of the keys that it declares, in ascending order, as every command does, and
//! keeps them until it has ended. When it reaches for a key in another shard, it takes that too, and keeps it as well
//! ([`Locked::extend`]). Since it gives nothing back before its end, it is serializable: its place in the order is the
//! moment at which it took its last shard. All that it has seen before lies in shards that it already held and nobody
//! else could have changed since; all that it sees later, it holds.
//!
//! There is no deadlock: whoever waits for a shard without a limit of time waits for one above all that it holds. In a
//! circle of waits, somebody waits for a lower one than it holds; that can only be a script, and it gives up after a
//! while (`Patience`). If it has changed nothing yet, it gives all its shards back and starts over, alone. If it has,
//! the command is refused with an error. This takes a script that reaches beyond what it declares for the first time,
//! since from then on it runs in the other way, and somebody who has what it reaches for and waits for what it has. A
//! command that concerns the whole keyspace can't be had then without anybody else, so the scripts that name one run in
//! the other way from the start.
//!
//! *Alone, behind the gate.* Everything is in reach, and nothing else runs. So run scripts that are known to reach
//! beyond what they declare, those whose text names a command which concerns the whole keyspace (KEYS, SCAN, FLUSHALL),
//! transactions with scripts in them, and what is to be learnt of new scripts: a script's first run is made alone, so
//! that its second is made in the right way, unless its text shows that it keeps to its keys
//! (`keeping::keeps_to_its_keys`). Learning has a budget (`cache::Scripts::may_learn`): an application that
//! makes a new text for every call doesn't close the gate each time. What is to run alone is compiled before the gate
//! is closed (`families::scripting::compile_ahead`).

pub mod busy;
pub mod cache;
mod foretell;
pub(crate) mod keeping;
pub mod library;
mod machine;
pub(crate) mod payload;
mod run;
mod tentative;
mod tokens;
mod world;

pub(crate) use machine::{LocalScripts, Machine};
pub(crate) use run::{Rights, Task, declared_keys, is_new_text_alone, run, wants_everything};

#[cfg(doc)]
use store::keyspace::Locked;
