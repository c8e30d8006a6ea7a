//! The section about the times of batches.

use crate::families::observability::latency::batches::{PERCENTILES, of_all};
use statistics::ticks::to_microseconds;

use super::{Gathered, InfoText, Microseconds};

pub(super) fn batches(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    for class in of_all(gathered.turn.engine()) {
        text.parts(&["batches_", class.depth, ":count="]);
        text.last(class.batches);
        for part in &class.parts {
            text.parts(&["batches_usec_", class.depth, "_", part.name]);
            for (separator, (name, percent)) in [":", ",", ","].into_iter().zip(PERCENTILES) {
                text.parts(&[separator, name, "="]);
                text.add(Microseconds(to_microseconds(part.durations.percentile(percent))));
            }
            text.last("");
        }
    }
}
