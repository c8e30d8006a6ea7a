//! Questions that a client asks at a steady pace, and locks that it tries to take again and again.

use super::{ARGUMENTS_MAX, Seen, Watch, has_options};
use crate::catalogue::{self, Class};
use crate::findings::{Confidence, Kind, Sighting};
use crate::hash::mix;
use crate::loops::Steps;
use crate::polls::Answered;

impl Watch<'_, '_> {
    /// Handles a question that a client may ask at a steady pace.
    pub(super) fn poll(&mut self, seen: &Seen<'_>) {
        let is_pop = matches!(seen.found.verb.class, Class::Pop | Class::Write);
        let question = mix(seen.found.hash, seen.key_hash);
        // Fields are different questions; the bounds of a range that ends now are one. Without replies, the id behind which a client reads shows
        // if it has got new entries.
        let is_told_by_id = seen.has(catalogue::STREAMS) && self.trip.reply.is_none();
        let has_part = seen.has(catalogue::MEMBER) || is_told_by_id;
        let question = if has_part { mix(question, seen.arguments) | 1 } else { question | 1 };
        if !(seen.is_paced || is_pop && seen.answer.is_empty) {
            return self.last.polls.ask_at_once(question);
        }
        let answered = Answered {
            question,
            command: seen.found.hash,
            takes: is_pop,
            key: seen.key_hash,
            asked_ns: self.trip.arrived_ns,
            reply: seen.answer.hash,
            is_empty: seen.answer.is_empty,
        };
        let Some(polled) = self.last.polls.ask(&answered) else { return };
        let confidence = match (self.trip.reply.is_some(), is_pop) {
            (true, true) => Confidence::High,
            (true, false) => Confidence::Medium,
            (false, _) => Confidence::Low,
        };
        self.record(Sighting {
            made: polled.made,
            needed: polled.found,
            lost_ns: (polled.made - polled.found) * self.connection.round_trip.usual_ns(),
            confidence,
            ..self.sighting(Kind::Polling, Steps::one(seen.shape, true))
        });
    }

    /// True if the command may take a lock that another client has: SETNX, or SET with NX.
    pub(super) fn is_lock(&self, seen: &Seen<'_>) -> bool {
        seen.found.verb.name == "SETNX"
            || has_options(&self.trip.command, &seen.found)
                && self.trip.command.from(3).take(ARGUMENTS_MAX).any(|option| option.eq_ignore_ascii_case(b"NX"))
    }
}
