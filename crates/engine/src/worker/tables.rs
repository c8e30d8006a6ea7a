//! What is known of the requests of a window before they run.

use commands::Handler;
use commands::call::KeyRef;
use resp::request::Batch;

use crate::command_table::Command;

/// Keys that room is kept for from batch to batch.
pub(crate) const KEPT_KEYS_MAX: usize = 64 * 1024;

/// A request with all that can be told before it runs.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    /// None: there is no such command.
    pub command: Option<&'static Command>,
    /// What runs it, if it sees keys only and has exactly one here.
    pub quick: Option<Handler>,
    pub keys_start: u32,
    pub keys_end: u32,
    /// Whether it works on a collection, which the key's entry only points to.
    pub reads_collection: bool,
    /// Whether the command takes so many arguments, and may run without being admitted with care, as far as its user's rules
    /// go.
    pub fits: bool,
    /// Whether the time that it takes depends on its arguments alone.
    pub is_brief: bool,
    /// Whether it is fast, sees the session and takes no shards whatever its arguments.
    pub is_keyless: bool,
}

/// What is known of a window's requests.
#[derive(Default)]
pub(crate) struct Tables {
    pub batch: Batch,
    /// For each request of the batch.
    pub planned: Vec<Planned>,
    /// Of all of them, one after the other.
    pub keys: Vec<KeyRef>,
}

impl Tables {
    /// Gives back what a request of millions of arguments has taken: the next such one may never come.
    pub fn shrink(&mut self) {
        self.batch.shrink();
        self.keys.clear();
        self.keys.shrink_to(KEPT_KEYS_MAX);
    }
}
