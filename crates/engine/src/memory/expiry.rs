//! How far a thread is in looking for expired keys, among its shards of all databases.

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct ExpirySearch {
    /// The place to look in next.
    at: usize,
    /// How many places in a row had nothing left to be removed.
    quiet: usize,
}

impl ExpirySearch {
    /// The place to look in next, on from where the last look ended: a search that begins at the same place each time
    /// never gets to the rest while there is always something to remove at the beginning.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// So many places, of `total`, have nothing left to be removed; 0 if this one has.
    pub(crate) fn go_on(&mut self, done: usize, total: usize) {
        self.quiet = if done == 0 { 0 } else { self.quiet.saturating_add(done) };
        self.at = (self.at + done) % total;
    }

    /// True if all places had nothing left when they were last looked at.
    pub(crate) fn is_quiet(&self, total: usize) -> bool {
        self.quiet >= total
    }
}
