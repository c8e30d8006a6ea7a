//! What SCAN and its relatives have in common: the options that say how much to look at and what to show, and the form
//! of the reply.
//!
//! Knows nothing of what is scanned. Source of the semantics: the command page of SCAN; the order of checks is that of
//! a Redis server.

use resp::num;
use resp::reply::{Output, Reply};
use store::glob;

use crate::Call;
use crate::error::{Error, Outcome};

/// Members that a call visits if it doesn't say.
const COUNT_DEFAULT: usize = 10;

/// Steps that a call makes at most, per member that it is to visit: a table that is almost empty must neither make one
/// call walk all of it, nor a client call for every empty bucket.
const STEPS_PER_MEMBER: usize = 10;

/// The options MATCH and COUNT.
pub struct ScanOptions<'c> {
    /// About how many members to visit; at least 1.
    pub count: usize,
    /// None if all are shown.
    pattern: Option<&'c [u8]>,
}

impl<'c> ScanOptions<'c> {
    /// Reads the arguments from `first` on. Any other word is handed to `other` with its index, which says how many
    /// arguments belong to it, itself included, or refuses it. Errors: a count that is no integer or below 1, a word
    /// without its value.
    pub fn parse(
        call: &Call<'c, '_, '_>,
        first: usize,
        mut other: impl FnMut(usize) -> Result<usize, Error>,
    ) -> Result<Self, Error> {
        let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None };
        let mut index = first;
        while index < call.len() {
            let has_value = index + 1 < call.len();
            index += if has_value && call.is(index, "count") {
                options.count = usize::try_from(call.int(index + 1)?).unwrap_or(0);
                if options.count == 0 {
                    return Err(Error::SYNTAX);
                }
                2
            } else if has_value && call.is(index, "match") {
                // A lone star would not match an empty name.
                options.pattern = Some(call.arg(index + 1)).filter(|pattern| pattern != b"*");
                2
            } else {
                other(index)?
            };
        }
        Ok(options)
    }

    /// Whether a member of this name is to be shown.
    #[inline]
    #[must_use]
    pub fn shows(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name, false))
    }

    /// Calls `step` with a cursor, which visits members and gives the next cursor, until enough were visited or the
    /// cursor is 0 again, and replies with that and what was found.
    pub fn run(
        &self,
        cursor: u64,
        reply: &mut Reply<'_>,
        mut step: impl FnMut(u64, &mut ScanResults<'_, '_>) -> u64,
    ) -> Outcome {
        // The cursor that comes first in the reply is known last.
        let mut output = Output::default();
        let texts = Reply::new(&mut output, reply.proto());
        let mut found = ScanResults { options: self, texts, visited: 0, len: 0 };
        let mut next = cursor;
        for _ in 0..=self.count.saturating_mul(STEPS_PER_MEMBER) {
            next = step(next, &mut found);
            if next == 0 || found.visited >= self.count {
                break;
            }
        }
        let len = found.len;
        reply.array(2);
        reply.bulk(num::IntText::new().u64(next));
        reply.array(len);
        reply.output().append(&mut output);
        Ok(())
    }
}

/// What a call has come across so far.
pub struct ScanResults<'o, 'c> {
    options: &'o ScanOptions<'c>,
    texts: Reply<'o>,
    visited: usize,
    len: usize,
}

impl ScanResults<'_, '_> {
    /// Notes that a member was visited; says whether it is to be shown.
    #[inline]
    pub fn wants(&mut self, name: &[u8]) -> bool {
        self.visited += 1;
        self.options.shows(name)
    }

    /// Adds a text to the reply: a member's name, or what belongs to it.
    #[inline]
    pub fn show(&mut self, text: &[u8]) {
        self.len += 1;
        self.texts.bulk(text);
    }
}

/// The cursor at `index`.
pub fn cursor(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Error> {
    num::parse_cursor(call.arg(index)).ok_or(Error::INVALID_CURSOR)
}

/// The reply of a scan of nothing.
pub fn reply_nothing(reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk("0");
    reply.array(0);
}
