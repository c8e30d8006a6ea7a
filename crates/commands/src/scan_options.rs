//! Common parts of SCAN and similar commands: the options that limit the work and filter the results, and the reply's
//! format.
//!
//! This module knows nothing of the scanned collection. Source of the semantics: the command page of SCAN; the order of
//! checks follows a Redis server.

use resp::num;
use resp::reply::{Output, Reply};
use store::glob;

use crate::Call;
use crate::error::{Error, Outcome};

/// Default number of members that a call visits.
const COUNT_DEFAULT: usize = 10;

/// Limit of steps in a call, per member that it should visit. It keeps one call from walking all of an almost empty
/// table, but lets it skip many empty buckets.
const STEPS_PER_MEMBER: usize = 10;

/// The options MATCH and COUNT.
pub struct ScanOptions<'c> {
    /// Approximate number of members to visit; at least 1.
    pub count: usize,
    /// Filter for names; none shows all.
    pattern: Option<&'c [u8]>,
}

impl<'c> ScanOptions<'c> {
    /// Parses the arguments from `first` on. Any other word is passed to `other` with its index; `other` returns the
    /// number of arguments that the option takes, including the word, or an error. Errors: a count that is not an
    /// integer or below 1, an option without its value.
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
                // A pattern of one star is treated as no filter; as a glob it would not match an empty name.
                options.pattern = Some(call.arg(index + 1)).filter(|pattern| pattern != b"*");
                2
            } else {
                other(index)?
            };
        }
        Ok(options)
    }

    /// True if a member with this name is shown.
    #[inline]
    #[must_use]
    pub fn shows(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name, false))
    }

    /// Calls `step` with a cursor until enough members were visited or the cursor is 0 again, and replies with the
    /// cursor and the results. `step` visits members and returns the next cursor.
    pub fn run(
        &self,
        cursor: u64,
        reply: &mut Reply<'_>,
        mut step: impl FnMut(u64, &mut ScanResults<'_, '_>) -> u64,
    ) -> Outcome {
        // The cursor comes first in the reply but is known last.
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

/// Results of a call so far.
pub struct ScanResults<'o, 'c> {
    options: &'o ScanOptions<'c>,
    texts: Reply<'o>,
    visited: usize,
    len: usize,
}

impl ScanResults<'_, '_> {
    /// Counts a visited member; returns true if it should be shown.
    #[inline]
    pub fn wants(&mut self, name: &[u8]) -> bool {
        self.visited += 1;
        self.options.shows(name)
    }

    /// Adds a text to the reply: a member's name, value or score.
    #[inline]
    pub fn show(&mut self, text: &[u8]) {
        self.len += 1;
        self.texts.bulk(text);
    }
}

/// Parses the argument at `index` as a cursor.
pub fn cursor(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Error> {
    num::parse_u64_lenient(call.arg(index)).ok_or(Error::INVALID_CURSOR)
}

/// Writes the reply of a scan without results.
pub fn reply_nothing(reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk("0");
    reply.array(0);
}
