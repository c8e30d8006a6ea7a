//! The section about the times of batches.

use crate::families::observability::latency::batches::{PERCENTILES, of_all};
use statistics::ticks::to_microseconds;

use super::{Gathered, InfoText};

pub(super) fn batches(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    for class in of_all(gathered.turn.engine()) {
        text.field(&format!("batches_{}", class.depth), format_args!("count={}", class.batches));
        for part in &class.parts {
            let shown = PERCENTILES
                .map(|(name, percent)| format!("{name}={:.3}", to_microseconds(part.durations.percentile(percent))));
            text.field(&format!("batches_usec_{}_{}", class.depth, part.name), shown.join(","));
        }
    }
}
