//! Sorted sets: ZADD, ZRANGE and the other commands of the family.
//!
//! Every range by rank, score or name is first converted to a range of ranks; the rest is common code. Source of the
//! semantics: Redis's command pages of the group "sorted-set".

mod add;
mod combine;
mod pop;
mod range;
mod read;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use add::{Added, Flags, add_one};
pub(crate) use range::store_recorded;
pub use table::COMMANDS;

use resp::reply::Reply;
use store::keyspace::Key;

pub(crate) use self::read::reply_each_score;
use crate::Call;
use crate::effects::Class;

/// Format of members and scores in a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PairForm {
    /// Members only.
    Members,
    /// Members and scores: a flat array in RESP2, pairs in RESP3.
    Scores,
    /// Members and scores in pairs in both versions (ZMPOP).
    Pairs,
}

impl PairForm {
    fn with_scores(scores: bool) -> PairForm {
        if scores { PairForm::Scores } else { PairForm::Members }
    }

    /// Writes the header of an array for this number of members.
    fn header(self, reply: &mut Reply<'_>, members: usize) {
        let flat = self == PairForm::Scores && !reply.is_resp3();
        reply.array(if flat { members * 2 } else { members });
    }

    #[inline]
    fn write(self, reply: &mut Reply<'_>, member: &[u8], score: f64) {
        if self == PairForm::Pairs || (self == PairForm::Scores && reply.is_resp3()) {
            reply.array(2);
        }
        reply.bulk(member);
        if self != PairForm::Members {
            reply.double(score);
        }
    }
}

/// Records that `count` members were removed, and deletes the key if the sorted set is empty.
fn removed(call: &mut Call<'_, '_, '_>, key: Key<'_>, event: &'static str, count: usize, is_empty: bool) {
    call.changed_by(count, key, Class::ZSet, event);
    if is_empty {
        call.db.remove(key);
        call.event(key, Class::Generic, "del");
    }
}
