//! The plan of a window's requests.

use cluster::view::NodeIndex;
use commands::Handler;
use commands::call::KeyRef;
use resp::request::Batch;

use commands::table::{Command, KeysAt};

/// The greatest number of keys that memory is kept for from batch to batch.
pub(crate) const KEPT_KEYS_MAX: usize = 64 * 1024;

/// A request with all facts that are known before it runs.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    /// `None` for an unknown command.
    pub command: Option<&'static Command>,
    /// The handler, if it sees keys only and the request has exactly one key: the first fast path of `execute::dispatch`.
    pub one_key: Option<Handler>,
    pub keys_start: u32,
    pub keys_end: u32,
    /// True if the command works on a collection, which the key's entry only points to.
    pub reads_collection: bool,
    /// True if the command needs no check of its own: it is known, its number of arguments is right, and its user and its
    /// slots allow it. All other requests take the slow path.
    pub fits: bool,
    /// True if the command's time depends on its arguments alone.
    pub is_brief: bool,
    /// True if the command is fast, sees the session and takes no shards: the second fast path of `execute::dispatch`.
    pub is_keyless: bool,
    /// The other node of the cluster that serves the command's only key, if that node may run the command for the client. Such a key is not
    /// among the keys of the window, because it is not here.
    pub forwards_to: Option<NodeIndex>,
}

impl Planned {
    /// Returns this request's keys among the keys of its window.
    #[inline]
    pub fn keys_of<'k>(&self, keys: &'k [KeyRef]) -> &'k [KeyRef] {
        &keys[self.keys_start as usize..self.keys_end as usize]
    }

    /// Returns the index of the argument that is this request's first key. `keys` are the keys of its window.
    pub fn first_key(&self, keys: &[KeyRef]) -> Option<usize> {
        let here = || Some(keys.get(self.keys_start as usize..self.keys_end as usize)?.first()?.arg as usize);
        match self.command.filter(|_| self.forwards_to.is_some()).map(|command| command.keys) {
            Some(KeysAt::Only(at)) => Some(at),
            _ => here(),
        }
    }
}

/// The plan of a window.
#[derive(Default)]
pub(crate) struct Tables {
    pub batch: Batch,
    /// One for each request of the batch.
    pub planned: Vec<Planned>,
    /// The keys of all requests, one after the other.
    pub keys: Vec<KeyRef>,
}

impl Tables {
    /// Frees the memory of a request with millions of arguments, because the next one may never come.
    pub fn shrink(&mut self) {
        self.batch.shrink();
        self.keys.clear();
        self.keys.shrink_to(KEPT_KEYS_MAX);
    }
}
