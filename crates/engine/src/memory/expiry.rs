//! A thread's progress in the search for expired keys, among its shards of all databases.

/// The progress of the search; a place is a shard of a database.
#[derive(Default)]
pub(crate) struct ExpirySearch {
    /// The next place to search.
    at: usize,
    /// Number of consecutive places without expired keys.
    quiet: usize,
}

impl ExpirySearch {
    /// Returns the next place to search, after the end of the last search: a fixed starting place would starve the rest
    /// while there is always something to remove at the beginning.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Notes that `done` places out of `total` have nothing left to remove; 0 if the present place has.
    pub(crate) fn go_on(&mut self, done: usize, total: usize) {
        self.quiet = if done == 0 { 0 } else { self.quiet.saturating_add(done) };
        self.at = (self.at + done) % total;
    }

    /// Returns true if no place had anything left at its last visit.
    pub(crate) fn is_quiet(&self, total: usize) -> bool {
        self.quiet >= total
    }
}
